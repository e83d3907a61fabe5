"""What a user can ask for, as frozen dataclasses that are checked when they are built.

`ShardSettings`, `InstanceSettings` and `Dialect` hold all that decides the bytes of a file, and nothing else: they go into
the manifest, and two runs with equal settings, text and vocabulary write equal files. What does not change the bytes
(workers, folders) is an argument of the functions that do the work.
"""

import math
import operator
import re
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from bertprep.errors import UsageError


class RecordFormat(str, Enum):
    """How records are laid out in a file; which features they have is another matter (`records.examples`).

    A format is its name on the command line, in manifests and of the folder that holds its files; `label` is what people call
    it, `number` what kernels do.

    >>> f"{RecordFormat.TFRECORD}/{RecordFormat('ofrecord').label}"
    'tfrecord/OFRecord'
    """

    label: str
    number: int

    TFRECORD = "tfrecord", "TFRecord", 1
    OFRECORD = "ofrecord", "OFRecord", 2

    def __new__(cls, name: str, label: str = "", number: int = 0) -> "RecordFormat":
        """A format that is equal to its name; defaults, since type checkers take RecordFormat(name) for a call of this."""
        record_format = str.__new__(cls, name)
        record_format._value_ = name
        record_format.label, record_format.number = label, number
        return record_format

    __str__ = str.__str__


RECORD_FORMATS = tuple(RecordFormat)
SPLITTERS = ("sentencex", "lines")
FEATURE_NAMES = GOOGLE, TF2 = ("google", "tf2")
COMPRESSIONS = NONE, GZIP = ("none", "gzip")
_IN_WORDS = {int: "a whole number", float: "a number", bool: "True or False", str: "text"}


def check_types(settings: Any) -> None:
    """Make the fields of a new settings dataclass of the types that they are annotated with, or raise `UsageError`.

    Whatever is integral (NumPy's numbers too) becomes an int, numbers become floats; a bool, a text or a fraction is no number
    of anything.
    """
    kinds = typing.get_type_hints(type(settings))
    for each in fields(settings):
        value, kind = getattr(settings, each.name), kinds[each.name]
        if isinstance(kind, types.UnionType):  # "int | None"
            if value is None:
                continue
            kind = kind.__args__[0]
        try:
            if kind is int and not isinstance(value, bool):
                value = operator.index(value)
            elif kind is float and not isinstance(value, bool | str | bytes):
                value = float(value)
            if type(value) is not kind:
                raise TypeError
        except (TypeError, ValueError, OverflowError):
            name, words = each.name.replace("_", "-"), _IN_WORDS[kind]
            raise UsageError(f"--{name} {value!r}: must be {words}, found {type(value).__name__}") from None
        object.__setattr__(settings, each.name, value)


def option(default: Any, help: str, **more: Any) -> Any:  # noqa: A002 - the name argparse uses
    """A field that is also a command-line option; `help` is what the command line shows."""
    return field(default=default, metadata={"help": help, **more})


@dataclass(frozen=True, kw_only=True)
class ShardSettings:
    """How a corpus becomes text shards."""

    shards: int | None = option(None, "training shards; by default one for 4 MB of text, at least 4, at most 1,024")
    test_fraction: float = option(0.1, "share of the text, by size, that is held out for testing")
    splitter: str = option("sentencex", "what ends a sentence: sentencex's rules, or the end of a line", choices=SPLITTERS)
    language: str | None = option(
        None, "language of the text, a code such as de, for the sentence splitter and to name a Wikipedia; one that sentencex "
        "does not know is split by English rules (default: that of the Wikipedia, else en)",
    )  # fmt: skip
    keep_duplicates: bool = option(False, "keep documents whose text is the same as that of an earlier one")

    def __post_init__(self) -> None:
        check_types(self)
        if self.shards is not None and self.shards < 1:
            raise UsageError(f"--shards {self.shards}: there must be at least 1 training shard")
        if not 0 <= self.test_fraction < 1:
            raise UsageError(f"--test-fraction {self.test_fraction}: must be at least 0 and below 1")
        if self.splitter not in SPLITTERS:
            raise UsageError(f"--splitter {self.splitter}: unknown; choose one of {', '.join(SPLITTERS)}")
        if self.language is not None and not re.fullmatch("([a-z]{2,3}|simple)(-[a-z]+)*", self.language):
            raise UsageError(f"--language {self.language}: must be a code such as en, de or zh")


@dataclass(frozen=True, kw_only=True)
class InstanceSettings:
    """How text shards become masked-LM instances: the flags of Google's `create_pretraining_data.py`.

    Only `dupe` differs from Google's default (10): 5 is what NVIDIA's recipes for the two-phase pretraining use.
    """

    seq: int = option(128, "length of a sequence in tokens, with [CLS] and two [SEP] (max_seq_length)")
    pred: int = option(20, "most masked tokens in a sequence (max_predictions_per_seq)")
    dupe: int = option(5, "times each document is used, each time cut and masked anew (dupe_factor)")
    masked_lm_prob: float = option(0.15, "share of the tokens that are masked")
    short_seq_prob: float = option(0.1, "share of documents cut to a shorter, random length")
    seed: int = option(12345, "random seed; shard i uses seed + i (random_seed)")
    one_seed: bool = option(False, "give every shard the same seed, as NVIDIA's tool does")
    whole_word: bool = option(False, "mask whole words (do_whole_word_mask)")
    cased: bool = option(False, "keep upper case and accents, for a cased vocabulary (do_lower_case=False)")

    def __post_init__(self) -> None:
        check_types(self)
        if not 8 <= self.seq <= 65_535:
            raise UsageError(f"--seq {self.seq}: must be at least 8 and at most 65535 tokens")
        if not 1 <= self.pred <= self.seq - 3:
            raise UsageError(
                f"--pred {self.pred}: must be at least 1 and at most {self.seq - 3}, "
                f"the {self.seq} tokens of a sequence less [CLS] and two [SEP]"
            )
        if not 1 <= self.dupe <= 10_000:  # where 5 and 10 are usual; numbers of instances are to fit into what counts them
            raise UsageError(f"--dupe {self.dupe}: must be at least 1 and at most 10000")
        if not (math.isfinite(self.masked_lm_prob) and 0 < self.masked_lm_prob <= 1):
            raise UsageError(f"--masked-lm-prob {self.masked_lm_prob}: must be above 0 and at most 1")
        if not (math.isfinite(self.short_seq_prob) and 0 <= self.short_seq_prob <= 1):
            raise UsageError(f"--short-seq-prob {self.short_seq_prob}: must be at least 0 and at most 1")
        if self.seed < 0:
            raise UsageError(f"--seed {self.seed}: must be at least 0")

    def shard_seed(self, shard: int) -> int:
        """The seed of shard number `shard`."""
        return self.seed if self.one_seed else self.seed + shard


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How TFRecords are written for readers that want them otherwise; the values in them are the same.

    Every reader of OFRecord looks for Google's names, and none decompresses, so OFRecord has one form only.
    """

    feature_names: str = option(
        GOOGLE, "names of the features: Google's, or TensorFlow 2's input_word_ids and input_type_ids, which the Model Garden "
        "reads with use_v2_feature_names; TFRecord only", choices=FEATURE_NAMES,
    )  # fmt: skip
    compress: str = option(
        NONE, "gzip writes .tfrecord.gz, a good third of the size, which readers must be told of; TFRecord only",
        choices=COMPRESSIONS,
    )  # fmt: skip

    def __post_init__(self) -> None:
        for name, choices in (("feature_names", FEATURE_NAMES), ("compress", COMPRESSIONS)):
            if (value := getattr(self, name)) not in choices:
                raise UsageError(f"--{name.replace('_', '-')} {value}: unknown; choose one of {', '.join(choices)}")

    @property
    def made_with(self) -> dict[str, str]:
        """What a manifest says: the settings that are not the default, so that folders made before there were others match."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}

    def check_fits(self, formats: tuple[RecordFormat, ...], asked_by: str) -> None:
        """Raise `UsageError` where one of the formats, which the option `asked_by` names, cannot be written so."""
        if self.made_with and formats != (RecordFormat.TFRECORD,):
            asked = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in self.made_with.items())
            raise UsageError(f"{asked}: is for TFRecord only, no reader of OFRecord takes it; give {asked_by} tfrecord")


DEFAULT_DIALECT = Dialect()


def check_formats(formats: str | Iterable[str]) -> tuple[RecordFormat, ...]:
    """The record formats of a comma-separated list or of some names, in the order of `RecordFormat`."""
    wanted = [name.strip() for name in formats.split(",")] if isinstance(formats, str) else list(formats)
    if not wanted or not set(wanted) <= set(RECORD_FORMATS):
        raise UsageError(f"--format {','.join(wanted)}: choose from {', '.join(RECORD_FORMATS)}, or both")
    return tuple(name for name in RECORD_FORMATS if name in wanted)


def check_format(name: str, option: str) -> RecordFormat:
    """The record format of that name, which `option` gave."""
    if name not in RECORD_FORMATS:
        raise UsageError(f"{option} {name}: unknown; choose {' or '.join(RECORD_FORMATS)}")
    return RecordFormat(name)
