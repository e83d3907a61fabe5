"""Token shards for pretraining an encoder: documents packed into rows and masked anew in each epoch, for PyTorch and others.

A document becomes sequences [CLS] tokens [SEP], and several of them a row of `seq` tokens with its boundaries. Documents of
some 4 million consecutive tokens, a window, are packed together, once; of an epoch the windows come in permuted order, and the
rows of 16 of them are shuffled together, so rows are as far from their neighbors as 64 million tokens, and what is in memory is
bounded. Order and masks are pure functions of seed, epoch and row: any batch of any epoch can be had at once, and batch
size, readers and resuming change no row. A row of 1,024 tokens takes about 10 microseconds (`benchmarks data encoders`).

    dataset = TokenDataset("tokens", seq=1024, masked_lm_prob=0.3)
    DataLoader(dataset, batch_size=64, collate_fn=dataset.collate)  # an epoch; dataset.set_epoch(1) takes the next
    StatefulDataLoader(dataset.stream(64), batch_size=None)  # all epochs, without an end
"""

from __future__ import annotations

import hashlib
import json
import math
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels, pool
from bertprep.errors import UsageError
from bertprep.kernels import numbers as n
from bertprep.records.columns import Columns
from bertprep.records.order import ShardOrder
from bertprep.records.packing import Window, pack_sequences, split_documents
from bertprep.records.token_documents import open_token_documents
from bertprep.records.token_rows import TokenRows
from bertprep.work.layout import TRAINING

WINDOW_TOKENS = 1 << 22
WINDOWS_IN_GROUP = 16
"""Windows whose rows are shuffled together."""
_WINDOWS_HELD = 256  # 40 MB of documents of 400 tokens
_ROW_BITS = 32
_SPAN_PROBABILITY = 0.2


class TokenDataset(TokenRows):
    """The rows of an epoch of a split of token shards, as the columns that transformers' models take; any thread may read.

    Columns are int64: `input_ids`, `labels` (-100 where nothing is predicted); of packed rows `position_ids`, which restart
    with each sequence, and `sequence_ids`, which count them, padding as one of its own; else `attention_mask`.
    `dataset[position]` is a row in the order of an epoch, the first or that of `set_epoch`, or of those that follow. All epochs
    have as many.
    """

    def __init__(
        self,
        data: Path | str,
        split: str = TRAINING,
        *,
        seq: int = 1024,
        masked_lm_prob: float = 0.3,
        mask_as: tuple[float, float, float] = (0.8, 0.1, 0.1),
        whole_word: bool = False,
        span: int | None = None,
        packed: bool = True,
        objective: Literal["mlm", "clm"] = "mlm",
        first_position: int = 0,
        epochs: int = 1,
        seed: int = 12345,
        vocab: Path | str | None = None,
    ) -> None:
        """`mask_as` are the shares of predicted tokens that become [MASK], become a random token, and stay as they are.

        `span` is the most whole words that are masked together, 10 for SpanBERT; `first_position` is 2 for RoBERTa. The
        objective "clm" gives the labels of causal language models. `len` counts `epochs`, each masked anew, for what does not
        call `set_epoch`. `vocab` is for token shards of sentences without one.
        """
        self.documents = open_token_documents(data, split, vocab)
        self.folder, self.split, self.seq, self.packed, self.seed = self.documents.folder, split, seq, packed, seed
        self.objective, self.first_position = objective, first_position
        self.masked_lm_prob, self.mask_as, self.epochs = masked_lm_prob, mask_as, epochs
        self.whole_word, self.span = whole_word or span is not None, span
        self._check_numbers()
        self._check_settings()
        windows = [-(-shard.sizes[1] // WINDOW_TOKENS) for shard in self.documents.shards]
        self._first_windows = np.cumsum([0, *windows])
        self.shards = sum(windows)  # as `ShardOrder` calls windows
        self._window_bits = self.shards.bit_length()
        self._counts = np.full(self.shards, -1, np.int64)
        self.epoch = 0
        self._open()

    def _check_numbers(self) -> None:
        for name, least in (("seq", 1), ("span", 1), ("epochs", 1), ("first_position", 0), ("seed", 0)):
            value = getattr(self, name)
            if name == "span" and value is None:
                continue
            if not isinstance(value, Integral):
                raise UsageError(f"{name} {value!r}: expected a whole number")
            if value < least:
                raise UsageError(f"{name} {value}: must be at least {least}")
            setattr(self, name, int(value))
        if not isinstance(self.masked_lm_prob, Real) or not 0 < self.masked_lm_prob < 1:
            raise UsageError(f"masked_lm_prob {self.masked_lm_prob!r}: expected a share above 0 and below 1")
        try:
            masked, random, kept = map(float, self.mask_as)
        except (TypeError, ValueError):
            masked = random = kept = math.nan
        if min(masked, random, kept) < 0 or not math.isclose(masked + random + kept, 1, abs_tol=1e-6):
            raise UsageError(f"mask_as {self.mask_as}: expected the shares of mask, random and keep, which add up to 1")
        self.masked_lm_prob, self.mask_as = float(self.masked_lm_prob), (masked, random, kept)

    def _check_settings(self) -> None:
        tokenizer, where = self.documents.tokenizer, f"{self.folder}: its tokenizer {self.documents.tokenizer.name}"
        self._longest = self.seq - tokenizer.added_tokens
        if self._longest < 1:
            raise UsageError(f"seq {self.seq}: must be at least {tokenizer.added_tokens + 1}")
        if self.objective not in ("mlm", "clm"):
            raise UsageError(f"objective {self.objective!r}: expected 'mlm' or 'clm'")
        if self.objective == "mlm" and tokenizer.mask is None:
            raise UsageError(
                f"{where} has no mask token, which masked LM needs; take one that has, or objective='clm' of TokenDataset"
            )
        if self.objective == "mlm" and len(tokenizer.special) >= tokenizer.width:
            raise UsageError(f"{where} has special tokens alone; expected others, which can be masked")

    def _open(self) -> None:
        self._window = lru_cache(_WINDOWS_HELD)(self._make_window)
        self._row_settings = self._make_row_settings()
        self.order = ShardOrder(self, seed=self.seed, group=WINDOWS_IN_GROUP)
        self.set_epoch(self.epoch)

    def __getstate__(self) -> dict[str, Any]:
        own = "_window", "_row_settings", "order", "_of_epoch"
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def __repr__(self) -> str:
        return f"TokenDataset({self.folder}: {self.documents.documents:,} documents, rows of {self.seq} tokens)"

    _where = property(__repr__)

    def close(self) -> None:
        """Give the memory of windows back; what is asked for later is made again."""
        self._window.cache_clear()

    def set_epoch(self, epoch: int) -> None:
        """Let `dataset[position]` be of another epoch."""
        if not 0 <= epoch < 1 << 63 - _ROW_BITS - self._window_bits:
            raise ValueError(f"{self}: epoch {epoch:,}; expected one from 0 on")
        self.epoch = epoch
        self._of_epoch = ShardOrder(self, seed=self.seed, group=WINDOWS_IN_GROUP, first_epoch=epoch)

    def __len__(self) -> int:
        return self.epochs * int(self.counts(self.epoch, np.arange(self.shards)).sum())

    @property
    def most_predictions(self) -> int:
        """The most labels of a row other than -100."""
        return self.seq - 1 if self.objective == "clm" else int(self._row_settings["predictions"][self._longest])

    @property
    def sha256(self) -> str:
        """Of all that rows depend on."""
        names = "seq", "masked_lm_prob", "mask_as", "whole_word", "span", "packed", "objective", "first_position", "seed"
        made_of = {"rows": 1, "documents": self.documents.sha256, "settings": {name: getattr(self, name) for name in names}}
        return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()

    # --- windows, as `ShardOrder` takes shards: numbers have epoch, window and row in their bits

    def counts(self, epoch: int, shards: NDArray[np.int64]) -> NDArray[np.int64]:  # noqa: ARG002 - all have the same
        """Return how many rows some windows have."""
        missing = shards[self._counts[shards] < 0]
        if len(missing):
            with ThreadPoolExecutor(pool.default_workers()) as threads:
                self._counts[missing] = list(threads.map(lambda window: len(self._window(window)), missing.tolist()))
        return self._counts[shards]

    def numbers_of(self, epoch: int, shards: NDArray[np.int64], records: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of rows of windows in an epoch."""
        numbers: NDArray[np.int64] = ((epoch << self._window_bits) + shards << _ROW_BITS) + records
        return numbers

    def _index_of_shard(self, window: int) -> int:
        return int(np.searchsorted(self._first_windows, window, side="right")) - 1

    def _make_window(self, window: int) -> Window:
        index = self._index_of_shard(window)
        shard = self.documents.shards[index]
        begin = (window - int(self._first_windows[index])) * WINDOW_TOKENS
        first, end = np.searchsorted(shard.starts[:-1], [begin, begin + WINDOW_TOKENS])
        begins, sizes = split_documents(shard.starts[first : end + 1], self._longest)
        row_starts = np.arange(len(sizes) + 1)
        if self.packed:
            order, row_starts = pack_sequences(sizes + np.int32(self.seq - self._longest), self.seq)
            begins, sizes = begins[order], sizes[order]
        return Window(shard.mapped, shard.words, begins, sizes, row_starts)

    # --- rows

    def _make_row_settings(self) -> dict[str, Any]:
        """Return what the kernel is told of all rows."""
        tokenizer = self.documents.tokenizer
        is_special = np.zeros(tokenizer.width, np.uint8)
        is_special[list(tokenizer.special)] = 1
        table = self.documents.begins_word
        predictions = np.rint(self.masked_lm_prob * np.arange(self.seq + 1)).astype(np.int32)
        predictions[1:] = np.maximum(predictions[1:], 1)
        up_to = 1 - (1 - _SPAN_PROBABILITY) ** np.arange(1, (self.span or 1) + 1)
        masked, random, _ = self.mask_as
        ids = {name: n.NO_TOKEN if (found := getattr(tokenizer, name)) is None else found for name in ("cls", "sep", "mask")}
        return {
            **ids,
            "pad": tokenizer.pad if tokenizer.pad is not None else max(ids["sep"], 0),  # any will do: nothing attends to it
            "seq": self.seq,
            "first_position": self.first_position,
            "is_causal": int(self.objective == "clm"),
            "width": tokenizer.width,
            "is_special": is_special,
            "predictions": predictions,
            "whole_words": int(self.whole_word),
            "begins_word": is_special if table is None else table.view(np.uint8),  # read only where there is a table
            "mask_below": round(masked * 2**32),
            "random_below": round((masked + random) * 2**32),
            "longest_span": self.span or 1,
            "span_below": np.rint(up_to / up_to[-1] * 2**32).astype(np.int64),
        }

    def _read(self, numbers: NDArray[np.int64]) -> Columns:
        return self.rows(self._of_epoch.numbers(numbers))

    def rows(self, numbers: NDArray[np.int64]) -> Columns:
        keys, rows = numbers >> _ROW_BITS, numbers & (1 << _ROW_BITS) - 1
        of_batch, indices = np.unique(keys & (1 << self._window_bits) - 1, return_inverse=True)
        windows = [self._window(window) for window in of_batch.tolist()]
        table = np.array([window.addresses for window in windows], np.int64).reshape(-1, n.WINDOW_WIDTH)
        scratch = {"words": np.empty((3, self.seq + 1), np.int32), "state": np.empty(1, np.uint64)}
        names = "input_ids", "labels", "position_ids", "sequence_ids"
        columns = {name: np.empty((len(numbers), self.seq), np.int64) for name in names}
        settings = {**self._row_settings, **scratch}
        filled = kernels.load().fill_rows(
            settings, table, indices.astype(np.int64), rows, self._seeds(numbers), len(numbers), *columns.values()
        )
        if filled < len(numbers):
            self._check_ids(int(of_batch[indices[filled]]), int(rows[filled]))
        if not self.packed:
            is_text = columns.pop("sequence_ids") == 0
            columns = {
                "input_ids": columns["input_ids"],
                "attention_mask": is_text.astype(np.int64),
                "labels": columns["labels"],
            }
        return columns

    def _seeds(self, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the seed of each row's masks: of the epoch, by a hash, and of window and row, which the kernel hashes."""
        shift = _ROW_BITS + self._window_bits
        epochs = numbers >> shift
        seeds = (numbers & (1 << shift) - 1).astype(np.uint64)
        for epoch in np.unique(epochs).tolist():
            digest = hashlib.sha256(f"{self.seed} {epoch}".encode()).digest()
            seeds[epochs == epoch] ^= np.uint64(int.from_bytes(digest[:8], "little"))
        return seeds

    def _check_ids(self, number: int, row: int) -> None:
        window, shard = self._window(number), self.documents.shards[self._index_of_shard(number)]
        for sequence in range(window.row_starts[row], window.row_starts[row + 1]):
            begin, size = int(window.begins[sequence]), int(window.sizes[sequence])
            shard.check(window.tokens[begin : begin + size], begin)
