"""What all heads are judged by: the loss of each label, and whether it was the first choice."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from trainer.engines.jax.model import Array


def cross_entropy(labels: Array, logits: Array) -> Array:
    """-log of each label's probability, (...), given logits, (..., classes)."""
    of_label = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - of_label


def hits(labels: Array, logits: Array) -> Array:
    """1 where a label, (...), has the highest of its logits, (..., classes), and else 0; of equal ones the first."""
    return (jnp.argmax(logits, axis=-1) == labels).astype(jnp.float32)
