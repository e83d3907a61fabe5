"""Join rows to documents: rows with the same value of a column, one after another, are the lines of one document.

Exports often have a sentence or a paragraph in each row, and the document's number in another column. A file is read once for
its text and once for this column, so that each reader has only one column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from bertprep.errors import UsageError
from bertprep.sources import readers
from bertprep.sources.fields import show_names
from bertprep.sources.plain_text import FIELD_GAP, MAX_DOCUMENT_BYTES, too_long

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = {"parquet": readers.parquet_batches, "arrow": readers.arrow_batches}
_DELIMITERS = {"csv": ",", "tsv": "\t"}
_JSON_LINES = "json lines"


def check_has_columns(location: str, reader: str, column: str) -> None:
    """Raise `UsageError` for a kind of file without columns."""
    if reader not in (_JSON_LINES, *_DELIMITERS, *_COLUMNS):
        raise UsageError(
            f"--join {column}: {location} has no columns; give JSON Lines, CSV, TSV, Parquet or Arrow, or leave --join out"
        )


def join_rows(texts: Iterable[str], keys: Iterable[Any], where: str) -> Iterator[str]:
    r"""Yield a document for each run of rows with the same key; the text of each row is a line of it.

    >>> list(join_rows(["I came.", "I saw.", "He left."], [1, 1, 2], "a.csv"))
    ['I came.\nI saw.', 'He left.']
    """
    for key, rows in groupby(zip(keys, texts, strict=True), key=itemgetter(0)):
        lines: list[str] = []
        characters = 0
        for _, text in rows:
            lines += (part.replace("\n", " ") for part in text.split(FIELD_GAP))
            characters += len(text)
            if characters > MAX_DOCUMENT_BYTES:
                raise too_long(f"{where}: the rows whose value is {str(key)[:40]!r}", "their text")
        yield "\n".join(lines)


def read_keys(location: str, reader: str, column: str) -> Iterator[Any]:
    """Yield the value of a column for each row of a file. Raises `UsageError` if the file, or a row of it, lacks the column."""
    if reader == _JSON_LINES:
        for where, row in readers.read_json_rows(location):
            if column not in row:
                raise no_column(f"{where}: has no field", column, row)
            yield row[column]
    elif reader in _DELIMITERS:
        yield from readers.read_table(location, column, _DELIMITERS[reader], lacks=no_column)
    else:
        with _COLUMNS[reader](location, partial(find_key, column=column, location=location)) as (_, batches):
            yield from chain.from_iterable(batch.column(column).to_pylist() for batch in batches)


def find_key(schema: pa.Schema, column: str, location: str) -> list[str]:
    """Return `[column]` if a table has one column of that name, else raise `UsageError`."""
    if schema.names.count(column) != 1:
        raise no_column(f"{location}: has no column", column, schema.names)
    return [column]


def no_column(what: str, column: str, found: Iterable[str]) -> UsageError:
    """Return the error for a missing column: `what` says where it is missing, `found` are the columns that exist."""
    return UsageError(f"{what} {column!r}, found {show_names(found)}; use --join to name the one that rows of a document share")
