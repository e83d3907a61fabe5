"""Atomic files, locks, decompression, free space, and mapped files that survive truncation by another process."""
