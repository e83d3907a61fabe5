"""benchmarks/ prints what it measures, and one line for what cannot be measured."""

import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks import harness, readme, step

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


def test_the_readme_is_rewritten_between_its_comments(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("a\n<!-- python -m benchmarks readme -->\nold\n<!-- end -->\nb\n")
    readme.rewrite(page, r"new \1")
    assert page.read_text() == "a\n<!-- python -m benchmarks readme -->\nnew \\1\n<!-- end -->\nb\n"
    page.write_text("a\n")
    with pytest.raises(SystemExit, match="expected one block between"):
        readme.rewrite(page, "new")


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
