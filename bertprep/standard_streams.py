"""Standard output and error of a command, wherever they lead: to a full disk, to nobody, or nowhere at all.

Results that cannot be written are an error, told once, in one line; messages that cannot be written are lost, and change
nothing of what the command does. A stream that was closed before the start (`>&-`) gets a descriptor all the same, so that no
file of ours is opened under its number and written to by whoever means the stream.
"""

import errno
import io
import os
import sys
from collections.abc import Callable
from typing import Any

from bertprep.errors import BertprepError
from bertprep.terminal import say

_INPUT, _OUTPUT, _ERROR = range(3)


class _Results(io.FileIO):
    """Standard output; after the first write that fails it takes anything and writes nothing."""

    _has_failed = False

    def write(self, data: Any) -> int:
        if self._has_failed:
            return len(data)
        try:
            return super().write(data)
        except BrokenPipeError:  # whoever read it has enough, as `head` does
            self._has_failed = True
            raise
        except OSError as error:
            self._has_failed = True
            why = "it is closed" if error.errno == errno.EBADF else error.strerror
            raise BertprepError(f"standard output: cannot be written: {why}; direct it elsewhere") from error


class _Messages(io.FileIO):
    """Standard error; what cannot be written to it can be told to nobody."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def run(main: Callable[[], int], program: str) -> int:
    """Run the command of a process; returns its exit status, that of a failure to write its results included."""
    _open_closed()
    sys.stdout = _writer(_Results(_OUTPUT, "wb", closefd=False), sys.stdout)
    sys.stderr = _writer(_Messages(_ERROR, "wb", closefd=False), sys.stderr)
    status = 0
    try:
        try:
            status = main()
        except SystemExit as ended:  # argparse's, after --help and for wrong arguments
            status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        sys.stdout.flush()
    except BrokenPipeError:
        pass
    except BertprepError as error:
        say(f"{program}: error: {error}")
        status = status or error.exit_status
    return status


def _open_closed() -> None:
    """Give the standard streams that are closed a descriptor: one that nothing can be written to as output."""
    for number, flags in ((_INPUT, os.O_RDONLY), (_OUTPUT, os.O_RDONLY), (_ERROR, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)  # gets the lowest number that is free


def _writer(raw: io.FileIO, before: Any) -> io.TextIOWrapper:
    """A text stream like the one before; a terminal that has no sign for a token's letters shows another."""
    by_lines = raw.fileno() == _ERROR or getattr(before, "line_buffering", False) or getattr(before, "write_through", False)
    encoding = getattr(before, "encoding", None)
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding=encoding, errors="replace", line_buffering=by_lines)
