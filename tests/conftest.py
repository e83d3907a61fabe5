"""Shared fixtures: the golden corpus, written by its own script, and devices."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests.golden import GOLDEN

# The same examples on every run, and no limit of time for one: machines are shared, and a test is not a benchmark.
settings.register_profile("bertprep", deadline=None, derandomize=True)
settings.load_profile("bertprep")


@pytest.fixture(scope="session")
def golden_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The text that the golden results were made from; the same bytes on every Python."""
    path = tmp_path_factory.mktemp("golden") / "corpus.txt"
    with path.open("wb") as file:
        subprocess.run([sys.executable, GOLDEN / "make_corpus.py", GOLDEN / "vocab.txt"], stdout=file, check=True)
    return path


@pytest.fixture(scope="session", autouse=True)
def four_devices(request: pytest.FixtureRequest) -> None:
    """Four devices, which are one processor, where tests need a framework that fixes its devices when it is first used."""
    if any(item.get_closest_marker("tensorflow") for item in request.session.items):
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
    if any(item.get_closest_marker("jax") for item in request.session.items):
        import jax

        jax.config.update("jax_num_cpu_devices", 4)
