"""Where things are in a workspace, what is said of them in manifests, and how data sets are found."""
