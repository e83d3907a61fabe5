"""What models of transformers need to keep the sequences of packed rows apart; those that are not known to are refused.

A model that gets `input_ids` and `position_ids` alone attends across sequences, or convolves over them, and does not say so.
Encoders take a mask of who attends to whom, causal models find sequences by their positions and keep their own windows, and
FlashAttention takes boundaries. The packed logits of each type of model that is named here were compared with those of each
sequence alone, by `tests/readers/test_torch_encoders.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import UsageError

if TYPE_CHECKING:
    import torch

_FROM_PADDING = (
    "camembert", "data2vec-text", "ibert", "luke", "roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod",
)  # fmt: skip
"""Types of models whose positions begin after the id of their padding, as RoBERTa's do."""
ENCODERS = (
    "albert", "bert", "distilbert", "electra", "ernie", "eurobert", "jina_embeddings_v3", "megatron-bert", "modernbert",
    "mpnet", "nomic_bert", "rembert", "roformer", "squeezebert", *_FROM_PADDING,
)  # fmt: skip
CAUSAL_MODELS = (
    "cohere2", "gemma", "gemma2", "gemma3_text", "gpt2", "gpt_neox", "granite", "llama", "ministral", "mistral", "mixtral",
    "modernbert-decoder", "olmo2", "phi3", "qwen2", "qwen3", "smollm3", "starcoder2",
)  # fmt: skip
_MPNET_FIRST = 2  # whatever the id of its padding is


@dataclass(frozen=True)
class PackedModel:
    """What a model needs: `first_position` is where its own positions begin, `finds_sequences` whether it needs no mask."""

    attention: str
    first_position: int
    sliding_window: int | None  # of ModernBERT, whose masks depend on it
    finds_sequences: bool

    def arguments(self, batch: Mapping[str, Any], *, first_position: int, is_causal: bool) -> dict[str, Any]:
        """Return the arguments of the model for a batch of tensors, in which positions begin at `first_position`."""
        inputs = {name: batch[name] for name in ("input_ids", "labels", "position_ids")}
        inputs["position_ids"] = inputs["position_ids"] + (self.first_position - first_position)
        if self.finds_sequences:
            inputs["use_cache"] = False  # with a cache it does not look for sequences
        if "flash" in self.attention:
            boundaries, longest = batch["cu_seqlens"], batch["max_seqlen"]
            return {
                **inputs, "cu_seq_lens_q": boundaries, "cu_seq_lens_k": boundaries,
                "max_length_q": longest, "max_length_k": longest,
            }  # fmt: skip
        if self.finds_sequences:
            return inputs
        starts = batch["position_ids"] == first_position
        masks = attention_masks(starts, is_causal=is_causal, sliding_window=self.sliding_window)
        if self.attention == "eager":
            masks = {name: _to_scores(mask) for name, mask in masks.items()} if self.sliding_window else _to_scores(masks)
        return {**inputs, "attention_mask": masks}


def attention_masks(starts: Any, *, is_causal: bool, sliding_window: int | None) -> Any:
    """Return which tokens of packed rows attend to which, those of their sequence: bool, (rows, 1, seq, seq).

    `starts` says of each token whether a sequence starts there: (rows, seq). transformers' Trainer drops `sequence_ids`, which
    no model takes. With a `sliding_window` it is a dict of two masks, as ModernBERT takes them. An array gives arrays, a tensor
    tensors.
    """
    sequence_ids, seq = starts.cumsum(1), starts.shape[1]
    full = sequence_ids[:, None, :, None] == sequence_ids[:, None, None, :]
    distances = np.arange(seq)[:, None] - np.arange(seq)
    if is_causal:
        full = full & _like(distances >= 0, full)
    if sliding_window is None:
        return full
    return {"full_attention": full, "sliding_attention": full & _like(abs(distances) <= sliding_window, full)}


def _like(mask: NDArray[np.bool_], other: Any) -> Any:
    """Return a mask as what another is: an array, or a tensor on its device."""
    if isinstance(other, np.ndarray):
        return mask
    import torch

    return torch.from_numpy(mask).to(other.device)


def _to_scores(mask: torch.Tensor) -> torch.Tensor:
    """Return a mask as eager attention takes it, which adds it to the scores."""
    import torch

    return torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)


def packed_model(config: Any, *, seq: int, objective: str) -> PackedModel:
    """Return what a model of transformers needs for packed rows of `seq` tokens, by its config.

    Raises `UsageError` for a model that is not known to keep their sequences apart.
    """
    attention = str(config._attn_implementation)  # None before there is a model
    if attention not in ("sdpa", "eager") and "flash" not in attention:
        raise UsageError(
            f"attention {attention}: no packed sequences for it; give model.config of a model with "
            "attn_implementation='sdpa', or take packed=False"
        )
    model = config.model_type
    if model not in (*ENCODERS, *CAUSAL_MODELS):
        raise UsageError(
            f"model type {model}: was not tested with packed rows, whose sequences it may mix; take packed=False, "
            f"or a model of type {', '.join(sorted((*ENCODERS, *CAUSAL_MODELS)))}"
        )
    expected = "clm" if model in CAUSAL_MODELS or getattr(config, "is_decoder", False) else "mlm"
    if objective != expected:
        raise UsageError(f"objective {objective!r}: a model of type {model} learns by objective={expected!r}; take that")
    window = config.sliding_window if model == "modernbert" else None
    return PackedModel(attention, _first_position(config, seq), window, model in CAUSAL_MODELS)


def _first_position(config: Any, seq: int) -> int:
    """Return the position of the first token of a sequence, as the model counts by itself."""
    if config.model_type == "mpnet":
        first = _MPNET_FIRST
    elif config.model_type in _FROM_PADDING:
        if config.pad_token_id is None:
            raise UsageError(f"model type {config.model_type}: needs a pad_token_id, after which its positions begin; give one")
        first = int(config.pad_token_id) + 1
    else:
        return 0
    if (longest := seq + first) > config.max_position_embeddings:
        raise UsageError(
            f"max_position_embeddings {config.max_position_embeddings}: rows of {seq} tokens need {longest} in a model "
            f"of type {config.model_type}, whose positions begin at {first}"
        )
    return first
