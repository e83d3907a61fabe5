"""`python -m trainer bench`: measures throughput and memory on this machine, and tabulates them."""
