"""Implement in PyTorch the operations that the model is composed of."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from trainer.engines.torch_processes import World
from trainer.model import Array, Operation, Operations
from trainer.model_config import LAYER_NORM_EPSILON


class Ops(Operations):
    """PyTorch's operations."""

    has_fused_attention = True
    reshape = staticmethod(torch.reshape)
    permute = staticmethod(torch.permute)
    where = staticmethod(torch.where)
    is_finite = staticmethod(torch.isfinite)
    is_not_zero = staticmethod(lambda x: x != 0)
    sqrt = staticmethod(torch.sqrt)
    tanh = staticmethod(torch.tanh)
    gelu = staticmethod(functional.gelu)
    sum = staticmethod(torch.sum)
    stack = staticmethod(torch.stack)
    square_sum = staticmethod(lambda x: (x * x).sum())  # torch.linalg.vector_norm loses three digits
    softmax = staticmethod(partial(torch.softmax, dim=-1))
    argmax = staticmethod(partial(torch.argmax, dim=-1))

    def __init__(self, precision: str = "off", *, recompute: bool = False) -> None:
        super().__init__(precision)
        self._recompute = recompute

    def recompute(self, layer: Operation) -> Operation:
        if not self._recompute:
            return layer
        # Dropout masks depend on a key only, so the state of generators need not be kept
        return partial(checkpoint, layer, use_reentrant=False, preserve_rng_state=False)

    def cast(self, x: Array, dtype: str) -> Array:
        return x.to(getattr(torch, dtype))

    def maximum(self, x: Array, least: float) -> Array:
        return torch.clamp(x, min=least)

    def expm1(self, x: Any) -> Array:
        return torch.expm1(torch.as_tensor(x))

    def dense(self, x: Array, kernel: Array, bias: Array) -> Array:
        return torch.addmm(self.compute(bias), x, self.compute(kernel))

    def product(self, left: Array, right: Array) -> Array:
        return self.float32(left @ right.mT)

    def look_up(self, table: Array, ids: Array) -> Array:
        return functional.embedding(ids, table)

    look_up_small = look_up

    def gather_positions(self, x: Array, positions: Array) -> Array:
        sequences = len(positions)
        first = torch.arange(sequences, device=x.device) * (len(x) // sequences)
        return self.look_up(x, (positions + first[:, None]).reshape(-1))

    def layer_norm(self, x: Array, gamma: Array, beta: Array) -> Array:
        return functional.layer_norm(x.float(), gamma.shape, gamma, beta, LAYER_NORM_EPSILON).to(x.dtype)

    def dropout(self, x: Array, dropout_rate: float, key: Array, number: int) -> Array:
        """Drop elements whose 16 random bits are below the dropout rate; Philox draws them from the key and the number."""
        kept = _random_16_bits(x, key, number) >= round(dropout_rate * 2**16) - 2**15
        return (x * kept.to(x.dtype)).mul_(1 / (1 - dropout_rate))

    def cross_entropy(self, labels: Array, logits: Array) -> Array:
        return functional.cross_entropy(logits, labels.long(), reduction="none")

    def fused_attention(self, query: Array, key: Array, value: Array, masked_out: Array) -> Array:
        query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
        mask = masked_out.to(query.dtype)
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2)


class ShardedOps(Ops):
    """The operations on this device's shards of arrays. Sums include the shards of all devices."""

    def __init__(self, world: World, precision: str) -> None:
        super().__init__(precision)
        self._world = world

    def sum(self, x: Array) -> Array:
        return self._world.sum(torch.sum(x))


def _random_16_bits(x: Array, key: Array, number: int) -> Array:
    """Return a uniformly random int16 for each element of x."""
    first, second = (int(each) for each in key)
    words = -(-x.numel() // 4)
    if x.device.type == "cpu":
        bits = torch.from_numpy(np.random.Philox(key=[first << 32 | second, number]).random_raw(words).view(np.int16))
    else:  # the generators of these devices are Philox too, but have one 64-bit seed
        (seed,) = np.random.SeedSequence([first, second, number]).generate_state(1, np.uint64)
        generator = torch.Generator(x.device).manual_seed(int(seed))
        bits = torch.empty(words, dtype=torch.int64, device=x.device).random_(-(2**63), None, generator=generator)
        bits = bits.view(torch.int16)
    return bits[: x.numel()].view(x.shape)
