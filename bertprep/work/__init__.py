"""The work of all commands: tasks, the loop over them, what is finished, and where every file is."""
