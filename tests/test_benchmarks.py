"""benchmarks/ prints what it measures, and one line for what cannot be measured."""

import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks import example, harness, pages, step

ROOT = Path(__file__).parents[1]
TINY = Namespace(tiny=True, cpu=False, precision="auto", steps=2, data=None, threads=1)


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
    assert table[0] in (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    with pytest.raises(SystemExit, match="did not print what a guess scores"):
        example.tabulate(tmp_path, "")


@pytest.mark.jax
def test_a_row_and_a_profile_of_a_tiny_model(tmp_path: Path) -> None:
    options = Namespace(**vars(TINY), out=tmp_path)
    row = step.measure_engine(options, "128/20", 4, "JAX")
    cells = step.show_row(options, "128/20", "JAX", row, 1e12).split(" | ")
    assert cells[0:3] == ["| 32/5, tiny", "JAX", "4"]  # what was measured, not BERT base
    assert cells[6] == "-"  # a CPU has no peak here
    assert cells[7].endswith("%")
    assert cells[9].endswith("XLA's attention, float32")
    assert len(cells) == len(step.HEADER)
    assert any(milliseconds > 0 for _, milliseconds in step.measure_profile(options, "128/20", 4)["operations"])
    products = step.measure_products(options)
    assert products["best"] == max(products["rates"].values()) > 0


@pytest.mark.jax
def test_without_an_accelerator_it_ends_at_once(tmp_path: Path) -> None:
    options = Namespace(**{**vars(TINY), "tiny": False}, out=tmp_path)
    found = step.measure_apart(options, step.Clock(60), "products", on_cpu=True, seconds=1800)
    assert found["error"].startswith("JAX finds no accelerator that it can use; --cpu measures the processor")


def test_out_of_memory_is_recognized_whatever_is_printed_after() -> None:
    printed = "Traceback ...\ntorch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB.\nW1122 a pool of workers is closed\n"
    assert step.error_of(printed) == "torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB."
    assert step.error_of("Traceback ...\nKeyError: 'a | b'\n") == "KeyError: 'a / b'"
    assert step.error_of("") == "it printed nothing"


@pytest.mark.jax
def test_what_cannot_be_compiled_is_one_line() -> None:
    command = [sys.executable, "-m", "benchmarks", "compile_step", "--model", "huge"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (1, 2)
    assert "error: --model huge: unknown; choose one of tiny" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
