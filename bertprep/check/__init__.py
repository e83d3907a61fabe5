"""Validation of records and text shards, and the readable form of an example."""
