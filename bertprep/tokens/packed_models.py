"""Keep the sequences of packed rows apart in the models of transformers, and refuse models that were not tested.

A model that gets only `input_ids` and `position_ids` silently attends or convolves across sequences. Encoders need an attention
mask, causal models find sequences by their positions and keep their own sliding windows, and FlashAttention needs boundaries.
The mask of 8 rows of 8,192 tokens takes 537 MB, so it is made from the sequence ids on the model's device, just before the
model is called (`make_masks_in`). For each model type named here, `tests/readers/test_torch_encoders.py` compares the logits of
packed rows with those of each sequence alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bertprep.errors import UsageError

if TYPE_CHECKING:
    import torch

_FROM_PADDING = (
    "camembert", "data2vec-text", "ibert", "luke", "roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod",
)  # fmt: skip
"""Model types whose positions begin after the id of the padding token, like RoBERTa's."""
ENCODERS = (
    "albert", "bert", "distilbert", "electra", "ernie", "eurobert", "jina_embeddings_v3", "megatron-bert", "modernbert",
    "mpnet", "nomic_bert", "rembert", "roformer", "squeezebert", *_FROM_PADDING,
)  # fmt: skip
CAUSAL_MODELS = (
    "cohere2", "gemma", "gemma2", "gemma3_text", "gpt2", "gpt_neox", "granite", "llama", "ministral", "mistral", "mixtral",
    "modernbert-decoder", "olmo2", "phi3", "qwen2", "qwen3", "smollm3", "starcoder2",
)  # fmt: skip
FLEX = "flex_attention"
SEQUENCE_IDS = "sequence_ids"
"""The argument that passes a model the sequence of each token, once `make_masks_in` has prepared the model."""
_MPNET_FIRST = 2  # regardless of the id of the padding token


@dataclass(frozen=True)
class PackedModel:
    """The needs of a model for packed rows: its attention implementation, the position id of a first token, and its masks."""

    attention: str
    first_position: int
    sliding_window: int | None  # only for ModernBERT, whose masks depend on it
    is_causal: bool
    finds_sequences: bool  # by their positions, without a mask

    @property
    def masks(self) -> Masks | None:
        """The maker of the model's attention masks, or None if the model needs no masks."""
        if self.finds_sequences or "flash" in self.attention:
            return None
        return Masks(self.attention, self.sliding_window, self.is_causal)

    def arguments(self, batch: Mapping[str, Any], *, first_position: int, masks: Masks | None) -> dict[str, Any]:
        """Return the model's arguments for a batch of tensors whose positions begin at `first_position`.

        `masks` makes the attention masks; without it the model's own hook makes them (`make_masks_in`).
        """
        inputs = {name: batch[name] for name in ("input_ids", "labels", "position_ids")}
        inputs["position_ids"] = inputs["position_ids"] + (self.first_position - first_position)
        if self.finds_sequences:
            inputs["use_cache"] = False  # with a cache, such a model does not look for sequences
        if "flash" in self.attention:
            boundaries, longest = batch["cu_seqlens"], batch["max_seqlen"]
            return {
                **inputs, "cu_seq_lens_q": boundaries, "cu_seq_lens_k": boundaries,
                "max_length_q": longest, "max_length_k": longest,
            }  # fmt: skip
        if self.finds_sequences:
            return inputs
        sequence_ids = (batch["position_ids"] == first_position).cumsum(1)
        if masks is None:
            return {**inputs, SEQUENCE_IDS: sequence_ids}
        return {**inputs, "attention_mask": masks.make(sequence_ids, float_type=None)}


@dataclass(frozen=True)
class Masks:
    """Makes the `attention_mask` of an encoder, which keeps sequences apart, and limits attention to a sliding window if any.

    It also serves as a forward pre-hook of a model: it replaces the argument `sequence_ids` with the mask, on the same device.
    """

    attention: str
    sliding_window: int | None
    is_causal: bool

    def __call__(
        self, model: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if SEQUENCE_IDS not in keywords:
            return arguments, keywords
        others = {name: value for name, value in keywords.items() if name != SEQUENCE_IDS}
        return arguments, {**others, "attention_mask": self.make(keywords[SEQUENCE_IDS], float_type=model.dtype)}

    def make(self, sequence_ids: torch.Tensor, *, float_type: Any) -> Any:
        """Return the mask for `sequence_ids`, (rows, seq), or with a sliding window a dict of two masks.

        Masks are bool, (rows, 1, seq, seq); for eager attention they are scores of `float_type` (default float32), and for flex
        attention block masks.
        """
        if self.attention == FLEX:
            return _block_masks(sequence_ids, self.is_causal, self.sliding_window)
        masks = attention_masks(sequence_ids, is_causal=self.is_causal, sliding_window=self.sliding_window)
        if self.attention != "eager":
            return masks
        if self.sliding_window is None:
            return _to_scores(masks, float_type)
        return {name: _to_scores(mask, float_type) for name, mask in masks.items()}


def make_masks_in(model: Any, masks: Masks) -> None:
    """Register a hook by which a PyTorch model makes its masks in calls with `sequence_ids`; other calls do not change."""
    hooks = model._forward_pre_hooks.values()
    if masks not in [hook for hook in hooks if isinstance(hook, Masks)]:
        model.register_forward_pre_hook(masks, with_kwargs=True)


def attention_masks(sequence_ids: Any, *, is_causal: bool, sliding_window: int | None) -> Any:
    """Return a mask by which the tokens of packed rows attend only to their own sequence: bool, (rows, 1, seq, seq).

    `sequence_ids` has the number of each token's sequence: (rows, seq). With a `sliding_window` the result is a dict of the two
    masks that ModernBERT expects. An array gives arrays, and a tensor gives tensors on its device.
    """
    seq = sequence_ids.shape[1]
    full = sequence_ids[:, None, :, None] == sequence_ids[:, None, None, :]
    positions = _positions_like(sequence_ids, seq)
    distances = positions[:, None] - positions
    if is_causal:
        full = full & (distances >= 0)
    if sliding_window is None:
        return full
    return {"full_attention": full, "sliding_attention": full & (abs(distances) <= sliding_window)}


def _positions_like(other: Any, seq: int) -> Any:
    """Return the numbers 0 to seq - 1 as an array if `other` is one, else as a tensor on the device of `other`."""
    if isinstance(other, np.ndarray):
        return np.arange(seq)
    import torch

    return torch.arange(seq, device=other.device)


def _to_scores(mask: torch.Tensor, float_type: Any) -> torch.Tensor:
    """Return a bool mask as the numbers that eager attention adds to its scores: 0, or the smallest number."""
    import torch

    float_type = float_type or torch.float32
    scores = torch.zeros(mask.shape, dtype=float_type, device=mask.device)
    return scores.masked_fill(~mask, torch.finfo(float_type).min)


def _block_masks(sequence_ids: torch.Tensor, is_causal: bool, sliding_window: int | None) -> Any:
    """Return block masks for flex attention, which skips blocks whose queries and keys have no sequence in common."""
    from torch.nn.attention.flex_attention import create_block_mask

    rows, seq = sequence_ids.shape

    def attends(row: Any, _head: Any, query: Any, key: Any) -> Any:
        is_same = sequence_ids[row, query] == sequence_ids[row, key]
        return is_same & (key <= query) if is_causal else is_same

    def attends_near(row: Any, head: Any, query: Any, key: Any) -> Any:
        return attends(row, head, query, key) & (abs(query - key) <= sliding_window)

    make = partial(create_block_mask, B=rows, H=None, Q_LEN=seq, KV_LEN=seq, device=sequence_ids.device)
    if sliding_window is None:
        return make(attends)
    return {"full_attention": make(attends), "sliding_attention": make(attends_near)}


def packed_model(config: Any, *, seq: int, objective: str) -> PackedModel:
    """Return the needs of a transformers model for packed rows of `seq` tokens, by its config.

    Raises `UsageError` for a model that was not tested to keep sequences apart, or that does not fit the `objective` or `seq`.
    """
    attention = str(config._attn_implementation)  # None until a model is made with the config
    if attention not in ("sdpa", "eager", FLEX) and "flash" not in attention:
        raise UsageError(
            f"attention {attention}: cannot keep packed sequences apart; give model.config of a model with "
            "attn_implementation='sdpa', or use packed=False"
        )
    model = config.model_type
    if model not in (*ENCODERS, *CAUSAL_MODELS):
        raise UsageError(
            f"model type {model}: was not tested with packed rows, whose sequences it may mix; use packed=False, "
            f"or a model of type {', '.join(sorted((*ENCODERS, *CAUSAL_MODELS)))}"
        )
    expected = "clm" if model in CAUSAL_MODELS or getattr(config, "is_decoder", False) else "mlm"
    if objective != expected:
        raise UsageError(f"objective {objective!r}: a model of type {model} is trained with {expected!r}; use that objective")
    window = config.sliding_window if model == "modernbert" else None
    return PackedModel(attention, _first_position(config, seq), window, expected == "clm", model in CAUSAL_MODELS)


def _first_position(config: Any, seq: int) -> int:
    """Return the position id that the model itself gives to the first token of a sequence."""
    if config.model_type == "mpnet":
        first = _MPNET_FIRST
    elif config.model_type in _FROM_PADDING:
        if config.pad_token_id is None:
            raise UsageError(
                f"model type {config.model_type}: its positions begin after pad_token_id, which its config lacks; set one"
            )
        first = int(config.pad_token_id) + 1
    else:
        return 0
    if (longest := seq + first) > config.max_position_embeddings:
        raise UsageError(
            f"max_position_embeddings {config.max_position_embeddings}: rows of {seq} tokens need {longest} in a model "
            f"of type {config.model_type}, whose positions begin at {first}; use shorter rows"
        )
    return first
