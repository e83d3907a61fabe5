"""Assigns documents to text shards: each shard gets a range of document hashes, so the order of the text does not matter.

The ranges are computed from the rows of all runs (`text.runs`): the hash, size and number of copies of each document. A single
text is divided into training shards and, for the highest hashes, test shards. If the user gives a test text, each text is
divided by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bertprep.config import ShardSettings
from bertprep.errors import BertprepError, UsageError
from bertprep.terminal import counted
from bertprep.text.runs import HASHES, read_rows

BYTES_PER_SHARD = 4_000_000
MIN_SHARDS, MAX_SHARDS = 4, 1_024  # if --shards is not given; more only where shards would exceed `MAX_SHARD_BYTES`
MAX_SHARD_BYTES = 64_000_000
MAX_ROWS = 1 << 20
"""Up to this number of documents, a shard may end after any of them; beyond, only where the first 20 bits of hashes change."""

Keys = npt.NDArray[np.uint64]
"""The first 64 bits of each document's hash."""
Range = tuple[int, int]
"""The first hash of a shard, and the first hash after it."""


@dataclass(frozen=True)
class Ranges:
    """The hash range of each shard, by split.

    `in_test` is the number of training documents, copies included, that are left out because the test text has them too.
    """

    training: Sequence[Range]
    test: Sequence[Range]
    in_test: int = 0


def hold_out(rows: Sequence[Path], documents: int, settings: ShardSettings) -> Ranges:
    """Return the ranges for a single text, `settings.test_fraction` of which is held out for testing."""
    keys, sizes = weigh_documents(rows, documents, keep_duplicates=settings.keep_duplicates)
    training, test = count_shards(len(keys), int(sizes.sum()), settings)
    fraction = settings.test_fraction
    fractions = [(1 - fraction) / training] * training + [fraction / max(test, 1)] * test
    ranges = [*pairwise(split_by_hash(keys, sizes, fractions))]
    return Ranges(ranges[:training], ranges[training:])


def divide(
    training_rows: Sequence[Path], documents: int, test_rows: Sequence[Path], test_documents: int, settings: ShardSettings
) -> Ranges:
    """Return the ranges for a training text and a test text; documents that are in both are left out of training.

    Raises `BertprepError` if that leaves no training document.
    """
    keep_duplicates = settings.keep_duplicates
    test_keys, test_sizes = weigh_documents(test_rows, test_documents, keep_duplicates=keep_duplicates)
    left_out = read_keys(test_rows)
    keys, sizes = weigh_documents(training_rows, documents, keep_duplicates=keep_duplicates, left_out=left_out)
    if not len(keys):
        raise BertprepError(
            f"--test-input: contains {'the only document' if documents == 1 else f'all {documents:,} documents'} of the "
            "training text, which leaves none to train on; give a different test text, or --test-fraction to hold out some "
            "documents"
        )
    training, _ = count_shards(len(keys), int(sizes.sum()), replace(settings, test_fraction=0))
    test = min(max(1, round(training * int(test_sizes.sum()) / int(sizes.sum()))), len(test_keys))
    ranges, test_ranges = (
        [*pairwise(split_by_hash(of_split, weights, [1 / shards] * shards))]
        for of_split, weights, shards in ((keys, sizes, training), (test_keys, test_sizes, test))
    )
    return Ranges(ranges, test_ranges, _count_copies(training_rows, left_out))


def read_keys(rows: Sequence[Path], low: int = 0, high: int = HASHES) -> Keys:
    """Return the keys of the documents whose hashes are in a range, sorted."""
    found = [_in_range(read_rows(path)[:, 0], low, high) for path in rows]
    return np.unique(np.concatenate([np.empty(0, np.uint64), *found]))


def _in_range(keys: Keys, low: int, high: int) -> Keys:
    inside: Keys = keys[(keys >= np.uint64(low)) & (keys <= np.uint64(high - 1))]
    return inside


def _count_copies(rows: Sequence[Path], keys: Keys) -> int:
    """Return the number of documents, copies included, that have one of these keys."""
    copies = 0
    for path in rows:
        of_run = read_rows(path)
        copies += int(of_run[np.isin(of_run[:, 0], keys), 2].sum())
    return copies


def weigh_documents(
    paths: Sequence[Path], documents: int, *, keep_duplicates: bool, left_out: Keys | None = None
) -> tuple[Keys, npt.NDArray[np.int64]]:
    """Return the sorted keys of all documents that are not left out, and the bytes that each key adds to the shards.

    If there are more than `MAX_ROWS` documents, those whose hashes begin with the same 20 bits share a key and their sizes are
    added up; a document that occurs in several runs then counts once for each run.
    """
    if documents <= MAX_ROWS:
        rows = _without(np.concatenate([read_rows(path) for path in paths]), left_out)
        keys, first, which = np.unique(rows[:, 0], return_index=True, return_inverse=True)
        copies = np.bincount(which, rows[:, 2]) if keep_duplicates else np.ones(len(keys))
        return keys, rows[first, 1].astype(np.int64) * copies.astype(np.int64)
    total = np.zeros(MAX_ROWS, np.int64)
    shift = np.uint64(64 - (MAX_ROWS - 1).bit_length())
    for path in paths:
        rows = _without(read_rows(path), left_out)
        sizes = rows[:, 1] * rows[:, 2] if keep_duplicates else rows[:, 1]
        total += np.bincount((rows[:, 0] >> shift).astype(np.int64), sizes.astype(np.float64), MAX_ROWS).astype(np.int64)
    filled = np.flatnonzero(total)
    return filled.astype(np.uint64) << shift, total[filled]


def _without(rows: npt.NDArray[np.uint64], left_out: Keys | None) -> npt.NDArray[np.uint64]:
    return rows if left_out is None else rows[~np.isin(rows[:, 0], left_out)]


def count_shards(documents: int, text_bytes: int, settings: ShardSettings) -> tuple[int, int]:
    """Return the numbers of training and test shards for distinct documents with `text_bytes` in total.

    The shards of both splits are meant to have the same size. Raises `UsageError` if there are too few documents.
    """
    fraction = settings.test_fraction
    min_test = 1 if fraction else 0
    most = documents - min_test
    if most < 1:
        raise UsageError(
            f"--test-fraction {fraction}: the text is a single document, which cannot be both training and test data; "
            "give more documents, each in its own file or, without --one-document-per-file, separated by blank lines; or give "
            "--test-fraction 0"
        )
    if settings.shards is None:
        by_size = -(-text_bytes // BYTES_PER_SHARD)
        by_documents = max(1, min(most, int(documents * (1 - fraction))))
        training = min(max(by_size, MIN_SHARDS), max(MAX_SHARDS, text_bytes // MAX_SHARD_BYTES), by_documents)
    elif settings.shards > most:
        kept = ", one of them for testing" if fraction else ""
        raise UsageError(
            f"--shards {settings.shards}: the text has {counted(documents, 'document')}{kept}; give at most {most:,}"
        )
    else:
        training = settings.shards
    test = max(min_test, min(round(training * fraction / (1 - fraction)), documents - training))
    return training, test


def split_by_hash(keys: npt.NDArray[np.uint64], sizes: npt.NDArray[np.int64], fractions: Sequence[float]) -> list[int]:
    """Return the bounds of the shards' hash ranges: one more value than there are shards, from 0 to 2**64.

    `fractions` are the fractions of the bytes for each shard, test shards last. Each shard ends at the document boundary that
    is nearest to its fraction, and has at least one of the sorted `keys`.

    >>> split_by_hash(np.array([5, 6, 7, 8], np.uint64), np.array([50, 10, 10, 30]), [0.5, 0.4, 0.1])
    [0, 6, 8, 18446744073709551616]
    """
    total = np.cumsum(sizes)
    steps = np.arange(1, len(fractions))
    first = np.searchsorted(total - sizes / 2, np.cumsum(fractions)[:-1] * total[-1])  # the nearest document boundaries
    first = np.maximum.accumulate(first - steps) + steps
    first = np.clip(first, steps, len(keys) - len(fractions) + steps)
    return [0, *keys[first].tolist(), HASHES]
