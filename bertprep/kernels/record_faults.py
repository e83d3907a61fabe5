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
FAULTS = 19

FAULT_WIDTH = 5
COUNT, RECORD, PLACE, EXPECTED, FOUND = range(FAULT_WIDTH)
"""A row of the faults: how many records have it; of the first, its number, the place in it, what should be there and is."""

RULES_SIZE = 7
SEQ, PRED, TOKENS, CLS, SEP, MASK, COUNT_RULE = range(RULES_SIZE)
"""What records are checked against: sizes; the vocabulary's size and special tokens, 0 and -1 where unknown; a rule below."""
ANY_COUNT, EXACT_COUNT, AT_MOST = range(3)
"""Whether the table of predictions by length holds as it is, as a bound (whole words may not fit), or not at all."""

SCALE = 1 << 20
"""Expected counts are sums of shares, and kept as whole numbers of this unit: a share is right to a millionth."""
