"""Where text and task data come from."""
