"""How published encoders were pretrained, as the options of our commands and the keywords of `TokenDataset`.

    bertprep tokenize --recipe modernbert --input text.parquet --output tokens
    bertprep.TokenDataset("tokens", **bertprep.recipe("modernbert:2").dataset())

Only what shapes the data is here: the tokenizer, lengths, masks, packing, and the fraction of tokens of each phase. Options
that are given next to --recipe override it.
"""

from __future__ import annotations

from argparse import SUPPRESS, Namespace
from dataclasses import dataclass, field, replace
from typing import Any

from bertprep.errors import UsageError
from bertprep.parser import Once
from bertprep.rules import shown
from bertprep.terminal import near, print_message

OPTION = "--recipe"
COMMANDS = CREATE, TOKENIZE, PRETRAIN = "create", "tokenize", "pretrain"


@dataclass(frozen=True)
class Phase:
    """A phase of a pretraining: sequence length, fraction of the tokens that are masked, and its fraction of all tokens.

    `pred` is the maximum number of masked tokens of a record, where sentences are paired.
    """

    seq: int
    masked_lm_prob: float
    fraction: float = 1.0
    pred: int | None = None


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The data of one encoder; `source` is where its values were read."""

    name: str
    tokenizer: str  # of the Hub
    phases: tuple[Phase, ...]
    mask_as: tuple[float, float, float] = (0.8, 0.1, 0.1)  # [MASK], a random token, the token itself
    packed: bool = True
    first_position: int = 0
    dupe: int | None = None  # of create, which pairs sentences; the others take documents
    mds_column: str | None = None  # that its own loader of MDS reads, if it is not our default
    source: str = field(repr=False)

    def phase(self, number: int) -> Phase:
        """Return a phase, counted from 1."""
        if not 1 <= number <= len(self.phases):
            raise UsageError(f"recipe {self.name}: has no phase {number}; choose 1 to {len(self.phases)}")
        return self.phases[number - 1]

    def dataset(self, phase: int = 1, **others: Any) -> dict[str, Any]:
        """Return the keywords of `TokenDataset` for a phase; `others` override them, as in `dataset(seq=128)`."""
        chosen = self.phase(phase)
        return {
            "seq": chosen.seq, "masked_lm_prob": chosen.masked_lm_prob, "mask_as": self.mask_as, "packed": self.packed,
            "first_position": self.first_position, **others,
        }  # fmt: skip

    def values(self, command: str, *, mds: bool = False) -> dict[str, Any]:
        """Return the options of a command for the first phase, by name; the trainer's command is pretrain."""
        phase = self.phases[0]
        if command == TOKENIZE:
            rows = {"seq": phase.seq, "column": self.mds_column} if mds else {}
            return {"tokenizer": self.tokenizer, **{name: value for name, value in rows.items() if value is not None}}
        if command == CREATE:
            if self.dupe is None:
                raise UsageError(
                    f"{OPTION} {self.name}: takes documents without masks or pairs; "
                    f"make them with bertprep tokenize {OPTION} {self.name}"
                )
            return {"seq": phase.seq, "pred": phase.pred, "masked_lm_prob": phase.masked_lm_prob, "dupe": self.dupe}
        if self.dupe is not None:  # whose masks are in the records
            return {"seq": phase.seq}
        unpacked = {} if self.packed else {"packed": False}
        return {"seq": phase.seq, **unpacked, "masked_lm_prob": phase.masked_lm_prob, "mask_as": self.mask_as}


_BERT = "google-bert/bert-base-uncased"
RECIPES = {
    each.name: each
    for each in (
        Recipe(
            name="bert", tokenizer=_BERT, packed=False, dupe=5,
            phases=(Phase(128, 0.15, 0.9, pred=20), Phase(512, 0.15, 0.1, pred=80)),
            source="google-research/bert README.md and create_pretraining_data.py; NVIDIA's bertPrep for 80 predictions of 512",
        ),
        Recipe(
            name="roberta", tokenizer="FacebookAI/roberta-base", first_position=2, phases=(Phase(512, 0.15),),
            source="facebookresearch/fairseq examples/roberta/config/pretraining/base.yaml",
        ),
        Recipe(
            name="modernbert", tokenizer="answerdotai/ModernBERT-base",
            phases=(Phase(1024, 0.3, 0.851), Phase(8192, 0.3, 0.124), Phase(8192, 0.3, 0.025)),  # 1,719, 250 and 50 B tokens
            source="AnswerDotAI/ModernBERT yamls/modernbert/modernbert-base-*.yaml, src/sequence_packer.py",
        ),
        Recipe(
            name="neobert", tokenizer=_BERT, packed=False, mask_as=(1.0, 0.0, 0.0),
            phases=(Phase(1024, 0.2, 0.952), Phase(4096, 0.2, 0.048)),  # 1 M steps of 2,048, then 50,000 of 512 sequences
            source="chandar-lab/NeoBERT conf/datacollator/mlm_20.yaml, jobs/neobert.sh, jobs/neobert-4096.sh",
        ),
        Recipe(
            name="eurobert", tokenizer="EuroBERT/EuroBERT-210m", mask_as=(1.0, 0.0, 0.0), phases=(Phase(2048, 0.3),),
            mds_column="tokens",
            source="Nicolas-BZRD/EuroBERT optimus/trainer/configuration/train.py, the defaults of its code",
        ),
        Recipe(
            name="mmbert", tokenizer="jhu-clsp/mmBERT-base",
            phases=(Phase(1024, 0.3, 0.741), Phase(8192, 0.15, 0.222), Phase(8192, 0.05, 0.037)),  # 2,000, 600 and 100 B tokens
            source="JHU-CLSP/mmBERT README.md",
        ),
        Recipe(
            name="mlperf", tokenizer=_BERT, packed=False, dupe=10, phases=(Phase(512, 0.15, pred=76),),
            source="mlcommons/training retired_benchmarks/bert README.md",
        ),
    )
}  # fmt: skip
_HELP = (
    f"the options by which a model was pretrained, of {', '.join(RECIPES)}, and the phase from 1, as in mmbert:2; "
    "others given override them (default: none)"
)


def recipe(name: str) -> Recipe:
    """Return how a published encoder was pretrained: bert, roberta, modernbert, neobert, eurobert, mmbert or mlperf.

    NAME:PHASE is that phase alone, counted from 1.

    >>> recipe("mmbert").phase(2) == recipe("mmbert:2").phase(1)
    True
    """
    if not isinstance(name, str):
        raise UsageError(f"recipe {name!r}: expected a name, such as {next(iter(RECIPES))}")
    name, colon, phase = name.partition(":")
    if name not in RECIPES:
        raise UsageError(f"recipe {name}: unknown{near(name, tuple(RECIPES))}; choose one of {', '.join(RECIPES)}")
    found = RECIPES[name]
    if not colon:
        return found
    if not phase.isdecimal():
        raise UsageError(f"recipe {name}:{phase}: expected a name, or name:phase, such as mmbert:2")
    number = int(phase)
    return replace(found, phases=(found.phase(number),))


def add_option(parser: Any) -> None:
    """Add --recipe to the options of a command in `COMMANDS`."""
    parser.add_argument(OPTION, metavar="NAME[:PHASE]", help=_HELP, action=Once, default=SUPPRESS)


def apply(command: str, given: Namespace) -> Namespace:
    """Set the options of --recipe that a command line has not given, and print them.

    A recipe of several phases stands for the first of them.
    """
    if "recipe" not in given:
        return given
    chosen = recipe(given.recipe)
    values = chosen.values(command, mds=getattr(given, "format", None) == "mds")
    added = {name: value for name, value in values.items() if name not in given}
    text = " ".join(_as_option(name, value) for name, value in added.items()) or "all that it stands for is given"
    if command == PRETRAIN and len(chosen.phases) > 1:
        text = f"phase 1 of {len(chosen.phases)}: {text}"
    print_message(f"{OPTION} {given.recipe}: {text}")
    return Namespace(**added, **vars(given))


def _as_option(name: str, value: object) -> str:
    option = name.replace("_", "-")
    return f"--no-{option}" if value is False else f"--{option} {shown(value)}"
