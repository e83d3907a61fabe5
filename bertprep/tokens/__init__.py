"""Token shards and what is read from them: rows for encoders, mixtures, pairs made on the fly, and MDS for other trainers."""
