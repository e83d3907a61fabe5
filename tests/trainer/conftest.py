"""Workspaces that many tests read and none changes."""

from pathlib import Path

import pytest

from bertprep import kernels
from tests.trainer.small_data import make_moods, make_records, make_squad
from tests.trainer.small_runs import MODEL


@pytest.fixture(scope="session")
def workdir(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of the golden corpus in both formats."""
    kernels.load()  # compiled once, not in each of the processes that are started
    folder = tmp_path_factory.mktemp("workspace")
    make_records(golden_corpus, folder)
    return folder


@pytest.fixture(scope="session")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Records of tasks: the folders mood, 1.1 and 2.0; their workspace, and the file of a small model."""
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "small.json").write_text(MODEL.to_json())
    squads = {version: make_squad(folder, version) for version in ("1.1", "2.0")}
    return {"mood": make_moods(folder), **squads, "workdir": folder, "model": folder / "small.json"}
