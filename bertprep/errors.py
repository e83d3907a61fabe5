"""Errors for users: bad data or a failing machine (exit status 1), a bad request (exit status 2); and warnings.

Each is one line: which file, what was expected, what was found, what to do. Any other exception is a bug and keeps its
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

_SHOWN = 300  # characters of what another library or a server says
_FAILING_DISK = errno.EIO, errno.ESTALE, errno.ETIMEDOUT
_PASSWORD = re.compile(r"(?<=://)[^/?#\s]*:[^/?#\s]*@")
_TOKEN = re.compile(r"(?<=Bearer )[\w.~+/=-]{8,}|\bhf_[A-Za-z0-9]{30,}")
_SECRET_NAME = re.compile(r"(TOKEN|SECRET|PASSWORD|_KEY)$")
_MIN_SECRET = 8  # characters; shorter ones are in ordinary words


class BertprepError(Exception):
    """Data, files or the machine are not as expected: one line, exit status 1."""

    exit_status = 1

    def __init__(self, *args: object) -> None:
        super().__init__(*(without_secrets(each) if isinstance(each, str) else each for each in args))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error as it is, without calling its constructor, since workers send their errors."""
        return _restore, (type(self), self.args, self.__dict__)

    def add_location(self, location: str) -> None:
        """Say at the end of the text, which is the last argument, where it happened."""
        self.args = (*self.args[:-1], f"{self} ({location})")


def _restore(kind: type[BertprepError], args: tuple[Any, ...], attributes: dict[str, Any]) -> BertprepError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class UsageError(BertprepError):
    """The request cannot be met, whatever the data: one line, exit status 2."""

    exit_status = 2


class BadTokenError(BertprepError):
    """A token id is not in the tokenizer's vocabulary."""


class BertprepWarning(UserWarning):
    """One line about what a user likely did not mean, though the command goes on; `terminal.warn` issues it."""


def without_secrets(text: str) -> str:
    """Return a message without the user and password of its URLs, and without tokens, which a server may echo.

    A token is known by its form, or is the value of an environment variable whose name ends in TOKEN, SECRET, PASSWORD or _KEY.

    >>> without_secrets("https://me:secret@s3.example.org/bucket: got Authorization: Bearer abcdef012345")
    'https://s3.example.org/bucket: got Authorization: Bearer ***'
    """
    from urllib.parse import quote  # takes 5 ms

    text = _TOKEN.sub("***", _PASSWORD.sub("", text))
    values = {value for name, value in os.environ.items() if _SECRET_NAME.search(name) and len(value) >= _MIN_SECRET}
    secrets = values | {quote(value, safe="") for value in values}
    for secret in sorted(secrets, key=len, reverse=True):  # the longest first, as one may be in another
        text = text.replace(secret, "***")
    return text


def quoted(text: str) -> str:
    r"""Return text of a server or another library as one line, truncated to fit a message.

    >>> quoted("Access\n  denied"), len(quoted("x" * 10_000))
    ('Access denied', 303)
    """
    line = " ".join(without_secrets(text)[: 4 * _SHOWN].split())  # a server may send megabytes
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."


def first_line(error: BaseException) -> str:
    r"""Return the first line of another library's error, or its type.

    >>> first_line(ValueError("Wrong.\nBecause")), first_line(KeyError())
    ('Wrong', 'KeyError')
    """
    return quoted((str(error).strip().splitlines() or [type(error).__name__])[0]).rstrip(" .;:") or type(error).__name__


@contextmanager
def reading(path: object, advice: str = "") -> Iterator[None]:
    """Turn an `OSError` into the error that says which file cannot be read."""
    try:
        yield
    except OSError as error:
        if error.errno in _FAILING_DISK:
            advice = "; check the disk or the network that it is on, and copy it elsewhere"
        raise BertprepError(f"{path}: cannot be read: {error.strerror or error}{advice}") from error


def not_utf8(
    where: str, error: UnicodeDecodeError, advice: str = "convert the file, for example with iconv -t UTF-8"
) -> BertprepError:
    """Return the error about text that is not UTF-8."""
    return BertprepError(f"{where}: expected UTF-8, found 0x{error.object[error.start]:02x} ({error.reason}); {advice}")


def explain_system_error(error: OSError) -> BertprepError | None:
    """Return the one-line error for one of the machine; None if nothing is known but its number.

    It is known of too many open files, a folder that was removed under the command, and any OS error that names a file.
    """
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return BertprepError(f"{error.strerror}: raise the limit (ulimit -n), or take fewer --workers")
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
