"""Valid records of every kind as `Examples` and as pyarrow's tables, of which tests make files of any format and any tool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bertprep.records import Examples, MaskedExamples, TokenClassificationExamples
from bertprep.records.columns import COLUMNS, LABELS, schema_of
from tests.records.task_records import task_examples

NOT_PREDICTED = -100


def column_examples(kind: type[Examples], count: int, *, seq: int = 16, pred: int = 3, seed: int = 0) -> Examples:
    """Return valid examples of a kind; those of pretraining with 0 to `pred` predictions, the first one with all."""
    if not issubclass(kind, MaskedExamples):
        return task_examples(kind, count, seq=seq, seed=seed)
    rng = np.random.default_rng(seed)
    examples = kind.empty(count, seq=seq, pred=pred)
    for array in examples.arrays:
        array[...] = rng.integers(0, 2, array.shape)
    examples.input_ids[...] = rng.integers(0, 30_522, (count, seq))
    for array in (examples.masked_lm_positions, examples.masked_lm_ids, examples.masked_lm_weights):
        array[...] = 0
    for row in range(count):
        masked = rng.integers(0, pred + 1) if row else pred
        examples.masked_lm_positions[row, :masked] = np.sort(rng.choice(seq, masked, replace=False))
        examples.masked_lm_ids[row, :masked] = rng.integers(0, 30_522, masked)
        examples.masked_lm_weights[row, :masked] = 1
    return examples


def table_of(examples: Examples) -> pa.Table:
    """Return examples as the table that an Arrow file of them must hold."""
    arrays = []
    schema = schema_of(examples.sizes)
    for column, field in zip(COLUMNS[type(examples)], schema, strict=True):
        values = getattr(examples, column.feature)
        if column is LABELS and isinstance(examples, MaskedExamples):
            values = np.full(examples.input_ids.shape, NOT_PREDICTED)
            row, place = np.nonzero(examples.masked_lm_weights)
            values[row, examples.masked_lm_positions[row, place]] = examples.masked_lm_ids[row, place]
        if isinstance(examples, TokenClassificationExamples) and column.name == LABELS.name:
            values = np.where(examples.label_weights == 1, examples.label_ids, NOT_PREDICTED)
        is_list = pa.types.is_fixed_size_list(field.type)
        flat = pa.array(values.reshape(-1), field.type.value_type if is_list else field.type)
        arrays.append(pa.FixedSizeListArray.from_arrays(flat, examples.seq) if is_list else flat)
    return pa.table(arrays, schema=schema)


def assert_same(found: Examples, expected: Examples) -> None:
    """The same records, floats bit by bit."""
    assert type(found) is type(expected)
    for feature, mine, other in zip(found.features, found.arrays, expected.arrays, strict=True):
        bits = f"u{mine.itemsize}"
        np.testing.assert_array_equal(mine.view(bits), other.view(bits), feature.name)


def rows_of(examples: Examples, rows: Any) -> Examples:
    return type(examples)(*(array[rows] for array in examples.arrays))


def write_stream(table: pa.Table, path: Path, *, rows: int = 5, compression: str | None = None) -> None:
    """Write an Arrow stream, as `datasets` does, in batches of so many rows."""
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)


def write_arrow_file(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=5)


def write_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, row_group_size=7)


def write_any(examples: Examples, path: Path) -> None:
    """Write a file of the format that the path's suffix names, in more than one batch."""
    {".arrow": write_stream, ".parquet": write_parquet}[path.suffix](table_of(examples), path)


def with_types(table: pa.Table, of_values: Callable[[pa.DataType], Any], as_list: Callable[[Any, int], Any]) -> pa.Table:
    """Return the table without metadata, in other types: those of values, and those of lists of values of so many."""
    fields = [
        pa.field(field.name, as_list(of_values(field.type.value_type), field.type.list_size))
        if pa.types.is_fixed_size_list(field.type)
        else field
        for field in table.schema
    ]
    return table.replace_schema_metadata(None).cast(pa.schema(fields))
