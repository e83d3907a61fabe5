"""What the loop does at each step, with an engine of NumPy: cadence, overflow, signals, kills, resuming."""

from __future__ import annotations

import math
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertprep.errors import BertprepError
from bertprep.weights.hugging_face import save_weights
from tests.trainer.numpy_engine import (
    BATCH,
    LAST,
    STEPS,
    NumPyEngine,
    RecordFolder,
    assert_same_run,
    at_step,
    kill,
    make_ranks,
    options_of,
    read_entries,
    run,
    run_ranks,
    saved_steps,
    sigterm,
    stop_this_rank,
)
from trainer.batches import GlobalBatch
from trainer.checkpoint import BEST, read, read_header
from trainer.loop import Stop
from trainer.model_config import ModelConfig
from trainer.tasks.pretraining import Pretraining, PretrainOptions
from trainer.weights import initial_values

ON_BOTH = pytest.mark.parametrize("has_accelerator", [False, True])


@pytest.fixture
def data(tmp_path: Path) -> RecordFolder:
    return RecordFolder(tmp_path / "data")


def steps_of(out: Path, kind: str) -> list[int]:
    return [entry["step"] for entry in read_entries(out, kind)]


@pytest.mark.parametrize(
    ("every", "logged", "evaluated", "saved"),
    [
        (
            {"log_every": 5, "eval_every": 4, "save_every": 6},
            [5, 10, 12],
            [4, 8, 12],
            [6, 8, 12],
        ),  # an evaluation begins with a checkpoint
        ({"log_every": 100, "eval_every": 0, "save_every": 100}, [12], [12], [12]),
        ({"log_every": 6, "eval_every": 5, "save_every": 1}, [6, 12], [5, 10, 12], [10, 11, 12]),  # the newest three
    ],
)
def test_what_is_done_every_so_many_steps_is_done_at_the_end_too(
    every: dict[str, int], logged: list[int], evaluated: list[int], saved: list[int], data: RecordFolder
) -> None:
    assert run(options_of(data, **every))
    assert (steps_of(data.out, "train"), steps_of(data.out, "evaluation")) == (logged, evaluated)
    assert saved_steps(data.out) == saved


@ON_BOTH
def test_an_accelerator_has_its_next_step_before_the_last_is_waited_for(data: RecordFolder, *, has_accelerator: bool) -> None:
    """But not across an evaluation or a checkpoint, at which it is idle."""
    engine = NumPyEngine(has_accelerator=has_accelerator)
    run(options_of(data, eval_every=4), engine)
    at = engine.events.index
    is_started_before = [at(f"start {step + 1}") < at(f"wait {step}") for step in range(1, 12)]
    assert is_started_before == [has_accelerator and step not in (4, 5, 8, 10) for step in range(1, 12)]
    for step in (4, 8):
        between = engine.events[at(f"wait {step}") : at(f"start {step + 1}")]
        assert between == [f"wait {step}", "state", "evaluate", "evaluate"]  # 10 records in batches of 8
    assert engine.events[at("wait 5") + 1] == "state"


def test_the_plan_is_printed_before_a_framework_is_loaded(data: RecordFolder, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_: object) -> None:
        raise BertprepError("the framework does not load")

    with pytest.raises(BertprepError, match="does not load"):
        run(options_of(data), on_open=fail)
    printed = capsys.readouterr().err
    assert f"out            {data.out}\n" in printed
    assert "learning rate  0.5 after 2 steps of warmup\n" in printed


def test_a_line_has_the_means_since_the_line_before(data: RecordFolder) -> None:
    engine = NumPyEngine()
    run(options_of(data, log_every=5), engine)
    entries = read_entries(data.out, "train")
    for entry, steps in zip(entries, (range(1, 6), range(6, 11), range(11, 13)), strict=True):
        means = Pretraining().metrics(np.sum([engine.results[step].sums for step in steps], axis=0))
        assert {name: entry[name] for name in means} == pytest.approx(means, rel=1e-12)
        assert entry["gradient_norm"] == np.mean([engine.results[step].gradient_norm for step in steps])


def test_the_first_line_after_a_resume_has_the_means_since_then(data: RecordFolder) -> None:
    """Killed between two lines, after a checkpoint of step 5. What is saved at the end does not depend on the lines."""
    options = options_of(data, log_every=3)
    run(options_of(data, data.other))
    kill(options, step=8)
    run(options, engine := NumPyEngine())
    entries = {entry["step"]: entry for entry in read_entries(data.out, "train")}
    assert list(entries) == [3, 6, 9, 12]
    for last, steps in ((6, [6]), (9, [7, 8, 9])):
        means = Pretraining().metrics(np.sum([engine.results[step].sums for step in steps], axis=0))
        assert {name: entries[last][name] for name in means} == pytest.approx(means, rel=1e-12)
        assert entries[last]["gradient_norm"] == np.mean([engine.results[step].gradient_norm for step in steps])
    assert (data.out / LAST).read_bytes() == (data.other / LAST).read_bytes()


def test_throughput_is_that_of_the_steps_without_evaluations_and_checkpoints(
    data: RecordFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that only steps (2 s), evaluations (60 s) and checkpoints (100 s) advance; the first step compiles for 500 s."""
    clock = [0.0]
    monkeypatch.setattr("trainer.loop.time.monotonic", lambda: clock[0])

    class Timed(NumPyEngine):
        def evaluate(self, batch: Any) -> Any:
            clock[0] += 60
            return super().evaluate(batch)

        def state(self) -> Any:
            clock[0] += 100
            return super().state()

    def take(step: int) -> None:
        clock[0] += 500 if step == 1 else 2

    run(options_of(data, log_every=4, eval_every=3, save_every=6), Timed(on_step=take))
    entries = read_entries(data.out, "train")
    assert [entry["sequences_per_second"] for entry in entries] == [BATCH / 2] * 3
    assert [entry["seconds_left"] for entry in entries] == [16, 8, 0]
    assert entries[0]["tokens_per_second"] == 8 * BATCH / 2


def test_throughput_is_that_of_all_ranks(data: RecordFolder) -> None:
    """Each sequence has 8 tokens, on whichever rank."""
    run_ranks(options_of(data, ranks=2, log_every=4), *make_ranks(2))
    entries = read_entries(data.out, "train")
    assert [entry["tokens_per_second"] / entry["sequences_per_second"] for entry in entries] == [pytest.approx(8)] * 3


def test_an_overflow_is_counted_and_left_out_of_the_means(data: RecordFolder) -> None:
    fp16: dict[str, Any] = {"norms": {3: math.inf, 7: math.nan}, "loss_scale": 2.0**10}
    run(options_of(data, log_every=4), engine := NumPyEngine(**fp16))
    trained = read_entries(data.out, "train")
    assert [(entry["skipped"], entry["loss_scale"]) for entry in trained] == [(1, 1024), (2, 1024), (2, 1024)]
    assert [entry["gradient_norm"] for entry in trained] == [(1 + 2 + 4) / 3, (5 + 6 + 8) / 3, (9 + 10 + 11 + 12) / 4]
    assert (read_header(data.out / LAST)["skipped"], engine.updates) == (2, 10)
    run(options_of(data, data.other), **fp16)
    assert [entry["step"] for entry in read_entries(data.other, "train") if entry["gradient_norm"] is None] == [3, 7]


def test_nan_that_no_loss_scale_cures_ends_all_ranks_with_a_record_named(data: RecordFolder) -> None:
    for step, saved in ((7, [5]), (2, [])):
        out = data.out / str(step)
        ends = run_ranks(options_of(data, out, ranks=2), *make_ranks(2, norms={step: math.nan}))
        for rank, end in enumerate(ends):
            path, record = data.batches(GlobalBatch(BATCH, 2, rank)).locations(step - 1)[0]
            assert str(end).startswith(f"step {step}: ")
            assert f"nan; look at the first record of the batch, {path}: record {record}, " in str(end)
        assert saved_steps(out) == saved


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@ON_BOTH
def test_a_signal_saves_the_last_finished_step_and_the_run_resumes(
    number: signal.Signals, data: RecordFolder, capfd: pytest.CaptureFixture[str], *, has_accelerator: bool
) -> None:
    run(options_of(data, data.other), has_accelerator=has_accelerator)
    options = options_of(data)
    on_step = at_step(7, lambda: signal.raise_signal(number))
    assert not run(options, on_step=on_step, has_accelerator=has_accelerator)
    last = 9 if has_accelerator else 8  # step 8 carries the flag to all ranks, and by then step 9 is started
    assert saved_steps(data.out) == [5, last]
    assert number.name in capfd.readouterr().err
    assert run(options, has_accelerator=has_accelerator)
    assert f"checkpoint-00000000{last}.safetensors: resuming after step {last}\n" in capfd.readouterr().err
    assert_same_run(data.out, data.other)


def test_a_second_ctrl_c_interrupts_at_once_and_a_second_sigterm_does_not() -> None:
    """A batch system may send several SIGTERMs, and the run still needs time for its checkpoint."""
    stop = Stop()
    with stop.on_signals():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_signalled
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@ON_BOTH
def test_a_signal_to_one_rank_stops_all_after_the_same_step(data: RecordFolder, *, has_accelerator: bool) -> None:
    run(options_of(data, data.other))
    options = options_of(data, ranks=2)
    ranks = make_ranks(2, has_accelerator=has_accelerator)
    ranks[1].on_step = at_step(7, stop_this_rank)
    ends = run_ranks(options, *ranks)
    last = 9 if has_accelerator else 8
    assert ends[1] is False
    assert f"; step {last} is saved" in str(ends[0])
    assert saved_steps(data.out)[-1] == last
    assert run_ranks(options, *make_ranks(2)) == [True, True]
    assert_same_run(data.out, data.other)


@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_a_run_killed_in_any_step_ends_with_the_same_bytes(step: int, data: RecordFolder) -> None:
    """Checkpoints, the best one, and the log of every step; so does one that is killed again, in a save."""
    every = {"eval_every": 4, "keep_best": True}
    engine: dict[str, Any] = {"has_accelerator": step % 2 == 0, "test_loss": lambda updates: abs(updates - 4) * 1e6}
    run(options_of(data, data.other, **every), **engine)
    options = options_of(data, **every)
    kill(options, step=step, **engine)
    kill(options, saving=f"checkpoint-{5 if step <= 5 else STEPS:09d}", **engine)
    assert run(options, **engine)
    assert_same_run(data.out, data.other)


def test_a_longer_run_resumes_with_the_flag_alone_and_is_recorded(data: RecordFolder) -> None:
    def longer(out: Path) -> PretrainOptions:
        return options_of(data, out, steps=20, keep=9, lengthen=True)

    for out in (data.other, data.out):
        run(options_of(data, out, keep=9))
        with pytest.raises(BertprepError, match=r"--steps 12 -> 20.*; add --lengthen"):
            run(replace(longer(out), lengthen=False))
    run(longer(data.other))
    kill(longer(data.out), step=17)
    run(longer(data.out))
    assert_same_run(data.out, data.other)
    header = read_header(data.out / "checkpoint-000000020.safetensors")
    [(step, schedule)] = header["lengthened"]
    assert (step, schedule["steps"], header["schedule"]["steps"]) == (12, 12, 20)
    rates = {entry["step"]: entry["learning_rate"] for entry in read_entries(data.out, "train")}
    assert (rates[12], rates[13]) == (0, 0.5 * (1 - 13 / 20))


def test_the_best_checkpoint_is_that_of_the_lowest_loss_on_the_test_split(data: RecordFolder) -> None:
    out = data.out
    run(options_of(data, out, eval_every=2, keep_best=True), test_loss=lambda updates: abs(updates - 6) * 1e6)
    losses = {entry["step"]: entry["loss"] for entry in read_entries(out, "evaluation")}
    best = read(out / BEST)
    assert (best.run.step, best.state["updates"]) == (6, 6)
    assert losses[6] == min(losses.values()) == read_header(out / BEST)["test"]["value"]


def test_a_new_run_starts_from_given_weights_and_a_resumed_one_does_not(
    data: RecordFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ModelConfig(vocab_size=30522, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4)
    weights = {name: value for name, value in initial_values(model, 7, Pretraining()).items() if "seq_rel" not in name}
    save_weights(data.folder / "model.safetensors", weights)
    (data.folder / "model.json").write_text(model.to_json())
    options = options_of(data, init=str(data.folder / "model.safetensors"))
    new, resumed = NumPyEngine(on_step=at_step(6, sigterm)), NumPyEngine()
    for engine, is_reported in ((new, True), (resumed, False)):
        run(options, engine)
        assert ("lacks cls/seq_relationship/output_weights, " in capsys.readouterr().err) == is_reported
    assert [sorted(state) for state in (*new.restored, *resumed.restored)] == [sorted(weights), ["model", "updates"]]
    name = "bert/pooler/dense/kernel"
    np.testing.assert_array_equal(new.restored[0][name], weights[name])


def test_the_log_has_the_settings_at_each_start(data: RecordFolder) -> None:
    run(options_of(data), on_step=at_step(4, sigterm))
    run(options_of(data))
    starts = read_entries(data.out, "run")
    assert [entry["step"] for entry in starts] == [0, 5]
    header = read_header(data.out / LAST)
    for name in ("model", "optimizer", "schedule", "precision", "seed"):
        assert starts[0][name] == header[name]
    assert (starts[0]["devices"], starts[0]["versions"]) == ("NumPy", {"numpy": "any"})
