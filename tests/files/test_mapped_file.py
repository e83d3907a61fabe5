"""A file truncated while it is read is one line that names it, in every reader; any other SIGBUS is unaffected."""

import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bertprep.check import record_scan, text
from bertprep.check.outcome import FileTask
from bertprep.check.record_scan import RecordScan
from bertprep.cli import main
from bertprep.commands.validate import validate
from bertprep.errors import BertprepError
from bertprep.files.mapped_file import MappedFile
from bertprep.records import PretrainingExamples, RecordFile
from bertprep.records.file_bytes import FileBytes
from bertprep.records.record_set import RecordSet
from tests.records.handmade import FIRST, Dialect, file_of
from trainer.batches import GlobalBatch, TrainingBatches

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system ends the process")

RECORDS = 3000  # some pages
FORMATS = ("tfrecord", "ofrecord")


def cut(path: Path, size_bytes: int = mmap.PAGESIZE) -> None:
    """What another process may do at any time: leave whole pages, or a bit of one, the rest of which reads as zeros."""
    os.truncate(path, size_bytes)


@pytest.fixture(params=FORMATS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "training" / "part-00000"
    path.parent.mkdir()
    path.write_bytes(file_of(FIRST, dialect=Dialect(request.param)) * RECORDS)
    return path


def was_cut(path: Path) -> str:
    return f"^{path}: was cut short while it was read, it had {path.stat().st_size:,} bytes; "


@pytest.mark.parametrize("size_bytes", [mmap.PAGESIZE, mmap.PAGESIZE + 1000])
def test_in_order(size_bytes: int, path: Path) -> None:
    expected = was_cut(path)
    with RecordFile(path) as file:
        blocks = file.blocks(10)
        next(blocks)
        cut(path, size_bytes)
        with pytest.raises(BertprepError, match=expected):
            list(blocks)


def test_any_record_in_any_order(path: Path) -> None:
    expected = was_cut(path)
    wanted = np.array([0, RECORDS - 1])
    with RecordFile(path) as file, RecordSet([path]) as records:
        assert len(file) == len(records) == RECORDS
        room = file[wanted]
        records.gather_into(room, wanted)
        cut(path)
        for gather_into in (file.gather_into, records.gather_into):
            with pytest.raises(BertprepError, match=expected):
                gather_into(room, wanted)


def test_while_its_records_are_counted(path: Path) -> None:
    expected = was_cut(path)
    with RecordFile(path) as file:
        cut(path)
        with pytest.raises(BertprepError, match=expected):
            len(file)


def test_what_is_whole_is_read_beside_what_is_not(path: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.write_bytes(path.read_bytes())
    with RecordFile(path) as file, RecordFile(whole) as other, RecordSet([whole]) as records:
        cut(path)
        with pytest.raises(BertprepError):
            len(file)
        examples = other[:]
        records.gather_into(examples, np.arange(RECORDS))
        assert len(examples) == RECORDS


def test_in_training(path: Path) -> None:
    expected = was_cut(path)
    with (
        RecordSet([path.parent.parent]) as records,
        TrainingBatches(records, GlobalBatch(100), seed=1).from_step(0) as batches,
    ):
        next(batches)
        cut(path)
        with pytest.raises(BertprepError, match=expected):
            list(batches)


@pytest.mark.parametrize("size_bytes", [0, 1000])
def test_as_training_opens_it(size_bytes: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_cut(path: Path, **known: Any) -> FileBytes:
        cut(path, size_bytes)
        return FileBytes(path, **known)

    with RecordSet([path.parent.parent]) as records:
        monkeypatch.setattr("bertprep.records.record_set.FileBytes", open_cut)
        said = "was changed since its records were found" if size_bytes else "is empty, it holds no records"
        with pytest.raises(BertprepError, match=f"^{path}: {said}; "):
            TrainingBatches(records, GlobalBatch(100), seed=1).read(0)


def test_an_empty_file(path: Path) -> None:
    cut(path, 0)
    with path.open("rb") as file, pytest.raises(BertprepError, match=f"^{path}: was emptied while it was opened; "):
        MappedFile(file)


def test_the_index_of_records(path: Path) -> None:
    folder = path.parent.parent
    RecordSet([folder]).close()
    index = folder / f".record-index.{path.parent.name}"
    expected = was_cut(index)
    with RecordSet([folder]) as records:
        cut(index)
        with pytest.raises(BertprepError, match=expected):
            TrainingBatches(records, GlobalBatch(100), seed=1).read(0)


def cut_before(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, path: Path, when: Callable[..., bool] = lambda *_: True
) -> None:
    """Have the file cut when a function of those that read it is called."""
    function: Callable[..., Any] = getattr(owner, name)

    def call(*arguments: Any, **more: Any) -> Any:
        if when(*arguments):
            cut(path)
        return function(*arguments, **more)

    monkeypatch.setattr(owner, name, call)


@pytest.mark.parametrize("workers", [1, 2])
def test_it_is_a_finding_of_validate(workers: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path.parent / "part-00001").write_bytes(path.read_bytes())
    expected = was_cut(path).removeprefix(f"^{path}: ")

    class Cut(RecordScan):
        def blocks(self, sample: int | None) -> Iterator[tuple[PretrainingExamples, NDArray[np.int64]]]:
            if self._name == "training/part-00000" and sample is None:  # not where its first records give the shape
                cut(path)
            return super().blocks(sample)

    monkeypatch.setattr(record_scan, "RecordScan", Cut)
    [outcome] = validate([path.parent.parent], workers=workers)
    [finding] = [finding for finding in outcome.findings if finding.code == "unreadable"]
    assert finding.file == "training/part-00000"
    assert finding.found.startswith(expected)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_it_is_one_line_of_a_command(
    workers: str, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (path.parent / "part-00001").write_bytes(path.read_bytes())
    expected = was_cut(path).removeprefix("^")
    cut_before(monkeypatch, RecordFile, "read_into", path, when=lambda file, *_: file.path == path)
    folder = path.parent.parent
    assert main(["convert", str(folder), str(folder.with_name("made")), "--workers", workers]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"bertprep: error: {expected}")


def test_a_text_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "shard.txt"
    path.write_text("A sentence.\n\n" * 1000)
    expected = was_cut(path).removeprefix(f"^{path}: ")
    cut_before(monkeypatch, text, "_check_end", path)
    [finding] = text.scan_shard(FileTask(tmp_path, path.name, "training")).findings
    assert finding.code == "unreadable"
    assert finding.found.startswith(expected)


def test_a_scan_of_a_file_that_is_cut_before_it_is_read(path: Path) -> None:
    expected = was_cut(path)
    scan = RecordScan(path, path.name)
    cut(path)
    with pytest.raises(BertprepError, match=expected):
        list(scan.blocks(None))
    scan.close()


ANOTHER_BUS_ERROR = """
import faulthandler, mmap, os, sys
from pathlib import Path
from bertprep.files.mapped_file import MappedFile

ours, other = Path(sys.argv[1]), Path(sys.argv[2])
if "before" in sys.argv:
    faulthandler.enable()
mapped = MappedFile(ours.open("rb"))
if "after" in sys.argv:
    faulthandler.enable()
    mapped = MappedFile(ours.open("rb"))
os.truncate(ours, 0)
assert mapped[:] == bytes(10_000)
with other.open("rb") as file:
    theirs = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
os.truncate(other, 0)
print("reading", flush=True)
theirs[0]
print("never")
"""


@pytest.mark.parametrize("handler", ["none", "before", "after"])
def test_another_bus_error_is_what_it_was(handler: str, tmp_path: Path) -> None:
    paths = [tmp_path / "ours", tmp_path / "theirs"]
    for path in paths:
        path.write_bytes(b"x" * 10_000)
    command = [sys.executable, "-c", ANOTHER_BUS_ERROR, *map(str, paths), handler]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.stdout, ended.returncode) == ("reading\n", -signal.SIGBUS)
    assert ("Fatal Python error: Bus error" in ended.stderr) == (handler != "none")


def test_a_place_in_memory_that_is_given_back_is_watched_no_more(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10_000)
    with path.open("rb") as file:
        mapped = MappedFile(file)
        rows = [mapped._row]
        mapped.close()
        with MappedFile(file) as again:
            rows.append(again._row)
        again = MappedFile(file)
        rows.append(again._row)
        array = np.frombuffer(again, np.uint8)
        with pytest.raises(BufferError):
            again.close()
        assert MappedFile(file)._row != rows[0]
        del again, array
        rows.append(MappedFile(file)._row)
    assert len(set(rows)) == 1


def test_a_cut_within_the_last_page_is_seen_where_no_checksum_tells_it(path: Path) -> None:
    expected = was_cut(path)
    last = np.array([RECORDS - 1])
    with RecordFile(path) as file, RecordSet([path.parent.parent]) as records:
        room = file[last]
        records.gather_into(room, last)
        os.truncate(path, path.stat().st_size - 1)
        for read in (lambda: file[last], lambda: records.gather_into(room, last)):
            with pytest.raises(BertprepError, match=expected):
                read()
