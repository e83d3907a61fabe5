"""A data set as one HTML page: how it was made, how much there is, whether it is valid, and examples."""
