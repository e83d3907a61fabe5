"""Loads and uses a tokenizer.json in a separate process first, because it may make `tokenizers` panic, abort or use all memory.

A panic prints lines of Rust before any message of ours, and a failed allocation ends the process. Both can happen when a file
is loaded or first used, so this program does both, with limits on memory and time. Redirecting the standard error of our own
process instead would hide the last message of an abort, and the lines of other threads. A trial takes 0.15 s, and longer for a
vocabulary of several megabytes.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from contextlib import suppress

MAX_BYTES, MAX_SECONDS = 4 << 30, 20
"""Limits of a trial: address space in bytes, and CPU time in seconds. A vocabulary of 128,003 tokens takes 70 MB and 0.15 s."""
_PANICS = 3  # exit status
_tried: set[bytes] = set()  # sha256 of the files that this process, or the one it was forked from, has tried


def why_unusable(data: bytes, sample: str) -> str | None:
    """Return why `tokenizers` cannot load a file and encode the sample; None if it can, or if it raises an `Exception`."""
    digest = hashlib.sha256(data).digest()
    if digest in _tried:
        return None
    ended = subprocess.run(
        [sys.executable, __file__, sample, str(MAX_BYTES), str(MAX_SECONDS)], input=data, capture_output=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TOKENIZERS_PARALLELISM": "false"},
    )  # fmt: skip
    if ended.returncode == _PANICS:
        return ended.stdout.decode(errors="replace").strip() or "it panics"
    if ended.returncode == -signal.SIGXCPU:
        return f"it takes more than {MAX_SECONDS} s for a few lines of text"
    if ended.returncode < 0:
        return f"it takes more than {MAX_BYTES >> 30} GiB of memory, or crashes"
    _tried.add(digest)
    return None


def _try(sample: str, most_bytes: int, most_seconds: int) -> int:
    import resource

    for limit, most in ((resource.RLIMIT_AS, most_bytes), (resource.RLIMIT_CPU, most_seconds)):
        with suppress(ValueError, OSError):  # a lower limit is already set
            resource.setrlimit(limit, (most, resource.getrlimit(limit)[1]))
    import tokenizers

    try:
        tokenizer = tokenizers.Tokenizer.from_str(sys.stdin.buffer.read().decode())
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode("a")
        tokenizer.encode(sample, add_special_tokens=False)
    except Exception:  # `DocumentTokenizer` will get the same exception, and explain it
        return 0
    except BaseException as panic:
        sys.stdout.buffer.write(str(panic).encode(errors="replace"))
        return _PANICS
    return 0


if __name__ == "__main__":
    sys.exit(_try(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
