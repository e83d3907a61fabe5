"""Is this data right? Looking at records, and checking them."""
