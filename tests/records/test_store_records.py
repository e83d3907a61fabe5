"""Records at a URL: fetched before they are read, whole and checked, once for all processes of a machine."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest

import bertprep
from bertprep.cli import main
from bertprep.errors import BertprepError
from bertprep.files.checksums import digest
from bertprep.files.object_cache import cache_folder
from bertprep.records.records import Records
from tests.object_store import Fault, Store, store
from tests.records.handmade import Record
from tests.records.test_reader import assert_holds
from tests.records.test_records import gather, write_folder

__all__ = ["store"]  # a fixture
SIZES = (3, 4, 2, 5, 1, 3)
TOTAL = sum(SIZES)


def write_manifest(folder: Path, examples: dict[str, int]) -> None:
    """The manifest of a folder whose files have so many records."""
    files = {}
    for name, count in examples.items():
        data = (folder / name).read_bytes()
        files[name] = {"bytes": len(data), "blake3": digest(data), "examples": count}
    manifest = {"format": 1, "kind": "masked-LM records", "made_with": {"seq": 8}, "versions": {}, "files": files}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def upload(folder: Path, store: Store) -> Path:
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith("."):
            assert store.request("PUT", f"{folder.name}/{path.relative_to(folder)}", path.read_bytes()) == 200
    return store.path(folder.name)


def put_records(folder: Path, store: Store) -> list[Record]:
    """A data set in the folder and in the store, with its manifest; returns the records."""
    records = write_folder(folder, SIZES)
    write_manifest(folder, {f"training/part-{number}": size for number, size in enumerate(SIZES)})
    upload(folder, store)
    return records


def fetched(store: Store) -> list[int]:
    """The files that were asked for, in the order of the requests."""
    return [int(asked.rpartition("-")[2]) for asked in store.asked if asked.startswith("GET") and "part-" in asked]


def start_reading(url: Path) -> "subprocess.Popen[str]":
    """Start a process that opens the data set and prints how many records it has."""
    program = f"import bertprep; print(len(bertprep.RecordDataset('{url}')))"
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_set_is_fetched_once_and_read_as_local(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = put_records(tmp_path / "a", store)
    here = write_folder(tmp_path / "b", (4, 5), "ofrecord", seed=1)
    numbers = np.random.default_rng(0).permutation(TOTAL + 9)
    for _ in ("from the store", "from the copies"):
        with Records([tmp_path / "b", store.path("a")]) as records:
            assert_holds(gather(records, numbers), [[*here, *there][number] for number in numbers])
            assert records.origin_of(9 + 14) == (store.path("a/training/part-4"), 0)
        assert sorted(fetched(store)) == [*range(6)]
    assert f"fetch {store.url}/a/training: 6/6 files, " in capsys.readouterr().err
    shutil.copy(tmp_path / "a/training/part-0", tmp_path / "a/training/part-4")
    write_manifest(tmp_path / "a", {f"training/part-{number}": size for number, size in enumerate((3, 4, 2, 5, 3, 3))})
    upload(tmp_path / "a", store)
    with Records([store.path("a")]) as records:  # which has changed
        assert_holds(gather(records, [14]), [there[0]])


def test_more_files_are_fetched_than_at_a_time(store: Store, tmp_path: Path) -> None:
    there = write_folder(tmp_path / "a", (1,) * 20)
    upload(tmp_path / "a", store)
    with Records([store.path("a")]) as records:
        assert_holds(gather(records, range(20)), there)
    assert sorted(fetched(store)) == [*range(20)]


def test_a_file_that_is_not_that_of_the_manifest_is_refused(store: Store, tmp_path: Path) -> None:
    put_records(tmp_path / "a", store)
    store.faults.append(Fault("GET", ".*part-2", times=None, flip=10))
    with pytest.raises(BertprepError, match=r"part-2: has blake3 .* but its manifest lists .*; the file is corrupt"):
        Records([store.path("a")])
    store.faults.clear()
    with Records([store.path("a")]) as records:
        assert len(records) == TOTAL


def test_a_file_that_is_removed_while_the_set_is_opened_is_named(store: Store, tmp_path: Path) -> None:
    put_records(tmp_path / "a", store)
    Records([store.path("a")]).close()
    before = store.asked.count("GET ") - 2  # pages of listings: the last listing has two
    store.faults.append(Fault("GET", "", skip=before, act=lambda: store.request("DELETE", "a/training/part-2")))
    with pytest.raises(BertprepError, match=r"part-2: was removed while bertprep listed the files; start again"):
        Records([store.path("a")])


def test_a_set_that_does_not_fit_on_the_disk_is_refused_before_its_first_byte(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_records(tmp_path / "a", store)
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(
        BertprepError, match=r"a/training: the download of 0 MB does not fit .* where 0 MB are free; delete copies"
    ):
        Records([store.path("a")])
    assert not fetched(store)


def test_copies_that_nobody_used_for_a_week_go_with_the_next_download(store: Store, tmp_path: Path) -> None:
    put_records(tmp_path / "a", store)
    put_records(tmp_path / "b", store)
    Records([store.path("a")]).close()
    copies = sorted(cache_folder().iterdir())
    for copy in copies[1:]:
        os.utime(copy, (copy.stat().st_atime - 8 * 86400,) * 2)
    store.asked.clear()
    Records([store.path("b")]).close()
    assert [copy.exists() for copy in copies] == [True] + [False] * (len(copies) - 1)


def test_two_processes_fetch_each_file_once(store: Store, tmp_path: Path) -> None:
    put_records(tmp_path / "a", store)
    others = []

    def start_another() -> None:
        others.append(another := start_reading(store.path("a")))
        assert another.stderr
        assert any("another run is writing here; waiting for it" in line for line in another.stderr)

    store.faults.append(Fault("GET", ".*part-5", act=start_another))
    printed = [start_reading(store.path("a")).communicate()[0]]
    printed += [another.communicate()[0] for another in others]
    assert printed == [f"{TOTAL}\n"] * 2
    assert sorted(fetched(store)) == [*range(6)]


def test_a_killed_process_leaves_nothing_half_there(store: Store, tmp_path: Path) -> None:
    expected = put_records(tmp_path / "a", store)
    started: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
    store.faults.append(Fault("GET", ".*part-5", act=lambda: started.get().kill()))
    started.put(process := start_reading(store.path("a")))
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    with Records([store.path("a")]) as records:
        assert_holds(gather(records, [*range(TOTAL)]), expected)
    assert not [path for path in cache_folder().iterdir() if path.suffix == ".tmp"]


def test_commands_leave_no_copy(store: Store, tmp_path: Path) -> None:
    put_records(tmp_path / "a", store)
    url = f"{store.url}/a"
    bertprep.validate([url], workers=1)
    bertprep.convert(url, tmp_path / "converted", to="ofrecord", shards=2, workers=1)
    assert main(["inspect", f"{url}/training/part-0", "--records", "1"]) == 2  # without a vocabulary
    assert len(fetched(store)) >= 13
    assert not list(cache_folder().iterdir())
