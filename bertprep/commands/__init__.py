"""The commands, one file each: the request, the function that serves it, and `run`, which prints the result.

`bertprep.cli` imports only the requested command, and commands import slow modules where they use them, so `--help` is fast.
"""
