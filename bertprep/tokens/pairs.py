"""Rows of two segments for ALBERT, BERT and ELECTRA, made from token shards of sentences and masked as they are read.

    dataset = PairDataset("data/tokens/.../books", pairs="order", seq=512, ngram=3)
    DataLoader(dataset, batch_size=64, collate_fn=dataset.collate)

The seed decides once which sentences form pairs, for a window of some 4 million tokens at a time. Like the rows of
`TokenDataset`, pairs have another order and other masks in each epoch. The kernel `pairs` implements the rules, and `reference`
has them in plain Python.
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
"""The fraction of shorter pairs in ALBERT and in ELECTRA."""
_ALONE = 0.1  # the fraction of ELECTRA's pairs whose first segment takes all sentences
_SPECIALS = 3  # [CLS] A [SEP] B [SEP]
_MIN_SEQ = 8
_MASKED = 0.15
_ONLY = {
    "packed": False, "objective": "mlm", "first_position": 0, "min_document_tokens": None, "max_document_tokens": None,
    "held_out": 0.0,
}  # fmt: skip
"""Settings of `TokenDataset` with the only value that pairs have, which recipes may name."""
_ONE = 1 << 32


@dataclass(frozen=True)
class PairWindow(Window):
    """A window whose rows have one or two sequences; `is_swapped` tells which rows have their segments swapped: (rows,)."""

    is_swapped: NDArray[np.uint32]

    @property
    def more_numbers(self) -> list[NDArray[np.uint32]]:
        return [self.is_swapped]


class PairWindows(Windows):
    """The pairs of segments made from documents, in windows of consecutive tokens of a shard."""

    def __init__(self, documents: TokenDocuments, *, seq: int, pairs: str, short_seq_prob: float, seed: int) -> None:
        super().__init__(documents, seq=seq, packed=False)
        self._pairs, self._short_seq_prob, self._seed = pairs, short_seq_prob, seed

    @property
    def _depends_on(self) -> dict[str, Any]:
        return {**super()._depends_on, "pairs": self._pairs, "short_seq_prob": self._short_seq_prob, "seed": self._seed}

    def lengths(self, window: int) -> NDArray[np.int32]:
        """Return the number of tokens in each row of a window, with special tokens: (rows,)."""
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

    def _fit(self, kept: KeptNumbers, tokens: int) -> bool:
        # A row has [CLS], and a [SEP] after each sequence.
        return len(kept.split()[3]) == kept.rows and kept.fit(tokens, self._seq - 1, 1)


class PairDataset(TokenDataset):
    """Rows [CLS] A [SEP] B [SEP] from token shards of sentences, for PyTorch and NumPy, with the methods of `TokenDataset`.

    Columns are int64, (rows, seq): `input_ids`, `token_type_ids`, `attention_mask`, `labels` (-100 where nothing is predicted).
    With `pairs="order"` there is also `sentence_order_label`, (rows,): 1 if the segments are swapped, or if the second is from
    another document because the first is a single sentence.
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
        masked_lm_prob: MaskedShare | None = None,
        seed: int = 12345,
        **settings: Any,
    ) -> None:
        """Open the token shards of sentences in the folder `data`.

        `pairs="order"` makes ALBERT's pairs, in or out of order; `pairs="segments"` makes ELECTRA's, whose second segment may
        be missing. `short_seq_prob` is the fraction of shorter pairs: by default 0.1 as in ALBERT, or 0.05 as in ELECTRA. The
        other `settings` are those of `TokenDataset`: `mask_as`, `whole_word`, `span`, `ngram`, `by_length`, `epochs`, `vocab`
        and `verify`. The fraction of masked tokens is 0.15 by default. Raises `UsageError` for token shards of whole documents,
        which do not mark sentences, and for settings that pairs do not have, such as `packed=True`.
        """
        if pairs not in SHORT:
            raise UsageError(f"pairs {pairs!r}: expected 'order' as in ALBERT, or 'segments' as in ELECTRA")
        for name, only in _ONLY.items():
            if settings.pop(name, only) != only:
                raise UsageError(f"{name}: is a setting of TokenDataset that PairDataset does not have; leave it out")
        if masked_lm_prob is None and settings.get("mlm_probability") is None:
            masked_lm_prob = _MASKED
        if masked_lm_prob is not None:
            settings["masked_lm_prob"] = masked_lm_prob
        share = SHORT[pairs] if short_seq_prob is None else short_seq_prob
        if not isinstance(share, Real) or not 0 <= float(share) <= 1:
            raise UsageError(f"short_seq_prob {share!r}: expected a fraction from 0 to 1")
        self.pairs, self.short_seq_prob = pairs, float(share)
        super().__init__(data, split, seq=seq, packed=False, seed=seed, **settings)
        self._fixed = self._fixed | {"pairs", "short_seq_prob"}

    def _check_tokenizer(self) -> None:
        super()._check_tokenizer()
        if self.documents.begins_word is None:
            raise UsageError(
                f"{self.folder}: has whole documents, made with --tokenizer, and pairs need sentences; make token shards of "
                "sentences by bertprep tokenize without --tokenizer"
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
        """Everything that the rows depend on, as plain data."""
        made_of = super().made_of
        return {**made_of, "settings": {**made_of["settings"], "pairs": self.pairs, "short_seq_prob": self.short_seq_prob}}

    @property
    def most_predictions(self) -> int:
        """The largest number of labels other than -100 that a row can have."""
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
