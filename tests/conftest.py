"""Shared fixtures: the golden corpus, written by its own script, and devices; a limit of time for each test."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests.golden import GOLDEN
from tests.time_limit import pytest_configure, pytest_runtest_protocol

__all__ = ["pytest_configure", "pytest_runtest_protocol"]  # hooks

# The same examples on every run, and no limit of time for one: machines are shared, and a test is not a benchmark.
settings.register_profile("bertprep", deadline=None, derandomize=True)
settings.load_profile("bertprep")

# For NumPy, PyTorch and OneFlow, here and in processes that tests start. Sharing such small arrays among threads doubles the
# CPU time of PyTorch's tests on two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell's background jobs ignore Ctrl-C, and so would the processes that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def golden_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The text that the golden results were made from; the same bytes on every Python."""
    path = tmp_path_factory.mktemp("golden") / "corpus.txt"
    with path.open("wb") as file:
        subprocess.run([sys.executable, GOLDEN / "make_corpus.py", GOLDEN / "vocab.txt"], stdout=file, check=True)
    return path


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cases", type=int, default=40, help="of corrupt files of each kind")
    parser.addoption("--rounds", type=int, default=1, help="of stress tests")
    parser.addoption("--seed", type=int, default=0, help="of the first round of stress tests")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a stress test each of its rounds' seeds."""
    if "seed" in metafunc.fixturenames and metafunc.definition.get_closest_marker("stress"):
        first = metafunc.config.option.seed
        metafunc.parametrize("seed", range(first, first + metafunc.config.option.rounds))


@pytest.hookimpl(tryfirst=True)  # before those of other suites are left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out stress tests unless -m names them, and refuse a framework's test that no suite of scripts/test runs.

    The suites of frameworks collect `engines` alone.
    """
    if "stress" not in config.option.markexpr:
        items[:] = [item for item in items if not item.get_closest_marker("stress")]
    root = Path(__file__).parents[1]
    (array,) = re.findall(r"^engines=\(.*\)$", (root / "scripts/test").read_text(encoding="utf-8"), re.MULTILINE)
    names = subprocess.check_output(["bash", "-c", f'{array}; printf "%s\\n" "${{engines[@]}}"'], text=True).split()
    folders = {root / name for name in names}
    frameworks = "tensorflow", "oneflow", "torch"
    marked = {item.path for item in items if any(map(item.get_closest_marker, frameworks))}
    if left_out := [path for path in marked if folders.isdisjoint((path, *path.parents))]:
        raise pytest.UsageError(f"{left_out[0]}: has tests of a framework; name it in `engines` of scripts/test")


@pytest.fixture(scope="session", autouse=True)
def four_devices(request: pytest.FixtureRequest) -> None:
    """Four devices, which are one processor, where tests need a framework that fixes its devices when it is first used."""
    if any(item.get_closest_marker("tensorflow") for item in request.session.items):
        import tensorflow as tf

        # XLA compiles the same results in three quarters of the time. Runs inherit the variable.
        os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
