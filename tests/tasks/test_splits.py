"""The files of a task say by their names which split they hold."""

from pathlib import Path

import pytest

from bertprep.config import GLUE, SQUAD
from bertprep.errors import UsageError
from bertprep.tasks.splits import find_splits


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("test.tsv", "dev.tsv", "dev_ids.tsv", "train.tsv", "notes.txt", "trainer.tsv"):
        (tmp_path / name).write_text("x\n")
    return tmp_path


def test_a_folder_gives_the_published_file_of_each_split_in_order(folder: Path) -> None:
    published = [folder / f"{name}.tsv" for name in ("train", "dev", "test")]
    assert find_splits(GLUE, [folder], published) == dict(zip(("training", "dev", "submission"), published, strict=True))


def test_without_a_name_that_is_published_two_files_of_a_split_are_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"dev_ids\.tsv: is the dev split, and so is .*dev\.tsv; give one file for each split"):
        find_splits(GLUE, [folder], [])


def test_what_names_no_split_is_refused(folder: Path) -> None:
    for inputs, message in (
        ([folder / "trainer.tsv"], r"trainer\.tsv: its name does not show which split it is; the name must begin with train, "),
        ([folder / "missing.tsv"], r"missing\.tsv: does not exist"),
    ):
        with pytest.raises(UsageError, match=message):
            find_splits(GLUE, inputs, [])
    with pytest.raises(UsageError, match=r"has no \.jsonl or \.json or \.parquet file whose name shows which split it is"):
        find_splits(SQUAD, [folder], [])
    with pytest.raises(UsageError, match=r"absent\.json: does not exist; fetch it with bertprep download squad, or name files"):
        find_splits(SQUAD, [], [folder / "absent.json"])
