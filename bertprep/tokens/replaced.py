"""Replaced tokens for ELECTRA's and DeBERTa-v3's discriminators: masked tokens become the generator's predictions."""

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
    """Return the discriminator's input ids and labels: 1 where a token differs from the text, else 0.

    `input_ids` and `labels` are the generator's, (rows, seq), with -100 where nothing is predicted; `logits` are its output,
    (rows, seq, vocabulary). Each predicted token is replaced by one drawn from the softmax of its logits; use another `seed`
    for each step and rank. Arrays give arrays, and tensors give tensors on the same device, without a gradient. Padding has the
    label 0, and `ElectraForPreTraining` excludes it by the `attention_mask`. Raises `UsageError` for other types, inconsistent
    shapes, a seed that is not a whole number, and logits that are NaN or infinite.
    """
    draw = _choose_draw(input_ids, labels, logits)
    shapes = [tuple(each.shape) for each in (input_ids, labels, logits)]
    if shapes[1] != shapes[0] or shapes[2][:-1] != shapes[0] or shapes[2][-1] == 0:
        found = ", ".join(map(str, shapes))
        raise UsageError(f"replace_tokens: shapes {found}; expected (rows, seq) twice, and (rows, seq, vocabulary)")
    if isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= seed < _MAX_SEED:
        raise UsageError(f"replace_tokens: seed {seed!r:.80}: expected a whole number from 0 on, such as the step")
    is_predicted = labels != _NOT_PREDICTED
    of_predicted = logits[is_predicted]
    # False for NaN too. On a GPU, drawing from such logits would make all later calls fail.
    if not bool((of_predicted < float("inf")).all()):
        raise UsageError("replace_tokens: logits are NaN or infinite; the generator has diverged")
    text = input_ids + is_predicted * (labels - input_ids)
    replaced = text + 0
    replaced[is_predicted] = draw(of_predicted, int(seed), replaced.dtype)
    return replaced, (replaced != text) * 1


def _choose_draw(*given: Any) -> Callable[..., Any]:
    """Return the function that draws tokens for NumPy arrays or for PyTorch tensors; raise `UsageError` for a mix or others."""
    if all(isinstance(each, np.ndarray) for each in given):
        return _draw_from_array
    torch = sys.modules.get("torch")  # without this import there are no tensors
    if torch is not None and all(isinstance(each, torch.Tensor) for each in given):
        return _draw_from_tensor
    types = ", ".join(type(each).__name__ for each in given)
    raise UsageError(
        f"replace_tokens: types {types}; expected three NumPy arrays or three PyTorch tensors, the last being the `logits` "
        "of a model's output"
    )


def _draw_from_array(logits: Any, seed: int, dtype: Any) -> Any:
    noise = np.random.default_rng(seed).gumbel(size=logits.shape)
    return (logits + noise).argmax(-1).astype(dtype)


def _draw_from_tensor(logits: Any, seed: int, dtype: Any) -> Any:
    import torch

    generator = torch.Generator(logits.device).manual_seed(seed)
    probabilities = logits.detach().float().softmax(-1)
    return torch.multinomial(probabilities, 1, generator=generator)[:, 0].to(dtype)
