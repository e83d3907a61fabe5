"""Receipts come from a shared folder or a store: they are checked as manifests are."""

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

import bertprep
from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file
from bertprep.workspace.journal import Journal
from bertprep.workspace.layout import MANIFEST, RECEIPTS
from bertprep.workspace.manifest import JOURNAL_SUFFIX, RECORDS, Manifest, read_manifest
from bertprep.workspace.parts import FINISH
from bertprep.workspace.receipts import Receipts, open_journal
from bertprep.workspace.record_home import RecordHome
from tests.corpora import sums
from tests.hostile import BAD_NAMES, NESTED, NO_FILES, make_no_file
from tests.object_store import Fault, Store, store

__all__ = ["store"]  # a fixture

MADE_WITH = {"seq": 128, "pred": 20}
NAME = "training/part-0"
FACTS = {"bytes": 3, "sha256": "0" * 64, "examples": 1}


def receipts_of(folder: Path, **more: Any) -> Receipts:
    return Receipts(folder, RECORDS, {**MADE_WITH, **more})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one finished file."""
    folder = tmp_path / "records"
    add(folder, NAME)
    return folder


def add(folder: Path, name: str, content: bytes = b"abc") -> None:
    with receipts_of(folder) as receipts:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
        receipts.add(name, FACTS)


def receipt(folder: Path) -> Path:
    return folder / RECEIPTS / f"{NAME}.json"


def changed(content: dict[str, Any], **values: Any) -> bytes:
    return json.dumps({**content, **values}).encode()


def test_what_is_noted_is_found_again(folder: Path) -> None:
    with receipts_of(folder) as receipts:
        assert receipts.missing([NAME, "training/part-1"]) == ["training/part-1"]
        receipts.look([NAME])
        assert receipts.done == {NAME: FACTS}
        assert receipts.missing([NAME]) == []
        assert RecordHome(folder).is_unfinished
        made = receipts.finish([NAME], {"bertprep": "1"}, {"dropped": 2})
    assert sums(folder).keys() == {NAME, MANIFEST}
    assert read_manifest(folder) == made == Manifest(RECORDS, MADE_WITH, {NAME: FACTS}, {"bertprep": "1"}, {"dropped": 2})
    assert not RecordHome(folder).is_unfinished


def test_a_file_that_is_lost_is_missing_and_may_be_made_again(folder: Path) -> None:
    (folder / NAME).unlink()
    with receipts_of(folder) as receipts:
        receipts.look()
        assert receipts.done == {}
        assert receipts.missing([NAME]) == [NAME]
    add(folder, NAME)
    with receipts_of(folder) as receipts:
        assert receipts.missing([NAME]) == []


def test_two_writers_of_a_file_note_it_once_and_another_sum_is_an_error(folder: Path) -> None:
    before = receipt(folder).read_bytes()
    with receipts_of(folder) as receipts:
        receipts.add(NAME, FACTS)
        assert receipt(folder).read_bytes() == before
        with pytest.raises(
            bertprep.BertprepError, match=r"made it with sha256 0000.* by bertprep.*; this one with sha256 1111"
        ):
            receipts.add(NAME, {**FACTS, "sha256": "1" * 64})
    assert not (folder / NAME).exists()  # rather than there under the other's sum
    assert receipt(folder).read_bytes() == before


def test_whoever_finishes_second_finds_it_done(folder: Path) -> None:
    with receipts_of(folder) as first, receipts_of(folder) as second, receipts_of(folder) as third:
        assert first.missing([NAME]) == second.missing([NAME]) == []
        first.finish([NAME], {"python": "3.10"})
        made = (folder / MANIFEST).read_bytes()
        assert second.finish([NAME], {"python": "3.12"}).versions == {"python": "3.10"}
        third.add(NAME, FACTS)  # a part that was run twice, and is late
        assert third.missing([NAME]) == []
        third.finish([NAME], {"python": "3.10"})
    assert (folder / MANIFEST).read_bytes() == made
    assert not (folder / RECEIPTS).exists()


def test_a_manifest_keeps_the_other_format_that_was_finished_meanwhile(tmp_path: Path) -> None:
    for name in ("tfrecord/a", "ofrecord/part-0"):
        add(tmp_path, name)
    with receipts_of(tmp_path) as one, receipts_of(tmp_path) as other:
        assert one.missing(["tfrecord/a"]) == other.missing(["ofrecord/part-0"]) == []
        one.finish(["tfrecord/a"], {})
        assert RecordHome(tmp_path, "ofrecord/").is_unfinished
        assert not RecordHome(tmp_path, "tfrecord/").is_unfinished
        other.finish(["ofrecord/part-0"], {})
    assert (read_manifest(tmp_path) or Manifest("", {})).files.keys() == {"tfrecord/a", "ofrecord/part-0"}
    assert not (tmp_path / RECEIPTS).exists()


def test_only_finishing_binds_no_folder(tmp_path: Path) -> None:
    with open_journal(tmp_path / "new", RECORDS, MADE_WITH, part=FINISH) as receipts:
        assert receipts.missing([NAME]) == [NAME]
    assert list(tmp_path.iterdir()) == []


DAMAGED: dict[str, dict[str, Any]] = {
    "of another schema": {"schema": 99},
    "of a schema below 1": {"schema": 0},
    "of another file": {"name": "training/part-1"},
    **{f"of {name[:20]!r}": {"name": name} for name in BAD_NAMES},
    "digest that is none": {"settings": "x"},
    "facts that are none": {"facts": [1]},
    "bytes below 0": {"facts": {**FACTS, "bytes": -1}},
    "bytes missing": {"facts": {"sha256": "0" * 64, "examples": 1}},
    "sum of other digits": {"facts": {**FACTS, "sha256": "Z" * 64}},
    "versions that are numbers": {"versions": {"python": 3}},
    "versions in a list": {"versions": ["3"]},
}
BYTES = {
    "zeros": b"\0" * 50,
    "half": b'{"schema": 1, "na',
    "empty": b"",
    "nested": NESTED,
    "a list": b"[]",
    "not UTF-8": b'"\xff"',
}


@pytest.mark.parametrize("name", [*DAMAGED, *BYTES])
def test_a_damaged_receipt_is_one_line_that_names_it(name: str, folder: Path) -> None:
    content = json.loads(receipt(folder).read_text())
    receipt(folder).write_bytes(BYTES[name] if name in BYTES else changed(content, **DAMAGED[name]))
    before = sums(folder)
    with receipts_of(folder) as receipts:
        with pytest.raises(bertprep.BertprepError, match=r"\A[^\n]*part-0.json: is damaged \([^\n]*\); remove it, [^\n]*\Z"):
            receipts.look([NAME])
        with pytest.raises(bertprep.BertprepError, match="is damaged"):
            receipts.missing([NAME])
    assert sums(folder) == before


@pytest.mark.parametrize("kind", NO_FILES)
def test_a_receipt_that_is_no_file_is_one_line(kind: str, folder: Path) -> None:
    make_no_file(receipt(folder), kind)
    with receipts_of(folder) as receipts:
        ask = (lambda: receipts.add(NAME, FACTS)) if kind == "folder" else receipts.look  # a listing has no folders
        with pytest.raises(bertprep.BertprepError, match=r"\A[^\n]*part-0.json: is damaged \([^\n]*\Z"):
            ask()


def test_a_receipt_of_other_settings_is_never_taken(folder: Path) -> None:
    (folder / RECEIPTS / "settings.json").unlink()
    with receipts_of(folder, seq=512) as receipts, pytest.raises(bertprep.BertprepError, match="made with other settings"):
        receipts.look([NAME])


@pytest.mark.parametrize("content", [b"", b"[]", b'{"schema": 99, "kind": "text shards", "made_with": {}}', NESTED])
def test_damaged_settings_are_one_line(content: bytes, folder: Path) -> None:
    (folder / RECEIPTS / "settings.json").write_bytes(content)
    with pytest.raises(bertprep.BertprepError, match=r"\A[^\n]*settings.json: is damaged \([^\n]*\Z"):
        receipts_of(folder).__enter__()


def test_other_settings_are_told_the_first_difference(folder: Path) -> None:
    with pytest.raises(bertprep.BertprepError, match="was made with --seq 128, asked for is --seq 512; choose another"):
        receipts_of(folder, seq=512).__enter__()


@pytest.mark.parametrize("link", [RECEIPTS, f"{RECEIPTS}/training"])
def test_nothing_is_written_or_removed_through_a_link(link: str, tmp_path: Path) -> None:
    folder, outside = tmp_path / "records", tmp_path / "outside"
    (folder / link).parent.mkdir(parents=True)
    outside.mkdir()
    (outside / "part-0.json").write_text("{}")
    (folder / link).symlink_to(outside)
    before = sums(outside)
    with pytest.raises(bertprep.BertprepError, match=r"\A[^\n]*: is a link, and nothing is written there; remove it\Z"):
        add(folder, NAME)
    assert sums(outside) == before


def test_names_that_are_bertpreps_own_are_no_receipts(folder: Path) -> None:
    content = receipt(folder).read_text().replace(NAME, "training/manifest.json")
    (folder / RECEIPTS / "training" / "manifest.json.json").write_text(content)
    with receipts_of(folder) as receipts, pytest.raises(bertprep.BertprepError, match=r"is damaged \(.*bertprep's own files"):
        receipts.look()


def test_of_two_that_finish_formats_at_once_neither_is_lost(store: Store) -> None:
    folder, names = store.place("records"), ["one/part-0", "two/part-0", "three/part-0"]
    for name in names:
        with atomic_file(folder / name) as file:
            file.write(b"abc")

    def finish(name: str) -> None:
        with receipts_of(folder) as receipts:
            receipts.look([name])
            receipts.finish([name], {})

    with receipts_of(folder) as receipts:
        receipts.add_all([(name, FACTS) for name in names])
    finish(names[0])
    with receipts_of(folder) as receipts:
        receipts.look([names[1]])
        store.faults.append(Fault("PUT", ".*/manifest.json", act=lambda: finish(names[2])))
        receipts.finish([names[1]], {}, keep=[names[0]])
    finished = read_manifest(folder)
    assert not store.faults[0].times  # right before the manifest was to be replaced
    assert finished
    assert finished.files.keys() == set(names)
    assert not list(folder.rglob(f"{RECEIPTS}/*"))


@pytest.mark.parametrize("package", ["bertprep", "pyarrow"])
def test_files_of_two_versions_are_never_one_folder(folder: Path, package: str) -> None:
    name = "parquet/part-0.parquet"
    add(folder, name)
    path = folder / RECEIPTS / f"{name}.json"
    content = json.loads(path.read_bytes())
    ours = content["versions"][package]
    path.write_bytes(changed(content, versions={**content["versions"], package: "0.0.1", "python": "2.7", "llvmlite": "0.1"}))
    says = f"{name}: was made with {package} 0.0.1, this run has {package} {ours}, which may make other files; finish with"
    for look in (lambda receipts: receipts.look([name]), lambda receipts: receipts.missing([NAME, name])):
        with receipts_of(folder) as receipts:
            receipts.look([NAME])
            with pytest.raises(BertprepError, match=re.escape(says)):
                look(receipts)
    path.write_bytes(changed(content, versions={**content["versions"], "python": "2.7", "llvmlite": "0.1"}))
    with receipts_of(folder) as receipts:
        assert receipts.missing([NAME, name]) == []


def test_a_journal_of_another_version_is_refused_and_one_without_versions_is_read(tmp_path: Path) -> None:
    (tmp_path / NAME).parent.mkdir()
    (tmp_path / NAME).write_bytes(b"abc")
    with Journal(tmp_path, RECORDS, MADE_WITH) as journal:
        journal.add(NAME, FACTS)
    path = tmp_path / (MANIFEST + JOURNAL_SUFFIX)
    header, entry = path.read_bytes().splitlines()
    content = json.loads(entry)
    assert content["versions"]["bertprep"] == bertprep.__version__
    path.write_bytes(header + b"\n" + changed(content, versions={**content["versions"], "bertprep": "0.0.1"}) + b"\n")
    says = f"{NAME}: was made with bertprep 0.0.1, this run has bertprep {bertprep.__version__}"
    with pytest.raises(BertprepError, match=re.escape(says)):
        Journal(tmp_path, RECORDS, MADE_WITH).__enter__()
    del content["versions"]
    path.write_bytes(header + b"\n" + json.dumps(content).encode() + b"\n")
    with Journal(tmp_path, RECORDS, MADE_WITH) as journal:
        assert journal.done == {NAME: FACTS}


def test_many_are_noted_in_a_store_at_once_and_what_fails_is_told(store: Store) -> None:
    folder, names = store.place("records"), [f"training/part-{number}" for number in range(100)]
    for name in names:
        store.request("PUT", f"records/{name}", b"abc")
    at_once = threading.Barrier(8)  # of which a single writer would never leave the first
    store.faults.append(Fault("PUT", ".*/training/.*", times=8, act=lambda: at_once.wait(timeout=60)))
    with receipts_of(folder) as receipts:
        for name in names:
            receipts.add_soon(name, FACTS)
        assert receipts.missing(names) == []
        assert receipts.done.keys() == set(names)
        receipts.add_soon(names[3], {**FACTS, "sha256": "1" * 64})
        with pytest.raises(BertprepError, match="part-3: another run has made it with sha256 0000000000000000"):
            receipts.missing(names)
