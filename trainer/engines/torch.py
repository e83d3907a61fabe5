"""BERT on PyTorch: the operations of the model, and a step on one GPU or CPU.

    micro-batch    its part of the global loss -> gradients, which autograd adds to those before
    then           clip by the norm of the sum, update the variables in place

Adam is PyTorch's fused kernel, held to the same traces as the other engines' own; other optimizers are composed. Dropout masks
follow from their key and number, so a resumed run has the same ones.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read as CUDA starts; without it products may differ in last bits

import torch
from torch.nn import functional

from trainer.engines import Batch, Engine, Processor, State
from trainer.engines.choice import choose_execution
from trainer.model import MASKED_OUT, Array, Arrays, Operations
from trainer.model_config import LAYER_NORM_EPSILON, ModelConfig
from trainer.optimizers import is_decayed, slots
from trainer.settings import EngineSettings, OptimizerSettings
from trainer.step import Step, sum_weights
from trainer.tasks import Task

_MANY_UPDATES = 1e9
"""After which no correction of the moments is left: the fused Adam has no way to leave it out."""


def _multiply(left: Array, right: Array, bias: Array | None = None) -> Array:
    """(n, in), (m, in), (m,) -> (n, m), by oneDNN, which is twice as fast as PyTorch's own product on AMD's processors."""
    return torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], "")


_HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


class _Dense(torch.autograd.Function):  # type: ignore[misc]
    """A dense layer in float32 on a CPU: x, (in, out) kernel, bias."""

    @staticmethod
    def forward(ctx: Any, x: Array, kernel: Array, bias: Array) -> Array:
        ctx.save_for_backward(x, kernel)
        return _multiply(x, kernel.T, bias)

    @staticmethod
    def backward(ctx: Any, *upstream: Array) -> tuple[Array, Array, Array]:
        (gradient,) = upstream
        x, kernel = ctx.saved_tensors
        return _multiply(gradient, kernel), _multiply(x.T, gradient.T), gradient.sum(0)


class _Product(torch.autograd.Function):  # type: ignore[misc]
    """Products of the rows of two matrices in float32 on a CPU."""

    @staticmethod
    def forward(ctx: Any, left: Array, right: Array) -> Array:
        ctx.save_for_backward(left, right)
        return _multiply(left, right)

    @staticmethod
    def backward(ctx: Any, *upstream: Array) -> tuple[Array, Array]:
        (gradient,) = upstream
        left, right = ctx.saved_tensors
        return _multiply(gradient, right.T), _multiply(gradient.T, left.T)


class Ops(Operations):
    """PyTorch's operations."""

    has_fused_attention = True
    reshape = staticmethod(torch.reshape)
    permute = staticmethod(torch.permute)
    where = staticmethod(torch.where)
    is_finite = staticmethod(torch.isfinite)
    is_not_zero = staticmethod(lambda x: x != 0)
    sqrt = staticmethod(torch.sqrt)
    sign = staticmethod(torch.sign)
    tanh = staticmethod(torch.tanh)
    gelu = staticmethod(functional.gelu)
    sum = staticmethod(torch.sum)
    stack = staticmethod(torch.stack)
    square_sum = staticmethod(lambda x: (x * x).sum())  # torch.linalg.vector_norm loses three digits
    softmax = staticmethod(partial(torch.softmax, dim=-1))
    argmax = staticmethod(partial(torch.argmax, dim=-1))

    def cast(self, x: Array, dtype: str) -> Array:
        return x.to(getattr(torch, dtype))

    def maximum(self, x: Array, least: float) -> Array:
        return torch.clamp(x, min=least)

    def expm1(self, x: Any) -> Array:
        return torch.expm1(torch.as_tensor(x))

    def dense(self, x: Array, kernel: Array, bias: Array) -> Array:
        if _is_for_onednn(x):
            return _Dense.apply(x, kernel, bias)
        return torch.addmm(self.compute(bias), x, self.compute(kernel))

    def product(self, left: Array, right: Array) -> Array:
        if _is_for_onednn(left):
            return _Product.apply(left, right)
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
        """Compare 16 random bits of each element, of Philox from the key and the number, with the dropout rate."""
        kept = _random_16_bits(x, key, number) >= round(dropout_rate * 2**16) - 2**15
        return (x * kept.to(x.dtype)).mul_(1 / (1 - dropout_rate))

    def cross_entropy(self, labels: Array, logits: Array) -> Array:
        return functional.cross_entropy(logits, labels.long(), reduction="none")

    def fused_attention(self, query: Array, key: Array, value: Array, mask: Array) -> Array:
        added = ((1 - mask) * MASKED_OUT).to(query.dtype)[:, None, None, :]
        query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=added).transpose(1, 2)


def _is_for_onednn(x: Array) -> bool:
    return _HAS_ONEDNN and x.dtype == torch.float32 and x.ndim == 2 and x.device.type == "cpu"


def _random_16_bits(x: Array, key: Array, number: int) -> Array:
    """Return an int16 for each element of x, all of them equally likely."""
    first, second = (int(each) for each in key)
    words = -(-x.numel() // 4)
    if x.device.type == "cpu":
        bits = torch.from_numpy(np.random.Philox(key=[first << 32 | second, number]).random_raw(words).view(np.int16))
    else:  # whose generators are Philox too, with one number of 64 bits for a seed
        (seed,) = np.random.SeedSequence([first, second, number]).generate_state(1, np.uint64)
        generator = torch.Generator(x.device).manual_seed(int(seed))
        bits = torch.empty(words, dtype=torch.int64, device=x.device).random_(-(2**63), None, generator=generator)
        bits = bits.view(torch.int16)
    return bits[: x.numel()].view(x.shape)


class TorchEngine(Engine):
    """Steps of one model on one device."""

    packages = (torch,)
    failures = (RuntimeError,)

    def __init__(self, settings: EngineSettings) -> None:
        is_gpu = torch.cuda.is_available()
        processor = Processor()
        if is_gpu:
            processor = Processor(torch.cuda.get_device_name(), torch.cuda.get_device_capability(), is_gpu=True)
            torch.use_deterministic_algorithms(settings.deterministic == "on")
            torch.utils.deterministic.fill_uninitialized_memory = False
        else:
            _keep_freed_memory()
        self._device = torch.device("cuda" if is_gpu else "cpu")
        super().__init__(settings, processor, choose_execution(settings, [processor]), devices=1)

    def prepare(self, model: ModelConfig, optimizer: OptimizerSettings, *, seed: int, task: Task) -> None:
        super().prepare(model, optimizer, seed=seed, task=task)
        self._step = Step(Ops(self.precision), model, task.name, optimizer)
        self._state = {name: torch.zeros(shape, device=self._device) for name, shape in self.shapes.items()}
        self._weights = {name: self._state[name].requires_grad_() for name in self.variables}

    def start(self, batch: Batch, learning_rate: float, accumulation: int) -> Array:
        keys, stop = torch.from_numpy(batch["dropout_key"]), float(batch["stop"][0])
        rows = self._tensors({name: array for name, array in batch.items() if name not in ("dropout_key", "stop")})
        loss_scale = self._state["loss_scale"].clone()
        scale, weight_sums = self.scaled(loss_scale, accumulation), sum_weights(self._step.ops, rows)
        parts = {name: array.reshape(accumulation, -1, *array.shape[1:]) for name, array in rows.items()}
        sums = torch.zeros((), device=self._device)
        for number in range(accumulation):
            part = {name: array[number] for name, array in parts.items()}
            part["dropout_key"] = keys[number : number + 1]  # on the host, which seeds the generators
            loss, sums_of_part = self._step.micro_batch(self._weights, part, weight_sums, scale)
            loss.backward()
            sums = sums + sums_of_part.detach()
        norm = self._update(scale, learning_rate)
        return torch.cat([sums, torch.stack([norm, loss_scale, norm.new_tensor(stop)])])

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _update(self, scale: Any, learning_rate: float) -> Array:
        """Update the state by the gradients, which are `scale` times too large, and drop them; return their norm."""
        gradients = {name: _take_gradient(weight) for name, weight in self._weights.items()}
        norm = self._step.norm(gradients, scale)
        factor = self._step.factor(norm, scale)
        if self.optimizer.name == "adam":
            self._adam(gradients, factor, learning_rate)
            gradients = {}  # only the counters are left to change
        for name, value in self._step.changes(self._state, gradients, factor, learning_rate):
            self._state[name].copy_(value)
        return norm

    def _adam(self, gradients: Arrays, factor: Array, learning_rate: float) -> None:
        settings, state = self.optimizer, self._state
        updates = state["updates"] + 1 if settings.bias_correction else torch.full_like(state["updates"], _MANY_UPDATES)
        is_skipped = factor == 0
        if self.precision == "fp16":
            is_skipped = is_skipped | ~torch.isfinite(factor)
        for decays in (True, False):
            names = [name for name in gradients if is_decayed(name) == decays]
            moments = ([state[slots(settings, name)[slot]] for name in names] for slot in range(2))
            torch._fused_adamw_(
                [state[name] for name in names],
                [gradients[name] for name in names],
                *moments,
                [],
                [updates] * len(names),
                lr=learning_rate,
                beta1=settings.beta_1,
                beta2=settings.second_decay,
                weight_decay=settings.weight_decay * decays,
                eps=settings.epsilon,
                amsgrad=False,
                maximize=False,
                grad_scale=1 / factor,
                found_inf=is_skipped.float(),
            )

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def sums(self, batch: Batch) -> Array:
        return self._step.sums(self._weights, self._tensors(batch))

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def logits(self, batch: Batch) -> Mapping[str, Array]:
        return self._step.logits(self._weights, self._tensors(batch))

    def state(self) -> State:
        return {name: value.detach().cpu().numpy().copy() for name, value in self._state.items()}

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def restore(self, state: State) -> None:
        for name in self._state.keys() & state.keys():
            self._state[name].copy_(torch.tensor(np.asarray(state[name], np.float32)))

    def gather(self, number: int) -> list[int]:
        return [number]

    def peak_memory(self) -> int | None:
        return torch.cuda.max_memory_allocated() if self.has_accelerator else None

    def _tensors(self, batch: Batch) -> dict[str, Array]:
        return {name: torch.from_numpy(np.ascontiguousarray(array)).to(self._device) for name, array in batch.items()}


open_engine = TorchEngine


def _take_gradient(weight: Array) -> Array:
    gradient, weight.grad = weight.grad, None
    return torch.zeros_like(weight) if gradient is None else gradient


_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def _keep_freed_memory() -> None:
    """Let glibc's malloc keep what tensors free: it would return large ones to the OS, which clears them again."""
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, -1)
