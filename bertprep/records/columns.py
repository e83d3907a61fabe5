"""Records as columns: the names and types under which `datasets` and `transformers` take the features of each kind.

A pretraining record's predictions are one column, `labels`, of a number for each token: the token that was there where it is to
be predicted, else -100, which PyTorch's loss leaves out. That holds the same as positions, ids and weights as long as these are
what a generator makes: ascending positions with weight 1, then zeros. Any other record has no such form, and is refused.

`schema_of` gives the Arrow schema; what else is in an Arrow file is in `records.arrow`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bertprep.records.examples import (
    ClassificationExamples,
    Examples,
    PretrainingExamples,
    RegressionExamples,
    Shape,
    SquadEvalExamples,
    SquadExamples,
    Width,
)

if TYPE_CHECKING:
    import pyarrow as pa

NEXT_SENTENCE_NAMES = ("is_next", "random")
METADATA = b"bertprep"
"""The key of our own metadata in a schema, JSON of an object with kind, seq and pred."""
_BATCH_BYTES, _MOST_ROWS = 4 << 20, 1024


class Column(NamedTuple):
    """A column: its name, the feature it is made of, how many values a row has in it, and of what type they are."""

    name: str
    feature: str
    width: Width
    dtype: type[np.int8 | np.int32 | np.int64 | np.float32]


_TOKENS = (
    Column("input_ids", "input_ids", "seq", np.int32),
    Column("token_type_ids", "segment_ids", "seq", np.int8),
    Column("attention_mask", "input_mask", "seq", np.int8),
)
LABELS = Column("labels", "masked_lm_ids", "seq", np.int32)
"""The column of masked_lm_positions, _ids and _weights together."""
COLUMNS: dict[type[Examples], tuple[Column, ...]] = {
    PretrainingExamples: (*_TOKENS, LABELS, Column("next_sentence_label", "next_sentence_labels", "one", np.int64)),
    SquadExamples: (
        Column("unique_ids", "unique_ids", "one", np.int32),
        *_TOKENS,
        Column("start_positions", "start_positions", "one", np.int32),
        Column("end_positions", "end_positions", "one", np.int32),
        Column("is_impossible", "is_impossible", "one", np.int8),
    ),
    SquadEvalExamples: (Column("unique_ids", "unique_ids", "one", np.int32), *_TOKENS),
    ClassificationExamples: (
        *_TOKENS,
        Column("labels", "label_ids", "one", np.int64),
        Column("is_real_example", "is_real_example", "one", np.int8),
    ),
    RegressionExamples: (
        *_TOKENS,
        Column("labels", "label_ids", "one", np.float32),
        Column("is_real_example", "is_real_example", "one", np.int8),
    ),
}
"""The columns of each kind of record, in their order in a file."""


def row_bytes(shape: Shape) -> int:
    """The bytes of a row of such records in an Arrow file."""
    return sum(values_in(column, shape) * np.dtype(column.dtype).itemsize for column in COLUMNS[shape.kind])


def rows_in_batch(shape: Shape) -> int:
    """How many rows each record batch of an Arrow file has but the last: what a few megabytes hold, 1,024 at most.

    >>> [rows_in_batch(Shape(PretrainingExamples, seq, 20)) for seq in (128, 512, 65_535)]
    [1024, 818, 6]
    """
    return max(1, min(_MOST_ROWS, _BATCH_BYTES // row_bytes(shape)))


def schema_of(shape: Shape, labels: Sequence[str] = ()) -> pa.Schema:
    """The Arrow schema of such records; `labels` are the names of a classification's classes, where they are known.

    Its metadata has what `datasets` keeps there, the features with their class names, and under `METADATA` the shape.
    """
    import pyarrow as pa  # takes 0.1 s, which commands for other formats need not pay

    fields = []
    for column in COLUMNS[shape.kind]:
        value = pa.from_numpy_dtype(column.dtype)
        fields.append(pa.field(column.name, value if column.width == "one" else pa.list_(value, values_in(column, shape))))
    own = {"kind": shape.kind.title, "seq": shape.seq, "pred": shape.pred}
    info = {"info": {"features": features_of(shape, labels)}}
    return pa.schema(fields, {b"huggingface": json.dumps(info).encode(), METADATA: json.dumps(own).encode()})


def features_of(shape: Shape, labels: Sequence[str] = ()) -> dict[str, Any]:
    """The same as `datasets` writes its `Features` as JSON."""
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
    """How many values a row has in a column."""
    return shape.seq if column.width == "seq" else 1


def _class_names(column: Column, labels: Sequence[str]) -> Sequence[str]:
    if column.name == "next_sentence_label":
        return NEXT_SENTENCE_NAMES
    return labels if column.feature == "label_ids" and column.dtype == np.int64 else ()
