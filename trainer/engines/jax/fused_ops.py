"""The model's operations that are not products, each with its gradient written out, in few passes over memory.

On an accelerator these take nearly as long as the products, for what they read and write. So a gradient keeps what was given to
the operation, and computes the rest again. None of them scatters: a GPU adds up what it scatters in any order or, where a run
must be repeatable, sorts it element by element first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from trainer.model_config import LAYER_NORM_EPSILON

Array: TypeAlias = Any


@jax.custom_vjp  # type: ignore[untyped-decorator]
def look_up(table: Array, tokens: Array) -> Array:
    """The rows of a table, (vocabulary, hidden), for tokens, (...); gradients are added up in a fixed order."""
    return table[tokens]


def _look_up_gradient(kept: tuple[Array, Array], upstream: Array) -> tuple[Array, None]:
    tokens, vocabulary = kept
    order = jnp.argsort(tokens, axis=None)
    ordered, rows = tokens.ravel()[order], upstream.reshape(-1, upstream.shape[-1])[order]
    _, sums = jax.lax.associative_scan(_add_same, (ordered, rows))
    last = jnp.searchsorted(ordered, vocabulary, side="right", method="scan_unrolled") - 1
    return jnp.where((ordered[last] == vocabulary)[:, None], sums[last], 0), None


look_up.defvjp(lambda table, tokens: (look_up(table, tokens), (tokens, jnp.arange(len(table)))), _look_up_gradient)


def _add_same(left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
    """Of two neighbours in order: their last token, and the sum of the rows that are of it."""
    return right[0], right[1] + jnp.where((left[0] == right[0])[:, None], left[1], 0)


def pick(rows: Array, places: Array) -> Array:
    """Of the rows of each sequence, (sequences, seq, hidden), those at its places, (sequences, pred): a product with ones."""
    return jnp.einsum("nps,nsh->nph", jax.nn.one_hot(places, rows.shape[1], dtype=rows.dtype), rows)


def float32_product(pattern: str, left: Array, right: Array) -> Array:
    """`einsum` with a float32 result, whatever its operands are; its gradients are products in their precision again."""

    @jax.custom_gradient  # type: ignore[untyped-decorator]
    def multiply(left: Array, right: Array) -> tuple[Array, Callable[[Array], Any]]:
        def gradient(upstream: Array) -> Any:
            return jax.vjp(lambda *operands: jnp.einsum(pattern, *operands), left, right)[1](upstream.astype(left.dtype))

        return jnp.einsum(pattern, left, right, preferred_element_type=jnp.float32), gradient

    return multiply(left, right)


@jax.custom_gradient  # type: ignore[untyped-decorator]
def gelu(values: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Each value times the probability that a standard normal variable is below it, exactly, by the error function."""

    def probability(exact: Array) -> Array:
        return 0.5 * jax.lax.erf(exact * math.sqrt(0.5)) + 0.5

    def gradient(upstream: Array) -> Array:
        exact = values.astype(jnp.float32)
        density = jnp.exp(exact * (exact * -0.5)) / math.sqrt(2 * math.pi)
        return (upstream * (probability(exact) + exact * density)).astype(values.dtype)

    return (values * probability(values.astype(jnp.float32))).astype(values.dtype), gradient


@jax.custom_gradient  # type: ignore[untyped-decorator]
def layer_norm(values: Array, gamma: Array, beta: Array) -> tuple[Array, Callable[[Array], tuple[Array, Array, Array]]]:
    """Rows shifted and scaled to a mean of 0 and a variance of 1, then times gamma, plus beta; in the precision of the rows."""

    def moments() -> tuple[Array, Array]:
        exact = values.astype(jnp.float32)
        mean = exact.mean(axis=-1, keepdims=True)
        return mean, jax.lax.rsqrt(jnp.square(exact - mean).mean(axis=-1, keepdims=True) + LAYER_NORM_EPSILON)

    def normal(mean: Array, scale: Array) -> Array:
        return (values.astype(jnp.float32) - mean) * scale

    def gradient(upstream: Array) -> tuple[Array, Array, Array]:
        # arrays of their own: what is summed over the rows would otherwise be written out in float32 first
        mean, scale = jax.lax.optimization_barrier(moments())
        normalized, upstream = normal(mean, scale), upstream.astype(jnp.float32)
        rows = tuple(range(values.ndim - 1))
        towards = upstream * gamma
        common = towards.mean(axis=-1, keepdims=True) + normalized * (towards * normalized).mean(axis=-1, keepdims=True)
        of_values = ((towards - common) * scale).astype(values.dtype)
        return of_values, (upstream * normalized).sum(axis=rows), upstream.sum(axis=rows)

    return (normal(*moments()) * gamma + beta).astype(values.dtype), gradient


def dropout(values: Array, dropout_rate: float, key: Array | None) -> Array:
    """The values, each 0 with probability `dropout_rate` and divided by `1 - dropout_rate` otherwise; all without a key, (2,).

    The mask follows from the key alone, is compared in 32 bits in every precision, and made again for the gradient.
    """
    return values if key is None or dropout_rate == 0 else _drop(dropout_rate, values, key)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _drop(dropout_rate: float, values: Array, key: Array) -> Array:
    kept = random_bits(key, values.shape) >= jnp.uint32(round(dropout_rate * 2**32))
    return jnp.where(kept, values * (1 / (1 - dropout_rate)), 0)


_drop.defvjp(
    lambda dropout_rate, values, key: (_drop(dropout_rate, values, key), key),
    lambda dropout_rate, key, upstream: (_drop(dropout_rate, upstream, jax.lax.optimization_barrier(key)), None),
)


def random_bits(key: Array, shape: tuple[int, ...]) -> Array:
    """32 bits for each element, uint32: a hash of its number and the key, which takes less time than to read them."""
    bits = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
    for part in key.astype(jnp.uint32):
        bits = _mix(bits ^ _mix(part))
    return bits


def _mix(bits: Array) -> Array:
    """MurmurHash3's last steps: a permutation of 32-bit numbers in which each bit depends on all."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        bits = (bits ^ (bits >> shift)) * jnp.uint32(factor)
    return bits ^ (bits >> 16)


@jax.custom_vjp  # type: ignore[untyped-decorator]
def cross_entropy(labels: Array, logits: Array) -> Array:
    """-log of each label's probability, (...), given logits, (..., classes)."""
    return _cross_entropy(labels, logits)[0]


def _cross_entropy(labels: Array, logits: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    total = jax.nn.logsumexp(logits, axis=-1)
    return total - jnp.where(_is_label(labels, logits), logits, 0).sum(axis=-1), (labels, logits, total)


def _cross_entropy_gradient(kept: tuple[Array, Array, Array], upstream: Array) -> tuple[None, Array]:
    labels, logits, total = kept
    return None, (jnp.exp(logits - total[..., None]) - _is_label(labels, logits)) * upstream[..., None]


def _is_label(labels: Array, logits: Array) -> Array:
    """Compared instead of looked up: so one pass over the logits finds the label's, and their sum."""
    return labels[..., None] == jnp.arange(logits.shape[-1])


cross_entropy.defvjp(_cross_entropy, _cross_entropy_gradient)


def hits(labels: Array, logits: Array) -> Array:
    """1 where a label, (...), has the highest of its logits, (..., classes), and else 0; of equal ones the first."""
    return (jnp.argmax(logits, axis=-1) == labels).astype(jnp.float32)
