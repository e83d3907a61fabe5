"""Data folders are one sequence of records, whose offsets are found once and kept in the user's cache."""

from __future__ import annotations

import gzip
import os
import random
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from bertprep.files import kept_arrays
from bertprep.records import (
    ClassificationExamples,
    Examples,
    PretrainingExamples,
    RecordDataset,
    RegressionExamples,
    SquadEvalExamples,
    SquadExamples,
)
from bertprep.records.open_file import allow_open_files
from bertprep.records.records import BadRecordError, Records
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


def gather(records: Records, numbers: Sequence[int] | NDArray[np.int64]) -> PretrainingExamples:
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
    with Records([tmp_path / "a", tmp_path / "b"], vocab_size=30_522) as records:
        assert (len(records), records.formats) == (50, ["arrow", "ofrecord", "parquet", "tfrecord"])
        assert_same(gather(records, numbers), rows_of(whole, numbers))
        assert_same(np.concatenate([block.copy() for block in records.blocks(8)]).view(PretrainingExamples), whole)
        assert repr(records) == f"Records({tmp_path}/a/training: 50 pretraining records of 16 tokens and 3 predictions)"
        assert records.origin_of(44) == (tmp_path / names[3], 1)


def test_single_files_and_the_test_split(tmp_path: Path) -> None:
    expected = write_folder(tmp_path / "a", (3, 4))
    (tmp_path / "a" / "test").mkdir()
    (tmp_path / "a" / "test" / "part-0").write_bytes(file_of(FIRST))
    for path, split, found in (
        (tmp_path / "a", "test", [FIRST]),
        (tmp_path / "a/training/part-1", "training", expected[3:]),
        (tmp_path / "a/training", "training", expected),
    ):
        with Records([path], split) as records:
            assert_holds(gather(records, range(len(records))), found)


def test_more_files_are_open_than_the_soft_limit_allows(tmp_path: Path) -> None:
    """Each mapped file takes one of the files that a process may open: 1,024 is Linux's usual soft limit."""
    expected = write_folder(tmp_path / "a", (2,) * 60)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_before = len(list(Path("/dev/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_before + 20, limits[1]))
    try:
        with Records([tmp_path / "a"]) as records:
            numbers = np.random.default_rng(0).permutation(120)
            assert_holds(gather(records, numbers), [expected[number] for number in numbers])
        assert len(list(Path("/dev/fd").iterdir())) <= open_before  # those of earlier tests may go meanwhile
        (tmp_path / "few.py").write_text(
            "import resource, sys; from bertprep.records import Records\n"
            "resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)); Records(sys.argv[1])"
        )
        run = subprocess.run([sys.executable, tmp_path / "few.py", tmp_path / "a"], capture_output=True, text=True)
        assert re.search(r"part-\d+: cannot be read: Too many open files; raise the hard limit of ulimit -n", run.stderr)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize("soft", [256, 4096])
def test_the_soft_limit_of_open_files_becomes_the_hard_one(soft: int) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, limits[1]))
    try:
        allow_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limits[1], limits[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_gzip_files_are_held_decompressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = write_folder(tmp_path / "a", (3, 4, 5))
    held_bytes = 0
    for name in ("part-0", "part-2"):
        path = tmp_path / "a" / "training" / name
        held_bytes += path.stat().st_size
        path.write_bytes(gzip.compress(path.read_bytes()))
    monkeypatch.setattr("bertprep.records.records.MAX_HELD_BYTES", held_bytes)  # of both together
    with Records([tmp_path / "a"]) as records:
        assert_holds(gather(records, [11, 4, 0, 5, 2]), [expected[number] for number in (11, 4, 0, 5, 2)])
    monkeypatch.setattr("bertprep.records.records.MAX_HELD_BYTES", held_bytes - 1)
    line = r"part-2: needs too much memory; gzip, .* read together may use 4.3 GB; decompress them"
    with pytest.raises(BertprepError, match=line):
        Records([tmp_path / "a"])


# --- the offsets that are kept


@pytest.fixture
def kept_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of kept offsets, in which those of small files are too."""
    monkeypatch.setenv("BERTPREP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("bertprep.records.open_file._MIN_KEPT_BYTES", 1)
    return tmp_path / "cache" / "offsets"


def edit_offsets(edit: Callable[[NDArray[np.int64]], Any]) -> Callable[[Path], object]:
    def change(path: Path) -> None:
        edited = edit(np.fromfile(path, np.int64)[:-1])
        checksum = kept_arrays._checksum(edited)
        path.write_bytes(edited.tobytes() + np.int64(checksum).tobytes())

    return change


def put(index: int, value: int) -> Callable[[Path], object]:
    def edit(offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        offsets[index] = value
        return offsets

    return edit_offsets(edit)


CHANGES: dict[str, Callable[[Path], object]] = {
    "nothing": Path.exists,
    "nothing, written again": edit_offsets(np.copy),
    "fewer": edit_offsets(lambda offsets: offsets[:-1]),
    "none": edit_offsets(lambda offsets: offsets[:0]),
    "as floats": edit_offsets(lambda offsets: offsets.astype(float)),
    "another number": lambda path: path.write_bytes(b"\1" + path.read_bytes()[1:]),
    "of anybody": lambda path: path.chmod(0o666),
    "a FIFO": lambda path: (path.unlink(), os.mkfifo(path)),
    "cut": lambda path: os.truncate(path, path.stat().st_size - 8),
    "empty": lambda path: os.truncate(path, 0),
    "garbage": lambda path: path.write_bytes(b"\0\xff" * 100),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "an offset beyond the file": put(-3, 10**12),
    "an offset before the file": put(-3, -(10**12)),
    "an offset before the one before it": put(-3, 0),
    "the first not 0": put(0, 1),
}


@pytest.mark.parametrize("what", CHANGES)
def test_offsets_are_kept_until_they_are_not_those_of_the_file(kept_folder: Path, what: str, tmp_path: Path) -> None:
    expected = write_folder(tmp_path / "a", (3, 4))
    Records([tmp_path / "a"]).close()
    kept = sorted(kept_folder.iterdir())
    assert [path.suffix for path in kept] == [".i64"] * 2
    for path in kept:
        CHANGES[what](path)
    before = [path.stat().st_ino for path in kept]
    for _ in range(2):
        with Records([tmp_path / "a"]) as records:
            assert_holds(gather(records, range(7)), expected)
    assert sorted(kept_folder.iterdir()) == kept
    assert ([path.stat().st_ino for path in kept] == before) == (what.startswith("nothing") or what == "a folder")


def test_offsets_are_found_again_for_a_file_that_changed(kept_folder: Path, tmp_path: Path) -> None:
    expected = write_folder(tmp_path / "a", (3, 4))
    path, others = tmp_path / "a" / "training" / "part-1", [expected[5]]
    Records([tmp_path / "a"]).close()
    os.utime(path, ns=(1, 1))
    Records([tmp_path / "a"]).close()
    assert len(list(kept_folder.iterdir())) == 3
    path.write_bytes(file_of(*others))
    with Records([tmp_path / "a"]) as records:
        assert_holds(gather(records, range(4)), expected[:3] + others)


def test_offsets_go_two_months_after_their_last_use(kept_folder: Path, tmp_path: Path) -> None:
    write_folder(tmp_path / "a", (3, 4, 5))
    first, second, third = sorted((tmp_path / "a" / "training").iterdir())
    Records.open(first).close()
    [of_first] = kept_folder.iterdir()
    Records.open(second).close()
    [of_second] = {*kept_folder.iterdir()} - {of_first}
    for kept in (of_first, of_second):
        os.utime(kept, (0, 0))
    Records.open(first).close()
    Records.open(third).close()  # which keeps others, and removes the old ones
    assert (of_first.exists(), of_second.exists()) == (True, False)


def test_where_no_offsets_can_be_kept_the_records_are_found_again(kept_folder: Path, tmp_path: Path) -> None:
    expected = write_folder(tmp_path / "a", (3,))
    kept_folder.parent.mkdir()
    kept_folder.write_bytes(b"")  # in whose place there can be no folder
    for _ in range(2):
        with Records([tmp_path / "a"]) as records:
            assert_holds(gather(records, [2]), [expected[2]])


def test_a_file_that_is_replaced_is_read_as_it_was_when_it_was_opened(tmp_path: Path) -> None:
    expected = write_folder(tmp_path / "a", (3, 4))
    path = tmp_path / "a" / "training" / "part-1"
    with Records([tmp_path / "a"]) as records:
        (tmp_path / "new").write_bytes(file_of(FIRST))
        (tmp_path / "new").replace(path)
        assert_holds(gather(records, [6, 3]), [expected[6], expected[3]])
    with pytest.raises(ValueError, match="is closed"):
        gather(records, [3])


# --- what is refused


def test_files_that_are_given_twice_are_refused(tmp_path: Path) -> None:
    """Their records would count twice."""
    write_folder(tmp_path / "a", (3, 4))
    (tmp_path / "b").symlink_to(tmp_path / "a")
    part = tmp_path / "a" / "training" / "part-0"
    for twice in ([tmp_path / "a", tmp_path / "a"], [tmp_path / "a", part], [part, part], [tmp_path / "a", tmp_path / "b"]):
        with pytest.raises(UsageError, match="part-0: is given twice; name each folder or file once"):
            Records(twice)
    with pytest.raises(UsageError, match="part-0: is given twice"):
        RecordDataset([part, part])


def highest(kind: type[Examples]) -> Examples:
    """Valid examples, those of pretraining with the highest values that a model can take."""
    examples = column_examples(kind, 6) if kind is PretrainingExamples else task_examples(kind, 6)
    if isinstance(examples, PretrainingExamples):
        for array, most in zip(examples.arrays, (TOKENS - 1, 1, 1, 15, TOKENS - 1, 1.0, 1), strict=True):
            array[...] = most
        examples.masked_lm_weights[0] = 0.5, -0.0, 1.0
    if isinstance(examples, RegressionExamples):
        examples.label_ids[:3] = -3.5, -0.0, np.finfo(np.float32).min
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
        (RegressionExamples, "label_ids", np.inf, "inf, expected a finite number; make the file again"),
        (RegressionExamples, "label_ids", -np.inf, "-inf, expected a finite number"),
        (RegressionExamples, "label_ids", np.nan, "nan, expected a finite number"),
    ],
)
def test_a_value_that_the_model_cannot_take_is_named(
    kind: type[Examples], feature: str, value: float, words: str, record_format: str, tmp_path: Path
) -> None:
    examples, path = highest(kind), tmp_path / "part-0"
    for row in (3, 5):
        getattr(examples, feature).reshape(6, -1)[row, -1] = value
    write_examples([examples], {record_format: path})
    with Records([path], vocab_size=TOKENS, labels=LABELS) as records:
        room = kind.empty(6, seq=16, pred=records.pred)
        with pytest.raises(BadRecordError) as error:
            records.gather_into(room, np.array([0, 1, 2, 4, 3, 5]))
        assert str(error.value).startswith(f"{path}: record 3: feature {feature} has the value {words}")
        assert (error.value.index, error.value.row) == (3, 4)
        assert [bad.row for bad in records.gather_good(room, np.arange(6))] == [3, 5]
        assert [row.any() for row in room.input_ids] == [True, True, True, False, True, False]
    with Records([path]) as records:  # without a model's sizes
        records.gather_into(room, np.arange(6))
        assert_same(room, examples)


def test_a_bad_record_is_named_wherever_it_comes_among_files_of_several_formats(tmp_path: Path) -> None:
    """Columns and protobufs are read by one call for each run of them."""
    examples, paths = column_examples(PretrainingExamples, 15), []
    for number, name in enumerate(("arrow", "tfrecord", "ofrecord", "arrow", "tfrecord")):
        paths.append(tmp_path / f"{number}.{name}")
        write_examples([examples[3 * number : 3 * number + 3]], {name: paths[-1]})
    content = bytearray(paths[4].read_bytes())
    content[len(content) // 2] ^= 1  # in the second of its three records, which are of one size or nearly so
    paths[4].write_bytes(content)
    with Records(paths) as records:
        for indices in ([0, 13], [13, 0], [0, 3, 6, 9, 13], [9, 10, 11, 12, 13, 14], [5, 4, 1, 2, 13, 0]):
            room = PretrainingExamples.empty(len(indices) + 2, seq=records.seq, pred=records.pred)
            with pytest.raises(BadRecordError, match=rf"^{paths[4]}: record 1: ") as error:
                records.gather_into(room, np.array(indices), row=2)
            assert (error.value.index, error.value.row) == (13, 2 + indices.index(13))


def test_records_must_agree(tmp_path: Path) -> None:
    write_folder(tmp_path / "a", (3,))
    first, long, squad = tmp_path / "a/training/part-0", tmp_path / "long", tmp_path / "squad"
    long.write_bytes(file_of(random_record(random.Random(0), 16, 4)))
    write_examples([task_examples(SquadExamples, 2)], {"tfrecord": squad})
    for data, kind, line in (
        ([tmp_path / "a", long], None, f"{long}: has records of 16 tokens and 4 predictions, expected 8 and 2 like {first}; "
         "give data that was made with the same settings"),
        ([tmp_path / "a", squad], None, f"{squad}: has SQuAD records, expected pretraining records like {first}; "),
        ([squad], PretrainingExamples, f"{squad}: has SQuAD records, expected pretraining records; name the data of this task"),
    ):  # fmt: skip
        with pytest.raises(BertprepError) as error:
            Records(data, kind=kind)
        assert str(error.value).startswith(line)


def test_requests_that_cannot_be_met(tmp_path: Path) -> None:
    write_folder(tmp_path / "a", (3,))
    with pytest.raises(UsageError, match="no data; name at least one folder"):
        Records([])
    with pytest.raises(UsageError, match="a: has no test split; bertprep shard makes one"):
        Records([tmp_path / "a"], "test")
    room = PretrainingExamples.empty(1, seq=8, pred=2)
    with Records([tmp_path / "a"]) as records:
        for numbers, wrong in (([2, 3], IndexError), ([-4], IndexError), ([1.0], TypeError), ((1, 2), TypeError)):
            with pytest.raises(wrong, match=f"^{tmp_path / 'a' / 'training' / 'part-0'}: .*record"):
                records.gather_into(room, numbers)  # type: ignore[arg-type]
        shape = "pretraining records of 8 tokens and 2 predictions"
        needed = f"2 {shape} do not fit from row 0 on into a block of 1 {shape}"
        with pytest.raises(ValueError, match=needed):
            records.gather_into(room, np.arange(2))
