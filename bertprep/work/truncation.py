"""Count the tokens of a text that do not reach its records, and read these counts from manifests.

Two rules of Google's generator remove tokens. A sentence that is longer than a record loses its rest in every record, so nobody
trains on that text. A pair of ordinary sentences is truncated at both ends until it fits. This loses little for good, because
each round makes other pairs. Full sentences (`--pairs none`) are divided instead, so nothing is counted for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from operator import add
from typing import TYPE_CHECKING, Any

from bertprep.rules import Rule
from bertprep.untrusted import COUNT

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MANY_CUT_OFF = 0.01
"""The fraction of a text's tokens that may be cut off from long sentences without a warning."""
LENGTHS = (4, 8, 16, 32, 64, 128, 256, 512)
"""Bins of sentences: the first has those of up to 4 tokens, the second those of up to 8, and a last one all longer ones."""
FITTING = (125, 509)
"""The most tokens of text in a record of 128 and of 512 tokens: tokens are counted before the length of records is chosen."""
TRUNCATION = "truncation"
"""The key of these counts in a file's entry of the manifest."""
LARGEST_DOCUMENT = "largest_document"
"""The key, in such an entry, of the number of tokens of the text's largest document."""


def count_over(tokens: NDArray[np.int64]) -> dict[str, int]:
    """Count the sentences that exceed each length in FITTING, given the tokens of each sentence, for a file's entry."""
    return {f"over_{longest}": int((tokens > longest).sum()) for longest in FITTING}


def _check_bins(counts: list[Any]) -> list[Any]:
    if len(counts) != len(LENGTHS) + 1 or not COUNT.holds_for_all(counts):
        raise ValueError(f"a list of {len(LENGTHS) + 1} numbers of sentences")
    return counts


OVER_RULES = {f"over_{longest}": COUNT for longest in FITTING}
"""The rules for the counts of `count_over` in a manifest."""
TRUNCATION_RULES = {
    **dict.fromkeys(("text_tokens", "long_sentences", "cut_off_tokens", "paired_tokens", "truncated_tokens"), COUNT),
    "sentences": Rule(kinds=(list,), check=_check_bins),
}
"""The rules for these counts in a manifest."""


@dataclass(frozen=True)
class Truncation:
    """What the records of a text lack. Pairs are counted over all rounds, sentences once."""

    text_tokens: int  # of all sentences
    long_sentences: int  # those with more tokens than fit a record
    cut_off_tokens: int  # of these sentences, the tokens that do not fit
    paired_tokens: int  # of the pairs without such a sentence, before they are truncated
    truncated_tokens: int  # those that are removed from these pairs
    sentences: tuple[int, ...]  # by their tokens, in the bins of LENGTHS

    @classmethod
    def of_sentences(cls, tokens: NDArray[np.int64], longest: int, *, paired: int, truncated: int) -> Truncation:
        """Count the sentences with these numbers of tokens; `longest` is the most that fits a record."""
        import numpy as np  # which commands that only read a manifest need not load

        beyond = np.maximum(tokens - longest, 0)
        bins = np.bincount(np.searchsorted(LENGTHS, tokens), minlength=len(LENGTHS) + 1)
        return cls(
            text_tokens=int(tokens.sum()),
            long_sentences=int(np.count_nonzero(beyond)),
            cut_off_tokens=int(beyond.sum()),
            paired_tokens=paired,
            truncated_tokens=truncated,
            sentences=tuple(bins.tolist()),
        )

    @classmethod
    def of_entries(cls, entries: Iterable[Mapping[str, Any]]) -> Truncation | None:
        """Return the counts of some files together, from their entries in a manifest; None if any of them has no counts."""
        total = None
        for entry in entries:
            if TRUNCATION not in entry:
                return None
            listed = {name: entry[TRUNCATION][name] for name in TRUNCATION_RULES}
            counts = cls(**listed | {"sentences": tuple(listed["sentences"])})
            total = counts if total is None else total + counts
        return total

    def __add__(self, other: Truncation) -> Truncation:
        return Truncation(
            text_tokens=self.text_tokens + other.text_tokens,
            long_sentences=self.long_sentences + other.long_sentences,
            cut_off_tokens=self.cut_off_tokens + other.cut_off_tokens,
            paired_tokens=self.paired_tokens + other.paired_tokens,
            truncated_tokens=self.truncated_tokens + other.truncated_tokens,
            sentences=tuple(map(add, self.sentences, other.sentences)),
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"sentences": list(self.sentences)}

    @property
    def cut_off(self) -> float:
        """The fraction of the text's tokens that no record has, because they are at the end of a long sentence."""
        return self.cut_off_tokens / max(self.text_tokens, 1)

    @property
    def truncated(self) -> float:
        """The fraction of the tokens of ordinary pairs that Google's rule removes."""
        return self.truncated_tokens / max(self.paired_tokens, 1)
