"""Checks untrusted input at the point of entry: names that become paths, JSON, and the values in it.

Manifests, journals, listings, the Hub's answers and model configurations come from archives, mirrors and shared folders. The
rest of bertprep relies on `check_name`, `parse_json` and `check_values`, which raise a one-line `ValueError`; the reader of the
file adds its path. Unknown keys are ignored, so files of later versions stay readable.
"""

import json
import math
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertprep.config import RECORD_FORMATS
from bertprep.files.atomic import TEMPORARY_SUFFIX
from bertprep.files.lock import LOCK
from bertprep.files.places import ObjectPath
from bertprep.terminal import printable
from bertprep.workspace.layout import LEDGER, LISTING, MANIFEST, RECEIPTS, SPLITS, TASK_SPLITS, TRAIN

MOST_BYTES = 64 << 20
"""The largest JSON file or response that is read: the size of a manifest of 200,000 files."""
MOST_LEVELS = 64
LONGEST_NAME, LONGEST_PATH = 255, 1024  # bytes; the first is the limit of file systems
LARGEST_COUNT = (1 << 63) - 1
_OUR_SUFFIXES = (TEMPORARY_SUFFIX, ".journal", ".part", ".part.json")
_CORPUS = re.compile(r"\w[\w.-]*")


def check_name(name: object) -> str:
    """Return a name that a file in a folder of bertprep may have; raises `ValueError` for any other.

    Allowed are printable characters without a separator; not `.` or `..`, nor a name of bertprep's own files in any case.

    >>> check_name("train-00000-of-00041.parquet")
    'train-00000-of-00041.parquet'
    """
    if not isinstance(name, str) or not name or "/" in name or name in (".", "..") or printable(name) != name:
        raise ValueError(f"{_shown(name)} is not the name of a file")
    if len(name.encode()) > LONGEST_NAME:
        raise ValueError(f"{_shown(name)} is longer than the {LONGEST_NAME} bytes that a name may have")
    folded = name.casefold()
    if folded in (LEDGER, LISTING, LOCK, RECEIPTS) or folded.startswith(MANIFEST) or folded.endswith(_OUR_SUFFIXES):
        raise ValueError(f"{_shown(name)} is a name of bertprep's own files")
    return name


def check_path(path: object) -> str:
    """Names joined by "/", as in manifests: the path of a file relative to the manifest's folder.

    >>> check_path("training/part-00000")
    'training/part-00000'
    """
    if not isinstance(path, str) or len(path.encode(errors="replace")) > LONGEST_PATH:
        raise ValueError(f"{_shown(path)} is not the name of a file")
    for name in path.split("/"):
        try:
            check_name(name)
        except ValueError as error:
            raise error if name == path else ValueError(f"{_shown(path)}: {error}") from None
    return path


def check_corpus(name: object) -> str:
    """The name of a corpus, which is part of file and folder names: letters, digits, "_", "-" and "."."""
    if not isinstance(name, str) or not _CORPUS.fullmatch(name) or len(name.encode()) > LONGEST_NAME - 64:
        raise ValueError(f"{_shown(name)} is not the name of a corpus, of letters, digits, '_', '-' and '.'")
    return check_name(name)


def check_splits_inside(folder: Path) -> None:
    """Raise `ValueError` if the folder of a split or format in `folder` is a link to elsewhere, since nothing is written there.

    The folder itself and the files may be links: files are read through them, and replaced rather than written to.
    """
    inside = folder.resolve()
    splits = (*SPLITS, TRAIN, *TASK_SPLITS)
    for below in (*splits, *RECORD_FORMATS, *(f"{each}/{split}" for each in RECORD_FORMATS for split in splits)):
        if (found := (folder / below).resolve()) != inside / below:
            raise ValueError(f"{below} is a link to {found}, and nothing is written there; link the whole folder instead")


def read_bounded(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """The bytes of a regular file; raises `OSError` as `open` does, `ValueError` if it is something else or too large."""
    if isinstance(path, ObjectPath):
        from bertprep.files import object_store

        there, content = object_store.read(path, most_bytes)
        if content is None:
            raise ValueError(f"it has {there.size_bytes:,} bytes, expected at most {most_bytes:,}")
        return content
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # does not wait for a FIFO
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is not a file")
        if status.st_size > most_bytes:
            raise ValueError(f"it has {status.st_size:,} bytes, expected at most {most_bytes:,}")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(most_bytes)
    finally:
        os.close(descriptor)


def parse_json(data: bytes) -> Any:
    """Parse JSON in UTF-8; raises `ValueError` if it is invalid, or has repeated keys, NaN, Infinity or too many levels.

    >>> parse_json(b'{"seq": 128}')
    {'seq': 128}
    """
    try:
        text = data.decode().removeprefix("\ufeff")
        content = json.loads(text, object_pairs_hook=_unique, parse_constant=_finite, parse_float=_finite)
    except UnicodeDecodeError as error:
        raise ValueError(f"its byte {error.start:,} is not UTF-8") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level = [content]
    for _ in range(MOST_LEVELS):
        below = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [child for children in below for child in children]
        if not level:
            return content
    raise ValueError("it is nested too deeply")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it names {_shown(next(name for name in names if names.count(name) > 1))} twice")
    return content


def _finite(text: str) -> float:
    if math.isfinite(value := float(text)):
        return value
    raise ValueError(f"it has the number {text}, which JSON cannot hold")


@dataclass(frozen=True)
class Rule:
    """A condition on a value, in words and as a test."""

    words: str
    holds: Callable[[Any], bool]


def _passes(check: Callable[[object], object]) -> Callable[[Any], bool]:
    def holds(value: Any) -> bool:
        try:
            check(value)
        except ValueError:
            return False
        return True

    return holds


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


COUNT = Rule("a whole number, at least 0", lambda value: type(value) is int and 0 <= value <= LARGEST_COUNT)
POSITIVE = Rule("a whole number, at least 1", lambda value: type(value) is int and 1 <= value <= LARGEST_COUNT)
SEED = Rule("a whole number, at least 0", lambda value: type(value) is int and value >= 0)  # of any length
SHARE = Rule("a number from 0 to 1", lambda value: _is_number(value) and 0 <= value <= 1)
FLAG = Rule("true or false", lambda value: type(value) is bool)
TEXT = Rule("text", lambda value: isinstance(value, str) and not re.search("[\ud800-\udfff]", value))
TEXTS = Rule("a list of texts", lambda value: isinstance(value, list) and all(map(TEXT.holds, value)))
OBJECT = Rule("an object of names and values", lambda value: isinstance(value, dict))
LIST = Rule("a list", lambda value: isinstance(value, list))
SHA256 = Rule("a sha256 in hexadecimal", lambda value: isinstance(value, str) and bool(re.fullmatch("[0-9a-f]{64}", value)))
SHA1 = Rule("a sha1 in hexadecimal", lambda value: isinstance(value, str) and bool(re.fullmatch("[0-9a-f]{40}", value)))
NAME = Rule("the name of a file, and not one of bertprep's own", _passes(check_name))
PATH = Rule("the path of a file below the folder, and none of bertprep's own", _passes(check_path))
CORPUS = Rule("the name of a corpus", _passes(check_corpus))


def optional(rule: Rule) -> Rule:
    """The rule for a value that may also be null."""
    return Rule(f"{rule.words}, or null", lambda value: value is None or rule.holds(value))


def one_of(*values: str) -> Rule:
    """The rule for one of these strings."""
    return Rule(" or ".join(values), lambda value: isinstance(value, str) and value in values)


def check_values(
    content: object, rules: Mapping[str, Rule], *, needed: tuple[str, ...] = (), place: str = ""
) -> dict[str, Any]:
    """Return `content` if it is an object whose known values satisfy their rules and whose `needed` ones are present.

    Raises `ValueError`, which names the value by `place` and key.

    >>> check_values({"bytes": -1}, {"bytes": COUNT}, place="files.a.")
    Traceback (most recent call last):
    ValueError: files.a.bytes is -1, expected a whole number, at least 0
    """
    if not isinstance(content, dict):
        raise ValueError(f"{place.rstrip('.') or 'it'} is {_shown(content)}, expected {OBJECT.words}")
    for name in needed:
        if name not in content:
            raise ValueError(f"{place}{name} is missing, expected {rules[name].words}")
    for name, rule in rules.items():
        if name in content and not rule.holds(content[name]):
            raise ValueError(f"{place}{name} is {_shown(content[name])}, expected {rule.words}")
    return content


def _shown(value: object) -> str:
    """A value for an error message, shortened if it is large."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value):,}"
    if isinstance(value, str):
        return json.dumps(value[:60], ensure_ascii=False) + ("..." if len(value) > 60 else "")
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > LARGEST_COUNT:
        return f"a number of {value.bit_length():,} bits"
    return json.dumps(value)
