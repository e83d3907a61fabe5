"""MDS: the bytes of MDSWriter, a shard for each token shard, the same by any number of tasks."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import bertprep
from bertprep.errors import BertprepError, UsageError
from bertprep.instances.document_tokenizer import TokenizerInfo
from bertprep.tokens import mds
from tests.corpora import sums
from tests.golden import GOLDEN
from tests.tokens.mds_rows import read_rows
from tests.tokens.test_documents import INFO, write_set

DOCUMENTS = [
    ((np.arange(length) * 7919 + number * 104_729) % 400 + 10).tolist()
    for number, length in enumerate([1, 5, 30, 31, 300, 70, 2, 1000])
]
"""Those of the golden files."""


def tokens_of(folder: Path, width: int = 1000, documents: list[list[int]] = DOCUMENTS, shards: int = 1) -> Path:
    return write_set(folder, documents, TokenizerInfo(**{**vars(INFO), "width": width}), shards=shards)


@pytest.mark.parametrize(
    ("name", "width", "documents", "seq", "column", "limit"),
    [
        ("uint16", 1000, DOCUMENTS[:7], 300, None, 2000),
        ("int32", 70_000, [*DOCUMENTS[:7], DOCUMENTS[7][:180]], 32, "tokens", 4000),
    ],
)
def test_the_bytes_are_those_of_mdswriter(
    name: str,
    width: int,
    documents: list[list[int]],
    seq: int,
    column: str | None,
    limit: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its first shard has the rows of these documents, and its index the limit that it was given."""
    monkeypatch.setattr(mds, "_SIZE_LIMIT", limit)
    tokens = tokens_of(tmp_path / "tokens", width, documents)
    bertprep.convert(tokens, tmp_path / "rows", to="mds", seq=seq, column=column, workers=1)
    made, expected = tmp_path / "rows/train", GOLDEN / "mds" / name
    assert (made / "shard.00000.mds").read_bytes() == (expected / "shard.00000.mds").read_bytes()
    index, of_writer = (json.loads((folder / "index.json").read_text()) for folder in (made, expected))
    assert index == {**of_writer, "shards": of_writer["shards"][:1]}


def test_rows_are_the_documents_between_cls_and_sep(tmp_path: Path) -> None:
    bertprep.convert(tokens_of(tmp_path / "tokens", shards=3), tmp_path / "rows", to="mds", seq=100, workers=2)
    paths = sorted((tmp_path / "rows/train").glob("*.mds"))
    found: dict[tuple[str, int], list[int]] = {}
    for path in paths:
        for row in read_rows(path):
            tokens = row["input_ids"]
            assert (tokens[0], tokens[-1]) == (INFO.cls, INFO.sep)
            assert 3 <= len(tokens) == row["len"] <= 100
            shard, document, piece = row["id"].split("-")
            assert len(found.setdefault((shard, int(document)), [])) == int(piece) * 98
            found[shard, int(document)] += tokens[1:-1]
    assert [*found.values()] == DOCUMENTS
    assert len(paths) == len({shard for shard, _ in found}) == 3


def test_the_index_has_the_size_and_the_hash_of_each_shard(tmp_path: Path) -> None:
    bertprep.convert(tokens_of(tmp_path / "tokens", shards=2), tmp_path / "rows", to="mds", seq=16)
    index = json.loads((tmp_path / "rows/train/index.json").read_text())
    for shard, name in zip(index["shards"], ("shard.00000.mds", "shard.00001.mds"), strict=True):
        data = (tmp_path / "rows/train" / name).read_bytes()
        hashes = {"sha1": hashlib.sha1(data).hexdigest()}
        assert shard["raw_data"] == {"basename": name, "bytes": len(data), "hashes": hashes}
        assert shard["samples"] == len(read_rows(tmp_path / "rows/train" / name))


def test_rows_that_need_longer_offsets_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = tokens_of(tmp_path / "tokens")
    bertprep.convert(tokens, tmp_path / "rows", to="mds", seq=16, workers=1)
    size_bytes = (tmp_path / "rows/train/shard.00000.mds").stat().st_size
    monkeypatch.setattr(mds, "_MAX_BYTES", size_bytes)
    bertprep.convert(tokens, tmp_path / "fits", to="mds", seq=16, workers=1)
    monkeypatch.setattr(mds, "_MAX_BYTES", size_bytes - 1)
    message = rf"\.bin: its rows take more than {size_bytes - 1:,} bytes, .* make more and smaller token shards"
    with pytest.raises(BertprepError, match=message):
        bertprep.convert(tokens, tmp_path / "large", to="mds", seq=16, workers=1)


def test_parts_and_other_workers_leave_the_same_bytes(tmp_path: Path) -> None:
    source = tokens_of(tmp_path / "tokens", shards=4)
    bertprep.convert(source, tmp_path / "one", to="mds", seq=50, workers=1)
    for part in ("1/3", "0/3"):
        bertprep.convert(source, tmp_path / "parts", to="mds", seq=50, part=part, workers=2)
        assert not (tmp_path / "parts/train/index.json").exists()
    bertprep.convert(source, tmp_path / "parts", to="mds", seq=50, part="2/3", workers=2)
    assert sums(tmp_path / "parts") == sums(tmp_path / "one")
    assert not bertprep.convert(source, tmp_path / "one", to="mds", seq=50).made
    with pytest.raises(BertprepError, match=r"was made with --seq 50, but this run has --seq 60; choose another target folder"):
        bertprep.convert(source, tmp_path / "one", to="mds", seq=60)
    with pytest.raises(BertprepError, match=r"was made without --dtype, but this run has --dtype int64; choose another target"):
        bertprep.convert(source, tmp_path / "one", to="mds", seq=50, dtype="int64")


def test_a_damaged_token_shard_is_not_made_mds(tmp_path: Path) -> None:
    folder = tokens_of(tmp_path / "tokens")
    [path] = folder.rglob("*.bin")
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)
    with pytest.raises(BertprepError, match=r"\.bin: has blake3 .*, expected .* as in its manifest"):
        bertprep.convert(folder, tmp_path / "rows", to="mds", seq=10, workers=1)
    assert not list((tmp_path / "rows").rglob("*.mds"))


def test_an_id_that_the_tokenizer_lacks_is_named(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "tokens", [[5, 6], [7, 2000, 8]], INFO)
    with pytest.raises(BertprepError, match=r"\.bin: token 3 is 2,000, expected 0 to \d+, the ids of its tokenizer"):
        bertprep.convert(folder, tmp_path / "rows", to="mds", seq=10, workers=1)
    assert not (tmp_path / "rows/train/index.json").exists()


def test_only_what_the_tokenizer_has_is_added(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "tokens", [[5, 6, 7]], TokenizerInfo(**{**vars(INFO), "sep": None}))
    bertprep.convert(folder, tmp_path / "rows", to="mds", seq=10)
    assert [row["input_ids"] for row in read_rows(tmp_path / "rows/train/shard.00000.mds")] == [[2, 5, 6, 7]]


def test_ids_of_another_type_become_that_of_the_width(tmp_path: Path) -> None:
    manifest = tokens_of(tmp_path / "tokens", 70_000) / "manifest.json"  # int32, as other tools write for any width
    manifest.write_text(manifest.read_text().replace('"width": 70000', '"width": 1000'))
    bertprep.convert(tmp_path / "tokens", tmp_path / "rows", to="mds", seq=300)
    bertprep.convert(tokens_of(tmp_path / "uint16"), tmp_path / "expected", to="mds", seq=300)
    assert sums(tmp_path / "rows/train") == sums(tmp_path / "expected/train")


@pytest.mark.parametrize("dtype", ["uint16", "int32", "int64"])
def test_ids_have_the_type_that_is_asked_for(dtype: str, tmp_path: Path) -> None:
    folder = tokens_of(tmp_path / "tokens")
    bertprep.convert(folder, tmp_path / "rows", to="mds", seq=100, dtype=dtype)
    bertprep.convert(folder, tmp_path / "default", to="mds", seq=100)
    rows, expected = (read_rows(tmp_path / name / "train/shard.00000.mds") for name in ("rows", "default"))
    assert rows == expected
    index = json.loads((tmp_path / "rows/train/index.json").read_text())
    assert f"ndarray:{dtype}" in index["shards"][0]["column_encodings"]
    assert (sums(tmp_path / "rows/train") == sums(tmp_path / "default/train")) == (dtype == "uint16")


def test_a_type_that_cannot_hold_the_ids_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"^--dtype uint16: cannot hold the 70,000 ids of this tokenizer; choose int32 or int64$"
    ):
        bertprep.convert(tokens_of(tmp_path / "tokens", 70_000), tmp_path / "rows", to="mds", seq=100, dtype="uint16")
    assert not (tmp_path / "rows").exists()


def test_what_convert_refuses(tmp_path: Path) -> None:
    folder = tokens_of(tmp_path / "tokens")
    for options, words in (
        ({"to": "mds"}, "--to mds: needs --seq"),
        ({"to": "tfrecord", "seq": 128}, "--seq 128: is only for --to mds"),
        ({"to": "tfrecord", "dtype": "int64"}, "--dtype int64: is only for --to mds"),
        ({"to": "mds", "seq": 3}, "--seq 3: must be at least 4"),
        ({"to": "mds", "seq": 128, "shards": 2}, "--shards 2: has no meaning for --to mds"),
        ({"to": "mds", "seq": 128, "compress": "gzip"}, "--compress gzip: has no meaning for --to mds"),
    ):
        with pytest.raises(UsageError, match=words):
            bertprep.convert(folder, tmp_path / "rows", **options)  # type: ignore[arg-type]


def test_long_arrays_have_longer_lengths() -> None:
    for count, head in ((255, b"\4\xff"), (256, b"\5\0\1"), (65_535, b"\5\xff\xff"), (65_536, b"\6\0\0\1\0")):
        assert mds.encode_array(np.zeros(count, "<u2")) == head + bytes(2 * count)
