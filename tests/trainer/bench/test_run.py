"""What is timed, with an engine that only counts, and with the real one."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertprep.options import read_options
from bertprep.records import PretrainingExamples
from tests.records.test_record_set import write_folder
from trainer.batches import empty_for
from trainer.bench import run as bench
from trainer.bench.table import Row, read_rows, to_markdown
from trainer.cli import main, make_parser
from trainer.engines.execution import Execution
from trainer.metrics import StepResult
from trainer.model_config import ModelConfig
from trainer.settings import EngineSettings
from trainer.tasks.pretraining import PRETRAINING, PretrainingSums


class CountingEngine:
    """Two devices on which a step takes a second, and two of the processor's; the slow ones take longer, as the first does."""

    data_rank, data_world_size, processes, is_first = 0, 1, 1, True
    devices, device_name, has_accelerator = 2, "2 x Clockwork", True
    execution = Execution("bf16", xla=True)
    versions: dict[str, str] = {"clockwork": "1.0"}  # noqa: RUF012 - as the protocol has it

    def __init__(self) -> None:
        self.now = 0.0
        self.slow = {0: 60}
        self.sizes: list[int] = []
        self.steps: list[int] = []
        self.begun: list[int] = []
        self.most_begun = 0

    def build(self, *_: Any, **__: Any) -> None:
        self.now += 100

    def peak_memory(self) -> int:
        return 3 << 30

    def train(
        self, examples: Any, *, step: int, learning_rate: float, accumulation: int, stop: bool
    ) -> Callable[[], StepResult]:
        assert learning_rate > 0
        assert not stop
        self.sizes.append(len(examples))
        self.steps.append(step)
        self.begun.append(step)
        self.most_begun = max(self.most_begun, len(self.begun))
        assert accumulation == 3

        def wait() -> StepResult:
            self.begun.remove(step)
            self.now += self.slow.get(step, 1)
            return StepResult(PretrainingSums(), 0.0, 1.0, is_stop_wanted=False)

        return wait


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> CountingEngine:
    engine = CountingEngine()
    monkeypatch.setattr(bench.time, "perf_counter", lambda: engine.now)
    monkeypatch.setattr(bench.time, "process_time", lambda: 2 * engine.now)
    monkeypatch.setattr(bench, "open_engine", lambda _: engine)
    monkeypatch.setattr(bench, "check_installed", lambda _: None)
    return engine


def measure(engine: CountingEngine, *arguments: str) -> Row:
    options = make_parser("bench").parse_args(["bench", *arguments])
    settings, model, _ = bench.resolve(read_options(bench.BenchSettings, options))
    return bench.measure(engine, EngineSettings(), settings, model)  # type: ignore[arg-type]


def test_steps_are_timed_without_those_that_are_skipped(engine: CountingEngine) -> None:
    row = measure(engine, "--model", "tiny", "--accumulate", "3", "--steps", "10", "--skip", "6", "--batch-size", "4")
    assert engine.steps == list(range(48))  # three times 6 and 10
    assert set(engine.sizes) == {24}  # 4 sequences x 2 devices x 3 micro-batches
    assert engine.begun == []  # each was waited for
    assert row["sequences_per_second_of_repeats"] == [24.0, 24.0, 24.0]
    assert row["tokens_per_second"] == 24 * 128
    assert row["milliseconds_per_step"] == 1000
    assert (row["precision"], row["xla"]) == ("bf16", True)  # as the engine chose
    assert row["cpu_seconds_per_step"] == 2
    tiny = ModelConfig.preset("tiny")
    assert row["flops_per_second"] == 24 * PRETRAINING.flops(tiny, seq=128, pred=20)


@pytest.mark.parametrize(("has_accelerator", "most_begun"), [(True, 2), (False, 1)])
def test_a_step_is_begun_ahead_on_an_accelerator_alone(has_accelerator: bool, most_begun: int, engine: CountingEngine) -> None:
    engine.has_accelerator = has_accelerator
    measure(engine, "--model", "tiny", "--accumulate", "3", "--steps", "5", "--batch-size", "1")
    assert engine.most_begun == most_begun


def test_the_median_of_the_repeats_counts(engine: CountingEngine) -> None:
    """With nothing skipped the slow steps are timed: 6 steps in 65 seconds, in 12 and in 6."""
    engine.slow = {0: 60, 6: 7}
    row = measure(engine, "--model", "tiny", "--accumulate", "3", "--steps", "6", "--skip", "0", "--batch-size", "1")
    assert row["sequences_per_second_of_repeats"] == pytest.approx([6 * 6 / 65, 3, 6])
    assert row["sequences_per_second"] == 3
    assert row["milliseconds_per_step"] == 2000


def test_records_are_read_where_they_are_named(engine: CountingEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "data"
    write_folder(folder, (25, 15), "ofrecord")
    seen = []

    def note(engine: CountingEngine, batches: Iterator[PretrainingExamples], *_: int) -> None:
        engine.now += 1
        seen.append(next(batches).input_ids.copy())

    monkeypatch.setattr(bench, "_run_steps", note)
    config = tmp_path / "bert_config.json"
    config.write_text(ModelConfig.preset("tiny", vocab_size=100_000).to_json())
    row = measure(engine, "--model", str(config), "--data", str(folder), "--repeats", "1", "--batch-size", "5")
    with bench.RecordSet([folder]) as records:
        assert (row["seq"], row["pred"]) == (records.seq, records.pred)
        batches = bench.TrainingBatches(records, bench.GlobalBatch(10), seed=bench._SEED)
        assert len(seen) == 2
        for step, input_ids in enumerate(seen):
            expected = empty_for(records, 10)
            batches.read_into(expected, step)
            np.testing.assert_array_equal(input_ids, expected.input_ids)


def test_the_command_measures_the_largest_batch_and_keeps_a_row(
    engine: CountingEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "fits", lambda *given: given[-1] <= 20)
    arguments = ["--model", "tiny", "--accumulate", "3", "--batch-size", "largest", "--out", str(tmp_path)]
    assert main(["bench", *arguments]) == 0
    assert set(engine.sizes) == {16 * 2 * 3}
    said = capsys.readouterr()
    assert "the largest batch that fits: 16 sequences of a device" in said.err
    (row,) = read_rows(tmp_path)
    assert row["batch_size"] == 16
    assert "--batch-size 16 --accumulate 3" in row["command"]
    assert said.out == to_markdown([row]) == (tmp_path / "bench.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--steps 0", "--steps 0: must be at least 1"),
        ("--skip -1", "--skip -1: must be at least 0"),
        ("--batch-size 0", "--batch-size 0: must be at least 1"),
        ("--seq 513", "--seq 513 --pred 20: the model has 512 positions"),
        ("--seq 8 --pred 9", "--seq 8 --pred 9: the model has 512 positions, and a sequence has at most as many predictions"),
        ("--model huge", "--model huge: unknown"),
        ("--amp fp8", "--amp fp8: unknown"),
        ("--optimizer sgd", "--optimizer sgd: unknown"),
        ("--data nowhere", "nowhere: does not exist"),
    ],
)
def test_mistakes_are_refused_before_the_engine_is_opened(
    arguments: str, message: str, engine: CountingEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status: object = main(["bench", *arguments.split()])
    except SystemExit as ended:  # as argparse ends it
        status = ended.code
    assert status == 2
    assert message in capsys.readouterr().err
    assert engine.now == 0


@pytest.mark.tensorflow
def test_bench_on_tensorflow(tmp_path: Path) -> None:
    arguments = "--model tiny --seq 16 --pred 2 --batch-size 2 --accumulate 2 --steps 2 --skip 1 --devices 2".split()  # noqa: SIM905
    command = [sys.executable, "-m", "trainer", "bench", *arguments, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "| 1 | tensorflow | 2 x CPU | tiny | adam | fp32 | off | 2 | 2 | 16 |" in done.stdout
    (row,) = read_rows(tmp_path)
    assert row["sequences_per_second"] * row["milliseconds_per_step"] == pytest.approx(8 * 1000)
    assert row["cpu_seconds_per_step"] > 0
    assert row["versions"].keys() == {"tensorflow", "python"}


@pytest.mark.tensorflow
def test_the_largest_batch_on_tensorflow_needs_an_accelerator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import tensorflow as tf

    if tf.config.list_physical_devices("GPU"):
        pytest.skip("there is an accelerator here")
    assert main(["bench", "--model", "tiny", "--batch-size", "largest", "--out", str(tmp_path)]) == 2
    assert "trainer: error: --batch-size largest: there is no accelerator here" in capsys.readouterr().err
    assert not (tmp_path / "bench.json").exists()
