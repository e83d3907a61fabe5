r"""Prints everything: results to standard output, messages to standard error.

Control characters, bidirectional marks and newlines in names, tokens and responses are shown as escapes such as `\x1b`. If
results cannot be written, that is an error, reported once; messages that cannot be written are lost. If a standard stream is
closed at the start (`>&-`), it is opened on /dev/null, so no other file gets its descriptor.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TextIO

from bertprep.errors import (
    BertprepError,
    BertprepWarning,
    explain_removed_folder,
    explain_system_error,
    out_of_memory,
    without_secrets,
)

INTERRUPTED = 130
"""The exit status after Ctrl-C."""
LONGEST_LINE = 2_000
_OWN_PACKAGES = ("bertprep", "trainer")
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class Printable(str):
    """Text that can be printed unchanged."""

    __slots__ = ()


def printable(text: str) -> Printable:
    r"""Return text with control characters, bidirectional marks and lone surrogates replaced by escapes.

    >>> print(printable("part\x1b[2J\nerror: \u202egpj.exe\u05d0"))
    part\x1b[2J\nerror: \u202egpj.exe\u05d0
    """
    if isinstance(text, Printable):
        return text
    return Printable(_UNSAFE.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text))


def styled(text: str, codes: Sequence[str]) -> Printable:
    """Return text with SGR codes applied, such as "36" for cyan."""
    return Printable(f"\x1b[{';'.join(codes)}m{printable(text)}\x1b[0m")


def print_results(*lines: str) -> bool:
    """Print lines to standard output. Return False if its reader closed it, as `head` does.

    What nobody reads is dropped then, and the command goes on, so that its files are written and its exit status is its own.
    """
    try:
        for line in lines:
            _write(line, sys.stdout)
    except BrokenPipeError:
        _drop_output()
        return False
    except OSError as error:
        raise _cannot_write(error) from error
    return True


def print_message(text: str) -> None:
    """Print a one-line message to standard error, cut at `LONGEST_LINE` characters, without passwords and tokens."""
    text = without_secrets(text)
    with contextlib.suppress(OSError):  # there is nowhere else to report this
        if sys.stderr.isatty():
            sys.stderr.write("\x1b[K")  # erases a line of progress
        _write(text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]}...", sys.stderr)
        sys.stderr.flush()


def warn(line: str) -> None:
    """Warn about something that a user probably did not intend.

    A command prints `warning: ...`. In Python it is a `BertprepWarning`, located at the user's call into bertprep or trainer.
    """
    level, frame = 1, sys._getframe()
    while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] in _OWN_PACKAGES:
        frame = frame.f_back
        level += 1
    warnings.warn(without_secrets(line), BertprepWarning, stacklevel=level)


@contextlib.contextmanager
def print_warnings() -> Iterator[None]:
    """Print warnings as lines while a command runs; each `BertprepWarning` once, whatever filters the environment sets."""
    printed = set()

    def show(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object) -> None:
        is_ours = issubclass(category, BertprepWarning)
        line = f"warning: {message}" if is_ours else f"{filename}:{lineno}: {category.__name__}: {message}"
        if not is_ours or line not in printed:
            printed.add(line)
            print_message(line)

    with warnings.catch_warnings():
        warnings.simplefilter("always", BertprepWarning)
        warnings.showwarning = show  # type: ignore[assignment]  # its other parameters are not needed
        yield


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print a table with aligned columns, numbers to the right."""
    print_results(*table_lines(rows))


def table_lines(rows: Sequence[Sequence[str]]) -> list[Printable]:
    """Return the lines of a table whose first row is the heading; columns of numbers, with or without gaps, are right-aligned.

    >>> table_lines([("name", "MB", "errors"), ("a", "10.0", "2"), ("longer", "7", "")])
    ['name      MB  errors', 'a       10.0       2', 'longer     7']
    """
    columns = [[printable(cell) for cell in column] for column in zip(*rows, strict=True)]
    aligned = [_align(column) for column in columns]
    return [Printable("  ".join(cells).rstrip()) for cells in zip(*aligned, strict=True)]


def _align(column: Sequence[str]) -> list[str]:
    width = max(map(len, column))
    filled = [cell for cell in column[1:] if cell]
    if filled and all(cell[0].isdigit() for cell in filled):
        return [cell.rjust(width) for cell in column]
    return [cell.ljust(width) for cell in column]


def counted(number: int, thing: str) -> str:
    """Return a number with a noun, which is plural unless the number is 1.

    >>> counted(1, "record"), counted(2000, "record")
    ('1 record', '2,000 records')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def listed(names: Sequence[str], most: int = 10) -> str:
    """Return names as a list with commas, shortened after `most` names.

    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the most similar name, or "" if none is similar; leading hyphens do not count."""
    import difflib  # as slow to import as argparse

    bare = {each.lstrip("-"): each for each in names}
    found = difflib.get_close_matches(name.lstrip("-"), bare, n=1)
    return bare[found[0]] if found else ""


def near(name: str, names: Iterable[str]) -> str:
    """Return ", did you mean NAME?" if one of the names is similar, else "".

    >>> near("--sead", ["--seed", "--seq", "--workers"]), near("--xyz", ["--seed"])
    (', did you mean --seed?', '')
    """
    found = nearest(name, names)
    return f", did you mean {found}?" if found else ""


def megabytes(size_bytes: int | None) -> str:
    """Return a size in MB, without the unit.

    >>> megabytes(1_234_567), megabytes(12_345_678_901), megabytes(None)
    ('1.2', '12,346', '?')
    """
    if size_bytes is None:
        return "?"
    return f"{size_bytes / 1e6:,.1f}" if size_bytes < 1e9 else f"{size_bytes / 1e6:,.0f}"


def duration(seconds: float) -> str:
    """Return a duration in hours, minutes and seconds or, below a minute, in seconds with tenths.

    >>> duration(3725), duration(2.34), duration(59.97)
    ('1:02:05', '2.3 s', '0:01:00')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def exit_status(command: Callable[[], int | None], program: str, *, interrupted: str) -> int:
    """Run a command and return its exit status; an error is printed as one line."""
    try:
        with print_warnings():
            return command() or 0
    except BertprepError as error:
        failure = explain_removed_folder(error.__cause__) or error
    except KeyboardInterrupt:
        print_message(f"{program}: {interrupted}")
        return INTERRUPTED
    except OSError as error:
        if (explained := explain_system_error(error)) is None:
            raise
        failure = explained
    except (MemoryError, ImportError) as error:
        failure = _explain_failed_import(error) if isinstance(error, ImportError) else out_of_memory()
    print_message(f"{program}: error: {failure}")
    return failure.exit_status


def run_program(main: Callable[[], int], program: str) -> int:
    """Run a command and return its exit status, which is 1 if the results could not be written."""
    _open_closed()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    status = 0
    try:
        try:
            status = main()
        except SystemExit as ended:  # raised by argparse, for --help and wrong arguments
            status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except ImportError as error:
            raise _explain_failed_import(error) from error
        try:
            sys.stdout.flush()
        except OSError as error:
            _drop_output()
            if not (status or isinstance(error, BrokenPipeError)):  # otherwise it is already reported
                raise _cannot_write(error) from error
    except BertprepError as error:
        print_message(f"{program}: error: {error}")
        status = status or error.exit_status
    except KeyboardInterrupt:  # a second Ctrl-C, or one after the command ended
        print_message(f"{program}: stopped")
        status = INTERRUPTED
    return status


def _explain_failed_import(error: ImportError) -> BertprepError:
    """Return the error for a package that is missing, or cannot be loaded for want of memory; raise any other one again."""
    if "failed to map segment" in str(error) or "cannot allocate memory" in str(error).lower():
        return out_of_memory()
    package = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or package in ("", "bertprep", "trainer"):
        raise error
    return BertprepError(f"the Python package {package} is not installed; install it with pip install bertprep")


def _open_closed() -> None:
    for number, name, flags in ((0, "stdin", os.O_RDONLY), (1, "stdout", os.O_RDONLY), (2, "stderr", os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)  # gets the lowest free number
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115 - for the whole process


def _drop_output() -> None:
    """Open standard output on /dev/null, also for what the interpreter still writes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _cannot_write(error: OSError) -> BertprepError:
    why = "it is closed" if error.errno == errno.EBADF else error.strerror
    return BertprepError(f"standard output: cannot be written: {why}; redirect it elsewhere")


def _write(line: str, stream: TextIO) -> None:
    stream.write(f"{printable(line)}\n")
