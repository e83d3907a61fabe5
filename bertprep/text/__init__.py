"""Turns text files into shards of sentences, and into a vocabulary."""
