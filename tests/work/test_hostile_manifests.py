"""Manifests made by others or corrupt by a disk, given to every command that reads them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bertprep
from bertprep.cli import main
from bertprep.config import ShardSettings
from bertprep.errors import BertprepError
from bertprep.work.layout import MANIFEST
from bertprep.work.manifest import KINDS, MAPPED_TEXT, Manifest, manifest_of, read_manifest
from tests.golden import GOLDEN
from tests.hostile import BAD_NAMES, HALF_A_PAIR, contents, refused
from trainer.cli import main as trainer_main

Content = dict[str, Any]
TEXT = "".join(
    f"The {word} of the house was there.\nIt was {word} for all.\n\n" for word in ("first", "second", "third", "last")
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with two text shards and their TFRecords."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "text.txt").write_text(TEXT)
    settings = ShardSettings(shards=1, test_fraction=0.3, splitter="lines")
    bertprep.shard([folder / "text.txt"], **vars(settings), workdir=folder, corpus="text", workers=1)
    bertprep.create(vocab=GOLDEN / "vocab.txt", formats="tfrecord", workdir=folder, corpus="text", workers=1)
    return folder


@pytest.fixture
def workspace(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "workspace"))


@pytest.fixture
def records(workspace: Path) -> Path:
    """The folder of the TFRecords."""
    return next((workspace / "tfrecord").glob("*/text"))


def change(folder: Path, edit: Callable[[Content], object]) -> None:
    path = folder / MANIFEST
    content = json.loads(path.read_bytes())
    edit(content)
    path.write_text(json.dumps(content))


def rename_file(name: str) -> Callable[[Content], object]:
    def edit(content: Content) -> None:
        files = content["files"]
        files[name] = files.pop(next(iter(files)))

    return edit


def set_at(*keys: str, to: object) -> Callable[[Content], object]:
    """Put a value at keys, of which * is the first."""

    def edit(content: Content) -> None:
        for key in keys[:-1]:
            content = content[next(iter(content)) if key == "*" else key]
        content[keys[-1]] = to

    return edit


WRONG_VALUES = [
    *((("made_with", "seq"), value) for value in ("128", 128.0, True, None, 0, -8, 10**12, [128])),
    *((("made_with", name), "x") for name in ("pred", "dupe", "masked_lm_prob", "short_seq_prob", "seed", "cased")),
    (("made_with", "masked_lm_prob"), 7),
    *((("made_with", "vocabulary"), value) for value in ("x", {"tokens": "9"}, {"tokens": -1}, {"sha256": "zz"}, [1])),
    *((("made_with", "vocabulary"), {"pad": value}) for value in (-1, 1 << 21, True, "4")),
    *((("made_with", "corpus"), value) for value in ("../../outside", "/tmp/outside", "a/b", "", "a\x1b", 7, "x" * 250)),
    *((("files", "*", "bytes"), value) for value in (None, -1, 1.5, "9", True, 10**30, [])),
    *((("files", "*", "blake3"), value) for value in (None, 7, "zz", "A" * 64, "0" * 63)),
    *((("files", "*", "examples"), value) for value in (None, -1, "9")),
    *((("files", "*", "text"), value) for value in (None, {}, {"bytes": "1", "crc32c": ""})),
    *((("files", "*"), value) for value in (None, [], {}, "x")),
    *((("files",), value) for value in (None, [], "x", 7)),
    *((("files", name), {"bytes": 3, "blake3": "0" * 64, "examples": 1}) for name in BAD_NAMES),
    *((("made_with",), value) for value in (None, [], "x", {})),
    *((("versions",), value) for value in (None, [], {"bertprep": 1})),
    *((("counts",), value) for value in (None, [], {"dropped": -1})),
    *((("kind",), value) for value in (None, 7, [], "weights", HALF_A_PAIR)),
]  # fmt: skip


def unreadable(folder: Path) -> str:
    """The one line with which a manifest is refused."""
    with pytest.raises(BertprepError) as caught:
        read_manifest(folder)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{folder / MANIFEST}: is not a manifest of bertprep (")
    return str(caught.value)


def test_a_value_of_another_type_and_a_name_that_leads_elsewhere_are_one_line(records: Path) -> None:
    valid = (records / MANIFEST).read_bytes()
    for keys, value in WRONG_VALUES:
        change(records, set_at(*keys, to=value))
        assert len(unreadable(records)) < 600, (keys, value)
        (records / MANIFEST).write_bytes(valid)
    change(records, lambda content: next(iter(content["files"].values())).pop("blake3"))
    assert ".blake3 is missing" in unreadable(records)
    (records / MANIFEST).write_bytes(valid)
    change(records, lambda content: list(content["files"].values())[-1].pop("examples"))
    assert ".examples is missing" in unreadable(records)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"format":1,"kind":"\\u001b[2J\\nbertprep: error: all is well\\u202e"}'])
def test_a_file_that_is_no_manifest_is_one_line(content: bytes, records: Path) -> None:
    """What else is no JSON, or no file, tests/test_untrusted.py has."""
    (records / MANIFEST).write_bytes(content)
    unreadable(records)


def test_every_command_refuses_a_manifest_in_one_line(
    workspace: Path, records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "outside").write_text("mine")
    change(records, rename_file("../../../../outside"))
    change(workspace / "sharded" / "text", rename_file("../../../outside"))
    before = contents(tmp_path)
    first = next((records / "training").iterdir())
    for arguments in (
        ["convert", records, tmp_path / "target"],
        ["inspect", first],
        ["validate", records],
        ["create", "--corpus", "text", "--workdir", workspace, "--vocab", GOLDEN / "vocab.txt"],
        ["shard", "--corpus", "text", "--workdir", workspace, "--input", workspace / "text.txt"],
    ):
        refused(capsys, *arguments)
    for more in (["--data", records], ["--workdir", workspace]):
        refused(capsys, *more, main=trainer_main, program="trainer")
    assert contents(tmp_path) == before


def test_validate_tells_of_a_manifest_as_of_any_other_fault(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(records, set_at("files", "*", "bytes", to=None))
    assert main(["validate", str(records)]) == 1
    found = capsys.readouterr().out
    assert (
        f"error: manifest: {records / MANIFEST}: expected a manifest of bertprep, found a file that is not a manifest" in found
    )
    assert ".bytes is null, expected a whole number" in found


def test_a_setting_that_is_null_in_one_of_two_runs_is_one_line(
    workspace: Path, records: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(records, set_at("made_with", "colour", to=None))
    create = ["create", "--workdir", workspace, "--corpus", "text", "--vocab", GOLDEN / "vocab.txt", "--format", "tfrecord"]
    line = refused(capsys, *create)
    assert line.startswith(
        f"{records}: differs from this run in colour: one has null, the other nothing; choose another --work"
    )


@pytest.mark.parametrize("link", ["training", "test"])
def test_nothing_is_written_behind_a_link_that_leads_out(
    link: str, records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / link).symlink_to(outside)
    before = contents(outside)
    refused(capsys, "convert", records, tmp_path / "target")
    assert contents(outside) == before


def test_a_link_in_the_place_of_an_unfinished_file_is_not_written_through(records: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "found.json.tmp").symlink_to(tmp_path / "mine")
    main(["validate", str(records), "--json", str(tmp_path / "found.json")])
    assert json.loads((tmp_path / "found.json").read_bytes())
    assert (tmp_path / "mine").read_bytes() == b"mine"


def test_a_folder_that_is_a_link_is_written_to_and_linked_files_are_read(records: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "target").symlink_to(tmp_path / "disk")
    for path in list((records / "training").iterdir()):
        path.rename(tmp_path / path.name)
        path.symlink_to(tmp_path / path.name)
    assert main(["convert", str(records), str(tmp_path / "target")]) == 0
    assert read_manifest(tmp_path / "disk")


@pytest.mark.parametrize("path", sorted((GOLDEN / "manifests").glob("*.json")), ids=lambda path: path.stem)
def test_manifests_of_format_1_are_read_and_unknown_keys_kept(path: Path, tmp_path: Path) -> None:
    content = json.loads(path.read_bytes())
    assert manifest_of(content).as_json() == content
    newer = {**content, "made_with": {**content["made_with"], "later": {"a": [1]}}, "later": 1}
    for entry in newer["files"].values():
        entry["later"] = HALF_A_PAIR
    (tmp_path / MANIFEST).write_text(json.dumps(newer))
    assert read_manifest(tmp_path) == Manifest(
        content["kind"], newer["made_with"], newer["files"], content["versions"], content.get("counts", {})
    )


@pytest.mark.parametrize(
    ("manifest", "name", "value", "expected"),
    [
        ("squad", "version", None, "made_with.version is missing"),
        ("squad", "version", "3.0", 'made_with.version is "3.0", expected one of 1.1, 2.0'),
        ("squad", "doc_stride", 0, "made_with.doc_stride is 0"),
        ("squad", "task", "sum", 'made_with.task is "sum", expected one of squad, glue'),
        ("glue", "labels", None, "made_with.labels is missing"),
        ("glue", "labels", [1], "made_with.labels is a list of 1, expected a list, each text"),
        ("glue", "name", "../mrpc", 'made_with.name is "../mrpc"'),
        ("glue", "inputs", {}, "made_with.inputs is an object of 0"),
    ],
)
def test_a_task_s_manifest_has_what_its_task_needs(manifest: str, name: str, value: object, expected: str) -> None:
    content = json.loads((GOLDEN / "manifests" / f"{manifest}.json").read_bytes())
    if value is None:
        del content["made_with"][name]
    else:
        content["made_with"][name] = value
    with pytest.raises(ValueError, match="made_with") as caught:
        manifest_of(content)
    assert expected in str(caught.value)


def test_every_kind_has_a_manifest_to_test_it_with() -> None:
    # that of sorted text is gone when its shards are made
    assert {json.loads(path.read_bytes())["kind"] for path in (GOLDEN / "manifests").glob("*.json")} == set(KINDS) - {
        MAPPED_TEXT
    }
