"""Chooses the number of shards and assigns whole documents to them: balanced, with training and test kept apart.

Each document in turn goes to the shard that is least full, relative to its target fraction of the text. So every shard has
documents from all over the corpus and misses its target by at most one document, and the test data is a cross-section of the
text, not its end. Depends only on the documents' sizes; costs a microsecond a document.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapreplace

import numpy as np
import numpy.typing as npt

from bertprep.config import ShardSettings
from bertprep.errors import UsageError
from bertprep.terminal import counted

BYTES_PER_SHARD = 4_000_000
FEWEST_SHARDS, MOST_SHARDS = 4, 1_024  # without --shards


@dataclass(frozen=True)
class ShardCounts:
    """The number of shards of each split; the test fraction of the text is spread over the test shards."""

    training: int
    test: int
    test_fraction: float

    def fractions(self) -> list[float]:
        """The target fraction of the text of each shard: the training shards, then the test shards."""
        training = (1 - self.test_fraction) / self.training
        return [training] * self.training + [self.test_fraction / max(self.test, 1)] * self.test


def count_shards(size_bytes: npt.NDArray[np.int64], settings: ShardSettings) -> ShardCounts:
    """The number of shards for documents of these sizes.

    Every shard gets at least one document. Test shards are as large as training shards, up to rounding; there is at least one
    if any text is held out. Raises `UsageError` if there are too few documents.
    """
    documents, fraction = len(size_bytes), settings.test_fraction
    fewest_for_test = 1 if fraction else 0
    most = documents - fewest_for_test
    if most < 1:
        raise UsageError(
            f"--test-fraction {fraction}: the text is a single document, which cannot be both training and test data; "
            "give more documents, with a blank line after each, or --test-fraction 0"
        )
    if settings.shards is None:
        by_size = -(-int(size_bytes.sum()) // BYTES_PER_SHARD)
        by_documents = max(1, min(most, int(documents * (1 - fraction))))
        training = min(max(by_size, FEWEST_SHARDS), MOST_SHARDS, by_documents)
    elif settings.shards > most:
        kept = ", one of them for testing" if fraction else ""
        raise UsageError(
            f"--shards {settings.shards}: the text has {counted(documents, 'document')}{kept}; ask for at most {most:,}"
        )
    else:
        training = settings.shards
    test = max(fewest_for_test, min(round(training * fraction / (1 - fraction)), documents - training))
    return ShardCounts(training, test, fraction)


def assign_documents(size_bytes: npt.NDArray[np.int64], fractions: list[float]) -> npt.NDArray[np.int32]:
    """The shard of each document; among equally full shards the first one gets it.

    >>> assign_documents(np.array([50, 50, 10, 10, 40, 5, 5, 10]), [0.45, 0.45, 0.1])
    array([0, 1, 2, 2, 0, 1, 1, 1], dtype=int32)
    """
    return np.fromiter(_choose_shards(size_bytes, fractions), np.int32, count=len(size_bytes))


def _choose_shards(size_bytes: npt.NDArray[np.int64], fractions: list[float]) -> Iterator[int]:
    filled_bytes = [0] * len(fractions)
    least_filled = [(0.0, shard) for shard in range(len(fractions))]  # a heap
    for size in size_bytes.data:  # one int at a time; tolist would create one for each document
        shard = least_filled[0][1]
        filled_bytes[shard] += size
        heapreplace(least_filled, (filled_bytes[shard] / fractions[shard], shard))
        yield shard
