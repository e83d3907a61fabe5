"""Downloads over an unreliable network: listed once, fetched by ranges, verified by checksums."""
