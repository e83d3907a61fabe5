"""Recipes: the data settings of published encoders, as options of commands and keywords of `TokenDataset`.

    bertprep tokenize --recipe modernbert --input text.parquet --output tokens
    bertprep.TokenDataset("tokens", **bertprep.recipe("modernbert:2"))

A recipe only has settings of the data: the tokenizer, lengths, objective, masks, packing, and each phase's fraction of tokens.
Options given next to --recipe override it. docs/reference/recipes.md lists the settings of each model that are left out.
"""

from __future__ import annotations

from argparse import SUPPRESS, Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bertprep.config import MaskedShare, MaskSchedule
from bertprep.errors import UsageError
from bertprep.parser import Once
from bertprep.rules import shown
from bertprep.terminal import near, print_message

OPTION = "--recipe"
COMMANDS = CREATE, TOKENIZE, PRETRAIN = "create", "tokenize", "pretrain"


@dataclass(frozen=True)
class Phase:
    """A phase of pretraining: the sequence length, the fraction of masked tokens, and the phase's fraction of all tokens.

    If `masked` is a pair, each row draws its fraction from that range; if it is None, the objective is "clm". If `last` is
    given, the fraction changes from `masked` to `last` over the first `rows` rows. `fraction` is None if it is not published.
    `pred` is the maximum number of masked tokens in a record of sentence pairs.
    """

    seq: int
    masked: float | tuple[float, float] | None
    fraction: float | None = 1.0
    pred: int | None = None
    last: float | None = None
    rows: int | None = None

    @property
    def masked_lm_prob(self) -> MaskedShare | None:
        if not isinstance(self.masked, float) or self.last is None or self.rows is None:
            return self.masked
        return MaskSchedule(self.masked, self.last, self.rows)


@dataclass(frozen=True, kw_only=True)
class Recipe(Mapping[str, Any]):
    """The data settings of one encoder; as a mapping, the keywords of `TokenDataset` for its first phase.

    `source` is where the values come from: files of a repository with line numbers, or a paper.
    """

    name: str
    tokenizer: str  # its name on the Hub
    phases: tuple[Phase, ...]
    mask_as: tuple[float, float, float] = (0.8, 0.1, 0.1)  # [MASK], a random token, the token itself
    whole_word: bool = False
    span: int | None = None
    ngram: int | None = None
    packed: bool = True
    by_length: bool = False  # for models that cannot read packed rows
    first_position: int = 0
    dupe: int | None = None  # only for recipes of create, which pairs sentences; the others use documents
    mds_column: str | None = None  # the column that the model's own MDS loader reads, if it is not the default
    mds_dtype: str | None = None
    source: str = field(repr=False)
    others: Mapping[str, Any] = field(default_factory=dict, hash=False)  # keywords that override those of every phase

    def __getitem__(self, keyword: str) -> Any:
        return self.dataset()[keyword]

    def __iter__(self) -> Iterator[str]:
        return iter(self.dataset())

    def __len__(self) -> int:
        return len(self.dataset())

    def phase(self, number: int) -> Phase:
        """Return the phase with this number, counted from 1."""
        if not 1 <= number <= len(self.phases):
            raise UsageError(f"recipe {self.name}: has no phase {number}; choose 1 to {len(self.phases)}")
        return self.phases[number - 1]

    def dataset(self, phase: int = 1, **others: Any) -> dict[str, Any]:
        """Return the keywords of `TokenDataset` for a phase; `others` override them, as in `dataset(seq=128)`.

        Raises `TypeError` for a keyword that `TokenDataset` lacks.
        """
        others = {**self.others, **_checked("dataset", others)}
        keywords = {**self._keywords(self.phase(phase)), **others}
        if "mlm_probability" in others:  # another name for the same keyword
            keywords.pop("masked_lm_prob", None)
        return keywords

    def _keywords(self, chosen: Phase) -> dict[str, Any]:
        masked_lm_prob = chosen.masked_lm_prob
        keywords: dict[str, Any] = {"seq": chosen.seq, "packed": self.packed, "first_position": self.first_position}
        if self.by_length:
            keywords["by_length"] = True
        if masked_lm_prob is None:
            return {**keywords, "objective": "clm"}
        keywords |= {"masked_lm_prob": masked_lm_prob, "mask_as": self.mask_as}
        by_words = {"whole_word": self.whole_word or None, "span": self.span, "ngram": self.ngram}
        return {**keywords, **{name: value for name, value in by_words.items() if value is not None}}

    def options(self, command: str, *, mds: bool = False) -> dict[str, Any]:
        """Return the options of a command for the first phase, by name; the command "pretrain" is the trainer's."""
        phase = self.phases[0]
        if command == TOKENIZE:
            rows = {"seq": phase.seq, "column": self.mds_column, "dtype": self.mds_dtype} if mds else {}
            return {"tokenizer": self.tokenizer, **{name: value for name, value in rows.items() if value is not None}}
        if command == CREATE:
            if self.dupe is None:
                raise UsageError(
                    f"{OPTION} {self.name}: needs token shards, not records with masks; "
                    f"make them with bertprep tokenize {OPTION} {self.name}"
                )
            return {"seq": phase.seq, "pred": phase.pred, "masked_lm_prob": phase.masked_lm_prob, "dupe": self.dupe}
        if self.dupe is not None:  # the records have the masks
            return {"seq": phase.seq}
        if self.span or self.ngram or not isinstance(phase.masked_lm_prob, float):
            raise UsageError(
                f"{OPTION} {self.name}: the trainer only masks a fixed fraction of tokens or whole words; read these rows with "
                f'bertprep.TokenDataset(FOLDER, **bertprep.recipe("{self.name}"))'
            )
        by_words = {"whole_word": True} if self.whole_word else {}
        unpacked = {} if self.packed else {"packed": False}
        return {"seq": phase.seq, **unpacked, "masked_lm_prob": phase.masked_lm_prob, **by_words, "mask_as": self.mask_as}


_BERT = "google-bert/bert-base-uncased"
_MODERNBERT = "answerdotai/ModernBERT-base"
_EUROBERT = "EuroBERT/EuroBERT-210m"
RECIPES = {
    each.name: each
    for each in (
        Recipe(
            name="bert", tokenizer=_BERT, packed=False, dupe=5,
            # 90,000 steps of 128 tokens and 10,000 of 512, with the same batch
            phases=(Phase(128, 0.15, 0.692, pred=20), Phase(512, 0.15, 0.308, pred=80)),
            source="google-research/bert README.md and create_pretraining_data.py; NVIDIA's bertPrep for 80 predictions of 512",
        ),
        Recipe(
            name="mlperf", tokenizer=_BERT, packed=False, dupe=10, phases=(Phase(512, 0.15, pred=76),),
            source="mlcommons/training retired_benchmarks/bert README.md",
        ),
        Recipe(
            name="roberta", tokenizer="FacebookAI/roberta-base", first_position=2, phases=(Phase(512, 0.15),),
            source="facebookresearch/fairseq examples/roberta/config/pretraining/base.yaml",
        ),
        Recipe(
            name="xlm-r", tokenizer="FacebookAI/xlm-roberta-base", first_position=2, phases=(Phase(512, 0.15),),
            source="the model card of FacebookAI/xlm-roberta-large for 15%; 512 tokens as for RoBERTa, with the same positions",
        ),
        Recipe(
            name="albert", tokenizer="albert/albert-base-v2", packed=False, ngram=3, phases=(Phase(512, 0.15),),
            source="google-research/albert create_pretraining_data.py: flags ngram, masked_lm_prob, max_seq_length, "
            "favor_shorter_ngram and do_whole_word_mask",
        ),
        Recipe(
            name="spanbert", tokenizer="google-bert/bert-base-cased", packed=False, span=10, phases=(Phase(512, 0.15),),
            source="facebookresearch/SpanBERT pretraining/README.md: the command; pretraining/fairseq/tasks/span_bert.py:99",
        ),
        Recipe(
            name="electra", tokenizer="google/electra-base-discriminator", packed=False, mask_as=(0.85, 0.0, 0.15),
            phases=(Phase(512, 0.15),),
            source="google-research/electra configure_pretraining.py: mask_prob and the notes on larger models; "
            "pretrain/pretrain_helpers.py:202",
        ),
        Recipe(
            name="deberta-v3", tokenizer="microsoft/deberta-v3-base", packed=False, by_length=True,
            mask_as=(1.0, 0.0, 0.0), phases=(Phase(512, 0.15),),
            source="microsoft/DeBERTa experiments/language_model/rtd.sh, DeBERTa/apps/tasks/rtd_task.py:145, where max_gram "
            "is 1, so that mlm_task.py:69 takes single tokens",
        ),
        Recipe(
            name="mosaicbert", tokenizer=_BERT, packed=False, phases=(Phase(128, 0.3),),
            source="mosaicml/examples examples/benchmarks/bert/yamls/main/mosaic-bert-base-uncased.yaml:9-11",
        ),
        Recipe(
            name="nomic-bert", tokenizer=_BERT, phases=(Phase(2048, 0.3),),
            source="nomic-ai/contrastors src/contrastors/configs/train/mlm.yaml:35,55",
        ),
        Recipe(
            name="gte-en", tokenizer="Alibaba-NLP/gte-en-mlm-large", packed=False,
            phases=(Phase(512, 0.3, 0.556), Phase(2048, 0.3, 0.222), Phase(8192, 0.3, 0.222)),  # by batch size and steps
            source="the model card of Alibaba-NLP/gte-en-mlm-large, Training Procedure",
        ),
        Recipe(
            name="mgte", tokenizer="Alibaba-NLP/gte-multilingual-mlm-base", packed=False,
            phases=(Phase(2048, 0.3, 0.893), Phase(8192, 0.3, 0.107)),  # 250,000 steps of 8,192 rows, 30,000 of 2,048
            source="the model card of Alibaba-NLP/gte-multilingual-mlm-base; arXiv 2407.19669, Appendix, Table 8",
        ),
        Recipe(
            name="modernbert", tokenizer=_MODERNBERT,
            phases=(Phase(1024, 0.3, 0.851), Phase(8192, 0.3, 0.124), Phase(8192, 0.3, 0.025)),  # 1,719, 250 and 50 B tokens
            source="AnswerDotAI/ModernBERT yamls/modernbert/modernbert-base-*.yaml, src/sequence_packer.py",
        ),
        Recipe(
            name="bioclinical-modernbert", tokenizer=_MODERNBERT,
            phases=(Phase(8192, 0.3, 0.951), Phase(8192, 0.15, 0.049)),  # 160.453 and 8.247 B tokens
            source="lindvalllab/BioClinical-ModernBERT pretraining_resources/configs/phase1/phase1_base.yaml, "
            "pretraining_configs/phase2/phase2_base.yaml: max_seq_len, mlm_probability, sequence_packing, max_duration",
        ),
        Recipe(
            name="chinese-modernbert", tokenizer="feynmanzhao/chinese-modernbert-large-wwm", whole_word=True,
            phases=(Phase(1024, 0.3, None, last=0.15, rows=1_200_000_000_000 // 1024), Phase(8192, 0.15, None)),
            source="arXiv 2510.12285, abstract: 30 to 15%, 1,024 to 8,192 tokens, 1.2 T tokens",
        ),
        Recipe(
            name="llm-jp-modernbert", tokenizer="llm-jp/llm-jp-modernbert-base", packed=False,
            phases=(Phase(1024, 0.3, 0.73), Phase(8192, 0.3, 0.27)),  # 500,000 steps of 3,328 rows, 200,000 of 384
            source="llm-jp/llm-jp-modernbert script/train_main.sh, script/train_main_extension.sh, src/train/train.py:609",
        ),
        Recipe(
            name="ettin", tokenizer="jhu-clsp/ettin-encoder-150m", packed=False,
            phases=(Phase(1024, 0.3, 0.85), Phase(7999, 0.3, 0.125), Phase(7999, 0.15, 0.025)),  # 1,700, 250 and 50 B tokens
            source="JHU-CLSP/ettin-encoder-vs-decoder pretraining/configs/standard/base/encoder_base.yaml, "
            "de_decay/encoder_base.yaml, prolong_decay/encoder_base.yaml",
        ),
        Recipe(
            name="mmbert", tokenizer="jhu-clsp/mmBERT-base",
            phases=(Phase(1024, 0.3, 0.767), Phase(8192, 0.15, 0.2), Phase(8192, 0.05, 0.033)),  # 2,300, 600 and 100 B tokens
            source="JHU-CLSP/mmBERT README.md; huggingface/blog mmbert.md and the cards of its data sets for tokens of phases",
        ),
        Recipe(
            name="neobert", tokenizer=_BERT, packed=False, mask_as=(1.0, 0.0, 0.0),
            phases=(Phase(1024, 0.2, 0.952), Phase(4096, 0.2, 0.048)),  # 1 M steps of 2,048, then 50,000 of 512 sequences
            source="chandar-lab/NeoBERT conf/datacollator/mlm_20.yaml, jobs/neobert.sh, jobs/neobert-4096.sh",
        ),
        Recipe(
            name="eurobert", tokenizer=_EUROBERT, mask_as=(1.0, 0.0, 0.0), mds_column="tokens", mds_dtype="int32",
            phases=(Phase(2048, 0.5, None), Phase(8192, 0.1, None)),
            source="arXiv 2503.05500: pretraining, then annealing; Nicolas-BZRD/EuroBERT docs/trainer.md for mask_as",
        ),
        Recipe(
            name="clm-then-mlm", tokenizer=_EUROBERT, mask_as=(1.0, 0.0, 0.0), mds_column="tokens", mds_dtype="int32",
            phases=(Phase(2048, None, 0.5), Phase(2048, 0.4, 0.5)),
            source="arXiv 2507.00994: 2,048 tokens; halves, one of the two best splits; 40%, of the 20 to 50% that were tried",
        ),
        Recipe(
            name="esm2", tokenizer="facebook/esm2_t33_650M_UR50D", packed=False, by_length=True,
            phases=(Phase(1024, 0.15),),
            source="config.json of facebook/esm2_t12_35M_UR50D: 1,026 positions, two of which are for padding; "
            "preprocessor.json of keras/esm2_t12_35M for the masks",
        ),
        Recipe(
            name="mdlm", tokenizer="openai-community/gpt2", mask_as=(1.0, 0.0, 0.0), phases=(Phase(1024, (0.001, 1.0)),),
            source="kuleshov-group/mdlm configs/config.yaml: noise, sampling_eps; configs/model/small.yaml: length",
        ),
        Recipe(
            name="llada", tokenizer="GSAI-ML/LLaDA-8B-Base", mask_as=(1.0, 0.0, 0.0), phases=(Phase(4096, (0.001, 1.0)),),
            source="ML-GSAI/LLaDA GUIDELINES.md, Pre-training",
        ),
    )
}  # fmt: skip
_KEYWORDS = (
    "split", "seq", "masked_lm_prob", "mlm_probability", "mask_as", "whole_word", "span", "ngram", "packed", "by_length",
    "objective", "first_position", "epochs", "min_document_tokens", "max_document_tokens", "held_out", "only_held_out",
    "same_masks", "seed", "vocab", "verify",
)  # fmt: skip
"""The keywords of `TokenDataset`. It is in a package that this file cannot import, so a test compares them."""


def _checked(function: str, keywords: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords; raise `TypeError` for one that `TokenDataset` lacks."""
    for name in keywords:
        if name not in _KEYWORDS:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{near(name, _KEYWORDS)}")
    return keywords


def recipe(name: str, **others: Any) -> Recipe:
    """Return the recipe of a published encoder, a mapping of keywords: `TokenDataset("tokens", **recipe("mmbert:2"))`.

    NAME:PHASE selects one phase, counted from 1; `bertprep.recipes.RECIPES` has all names. Other keywords of `TokenDataset`
    override those of the recipe in all phases. Raises `UsageError` for an unknown name, `TypeError` for an unknown keyword.

    >>> recipe("mmbert").phase(2) == recipe("mmbert:2").phase(1)
    True
    >>> recipe("mmbert:2", seq=512)["seq"]
    512
    """
    if not isinstance(name, str):
        raise UsageError(f"recipe {name!r}: expected a name, such as {next(iter(RECIPES))}")
    name, colon, phase = name.partition(":")
    if name not in RECIPES:
        raise UsageError(f"recipe {name}: unknown{near(name, tuple(RECIPES))}; choose one of {', '.join(RECIPES)}")
    found = RECIPES[name]
    if others:
        found = replace(found, others=_checked("recipe", others))
    if not colon:
        return found
    if not phase.isdecimal():
        raise UsageError(f"recipe {name}:{phase}: expected a name, or name:phase, such as mmbert:2")
    number = int(phase)
    return replace(found, phases=(found.phase(number),))


def add_option(parser: Any, command: str = PRETRAIN) -> None:
    """Add the option --recipe to the parser of a command in `COMMANDS`; its help has the recipes that the command takes."""
    names = [name for name, each in RECIPES.items() if any(_is_taken(each, phase, command) for phase in each.phases)]
    text = (
        f"use the settings with which a model was pretrained: one of {', '.join(names)}, with a phase, counted from 1, as in "
        "bert:2; other options override them (default: none)"
    )
    parser.add_argument(OPTION, metavar="NAME[:PHASE]", help=text, action=Once, default=SUPPRESS)


def _is_taken(chosen: Recipe, phase: Phase, command: str) -> bool:
    try:
        replace(chosen, phases=(phase,)).options(command)
    except UsageError:
        return False
    return True


def apply(command: str, given: Namespace) -> Namespace:
    """Add the options of --recipe that the command line lacks, and print them; of several phases, the first one is used."""
    if "recipe" not in given:
        return given
    chosen = recipe(given.recipe)
    values = chosen.options(command, mds=getattr(given, "format", None) == "mds")
    added = {name: value for name, value in values.items() if name not in given}
    text = " ".join(_as_option(name, value) for name, value in added.items()) or "all of its options are given"
    if command == PRETRAIN and len(chosen.phases) > 1:
        text = f"phase 1 of {len(chosen.phases)}: {text}"
    print_message(f"{OPTION} {given.recipe}: {text}")
    return Namespace(**added, **vars(given))


def _as_option(name: str, value: object) -> str:
    option = name.replace("_", "-")
    return f"--no-{option}" if value is False else f"--{option} {shown(value)}"
