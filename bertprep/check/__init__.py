"""Validate records, text shards and token shards, and print examples in readable form."""
