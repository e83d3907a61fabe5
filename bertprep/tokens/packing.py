"""Split long documents into sequences, and pack the sequences into rows with little padding.

The algorithm is best-fit decreasing: it takes the longest sequence first, and puts each into the fullest row that has room for
it. With log-normal documents (median 400 tokens, sigma 1) it leaves 0.04% padding at 512 and 1,024 tokens, and takes 0.2
microseconds per document.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.errors import BertprepError, UsageError
from bertprep.files.paths import is_object
from bertprep.pool import map_in_threads
from bertprep.tokens.documents import TokenDocuments
from bertprep.tokens.kept_windows import KeptNumbers, KeptWindows, keep_windows, key_of, open_windows
from bertprep.tokens.shard import IDX, TokenShard

WINDOW_TOKENS = 1 << 22
MIN_WINDOWS = 8
"""A data set with fewer windows is packed again in each run, since that takes little time."""
_WINDOWS_HELD = 256  # in memory; 25 MB if documents have 400 tokens and the windows are not mapped from the cache
_WINDOWS_AT_ONCE = 64


@dataclass(frozen=True)
class Window:
    """The rows of consecutive documents: row r has the sequences row_starts[r] to row_starts[r + 1] - 1.

    Sequence s is tokens[begins[s] : begins[s] + sizes[s]], without special tokens. `tokens` are those of a shard from token
    `first` on, and `word_bits` their bits in the .words file.
    """

    tokens: NDArray[np.uint16] | NDArray[np.int32]
    word_bits: NDArray[np.uint8] | None
    first: int
    begins: NDArray[np.uint32]
    sizes: NDArray[np.int32]
    row_starts: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.row_starts) - 1

    @cached_property
    def addresses(self) -> list[int]:
        """The addresses of the arrays and the size of an id, in the order that WINDOW_WIDTH in `kernels.numbers` defines."""
        bits = 0 if self.word_bits is None else self.word_bits.ctypes.data
        arrays = self.begins, self.sizes, self.row_starts
        return [self.tokens.ctypes.data, self.tokens.itemsize, bits, *(array.ctypes.data for array in arrays)]

    @property
    def more_numbers(self) -> list[NDArray[np.uint32]]:
        """Further arrays that a subclass has for its rows, and that are kept with them."""
        return []

    @property
    def numbers(self) -> KeptNumbers:
        """The window's arrays in the form that the cache keeps."""
        arrays = self.row_starts.view(np.uint32), self.begins, self.sizes.view(np.uint32), *self.more_numbers
        return KeptNumbers(np.concatenate(arrays), len(self), len(self.sizes))


@dataclass(frozen=True)
class DocumentChoice:
    """Which documents are read: those of `least` to `most` tokens, not counting special tokens, and held out or not.

    A document is held out by a hash of its size and its outer tokens, so that equal documents are on one side, and all readers
    agree.
    """

    least: int = 1
    most: int | None = None
    held_out: float = 0.0
    only_held_out: bool = False
    seed: int = 0

    def take(self, shard: TokenShard, first: int, end: int) -> NDArray[np.bool_]:
        """Return which of the documents `first` to `end` - 1 of a shard are read: (documents,)."""
        starts = shard.starts[first : end + 1]
        sizes = np.diff(starts)
        is_taken = sizes >= self.least
        if self.most is not None:
            is_taken &= sizes <= self.most
        if self.held_out:
            is_held_out = hash_documents(shard.mapped, starts, self.seed) < self.held_out * 2.0**64
            is_taken &= is_held_out == self.only_held_out
        return is_taken

    def check(self, documents: TokenDocuments) -> None:
        """Raise `UsageError` if no document is read."""
        shortest, longest = sys.maxsize, 0
        for shard in documents.shards:
            if self.take(shard, 0, shard.sizes[0]).any():
                return
            sizes = np.diff(shard.starts)
            shortest, longest = min(shortest, int(sizes.min())), max(longest, int(sizes.max()))
        asked = f"at least {self.least:,} tokens" if self.most is None else f"{self.least:,} to {self.most:,} tokens"
        advice = "choose a range that some documents are in"
        if self.held_out:
            asked += f" and is {'' if self.only_held_out else 'not '}held out"
            advice += f", or hold out {'more' if self.only_held_out else 'less'} than {self.held_out:g} of them"
        raise UsageError(
            f"{documents.folder}: none of its {documents.documents:,} documents has {asked}; they have {shortest:,} to "
            f"{longest:,} tokens; {advice}"
        )


_HASHED_TOKENS = 16  # at either end of a document


def hash_documents(tokens: NDArray[Any], starts: NDArray[np.int64], seed: int) -> NDArray[np.uint64]:
    """Return a hash of each document's size and of the tokens at its ends: (documents,), evenly over all numbers of 64 bits.

    Document d has the tokens starts[d] to starts[d + 1] - 1, at least one.
    """
    first, last = starts[:-1], starts[1:] - 1
    hashes: NDArray[np.uint64] = _mix((last - first).astype(np.uint64) ^ np.uint64(seed & (2**64 - 1)))
    for offset in range(_HASHED_TOKENS):
        for index in (np.minimum(first + offset, last), np.maximum(last - offset, first)):
            hashes = _mix(hashes ^ tokens[index].astype(np.uint64))
    return hashes


def _mix(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return splitmix64 of each number."""
    mixed: NDArray[np.uint64] = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


class Windows:
    """The rows of documents, in windows of `WINDOW_TOKENS` consecutive tokens of a shard.

    Windows are packed once, and kept in the user's cache (`kept_windows`). A window that is not in the cache is packed when it
    is needed. The most recently used windows stay in memory.
    """

    def __init__(self, documents: TokenDocuments, *, seq: int, packed: bool, choice: DocumentChoice | None = None) -> None:
        """Prepare the windows without packing any; without a `choice`, all documents are packed."""
        self._documents, self._shards = documents, documents.shards
        self._seq, self._packed, self._choice = seq, packed, choice
        self._added = documents.tokenizer.added_tokens
        self._firsts = np.cumsum([0, *(-(-shard.sizes[1] // WINDOW_TOKENS) for shard in self._shards)])  # (shards + 1,)
        self.get = lru_cache(_WINDOWS_HELD)(self._make)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """The number of rows in each window: (windows,). The first use packs all windows on all cores, unless they are kept."""
        windows = int(self._firsts[-1])
        if windows < MIN_WINDOWS:
            return np.array(map_in_threads(lambda window: len(self.get(window)), range(windows)), np.int64)
        if self._kept is None:
            self._kept = keep_windows(self._key, windows, self._pack_all, since=self._changed)
        return self._kept.rows

    @cached_property
    def _kept(self) -> KeptWindows | None:
        """The windows that an earlier run kept, or None."""
        windows = int(self._firsts[-1])
        return None if windows < MIN_WINDOWS else open_windows(self._key, windows, since=self._changed)

    @property
    def _key(self) -> str:
        return key_of(int(self._firsts[-1]), self._depends_on)

    @property
    def _changed(self) -> float:
        """When the shards were last changed, in seconds; windows kept before that may be those of other files."""
        return max((shard.paths[IDX].stat().st_mtime for shard in self._shards if not is_object(shard.path)), default=0.0)

    @property
    def _depends_on(self) -> dict[str, Any]:
        """Everything that the rows of windows depend on."""
        return {
            "documents": self._documents.sha256, "window_tokens": WINDOW_TOKENS,
            "seq": self._seq, "packed": self._packed, "added": self._added,
            **({} if self._choice is None else asdict(self._choice)),
        }  # fmt: skip

    def _pack_all(self) -> Iterator[KeptNumbers]:
        """Pack and yield all windows; only a block of them and the indices of their shards are in memory at a time."""
        windows, opened = int(self._firsts[-1]), dict[int, TokenShard]()
        for start in range(0, windows, _WINDOWS_AT_ONCE):
            block = range(start, min(start + _WINDOWS_AT_ONCE, windows))
            needed = {self._index_of_shard(window) for window in block}
            opened = {index: opened.get(index) or replace(self._shards[index]) for index in needed}
            for shard in opened.values():
                shard.starts  # noqa: B018 - read here, so that the threads do not all read it at once
            of_block = map_in_threads(lambda window: self._pack(window, opened[self._index_of_shard(window)]).numbers, block)  # noqa: B023
            yield from of_block

    def shard_of(self, window: int) -> TokenShard:
        """Return the token shard that contains a window."""
        return self._shards[self._index_of_shard(window)]

    def lengths(self, window: int) -> NDArray[np.int32]:
        """Return the number of tokens in each row of a window, with special tokens; rows must have one sequence each."""
        lengths: NDArray[np.int32] = self.get(window).sizes + np.int32(self._added)
        return lengths

    def close(self) -> None:
        """Free the memory of the windows; windows that are needed later are read or packed again."""
        self.get.cache_clear()

    def _index_of_shard(self, window: int) -> int:
        return int(np.searchsorted(self._firsts, window, side="right")) - 1

    def _begin_of(self, window: int) -> int:
        """Return the position in its shard of a window's first token."""
        return (window - int(self._firsts[self._index_of_shard(window)])) * WINDOW_TOKENS

    def _documents_of(self, window: int, shard: TokenShard) -> tuple[int, int]:
        """Return the range of a window's documents in its shard: the first, and the one after the last."""
        begin = self._begin_of(window)
        first, end = np.searchsorted(shard.starts[:-1], [begin, begin + WINDOW_TOKENS]).tolist()
        return first, end

    def _make(self, window: int) -> Window:
        shard = self.shard_of(window)
        tokens = len(self._tokens_of(window, shard)[0])
        kept = None if self._kept is None else self._kept.get(window, lambda found: self._fit(found, tokens))
        return self._pack(window, shard) if kept is None else self._window(window, shard, kept)

    def _pack(self, window: int, shard: TokenShard) -> Window:
        first, end = self._documents_of(window, shard)
        starts = shard.starts[first : end + 1]
        is_taken = None if self._choice is None else self._choice.take(shard, first, end)
        begins, sizes = split_documents(starts, self._seq - self._added, is_taken)
        row_starts = np.arange(len(sizes) + 1)
        if self._packed:
            order, row_starts = pack_sequences(sizes + np.int32(self._added), self._seq)
            begins, sizes = begins[order], sizes[order]
        return Window(
            *self._tokens_of(window, shard), self._from_first(window, shard, begins), sizes, row_starts.astype(np.int32)
        )

    def _window(self, window: int, shard: TokenShard, kept: KeptNumbers) -> Window:
        """Return a window from its kept arrays."""
        row_starts, begins, sizes, _ = kept.split()
        return Window(*self._tokens_of(window, shard), begins, sizes.view(np.int32), row_starts.view(np.int32))

    def _fit(self, kept: KeptNumbers, tokens: int) -> bool:
        """Return whether kept arrays are those of rows of a shard that has `tokens` tokens from the start of the window on."""
        return kept.fit(tokens, self._seq, self._added)

    def _tokens_of(self, window: int, shard: TokenShard) -> tuple[NDArray[Any], NDArray[np.uint8] | None, int]:
        """Return the tokens and word bits of a shard from about the start of a window on, and the position of the first."""
        first = self._begin_of(window) // 8 * 8  # rounded down to where a byte of word bits begins
        return shard.mapped[first:], None if shard.words is None else shard.words[first // 8 :], first

    def _from_first(self, window: int, shard: TokenShard, begins: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Return where sequences begin, counted from the first token of `_tokens_of`."""
        from_first = begins - self._begin_of(window) // 8 * 8
        if from_first.max(initial=0) >= 1 << 32:
            raise BertprepError(f"{shard.path}: has a document of more than {1 << 32:,} tokens; split it into several")
        return from_first.astype(np.uint32)


def split_documents(
    starts: NDArray[np.int64], longest: int, is_taken: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Split documents into sequences of at most `longest` tokens, and return where each begins and its size.

    Document d has the tokens starts[d] to starts[d + 1] - 1. Documents whose `is_taken` is False are left out.

    >>> begins, sizes = split_documents(np.array([0, 7, 7, 9]), longest=3)
    >>> begins.tolist(), sizes.tolist()
    ([0, 3, 6, 7], [3, 3, 1, 2])
    """
    of_document = -(-np.diff(starts) // longest)
    if is_taken is not None:
        of_document[~is_taken] = 0
    first = np.repeat(np.cumsum(of_document) - of_document, of_document)
    begins = np.repeat(starts[:-1], of_document) + longest * (np.arange(len(first)) - first)
    sizes = np.minimum(longest, np.repeat(starts[1:], of_document) - begins)
    return begins, sizes.astype(np.int32)


def pack_sequences(sizes: NDArray[np.int32], capacity: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pack sequences into rows; return the indices of the sequences row by row, and where each row starts among them.

    Within a row the indices ascend.

    >>> order, row_starts = pack_sequences(np.array([3, 5, 2, 4], np.int32), capacity=8)
    >>> [row.tolist() for row in np.split(order, row_starts[1:-1])]
    [[0, 1], [2, 3]]
    """
    longest_first = np.argsort(-sizes, kind="stable")
    rows, older = np.empty_like(sizes), np.empty_like(sizes)
    spaces, newest = np.zeros((capacity >> 6) + 1, np.uint64), np.empty(capacity + 1, np.int32)
    count = kernels.load().pack(sizes, longest_first, len(sizes), capacity, spaces, newest, older, rows)
    return np.argsort(rows, kind="stable"), np.searchsorted(np.sort(rows), np.arange(count + 1))
