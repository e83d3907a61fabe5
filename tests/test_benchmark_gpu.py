"""scripts/benchmark_gpu measures on a processor what it measures on a GPU, with a tiny model."""

from argparse import Namespace
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "benchmark_gpu"


@pytest.fixture(scope="module")
def benchmark() -> Any:
    spec = spec_from_loader("benchmark_gpu", SourceFileLoader("benchmark_gpu", str(SCRIPT)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.jax
def test_a_row_and_a_profile_of_a_tiny_model(benchmark: Any, tmp_path: Path) -> None:
    options = Namespace(tiny=True, steps=2, out=tmp_path, data=None)
    row = {**benchmark.measure_jax(options, "128/20", 4, "JAX"), "batch": 4}
    assert row["sequences_per_second"] > 0
    assert row["first_step"] > 0
    cells = benchmark.show_row(options, "128/20", "JAX", row, {"best": 1e12}).split(" | ")
    assert cells[0:3] == ["| 32/5, tiny", "JAX", "4"]  # what was measured, not BERT-base
    assert cells[5] == "-"  # a processor has no peak here
    assert cells[6].endswith("%")
    assert cells[8].endswith("XLA's attention, float32 |")
    profile = benchmark.measure_profile(options, "128/20", 4, "JAX")
    assert any(milliseconds > 0 for _, milliseconds in profile["operations"])


@pytest.mark.jax
def test_the_rate_of_products(benchmark: Any) -> None:
    products = benchmark.measure_products(Namespace(tiny=True))
    assert products["best"] == max(products["rates"].values()) > 0
    assert "512 x 768 x 3072" in benchmark.format_products(products)


def test_what_does_not_fit_the_minutes_is_left_out(benchmark: Any) -> None:
    clock = benchmark.Clock(0.5)
    assert clock.allows("short", 10)
    assert not clock.allows("long", 60)
    assert clock.left_out == ["long"]


def test_a_row_that_failed_says_why(benchmark: Any) -> None:
    shown = benchmark.show_row(Namespace(tiny=True), "512/80", "PyTorch", {"error": "no torch"}, {})
    assert shown.startswith("| 128/20, tiny | PyTorch |")
    assert shown.endswith("| no torch |")
    assert shown.count("|") == 10
    assert benchmark.show_row(Namespace(tiny=False), "512/80", "PyTorch", {"error": "no torch"}, {}).startswith("| 512/80 |")


def find_row(benchmark: Any, monkeypatch: pytest.MonkeyPatch, *found: dict[str, Any], seconds_left: float = 1e6) -> Any:
    """The row of batches that end so on a GPU, the last after which `seconds_left` are left, and what each could take."""
    clock, waiting, limits = benchmark.Clock(1e6), list(found), []

    def measure(*_: object, seconds: float = 0) -> dict[str, Any]:
        limits.append(seconds)
        if len(waiting) == 1:
            clock.__init__(seconds_left / 60)
        return waiting.pop(0)

    monkeypatch.setattr(benchmark, "measure_apart", measure)
    return benchmark.find_row(Namespace(tiny=False), clock, "torch", "128/20", benchmark.TORCH), limits


TOO_LARGE = {"error": "torch.OutOfMemoryError: CUDA out of memory"}
FITS = {"memory": 40, "memory_limit": 100}


def test_a_row_may_take_longer_until_a_batch_fits(benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch.compile takes with an empty cache; after that a longer time is no reason to lose the others' minutes."""
    row, limits = find_row(benchmark, monkeypatch, FITS, {"error": "took more than 120 s"})
    assert (row["batch"], limits) == (1024, [240, 120])
    row, limits = find_row(benchmark, monkeypatch, TOO_LARGE, FITS)
    assert (row["batch"], limits) == (512, [240, 240])


def test_a_row_that_ran_out_of_time_does_not_say_out_of_memory(benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    row, _ = find_row(benchmark, monkeypatch, TOO_LARGE, {"error": "took more than 240 s"})
    assert row["error"] == "took more than 240 s"
    row, _ = find_row(benchmark, monkeypatch, TOO_LARGE, seconds_left=10)
    assert row["error"] == "no time was left for a batch of 512"


def test_a_batch_that_does_not_fit_is_known_whatever_is_written_after(benchmark: Any) -> None:
    said = "Traceback ...\ntorch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB.\nW1122 a pool of workers is closed\n"
    assert benchmark.error_of(said) == "torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB."
    assert benchmark.error_of("Traceback ...\nKeyError: 'a | b'\n") == "KeyError: 'a / b'"
    assert benchmark.error_of("") == "it said nothing"


@pytest.mark.jax
def test_without_an_accelerator_it_is_told_before_minutes_are_lost(benchmark: Any, tmp_path: Path) -> None:
    clock = benchmark.Clock(8)
    found = benchmark.measure_apart(Namespace(tiny=False, steps=1, out=tmp_path, data=None), clock, "products", on_cpu=True)
    assert found["error"] == "JAX finds no accelerator that it can use; --tiny tries the script on a processor"
