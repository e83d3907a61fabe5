"""bertprep makes, checks and converts the data that BERT-type models are pretrained on."""
