"""Replaced tokens, which ELECTRA's and DeBERTa-v3's discriminators detect: what the generator predicts is put in its place."""

from __future__ import annotations

import sys
from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np

from bertprep.errors import UsageError

_NOT_PREDICTED = -100
_MAX_SEED = 1 << 63


def replace_tokens(input_ids: Any, labels: Any, logits: Any, *, seed: int) -> tuple[Any, Any]:
    """Return the discriminator's input ids and labels: 1 where a token is not the text's any more, else 0.

    `input_ids` and `labels` are the generator's (rows, seq), -100 where nothing is predicted, and `logits` what it answered:
    (rows, seq, vocabulary). Each predicted token becomes one that is drawn by the softmax of its logits; give each step and
    rank another `seed`. Arrays give arrays, and tensors tensors on their device, without a gradient. Padding has the label 0,
    which `ElectraForPreTraining` leaves out by its `attention_mask`. Raises `UsageError` for other types, shapes that do not
    fit each other, a seed that is not a whole number, and logits that are NaN or infinite.
    """
    draw = _choose_draw(input_ids, labels, logits)
    shapes = [tuple(each.shape) for each in (input_ids, labels, logits)]
    if shapes[1] != shapes[0] or shapes[2][:-1] != shapes[0] or shapes[2][-1] == 0:
        found = ", ".join(map(str, shapes))
        raise UsageError(f"replace_tokens: shapes {found}; expected (rows, seq) twice, and (rows, seq, vocabulary)")
    if isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= seed < _MAX_SEED:
        raise UsageError(f"replace_tokens: seed {seed!r:.80}: expected a whole number from 0 on, such as that of the step")
    is_predicted = labels != _NOT_PREDICTED
    of_predicted = logits[is_predicted]
    if not bool((of_predicted < float("inf")).all()):  # nor is NaN; on a GPU, drawing by it would end all later calls
        raise UsageError("replace_tokens: logits are NaN or infinite; the generator has diverged")
    text = input_ids + is_predicted * (labels - input_ids)
    replaced = text + 0
    replaced[is_predicted] = draw(of_predicted, int(seed), replaced.dtype)
    return replaced, (replaced != text) * 1


def _choose_draw(*given: Any) -> Callable[..., Any]:
    """Return what draws tokens for arrays of NumPy, or for tensors of PyTorch; raise `UsageError` for others and for both."""
    if all(isinstance(each, np.ndarray) for each in given):
        return _draw_from_array
    torch = sys.modules.get("torch")  # there is no tensor where it was not imported
    if torch is not None and all(isinstance(each, torch.Tensor) for each in given):
        return _draw_from_tensor
    types = ", ".join(type(each).__name__ for each in given)
    raise UsageError(
        f"replace_tokens: types {types}; expected three arrays of NumPy, or three tensors of PyTorch, of which the last is the "
        "logits of a model's output"
    )


def _draw_from_array(logits: Any, seed: int, dtype: Any) -> Any:
    noise = np.random.default_rng(seed).gumbel(size=logits.shape)
    return (logits + noise).argmax(-1).astype(dtype)


def _draw_from_tensor(logits: Any, seed: int, dtype: Any) -> Any:
    import torch

    generator = torch.Generator(logits.device).manual_seed(seed)
    probabilities = logits.detach().float().softmax(-1)
    return torch.multinomial(probabilities, 1, generator=generator)[:, 0].to(dtype)
