"""The faults that kernels number, in words: of the frames and messages of a file, and of the values of records."""

from __future__ import annotations

from collections.abc import Mapping

from bertprep.check.outcome import ERROR, Finding
from bertprep.kernels import numbers as kernel

# fault: code, what was expected, what was found
_WORDS = {
    kernel.TRUNCATED: (
        "truncated", "as many bytes as its length says", "{found:,} of {expected:,}: the file is truncated or corrupt",
    ),
    kernel.LEFT_OVER: ("trailing-bytes", "the end of the file or a whole record", "{found:,} bytes"),
    kernel.LENGTH_CHECKSUM: ("bad-checksum", "the checksum of its length", "{found:08x} where it should be {expected:08x}"),
    kernel.DATA_CHECKSUM: ("bad-checksum", "the checksum of its data", "{found:08x} where it should be {expected:08x}"),
    kernel.MALFORMED: ("bad-message", "a message of {message}", "other bytes"),
    kernel.MISSING: ("feature-missing", "feature {feature}", "none"),
    kernel.TWICE: ("bad-message", "feature {feature} once", "more than one"),
    kernel.WRONG_TYPE: ("feature-type", "feature {feature} as {values}", "a list of another type"),
    kernel.WRONG_COUNT: ("feature-shape", "{expected:,} values of {feature}", "{found:,}"),
    kernel.OUT_OF_RANGE: ("id-range", "values of {feature} from 0 to 2147483647", "another value"),
    kernel.UNEVEN_MASK: ("padding", "input_mask 1 for the text, then 0 to the end", "{found} at position {at}"),
    kernel.PADDING_IDS: ("padding", "input_ids {pad} after the {expected} tokens of text", "{found} at position {at}"),
    kernel.PADDING_SEGMENTS: ("padding", "segment_ids 0 after the {expected} tokens of text", "{found} at position {at}"),
    kernel.PAD_IN_TEXT: ("padding", "no [PAD] within the {expected} tokens of text", "one at position {at}"),
    kernel.NO_CLS: ("no-cls", "[CLS], token {expected}, at position 0", "token {found}"),
    kernel.CLS_IN_TEXT: ("no-cls", "[CLS] at position 0 only", "{found} of them, one at position {at}"),
    kernel.SEP_COUNT: ("separators", "two [SEP]", "{found}"),
    kernel.SEP_LAST: ("separators", "[SEP], token {expected}, at the last position of text, {at}", "token {found}"),
    kernel.EMPTY_SEGMENT: ("separators", "[CLS] A [SEP] B [SEP] with tokens in A and B", "none in one of them"),
    kernel.WRONG_SEGMENTS: ("segments", "segment_ids 0 to the first [SEP], then 1", "{found} at position {at}"),
    kernel.ID_RANGE: ("id-range", "tokens below {expected}, the size of the vocabulary", "{found} at position {at}"),
    kernel.MASK_ORDER: ("mask-order", "ascending masked_lm_positions", "{found} after {expected}"),
    kernel.MASK_OUTSIDE: ("mask-outside", "masked_lm_positions within the {expected} tokens of text", "{at}"),
    kernel.MASK_ON_SPECIAL: ("mask-on-special", "no prediction on [CLS] or [SEP]", "position {at} with label {found}"),
    kernel.UNEVEN_WEIGHTS: ("weights", "masked_lm_weights 1, then 0 to the end", "another at index {at} after {found} ones"),
    kernel.AFTER_PREDICTIONS: (
        "weights", "positions and labels 0 after the {expected} predictions with weight 1", "{found} at index {at}",
    ),
    kernel.PREDICTION_COUNT: ("prediction-count", "{bound}{expected} predictions of {at} tokens", "{found}"),
    kernel.WORD_LEFT_OUT: (
        "prediction-count", "{expected} predictions, or as many as fit", "{found}, and a word of {at} left out",
    ),
    kernel.WORD_IN_PART: (
        "whole-words", "words masked as a whole", "{found} pieces masked unlike the first of their word",
    ),
    kernel.PIECE_OF_NONE: (
        "word-pieces", "## tokens after a part of their word only",
        "token {found} at position {at}, after punctuation or [UNK]",
    ),
    kernel.WRONG_NEXT_SENTENCE: ("next-sentence-label", "0 or 1", "{found}"),
    kernel.MASK_WITHOUT_LABEL: ("mask-without-label", "[MASK] at predicted positions only", "one at position {at}"),
}  # fmt: skip
_WORDS_BY_SEGMENTS = {
    kernel.FULL_SENTENCES: {
        kernel.EMPTY_SEGMENT: ("separators", "tokens before each [SEP]", "{found} of them at or after another special token"),
        kernel.WRONG_SEGMENTS: ("segments", "segment_ids 0", "{found} at position {at}"),
    },
    kernel.ONE_OR_TWO_SEGMENTS: {kernel.SEP_COUNT: ("separators", "one [SEP] or two", "{found}")},
}


def describe(
    fault: int, file: str, record: int, noted: Mapping[str, object], *,
    count: int = 1, level: str = ERROR, segments: int = kernel.TWO_SEGMENTS,
) -> Finding:  # fmt: skip
    """Return the finding of a fault, with the notes on the first record that has it."""
    code, expected, found = (_WORDS | _WORDS_BY_SEGMENTS.get(segments, {}))[fault]
    return Finding(code, file, expected.format(**noted), found.format(**noted), record, count, level)


def name_pad(pad: int) -> str:
    """Return what a message calls the token of padding: its id, and what it is where that is not the usual one.

    >>> name_pad(0), name_pad(4)
    ('0', '4, the number of [PAD],')
    """
    return f"{pad}, the number of [PAD]," if pad else "0"
