"""Text files to sentences in shards, and to a vocabulary."""
