"""Arrow and Parquet files of records: where each column of each batch begins, for kernels that read them in place.

A file is read where it lies if it is an Arrow stream as `datasets` and bertprep write it: lists of one fixed length, whole
numbers of 1, 4 or 8 bytes, no compression, and the same number of rows in all batches but the last. Any other file with our
columns is first rewritten as such a stream: the Arrow file format, lists of variable length, other types and batches, Parquet.
A number that no int32 holds is still a fault of its record then, and a label that no float32 holds is refused.

pyarrow parses what describes a file; where it says that the values are is checked here, before any kernel looks there.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from bertprep.config import RecordFormat
from bertprep.errors import BertprepError, first_line
from bertprep.files import parquet_footer
from bertprep.files.arrow_messages import END_OF_STREAM, FILE_MAGIC, batches_in_file, batches_in_stream, is_list
from bertprep.files.object_cache import open_local
from bertprep.files.parquet_footer import read_chunks, values_in_pages
from bertprep.kernels.numbers import COLUMN_WIDTH, NOT_PREDICTED, TABLE_HEAD
from bertprep.records.columns import COLUMNS, LABELS, METADATA, Column, rows_in_batch
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
from bertprep.workspace.layout import DATASET_INFO

if TYPE_CHECKING:
    import pyarrow as pa

_TOKENS_COLUMN = "input_ids"
_PREDICTIONS = re.compile(r"\bmax_predictions_per_seq=(\d{1,5})\b")
_MOST_INT64 = 2**63 - 1
_SHOWN = 200  # characters of what pyarrow says


@dataclass(frozen=True)
class Batches:
    """The records of an Arrow stream: their table (see `kernels.numbers.TABLE_ROWS`) and shape.

    `knows_pred` is False where nothing says how many predictions a record has room for: then it is the most that one has.
    `damage` is what ends the file before its end; the records before it can be read.
    """

    table: NDArray[np.int64]
    records: int
    shape: Shape
    knows_pred: bool = True
    damage: BertprepError | None = None


@dataclass(frozen=True)
class _Field:
    """A column as it is in a file: its index there, the type of its values, and whether these are lists and of which length."""

    column: Column
    index: int
    values: Any  # pa.DataType
    is_list: bool
    length: int | None  # of each list, where the type says it

    @property
    def plain(self) -> Any:
        """The type that kernels read: as wide as the values or wider, but for floats and uint64, see `_cast`."""
        import pyarrow as pa

        if self.column.dtype == np.float32:
            return pa.float32()
        bits = 1 if pa.types.is_boolean(self.values) else self.values.bit_width + pa.types.is_unsigned_integer(self.values)
        return pa.int8() if bits <= 8 else pa.int32() if bits <= 32 else pa.int64()

    @property
    def is_plain(self) -> bool:
        return bool(self.values == self.plain) and (not self.is_list or self.length is not None)


def has_records(path: Path) -> bool:
    """Whether an Arrow or Parquet file has a column of tokens; False for one whose schema cannot be read."""
    import pyarrow as pa

    try:
        return any(
            is_list(field.type) and pa.types.is_integer(field.type.value_type)
            for field in _read_schema(path)
            if field.name == _TOKENS_COLUMN
        )
    except (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError):
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
        if head[:4] == b"PAR1":
            return pq.read_schema(file)
        return (pa.ipc.open_file if head.startswith(FILE_MAGIC) else pa.ipc.open_stream)(file).schema


def find_batches(path: Path, data: NDArray[np.uint8], pred: int | None = None) -> Batches | None:
    """The batches of the Arrow stream with these bytes; None where it must be rewritten to be read.

    `pred` is how many predictions a record has room for where the file does not say it. Raises `BertprepError` where the bytes
    are no stream, or it has not the columns of a kind of records.
    """
    import pyarrow as pa

    with _explained(path, RecordFormat.ARROW):
        buffer = pa.py_buffer(data)
        schema = pa.ipc.open_stream(pa.BufferReader(buffer)).schema
        kind, fields = _fields_of(path, schema)
    if not all(field.is_plain for field in fields):
        return None
    seq = next(field.length for field in fields if field.column.name == _TOKENS_COLUMN) or 0
    source = pa.BufferReader(buffer)
    batches = batches_in_stream(pa.ipc.open_stream(source, options=_only(fields)), source, str(path))
    rows: list[int] = []
    offsets: list[int] = []
    damage = None
    while True:
        try:
            batch = next(batches, None)
            if batch is None:
                break
            batch.validate()
        except _failures() as error:
            damage = f"{first_line(error)}; truncated or damaged, make the file again"
            break
        found_at = [_offset_of(batch, number, field, data) for number, field in enumerate(fields)]
        if -1 in found_at or not batch.num_rows or (rows and (batch.num_rows > rows[0] or rows[-1] != rows[0])):
            return None
        rows.append(batch.num_rows)
        offsets += found_at
    records = sum(rows)
    at = source.tell()
    if damage is None and data[at - 8 : at].tobytes() != END_OF_STREAM:
        damage = "the end of the stream is missing; truncated, make the file again"
    elif damage is None and at < data.size:
        damage = f"after the end of the stream come {data.size - at:,} more bytes; appended to or damaged, make the file again"
    found = BertprepError(f"{path}: after {records:,} records: {damage}") if damage else None
    if not records and found is None:
        raise BertprepError(f"{path}: holds no records; make it again")
    entries = [
        number
        for field in fields
        for number in (_array_of(kind, field.column), seq if field.is_list else 1, field.plain.bit_width // 8)
    ]
    table = np.array([rows[0] if rows else 1, records, len(fields), *entries, *offsets, data.size], np.int64)
    known = (_known_pred(path, schema, seq) or pred) if issubclass(kind, MaskedExamples) else 0
    counted = known if known is not None else _most_predictions(data, table, fields)
    return Batches(table, records, Shape(kind, seq, counted), known is not None, found)


def rewrite(path: Path, data: NDArray[np.uint8], record_format: RecordFormat, to: BinaryIO) -> None:
    """Write the records of a file with these bytes as an Arrow stream that is read in place; a batch at a time.

    Raises `BertprepError` where the file is damaged, or has not the columns of a kind of records.
    """
    import pyarrow as pa

    with _explained(path, record_format):
        kind, fields, batches = _source(path, data, record_format)
        writer, rows, waiting = None, 0, []
        first = seq = 0
        for batch in batches:
            batch.validate(full=True)
            if not batch.num_rows:
                continue
            if writer is None:
                seq = _seq_of(path, batch, fields)
                schema = _plain_schema(fields, seq, batch.schema.metadata)
                writer = pa.ipc.new_stream(to, schema)
                rows = rows_in_batch(Shape(kind, seq, 0))
            arrays = [_plain(path, batch.column(n), field, seq, first) for n, field in enumerate(fields)]
            first += batch.num_rows
            waiting.append(pa.record_batch(arrays, schema=schema))
            ready = sum(each.num_rows for each in waiting) // rows * rows
            if ready:
                table = pa.Table.from_batches(waiting).combine_chunks()
                writer.write_table(table[:ready], max_chunksize=rows)
                waiting = table[ready:].to_batches()
        if writer is None:
            raise BertprepError(f"{path}: holds no records; make it again")
        writer.write_table(pa.Table.from_batches(waiting, schema).combine_chunks())
        writer.close()


def table_fits(table: NDArray[np.int64], shape: Shape, records: int) -> bool:
    """Whether a kept table is one of so many records, and all that it names is within its file."""
    columns = COLUMNS[shape.kind]
    rows, of_records, count = table[:TABLE_HEAD].tolist()
    if len(table) <= TABLE_HEAD or rows < 1 or of_records != records or count != len(columns):
        return False
    entries, offsets = np.split(table[TABLE_HEAD:-1], [COLUMN_WIDTH * count])
    batches = -(-records // rows)
    if offsets.size != batches * count:
        return False
    arrays, values, widths = entries.reshape(count, COLUMN_WIDTH).T
    expected = {_array_of(shape.kind, column): shape.seq if column.width == "seq" else 1 for column in columns}
    if dict(zip(arrays.tolist(), values.tolist(), strict=True)) != expected or not np.isin(widths, (1, 4, 8)).all():
        return False
    rows_of = np.full((batches, 1), rows)
    rows_of[-1] = records - (batches - 1) * rows
    begins = offsets.reshape(batches, count)
    return bool(
        (begins >= 0).all() and (rows_of <= (table[-1] - begins) // (values * widths)).all()
    )  # no product: it may overflow


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

    return pa.ArrowException, OSError, ValueError, LookupError, TypeError, OverflowError, MemoryError, struct.error


def _source(
    path: Path, data: NDArray[np.uint8], record_format: RecordFormat
) -> tuple[type[Examples], list[_Field], Iterator[pa.RecordBatch]]:
    """(kind, columns, batches of these columns alone) of any file that is not read in place."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = pa.BufferReader(pa.py_buffer(data))
    if record_format == RecordFormat.PARQUET:
        parquet = pq.ParquetFile(source, pre_buffer=False)
        kind, fields = _fields_of(path, parquet.schema_arrow)
        names = [field.column.name for field in fields]
        _check_lengths(path, pa.BufferReader(pa.py_buffer(data)), names)

        def read(rows: int) -> Iterator[pa.RecordBatch]:
            return (batch.select(names) for batch in parquet.iter_batches(rows, columns=names, use_threads=False))

        first = next(read(1), None)
        seq = _seq_of(path, first, fields) if first is not None else 1
        return kind, fields, read(rows_in_batch(Shape(kind, seq, 0)))
    is_file = data[: len(FILE_MAGIC)].tobytes() == FILE_MAGIC
    opener = pa.ipc.open_file if is_file else pa.ipc.open_stream
    kind, fields = _fields_of(path, opener(source).schema)
    source.seek(0)
    reader = opener(source, options=_only(fields))
    return kind, fields, (batches_in_file if is_file else batches_in_stream)(reader, source, str(path))


def _check_lengths(path: Path, source: BinaryIO, names: list[str]) -> None:
    """Raise `BertprepError` for records that are, or may be, too long: a few bytes of Parquet can be lists of gigabytes.

    Raises `ParquetError` where the file does not say how long they are.
    """
    for chunk in read_chunks(source):
        name = chunk.path[0]
        if name not in names:
            continue
        values = max(chunk.values, values_in_pages(source, chunk))
        if values > MOST_VALUES * chunk.rows:
            raise BertprepError(
                f"{path}: column {name} has {values:,} values in {chunk.rows:,} records, expected 1 to {MOST_VALUES:,} in "
                "each; give a file that bertprep create or a tool like it has made"
            )
        if values > parquet_footer.MOST_VALUES:
            raise BertprepError(
                f"{path}: column {name} has {values:,} values in a row group, more than the {parquet_footer.MOST_VALUES:,} "
                "that are read; write it with smaller row groups"
            )


def _fields_of(path: Path, schema: pa.Schema) -> tuple[type[Examples], list[_Field]]:
    """(kind of records, its columns in the order of the file); raises `BertprepError` where they are none of records."""
    names = schema.names
    if _TOKENS_COLUMN not in names:
        raise BertprepError(
            f"{path}: has no column {_TOKENS_COLUMN}, so it holds no records; give a file that bertprep create or a tool like "
            "it has made; bertprep shard --input reads text"
        )
    kind = _kind_of(schema)
    fields = []
    for column in COLUMNS[kind]:
        found = schema.get_all_field_indices(column.name)
        if len(found) != 1:
            how = "is missing" if not found else "stands in it more than once"
            raise BertprepError(f"{path}: column {column.name} {how}; give a file of {kind.title} records")
        fields.append(_field_of(path, column, found[0], schema.field(found[0]).type))
    lengths = {field.length for field in fields if field.is_list and field.length is not None}
    if len(lengths) > 1 or not all(0 < length <= MOST_VALUES for length in lengths):
        raise BertprepError(
            f"{path}: its columns have lists of {' and '.join(f'{length:,}' for length in sorted(lengths))} values, expected "
            f"one length of 1 to {MOST_VALUES:,}; pad all to the same"
        )
    return kind, sorted(fields, key=lambda field: field.index)


def _kind_of(schema: pa.Schema) -> type[Examples]:
    """The kind whose columns these are, or were to be."""
    import pyarrow as pa

    names = schema.names
    if "unique_ids" in names:
        return SquadExamples if {"start_positions", "end_positions"} & {*names} else SquadEvalExamples
    labels = schema.get_all_field_indices("labels")
    of_labels = schema.field(labels[0]).type if labels else None
    if "next_sentence_label" in names or of_labels is None:
        return PretrainingExamples
    if is_list(of_labels):
        return MaskedExamples
    return RegressionExamples if pa.types.is_floating(of_labels) else ClassificationExamples


def _field_of(path: Path, column: Column, index: int, found: pa.DataType) -> _Field:
    import pyarrow as pa

    has_lists = is_list(found)
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
    return _Field(column, index, values, has_lists, found.list_size if pa.types.is_fixed_size_list(found) else None)


def _only(fields: list[_Field]) -> Any:
    """Options to read these columns alone."""
    import pyarrow as pa

    return pa.ipc.IpcReadOptions(use_threads=False, included_fields=[field.index for field in fields])


def _offset_of(batch: pa.RecordBatch, number: int, field: _Field, data: NDArray[np.uint8]) -> int:
    """The offset in the file of a batch's values of a column; -1 where they are not there as kernels read them."""
    column = batch.column(number)
    values = column.values if field.is_list else column
    count = batch.num_rows * (field.length or 1)
    buffer = values.buffers()[1]
    if column.null_count or values.null_count or column.offset or values.offset or len(values) < count or buffer is None:
        return -1
    width = field.plain.bit_width // 8
    at = int(buffer.address) - data.ctypes.data
    is_inside = 0 <= at <= data.size and buffer.size >= count * width and at + count * width <= data.size
    return at if is_inside and data.ctypes.data % 8 == 0 and at % width == 0 else -1


def _array_of(kind: type[Examples], column: Column) -> int:
    """The index of the array that a column fills, of the labels the first of three."""
    name = "masked_lm_positions" if column.feature == "masked_lm_ids" else column.feature
    return [feature.name for feature in kind.features].index(name)


def _known_pred(path: Path, schema: pa.Schema, seq: int) -> int | None:
    """The most predictions of a record, from the schema's metadata or the description beside the file."""
    found: Any = None
    try:
        found = parse_json((schema.metadata or {})[METADATA])["pred"]
    except (KeyError, TypeError, ValueError, LookupError):
        try:
            matched = _PREDICTIONS.search(parse_json(read_bounded(path.parent / DATASET_INFO))["description"])
            found = int(matched[1]) if matched else None
        except (OSError, KeyError, TypeError, ValueError, LookupError):
            pass
    return found if type(found) is int and 1 <= found <= seq else None


def _most_predictions(data: NDArray[np.uint8], table: NDArray[np.int64], fields: list[_Field]) -> int:
    """The most labels that a record has, or 1 where none has any."""
    rows, records, columns = table[:TABLE_HEAD].tolist()
    number = next(n for n, field in enumerate(fields) if field.column.feature == "masked_lm_ids")
    seq, width = fields[number].length or 1, fields[number].plain.bit_width // 8
    most = 1
    for batch, at in enumerate(table[TABLE_HEAD + COLUMN_WIDTH * columns + number : -1 : columns].tolist()):
        count = min(rows, records - batch * rows)
        labels = data[at : at + count * seq * width].view(f"i{width}").reshape(count, seq)
        most = max(most, int((labels != NOT_PREDICTED).sum(axis=1).max()))
    return most


def _plain_schema(fields: list[_Field], seq: int, metadata: dict[bytes, bytes] | None) -> pa.Schema:
    import pyarrow as pa

    kept = {METADATA: metadata[METADATA]} if metadata and METADATA in metadata else None
    types = [pa.list_(field.plain, seq) if field.is_list else field.plain for field in fields]
    return pa.schema([pa.field(field.column.name, kind) for field, kind in zip(fields, types, strict=True)], kept)


def _seq_of(path: Path, batch: pa.RecordBatch, fields: list[_Field]) -> int:
    """How many tokens the first record of the file has, which is that of the batch."""
    number = next(n for n, field in enumerate(fields) if field.column.name == _TOKENS_COLUMN)
    first = batch.column(number)[0]
    length = len(first) if first.is_valid else 0
    if not 0 < length <= MOST_VALUES:
        raise BertprepError(f"{path}: record 0: column {_TOKENS_COLUMN} has {length:,} values, expected 1 to {MOST_VALUES:,}")
    return length


def _plain(path: Path, column: pa.Array, field: _Field, seq: int, first: int) -> pa.Array:
    """A column of a batch, whose first record is number `first`, as lists of `seq` values of the type that kernels read."""
    import pyarrow as pa
    import pyarrow.compute as pc

    name = field.column.name
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise BertprepError(f"{path}: record {first + row}: column {name} is null; give records without missing values")
    if not field.is_list:
        return _cast(path, column, field, first)
    lengths = np.full(len(column), field.length) if field.length else pc.list_value_length(column).to_numpy()
    if (lengths != seq).any():
        row = int(np.flatnonzero(lengths != seq)[0])
        raise BertprepError(
            f"{path}: record {first + row}: column {name} has {int(lengths[row]):,} values, expected {seq:,} as "
            f"{_TOKENS_COLUMN} has in record 0; pad all records to one length"
        )
    values = column.flatten()
    if values.null_count:
        row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]) // seq
        raise BertprepError(
            f"{path}: record {first + row}: column {name} has a value that is null; give records without missing values"
        )
    return pa.FixedSizeListArray.from_arrays(_cast(path, values, field, first), seq)


def _cast(path: Path, values: pa.Array, field: _Field, first: int) -> pa.Array:
    """Values as kernels read them; a uint64 beyond int64 becomes the highest int64, which is as much of a fault.

    Raises `BertprepError` for a float that becomes infinite; `first` is the number of the record of the first value.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if field.values == pa.uint64():
        values = pc.min_element_wise(values, pa.scalar(_MOST_INT64, pa.uint64()))
    found = values.cast(field.plain, safe=False)
    if pa.types.is_float64(field.values):
        is_lost = pc.and_(pc.is_finite(values), pc.is_inf(found)).to_numpy(zero_copy_only=False)
        if is_lost.any():
            row = int(np.flatnonzero(is_lost)[0])
            raise BertprepError(
                f"{path}: record {first + row}: column {field.column.name} is {values[row].as_py():g}, expected a number that "
                "a float32 holds; scale the labels"
            )
    return found
