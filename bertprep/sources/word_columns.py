"""Read the words of each text from a column of the input: a list of words, or of the characters where they start.

A file is read once for its text and once for its words, so that each reader has only one column. That costs little compared
with tokenizing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from bertprep.instances.given_words import starts_of
from bertprep.sources.documents import MEMORY, Source
from bertprep.sources.fields import show_names
from bertprep.sources.readers import arrow_batches, parquet_batches, read_json_rows

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = {"parquet": parquet_batches, "arrow": arrow_batches}
_JSON_LINES = "json lines"
_EXPECTED = "a list of the words of each text, or of the characters where they start"


def check_has_columns(source: Source, column: str) -> None:
    """Raise `UsageError` for a kind of file that cannot have a column of lists."""
    if source.reader not in (_JSON_LINES, MEMORY, *_COLUMNS):
        raise UsageError(
            f"--words {column}: {source.location} cannot have a column of lists; give JSON Lines, Parquet, Arrow or a Dataset "
            f"with {_EXPECTED}"
        )


def word_starts(words: object, text: str, where: str) -> NDArray[np.int64]:
    """Return the characters where the words of a text start, given the column's value; an error begins with `where`."""
    try:
        return starts_of(words, text)
    except BertprepError as error:
        raise BertprepError(f"{where}: {error}") from error


def find_words(schema: pa.Schema, column: str, location: str) -> list[str]:
    """Return `[column]` if it is a column of lists of text or integers, else raise `UsageError`."""
    import pyarrow as pa

    if schema.names.count(column) != 1:
        raise no_words(f"{location}: has no column", column, schema.names)
    kind = schema.field(column).type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not (
        pa.types.is_integer(kind.value_type) or "string" in str(kind.value_type)
    ):
        raise UsageError(f"{location}: column {column!r} has type {str(kind)[:40]}, expected {_EXPECTED}")
    return [column]


def read_words(source: Source) -> Iterator[tuple[str, Any]]:
    """Yield for each row of a source its location and the value of the source's column of words."""
    column, location = str(source.words), source.location
    if source.reader == _JSON_LINES:
        for where, row in read_json_rows(location):
            if column not in row:
                raise no_words(f"{where}: has no column", column, row)
            yield where, row[column]
        return
    with _COLUMNS[source.reader](location, partial(find_words, column=column, location=location)) as (_, batches):
        values = chain.from_iterable(batch.column(column).to_pylist() for batch in batches)
        for index, value in enumerate(values):
            yield f"{location}: row {index:,}", value


def no_words(what: str, column: str, found: Iterable[str]) -> UsageError:
    """Return the error for a missing column: `what` says where it is missing, `found` are the columns that exist."""
    return UsageError(f"{what} {column!r}, found {show_names(found)}; use --words to name the one with the words")
