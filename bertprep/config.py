"""What a user can ask for, as frozen dataclasses that are checked when they are built.

`ShardSettings`, `InstanceSettings` and `Dialect` hold all that decides the bytes of a file, and nothing else: they go into
the manifest, and two runs with equal settings, text and vocabulary write equal files. What does not change the bytes
(workers, folders) is an argument of the functions that do the work.
"""

import re
from dataclasses import dataclass, fields

from bertprep.errors import UsageError
from bertprep.options import check_options, option

RECORD_FORMATS = ("tfrecord", "ofrecord")
SPLITTERS = ("sentencex", "lines")
FEATURE_NAMES = GOOGLE, TF2 = ("google", "tf2")
COMPRESSIONS = NONE, GZIP = ("none", "gzip")


@dataclass(frozen=True, kw_only=True)
class ShardSettings:
    """How a corpus becomes text shards."""

    shards: int | None = option(
        None, "training shards; by default one for 4 MB of text, at least 4, at most 1,024", least=1
    )  # fmt: skip
    test_fraction: float = option(0.1, "fraction of the text, by size, that is held out for testing", least=0, below=1)
    splitter: str = option("sentencex", "what ends a sentence: sentencex's rules, or the end of a line", choices=SPLITTERS)
    language: str | None = option(
        None, "language of the text, a code such as de, for the sentence splitter and to name a Wikipedia; one that sentencex "
        "does not know is split by English rules (default: that of the Wikipedia, else en)", metavar="CODE",
    )  # fmt: skip
    keep_duplicates: bool = option(False, "keep documents whose text is the same as that of an earlier one")

    def __post_init__(self) -> None:
        check_options(self)
        if self.language is not None and not re.fullmatch("([a-z]{2,3}|simple)(-[a-z]+)*", self.language):
            raise UsageError(f"--language {self.language}: must be a code such as en, de or zh")


@dataclass(frozen=True, kw_only=True)
class InstanceSettings:
    """How text shards become masked-LM instances: the flags of Google's `create_pretraining_data.py`.

    Only `dupe` differs from Google's default (10): 5 is what NVIDIA's recipes for the two-phase pretraining use.
    """

    seq: int = option(128, "sequence length in tokens, with [CLS] and two [SEP] (max_seq_length)", least=8, most=65_535)
    pred: int = option(20, "maximum number of masked tokens in a sequence (max_predictions_per_seq)", least=1)
    # 5 and 10 are usual; the bound keeps the number of instances within its counters
    dupe: int = option(
        5, "times each document is used, with other cuts and masks each time (dupe_factor)", least=1, most=10_000
    )
    masked_lm_prob: float = option(0.15, "fraction of the tokens that are masked", above=0, most=1)
    short_seq_prob: float = option(0.1, "fraction of documents cut to a shorter, random length", least=0, most=1)
    seed: int = option(12345, "random seed; shard i uses seed + i (random_seed)", least=0)
    one_seed: bool = option(False, "give every shard the same seed, as NVIDIA's tool does")
    whole_word: bool = option(False, "mask whole words (do_whole_word_mask)")
    cased: bool = option(False, "keep upper case and accents, for a cased vocabulary (do_lower_case=False)")

    def __post_init__(self) -> None:
        check_options(self)
        if self.pred > self.seq - 3:
            raise UsageError(
                f"--pred {self.pred}: must be at least 1 and at most {self.seq - 3}, "
                f"the {self.seq} tokens of a sequence less [CLS] and two [SEP]"
            )

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
        check_options(self)

    @property
    def made_with(self) -> dict[str, str]:
        """What a manifest says: the settings that are not the default, so that folders made before there were others match."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}

    def check_fits(self, formats: tuple[str, ...], asked_by: str) -> None:
        """Raise `UsageError` where one of the formats, which the option `asked_by` names, cannot be written so."""
        if self.made_with and formats != ("tfrecord",):
            asked = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in self.made_with.items())
            raise UsageError(f"{asked}: is for TFRecord only, no reader of OFRecord takes it; give {asked_by} tfrecord")


DEFAULT_DIALECT = Dialect()


def check_formats(formats: str | tuple[str, ...]) -> tuple[str, ...]:
    """The record formats of a comma-separated list or a tuple, in the order of `RECORD_FORMATS`."""
    wanted = tuple(name.strip() for name in formats.split(",")) if isinstance(formats, str) else formats
    unknown = [name for name in wanted if name not in RECORD_FORMATS]
    if unknown or not wanted:
        raise UsageError(f"--format {','.join(wanted)}: choose from {', '.join(RECORD_FORMATS)}, or both")
    return tuple(name for name in RECORD_FORMATS if name in wanted)
