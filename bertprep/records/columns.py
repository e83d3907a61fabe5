"""Converts records to columns, with the names and types that `datasets` and `transformers` expect.

The predictions of a pretraining record become one column, `labels`: the original token at predicted positions, and -100
elsewhere, which PyTorch's loss ignores. This is lossless if the positions ascend with weight 1 and the rest is zeros; any other
record is refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.errors import BertprepError, quoted
from bertprep.kernels.numbers import MAX_INT8, MAX_INT32, NOT_PREDICTED
from bertprep.records.examples import KINDS, Examples, Feature, MaskedExamples, Shape, TokenClassificationExamples, Width

if TYPE_CHECKING:
    import pyarrow as pa

NEXT_SENTENCE_NAMES = ("is_next", "random")
METADATA = b"bertprep"
"""The key of bertprep's metadata in a schema: a JSON object with kind, seq and pred."""
_BATCH_BYTES, _MAX_ROWS = 4 << 20, 1024


Columns: TypeAlias = dict[str, NDArray[Any]]
"""Name -> column of n rows, in the order of the columns: (n, seq), or (n,) if a row has one value."""


class NoColumnsError(BertprepError):
    """A record cannot be represented in columns; `row` is its index among the examples that were given."""

    def __init__(self, message: str, row: int = 0) -> None:
        super().__init__(message)
        self.row = row


class Column(NamedTuple):
    """A column: its name, the feature that it contains, and the number and type of the values in a row."""

    name: str
    feature: str
    width: Width
    dtype: type[np.int8 | np.int32 | np.int64 | np.float32]


@cache
def _column_of(feature: Feature) -> Column:
    return Column(feature.column, feature.name, "one" if feature.width == "one" else "seq", feature.column_dtype)


IN_LABELS = {"masked_lm_positions": "masked_lm_ids", "masked_lm_weights": "masked_lm_ids", "label_weights": "label_ids"}
"""Feature without a column of its own -> feature whose column, `labels`, contains its values, too."""


def columns_of(kind: type[Examples]) -> tuple[Column, ...]:
    """Return the columns of a kind of record; raise `ValueError` if a feature is in no column."""
    for feature in kind.features:
        if not feature.column and feature.name not in IN_LABELS:
            raise ValueError(f"{kind.__name__}: {feature.name} has no column, so Arrow and Parquet files would lack it")
    found = [_column_of(feature) for feature in kind.features if feature.column]
    mask = next(i for i, each in enumerate(found) if each.feature == "input_mask")
    return (*found[:mask], found[mask + 1], found[mask], *found[mask + 2 :])


COLUMNS = {kind: columns_of(kind) for kind in KINDS}
LABELS = next(each for each in COLUMNS[MaskedExamples] if each.feature == "masked_lm_ids")
"""The column that combines masked_lm_positions, masked_lm_ids and masked_lm_weights."""


def row_bytes(shape: Shape) -> int:
    return sum(values_in(column, shape) * np.dtype(column.dtype).itemsize for column in COLUMNS[shape.kind])


def rows_in_batch(shape: Shape) -> int:
    """Return the number of rows in a record batch of an Arrow file: as many as fit in 4 MiB, but 1 to 1,024.

    >>> from bertprep.records.examples import PretrainingExamples
    >>> [rows_in_batch(Shape(PretrainingExamples, seq, 20)) for seq in (128, 512, 65_535)]
    [1024, 817, 6]
    """
    return max(1, min(_MAX_ROWS, _BATCH_BYTES // row_bytes(shape)))


def to_columns(examples: Examples) -> Columns:
    """Return the columns of records as new arrays for PyTorch: int64, and float32 for the labels of a regression.

    The arrays share one allocation. Raises `NoColumnsError` for a record that columns cannot represent.

    >>> from bertprep.records.examples import PretrainingExamples
    >>> examples = PretrainingExamples.empty(2, seq=4, pred=2)
    >>> examples[0] = [2, 9, 4, 3], 1, 0, [1, 2], [7, 4], [1, 1], 0
    >>> examples[1] = [2, 9, 4, 3], 1, 0, [1, 0], [5, 0], [1, 0], 0
    >>> to_columns(examples)["labels"].tolist()
    [[-100, 7, 4, -100], [-100, 5, -100, -100]]
    """
    count, shape = len(examples), examples.sizes
    sizes = [count * values_in(column, shape) for column in COLUMNS[shape.kind]]
    parts = np.split(np.empty(sum(sizes), np.int64), np.cumsum(sizes)[:-1])
    columns: Columns = {}
    for column, part in zip(COLUMNS[shape.kind], parts, strict=True):
        values: NDArray[Any] = part if column.dtype != np.float32 else part.view(np.float32)[:count]
        values = values.reshape(count, shape.seq) if column.width == "seq" else values
        columns[column.name] = values
        if (labels := _labels_of(examples, column)) is not None:
            values[...] = labels
        else:
            values[...] = getattr(examples, column.feature)
    return columns


def put_labels(examples: MaskedExamples, labels: NDArray[np.int32]) -> None:
    """Write predictions to `labels` (n, seq); raises `NoColumnsError` if they cannot be one label per token."""
    made = kernels.load().make_labels(examples, len(examples), labels)
    if made < len(examples):
        raise _explain_predictions(examples, made)


def _labels_of(examples: Examples, column: Column) -> NDArray[np.int32] | None:
    """Return the labels (n, seq) of tokens, with -100 where a token has none; None if the column is not labels of tokens."""
    if isinstance(examples, MaskedExamples) and column is LABELS:
        labels = np.empty((len(examples), examples.seq), np.int32)
        put_labels(examples, labels)
        return labels
    if isinstance(examples, TokenClassificationExamples) and column.feature == "label_ids":
        _check_label_weights(examples)
        return np.where(examples.label_weights > 0, examples.label_ids, np.int32(NOT_PREDICTED))
    return None


def _check_label_weights(examples: TokenClassificationExamples) -> None:
    """Raise `NoColumnsError` for labels that do not fit the column: with a fractional weight, or with a value but no weight."""
    ids, weights = examples.label_ids, examples.label_weights
    is_wrong = ~np.isin(weights, (0, 1)) | ((weights == 0) & (ids != 0)) | (ids < 0)
    if is_wrong.any():
        row, position = np.argwhere(is_wrong)[0].tolist()
        raise NoColumnsError(
            "labels do not fit the column labels: expected label_ids of 0 or more with weight 1, or of 0 with weight 0, found "
            f"{ids[row, position]} with weight {weights[row, position]:g} at token {position}",
            row,
        )


def record_batch(examples: Examples, schema: pa.Schema) -> pa.RecordBatch:
    """Return an Arrow batch with copies of the records."""
    import pyarrow as pa

    arrays = []
    for column, field in zip(COLUMNS[type(examples)], schema, strict=True):
        values = _values_of(examples, column)
        is_list = pa.types.is_fixed_size_list(field.type)
        kind = field.type.value_type if is_list else field.type
        flat = pa.Array.from_buffers(kind, values.size, [None, pa.py_buffer(values)])  # `pa.array` would import pandas
        arrays.append(pa.FixedSizeListArray.from_arrays(flat, field.type.list_size) if is_list else flat)
    return pa.record_batch(arrays, schema=schema)


def _values_of(examples: Examples, column: Column) -> NDArray[Any]:
    if (labels := _labels_of(examples, column)) is not None:
        return labels
    values: NDArray[Any] = getattr(examples, column.feature).copy()
    if values.dtype == np.float32:
        return values
    most = MAX_INT8 if column.dtype == np.int8 else MAX_INT32
    if values.view(f"u{values.itemsize}").max(initial=0) > most:  # as unsigned integers, negative values are above it, too
        found = values.reshape(len(values), -1)
        row, position = np.argwhere((found < 0) | (found > most))[0].tolist()
        raise NoColumnsError(
            f"{column.feature} does not fit the column {column.name}: expected 0 to {most:,}, found {found[row, position]:,}",
            row,
        )
    return values.view(np.int8) if column.dtype == np.int8 else values.astype(column.dtype, copy=False)


def _explain_predictions(examples: MaskedExamples, row: int) -> NoColumnsError:
    arrays = examples.masked_lm_positions, examples.masked_lm_ids, examples.masked_lm_weights
    found = ", ".join(quoted(str(each[row].tolist())) for each in arrays)
    return NoColumnsError(
        "predictions do not fit the column labels, which has one per token: expected masked_lm_positions that ascend below "
        f"{examples.seq} with weight 1, then 0 in positions, ids and weights, found {found}",
        row,
    )


def schema_of(shape: Shape, labels: Sequence[str] = ()) -> pa.Schema:
    """Return the Arrow schema; its metadata has the features and class names for `datasets`, and the shape under `METADATA`."""
    import pyarrow as pa  # takes 0.1 s, which commands for other formats need not pay

    fields = []
    for column in COLUMNS[shape.kind]:
        value = pa.from_numpy_dtype(column.dtype)
        fields.append(pa.field(column.name, value if column.width == "one" else pa.list_(value, values_in(column, shape))))
    own = {"kind": shape.kind.title, "seq": shape.seq, "pred": shape.pred}
    info = {"info": {"features": features_of(shape, labels)}}
    return pa.schema(fields, {b"huggingface": json.dumps(info).encode(), METADATA: json.dumps(own).encode()})


def features_of(shape: Shape, labels: Sequence[str] = ()) -> dict[str, Any]:
    """Return the columns in the form in which `datasets` writes its `Features` to JSON."""
    features: dict[str, Any] = {}
    for column in COLUMNS[shape.kind]:
        value: dict[str, Any] = {"dtype": np.dtype(column.dtype).name, "_type": "Value"}
        names = _class_names(column, labels)
        if names:
            features[column.name] = {"names": list(names), "_type": "ClassLabel"}
        elif column.width == "one":
            features[column.name] = value
        else:
            features[column.name] = {"feature": value, "length": values_in(column, shape), "_type": "List"}
    return features


def values_in(column: Column, shape: Shape) -> int:
    return shape.seq if column.width == "seq" else 1


def _class_names(column: Column, labels: Sequence[str]) -> Sequence[str]:
    if column.name == "next_sentence_label":
        return NEXT_SENTENCE_NAMES
    return labels if column.feature == "label_ids" and column.dtype == np.int64 else ()
