"""Replaced tokens, which ELECTRA's and DeBERTa-v3's discriminators detect: what the generator predicts is put in its place."""

from __future__ import annotations

from typing import Any

import numpy as np

from bertprep.errors import UsageError

_NOT_PREDICTED = -100


def replace_tokens(input_ids: Any, labels: Any, logits: Any, *, seed: int) -> tuple[Any, Any]:
    """Return the discriminator's input ids and labels: 1 where a token is not the text's any more, else 0.

    `input_ids` and `labels` are the generator's (rows, seq), -100 where nothing is predicted, and `logits` what it answered:
    (rows, seq, vocabulary). Each predicted token becomes one that is drawn by the softmax of its logits; give each step another
    `seed`. Arrays give arrays, and tensors tensors on their device, without a gradient. Padding has the label 0, which
    `ElectraForPreTraining` leaves out by its `attention_mask`. Raises `UsageError` where the shapes do not fit each other.
    """
    if not hasattr(logits, "shape") or tuple(logits.shape[:-1]) != tuple(input_ids.shape) or labels.shape != input_ids.shape:
        shapes = ", ".join(str(tuple(getattr(each, "shape", ()))) for each in (input_ids, labels, logits))
        raise UsageError(f"replace_tokens: shapes {shapes}; expected (rows, seq) twice, and (rows, seq, vocabulary)")
    is_predicted = labels != _NOT_PREDICTED
    draw = _draw_from_array if isinstance(logits, np.ndarray) else _draw_from_tensor
    text = input_ids + is_predicted * (labels - input_ids)
    replaced = text + 0
    replaced[is_predicted] = draw(logits[is_predicted], seed)
    return replaced, (replaced != text) * 1


def _draw_from_array(logits: Any, seed: int) -> Any:
    noise = np.random.default_rng(seed).gumbel(size=logits.shape)
    return (logits + noise).argmax(-1)


def _draw_from_tensor(logits: Any, seed: int) -> Any:
    import torch

    generator = torch.Generator(logits.device).manual_seed(seed)
    probabilities = logits.detach().float().softmax(-1)
    return torch.multinomial(probabilities, 1, generator=generator)[:, 0]
