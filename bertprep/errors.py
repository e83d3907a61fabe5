"""Defines errors and warnings for users: exit status 1 for bad data or a failing machine, 2 for a bad request.

Each is one line that names the file, what was expected and found, and what to do. Any other exception is a bug and keeps its
traceback.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_SHOWN = 300  # characters of a message from another library or a server
_SAMPLE_BYTES = 1 << 16  # on each side of a byte that is not UTF-8, by which the encoding is guessed
_FAILING_DISK = errno.EIO, errno.ESTALE, errno.ETIMEDOUT
_PASSWORD = re.compile(r"(?<=://)[^/?#\s]*:[^/?#\s]*@")
_TOKEN = re.compile(r"(?<=Bearer )[\w.~+/=-]{8,}|\bhf_[A-Za-z0-9]{30,}")
_SECRET_NAME = re.compile(r"(TOKEN|SECRET|PASSWORD|_KEY)$")
_MIN_SECRET = 8  # characters; a shorter value may be part of an ordinary word


class BertprepError(Exception):
    """Data, files or the machine are not as expected: one line, exit status 1."""

    exit_status = 1

    def __init__(self, *args: object) -> None:
        super().__init__(*(without_secrets(each) if isinstance(each, str) else each for each in args))

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to restore the error from a pickle without its constructor; workers send their errors as pickles."""
        return _restore, (type(self), self.args, self.__dict__)

    def add_location(self, location: str) -> None:
        """Append the place where it happened, in parentheses, to the text, which is the last argument."""
        self.args = (*self.args[:-1], f"{self} ({location})")


def _restore(kind: type[BertprepError], args: tuple[Any, ...], attributes: dict[str, Any]) -> BertprepError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class WriteError(BertprepError):
    """A file cannot be written, for instance because the disk is full or belongs to another user."""


class UsageError(BertprepError):
    """The request cannot be met, whatever the data is: one line, exit status 2."""

    exit_status = 2


class BadTokenError(BertprepError):
    """A token id is not in the tokenizer's vocabulary."""


class BertprepWarning(UserWarning):
    """One line about something that a user probably did not intend; the command continues. `terminal.warn` issues it."""


def without_secrets(text: str) -> str:
    """Return a message without users and passwords in URLs, and without tokens, which a server may echo.

    A token is recognized by its form, or because it is the value of an environment variable whose name ends in TOKEN, SECRET,
    PASSWORD or _KEY.

    >>> without_secrets("https://me:secret@s3.example.org/bucket: got Authorization: Bearer abcdef012345")
    'https://s3.example.org/bucket: got Authorization: Bearer ***'
    """
    from urllib.parse import quote  # takes 5 ms

    text = _TOKEN.sub("***", _PASSWORD.sub("", text))
    values = {value for name, value in os.environ.items() if _SECRET_NAME.search(name) and len(value) >= _MIN_SECRET}
    secrets = values | {quote(value, safe="") for value in values}
    for secret in sorted(secrets, key=len, reverse=True):  # longest first, since one may be part of another
        text = text.replace(secret, "***")
    return text


def quoted(text: str) -> str:
    r"""Return text from a server or another library as one line, truncated to fit in a message.

    >>> quoted("Access\n  denied"), len(quoted("x" * 10_000))
    ('Access denied', 303)
    """
    line = " ".join(without_secrets(text)[: 4 * _SHOWN].split())  # a server may send megabytes
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."


def first_line(error: BaseException) -> str:
    r"""Return the first line of another library's error, or the name of its type if it has no text.

    >>> first_line(ValueError("Wrong.\nBecause")), first_line(KeyError())
    ('Wrong', 'KeyError')
    """
    return quoted((str(error).strip().splitlines() or [type(error).__name__])[0]).rstrip(" .;:") or type(error).__name__


@contextmanager
def reading(path: object, advice: str = "") -> Iterator[None]:
    """Turn an `OSError` into an error that names the file that cannot be read, and ends with `advice`."""
    try:
        yield
    except OSError as error:
        if error.errno in _FAILING_DISK:
            advice = "; check the disk or network that it is on, or copy it elsewhere"
        raise BertprepError(f"{path}: cannot be read: {error.strerror or error}{advice}") from error


def not_utf8(where: str, error: UnicodeDecodeError, advice: str | None = None) -> BertprepError:
    """Return the error for text that is not UTF-8; `where` begins with the file. Without `advice` it names the encoding."""
    from bertprep.encodings import advise

    start = max(0, error.start - _SAMPLE_BYTES) // 4 * 4  # where a character of UTF-16 or UTF-32 begins too
    sample = error.object[start : error.start + _SAMPLE_BYTES]
    how = advice or advise(where.partition(": ")[0], sample)
    return BertprepError(f"{where}: expected UTF-8, found 0x{error.object[error.start]:02x} ({error.reason}); {how}")


def explain_system_error(error: OSError) -> BertprepError | None:
    """Return a one-line error for an error of the OS, or None if it cannot be explained.

    It explains too many open files, a working folder that was removed, and all errors that name a file.
    """
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return BertprepError(f"{error.strerror}: raise the limit (ulimit -n), or use fewer --workers")
    if removed := explain_removed_folder(error):
        return removed
    if error.filename is None:
        return None
    return BertprepError(f"{os.fsdecode(error.filename)}: {error.strerror}")


def explain_removed_folder(error: BaseException | None) -> BertprepError | None:
    """Return the error for a file that was not found because the working folder was removed, else None."""
    if not isinstance(error, FileNotFoundError):
        return None
    try:
        Path.cwd()
    except FileNotFoundError:
        return BertprepError("the folder in which this command was started was removed; change to another one (cd)")
    return None


def out_of_memory() -> BertprepError:
    """Return the error for a `MemoryError`, which Python raises where the OS gives no more memory."""
    return BertprepError(
        "there is not enough memory: a command takes about 1 GB of address space, and each worker more; raise the limit "
        "(ulimit -v), or use fewer --workers or smaller shards"
    )
