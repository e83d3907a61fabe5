"""Compute a training step, with formulas written once for all frameworks: loss, gradient norm, clipping and update.

An engine differentiates the loss of `Step.micro_batch`, adds the gradients up over micro-batches and devices, and stores the
values of `Step.changes`. The loss of a micro-batch is divided by the weights of the global batch, so the sum over all
micro-batches is the loss of the global batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainer.model import Array, Arrays, Bert, Operations
from trainer.model_config import ModelConfig
from trainer.optimizers import clip_factor, updates
from trainer.settings import OptimizerSettings
from trainer.tasks.task import Task


@dataclass(frozen=True)
class Step:
    """The formulas of a run's steps and evaluations, with the operations of a framework."""

    ops: Operations
    model: ModelConfig
    task: Task
    optimizer: OptimizerSettings

    def logits(self, weights: Arrays, batch: Arrays, key: Any = None) -> dict[str, Array]:
        """Return the logits of each output, with dropout if there is a key."""
        return forward(self.ops, self.model, self.task, weights, batch, key)

    def micro_batch(self, weights: Arrays, batch: Arrays, weight_sums: Arrays, scale: Any) -> tuple[Array, Array]:
        """Return a micro-batch's share of the global loss, times `scale`, and its sums of `loss_and_sums` as one vector.

        `batch` contains the `dropout_key` of the micro-batch, (1, 2).
        """
        logits = self.logits(weights, batch, batch["dropout_key"][0])
        loss, sums = loss_and_sums(self.ops, self.task, batch, logits, weight_sums)
        return loss * scale, self.ops.stack(sums)

    def sums(self, weights: Arrays, batch: Arrays) -> Array:
        """Return the sums of `loss_and_sums` without dropout, for an evaluation, as one vector."""
        _, sums = loss_and_sums(self.ops, self.task, batch, self.logits(weights, batch), self.weight_sums(batch))
        return self.ops.stack(sums)

    def weight_sums(self, batch: Arrays) -> dict[str, Array]:
        """Return the sum of each output's weights in a batch. Summed over the global batch, it divides the output's loss."""
        return sum_weights(self.ops, self.task, batch)

    def norm(self, gradients: Arrays, scale: Any) -> Array:
        """Return the norm of all gradients of the global batch, which are `scale` times too large."""
        squares = [self.ops.square_sum(gradient) for gradient in gradients.values()]
        # Stacked, since compilers may reorder a chain of additions
        return self.ops.sqrt(self.ops.sum(self.ops.stack(squares))) / scale

    def factor(self, norm: Array, scale: Any) -> Array:
        """Return the factor that undoes `scale` and clips the gradients to the maximum norm."""
        return clip_factor(self.ops, norm, self.optimizer.clip_norm) / scale

    def changes(self, state: Arrays, gradients: Arrays, factor: Array, learning_rate: Any) -> Iterator[tuple[str, Array]]:
        """Yield the name and new value of everything in the state that an update changes, by `optimizers.updates`."""
        return updates(self.ops, self.optimizer, state, gradients, factor, learning_rate)


def forward(
    ops: Operations, model: ModelConfig, task: Task, weights: Arrays, batch: Arrays, key: Any = None
) -> dict[str, Array]:
    """Return the logits of each output of a task, with dropout if there is a key."""
    bert = Bert(ops, model, weights, batch, key)
    return task.head(bert, bert.encode())


def sum_weights(ops: Operations, task: Task, batch: Arrays) -> dict[str, Array]:
    """Return the sum of each output's weights in a batch."""
    return {output.name: ops.sum(batch[output.weights]) for output in task.outputs}


def loss_and_sums(ops: Operations, task: Task, batch: Arrays, logits: Arrays, weight_sums: Arrays) -> tuple[Array, list[Array]]:
    """Return a micro-batch's share of the global loss, and each output's sums of losses, correct predictions and weights."""
    loss, sums = 0.0, []
    for output in task.outputs:
        of_output = logits[output.name]
        if len(of_output.shape) > 2:  # logits of each token
            of_output = ops.reshape(of_output, (-1, of_output.shape[-1]))
        labels = ops.reshape(batch[output.labels], (-1,))
        weights = ops.reshape(batch[output.weights], (-1,))
        if output.is_regression:
            error = ops.reshape(of_output, (-1,)) - labels
            losses, correct = error * error, 0.0 * weights
        else:
            losses, correct = ops.cross_entropy(labels, of_output), ops.float32(ops.argmax(of_output) == labels)
        loss_sum = ops.sum(losses * weights)
        loss = loss + output.share * loss_sum / ops.maximum(weight_sums[output.name], 1e-5)  # 0 if all weights are 0
        sums += [loss_sum, ops.sum(correct * weights), ops.sum(weights)]
    return loss, sums
