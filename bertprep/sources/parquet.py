"""Reads rows of other people's Parquet files in bounded memory, with one-line errors for any fault.

A column is stored in pages, with repeated values once in a dictionary page, so a small file can expand to gigabytes. The number
of rows read at a time therefore follows from their mean size in the footer and from the size of the dictionary page, since a
single value may be as long as that page.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from bertprep.errors import BertprepError, first_line
from bertprep.files.archives import BUFFER_BYTES
from bertprep.files.parquet_footer import MOST_VALUES, ParquetError, dictionary_bytes, read_chunks
from bertprep.sources.fields import select, to_python
from bertprep.sources.streams import open_raw
from bertprep.text.documents import MOST_DOCUMENT_BYTES

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_ROWS = 1024
_LEVEL_BYTES = 8  # of a value in a list, however well it is compressed: two levels and a number into the dictionary
_OPTIONS: dict[str, Any] = {"pre_buffer": False, "buffer_size": BUFFER_BYTES}


class ParquetRows:
    """The rows of one open file; see `open_parquet`."""

    def __init__(self, raw: BinaryIO, file: Any, location: str) -> None:
        self._raw, self._file, self._location = raw, file, location
        self.schema = file.schema_arrow

    def read(self, columns: list[str]) -> Iterator[tuple[Any, ...]]:
        """The values of `columns` in each row, as Python objects."""
        start = 0
        for batch in self._file.iter_batches(
            self._rows_at_a_time([[name] for name in columns]), columns=columns, use_threads=False
        ):
            values = [to_python(batch.column(name), start, partial(self._where, name)) for name in columns]
            yield from zip(*values, strict=True)
            start += len(batch)

    def _where(self, column: str, row: int) -> str:
        return f"{self._location}: row {row:,}: column {column!r}"

    def column(self, path: list[str]) -> Iterator[pa.Array]:
        """The column to which the names `path` lead, in arrays of some rows. Texts in lists may be numbers into a dictionary.

        Else one list of a few bytes, of the same text a million times, would take gigabytes.
        """
        import pyarrow.parquet as pq

        stored = [self._file.schema.column(number).path for number in range(len(self._file.schema))]
        leaves = [name for name in stored if _leads_to(path, name.split("."))] or path[:1]
        in_lists = any(len(name.split(".")) > len(path) for name in leaves)
        file = pq.ParquetFile(self._raw, **_OPTIONS, read_dictionary=leaves) if in_lists else self._file
        rows = self._rows_at_a_time([path], as_dictionary=in_lists)
        for group in range(file.num_row_groups):  # pyarrow has no lists with dictionaries of two groups
            for batch in file.iter_batches(rows, row_groups=[group], columns=leaves, use_threads=False):
                yield select(batch.column(path[0]), path[1:])

    def _rows_at_a_time(self, paths: list[list[str]], *, as_dictionary: bool = False) -> int:
        """As many rows as fit in about `MOST_DOCUMENT_BYTES`; whether texts in lists are read as numbers into a dictionary."""
        row_bytes, largest, most_values = 1, 0, 0  # the last in the lists of a row group
        for chunk in read_chunks(self._raw):
            if not any(_leads_to(path, chunk.path) for path in paths):
                continue
            rows = max(1, chunk.rows)
            in_lists = chunk.values - rows
            mean = max(chunk.uncompressed_bytes, _LEVEL_BYTES * in_lists) // rows
            dictionary = dictionary_bytes(self._raw, chunk)
            row_bytes = max(row_bytes, mean, 0 if in_lists > 0 and as_dictionary else dictionary)
            largest = max(largest, mean, dictionary)
            most_values = max(most_values, in_lists)
        if largest > MOST_DOCUMENT_BYTES:
            raise BertprepError(
                f"{self._location}: has values of {largest:,} bytes, more than the {MOST_DOCUMENT_BYTES:,} of the longest "
                "document that is read; split them into documents"
            )
        if most_values > MOST_VALUES:
            raise BertprepError(
                f"{self._location}: has lists with {most_values:,} texts in a row group, more than the {MOST_VALUES:,} "
                "that are read; write it with smaller row groups"
            )
        return max(1, min(_MOST_ROWS, MOST_DOCUMENT_BYTES // row_bytes))


def _leads_to(path: list[str], stored: list[str]) -> bool:
    """Whether a column is stored under the names of `path`: lists have two names of their own between these.

    >>> _leads_to(["text"], ["text", "list", "element"]), _leads_to(["text", "en"], ["text", "de"])
    (True, False)
    """
    if path[0] != stored[0]:
        return False
    names = iter(stored)
    return all(name in names for name in path)


@contextmanager
def open_parquet(location: str) -> Iterator[ParquetRows]:
    """Open a file at a path or URL. Raises `BertprepError` if it cannot be read, also during reading."""
    import pyarrow as pa  # takes 0.1 s, which commands without Parquet need not pay
    import pyarrow.parquet as pq

    try:
        with open_raw(location) as raw, pq.ParquetFile(raw, **_OPTIONS) as file:
            yield ParquetRows(raw, file, location)
    except (pa.ArrowException, OSError, UnicodeDecodeError, ParquetError) as error:
        raise BertprepError(
            f"{location}: cannot be read as Parquet: {first_line(error)}; is it whole? fetch it again"
        ) from error
