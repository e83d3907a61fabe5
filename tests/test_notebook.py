"""The notebook runs from its first cell to its last, in an empty folder, as Jupyter runs it; its outputs are of such a run."""

from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[1] / "examples" / "first_hour.ipynb"


def test_every_cell_runs_and_shows_what_is_stored(tmp_path: Path) -> None:
    client = pytest.importorskip("nbclient", reason="is in the extra dev")
    nbformat = pytest.importorskip("nbformat", reason="is in the extra dev")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    stored = shown(notebook)
    client.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert shown(notebook) == stored
    assert len(stored) == 10


def shown(notebook: Any) -> list[list[str]]:
    """What the cells of code show, without how long it took."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    texts = [
        [output.get("text") or output.data.get("text/plain", "") for output in cell.outputs if output.get("name") != "stderr"]
        for cell in cells
    ]
    return [[line for text in cell for line in text.splitlines() if not line.startswith("made in ")] for cell in texts]
