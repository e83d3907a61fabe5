"""Checks untrusted input where it enters: names that become paths, JSON, and the values in JSON.

`check_name`, `parse_json` and `check_values` raise a one-line `ValueError`, to which the reader of the file adds its path.
Unknown keys are ignored.
"""

import json
import math
import os
import re
import stat
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertprep.rules import Rule, WrongValueError
from bertprep.terminal import printable

MAX_JSON_BYTES = 64 << 20
"""The maximum size of a JSON file or response: a manifest with 200,000 files is as large."""
MAX_LISTED, MAX_LISTED_BYTES, MAX_PAGES = 2_000_000, 256 << 20, 10_000
"""Limits for a listing of a store or the Hub: its names, the bytes of all names, and pages of the Hub. A million shards have
two million names while they are being made. An endless listing must not use up the memory."""
MAX_LEVELS = 64
MAX_NAME_BYTES, MAX_PATH_BYTES = 255, 1024  # the first is the limit of file systems
MAX_COUNT = (1 << 63) - 1
_OUR_NAMES = ("listing.json", ".lock", ".ledger")
_OUR_PREFIX, _OUR_SUFFIXES = "manifest.json", (".tmp", ".part", ".part.json")
_CORPUS = re.compile(r"\w[\w.-]*")
PLAIN_PATH = re.compile(r"(?:[\w-]{1,99}/)?[\w-]{1,99}(?:\.(?:txt|tfrecord|arrow|parquet|bin|idx))?(?:\.gz)?", re.ASCII)
"""Matches only paths that `check_path` accepts, but not all of them."""


def check_name(name: object) -> str:
    """Return a file name if it is printable, without a separator, not `.` or `..`, and not a name of bertprep's own files.

    Raises `ValueError` for any other value.

    >>> check_name("train-00000-of-00041.parquet")
    'train-00000-of-00041.parquet'
    """
    if not isinstance(name, str) or not name or "/" in name or name in (".", "..") or printable(name) != name:
        raise ValueError(f"{_shown(name)} is not the name of a file")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise ValueError(f"{_shown(name)} is longer than {MAX_NAME_BYTES} bytes, the limit for a name")
    folded = name.casefold()
    if folded in _OUR_NAMES or folded.startswith(_OUR_PREFIX) or folded.endswith(_OUR_SUFFIXES):
        raise ValueError(f"{_shown(name)} is reserved for bertprep's own files")
    return name


def check_path(path: object) -> str:
    """Return the path of a file relative to a manifest's folder, if each of its names, separated by "/", is allowed.

    >>> check_path("training/part-00000")
    'training/part-00000'
    """
    if not isinstance(path, str) or len(path.encode(errors="replace")) > MAX_PATH_BYTES:
        raise ValueError(f"{_shown(path)} is not the name of a file")
    for name in path.split("/"):
        try:
            check_name(name)
        except ValueError as error:
            raise error if name == path else ValueError(f"{_shown(path)}: {error}") from None
    return path


def check_corpus(name: object) -> str:
    """Return the name of a corpus if it consists of letters, digits, "_", "-" and "."."""
    if not isinstance(name, str) or not _CORPUS.fullmatch(name) or len(name.encode()) > MAX_NAME_BYTES - 64:
        raise ValueError(f"{_shown(name)} is not the name of a corpus: expected letters, digits, '_', '-' and '.'")
    return check_name(name)


def read_bounded(path: Path, most_bytes: int = MAX_JSON_BYTES) -> bytes:
    """Return the bytes of a regular file; raise `ValueError` if it is larger or not a regular file."""
    if hasattr(path, "read_bounded"):  # an object in a store
        content: bytes = path.read_bounded(most_bytes)
        return content
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # does not block on a FIFO
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is not a file")
        if status.st_size > most_bytes:
            raise ValueError(f"it has {status.st_size:,} bytes, expected at most {most_bytes:,}")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(status.st_size)  # read(most_bytes) would allocate that much memory
    finally:
        os.close(descriptor)


def parse_json(data: bytes, *, nan_is_null: bool = False) -> Any:
    """Parse JSON in UTF-8; raise `ValueError` if it is invalid, has repeated keys, NaN or Infinity, or is nested too deeply.

    With `nan_is_null`, NaN and Infinity are None: Python writes them for missing values of tables.

    >>> parse_json(b'{"seq": 128}')
    {'seq': 128}
    """
    try:
        text = data.decode().removeprefix("\ufeff")
        constant = (lambda _: None) if nan_is_null else _finite
        content = json.loads(text, object_pairs_hook=_unique, parse_constant=constant, parse_float=_finite)
    except UnicodeDecodeError as error:
        raise ValueError(f"its byte {error.start:,} is not UTF-8") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level = [content]
    for _ in range(MAX_LEVELS):
        below = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [child for children in below for child in children]
        if not level:
            return content
    raise ValueError("it is nested too deeply")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it has the key {_shown(next(name for name in names if names.count(name) > 1))} twice")
    return content


def _finite(text: str) -> float:
    if math.isfinite(value := float(text)):
        return value
    raise ValueError(f"it has the number {text}, which is not allowed in JSON")


COUNT = Rule(kinds=(int,), least=0, most=MAX_COUNT)
POSITIVE = Rule(kinds=(int,), least=1, most=MAX_COUNT)
SEED = Rule(kinds=(int,), least=0)  # of any length
FRACTION = Rule(kinds=(float,), least=0, most=1)
FLAG = Rule(kinds=(bool,), words="true or false")
TEXT = Rule(kinds=(str,), pattern="[^\ud800-\udfff]*")  # UTF-8 has no surrogates
TEXTS = replace(TEXT, many=True)
OBJECT = Rule(kinds=(dict,))
LIST = Rule(kinds=(list,))
BLAKE3_DIGITS = Rule(kinds=(str,), pattern="[0-9a-f]{64}", words="a BLAKE3 in hexadecimal")
SHA256_DIGITS = Rule(kinds=(str,), pattern="[0-9a-f]{64}", words="a sha256 in hexadecimal")
SHA1 = Rule(kinds=(str,), pattern="[0-9a-f]{40}", words="a sha1 in hexadecimal")
NAME = Rule(check=check_name, words="the name of a file, but not of bertprep's own files")
PATH = Rule(check=check_path, words="the path of a file below the folder, but not of bertprep's own files")
CORPUS = Rule(check=check_corpus, words="the name of a corpus")


def optional(rule: Rule) -> Rule:
    """Return a rule that also allows null."""
    return replace(rule, optional=True)


def one_of(*values: str) -> Rule:
    return Rule(kinds=(str,), choices=values)


def check_values(
    content: object, rules: Mapping[str, Rule], *, needed: tuple[str, ...] = (), prefix: str = ""
) -> dict[str, Any]:
    """Return `content` if it is an object that has all `needed` keys, and whose values satisfy the rules for their keys.

    Raises `ValueError`, which names the value by its prefix and key.

    >>> check_values({"bytes": -1}, {"bytes": COUNT}, prefix="files.a.")
    Traceback (most recent call last):
    ValueError: files.a.bytes is -1, expected at least 0 and at most 9,223,372,036,854,775,807
    """
    if not isinstance(content, dict):
        raise ValueError(f"{prefix.rstrip('.') or 'it'} is {_shown(content)}, expected {OBJECT.in_words}")
    for name in needed:
        if name not in content:
            raise ValueError(f"{prefix}{name} is missing, expected {rules[name].in_words}")
    for name, rule in rules.items():
        try:
            if name in content:
                rule.read(content[name])
        except WrongValueError as error:
            each = "a list, each " if rule.many and isinstance(content[name], list) else ""
            or_null = ", or null" if rule.optional else ""
            raise ValueError(f"{prefix}{name} is {_shown(content[name])}, expected {each}{error}{or_null}") from None
    return content


def hold_all(rows: Collection[Any], rules: Mapping[str, Rule], needed: tuple[str, ...]) -> bool:
    """Return whether `check_values` accepts all objects; checking all values of a key together is much faster."""
    if {*map(type, rows)} - {dict} or not all(name in row for row in rows for name in needed):
        return False
    columns = ((rule, [row[name] for row in rows if name in row]) for name, rule in rules.items())
    return all(rule.holds_for_all(values) for rule, values in columns if values)


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value):,}"
    if isinstance(value, str):
        return json.dumps(value[:60], ensure_ascii=False) + ("..." if len(value) > 60 else "")
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MAX_COUNT:
        return f"a number of {value.bit_length():,} bits"
    return json.dumps(value)
