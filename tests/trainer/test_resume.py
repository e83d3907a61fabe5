"""What can be known of a run before its framework is loaded is said, or refused, before that."""

import errno
import signal
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertprep.files.lock import locked
from bertprep.records.record_set import RecordSet
from bertprep.weights.hugging_face import save_weights
from tests.records.test_record_set import write_folder
from tests.trainer.test_data import write_data
from trainer import checkpoint, resume, start
from trainer.checkpoint import Evaluated
from trainer.cli import main
from trainer.model_config import ModelConfig
from trainer.resume import describe_run
from trainer.settings import RunSettings
from trainer.weights import initial_values

MODEL = ModelConfig(vocab_size=10, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4)
COMMAND = [
    "--engine",
    "tensorflow",
    "--data",
    "a",
    "--model",
    "model.json",
    "--out",
    "out",
    "--steps",
    "10",
    "--warmup-steps",
    "4",
]


class Loaded(Exception):  # noqa: N818 - no error
    """The framework would be loaded now."""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with records and a model, in which no engine can be opened."""

    def open_engine(_: Any) -> None:
        raise Loaded

    monkeypatch.setattr(start, "open_engine", open_engine)
    monkeypatch.setattr(start, "check_installed", lambda _: None)
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    monkeypatch.chdir(tmp_path)
    write_data(Path("a"))
    Path("model.json").write_text(MODEL.to_json())
    return tmp_path


def leave_checkpoint(step: int, monkeypatch: pytest.MonkeyPatch, *options: str, **more: Any) -> None:
    """What a run of the command leaves after that step."""
    runs: list[RunSettings] = []
    monkeypatch.setattr(start, "check_resume", lambda settings, **_: runs.append(settings) or 0)
    with pytest.raises(Loaded):
        main([*COMMAND, *options])
    monkeypatch.setattr(start, "check_resume", resume.check_resume)
    [settings] = runs
    with RecordSet(settings.phases[0].data) as records:
        made_with = describe_run(settings, [records], devices=1, precision="off")
    state = {"weight": np.zeros(1, np.float32)}
    checkpoint.save(Path("out"), checkpoint.RunState({**made_with, **more}, step), state, keep=3)


def refused(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    capsys.readouterr()
    assert main([*COMMAND, *options]) in (1, 2)
    [line] = capsys.readouterr().err.splitlines()
    return line.removeprefix("trainer: error: ")


def test_the_plan_is_said_before_a_framework_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Loaded):
        main([*COMMAND, "--devices", "2", "--weight-decay", "0.1", "--beta2", "0.98"])
    assert capsys.readouterr().err.splitlines() == [
        "model          model.json: 1 layers of 4, a vocabulary of 10, 2,308 parameters",
        "data           a: 20 training records of 8/2, tfrecord",
        "global batch   64 sequences: 32 x 2 (devices) x 1 (accumulated)"
        "; the 20 records are fewer, so a step has some more than once",
        "steps          10, which is 32 epochs",
        "learning rate  0.0001 after 4 steps of warmup",
        "optimizer      adam, weight decay 0.1, beta2 0.98",
        "engine         tensorflow",
        "out            out",
    ]
    assert not list(Path("out").iterdir())  # the lock is given back


def test_what_only_the_framework_can_tell_is_not_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("trainer.engines._may_have_gpus", lambda: True)
    write_data(Path("b"), records=128)
    with pytest.raises(Loaded):
        main(["--data", "b"])
    names = [line.split("  ")[0] for line in capsys.readouterr().err.splitlines()]
    assert names == []
    assert not Path("data").exists()  # where the default --out would be


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--weight-decay", "-1", "--weight-decay -1: must be at least 0"),
        ("--weight-decay", "inf", "--weight-decay inf: must be at least 0"),
        ("--beta1", "1", "--beta1 1: must be above 0 and below 1"),
        ("--beta2", "nan", "--beta2 nan: must be above 0 and below 1"),
        ("--epsilon", "0", "--epsilon 0: must be above 0"),
        ("--clip-norm", "inf", "--clip-norm inf: must be above 0"),
    ],
)
def test_an_optimizer_cannot_have_every_number(option: str, value: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, option, value) == says


def test_the_best_needs_a_test_split(capsys: pytest.CaptureFixture[str]) -> None:
    write_data(Path("b"), has_test=False)
    assert refused(capsys, "--data", "b", "--keep-best").startswith("--keep-best: the records have no test split")


def test_a_folder_that_cannot_be_made_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert "cannot be written: Read-only file system" in refused(capsys)


def test_a_folder_that_another_run_writes_to_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with locked(Path("out")):
        assert refused(capsys) == "out: another run is writing here; wait for it, or stop it first"


def test_initial_weights_that_are_none_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("text.txt").write_text("no weights")
    Path("empty").mkdir()
    weights = initial_values(replace(MODEL, intermediate_size=8), seed=1)
    save_weights(Path("other.safetensors"), weights)
    checkpoint.save(Path("run"), checkpoint.RunState({"model": asdict(MODEL)}, 1), weights, keep=1)
    assert refused(capsys, "--init", "text.txt").startswith("text.txt: is not a whole safetensors file")
    assert refused(capsys, "--init", "empty").startswith("--init empty: holds neither a checkpoint nor a ")
    assert "other.safetensors: " in refused(capsys, "--init", "other.safetensors")
    assert "intermediate" in refused(capsys, "--init", "other.safetensors")
    assert "intermediate" in refused(capsys, "--init", "run")
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--seed", "1"], "seed 12345, now it is 1; resume with the same settings"),
        (["--weight-decay", "0.1"], "optimizer.weight_decay 0.01, now it is 0.1; "),
        (["--clip-norm", "2"], "optimizer.clip_norm 1.0, now it is 2.0; "),
        (["--no-dropout"], "model.hidden_dropout_prob 0.1, now it is 0.0; "),
        (["--batch-size", "8"], "phases.0.global_batch 32, now it is 8; "),
        (["--amp", "bf16"], "precision off, now it is bf16; "),
        (["--steps", "20"], "phases.0.schedule.steps 10, now it is 20; --lengthen resumes with the learning rates of the "),
        (["--steps", "8", "--lengthen"], "phases.0.schedule.steps 10, now it is 8; resume with the same settings"),
        (["--steps", "20", "--lengthen", "--lr", "1"], "phases.0.schedule.peak 0.0001, now it is 1.0; resume with the same"),
    ],
)
def test_other_settings_than_those_of_the_checkpoint_are_refused(
    options: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_checkpoint(5, monkeypatch)
    found = refused(capsys, *options)
    assert found.startswith("out/checkpoint-000000005.safetensors: was made with ")
    assert f"was made with {says}" in found


def test_a_checkpoint_of_another_make_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    leave_checkpoint(5, monkeypatch, phases=[])
    assert "was made with phases []" in refused(capsys)


def test_a_run_that_is_there_or_damaged_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    leave_checkpoint(5, monkeypatch)
    assert "is there from an earlier run" in refused(capsys, "--no-resume")
    Path("out/checkpoint-000000005.safetensors").write_bytes(b"")
    assert refused(capsys).startswith("out/checkpoint-000000005.safetensors: is damaged")


def test_sigterm_before_the_first_step_has_the_status_of_a_stopped_run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(start, "open_engine", lambda _: signal.raise_signal(signal.SIGTERM))
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as stopped:
        main(COMMAND)
    assert stopped.value.code == 3
    assert capfd.readouterr().err.endswith("SIGTERM: stopped while no step was under way\n")
    assert list(Path("out").iterdir()) == []  # no lock
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_finished_run_needs_no_framework(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    leave_checkpoint(10, monkeypatch)
    capsys.readouterr()
    assert main(COMMAND) == 0
    assert capsys.readouterr().err.startswith("out: is finished, with 10 steps; ")
    last = Path("out/checkpoint-000000010.safetensors")
    last.write_bytes(last.read_bytes()[:-1])
    assert refused(capsys).startswith(f"{last}: is damaged")


@pytest.mark.parametrize(
    ("step", "options"),
    [
        (3, ["--steps", "20"]),  # in the warmup
        (5, ["--steps", "20", "--lengthen"]),
        (10, ["--steps", "20", "--lengthen"]),
        (5, ["--lengthen"]),  # the same steps: nothing to lengthen
    ],
)
def test_a_run_may_be_lengthened(step: int, options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    leave_checkpoint(step, monkeypatch)
    with pytest.raises(Loaded):
        main([*COMMAND, *options])


def test_the_lowest_comparable_loss_is_the_best() -> None:
    best = Evaluated(phase=1, sequences=100, value=5.0)
    assert best.is_better_than(None)
    assert replace(best, value=4.9).is_better_than(best)
    assert not best.is_better_than(best)
    assert not replace(best, value=float("nan")).is_better_than(None)
    assert replace(best, phase=2, value=6.0).is_better_than(best)
    assert replace(best, sequences=10, value=6.0).is_better_than(best)


def test_of_another_metric_the_highest_is_the_best() -> None:
    best = Evaluated(phase=1, sequences=100, value=80.0, metric="f1")
    assert replace(best, value=81.0).is_better_than(best)
    assert not replace(best, value=79.0).is_better_than(best)
    assert not replace(best, value=float("nan")).is_better_than(best)
    assert best.is_better_than(replace(best, metric="accuracy"))
    assert Evaluated.of_entry(best.entry) == best
    assert best.entry == {"phase": 1, "sequences": 100, "f1": 80.0}


def test_data_are_known_again_by_their_records(tmp_path: Path) -> None:
    write_folder(tmp_path / "data", (20, 10))
    write_folder(tmp_path / "other format", (20, 10), "ofrecord")
    write_folder(tmp_path / "other order", (20, 10))
    first, second = (tmp_path / "other order" / "training" / f"part-{number}" for number in (0, 1))
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    prints = {}
    for name in ("data", "other format", "other order"):
        with RecordSet([tmp_path / name]) as records:
            prints[name] = resume._fingerprint(records)
    assert prints["other format"] == prints["data"]
    assert prints["other order"] != prints["data"]
