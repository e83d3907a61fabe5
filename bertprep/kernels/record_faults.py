"""What can be wrong with the values of a record: the numbers under which the checking kernel counts it.

Apart from the kernel, so that the code that puts faults into words need not import numba. `check.record_checks` has the words.
"""

UNEVEN_MASK, PADDING_IDS, PADDING_SEGMENTS, PAD_IN_TEXT = range(4)
"""input_mask is not ones, then zeros; what lies behind the text is not 0; [PAD] stands in the text."""
NO_CLS, CLS_IN_TEXT, SEP_COUNT, SEP_LAST, EMPTY_SEGMENT, SEGMENTS = range(4, 10)
"""Of the text with its labels put back: it is not [CLS] A [SEP] B [SEP], or segment_ids say otherwise."""
ID_RANGE, MASK_ORDER, MASK_OUTSIDE, MASK_ON_SPECIAL = range(10, 14)
"""A token that the vocabulary lacks; predictions that do not ascend, lie behind the text, or on [CLS] or [SEP]."""
WEIGHTS, BEHIND_PREDICTIONS, PREDICTION_COUNT, NEXT_SENTENCE, MASK_WITHOUT_LABEL = range(14, 19)
"""Weights are not ones, then zeros; places behind are not 0; their number; the label; a [MASK] that is not predicted."""
WORD_LEFT_OUT, WORD_IN_PART = range(19, 21)
"""Of whole words: one that would still have fitted was not masked; one was masked in part."""
HALF_TO_EVEN, HALF_UP = range(21, 23)
"""No faults by themselves: a half number of predictions was rounded to the even neighbour, as Python 3 does, or up, as 2."""
FAULTS = 23

FAULT_WIDTH = 5
COUNT, RECORD, PLACE, EXPECTED, FOUND = range(FAULT_WIDTH)
"""A row of the faults: how many records have it; of the first, its number, the place in it, what should be there and is."""

RULES_SIZE = 8
SEQ, PRED, TOKENS, CLS, SEP, MASK, COUNT_RULE, STEP = range(RULES_SIZE)
"""What records are checked against: sizes; the vocabulary's size and special tokens, 0 and -1 where unknown; a rule below; a
power of two, of which many records the first two are sketched, or 0 for none."""
EXACT_COUNT, AT_MOST, WHOLE_WORDS = range(3)
"""The table of predictions by length holds; is a bound, of whole words where it is unknown which tokens begin one; is a bound
that is reached unless no word fits any more."""

SIGNS = 8
RIGHT, LEFT, EXPECTED_RIGHT, EXPECTED_LEFT, OPEN_FOLLOWS, OPEN_RANDOM, ROUNDED_UP, ROUNDED_EVEN = range(SIGNS)
"""Counts over records. Of predictions: the label is that of the token on the right, on the left; how many are expected, in
units of 1 / SCALE. Of open records, whose A is too short to be a sentence of the target length: B follows, B is random. Of
records with a half number of predictions: rounded up, rounded to the even neighbour."""

(
    AT_RULES, AT_BY_LENGTH, AT_HALF_UP, AT_FACTORIALS, AT_KEYS, AT_TEXT, AT_CONTINUES, AT_WORDS, AT_FAULTS,
    AT_LENGTHS, AT_LENGTHS_OF_A, AT_PREDICTIONS, AT_POSITIONS, AT_LABELS, AT_TOKENS, AT_SHOWN, AT_NEXT_SENTENCE,
    AT_EXPECTED_POSITIONS, AT_EXPECTED_LABELS, AT_WORD_POSITIONS, AT_WORD_LABELS, AT_REPLACED, AT_SIGNS,
    AT_SKETCHES, AT_SKETCHED_LENGTHS,
) = range(25)  # fmt: skip
"""Where the addresses of the checker's arrays stand in the one array that the kernel is given: each argument costs 1 us."""

CHOICE = 64
"""Logarithms to base 2 are kept in units of 1 / CHOICE."""

SKETCH_WORDS = 8
"""Of 64 bits: a record's sketch, in which each token of its text sets one bit."""

SCALE = 1 << 20
"""Expected counts are sums of shares, and kept as whole numbers of this unit: a share is right to a millionth."""
