"""Phases: runs one after the other, each from the weights of the one before; their steps, learning rates and files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer.numpy_engine import (
    NumPyEngine,
    assert_same_run,
    at_step,
    kill,
    plan,
    read_entries,
    run,
    saved_steps,
    sigterm,
)
from tests.trainer.small_data import write_data, write_in_workspace
from trainer.model_config import ModelConfig
from trainer.optimizers import Schedule
from trainer.settings import PretrainOptions
from trainer.weights import Weights, initial_values

Steps = list[tuple[int, int]]


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of two lengths, 640 each."""
    folder = tmp_path_factory.mktemp("workspace")
    for seq in (8, 16):
        write_in_workspace(folder, f"of {seq}", time=seq, seq=seq, records=640)
    return folder


def test_a_run_is_one_pass_over_the_records(workdir: Path) -> None:
    [of_run] = plan(f"--workdir {workdir} --seq 8 --batch-size 5 --accumulate 3", devices=2)
    assert of_run.schedule == Schedule(peak=1e-4, steps=21, warmup_steps=2)  # 640 // (5 x 2 x 3), and a tenth of it


def test_one_step_is_called_so_and_a_number_of_shards_shuffles_by_shards(workdir: Path) -> None:
    [of_run] = plan(f"--workdir {workdir} --seq 8 --steps 10 --shuffle-shards 3")
    assert dict(of_run.plan())["learning rate"] == "0.0001 after 1 step of warmup"
    assert of_run.shuffle_shards == 3


@pytest.mark.parametrize(
    ("line", "schedule"),
    [
        ("--optimizer lamb", Schedule.nvidia("lamb", peak=2e-3, steps=100, warmup_steps=10)),
        ("--schedule nvidia", Schedule.nvidia("adam", peak=1e-4, steps=100, warmup_steps=10)),
        ("--schedule google --optimizer lamb --warmup 0.2", Schedule(peak=2e-3, steps=100, warmup_steps=20)),
        ("--lr 1e-3 --warmup-steps 7", Schedule(peak=1e-3, steps=100, warmup_steps=7)),
    ],
)
def test_the_schedule_is_the_optimizers_own_or_the_given(line: str, schedule: Schedule, workdir: Path) -> None:
    assert plan(f"--workdir {workdir} --seq 8 --steps 100 {line}")[0].schedule == schedule


@pytest.mark.parametrize(
    ("line", "steps"),
    [
        ("--phases 8:0.9,16:0.1 --steps 7820", [(8, 7038), (16, 782)]),
        ("--phases 8:0.3333333,16:0.3333333,8:0.3333334 --steps 100", [(8, 33), (16, 34), (8, 33)]),
        ("--phases 8:7038,16:1564", [(8, 7038), (16, 1564)]),
        ("--phases 8:7038,16:1564 --steps 8602", [(8, 7038), (16, 1564)]),
    ],
)
def test_fractions_of_a_total_and_numbers_of_steps(line: str, steps: Steps, workdir: Path) -> None:
    runs = plan(f"--workdir {workdir} {line}", devices=2)
    assert [(each.data.records.seq, each.schedule.steps) for each in runs] == steps


def test_options_have_one_value_for_all_phases_or_one_for_each(workdir: Path) -> None:
    line = "--phases 8:90,16:10 --batch-size 64,16 --accumulate 2 --lr 6e-3,4e-3 --warmup-steps 20,0 --optimizer lamb"
    first, second = plan(f"--workdir {workdir} {line}")
    assert (first.batch_size, first.accumulation, second.batch_size, second.accumulation) == (64, 2, 16, 2)
    assert (first.schedule.peak, first.schedule.warmup_steps) == (6e-3, 20)
    assert (second.schedule.peak, second.schedule.warmup_steps) == (4e-3, 0)
    out = workdir / "models" / "tiny_corpus_tfrecord_seq_8_16_lamb_100_steps"
    assert [(each.out, each.init) for each in (first, second)] == [(out / "phase-1", None), (out / "phase-2", out / "phase-1")]


def test_data_have_a_folder_for_each_phase_too(tmp_path: Path) -> None:
    folders = [write_data(tmp_path / str(seq), seq=seq, records=64) for seq in (8, 16)]
    runs = plan(f"--phases 8:3,16:2 --data {folders[0]} {folders[1]} --workdir {tmp_path}")
    assert [(run.data.folders, run.schedule.steps) for run in runs] == [((folders[0],), 3), ((folders[1],), 2)]


class SmallBert(NumPyEngine):
    """An engine that has the variables of a BERT; one of them sums up what the steps add."""

    def build(self, model: ModelConfig, *given: Any, task: Any, seed: int, **more: Any) -> None:
        super().build(model, *given, task=task, **more)
        self.weights: Weights = initial_values(model, seed, task)
        self.model, self.updates = 0.0, 0

    def state(self) -> dict[str, Any]:
        sums = np.full_like(self.weights["bert/pooler/dense/bias"], self.model)
        return {**self.weights, **super().state(), "bert/pooler/dense/bias": self.weights["bert/pooler/dense/bias"] + sums}

    def restore(self, state: Any) -> None:
        super().restore(state)
        self.weights |= {name: state[name] for name in self.weights if name in state}
        if "model" in state:
            self.weights["bert/pooler/dense/bias"] = self.weights["bert/pooler/dense/bias"] - np.float32(self.model)


def options_of(workdir: Path, out: Path) -> PretrainOptions:
    """Two phases of 8 and 6 steps, saved at every fifth step."""
    model = ModelConfig(vocab_size=10, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4)
    (workdir / "small.json").write_text(model.to_json())
    return PretrainOptions(
        workdir=workdir, out=out, model=str(workdir / "small.json"), phases="8:8,16:6", batch_size=(4,), save_every=5,
        log_every=1, eval_every=0, learning_rate=(2.0**-20,),
    )  # fmt: skip


def chain(workdir: Path, out: Path, **attributes: Any) -> bool:
    return run(options_of(workdir, out), SmallBert(**attributes))


@pytest.fixture(scope="module")
def uninterrupted(workdir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "uninterrupted"
    assert chain(workdir, out)
    return out


def assert_same_chain(found: Path, expected: Path) -> None:
    for name in ("phase-1", "phase-2"):
        assert_same_run(found / name, expected / name)


def test_phases_are_runs_from_the_weights_of_the_one_before(workdir: Path, uninterrupted: Path) -> None:
    assert [path.name for path in sorted(uninterrupted.iterdir())] == ["phase-1", "phase-2"]
    assert [len(read_entries(uninterrupted / name, "train")) for name in ("phase-1", "phase-2")] == [8, 6]
    assert chain(workdir, uninterrupted, on_step=lambda _: pytest.fail("a finished phase is trained again"))


def test_a_stopped_chain_resumes_by_the_same_command(workdir: Path, uninterrupted: Path, tmp_path: Path) -> None:
    started: list[int] = []

    def stop_twice(step: int) -> None:
        started.append(step)
        at_step(2, sigterm)(step)  # the next step has the flag

    assert not chain(workdir, tmp_path, on_step=stop_twice)  # in phase 1
    assert started == [1, 2, 3]
    assert not chain(workdir, tmp_path, on_step=stop_twice)  # in phase 2
    assert started[3:] == [*range(4, 9), 1, 2, 3]
    assert chain(workdir, tmp_path)
    assert_same_chain(tmp_path, uninterrupted)


def test_a_killed_chain_ends_with_the_same_bytes(workdir: Path, uninterrupted: Path, tmp_path: Path) -> None:
    """Killed in a step and in the last save of phase 1, then in a step and in the last save of phase 2."""
    options = options_of(workdir, tmp_path)
    for when, saved in (
        ({"step": 7}, [[5], []]),
        ({"saving": "phase-1/checkpoint-000000008"}, [[5], []]),
        ({"step": 2}, [[5, 8], []]),
        ({"saving": "phase-2/checkpoint-000000006"}, [[5, 8], [5]]),
    ):
        kill(options, engine=SmallBert, **when)
        assert [saved_steps(tmp_path / name) for name in ("phase-1", "phase-2")] == saved
    assert chain(workdir, tmp_path)
    assert_same_chain(tmp_path, uninterrupted)


def test_a_signal_in_the_last_evaluation_of_a_phase_stops_the_chain_and_a_finished_run_is_finished(
    workdir: Path, uninterrupted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def signal_at(step: int) -> Callable[[int], float]:
        def measure(updates: int) -> float:
            if updates == step:
                sigterm()
            return 0.0

        return measure

    assert not chain(workdir, tmp_path, test_loss=signal_at(8))  # in phase 1
    assert not (tmp_path / "phase-2").exists()
    assert "stopped after step 8 of 8; the same command resumes from" in capsys.readouterr().err
    assert chain(workdir, tmp_path, test_loss=signal_at(6))  # in phase 2, which is the last
    assert "stopped after" not in capsys.readouterr().err
    assert_same_chain(tmp_path, uninterrupted)
