"""Read the documents of one file, unchanged and in order: plain text, JSON, CSV, TSV, Parquet, Arrow, WikiExtractor's output.

Text formats may be compressed, as the first bytes tell. The readers stream the file. They yield empty documents too, so that
the caller can count them. A corrupt or truncated file is an error.
"""

from __future__ import annotations

import codecs
import csv
import html
import io
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from urllib.parse import urlsplit

from bertprep.errors import BertprepError, UsageError, first_line, not_utf8, quoted, reading
from bertprep.files.archives import (
    BUFFER_BYTES,
    COMPRESSIONS,
    MAGIC_BYTES,
    BrokenArchiveError,
    compression_of,
    decompress,
    decompress_start,
    read_fully,
)
from bertprep.files.object_cache import open_local
from bertprep.files.paths import as_path, open_head
from bertprep.sources.fields import batch_texts, fields_in, find_columns, join_fields, no_field, row_text
from bertprep.sources.plain_text import MAX_DOCUMENT_BYTES, check_encoding, too_long

if TYPE_CHECKING:
    import pyarrow as pa

FindColumns = Callable[["pa.Schema"], list[str]]
MAX_ROWS = 256
"""The rows that are read from Parquet at a time; fewer if they are large."""
_STORES = ("s3://", "gs://", "az://")
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
_FILE_MAGIC = b"ARROW1"
_GAP_OF_JSON = re.compile(r"[\s,]*")  # between the items of an array
_TEXT = "text"  # the field that a text without a key has
_SHOWN = 40  # characters of a line in a message
_PART_OF_A_DUMP = re.compile(r"\.xml-p\d+p\d+")  # as in enwiki-latest-pages-articles1.xml-p1p41242.bz2


def is_url(location: str) -> bool:
    """Return whether it is a URL, such as `s3://bucket/a.jsonl` or `hf://datasets/...`, not a path."""
    return "://" in location


def is_web(location: str) -> bool:
    """Return whether it is an http or https address."""
    return urlsplit(location).scheme in ("http", "https")


def is_local(location: str) -> bool:
    """Return whether it is read as a local file: a path, or a URL of an object store, which is copied first."""
    return not is_url(location) or (location.lower().startswith(_STORES) and "::" not in location)


def split_hops(location: str) -> tuple[str, str, str]:
    """Split a chained URL into the hops before the one with the file's path, that hop, and the hops after it.

    >>> split_hops("zip://a/*.txt::s3://bucket/a.zip"), split_hops("simplecache::s3://bucket/a.txt")
    (('', 'zip://a/*.txt', '::s3://bucket/a.zip'), ('simplecache::', 's3://bucket/a.txt', ''))
    """
    hops = location.split("::")
    at = next(index for index, hop in enumerate(hops) if "://" in hop)
    return "".join(f"{hop}::" for hop in hops[:at]), hops[at], "".join(f"::{hop}" for hop in hops[at + 1 :])


def suffixes(location: str) -> tuple[str, str]:
    """Return the suffixes of a file's format and of its compression, each '' if there is none; a part of a dump is ".xml".

    >>> suffixes("a.jsonl.gz"), suffixes("wiki.xml-p1p41242.bz2"), suffixes("notes.json-old")
    (('.jsonl', '.gz'), ('.xml', '.bz2'), ('.json-old', ''))
    """
    name = PurePosixPath(split_hops(location)[1].partition("?")[0] if is_url(location) else location)
    compression = name.suffix.lower() if name.suffix.lower() in COMPRESSIONS else ""
    kind = (PurePosixPath(name.stem) if compression else name).suffix.lower()
    return ".xml" if _PART_OF_A_DUMP.fullmatch(kind) else kind, compression


def file_system(location: str) -> tuple[Any, str]:
    import fsspec

    try:
        return cast(tuple[Any, str], fsspec.core.url_to_fs(location))
    except (ImportError, ValueError) as error:  # a protocol that is unknown, or whose package is not installed
        raise UsageError(f"--input {location}: cannot be opened ({error}); check the address, or install the package") from None


@contextmanager
def open_raw(location: str) -> Iterator[BinaryIO]:
    """Open a file without decompressing it. A path gives a seekable file."""
    if not is_local(location):
        system, name = file_system(location)
        with system.open(name, "rb") as file:
            yield file
        return
    with open_local(as_path(location)) as file:
        yield file


@contextmanager
def open_stream(location: str) -> Iterator[BinaryIO]:
    """Open a file and decompress it. Raises `BertprepError`, also during reading, if the file is broken."""
    compression = suffixes(location)[1]
    try:
        with open_raw(location) as raw:
            compression = compression_of(raw.read(MAGIC_BYTES)) or compression
            raw.seek(0)
            with decompress(raw, compression) as stream:
                yield stream
    except (EOFError, OSError, BrokenArchiveError) as error:
        advice = "; it may be incomplete: download or compress it again" if compression else ""
        if isinstance(error, OSError) and error.strerror:
            with reading(location, advice):
                raise
        raise BertprepError(f"{location}: cannot be read: {quoted(str(error))}{advice}") from error


def read_start(location: str, size_bytes: int) -> bytes:
    """Return the first bytes of a file, decompressed; fewer of a shorter file. Raises `BertprepError` if it cannot be read.

    Of an object in a store only the beginning is downloaded, unless that is too short to be decompressed.
    """
    if start := _start_of_object(location):
        data = decompress_start(start, compression_of(start) or suffixes(location)[1])
        if data:
            return data[:size_bytes]
    with open_stream(location) as file:
        return read_fully(file, size_bytes)


def is_compressed(location: str) -> bool:
    """Return whether a file is compressed, by its name or its first bytes. Raises `BertprepError` if it cannot be read."""
    if suffixes(location)[1]:
        return True
    if start := _start_of_object(location):
        return bool(compression_of(start))
    with reading(location), open_raw(location) as raw:
        return bool(compression_of(raw.read(MAGIC_BYTES)))


def _start_of_object(location: str) -> bytes:
    """Return the first bytes of an object in a store; b"" for any other file."""
    if not (is_local(location) and is_url(location)):
        return b""
    with reading(location), open_head(as_path(location)) as file:
        return file.read()


def _byte_lines(location: str) -> Iterator[tuple[str, bytes]]:
    """Yield for each line of a file its location, which names the file and the line, and its content."""
    with open_stream(location) as stream:
        file = stream if isinstance(stream, io.BufferedReader | io.BytesIO) else io.BufferedReader(stream, BUFFER_BYTES)  # type: ignore[type-var]
        lines = iter(partial(file.readline, MAX_DOCUMENT_BYTES + 1), b"")  # bounded, since one line may be the whole file
        for number, line in enumerate(lines, start=1):
            where = f"{location}: line {number:,}"
            if len(line) > MAX_DOCUMENT_BYTES:
                raise too_long(where, "it")
            if number == 1:
                check_encoding(location, line)
                line = line.removeprefix(codecs.BOM_UTF8)
            yield where, line


def _text_lines(location: str) -> Iterator[tuple[str, str]]:
    for where, line in _byte_lines(location):
        try:
            yield where, line.decode()
        except UnicodeDecodeError as error:
            raise not_utf8(where, error) from error


def read_text(location: str, *, one_document: bool = False) -> Iterator[str]:
    """Yield the documents of plain text. A blank line ends a document, unless the whole file is one."""
    lines: list[str] = []
    characters = 0
    for _, line in _text_lines(location):
        if not one_document and not line.strip():
            if lines:
                yield "".join(lines)
            lines, characters = [], 0
            continue
        lines.append(line)
        characters += len(line)
        if characters > MAX_DOCUMENT_BYTES:
            raise too_long(location, "a document")
    if lines or one_document:
        yield "".join(lines)


def read_json_lines(location: str, field: str) -> Iterator[str]:
    """Yield for each line, which is a JSON object, the text of its field or fields; null is an empty document."""
    for where, row in read_json_rows(location):
        yield row_text(row, field, where)


def read_json_rows(location: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the location and the object of each line, or of each item if the file is one array.

    An item that is a text is an object with the field `text`, as `datasets` reads it.
    """
    lines = _byte_lines(location)
    for where, line in lines:
        if not line.strip():
            continue
        if line.lstrip().startswith(b"["):
            yield from _read_array(location)
            return
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:  # brackets may be nested deeply
            if line.strip() == b"{":
                raise BertprepError(
                    f"{where}: is one JSON object over several lines, expected JSON Lines or an array of objects; choose the "
                    "part with the texts, for example by jq -c '.data[]'"
                ) from error
            raise BertprepError(f"{where}: expected a JSON object, found {_shorten_line(line)}: {error}") from error
        if not isinstance(row, dict):
            raise BertprepError(f"{where}: expected a JSON object, found {_shorten_line(line)}")
        yield where, row


def _read_array(location: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the location and the object of each item of an array; only one item and some text after it are in memory."""
    decoder = json.JSONDecoder()
    with open_stream(location) as stream:
        text = codecs.getreader("utf-8-sig")(stream)
        read, number = text.read(BUFFER_BYTES), 1
        at = read.index("[") + 1
        while True:
            where = f"{location}: item {number:,}"
            at = _GAP_OF_JSON.match(read, at).end()  # type: ignore[union-attr] # matches anything
            if read.startswith("]", at):
                if (read[at + 1 :] + text.read(BUFFER_BYTES)).strip():
                    raise BertprepError(f"{location}: has more after the end of its array; write it again as JSON Lines")
                return
            try:
                item, at = decoder.raw_decode(read, at)
            except RecursionError as error:
                raise BertprepError(f"{where}: cannot be read as JSON: {error}") from error
            except ValueError as error:  # it may be cut off here
                if len(read) - at > 2 * MAX_DOCUMENT_BYTES:
                    raise too_long(where, "it") from error
                if not (more := _read_more(text, where)):
                    raise BertprepError(f"{where}: cannot be read as JSON: {error}; the file may be incomplete") from error
                read, at = read[at:] + more, 0
                continue
            if isinstance(item, str):
                item = {_TEXT: item}
            if not isinstance(item, dict):
                raise BertprepError(
                    f"{where}: expected a JSON object or a text, found {_shorten_line(json.dumps(item).encode())}; write a "
                    'line for each document: {"text": "..."}'
                )
            yield where, item
            number += 1


def _read_more(text: codecs.StreamReader, where: str) -> str:
    try:
        return text.read(BUFFER_BYTES)
    except UnicodeDecodeError as error:
        raise not_utf8(where, error) from error


def read_doc_tags(location: str) -> Iterator[str]:
    """Yield the documents of WikiExtractor's output, `<doc id=... title=...>` to `</doc>`, without the line of the title.

    The characters that it writes as entities, such as `&lt;`, are those of the text.
    """
    lines: list[str] | None = None
    characters = 0
    for where, line in _text_lines(location):
        if lines is None:
            if line.startswith("<doc "):
                lines, characters, title = [], 0, _title_of(line)
            elif line.strip():
                raise BertprepError(
                    f"{where}: expected <doc ...>, found {_shorten_line(line.encode())}; extract the dump again"
                )
        elif line.startswith("</doc>"):
            yield html.unescape("".join(lines))
            lines = None
        elif lines or html.unescape(line).strip() not in ("", title):
            lines.append(line)
            characters += len(line)
            if characters > MAX_DOCUMENT_BYTES:
                raise too_long(where, "a document")
    if lines is not None:
        raise BertprepError(f"{location}: ends within a document, without </doc>; extract the dump again")


def _title_of(tag: str) -> str:
    found = re.search(r'\btitle="(.*)"', tag)
    return html.unescape(found[1]).strip() if found else ""


def read_table(
    location: str, field: str, delimiter: str, lacks: Callable[[str, str, Iterable[str]], UsageError] = no_field
) -> Iterator[str]:
    """Yield the text of each row of a CSV or TSV file, from the columns that `field` names; the first line names them all.

    `lacks` makes the error for a column that is missing.
    """
    at_end = False

    def lines() -> Iterator[str]:
        nonlocal at_end
        for where, line in _text_lines(location):
            if "\0" in line:
                raise BertprepError(f"{where}: has a zero byte, which text never has; export the file again")
            yield line
        at_end = True

    usual = csv.field_size_limit(MAX_DOCUMENT_BYTES)
    rows = csv.reader(lines(), delimiter=delimiter)
    start = 1
    header: list[str] = []
    try:
        header = next(rows, [])
        if len(header) == 1 and (other := _other_delimiter(header[0], field)):
            rows = csv.reader(lines(), delimiter=other)
            header = next(rows, [])
        columns = []
        for name in fields_in(field, header):
            if name not in header:
                error = lacks(f"{location}: has no column", name, header)
                raise UsageError(f"{error}{_naming(location, header, rows.dialect.delimiter)}")
            columns.append(header.index(name))
        start = rows.line_num + 1
        for row in rows:
            if at_end:
                raise BertprepError(
                    f'{location}: line {start:,}: has an unclosed quote; write a quote within text as two, "", and check '
                    "that the file is complete"
                )
            if any(map(str.strip, row)):
                if not max(columns) < len(row) <= len(header):
                    raise BertprepError(
                        f"{location}: line {start:,}: expected {len(header):,} cells as in the first line, found {len(row):,}; "
                        'put text with a separator or a line end between quotes, "..."'
                    )
                yield row[columns[0]] if len(columns) == 1 else join_fields(row[column] for column in columns)
            start = rows.line_num + 1
    except csv.Error as error:
        raise BertprepError(
            f"{location}: line {start:,}: cannot be read as a table: {error}; export the table again"
        ) from error
    finally:
        csv.field_size_limit(usual)


def _naming(location: str, header: Sequence[str], delimiter: str) -> str:
    """Return how to name the columns of a table whose first line has values; "" if it may be names."""
    if len(header) == 1:  # as in a CSV with semicolons, where no name tells
        delimiter = max((delimiter, ";", "\t"), key=header[0].count)
        header = header[0].split(delimiter)
    if not any(_VALUE.fullmatch(name) for name in header):
        return ""
    names = ("\\t" if delimiter == "\t" else delimiter).join(f"c{number}" for number in range(1, len(header) + 1))
    command = f"(printf '{names}\\n'; gzip -cdf {shlex.quote(location)}) > NEW{'.tsv' if delimiter == chr(9) else '.csv'}"
    return f"; if its first line is a row, put names above it: {command}"


_VALUE = re.compile(r"[-+]?\d[\d.,]*|https?://.*|.{60,}|.*\s.*[.!?]", re.DOTALL)
"""A cell of a table that is unlikely to be the name of a column."""


def _other_delimiter(header: str, field: str) -> str | None:
    """Return the delimiter by which a first line without commas has the fields, as Excel writes it in many countries."""
    for delimiter in (";", "\t"):
        names = header.split(delimiter)
        if len(names) > 1 and set(fields_in(field, names)) <= set(names):
            return delimiter
    return None


def read_parquet(location: str, field: str) -> Iterator[str]:
    """Yield the text of each row of a Parquet file, from the columns that `field` names; null is an empty document."""
    with parquet_batches(location, partial(find_columns, field=field, location=location)) as (names, batches):
        yield from batch_texts(batches, names, field, location)


@contextmanager
def parquet_batches(location: str, find: FindColumns) -> Iterator[tuple[list[str], Iterator[pa.RecordBatch]]]:
    """Open a Parquet file; yield the names of the columns that `find` chooses from its schema, and batches of these columns."""
    with open_parquet(location) as file:
        names = find(file.schema_arrow)
        yield names, file.iter_batches(_rows_at_a_time(file), columns=names, use_threads=False)


@contextmanager
def open_parquet(location: str) -> Iterator[Any]:
    """Open a path or URL as a `ParquetFile`. Raises `BertprepError`, also during reading, if it is corrupt."""
    import pyarrow.parquet as pq

    with _open_columns(location, "Parquet") as raw, pq.ParquetFile(raw, pre_buffer=False, buffer_size=BUFFER_BYTES) as file:
        yield file


@contextmanager
def _open_columns(location: str, kind: str) -> Iterator[BinaryIO]:
    import pyarrow as pa  # takes 0.1 s, so only files of columns import it

    try:
        with open_raw(location) as raw:
            yield raw
    except (pa.ArrowException, OSError, UnicodeDecodeError, MemoryError, OverflowError) as error:
        raise BertprepError(
            f"{location}: cannot be read as {kind}: {first_line(error)}; it may be incomplete: write or download it again"
        ) from error


def _rows_at_a_time(file: Any) -> int:
    """Return how many rows a batch may have, from the sizes of row groups: to read those of columns can abort the process."""
    groups = map(file.metadata.row_group, range(file.num_row_groups))
    most = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=1)
    return int(max(1, min(MAX_ROWS, MAX_DOCUMENT_BYTES // max(1, most))))


def read_arrow(location: str, field: str) -> Iterator[str]:
    """Yield the text of each row of an Arrow file or stream, from the columns that `field` names; null is an empty document."""
    with arrow_batches(location, partial(find_columns, field=field, location=location)) as (names, batches):
        yield from batch_texts(batches, names, field, location)


@contextmanager
def arrow_batches(location: str, find: FindColumns) -> Iterator[tuple[list[str], Iterator[pa.RecordBatch]]]:
    """Open an Arrow file or stream; yield the names of the columns that `find` chooses, and batches of all columns."""
    import pyarrow as pa

    with _open_columns(location, "Arrow") as raw:
        is_file = raw.read(len(_FILE_MAGIC)) == _FILE_MAGIC
        raw.seek(0)
        reader = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(pa.PythonFile(raw, mode="r"))
        yield find(reader.schema), _batches(reader, raw, is_file=is_file)


def _batches(reader: Any, raw: BinaryIO, *, is_file: bool) -> Iterator[pa.RecordBatch]:
    """Yield the batches, each validated. Raises `ArrowInvalid` for a stream without an end marker, which was truncated."""
    import pyarrow as pa

    for batch in map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader:
        batch.validate(full=True)
        yield batch
    if not is_file:
        raw.seek(max(0, raw.tell() - len(_END_OF_STREAM)))
        if raw.read() != _END_OF_STREAM:
            raise pa.ArrowInvalid("its end marker is missing")


def _shorten_line(line: bytes) -> str:
    text = line.decode(errors="replace").strip()
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
