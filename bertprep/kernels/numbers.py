"""Defines the numbers on which kernels and their callers must agree: formats, features, layouts, buffer sizes and faults."""

from bertprep.config import RecordFormat

# --- record formats and the features of records

TFRECORD, OFRECORD = RecordFormat.TFRECORD.number, RecordFormat.OFRECORD.number
"""A different bit for each, since the encoder can write both at once."""

FEATURES = (
    "input_ids", "input_mask", "segment_ids",
    "masked_lm_positions", "masked_lm_ids", "masked_lm_weights", "next_sentence_labels",
)  # fmt: skip
"""The features of a pretraining record, in the order in which they are written."""
TF2_NAMES = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}
"""Feature -> its name in TensorFlow 2's models, where that differs."""
INPUT_IDS, INPUT_MASK, SEGMENT_IDS, POSITIONS, LABELS, WEIGHTS, NEXT_SENTENCE = range(len(FEATURES))
KNOWN_FEATURES = (
    *FEATURES, "unique_ids", "start_positions", "end_positions", "is_impossible", "label_ids", "is_real_example",
    "label_weights",
)  # fmt: skip
"""The features of all kinds of records; a feature's number is its index here. `records.examples` lists those of each kind."""
NUMBER_OF_FEATURE = {name: number for number, name in enumerate(KNOWN_FEATURES)}

FLOAT_LIST, DOUBLE_LIST, INT32_LIST, INT64_LIST = 2, 3, 4, 5
"""Numbers of the fields in an OFRecord's Feature message."""
EXAMPLE_INT64_LIST = 3
"""Number of the field for integers in a tf.train.Example's Feature message; FLOAT_LIST is the same there."""
FLOAT_LIST_TAG, INT32_LIST_TAG, INT64_LIST_TAG = (field << 3 | 2 for field in (FLOAT_LIST, INT32_LIST, EXAMPLE_INT64_LIST))
"""Tags of the lists that the encoder writes: int32 in an OFRecord, int64 in an Example, and float in both."""

# --- encoding: rows of arrays to bytes

SLACK = 256
"""Spare bytes at the end of outputs, since copies write more than they need."""
HEADER_WIDTH = 64
"""Width of a header, in bytes. It has all bytes of a feature before its values; byte 62 is the offset of its tag, and byte 63
its length, or 0 as long as the header is not made."""
HEADERS = 4096
"""Headers are kept for values with fewer bytes than this; for larger values they are made again for each record."""
TAG_AT, SIZE_AT = HEADER_WIDTH - 2, HEADER_WIDTH - 1
KEY_WIDTH = 32
"""Width of a key, in bytes: a feature's name with the protobuf bytes around it, and in byte 31 their length."""
_FRAME = 8 + 4 + 4
WIDEST_HEADER = KEY_WIDTH + 24
"""The most bytes of a header: a key, three tags and four lengths."""
WIDEST_NUMBER = 5
"""The most bytes of a value: an int32 of 0 or more as a varint; a float takes four."""
WIDEST_AROUND = _FRAME + 8 + SLACK
"""The most bytes around the features of an example, including spare bytes."""

NOT_PREDICTED = -100
"""The label of a token that is not predicted, which is the default `ignore_index` of PyTorch's cross entropy."""
FLOAT_ONE = 0x3F800000
"""The bits of 1.0, the weight of a prediction."""

# --- a block of examples as kernels see it

BLOCK_WIDTH = 4
BLOCK_ADDRESS, BLOCK_ROW_BYTES, BLOCK_WANTED, BLOCK_FIELDS = range(BLOCK_WIDTH)
"""The address of the records; the size of a record in bytes; a set of the features, as bits; and the number of fields. After
them come FIELD_WIDTH numbers for each field."""
FIELD_WIDTH = 4
FIELD_FEATURE, FIELD_OFFSET, FIELD_VALUES, FIELD_TYPE = range(BLOCK_WIDTH, BLOCK_WIDTH + FIELD_WIDTH)
"""The number of the field's feature, its offset in a record in bytes, the number of its values, and their type."""
BYTES, INTEGERS, FLOATS = range(3)
"""The types of values: uint8, int32 and float32."""
MAX_INT8, MAX_BYTE = 127, 255

# --- decoding: faults, and the notes of kernels about them

TRUNCATED, LEFT_OVER, LENGTH_CHECKSUM, DATA_CHECKSUM = -1, -2, -3, -4
"""Faults of a frame: the file ends inside it; too few bytes are left for another one; one of its two checksums is wrong."""
MALFORMED, MISSING, TWICE = -5, -6, -7
"""Faults of a record: it is not a valid protobuf message; a feature is missing; a feature occurs more than once."""
WRONG_TYPE, WRONG_COUNT, OUT_OF_RANGE, BEYOND_MODEL = -8, -9, -10, -11
"""Faults of a feature: a list of another type; another number of values than expected; a number that does not fit the type of
the array; a number that is too large for the model."""

MAX_INT32 = 2**31 - 1
"""The largest number in records."""

PROBLEM_SIZE = 4
ROW, FEATURE, FOUND, EXPECTED = range(PROBLEM_SIZE)
"""A kernel's notes on a fault: the record's index among the requested ones, the feature, and the numbers found and expected."""
SPAN_SIZE = 3
KIND, BEGIN, END = range(SPAN_SIZE)
"""The span of a feature: the number of its list's field in the Feature message (0 for none), and where the list begins and
ends."""
NOTES_SIZE = PROBLEM_SIZE + SPAN_SIZE * len(KNOWN_FEATURES)
"""Size of the notes: the problem, then the span of each feature."""

# --- tokenizing

KEEP, DROP, SPACE, ALONE = range(4)
"""Kinds of code points: part of a word, removed, white space that ends a word, and a word of its own."""
CODE_POINT_KIND, BLANK, REPLACEMENT_SHIFT = 3, 4, 3
"""Bits of a code point's entry: its kind; whether `str.strip` removes it; and above them the offset of its replacement, or 0.

A replacement has a byte for its size in bytes, a byte for its number of code points, and then its UTF-8 bytes.
"""
LONGEST_WORD = 200  # code points; a longer word becomes [UNK]
WORD_BUFFER_SIZE = (LONGEST_WORD + 1) * 4 + 64
TEXT_SLACK, TOKEN_SLACK = 64, 4
"""Spare bytes after the text, which the kernel may read, and spare tokens after the last one, which it may write."""
CACHE_BITS, CACHE_ENTRY = 17, 4
"""The cache of words has 2**CACHE_BITS entries of CACHE_ENTRY uint64: the word in the first two, and its ids in the others."""
TRIE_STEP, TRIE_FREE = 4, -1
"""A step in the trie has TRIE_STEP int32: its key (node and byte), the next node, and the token that ends there; the last is
unused. Without a step or a token, the number is TRIE_FREE."""
TOKENIZER_STATE_SIZE = 3
TOKENS, SENTENCES, DOCUMENTS = range(TOKENIZER_STATE_SIZE)
"""The tokenizer's state: the numbers of tokens, sentences and documents so far."""

# --- generating instances

TWISTER_STATE = 624
TWISTER_USED = 2 * TWISTER_STATE
TWISTER_SIZE = TWISTER_USED + 1
"""Size of a Mersenne Twister: its state, the next 624 draws, and the number of draws that are used."""
GENERATOR_STATE_SIZE = 7
ROUND, DOCUMENT, INSTANCES, MASKS, PACKED, PAIR_TOKENS, TRUNCATED_TOKENS = range(GENERATOR_STATE_SIZE)
"""The generator's state: the round, the index in the shuffled documents, the numbers of instances and masks so far; for full
sentences the number of packed tokens; for pairs of sentences that all fit a record, the number of tokens before they are
truncated, and how many of these are removed."""
NO_SEGMENT = -1
"""The size of segment B if B and its [SEP] are missing; then the length is still the sizes of both segments plus three."""
UNCHANGED = -1
"""Stands for the replacement at a masked position that keeps its token; to store the token itself would cost a cache miss."""

# --- rows of tokens

NO_TOKEN = -1
"""The id that stands for a special token which the tokenizer lacks."""
WINDOW_WIDTH = 6
(
    WINDOW_TOKENS, WINDOW_TOKEN_BYTES, WINDOW_WORD_BITS, WINDOW_BEGINS, WINDOW_SIZES, WINDOW_ROW_STARTS,
) = range(WINDOW_WIDTH)  # fmt: skip
"""The numbers that describe a window of sequences: the address of its first token; the size of a token, 2 or 4 bytes; and the
addresses of the bits of tokens that begin a word (or 0), of the tokens at which its sequences begin (u32, counted from the
first token), of their sizes (i32), and of the first sequence in each row (i32)."""

# --- counting records

ABOUT_WIDTH = 5
IS_VALID, LENGTH, DRAWN, FIRST_SEP, INNER_SEPS = range(ABOUT_WIDTH)
"""Numbers about a record: whether it breaks no rule; its length in tokens; the number of its predictions; the position of its
first [SEP]; and the number of [SEP] before the last token."""

FULL_SENTENCES, TWO_SEGMENTS, ONE_OR_TWO_SEGMENTS = range(3)
"""Kinds of layout: one segment, which may have [SEP] between documents; A and B; A alone, or A and B."""
EXACT_COUNT, AT_MOST, WHOLE_WORDS = range(3)
"""Rules for the number of predictions. The table by length gives the exact number; or a bound, for whole words if it is unknown
which tokens begin one; or a bound that is reached unless no further word fits."""

SIGNS = 8
RIGHT, LEFT, EXPECTED_RIGHT, EXPECTED_LEFT, OPEN_FOLLOWS, OPEN_RANDOM, OWN_B, OTHER_B = range(SIGNS)
"""Counts over records.

RIGHT and LEFT count predictions whose label equals the token on that side, and EXPECTED_* how many are expected, in units of
1 / SCALE. OPEN_* count open records, whose A is too short to be a sentence of the target length, with a B that follows or is
random. OWN_B and OTHER_B compare pairs of records with a random B, cut to equal lengths: they count pairs whose As have more
tokens in common with their own Bs than with each other's, or fewer.
"""

WORD_ROWS = 5
"""Number of rows of seq + 1 numbers that the checker needs for whole words."""
CHOICE = 64
"""Logarithms to base 2 are kept in units of 1 / CHOICE."""
SKETCH_WORDS = 8
"""Number of uint64 in the sketch of a record, in which each token of its text sets one bit."""
CONTINUES, ALONE_IN_WORD = 1, 2
"""Kinds of tokens: it continues a word; it is a word of its own, which no token continues."""
SCALE = 1 << 20
"""Expected counts are sums of fractions, kept as integers in units of 1 / SCALE, so a fraction is exact to one millionth."""
