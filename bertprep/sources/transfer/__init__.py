"""Bringing files over a network that is not always there: listed once, fetched by ranges, checked by their sums."""
