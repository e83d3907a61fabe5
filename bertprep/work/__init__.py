"""The work of all commands: tasks, the loop over them, what is finished, and where everything lies."""
