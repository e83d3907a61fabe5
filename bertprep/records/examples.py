"""`Examples`: the features of many records as arrays, as found in the file, right or wrong; a class for each kind of record.

What a reader gives, and what the validator, the trainer's batches and the converter take. Arrays that are read
into again and again are a third faster than new ones, whose memory the system has to zero.

A record's kind is the names of its features, which are Google's: `create_pretraining_data.py`, `run_squad.py` (with answers for
training, without for evaluation), `run_classifier.py` (whose label is a float where the task is a regression).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bertprep.kernels.numbers import FEATURES

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "FEATURES",
    "KINDS",
    "ClassificationExamples",
    "Examples",
    "Feature",
    "PretrainingExamples",
    "RegressionExamples",
    "SquadEvalExamples",
    "SquadExamples",
    "rows_in_block",
]

MOST_VALUES = 65_535
"""Of a feature in one record: the longest sequence that `create` makes. Anything longer is not a BERT record."""
BLOCK_BYTES = 4 << 20
"""Of records that are read, looked at and overwritten by the next; at 128 tokens the processor's cache limits them."""

Width: TypeAlias = Literal["seq", "pred", "one"]
"""How many values a record has in a feature: its tokens, its predictions, or a single one."""


class Feature(NamedTuple):
    """A feature of a kind of record: its name, how many values a record has in it, and of what type they are."""

    name: str
    width: Width
    dtype: type[np.int32 | np.float32] = np.int32


_TOKENS = Feature("input_ids", "seq"), Feature("input_mask", "seq"), Feature("segment_ids", "seq")


class Examples:
    """n records of one kind; a subclass names the features, in the order in which they are written.

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

    @classmethod
    def empty(cls, count: int, *, seq: int, pred: int = 0) -> Self:
        """Arrays for `count` records, to be read into."""
        shapes: dict[Width, tuple[int, ...]] = {"seq": (count, seq), "pred": (count, pred), "one": (count,)}
        return cls(*(np.empty(shapes[feature.width], feature.dtype) for feature in cls.features))

    @classmethod
    def bytes_of_record(cls, *, seq: int, pred: int) -> int:
        """What a record of that shape takes in the arrays."""
        return 4 * sum({"seq": seq, "pred": pred, "one": 1}[feature.width] for feature in cls.features)

    @property
    def seq(self) -> int:
        """Tokens of a record."""
        return int(self.input_ids.shape[1])

    @property
    def pred(self) -> int:
        """Predictions of a record; 0 where its kind has none."""
        return 0

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The arrays, in the order of `features`."""
        return tuple(getattr(self, feature.name) for feature in self.features)

    @cached_property
    def addresses(self) -> NDArray[np.int64]:
        """Where kernels read and write: the addresses of the arrays, then how many values a record has in each."""
        for array, feature in zip(self.arrays, self.features, strict=True):
            is_whole = array.flags.c_contiguous and array.flags.writeable and len(array) == len(self)
            if array.dtype != feature.dtype or not is_whole:
                raise TypeError(
                    f"records are read into contiguous arrays of {feature.dtype.__name__}, all as long as the first"
                )
        return np.array([*(a.ctypes.data for a in self.arrays), *(math.prod(a.shape[1:]) for a in self.arrays)], np.int64)

    if TYPE_CHECKING:  # as the dataclasses below have it

        def __init__(self, *arrays: NDArray[Any]) -> None: ...

    def __reduce__(self) -> tuple[type[Self], tuple[NDArray[Any], ...]]:
        return type(self), self.arrays  # the addresses hold in this process only

    def __len__(self) -> int:
        return len(self.input_ids)

    def __getitem__(self, rows: slice) -> Self:
        """Some of the records, in the same memory."""
        return type(self)(*(array[rows] for array in self.arrays))


@dataclass(frozen=True)
class PretrainingExamples(Examples):
    """Records of seq tokens, of which up to pred are masked; 12 * (seq + pred) + 4 bytes a record."""

    features: ClassVar[tuple[Feature, ...]] = (
        *_TOKENS,
        Feature("masked_lm_positions", "pred"),
        Feature("masked_lm_ids", "pred"),
        Feature("masked_lm_weights", "pred", np.float32),
        Feature("next_sentence_labels", "one"),
    )
    title: ClassVar[str] = "pretraining"

    input_ids: NDArray[np.int32]  # (n, seq)
    input_mask: NDArray[np.int32]  # (n, seq)
    segment_ids: NDArray[np.int32]  # (n, seq)
    masked_lm_positions: NDArray[np.int32]  # (n, pred)
    masked_lm_ids: NDArray[np.int32]  # (n, pred)
    masked_lm_weights: NDArray[np.float32]  # (n, pred)
    next_sentence_labels: NDArray[np.int32]  # (n,)

    @property
    def pred(self) -> int:
        return int(self.masked_lm_positions.shape[1])


@dataclass(frozen=True)
class SquadExamples(Examples):
    """Windows of a SQuAD context with the answer: [CLS] question [SEP] part of the context [SEP]."""

    features: ClassVar[tuple[Feature, ...]] = (
        Feature("unique_ids", "one"),
        *_TOKENS,
        Feature("start_positions", "one"),
        Feature("end_positions", "one"),
        Feature("is_impossible", "one"),
    )
    title: ClassVar[str] = "SQuAD"

    unique_ids: NDArray[np.int32]  # (n,)
    input_ids: NDArray[np.int32]  # (n, seq)
    input_mask: NDArray[np.int32]  # (n, seq)
    segment_ids: NDArray[np.int32]  # (n, seq)
    start_positions: NDArray[np.int32]  # (n,), as end_positions 0 where the answer is not in the window
    end_positions: NDArray[np.int32]  # (n,), of the answer's last token
    is_impossible: NDArray[np.int32]  # (n,)


@dataclass(frozen=True)
class SquadEvalExamples(Examples):
    """The same windows without answers, which evaluation takes from the JSON file."""

    features: ClassVar[tuple[Feature, ...]] = (Feature("unique_ids", "one"), *_TOKENS)
    title: ClassVar[str] = "SQuAD evaluation"

    unique_ids: NDArray[np.int32]  # (n,)
    input_ids: NDArray[np.int32]  # (n, seq)
    input_mask: NDArray[np.int32]  # (n, seq)
    segment_ids: NDArray[np.int32]  # (n, seq)


@dataclass(frozen=True)
class ClassificationExamples(Examples):
    """A sentence or a pair with its class: [CLS] A [SEP] or [CLS] A [SEP] B [SEP]."""

    features: ClassVar[tuple[Feature, ...]] = (*_TOKENS, Feature("label_ids", "one"), Feature("is_real_example", "one"))
    title: ClassVar[str] = "classification"

    input_ids: NDArray[np.int32]  # (n, seq)
    input_mask: NDArray[np.int32]  # (n, seq)
    segment_ids: NDArray[np.int32]  # (n, seq)
    label_ids: NDArray[np.int32]  # (n,)
    is_real_example: NDArray[np.int32]  # (n,), 0 for what only fills up a batch


@dataclass(frozen=True)
class RegressionExamples(Examples):
    """The same with a number instead of the class, as STS-B has."""

    features: ClassVar[tuple[Feature, ...]] = (
        *_TOKENS,
        Feature("label_ids", "one", np.float32),
        Feature("is_real_example", "one"),
    )
    title: ClassVar[str] = "regression"

    input_ids: NDArray[np.int32]  # (n, seq)
    input_mask: NDArray[np.int32]  # (n, seq)
    segment_ids: NDArray[np.int32]  # (n, seq)
    label_ids: NDArray[np.float32]  # (n,)
    is_real_example: NDArray[np.int32]  # (n,)


KINDS: tuple[type[Examples], ...] = (
    PretrainingExamples,
    SquadExamples,
    SquadEvalExamples,
    ClassificationExamples,
    RegressionExamples,
)


def rows_in_block(most: int, *, seq: int, pred: int, kind: type[Examples] = PretrainingExamples) -> int:
    """How many records of that shape to read at a time: `most`, or as many as `BLOCK_BYTES` hold, but one at the least.

    >>> rows_in_block(256, seq=512, pred=80), rows_in_block(256, seq=65_535, pred=9_830)
    (256, 4)
    """
    return max(1, min(most, BLOCK_BYTES // kind.bytes_of_record(seq=seq, pred=pred)))
