"""What a user can ask for, as frozen dataclasses that are checked when they are built.

`ShardSettings` and `InstanceSettings` hold all that decides the bytes of a file, and nothing else: they go into the
manifest, and two runs with equal settings, text and vocabulary write equal files. What does not change the bytes
(workers, folders) is an argument of the functions that do the work.
"""

import math
import re
from dataclasses import dataclass, field
from typing import Any

from bertprep.errors import UsageError

RECORD_FORMATS = ("tfrecord", "ofrecord")
SPLITTERS = ("sentencex", "lines")


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
        if not 8 <= self.seq <= 65_535:
            raise UsageError(f"--seq {self.seq}: must be at least 8 and at most 65535 tokens")
        if not 1 <= self.pred <= self.seq - 3:
            raise UsageError(
                f"--pred {self.pred}: must be at least 1 and at most {self.seq - 3}, "
                f"the {self.seq} tokens of a sequence less [CLS] and two [SEP]"
            )
        if self.dupe < 1:
            raise UsageError(f"--dupe {self.dupe}: must be at least 1")
        if not (math.isfinite(self.masked_lm_prob) and 0 < self.masked_lm_prob <= 1):
            raise UsageError(f"--masked-lm-prob {self.masked_lm_prob}: must be above 0 and at most 1")
        if not (math.isfinite(self.short_seq_prob) and 0 <= self.short_seq_prob <= 1):
            raise UsageError(f"--short-seq-prob {self.short_seq_prob}: must be at least 0 and at most 1")
        if self.seed < 0:
            raise UsageError(f"--seed {self.seed}: must be at least 0")

    def shard_seed(self, shard: int) -> int:
        """The seed of shard number `shard`."""
        return self.seed if self.one_seed else self.seed + shard


def check_formats(formats: str | tuple[str, ...]) -> tuple[str, ...]:
    """The record formats of a comma-separated list or a tuple, in the order of `RECORD_FORMATS`."""
    wanted = tuple(name.strip() for name in formats.split(",")) if isinstance(formats, str) else formats
    unknown = [name for name in wanted if name not in RECORD_FORMATS]
    if unknown or not wanted:
        raise UsageError(f"--format {','.join(wanted)}: choose from {', '.join(RECORD_FORMATS)}, or both")
    return tuple(name for name in RECORD_FORMATS if name in wanted)
