"""What `bench` times, with an engine that only counts, and the line and the result that are kept."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer import bench
from trainer.bench import summarize
from trainer.cli import main
from trainer.engines import Execution, StepResult
from trainer.model_config import ModelConfig
from trainer.tasks.pretraining import Pretraining


class CountingEngine:
    """Two devices on which a step takes a second, and two of the processor's; the slow ones take longer, as the first does."""

    rank, data_rank, data_world_size, processes, is_first = 0, 0, 1, 1, True
    devices, device_name, has_accelerator = 2, "2 x Clockwork", True
    execution, precision = Execution("bf16", xla=True), "bf16"
    versions: dict[str, str] = {"clockwork": "1.0"}  # noqa: RUF012 - as the protocol has it

    def __init__(self) -> None:
        self.now = 0.0
        self.slow = {0: 60}
        self.batches: list[Any] = []
        self.in_flight = self.most_in_flight = 0

    def build(self, *_: Any, **__: Any) -> None:
        self.now += 100

    def peak_memory(self) -> int:
        return 3 << 30

    def train(self, batch: Any, *, learning_rate: float, accumulation: int, stop: bool, **_: int) -> Callable[[], StepResult]:
        assert learning_rate > 0
        assert (accumulation, stop) == (3, False)
        number = len(self.batches)
        self.batches.append({name: array.copy() for name, array in batch.items()})
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)

        def wait() -> StepResult:
            self.in_flight -= 1
            self.now += self.slow.get(number, 1)
            return StepResult(np.zeros((2, 3)), 0.0, 1.0, is_stop_wanted=False)

        return wait


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CountingEngine:
    engine = CountingEngine()
    monkeypatch.setattr(bench.time, "perf_counter", lambda: engine.now)
    monkeypatch.setattr(bench.time, "process_time", lambda: 2 * engine.now)
    monkeypatch.setattr(bench, "open_engine", lambda _: engine)
    monkeypatch.setattr(bench, "check_engine", lambda _: None)
    monkeypatch.chdir(tmp_path)
    return engine


def measure(line: str) -> dict[str, Any]:
    """The result of a bench with three micro-batches, the last in its folder."""
    assert main(["bench", "--engine", "tensorflow", "--accumulate", "3", "--out", "bench", *line.split()]) == 0
    result: dict[str, Any] = json.loads(Path("bench/bench.jsonl").read_text().splitlines()[-1])
    return result


def test_steps_are_timed_without_those_that_are_skipped(engine: CountingEngine, capsys: pytest.CaptureFixture[str]) -> None:
    result = measure("--model tiny --steps 10 --skip 6 --batch-size 4")
    assert len(engine.batches) == 48  # three times 6 and 10
    assert {batch["input_ids"].shape for batch in engine.batches} == {(24, 128)}  # 4 sequences x 2 devices x 3 micro-batches
    assert all(batch["input_mask"].all() and batch["masked_lm_weights"].all() for batch in engine.batches)  # no padding
    assert (np.diff(engine.batches[0]["masked_lm_positions"]) > 0).all()
    assert (engine.in_flight, engine.most_in_flight) == (0, 2)  # all are waited for; one is queued on an accelerator
    assert result["sequences_per_second_of_repeats"] == [24.0, 24.0, 24.0]
    assert result["milliseconds_per_step"] == 1000
    assert (result["precision"], result["xla"], result["cpu_seconds_per_step"]) == ("bf16", True, 2)
    assert result["flops_per_second"] == 24 * Pretraining().flops(ModelConfig.preset("tiny"), seq=128, pred=20)
    line = "median 24.0 sequences/s, repeats 24.0 - 24.0; 1,000.0 ms a step, 2.000 CPU s"
    printed = capsys.readouterr()
    assert printed.out.startswith(line)
    assert printed.out.endswith(", peak memory 3.00 GiB\n")
    assert printed.out == summarize(result) + "\n"
    assert f"{summarize({**result, 'mfu': 0.245})}\n".endswith(", MFU 24.5%, peak memory 3.00 GiB\n")
    measure("--model tiny --steps 2")
    assert len(Path("bench/bench.jsonl").read_text().splitlines()) == 2


def test_the_operations_of_a_sequence_are_those_of_its_matrix_products() -> None:
    hidden, inner, tokens, seq, pred = 8, 16, 10, 5, 3
    model = ModelConfig(
        vocab_size=tokens, hidden_size=hidden, num_hidden_layers=2, num_attention_heads=2, intermediate_size=inner
    )
    layer = seq * (4 * hidden * hidden + 2 * hidden * inner) + 2 * seq * seq * hidden  # the last: scores, and what they weigh
    heads = pred * (hidden * hidden + hidden * tokens) + hidden * hidden + 2 * hidden  # masked tokens; pooler and pairs
    assert Pretraining().flops(model, seq=seq, pred=pred) == 3 * 2 * (2 * layer + heads)


def test_the_median_of_the_repeats_counts(engine: CountingEngine) -> None:
    """With nothing skipped the slow steps are timed: 6 steps in 65 seconds, in 12 and in 6."""
    engine.slow, engine.has_accelerator = {0: 60, 6: 7}, False
    result = measure("--steps 6 --skip 0 --batch-size 1")
    assert result["sequences_per_second_of_repeats"] == pytest.approx([6 * 6 / 65, 3, 6])
    assert (result["sequences_per_second"], result["milliseconds_per_step"]) == (3, 2000)
    assert (engine.most_in_flight, result["model"]) == (1, "tiny")


def test_lines_name_what_is_measured_and_report_progress(
    engine: CountingEngine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    engine.has_accelerator = False
    monkeypatch.setattr(bench.time, "monotonic", lambda: engine.now)
    monkeypatch.setattr(sys, "stdout", sys.stderr)  # one stream, to see the order
    measure("--steps 6 --skip 2 --repeats 2 --batch-size 1")
    first, *progress, _, last = capfd.readouterr().err.splitlines()
    assert first == "tiny, 1 sequence of 128/20, bf16, XLA, tensorflow on 2 x Clockwork: 2 times 6 steps, each after 2 others"
    assert progress == [
        "bench: 1/16 steps, 0:15:00 left", "bench: 6/16 steps, 0:01:48 left", "bench: 11/16 steps, 31.8 s left",
        "bench: 16/16 steps, in 0:01:15",
    ]  # fmt: skip
    assert last.startswith("median 6.0 sequences/s, ")


@pytest.mark.tensorflow
def test_bench_on_tensorflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    result = measure("--model tiny --seq 16 --pred 2 --batch-size 2 --steps 2 --skip 1 --repeats 1")
    assert capsys.readouterr().out == summarize(result) + "\n"
    assert result["sequences_per_second"] * result["milliseconds_per_step"] == pytest.approx(6 * 1000)
    assert result["versions"].keys() == {"tensorflow"}
