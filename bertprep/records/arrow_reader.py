"""Reads records from Arrow and Parquet files with pyarrow.

An Arrow stream with the same column types as bertprep's own is read in place, all rows of a column in one call. Any other file
with these columns is cast to such a stream first. pyarrow validates the structure of the file. Importing it takes 0.1 s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.config import RecordFormat
from bertprep.errors import BertprepError, first_line
from bertprep.kernels import numbers as n
from bertprep.records.columns import COLUMNS, LABELS, METADATA, Column, schema_of, values_in
from bertprep.records.examples import (
    MAX_VALUES,
    ClassificationExamples,
    Examples,
    MaskedExamples,
    PretrainingExamples,
    RegressionExamples,
    Shape,
    SquadEvalExamples,
    SquadExamples,
    TokenClassificationExamples,
)
from bertprep.untrusted import parse_json, read_bounded
from bertprep.work.layout import DATASET_INFO
from bertprep.work.recognize import TOKENS_COLUMN, is_integer, is_list, open_arrow, read_schema

_END_OF_STREAM = b"\xff\xff\xff\xff" + bytes(4)
_PREDICTIONS = re.compile(r"\bmax_predictions_per_seq=(\d{1,5})\b")
_PARQUET_ROWS = 256  # read at a time
_FAILURES = pa.ArrowException, OSError, ValueError, LookupError, TypeError, OverflowError, MemoryError


@dataclass(frozen=True)
class Rows:
    """The positions of rows in their files.

    Row i is in the first batch whose end is above i, and its columns start at the bytes bases[batch] + i * widths.
    """

    files: Sequence[NDArray[np.uint8]]
    ends: NDArray[np.int64]  # (batches,)
    file_of: NDArray[np.int64]  # (batches,)
    bases: NDArray[np.int64]  # (batches, columns)
    widths: NDArray[np.int64]  # (columns,), in bytes

    @cached_property
    def _table(self) -> kernels.Table:
        return kernels.load().copy_rows.table("files", [{"data": data, "size": data.size} for data in self.files])

    @staticmethod
    def join(files: Sequence[tuple[int, Rows]]) -> Rows:
        """Return the rows of several files as one sequence.

        Each file comes with the index of its first row in that sequence, in ascending order. All files have the same columns.
        """
        return Rows(
            [rows.files[0] for _, rows in files],
            np.concatenate([first + rows.ends for first, rows in files]),
            np.repeat(np.arange(len(files)), [len(rows.ends) for _, rows in files]),
            np.concatenate([rows.bases - first * rows.widths for first, rows in files]),
            files[0][1].widths,
        )

    def read(self, indices: NDArray[np.int64], examples: Examples, row: int, notes: NDArray[np.int64]) -> int:
        """Read the records with these indices into the rows from `row` on; return their number, or a fault with its `notes`."""
        count, faults = len(indices), []
        if not count:
            return 0
        batches = np.searchsorted(self.ends, indices, side="right")
        starts = self.bases[batches] + indices[:, None] * self.widths
        is_run = batches[0] == batches[-1] and bool((np.diff(indices) == 1).all())  # consecutive rows need no copy first
        for index, column in enumerate(COLUMNS[type(examples)]):
            shape, size = (count, values_in(column, examples.sizes)), int(self.widths[index])
            if is_run:
                start = int(starts[0, index])
                memory = self.files[self.file_of[batches[0]]][start : start + count * size]
                values: NDArray[Any] = memory.view(column.dtype).reshape(shape)
            else:
                values = np.empty(shape, column.dtype)
                out = values.reshape(-1).view(np.uint8)
                kernels.load().copy_rows(self._table, self.file_of[batches], starts[:, index].copy(), count, size, out)
            if column is LABELS and isinstance(examples, MaskedExamples):
                fault = _take_predictions(values, examples, row)
            elif isinstance(examples, TokenClassificationExamples) and column.feature == "label_ids":
                fault = _take_token_labels(values, examples, row)
            else:
                into: NDArray[Any] = getattr(examples, column.feature)[row : row + count]
                into[...] = values.reshape(into.shape)
                fault = _find_unfit(column, values, into.dtype)
            faults += [fault] if fault else []
        if not faults:
            return count
        first = min(faults, key=lambda each: each[1])
        notes[[n.ROW, n.FEATURE, n.FOUND, n.EXPECTED]] = first[1:]
        return first[0]


def _find_unfit(column: Column, values: NDArray[Any], dtype: np.dtype[Any]) -> tuple[int, ...] | None:
    """Return a fault for the first value that does not fit the type of the feature or of the column."""
    if values.dtype.kind == "f":
        return None
    most = min(np.iinfo(dtype).max, np.iinfo(values.dtype).max)
    if values.min() >= 0 and values.max() <= most:
        return None
    row, position = np.argwhere((values < 0) | (values > most))[0].tolist()
    return n.OUT_OF_RANGE, row, n.NUMBER_OF_FEATURE[column.feature], int(values[row, position]), int(most)


def _take_predictions(labels: NDArray[np.int32], examples: MaskedExamples, row: int) -> tuple[int, ...] | None:
    """Write labels (records, seq) as positions in ascending order, ids and weights; return the first fault, or None."""
    first = kernels.load().take_labels(np.ascontiguousarray(labels), len(labels), examples, row)
    if first == len(labels):
        return None
    predicted = labels[first][labels[first] != n.NOT_PREDICTED]
    if (predicted < 0).any():
        return n.OUT_OF_RANGE, first, n.LABELS, int(predicted.min()), n.MAX_INT32
    return n.WRONG_COUNT, first, n.POSITIONS, len(predicted), examples.pred


def _take_token_labels(labels: NDArray[np.int32], examples: TokenClassificationExamples, row: int) -> tuple[int, ...] | None:
    """Write labels (records, seq) as ids and weights; return the first fault, or None."""
    into, is_label = slice(row, row + len(labels)), labels != n.NOT_PREDICTED
    examples.label_ids[into] = np.where(is_label, labels, 0)
    examples.label_weights[into] = is_label
    if not (is_wrong := is_label & (labels < 0)).any():
        return None
    row, position = np.argwhere(is_wrong)[0].tolist()
    return n.OUT_OF_RANGE, row, n.NUMBER_OF_FEATURE["label_ids"], int(labels[row, position]), n.MAX_INT32


@dataclass(frozen=True)
class Table:
    """The records of an Arrow stream in memory; `damage` is the error at which reading stopped, if the file is corrupt."""

    rows: Rows
    shape: Shape
    damage: BertprepError | None

    @property
    def records(self) -> int:
        return int(self.rows.ends[-1]) if len(self.rows.ends) else 0


def find_table(path: Path, data: NDArray[np.uint8], pred: int | None = None) -> Table | None:
    """Return the records of the Arrow stream with these bytes; None if it must be cast before it can be read.

    If the file does not state how many predictions a record has space for, that number is `pred`, or without `pred` the largest
    number in any record. Raises `BertprepError` if the stream does not contain records.
    """
    source = pa.BufferReader(pa.py_buffer(data))
    with _explained(path, RecordFormat.ARROW):
        reader = pa.ipc.open_stream(source, options=pa.ipc.IpcReadOptions(use_threads=False))
        schema, kind = reader.schema, _kind_of(path, reader.schema)
    tokens = schema.field(TOKENS_COLUMN).type
    shape = Shape(kind, tokens.list_size if pa.types.is_fixed_size_list(tokens) else 1, 0)
    if any(schema.field(field.name).type != field.type for field in schema_of(shape)):
        return None
    known = (_known_pred(path, schema, shape.seq) or pred) if issubclass(kind, MaskedExamples) else 0
    addresses: list[list[int]] = []
    counts: list[int] = []
    damage, most = None, 1
    while True:
        try:
            batch = reader.read_next_batch().select([column.name for column in COLUMNS[kind]])
            batch.validate()
        except StopIteration:
            break
        except _FAILURES as error:
            damage = f"{first_line(error)}; the file is truncated or corrupt; remove it and make it again"
            break
        if not batch.num_rows:
            continue
        values = [column.values if pa.types.is_fixed_size_list(column.type) else column for column in batch.columns]
        if any(column.null_count or column.offset for column in (*batch.columns, *values)):
            return None
        if any(each.buffers()[1] is None for each in values):
            return None
        found = [int(each.buffers()[1].address) for each in values]
        ends = [at + len(each) * each.type.bit_width // 8 for at, each in zip(found, values, strict=True)]
        if min(found) < data.ctypes.data or max(ends) > data.ctypes.data + data.size:  # pyarrow decompressed it
            return None
        if any(at % (each.type.bit_width // 8) for at, each in zip(found, values, strict=True)):  # not aligned
            return None
        if known is None:
            labels = values[COLUMNS[kind].index(LABELS)].to_numpy().reshape(-1, shape.seq)
            most = max(most, int((labels != n.NOT_PREDICTED).sum(axis=1).max()))
        addresses.append(found)
        counts.append(batch.num_rows)
    records, end = sum(counts), source.tell()
    if damage is None and data[end - 8 : end].tobytes() != _END_OF_STREAM:
        damage = "the end of the stream is missing; the file is truncated; remove it and make it again"
    elif damage is None and end < data.size:
        follow = f"{data.size - end:,} bytes follow the end of the stream"
        damage = f"{follow}; the file was appended to or is corrupt; remove it and make it again"
    if not records and damage is None:
        raise BertprepError(f"{path}: contains no records; remove it and make it again")
    widths = np.array([values_in(column, shape) * np.dtype(column.dtype).itemsize for column in COLUMNS[kind]])
    batch_ends = np.cumsum(counts, dtype=np.int64)
    starts = np.array(addresses, np.int64).reshape(-1, len(widths)) - data.ctypes.data
    bases = starts - (batch_ends - counts)[:, None] * widths
    return Table(
        Rows([data], batch_ends, np.zeros(len(counts), np.int64), bases, widths),
        shape._replace(pred=most if known is None else known),
        BertprepError(f"{path}: after {records:,} records: {damage}") if damage else None,
    )


def _known_pred(path: Path, schema: pa.Schema, seq: int) -> int | None:
    found: Any = None
    try:
        found = parse_json((schema.metadata or {})[METADATA])["pred"]
    except (TypeError, ValueError, LookupError):
        try:
            matched = _PREDICTIONS.search(parse_json(read_bounded(path.parent / DATASET_INFO))["description"])
            found = int(matched[1]) if matched else None
        except (OSError, TypeError, ValueError, LookupError):
            pass
    return found if type(found) is int and 1 <= found <= seq else None


def cast_file(path: Path, data: NDArray[np.uint8], record_format: RecordFormat, to: BinaryIO) -> None:
    """Write the records of a file with these bytes to `to`, batch by batch, as an Arrow stream that can be read in place."""
    with _explained(path, record_format):
        kind, batches = _open_foreign(path, pa.BufferReader(pa.py_buffer(data)), record_format)
        writer, first = None, 0
        for batch in batches:
            batch.validate(full=True)
            if not batch.num_rows:
                continue
            if writer is None:
                seq = len(batch.column(TOKENS_COLUMN)[0].as_py() or ())
                if not 0 < seq <= MAX_VALUES:
                    expected = f"expected 1 to {MAX_VALUES:,}"
                    raise BertprepError(f"{path}: record 0: column {TOKENS_COLUMN} has {seq:,} values, {expected}")
                kept = {key: value for key, value in (batch.schema.metadata or {}).items() if key == METADATA}
                schema = schema_of(Shape(kind, seq, 0)).with_metadata(kept)
                writer = pa.ipc.new_stream(to, schema)
            writer.write_batch(_cast(path, batch, schema, first))
            first += batch.num_rows
        if writer is None:
            raise BertprepError(f"{path}: contains no records; remove it and make it again")
        writer.close()


def _cast(path: Path, batch: pa.RecordBatch, schema: pa.Schema, first: int) -> pa.RecordBatch:
    try:
        columns = []
        for field in schema:
            column = batch.column(field.name).cast(field.type)
            values = column.flatten() if pa.types.is_fixed_size_list(field.type) else column
            if column.null_count or values.null_count:
                raise ValueError("a value is null")
            if pa.types.is_floating(field.type) and np.isinf(column).sum() > np.isinf(batch.column(field.name)).sum():
                raise ValueError("a value is too large for float32")
            columns.append(column)
        return pa.record_batch(columns, schema=schema)
    except _FAILURES as error:
        if batch.num_rows == 1:
            raise BertprepError(
                f"{path}: record {first}: column {field.name} cannot be converted to {field.type}: {first_line(error)}; give "
                "records of one length, without missing values"
            ) from error
        # Cast halves until a single record fails, which the error names. They are copies, because pyarrow casts all values
        # behind a slice of lists.
        middle = batch.num_rows // 2
        halves = (0, middle), (middle, batch.num_rows)
        cast = [_cast(path, batch.take(pa.array(range(*half))), schema, first + half[0]) for half in halves]
        (whole,) = pa.Table.from_batches(cast).combine_chunks().to_batches()
        return whole


def _open_foreign(
    path: Path, source: pa.NativeFile, record_format: RecordFormat
) -> tuple[type[Examples], Iterator[pa.RecordBatch]]:
    import pyarrow.parquet as pq

    if record_format == RecordFormat.PARQUET:
        parquet = pq.ParquetFile(source, pre_buffer=False)
        kind = _kind_of(path, parquet.schema_arrow)
        names = [column.name for column in COLUMNS[kind]]
        return kind, parquet.iter_batches(_PARQUET_ROWS, columns=names, use_threads=False)
    reader = open_arrow(source)
    kind = _kind_of(path, reader.schema)
    names = [column.name for column in COLUMNS[kind]]
    is_file = hasattr(reader, "num_record_batches")
    batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else iter(reader)
    return kind, (batch.select(names) for batch in batches)


def class_names(path: Path) -> tuple[str, ...]:
    """Return the class names that `datasets` keeps in the metadata of a classification file; () if there are none."""
    try:
        metadata = read_schema(path).metadata or {}
        names = parse_json(metadata[b"huggingface"])["info"]["features"][LABELS.name]["names"]
    except (LookupError, TypeError, ValueError):
        return ()
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else ()


def _kind_of(path: Path, schema: pa.Schema) -> type[Examples]:
    if TOKENS_COLUMN not in schema.names:
        raise BertprepError(
            f"{path}: has no column {TOKENS_COLUMN}, so it contains no records; give a file from bertprep create or a similar "
            "tool; if it is text, use bertprep shard --input"
        )
    kind = _intended_kind(schema)
    for column in COLUMNS[kind]:
        found = schema.get_all_field_indices(column.name)
        if len(found) != 1:
            how = "is missing" if not found else "occurs more than once"
            raise BertprepError(f"{path}: column {column.name} {how}; give a file of {kind.title} records")
        _check_type(path, column, schema.field(found[0]).type)
    return kind


def _own_metadata(schema: pa.Schema) -> dict[str, Any]:
    try:
        found = parse_json((schema.metadata or {})[METADATA])
    except (LookupError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _intended_kind(schema: pa.Schema) -> type[Examples]:
    names = schema.names
    if "unique_ids" in names:
        return SquadExamples if {"start_positions", "end_positions"} & {*names} else SquadEvalExamples
    labels = schema.get_all_field_indices(LABELS.name)
    of_labels = schema.field(labels[0]).type if labels else None
    if "next_sentence_label" in names or of_labels is None:
        return PretrainingExamples
    if is_list(of_labels):  # both kinds have lists of labels, and only our own metadata tells them apart
        is_tagged = _own_metadata(schema).get("kind") == TokenClassificationExamples.title
        return TokenClassificationExamples if is_tagged else MaskedExamples
    return RegressionExamples if pa.types.is_floating(of_labels) else ClassificationExamples


def _check_type(path: Path, column: Column, found: pa.DataType) -> None:
    has_lists, is_float = is_list(found), column.dtype == np.float32
    values = found.value_type if has_lists else found
    fits = pa.types.is_floating(values) if is_float else is_integer(values)
    lengths = 1 <= found.list_size <= MAX_VALUES if pa.types.is_fixed_size_list(found) else True
    if not fits or not lengths or has_lists != (column.width == "seq"):
        what = "floats" if is_float else "integers"
        expected = f"lists of 1 to {MAX_VALUES:,} {what}" if column.width == "seq" else what
        raise BertprepError(
            f"{path}: column {column.name} has the type {str(found)[:200]}, expected {expected}; "
            "give a file from bertprep create or a similar tool"
        )


@contextmanager
def _explained(path: Path, record_format: RecordFormat) -> Iterator[None]:
    try:
        yield
    except BertprepError:
        raise
    except _FAILURES as error:
        raise BertprepError(
            f"{path}: cannot be read as {record_format.label}: {first_line(error)}; the file is truncated or corrupt; make it "
            "again"
        ) from error
