"""Keep the sequences of packed rows apart in the models of transformers, and refuse models that were not tested.

A model that gets only `input_ids` and `position_ids` silently attends or convolves across sequences. Encoders need an attention
mask, causal models find sequences by their positions and keep their own sliding windows, and FlashAttention needs boundaries.
The mask of 8 rows of 8,192 tokens takes 537 MB, so it is made from the sequence ids on the model's device, just before the
model is called: `prepare` gives the model a hook for that, and `Boundaries` fail in any other model. For each model type named
here, `tests/readers/test_torch_encoders.py` compares the logits of packed rows with those of each sequence alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
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
_POSITION_TABLES = "position_embeddings", "embed_positions", "wpe"
"""The names of modules with an embedding for each position; other models compute them from any number."""
_MPNET_FIRST = 2  # regardless of the id of the padding token


class LostBoundariesError(UsageError, AttributeError):
    """A model read the boundaries of packed rows as if they were a mask, since nothing in it turns them into one."""


class Boundaries(dict[str, Any]):
    """The `attention_mask` of packed rows: {"sequence_ids": (rows, seq)}, from which a prepared model makes its masks.

    It is no tensor, so that a model that `collate_for` did not prepare fails at once, whatever made that model. A model would
    ignore an argument of another name. Loops and libraries move it to a device as they move any dict of tensors.
    """

    def to(self, *device: Any, **options: Any) -> Boundaries:
        """Return the boundaries on another device, like `Tensor.to`."""
        return Boundaries({name: ids.to(*device, **options) for name, ids in self.items()})

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ARG002 - some models look masks up in a dict of their own
        """Return an entry; raise `LostBoundariesError` if there is none."""
        return self[name]

    def __missing__(self, name: str) -> Any:
        raise self._lost(f"[{name!r}]")

    def __getattr__(self, name: str) -> Any:
        raise self._lost(f".{name}")

    def _lost(self, read: str) -> LostBoundariesError:
        return LostBoundariesError(
            f"attention_mask{read}: has the boundaries of packed rows, which this model cannot apply; call collate_for(model) "
            "for the model that is trained, after it is made (with a Trainer's model_init, in that function), or make the data "
            "set with packed=False"
        )


def models_in(module: Any) -> list[Any]:
    """Return the outermost models of transformers in a module of PyTorch, such as a model in DDP, in PEFT or in one's own."""
    torch, transformers = (sys.modules.get(name) for name in ("torch", "transformers"))
    if torch is None or transformers is None or not isinstance(module, torch.nn.Module):  # before an import there are none
        return []
    if isinstance(module, transformers.PreTrainedModel):
        return [module]
    return [model for child in module.children() for model in models_in(child)]


def check_sizes(model: Any, *, seq: int, width: int, has_segments: bool) -> None:
    """Raise `UsageError` if the rows have more positions, token ids or segments than the model has embeddings.

    Without this check the fault shows at the first long row, and on a GPU as an error of the device.
    """
    config, kind = model.config, f"a model of type {model.config.model_type}"
    try:
        tokens = model.get_input_embeddings().num_embeddings
    except (AttributeError, NotImplementedError):  # such as a model that embeds bytes or characters
        tokens = width
    if tokens < width:
        raise UsageError(
            f"vocab_size {tokens}: the rows have token ids up to {width - 1}; make the model with vocab_size={width} or more, "
            "or tokenize with the model's own tokenizer"
        )
    for longest, first in _position_tables(model):
        if longest < seq:
            begins = f" whose positions begin at {first}" if first else ""
            raise UsageError(
                f"max_position_embeddings {config.max_position_embeddings}: {kind}{begins} takes rows of up to {longest} "
                f"tokens, and these have {seq}; make the data set with seq={longest} or less"
            )
    if has_segments and getattr(config, "type_vocab_size", 2) < 2:
        raise UsageError(
            f"type_vocab_size {config.type_vocab_size}: pairs have the token types 0 and 1; make {kind} with type_vocab_size=2"
        )


def _position_tables(model: Any) -> Iterator[tuple[int, int]]:
    """Yield the number of tokens of which each table of absolute positions in a model has embeddings, and their first position.

    Models whose positions begin after the padding token have its id as the table's `padding_idx`.
    """
    if (positions := getattr(model.config, "max_position_embeddings", None)) is None:
        return
    for name, table in model.named_modules():
        if name.rpartition(".")[2] in _POSITION_TABLES:
            first = 0 if (padding := getattr(table, "padding_idx", None)) is None else padding + 1
            yield min(positions, getattr(table, "num_embeddings", positions)) - first, first


def prepare(model: Any, *, objective: str) -> None:
    """Register the hook by which a model of transformers applies `Boundaries`, unless it has it.

    The hook is on the model's body (`base_model`), so that it acts in calls of `forward`, of the body alone, and of a model
    that a library wraps later. Raises `UsageError` for a model that was not tested to keep sequences apart, or for an
    `objective` that is not its own.
    """
    config = model.config
    check_attention(config)
    kind = config.model_type
    if kind not in (*ENCODERS, *CAUSAL_MODELS):
        raise UsageError(
            f"model type {kind}: was not tested with packed rows, whose sequences it may mix; use packed=False, "
            f"or a model of type {', '.join(sorted((*ENCODERS, *CAUSAL_MODELS)))}"
        )
    if objective != (expected := "clm" if _is_causal(config) else "mlm"):
        raise UsageError(f"objective {objective!r}: a model of type {kind} is trained with {expected!r}; use that objective")
    _first_position(config)
    body = model.base_model
    if apply_boundaries not in body._forward_pre_hooks.values():
        body.register_forward_pre_hook(apply_boundaries, with_kwargs=True)


def check_attention(config: Any) -> str:
    """Return the name of a model's attention implementation; raise `UsageError` for one that was not tested."""
    attention = str(config._attn_implementation)
    if attention not in ("sdpa", "eager", FLEX) and "flash" not in attention:
        raise UsageError(
            f"attention {attention}: cannot keep packed sequences apart; make the model with attn_implementation='sdpa', or "
            "use packed=False"
        )
    return attention


def apply_boundaries(
    body: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Replace `Boundaries` among a model's arguments by what the model needs now; other calls do not change.

    This is a forward pre-hook. It reads the attention implementation at each call, since it can change. Positions restart with
    each sequence, where the model's own positions begin.
    """
    found = keywords.get("attention_mask")
    if not isinstance(found, Mapping) or SEQUENCE_IDS not in found:  # a plain dict too, which FSDP makes of it
        return None
    config, ids = body.config, found[SEQUENCE_IDS]
    attention = check_attention(config)
    made = {"attention_mask": None, "position_ids": _positions(ids) + _first_position(config)}
    if "flash" in attention:
        made |= _cumulated(ids)
    if config.model_type in CAUSAL_MODELS:
        made["use_cache"] = False  # with a cache, such a model does not look for sequences by their positions
    elif "flash" not in attention:
        made["attention_mask"] = _make_mask(config, attention, ids, body.dtype)
    return arguments, {**keywords, **made}


def _is_causal(config: Any) -> bool:
    return config.model_type in CAUSAL_MODELS or bool(getattr(config, "is_decoder", False))


def _positions(sequence_ids: torch.Tensor) -> torch.Tensor:
    """Return each token's distance from the first token of its sequence: (rows, seq)."""
    import torch

    indices = torch.arange(sequence_ids.shape[1], device=sequence_ids.device).expand_as(sequence_ids)
    return indices - torch.where(_is_first(sequence_ids), indices, 0).cummax(1).values


def _is_first(sequence_ids: torch.Tensor) -> torch.Tensor:
    """Return which tokens are the first of their sequence: bool, (rows, seq)."""
    import torch

    return torch.cat([torch.ones_like(sequence_ids[:, :1]), sequence_ids.diff(dim=1)], 1) != 0


def _cumulated(sequence_ids: torch.Tensor) -> dict[str, Any]:
    """Return the arguments by which FlashAttention finds the sequences of all rows joined."""
    import torch

    firsts = _is_first(sequence_ids).flatten().nonzero()[:, 0]
    boundaries = torch.nn.functional.pad(firsts, (0, 1), value=sequence_ids.numel()).int()
    longest = int(boundaries.diff().max())
    return {
        "cu_seq_lens_q": boundaries, "cu_seq_lens_k": boundaries, "max_length_q": longest, "max_length_k": longest,
    }  # fmt: skip


def _make_mask(config: Any, attention: str, sequence_ids: torch.Tensor, float_type: Any) -> Any:
    """Return the attention mask of an encoder, or of a ModernBERT a dict of two.

    Masks are bool, (rows, 1, seq, seq); for eager attention they are scores of `float_type`, and for flex attention block
    masks.
    """
    is_causal, window = _is_causal(config), config.sliding_window if config.model_type == "modernbert" else None
    if attention == FLEX:
        return _block_masks(sequence_ids, is_causal, window)
    masks = attention_masks(sequence_ids, is_causal=is_causal, sliding_window=window)
    if attention != "eager":
        return masks
    if window is None:
        return _to_scores(masks, float_type)
    return {name: _to_scores(mask, float_type) for name, mask in masks.items()}


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


def _first_position(config: Any) -> int:
    """Return the position id that the model itself gives to the first token of a sequence."""
    if config.model_type == "mpnet":
        return _MPNET_FIRST
    if config.model_type not in _FROM_PADDING:
        return 0
    if config.pad_token_id is None:
        raise UsageError(
            f"model type {config.model_type}: its positions begin after pad_token_id, which its config lacks; set one"
        )
    return int(config.pad_token_id) + 1
