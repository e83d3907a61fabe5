"""Find the consecutive parts of a network, and the variables, features and dropout masks that each one uses.

OneFlow's pipelines assign parts to processes, and its graphs need the random numbers of all dropout masks in advance. No list
is written by hand: the functions of the model run once on shapes, and what they read and draw is recorded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from trainer.model import Bert, Operations, encoder_parts
from trainer.model_config import ModelConfig
from trainer.tasks.task import Task


@dataclass(frozen=True)
class Part:
    """The embeddings, a layer or the head: a function of a `Bert` and, except for the embeddings, of the result before it."""

    compute: Callable[..., Any]
    variables: tuple[str, ...]  # in the order of the model's variables
    features: tuple[str, ...]  # of a batch
    mask_rows: tuple[int, ...]  # the rows per sequence of each dropout mask, in the order in which the masks are applied


@cache
def parts_of(model: ModelConfig, task: Task, *, seq: int = 1) -> tuple[Part, ...]:
    """Return the parts of a task's network for sequences of `seq` tokens; their features do not include labels.

    >>> from trainer.tasks.pretraining import Pretraining
    >>> [len(part.variables) for part in parts_of(ModelConfig.preset("tiny"), Pretraining())]
    [5, 16, 16, 10]
    """
    shapes = task.variable_shapes(model)
    parts: list[Part] = []
    results: list[Any] = []  # of the part before
    for compute in (*encoder_parts(model), task.head):
        weights, batch, ops = _Weights(shapes), _Batch(seq), _ShapeOps()
        results = [compute(Bert(ops, model, weights, batch, key=()), *results)]
        variables = tuple(name for name in shapes if name in weights.read)
        parts.append(Part(compute, variables, tuple(batch.read), tuple(ops.mask_rows)))
    return tuple(parts)


class _Shape:
    """An array without values: only its shape is known."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)

    def __len__(self) -> int:
        return self.shape[0]

    def _elementwise(self, other: Any) -> _Shape:
        return _Shape(np.broadcast_shapes(self.shape, getattr(other, "shape", ())))

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _elementwise

    def __eq__(self, other: object) -> Any:
        return self._elementwise(other)

    __hash__ = None  # type: ignore[assignment]

    def __matmul__(self, other: _Shape) -> _Shape:
        return _Shape((*self.shape[:-1], other.shape[-1]))

    def __getitem__(self, index: Any) -> _Shape:
        return _Shape(np.broadcast_to(np.int8(0), self.shape)[index].shape)


class _ShapeOps(Operations):
    """Operations that compute only shapes, and record the dropout masks."""

    def __init__(self) -> None:
        super().__init__()
        self.mask_rows: list[int] = []

    def dropout(self, x: _Shape, dropout_rate: float, key: Any, number: int) -> _Shape:  # noqa: ARG002
        self.mask_rows.append(math.prod(x.shape[:-1]))
        return x

    def cast(self, x: _Shape, dtype: str) -> _Shape:  # noqa: ARG002
        return x

    def reshape(self, x: _Shape, shape: Sequence[int]) -> _Shape:
        known = math.prod(size for size in shape if size != -1)
        return _Shape([math.prod(x.shape) // known if size == -1 else size for size in shape])

    def permute(self, x: _Shape, axes: Sequence[int]) -> _Shape:
        return _Shape([x.shape[axis] for axis in axes])

    def product(self, left: _Shape, right: _Shape) -> _Shape:
        return _Shape((*left.shape[:-1], right.shape[-2]))

    def look_up(self, table: _Shape, ids: _Shape) -> _Shape:
        return _Shape((*ids.shape, table.shape[-1]))

    look_up_small = look_up

    def gather_positions(self, x: _Shape, positions: _Shape) -> _Shape:
        return _Shape((math.prod(positions.shape), x.shape[-1]))

    def layer_norm(self, x: _Shape, gamma: _Shape, beta: _Shape) -> _Shape:  # noqa: ARG002
        return x

    def gelu(self, x: _Shape) -> _Shape:
        return x

    tanh = softmax = gelu


class _Weights(Mapping[str, _Shape]):
    """Variables without values, which record the names that are read."""

    def __init__(self, shapes: Mapping[str, Sequence[int]]) -> None:
        self._shapes = shapes
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> _Shape:
        self.read.add(name)
        return _Shape(self._shapes[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


class _Batch(Mapping[str, _Shape]):
    """A batch of one unpacked sequence, which records the features that are read. Only features of tokens have many values."""

    _TOKENS = ("input_ids", "input_mask", "segment_ids")

    def __init__(self, seq: int) -> None:
        self._seq = seq
        self.read: dict[str, None] = {}

    def __getitem__(self, name: str) -> _Shape:
        self.read[name] = None
        return _Shape((1, self._seq if name in self._TOKENS else 1))

    def __contains__(self, name: object) -> bool:
        return name in self._TOKENS  # no position_ids or sequence_ids, so the rows are not packed

    def __iter__(self) -> Iterator[str]:
        return iter(self._TOKENS)

    def __len__(self) -> int:
        return len(self._TOKENS)
