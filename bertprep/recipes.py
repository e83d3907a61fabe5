"""How published encoders were pretrained, as the options of our commands and the keywords of `TokenDataset`.

    bertprep tokenize --recipe modernbert --input text.parquet --output tokens
    bertprep.TokenDataset("tokens", **bertprep.recipe("modernbert:2").dataset())

Only what shapes the data is here: the tokenizer, lengths, masks, packing, and the fraction of tokens of each phase. Options
that are given next to --recipe override it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from bertprep.errors import UsageError
from bertprep.terminal import near, print_message

OPTION = "--recipe"
COMMANDS = CREATE, TOKENIZE, PRETRAIN = "create", "tokenize", "pretrain"


@dataclass(frozen=True)
class Phase:
    """A phase of a pretraining: sequence length, fraction of the tokens that are masked, and its fraction of all tokens."""

    seq: int
    masked_lm_prob: float
    fraction: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The data of one encoder; `source` is where its values were read."""

    name: str
    tokenizer: str  # of the Hub
    phases: tuple[Phase, ...]
    mask_as: tuple[float, float, float] = (0.8, 0.1, 0.1)  # [MASK], a random token, the token itself
    packed: bool = True
    first_position: int = 0
    pairs: tuple[tuple[str, ...], ...] = ()  # the options of create for each phase, where sentences are paired
    mds: tuple[str, ...] = ()  # what its own loader of MDS wants
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

    def options(self, command: str, *, mds: bool = False) -> list[str]:
        """Return the options of a command for the first phase; the trainer's command is pretrain."""
        seq = str(self.phases[0].seq)
        if command == CREATE:
            if not self.pairs:
                raise UsageError(
                    f"{OPTION} {self.name}: takes documents without masks or pairs; "
                    f"make them with bertprep tokenize {OPTION} {self.name}"
                )
            return ["--seq", seq, *self.pairs[0]]
        if command == TOKENIZE:
            return ["--tokenizer", self.tokenizer, *(["--seq", seq, *self.mds] if mds else [])]
        if self.pairs:  # whose masks are in the records
            return ["--seq", seq]
        masked = ["--masked-lm-prob", f"{self.phases[0].masked_lm_prob:g}"]
        mask_as = ["--mask-as", ",".join(f"{fraction:g}" for fraction in self.mask_as)]
        unpacked = [] if self.packed else ["--no-packed"]
        return ["--seq", seq, *unpacked, *masked, *mask_as]


_BERT = "google-bert/bert-base-uncased"
_EVERYWHERE = "--masked-lm-prob", "0.15", "--dupe"
RECIPES = {
    each.name: each
    for each in (
        Recipe(
            name="bert", tokenizer=_BERT, packed=False, phases=(Phase(128, 0.15, 0.9), Phase(512, 0.15, 0.1)),
            pairs=(("--pred", "20", *_EVERYWHERE, "5"), ("--pred", "80", *_EVERYWHERE, "5")),
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
            mds=("--column", "tokens"),
            source="Nicolas-BZRD/EuroBERT optimus/trainer/configuration/train.py, the defaults of its code",
        ),
        Recipe(
            name="mmbert", tokenizer="jhu-clsp/mmBERT-base",
            phases=(Phase(1024, 0.3, 0.741), Phase(8192, 0.15, 0.222), Phase(8192, 0.05, 0.037)),  # 2,000, 600 and 100 B tokens
            source="JHU-CLSP/mmBERT README.md",
        ),
        Recipe(
            name="mlperf", tokenizer=_BERT, packed=False, phases=(Phase(512, 0.15),),
            pairs=(("--pred", "76", *_EVERYWHERE, "10"),),
            source="mlcommons/training retired_benchmarks/bert README.md",
        ),
    )
}  # fmt: skip
HELP = (
    f"the options by which a model was pretrained, of {', '.join(RECIPES)}, and the phase from 1, as in mmbert:2; "
    "others given override them (default: none)"
)
METAVAR = "NAME[:PHASE]"


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
    return replace(found, phases=(found.phase(number),), pairs=found.pairs[number - 1 : number])


def expand(arguments: Sequence[str]) -> list[str]:
    """Replace --recipe NAME, after its command, by the options that it stands for, and print them; those given override them.

    A recipe of several phases stands for the first of them.
    """
    given = list(arguments)
    positions = [index for index, each in enumerate(given) if each.partition("=")[0] == OPTION]
    if len(positions) > 1 and given[0] in COMMANDS:
        raise UsageError(f"{OPTION}: is given {len(positions)} times; give one")
    at = positions[0] if positions else None
    if at is None or given[0] not in COMMANDS or (given[at] == OPTION and at + 1 == len(given)):  # which the parser refuses
        return given
    joined = given[at].partition("=")[2]
    named = joined or given[at + 1]
    rest = given[:at] + given[at + (1 if joined else 2) :]
    chosen, others = recipe(named), _values(rest)
    options = _without(chosen.options(rest[0], mds=others.get("--format") == "mds"), others)
    text = " ".join(options) or "all that it stands for is given"
    if rest[0] == PRETRAIN and len(chosen.phases) > 1:
        text = f"phase 1 of {len(chosen.phases)}: {text}"
    print_message(f"{OPTION} {named}: {text}")
    return [rest[0], *options, *rest[1:]]


def _values(arguments: Sequence[str]) -> dict[str, str]:
    """Return the (first) value of each option by its name; of a flag it is whatever comes next."""
    found = {}
    for each, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        name, equals, value = each.partition("=")
        if name.startswith("--"):
            found[name.replace("_", "-")] = value if equals else following
    return found


def _without(options: Sequence[str], names: Collection[str]) -> list[str]:
    kept, is_kept = [], True
    for each in options:
        if each.startswith("--"):
            is_kept = each not in names
        if is_kept:
            kept.append(each)
    return kept
