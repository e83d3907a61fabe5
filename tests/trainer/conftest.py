"""The workspace in which whole runs are started, with either engine."""

from pathlib import Path

import pytest

from bertprep import kernels
from tests.trainer.small_runs import PRED, SEQ, make_records


@pytest.fixture(scope="session")
def workdir(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of the golden corpus in both formats and two lengths."""
    kernels.load()  # compiled once, not in each of the processes that are started
    folder = tmp_path_factory.mktemp("workspace")
    make_records(golden_corpus, folder)
    make_records(golden_corpus, folder, seq=2 * SEQ, pred=2 * PRED)
    return folder
