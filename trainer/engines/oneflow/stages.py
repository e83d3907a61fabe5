"""Which layers a stage of a pipeline has, and which ranks are its processes.

A model that one device cannot hold is cut into stages of whole layers: embeddings in the first, pooler and heads in the last.
Processes are listed host by host (`intra_first`: a pipeline stays within a host, its copies are on others) or by their number
on the host (`inter_first`: a pipeline goes across hosts, its copies are within them), and the list is cut into pipelines.
Here with two hosts of two processes:

    >>> place(hosts=2, per_host=2, stages=2, strategy="intra_first")
    [[0, 1], [2, 3]]
    >>> place(hosts=2, per_host=2, stages=2, strategy="inter_first")
    [[0, 2], [1, 3]]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bertprep.errors import UsageError
from trainer.model_config import ModelConfig
from trainer.tasks import Task
from trainer.tasks.pretraining import PRETRAINING

WORDS = "bert/embeddings/word_embeddings"
"""The variable that the first stage has, and in pretraining the last one too: the masked-LM head multiplies by it."""
Pipelines = list[list[int]]
"""The rank of each stage of each pipeline."""
_LAYER = "bert/encoder/layer_{}/"


@dataclass(frozen=True)
class Stage:
    """A run of layers, which one process of each pipeline computes."""

    layers: range
    variables: tuple[str, ...]
    parameters: int


def heads_variables(config: ModelConfig, task: Task) -> tuple[str, ...]:
    """The names of the variables of a task's heads and of the pooler, which the last stage has.

    >>> heads_variables(ModelConfig.preset("tiny"), PRETRAINING)[-2:]
    ('cls/seq_relationship/output_bias', 'bert/embeddings/word_embeddings')
    """
    names = [name for name in task.variable_shapes(config) if not name.startswith(("bert/embeddings/", "bert/encoder/"))]
    return (*names, WORDS) if "cls/predictions/output_bias" in names else tuple(names)


def cut(config: ModelConfig, stages: int, task: Task = PRETRAINING) -> list[Stage]:
    """Whole layers to stages, so that the largest stage has as few parameters as possible.

    Word embeddings that the heads use too count in the first stage and in the last, since both hold them.

    >>> [len(stage.layers) for stage in cut(ModelConfig.preset("base"), 4)]
    [1, 5, 5, 1]
    """
    if not 1 <= stages <= config.num_hidden_layers:
        raise UsageError(
            f"--stages {stages}: the model has {config.num_hidden_layers} layers, and a stage has whole ones; "
            f"choose 1 to {config.num_hidden_layers}"
        )
    counts = [1] * stages
    for _ in range(config.num_hidden_layers - stages):
        sizes = [stage.parameters for stage in _stages_of(config, counts, task)]
        smallest = min(range(stages), key=lambda number: (sizes[number], -number))  # of equal ones the later: it waits less
        counts[smallest] += 1
    return _stages_of(config, counts, task)


def _stages_of(config: ModelConfig, counts: Sequence[int], task: Task) -> list[Stage]:
    shapes = task.variable_shapes(config)
    first, stages = 0, []
    for number, count in enumerate(counts):
        layers = range(first, first + count)
        prefixes = [_LAYER.format(layer) for layer in layers]
        prefixes += ["bert/embeddings/"] if number == 0 else []
        prefixes += heads_variables(config, task) if number == len(counts) - 1 else []
        variables = tuple(name for name in shapes if name.startswith(tuple(prefixes)))
        stages.append(Stage(layers, variables, sum(math.prod(shapes[name]) for name in variables)))
        first += count
    return stages


def place(*, hosts: int, per_host: int, stages: int, strategy: str) -> Pipelines:
    """The ranks of each pipeline, stage by stage; pipelines in the order of their first ranks."""
    check_multiple(hosts * per_host, stages)
    if strategy == "intra_first":
        ranks = [host * per_host + place for host in range(hosts) for place in range(per_host)]
    else:
        ranks = [host * per_host + place for place in range(per_host) for host in range(hosts)]
    return sorted(ranks[first : first + stages] for first in range(0, len(ranks), stages))


def check_multiple(processes: int, stages: int) -> None:
    """Raise where the processes are not whole pipelines."""
    if processes % stages:
        raise UsageError(
            f"--stages {stages}: must divide the number of processes, which is {processes}; start a multiple of {stages} with "
            "python -m oneflow.distributed.launch --nproc_per_node N -m trainer"
        )


def check_order(pipelines: Pipelines, strategy: str) -> None:
    """Raise where OneFlow would join other ranks to a pipeline: the ranks of a stage have an order of their own there."""
    for stage in zip(*pipelines, strict=True):
        if list(stage) != sorted(stage):
            ranks = ", ".join(map(str, stage))
            raise UsageError(
                f"--strategy {strategy} --stages {len(pipelines[0])}: a stage would have ranks {ranks} in this order, which "
                "OneFlow cannot keep; choose stages that divide the number of hosts, or intra_first"
            )


def describe(stages: Sequence[Stage], pipelines: Pipelines) -> list[str]:
    """The plan as a table: stage, layers, parameters, ranks."""
    rows = [("stage", "layers", "parameters", "ranks")]
    for number, stage in enumerate(stages):
        first, last = stage.layers[0], stage.layers[-1]
        layers = str(first) if first == last else f"{first} - {last}"
        layers = f"embeddings, {layers}" if number == 0 else layers
        layers = f"{layers}, heads" if number == len(stages) - 1 else layers
        ranks = ", ".join(str(pipeline[number]) for pipeline in pipelines)
        rows.append((str(number), layers, f"{stage.parameters:,}", ranks))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
