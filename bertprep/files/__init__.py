"""Files that appear whole or not at all, are locked, decompressed, and mapped though another process may cut them short."""
