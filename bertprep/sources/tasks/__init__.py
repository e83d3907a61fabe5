"""Task data and weights, as the files that the field's trainers read."""
