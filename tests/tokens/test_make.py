"""A job is made of values, without a command: texts, a vocabulary, settings and folders."""

import pickle
from pathlib import Path

import pytest

import bertprep
from bertprep.config import DEFAULT_VARIANT, InstanceSettings, RecordFormat
from bertprep.errors import BertprepError
from bertprep.instances import load_vocabulary
from bertprep.tokens.make import Texts, TextShard, record_job, token_job
from bertprep.work.parts import FINISH
from tests.corpora import deal, sums
from tests.golden import GOLDEN

SETTINGS = InstanceSettings(seq=32, pred=5, dupe=1)


@pytest.fixture
def texts(golden_corpus: Path, tmp_path: Path) -> Texts:
    paths = deal(golden_corpus, tmp_path / "text", 3)
    return Texts("corpus", [TextShard(path, "training", number) for number, path in enumerate(paths)], {"shards": 3})


def test_a_job_of_records_makes_what_create_makes(texts: Texts, tmp_path: Path) -> None:
    vocabulary = load_vocabulary(GOLDEN / "vocab.txt")
    folders = {name: tmp_path / "job" / name for name in (RecordFormat.TFRECORD, RecordFormat.PARQUET)}
    made = record_job(texts, vocabulary, SETTINGS, DEFAULT_VARIANT, folders).run()
    paths = [shard.path for shard in texts.shards]
    how = {"vocab": vocabulary.path, "formats": [*folders], "lines_are_sentences": True, "workers": 1}
    bertprep.create(inputs=paths, output=tmp_path / "create", **vars(SETTINGS), **how)  # type: ignore[arg-type]
    assert sums(tmp_path / "job") == sums(tmp_path / "create")
    assert (made.made, made.kept, made.is_complete, [*made.folders]) == (3, 0, True, ["tfrecord", "parquet"])


def test_a_job_of_tokens_is_taken_by_one_of_records(texts: Texts, tmp_path: Path) -> None:
    vocabulary = load_vocabulary(GOLDEN / "vocab.txt")
    made = token_job(texts, vocabulary, tmp_path / "tokens", cased=False).run(workers=2)
    assert sorted(made.manifest.files) == sorted(
        f"corpus_training_0000{number}.{end}" for number in range(3) for end in ("bin", "idx")
    )
    assert made.rows()[1][:3] == ("tokens", "training", "3")


def test_a_task_travels_to_another_process(texts: Texts, tmp_path: Path) -> None:
    folders = {RecordFormat.TFRECORD: tmp_path / "out"}
    job = record_job(texts, load_vocabulary(GOLDEN / "vocab.txt"), SETTINGS, DEFAULT_VARIANT, folders)
    job.maker.prepare()
    maker, task = pickle.loads(pickle.dumps((job.maker, job.tasks[1])))
    entries = maker.make(task.argument, {"tfrecord": tmp_path / "a.tfrecord"})
    assert entries["tfrecord"]["seed"] == SETTINGS.seed + 1


def test_finished_records_of_a_text_that_has_changed_are_refused(texts: Texts, tmp_path: Path) -> None:
    job = record_job(
        texts, load_vocabulary(GOLDEN / "vocab.txt"), SETTINGS, DEFAULT_VARIANT, {RecordFormat.TFRECORD: tmp_path / "out"}
    )
    job.run()
    texts.shards[0].path.write_text("Another text.\n")
    for part in (None, FINISH):
        with pytest.raises(BertprepError, match=r"has changed since: .* choose another --output"):
            job.run(part)
