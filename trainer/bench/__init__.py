"""`python -m trainer bench`: throughput and memory on this machine, and tables of them."""
