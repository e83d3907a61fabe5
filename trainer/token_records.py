"""Present token shards of documents as the records of a run: packed or one document per row, and masked as they are read.

A row is identified by its position, counted over all epochs (`bertprep.tokens.order`), since each epoch has new masks. A row
has as many predictions as masked tokens, at most `pred`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BadTokenError, UsageError
from bertprep.records.examples import Examples, Feature, MaskedExamples, Shape
from bertprep.records.open_file import Closing
from bertprep.records.records import BadRecordError
from bertprep.work.choose import find_training_tokens
from bertprep.work.layout import TOKENS, TRAINING

NOT_PREDICTED = -100
DEFAULT_MASK_AS = (0.8, 0.1, 0.1)


class PackedExamples(MaskedExamples):
    """Rows of several sequences. Position ids restart with each sequence, and padding is a sequence of its own."""

    features = (
        *MaskedExamples.features,
        Feature("position_ids", "seq", "position"),
        Feature("sequence_ids", "seq", "position"),
    )
    title = "packed pretraining"

    position_ids: NDArray[np.int32]  # (n, seq)
    sequence_ids: NDArray[np.int32]  # (n, seq)


class TokenRecords(Closing):
    """The rows of one or more folders of token shards, mixed by weights or by their numbers of tokens."""

    formats = (TOKENS,)

    def __init__(
        self,
        folders: Sequence[Path],
        split: str = TRAINING,
        *,
        weights: Sequence[float] = (),
        temperature: float | None = None,
        **settings: Any,
    ) -> None:
        """Open the folders, with `settings` for `TokenDataset`, after reading all files once to verify their checksums.

        `weights` has the weight of each folder, if any. A `temperature` derives them from the folders' sizes, as in `Mixture`.
        """
        from bertprep.tokens.dataset import TokenDataset
        from bertprep.tokens.mixture import Mixture  # imported here: it needs packages that a benchmark machine may lack

        sets = []
        for folder in folders:
            has_checksums = find_training_tokens(folder).manifest is not None
            sets.append(TokenDataset(folder, split, verify=has_checksums, **settings))
        self.folders, self._first = folders, sets[0]
        self.settings = {**settings, "temperature": temperature, **({"weights": [*weights]} if weights else {})}
        self._mixture = None
        if len(sets) == 1 and temperature is not None:
            raise UsageError(
                f"--temperature {temperature:g}: mixes several folders, but --data names one; leave it out, or name more"
            )
        if len(sets) > 1:
            self._mixture = Mixture(zip(sets, weights, strict=True) if weights else sets, temperature=temperature)
        self.rows = self._mixture or sets[0]
        self.tokenizer = sets[0].documents.tokenizer
        self.is_packed, self.sha256 = sets[0].packed, self.rows.sha256
        self.kind: type[MaskedExamples] = PackedExamples if self.is_packed else MaskedExamples
        self.seq, self.pred = sets[0].seq, max(each.most_predictions for each in sets)
        self.shape = Shape(self.kind, self.seq, self.pred)

    def describe(self) -> str:
        """Return a text on the rows of an epoch and their masks, for the plan, without the number of rows."""
        rows = "packed rows" if self.is_packed else "documents"
        text = f"{rows} of {self.seq} tokens per epoch, {100 * self._first.masking.highest_share:g}% masked anew in each"
        if tuple(self._first.mask_as) != DEFAULT_MASK_AS:
            text += f" (--mask-as {','.join(f'{fraction:g}' for fraction in self._first.mask_as)})"
        if self._first.whole_word:
            text += ", whole words"
        return text

    def describe_mixture(self, rows: int) -> list[dict[str, Any]]:
        """Return how many rows and epochs of each folder are among the first `rows` rows; an empty list for one folder."""
        return [] if self._mixture is None else self._mixture.describe(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def close(self) -> None:
        self.rows.close()

    def origin_of(self, position: int) -> tuple[Path, int]:
        """Return the first folder and the position, by which errors and logs identify a row."""
        return self.folders[0], position

    def gather_good(self, examples: Examples, positions: NDArray[np.int64]) -> list[BadRecordError]:
        """Write the rows at `positions` into the first examples; return an error for each row with a bad token id.

        All features of such a row are set to 0.
        """
        try:
            self._gather(examples, positions)
        except BadTokenError:  # read row by row, to find all bad rows
            found = [self._gather_one(examples, positions, row) for row in range(len(positions))]
            return [error for error in found if error is not None]
        return []

    def _gather_one(self, examples: Examples, positions: NDArray[np.int64], row: int) -> BadRecordError | None:
        try:
            self._gather(examples[row : row + 1], positions[row : row + 1])
        except BadTokenError as error:
            examples[row] = 0
            return BadRecordError(str(error), index=int(positions[row]), row=row)
        return None

    def _gather(self, examples: Examples, positions: NDArray[np.int64]) -> None:
        columns = self.rows.rows(positions)
        rows, masked = np.nonzero(columns["labels"] != NOT_PREDICTED)
        slots = np.arange(len(rows)) - np.searchsorted(rows, rows)  # the first mask of a row is in slot 0
        found = self.kind.empty(len(positions), seq=self.seq, pred=self.pred)
        for array in found.arrays:
            array[:] = 0
        found.input_ids[:] = columns["input_ids"]
        found.masked_lm_positions[rows, slots] = masked
        found.masked_lm_ids[rows, slots] = columns["labels"][rows, masked]
        found.masked_lm_weights[rows, slots] = 1
        if isinstance(found, PackedExamples):
            found.input_mask[:] = 1
            found.position_ids[:] = columns["position_ids"]
            found.sequence_ids[:] = columns["sequence_ids"]
        else:
            found.input_mask[:] = columns["attention_mask"]
        for into, values in zip(examples.arrays, found.arrays, strict=True):
            into[: len(positions)] = values
