"""Defines `Examples`, a block of records as a NumPy record array, with a class for each kind of record.

A kind has the feature names of Google's `create_pretraining_data.py`, `run_squad.py` or `run_classifier.py`. Values are as they
are in the file, even wrong ones. Reading into the same block again is a third faster than reading into new ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from bertprep.config import InstanceSettings
from bertprep.errors import BertprepError
from bertprep.kernels.numbers import MAX_BYTE, MAX_INT32

if TYPE_CHECKING:
    from typing_extensions import Self

MAX_VALUES = 65_535
"""The most values of a feature in one record. `create` never makes more, so a record that has more is not for BERT."""
BLOCK_BYTES = 4 << 20
"""The largest size of a block that is read, checked and then overwritten by the next one."""

Width: TypeAlias = Literal["seq", "pred", "one"]
"""How many values a feature has in a record: one per token, one per prediction, or one."""
Values: TypeAlias = Literal["token", "flag", "segment", "position", "id", "class", "weight", "score"]
"""The meaning of the values, which decides how large they may be; weights and scores are floats."""


class Feature(NamedTuple):
    """A feature of one kind of record, and its column in Arrow and Parquet files, if it has one."""

    name: str
    width: Width
    values: Values
    column: str = ""
    column_dtype: type[np.int8 | np.int32 | np.int64 | np.float32] = np.int32

    @property
    def dtype(self) -> type[np.uint8 | np.int32 | np.float32]:
        if self.values in ("weight", "score"):
            return np.float32
        return np.uint8 if self.values in ("flag", "segment") else np.int32


_TOKENS = (
    Feature("input_ids", "seq", "token", "input_ids"),
    Feature("input_mask", "seq", "flag", "attention_mask", np.int8),
    Feature("segment_ids", "seq", "segment", "token_type_ids", np.int8),
)
_IS_REAL = Feature("is_real_example", "one", "flag", "is_real_example", np.int8)


class Examples(np.recarray[Any, Any]):
    """n records of one kind as a NumPy record array, which has a field for each feature, in the order of writing.

    Values are int32; masks, segments and other flags are uint8, and weights and scores float32. `examples.input_ids` is a view,
    and an assignment to it copies the values. `examples[3]` is a record, `examples[3:7]` is a view of several, and a list or a
    mask of indices gives a copy.

    >>> examples = PretrainingExamples.empty(1000, seq=128, pred=20)
    >>> len(examples), examples[:10].input_ids.shape
    (1000, (10, 128))
    """

    features: ClassVar[tuple[Feature, ...]]
    title: ClassVar[str]
    """The name of the kind in messages, such as "pretraining" or "SQuAD"."""

    input_ids: NDArray[np.int32]  # (n, seq)
    input_mask: NDArray[np.uint8]  # (n, seq)
    segment_ids: NDArray[np.uint8]  # (n, seq)

    def __new__(cls, *arrays: NDArray[Any], **named: NDArray[Any]) -> Self:
        """Return records with the values of these arrays: one array for each feature, given by position or by name.

        Raises `TypeError` or `ValueError` if an array does not fit.
        """
        names = [feature.name for feature in cls.features]
        if len(arrays) > len(names):
            raise TypeError(f"{cls.__name__}: expected {len(names)} arrays, {', '.join(names)}; found {len(arrays)}")
        given = dict(zip(names, arrays, strict=False))
        if sorted([*given, *named]) != sorted(names):
            raise TypeError(f"{cls.__name__}: expected arrays for {', '.join(names)}; found {', '.join([*given, *named])}")
        given |= named
        for feature in cls.features:
            _check_array(f"{cls.__name__}: {feature.name}", given[feature.name], feature)
        seq = given["input_ids"].shape[1]
        pred = next((given[each.name].shape[1] for each in cls.features if each.width == "pred"), 0)
        examples = cls.empty(len(given["input_ids"]), seq=seq, pred=pred)
        for name in names:
            array, field = given[name], getattr(examples, name)
            if array.shape != field.shape:
                raise ValueError(f"{cls.__name__}: {name} has shape {array.shape}, expected {field.shape} like the others")
            _check_bytes(f"{cls.__name__}: {name}", array, field)
            field[...] = array
        return examples

    @classmethod
    def dtype_for(cls, *, seq: int, pred: int = 0) -> np.dtype[Any]:
        """Return the NumPy type of a record with `seq` tokens and space for `pred` predictions."""
        shapes: dict[Width, tuple[int, ...]] = {"seq": (seq,), "pred": (pred,), "one": ()}
        return np.dtype([(each.name, each.dtype, shapes[each.width]) for each in cls.features], align=True)

    @classmethod
    def empty(cls, count: int, *, seq: int, pred: int = 0) -> Self:
        """Return `count` records with arbitrary values, for reading into."""
        return np.empty(count, cls.dtype_for(seq=seq, pred=pred)).view(cls)

    if TYPE_CHECKING:

        @overload  # type: ignore[override]
        def __getitem__(self, rows: slice | NDArray[Any] | list[int]) -> Self: ...
        @overload
        def __getitem__(self, rows: Any) -> Any: ...
        def __getitem__(self, rows: Any) -> Any: ...

    __getattribute__ = np.ndarray.__getattribute__  # np.recarray's takes a microsecond for every attribute

    def __getattr__(self, name: str) -> Any:
        return np.recarray.__getattribute__(self, name)  # finds fields

    def __setattr__(self, name: str, values: Any) -> None:
        """Copy values into the field of a feature; raise `AttributeError` if there is no such feature."""
        names = self.dtype.names or ()
        if name not in (*names, "dtype"):
            raise AttributeError(f"{type(self).__name__}: its records have no feature {name}")
        if name in names:
            _check_bytes(f"{type(self).__name__}: {name}", values, self[name])
        super().__setattr__(name, values)

    @classmethod
    def feature(cls, name: str) -> Feature:
        return next(feature for feature in cls.features if feature.name == name)

    @property
    def sizes(self) -> Shape:
        """Return the shape of the records: their kind, and how many tokens and predictions each has."""
        pred = next((self.dtype[each.name].shape[0] for each in self.features if each.width == "pred"), 0)
        return Shape(type(self), self.dtype["input_ids"].shape[0], pred)

    @property
    def seq(self) -> int:
        return self.sizes.seq

    @property
    def pred(self) -> int:
        return self.sizes.pred

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Return views of the fields in the order of the features: (n, values) or (n,)."""
        return tuple(getattr(self, feature.name) for feature in self.features)

    def find_negative(self) -> str:
        """Describe the first negative integer, which record files cannot contain; return "" if there is none."""
        for feature, array in zip(self.features, self.arrays, strict=True):
            values = array.reshape(len(array), -1)
            if array.dtype == np.int32 and values.min(initial=0) < 0:
                row, position = np.argwhere(values < 0)[0].tolist()
                what = f"{feature.name}[{position}]" if array.ndim > 1 else feature.name
                return f"record {row}: {what} is {values[row, position]:,}, expected 0 to {MAX_INT32:,}"
        return ""


def _check_bytes(what: str, values: Any, field: NDArray[Any]) -> None:
    """Raise `ValueError` for a value that does not fit a field of bytes; NumPy would silently keep its lowest eight bits."""
    if field.dtype != np.uint8:
        return
    values = np.asarray(values)
    if values.size and not 0 <= values.min() <= values.max() <= MAX_BYTE:
        wrong = values[(values < 0) | (values > MAX_BYTE)][0]
        raise ValueError(f"{what} has the value {wrong}, expected 0 to {MAX_BYTE}")


def _check_array(what: str, array: Any, feature: Feature) -> None:
    """Raise `TypeError` unless this is an array with the feature's number of axes and a type that fits int32 or float32."""
    if not isinstance(array, np.ndarray) or array.ndim != (1 if feature.width == "one" else 2):
        found = f"an array of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        expected = "(n,)" if feature.width == "one" else f"(n, {feature.width})"
        raise TypeError(f"{what} is {found}, expected an array of shape {expected}")
    widest = np.dtype(np.float32 if feature.dtype == np.float32 else np.int32)
    if not np.can_cast(array.dtype, widest):
        raise TypeError(f"{what} is an array of {array.dtype}, expected {widest}; convert it with astype")


class MaskedExamples(Examples):
    """Records of full sentences: seq tokens with up to pred masked ones, and no next-sentence label."""

    features: ClassVar[tuple[Feature, ...]] = (
        *_TOKENS,
        Feature("masked_lm_positions", "pred", "position"),
        Feature("masked_lm_ids", "pred", "token", "labels"),  # the column combines all three features
        Feature("masked_lm_weights", "pred", "weight"),
    )
    title = "unpaired pretraining"

    masked_lm_positions: NDArray[np.int32]  # (n, pred)
    masked_lm_ids: NDArray[np.int32]  # (n, pred)
    masked_lm_weights: NDArray[np.float32]  # (n, pred)


class PretrainingExamples(MaskedExamples):
    """Records of two segments with up to pred masked tokens, and a next-sentence label: 1 if the second segment is random."""

    features = (*MaskedExamples.features, Feature("next_sentence_labels", "one", "flag", "next_sentence_label", np.int64))
    title = "pretraining"

    next_sentence_labels: NDArray[np.uint8]  # (n,)


class SquadEvalExamples(Examples):
    """Windows of a SQuAD context: [CLS] question [SEP] part of the context [SEP]. The answers are only in the JSON file."""

    features: ClassVar[tuple[Feature, ...]] = (Feature("unique_ids", "one", "id", "unique_ids"), *_TOKENS)
    title = "SQuAD evaluation"

    unique_ids: NDArray[np.int32]  # (n,)


class SquadExamples(SquadEvalExamples):
    """Windows of a SQuAD context with the answer's positions; both are 0 if the answer is not in the window."""

    features = (
        *SquadEvalExamples.features,
        Feature("start_positions", "one", "position", "start_positions"),
        Feature("end_positions", "one", "position", "end_positions"),
        Feature("is_impossible", "one", "flag", "is_impossible", np.int8),
    )
    title = "SQuAD"

    start_positions: NDArray[np.int32]  # (n,)
    end_positions: NDArray[np.int32]  # (n,), of the answer's last token
    is_impossible: NDArray[np.uint8]  # (n,)


class ClassificationExamples(Examples):
    """Sentences or pairs with a class: [CLS] A [SEP] or [CLS] A [SEP] B [SEP]."""

    features = (*_TOKENS, Feature("label_ids", "one", "class", "labels", np.int64), _IS_REAL)
    title = "classification"

    label_ids: NDArray[np.int32]  # (n,)
    is_real_example: NDArray[np.uint8]  # (n,), 0 for a record that only fills up a batch


class RegressionExamples(Examples):
    """Sentences or pairs with a score instead of a class, as in STS-B."""

    features = (*_TOKENS, Feature("label_ids", "one", "score", "labels", np.float32), _IS_REAL)
    title = "regression"

    label_ids: NDArray[np.float32]  # (n,)
    is_real_example: NDArray[np.uint8]  # (n,)


class TokenClassificationExamples(Examples):
    """Sentences with a label at the first token of each word: [CLS] A [SEP]."""

    features = (*_TOKENS, Feature("label_ids", "seq", "class", "labels"), Feature("label_weights", "seq", "weight"))
    title = "token classification"

    label_ids: NDArray[np.int32]  # (n, seq)
    label_weights: NDArray[np.float32]  # (n, seq), 1 where there is a label


class Shape(NamedTuple):
    """The shape that all records of a file share: their kind, and how many tokens and predictions each has."""

    kind: type[Examples]
    seq: int
    pred: int

    def __str__(self) -> str:
        predictions = f" and {self.pred} predictions" if self.pred else ""
        return f"{self.kind.title} records of {self.seq} tokens{predictions}"

    @property
    def itemsize(self) -> int:
        """Return the size of a record in memory, in bytes."""
        return self.kind.dtype_for(seq=self.seq, pred=self.pred).itemsize

    @property
    def counts(self) -> list[int]:
        counts: dict[Width, int] = {"seq": self.seq, "pred": self.pred, "one": 1}
        return [counts[feature.width] for feature in self.kind.features]

    def check_same(self, path: Path, expected: Shape, other: Path, advice: str) -> None:
        """Raise `BertprepError` if this shape, which the records of `path` have, differs from the shape of the file `other`."""
        if self.kind != expected.kind:
            found, wanted = self.kind.title, expected.kind.title
            raise BertprepError(f"{path}: has {found} records, expected {wanted} records like {other}; {advice}")
        if self != expected:
            found, wanted = f"{self.seq} tokens", f"{expected.seq}"
            if expected.pred:
                found, wanted = f"{found} and {self.pred} predictions", f"{wanted} and {expected.pred}"
            raise BertprepError(f"{path}: has records of {found}, expected {wanted} like {other}; {advice}")


KINDS: tuple[type[Examples], ...] = (
    PretrainingExamples,
    MaskedExamples,
    SquadExamples,
    SquadEvalExamples,
    ClassificationExamples,
    RegressionExamples,
    TokenClassificationExamples,
)


def kind_made_with(settings: InstanceSettings) -> type[MaskedExamples]:
    """Return the kind of records that `create` makes with these settings."""
    return PretrainingExamples if settings.has_pairs else MaskedExamples


def rows_in_block(most: int, *, seq: int, pred: int, kind: type[Examples] = PretrainingExamples) -> int:
    """Return the number of records to read at a time: `most`, or fewer if they do not fit in `BLOCK_BYTES`, but at least one.

    >>> rows_in_block(256, seq=512, pred=80), rows_in_block(256, seq=65_535, pred=9_830)
    (256, 8)
    """
    return max(1, min(most, BLOCK_BYTES // Shape(kind, seq, pred).itemsize))


def kind_of(lists: Mapping[str, bool]) -> type[Examples]:
    """Return the kind of record with these features, or else the kind that shares most of them.

    `lists` maps the name of each feature to whether its list has floats.
    """

    def fitness(kind: type[Examples]) -> tuple[int, bool, int]:
        found = [feature for feature in kind.features if feature.name in lists]
        of_that_type = [feature for feature in found if lists[feature.name] == (feature.dtype == np.float32)]
        return len(found), len(found) == len(kind.features), len(of_that_type)

    return max(KINDS, key=fitness)  # the first of equals
