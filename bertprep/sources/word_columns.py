"""Words of texts that a column of the input has: a list of words, or of the characters where they start.

A file is read once for its text and once for its words, which costs little beside tokenizing: each reader then has one column.
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
    """Raise `UsageError` for a file of a kind that has no columns of lists."""
    if source.reader not in (_JSON_LINES, MEMORY, *_COLUMNS):
        raise UsageError(
            f"--words {column}: {source.location} has no column of lists; give JSON Lines, Parquet, Arrow or a Dataset with "
            f"{_EXPECTED}"
        )


def word_starts(words: object, text: str, where: str) -> NDArray[np.int64]:
    """Return where the words of a text start in characters, by the value of a column; an error names `where` it is."""
    try:
        return starts_of(words, text)
    except BertprepError as error:
        raise BertprepError(f"{where}: {error}") from error


def find_words(schema: pa.Schema, column: str, location: str) -> list[str]:
    """Return the name, in a list, of a column of lists of text or integers; raises `UsageError` for another."""
    import pyarrow as pa

    if schema.names.count(column) != 1:
        raise no_words(location, column, schema.names)
    kind = schema.field(column).type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not (
        pa.types.is_integer(kind.value_type) or "string" in str(kind.value_type)
    ):
        raise UsageError(f"{location}: column {column!r} is of type {str(kind)[:40]}, expected {_EXPECTED}")
    return [column]


def read_words(source: Source) -> Iterator[tuple[str, Any]]:
    """Yield (where it is, value) of the column `words` of each row of a source."""
    column, location = str(source.words), source.location
    if source.reader == _JSON_LINES:
        for where, row in read_json_rows(location):
            if column not in row:
                raise no_words(where, column, row)
            yield where, row[column]
        return
    with _COLUMNS[source.reader](location, partial(find_words, column=column, location=location)) as (_, batches):
        values = chain.from_iterable(batch.column(column).to_pylist() for batch in batches)
        for index, value in enumerate(values):
            yield f"{location}: row {index:,}", value


def no_words(where: str, column: str, names: Iterable[str]) -> UsageError:
    """Return the error for a source or a row without the column."""
    return UsageError(f"{where}: has no column {column!r}, but {show_names(names)}; name the one with the words by --words")
