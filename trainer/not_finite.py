"""A loss or gradient that is no number: in fp16 a step that was skipped, otherwise the end of the run, with what to look at."""

from __future__ import annotations

from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file
from trainer import checkpoint
from trainer.batches import GlobalBatch, TrainingBatches
from trainer.metrics import StepResult
from trainer.phase_data import PhaseData
from trainer.settings import RunSettings

BATCH_FILE = "not_finite.txt"


def check_finite(result: StepResult, settings: RunSettings, data: PhaseData, *, step: int, step_of_phase: int) -> int:
    """How many updates the step skipped, 0 or 1; raises `BertprepError` where skipping is no help, or was not done.

    The engine skips with a loss scale above 1 alone: at 1 nothing is left to halve. `step` counts from 1, `step_of_phase`, by
    which the batch is known, from 0.
    """
    if result.is_finite:
        return 0
    if result.loss_scale > 1:
        return 1
    whole = TrainingBatches(data.records, GlobalBatch(data.batch.size), seed=settings.seed)
    places = [f"{path}: record {record}" for path, record in whole.places(step_of_phase)]
    if data.batch.data_rank == 0:  # all ranks know the whole batch, and end here
        with atomic_file(settings.out / BATCH_FILE) as file:
            file.write(("\n".join(places) + "\n").encode())
    raise BertprepError(
        f"step {step:,}: the loss is {result.sums.loss}, the norm of the gradients {result.gradient_norm}; its batch is "
        f"{places[0]}, and {len(places) - 1:,} more in {settings.out / BATCH_FILE}; look at them with bertprep inspect, or "
        f"lower --lr; {_where_from(settings)}"
    )


def _where_from(settings: RunSettings) -> str:
    """What the same command would begin with."""
    newest = checkpoint.newest(settings.out)
    if newest is None:
        return "no checkpoint was written before, so the same command begins anew"
    return f"the newest checkpoint, {newest.name}, is from before, and the same command goes on from it"
