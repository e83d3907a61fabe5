"""MDS: the bytes of MDSWriter, any number of tasks, read back; a damaged shard is refused in one line."""

import json
from pathlib import Path

import numpy as np
import pytest

import bertprep
from bertprep.errors import BertprepError, UsageError
from bertprep.instances.document_tokenizer import TokenizerInfo
from bertprep.records import mds
from bertprep.records.mds import MdsFile, decode_array, encode_array
from tests.corpora import sums
from tests.golden import GOLDEN
from tests.records.test_token_documents import INFO, write_set

DOCUMENTS = [
    ((np.arange(length) * 7919 + number * 104_729) % 400 + 10).tolist()
    for number, length in enumerate([1, 5, 30, 31, 300, 70, 2, 1000])
]
"""Those of the golden files."""


def tokens_of(folder: Path, width: int = 1000) -> Path:
    return write_set(folder, DOCUMENTS, TokenizerInfo(**{**vars(INFO), "width": width}))


@pytest.mark.parametrize(
    ("name", "width", "seq", "column", "limit"), [("uint16", 1000, 300, None, 2000), ("int32", 70_000, 32, "tokens", 4000)]
)
def test_the_bytes_are_those_of_mdswriter(
    name: str, width: int, seq: int, column: str | None, limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mds, "_SIZE_LIMIT", limit)
    made = bertprep.convert(
        tokens_of(tmp_path / "tokens", width), tmp_path / "rows", to="mds", seq=seq, column=column, workers=1
    )
    assert sums(tmp_path / "rows/train") == sums(GOLDEN / "mds" / name)
    assert len(made.files) > 1


def test_rows_are_the_documents_between_cls_and_sep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mds, "_SIZE_LIMIT", 1500)
    bertprep.convert(tokens_of(tmp_path / "tokens"), tmp_path / "rows", to="mds", seq=100, workers=2)
    found: dict[int, list[int]] = {}
    for path in sorted((tmp_path / "rows/train").glob("*.mds")):
        file = MdsFile(path)
        for number in range(len(file)):
            tokens, row = file.tokens(number, "input_ids").tolist(), file.row(number)
            assert (tokens[0], tokens[-1]) == (INFO.cls, INFO.sep)
            assert 3 <= len(tokens) == int.from_bytes(row["len"], "little") <= 100
            document, piece = map(int, row["id"].decode().split("-")[1:])
            assert len(found.setdefault(document, [])) == piece * 98
            found[document] += tokens[1:-1]
    assert [*found.values()] == DOCUMENTS


def test_parts_and_other_workers_leave_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mds, "_SIZE_LIMIT", 1500)
    source = tokens_of(tmp_path / "tokens")
    bertprep.convert(source, tmp_path / "one", to="mds", seq=50, workers=1)
    for part in ("1/3", "0/3"):
        bertprep.convert(source, tmp_path / "parts", to="mds", seq=50, part=part, workers=2)
        assert not (tmp_path / "parts/train/index.json").exists()
    bertprep.convert(source, tmp_path / "parts", to="mds", seq=50, part="2/3", workers=2)
    assert sums(tmp_path / "parts") == sums(tmp_path / "one")
    assert not bertprep.convert(source, tmp_path / "one", to="mds", seq=50).made
    with pytest.raises(BertprepError, match=r"was made with --seq 50, this run has --seq 60; choose another target folder"):
        bertprep.convert(source, tmp_path / "one", to="mds", seq=60)


def test_an_id_that_the_tokenizer_lacks_is_named(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "tokens", [[5, 6], [7, 2000, 8]], INFO)
    with pytest.raises(BertprepError, match=r"\.bin: token 3 is 2,000, expected 0 to \d+ by its tokenizer"):
        bertprep.convert(folder, tmp_path / "rows", to="mds", seq=10, workers=1)
    assert not (tmp_path / "rows/train/index.json").exists()


def test_only_what_the_tokenizer_has_is_added(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "tokens", [[5, 6, 7]], TokenizerInfo(**{**vars(INFO), "sep": None}))
    bertprep.convert(folder, tmp_path / "rows", to="mds", seq=10)
    assert MdsFile(tmp_path / "rows/train/shard.00000.mds").tokens(0, "input_ids").tolist() == [2, 5, 6, 7]


def test_ids_of_another_type_become_that_of_the_width(tmp_path: Path) -> None:
    manifest = tokens_of(tmp_path / "tokens", 70_000) / "manifest.json"  # int32, as other tools write for any width
    manifest.write_text(manifest.read_text().replace('"width": 70000', '"width": 1000'))
    bertprep.convert(tmp_path / "tokens", tmp_path / "rows", to="mds", seq=300)
    bertprep.convert(tokens_of(tmp_path / "uint16"), tmp_path / "expected", to="mds", seq=300)
    assert sums(tmp_path / "rows/train") == sums(tmp_path / "expected/train")


def test_what_convert_refuses(tmp_path: Path) -> None:
    folder = tokens_of(tmp_path / "tokens")
    for options, words in (
        ({"to": "mds"}, "--to mds: needs --seq"),
        ({"to": "tfrecord", "seq": 128}, "--seq 128: goes with --to mds"),
        ({"to": "mds", "seq": 128, "shards": 2}, "--shards 2: is not for --to mds"),
    ):
        with pytest.raises(UsageError, match=words):
            bertprep.convert(folder, tmp_path / "rows", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("ndarray:int32", encode_array(np.arange(3, dtype="<i4"))),
        ("ndarray:uint16", encode_array(np.arange(3, dtype="<u2"))),
        ("ndarray", b"\x20" + encode_array(np.arange(3, dtype="<u4"))),
        ("ndarray:uint16:3", np.arange(3, dtype="<u2").tobytes()),
    ],
)
def test_arrays_of_other_writers_are_read(encoding: str, data: bytes) -> None:
    assert decode_array(encoding, data).tolist() == [0, 1, 2]


def test_long_arrays_have_longer_lengths() -> None:
    for count in (255, 256, 65_535, 65_536):
        assert decode_array("ndarray:uint16", encode_array(np.zeros(count, "<u2"))).shape == (count,)


def faults() -> list[tuple[str, bytes, str]]:
    good = (GOLDEN / "mds/uint16/shard.00000.mds").read_bytes()
    begins = np.frombuffer(good, "<u4", 3, 4)
    head = good[begins[0] - 10 : begins[0]]
    return [
        ("empty", b"", "is not an MDS shard: it has 0 bytes"),
        ("cut", good[:-1], "is not an MDS shard: its rows do not ascend"),
        ("a huge count", b"\xff" * 4 + good[4:], "is not an MDS shard: it has"),
        ("no JSON", good.replace(head, b"x" * 10), "is not an MDS shard: Unterminated string"),
        ("another size", good[: begins[0]] + b"\xff" + good[begins[0] + 1 :], "row 0 has"),
    ]


@pytest.mark.parametrize(("data", "words"), [each[1:] for each in faults()], ids=[each[0] for each in faults()])
def test_what_is_no_shard_is_refused_in_one_line(data: bytes, words: str, tmp_path: Path) -> None:
    (path := tmp_path / "shard.00000.mds").write_bytes(data)
    with pytest.raises(BertprepError) as refused:
        MdsFile(path).row(0)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_index_lists_what_is_there(tmp_path: Path) -> None:
    bertprep.convert(tokens_of(tmp_path / "tokens"), tmp_path / "rows", to="mds", seq=16)
    index = json.loads((tmp_path / "rows/train/index.json").read_text())
    [shard] = index["shards"]
    path = tmp_path / "rows/train" / shard["raw_data"]["basename"]
    assert (shard["raw_data"]["bytes"], shard["samples"]) == (path.stat().st_size, len(MdsFile(path)))
