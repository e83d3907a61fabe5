"""All that `--input` accepts gives the same documents: files, packings, folders, patterns, URLs; the rest is one line."""

import bz2
import gzip
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from zipfile import ZipFile

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers
import zstandard

import bertprep
from bertprep.config import VocabularySettings
from bertprep.errors import BertprepError, UsageError
from bertprep.sources import documents, plain_text, readers
from bertprep.sources.inputs import IN_FOLDERS, find_sources
from bertprep.sources.kinds import DUMP, is_dump
from bertprep.text.train_vocabulary import train_vocabulary
from bertprep.tokens.documents import open_token_documents
from tests import corpora
from tests.instances.small_tokenizers import write_tokenizer

DOCUMENTS = ["Ein Satz.\nNoch einer.", "Zweites Dokument: \u4e00\u4e8c\u3002", "A third."]
JSON_LINES = "".join(json.dumps({"id": index, "text": text}) + "\n" for index, text in enumerate(DOCUMENTS)).encode()
TABLE = b"id,text\r\n" + b"".join(b'%d,"%b"\r\n' % (index, text.encode()) for index, text in enumerate(DOCUMENTS))
TEXT = "\n\n".join(DOCUMENTS).encode()
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,  # as the zstd command does
}


def documents_of(*locations: Path | str, field: str = "text", one_document: bool = False) -> list[str]:
    return corpora.documents_of(find_sources(locations, field=field, one_document=one_document))


def complaint(*locations: Path | str, field: str = "text") -> str:
    with pytest.raises(BertprepError) as raised:
        documents_of(*locations, field=field)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def write(path: Path, content: bytes) -> Path:
    """Write a file, packed as its name says."""
    path.write_bytes(PACK.get(path.suffix, bytes)(content))
    return path


@pytest.mark.parametrize("packing", PACK)
def test_every_kind_in_every_packing_gives_the_same_documents(packing: str, tmp_path: Path) -> None:
    tables = {"a.csv": TABLE, "a.tsv": TABLE.replace(b",", b"\t")}
    for name, content in {"a.txt": TEXT, "unnamed": TEXT, "a.jsonl": JSON_LINES, **tables}.items():
        write(tmp_path / (name + packing), content)
    table = pa.table({"text": DOCUMENTS})
    pq.write_table(table, tmp_path / "a.parquet")
    for name, make in ("b.arrow", pa.ipc.new_stream), ("c.arrow", pa.ipc.new_file):
        with make(tmp_path / name, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    for path in [*tmp_path.iterdir()]:
        assert documents_of(path) == documents_of(f"file://{path}") == DOCUMENTS
    book = write(tmp_path / f"book.txt{packing}", "\ufeffCall me Ishmael.\n\nSome years ago.\n".encode())
    [document] = documents_of(book, one_document=True)
    assert [line for line in document.split("\n") if line] == ["Call me Ishmael.", "Some years ago."]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda packed: packed[: len(packed) // 2],
    "changed": lambda packed: packed[: (at := len(packed) // 2)] + bytes([packed[at] ^ 0xFF]) + packed[at + 1 :],
    "another format": lambda _: b"This is text.",
    "empty": lambda _: b"",
    "followed by something else": lambda packed: packed + b"garbage",
}


@pytest.mark.parametrize("packing", [".gz", ".bz2", ".zst"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_broken_archive_is_an_error_and_leaves_no_text(packing: str, damage: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.txt{packing}"
    path.write_bytes(DAMAGE[damage](PACK[packing](b" ".join(b"%d" % index**3 for index in range(5000)))))
    text = complaint(path)
    assert text.startswith(f"{path}: cannot be read: ")
    assert text.endswith("; it may be incomplete: download or compress it again")


TITLED = [("A title", "It begins.\nIt ends."), ("", "No title."), (None, "Null."), ("No body", " "), ("", "")]
JOINED = ["A title\nIt begins.\nIt ends.", "No title.", "Null.", "No body"]


def write_titled(path: Path) -> None:
    rows = [{"body": body, "id": 1, "title": title} for title, body in TITLED]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".csv":
        lines = [f'"{row["body"]}",1,"{row["title"] or ""}"\n' for row in rows]
        path.write_text("body,id,title\n" + "".join(lines))
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        table = pa.Table.from_pylist(rows)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet", ".arrow"])
def test_several_fields_are_one_document_in_their_order(suffix: str, tmp_path: Path) -> None:
    write_titled(path := tmp_path / f"a{suffix}")
    assert documents_of(path, field="title,body") == documents_of(path, field="title, body") == JOINED
    assert documents_of(path, field="body,title")[0] == "It begins.\nIt ends.\nA title"
    assert f"has no {'field' if suffix == '.jsonl' else 'column'} 'bdy', found 'body', 'id', 'title'" in complaint(
        path, field="title,bdy"
    )


def test_a_column_whose_name_has_a_comma_is_one_field(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"a,b",a,b\nBoth.,A.,B.\n')
    (tmp_path / "a.jsonl").write_text('{"a,b": "Both.", "a": "A."}\n')
    assert documents_of(tmp_path / "a.csv", tmp_path / "a.jsonl", field="a,b") == ["Both.", "Both."]


def test_a_title_is_a_sentence_of_its_own(tmp_path: Path) -> None:
    write_titled(tmp_path / "a.jsonl")
    bertprep.shard(
        [tmp_path / "a.jsonl"], field="title,body", test_fraction=0, shards=1, one_document_per_block=True, workdir=tmp_path
    )
    text = next((tmp_path / "sharded").rglob("*.txt")).read_text()
    assert "A title\nIt begins.\nIt ends.\n\n" in text
    assert "\x1d" not in text
    path = write_tokenizer(tmp_path, "byte_bpe")
    bertprep.tokenize(tokenizer=path, inputs=[tmp_path / "a.jsonl"], field="title,body", output=tmp_path / "out")
    [shard] = open_token_documents(tmp_path / "out").shards
    library = tokenizers.Tokenizer.from_file(str(path))
    library.no_truncation()
    expected = library.encode("A title\n\nIt begins.\nIt ends.", add_special_tokens=False).ids
    assert shard.tokens[: shard.starts[1]].tolist() == expected
    with pytest.raises(UsageError, match="--field 'title,': has an empty name"):
        bertprep.shard([tmp_path / "a.jsonl"], field="title,", workdir=tmp_path)


LONG = 300_000  # the longest document in these tests
BROKEN: list[tuple[str, bytes, str]] = [
    ("a.jsonl", b'{"text": "One."}\n{"text"\n', 'line 2: expected a JSON object, found {"text": Expecting'),
    ("a.jsonl", b'{"text": "One.", "more": ' + 200_000 * b"[", "recursion"),
    ("a.jsonl", b'{"text": "One.", "id": ' + 10_000 * b"9" + b"}", "Exceeds the limit"),
    ("a.jsonl", b'{"text": "One."}\n{"text": "' + LONG * b"a" + b'"}\n', "line 2: it is longer than 300,000 bytes"),
    ("a.jsonl", JSON_LINES.decode().encode("utf-16"), "expected UTF-8, found UTF-16, UTF-32 or"),
    (
        "a.txt",
        b"One.\n\nNa\xefve.\n",
        "byte 8: expected UTF-8, found 0xef (invalid continuation byte); it looks like",
    ),
    ("a.txt.gz", b"One.\n\xff\n", "line 2: expected UTF-8, found 0xff"),
    ("a.txt.gz", "One.".encode("utf-16-le"), "expected UTF-8, found UTF-16, UTF-32 or something that is not text: "),
    ("a.txt", b"word " * LONG, "byte 0 and after: a document is longer than 300,000 bytes, more than any book"),
    ("a.txt", b"word\n" * LONG, "a document is longer than 300,000 bytes, more than any book"),
    ("a.txt.zst", b"word " * LONG, "line 1: it is longer than 300,000 bytes, more than any book"),
    ("a.txt.zst", b"word\n" * LONG, "a document is longer than 300,000 bytes, more than any book; give each text as its own"),
    (
        "a.jsonl",
        b'{"text": "One."}\n{"text": 5}\n',
        "line 2: field 'text': expected text, found int 5; write text or null there; the row has no other text",
    ),
    (
        "a.jsonl",
        b'{"text": [5], "body": "One."}\n',
        "found int 5; write text or null there, or name another field with --field; the row has text in 'body'",
    ),
    ("a.parquet", b"PAR1", "cannot be read as Parquet: "),
    ("a.csv", b"id,text\n1,One.\n2,Two,and more.\n", "line 3: expected 2 cells as in the first line, found 3; put text with"),
    ("a.csv", b'id,text\n1,"One.\nStill."\n2\n', "line 4: expected 2 cells as in the first line, found 1; put text with"),
    ("a.csv", b'id,text\n1,One.\n2,"Two.\n3,Three.\n', "line 3: has an unclosed quote; write a quote within text as two"),
    ("a.csv", b"id,text\n1,One.\n2,T\0wo.\n", "line 3: has a zero byte, which text never has"),
    ("a.csv", b"id,text\n1,One.\n2,T\xffwo.\n", "line 3: expected UTF-8, found 0xff"),
    ("a.csv", b"id,text\n1,One.\r2,Two.\n", "line 2: cannot be read as a table: new-line character seen in unquoted field"),
    ("a.csv", b"id,body\n1,One.\n", "has no column 'text', found 'id', 'body'; use --field to name the one with the text"),
    ("a.csv", b"", "has no column 'text', found none; use --field"),
    ("a.csv", b'id,text\n1,"' + LONG * b"word\n" + b'"\n', "line 2: cannot be read as a table: field larger than field limit"),
    ("a.csv", b'id,text\n1,"' + LONG * b"word " + b'"\n', "line 2: it is longer than 300,000 bytes"),
]


@pytest.mark.parametrize(("name", "content", "message"), BROKEN)
def test_what_cannot_be_read_is_one_line(
    name: str, content: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (plain_text, readers):
        monkeypatch.setattr(module, "MAX_DOCUMENT_BYTES", LONG)
    monkeypatch.setattr(plain_text, "BLOCK_BYTES", LONG // 10)
    path = write(tmp_path / name, content)
    text = complaint(path)
    assert text.startswith(f"{path}: ")
    assert message in text


def test_a_column_that_is_not_utf8_is_named_by_its_rows(tmp_path: Path) -> None:
    texts = pa.array([b"One."] * 100 + [b"caf\xe9 au lait"], pa.binary()).cast(pa.string(), safe=False)
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    assert complaint(tmp_path / "a.parquet") == (
        f"{tmp_path}/a.parquet: rows 0 to 100: column 'text': expected UTF-8, found 0xe9 (invalid continuation byte); "
        "write the column again as UTF-8"
    )


def test_a_file_that_expands_beyond_its_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One text a thousand times over is a few kilobytes of Parquet and of Zstandard: more of them would fill the disk."""
    monkeypatch.setattr(documents, "ALWAYS_TAKEN", 1 << 20)
    text, times = "This is one sentence. " * 1000, 1000
    pq.write_table(pa.table({"text": [text] * times}), tmp_path / "a.parquet")  # which has the text once, in its dictionary
    write(tmp_path / "b.txt.zst", f"{text}\n\n".encode() * times)
    for path in (tmp_path / "a.parquet", tmp_path / "b.txt.zst"):
        size = path.stat().st_size
        limit = max(2000 * size, 1 << 20)
        with pytest.raises(BertprepError, match=f"^{path}: has {size:,} bytes and more than {limit:,} characters of text"):
            bertprep.shard([path], corpus=path.stem[:1], workdir=tmp_path / "data", workers=1)
        assert not [each for each in (tmp_path / "data").rglob("*") if each.is_file() and each.stat().st_size > 1 << 20]


def test_a_kind_is_the_whole_suffix(tmp_path: Path) -> None:
    """Parts of a dump alone have more after their suffix: `notes.json-old` is text, not JSON Lines."""
    content = b"A note.\n\nAnother.\n"
    assert documents_of(write(tmp_path / "notes.json-old", content)) == ["A note.", "Another."]
    assert documents_of(write(tmp_path / "notes.xml-draft", content)) == ["A note.", "Another."]
    [source] = find_sources([write(tmp_path / "wiki.xml-p1p41242.bz2", b"<mediawiki/>")], field="text", one_document=False)
    assert source.reader == documents.DUMP


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.jsonl", "a.csv", "a.parquet", "a.arrow", "a.xml.bz2"])
@pytest.mark.parametrize("command", ["shard", "tokenize"])
def test_a_disk_that_fails_is_one_line(command: str, name: str, tmp_path: Path) -> None:
    """The kernel answers EIO to whoever reads the memory of a process where there is none."""
    path, out = tmp_path / name, tmp_path / "out"
    path.symlink_to("/proc/self/mem")
    run, options = {
        "shard": (bertprep.shard, {"corpus": "c", "workdir": out}),
        "tokenize": (bertprep.tokenize, {"tokenizer": write_tokenizer(tmp_path, "byte_bpe"), "output": out}),
    }[command]
    advice = "check the disk or network that it is on, or copy it elsewhere"
    with pytest.raises(BertprepError, match=f"^{path}: cannot be read: Input/output error; {advice}$"):
        run(inputs=[path], **options)
    assert not [each for each in out.rglob("*") if each.is_file()]


def test_what_is_not_a_plain_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    for path in (tmp_path / "pipe.txt", Path("/dev/zero")):
        assert complaint(path).startswith(f"--input {path}: is not a file; name files")
        with pytest.raises(BertprepError, match=f"^{path}: cannot be read: it is not a plain file"):
            train_vocabulary([path], tmp_path / "vocab.txt", VocabularySettings())
        with pytest.raises(BertprepError, match=f"^{path}: cannot be read: it is not a plain file"):
            list(readers.read_text(str(path)))


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
def test_records_are_not_text(suffix: str, tmp_path: Path) -> None:
    table = pa.table({"input_ids": [[2, 5, 3]], "attention_mask": [[1, 1, 1]]})
    path = tmp_path / f"train.{suffix}"
    if suffix == "parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_stream(path, table.schema) as stream:
            stream.write_table(table)
    write(tmp_path / "manifest.json", b"{\n}\n")
    for given in (path, tmp_path, f"{tmp_path}/*"):
        assert complaint(given).startswith(f"{path}: these are records, not text: 'input_ids', 'attention_mask'; give them")


# --- folders, patterns and URLs

CONTENTS = {
    "b.csv.gz": gzip.compress(b"text\nb\n"),
    "a.jsonl": b'{"text": "a"}\n',
    "deep/er/c.jsonl": b'{"text": "c"}\n',
    "deep/[1].jsonl": b'{"text": "1"}\n',
    "README.md": b"not text to train on",
    "made/of/it/manifest.json": b"{}",
    "made/of/it/vocab.txt": b"[PAD]\n[UNK]\n",
    "empty/model.bin": b"\0",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The same files on disk and in memory."""
    root, memory = tmp_path_factory.mktemp("folder"), fsspec.filesystem("memory")
    for name, content in CONTENTS.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
        memory.pipe(f"/texts/{name}", content)
    with ZipFile(root / "empty/a.zip", "w") as archive:
        for name in "xy":
            archive.writestr(f"in/{name}.jsonl", f'{{"text": "{name}"}}')
    yield root
    memory.rm("/texts", recursive=True)


@pytest.mark.parametrize("root", ["memory://texts", "memory:///texts", "file://{}", "{}", "."])
def test_folders_and_patterns_are_their_files_by_name(root: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for pattern, expected in {
        "": "ab1c", "/": "ab1c", "/deep": "1c", "/*": "ab", "/*.jsonl": "a", "/[ab].*": "ab", "/*/*/?.jsonl": "c",
        "/**/*.jsonl": "a1c", "/deep/[1].jsonl": "1", "/a.jsonl": "a",
    }.items():  # fmt: skip
        assert "".join(documents_of(root.format(folder) + pattern)) == expected
    kinds = f" that ends in {', '.join(IN_FOLDERS)} (or .gz, .bz2, .zst, .xz)"
    for pattern, message, passed_over in (
        ("/*.txt", "matches no file", ""),
        ("/*.md", f"matches no file{kinds}", "1 that describe data"),
        ("/empty", f"the folder has no file{kinds}", "of other kinds"),
    ):
        said, _, why = complaint(root.format(folder) + pattern).partition("; passed over: ")
        assert (said, passed_over in why) == (f"--input {root.format(folder)}{pattern}: {message}", True)


def test_addresses_in_others_keep_what_stands_before_and_after(folder: Path) -> None:
    assert documents_of(f"zip://in/*.jsonl::file://{folder}/empty/a.zip") == ["x", "y"]
    assert documents_of(f"zip://in/y.jsonl::file://{folder}/empty/a.zip") == ["y"]
    assert documents_of(f"simplecache::file://{folder}/*.jsonl") == ["a"]
    several = ("memory://texts/*.csv.gz", f"{folder}/a.jsonl", f"file://{folder}/deep")
    assert documents_of(*several) == ["b", "a", "1", "c"]


def test_what_is_not_there_is_one_line(folder: Path) -> None:
    for location, message in {
        f"{folder}/none.txt": "does not exist; name files, folders or URLs",
        f"{folder}/none/*": f"matches no file; there is no folder {folder}/none",
        "memory://texts/none/*": "matches no file",
        "memory://nowhere/x": "does not exist",
        "nowhere://a": "cannot be opened (Protocol not known: nowhere); check the address, or install the package",
    }.items():
        assert complaint(location) == f"--input {location}: {message}"
    with pytest.raises(UsageError, match=r"line 1: has no field 'body', found 'text'; use --field to name the one"):
        documents_of(folder / "a.jsonl", field="body")


@pytest.mark.parametrize("name", ["enwiki-1.xml-p10p30-shortened.bz2", "pages", "pages.txt", "pages.old.gz"])
@pytest.mark.parametrize("start", ["", '<?xml version="1.0"?>\n', "\ufeff\n"])
def test_a_dump_under_any_name_is_known_by_its_first_bytes(name: str, start: str, tmp_path: Path) -> None:
    content = f'{start}<mediawiki xml:lang="de"></mediawiki>'.encode()
    compress = {".bz2": bz2.compress, ".gz": gzip.compress}.get(Path(name).suffix, bytes)
    (tmp_path / name).write_bytes(compress(content))
    [source] = find_sources([tmp_path / name], field="text", one_document=False)
    assert source.reader == DUMP
    assert is_dump(str(tmp_path / name))


@pytest.mark.parametrize(
    "start", ["<html><body>", "<!DOCTYPE html>\n<html>", '<?xml version="1.0"?>\n<book>', "<HTML lang='en'>"]
)
def test_html_and_other_xml_are_not_read_as_text(start: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"{start}It is so.")
    with pytest.raises(BertprepError, match=r"a.txt: is (HTML|XML), which is not read as text; (take|give) the text"):
        find_sources([tmp_path], field="text", one_document=True)
    (tmp_path / "a.txt").write_text(f"The tag {start} is so.")
    assert [source.reader for source in find_sources([tmp_path], field="text", one_document=False)] == ["text"]
