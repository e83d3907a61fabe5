"""Settings for masking: which tokens of a row are masked and what replaces them, checked, and as arguments for `mask_rows`.

The fraction of masked tokens is a fixed number, a random number from a range for each row, or a schedule over the rows of a
run. The unit of masking is a token, a whole word, or a run of whole words: SpanBERT's spans, whose lengths are geometric, or
ALBERT's n-grams.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.config import MaskedShare, MaskSchedule, read_mask_as
from bertprep.errors import UsageError

_SPAN_PROBABILITY = 0.2  # the parameter of SpanBERT's geometric distribution of lengths
_LONGEST = 1 << 20  # words in a span
_SALT = np.uint64(0xD1B54A32D192ED03)  # makes a row's fraction independent of the kernel's draws, which use the same key
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)  # splitmix64's multipliers
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


@dataclass(frozen=True, kw_only=True)
class Masking:
    """The masking of rows, with the keywords of `TokenDataset`; raises `UsageError` for an impossible value."""

    masked_lm_prob: MaskedShare = 0.3
    mask_as: tuple[float, float, float] = (0.8, 0.1, 0.1)
    whole_word: bool = False
    span: int | None = None
    ngram: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "masked_lm_prob", _check_share(self.masked_lm_prob))
        object.__setattr__(self, "mask_as", read_mask_as(self.mask_as, f"mask_as {self.mask_as}"))
        if not isinstance(self.whole_word, bool | np.bool_):
            raise UsageError(f"whole_word {self.whole_word!r:.80}: expected True or False")
        for name in ("span", "ngram"):
            longest = getattr(self, name)
            if longest is None:
                continue
            if isinstance(longest, bool) or not isinstance(longest, int | np.integer):
                raise UsageError(f"{name} {longest!r}: expected a whole number of words, such as span=10 or ngram=3")
            if longest < 1:
                raise UsageError(f"{name} {longest}: must be at least 1")
            if longest > _LONGEST:
                raise UsageError(f"{name} {longest}: must be at most {_LONGEST:,}")
            object.__setattr__(self, name, int(longest))
            object.__setattr__(self, "whole_word", True)
        if self.span is not None and self.ngram is not None:
            raise UsageError(f"span {self.span} and ngram {self.ngram}: are two distributions of lengths; give one of them")

    @property
    def made_of(self) -> dict[str, Any]:
        """The settings as plain data, for states and checksums."""
        return asdict(self)

    @property
    def share(self) -> str:
        """The fraction of masked tokens, in words."""
        match self.masked_lm_prob:
            case MaskSchedule(start, end, rows):
                return f"{start:.3g} to {end:.3g} of the tokens masked over {rows:,} rows"
            case (low, high):
                return f"{low:.3g} to {high:.3g} of the tokens masked at random"
        return f"{self.masked_lm_prob:.3g} of the tokens masked"

    @property
    def unit(self) -> str:
        """The unit of masking, in words."""
        if self.span is not None:
            return f"spans of up to {self.span} whole words"
        if self.ngram is not None:
            return f"n-grams of up to {self.ngram} whole words"
        return "whole words" if self.whole_word else "tokens"

    @property
    def highest_share(self) -> float:
        """The largest fraction of masked tokens, which a row exceeds only if it is so short that its one mask is more."""
        match self.masked_lm_prob:
            case MaskSchedule(start, end):
                return max(start, end)
            case (_, high):
                return high
            case share:
                return share

    @property
    def rounds_up(self) -> bool:
        """Whether the number of masked tokens is rounded up, so that shares drawn from (0, 1) give each number alike."""
        return isinstance(self.masked_lm_prob, tuple)

    def most_predictions(self, tokens: int) -> int:
        """Return the largest number of masked tokens in a row with `tokens` tokens that can be masked."""
        masked = self.highest_share * tokens
        return min(tokens, max(1, math.ceil(masked) if self.rounds_up else int(np.rint(masked))))

    def shares(self, positions: NDArray[np.int64], keys: NDArray[np.uint64]) -> NDArray[np.float64]:
        """Return the fraction of masked tokens of each row, given its position in the run and the key of its masks: (n,)."""
        match self.masked_lm_prob:
            case MaskSchedule(start, end, rows):
                return start + (end - start) * np.minimum(positions / rows, 1.0)
            case (low, high):
                return low + (high - low) * _draw_uniform(keys)
            case share:
                return np.full(len(keys), share)

    @cached_property
    def for_kernel(self) -> dict[str, Any]:
        """The kernel's arguments for masking."""
        masked, random, _ = self.mask_as
        up_to = self._probability_up_to
        return {
            "whole_words": int(self.whole_word),
            "mask_below": round(masked * 2**32),
            "random_below": round((masked + random) * 2**32),
            "longest_span": len(up_to),
            "span_below": np.rint(up_to * 2**32).astype(np.int64),
            "rounds_up": int(self.rounds_up),
            "is_spanbert": int(self.span is not None),
            "keeps_spans": int(self.ngram is not None),
        }

    @property
    def _probability_up_to(self) -> NDArray[np.float64]:
        """The cumulative probabilities of runs of up to 1, 2, ... words."""
        lengths = np.arange(1, (self.span or self.ngram or 1) + 1)
        probabilities = (1 - _SPAN_PROBABILITY) ** lengths if self.ngram is None else 1 / lengths
        up_to: NDArray[np.float64] = np.cumsum(probabilities)
        return up_to / float(up_to[-1])


def _check_share(given: Any) -> MaskedShare:
    """Return the fraction of masked tokens, or its range or schedule; raise `UsageError` for anything else."""
    if isinstance(given, MaskSchedule):
        return given
    if isinstance(given, Real):
        if not 0 < float(given) < 1:
            raise UsageError(f"masked_lm_prob {given!r}: expected a fraction above 0 and below 1")
        return float(given)
    is_range = isinstance(given, Sequence) and len(given) == 2 and all(isinstance(bound, Real) for bound in given)
    if not is_range or not 0 <= given[0] < given[1] <= 1:
        raise UsageError(
            f"masked_lm_prob {given!r:.80}: expected a fraction above 0 and below 1, two for a range, such as (0.1, 0.9), or a "
            "MaskSchedule for a fraction that changes over the run"
        )
    return float(given[0]), float(given[1])


def _draw_uniform(keys: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return a number from 0 to 1 for each key, a hash of the key (splitmix64)."""
    first, second, third, unused = _SHIFTS
    mixed = keys ^ _SALT
    mixed = (mixed ^ (mixed >> first)) * _MIX_1
    mixed = (mixed ^ (mixed >> second)) * _MIX_2
    mixed ^= mixed >> third
    drawn: NDArray[np.float64] = (mixed >> unused) * 2.0**-53
    return drawn
