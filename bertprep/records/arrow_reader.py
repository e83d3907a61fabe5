"""Arrow and Parquet files of records, read through pyarrow: where each column of each batch is, and rows of them as `Examples`.

A file is read in place if it is an Arrow stream with the columns that bertprep writes. Any other file with these columns is
first rewritten as such a stream: the Arrow file format, lists of variable length, other types, compression, Parquet. A number
that its column cannot hold becomes one that no record has there, and is a fault of its record when that is read.

A row is copied from the file by its address, all rows of a column in one call; NumPy does the rest: about a microsecond a
record of 128 tokens. What a file says of itself is checked by pyarrow, which is also the guard against one that is built to
exhaust memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.config import RecordFormat
from bertprep.errors import BertprepError, first_line
from bertprep.files.object_cache import open_local
from bertprep.kernels import numbers as n
from bertprep.records.columns import COLUMNS, LABELS, METADATA, Column, schema_of, values_in
from bertprep.records.examples import (
    MOST_VALUES,
    ClassificationExamples,
    Examples,
    MaskedExamples,
    PretrainingExamples,
    RegressionExamples,
    Shape,
    SquadEvalExamples,
    SquadExamples,
)
from bertprep.untrusted import parse_json, read_bounded
from bertprep.work.layout import DATASET_INFO

if TYPE_CHECKING:
    import pyarrow as pa

FILE_MAGIC, PARQUET_MAGIC = b"ARROW1", b"PAR1"
_END_OF_STREAM = b"\xff\xff\xff\xff" + bytes(4)
_TOKENS_COLUMN = "input_ids"
_PREDICTIONS = re.compile(r"\bmax_predictions_per_seq=(\d{1,5})\b")
_NONE = -1
"""What stands for a number that its column cannot hold: a fault in any column."""
_PARQUET_ROWS = 256  # read at a time
_SHOWN = 200  # characters of a type


@dataclass(frozen=True)
class Batches:
    """The records of an Arrow stream: (batches, columns) offsets of the columns in its bytes, and how many records there are.

    `ends` are the numbers of the records after each batch's last. `knows_pred` is False where nothing says how many predictions
    a record has room for: then it is the most that one has. `damage` is what ends the file before its end; the records before
    it can be read.
    """

    offsets: NDArray[np.int64]
    ends: NDArray[np.int64]
    shape: Shape
    knows_pred: bool = True
    damage: BertprepError | None = None

    @property
    def records(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def rows(self, address: int, first: int = 0) -> Rows:
        """Return where the rows are if the stream's bytes begin at this address, and its first record has that number."""
        columns = COLUMNS[self.shape.kind]
        widths = np.array([values_in(column, self.shape) * np.dtype(column.dtype).itemsize for column in columns])
        ends = self.ends + first
        starts = np.concatenate([np.full(1, first), ends[:-1]])
        return Rows(ends, self.offsets + address - starts[:, None] * widths, widths)


class Rows(NamedTuple):
    """Where rows of columns are: row i, of the batch of which `ends` is the first end above i, at bases[batch] + i * widths."""

    ends: NDArray[np.int64]  # (batches,)
    bases: NDArray[np.int64]  # (batches, columns)
    widths: NDArray[np.int64]  # (columns,)

    @staticmethod
    def join(rows: Sequence[Rows]) -> Rows:
        """Join the rows of several files, which have the same columns, in ascending order of their numbers."""
        return Rows(np.concatenate([each.ends for each in rows]), np.concatenate([each.bases for each in rows]), rows[0].widths)

    def addresses(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (numbers, columns): the address of each of these rows in each column."""
        addresses: NDArray[np.int64] = self.bases[np.searchsorted(self.ends, numbers, side="right")]
        return addresses + numbers[:, None] * self.widths


def read_rows(rows: Rows, numbers: NDArray[np.int64], examples: Examples, row: int, notes: NDArray[np.int64]) -> int:
    """Read the records with these numbers to the rows from `row` on.

    Returns how many, or a fault with `notes` about the first record that has one, as the kernels do; others are read.
    """
    count, faults, addresses = len(numbers), [], rows.addresses(numbers)
    if not count:
        return 0
    for number, column in enumerate(COLUMNS[type(examples)]):
        values: NDArray[Any] = np.empty((count, values_in(column, examples.shape)), column.dtype)
        kernels.load().copy_rows(
            np.ascontiguousarray(addresses[:, number]), count, values[:1].nbytes, values.reshape(-1).view(np.uint8)
        )
        if column is LABELS and isinstance(examples, MaskedExamples):
            fault = _take_predictions(values, examples, row)
        else:
            into: NDArray[Any] = getattr(examples, column.feature)[row : row + count]
            into[...] = values.reshape(into.shape)
            fault = _find_unfit(column, values)
        faults += [fault] if fault else []
    if not faults:
        return count
    first = min(faults, key=lambda each: each[1])
    notes[[n.ROW, n.FEATURE, n.FOUND, n.EXPECTED]] = first[1:]
    return first[0]


def _find_unfit(column: Column, values: NDArray[Any]) -> tuple[int, ...] | None:
    """Return the fault of the first row with a whole number that no int32 of 0 or more holds."""
    if values.dtype.kind == "f" or (values.min() >= 0 and values.max() <= n.MAX_INT32):
        return None
    first = np.argwhere((values < 0) | (values > n.MAX_INT32))[0]
    return n.OUT_OF_RANGE, int(first[0]), n.NUMBER_OF_FEATURE[column.feature], 0, 0


def _take_predictions(labels: NDArray[np.int32], examples: MaskedExamples, row: int) -> tuple[int, ...] | None:
    """Write labels (records, seq) as ascending positions, their ids and weights of 1, then zeros; return the first fault."""
    count, seq = labels.shape
    arrays = examples.masked_lm_positions, examples.masked_lm_ids, examples.masked_lm_weights
    first = kernels.load().take_labels(count, seq, examples.pred, labels, *(array[row : row + count] for array in arrays))
    if first == count:
        return None
    predicted = labels[first][labels[first] != n.NOT_PREDICTED]
    if (predicted < 0).any():
        return n.OUT_OF_RANGE, first, n.LABELS, 0, 0
    return n.WRONG_COUNT, first, n.POSITIONS, len(predicted), examples.pred


def has_records(path: Path) -> bool:
    """Whether an Arrow or Parquet file has a column of tokens; False for one whose schema cannot be read."""
    import pyarrow as pa

    try:
        return any(
            _is_list(field.type) and pa.types.is_integer(field.type.value_type)
            for field in _read_schema(path)
            if field.name == _TOKENS_COLUMN
        )
    except _failures():
        return False


def class_names(path: Path) -> tuple[str, ...]:
    """The names of the classes, as `datasets` keeps them in an Arrow or Parquet file of a classification; () where none are."""
    try:
        metadata = _read_schema(path).metadata or {}
        names = parse_json(metadata[b"huggingface"])["info"]["features"][LABELS.name]["names"]
    except (LookupError, TypeError, ValueError):
        return ()
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else ()


def _read_schema(path: Path) -> pa.Schema:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_local(path) as raw, pa.PythonFile(raw) as file:
        head = file.read(8)
        file.seek(0)
        if head.startswith(PARQUET_MAGIC):
            return pq.read_schema(file)
        return (pa.ipc.open_file if head.startswith(FILE_MAGIC) else pa.ipc.open_stream)(file).schema


def find_batches(path: Path, data: NDArray[np.uint8], pred: int | None = None) -> Batches | None:
    """The batches of the Arrow stream with these bytes; None where it must be rewritten to be read.

    `pred` is how many predictions a record has room for where the file does not say it. Raises `BertprepError` where the bytes
    are no stream, or it has not the columns of a kind of records.
    """
    import pyarrow as pa

    source = pa.BufferReader(pa.py_buffer(data))
    with _explained(path, RecordFormat.ARROW):
        reader = pa.ipc.open_stream(source, options=pa.ipc.IpcReadOptions(use_threads=False))
        schema, kind = reader.schema, _kind_of(path, reader.schema)
    tokens = schema.field(_TOKENS_COLUMN).type
    seq = tokens.list_size if pa.types.is_fixed_size_list(tokens) else 1
    if any(schema.field(field.name).type != field.type for field in schema_of(Shape(kind, seq, 0))):
        return None
    offsets: list[list[int | None]] = []
    counts: list[int] = []
    damage = None
    while True:
        try:
            batch = reader.read_next_batch().select([column.name for column in COLUMNS[kind]])
            batch.validate()
        except StopIteration:
            break
        except _failures() as error:
            damage = f"{first_line(error)}; truncated or damaged, make the file again"
            break
        if not batch.num_rows:
            continue
        found = [_offset_in(data, column) for column in batch.columns]
        if None in found:
            return None
        offsets.append(found)
        counts.append(batch.num_rows)
    records, end = sum(counts), source.tell()
    if damage is None and data[end - 8 : end].tobytes() != _END_OF_STREAM:
        damage = "the end of the stream is missing; truncated, make the file again"
    elif damage is None and end < data.size:
        damage = f"after the end of the stream come {data.size - end:,} more bytes; appended to or damaged, make the file again"
    if not records and damage is None:
        raise BertprepError(f"{path}: holds no records; make it again")
    known = (_known_pred(path, schema, seq) or pred) if issubclass(kind, MaskedExamples) else 0
    batches = Batches(
        np.array(offsets, np.int64).reshape(-1, len(COLUMNS[kind])),
        np.cumsum(counts, dtype=np.int64),
        Shape(kind, seq, known or 0),
        known is not None,
        BertprepError(f"{path}: after {records:,} records: {damage}") if damage else None,
    )
    return batches if known is not None else replace(batches, shape=Shape(kind, seq, _most_predictions(data, batches)))


def _offset_in(data: NDArray[np.uint8], column: pa.Array) -> int | None:
    """Return the offset of a batch's column in the bytes of its file; None where it is not there, or has nulls."""
    import pyarrow as pa

    values = column.values if pa.types.is_fixed_size_list(column.type) else column
    count = len(column) * (column.type.list_size if values is not column else 1)
    buffer = values.buffers()[1]
    if column.null_count or values.null_count or column.offset or values.offset or buffer is None:
        return None
    size = count * values.type.bit_width // 8
    at = int(buffer.address) - data.ctypes.data
    return at if 0 <= at <= data.size - size and size <= buffer.size else None


def _most_predictions(data: NDArray[np.uint8], batches: Batches) -> int:
    """Return the most labels that a record has, or 1 where none has any."""
    number, seq, most = COLUMNS[batches.shape.kind].index(LABELS), batches.shape.seq, 1
    for at, count in zip(batches.offsets[:, number].tolist(), np.diff(batches.ends, prepend=0).tolist(), strict=True):
        labels = data[at : at + 4 * count * seq].view(np.int32).reshape(count, seq)
        most = max(most, int((labels != n.NOT_PREDICTED).sum(axis=1).max()))
    return most


def _known_pred(path: Path, schema: pa.Schema, seq: int) -> int | None:
    """Return the most predictions of a record, from the schema's metadata or the description beside the file."""
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


def rewrite(path: Path, data: NDArray[np.uint8], record_format: RecordFormat, to: BinaryIO) -> None:
    """Write the records of a file with these bytes as an Arrow stream that is read in place, a batch at a time.

    Raises `BertprepError` where the file is damaged, or has not the columns of a kind of records.
    """
    import pyarrow as pa

    with _explained(path, record_format):
        kind, batches = _open_foreign(path, pa.BufferReader(pa.py_buffer(data)), record_format)
        writer, first = None, 0
        for batch in batches:
            batch.validate(full=True)
            if not batch.num_rows:
                continue
            if writer is None:
                seq = _length_of_first(path, batch.column(_TOKENS_COLUMN))
                kept = {key: value for key, value in (batch.schema.metadata or {}).items() if key == METADATA}
                schema = schema_of(Shape(kind, seq, 0)).with_metadata(kept)
                writer = pa.ipc.new_stream(to, schema)
            columns = (_plain(path, batch.column(field.name), field, seq, first) for field in schema)
            writer.write_batch(pa.record_batch(list(columns), schema=schema))
            first += batch.num_rows
        if writer is None:
            raise BertprepError(f"{path}: holds no records; make it again")
        writer.close()


def _open_foreign(
    path: Path, source: pa.NativeFile, record_format: RecordFormat
) -> tuple[type[Examples], Iterator[pa.RecordBatch]]:
    """Return the kind of the records, and batches of their columns alone."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    options = pa.ipc.IpcReadOptions(use_threads=False)
    if record_format == RecordFormat.PARQUET:
        parquet = pq.ParquetFile(source, pre_buffer=False)
        kind = _kind_of(path, parquet.schema_arrow)
        names = [column.name for column in COLUMNS[kind]]
        return kind, parquet.iter_batches(_PARQUET_ROWS, columns=names, use_threads=False)
    is_file = source.read(len(FILE_MAGIC)) == FILE_MAGIC
    source.seek(0)
    reader = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source, options=options)
    kind = _kind_of(path, reader.schema)
    names = [column.name for column in COLUMNS[kind]]
    batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else iter(reader)
    return kind, (batch.select(names) for batch in batches)


def _length_of_first(path: Path, tokens: pa.Array) -> int:
    length = len(tokens[0]) if tokens[0].is_valid else 0
    if not 0 < length <= MOST_VALUES:
        raise BertprepError(f"{path}: record 0: column {_TOKENS_COLUMN} has {length:,} values, expected 1 to {MOST_VALUES:,}")
    return length


def _plain(path: Path, column: pa.Array, field: pa.Field, seq: int, first: int) -> pa.Array:
    """Return a column of a batch, whose first record is number `first`, in the type of the field."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def record_of(is_bad: NDArray[np.bool_], values: int = 1) -> str:
        return f"{path}: record {first + int(np.flatnonzero(is_bad)[0]) // values}: column {field.name}"

    if column.null_count:
        raise BertprepError(f"{record_of(_nulls(column))} is null; give records without missing values")
    if not pa.types.is_fixed_size_list(field.type):
        return _cast(path, column, field.name, field.type, first)
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    if (lengths != seq).any():
        found = int(lengths[lengths != seq][0])
        raise BertprepError(
            f"{record_of(lengths != seq)} has {found:,} values, expected {seq:,} as {_TOKENS_COLUMN} has in record 0; "
            "pad all records to one length"
        )
    values = column.flatten()
    if values.null_count:
        raise BertprepError(f"{record_of(_nulls(values), seq)} has a value that is null; give records without missing values")
    return pa.FixedSizeListArray.from_arrays(_cast(path, values, field.name, field.type.value_type, first), seq)


def _nulls(values: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(values.is_null().to_numpy(zero_copy_only=False))


def _cast(path: Path, values: pa.Array, name: str, kind: pa.DataType, first: int) -> pa.Array:
    """Return values in another type: of whole numbers those that it cannot hold as _NONE.

    Raises `BertprepError` for a float that becomes infinite; `first` is the number of the record of the first value.
    """
    import pyarrow as pa

    found = values.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        plain = found.astype(kind.to_pandas_dtype())
    if plain.dtype.kind == "f":
        is_lost = np.isfinite(found) & np.isinf(plain)
        if is_lost.any():
            row = int(np.flatnonzero(is_lost)[0])
            raise BertprepError(
                f"{path}: record {first + row}: column {name} is {found[row]:g}, expected a number that a float32 holds; "
                "scale the labels"
            )
    else:
        limits = np.iinfo(plain.dtype)
        plain[(found < limits.min) | (found > limits.max)] = _NONE
    return pa.Array.from_buffers(kind, len(plain), [None, pa.py_buffer(plain)])


def _kind_of(path: Path, schema: pa.Schema) -> type[Examples]:
    """Return the kind of the records in a file; raises `BertprepError` where its columns are none of records."""
    import pyarrow as pa

    if _TOKENS_COLUMN not in schema.names:
        raise BertprepError(
            f"{path}: has no column {_TOKENS_COLUMN}, so it holds no records; give a file that bertprep create or a tool like "
            "it has made; bertprep shard --input reads text"
        )
    kind = _intended_kind(schema)
    lengths = set()
    for column in COLUMNS[kind]:
        found = schema.get_all_field_indices(column.name)
        if len(found) != 1:
            how = "is missing" if not found else "stands in it more than once"
            raise BertprepError(f"{path}: column {column.name} {how}; give a file of {kind.title} records")
        type_found = schema.field(found[0]).type
        _check_type(path, column, type_found)
        if pa.types.is_fixed_size_list(type_found):
            lengths.add(type_found.list_size)
    if len(lengths) > 1 or not all(0 < length <= MOST_VALUES for length in lengths):
        raise BertprepError(
            f"{path}: its columns have lists of {' and '.join(f'{length:,}' for length in sorted(lengths))} values, expected "
            f"one length of 1 to {MOST_VALUES:,}; pad all to the same"
        )
    return kind


def _intended_kind(schema: pa.Schema) -> type[Examples]:
    """Return the kind whose columns these are, or were to be."""
    import pyarrow as pa

    names = schema.names
    if "unique_ids" in names:
        return SquadExamples if {"start_positions", "end_positions"} & {*names} else SquadEvalExamples
    labels = schema.get_all_field_indices("labels")
    of_labels = schema.field(labels[0]).type if labels else None
    if "next_sentence_label" in names or of_labels is None:
        return PretrainingExamples
    if _is_list(of_labels):
        return MaskedExamples
    return RegressionExamples if pa.types.is_floating(of_labels) else ClassificationExamples


def _check_type(path: Path, column: Column, found: pa.DataType) -> None:
    import pyarrow as pa

    has_lists = _is_list(found)
    values = found.value_type if has_lists else found
    is_number = pa.types.is_integer(values) or pa.types.is_boolean(values)
    fits = pa.types.is_floating(values) if column.dtype == np.float32 else is_number
    if not fits or has_lists != (column.width == "seq"):
        what = "floats" if column.dtype == np.float32 else "whole numbers"
        expected = f"lists of {what}" if column.width == "seq" else what
        raise BertprepError(
            f"{path}: column {column.name} has the type {str(found)[:_SHOWN]}, expected {expected}; "
            "give a file that bertprep create or a tool like it has made"
        )


def _is_list(kind: pa.DataType) -> bool:
    """Whether values of a type are lists, of any layout that is read."""
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


@contextmanager
def _explained(path: Path, record_format: RecordFormat) -> Iterator[None]:
    """Turn what pyarrow raises into one line."""
    try:
        yield
    except BertprepError:
        raise
    except _failures() as error:
        raise BertprepError(
            f"{path}: cannot be read as {record_format.label}: {first_line(error)}; truncated or damaged, make the file again"
        ) from error


def _failures() -> tuple[type[Exception], ...]:
    import pyarrow as pa

    return pa.ArrowException, OSError, ValueError, LookupError, TypeError, OverflowError, MemoryError
