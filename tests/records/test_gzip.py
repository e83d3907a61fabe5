"""Gzip files are what zlib takes, and depend on nothing but the bytes that go in."""

import gzip
import hashlib
import random
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from bertprep import records
from bertprep.config import Dialect
from bertprep.files.atomic import atomic_file
from bertprep.records import PretrainingExamples
from bertprep.records.buffers import GzipBuffer
from bertprep.records.convert import write_examples
from tests.records.handmade import file_of, random_record

RUN_BYTES = 1 << 18  # compressed at a time
LITTLE, MUCH = 1000, 3 * RUN_BYTES + 5
rng = np.random.default_rng(0)
CONTENTS = {
    "nothing": b"",
    "a byte": b"x",
    "less than a match": b"aaa",
    "a run": b"a" * MUCH,
    "noise": rng.bytes(MUCH),
    "high bytes": bytes([255, 200] * LITTLE),
    "matches of all lengths": b"".join(bytes([n % 251]) + rng.bytes(2) + b"ab" * (n // 2) for n in range(600)) * 2,
    "matches from afar": (far := rng.bytes(32_768)) + far + b"." + far,
    "whole runs": rng.bytes(64) * (2 * RUN_BYTES // 64),
    "records": file_of(*(random_record(random.Random(n), 128, 20) for n in range(20))) * 30,
}


def compress(pieces: Iterable[bytes], path: Path) -> bytes:
    """What a file holds after these bytes went in, as many at a time as stand in each piece."""
    buffer, digest = GzipBuffer(), hashlib.sha256()
    buffer.make_room(1 << 20)
    with atomic_file(path) as file:
        for piece in pieces:
            buffer.append(piece)
            digest.update(buffer.take_unhashed())
            buffer.take_pages(file)
        digest.update(buffer.take_end(file))
    assert digest.hexdigest() == hashlib.sha256(path.read_bytes()).hexdigest()
    return path.read_bytes()


def cut(content: bytes, size: int) -> list[bytes]:
    return [content[start : start + size] for start in range(0, len(content), size)]


@pytest.mark.parametrize("name", CONTENTS)
def test_the_bytes_come_back_and_do_not_depend_on_how_they_came(name: str, tmp_path: Path) -> None:
    content = CONTENTS[name]
    packed = compress([content[: 1 << 20], content[1 << 20 :]], tmp_path / "x.gz")
    assert gzip.decompress(packed) == content
    for size in (777, RUN_BYTES, RUN_BYTES + 1):
        assert compress(cut(content, size), tmp_path / "y.gz") == packed


def test_the_header_tells_no_time_no_name_and_no_system(tmp_path: Path) -> None:
    assert compress([b"x"], tmp_path / "x.gz")[:10] == bytes.fromhex("1f8b08000000000000ff")


def test_what_it_saves_and_what_it_costs_at_worst(tmp_path: Path) -> None:
    assert len(compress([CONTENTS["a run"]], tmp_path / "x.gz")) < MUCH / 100
    assert len(compress([CONTENTS["noise"]], tmp_path / "x.gz")) < MUCH * 9 / 8


def test_the_bytes_are_pinned(tmp_path: Path) -> None:
    """On every machine, Python and zlib; a change of these is breaking."""
    packed = compress([CONTENTS["records"]], tmp_path / "x.gz")
    assert hashlib.sha256(packed).hexdigest() == "a580dadf2fb63f586dd71a46bf1a1f8b185b4ee6f4221f9294f608d752ee2d83"


def test_examples_of_any_value(tmp_path: Path) -> None:
    examples = PretrainingExamples.empty(3000, seq=64, pred=10)
    for array in examples.arrays:
        array[...] = rng.integers(0, 2**31 - 1, array.shape, endpoint=True)
    path = tmp_path / "x.tfrecord.gz"
    written = write_examples([examples[:100], examples[100:]], path, "tfrecord", Dialect(compress="gzip"))
    assert (written.records, written.bytes) == (3000, path.stat().st_size)
    assert written.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    write_examples([examples], tmp_path / "plain", "tfrecord")
    assert gzip.decompress(path.read_bytes()) == (tmp_path / "plain").read_bytes()
    for found, expected in zip(records.open(path)[:].arrays, examples.arrays, strict=True):
        np.testing.assert_array_equal(found, expected)
