"""Records as pyarrow's tables: what Arrow and Parquet files of any tool are made of for the reader's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bertprep.records import Examples, MaskedExamples
from bertprep.records.columns import COLUMNS, schema_of
from tests.records.task_records import task_examples

NOT_PREDICTED = -100


def column_examples(kind: type[Examples], count: int, *, seq: int = 16, pred: int = 3, seed: int = 0) -> Examples:
    """`count` sound examples of a kind; of pretraining with 0 to `pred` predictions, and the first one with all."""
    if not issubclass(kind, MaskedExamples):
        return task_examples(kind, count, seq=seq, seed=seed)
    rng = np.random.default_rng(seed)
    examples = kind.empty(count, seq=seq, pred=pred)
    for array in examples.arrays:
        array[...] = 0
    examples.input_ids[...] = rng.integers(0, 30_522, (count, seq))
    examples.input_mask[...] = rng.integers(0, 2, (count, seq))
    examples.segment_ids[...] = rng.integers(0, 2, (count, seq))
    for labels in examples.arrays[6:]:  # of pairs
        labels[...] = rng.integers(0, 2, count)
    for row in range(count):
        masked = rng.integers(0, pred + 1) if row else pred
        examples.masked_lm_positions[row, :masked] = np.sort(rng.choice(seq, masked, replace=False))
        examples.masked_lm_ids[row, :masked] = rng.integers(0, 30_522, masked)
        examples.masked_lm_weights[row, :masked] = 1
    return examples


def table_of(examples: Examples) -> pa.Table:
    """The same as a table, put together value by value."""
    columns = []
    schema = schema_of(examples.shape)
    for column, field in zip(COLUMNS[type(examples)], schema, strict=True):
        values = getattr(examples, column.feature)
        if column.name == "labels" and isinstance(examples, MaskedExamples):
            values = np.full(examples.input_ids.shape, NOT_PREDICTED)
            for row, weights in enumerate(examples.masked_lm_weights):
                for position, token, weight in zip(
                    examples.masked_lm_positions[row], examples.masked_lm_ids[row], weights, strict=True
                ):
                    if weight:
                        values[row, position] = token
        columns.append(pa.array(values.tolist(), field.type))
    return pa.table(columns, schema=schema)


def write_stream(table: pa.Table, path: Path, *, rows: int = 5, compression: str | None = None) -> None:
    """An Arrow stream, as `datasets` writes it, in batches of so many rows."""
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)


def write_arrow_file(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=5)


def write_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, row_group_size=7)


def write_any(examples: Examples, path: Path) -> None:
    """A file of the format that the path's suffix names, in more than one batch."""
    {".arrow": write_stream, ".parquet": write_parquet}[path.suffix](table_of(examples), path)


def with_types(table: pa.Table, of_values: Callable[[pa.DataType], Any], as_list: Callable[[Any, int], Any]) -> pa.Table:
    """The table without metadata, in other types: those of values, and those of lists of values of so many."""
    fields = [
        pa.field(field.name, as_list(of_values(field.type.value_type), field.type.list_size))
        if pa.types.is_fixed_size_list(field.type)
        else field
        for field in table.schema
    ]
    return table.replace_schema_metadata(None).cast(pa.schema(fields))
