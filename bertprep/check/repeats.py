"""Find records or documents that repeat in several files, by two hashes of each.

Only rows whose first hash occurs more than once are compared further; they are few. Sorting takes 24 bytes per row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from bertprep.check.counts import Ints, distinct
from bertprep.check.finding import ERROR, Finding
from bertprep.check.outcome import CheckedFile

Hashes = NDArray[np.uint64]
HASH_BYTES = 16
"""The size of both hashes of a row."""


class Repeats:
    """The rows of several files whose first hash occurs more than once, in order. An id is a row's index over all files."""

    def __init__(self, files: Sequence[CheckedFile]) -> None:
        self.files = files
        self.starts: Ints = np.cumsum([0, *(len(file.hashes) for file in files)])
        self.ids: Ints = _more_than_once([file.hashes[:, 0] for file in files])
        self.file: Ints = self.file_of(self.ids)
        self.hashes: Hashes = self._read_hashes()
        self.first: Ints = self.ids[first_equal(self.hashes)]
        """For each row the id of the first row with the same two hashes, which may be the row itself."""
        self.first_alike: Ints = self.ids[first_equal(self.hashes[:, :1])]
        """For each row the id of the first row with the same first hash."""

    def _read_hashes(self) -> Hashes:
        hashes = np.empty((len(self.ids), 2), np.uint64)
        ends = np.searchsorted(self.ids, self.starts)
        for file, start, begin, end in zip(self.files, self.starts, ends, ends[1:], strict=False):
            hashes[begin:end] = file.hashes[self.ids[begin:end] - start]
        return hashes

    def file_of(self, ids: Ints) -> Ints:
        """Return the index of the file that each row is in."""
        files: Ints = np.searchsorted(self.starts, ids, side="right") - 1
        return files

    def row_of(self, row: int) -> tuple[CheckedFile, int]:
        """Return the file of a row with this id, and its index in the file."""
        file = int(self.file_of(np.array([row]))[0])
        return self.files[file], row - int(self.starts[file])


def _more_than_once(hashes: Sequence[Hashes]) -> Ints:
    """Return the indices, over all arrays, of the hashes that occur more than once, in ascending order."""
    joined = np.concatenate([np.empty(0, np.uint64), *hashes])
    order = np.argsort(joined, kind="stable")
    ordered = joined[order]
    is_next = ordered[1:] == ordered[:-1]
    return distinct(np.concatenate([order[:-1][is_next], order[1:][is_next]]))


def first_equal(hashes: Hashes) -> Ints:
    """Return for each row of `hashes`, (n, k), the index of the first row that equals it.

    >>> first_equal(np.array([[7, 1], [3, 4], [7, 1], [7, 2], [7, 1]], np.uint64))
    array([0, 1, 0, 3, 0])
    """
    order = np.lexsort(hashes.T)  # stable, so that equal rows stay in order
    ordered = hashes[order]
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    first = np.empty(len(order), np.int64)
    first[order] = order[is_new][np.cumsum(is_new) - 1]
    return first


def find_repeated_documents(files: Sequence[CheckedFile], level: str, unit: str) -> Iterator[Finding]:
    """Yield at most two findings per file: documents that repeat within a split, and documents that repeat across splits.

    Documents are identified by the `unit` at which they begin, such as a line.
    """
    repeats = Repeats(files)
    is_later = repeats.first != repeats.ids
    later, first, file_of_later = repeats.ids[is_later], repeats.first[is_later], repeats.file[is_later]
    splits = sorted({file.split for file in files})
    split_of_file = np.array([splits.index(file.split) for file in files], np.int64)
    is_across = split_of_file[file_of_later] != split_of_file[repeats.file_of(first)]
    for code, level_of_code, expected, is_chosen in (
        ("document-twice", level, "each document once", ~is_across),
        ("document-in-both-splits", ERROR, "no test document in training", is_across),
    ):
        chosen = np.flatnonzero(is_chosen)
        _, at, counts = np.unique(file_of_later[chosen], return_index=True, return_counts=True)
        for example, count in zip(chosen[at].tolist(), counts.tolist(), strict=True):
            here, row = repeats.row_of(int(later[example]))
            origin, origin_row = repeats.row_of(int(first[example]))
            found = f"the document of {origin.name}, {unit} {origin.lines[origin_row]:,}"
            yield Finding(code, here.name, expected, found, int(here.lines[row]), count, level_of_code)
