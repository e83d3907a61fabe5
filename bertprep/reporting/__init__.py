"""A data set as one HTML page to read: how it was made, how much there is, whether it is right, and what it looks like."""
