"""Completion markers come from a shared folder or a store: they are checked as manifests are."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from bertprep.errors import BertprepError
from bertprep.work.layout import LEDGER, MANIFEST
from bertprep.work.ledger import Ledger, is_unfinished
from bertprep.work.manifest import RECORDS, Manifest, read_manifest
from tests.hostile import NESTED
from tests.work.toy import tree

NAME = "training/part-0"
ENTRY = {"bytes": 3, "blake3": "0" * 64, "examples": 1}
VERSIONS = {"bertprep": "1", "numpy": "2"}


def ledger_of(folder: Path, versions: dict[str, str] = VERSIONS, **made_with: Any) -> Ledger:
    return Ledger(folder=folder, kind=RECORDS, made_with={"seq": 128, **made_with}, versions=versions, counts={"dropped": 2})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one finished file of two."""
    folder = tmp_path / "records"
    ledger = ledger_of(folder)
    assert ledger.open([NAME, "training/part-1"]) == {}
    (folder / NAME).parent.mkdir()
    (folder / NAME).write_bytes(b"abc")
    ledger.finish(NAME, ENTRY)
    ledger.close([NAME, "training/part-1"])
    return folder


def marker(folder: Path) -> Path:
    return folder / LEDGER / f"{NAME}.json"


def test_what_is_finished_is_found_again_and_closed(folder: Path) -> None:
    ledger = ledger_of(folder, {**VERSIONS, "numpy": "3"})  # which decides no bytes
    assert ledger.open([NAME]) == {NAME: ENTRY}
    assert ledger.is_finished(NAME)
    assert not ledger.is_finished("training/part-1")
    assert is_unfinished(folder)
    manifest, missing = ledger.close([NAME])
    assert missing == []
    assert manifest == read_manifest(folder) == Manifest(RECORDS, {"seq": 128}, {NAME: ENTRY}, VERSIONS, {"dropped": 2})
    assert tree(folder).keys() == {NAME, MANIFEST}
    assert not is_unfinished(folder)


@pytest.mark.parametrize(
    ("versions", "line"),
    [
        (
            {**VERSIONS, "bertprep": "2"},
            "was started with bertprep 1, but this run has bertprep 2, which may write other bytes",
        ),
        (
            {**VERSIONS, "pyarrow": "3"},
            "was started with pyarrow None, but this run has pyarrow 3, which may write other bytes",
        ),
        ({"numpy": "2"}, "was started with bertprep 1, but this run has bertprep None, which may write other bytes"),
    ],
)
def test_what_one_version_began_no_other_finishes(versions: dict[str, str], line: str, folder: Path) -> None:
    with pytest.raises(BertprepError, match=f"^{folder}: {line}"):
        ledger_of(folder, versions).open([NAME])


def test_a_run_that_only_finishes_binds_no_folder(tmp_path: Path) -> None:
    assert ledger_of(tmp_path / "new").open([NAME], binds=False) == {}
    assert not (tmp_path / "new" / LEDGER).exists()


def test_a_file_of_a_run_that_begins_at_the_same_time_is_not_foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, look = ledger_of(tmp_path), Ledger._look

    def begin_meanwhile(self: Ledger, names: list[str]) -> Any:
        monkeypatch.undo()
        ledger_of(tmp_path).open(names)
        (tmp_path / NAME).parent.mkdir()
        (tmp_path / NAME).write_bytes(b"abc")  # and has no marker yet
        return look(self, names)

    monkeypatch.setattr(Ledger, "_look", begin_meanwhile)
    assert ledger.open([NAME]) == {}


def test_a_late_run_finds_the_folder_closed_and_leaves_nothing(folder: Path) -> None:
    late, ledger = ledger_of(folder), ledger_of(folder)
    late.open([NAME])
    ledger.open([NAME])
    ledger.close([NAME])
    before = tree(folder)
    late.finish(NAME, ENTRY)
    assert not is_unfinished(folder)
    late.close([NAME])
    assert tree(folder) == before
    late.finish(NAME, {**ENTRY, "blake3": "1" * 64})
    with pytest.raises(BertprepError, match=r"part-0: differs from manifest.json, and was removed; run the command again"):
        ledger_of(folder).open([NAME])
    assert tree(folder).keys() == {MANIFEST}


def test_a_file_is_finished_once_and_another_checksum_is_an_error(folder: Path) -> None:
    before = marker(folder).read_bytes()
    ledger_of(folder).finish(NAME, ENTRY)
    with pytest.raises(
        BertprepError, match=r"part-0: has blake3 1111.*, but another run made it with blake3 0000.*, so the text or a library"
    ):
        ledger_of(folder).finish(NAME, {**ENTRY, "blake3": "1" * 64})
    assert not (folder / NAME).exists()  # rather than there under the other's checksum
    assert marker(folder).read_bytes() == before


@pytest.mark.parametrize("version", ["2", "1.dev0"])
def test_a_version_that_decides_bytes_is_refused(folder: Path, version: str) -> None:
    message = rf"was started with bertprep 1, but this run has bertprep {version}, which may write other bytes"
    with pytest.raises(BertprepError, match=message):
        ledger_of(folder, {**VERSIONS, "bertprep": version}).open([NAME])


def test_a_manifest_of_other_files_is_refused(folder: Path) -> None:
    ledger_of(folder).close([NAME])
    with pytest.raises(BertprepError, match=r"records: its manifest.json does not list training/part-1; choose another"):
        ledger_of(folder).open([NAME, "training/part-1"])


DAMAGED: dict[str, dict[str, Any]] = {
    "of another file": {"name": "training/part-1"},
    "of a file elsewhere": {"name": "../outside"},
    "digest that is none": {"settings": "x"},
    "entry that is none": {"entry": [1]},
    "bytes below 0": {"entry": {**ENTRY, "bytes": -1}},
    "bytes missing": {"entry": {"blake3": "0" * 64, "examples": 1}},
    "checksum of other digits": {"entry": {**ENTRY, "blake3": "Z" * 64}},
}
BYTES = {"half": b'{"settings": "na', "nested": NESTED, "a list": b"[]", "not UTF-8": b'"\xff"'}


@pytest.mark.parametrize("name", [*DAMAGED, *BYTES])
def test_a_damaged_marker_is_one_line_that_names_it(name: str, folder: Path) -> None:
    content = json.loads(marker(folder).read_text())
    marker(folder).write_bytes(BYTES[name] if name in BYTES else json.dumps({**content, **DAMAGED[name]}).encode())
    before = tree(folder)
    with pytest.raises(BertprepError, match=r"\A[^\n]*part-0.json: is corrupt \([^\n]*\); remove it, [^\n]*\Z"):
        ledger_of(folder).open([NAME])
    assert tree(folder) == before


@pytest.mark.parametrize("content", [b"", b"\0" * 50])
def test_a_marker_that_a_power_cut_has_emptied_counts_as_none(content: bytes, folder: Path) -> None:
    marker(folder).write_bytes(content)
    ledger = ledger_of(folder)
    assert ledger.open([NAME]) == {}
    ledger.finish(NAME, ENTRY)
    assert ledger.close([NAME])[1] == []


def test_a_marker_that_is_no_file_is_one_line(folder: Path) -> None:
    marker(folder).unlink()
    os.mkfifo(marker(folder))
    with pytest.raises(BertprepError, match=r"\A[^\n]*part-0.json: is corrupt \([^\n]*\Z"):
        ledger_of(folder).open([NAME])


def test_a_marker_of_other_settings_is_never_taken(folder: Path) -> None:
    (folder / LEDGER / "settings.json").unlink()
    with pytest.raises(BertprepError, match="its file was made with other settings"):
        ledger_of(folder, seq=512).open([NAME])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        NESTED,
        b'{"format": 1, "versions": {"a": 3}}',
        b'{"format": 1, "kind": "masked-LM records", "made_with": {"seq": 128}, "versions": {}, "command": "rm"}',
    ],
)
def test_damaged_settings_are_one_line(content: bytes, folder: Path) -> None:
    (folder / LEDGER / "settings.json").write_bytes(content)
    with pytest.raises(BertprepError, match=r"\A[^\n]*settings.json: is corrupt \([^\n]*\Z"):
        ledger_of(folder).open([NAME])


@pytest.mark.parametrize("link", ["training", LEDGER, f"{LEDGER}/training"])
def test_nothing_is_written_or_removed_through_a_link(link: str, tmp_path: Path) -> None:
    folder, outside = tmp_path / "records", tmp_path / "outside"
    (folder / link).parent.mkdir(parents=True)
    outside.mkdir()
    (outside / "part-0.json").write_text("{}")
    (outside / "part-0.12345678.tmp").write_text("mine")
    (folder / link).symlink_to(outside)
    before = tree(outside)
    ledger = ledger_of(folder)
    with pytest.raises(BertprepError, match=r"\A[^\n]* is a link[^\n]*nothing is written[^\n]*\Z"):
        ledger.open([NAME])
    ledger.abandon([NAME])
    assert tree(outside) == before


def test_a_file_system_without_hard_links_will_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", refuse)
    marker(folder).unlink()
    ledger = ledger_of(folder)
    ledger.open([NAME])
    ledger.finish(NAME, ENTRY)
    ledger.finish(NAME, ENTRY)
    assert ledger.close([NAME])[1] == []
