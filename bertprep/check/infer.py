"""Infer the rules for the records of each split, from manifest and vocabulary, and otherwise from the first records."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertprep.check.record_scan import RecordScan
from bertprep.check.rules import RecordRules, kinds_of_tokens
from bertprep.config import SQUAD_VERSIONS, UNPAIRED
from bertprep.errors import BertprepError
from bertprep.instances import Vocabulary
from bertprep.records.examples import Examples, MaskedExamples, PretrainingExamples, Shape
from bertprep.work.data_set import DataSet

DEFAULT_MASKED_LM_PROB = 0.15
_FIRST_FILES = 10  # of a split, from which the shape of records is inferred if no manifest has it
_FIRST_RECORDS = 1_000  # of each of these files, spread over it; the first block of them is read


@dataclass(frozen=True)
class RecordOptions:
    """Options for checking records: the masking of records without a manifest, and how many records of each file to read."""

    masked_lm_prob: float = DEFAULT_MASKED_LM_PROB
    whole_word: bool = False
    sample: int | None = None
    pred: int | None = None  # of Arrow and Parquet files that do not state their maximum number of predictions


class _First(NamedTuple):
    """Some records of one of the first files of a split. Columnar files (Arrow, Parquet) may not state their pred."""

    split: str
    examples: Examples
    is_columnar: bool


def rules_by_split(data_set: DataSet, vocabulary: Vocabulary | None, options: RecordOptions) -> dict[str, RecordRules]:
    """Return the rules for the records of each split, by "" if the folder has no splits."""
    firsts = list(_read_firsts(data_set))
    return {split: _rules_of(data_set, split, vocabulary, firsts, options) for split in data_set.splits or [""]}


def _read_firsts(data_set: DataSet) -> Iterator[_First]:
    read: Counter[str] = Counter()
    for name, split in data_set.files.items():
        read[split] += 1
        if read[split] > _FIRST_FILES:
            continue
        with contextlib.suppress(BertprepError), RecordScan(data_set.folder / name, name) as scan:
            block = next(scan.intact_blocks(_FIRST_RECORDS), None) if scan.seq else None
            if block:
                yield _First(split, block[0], scan.format.is_columnar)


def _rules_of(
    data_set: DataSet, split: str, vocabulary: Vocabulary | None, firsts: Sequence[_First], options: RecordOptions
) -> RecordRules:
    made_with = data_set.manifest.made_with if data_set.manifest else {}
    if firsts and not isinstance(firsts[0].examples, MaskedExamples):
        firsts = [first for first in firsts if first.split == split] or firsts
    kind, seq, pred = _most_common_shape(firsts)
    first = next((each.examples for each in firsts if each.examples.sizes == (kind, seq, pred)), None)
    of_columns = [each.examples.pred for each in firsts if each.is_columnar]
    pred = max([pred, *of_columns, options.pred or 0]) if of_columns else pred
    is_pretraining = issubclass(kind, MaskedExamples)
    by_manifest = "generator" in made_with and is_pretraining
    if by_manifest:
        kind = MaskedExamples if made_with.get("pairs") == UNPAIRED else PretrainingExamples
    special = {"cls": -1, "sep": -1, "mask": -1, "unk": -1}
    if vocabulary:
        special = {name: getattr(vocabulary, name) for name in special}
    elif first is not None:
        special |= _guess_special_tokens(first)
    labels = made_with.get("labels")
    return RecordRules(
        seq=made_with.get("seq", seq),
        pred=made_with.get("pred", pred) if is_pretraining else 0,
        tokens=len(vocabulary) if vocabulary else 0,
        masked_lm_prob=made_with.get("masked_lm_prob", options.masked_lm_prob),
        whole_word=made_with.get("whole_word", options.whole_word and data_set.manifest is None),
        continues=kinds_of_tokens(vocabulary) if vocabulary else b"",
        may_round_up=data_set.manifest is None,
        pad=_find_pad(data_set, vocabulary, first),
        kind=kind,
        by_manifest=by_manifest,
        labels=len(labels) if isinstance(labels, list) and labels else None,
        may_be_impossible=made_with.get("version") != SQUAD_VERSIONS[0],
        **special,
    )


def _most_common_shape(firsts: Sequence[_First]) -> Shape:
    shapes = Counter(first.examples.sizes for first in firsts)
    return max(shapes, key=shapes.__getitem__, default=Shape(PretrainingExamples, 0, 0))


def _guess_special_tokens(examples: Examples) -> dict[str, int]:
    """Return the most frequent tokens where [CLS], the last [SEP] and [MASK] should be, or -1 if there is none."""
    lengths = np.clip(examples.input_mask.sum(axis=1, dtype=np.int64), 1, examples.seq)
    found = {"cls": examples.input_ids[:, 0], "sep": examples.input_ids[np.arange(len(examples)), lengths - 1]}
    if isinstance(examples, MaskedExamples):
        positions = np.clip(examples.masked_lm_positions, 0, examples.seq - 1).astype(np.int64)
        shown = np.take_along_axis(examples.input_ids, positions, axis=1)
        found["mask"] = shown[examples.masked_lm_weights > 0]
    guessed = {"mask": -1}
    for name, tokens in found.items():
        token = _most_frequent(tokens)
        guessed[name] = -1 if token is None else token
    return guessed


def _find_pad(data_set: DataSet, vocabulary: Vocabulary | None, first: Examples | None) -> int:
    """Return the id of padding from the vocabulary, the manifest, or else the most frequent one in the first records."""
    if vocabulary:
        return vocabulary.pad
    if data_set.manifest and data_set.manifest.vocabulary:
        return int(data_set.manifest.vocabulary.get("pad", 0))
    padding = None if first is None else _most_frequent(first.input_ids[first.input_mask == 0])
    return padding or 0


def _most_frequent(tokens: NDArray[np.int32]) -> int | None:
    values, counts = np.unique(tokens, return_counts=True)
    return int(values[np.argmax(counts)]) if len(values) else None
