"""The largest batch that fits on the devices, found by trying: memory is used by too many parts to foretell it.

Each try is `python -m trainer bench` in a process of its own, for a few steps, because a process that ran out of memory has
none left to try again with, and is killed where the system runs out.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bertprep.errors import BertprepError, UsageError
from bertprep.progress import say
from trainer.bench.table import read_rows

LARGEST = "largest"
_MOST_SEQUENCES = 1 << 16  # of a device; whatever fits beyond was not meant
_FEW_STEPS = {"steps": 2, "skip": 2, "repeats": 1}


def find_largest(fits: Callable[[int], bool], *, unit: int = 8) -> int:
    """The largest multiple of `unit` that fits, by doubling and then halving what is between; below `unit`, any number.

    >>> tried = []
    >>> find_largest(lambda size: tried.append(size) or size <= 100), tried
    (96, [8, 16, 32, 64, 128, 96, 112, 104])
    """
    low, high = 0, unit
    while high <= _MOST_SEQUENCES and fits(high):
        low, high = high, 2 * high
    if not low:
        unit = 1
    while high - low > unit:
        middle = (low + high) // 2 // unit * unit
        low, high = (middle, high) if fits(middle) else (low, middle)
    if not low:
        raise BertprepError(
            "not even a batch of 1 sequence fits; see what the tries above say, or take a smaller --model or --seq"
        )
    return low


def fits(options: argparse.Namespace, size: int) -> bool:
    """Whether a few steps of bench's options, with this batch size, go through in a process of their own."""
    with tempfile.TemporaryDirectory() as folder:
        few = {**vars(options), **_FEW_STEPS, "batch_size": size, "out": Path(folder)}
        command = [sys.executable, "-m", "trainer", *arguments_of(argparse.Namespace(**few))]
        tried = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        rows = read_rows(Path(folder))
    last_line = (tried.stderr.strip().splitlines() or ["it said nothing"])[-1]
    if tried.returncode == UsageError.exit_status:
        raise UsageError(last_line.removeprefix("trainer: error: "))
    if rows and not rows[0].has_accelerator:
        raise UsageError(
            f"--batch-size {LARGEST}: there is no accelerator here, whose memory would be the limit; give a number"
        )
    does_fit = tried.returncode == 0
    say(f"a batch of {size:,}: " + ("fits" if does_fit else f"does not fit ({last_line[:200]})"))
    return does_fit


def arguments_of(options: argparse.Namespace) -> list[str]:
    """The arguments that bench's options stand for, each of them named."""
    arguments = ["bench"]
    for name, value in vars(options).items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            arguments.append(option)
        elif isinstance(value, list) and value:
            arguments += [option, *map(str, value)]
        elif isinstance(value, (str, int, Path)) and value is not False:
            arguments += [option, str(value)]
    return arguments
