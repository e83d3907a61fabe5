"""What `create` will make of a corpus and cost on this machine, and what a training run makes of the records."""
