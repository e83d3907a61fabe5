"""Task data and weights, in the files that trainers in the field read."""
