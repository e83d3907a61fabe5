"""Records at a URL: fetched file by file, in the order in which they are needed, checked, and shared by processes."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertprep import records as reading
from bertprep.cli import main
from bertprep.errors import BertprepError, GivenUpError, UsageError
from bertprep.files import places
from bertprep.files.object_store import put
from bertprep.files.places import cache_folder, local_copy
from bertprep.files.reservations import limit_cache, reserved_copies
from bertprep.records import arriving
from bertprep.records.record_set import RecordSet
from tests.golden import GOLDEN
from tests.object_store import Fault, Store, store
from tests.records.handmade import Record
from tests.records.test_reader import assert_holds
from tests.records.test_record_set import gather, write_folder

__all__ = ["store"]  # a fixture
SIZES = (3, 4, 2, 5, 1, 3)
TOTAL = sum(SIZES)
READ_ALL = """
import sys
import numpy as np
from bertprep.records import PretrainingExamples
from bertprep.records.record_set import RecordSet

sys.stdin.readline()
with RecordSet([sys.argv[1]]) as records:
    numbers = np.arange(len(records))
    examples = PretrainingExamples.empty(len(records), seq=records.seq, pred=records.pred)
    records.expect([numbers])
    records.gather_into(examples, numbers)
    print(examples.input_ids.tolist())
"""


def write_manifest(folder: Path, examples: dict[str, int]) -> None:
    """The manifest of a folder whose files have so many records."""
    files = {}
    for name, count in examples.items():
        data = (folder / name).read_bytes()
        files[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "examples": count}
    manifest = {"schema": 1, "kind": "masked-LM records", "made_with": {"seq": 8}, "versions": {}, "files": files}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def upload(folder: Path, store: Store) -> Path:
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith("."):
            assert store.request("PUT", f"{folder.name}/{path.relative_to(folder)}", path.read_bytes()) == 200
    return store.place(folder.name)


def put_records(folder: Path, store: Store, sizes: tuple[int, ...] = SIZES) -> list[Record]:
    """A data set in the folder and in the store, with its manifest; returns the records."""
    records = write_folder(folder, sizes)
    write_manifest(folder, {f"training/part-{number}": size for number, size in enumerate(sizes)})
    upload(folder, store)
    return records


def fetched(store: Store) -> list[int]:
    """The files that were asked for, in the order of the requests."""
    return [int(asked.rpartition("-")[2]) for asked in store.asked if asked.startswith("GET") and "part-" in asked]


def wait_until(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    while not condition():
        assert process.poll() is None, process.communicate()
        threading.Event().wait(0.01)


def start_reading(url: Path) -> "subprocess.Popen[str]":
    """A process that reads all records, once it is given a line."""
    command = [sys.executable, "-c", READ_ALL, str(url)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_batch_waits_for_its_own_files_alone(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = put_records(tmp_path / "a", store)
    with RecordSet([store.place("a")]) as records:
        assert (len(records), records.seq, records.pred) == (TOTAL, 8, 2)
        assert fetched(store) == [0]  # which says what all are
        assert_holds(gather(records, [8, 0, 14]), [expected[8], expected[0], expected[14]])
        assert sorted(fetched(store)) == [0, 2, 4]
        assert records.place_of(14) == (store.place("a/training/part-4"), 0)
        numbers = np.random.default_rng(0).permutation(TOTAL)
        assert_holds(gather(records, numbers), [expected[number] for number in numbers])
    with RecordSet([store.place("a")], most_open=1) as records:
        assert_holds(gather(records, numbers), [expected[number] for number in numbers])
    assert sorted(fetched(store)) == [*range(6)]  # the copies are kept
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "training: waiting for 2 files of the next records; 1 of 6 are here, " in said[0]


def test_a_file_that_is_held_back_stops_no_other(store: Store, tmp_path: Path) -> None:
    expected = put_records(tmp_path / "a", store)
    held = threading.Event()
    store.faults.append(Fault("GET", ".*part-3", times=None, act=held.wait))
    with RecordSet([store.place("a")]) as records:
        records.expect([np.array([9, 0])])  # 9 is the first of part-3
        others = [number for number in range(TOTAL) if not 9 <= number < 14]
        assert_holds(gather(records, others), [expected[number] for number in others])
        held.set()
        assert_holds(gather(records, [9]), [expected[9]])


@pytest.mark.parametrize("at_once", [1, 8])
@pytest.mark.parametrize("fault", [{"stall": True}, {"status": 503, "code": "SlowDown"}])
def test_closing_waits_for_no_store(
    fault: dict[str, Any], at_once: int, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for a silent one nor between two tries, and whoever waits, also for a file that is only queued, is told."""
    monkeypatch.setenv("BERTPREP_RETRY_SECONDS", "1000")  # silences of 30,000 s
    monkeypatch.setattr(arriving, "_AT_ONCE", at_once)
    expected = put_records(tmp_path / "a", store)
    asked = threading.Event()
    store.faults.append(Fault("GET", ".*part-3", times=None, act=asked.set, **fault))
    outcome: list[object] = []

    def read() -> None:
        try:
            outcome.append(gather(records, [17 if at_once == 1 else 9]))
        except BertprepError as error:
            outcome.append(error)

    with RecordSet([store.place("a")]) as records:
        records.expect([np.array([9, 17])])  # of part-3 and part-5
        asked.wait()
        waiting = threading.Thread(target=read)
        waiting.start()
        while not records._lock.locked():  # by the thread that waits
            threading.Event().wait(0.001)
        records.close()
        waiting.join()
        assert isinstance(outcome[0], GivenUpError)
        store.faults.clear()
        assert_holds(gather(records, [9, 17]), [expected[9], expected[17]])  # what is asked for again is fetched again


def test_a_script_that_ends_with_an_open_set_fetches_no_more(store: Store, tmp_path: Path) -> None:
    put_records(tmp_path / "a", store)
    store.faults.append(Fault("GET", ".*part-[2-5]", times=None, stall=True))
    script = (
        "import sys, numpy; from bertprep.records.record_set import RecordSet; records = RecordSet(sys.argv[1:]); "
        "records.expect([numpy.array([0])]); sys.stdin.readline()"
    )
    environment = {**os.environ, "BERTPREP_RETRY_SECONDS": "1000"}
    command = [sys.executable, "-c", script, str(store.place("a"))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, env=environment)
    wait_until(lambda: {*fetched(store)} == {*range(6)}, process)
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.close()
    assert process.wait() == 0


def test_files_are_fetched_in_the_order_of_the_steps(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving, "_AT_ONCE", 1)
    put_records(tmp_path / "a", store)
    with RecordSet([store.place("a")]) as records:
        records.expect(np.array([number]) for number in (14, 7, 0, 15))
        gather(records, [*range(TOTAL)])
    assert fetched(store) == [0, 4, 2, 5, 1, 3]


def test_sets_at_urls_and_on_the_disk_are_one_sequence(store: Store, tmp_path: Path) -> None:
    there = put_records(tmp_path / "a", store)
    here = write_folder(tmp_path / "b", (4, 5), "ofrecord", seed=1)
    with RecordSet([tmp_path / "b", store.place("a")]) as records:
        assert records.is_of_store
        numbers = np.random.default_rng(0).permutation(TOTAL + 9)
        assert_holds(gather(records, numbers), [[*here, *there][number] for number in numbers])
        assert records.formats == ["ofrecord", "tfrecord"]


@pytest.mark.parametrize("record_format", ["arrow", "parquet"])
def test_columns_at_a_url(record_format: str, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Arrow comes as its records are needed, Parquet, which must be rewritten to be read, whole before them."""
    folder = tmp_path / record_format
    shutil.copytree(next((GOLDEN / "made_by_0.1.0/workspace/tfrecord").iterdir()) / "mine", tmp_path / "mine")
    assert main(["convert", str(tmp_path / "mine"), str(folder), "--to", record_format, "--workers", "1"]) == 0
    capsys.readouterr()
    upload(folder, store)
    with RecordSet([folder]) as here, RecordSet([store.place(record_format)]) as there:
        assert store.count("GET", f".*_train.*[.]{record_format}|.*/train.*[.]{record_format}") == (
            1 if record_format == "arrow" else 2
        )
        numbers = np.random.default_rng(0).permutation(len(here))
        found, expected = gather(there, numbers), gather(here, numbers)
    assert all((one == other).all() for one, other in zip(found.arrays, expected.arrays, strict=True))
    assert ("are Parquet files that must be rewritten" in capsys.readouterr().err) == (record_format == "parquet")


def test_without_a_manifest_all_files_come_first_and_it_is_said(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = write_folder(tmp_path / "a", SIZES)
    upload(tmp_path / "a", store)
    with RecordSet([store.place("a")]) as records:
        assert sorted(fetched(store)) == [*range(6)]
        assert_holds(gather(records, [17, 0]), [expected[17], expected[0]])
    (said,) = capsys.readouterr().err.splitlines()
    assert "its 6 files are listed in no manifest" in said
    assert "fetching all of them" in said
    with RecordSet([store.place("a")]) as records:  # now it is known
        assert_holds(gather(records, [17, 0]), [expected[17], expected[0]])
    assert sorted(fetched(store)) == [*range(6)]
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({"sha256": "0" * 64}, "part-2: has sha256 .*expected 0000"),
        ({"examples": 3}, "part-2: has 2 records, expected 3 by its manifest; make it again"),
        ({"bytes": 7}, "part-2: has [0-9,]* bytes, expected 7 by .*manifest.json; make it again"),
    ],
)
def test_files_that_are_not_those_of_the_manifest(what: dict[str, object], said: str, store: Store, tmp_path: Path) -> None:
    put_records(tmp_path / "a", store)
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    manifest["files"]["training/part-2"].update(what)
    (tmp_path / "a" / "manifest.json").write_text(json.dumps(manifest))
    upload(tmp_path / "a", store)
    local_copy(store.place("a/training/part-2"))  # by somebody who expected nothing

    def read() -> None:
        with RecordSet([store.place("a")]) as records:
            gather(records, [0])  # another file's
            gather(records, [7])

    with pytest.raises(BertprepError, match=said):
        read()
    assert not reserved_copies(cache_folder())


def test_a_set_that_the_cache_cannot_hold_is_refused_before_anything_comes(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(places.CACHE_GB, "20")  # to be put back
    put_records(tmp_path / "a", store)
    put_records(tmp_path / "b", store)
    size = sum(path.stat().st_size for path in (tmp_path / "a").rglob("part-*"))
    limit_cache(size // 2)
    with pytest.raises(UsageError, match=r"do not fit into the cache .* with at most .* KB; give --cache-size 1MB or more"):
        RecordSet([store.place("a")])
    assert not fetched(store)
    limit_cache(size * 3 // 2)
    with RecordSet([store.place("a")]) as records:
        with pytest.raises(UsageError, match=r"b/training: .* do not fit .* more of it reserved by running processes"):
            RecordSet([store.place("b")])
        gather(records, [0])
    with RecordSet([store.place("b")]) as records:
        gather(records, [0])


def test_what_a_running_process_reads_is_not_evicted(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_KEPT_SECONDS", -60)  # what was used just now may go
    monkeypatch.setenv(places.CACHE_GB, "20")
    put_records(tmp_path / "a", store)
    put(store.place("other"), os.urandom(100_000))
    for name in ("1", "2"):
        put(store.place(name), os.urandom(100_000))
    with RecordSet([store.place("a")]) as records:
        gather(records, [*range(TOTAL)])
    copies = {path.name for path in cache_folder().glob("[!.]*")}

    def make_room(name: str) -> set[str]:
        places._since_sweep.clear()
        local_copy(store.place(name))
        return copies & {path.name for path in cache_folder().glob("[!.]*")}

    limit_cache(150_000)
    with ExitStack() as opened:
        opened.enter_context(RecordSet([store.place("a")]))
        assert make_room("other") == copies  # which nobody has opened yet
    with reading.open(store.place("a/training/part-1")):
        assert len(make_room("1") & copies) == 1
    assert not make_room("2")


def test_two_processes_fetch_each_file_once(store: Store, tmp_path: Path) -> None:
    put_records(tmp_path / "a", store)
    both = [start_reading(store.place("a")) for _ in range(2)]
    for process in both:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    said = [process.communicate()[0] for process in both]
    assert said[0] == said[1] != ""
    assert sorted(fetched(store)) == [*range(6)]


def test_a_killed_process_leaves_nothing_half_there(store: Store, tmp_path: Path) -> None:
    expected = put_records(tmp_path / "a", store)
    held = threading.Event()
    store.faults.append(Fault("GET", ".*part-5", times=None, act=held.wait))
    process = start_reading(store.place("a"))
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()
    wait_until(lambda: 5 in fetched(store), process)
    process.kill()
    process.communicate()
    held.set()
    with RecordSet([store.place("a")]) as records:
        assert_holds(gather(records, [*range(TOTAL)]), expected)
    assert not [path for path in cache_folder().iterdir() if path.suffix == ".tmp" or path.name.startswith(".reserved")]
