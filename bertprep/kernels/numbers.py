"""The numbers that kernels and their callers must agree on: formats, rows, columns, buffer sizes, faults."""

from bertprep.config import RecordFormat

# --- record formats and the features of records

TFRECORD, OFRECORD = RecordFormat.TFRECORD.number, RecordFormat.OFRECORD.number
"""A bit each, since the encoder can write the first two at once."""

FEATURES = (
    "input_ids", "input_mask", "segment_ids",
    "masked_lm_positions", "masked_lm_ids", "masked_lm_weights", "next_sentence_labels",
)  # fmt: skip
"""The features of a pretraining record, in the order in which they are written."""
TF2_NAMES = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}
"""What TensorFlow 2's models call two of them."""
INPUT_IDS, INPUT_MASK, SEGMENT_IDS, POSITIONS, LABELS, WEIGHTS, NEXT_SENTENCE = range(len(FEATURES))
KNOWN_FEATURES = (
    *FEATURES, "unique_ids", "start_positions", "end_positions", "is_impossible", "label_ids", "is_real_example",
    "label_weights",
)  # fmt: skip
"""Those of all kinds of records; a feature's number is its index here. `records.examples` says which kind has which."""
NUMBER_OF_FEATURE = {name: number for number, name in enumerate(KNOWN_FEATURES)}

FLOAT_LIST, DOUBLE_LIST, INT32_LIST, INT64_LIST = 2, 3, 4, 5
"""The fields of an OFRecord's Feature."""
EXAMPLE_INT64_LIST = 3
"""The field of a tf.train.Example's Feature that holds whole numbers; its floats are in FLOAT_LIST too."""
FLOAT_LIST_TAG, INT32_LIST_TAG, INT64_LIST_TAG = (field << 3 | 2 for field in (FLOAT_LIST, INT32_LIST, EXAMPLE_INT64_LIST))
"""The tags before the lists that are written: int32 in an OFRecord, int64 in an Example, float in both."""

# --- encoding: rows of arrays to bytes

SLACK = 256
"""Spare bytes that outputs need, since copies overshoot."""
HEADER_WIDTH = 64
"""A header: all bytes of a feature before its values; byte 62 is the offset of its tag, byte 63 its length (0: not made)."""
HEADERS = 4096
"""Headers are kept for values of fewer bytes than this; others are made for each record."""
TAG_AT, SIZE_AT = HEADER_WIDTH - 2, HEADER_WIDTH - 1
KEY_WIDTH = 32
"""A feature's name with the protobuf bytes around it; byte 31 is the length of both."""
_FRAME = 8 + 4 + 4
WIDEST_HEADER = KEY_WIDTH + 24
"""A feature's key, three tags, four lengths."""
WIDEST_NUMBER = 5
"""Bytes of the varint of any int32 of 0 or more; a float takes four."""
WIDEST_AROUND = _FRAME + 8 + SLACK
"""Around the features of examples, spare bytes included."""

NOT_PREDICTED = -100
"""The label of a token that is not to be predicted: `ignore_index` of PyTorch's cross entropy."""
FLOAT_ONE = 0x3F800000
"""The bits of 1.0: the weight of a prediction."""

# --- a block of examples as kernels see it

BLOCK_WIDTH = 4
BLOCK_ADDRESS, BLOCK_ROW_BYTES, BLOCK_WANTED, BLOCK_FIELDS = range(BLOCK_WIDTH)
"""The address of the records, the bytes of each; the bits of the fields' features; how many fields. Then a row for each:"""
FIELD_WIDTH = 4
FIELD_FEATURE, FIELD_OFFSET, FIELD_VALUES, FIELD_TYPE = range(BLOCK_WIDTH, BLOCK_WIDTH + FIELD_WIDTH)
"""The number of its feature, its offset in a record in bytes, how many values it has, and their type:"""
BYTES, INTEGERS, FLOATS = range(3)
"""uint8, int32, float32."""
MAX_INT8, MAX_BYTE = 127, 255

# --- decoding: what kernels note

TRUNCATED, LEFT_OVER, LENGTH_CHECKSUM, DATA_CHECKSUM = -1, -2, -3, -4
"""Of a frame: the file ends inside it; too few bytes for one are left; one of its two checksums is wrong."""
MALFORMED, MISSING, TWICE = -5, -6, -7
"""Of a record: no such protobuf message; a feature is missing, or present more than once."""
WRONG_TYPE, WRONG_COUNT, OUT_OF_RANGE, BEYOND_MODEL = -8, -9, -10, -11
"""Of a feature: a list of another type; fewer or more values than the first record has; a number that no int32 holds;
one that a model cannot take."""

MAX_INT32 = 2**31 - 1
"""The largest number that records hold."""

PROBLEM_SIZE = 4
ROW, FEATURE, FOUND, EXPECTED = range(PROBLEM_SIZE)
"""What a kernel notes next to a fault: the index of the record among those asked for, the feature, found, expected."""
SPAN_SIZE = 3
KIND, BEGIN, END = range(SPAN_SIZE)
"""Where a feature is: the field of its list in Feature (0: none), the offsets where that begins and ends."""
NOTES_SIZE = PROBLEM_SIZE + SPAN_SIZE * len(KNOWN_FEATURES)
"""The problem, then the span of each feature."""

# --- tokenizing

KEEP, DROP, SPACE, ALONE = range(4)
"""What a code point does: is a letter of a word, vanishes, ends a word, is a word by itself."""
CODE_POINT_KIND, BLANK, REPLACEMENT_SHIFT = 3, 4, 3
"""Bits of a code point's entry: its kind; whether `str.strip` removes it; above them, the offset of its replacement, or 0.

A replacement is its size in bytes, its number of code points, and its UTF-8 bytes.
"""
LONGEST_WORD = 200  # code points; a longer word is [UNK]
WORD_BUFFER_SIZE = (LONGEST_WORD + 1) * 4 + 64
TEXT_SLACK, TOKEN_SLACK = 64, 4
"""Spare bytes after the text, which the kernel may read, and spare tokens after the last, which it may write."""
CACHE_BITS, CACHE_ENTRY = 17, 4
"""The table of known words has 2**CACHE_BITS entries of 4 uint64: the word in two of them, its ids in the others."""
TRIE_STEP, TRIE_FREE = 4, -1
"""A step in the trie has 4 int32, -1 where it is unused: its key (node and byte), the next node, the token that ends there."""
TOKENIZER_STATE_SIZE = 3
TOKENS, SENTENCES, DOCUMENTS = range(TOKENIZER_STATE_SIZE)
"""What the tokenizer counts."""

# --- generating instances

TWISTER_STATE = 624
TWISTER_USED = 2 * TWISTER_STATE
TWISTER_SIZE = TWISTER_USED + 1
"""A Mersenne Twister: its state, the next 624 draws, and how many of those are used."""
GENERATOR_STATE_SIZE = 5
ROUND, DOCUMENT, INSTANCES, MASKS, PACKED = range(GENERATOR_STATE_SIZE)
"""How far the generator is: duplication round, index in the shuffled documents, instances and masks so far; for full sentences,
the tokens that it has packed."""
NO_SEGMENT = -1
"""The size of segment B where it and its [SEP] are missing: so any sequence has the sizes of both segments and three tokens."""
UNCHANGED = -1
"""The replacement of a masked position whose token stays: to read the token there would be a cache miss."""

# --- rows of tokens

NO_TOKEN = -1
"""The id of a special token that the tokenizer lacks."""
WINDOW_WIDTH = 6
(
    WINDOW_TOKENS, WINDOW_TOKEN_BYTES, WINDOW_WORD_BITS, WINDOW_BEGINS, WINDOW_SIZES, WINDOW_ROW_STARTS,
) = range(WINDOW_WIDTH)  # fmt: skip
"""A row for each window of sequences: the address of its first token, where tokens have 2 or 4 bytes; of the bits of tokens
that begin a word, or 0; where its sequences begin from there (u32), and their sizes (i32); the first sequence of each row
(i32)."""

# --- counting records

ABOUT_WIDTH = 5
IS_VALID, LENGTH, DRAWN, FIRST_SEP, INNER_SEPS = range(ABOUT_WIDTH)
"""Of a record: whether it breaks no rule; the tokens of its text; its predictions; the position of its first [SEP]; the number
of [SEP] before the last token."""

FULL_SENTENCES, TWO_SEGMENTS, ONE_OR_TWO_SEGMENTS = range(3)
"""One segment, which may have [SEP] between documents; A and B; A, or A and B."""
EXACT_COUNT, AT_MOST, WHOLE_WORDS = range(3)
"""The table of predictions by length holds; is a bound, of whole words where it is unknown which tokens begin one; is a bound
that is reached unless no word fits any more."""

SIGNS = 8
RIGHT, LEFT, EXPECTED_RIGHT, EXPECTED_LEFT, OPEN_FOLLOWS, OPEN_RANDOM, OWN_B, OTHER_B = range(SIGNS)
"""Counts over records. Of predictions: the label is that of the token on the right, on the left; how many are expected, in
units of 1 / SCALE. Of open records, whose A is too short to be a sentence of the target length: B follows, B is random. Of
two records with a random B each, cut to equally many tokens: the As have more in common with their own Bs than with each
other's, fewer."""

WORD_ROWS = 5
"""Of seq + 1 numbers each, which the checker needs for whole words."""
CHOICE = 64
"""Logarithms to base 2 are kept in units of 1 / CHOICE."""
SKETCH_WORDS = 8
"""Of 64 bits: a record's sketch, in which each token of its text sets one bit."""
CONTINUES, ALONE_IN_WORD = 1, 2
"""Of a token: it continues a word; it is a word by itself, which nothing continues."""
SCALE = 1 << 20
"""Expected counts are sums of fractions, and kept as whole numbers of this unit: a fraction is right to a millionth."""
