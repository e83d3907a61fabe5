"""Faulty data costs at most the step that would have used it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertprep.errors import BertprepError
from bertprep.records.record_set import RecordSet
from tests.trainer.numpy_engine import (
    BATCH,
    LAST,
    SEED,
    SHARDS,
    STEPS,
    Data,
    NumPyEngine,
    checkpoints,
    entries,
    lasting,
    run,
    saved_steps,
    settings_of,
    stopped_at,
    train_on_ranks,
)
from trainer import log as run_log
from trainer.batches import GlobalBatch, TrainingBatches, empty_for
from trainer.checkpoint import find_checkpoints
from trainer.checkpoint import read as read_checkpoint
from trainer.loop import train


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log, "draw_losses", lambda *_: None)


@pytest.fixture(params=["tfrecord", "ofrecord"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Data:
    return Data(tmp_path / "data", request.param)


@pytest.mark.parametrize("has_accelerator", [False, True])
def test_the_last_step_before_a_damaged_record_is_saved(data: Data, tmp_path: Path, *, has_accelerator: bool) -> None:
    run(settings_of(data, tmp_path / "whole"))
    repair = data.damage(number := data.met_first_at(4)[0])
    settings = settings_of(data, tmp_path / "out")
    for _ in range(2):  # the same command meets it again
        with pytest.raises(BertprepError) as error:
            run(settings, has_accelerator=has_accelerator)
        file, record = (0, number) if number < SHARDS[0] else (1, number - SHARDS[0])
        assert str(error.value).startswith(f"{data.folder}/training/part-{file}: record {record}: ")
        assert str(error.value).endswith(
            "; --skip-bad-records N skips up to N of them; step 3 is saved, and the same command resumes after it"
        )
        assert saved_steps(tmp_path / "out") == [3]
    repair()
    assert run(settings, has_accelerator=has_accelerator)
    assert lasting(tmp_path / "out") == lasting(tmp_path / "whole")
    # the first began with a record that it could not know: its fingerprint is not known either
    found, expected = (read_checkpoint(tmp_path / name / LAST) for name in ("out", "whole"))
    assert found.state["model"].tobytes() == expected.state["model"].tobytes()


def test_a_record_damaged_under_way(data: Data, tmp_path: Path) -> None:
    """The run that meets it in its second epoch has read it before."""
    number = data.met_first_at(1)[0]
    engine: Any = NumPyEngine()
    engine.on_step = lambda step: data.damage(number) if step == 1 else None
    with pytest.raises(BertprepError, match=r"; step \d is saved, and the same command resumes after it$"):
        train(settings_of(data, tmp_path / "out", has_test=False), engine)
    (step,) = saved_steps(tmp_path / "out")[-1:]
    assert 4 <= step <= 8
    assert run(settings_of(data, tmp_path / "out", has_test=False, skip_bad_records=1))
    assert [(entry["step"], entry["record"]) for entry in entries(tmp_path / "out", "bad_record")] == [
        (step + 1, number % SHARDS[0])
    ]


def test_a_fault_before_the_first_step_leaves_nothing_to_go_on_from(data: Data, tmp_path: Path) -> None:
    data.damage(data.met_first_at(1)[0])
    with pytest.raises(BertprepError, match=r"; no step was finished before$"):
        run(settings_of(data, tmp_path / "out"))
    assert find_checkpoints(tmp_path / "out") == []


def test_a_file_that_was_changed_ends_a_run_saved(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = NumPyEngine()
    monkeypatch.setattr("bertprep.records.record_set._most_open", lambda: 1)  # so that files are opened again and again
    part = data.folder / "training" / "part-1"
    engine.on_step = lambda step: part.write_bytes(part.read_bytes()[:-100]) if step == 3 else None
    with pytest.raises(BertprepError) as error:
        train(settings_of(data, tmp_path / "out"), engine)
    saved = saved_steps(tmp_path / "out")
    step = saved[-1]  # how far a thread had read ahead by then is a matter of time
    assert saved == sorted({*range(5, step, 5), step})
    assert str(error.value).startswith(f"{part}: ")
    assert str(error.value).endswith(f"; step {step} is saved, and the same command resumes after it")
    assert 4 <= step < STEPS


@pytest.mark.parametrize("has_accelerator", [False, True])
def test_bad_records_are_skipped_and_named_once(
    data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, has_accelerator: bool
) -> None:
    bad = [*data.met_first_at(2, 2), *data.met_first_at(4)]
    for number in bad:
        data.damage(number)
    out = tmp_path / "out"
    assert run(settings_of(data, out, skip_bad_records=3), has_accelerator=has_accelerator)
    named = entries(out, "bad_record")
    assert sorted((entry["step"], entry["file"], entry["record"]) for entry in named) == sorted(
        (
            data.first_step_of(number),
            str(data.folder / "training" / f"part-{int(number >= SHARDS[0])}"),
            number if number < SHARDS[0] else number - SHARDS[0],
        )
        for number in bad
    )
    said = capsys.readouterr().err
    for entry in named:
        assert (
            f"step {entry['step']}: skipped a bad record: {entry['file']}: record {entry['record']}: {entry['what']}\n" in said
        )
    assert {number for _, _, number in read_checkpoint(out / LAST).run.bad_records} == set(bad)


def test_a_bad_record_is_replaced_by_the_next_good_one(data: Data) -> None:
    data.damage(5), data.damage(6)
    with RecordSet([data.folder]) as records:
        batches = TrainingBatches(records, GlobalBatch(33), seed=SEED, skip_bad=2)
        found = empty_for(records, 33)
        for step in range(2):
            batches.read_into(found, step)
            for row, number in enumerate(batches.numbers(step).tolist()):
                expected = data.records[7 if number in (5, 6) else number]["input_ids"]
                assert found.input_ids[row].tolist() == expected
        assert {(step, bad.number) for step, bad in batches.take_bad(1)} == {(0, 5), (0, 6), (1, 5), (1, 6)}


@pytest.mark.parametrize(("ranks", "accumulation"), [(2, 1), (2, 2), (4, 1)])
def test_what_is_skipped_is_the_same_for_every_world_size(
    ranks: int, accumulation: int, data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (5, 6, 30):
        data.damage(number)
    data.damage(4, "test")
    run(settings_of(data, tmp_path / "one", skip_bad_records=4))
    several = settings_of(data, tmp_path / "several", devices=ranks, accumulation=accumulation, skip_bad_records=4)
    assert train_on_ranks(several, ranks, monkeypatch) == [True] * ranks
    assert lasting(tmp_path / "several") == lasting(tmp_path / "one")
    assert (tmp_path / "several" / LAST).read_bytes() == (tmp_path / "one" / LAST).read_bytes()


@pytest.mark.parametrize("stop_at", [1, 2, 3, 7, 9])
@pytest.mark.parametrize("has_accelerator", [False, True])
def test_a_run_with_bad_records_that_is_stopped_ends_with_the_same_bytes(
    stop_at: int, data: Data, tmp_path: Path, *, has_accelerator: bool
) -> None:
    """The same checkpoints and log, with skipped records and means over steps on both sides of the stop."""
    for number in (5, 6, 30):
        data.damage(number)
    more = {"skip_bad_records": 3, "log_every": 4, "eval_every": 6}
    run(settings_of(data, tmp_path / "whole", **more), has_accelerator=has_accelerator)
    settings = settings_of(data, tmp_path / "stopped", **more)
    engine: Any = NumPyEngine(has_accelerator=has_accelerator)
    with stopped_at(stop_at, engine):
        assert not train(settings, engine)
    assert run(settings, has_accelerator=has_accelerator)
    assert checkpoints(tmp_path / "stopped")[LAST] == checkpoints(tmp_path / "whole")[LAST]
    assert lasting(tmp_path / "stopped") == lasting(tmp_path / "whole")


def test_one_bad_record_too_many_ends_a_run_saved(data: Data, tmp_path: Path) -> None:
    first, second = data.met_first_at(2)[0], data.met_first_at(5)[0]
    data.damage(first), data.damage(second)
    settings = settings_of(data, tmp_path / "out", skip_bad_records=1)
    for _ in range(2):  # the first is not counted again
        with pytest.raises(BertprepError, match="; it is one bad record more than --skip-bad-records 1; step 4 is saved"):
            run(settings)
    assert saved_steps(tmp_path / "out")[-1] == 4
    assert run(replace(settings, skip_bad_records=2))


def test_where_no_record_is_good_there_is_an_end(data: Data, tmp_path: Path) -> None:
    settings = settings_of(data, tmp_path / "out", skip_bad_records=1000)
    few = replace(settings.model, vocab_size=10)
    with pytest.raises(BertprepError, match=r"has the value .*none of the 33 records is good; no step was finished before$"):
        run(replace(settings, model=few))


def test_no_rank_waits_for_one_that_meets_a_damaged_record(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data.damage(number := data.met_first_at(4)[0])
    ends = train_on_ranks(settings_of(data, tmp_path / "out", devices=2), 2, monkeypatch)
    with RecordSet([data.folder]) as records:
        meets = next(
            rank for rank in range(2) if number in TrainingBatches(records, GlobalBatch(BATCH, 2, rank), seed=SEED).numbers(3)
        )
    saved = "step 3 is saved, and the same command resumes after it"
    assert f": record {number if number < SHARDS[0] else number - SHARDS[0]}: " in str(ends[meets])
    assert str(ends[meets]).endswith(saved)
    assert (
        ends[1 - meets] == f"data rank {1 - meets} of 2: another process met data that it cannot read, and says which; {saved}"
    )
    assert saved_steps(tmp_path / "out") == [3]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_damaged_record_of_the_test_split(ranks: int, data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found in the middle of an evaluation, which all ranks finish."""
    data.damage(4, "test")
    settings = settings_of(data, tmp_path / "out", devices=ranks, eval_every=6)
    ends = train_on_ranks(settings, ranks, monkeypatch)
    assert sum(f"{data.folder}/test/part-0: record 4: " in str(end) for end in ends) == 1
    assert all(str(end).endswith("; step 6 is saved, and the same command resumes after it") for end in ends)
    assert entries(tmp_path / "out", "evaluation") == []
    assert train_on_ranks(replace(settings, skip_bad_records=1), ranks, monkeypatch) == [True] * ranks
    (evaluation,) = entries(tmp_path / "out", "evaluation")
    assert (evaluation["step"], evaluation["sequences"]) == (STEPS, 9)
    expected = np.mean([sum(record["input_ids"]) for number, record in enumerate(data.records[:10]) if number != 4])
    assert evaluation["masked_lm_loss"] == pytest.approx(expected)
    assert [(entry["split"], entry["record"]) for entry in entries(tmp_path / "out", "bad_record")] == [("test", 4)]
