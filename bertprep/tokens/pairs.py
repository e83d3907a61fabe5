"""Rows of two segments for ALBERT, BERT and ELECTRA: made of token shards of sentences, and masked as they are read.

    dataset = PairDataset("data/tokens/.../books", pairs="order", seq=512, ngram=3)
    DataLoader(dataset, batch_size=64, collate_fn=dataset.collate)

Which sentences make a pair is drawn once, by the seed, for some 4 million tokens of documents; as rows of `TokenDataset`, pairs
come in another order and with other masks in each epoch. The kernel `pairs` has the rules, and `reference` the same in plain
Python.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.config import MaskedShare
from bertprep.errors import UsageError
from bertprep.records.columns import Columns
from bertprep.tokens.dataset import TokenDataset
from bertprep.tokens.documents import TokenDocuments
from bertprep.tokens.kept_windows import KeptNumbers
from bertprep.tokens.order import RowIds
from bertprep.tokens.packing import Window, Windows
from bertprep.tokens.shard import TokenShard
from bertprep.work.layout import TRAINING

ORDER: Literal["order"] = "order"
SEGMENTS: Literal["segments"] = "segments"
SHORT: dict[str, float] = {ORDER: 0.1, SEGMENTS: 0.05}
"""The share of shorter pairs, as ALBERT and ELECTRA have it."""
_ALONE = 0.1  # the share of ELECTRA's first segments that take all sentences
_SPECIALS = 3  # [CLS] A [SEP] B [SEP]
_MIN_SEQ = 8
_ONE = 1 << 32


@dataclass(frozen=True)
class PairWindow(Window):
    """A window whose rows have two sequences, or one; `is_swapped` says of each whether its segments are: (rows,)."""

    is_swapped: NDArray[np.uint32]

    @property
    def more_numbers(self) -> list[NDArray[np.uint32]]:
        return [self.is_swapped]


class PairWindows(Windows):
    """The pairs of documents, by windows of consecutive tokens of a shard."""

    def __init__(self, documents: TokenDocuments, *, seq: int, pairs: str, short_seq_prob: float, seed: int) -> None:
        super().__init__(documents, seq=seq, packed=False)
        self._pairs, self._short_seq_prob, self._seed = pairs, short_seq_prob, seed

    @property
    def _depends_on(self) -> dict[str, Any]:
        return {**super()._depends_on, "pairs": self._pairs, "short_seq_prob": self._short_seq_prob, "seed": self._seed}

    def lengths(self, window: int) -> NDArray[np.int32]:
        """Return the tokens of each row of a window, special tokens included."""
        found = self.get(window)
        ends = np.cumsum([0, *found.sizes + 1])  # a [SEP] after each segment
        lengths: NDArray[np.int32] = np.diff(ends[found.row_starts]).astype(np.int32) + np.int32(1)
        return lengths

    def _pack(self, window: int, shard: TokenShard) -> PairWindow:
        first, end = self._documents_of(window, shard)
        of_documents = shard.document_starts[first : end + 1]
        starts = shard.sequence_starts[of_documents[0] : of_documents[-1] + 1]
        most = len(starts) - 1
        begins, sizes = np.empty((most, 2), np.int64), np.empty((most, 2), np.int32)
        is_swapped, count = np.empty(most, np.uint8), 0
        if end > first:
            key = hashlib.sha256(f"{self._seed} {window}".encode()).digest()[:8]
            settings = {
                "longest": self._seq - _SPECIALS, "swaps": int(self._pairs == ORDER),
                "short_below": round(self._short_seq_prob * _ONE), "alone_below": round(_ALONE * _ONE),
                "state": np.frombuffer(key, np.uint64).copy(),
            }  # fmt: skip
            document_starts = of_documents - of_documents[0]
            count = kernels.load().make_pairs(settings, starts, document_starts, end - first, begins, sizes, is_swapped)
        is_there = sizes[:count] > 0
        row_starts = np.cumsum([0, *is_there.sum(1)], dtype=np.int32)
        begins_there = self._from_first(window, shard, begins[:count][is_there])
        tokens, _, at = self._tokens_of(window, shard)
        is_swapped_u32 = is_swapped[:count].astype(np.uint32)
        return PairWindow(tokens, None, at, begins_there, sizes[:count][is_there], row_starts, is_swapped_u32)

    def _window(self, window: int, shard: TokenShard, kept: KeptNumbers) -> PairWindow:
        row_starts, begins, sizes, is_swapped = kept.split()
        tokens, _, at = self._tokens_of(window, shard)
        return PairWindow(tokens, None, at, begins, sizes.view(np.int32), row_starts.view(np.int32), is_swapped)


class PairDataset(TokenDataset):
    """Rows [CLS] A [SEP] B [SEP] of token shards of sentences, for PyTorch and NumPy; used as a `TokenDataset` is.

    Columns are int64, (rows, seq): `input_ids`, `token_type_ids`, `attention_mask`, `labels` (-100 where nothing is predicted);
    with `pairs="order"` also `sentence_order_label`, (rows,): 1 where the second segment comes first in the text.
    """

    pairs: Literal["order", "segments"]
    short_seq_prob: float

    def __init__(
        self,
        data: Path | str,
        split: str = TRAINING,
        *,
        pairs: Literal["order", "segments"] = ORDER,
        seq: int = 512,
        short_seq_prob: float | None = None,
        masked_lm_prob: MaskedShare = 0.15,
        seed: int = 12345,
        **settings: Any,
    ) -> None:
        """`pairs` are ALBERT's, in or out of order, or ELECTRA's two segments, of which the second may be missing.

        `short_seq_prob` is the share of shorter pairs: 0.1 in ALBERT, and 0.05 in ELECTRA. The other `settings` are those of a
        `TokenDataset`: `mask_as`, `whole_word`, `span`, `ngram`, `by_length`, `epochs`, `vocab` and `verify`. Raises
        `UsageError` for token shards of whole documents, whose sentences are not known.
        """
        if pairs not in SHORT:
            raise UsageError(f"pairs {pairs!r}: expected 'order', as ALBERT has it, or 'segments', as ELECTRA has them")
        for name in ("packed", "objective", "first_position", "min_document_tokens", "max_document_tokens"):
            if name in settings:
                raise UsageError(f"{name}: is a setting of TokenDataset that pairs do not have; leave it out")
        share = SHORT[pairs] if short_seq_prob is None else short_seq_prob
        if not isinstance(share, Real) or not 0 <= float(share) <= 1:
            raise UsageError(f"short_seq_prob {share!r}: expected a share from 0 to 1")
        self.pairs, self.short_seq_prob = pairs, float(share)
        super().__init__(data, split, seq=seq, packed=False, masked_lm_prob=masked_lm_prob, seed=seed, **settings)
        self._fixed = self._fixed | {"pairs", "short_seq_prob"}

    def _check_tokenizer(self) -> None:
        super()._check_tokenizer()
        if self.documents.begins_word is None:
            raise UsageError(
                f"{self.folder}: has whole documents, made with --tokenizer, and pairs are of sentences; make token shards of "
                "sentences: bertprep tokenize without --tokenizer"
            )
        if self.seq < _MIN_SEQ:
            raise UsageError(f"seq {self.seq}: must be at least {_MIN_SEQ} for pairs")

    def _make_windows(self) -> Windows:
        return PairWindows(self.documents, seq=self.seq, pairs=self.pairs, short_seq_prob=self.short_seq_prob, seed=self.seed)

    def _make_row_settings(self) -> dict[str, Any]:
        return {**super()._make_row_settings(), "is_pair": 1}

    def __repr__(self) -> str:
        documents = self.documents.documents
        return f"PairDataset({self.folder}: {documents:,} documents, pairs of {self.seq} tokens, {self.pairs}, {self.masks})"

    @property
    def made_of(self) -> dict[str, Any]:
        """All that rows depend on."""
        made_of = super().made_of
        return {**made_of, "settings": {**made_of["settings"], "pairs": self.pairs, "short_seq_prob": self.short_seq_prob}}

    @property
    def most_predictions(self) -> int:
        """The most labels of a row other than -100."""
        return self.masking.most_predictions(self.seq - 2)

    def _without_sequences(self, ids: RowIds, columns: Columns) -> Columns:
        counts, is_swapped = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
        for index in np.unique(ids.windows).tolist():
            window, is_own = self._windows.get(index), ids.windows == index
            assert isinstance(window, PairWindow)
            counts[is_own] = np.diff(window.row_starts)[ids.rows[is_own]]
            is_swapped[is_own] = window.is_swapped[ids.rows[is_own]]
        is_token = columns["sequence_ids"] < counts[:, None]
        found = {
            "input_ids": columns["input_ids"],
            "token_type_ids": np.where(is_token, columns["sequence_ids"], 0),
            "attention_mask": is_token.astype(np.int64),
            "labels": columns["labels"],
        }
        return {**found, "sentence_order_label": is_swapped} if self.pairs == ORDER else found
