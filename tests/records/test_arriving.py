"""Records at a URL: fetched file by file, in the order in which they are needed, checked, and shared by processes."""

import hashlib
import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from bertprep.errors import BertprepError, UsageError
from bertprep.files import object_store
from bertprep.files.places import CACHE_GB, cache_folder, is_object, local_copy, place
from bertprep.files.reservations import RESERVED, limit_cache, reserved_copies, size_in_bytes
from bertprep.records import PretrainingExamples
from bertprep.records.record_set import RecordSet
from tests.object_store import Fault, Store, store
from tests.records.handmade import Record
from tests.records.test_record_set import assert_holds, gather, write_folder

__all__ = ["store"]  # a fixture
SIZES = (3, 4, 2, 5, 1, 3)
TOTAL = sum(SIZES)


def put_records(folder: Path, store: Store, sizes: tuple[int, ...] = SIZES, *, listed: bool = True) -> list[Record]:
    """A data set in the folder and in the store, with its manifest; returns the records."""
    records = write_folder(folder, sizes)
    files = {}
    for number, size in enumerate(sizes):
        data = (folder / "training" / f"part-{number}").read_bytes()
        files[f"training/part-{number}"] = {
            "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "examples": size,
        }  # fmt: skip
    manifest = {"schema": 1, "kind": "masked-LM records", "made_with": {"seq": 8}, "versions": {}, "files": files}
    if listed:
        (folder / "manifest.json").write_text(json.dumps(manifest))
    upload(folder, store)
    return records


def upload(folder: Path, store: Store) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith("."):
            assert store.request("PUT", f"{folder.name}/{path.relative_to(folder)}", path.read_bytes()) == 200


def fetched(store: Store) -> list[int]:
    """The files that were asked for whole, in the order of the requests."""
    return [int(asked.rpartition("-")[2]) for asked in store.asked if asked.startswith("GET") and "part-" in asked]


def test_a_batch_waits_for_its_own_files_alone(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = put_records(tmp_path / "a", store)
    held = Fault("GET", ".*part-3", times=None, stall=True)
    store.faults.append(held)
    with RecordSet([store.place("a")]) as records:
        assert (len(records), records.seq, records.pred) == (TOTAL, 8, 2)
        assert set(fetched(store)) == {0}  # which says what all are
        assert_holds(gather(records, [8, 0, 14]), [expected[8], expected[0], expected[14]])
        assert set(fetched(store)) == {0, 2, 4}
        assert records.place_of(14) == (store.place("a/training/part-4"), 0)
        store.faults.clear()
        numbers = np.random.default_rng(0).permutation(TOTAL)
        assert_holds(gather(records, numbers), [expected[number] for number in numbers])
    said = capsys.readouterr().err
    assert said.count("waiting for") == 1
    assert "waiting for 2 files, whose records come next; 1 of 6 are here" in said
