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

from bertprep.encodings import is_utf8
from bertprep.errors import BertprepError, UsageError
from bertprep.sources.plain_text import check_encoding
from bertprep.sources.readers import is_compressed, read_start, suffixes
from bertprep.terminal import warn
from bertprep.work.layout import MANIFEST

HEAD_BYTES = 1 << 16
LINES = 20
"""The number of lines by which a format without other marks is recognized."""
DUMP, TEXT, JSON_LINES, CSV, TSV = "dump", "text", "json lines", "csv", "tsv"
PARQUET, ARROW, DOC_TAGS = "parquet", "arrow", "doc tags"
_ZIP = b"PK\3\4"


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
    """What may be in a file: with a `reader`, with the `advice` for what is not read, or with both for what is easily misread.

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


def _zipped(suffix: str, mark: bytes) -> Callable[[Head], bool]:
    """Return whether files are ZIP archives with the suffix of a document, or with the mark that such a document has."""
    return lambda head: head.data.startswith(_ZIP) and (head.suffix == suffix or mark in head.data)


def _marked(pattern: str) -> Callable[[Head], bool]:
    return lambda head: re.match(pattern, head.start) is not None


def _is_frame(example: int) -> Callable[[Head], bool]:
    """Return whether files begin with the size of a record, in 8 bytes, and with a message of protobuf at byte `example`."""

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


def _is_one_object(list_of: str) -> Callable[[Head], bool]:
    """Return whether a file is one JSON object whose first value is a list; `list_of` matches its key and its first item."""

    def looks_like(head: Head) -> bool:
        is_one = len(head.lines) == 1 or (not head.lines and "\n" not in head.start)
        return is_one and re.match(r"\{\s*" + list_of, head.start) is not None

    return looks_like


def _is_table(head: Head) -> bool:
    """Return whether all lines have the same number of tabs, at least one."""
    tabs = {line.strip().count("\t") for line in head.lines}
    return len(head.lines) > 1 and len(tabs) == 1 and tabs != {0}


def _has_tags(head: Head) -> bool:
    """Return whether all lines are the columns of a tagged word, the tag last, as in CoNLL's shared tasks.

    Tags without a prefix, such as PER and NNP, are known where each line is one word and a tag in capitals.
    """
    lines = [line.rstrip() for line in head.lines if not line.startswith(("#", "-DOCSTART-"))]
    if len(lines) < 2:
        return False
    if all(re.fullmatch(r"(\S+[ \t]+)+(O|[BIESLU]-[\w-]+)", line) for line in lines):
        return True
    columns = [line.split() for line in lines]
    if not all(len(row) == 2 and re.fullmatch(r"[A-Z][A-Z_$-]*|[^\w\s]+", row[1]) for row in columns):
        return False
    return any(word != word.upper() for word, _ in columns) and any(tag.isalpha() for _, tag in columns)


_EXTRACT = "take the text out of it, for example with "
_UNPACK = "unpack it, and give the files in it: "
_PANDOC = "pandoc -f {} -t plain --wrap=none FILE -o FILE.txt"
_BSDTAR = "mkdir FILE.d && bsdtar -xf FILE -C FILE.d, of libarchive"
_EXPORT = "write its text as JSON Lines with the program that made it"
_PYTHON = "python -c '"
_ROWS_OF_COLUMNS = "jq -c '. as $t | (first(.[]) | keys_unsorted[]) as $row | $t | map_values(.[$row])' FILE > FILE.jsonl"
_ROWS_OF_SPLIT = "jq -c '.columns as $names | .data[] | [$names, .] | transpose | map({(.[0]): .[1]}) | add' FILE > FILE.jsonl"
_ITEMS = "jq -c 'first(.[] | arrays)[]' FILE > FILE.jsonl"
_MESSAGES = (
    'import sys, json, mailbox; [print(json.dumps({"text": part.get_payload(decode=True).decode(errors="replace")})) '
    'for message in mailbox.mbox(sys.argv[1]) for part in message.walk() if part.get_content_type() == "text/plain"]'
)
_PAGES = (
    'import sys, json; from warcio.archiveiterator import ArchiveIterator as pages; [print(json.dumps({"text": '
    'page.content_stream().read().decode(errors="replace")})) for page in pages(open(sys.argv[1], "rb")) '
    'if page.rec_type == "conversion"]'
)
_SEQUENCES = (
    r"""gzip -cdf FILE | awk '/^>/ {printf "%s{\"text\": \"", end; end = "\"}\n"; next} """
    r"""{sub(/\r$/, ""); printf "%s", $0} END {printf "%s", end}' > FILE.jsonl"""
)
_READS = r"""gzip -cdf FILE | awk 'NR % 4 == 2 {sub(/\r$/, ""); print "{\"text\": \"" $0 "\"}"}' > FILE.jsonl"""
_FEATHER = "import sys, pyarrow.feather as f; f.write_feather(f.read_table(sys.argv[1]), sys.argv[2])"
_SPACE = r"(<\?xml[^<]*|<!--(?s:.*?)-->|\s)*"  # before the first tag
KINDS = (
    Kind("Parquet", PARQUET, (".parquet", ".pq"), _magic(b"PAR1")),
    Kind("Arrow", ARROW, (".arrow", ".feather", ".ipc"), _magic(b"ARROW1", b"\xff\xff\xff\xff")),
    Kind(
        "Feather of version 1",
        begins=_magic(b"FEA1"),
        advice=f"write it again: {_PYTHON}{_FEATHER}' FILE FILE.arrow",
    ),
    Kind(
        "PDF",
        suffixes=(".pdf",),
        begins=_magic(b"%PDF"),
        advice=f"{_EXTRACT}pdftotext FILE FILE.txt, of poppler-utils",
    ),
    Kind("a document of Word", begins=_zipped(".docx", b"word/document.xml"), advice=f"{_EXTRACT}{_PANDOC.format('docx')}"),
    Kind("an EPUB", begins=_zipped(".epub", b"mimetypeapplication/epub"), advice=f"{_EXTRACT}{_PANDOC.format('epub')}"),
    Kind("OpenDocument", begins=_zipped(".odt", b"mimetypeapplication/vnd.oasis"), advice=f"{_EXTRACT}{_PANDOC.format('odt')}"),
    Kind(
        "a document of Word before 2007, or of another program",
        suffixes=(".doc", ".docx", ".epub", ".odt"),
        begins=_magic(b"\xd0\xcf\x11\xe0"),
        advice="save it as plain text in UTF-8 with the program that made it",
    ),
    Kind(
        "a ZIP archive",
        suffixes=(".zip", ".npz"),
        begins=_magic(_ZIP),
        advice=f"{_UNPACK}python -m zipfile -e FILE FILE.d",
    ),
    Kind(
        "a tar archive",
        suffixes=(".tar", ".tgz"),
        begins=_magic(b"ustar", at=257),
        advice=f"{_UNPACK}mkdir FILE.d && tar -xf FILE -C FILE.d",
    ),
    Kind("a 7z archive", suffixes=(".7z",), begins=_magic(b"7z\xbc\xaf\x27\x1c"), advice=f"{_UNPACK}{_BSDTAR}"),
    Kind("a RAR archive", suffixes=(".rar",), begins=_magic(b"Rar!\x1a\7"), advice=f"{_UNPACK}{_BSDTAR}"),
    Kind(
        "compressed by a program that is not read",
        suffixes=(".lz4", ".lzma", ".z", ".br", ".lzo"),
        begins=_magic(b"\x04\x22\x4d\x18", b"\x1f\x9d", b"]\0\0"),
        advice="decompress it, or compress it with gzip, bzip2, zstd or xz instead",
    ),
    Kind(
        "a pickle, which can run code",
        suffixes=(".pkl", ".pickle", ".pt", ".pth"),
        begins=_magic(b"\x80\2", b"\x80\3", b"\x80\4", b"\x80\5"),
        advice=_EXPORT,
    ),
    Kind(
        "a database, an array or a picture",
        suffixes=(".db", ".sqlite", ".h5", ".hdf5", ".npy"),
        begins=_magic(b"SQLite format 3", b"\x89HDF", b"\x93NUMPY", b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF"),
        advice=_EXPORT,
    ),
    Kind(
        "TFRecord",
        suffixes=(".tfrecord", ".tfrecords"),
        begins=_is_frame(12),
        advice="bertprep inspect FILE shows its records",
    ),
    Kind("OFRecord", suffixes=(".ofrecord",), begins=_is_frame(8), advice="bertprep inspect FILE shows its records"),
    Kind("a Wikimedia dump", DUMP, (".xml",), _marked(_SPACE + "<mediawiki")),
    Kind(
        "HTML",
        suffixes=(".html", ".htm", ".xhtml"),
        begins=_marked(_SPACE + r"<(!doctype html|html|head|body|div|table|article|section|script|meta|title)\b"),
        advice=f"{_EXTRACT}html2text: pip install html2text && html2text FILE > FILE.txt",
    ),
    Kind("WikiExtractor's documents", DOC_TAGS, begins=_marked(r'<doc\s[^>\n]*\bid="[^\n]*>\s*\n')),
    Kind(
        "XML",
        begins=_marked(r"<\?xml\s|<!doctype\s|<\w+[^>]*\sxmlns="),
        advice="give the text without its tags, or a Wikimedia dump",
    ),
    Kind(
        "a web archive (WARC, WET)",
        suffixes=(".warc", ".wet"),
        begins=_marked(r"warc/\d"),
        advice=f"write its text as JSON Lines: pip install warcio && {_PYTHON}{_PAGES}' FILE > FILE.jsonl, which takes the "
        "text of a WET file; the pages of a WARC file are HTML",
    ),
    Kind(
        "RTF",
        suffixes=(".rtf",),
        begins=_marked(r"\{\\rtf"),
        advice=f"{_EXTRACT}{_PANDOC.format('rtf')}",
    ),
    Kind(
        "subtitles",
        suffixes=(".srt", ".vtt", ".ass", ".ssa"),
        begins=_marked(r"webvtt\b|\[script info\]|\d+\s*\n\d+:\d\d:\d\d[,.]\d{3} *--> "),
        advice=r"take the time codes out: sed -E '/^(\xEF\xBB\xBF)?(WEBVTT.*|[0-9]+|[0-9:.,]+ *--> .*)\r?$/d' FILE > FILE.txt",
    ),
    Kind(
        "a mailbox",
        suffixes=(".mbox", ".eml"),
        begins=_marked(
            r"from \S+ .*\d{4}.*\n(>?[\w-]+:.*\n)|(received|return-path|delivered-to|message-id|from|subject|date): .*\n"
            r"((?![\w-]+: ).*\n|[\w-]+: .*\n){0,30}?(message-id|subject|date|from|x-[\w-]+): "
        ),
        advice=f"write the text of its messages as JSON Lines: {_PYTHON}{_MESSAGES}' FILE > FILE.jsonl",
    ),
    Kind(
        "FASTA, whose lines that begin with > are names of sequences",
        suffixes=(".fasta", ".fna", ".faa"),
        begins=_marked(r">[^\n]*\n[a-z*-]{20,}(\r?\n|$)"),
        advice=f"write its sequences as JSON Lines, each a document: {_SEQUENCES}",
    ),
    Kind(
        "FASTQ, whose sequences have names and qualities between them",
        suffixes=(".fastq", ".fq"),
        begins=_marked(r"@\S[^\n]*\n[a-z.-]{20,}\r?\n\+"),
        advice=f"write its sequences as JSON Lines, each a document: {_READS}",
    ),
    Kind(
        "a pointer of Git LFS to a file that was not fetched",
        begins=_marked(r"version https://git-lfs\.github\.com/spec/"),
        advice="fetch it with git lfs pull in the folder of the repository",
    ),
    Kind(
        "a table of JSON whose columns are objects, as pandas writes it",
        begins=_marked(r'\{\s*"[^"]*"\s*:\s*\{\s*"0"\s*:'),
        advice=f"write a line for each row: {_ROWS_OF_COLUMNS}",
    ),
    Kind(
        "a table of JSON with its columns and data apart, as pandas writes it by orient='split'",
        begins=_marked(r'\{\s*"columns"\s*:\s*\[[^]]*\]\s*,\s*"(index|data)"\s*:\s*\['),
        advice=f"write a line for each row: {_ROWS_OF_SPLIT}",
    ),
    Kind(
        "one JSON object, whose list of texts is read as the lines of one document",
        JSON_LINES,
        begins=_is_one_object(r'"[^"]*"\s*:\s*\[\s*"'),
        advice=f"if the list is a column of documents, write a line for each: {_ROWS_OF_COLUMNS}",
    ),
    Kind(
        "one JSON object, whose list of objects is read as one document",
        JSON_LINES,
        begins=_is_one_object(r'"(data|rows|records|documents|items|examples|articles|train)"\s*:\s*\[\s*\{'),
        advice=f"if each object in the list is a document, write a line for each: {_ITEMS}",
    ),
    Kind(
        "JSON over several lines",
        begins=_marked(r'\{(\s*"[^"\n]*"\s*:[^\n]*[,\[{])?\s*\n\s*["\]}[{]'),
        advice=f"write a line for each object: jq -c . FILE > FILE.jsonl; if the objects are a list in it: {_ITEMS}",
    ),
    Kind("JSON Lines or a JSON array", JSON_LINES, (".jsonl", ".ndjson", ".json"), looks=_is_json),
    Kind("CSV", CSV, (".csv",)),
    Kind("TSV", TSV, (".tsv",)),
    Kind(
        "columns of words and tags, as in CoNLL's tasks",
        suffixes=(".conll", ".conllu", ".iob"),
        looks=_has_tags,
        advice="bertprep task ner reads such files; for text, give sentences",
    ),
    Kind("the index of a Wikimedia dump", looks=lambda head: head.all_lines(r"\d+:\d+:.+"), advice="give the dump itself"),
    Kind(
        "a table whose columns are separated by tabs",
        looks=_is_table,
        advice="name it FILE.tsv if its first line names the columns; or give one column alone: cut -f2 FILE > FILE.txt",
    ),
    Kind("plain text", TEXT, (".txt", ".text", ".tokens", ".raw")),
)
READER_OF_SUFFIX = {suffix: kind.reader for kind in KINDS if kind.reader for suffix in kind.suffixes}
"""Suffix of a file -> its reader; a file with any other suffix is TEXT unless its first bytes say otherwise."""
_OF_SUFFIX = {suffix: kind for kind in KINDS for suffix in kind.suffixes}
_PLAIN = KINDS[-1]


def read_head(location: str) -> Head:
    """Return the first bytes of a file, decompressed. Raises `BertprepError` if it cannot be read."""
    return Head(read_start(location, HEAD_BYTES), suffixes(location)[0])


def recognize(head: Head) -> Kind:
    """Return the kind of a file, by its first bytes, else its suffix, else its first lines; else it is plain text."""
    for kind in KINDS:
        if kind.begins and kind.begins(head):
            return kind
    if head.suffix in _OF_SUFFIX and _OF_SUFFIX[head.suffix] is not _PLAIN:
        return _OF_SUFFIX[head.suffix]
    return next((kind for kind in KINDS if kind.looks and kind.looks(head)), _PLAIN)


def looks_binary(data: bytes) -> bool:
    """Return whether the first bytes of a file are no UTF-8, or have characters that text never has."""
    return b"\0" in data or not is_utf8(data)


def find_reader(location: str) -> str:
    """Return the reader of a file; its first bytes are read.

    Warns of a kind that may not be read as meant. Raises `UsageError` for one that is not read, `BertprepError` if the file
    cannot be read, or is UTF-16 or UTF-32.
    """
    if location.rpartition("/")[2] == MANIFEST:
        raise UsageError(
            f"--input {location}: is a manifest, which lists files and has no text; give the files that it lists, or, if it "
            "contains documents of yours, rename it"
        )
    head = read_head(location)
    kind = recognize(head)
    has_columns = kind.reader in (PARQUET, ARROW)
    is_certain = kind.begins is not None and kind.begins(head)
    if not (has_columns or is_certain):
        check_encoding(location, head.data)
    if has_columns and is_compressed(location):
        raise UsageError(
            f"--input {location}: is {kind.name} in another compression, which is not read; decompress it, for example with "
            "gunzip"
        )
    if not kind.reader:
        raise UsageError(f"--input {location}: is {kind.name}, which is not read as text; {advice_for(kind, location)}")
    if kind.advice:
        warn(f"--input {location}: is {kind.name}; {advice_for(kind, location)}")
    return kind.reader


def describe_text(location: str) -> str:
    """Return the kind of a file that begins with text, such as "JSON Lines or a JSON array"; "" for any other file."""
    try:
        head = read_head(location)
    except (BertprepError, OSError):
        return ""
    return "" if not head.data or looks_binary(head.data) else recognize(head).name


def is_dump(location: str) -> bool:
    """Return whether a file is a Wikimedia dump; False if it cannot be read."""
    try:
        return recognize(read_head(location)).reader == DUMP
    except (BertprepError, OSError):
        return False


def advice_for(kind: Kind, location: str) -> str:
    """Return what to do with a file of a kind that is not read."""
    return re.sub(r"FILE(\.\w+)?", lambda name: shlex.quote(location + (name[1] or "")), kind.advice)
