"""A conversion is a job of values: a data set, its identified files, a folder, and what the records become."""

from pathlib import Path

import numpy as np
import pytest

import bertprep
from bertprep.config import RecordFormat, Variant
from bertprep.errors import BertprepError, UsageError
from bertprep.instances.vocabulary import load_vocabulary_of
from bertprep.records.convert import Conversion, conversion_job, convert_file
from bertprep.records.identify import identify, identify_all
from bertprep.work.choose import find_records
from bertprep.work.data_set import DataSet
from tests.corpora import deal, sums
from tests.golden import GOLDEN


@pytest.fixture(scope="module")
def records(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> DataSet:
    folder = tmp_path_factory.mktemp("records")
    how = {"vocab": GOLDEN / "vocab.txt", "formats": "tfrecord", "lines_are_sentences": True, "workers": 1}
    inputs = deal(golden_corpus, folder / "text", 3)
    made = bertprep.create(inputs=inputs, output=folder, seq=32, pred=5, dupe=1, **how)  # type: ignore[arg-type]
    return find_records(made.folder)


def test_a_job_makes_what_convert_makes(records: DataSet, tmp_path: Path) -> None:
    files = identify_all(records, workers=2)
    assert [file.name for file in files] == list(records.files)
    made = conversion_job(records, files, tmp_path / "job", Conversion(RecordFormat.OFRECORD, shards=2)).run()
    bertprep.convert(records.folder, tmp_path / "command", to="ofrecord", shards=2, workers=1)
    assert sums(tmp_path / "job") == sums(tmp_path / "command")
    assert sum(entry["examples"] for entry in made.manifest.files.values()) == sum(file.records for file in files)
    assert made.manifest.made_with["converted_from"] == {file.name: file.blake3 for file in files}
    assert made.manifest.made_with["converted_to"] == {"format": "ofrecord", "shards": 2}


def test_a_variant_replaces_that_of_the_source(records: DataSet, tmp_path: Path) -> None:
    files, variant = identify_all(records), Variant(feature_names="tf2", compress="gzip")
    first = conversion_job(records, files, tmp_path / "a", Conversion(RecordFormat.TFRECORD, variant)).run()
    assert first.manifest.made_with["feature_names"] == "tf2"
    back = find_records(tmp_path / "a")
    plain = conversion_job(back, identify_all(back), tmp_path / "b", Conversion(RecordFormat.TFRECORD)).run()
    assert not {"feature_names", "compress"} & plain.manifest.made_with.keys()
    assert [entry["blake3"] for entry in plain.manifest.files.values()] == [file.blake3 for file in files]


def test_a_wrong_vocabulary_is_replaced_by_the_command_that_made_the_records(golden_corpus: Path, tmp_path: Path) -> None:
    """As the errors of this module and of `load_vocabulary_of` advise."""
    text = deal(golden_corpus, tmp_path / "text", 1)
    how = {"vocab": GOLDEN / "vocab.txt", "formats": "tfrecord", "lines_are_sentences": True, "workers": 1}
    folder = bertprep.create(inputs=text, output=tmp_path, seq=32, dupe=1, **how).folder  # type: ignore[arg-type]
    right = (folder / "vocab.txt").read_bytes()
    (folder / "vocab.txt").write_bytes(b"".join(reversed(right.splitlines(keepends=True))))
    advice = "copy the right one over it, or run the command that made the [a-z]+ again, which writes it$"
    with pytest.raises(BertprepError, match=rf"vocab.txt: is not the vocabulary that the records were made with: .*; {advice}"):
        identify_all(find_records(folder))
    with pytest.raises(BertprepError, match=rf"vocab.txt: is not the vocabulary that .* was made with: .*; {advice}"):
        load_vocabulary_of(find_records(folder))
    bertprep.create(inputs=text, output=tmp_path, seq=32, dupe=1, **how)  # type: ignore[arg-type]
    assert (folder / "vocab.txt").read_bytes() == right


def test_one_file_becomes_one_file_and_replaces_no_other(records: DataSet, tmp_path: Path) -> None:
    source = identify(records.folder / next(iter(records.files)))
    target = tmp_path / "part-0"
    entry = convert_file(records, source, target, Conversion(RecordFormat.OFRECORD))
    assert entry["examples"] == source.records
    assert convert_file(records, source, target, Conversion(RecordFormat.OFRECORD)) == entry
    before = target.read_bytes()
    with pytest.raises(UsageError, match=r"part-0: exists with other content than this conversion's; name another file"):
        convert_file(records, source, target, Conversion(RecordFormat.OFRECORD, pick=3))
    assert target.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["part-0"]


def test_picked_records_are_those_of_all_files_together(records: DataSet, tmp_path: Path) -> None:
    files = identify_all(records)
    conversion_job(records, files, tmp_path, Conversion(RecordFormat.TFRECORD, pick=10)).run()
    with bertprep.records.Records([records.folder]) as everything, bertprep.records.Records([tmp_path]) as picked:
        wanted = (np.arange(10) * (len(everything) / 10)).astype(int)
        assert np.array_equal(picked[0:10].input_ids, everything[wanted].input_ids)


def test_a_source_that_has_changed_is_refused(records: DataSet, tmp_path: Path) -> None:
    files = identify_all(records)
    conversion_job(records, files, tmp_path, Conversion(RecordFormat.OFRECORD)).run()
    with pytest.raises(BertprepError, match=r"was made without --shards, but this run has --shards 2; choose another target"):
        conversion_job(records, files, tmp_path, Conversion(RecordFormat.OFRECORD, shards=2)).run()
