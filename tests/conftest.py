"""What many tests need: the golden corpus, written by its own script."""

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
