"""What the loop does at each step, with an engine of NumPy: phases, cadence, overflow, signals, kills, resuming."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from bertprep.records.record_set import RecordSet
from bertprep.weights.hugging_face import save_weights
from tests.trainer.numpy_engine import (
    BATCH,
    LAST,
    SEED,
    Data,
    NoSignal,
    NumPyEngine,
    checkpoints,
    entries,
    lasting,
    phase_of,
    run,
    saved_steps,
    settings_of,
    train_on_ranks,
)
from trainer import log as run_log
from trainer import loop
from trainer.batches import GlobalBatch, TrainingBatches
from trainer.checkpoint import BEST, find_checkpoints, read, read_header
from trainer.loop import train
from trainer.model_config import ModelConfig
from trainer.settings import RunSettings
from trainer.weights import initial_values

ON_BOTH = pytest.mark.parametrize("has_accelerator", [False, True])


class Killed(BaseException):
    """What leaves a run as kill -9 does: nothing is saved."""


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log, "draw_losses", lambda *_: None)


@pytest.fixture
def data(tmp_path: Path) -> Data:
    return Data(tmp_path / "data")


def train_with(settings: RunSettings, **attributes: Any) -> tuple[bool, NumPyEngine]:
    engine = NumPyEngine(has_accelerator=attributes.pop("has_accelerator", False))
    for name, value in attributes.items():
        setattr(engine, name, value)
    of_any_kind: Any = engine
    return train(settings, of_any_kind), engine


def at_step(step: int, do: Callable[[], object]) -> Callable[[int], object]:
    """Do something as a step is begun, from 1."""
    return lambda index: do() if index + 1 == step else None


def kill() -> None:
    raise Killed


def steps_of(out: Path, kind: str) -> list[int]:
    return [entry["step"] for entry in entries(out, kind)]


def test_a_phase_keeps_the_weights_and_starts_all_else_again(data: Data, tmp_path: Path) -> None:
    out = tmp_path / "out"
    settings = settings_of(data, out, phases=(phase_of(data, 7), phase_of(data, 5)), keep=9)
    _, engine = train_with(settings)
    assert [engine.events.index(event) for event in ("begin 1", "begin 8")] == [
        number + 1 for number, event in enumerate(engine.events) if event == "restart"
    ]
    trained = entries(out, "train")
    assert [entry["phase"] for entry in trained] == [1] * 7 + [2] * 5
    assert [entry["learning_rate"] for entry in trained] == [
        phase.schedule.learning_rate(update) for phase in settings.phases for update in range(1, phase.steps + 1)
    ]
    losses = [entry["masked_lm_loss"] for entry in trained]
    assert losses[7:] == losses[:5]  # the same records in the same order
    assert engine.model == sum(BATCH * entry["masked_lm_loss"] * entry["learning_rate"] for entry in trained)
    assert (steps_of(out, "evaluation"), saved_steps(out)) == ([7, 12], [5, 7, 10, 12])
    assert [read(path).state["updates"] for path in find_checkpoints(out)] == [5, 7, 3, 5]


@pytest.mark.parametrize(
    ("every", "logged", "evaluated", "saved"),
    [
        ({"log_every": 5, "eval_every": 4, "save_every": 6}, [5, 10, 12], [4, 8, 12], [6, 12]),
        ({"log_every": 100, "eval_every": 0, "save_every": 100}, [12], [12], [12]),
        ({"log_every": 6, "eval_every": 5, "save_every": 1}, [6, 12], [5, 10, 12], [10, 11, 12]),  # the newest three
        ({"log_every": 6, "eval_every": 5, "save_every": 5, "has_test": False}, [6, 12], [], [5, 10, 12]),
    ],
)
def test_what_is_done_every_so_many_steps_is_done_at_the_end_too(
    every: dict[str, int], logged: list[int], evaluated: list[int], saved: list[int], data: Data, tmp_path: Path
) -> None:
    run(settings_of(data, tmp_path / "out", **every))
    assert (steps_of(tmp_path / "out", "train"), steps_of(tmp_path / "out", "evaluation")) == (logged, evaluated)
    assert saved_steps(tmp_path / "out") == saved


@ON_BOTH
def test_an_accelerator_has_its_next_step_before_the_last_is_waited_for(
    data: Data, tmp_path: Path, *, has_accelerator: bool
) -> None:
    """But not across an evaluation or a checkpoint, at which it is idle."""
    settings = settings_of(data, tmp_path / "out", eval_every=4)
    _, engine = train_with(settings, has_accelerator=has_accelerator)
    is_begun_before = [engine.events.index(f"begin {step + 1}") < engine.events.index(f"wait {step}") for step in range(1, 12)]
    idle_after = (4, 5, 8, 10)
    assert is_begun_before == [has_accelerator and step not in idle_after for step in range(1, 12)]
    for step in (4, 8):
        between = engine.events[engine.events.index(f"wait {step}") : engine.events.index(f"begin {step + 1}")]
        assert between == [f"wait {step}", "evaluate", "evaluate"]  # 10 records in batches of 8
    assert engine.events[engine.events.index("wait 5") + 1] == "state"


def test_a_line_has_the_means_since_the_line_before(data: Data, tmp_path: Path) -> None:
    run(settings_of(data, tmp_path / "each"))
    run(settings_of(data, tmp_path / "fifth", log_every=5))
    each, fifth = (entries(tmp_path / name, "train") for name in ("each", "fifth"))
    assert [entry["step"] for entry in fifth] == [5, 10, 12]
    for entry, steps in zip(fifth, (each[:5], each[5:10], each[10:]), strict=True):
        for name in ("loss", "masked_lm_loss", "next_sentence_loss", "gradient_norm"):
            assert entry[name] == pytest.approx(_mean([step[name] for step in steps]), rel=1e-12)
        assert entry["learning_rate"] == steps[-1]["learning_rate"]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)  # all steps have the same weight here


def test_an_overflow_is_counted_and_left_out_of_the_means(data: Data, tmp_path: Path) -> None:
    norms = {3: math.inf, 7: math.nan}
    _, engine = train_with(settings_of(data, tmp_path / "out", log_every=4), norms=norms, loss_scale=2.0**10)
    trained = entries(tmp_path / "out", "train")
    assert [(entry["skipped"], entry["loss_scale"]) for entry in trained] == [(1, 1024), (2, 1024), (2, 1024)]
    assert [entry["gradient_norm"] for entry in trained] == [(1 + 2 + 4) / 3, (5 + 6 + 8) / 3, (9 + 10 + 11 + 12) / 4]
    assert (read(tmp_path / "out" / LAST).run.skipped, engine.updates) == (2, 10)
    train_with(settings_of(data, tmp_path / "each"), norms=norms, loss_scale=2.0**10)
    assert [entry["step"] for entry in entries(tmp_path / "each", "train") if entry["gradient_norm"] is None] == [3, 7]


def test_nan_that_no_loss_scale_cures_ends_the_run_with_its_records_named(data: Data, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(BertprepError) as error:
        train_with(settings_of(data, out), norms={7: math.nan})
    named = (out / "not_finite.txt").read_text().splitlines()
    with RecordSet([data.folder]) as records:
        places = TrainingBatches(records, GlobalBatch(BATCH), seed=SEED).places(6)
    assert named == [f"{path}: record {record}" for path, record in places]
    assert str(error.value).startswith("step 7: the loss is ")
    assert f"its batch is {named[0]}, and 7 more in {out / 'not_finite.txt'}; " in str(error.value)
    assert str(error.value).endswith("resumes from the newest checkpoint, checkpoint-000000005.safetensors")
    assert saved_steps(out) == [5]


def test_nan_ends_all_ranks_and_the_first_names_the_whole_batch(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NumPyEngine, "norms", {2: math.inf}, raising=False)
    ends = train_on_ranks(settings_of(data, tmp_path / "out", devices=2), 2, monkeypatch)
    assert all(str(end).startswith("step 2: the loss is ") for end in ends)
    assert all(str(end).endswith("the same command starts again, since there is no checkpoint") for end in ends)
    assert len((tmp_path / "out" / "not_finite.txt").read_text().splitlines()) == BATCH


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@ON_BOTH
def test_a_signal_saves_the_last_finished_step_and_the_run_resumes(
    number: signal.Signals, data: Data, tmp_path: Path, capfd: pytest.CaptureFixture[str], *, has_accelerator: bool
) -> None:
    run(settings_of(data, tmp_path / "whole"), has_accelerator=has_accelerator)
    settings = settings_of(data, tmp_path / "stopped")
    on_step = at_step(7, lambda: signal.raise_signal(number))
    is_finished, _ = train_with(settings, on_step=on_step, has_accelerator=has_accelerator)
    last = 9 if has_accelerator else 8  # step 8 tells all ranks, and by then step 9 is begun
    assert not is_finished
    assert saved_steps(tmp_path / "stopped") == [5, last]
    assert f"{number.name}: stopping after this step" in capfd.readouterr().err
    assert run(settings, has_accelerator=has_accelerator)
    assert f"checkpoint-00000000{last}.safetensors: resuming after step {last}\n" in capfd.readouterr().err
    assert checkpoints(tmp_path / "stopped")[LAST] == checkpoints(tmp_path / "whole")[LAST]
    assert lasting(tmp_path / "stopped") == lasting(tmp_path / "whole")


def test_a_signal_before_the_first_step_makes_none(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NoSignal, "has_come", True)
    monkeypatch.setattr(loop, "StopSignal", NoSignal)
    is_finished, engine = train_with(settings_of(data, tmp_path / "out"))
    assert (is_finished, engine.events) == (False, [])
    assert find_checkpoints(tmp_path / "out") == []


@pytest.mark.parametrize("steps", [(1,), (3,), (6,), (11,), (12,), (4, 7, 12)])
@ON_BOTH
def test_a_run_that_is_killed_ends_with_the_same_bytes(
    steps: tuple[int, ...], data: Data, tmp_path: Path, *, has_accelerator: bool
) -> None:
    """In whichever step: checkpoints, the best one, log and means over steps are those of a run that nothing stopped."""
    more = {"log_every": 3, "eval_every": 4, "keep_best": True, "phases": (phase_of(data, 7), phase_of(data, 5))}
    engine: dict[str, Any] = {"has_accelerator": has_accelerator, "test_loss": lambda updates: abs(updates - 4)}
    train_with(settings_of(data, tmp_path / "whole", **more), **engine)
    settings = settings_of(data, tmp_path / "killed", **more)
    for step in steps:
        with pytest.raises(Killed):
            train_with(settings, on_step=at_step(step, kill), **engine)
    assert train_with(settings, **engine)[0]
    assert checkpoints(tmp_path / "killed") == checkpoints(tmp_path / "whole")
    assert lasting(tmp_path / "killed") == lasting(tmp_path / "whole")
    assert not list(tmp_path.rglob("*.tmp"))


def test_both_formats_train_the_same(data: Data, tmp_path: Path) -> None:
    run(settings_of(data, tmp_path / "tfrecord"))
    run(settings_of(Data(tmp_path / "other", "ofrecord"), tmp_path / "ofrecord"))
    assert checkpoints(tmp_path / "ofrecord") == checkpoints(tmp_path / "tfrecord")
    assert lasting(tmp_path / "ofrecord") == lasting(tmp_path / "tfrecord")


def test_a_finished_run_is_left_alone_and_other_settings_are_refused(
    data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_of(data, tmp_path / "out")
    run(settings)
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    is_finished, engine = train_with(settings)
    assert (is_finished, engine.events) == (True, [])
    assert "out: is finished, with 12 steps; " in capsys.readouterr().err
    with pytest.raises(
        UsageError, match="was made with seed 3, now it is 4; resume with the same settings, or name another --out"
    ):
        run(replace(settings, seed=4))
    with pytest.raises(UsageError, match="is there from an earlier run; leave --no-resume out to resume it"):
        run(replace(settings, resume=False))
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()} == before


def lengthened(data: Data, out: Path, steps: int, **more: Any) -> RunSettings:
    """A run whose first five steps are warmup."""
    return settings_of(data, out, phases=(phase_of(data, steps, warmup_steps=6),), keep=9, **more)


def test_a_run_lengthened_in_its_warmup_is_as_if_it_always_was_that_long(
    data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Killed):
        train_with(lengthened(data, tmp_path / "lengthened", 8), on_step=at_step(7, kill))
    run(lengthened(data, tmp_path / "lengthened", 12))
    assert "lengthened from 8 to 12 steps after step 5: its learning rates so far are those of" in capsys.readouterr().err
    run(lengthened(data, tmp_path / "long", 12))
    found, expected = checkpoints(tmp_path / "lengthened"), checkpoints(tmp_path / "long")
    assert {name for name in expected if found[name] != expected[name]} == {"checkpoint-000000005.safetensors"}  # of 8 steps


def test_a_lengthened_run_that_is_killed_ends_with_the_same_bytes(data: Data, tmp_path: Path) -> None:
    for name in ("undisturbed", "killed"):
        run(lengthened(data, tmp_path / name, 8))
        with pytest.raises(UsageError, match="--lengthen resumes with the learning rates of the longer run"):
            run(lengthened(data, tmp_path / name, 20))
    run(lengthened(data, tmp_path / "undisturbed", 20, lengthen=True))
    with pytest.raises(Killed):
        train_with(lengthened(data, tmp_path / "killed", 20, lengthen=True), on_step=at_step(17, kill))
    run(lengthened(data, tmp_path / "killed", 20, lengthen=True))
    assert checkpoints(tmp_path / "killed") == checkpoints(tmp_path / "undisturbed")
    made_with = read_header(find_checkpoints(tmp_path / "killed")[-1])
    [entry] = made_with["lengthened"]
    assert (entry["step"], entry["schedules"][0]["steps"]) == (8, 8)
    assert made_with["phases"][0]["schedule"]["steps"] == 20


def test_the_best_checkpoint_is_that_of_the_lowest_loss_on_the_test_split(data: Data, tmp_path: Path) -> None:
    out = tmp_path / "out"
    train_with(settings_of(data, out, eval_every=2, keep_best=True), test_loss=lambda updates: abs(updates - 6))
    losses = {entry["step"]: entry["loss"] for entry in entries(out, "evaluation")}
    best = read(out / BEST)
    assert (best.run.step, best.state["updates"]) == (6, 6)
    assert losses[6] == min(losses.values()) == read_header(out / BEST)["test"]["loss"]


def test_a_new_run_starts_from_given_weights_and_a_resumed_one_does_not(data: Data, tmp_path: Path) -> None:
    model = ModelConfig(vocab_size=30522, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4)
    weights = initial_values(model, seed=7)
    save_weights(tmp_path / "model.safetensors", weights)
    restored: list[Mapping[str, NDArray[np.float32]]] = []
    settings = settings_of(data, tmp_path / "out", model=model, init=tmp_path / "model.safetensors")
    with pytest.raises(Killed):
        train_with(settings, restore=restored.append, on_step=at_step(6, kill))
    train_with(settings, restore=restored.append, updates=0)
    assert [sorted(state) for state in restored] == [sorted(weights), ["model", "updates"]]
    name = "bert/pooler/dense/kernel"
    np.testing.assert_array_equal(restored[0][name], weights[name])


def test_the_log_says_at_each_start_what_the_run_is_made_with(data: Data, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        train_with(settings_of(data, tmp_path / "out"), on_step=at_step(6, kill))
    run(settings_of(data, tmp_path / "out"))
    starts = entries(tmp_path / "out", "run")
    assert [entry["step"] for entry in starts] == [0, 5]
    header = read_header(tmp_path / "out" / LAST)
    for name in ("model", "optimizer", "phases", "precision", "seed"):
        assert starts[0][name] == header[name]
    assert (starts[0]["devices"], starts[0]["versions"]) == ("NumPy", {"numpy": "any"})
