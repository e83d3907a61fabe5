"""Everything that `--input` accepts gives the same documents, and broken input is named."""

import bz2
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import bertprep
from bertprep.errors import BertprepError, UsageError
from bertprep.sources import documents, plain_text, readers
from bertprep.sources.inputs import find_sources
from bertprep.text.train_vocabulary import train_vocabulary
from tests import corpora

DOCUMENTS = ["Ein Satz.\nNoch einer.", "Zweites Dokument: \u4e00\u4e8c\u3002", "A third."]
TEXT = "\n\n".join(DOCUMENTS) + "\n"
JSON_LINES = "".join(json.dumps({"id": number, "text": text}) + "\n" for number, text in enumerate(DOCUMENTS))
TABLE = "id,text\r\n" + "".join(f'{number},"{text}"\r\n' for number, text in enumerate(DOCUMENTS))
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,  # as the zstd command does
}


def parquet(path: Path, texts: list[str | None], column: str = "text") -> Path:
    pq.write_table(pa.table({"id": list(range(len(texts))), column: texts}), path)
    return path


def documents_of(*locations: Path | str, field: str = "text", one_document: bool = False) -> list[str]:
    return corpora.documents_of(find_sources(locations, field=field, one_document=one_document))


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize(("name", "content"), [("a.txt", TEXT), ("a.jsonl", JSON_LINES), ("a.csv", TABLE), ("unnamed", TEXT)])
def test_every_kind_in_every_packing_gives_the_same_documents(name: str, content: str, packing: str, tmp_path: Path) -> None:
    path = tmp_path / (name + packing)
    path.write_bytes(PACK[packing](content.encode()))
    assert documents_of(path) == DOCUMENTS


@pytest.mark.parametrize("packing", [".gz", ".bz2", ".zst"])
@pytest.mark.parametrize("damage", ["cut off", "changed", "another format", "empty", "followed by something else"])
def test_a_broken_archive_is_an_error_and_leaves_no_text(packing: str, damage: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.txt{packing}"
    packed = bytearray(PACK[packing](json.dumps([number**3 for number in range(5000)]).encode()))
    if damage == "cut off":
        del packed[len(packed) // 2 :]
    elif damage == "changed":
        packed[len(packed) // 2] ^= 0xFF
    elif damage == "another format":
        packed[:] = b"This is text."
    elif damage == "empty":
        packed.clear()
    else:
        packed += b"garbage"
    path.write_bytes(packed)
    with pytest.raises(BertprepError, match=rf"{path}: cannot be read: .*; is it whole\? fetch or compress it again"):
        documents_of(path)


def test_a_folder_is_all_text_in_it_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "deep").mkdir(parents=True)
    (folder / "b.txt").write_text("Two.\n")
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "One."}\n'))
    (folder / "deep" / "c.txt.zst").write_bytes(zstandard.compress(b"Three.\n"))
    (folder / "README.md").write_text("not taken")
    assert documents_of(folder) == ["One.", "Two.", "Three."]


@pytest.mark.parametrize("packing", ["", ".gz"])
def test_a_file_can_be_one_document(packing: str, tmp_path: Path) -> None:
    path = tmp_path / f"book.txt{packing}"
    path.write_bytes(PACK[packing]("\ufeffCall me Ishmael.\n\nSome years ago.\n".encode()))
    (document,) = documents_of(path, one_document=True)
    assert [line for line in document.split("\n") if line] == ["Call me Ishmael.", "Some years ago."]


def test_a_url_is_opened_by_fsspec(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(JSON_LINES.encode()))
    assert documents_of(f"file://{tmp_path}/a.jsonl.gz") == DOCUMENTS
    parquet(tmp_path / "b.parquet", [*DOCUMENTS])
    assert documents_of(f"file://{tmp_path}/b.parquet") == DOCUMENTS
    for make in (pa.ipc.new_stream, pa.ipc.new_file):
        with make(tmp_path / "c.arrow", pa.schema({"text": pa.string()})) as writer:
            writer.write_table(pa.table({"text": DOCUMENTS}), max_chunksize=2)
        assert documents_of(f"file://{tmp_path}/c.arrow") == DOCUMENTS


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "One."}\n{"text"\n', r"a\.jsonl: line 2: expected a JSON object, found \{\"text\": Expecting"),
        (
            "a.json",
            b'{\n  "text": "One."\n}\n',
            r"a\.json: line 1: is JSON over several lines, expected JSON Lines, an object a line",
        ),
        ("a.jsonl", b'{"body": "One."}\n', r"line 1: has no field 'text', but 'body'; name the one with the text by --field"),
        ("a.jsonl", b'{"text": 5}\n', r"line 1: field 'text': expected text, found int 5"),
        ("a.jsonl", b'{"text": "One.", "more": ' + 200_000 * b"[", r"line 1: expected a JSON object, found .* recursion"),
        (
            "a.jsonl",
            b'{"text": "One.", "id": ' + 10_000 * b"9" + b"}",
            r"line 1: expected a JSON object, found .*: Exceeds the",
        ),
        ("a.jsonl", JSON_LINES.encode("utf-16"), r"a\.jsonl: expected UTF-8, found UTF-16, UTF-32 or"),
        (
            "a.txt.gz",
            gzip.compress("One.".encode("utf-16-le")),
            r"gz: expected UTF-8, found UTF-16, UTF-32 or something that is not text: .*iconv",
        ),
        ("a.txt.gz", gzip.compress(b"One.\n\xff\n"), r"a\.txt\.gz: line 2: expected UTF-8, found 0xff"),
        ("a.parquet", b"PAR1", r"a\.parquet: cannot be read as Parquet: .*; is it whole\? write or fetch it again"),
    ],
)
def test_what_cannot_be_read_is_named(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BertprepError, match=message):
        documents_of(tmp_path / name)


@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"word " * 400, r"(line 1|byte 0 and after): (it|a document) is longer than 1,000 bytes, which no book is"),
        ("a.txt", b"word\n" * 400, r": a document is longer than 1,000 bytes, .* end with a blank line"),
        ("a.jsonl", b'{"text": "One."}\n{"text": "' + bytes(2000) + b'"}\n', r"line 2: it is longer than 1,000 bytes"),
    ],
)
def test_a_line_or_document_without_end_is_refused(
    name: str, content: bytes, message: str, compression: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (plain_text, readers):
        monkeypatch.setattr(module, "MAX_DOCUMENT_BYTES", 1000)
    monkeypatch.setattr(plain_text, "BLOCK_BYTES", 100)
    path = tmp_path / (name + compression)
    path.write_bytes(PACK[compression](content))
    with pytest.raises(BertprepError, match=message):
        documents_of(path)


def test_parquet_that_is_not_utf8_is_named_by_its_row(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = pa.array([b"One."] * 100 + [b"caf\xe9 au lait"], pa.binary()).cast(pa.string(), safe=False)
    pq.write_table(pa.table({"text": texts}), path)
    with pytest.raises(BertprepError) as error:
        documents_of(path)
    assert str(error.value) == (
        f"{path}: rows 0 to 100: column 'text': expected UTF-8, found 0xe9 (invalid continuation byte); "
        "write the column again as UTF-8"
    )


def test_a_file_that_expands_beyond_its_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One text a thousand times over is a few kilobytes of Parquet and of Zstandard: more of them would fill the disk."""
    monkeypatch.setattr(documents, "ALWAYS_TAKEN", 1 << 20, raising=False)
    text, times = "This is one sentence. " * 1000, 1000
    pq.write_table(pa.table({"text": [text] * times}), tmp_path / "a.parquet")  # which has the text once, in its dictionary
    (tmp_path / "b.txt.zst").write_bytes(PACK[".zst"](f"{text}\n\n".encode() * times))
    for path in (tmp_path / "a.parquet", tmp_path / "b.txt.zst"):
        size = path.stat().st_size
        limit = max(2000 * size, 1 << 20)
        assert limit < len(text) * times
        with pytest.raises(BertprepError, match=f"^{path}: has {size:,} bytes and more than {limit:,} characters of text"):
            bertprep.shard([path], corpus=path.stem[:1], workdir=tmp_path / "data", workers=1)
        assert not [each for each in (tmp_path / "data").rglob("*") if each.is_file() and each.stat().st_size > 1 << 20]


def test_what_is_no_plain_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    for path in (tmp_path / "pipe.txt", Path("/dev/zero")):
        with pytest.raises(UsageError, match=f"--input {path}: is not a file; name files"):
            documents_of(path)
        with pytest.raises(BertprepError, match=f"^{path}: is not a plain file"):
            train_vocabulary([path], tmp_path / "vocab.txt")
        with pytest.raises(BertprepError, match=f"^{path}: is not a plain file"):
            list(readers.read_text(str(path)))


def test_wrong_requests(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--input .*none\.txt: does not exist; name files, folders or URLs"):
        documents_of(tmp_path / "none.txt")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match=r"--input .*folder: the folder has no file that ends in \.txt, "):
        documents_of(tmp_path / "folder")
    with pytest.raises(UsageError, match="--input nowhere://a: cannot be opened: Protocol not known: nowhere"):
        documents_of("nowhere://a")
    with pytest.raises(UsageError, match="does not exist"):
        documents_of(f"file://{tmp_path}/none.jsonl")
    with pytest.raises(
        UsageError, match=r"a\.parquet: has no column 'body', but 'id', 'text'; name the one with the text by --field"
    ):
        documents_of(parquet(tmp_path / "a.parquet", ["One."]), field="body")


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
def test_records_are_not_text(suffix: str, tmp_path: Path) -> None:
    records = tmp_path / "records"
    records.mkdir()
    (records / "manifest.json").write_text("{\n}\n")
    table = pa.table({"input_ids": [[2, 5, 3]], "attention_mask": [[1, 1, 1]]})
    path = records / f"train.{suffix}"
    if suffix == "parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_stream(path, table.schema) as stream:
            stream.write_table(table)
    for given in (path, records, f"{records}/*"):
        with pytest.raises(
            UsageError, match=rf"^{path}: these are records, not text: 'input_ids', 'attention_mask'; bertprep val"
        ):
            documents_of(given)
    parquet(records / "a.parquet", ["One."])
    with pytest.raises(BertprepError, match=r"manifest\.json: line 1: is JSON over several lines"):
        documents_of(records / "a.parquet", records / "manifest.json")
