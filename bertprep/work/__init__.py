"""The work that all commands share: the loop over tasks, which files are finished, and where every file is."""
