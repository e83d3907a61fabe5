"""Defines the settings that decide the bytes of a file, and no others, as frozen dataclasses that are checked when built.

They are written to the manifest. Two runs with equal settings, text and vocabulary write equal files. Everything else, such
as workers and folders, is an argument of the functions that do the work.
"""

import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from enum import Enum
from numbers import Integral, Real
from typing import Any, ClassVar, TypeAlias

from bertprep.errors import UsageError
from bertprep.options import MADE, Settings, option


class RecordFormat(str, Enum):
    """The layout of a record file: `value` is its name in commands, `label` its usual spelling, `number` its id in kernels.

    >>> f"{RecordFormat.TFRECORD}/{RecordFormat('ofrecord').label}"
    'tfrecord/OFRecord'
    """

    label: str
    number: int

    TFRECORD = "tfrecord", "TFRecord", 1
    OFRECORD = "ofrecord", "OFRecord", 2
    ARROW = "arrow", "Arrow", 4
    PARQUET = "parquet", "Parquet", 4  # the same number, since it is read as Arrow

    def __new__(cls, name: str, label: str = "", number: int = 0) -> "RecordFormat":
        """Make a format equal to its name; defaults are for type checkers."""
        record_format = str.__new__(cls, name)
        record_format._value_ = name
        record_format.label, record_format.number = label, number
        return record_format

    __str__ = str.__str__

    @property
    def is_columnar(self) -> bool:
        """Whether a file has columns that `datasets` reads (`records.columns`)."""
        return self in (RecordFormat.ARROW, RecordFormat.PARQUET)


RECORD_FORMATS = tuple(RecordFormat)
DEFAULT_FORMATS = RecordFormat.TFRECORD, RecordFormat.OFRECORD
"""The formats that are written by default."""
PAIRS = NEXT_SENTENCE, UNPAIRED = ("next-sentence", "none")
BY_LINES = "lines"
BY_RULES = "bertprep-1"
"""The version of the rules of `text.sentences`: another one makes other sentences, so that their text is never mixed."""
SPLITTERS = (BY_RULES, BY_LINES)
FEATURE_NAMES = GOOGLE, TF2 = ("google", "tf2")
COMPRESSIONS = NONE, GZIP = ("none", "gzip")
TASKS = SQUAD, GLUE, NER = ("squad", "glue", "ner")
SQUAD_VERSIONS = ("1.1", "2.0")


def is_language(code: str) -> bool:
    """Return whether a code has the form of a language of Wikipedia."""
    return re.fullmatch("([a-z]{2,3}|simple)(-[a-z]+)*", code) is not None


@dataclass(frozen=True, kw_only=True)
class ShardSettings(Settings):
    """The settings for making text shards of a corpus."""

    group: ClassVar[str] = MADE
    shards: int | None = option(
        None, "number of training shards (default: one per 4 MB of text, at least 4, at most 1,024 up to 64 GB)",
        least=1, most=1_000_000,
    )  # fmt: skip
    test_fraction: float = option(
        0.1, "fraction of the text, by size, that is held out for testing", metavar="FRACTION", least=0, below=1
    )
    splitter: str = option(BY_RULES, "sentence splitter: bertprep's rules, or one sentence per line", choices=SPLITTERS)
    language: str | None = option(
        None, "language code of the text, such as de: selects the Wikipedia to read and the abbreviations of the sentence "
        "splitter (default: the language of the Wikipedia or the dump, else en)",
        metavar="CODE",
    )  # fmt: skip
    keep_duplicates: bool = option(False, "keep documents with the same text as an earlier one")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.language is not None and not is_language(self.language):
            raise UsageError(f"--language {self.language}: must be a code in lower case, such as en, de or zh")


@dataclass(frozen=True, kw_only=True)
class VocabularySettings(Settings):
    """The settings for training a vocabulary."""

    group: ClassVar[str] = MADE
    size: int = option(
        8000, "number of tokens, including special tokens", metavar="TOKENS", least=5, most=1_000_000, also=("--vocab-size",)
    )
    cased: bool = option(False, "keep upper case and accents")
    coverage: float = option(
        1.0, "fraction of the text's characters that have tokens; words with the rarest others become [UNK], as with "
        "SentencePiece's 0.9995", metavar="FRACTION", above=0, most=1,
    )  # fmt: skip
    min_frequency: int = option(2, "how often a pair of pieces must occur to become a token", metavar="COUNT", least=1)
    unused: int = option(
        0, "reserve tokens [unused0], [unused1], ... after [PAD] for later use; Google's vocabularies have 99 there",
        metavar="TOKENS", least=0, most=1_000_000,
    )  # fmt: skip
    special: Sequence[str] = option((), "special tokens of your own, such as [ENT], after [MASK]", metavar="TOKEN")

    @property
    def digest(self) -> str:
        """Return four digits that stand for the settings other than size and case, "" if these are the default."""
        others = {each.name: getattr(self, each.name) for each in fields(VocabularySettings)[2:]}
        if all(others[each.name] == each.default for each in fields(VocabularySettings)[2:]):
            return ""
        return hashlib.sha256(json.dumps(others).encode()).hexdigest()[:4]


def read_mask_as(shares: Any, named: str) -> tuple[float, float, float]:
    """Return the fractions of masked tokens that become [MASK], become a random token, and stay the same.

    Raises `UsageError`, with a message that begins with `named`, unless `shares` are three fractions that add up to 1.
    """
    try:
        masked, random, kept = map(float, shares)
    except (TypeError, ValueError):
        masked = random = kept = math.nan
    if min(masked, random, kept) < 0 or not math.isclose(masked + random + kept, 1, abs_tol=1e-6):
        raise UsageError(f"{named}: expected three fractions for mask, random and keep, which add up to 1")
    return masked, random, kept


@dataclass(frozen=True)
class MaskSchedule:
    """A fraction of masked tokens that changes linearly from `start` to `end` over the first `rows` rows, and then stays.

    Rows are counted over all epochs. Example: `TokenDataset(masked_lm_prob=MaskSchedule(0.3, 0.15, rows=1_000_000))`
    """

    start: float
    end: float
    rows: int

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            value = getattr(self, name)
            if not isinstance(value, Real) or not 0 < float(value) < 1:
                raise UsageError(f"MaskSchedule: {name} {value!r}: expected a fraction above 0 and below 1")
            object.__setattr__(self, name, float(value))
        if not isinstance(self.rows, Integral) or not 1 <= int(self.rows) < 1 << 63:
            raise UsageError(
                f"MaskSchedule: rows {self.rows!r}: expected a whole number of rows for the change, such as 1_000_000"
            )
        object.__setattr__(self, "rows", int(self.rows))


MaskedShare: TypeAlias = float | tuple[float, float] | MaskSchedule
"""The fraction of masked tokens: one for all rows, a range from which each row's is drawn, or a schedule."""


def masks_cut_off(seq: int, pred: int, masked_lm_prob: float) -> int:
    """Return the number of masks that `masked_lm_prob` implies for a full sequence, if `pred` allows far fewer; else 0.

    >>> masks_cut_off(512, 76, 0.15), masks_cut_off(512, 20, 0.15)  # 76 of 77 as in MLPerf's records, and 20
    (0, 77)
    """
    wanted = round(seq * masked_lm_prob)
    return wanted if wanted > 1.1 * pred else 0


@dataclass(frozen=True, kw_only=True)
class InstanceSettings(Settings):
    """The settings for masked-LM instances: the flags of Google's `create_pretraining_data.py`, and `pairs`.

    Defaults are Google's except for `dupe`, whose default is NVIDIA's 5, not 10.
    """

    group: ClassVar[str] = MADE
    seq: int = option(
        128, "sequence length in tokens, with [CLS] and each [SEP] (max_seq_length)", metavar="TOKENS", least=8, most=65_535,
        also=("--max-seq-length",),
    )  # fmt: skip
    pred: int = option(
        20, "maximum number of masked tokens in a sequence (max_predictions_per_seq)", metavar="TOKENS", least=1,
        also=("--max-predictions-per-seq",),
    )  # fmt: skip
    # 5 and 10 are usual; the limit keeps the number of instances within the range of its counters
    dupe: int = option(
        5, "number of times each document is used, cut and masked differently each time (dupe_factor)", least=1, most=10_000,
        also=("--dupe-factor",),
    )  # fmt: skip
    masked_lm_prob: float = option(0.15, "fraction of the tokens that are masked", metavar="FRACTION", above=0, most=1)
    short_seq_prob: float = option(
        0.1, "probability that a document becomes shorter sequences, of a random target length", least=0, most=1,
        rare=True,
    )  # fmt: skip
    seed: int = option(12345, "random seed; shard i uses seed + i (random_seed)", least=0, also=("--random-seed",))
    one_seed: bool = option(False, "give every shard the same seed, as NVIDIA's tool does (default: off)", rare=True)
    whole_word: bool = option(False, "mask whole words, do_whole_word_mask (default: off)")
    cased: bool = option(False, "keep upper case and accents, for a cased vocabulary (do_lower_case=False)")
    pairs: str = option(
        NEXT_SENTENCE, "next-sentence (BERT): two segments, with a label for whether the second follows the first; or none "
        "(RoBERTa): full sentences up to the sequence length, across documents, without that label",
        choices=PAIRS,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pred > self.longest:
            raise UsageError(
                f"--pred {self.pred}: must be at least 1 and at most {self.longest}, "
                f"the {self.seq} tokens of a sequence minus [CLS] and {'two ' if self.has_pairs else ''}[SEP]"
            )
        if not self.has_pairs and self.short_seq_prob != InstanceSettings.short_seq_prob:
            raise UsageError(
                f"--short-seq-prob {self.short_seq_prob:g}: is for sentence pairs; leave it out, since with --pairs none "
                "every sequence is as long as its sentences allow"
            )

    @property
    def has_pairs(self) -> bool:
        return self.pairs == NEXT_SENTENCE

    @property
    def longest(self) -> int:
        """Return the maximum number of text tokens in a sequence, without the special tokens."""
        return self.seq - (3 if self.has_pairs else 2)

    @property
    def made_with(self) -> dict[str, Any]:
        """Return the settings for the manifest, without those that have no effect."""
        made_with = asdict(self)
        if not self.has_pairs:
            del made_with["short_seq_prob"]
        return made_with

    def shard_seed(self, shard: int) -> int:
        return self.seed if self.one_seed else self.seed + shard


@dataclass(frozen=True, kw_only=True)
class SquadSettings(Settings):
    """The settings for SQuAD's features: the flags of Google's `run_squad.py`, with its defaults."""

    group: ClassVar[str] = MADE
    seq: int = option(
        384, "sequence length in tokens, with [CLS] and two [SEP] (max_seq_length)", metavar="TOKENS", least=8, most=65_535,
        also=("--max-seq-length",),
    )  # fmt: skip
    doc_stride: int = option(
        128, "tokens from the start of a window to the start of the next one (doc_stride)", metavar="TOKENS", least=1
    )
    max_query: int = option(
        64,
        "maximum tokens of a question; the rest is cut off (max_query_length)",
        metavar="TOKENS",
        least=1,
        also=("--max-query-length",),
    )
    cased: bool = option(False, "keep upper case and accents, for a cased vocabulary (do_lower_case=False)")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_query > self.seq - 4:
            raise UsageError(
                f"--max-query {self.max_query}: must be at most {self.seq - 4}, the {self.seq} tokens of a sequence minus "
                "[CLS], two [SEP] and a token of the context"
            )


@dataclass(frozen=True, kw_only=True)
class GlueSettings(Settings):
    """The settings for the features of labelled texts: the flags of Google's `run_classifier.py`, with its defaults."""

    group: ClassVar[str] = MADE
    seq: int = option(
        128, "sequence length in tokens, with [CLS] and two [SEP] (max_seq_length)", metavar="TOKENS", least=8, most=65_535,
        also=("--max-seq-length",),
    )  # fmt: skip
    cased: bool = option(False, "keep upper case and accents, for a cased vocabulary (do_lower_case=False)")


@dataclass(frozen=True, kw_only=True)
class Variant(Settings):
    """A TFRecord variant: other feature names or compression, with the same values. Other formats have no variants."""

    group: ClassVar[str] = MADE
    feature_names: str = option(
        GOOGLE, "feature names: Google's, or with tf2 input_word_ids and input_type_ids, which the Model Garden reads "
        "with use_v2_feature_names; TFRecord only", choices=FEATURE_NAMES, rare=True,
    )  # fmt: skip
    compress: str = option(
        NONE, "gzip writes .tfrecord.gz files of little more than a third of the size, which readers decompress only on "
        "request; TFRecord only", choices=COMPRESSIONS, rare=True,
    )  # fmt: skip

    @property
    def made_with(self) -> dict[str, str]:
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}

    def check_fits(self, formats: tuple[RecordFormat, ...], asked_by: str) -> None:
        """Raise `UsageError` if one of the formats cannot be written in this variant; `asked_by` is the option for formats."""
        if self.made_with and formats != (RecordFormat.TFRECORD,):
            asked = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in self.made_with.items())
            other = next(name for name in formats if name != RecordFormat.TFRECORD).label
            raise UsageError(f"{asked}: is for TFRecord only, and {other} has no such variant; give {asked_by} tfrecord")


DEFAULT_VARIANT = Variant()
