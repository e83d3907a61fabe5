"""Token shards and their readers: rows for encoders, mixtures, pairs made on the fly, and MDS for other trainers."""
