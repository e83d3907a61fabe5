"""Copy the texts of a data set in memory to temporary Arrow files, from which token shards are made.

A checksum of the texts identifies them, so a later run with the same texts finds the earlier result, whatever object holds them
in memory. Each file has about 64 MB of text and becomes one token shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

from bertprep.files.atomic import atomic_file
from bertprep.files.checksums import BLAKE3, new_hash
from bertprep.files.hashed import HashedFile
from bertprep.sources.documents import Source
from bertprep.sources.plain_text import FIELD_GAP
from bertprep.sources.word_columns import word_starts

FILE_BYTES = 64_000_000
_BATCH_BYTES = 4_000_000
_TEXT, _WORDS = "text", "words"
Row = tuple[bytes, Any]
"""A text, and the starts of its words if a column gives them."""


def copy_texts(source: Source, folder: Path) -> list[Source]:
    """Copy the texts of a source in memory to Arrow files in `folder`; return these as sources.

    If the source names a column of words, the starts of the words are copied too.
    """
    rows = _read(source)
    first = next(rows, None)
    copied: list[Source] = []
    while first is not None:
        path = folder / f"{len(copied):05d}.arrow"
        content, first = _write_file(path, first, rows, has_words=source.words is not None)
        known = {BLAKE3: content}
        words = None if source.words is None else _WORDS
        copied.append(Source(str(path), "arrow", known, _TEXT, words=words))
    return copied


def _read(source: Source) -> Iterator[Row]:
    words: Iterable[Any] = repeat(None) if source.words is None else source.words_in_memory()
    for index, (text, found) in enumerate(zip(source.texts(), words, strict=False)):
        text = text.replace(FIELD_GAP, "\n\n")
        starts = None if source.words is None else word_starts(found, text, f"{source.location}: row {index:,}").tolist()
        yield text.encode(errors="replace"), starts


def _write_file(path: Path, first: Row, rows: Iterator[Row], *, has_words: bool) -> tuple[str, Row | None]:
    """Write rows until the file is full. Return the checksum of its texts and words, and the row that follows, if any."""
    import pyarrow as pa

    fields = {_TEXT: pa.large_string(), **({_WORDS: pa.large_list(pa.int64())} if has_words else {})}
    schema, content, size = pa.schema(fields), new_hash(), 0
    batch: list[Row] = []
    following: Row | None = first
    with atomic_file(path) as file:
        buffered = HashedFile(file)
        with pa.ipc.new_file(buffered, schema) as writer:
            batch_bytes = 0
            while following is not None and size < FILE_BYTES:
                text, starts = following
                content.update(b"%d:%b" % (len(text), text) + ("" if starts is None else f"{starts}").encode())
                batch.append(following)
                size, batch_bytes = size + len(text), batch_bytes + len(text)
                if batch_bytes >= _BATCH_BYTES:
                    _write_batch(writer, schema, batch)
                    batch, batch_bytes = [], 0
                following = next(rows, None)
            _write_batch(writer, schema, batch)
        buffered.finish()
    return content.hexdigest(), following


def _write_batch(writer: Any, schema: Any, rows: list[Row]) -> None:
    import pyarrow as pa

    columns = [[text.decode() for text, _ in rows], [starts for _, starts in rows]]
    arrays = [pa.array(column, each.type) for column, each in zip(columns, schema, strict=False)]
    writer.write_batch(pa.record_batch(arrays, schema=schema))
