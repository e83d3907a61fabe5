"""Untrusted names and JSON: what is accepted can be relied on, everything else is refused in one line."""

import math
import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertprep.files.atomic import TEMPORARY_SUFFIX
from bertprep.files.lock import LOCK
from bertprep.sources.web import PART
from bertprep.untrusted import (
    COUNT,
    MAX_JSON_BYTES,
    MAX_LEVELS,
    check_name,
    check_path,
    check_values,
    one_of,
    optional,
    parse_json,
    read_bounded,
)
from bertprep.work.layout import LEDGER, LISTING, MANIFEST
from tests.hostile import BAD_NAMES, HALF_A_PAIR, NESTED, NOT_TEXT


@pytest.mark.parametrize("name", [*BAD_NAMES, *NOT_TEXT])
def test_a_name_that_leads_elsewhere_or_is_ours_is_refused(name: object) -> None:
    for check in (check_name, check_path):
        with pytest.raises(ValueError, match=r"is not the name of a file|bertprep's own files|longer than"):
            check(name)


@pytest.mark.parametrize("name", ["part-00000", "wiki_en.tfrecord", "bücher 1.txt", "維基.parquet", "a b", "...", "x" * 255])
def test_a_name_of_any_language_is_taken(name: str) -> None:
    assert check_name(name) == check_path(name) == name
    assert check_path(f"training/{name}") == f"training/{name}"
    with pytest.raises(ValueError, match="is not the name of a file"):
        check_name(f"training/{name}")


def test_every_name_that_bertprep_keeps_is_reserved() -> None:
    ours = [LISTING, MANIFEST, LOCK, LEDGER]
    ours += [f"a{suffix}" for suffix in (TEMPORARY_SUFFIX, PART)]
    for name in ours:
        with pytest.raises(ValueError, match="bertprep's own files"):
            check_name(name)


@given(st.text())
def test_no_name_that_is_taken_leaves_its_folder(name: str) -> None:
    try:
        path = Path("/folder") / check_path(name)
    except ValueError:
        return
    assert Path(os.path.normpath(path)) == path
    assert path.is_relative_to("/folder")
    assert path != Path("/folder")


NO_JSON = [
    b"", b"{", b"<html>log in</html>", b'{"a": 1} {"a": 1}', b'{"a": 1, "a": 2}', b'{"a": NaN}', b"[Infinity]", b"-Infinity",
    b"1e400", b"9" * 5_000, b'"\xff"', '{"a": 1}'.encode("utf-16"), NESTED, b'{"a":' * 200_000,
    b"[" * (MAX_LEVELS + 1) + b"]" * (MAX_LEVELS + 1),
]  # fmt: skip


@pytest.mark.parametrize("data", NO_JSON)
def test_what_is_not_plain_json_is_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\A[^\n]{1,300}\Z"):
        parse_json(data)


def test_plain_json_is_taken() -> None:
    assert parse_json('\ufeff{"é": [1, -2.5, null, true, {"a": ""}]}'.encode()) == {"é": [1, -2.5, None, True, {"a": ""}]}
    assert parse_json(b"[" * MAX_LEVELS + b"]" * MAX_LEVELS)
    assert math.isfinite(parse_json(b"1e300"))


def test_what_is_no_file_or_too_large_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 40)
    tracemalloc.start()
    for path, why in ((tmp_path, "not a file"), (tmp_path / "fifo", "not a file"), (tmp_path / "large", f"{MAX_JSON_BYTES:,}")):
        with pytest.raises(ValueError, match=why):
            read_bounded(path)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
    with pytest.raises(FileNotFoundError):
        read_bounded(tmp_path / "missing")


def test_values_that_nobody_knows_are_passed_over_and_needed_ones_are_asked_for() -> None:
    rules = {"bytes": COUNT, "etag": optional(COUNT), "to": one_of("tfrecord", "ofrecord")}
    assert check_values({"bytes": 1, "etag": None, "more": HALF_A_PAIR}, rules, needed=("bytes",))["bytes"] == 1
    with pytest.raises(ValueError, match=r"^bytes is missing, expected a whole number$"):
        check_values({}, rules, needed=("bytes",))
    with pytest.raises(ValueError, match=r'^to is "hdf5", expected one of tfrecord, ofrecord$'):
        check_values({"to": "hdf5"}, rules)
    with pytest.raises(ValueError, match=r"^it is a list of 0, expected an object"):
        check_values([], rules)
