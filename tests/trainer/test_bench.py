"""What is timed, what the table says, how the largest batch is found: with an engine that only counts, and the real one."""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertprep.errors import BertprepError, UsageError
from bertprep.records import Examples
from tests.trainer.test_record_set import write_folder
from trainer import bench
from trainer.cli import _parser, main
from trainer.config import ModelConfig
from trainer.metrics import StepResult, Sums, training_flops


class CountingEngine:
    """Two devices on which a step takes a second, and two of the processor's; the very first step takes a minute more."""

    rank, world_size, devices, device_name, has_accelerator = 0, 1, 2, "2 x Clockwork", True
    versions: dict[str, str] = {"clockwork": "1.0"}  # noqa: RUF012 - as the protocol has it

    def __init__(self) -> None:
        self.now = 0.0
        self.sizes: list[int] = []
        self.steps: list[int] = []
        self.begun: list[int] = []
        self.most_begun = 0

    def build(self, *_: Any, **__: Any) -> None:
        self.now += 100

    def train(self, examples: Any, *, step: int, rate: float, accumulation: int, stop: bool) -> Callable[[], StepResult]:
        assert rate > 0
        assert not stop
        self.sizes.append(len(examples))
        self.steps.append(step)
        self.begun.append(step)
        self.most_begun = max(self.most_begun, len(self.begun))
        assert accumulation == 3

        def wait() -> StepResult:
            self.begun.remove(step)
            self.now += 60 if step == 0 else 1
            return StepResult(Sums(), 0.0, 1.0, is_stop_wanted=False)

        return wait


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> CountingEngine:
    engine = CountingEngine()
    monkeypatch.setattr(bench.time, "perf_counter", lambda: engine.now)
    monkeypatch.setattr(bench.time, "process_time", lambda: 2 * engine.now)
    monkeypatch.setattr(bench, "open_engine", lambda _: engine)
    return engine


def options(*arguments: str) -> argparse.Namespace:
    return _parser().parse_args(["bench", *arguments])


def test_steps_are_timed_without_those_that_are_skipped(engine: CountingEngine) -> None:
    settings = bench.read_settings(options("--model", "tiny", "--accumulate", "3", "--steps", "10", "--skip", "6"))
    row = bench.measure(engine, settings, batch_size=4)  # type: ignore[arg-type]
    assert engine.steps == list(range(48))  # three times 6 and 10
    assert set(engine.sizes) == {24}  # 4 sequences x 2 devices x 3 micro-batches
    assert engine.begun == []  # each was waited for
    assert engine.most_begun == 2  # and the next was begun before that
    assert row["sequences_per_second_of_repeats"] == [24.0, 24.0, 24.0]
    assert row["tokens_per_second"] == 24 * 128
    assert row["milliseconds_per_step"] == 1000
    assert row["cpu_seconds_per_step"] == 2
    tiny = ModelConfig.preset("tiny")
    assert row["flops_per_second"] == 24 * training_flops(tiny, seq=128, pred=20)


def test_the_median_of_the_repeats_counts(engine: CountingEngine) -> None:
    """With nothing skipped the slow first step is timed: 6 steps in 65 seconds, and twice in 6."""
    settings = bench.read_settings(options("--model", "tiny", "--accumulate", "3", "--steps", "6", "--skip", "0"))
    row = bench.measure(engine, settings, batch_size=1)  # type: ignore[arg-type]
    assert row["sequences_per_second_of_repeats"] == pytest.approx([6 * 6 / 65, 6, 6])
    assert row["sequences_per_second"] == 6


def test_records_are_read_where_they_are_named(engine: CountingEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "data"
    write_folder(folder, (25, 15), "ofrecord")
    seen = []

    def note(engine: CountingEngine, batches: Iterator[Examples], *_: int) -> None:
        engine.now += 1
        seen.append(next(batches).input_ids.copy())

    monkeypatch.setattr(bench, "_run_steps", note)
    config = tmp_path / "bert_config.json"
    config.write_text(ModelConfig.preset("tiny", vocab_size=100_000).to_json())
    settings = bench.read_settings(options("--model", str(config), "--data", str(folder), "--repeats", "1"))
    bench.measure(engine, settings, batch_size=5)  # type: ignore[arg-type]
    with bench.RecordSet([folder]) as records:
        assert (settings.seq, settings.pred) == (records.seq, records.pred)
        batches = bench.TrainingBatches(records, bench.GlobalBatch(10), seed=bench._SEED)
        assert len(seen) == 2
        for step, input_ids in enumerate(seen):
            np.testing.assert_array_equal(input_ids, batches.batch_of(step).input_ids)


def test_made_up_records_are_full_and_valid() -> None:
    examples = bench.make_up(np.random.default_rng(1), 50, seq=16, pred=5, vocab_size=30)
    assert examples.input_ids.shape == (50, 16)
    assert examples.input_mask.all()
    assert set(np.unique(examples.input_ids)) == set(range(30))
    assert set(np.unique(examples.masked_lm_ids)) == set(range(30))
    assert (np.diff(examples.masked_lm_positions, axis=1) > 0).all()
    assert set(np.unique(examples.masked_lm_positions)) == set(range(16))
    assert examples.masked_lm_weights.sum() == 250
    assert set(np.unique(examples.next_sentence_labels)) == {0, 1}
    assert examples.segment_ids[0].tolist() == [0] * 8 + [1] * 8
    assert {array.dtype for array in examples.arrays} == {np.dtype(np.int32), np.dtype(np.float32)}


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 7, 8, 15, 16, 23, 24, 100, 513, 1000])
def test_the_largest_batch_is_the_largest(limit: int) -> None:
    tried: list[int] = []
    largest = bench.find_largest(lambda size: tried.append(size) or size <= limit)  # type: ignore[func-returns-value]
    assert largest == (limit if limit < 8 else limit // 8 * 8)
    assert len(tried) == len(set(tried)) <= 16


def test_no_batch_that_fits_is_an_error() -> None:
    with pytest.raises(BertprepError, match="not even a batch of 1 sequence fits"):
        bench.find_largest(lambda _: False)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Another Python in place of this one, which is to do what a few lines of shell say; they know $size and $out."""

    def put(lines: str) -> None:
        path = tmp_path / "python"
        reading = "while [ $# -gt 0 ]; do case $1 in --batch-size) size=$2 ;; --out) out=$2 ;; esac; shift; done"
        path.write_text(f"#!/bin/sh\n{reading}\n{lines}\n")
        path.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(path))

    return put


def bench_json(has_accelerator: bool) -> str:
    return json.dumps({"a row": {**ROW, "has_accelerator": has_accelerator}})


def test_a_try_that_dies_does_no_harm(
    engine: CountingEngine, stand_in: Callable[[str], None], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stand_in(f"[ $size -le 20 ] || {{ echo out of memory >&2; kill -KILL $$; }}\necho '{bench_json(True)}' > $out/bench.json")
    arguments = ["bench", "--model", "tiny", "--accumulate", "3", "--batch-size", "largest", "--out", str(tmp_path / "out")]
    assert main(arguments) == 0
    assert set(engine.sizes) == {16 * 2 * 3}
    said = capfd.readouterr().err
    assert "a batch of 16: fits\na batch of 32: does not fit (out of memory)\na batch of 24: does not fit" in said
    (row,) = json.loads((tmp_path / "out" / "bench.json").read_bytes()).values()
    assert row["batch_size"] == 16
    assert "--batch-size 16" in row["command"]


def test_a_try_that_is_refused_is_refused(stand_in: Callable[[str], None]) -> None:
    stand_in("echo 'trainer: error: --devices 9: this host has 8 GPUs' >&2; exit 2")
    with pytest.raises(UsageError, match=r"^--devices 9: this host has 8 GPUs$"):
        bench._fits(options("--model", "tiny"), 8)


def test_without_an_accelerator_there_is_no_largest(stand_in: Callable[[str], None]) -> None:
    stand_in(f"echo '{bench_json(False)}' > $out/bench.json")
    with pytest.raises(UsageError, match=r"--batch-size largest: there is no accelerator here"):
        bench._fits(options("--model", "tiny"), 8)


def test_a_command_line_asks_for_the_same_again() -> None:
    asked = options("--model", "mini", "--data", "one", "a second", "--xla", "--amp", "fp16", "--devices", "2")
    again = _parser().parse_args(bench.arguments_of(asked))
    assert vars(again) == vars(asked)
    assert again.data == [Path("one"), Path("a second")]


ROW: dict[str, Any] = {
    "engine": "tensorflow", "device": "8 x A GPU", "processor": "A CPU", "devices": 8, "processes": 1, "model": "base",
    "optimizer": "lamb", "precision": "fp16", "xla": True, "batch_size": 160, "accumulation": 2, "seq": 128, "data": "made up",
    "skipped_steps": 20, "timed_steps": 100, "sequences_per_second": 4382.04,
    "sequences_per_second_of_repeats": [4382.04, 4300.0, 4400.5], "tokens_per_second": 560_901.1,
    "flops_per_second": 306.3e12, "milliseconds_per_step": 584.2, "cpu_seconds_per_step": 1.25, "date": "2026-01-31",
    "versions": {"tensorflow": "2.21.0", "python": "3.12.1"}, "command": "python -m trainer bench --xla",
}  # fmt: skip


def test_the_table_as_a_person_reads_it() -> None:
    assert bench.to_markdown({"key": ROW}).splitlines()[2:] == [
        "| 1 | tensorflow | 8 x A GPU | base | lamb | fp16 | on | 160 | 2 | 128 | 4,382.0 | 4,300.0 - 4,400.5 | 560,901 "
        "| 306.300 | 584.2 | 1.250 |",
        "",
        "1. `python -m trainer bench --xla`: 2026-01-31, A CPU; tensorflow 2.21.0, python 3.12.1; median of 3 times 100 steps, "
        "20 skipped before each; batches made up",
    ]
    head, line = bench.to_markdown({"key": ROW}).splitlines()[:2]
    assert head.count("|") == line.count("|") == 17


def test_rows_are_kept_and_measured_again(tmp_path: Path) -> None:
    bench.keep_row(tmp_path, ROW)
    bench.keep_row(tmp_path, {**ROW, "batch_size": 64})
    bench.keep_row(tmp_path, {**ROW, "sequences_per_second": 5000.0})
    rows = json.loads((tmp_path / "bench.json").read_bytes())
    assert [(row["batch_size"], row["sequences_per_second"]) for row in rows.values()] == [(160, 5000.0), (64, 4382.04)]
    assert (tmp_path / "bench.md").read_text() == bench.to_markdown(rows)


@pytest.mark.parametrize("content", ["{", "[]", '{"row": {"engine": "tensorflow"}}', '{"row": 5}'])
def test_results_of_something_else_are_left_alone(content: str, tmp_path: Path) -> None:
    (tmp_path / "bench.json").write_text(content)
    with pytest.raises(BertprepError, match=r"bench\.json: holds no results of this command"):
        bench.keep_row(tmp_path, ROW)
    assert (tmp_path / "bench.json").read_text() == content


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
    assert main(["bench", *arguments.split()]) == 2
    assert message in capsys.readouterr().err
    assert engine.now == 0


@pytest.mark.tensorflow
def test_bench_on_tensorflow(tmp_path: Path) -> None:
    arguments = "--model tiny --seq 16 --pred 2 --batch-size 2 --accumulate 2 --steps 2 --skip 1 --devices 2".split()  # noqa: SIM905
    command = [sys.executable, "-m", "trainer", "bench", *arguments, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "| 1 | tensorflow | 2 x CPU | tiny | adam | fp32 | off | 2 | 2 | 16 |" in done.stdout
    (row,) = json.loads((tmp_path / "bench.json").read_bytes()).values()
    assert row["sequences_per_second"] * row["milliseconds_per_step"] == pytest.approx(8 * 1000)
    assert row["cpu_seconds_per_step"] > 0
    assert {"tensorflow", "keras"} <= row["versions"].keys()


@pytest.mark.tensorflow
def test_the_largest_batch_on_tensorflow_needs_an_accelerator(tmp_path: Path) -> None:
    code = "import sys, tensorflow as tf; sys.exit(0 if tf.config.list_physical_devices('GPU') else 1)"
    if subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0:
        pytest.skip("there is an accelerator here")
    command = [sys.executable, "-m", "trainer", "bench", "--model", "tiny", "--batch-size", "largest", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "trainer: error: --batch-size largest: there is no accelerator here" in done.stderr
    assert not (tmp_path / "bench.json").exists()
