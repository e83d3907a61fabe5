"""Records of every kind, written and read back in both formats; a file tells its kind by its features."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bertprep
from bertprep import records
from bertprep.errors import BertprepError
from bertprep.records import (
    KINDS,
    ClassificationExamples,
    Examples,
    MaskedExamples,
    PretrainingExamples,
    RegressionExamples,
    SquadEvalExamples,
    SquadExamples,
)
from bertprep.records.reader import MIN_RECORD_BYTES
from bertprep.records.record_set import BadRecordError, RecordSet
from bertprep.records.write import write_examples
from tests.records.handmade import FIRST, Dialect, field, float_list, frame, message, number_list
from tests.records.task_records import LABELS, TASK_KINDS, TOKENS, task_examples

FORMATS = ("tfrecord", "ofrecord")
OTHER = {"tfrecord": "ofrecord", "ofrecord": "tfrecord"}
by_title = pytest.mark.parametrize("kind", TASK_KINDS, ids=[kind.title for kind in TASK_KINDS])


def assert_same(found: Examples, expected: Examples) -> None:
    assert type(found) is type(expected)
    for feature, mine, other in zip(found.features, found.arrays, expected.arrays, strict=True):
        np.testing.assert_array_equal(mine.view(np.int32), other.view(np.int32), feature.name)


def plain_message(examples: Examples, row: int, record_format: str, *, without: str = "", repeat: str = "") -> bytes:
    """A record byte by byte, in the order of the kind's features."""
    entries = b""
    for feature, array in zip(examples.features, examples.arrays, strict=True):
        values = np.atleast_1d(array[row]).tolist()
        if feature.dtype == np.float32:
            of_type = field(2, float_list(values))
        else:
            of_type = field(3 if record_format == "tfrecord" else 4, number_list(values))
        times = 1 + (feature.name == repeat) - (feature.name == without)
        entries += field(1, field(1, feature.name.encode()) + field(2, of_type)) * times
    return field(1, entries) if record_format == "tfrecord" else entries


@by_title
@pytest.mark.parametrize("record_format", FORMATS)
def test_the_bytes_are_those_of_the_formats(tmp_path: Path, kind: type[Examples], record_format: str) -> None:
    examples = task_examples(kind, 30)
    written = write_examples([examples[:7], examples[7:]], {record_format: tmp_path / "part-0"})[record_format]
    expected = b"".join(frame(plain_message(examples, row, record_format), record_format) for row in range(30))
    assert (tmp_path / "part-0").read_bytes() == expected
    assert (written.records, written.bytes) == (30, len(expected))


@pytest.mark.parametrize("kind", KINDS, ids=[kind.title for kind in KINDS])
@settings(max_examples=30, deadline=None)
@given(
    seq=st.integers(1, 200),
    pred=st.integers(1, 30),
    most=st.sampled_from([1, 127, 128, 2**21, 2**31 - 1]),
    seed=st.integers(0, 99),
)
def test_any_values_come_back(
    tmp_path_factory: pytest.TempPathFactory, kind: type[Examples], seq: int, pred: int, most: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    examples = kind.empty(9, seq=seq, pred=pred)
    for array in examples.arrays:
        values = rng.integers(0, most, array.shape, endpoint=True)
        array[...] = values if array.dtype == np.int32 else -values / 3
    folder = tmp_path_factory.mktemp("records")
    for name in FORMATS:
        write_examples([examples], {name: folder / name})
        with records.open(folder / name) as file:
            assert (file.kind, file.seq, file.pred, len(file)) == (
                kind,
                seq,
                pred if issubclass(kind, MaskedExamples) else 0,
                9,
            )
            assert_same(file[:], examples)
            assert_same(file[[4, 0]], kind(*(array[[4, 0]] for array in examples.arrays)))
    for name in FORMATS:
        bertprep.convert(folder / name, folder / f"other-{name}", to=OTHER[name])
        assert (folder / f"other-{name}").read_bytes() == (folder / OTHER[name]).read_bytes()


def test_features_of_another_kind_are_passed_over(tmp_path: Path) -> None:
    """A record with all of ours and more is what it has most features of."""
    extra = {**FIRST, "unique_ids": [7], "label_ids": [1], "is_real_example": [1]}
    for name in FORMATS:
        path = tmp_path / name
        path.write_bytes(frame(message(extra, Dialect(name)), name))
        with records.open(path) as file:
            assert file.kind is PretrainingExamples
            assert file[:].input_ids.tolist() == [list(FIRST["input_ids"])]


@pytest.mark.parametrize(
    ("kind", "without", "words"),
    [
        (SquadExamples, "end_positions", "feature end_positions is missing; give a file of SQuAD records"),
        (SquadEvalExamples, "input_mask", "feature input_mask is missing; give a file of SQuAD records"),
        (SquadEvalExamples, "unique_ids", "feature masked_lm_positions is missing; give a file of BERT pretraining records"),
        (
            ClassificationExamples,
            "is_real_example",
            "feature is_real_example is missing; give a file of classification records",
        ),
        (RegressionExamples, "segment_ids", "feature segment_ids is missing; give a file of regression records"),
    ],
)
@pytest.mark.parametrize("record_format", FORMATS)
def test_a_missing_feature_is_named(tmp_path: Path, kind: type[Examples], without: str, words: str, record_format: str) -> None:
    path = tmp_path / "part-0"
    path.write_bytes(frame(plain_message(task_examples(kind, 1), 0, record_format, without=without), record_format))
    with pytest.raises(BertprepError) as caught:
        records.open(path)
    assert str(caught.value) == f"{path}: record 0: {words}"


def test_labels_of_another_type_are_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "part-0"
    first, second = task_examples(ClassificationExamples, 1), task_examples(RegressionExamples, 1)
    path.write_bytes(b"".join(frame(plain_message(each, 0, "tfrecord"), "tfrecord") for each in (first, second)))
    with (
        records.open(path) as file,
        pytest.raises(
            BertprepError, match="record 1: feature label_ids should be int64_list, it is a float_list; give a file of cl"
        ),
    ):
        file.gather_into(ClassificationExamples.empty(2, seq=16), range(2))


def write_folder(folder: Path, kind: type[Examples], sizes: tuple[int, ...] = (5, 9), split: str = "training") -> Examples:
    """A data set of these files; returns all examples."""
    examples = task_examples(kind, sum(sizes))
    start = 0
    for number, size in enumerate(sizes):
        (folder / split).mkdir(parents=True, exist_ok=True)
        write_examples([examples[start : start + size]], {FORMATS[number % 2]: folder / split / f"part-{number}"})
        start += size
    return examples


def test_a_set_is_of_one_kind(tmp_path: Path) -> None:
    write_folder(tmp_path / "a", SquadExamples)
    write_folder(tmp_path / "b", ClassificationExamples)
    a, b = (tmp_path / name / "training" / "part-0" for name in "ab")
    with pytest.raises(BertprepError) as caught:
        RecordSet([tmp_path / "a"], kind=PretrainingExamples)
    assert str(caught.value) == f"{a}: has SQuAD records, expected pretraining records; name the data of this task"
    with pytest.raises(BertprepError) as caught:
        RecordSet([tmp_path / "a", tmp_path / "b"])
    assert str(caught.value).startswith(f"{b}: has classification records, expected SQuAD records as {a} has; ")


@pytest.mark.parametrize(
    ("kind", "name", "value", "words"),
    [
        (SquadExamples, "input_ids", TOKENS, "0 to 39; train with the vocabulary"),
        (SquadExamples, "input_mask", 2, "0 to 1"),
        (SquadExamples, "start_positions", 16, "0 to 15"),
        (SquadExamples, "end_positions", 16, "0 to 15"),
        (SquadExamples, "is_impossible", 2, "0 to 1"),
        (SquadEvalExamples, "segment_ids", 2, "0 to 1"),
        (ClassificationExamples, "label_ids", LABELS, "0 to 2; train the task that the data was made for"),
        (ClassificationExamples, "is_real_example", 2, "0 to 1"),
        (RegressionExamples, "label_ids", np.inf, "a finite one of 0 or more"),
    ],
)
def test_values_are_held_against_the_model(tmp_path: Path, kind: type[Examples], name: str, value: Any, words: str) -> None:
    examples = task_examples(kind, 6)
    getattr(examples, name)[4] = value
    path = tmp_path / "training" / "part-0"
    path.parent.mkdir()
    write_examples([examples], {"tfrecord": path})
    room = kind.empty(6, seq=16)
    with RecordSet([tmp_path], vocab_size=TOKENS, labels=LABELS) as found:
        with pytest.raises(BadRecordError) as caught:
            found.gather_into(room, np.arange(6))
        assert str(caught.value).startswith(f"{path}: record 4: feature {name} has the value ")
        assert words in str(caught.value)
        found.gather_into(room, np.arange(4))


@by_title
def test_examples_are_sent_to_another_process(kind: type[Examples]) -> None:
    examples = task_examples(kind, 3)
    assert examples.addresses[0] == len(kind.features)
    assert_same(pickle.loads(pickle.dumps(examples)), examples)


@pytest.mark.parametrize("kind", KINDS, ids=[kind.title for kind in KINDS])
def test_no_record_is_smaller_than_the_smallest(kind: type[Examples]) -> None:
    examples = kind(*(np.zeros_like(array) for array in kind.empty(1, seq=1, pred=1).arrays))
    assert len(frame(plain_message(examples, 0, "ofrecord"), "ofrecord")) >= MIN_RECORD_BYTES
