"""Recognize what is in a file by its first bytes and lines, and by its suffix: one table, in which a new kind is one row.

A file of text is often not what its name says: WikiExtractor writes `wiki_00`, Spark `part-00000`, and a Parquet file may be
named `.txt`. Bytes that only one format begins with decide before the suffix, and lines that only look like a format after it.
What has no reader is refused by its name, with a command that makes text of it. The first `HEAD_BYTES` are looked at, after
decompression, so an answer takes little time and memory whatever the file holds.
"""

from __future__ import annotations

import codecs
import json
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from bertprep.errors import BertprepError, UsageError
from bertprep.sources.encodings import guess_encoding
from bertprep.sources.readers import open_stream, suffixes
from bertprep.work.layout import MANIFEST

HEAD_BYTES = 1 << 16
LINES = 20
"""The number of lines by which a format without other marks is recognized."""
DUMP, TEXT, JSON_LINES, CSV, TSV = "dump", "text", "json lines", "csv", "tsv"
PARQUET, ARROW, DOC_TAGS = "parquet", "arrow", "doc tags"


@dataclass(frozen=True)
class Head:
    """The first bytes of a file, after decompression."""

    data: bytes
    suffix: str

    @cached_property
    def text(self) -> str:
        """The bytes as text, without a byte order mark; what is not UTF-8 is replaced."""
        return self.data.removeprefix(codecs.BOM_UTF8).decode(errors="replace")

    @cached_property
    def start(self) -> str:
        """The text after white space, in lower case."""
        return self.text.lstrip().lower()

    @cached_property
    def lines(self) -> list[str]:
        """The first lines that are not blank; the last one of a longer file is not among them, as it may be cut off."""
        lines = self.text.splitlines() if len(self.data) < HEAD_BYTES else self.text.splitlines()[:-1]
        return [line for line in lines if line.strip()][:LINES]

    def all_lines(self, pattern: str) -> bool:
        """Return whether there are at least two lines, all of which match a pattern."""
        return len(self.lines) > 1 and all(re.fullmatch(pattern, line) for line in self.lines)


@dataclass(frozen=True)
class Kind:
    """What may be in a file: with a `reader`, or with the `advice` for what is not read.

    `begins` tells by the first bytes, whatever the suffix; `looks` by the first lines, if no suffix of another kind decides.
    In the advice FILE stands for the file's name.
    """

    name: str
    reader: str = ""
    suffixes: tuple[str, ...] = ()
    begins: Callable[[Head], bool] | None = None
    looks: Callable[[Head], bool] | None = None
    advice: str = ""


def _magic(*magics: bytes, at: int = 0) -> Callable[[Head], bool]:
    return lambda head: head.data[at:].startswith(magics)


def _marked(pattern: str) -> Callable[[Head], bool]:
    return lambda head: re.match(pattern, head.start) is not None


def _is_frame(example: int) -> Callable[[Head], bool]:
    """Return whether a file begins with the size of a record, in 8 bytes, and with a message of protobuf after `example` bytes."""

    def looks_like(head: Head) -> bool:
        size = int.from_bytes(head.data[:8], "little")
        return 0 < size < 1 << 24 and head.data[example : example + 1] == b"\x0a"

    return looks_like


def _is_json(head: Head) -> bool:
    """Return whether the first lines are objects of JSON, or the file is an array of objects or texts."""
    if re.match(r'\[\s*[{"\]]', head.start):
        return True
    if not head.lines:
        return head.start.startswith('{"') and len(head.data) == HEAD_BYTES  # one long line
    try:
        return all(isinstance(json.loads(line), dict) for line in head.lines)
    except (ValueError, RecursionError):
        return False


def _is_table(head: Head) -> bool:
    """Return whether all lines have the same number of tabs, at least one."""
    tabs = {line.count("\t") for line in head.lines}
    return len(head.lines) > 1 and len(tabs) == 1 and tabs != {0}


def _has_tags(head: Head) -> bool:
    """Return whether all lines are the columns of a tagged word, the tag last, as in CoNLL's shared tasks."""
    lines = [line for line in head.lines if not line.startswith(("#", "-DOCSTART-"))]
    tag = r"(\S+[ \t]+)+(O|[BIESLU]-[\w-]+)"
    return len(lines) > 1 and all(re.fullmatch(tag, line.rstrip()) for line in lines)


_TO_TEXT = "take the text out of it, for example by TOOL"
_UNPACK = "unpack it, and give the files in it: TOOL"
_MARKUP = _TO_TEXT.replace("TOOL", "pip install html2text && html2text FILE > FILE.txt")
KINDS = (
    Kind("Parquet", PARQUET, (".parquet", ".pq"), _magic(b"PAR1")),
    Kind("Arrow", ARROW, (".arrow", ".feather", ".ipc"), _magic(b"ARROW1", b"\xff\xff\xff\xff")),
    Kind(
        "Feather of version 1", begins=_magic(b"FEA1"),
        advice="write it again: python -c \"import sys, pyarrow.feather as f; f.write_feather(f.read_table(sys.argv[1]), "
        "sys.argv[2])\" FILE FILE.arrow",
    ),
    Kind("PDF", suffixes=(".pdf",), begins=_magic(b"%PDF"), advice=_TO_TEXT.replace("TOOL", "pdftotext FILE FILE.txt (of poppler-utils)")),
    Kind(
        "a document of Word, EPUB or OpenDocument", suffixes=(".doc", ".docx", ".epub", ".odt"),
        begins=_magic(b"\xd0\xcf\x11\xe0"), advice=_TO_TEXT.replace("TOOL", "pandoc -t plain --wrap=none FILE -o FILE.txt"),
    ),
    Kind(
        "a ZIP archive", suffixes=(".zip", ".npz"), begins=_magic(b"PK\3\4"),
        advice=_UNPACK.replace("TOOL", "python -m zipfile -e FILE FILE.d") + ", or zip://*.txt::FILE",
    ),
    Kind(
        "a tar archive", suffixes=(".tar", ".tgz"), begins=_magic(b"ustar", at=257),
        advice=_UNPACK.replace("TOOL", "mkdir FILE.d && tar -xf FILE -C FILE.d"),
    ),
    Kind("a 7z archive", suffixes=(".7z",), begins=_magic(b"7z\xbc\xaf\x27\x1c"), advice=_UNPACK.replace("TOOL", "7z x FILE")),
    Kind("a RAR archive", suffixes=(".rar",), begins=_magic(b"Rar!\x1a\7"), advice=_UNPACK.replace("TOOL", "unrar x FILE")),
    Kind(
        "compressed by a program that is not read", suffixes=(".lz4", ".lzma", ".z", ".br", ".lzo"),
        begins=_magic(b"\x04\x22\x4d\x18", b"\x1f\x9d", b"]\0\0"), advice="decompress it, for example with lz4 -d, xz -d or uncompress",
    ),
    Kind(
        "a pickle", suffixes=(".pkl", ".pickle", ".pt", ".pth"), begins=_magic(b"\x80\2", b"\x80\3", b"\x80\4", b"\x80\5"),
        advice="write its text as JSON Lines with the program that made it",
    ),
    Kind(
        "a database, an array or a picture", suffixes=(".db", ".sqlite", ".h5", ".hdf5", ".npy"),
        begins=_magic(b"SQLite format 3", b"\x89HDF", b"\x93NUMPY", b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"\x7fELF"),
        advice="write its text as JSON Lines with the program that made it",
    ),
    Kind("TFRecord", suffixes=(".tfrecord", ".tfrecords"), begins=_is_frame(12), advice="it has records, which bertprep inspect FILE shows"),
    Kind("OFRecord", suffixes=(".ofrecord",), begins=_is_frame(8), advice="it has records, which bertprep inspect FILE shows"),
    Kind("a Wikimedia dump", DUMP, (".xml",), _marked(r"<mediawiki|<\?xml[^<]*(<!--.*?-->\s*)*<mediawiki")),
    Kind("HTML", suffixes=(".html", ".htm", ".xhtml"), begins=_marked(r"(<\?xml[^<]*|<!--.*?-->\s*)*<(!doctype html|html|head|body)\b"), advice=_MARKUP),
    Kind("WikiExtractor's documents", DOC_TAGS, begins=_marked(r'<doc\s[^>]*\bid="[^>]*>\s*\n')),
    Kind("XML", begins=_marked(r"<\?xml\s|<!doctype\s|<\w+[^>]*\sxmlns="), advice="give the text without its tags, or a Wikimedia dump"),
    Kind(
        "a web archive (WARC, WET)", suffixes=(".warc", ".wet"), begins=_marked(r"warc/\d"),
        advice="write its text as JSON Lines: pip install warcio && python -c \"import sys, json, warcio; [print(json.dumps({'text': "
        "r.content_stream().read().decode(errors='replace')})) for r in warcio.ArchiveIterator(open(sys.argv[1], 'rb')) if r.rec_type == "
        "'conversion']\" FILE > FILE.jsonl for a WET file; the pages of a WARC file are HTML",
    ),
    Kind("RTF", suffixes=(".rtf",), begins=_marked(r"\{\\rtf"), advice=_TO_TEXT.replace("TOOL", "pandoc -t plain --wrap=none -f rtf FILE -o FILE.txt")),
    Kind(
        "subtitles", suffixes=(".srt", ".vtt"), begins=_marked(r"webvtt\b|\d+\s*\n\d\d:\d\d:\d\d[,.]\d{3} --> "),
        advice="take the time codes out, for example by sed -E '/^(WEBVTT|[0-9]+\\r?$|[0-9:.,]+ --> )/d' FILE > FILE.txt",
    ),
    Kind(
        "a mailbox", suffixes=(".mbox", ".eml"), begins=_marked(r"from \S+ +\w{3} \w{3} +\d.*\n[\w-]+:|(received|return-path|delivered-to|message-id): .*\n"),
        advice="write the text of the messages with Python's modules mailbox and json, as JSON Lines",
    ),
    Kind("JSON Lines or a JSON array", JSON_LINES, (".jsonl", ".ndjson", ".json"), looks=_is_json),
    Kind("CSV", CSV, (".csv",)),
    Kind("TSV", TSV, (".tsv",)),
    Kind(
        "columns of words and tags, as in CoNLL's tasks", suffixes=(".conll", ".conllu", ".iob"), looks=_has_tags,
        advice="they are for bertprep task ner; for text, give sentences",
    ),
    Kind(
        "a table whose columns are separated by tabs", looks=_is_table,
        advice="name it FILE.tsv if its first line names the columns; or give one column alone: cut -f2 FILE > FILE.txt",
    ),
    Kind("plain text", TEXT, (".txt", ".text")),
)  # fmt: skip
READER_OF_SUFFIX = {suffix: kind.reader for kind in KINDS if kind.reader for suffix in kind.suffixes}
"""Suffix of a file -> its reader; a file with any other suffix is TEXT unless its first bytes say otherwise."""
_OF_SUFFIX = {suffix: kind for kind in KINDS for suffix in kind.suffixes}
_PLAIN = KINDS[-1]


def read_head(location: str) -> Head:
    """Return the first bytes of a file, decompressed. Raises `BertprepError` if it cannot be read."""
    with open_stream(location) as file:
        data = b""
        while len(data) < HEAD_BYTES and (more := file.read(HEAD_BYTES - len(data))):
            data += more
    return Head(data, suffixes(location)[0])


def recognize(head: Head) -> Kind:
    """Return the kind of a file, by its first bytes, else its suffix, else its first lines; else it is plain text."""
    for kind in KINDS:
        if kind.begins and kind.begins(head):
            return kind
    if head.suffix in _OF_SUFFIX and _OF_SUFFIX[head.suffix] is not _PLAIN:
        return _OF_SUFFIX[head.suffix]
    return next((kind for kind in KINDS if kind.looks and kind.looks(head)), _PLAIN)


def find_reader(location: str) -> str:
    """Return the reader of a file; its first bytes are read.

    Raises `UsageError` for a kind that is not read, `BertprepError` if the file cannot be read or is not UTF-8.
    """
    if location.rpartition("/")[2] == MANIFEST:
        raise UsageError(
            f"--input {location}: is a manifest, which lists files and has no text; give the files that it lists, or, if it "
            "contains documents of yours, rename it"
        )
    head = read_head(location)
    kind = recognize(head)
    if not kind.reader:
        raise UsageError(f"--input {location}: is {kind.name}, which is not read as text; {advice_for(kind, location)}")
    if kind.reader not in (PARQUET, ARROW, DUMP):
        check_utf8(location, head.data)
    return kind.reader


def is_dump(location: str) -> bool:
    """Return whether a file is a Wikimedia dump; False if it cannot be read."""
    try:
        return recognize(read_head(location)).reader == DUMP
    except (BertprepError, OSError):
        return False


def advice_for(kind: Kind, location: str) -> str:
    """Return what to do with a file of a kind that is not read."""
    return re.sub(r"FILE(\.\w+)?", lambda name: shlex.quote(location + (name[1] or "")), kind.advice)


def check_utf8(location: str, data: bytes) -> None:
    """Raise `BertprepError` if the first bytes of a text are not UTF-8; name the encoding if they tell it."""
    if not data:
        return
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)  # the last character may be cut off
        if 3 * data.count(0) <= len(data):
            return
    except UnicodeDecodeError:
        pass
    encoding = guess_encoding(data)
    found = f"what looks like {encoding}" if encoding else f"bytes that are not text: {data[:8].hex(' ')}"
    name = encoding.partition(" ")[0] if encoding else "ENCODING"
    raise BertprepError(
        f"{location}: expected UTF-8, found {found}; if it is text, convert it: iconv -f {name} -t UTF-8 "
        f"{shlex.quote(location)} > {shlex.quote(location + '.utf8')}"
    )
