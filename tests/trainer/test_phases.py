"""--phases: runs one after the other, each from the weights of the one before; what cannot be is in test_refusals.py."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer.numpy_engine import (
    NumPyEngine,
    Ranks,
    assert_same_run,
    at_step,
    kill,
    plan,
    run,
    run_ranks,
    saved_steps,
    sigterm,
)
from tests.trainer.small_data import write_data, write_in_workspace
from trainer.checkpoint import newest, read_header
from trainer.engines import Processor
from trainer.model_config import ModelConfig
from trainer.settings import PretrainOptions
from trainer.weights import Weights, find_weights, initial_values

Steps = list[tuple[int, int]]
PHASES = "phase-1", "phase-2"


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of two lengths, 640 each."""
    folder = tmp_path_factory.mktemp("workspace")
    for seq in (8, 16):
        write_in_workspace(folder, f"of {seq}", time=seq, seq=seq, records=640)
    return folder


@pytest.mark.parametrize(
    ("line", "steps"),
    [
        ("--phases 8:0.9,16:0.1 --steps 7820", [(8, 7038), (16, 782)]),
        ("--phases 8:0.3333333,16:0.3333333,8:0.3333334 --steps 100", [(8, 33), (16, 34), (8, 33)]),
        ("--phases 8:7038,16:1564 --steps 8602", [(8, 7038), (16, 1564)]),
    ],
)
def test_fractions_of_a_total_and_numbers_of_steps(line: str, steps: Steps, workdir: Path) -> None:
    runs = plan(f"--workdir {workdir} {line}", devices=2)
    assert [(each.data.records.seq, each.schedule.steps) for each in runs] == steps


def test_options_have_one_value_for_all_phases_or_one_for_each(workdir: Path) -> None:
    line = "--phases 8:90,16:10 --batch-size 64,16 --accumulate 2 --lr 6e-3,4e-3 --warmup-steps 20,0 --optimizer lamb"
    first, second = plan(f"--workdir {workdir} {line}")
    assert (first.global_batch, first.schedule.peak, first.schedule.warmup_steps) == (128, 6e-3, 20)
    assert (second.global_batch, second.schedule.peak, second.schedule.warmup_steps) == (32, 4e-3, 0)
    out = workdir / "models" / "tiny_corpus_tfrecord_seq_8_lamb_90_steps_seq_16_10_steps"
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


def phases_of(workdir: Path, out: Path, **more: Any) -> list[PretrainOptions]:
    """Phases of 8 and 6 steps, saved at every fifth step."""
    model = ModelConfig(vocab_size=10, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4)
    (workdir / "small.json").write_text(model.to_json())
    given = {"batch_size": 4, "save_every": 5, "log_every": 1, "eval_every": 0, "learning_rate": 2.0**-20, **more}
    return [
        PretrainOptions(workdir=workdir, out=out, model=str(workdir / "small.json"), seq=seq, steps=steps, **given)
        for seq, steps in ((8, 8), (16, 6))
    ]


def chain(workdir: Path, out: Path, **attributes: Any) -> bool:
    return run(phases_of(workdir, out), SmallBert(**attributes))


@pytest.fixture(scope="module")
def by_hand(workdir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as two runs, the second with --init of the first."""
    out = tmp_path_factory.mktemp("run") / "by hand"
    first, second = phases_of(workdir, out)
    assert run(replace(first, out=out / "phase-1"), SmallBert())
    assert run(replace(second, out=out / "phase-2", init=str(out / "phase-1")), SmallBert())
    return out


def assert_same_chain(found: Path, expected: Path) -> None:
    for name in PHASES:
        assert_same_run(found / name, expected / name)


@pytest.mark.parametrize("ranks", [1, 2])
def test_phases_are_two_runs_by_hand_on_any_number_of_ranks(ranks: int, workdir: Path, by_hand: Path, tmp_path: Path) -> None:
    of_all = Ranks(ranks)
    engines = [SmallBert(of_all, rank) for rank in range(ranks)]
    assert run_ranks(phases_of(workdir, tmp_path, batch_size=4 // ranks), *engines) == [True] * ranks
    assert [path.name for path in sorted(tmp_path.iterdir())] == [*PHASES]
    assert_same_chain(tmp_path, by_hand)


def test_a_killed_chain_ends_with_the_same_bytes(workdir: Path, by_hand: Path, tmp_path: Path) -> None:
    """Killed in a step and in the last save of phase 1, then in the last save of phase 2."""
    phases = phases_of(workdir, tmp_path)
    for when, saved in (
        ({"step": 7}, [[5], []]),
        ({"saving": "phase-1/checkpoint-000000008"}, [[5], []]),
        ({"saving": "phase-2/checkpoint-000000006"}, [[5, 8], [5]]),
    ):
        kill(phases, engine=SmallBert, **when)
        assert [saved_steps(tmp_path / name) for name in PHASES] == saved
    assert find_weights(tmp_path) == tmp_path / "phase-2/checkpoint-000000005.safetensors"  # of --init, evaluate and export
    assert chain(workdir, tmp_path)
    assert_same_chain(tmp_path, by_hand)
    assert chain(workdir, tmp_path, on_step=lambda _: pytest.fail("a finished phase is trained again"))


@pytest.mark.parametrize(
    "stopped", [{"on_step": at_step(2, sigterm)}, {"test_loss": lambda updates: sigterm() or 0.0 if updates == 8 else 0.0}]
)
def test_phases_have_one_precision_wherever_they_are_stopped(stopped: dict[str, Any], workdir: Path, tmp_path: Path) -> None:
    """In phase 1, or at its end; then they go on where there is no GPU."""
    gpu = Processor("NVIDIA H100", (9, 0), is_gpu=True)
    assert not chain(workdir, tmp_path, processor=gpu, **stopped)
    assert chain(workdir, tmp_path)
    assert [read_header(newest(tmp_path / name) or tmp_path)["precision"] for name in PHASES] == ["bf16", "bf16"]


def test_a_signalled_chain_stops_and_resumes_as_a_whole(
    workdir: Path, by_hand: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def signal_at(step: int) -> Callable[[int], float]:
        return lambda updates: sigterm() or 0.0 if updates == step else 0.0

    assert not chain(workdir, tmp_path, test_loss=signal_at(8))  # in the last evaluation of phase 1
    assert not (tmp_path / "phase-2").exists()
    assert "stopped after step 8 of 8; the same command resumes from" in capsys.readouterr().err
    assert find_weights(tmp_path).parent == tmp_path / "phase-1"
    assert not chain(workdir, tmp_path, on_step=at_step(2, sigterm))  # in phase 2; the next step has the flag
    assert saved_steps(tmp_path / "phase-2") == [3]
    assert chain(workdir, tmp_path, test_loss=signal_at(6))  # which is finished then
    assert "stopped after step 6" not in capsys.readouterr().err
    assert_same_chain(tmp_path, by_hand)
