"""A compact trainer for BERT-type models, on the records that bertprep writes."""
