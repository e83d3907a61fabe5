"""benchmarks/ prints what it measures, and one line for what cannot be measured."""

import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks import example, harness, pages, step

ROOT = Path(__file__).parents[1]


def test_rows_take_turns_and_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[str] = []
    bench = harness.Bench(tmp_path, Namespace(runs=2, scale=0.5))
    rows = [
        harness.Row("a", 10, lambda: calls.append("a"), lambda: calls.append("-")),
        harness.Row("b", 5, lambda: sum(range(10**6))),
    ]
    bench.compare("records", [*rows, harness.Row("c", 1, [sys.executable, "-c", "calls = bytearray(10**7)"])])
    assert "".join(calls) == "-a" * 3  # once before it is timed
    header, _, *shown = capsys.readouterr().out.strip().splitlines()
    assert header.startswith("|  | records a CPU-second |")
    assert [line.split(" | ")[0] for line in shown] == ["| a", "| b", "| c"]
    assert int(shown[2].split(" | ")[5]) > 10  # MB
    assert bench.scaled(30) == 15


def test_a_page_is_rewritten_between_the_comments_of_its_benchmark(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("a\n<!-- python -m benchmarks readme -->\nold\n<!-- end -->\nb\n")
    pages.rewrite(page, "readme", r"new \1")
    assert page.read_text() == "a\n<!-- python -m benchmarks readme -->\nnew \\1\n<!-- end -->\nb\n"
    with pytest.raises(SystemExit, match="expected one block between"):
        pages.rewrite(page, "example", "new")


def test_results_of_the_complete_job_are_those_of_its_logs(tmp_path: Path) -> None:
    """Of pretraining the last evaluation, of a task the best one, as its checkpoint-best is."""
    evaluations = {
        "pretrained/phase-1": [{"step": 300, "masked_lm_loss": 6.5}],
        "pretrained/phase-2": [{"step": 30, "masked_lm_loss": 6.4321}],
        "squad": [{"step": 9, "exact_match": 80.0, "f1": 81.0}, {"step": 18, "exact_match": 79.0, "f1": 80.0}],
        "century": [{"step": 9, "accuracy": 0.5}, {"step": 18, "accuracy": 0.775}],
    }
    for run, entries in evaluations.items():
        (tmp_path / "models" / run).mkdir(parents=True)
        lines = [json.dumps({"kind": kind, **entry}) + "\n" for entry in entries for kind in ("train", "evaluation")]
        (tmp_path / "models" / run / "log.jsonl").write_text("".join(lines))
    table = example.tabulate(tmp_path, "dev: 600 questions (a guess scores 37.2), 600 sentences, half of each century\n")
    assert table[3:] == [
        "| pretraining, 330 steps | masked-LM loss 6.43 | | `scripts/pretrain_lamb` |",
        "| answering questions | exact match 80, F1 81 | exact match 37.2 | `scripts/run_squad` |",
        "| dating sentences, by century | accuracy 0.775 | accuracy 0.5 | `scripts/run_glue MRPC` |",
    ]
    assert table[0] in (ROOT / "docs" / "start" / "first-model.md").read_text(encoding="utf-8")
    with pytest.raises(SystemExit, match="did not print the score of a guess"):
        example.tabulate(tmp_path, "")


def options_of_step(**given: object) -> Namespace:
    options = Namespace(tiny=True, cpu=False, precision="off", steps=2, threads=1, model="tiny", batch_size=4, seq=32, pred=5)
    return Namespace(**{**vars(options), **given})


@pytest.mark.torch
def test_a_row_of_a_tiny_model() -> None:
    options = options_of_step()
    found = step.measure(options, "torch")
    cells = step.show_row(options, "torch", [found], [1.0]).split(" | ")
    assert cells[0:2] == ["| PyTorch", "4"]
    assert float(cells[2]) == pytest.approx(found["seconds"], abs=0.001)
    assert cells[5] == "-"  # a CPU has no peak here
    assert cells[-1] == "1.00 |"
    assert len(cells) == len(step.HEADER)
    failed = step.show_row(options, "torch", [{"error": "no luck"}], [])
    assert failed.count("|") == len(step.HEADER) + 1


@pytest.mark.torch
def test_without_an_accelerator_it_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = step.measure_apart(options_of_step(tiny=False), "torch")
    assert found["error"].startswith("PyTorch finds no accelerator that it can use; --cpu measures the processor")


def test_rows_take_turns_and_those_that_fail_say_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def measure(options: Namespace, row: str) -> dict[str, object]:
        asked.append(row)
        if row == "torch":
            return {"error": "No module named torch"}
        return {
            "seconds": len(asked) / options.steps,
            "first_step": 1.0,
            "device": "CPU",
            "memory": None,
            "versions": {row: "1"},
        }

    monkeypatch.setattr(step, "measure_apart", measure)
    monkeypatch.setattr(sys, "argv", ["step", "--cpu", "--tiny", "--rows", "tensorflow,torch,shipped", "--rounds", "2"])
    step.main()
    assert asked == ["tensorflow", "torch", "shipped"] * 2
    printed = capsys.readouterr().out.splitlines()
    assert "BERT-tiny, 32/5, bf16" in printed[0]
    assert [line.split(" | ")[0] for line in printed[4:7]] == ["| TensorFlow", "| PyTorch", "| Hugging Face, as shipped"]
    assert "No module named torch" in printed[5]
    assert printed[6].endswith("| 0.50 |")  # the median of 1/3 and 4/6
    assert printed[-1] == "tensorflow 1, shipped 1"


def test_out_of_memory_is_recognized_whatever_is_printed_after() -> None:
    printed = "Traceback ...\ntorch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB.\nW1122 a pool of workers is closed\n"
    assert step.error_of(printed) == "torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB."
    assert step.error_of("Traceback ...\nKeyError: 'a | b'\n") == "KeyError: 'a / b'"
    assert step.error_of("") == "it printed nothing"
