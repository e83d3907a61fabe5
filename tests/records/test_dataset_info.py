"""`datasets` is imported where it is used, and what is wrong with it is one line."""

import sys
from pathlib import Path

import pytest

from bertprep.errors import UsageError
from bertprep.records.dataset_info import import_datasets


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("import a_module_that_is_nowhere", "No module named 'a_module_that_is_nowhere'"),
        ("from sys import a_name_of_another_version", "cannot import name 'a_name_of_another_version' from 'sys'"),
    ],
)
def test_datasets_that_cannot_be_imported_are_one_line(
    content: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "datasets.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "datasets"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(
        UsageError, match=rf"^datasets cannot be imported \({found}.*\); install it with pip install 'bertprep\[datasets\]'"
    ):
        import_datasets()
