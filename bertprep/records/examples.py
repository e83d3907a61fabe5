"""`Examples`: the features of many records as arrays, as found in a file, right or wrong; a class for each kind of record.

A kind is a set of feature names, those of Google's `create_pretraining_data.py`, `run_squad.py` and `run_classifier.py`.
Reusing arrays is a third faster than new ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bertprep.config import InstanceSettings
from bertprep.errors import BertprepError
from bertprep.kernels.numbers import KIND_FLOAT32, KIND_INT32, KIND_UINT8, NUMBER_OF_FEATURE

if TYPE_CHECKING:
    from typing_extensions import Self

MAX_VALUES = 65_535
"""Of a feature in one record: the longest sequence that `create` makes. Anything longer is not a BERT record."""
BLOCK_BYTES = 4 << 20
"""Of records that are read, checked and overwritten by the next; at 128 tokens the processor's cache limits them."""

_KINDS = {np.dtype(np.int32): KIND_INT32, np.dtype(np.float32): KIND_FLOAT32, np.dtype(np.uint8): KIND_UINT8}

Width: TypeAlias = Literal["seq", "pred", "one"]
"""How many values a record has in a feature: its tokens, its predictions, or a single one."""
Values: TypeAlias = Literal["token", "flag", "segment", "position", "id", "class", "weight", "score"]
"""What the values are, and so how large they may be; the last two are floats."""


class Feature(NamedTuple):
    """A feature of a kind of record, and its column in Arrow and Parquet files, if any."""

    name: str
    width: Width
    values: Values
    column: str = ""
    column_dtype: type[np.int8 | np.int32 | np.int64 | np.float32] = np.int32

    @property
    def dtype(self) -> type[np.int32 | np.float32]:
        return np.float32 if self.values in ("weight", "score") else np.int32


_TOKENS = (
    Feature("input_ids", "seq", "token", "input_ids"),
    Feature("input_mask", "seq", "flag", "attention_mask", np.int8),
    Feature("segment_ids", "seq", "segment", "token_type_ids", np.int8),
)
_IS_REAL = Feature("is_real_example", "one", "flag", "is_real_example", np.int8)


class Examples:
    """n records of one kind; a subclass names the features in the order of writing.

    >>> examples = PretrainingExamples.empty(1000, seq=128, pred=20)
    >>> len(examples), examples[:10].input_ids.shape
    (1000, (10, 128))
    """

    features: ClassVar[tuple[Feature, ...]]
    title: ClassVar[str]
    """What a message calls the kind: "pretraining", "SQuAD"."""

    input_ids: NDArray[np.int32]  # (n, seq)
    input_mask: NDArray[np.int32]  # (n, seq)
    segment_ids: NDArray[np.int32]  # (n, seq)

    def __init__(self, *arrays: NDArray[Any], **named: NDArray[Any]) -> None:
        names = [feature.name for feature in self.features]
        found = dict(zip(names, arrays, strict=False)) | named
        if found.keys() != {*names} or len(arrays) + len(named) != len(names):
            raise TypeError(f"{type(self).__name__} has {', '.join(names)}; got {', '.join(found)}")
        vars(self).update(found)

    @classmethod
    def empty(cls, count: int, *, seq: int, pred: int = 0) -> Self:
        """Return arrays for `count` records, to be read into."""
        return cls.empty_as(count, [feature.dtype for feature in cls.features], seq=seq, pred=pred)

    @classmethod
    def empty_as(cls, count: int, dtypes: Sequence[type[np.generic]], *, seq: int, pred: int) -> Self:
        shapes: dict[Width, tuple[int, ...]] = {"seq": (count, seq), "pred": (count, pred), "one": (count,)}
        return cls(*(np.empty(shapes[each.width], dtype) for each, dtype in zip(cls.features, dtypes, strict=True)))

    @classmethod
    def feature(cls, name: str) -> Feature:
        return next(feature for feature in cls.features if feature.name == name)

    @property
    def shape(self) -> Shape:
        return Shape(type(self), self.seq, self.pred)

    @property
    def seq(self) -> int:
        return int(self.input_ids.shape[1])

    @property
    def pred(self) -> int:
        return 0

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        return tuple(getattr(self, feature.name) for feature in self.features)

    @cached_property
    def addresses(self) -> NDArray[np.int64]:
        """Where kernels read records into: how many arrays there are, and of each the columns of ARRAY_WIDTH."""
        for array, feature in zip(self.arrays, self.features, strict=True):
            if array.dtype != feature.dtype:
                raise TypeError(f"records are read into arrays of {feature.dtype.__name__}, {feature.name} is {array.dtype}")
        return self.table()

    def table(self) -> NDArray[np.int64]:
        """Return the addresses of rows to be written, whose masks, segments and labels may be bytes."""
        rows: list[int] = []
        for array, feature in zip(self.arrays, self.features, strict=True):
            if (
                array.dtype not in _KINDS
                or not array.flags.c_contiguous
                or not array.flags.writeable
                or len(array) != len(self)
            ):
                raise TypeError("records are in contiguous arrays of int32, float32 or uint8, all as long as the first")
            rows += [NUMBER_OF_FEATURE[feature.name], array.ctypes.data, math.prod(array.shape[1:]), _KINDS[array.dtype]]
        wanted = sum(1 << NUMBER_OF_FEATURE[feature.name] for feature in self.features)
        return np.array([len(self.features), wanted, *rows], np.int64)

    def __reduce__(self) -> tuple[type[Self], tuple[NDArray[Any], ...]]:
        return type(self), self.arrays  # the addresses hold in this process only

    def __len__(self) -> int:
        return len(self.input_ids)

    def __getitem__(self, rows: slice) -> Self:
        return type(self)(*(array[rows] for array in self.arrays))


class MaskedExamples(Examples):
    """Records of full sentences: seq tokens, up to pred masked, no next-sentence label."""

    features: ClassVar[tuple[Feature, ...]] = (
        *_TOKENS,
        Feature("masked_lm_positions", "pred", "position"),
        Feature("masked_lm_ids", "pred", "token", "labels"),  # a column of all three
        Feature("masked_lm_weights", "pred", "weight"),
    )
    title = "unpaired pretraining"

    masked_lm_positions: NDArray[np.int32]  # (n, pred)
    masked_lm_ids: NDArray[np.int32]  # (n, pred)
    masked_lm_weights: NDArray[np.float32]  # (n, pred)

    @property
    def pred(self) -> int:
        return int(self.masked_lm_positions.shape[1])


class PretrainingExamples(MaskedExamples):
    """The same of two segments, with the label of the second; 4 bytes more a record."""

    features = (*MaskedExamples.features, Feature("next_sentence_labels", "one", "flag", "next_sentence_label", np.int64))
    title = "pretraining"

    next_sentence_labels: NDArray[np.int32]  # (n,)


class SquadEvalExamples(Examples):
    """Windows of a SQuAD context, [CLS] question [SEP] part of the context [SEP], without answers, which the JSON file has."""

    features: ClassVar[tuple[Feature, ...]] = (Feature("unique_ids", "one", "id", "unique_ids"), *_TOKENS)
    title = "SQuAD evaluation"

    unique_ids: NDArray[np.int32]  # (n,)


class SquadExamples(SquadEvalExamples):
    """The same windows with the answer; both positions are 0 where it is not in the window."""

    features = (
        *SquadEvalExamples.features,
        Feature("start_positions", "one", "position", "start_positions"),
        Feature("end_positions", "one", "position", "end_positions"),
        Feature("is_impossible", "one", "flag", "is_impossible", np.int8),
    )
    title = "SQuAD"

    start_positions: NDArray[np.int32]  # (n,)
    end_positions: NDArray[np.int32]  # (n,), of the answer's last token
    is_impossible: NDArray[np.int32]  # (n,)


class ClassificationExamples(Examples):
    """A sentence or a pair with its class: [CLS] A [SEP] or [CLS] A [SEP] B [SEP]."""

    features = (*_TOKENS, Feature("label_ids", "one", "class", "labels", np.int64), _IS_REAL)
    title = "classification"

    label_ids: NDArray[np.int32]  # (n,)
    is_real_example: NDArray[np.int32]  # (n,), 0 for what only fills up a batch


class RegressionExamples(Examples):
    """The same with a number instead of the class, as STS-B has."""

    features = (*_TOKENS, Feature("label_ids", "one", "score", "labels", np.float32), _IS_REAL)
    title = "regression"

    label_ids: NDArray[np.float32]  # (n,)
    is_real_example: NDArray[np.int32]  # (n,)


class Shape(NamedTuple):
    """What all records of a file have in common: their kind, and how many tokens and predictions each has."""

    kind: type[Examples]
    seq: int
    pred: int

    @property
    def counts(self) -> list[int]:
        counts: dict[Width, int] = {"seq": self.seq, "pred": self.pred, "one": 1}
        return [counts[feature.width] for feature in self.kind.features]

    def check_same(self, path: Path, expected: Shape, other: Path, advice: str) -> None:
        """Raise `BertprepError` where the records of `path`, which have this shape, have not that of the file `other`."""
        if self.kind != expected.kind:
            found, wanted = self.kind.title, expected.kind.title
            raise BertprepError(f"{path}: has {found} records, expected {wanted} records as {other} has; {advice}")
        if self != expected:
            found, wanted = f"{self.seq} tokens", f"{expected.seq}"
            if expected.pred:
                found, wanted = f"{found} and {self.pred} predictions", f"{wanted} and {expected.pred}"
            raise BertprepError(f"{path}: has records of {found}, expected {wanted} as {other} has; {advice}")


KINDS: tuple[type[Examples], ...] = (
    PretrainingExamples,
    MaskedExamples,
    SquadExamples,
    SquadEvalExamples,
    ClassificationExamples,
    RegressionExamples,
)


def kind_made_with(settings: InstanceSettings) -> type[MaskedExamples]:
    """Return the kind of the records that `create` makes with these settings."""
    return PretrainingExamples if settings.has_pairs else MaskedExamples


def rows_in_block(most: int, *, seq: int, pred: int, kind: type[Examples] = PretrainingExamples) -> int:
    """Return how many records of a shape to read at a time: `most`, or as many as fit `BLOCK_BYTES`, at least one.

    >>> rows_in_block(256, seq=512, pred=80), rows_in_block(256, seq=65_535, pred=9_830)
    (256, 4)
    """
    return max(1, min(most, BLOCK_BYTES // (4 * sum(Shape(kind, seq, pred).counts))))


def kind_of(lists: Mapping[str, bool]) -> type[Examples]:
    """Return the kind of a record with these features, or else the one with most of them; values tell lists of floats."""

    def fitness(kind: type[Examples]) -> tuple[int, bool, int]:
        found = [feature for feature in kind.features if feature.name in lists]
        of_that_type = [feature for feature in found if lists[feature.name] == (feature.dtype == np.float32)]
        return len(found), len(found) == len(kind.features), len(of_that_type)

    return max(KINDS, key=fitness)  # of equals the first
