"""Records for a run: the newest of a workspace, or those of named folders; test_refusals.py has what does not go together."""

import math
import os
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

import bertprep
from bertprep.config import RECORD_FORMATS
from bertprep.records import PretrainingExamples
from bertprep.records import open as open_records
from bertprep.records.write import write_examples
from bertprep.work.layout import LEDGER, MANIFEST, VOCABULARY, Workspace
from tests.records.columns import column_examples
from tests.trainer.numpy_engine import plan
from tests.trainer.small_data import opened, write_data, write_in_workspace
from trainer.data import ExampleSettings, open_data
from trainer.tasks.pretraining import PretrainOptions


def test_the_newest_records_of_the_length_are_found(tmp_path: Path) -> None:
    write_in_workspace(tmp_path, "old", time=1)
    newest = write_in_workspace(tmp_path, "new", time=3, record_format="ofrecord", records=30)
    write_in_workspace(tmp_path, "older", time=2)
    write_in_workspace(tmp_path, "of another length", time=9, seq=16)
    unfinished = write_in_workspace(tmp_path, "unfinished", time=10)
    (unfinished / MANIFEST).unlink()
    (unfinished / LEDGER).mkdir()
    data = opened(workdir=tmp_path, seq=8)
    assert data.folders == (newest,)
    assert (data.records.formats, data.records.seq, data.records.pred, len(data.records)) == (["ofrecord"], 8, 2, 30)
    assert (data.vocabulary, data.vocabulary_size, data.cased) == (newest / VOCABULARY, 10, False)
    assert f"{newest} (the newest of 3 in {tmp_path}; --data DIR" in data.describe()
    assert opened(workdir=tmp_path, seq=8, format="tfrecord").records.formats == ["tfrecord"]


@pytest.mark.parametrize("newest", RECORD_FORMATS)
def test_of_formats_made_in_one_go_it_is_always_the_same(tmp_path: Path, newest: str) -> None:
    source = tmp_path / "source.tfrecord"
    write_examples([column_examples(PretrainingExamples, 3, seq=8)], {"tfrecord": source})
    for name in RECORD_FORMATS:
        folder = Workspace(tmp_path / "workdir").records(name, "made", "corpus")
        bertprep.convert(source, folder, to=name, shards=1, workers=1)
        time = 2 + (name == newest)
        os.utime(folder / MANIFEST, (time, time))
    assert opened(workdir=tmp_path / "workdir", seq=8).records.formats == ["ofrecord"]


def test_named_folders_are_mixed(tmp_path: Path) -> None:
    first = write_data(tmp_path / "a", records=5, has_manifest=False, tokens=None)
    second = write_data(tmp_path / "b", records=7, record_format="ofrecord", has_test=False, cased=True)
    data = opened(first, second / "training")
    assert (data.folders, len(data.records)) == ((first, second), 12)
    assert data.test is not None
    assert len(data.test) == len(opened(first).test)
    assert (data.vocabulary, data.vocabulary_size, data.cased) == (second / VOCABULARY, 10, True)
    assert (
        data.describe() == f"{first} and 1 more: 12 training records of 8/2, ofrecord and tfrecord, no test split in {second}"
    )


def test_a_folder_of_files_alone_is_training_data(tmp_path: Path) -> None:
    write_data(tmp_path, has_manifest=False, has_test=False)
    (tmp_path / "training").rename(tmp_path / "files")
    data = opened(tmp_path / "files", vocab=tmp_path / VOCABULARY)
    assert (len(data.records), data.test, data.vocabulary_size, data.cased) == (20, None, 10, None)
    assert data.describe() == f"{tmp_path / 'files'}: 20 training records of 8/2, tfrecord, no test split"


def test_a_manifest_has_the_size_of_a_vocabulary_that_is_gone(tmp_path: Path) -> None:
    (write_data(tmp_path / "a") / VOCABULARY).unlink()
    data = opened(tmp_path / "a")
    assert (data.vocabulary, data.vocabulary_size) == (None, 10)


def test_the_loss_of_guessing_by_frequency_is_the_entropy_of_the_labels(tmp_path: Path) -> None:
    """Of the records that are good: a run may skip the others."""
    folder = write_data(tmp_path, records=300)
    run = plan(f"--workdir {tmp_path} --data {folder} --model tiny --steps 20")
    (path,) = (folder / "training").glob("*.tfrecord")
    with open_records(path) as file:
        examples = file[0 : len(file)]

    def expected(good: int) -> object:
        labels = examples.masked_lm_ids[:good][examples.masked_lm_weights[:good] > 0].tolist()
        return pytest.approx(-sum(count / len(labels) * math.log(count / len(labels)) for count in Counter(labels).values()))

    def found() -> dict[str, float]:
        with ExitStack() as files:
            data = open_data(PretrainOptions(data=(folder,)), ExampleSettings(), files)
            return replace(run, data=data).guessed_losses()

    assert found() == {"masked_lm_loss": expected(300)}
    content = bytearray(path.read_bytes())
    content[-20] ^= 255  # in the last record
    path.write_bytes(content)
    assert found() == {"masked_lm_loss": expected(299)}
    assert found()["masked_lm_loss"] != expected(300)


@pytest.mark.parametrize(
    ("steps", "every"), [(20, 1), (79, 1), (80, 2), (200, 5), (800, 20), (3999, 50), (4000, 100), (10**6, 100)]
)
def test_short_runs_log_more_often(tmp_path: Path, steps: int, every: int) -> None:
    folder = write_data(tmp_path)
    run = plan(f"--workdir {tmp_path} --data {folder} --model tiny --steps {steps}")
    assert run.log_every == every
    assert replace(run, options=replace(run.options, log_every=7)).log_every == 7
