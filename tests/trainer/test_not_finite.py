"""A loss that is no number: skipped where the loss scale can be halved, otherwise the end, with the batch's records named."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bertprep.errors import BertprepError
from bertprep.records.record_set import RecordSet
from tests.records.test_record_set import write_folder
from trainer.batches import GlobalBatch, TrainingBatches
from trainer.metrics import StepResult, Sums
from trainer.not_finite import check_finite

SEED = 7


def result(*, loss: float = 1.0, norm: float = 1.0, loss_scale: float = 1.0) -> StepResult:
    sums = Sums(masked_lm_loss=loss, masked_lm_weight=1.0, sequences=1.0)
    return StepResult(sums, gradient_norm=norm, loss_scale=loss_scale, is_stop_wanted=False)


@pytest.fixture
def records(tmp_path: Path) -> RecordSet:
    write_folder(tmp_path / "data", (20, 13))
    return RecordSet([tmp_path / "data"])


def check(of: StepResult, records: RecordSet, out: Path, *, rank: int = 0) -> int:
    """What is made of step 103, the third of a phase, of a global batch of 8 that two ranks share."""
    data: Any = SimpleNamespace(records=records, batch=GlobalBatch(8, data_world_size=2, data_rank=rank))
    settings: Any = SimpleNamespace(seed=SEED, out=out)
    return check_finite(of, settings, data, step=103, step_of_phase=2)


@pytest.mark.parametrize("loss_scale", [1.0, 2.0**15])
def test_a_step_that_is_finite_skips_nothing(loss_scale: float, records: RecordSet, tmp_path: Path) -> None:
    assert check(result(loss_scale=loss_scale), records, tmp_path / "out") == 0


@pytest.mark.parametrize("wrong", [{"loss": math.nan}, {"norm": math.inf}, {"norm": math.nan}])
def test_a_step_with_a_loss_scale_was_skipped(wrong: dict[str, float], records: RecordSet, tmp_path: Path) -> None:
    assert check(result(**wrong, loss_scale=2.0), records, tmp_path / "out") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("wrong", [{"loss": math.nan}, {"norm": math.inf}])
def test_any_other_is_the_end_with_the_whole_batch_named(wrong: dict[str, float], records: RecordSet, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(BertprepError) as raised:
        check(result(**wrong), records, out)
    places = TrainingBatches(records, GlobalBatch(8), seed=SEED).places(2)
    named = [f"{path}: record {record}" for path, record in places]
    assert len(named) == 8  # of both ranks
    assert (out / "not_finite.txt").read_text().splitlines() == named
    message = str(raised.value)
    loss, norm = wrong.get("loss", 1.0), wrong.get("norm", 1.0)
    assert message.startswith(f"step 103: the loss is {loss}, the norm of the gradients {norm}; its batch is {named[0]}, and 7")
    assert str(out / "not_finite.txt") in message
    assert message.endswith("or lower --lr; no checkpoint was written before, so the same command begins anew")
    (out / "checkpoint-000000100.safetensors").touch()
    with pytest.raises(
        BertprepError, match=r"newest checkpoint, checkpoint-000000100\.safetensors, is from before, and the same"
    ):
        check(result(**wrong), records, out)


def test_one_rank_writes_and_all_end(records: RecordSet, tmp_path: Path) -> None:
    with pytest.raises(BertprepError, match=r"^step 103: the loss is nan"):
        check(result(loss=math.nan), records, tmp_path / "out", rank=1)
    assert not (tmp_path / "out").exists()


def test_a_file_that_cannot_be_written_is_one_line(records: RecordSet, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file where the folder should be")
    with pytest.raises(BertprepError, match=r"not_finite\.txt: cannot be written"):
        check(result(loss=math.nan), records, tmp_path / "out")
