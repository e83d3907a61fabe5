"""Properties that hold for any hostile input: a one-line error, and nothing written elsewhere."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bertprep import cli
from bertprep.terminal import printable

NESTED = b"[" * 200_000
HALF_A_PAIR = "\ud800"
BAD_NAMES = [
    "", ".", "..", "../outside", "training/../../outside", "/tmp/outside", "training//part-00000", "training/", "a\0b", "a\nb",
    "a\x1b[2Jb", "a\u202eb", f"a{HALF_A_PAIR}", "x" * 256, "é" * 128, "a/" * 600 + "a", "listing.json", "manifest.json",
    "MANIFEST.JSON", "training/manifest.json", ".lock", "vocab.txt.tmp", "part-00000.part",
    "part-00000.part.json",
]  # fmt: skip
NOT_TEXT = [None, 7, 1.5, True, [], {}, ["a"]]
Main = Callable[[Sequence[str]], int]


def refused(
    capsys: pytest.CaptureFixture[str], *arguments: str | Path, main: Main = cli.main, program: str = "bertprep"
) -> str:
    """The one line with which a command refuses what it was given; the lines of its progress stand before."""
    status = main([str(argument) for argument in arguments])
    complaint = capsys.readouterr().err
    assert status in (1, 2), complaint
    *before, line = complaint.removesuffix("\n").split("\n")
    assert line.startswith(f"{program}: error: ")
    assert not [other for other in before if "error: " in other or "Traceback" in other]
    assert printable(line) == line
    return line.removeprefix(f"{program}: error: ")


def contents(folder: Path) -> dict[str, bytes | str]:
    """Every file and link of a folder, by name."""
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }
