"""Downloads over an unreliable network: listed once, fetched in ranges, verified by checksums."""
