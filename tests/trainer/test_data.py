"""Records for a run: the newest of a workspace, or those of named folders; what does not go together is refused in one line."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bertprep
from bertprep.config import RECORD_FORMATS
from bertprep.errors import BertprepError, UsageError
from bertprep.instances import load_vocabulary
from bertprep.records import PretrainingExamples
from bertprep.records.convert import write_examples
from bertprep.workspace.layout import MANIFEST, VOCABULARY, Workspace, record_file_name
from bertprep.workspace.manifest import JOURNAL_SUFFIX, RECORDS, Manifest
from tests.records.columns import column_examples
from tests.records.handmade import Dialect, file_of, random_record
from trainer.data import check_fits_model, check_same_vocabulary, find_data, name_data
from trainer.model_config import ModelConfig

TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "e")


def write_data(
    folder: Path,
    *,
    seq: int = 8,
    pred: int = 2,
    records: int = 20,
    record_format: str = "tfrecord",
    tokens: tuple[str, ...] | None = TOKENS,
    cased: bool = False,
    has_manifest: bool = True,
    has_test: bool = True,
) -> Path:
    """Records as bertprep leaves them, or another tool (without a manifest, or tokens); returns the folder."""
    rng = random.Random(0)
    made_with: dict[str, Any] = {"seq": seq, "pred": pred, "cased": cased}
    files: dict[str, dict[str, Any]] = {}
    for split, number in (("training", records), ("test", 3)) if has_test else (("training", records),):
        path = folder / split / record_file_name(record_format, "corpus", split, 0)
        path.parent.mkdir(parents=True)
        shard = [random_record(rng, seq, pred, most=9) for _ in range(number)]
        path.write_bytes(file_of(*shard, dialect=Dialect(record_format)))
        files[f"{split}/{path.name}"] = {"bytes": path.stat().st_size, "sha256": "0" * 64, "examples": number}
    if tokens:
        (folder / VOCABULARY).write_text("\n".join(tokens) + "\n")
        made_with["vocabulary"] = {"tokens": len(tokens), "sha256": load_vocabulary(folder / VOCABULARY).sha256}
    if has_manifest:
        (folder / MANIFEST).write_text(json.dumps(Manifest(RECORDS, made_with, files).as_json()))
    return folder


def write_in_workspace(workdir: Path, name: str, *, time: int, record_format: str = "tfrecord", **more: Any) -> Path:
    """Records of a workspace, finished at a time."""
    folder = write_data(Workspace(workdir).records(record_format, name, "corpus"), record_format=record_format, **more)
    os.utime(folder / MANIFEST, (time, time))
    return folder


def test_pad_may_be_any_token(tmp_path: Path) -> None:
    folder = write_data(tmp_path / "records", tokens=(*TOKENS[1:5], "[PAD]", *TOKENS[5:]))
    assert name_data([folder]).vocabulary_size == 10


def test_the_newest_records_of_the_length_are_found(tmp_path: Path) -> None:
    write_in_workspace(tmp_path, "old", time=1)
    newest = write_in_workspace(tmp_path, "new", time=3, record_format="ofrecord", records=30)
    write_in_workspace(tmp_path, "older", time=2)
    write_in_workspace(tmp_path, "of another length", time=9, seq=16)
    data = find_data(tmp_path, 8)
    assert data.folders == (newest,)
    assert (data.format, data.seq, data.pred, data.records, data.has_test) == ("ofrecord", 8, 2, 30, True)
    assert (data.vocabulary, data.vocabulary_size, data.cased) == (newest / VOCABULARY, 10, False)
    assert data.describe() == f"{newest} (the newest of 3 of 8 tokens in {tmp_path}): 30 training records of 8/2, ofrecord"


def test_the_format_asked_for_is_found_though_the_other_is_newer(tmp_path: Path) -> None:
    tfrecords = write_in_workspace(tmp_path, "made", time=1)
    write_in_workspace(tmp_path, "made", time=2, record_format="ofrecord")
    assert find_data(tmp_path, 8, "tfrecord").folders == (tfrecords,)


@pytest.mark.parametrize("newest", RECORD_FORMATS)
def test_of_formats_made_in_one_go_it_is_always_the_same(tmp_path: Path, newest: str) -> None:
    source = tmp_path / "source.tfrecord"
    write_examples([column_examples(PretrainingExamples, 3, seq=8)], source, "tfrecord")
    for name in RECORD_FORMATS:
        folder = Workspace(tmp_path / "workdir").records(name, "made", "corpus")
        bertprep.convert(source, folder, to=name, shards=1, workers=1)
        time = 2 + (name == newest)
        os.utime(folder / MANIFEST, (time, time))
    assert find_data(tmp_path / "workdir", 8).format == "ofrecord"


def test_records_that_are_not_finished_are_passed_over(tmp_path: Path) -> None:
    finished = write_in_workspace(tmp_path, "finished", time=1)
    in_work = write_in_workspace(tmp_path, "in work", time=2)
    (in_work / (MANIFEST + JOURNAL_SUFFIX)).touch()
    assert find_data(tmp_path, 8).folders == (finished,)


def test_a_workspace_without_finished_records_says_which_are_not(tmp_path: Path) -> None:
    in_work = write_in_workspace(tmp_path, "in work", time=1)
    (in_work / MANIFEST).rename(in_work / (MANIFEST + JOURNAL_SUFFIX))
    with pytest.raises(UsageError, match=rf"{in_work} is not finished; run bertprep create again, it resumes"):
        find_data(tmp_path, 8)


def test_unfinished_records_of_another_length_are_not_blamed(tmp_path: Path) -> None:
    write_in_workspace(tmp_path, "finished", time=1)
    for name in ("lower_case_1_seq_len_512_", "lower_case_1_seq_len_128_"):
        begun = write_in_workspace(tmp_path, name, time=2, seq=16)
        (begun / MANIFEST).rename(begun / (MANIFEST + JOURNAL_SUFFIX))
    with pytest.raises(
        UsageError, match=r"has no records of --seq 32, but has records of 8 tokens: give --seq 8; bertprep create"
    ):
        find_data(tmp_path, 32)
    with pytest.raises(
        UsageError, match=rf"no finished records of --seq 128, but .* give --seq 8; {begun} is not finished; run"
    ):
        find_data(tmp_path, 128)


def test_a_workspace_without_records_says_what_makes_them(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no records of --seq 128; bertprep create --seq 128 --workdir .* makes them"):
        find_data(tmp_path)
    write_in_workspace(tmp_path, "long", time=1, seq=16)
    write_in_workspace(tmp_path, "short", time=1, seq=8)
    with pytest.raises(
        UsageError, match="no records of --seq 128, but has records of 8, 16 tokens: give --seq 16; bertprep create"
    ):
        find_data(tmp_path, 128)
    with pytest.raises(UsageError, match="of --seq 8 and --format ofrecord; bertprep create --seq 8 --format ofrecord"):
        find_data(tmp_path, 8, "ofrecord")


def test_named_folders_are_mixed(tmp_path: Path) -> None:
    first = write_data(tmp_path / "a", records=5, has_manifest=False, tokens=None)
    second = write_data(tmp_path / "b", records=7, record_format="ofrecord", has_test=False, cased=True)
    data = name_data([first, second / "training"])
    assert data.folders == (first, second)
    assert (data.format, data.seq, data.records, data.has_test) == ("ofrecord and tfrecord", 8, 12, False)
    assert (data.vocabulary, data.vocabulary_size, data.cased) == (second / VOCABULARY, 10, True)
    assert data.describe() == f"{first} and 1 more: 12 training records of 8/2, ofrecord and tfrecord, no test split"


def test_a_folder_of_files_alone_is_training_data(tmp_path: Path) -> None:
    write_data(tmp_path, has_manifest=False, has_test=False)
    (tmp_path / "training").rename(tmp_path / "files")
    data = name_data([tmp_path / "files"], vocabulary=tmp_path / VOCABULARY)
    assert (data.records, data.has_test, data.vocabulary_size, data.cased) == (20, False, 10, None)


def test_a_manifest_tells_the_size_of_a_vocabulary_that_is_gone(tmp_path: Path) -> None:
    write_data(tmp_path / "a")
    (tmp_path / "a" / VOCABULARY).unlink()
    data = name_data([tmp_path / "a"])
    assert (data.vocabulary, data.vocabulary_size) == (None, 10)


@pytest.mark.parametrize(
    ("other", "asked", "message"),
    [
        ({}, {"seq": 16}, "a: has records of 8 tokens, asked for is --seq 16; .* bertprep create --seq 16"),
        ({"seq": 16}, {}, "b: has records of 16 tokens, asked for is 8, as .*a has; "),
        ({"pred": 3}, {}, "b: has 3 predictions a record, .*a has 2; "),
        (
            {"record_format": "ofrecord"},
            {"record_format": "tfrecord"},
            "b: holds ofrecord files, asked for is --format tfrecord; ",
        ),
        ({"tokens": (*TOKENS, "f")}, {}, "b: was made with a vocabulary of sha256 .*, .*a with one of .*; a model has one"),
        ({"cased": True}, {}, "b: is cased, .*a is uncased; a model has one vocabulary"),
    ],
)
def test_what_does_not_go_together_is_refused(
    other: dict[str, Any], asked: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folders = [write_data(tmp_path / "a"), write_data(tmp_path / "b", **other)]
    with pytest.raises(UsageError, match=message):
        name_data(folders, asked.get("seq"), asked.get("record_format"))


def test_phases_have_one_vocabulary(tmp_path: Path) -> None:
    phases = [
        name_data([write_data(tmp_path / "a")]),
        name_data([write_data(tmp_path / "unknown", tokens=None, has_manifest=False)]),
        name_data([write_data(tmp_path / "b", seq=16)]),
    ]
    check_same_vocabulary(phases)
    other = name_data([write_data(tmp_path / "c", seq=16, tokens=(*TOKENS, "f"))])
    with pytest.raises(UsageError, match=r"c: was made with a vocabulary of sha256 .*, .*/a with one of "):
        check_same_vocabulary([*phases, other])


@pytest.mark.parametrize("is_given", [True, False])
def test_a_vocabulary_that_the_records_were_not_made_with(is_given: bool, tmp_path: Path) -> None:
    write_data(tmp_path / "a")
    wrong = tmp_path / "other.txt" if is_given else tmp_path / "a" / VOCABULARY
    wrong.write_text("\n".join(TOKENS[:-1]) + "\n")
    with pytest.raises(BertprepError, match=rf"{wrong}: is not the vocabulary that the records were made with: sha256"):
        name_data([tmp_path / "a"], vocabulary=wrong if is_given else None)


def test_folders_that_are_no_data(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="missing: does not exist"):
        name_data([tmp_path / "missing"])
    with pytest.raises(UsageError, match="holds no record files"):
        name_data([tmp_path])
    write_data(tmp_path / "a")
    (tmp_path / "a" / (MANIFEST + JOURNAL_SUFFIX)).touch()
    with pytest.raises(BertprepError, match="a: is not finished; run the command that makes it again"):
        name_data([tmp_path / "a"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_position_embeddings": 7}, "has records of 8 tokens, the model mine has max_position_embeddings 7; "),
        ({"vocab_size": 11}, "was made with a vocabulary of 10 tokens, the model mine has vocab_size 11; "),
    ],
)
def test_a_model_that_the_data_do_not_fit(
    change: dict[str, int], message: str, tmp_path: Path, config_of: Callable[..., ModelConfig]
) -> None:
    data = name_data([write_data(tmp_path / "a")])
    check_fits_model(data, config_of(), "mine")
    with pytest.raises(UsageError, match=message):
        check_fits_model(data, config_of(**change), "mine")


@pytest.fixture
def config_of() -> Callable[..., ModelConfig]:
    """A model that just fits, but for what is changed."""

    def build(**changes: int) -> ModelConfig:
        return ModelConfig(**{"vocab_size": 10, "max_position_embeddings": 8, **changes})  # type: ignore[arg-type]

    return build
