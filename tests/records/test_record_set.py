"""Data folders are one sequence of records, whose places are found once and kept next to them."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from bertprep.records import (
    ClassificationExamples,
    Examples,
    PretrainingExamples,
    RegressionExamples,
    SquadEvalExamples,
    SquadExamples,
    record_set,
)
from bertprep.records.file_bytes import masked_checksum
from bertprep.records.record_index import INDEX
from bertprep.records.record_set import BadRecordError, RecordSet
from bertprep.records.write import write_examples
from tests.records.columns import assert_same, column_examples, rows_of
from tests.records.handmade import FIRST, Record, Variant, file_of, random_record
from tests.records.task_records import LABELS, TOKENS, task_examples
from tests.records.test_reader import assert_holds


def write_folder(folder: Path, sizes: tuple[int, ...], record_format: str = "tfrecord", seed: int = 0) -> list[Record]:
    """Write a data set of training files with so many records each; return these."""
    rng = random.Random(seed)
    records = []
    (folder / "training").mkdir(parents=True)
    for number, size in enumerate(sizes):
        shard = [random_record(rng) for _ in range(size)]
        path = folder / "training" / f"part-{number}"
        path.write_bytes(file_of(*shard, variant=Variant(record_format)))
        records += shard
    return records


def gather(records: RecordSet, numbers: Sequence[int] | NDArray[np.int64]) -> PretrainingExamples:
    examples = PretrainingExamples.empty(len(numbers), seq=records.seq, pred=records.pred)
    records.gather_into(examples, np.array(numbers, np.int64))
    return examples


def test_folders_of_any_formats_are_one_sequence(tmp_path: Path) -> None:
    parts = [column_examples(PretrainingExamples, count, seed=count) for count in (30, 1, 12, 7)]
    names = ("a/training/0.arrow", "a/training/1.tfrecord", "b/training/0.parquet", "b/training/1.ofrecord")
    for part, name in zip(parts, names, strict=True):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write_examples([part], {name.rpartition(".")[2]: tmp_path / name})
    whole = PretrainingExamples(*map(np.concatenate, zip(*(part.arrays for part in parts), strict=True)))
    numbers = np.random.default_rng(0).permutation(50)
    kept = []
    for _ in ("found", "from the index"):
        with RecordSet([tmp_path / "a", tmp_path / "b"], vocab_size=30_522, max_open=1) as records:
            assert (len(records), records.formats) == (50, ["arrow", "ofrecord", "parquet", "tfrecord"])
            assert_same(gather(records, numbers), rows_of(whole, numbers))
            assert records.origin_of(44) == (tmp_path / names[3], 1)
        kept.append([(path.stat().st_ino, path.read_bytes()) for path in sorted(tmp_path.rglob(f"{INDEX}*"))])
    assert len(kept[0]) == 2
    assert kept[0] == kept[1]


def test_single_files_and_the_test_split(tmp_path: Path) -> None:
    expected = write_folder(tmp_path / "a", (3, 4))
    (tmp_path / "a" / "test").mkdir()
    (tmp_path / "a" / "test" / "part-0").write_bytes(file_of(FIRST))
    for path, split, found in (
        (tmp_path / "a", "test", [FIRST]),
        (tmp_path / "a/training/part-1", "training", expected[3:]),
        (tmp_path / "a/training", "training", expected),
    ):
        with RecordSet([path], split) as records:
            assert_holds(gather(records, range(len(records))), found)


def test_few_files_are_open_at_a_time(tmp_path: Path) -> None:
    expected = write_folder(tmp_path / "a", (2,) * 20)
    open_before = len(list(Path("/dev/fd").iterdir()))
    rng = np.random.default_rng(0)
    with RecordSet([tmp_path / "a"], max_open=3) as records:
        for _ in range(10):
            numbers = rng.integers(0, 40, 15)
            assert_holds(gather(records, numbers), [expected[number] for number in numbers])
            assert len(list(Path("/dev/fd").iterdir())) <= open_before + 3


def test_gzip_files_are_held_decompressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = write_folder(tmp_path / "a", (3, 4, 5))
    for name in ("part-0", "part-2"):
        path = tmp_path / "a" / "training" / name
        path.write_bytes(gzip.compress(path.read_bytes()))
    with RecordSet([tmp_path / "a"], max_open=1) as records:
        assert_holds(gather(records, [11, 4, 0, 5, 2]), [expected[number] for number in (11, 4, 0, 5, 2)])
    monkeypatch.setattr(record_set, "_MAX_REWRITTEN_BYTES", 1000)
    line = r"part-0: is one of 2 gzip, Parquet or foreign Arrow files of .*; bertprep convert makes files"
    with pytest.raises(BertprepError, match=line):
        RecordSet([tmp_path / "a"])


# --- the index


def edit_index(edit: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        index = folder / f"{INDEX}.training"
        index.write_bytes(edit(index.read_bytes()))

    return change


def forge(edit: Callable[[dict[str, Any], NDArray[np.int64]], object]) -> Callable[[Path], object]:
    """Return a change of what an index says of its last file, under a checksum that is right."""

    def change(content: bytes) -> bytes:
        line, _, rest = content.partition(b"\n")
        header, offsets = json.loads(line), np.frombuffer(rest, np.int64).copy()
        edit(header["files"][-1], offsets)
        header["checksum"] = masked_checksum(offsets.view(np.uint8))
        line = json.dumps(header).encode()
        return line + b" " * (-len(line) % 8 + 7) + b"\n" + offsets.tobytes()

    return edit_index(change)


CHANGES: dict[str, Callable[[Path], object]] = {
    "nothing": Path.exists,
    "nothing, written again": forge(lambda *_: None),
    "size": lambda folder: (path := folder / "training" / "part-1").write_bytes(path.read_bytes() + file_of(FIRST)),
    "time": lambda folder: os.utime(folder / "training" / "part-1", ns=(1, 1)),
    "name": lambda folder: (folder / "training" / "part-1").rename(folder / "training" / "part-2"),
    "a bit": edit_index(lambda data: data[:-1] + b"\1"),
    "a count": edit_index(lambda data: data.replace(b'"records": 3', b'"records": 4')),
    "cut": edit_index(lambda data: data[:-8]),
    "garbage": edit_index(lambda _: b"\0\xff" * 100),
    "version": edit_index(lambda data: data.replace(b'"version": ', b'"version": 1')),
    "more records than offsets": forge(lambda file, _: file.update(records=29)),
    "records below 0": forge(lambda file, _: file.update(records=-1)),
    "an offset beyond the file": forge(lambda _, offsets: np.put(offsets, -3, 10**12)),
    "an offset before the file": forge(lambda _, offsets: np.put(offsets, -3, -(10**12))),
    "an offset before the one before it": forge(lambda _, offsets: np.put(offsets, -3, 0)),
    "more tokens than any record has": forge(lambda file, _: file.update(seq=10**12)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_an_index_is_kept_until_it_is_not_that_of_the_files(tmp_path: Path, what: str) -> None:
    expected = write_folder(tmp_path / "a", (3, 4))
    RecordSet([tmp_path / "a"])
    index = tmp_path / "a" / f"{INDEX}.training"
    CHANGES[what](tmp_path / "a")
    before = index.stat().st_ino
    for _ in range(2):
        with RecordSet([tmp_path / "a"]) as records:
            assert len(records) == 7 + (what == "size")
            assert_holds(gather(records, range(7)), expected)
    assert (index.stat().st_ino == before) == what.startswith("nothing")


def test_where_no_index_can_be_kept_the_records_are_found_again(tmp_path: Path) -> None:
    expected = write_folder(tmp_path / "a", (3,))
    (tmp_path / "a" / f"{INDEX}.training").mkdir()  # in whose place no file can be written
    for _ in range(2):
        with RecordSet([tmp_path / "a"]) as records:
            assert_holds(gather(records, [2]), [expected[2]])


def test_a_file_that_changes_under_way_is_noticed_when_it_is_opened(tmp_path: Path) -> None:
    write_folder(tmp_path / "a", (3, 4))
    path = tmp_path / "a" / "training" / "part-1"
    with RecordSet([tmp_path / "a"]) as records:
        path.write_bytes(file_of(FIRST))
        gather(records, [2])
        with pytest.raises(BertprepError, match=f"^{path}: was changed since its records were found; leave the data alone"):
            gather(records, [3])
        path.unlink()
        with pytest.raises(BertprepError, match=f"^{path}: cannot be read: No such file"):
            gather(records, [3])


# --- what is refused


def highest(kind: type[Examples]) -> Examples:
    """Valid examples, those of pretraining with the highest values that a model can take."""
    examples = column_examples(kind, 6) if kind is PretrainingExamples else task_examples(kind, 6)
    if isinstance(examples, PretrainingExamples):
        for array, most in zip(examples.arrays, (TOKENS - 1, 1, 1, 15, TOKENS - 1, 1.0, 1), strict=True):
            array[...] = most
        examples.masked_lm_weights[0] = 0.5, -0.0, 1.0
    return examples


@pytest.mark.parametrize("record_format", ["tfrecord", "ofrecord"])
@pytest.mark.parametrize(
    ("kind", "feature", "value", "words"),
    [
        (PretrainingExamples, "input_ids", TOKENS, "40, expected 0 to 39; train with the vocabulary that the data was made"),
        (PretrainingExamples, "input_mask", 2, "2, expected 0 to 1; make the file again"),
        (PretrainingExamples, "segment_ids", 7, "7, expected 0 to 1; make the file again"),
        (PretrainingExamples, "masked_lm_positions", 16, "16, expected 0 to 15; make the file again"),
        (PretrainingExamples, "masked_lm_ids", 2**31 - 1, "2,147,483,647, expected 0 to 39; train with the vocabulary"),
        (PretrainingExamples, "masked_lm_weights", -1.0, "-1.0, expected 0 to 1; make the file again"),
        (PretrainingExamples, "masked_lm_weights", np.nan, "nan, expected 0 to 1; make the file again"),
        (PretrainingExamples, "masked_lm_weights", np.inf, "inf, expected 0 to 1; make the file again"),
        (PretrainingExamples, "masked_lm_weights", 1e30, "1e+30, expected 0 to 1; make the file again"),
        (PretrainingExamples, "next_sentence_labels", 2, "2, expected 0 to 1; make the file again"),
        (SquadExamples, "input_ids", TOKENS, "40, expected 0 to 39; train with the vocabulary"),
        (SquadExamples, "start_positions", 16, "16, expected 0 to 15"),
        (SquadExamples, "end_positions", 16, "16, expected 0 to 15"),
        (SquadExamples, "is_impossible", 2, "2, expected 0 to 1"),
        (SquadEvalExamples, "segment_ids", 2, "2, expected 0 to 1"),
        (ClassificationExamples, "label_ids", LABELS, "3, expected 0 to 2; train the task that the data was made for"),
        (ClassificationExamples, "is_real_example", 2, "2, expected 0 to 1"),
        (RegressionExamples, "label_ids", np.inf, "inf, expected a finite one of 0 or more"),
    ],
)
def test_a_value_that_the_model_cannot_take_is_named(
    kind: type[Examples], feature: str, value: float, words: str, record_format: str, tmp_path: Path
) -> None:
    examples, path = highest(kind), tmp_path / "part-0"
    for row in (3, 5):
        getattr(examples, feature).reshape(6, -1)[row, -1] = value
    write_examples([examples], {record_format: path})
    with RecordSet([path], vocab_size=TOKENS, labels=LABELS) as records:
        room = kind.empty(6, seq=16, pred=records.pred)
        with pytest.raises(BadRecordError) as error:
            records.gather_into(room, np.array([0, 1, 2, 4, 3, 5]))
        assert str(error.value).startswith(f"{path}: record 3: feature {feature} has the value {words}")
        assert (error.value.number, error.value.row) == (3, 4)
        assert [bad.row for bad in records.gather_good(room, np.arange(6))] == [3, 5]
        assert [row.any() for row in room.input_ids] == [True, True, True, False, True, False]
    with RecordSet([path]) as records:  # without a model's sizes
        records.gather_into(room, np.arange(6))
        assert_same(room, examples)


def test_records_must_agree(tmp_path: Path) -> None:
    write_folder(tmp_path / "a", (3,))
    first, long, squad = tmp_path / "a/training/part-0", tmp_path / "long", tmp_path / "squad"
    long.write_bytes(file_of(random_record(random.Random(0), 16, 4)))
    write_examples([task_examples(SquadExamples, 2)], {"tfrecord": squad})
    for data, kind, line in (
        ([tmp_path / "a", long], None, f"{long}: has records of 16 tokens and 4 predictions, expected 8 and 2 as {first} has; "
         "give data that was made with the same settings"),
        ([tmp_path / "a", squad], None, f"{squad}: has SQuAD records, expected pretraining records as {first} has; "),
        ([squad], PretrainingExamples, f"{squad}: has SQuAD records, expected pretraining records; name the data of this task"),
    ):  # fmt: skip
        with pytest.raises(BertprepError) as error:
            RecordSet(data, kind=kind)
        assert str(error.value).startswith(line)


def test_requests_that_cannot_be_met(tmp_path: Path) -> None:
    write_folder(tmp_path / "a", (3,))
    with pytest.raises(UsageError, match="no data; name at least one folder"):
        RecordSet([])
    with pytest.raises(UsageError, match="a: has no test split; bertprep shard holds one out"):
        RecordSet([tmp_path / "a"], "test")
    room = PretrainingExamples.empty(1, seq=8, pred=2)
    with RecordSet([tmp_path / "a"]) as records:
        for numbers, wrong in (([2, 3], IndexError), ([-4], IndexError), ([1.0], TypeError), ((1, 2), TypeError)):
            with pytest.raises(wrong, match=f"^{tmp_path / 'a' / 'training'}: record"):
                records.gather_into(room, numbers)  # type: ignore[arg-type]
        needed = "room for 1 pretraining records of 8/2, needed for 2 pretraining records of 8/2 from row 0"
        with pytest.raises(ValueError, match=needed):
            records.gather_into(room, np.arange(2))
