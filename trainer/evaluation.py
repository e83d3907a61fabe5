"""An evaluation: all batches of a split through an engine, on all of its devices, to the metrics of the task.

All ranks get the same metrics. A task that is scored needs all outputs together, which are 8 bytes a token for SQuAD, 35 MB for
its dev set; of what is missing on any rank, for a bad record or a fault, the number of sequences tells.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainer.batches import EvaluationBatches
from trainer.engines import Engine
from trainer.tasks import Outputs, Scorer, Task


class Evaluation(NamedTuple):
    """The sequences that counted, on all ranks, and the metrics; none for a scored task of which sequences are missing."""

    sequences: int
    metrics: dict[str, float]


def evaluate(engine: Engine, task: Task, batches: EvaluationBatches, scorer: Scorer | None = None) -> Evaluation:
    """The metrics of a model on the batches of a split; `scorer` is that of a task which is scored."""
    if scorer is None:
        sums = task.sums()
        for examples, row_weights in batches:
            sums = sums.plus(engine.evaluate(examples, row_weights))
        return Evaluation(round(sums.sequences), sums.metrics())
    sequences, outputs = predict(engine, batches)
    return Evaluation(sequences, scorer.score(outputs).metrics if sequences == batches.sequences else {})


def predict(engine: Engine, batches: EvaluationBatches) -> tuple[int, Outputs]:
    """How many sequences could be read, on all ranks, and the outputs for each row of the split."""
    outputs: dict[str, list[NDArray[np.float32]]] = {}
    own = 0.0
    for examples, row_weights in batches:
        own += float(row_weights.sum())
        for name, rows in engine.predict(examples).items():
            outputs.setdefault(name, []).append(rows)
    sequences = sum(engine.gather(round(own))) * engine.data_world_size // engine.processes  # stages read the same
    return sequences, {name: np.concatenate(rows)[: batches.sequences] for name, rows in outputs.items()}
