"""Define pretraining: masked LM and next-sentence prediction, or only masked LM on records without sentence pairs.

The loss is the sum of the mean losses of both. The masked-LM head runs at the masked positions only, and its output matrix is
the word embeddings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from bertprep.config import RECORD_FORMATS, UNPAIRED, InstanceSettings
from bertprep.files.paths import path_arg
from bertprep.options import option
from bertprep.records import Examples, PretrainingExamples
from bertprep.weights import google_names
from bertprep.weights.google_names import Shapes
from bertprep.work.layout import TOKENS
from bertprep.work.manifest import RECORDS, TOKEN_SHARDS
from trainer.model import WORDS, Array, Bert
from trainer.model_config import ModelConfig
from trainer.settings import MAX_SEQ, RunOptions, Wanted
from trainer.tasks.task import Output, Task

DEFAULT_SEQ = InstanceSettings.seq
_HEAD = "cls/predictions/transform"


@dataclass(frozen=True, kw_only=True)
class PretrainOptions(RunOptions):
    """Options of `pretrain`."""

    format: str | None = option(
        None, "record format, or tokens to make examples from token shards (default: the format of the newest records)",
        choices=(*RECORD_FORMATS, TOKENS),
    )  # fmt: skip
    seq: int | None = option(None, "length of a sequence in tokens (default: 128, or that of --data)", least=1, most=MAX_SEQ)
    pred: int | None = option(None, "token shards: maximum number of masked tokens in a sequence (default: 20)", least=1)
    vocab: Path | None = option(None, "vocabulary (default: the vocab.txt next to the records)", metavar="FILE", check=path_arg)
    pack: bool = option(
        False, "pack several short examples into a row, so that less padding is computed (default: one example per row)"
    )

    @property
    def wanted(self) -> Wanted:
        if self.format == TOKENS:
            return Wanted(TOKEN_SHARDS, "", None, "bertprep tokenize")
        seq = self.seq or DEFAULT_SEQ
        return Wanted(RECORDS, "seq", seq, f"bertprep create --seq {seq}")


@dataclass(frozen=True)
class Pretraining(Task):
    """Masked LM and next-sentence prediction, or only masked LM.

    >>> round(Pretraining().flops(ModelConfig.preset("base"), seq=128, pred=20) / 1e9, 1)
    69.9
    """

    has_pairs: bool = True
    name: ClassVar[str] = "pretraining"
    command: ClassVar[str] = "pretrain"
    help: ClassVar[str] = "pretrain a model on records or token shards; resumes where it stopped"
    options: ClassVar[type[RunOptions]] = PretrainOptions

    @classmethod
    def from_examples(cls, kind: type[Examples]) -> Pretraining:
        """Return the task that records of this kind are for."""
        return cls(has_pairs=issubclass(kind, PretrainingExamples))

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Pretraining | None:
        return cls(has_pairs=False) if metadata.get("pairs") == UNPAIRED else None

    def metadata(self) -> dict[str, Any]:
        return {} if self.has_pairs else {"task": {"name": self.name, "pairs": UNPAIRED}}

    def describe(self) -> str:
        return f"pretraining {'with' if self.has_pairs else 'without'} sentence pairs"

    @property
    def outputs(self) -> tuple[Output, ...]:
        masked_lm = Output("masked_lm", "masked_lm_ids", "masked_lm_weights")
        return (masked_lm, Output("next_sentence", "next_sentence_labels")) if self.has_pairs else (masked_lm,)

    def head(self, bert: Bert, hidden: Array) -> dict[str, Array]:
        """Return the logits of masked tokens, (sequences * pred, vocabulary), and of next sentences, (sequences, 2)."""
        ops, weights = bert.ops, bert.weights
        masked = ops.gather_positions(hidden, bert.batch["masked_lm_positions"])
        masked = bert.norm(_HEAD, ops.gelu(bert.dense(f"{_HEAD}/dense", masked)))
        product = ops.product(masked, ops.compute(weights[WORDS]))
        logits = {"masked_lm": ops.add_bias(product, weights["cls/predictions/output_bias"])}
        if self.has_pairs:
            logits["next_sentence"] = bert.logits("cls/seq_relationship/output", bert.pool(hidden))
        return logits

    def body_shapes(self, model: ModelConfig) -> Shapes:
        return google_names.body_shapes(asdict(model), pooler=self.has_pairs)

    def head_shapes(self, model: ModelConfig) -> Shapes:
        return google_names.pretraining_heads(asdict(model), next_sentence=self.has_pairs)

    def rows_of_head(self, name: str, *, seq: int, pred: int) -> int:  # noqa: ARG002
        return pred if name == WORDS or name.startswith("cls/predictions/") else 1

    @property
    def hugging_face_class(self) -> str:
        return "BertForPreTraining" if self.has_pairs else "BertForMaskedLM"
