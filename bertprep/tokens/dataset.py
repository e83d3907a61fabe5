"""Pretraining data for encoders from token shards: documents packed into rows, with new masks in each epoch.

Each document becomes sequences [CLS] tokens [SEP], and several sequences share a row of `seq` tokens. Windows of some 4 million
consecutive tokens are packed once and kept for later runs. Each epoch permutes the windows and shuffles the rows of 16 windows
together, so memory is bounded. Order and masks are pure functions of seed, epoch and row: any batch is available at once, and
batch size, number of readers and resuming change no row. A row of 1,024 tokens takes about 10 microseconds (`benchmarks data
encoders`).

    dataset = TokenDataset("tokens", seq=1024, masked_lm_prob=0.3)
    DataLoader(dataset, batch_size=64, sampler=dataset.sampler(), collate_fn=dataset.collate)  # one epoch, see set_epoch
    StatefulDataLoader(dataset.stream(64), batch_size=None)  # endless, through all epochs

To find a row by its position, `order` looks up the window and the row in it, and `packing` the documents of the window. Then
the kernel `mask_rows` fills the row and draws its masks.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertprep import kernels
from bertprep.config import MaskedShare, MaskSchedule
from bertprep.errors import BertprepError, UsageError
from bertprep.instances.document_tokenizer import MANY_LONG_WORDS, MAX_WORD_TOKENS, share_in_long_words
from bertprep.kernels import numbers as n
from bertprep.records.columns import Columns
from bertprep.terminal import counted, warn
from bertprep.tokens.documents import open_token_documents
from bertprep.tokens.epoch import Epoch
from bertprep.tokens.kept_windows import WINDOWS
from bertprep.tokens.masking import Masking
from bertprep.tokens.order import LengthOrder, RowIds, WindowOrder, checked_positions
from bertprep.tokens.packing import DocumentChoice, Window, Windows
from bertprep.tokens.token_rows import TokenRows
from bertprep.tokens.window_counts import check_counts
from bertprep.work.layout import SPLIT_NAMES, TRAINING

WINDOWS_IN_GROUP = 16
"""The number of windows whose rows are shuffled together."""
_BLOCK = 4096
"""Positions that are looked up at once for the batches among them."""
_BLOCKS_HELD = 4
_ROW_BITS = 32  # for the row's index in its window, in the key of a row's masks
_FILTER = "min_document_tokens", "max_document_tokens"
_SETTINGS = "seq", "packed", "by_length", "objective", "first_position", "seed", *_FILTER
"""The settings that rows depend on, apart from the documents and the masking."""
_EVALUATION = "held_out", "only_held_out", "same_masks"
"""Such settings that most data sets do not have; those without keep the identity that they have always had."""
_MASKING = "masked_lm_prob", "mask_as", "whole_word", "span", "ngram"
_MASKED = 0.3
_MAX_POSITION = (1 << 31) - 1
_FIRST_TOKENS = 1 << 16  # long words are counted in these


class TokenDataset(TokenRows):
    """The rows of one split of token shards, with the columns that the models of transformers accept; threads may share it.

    Columns are int64: `input_ids` and `labels` (-100 where nothing is predicted). Packed rows also have `position_ids`, which
    restart with each sequence, and `sequence_ids`, which number the sequences and count padding as one more. Other rows have
    `attention_mask`.

    `dataset[i]` has the same documents in every epoch, in the order of the first one, with masks of the current epoch, which
    `set_epoch` changes. `sampler` and `stream` have an order for each epoch. All epochs have the same number of rows. The first
    use packs all documents to count them, unless an earlier run did.
    """

    def __init__(
        self,
        data: Path | str,
        split: str = TRAINING,
        *,
        seq: int = 1024,
        masked_lm_prob: MaskedShare = _MASKED,
        mlm_probability: MaskedShare | None = None,
        mask_as: tuple[float, float, float] = (0.8, 0.1, 0.1),
        whole_word: bool = False,
        span: int | None = None,
        ngram: int | None = None,
        packed: bool = True,
        by_length: bool = False,
        objective: Literal["mlm", "clm"] = "mlm",
        first_position: int = 0,
        epochs: int = 1,
        min_document_tokens: int | None = None,
        max_document_tokens: int | None = None,
        held_out: float = 0.0,
        only_held_out: bool = False,
        same_masks: bool | None = None,
        seed: int = 12345,
        vocab: Path | str | None = None,
        verify: bool = False,
    ) -> None:
        """Open the token shards in the folder `data`.

        `masked_lm_prob` is the fraction of tokens to predict: a number, a range from which each row draws its own, or a
        `MaskSchedule`; `mlm_probability` is its name in transformers. `mask_as` has the fractions of predicted tokens that
        become [MASK], become a random token, and stay unchanged. `span` is the maximum number of whole words that are masked
        together with SpanBERT's distribution of lengths (SpanBERT uses 10). `ngram` is the same with ALBERT's distribution (3).
        If rows are not `packed`, `by_length` groups rows of similar length, since a batch is as wide as its longest row.
        `first_position` is the position id of a sequence's first token; a model that `collate_for` prepared uses its own. The
        objective "clm" makes labels for causal language models. `epochs` is the number of epochs that `len` counts, each with
        new masks, for programs that do not call `set_epoch`. `min_document_tokens` and `max_document_tokens` select documents.
        `held_out` leaves this fraction of the documents out, and another data set with `only_held_out` has just these: for an
        evaluation beside training on one split; equal documents are on the same side. `same_masks` draws the masks of the first
        epoch in every one, by default for an evaluation: the test split, or documents held out. `vocab` is needed for token
        shards of sentences without a vocabulary file. `verify` reads all files first, and raises `BertprepError` if a checksum
        differs from the manifest's.
        """
        if mlm_probability is not None:
            if masked_lm_prob != _MASKED:
                raise UsageError(
                    f"masked_lm_prob {masked_lm_prob} and mlm_probability {mlm_probability}: are one setting; give only one"
                )
            masked_lm_prob = mlm_probability
        self.documents = open_token_documents(data, split, vocab, verify=verify)
        self.folder, self.split = self.documents.folder, split
        self.seq, self.packed, self.by_length = seq, packed, by_length
        self.seed, self.epochs = seed, epochs
        self.min_document_tokens, self.max_document_tokens = min_document_tokens, max_document_tokens
        self.held_out, self.only_held_out = held_out, only_held_out
        is_evaluation = only_held_out or SPLIT_NAMES.get(split) != TRAINING
        self.same_masks = is_evaluation if same_masks is None else same_masks
        self.objective, self.first_position = objective, first_position
        self.masking = Masking(masked_lm_prob=masked_lm_prob, mask_as=mask_as, whole_word=whole_word, span=span, ngram=ngram)
        self.masked_lm_prob, self.mask_as = self.masking.masked_lm_prob, self.masking.mask_as
        self.whole_word, self.span, self.ngram = self.masking.whole_word, self.masking.span, self.masking.ngram
        self._check_numbers()
        self._check_tokenizer()
        self._epoch = Epoch()
        if self._choice is not None:
            self._choice.check(self.documents)
        self._open()
        self._warn_of_long_words()
        if self.objective == "mlm" and self.documents.eod is not None:
            warn(
                f"{self.folder}: was made with --append-eod, so each document ends with token {self.documents.eod} in addition "
                "to the tokenizer's own; for masked LM, make the token shards without --append-eod"
            )
        if uncovered := self.documents.uncovered:
            warn(
                f"{self.folder}: {counted(uncovered, 'character')} of the text left out, since the tokenizer "
                f"{self.documents.tokenizer.name} has no token for them"
            )
        self._fix(*_SETTINGS, *_MASKING, *_EVALUATION, "masking", "documents", "folder", "split", "epochs")

    def _check_numbers(self) -> None:
        least_of = {"seq": 1, "epochs": 1, "first_position": 0, "seed": 0, **dict.fromkeys(_FILTER, 1)}
        for name, least in least_of.items():
            value = getattr(self, name)
            if name in _FILTER and value is None:
                continue
            if not isinstance(value, Integral):
                raise UsageError(f"{name} {value!r}: expected a whole number")
            if value < least:
                raise UsageError(f"{name} {value}: must be at least {least}")
            if name == "first_position" and int(value) > _MAX_POSITION:
                raise UsageError(f"{name} {value}: must be at most {_MAX_POSITION:,}")
            setattr(self, name, int(value))
        least_tokens, most_tokens = self.min_document_tokens, self.max_document_tokens
        if least_tokens is not None and most_tokens is not None and least_tokens > most_tokens:
            raise UsageError(f"min_document_tokens {least_tokens:,}: is more than max_document_tokens {most_tokens:,}")
        if not isinstance(self.held_out, Real) or not 0 <= self.held_out < 1:
            raise UsageError(f"held_out {self.held_out!r}: expected a fraction of the documents from 0 to below 1")
        self.held_out = float(self.held_out)
        if self.only_held_out and not self.held_out:
            raise UsageError("only_held_out: no documents are held out; give held_out as the data set for training has it")

    def _check_tokenizer(self) -> None:
        tokenizer = self.documents.tokenizer
        where = f"{self.folder}: its tokenizer {tokenizer.name}"
        if self.seq <= tokenizer.added_tokens:
            raise UsageError(f"seq {self.seq}: must be at least {tokenizer.added_tokens + 1}")
        if self.by_length and self.packed:
            raise UsageError("by_length: packed rows all have the same length; use packed=False with it")
        if self.objective not in ("mlm", "clm"):
            raise UsageError(f"objective {self.objective!r}: expected 'mlm' or 'clm'")
        if self.objective == "mlm" and tokenizer.mask is None:
            raise UsageError(
                f"{where} has no mask token, which masked LM needs; use another tokenizer, name one as mask_token in the "
                "tokenizer_config.json next to its tokenizer.json and tokenize again, or use objective='clm' of TokenDataset"
            )
        if self.objective == "mlm" and tokenizer.is_never_drawn.all():
            raise UsageError(f"{where} has only special tokens; expected others, which can be masked")

    def _warn_of_long_words(self) -> None:
        if self.masks_words and self._share_in_long_words > MANY_LONG_WORDS:
            warn(
                f"{self.folder}: by the word rule {self.documents.tokenizer.words}, {self._share_in_long_words:.0%} of the "
                f"first tokens are in words of more than {MAX_WORD_TOKENS} tokens; such words are masked token by token"
            )

    def _open(self) -> None:
        self._windows = self._make_windows()
        self._row_settings = self._make_row_settings()
        self._of_thread = threading.local()
        self._locate_block = lru_cache(_BLOCKS_HELD)(self._order_block)

    def _make_windows(self) -> Windows:
        return Windows(self.documents, seq=self.seq, packed=self.packed, choice=self._choice)

    def __getstate__(self) -> dict[str, Any]:
        opened = "_windows", "_row_settings", "_of_thread", "_order", "_locate_block"
        return {name: value for name, value in self.__dict__.items() if name not in opened}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def close(self) -> None:
        """Free the memory of the windows; rows that are read later are made again."""
        self._windows.close()

    # --- properties of the rows

    def __repr__(self) -> str:
        read, documents = self.selected[0], self.documents.documents
        of_all = "" if read == documents else f" of {documents:,}"
        return f"TokenDataset({self.folder}: {read:,}{of_all} documents, rows of {self.seq} tokens, {self.masks})"

    def __len__(self) -> int:
        return self.epochs * self.rows_in_epoch

    @property
    def rows_in_epoch(self) -> int:
        return self._order.rows_in_epoch

    @property
    def _tokenizer_width(self) -> int:
        return self.documents.tokenizer.width

    @cached_property
    def selected(self) -> tuple[int, int]:
        """The numbers of documents that are read and of their tokens, without special ones."""
        if self._choice is None:
            return self.documents.documents, self.documents.tokens
        shards = self.documents.shards
        taken = [np.diff(shard.starts)[self._choice.take(shard, 0, shard.sizes[0])] for shard in shards]
        return sum(map(len, taken)), sum(int(sizes.sum()) for sizes in taken)

    @property
    def _choice(self) -> DocumentChoice | None:
        """Which documents are read, or None for all documents."""
        if self.min_document_tokens is None and self.max_document_tokens is None and not self.held_out:
            return None
        sizes = self.min_document_tokens or 1, self.max_document_tokens
        return DocumentChoice(*sizes, self.held_out, self.only_held_out, self.seed)

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        """The number of rows in each window. They are pickled with the data set, so workers need not count them again."""
        return self._windows.counts

    @cached_property
    def _order(self) -> WindowOrder:
        if self.by_length:
            return LengthOrder(self._counts, seed=self.seed, group=WINDOWS_IN_GROUP, lengths=self._windows.lengths)
        return WindowOrder(self._counts, seed=self.seed, group=WINDOWS_IN_GROUP)

    @property
    def masks_words(self) -> bool:
        """Whether masks cover whole words, except where a word has more tokens than are still to be masked."""
        return self.whole_word and self.objective == "mlm"

    @property
    def masks(self) -> str:
        """A description of the masking for people: how much is masked, in which units, and the rule that finds words."""
        if self.objective == "clm":
            return "no masks"
        if not self.whole_word:
            return self.masking.share
        masked = f"{self.masking.share} by {self.masking.unit} (rule {self.documents.tokenizer.words})"
        share = self._share_in_long_words
        return f"{masked}, {share:.0%} token by token" if share > MANY_LONG_WORDS else masked

    @cached_property
    def _share_in_long_words(self) -> float:
        """The fraction of the first tokens that are in words too long to be masked as whole words."""
        shard, table = self.documents.shards[0], self.documents.begins_word
        first = min(_FIRST_TOKENS, shard.sizes[1])
        if table is not None:
            return share_in_long_words(table.take(shard.mapped[:first], mode="clip"))  # these ids are not checked yet
        assert shard.words is not None
        return share_in_long_words(np.unpackbits(shard.words[: -(-first // 8)], count=first, bitorder="little") == 1)

    @property
    def most_predictions(self) -> int:
        """The largest number of labels other than -100 that a row can have."""
        if self.objective == "clm":
            return self.seq - 1
        return self.masking.most_predictions(self.seq - self.documents.tokenizer.added_tokens)

    @property
    def made_of(self) -> dict[str, Any]:
        """Everything that the rows depend on, as plain data."""
        settings = {name: getattr(self, name) for name in _SETTINGS}
        settings |= {name: getattr(self, name) for name in _EVALUATION if getattr(self, name)}
        return {"documents": self.documents.sha256, "settings": {**settings, **self.masking.made_of}}

    # --- rows

    def row_ids(self, positions: ArrayLike) -> RowIds:
        """Return the epoch, window and row of the rows at `positions`, which count over all epochs."""
        return self._order.locate(checked_positions(positions, f"{self}: rows"))

    def _lengths(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        ids = self._order.locate(positions)
        lengths = np.empty(len(ids), np.int64)
        for window in np.unique(ids.windows).tolist():
            is_own = ids.windows == window
            lengths[is_own] = self._windows.lengths(window)[ids.rows[is_own]]
        return lengths

    def _read(self, positions: NDArray[np.int64]) -> Columns:
        return self._fill(self._locate(positions), positions)

    @property
    def _use_of_order(self) -> str:
        if self.by_length:
            return "rows of similar length together"
        return "a MaskSchedule" if isinstance(self.masked_lm_prob, MaskSchedule) else ""

    def _read_indices(self, indices: NDArray[np.int64]) -> Columns:
        passes, rows = np.divmod(indices, self.rows_in_epoch)
        ids = self._locate(rows)  # in the order of the first epoch
        return self._fill(RowIds(self.epoch * self.epochs + passes, ids.windows, ids.rows), indices)

    def _locate(self, positions: NDArray[np.int64]) -> RowIds:
        """Return the ids of a batch's rows: a few positions take as long as some thousand, so these are kept for the next."""
        first, last = int(positions.min(initial=sys.maxsize)), int(positions.max(initial=0))
        epoch, start = divmod(first, self.rows_in_epoch)
        block, in_block = divmod(start, _BLOCK)
        if not len(positions) or last - first + in_block >= min(_BLOCK, self.rows_in_epoch - block * _BLOCK):
            return self._order.locate(positions)
        return self._locate_block(epoch, block)[positions - (first - in_block)]

    def _order_block(self, epoch: int, block: int) -> RowIds:
        """Return the ids of the next `_BLOCK` rows of an epoch, from `block` * `_BLOCK` on."""
        start = epoch * self.rows_in_epoch
        rows = range(block * _BLOCK, min((block + 1) * _BLOCK, self.rows_in_epoch))
        return self._order.locate(start + np.arange(rows.start, rows.stop))

    def _read_batches(self, positions: NDArray[np.int64]) -> Iterator[Columns]:
        ids = self._order.locate(positions)
        return (self._fill(ids[batch], positions[batch]) for batch in range(len(ids)))

    def _fill(self, ids: RowIds, positions: NDArray[np.int64]) -> Columns:
        """Return the columns of rows, given their ids and their positions: (n,) each."""
        of_batch, indices = np.unique(ids.windows, return_inverse=True)
        windows = [self._windows.get(window) for window in of_batch.tolist()]
        check_counts(str(self.folder), of_batch, [len(window) for window in windows], self._order.counts, kept_in=WINDOWS)
        table = np.array([window.addresses for window in windows], np.int64).reshape(-1, n.WINDOW_WIDTH)
        count = len(ids)
        input_ids = np.empty((count, self.seq), np.int64)
        labels = np.empty_like(input_ids)
        position_ids = np.empty_like(input_ids)
        sequence_ids = np.empty_like(input_ids)
        keys = self._keys(ids)
        shares = self.masking.shares(positions, keys ^ self._key_of_shares)
        filled = self._fill_rows(
            table, indices.astype(np.int64), ids.rows, keys, shares, count, input_ids, labels, position_ids, sequence_ids
        )
        if filled < count:
            self._check_ids(int(ids.windows[filled]), windows[indices[filled]], int(ids.rows[filled]))
            raise BertprepError(f"{self}: its settings were changed after it was made; make another data set with them")
        columns = {"input_ids": input_ids, "labels": labels, "position_ids": position_ids, "sequence_ids": sequence_ids}
        return columns if self.packed else self._without_sequences(ids, columns)

    def _without_sequences(self, ids: RowIds, columns: Columns) -> Columns:  # noqa: ARG002 - pairs have labels by their ids
        """Return the columns of rows that are not packed, given those that the kernel fills for packed rows."""
        is_token = (columns["sequence_ids"] == 0).astype(np.int64)
        return {"input_ids": columns["input_ids"], "attention_mask": is_token, "labels": columns["labels"]}

    def _keys(self, ids: RowIds) -> NDArray[np.uint64]:
        """Return the key from which the kernel draws each row's masks: its window and index, xored with a hash of the epoch."""
        keys = ((ids.windows << _ROW_BITS) + ids.rows).astype(np.uint64)
        epochs = np.zeros_like(ids.epochs) if self.same_masks else ids.epochs
        for epoch in np.unique(epochs).tolist():
            digest = hashlib.sha256(f"{self.seed} {epoch}".encode()).digest()
            keys[epochs == epoch] ^= np.uint64(int.from_bytes(digest[:8], "little"))
        return keys

    @cached_property
    def _key_of_shares(self) -> np.uint64:
        """A hash of the documents: sets with one seed draw unrelated fractions, although their rows have the same keys."""
        read = f"{self.documents.sha256} {self._choice}"
        key: np.uint64 = np.uint64(int.from_bytes(hashlib.sha256(read.encode()).digest()[:8], "little"))
        return key

    def _check_ids(self, index: int, window: Window, row: int) -> None:
        """Raise `BadTokenError` if a row of a window has an id that the tokenizer does not have."""
        shard = self._windows.shard_of(index)
        for sequence in range(window.row_starts[row], window.row_starts[row + 1]):
            begin, size = int(window.begins[sequence]), int(window.sizes[sequence])
            shard.check_ids(window.tokens[begin : begin + size], window.first + begin)

    @property
    def _fill_rows(self) -> Callable[..., int]:
        """The kernel, bound to the settings that all rows share and to this thread's scratch memory."""
        if not hasattr(self._of_thread, "fill_rows"):
            scratch = {"words": np.empty((3, self.seq + 1), np.int32), "state": np.empty(1, np.uint64)}
            self._of_thread.fill_rows = kernels.load().fill_rows.bind({**self._row_settings, **scratch})
        return cast(Callable[..., int], self._of_thread.fill_rows)

    def _make_row_settings(self) -> dict[str, Any]:
        """Return the kernel's arguments that are the same for all rows."""
        tokenizer = self.documents.tokenizer
        is_special = tokenizer.is_never_drawn.view(np.uint8)
        table = self.documents.begins_word
        before, after = (np.array(tokens, np.int64) for tokens in tokenizer.template)
        return {
            "before": before,
            "before_size": len(before),
            "after": after,
            "after_size": len(after),
            "mask": _or_no_token(tokenizer.mask),
            "pad": (tokenizer.sep or 0) if tokenizer.pad is None else tokenizer.pad,  # any id: nothing attends to padding
            "seq": self.seq,
            "first_position": self.first_position,
            "is_causal": int(self.objective == "clm"),
            "is_pair": 0,
            "width": tokenizer.width,
            "is_special": is_special,
            "longest_word": MAX_WORD_TOKENS,
            "begins_word": is_special if table is None else table.view(np.uint8),  # ignored if there is no table
            **self.masking.for_kernel,
        }


def _or_no_token(token: int | None) -> int:
    return n.NO_TOKEN if token is None else token
