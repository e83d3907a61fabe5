"""The trainer's command line: errors are one line, before a framework is loaded; defaults are chosen and printed."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bertprep import __version__
from bertprep.weights.hugging_face import save_weights
from bertprep.workspace.layout import VOCABULARY
from tests.trainer.test_data import write_data, write_in_workspace
from trainer import checkpoint, start
from trainer.cli import COMMANDS, main, make_parser
from trainer.engines.execution import Processor, choose_execution
from trainer.model_config import ModelConfig
from trainer.settings import EngineSettings, OptimizerSettings, RunSettings
from trainer.weights import initial_values


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the mistakes below are about."""
    root = tmp_path_factory.mktemp("mistakes")
    write_data(root / "a", records=128)
    write_data(root / "b", cased=True)
    write_data(root / "unknown", records=100, tokens=None, has_manifest=False)
    for name, change in {
        "fits": {},
        "few_positions": {"max_position_embeddings": 4},
        "more_tokens": {"vocab_size": 11},
    }.items():
        (root / f"{name}.json").write_text(ModelConfig(**{"vocab_size": 10, **change}).to_json())
    write_data(root / "long", seq=16, cased=True)
    for name, second in {"phases": {"seq": 16}, "cased_phases": {"data": ["long"]}}.items():
        phases = [{"data": ["a"], "seq": 8, "steps": 2}, {**second, "steps": 2}]
        (root / f"{name}.json").write_text(json.dumps(phases))
    return root


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], 2, "data: has no records of --seq 128; bertprep create --seq 128 --workdir data makes them"),
        (["pretrain"], 2, "data: has no records of --seq 128; "),
        (["--format", "ofrecord"], 2, "data: has no records of --seq 128 and --format ofrecord; "),
        (["--format", "hdf5"], 2, "--format hdf5: unknown; choose one of tfrecord, ofrecord"),
        (["--data", "a", "--seq", "128"], 2, "a: has records of 8 tokens, asked for is --seq 128; "),
        (["--data", "a", "b"], 2, "b: is cased, a is uncased; "),
        (
            ["--data", "a", "--model", "few_positions.json"],
            2,
            "a: has records of 8 tokens, the model few_positions.json has max_",
        ),
        (
            ["--data", "a", "--model", "more_tokens.json"],
            2,
            "a: was made with a vocabulary of 10 tokens, the model more_tokens",
        ),
        (["--data", "a", "--model", "enormous"], 2, "--model enormous: unknown; choose one of tiny, "),
        (
            ["--data", "unknown"],
            2,
            "unknown: has no vocab.txt beside its records, so the size of the model's vocabulary is not ",
        ),
        (["--data", "a", "--vocab", "none.txt"], 1, "none.txt: the vocabulary cannot be read: No such file"),
        (["--phases", "phases.json"], 2, "data: has no records of --seq 16 and --format "),
        (["--phases", "cased_phases.json"], 2, "long: is cased, a is uncased; "),
        (["--phases", "8:0.9,16:0.2"], 2, "--phases 8:0.9,16:0.2: fractions must be above 0 and add up to 1, these give 1.1"),
        (["--data", "a", "--init", "none"], 2, "--init none: does not exist; name a checkpoint"),
        (["--data", "a", "--optimizer", "sgd"], 2, "--optimizer sgd: unknown; choose one of adam, lamb"),
        (["--data", "a", "--schedule", "cosine"], 2, "--schedule cosine: unknown; choose one of google, nvidia"),
        (["--data", "a", "--amp", "fp8"], 2, "--amp fp8: unknown; choose one of auto, off, fp16, bf16"),
        (["--data", "a", "--xla", "yes"], 2, "--xla yes: unknown; choose one of auto, on, off"),
        (["--data", "a", "--deterministic", "no"], 2, "--deterministic no: unknown; choose one of on, off"),
        (["--data", "a", "--engine", "none"], 2, "--engine none: unknown; choose one of auto, tensorflow"),
        (["--data", "a", "--devices", "0"], 2, "--devices 0: must be at least 1"),
        (["--data", "a", "--amp", "fp16", "--loss-scale", "3"], 2, "--loss-scale 3: must be a power of two"),
        (["--data", "a", "--loss-scale", "2"], 2, "--loss-scale 2: applies to --amp fp16 alone, not to auto"),
        (["--data", "a", "--steps", "5", "--warmup-steps", "6"], 2, "--warmup-steps 6: are more than the 5 steps"),
        (["--data", "a", "--log-every", "0"], 2, "--log-every 0: must be at least 1"),
        (["--data", "a", "--batch-size", "4,2"], 2, "--batch-size 4,2: has 2 values for 1 phase; give one for all"),
        (
            ["--data", "a", "--batch-size", "many"],
            2,
            "--batch-size many: must be a whole number; python -m trainer pretrain --help lists the options",
        ),
        (["--data", "a", "--hosts", "one:1,two"], 2, "--hosts one:1,two: 'two' is not HOST:PORT, such as node0:12345"),
        (["--data", "a", "--hosts", "one:1,two:1"], 2, "--hosts one:1,two:1: needs --host-rank, the rank of this process"),
        (["--data", "a", "--host-rank", "1"], 2, "--host-rank 1: needs --hosts, which names all processes"),
        (["--data", "a", "--step", "5"], 2, "--step: unknown option, did you mean --steps? python -m trainer pretrain --help"),
        (["train"], 2, "train: unknown command, did you mean pretrain? python -m trainer --help lists the commands"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], status: int, message: str, folder: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(folder)
    assert status_of(arguments) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"trainer: error: {message}")
    assert err.count("\n") == 1


def status_of(arguments: list[str]) -> int:
    """The exit status, also where argparse ends the program itself."""
    try:
        return main(arguments)
    except SystemExit as ended:
        return int(ended.code or 0)


@pytest.mark.parametrize(
    ("arguments", "status", "begins"),
    [
        ([], 2, "trainer: error: data: has no records of --seq 128; "),
        (
            ["--data", "a", "--model", "few_positions.json", "--steps", "5"],
            2,
            "trainer: error: a: has records of 8 tokens, the ",
        ),
        (["--data", "a", "--vocab", "none.txt"], 1, "trainer: error: none.txt: the vocabulary cannot be read"),
        (["--data", "a", "--keep", "0"], 2, "trainer: error: --keep 0: must be at least 1"),
    ],
)
def test_a_mistake_is_found_before_a_framework_is_loaded(arguments: list[str], status: int, begins: str, folder: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "trainer", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(Path(start.__file__).parents[1])}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    imported, said = [], []
    for line in ended.stderr.splitlines():
        (imported if line.startswith("import time:") else said).append(line.rpartition("|")[2].strip())
    assert ended.returncode == status
    assert [line.startswith(begins) for line in said] == [True]
    assert "trainer.engines" in imported
    assert not {name.partition(".")[0] for name in imported} & {"tensorflow", "keras", "oneflow", "jax"}


class FakeTraining:
    """Stands for the engine and the loop: what they were given, and what they say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine = SimpleNamespace(
            data_rank=0,
            data_world_size=1,
            processes=1,
            is_first=True,
            devices=1,
            device_name="1 x Abacus",
            has_accelerator=False,
        )
        self.processor = Processor("Abacus")
        self.is_finished = True
        self.engine_settings = EngineSettings()
        self.runs: list[RunSettings] = []
        monkeypatch.setattr(start, "open_engine", self._open)
        monkeypatch.setattr(start, "check_installed", lambda _: None)
        monkeypatch.setattr("trainer.engines.installed_engines", lambda: ["tensorflow"])
        monkeypatch.setattr("trainer.engines._may_have_gpus", lambda: self.engine.has_accelerator or self.engine.devices > 1)
        monkeypatch.setitem(sys.modules, "trainer.loop", SimpleNamespace(train=self._train))  # type: ignore[arg-type]

    def _open(self, settings: EngineSettings) -> Any:
        self.engine_settings = settings
        self.engine.execution = choose_execution(settings, [self.processor])
        return self.engine

    def _train(self, settings: RunSettings, engine: Any) -> bool:
        assert engine is self.engine
        self.runs.append(settings)
        return self.is_finished

    @property
    def run(self) -> RunSettings:
        [settings] = self.runs
        return settings


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeTraining:
    monkeypatch.chdir(tmp_path)
    return FakeTraining(monkeypatch)


def test_defaults_are_chosen_and_printed(
    training: FakeTraining, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    newest = write_in_workspace(Path("data"), "made", time=2, seq=128, pred=20, records=100, record_format="ofrecord")
    write_in_workspace(Path("data"), "made", time=1, seq=128, pred=20)
    assert main([]) == 0
    assert training.run.model == ModelConfig.preset("tiny", vocab_size=10)
    [phase] = training.run.phases
    assert (phase.data, phase.seq, phase.batch_size, phase.steps) == ((newest,), 128, 32, 3)
    assert training.run.optimizer.name == "adam"
    assert training.run.out == Path("data/models/tiny_seq_128_adam_3_steps")
    assert (training.run.vocabulary, training.run.cased) == (newest / VOCABULARY, False)
    assert capsys.readouterr().err.splitlines() == [
        "model          tiny (there is no accelerator; --model takes another): 2 layers of 128, a vocabulary of 10, "
        "497,420 parameters",
        f"data           {newest} (the newest of 2 of 128 tokens in data): 100 training records of 128/20, ofrecord",
        "global batch   32 sequences: 32 x 1 (devices) x 1 (accumulated)",
        "steps          3, which is 0.96 epochs",
        "learning rate  0.0001 after 0 steps of warmup",
        "optimizer      adam",
        "engine         tensorflow: the only one installed",
        "out            data/models/tiny_seq_128_adam_3_steps",
        "precision      float32",
        "devices        1 x Abacus",
    ]


def test_an_accelerator_defaults_to_the_base_model(training: FakeTraining, folder: Path) -> None:
    training.engine.has_accelerator = True
    assert main(["--data", str(folder / "a"), "--workdir", "w"]) == 0
    assert training.run.model == ModelConfig.preset("base", vocab_size=10)
    assert training.run.out == Path("w/models/base_seq_8_adam_4_steps")


def test_a_run_resumes_in_the_precision_of_its_checkpoint(
    training: FakeTraining,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(start, "check_resume", lambda *_, **__: 0)  # which reads more of a checkpoint than there is
    training.processor = Processor("NVIDIA H100", (9, 0), is_gpu=True)
    arguments = ["--data", str(folder / "a"), "--out", str(tmp_path / "run")]
    assert main(arguments) == 0
    assert training.engine.execution.precision == "bf16"
    assert "precision      bf16: NVIDIA H100 has it (--amp off for float32)" in capsys.readouterr().err.splitlines()
    checkpoint.save(tmp_path / "run", checkpoint.RunState({"precision": "off", "model": {}}, 1), {}, keep=1)
    assert main(arguments) == 0
    assert training.engine.execution.precision == "off"
    assert "precision      float32: as the checkpoint has it" in capsys.readouterr().err.splitlines()
    assert main([*arguments, "--amp", "fp16"]) == 0
    assert training.engine.execution.precision == "fp16"  # which the loop refuses


def test_devices_of_the_engine_make_the_global_batch(
    training: FakeTraining, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training.engine.devices, training.engine.processes = 4, 2
    assert main(["--data", str(folder / "a"), "--batch-size", "1", "--accumulate", "2", "--amp", "bf16", "--xla"]) == 0
    assert training.run.steps == 16  # 128 records, 1 x 4 x 2 a step
    lines = capsys.readouterr().err.splitlines()
    assert "global batch   8 sequences: 1 x 4 (devices) x 2 (accumulated)" in lines
    assert "steps          16, which is 1 epochs" in lines
    assert "precision      bf16: slower than float32, on this processor" in lines
    assert "XLA            on: slower than without, on a CPU" in lines
    assert "devices        1 x Abacus, 2 processes" in lines


def test_phases_are_distinguished(training: FakeTraining, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = write_in_workspace(tmp_path, "short", time=1)
    long = write_in_workspace(tmp_path, "long", time=2, seq=16)
    workdir = ["--workdir", str(tmp_path)]
    assert main([*workdir, "--phases", "8:0.9,16:0.1", "--steps", "20", "--optimizer", "lamb", "--lr", "0.5,0.25"]) == 0
    assert [(phase.data, phase.seq, phase.steps, phase.schedule.peak) for phase in training.run.phases] == [
        ((short,), 8, 18, 0.5),
        ((long,), 16, 2, 0.25),
    ]
    assert training.run.out == tmp_path / "models" / "tiny_seq_8_16_lamb_20_steps"
    lines = capsys.readouterr().err.splitlines()
    assert "phase 1 learning rate  0.5 after 1 steps of warmup" in lines
    assert (
        f"phase 2 data           {long} (the only one of 16 tokens in {tmp_path}): 20 training records of 16/2, tfrecord"
        in lines
    )


def test_a_model_file_needs_no_vocabulary_and_names_the_run(training: FakeTraining, folder: Path) -> None:
    model = folder / "fits.json"
    assert main(["--data", str(folder / "unknown"), "--model", str(model), "--no-dropout"]) == 0
    assert training.run.model == ModelConfig(vocab_size=10).without_dropout()
    assert training.run.out == Path("data/models/fits_seq_8_adam_3_steps")


def test_every_option_arrives(training: FakeTraining, folder: Path, tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    save_weights(weights, initial_values(ModelConfig.preset("tiny", vocab_size=10), seed=1))
    optimizer = {"weight_decay": 0.1, "beta_1": 0.8, "beta_2": 0.98, "epsilon": 1e-8, "clip_norm": 2.0}
    numbers = {
        "log_every": 1,
        "eval_every": 2,
        "eval_sequences": 3,
        "save_every": 4,
        "keep": 5,
        "seed": 6,
        "skip_bad_records": 7,
    }
    assert main([
        "pretrain", "--data", str(folder / "a"), "--out", "out", "--init", str(weights), "--no-resume", "--bias-correction",
        "--keep-best", "--lengthen",
        *(part for name, value in optimizer.items() for part in (f"--{name.replace('_', '-')}".replace("a-", "a"), str(value))),
        *(part for name, value in numbers.items() for part in (f"--{name.replace('_', '-')}", str(value))),
        "--engine", "tensorflow", "--devices", "2", "--hosts", "one:1,two:2", "--host-rank", "1", "--amp", "fp16", "--xla",
        "--loss-scale", "1024", "--deterministic", "off", "--batch-size", "8",
    ]) == 0  # fmt: skip
    run = training.run
    assert {name: getattr(run, name) for name in numbers} == numbers
    assert (run.out, run.init, run.resume, run.keep_best, run.lengthen) == (Path("out"), weights, False, True, True)
    assert run.optimizer == OptimizerSettings(bias_correction=True, **optimizer)
    assert training.engine_settings == EngineSettings(
        engine="tensorflow",
        devices=2,
        hosts=("one:1", "two:2"),
        host_rank=1,
        amp="fp16",
        xla="on",
        loss_scale=1024,
        deterministic="off",
    )


def test_only_one_process_prints(training: FakeTraining, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training.engine.is_first, training.engine.processes = False, 2
    assert main(["--data", str(folder / "a"), "--hosts", "one:1,two:1", "--host-rank", "1"]) == 0
    assert capsys.readouterr().err == "one of 2 processes; the first one reports progress\n"


def test_a_stopped_run_has_its_own_exit_status(training: FakeTraining, folder: Path) -> None:
    training.is_finished = False
    assert main(["--data", str(folder / "a")]) == start.STOPPED == 3


def test_control_c_prints_no_traceback(
    training: FakeTraining, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["trainer.loop"], "train", interrupt)
    assert main(["--data", str(folder / "a")]) == 130
    assert capsys.readouterr().err.splitlines()[-1].startswith("trainer: stopped; the same command resumes")
    assert training.runs == []


def test_a_missing_framework_is_reported_before_anything_is_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # type: ignore[arg-type]  # an import of what is None fails
    assert main(["--engine", "tensorflow", "--data", str(folder / "a"), "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err.startswith(
        "trainer: error: --engine tensorflow: tensorflow is not installed here; pip install '.[tensorflow]' in a clone"
    )
    assert not (tmp_path / "run").exists()


def test_export_and_bench_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []

    def note(*arguments: Any, **options: Any) -> int:
        called.append((arguments, options))
        return 0

    monkeypatch.setattr("trainer.export.export_model", note)
    monkeypatch.setattr("trainer.bench.run.run", note)
    assert main(["export", "run", "model"]) == 0
    assert main(["bench", "--batch-size", "largest", "--repeats", "5"]) == 0
    exported, (benched, _) = called
    assert exported == ((Path("run"), Path("model")), {"to": "transformers"})
    assert (benched[0].batch_size, benched[0].repeats, benched[0].skip, benched[0].steps) == ("largest", 5, 20, 100)


def test_the_version_is_that_of_bertprep(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["--version"]) == 0
    assert capsys.readouterr().out == f"bertprep {__version__}\n"


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    [choices] = [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(choices)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_names_its_default_or_is_needed(command: str) -> None:
    options = [action for action in commands_of(make_parser(command))[command]._actions if action.dest != "help"]
    assert len(options) >= 3
    for option in options:
        assert "(default: " in str(option.help) or "(needed" in str(option.help), option.dest
