"""The commands, one file each: a request, its function, and its output (`run`).

`bertprep.cli` imports only the requested command, which imports slow modules where it uses them, so `--help` is fast.
"""
