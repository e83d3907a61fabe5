"""The layout of a workspace, its manifests and journals, and the checks of existing files."""
