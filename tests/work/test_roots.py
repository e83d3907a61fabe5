"""A folder that `create --output` of 0.2 made, one of its formats, or a file in it finds the one manifest and vocabulary.

Its records lay directly in the folder of their format, and one manifest above listed those of all formats.
"""

import json
import shutil
from pathlib import Path

import pytest

import bertprep
from bertprep.errors import BertprepError, UsageError
from bertprep.records.data_sets import find_records
from bertprep.work.roots import Root, find_root, find_vocabulary
from tests.corpora import deal
from tests.golden import GOLDEN
from tests.trainer.test_data import opened

FILES = {"tfrecord": "corpus_training_00001.tfrecord", "ofrecord": "part-1"}


@pytest.fixture(scope="module")
def made(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made")
    settings = bertprep.InstanceSettings(dupe=1)
    texts = deal(golden_corpus, root / "text", 2)
    bertprep.create(inputs=texts, output=root / "out", vocab=GOLDEN / "vocab.txt", **vars(settings), workers=1)
    make_old(root / "out")
    return root / "out"


def make_old(out: Path) -> None:
    """Lay the records of a folder out as 0.2 did."""
    files: dict[str, object] = {}
    for record_format in FILES:
        content = json.loads((out / record_format / "manifest.json").read_text())
        (out / record_format / "manifest.json").unlink()
        (out / record_format / "vocab.txt").replace(out / "vocab.txt")
        for name, entry in content["files"].items():
            old = f"{record_format}/{Path(name).name}"
            (out / record_format / name).rename(out / old)
            files[old] = entry
        (out / record_format / "training").rmdir()
        (out / "manifest.json").write_text(json.dumps({**content, "files": files}))


@pytest.fixture
def out(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(made, tmp_path / "out"))


@pytest.mark.parametrize("record_format", FILES)
def test_a_folder_of_a_format_has_its_root_above(record_format: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = find_root(out / record_format)
    assert root == Root(out, f"{record_format}/")
    assert root.manifest
    assert FILES[record_format] in root.manifest.files
    assert len(root.manifest.files) == 2
    assert find_vocabulary(out / record_format) == out / "vocab.txt"
    monkeypatch.chdir(out / record_format)
    assert find_root(Path()).folder.samefile(out)
    (out.parent / "link").symlink_to(out / record_format)
    assert find_root(out.parent / "link").folder.samefile(out)


@pytest.mark.parametrize("record_format", FILES)
@pytest.mark.parametrize("below", ["folder", "file"])
def test_validate_knows_manifest_and_vocabulary(below: str, record_format: str, out: Path) -> None:
    path = out / record_format / (FILES[record_format] if below == "file" else "")
    (outcome,) = bertprep.validate([path], workers=1)
    assert (outcome.kind, outcome.findings, outcome.vocabulary) == (record_format, [], out / "vocab.txt")
    assert outcome.manifest
    content = bytearray((out / record_format / FILES[record_format]).read_bytes())
    content[-1] ^= 1
    (out / record_format / FILES[record_format]).write_bytes(content)
    (outcome,) = bertprep.validate([path], workers=1)
    assert "file-changed" in {finding.code for finding in outcome.findings}


def test_validate_of_the_whole_takes_each_format(out: Path) -> None:
    outcomes = bertprep.validate([out], workers=1)
    assert sorted((outcome.folder.name, outcome.kind, len(outcome.files)) for outcome in outcomes) == [
        ("ofrecord", "ofrecord", 2),
        ("tfrecord", "tfrecord", 2),
    ]
    (out / "ofrecord" / "part-1").unlink()
    (out / "ofrecord" / "part-2").write_bytes((out / "ofrecord" / "part-0").read_bytes())
    found = {(finding.code, finding.file) for outcome in bertprep.validate([out], workers=1) for finding in outcome.findings}
    assert {("file-missing", "part-1"), ("file-extra", "part-2")} <= found


def test_what_needs_one_format_asks_for_it_where_there_are_two(out: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"out: holds tfrecord/ and ofrecord/; name one, such as .*out/tfrecord"):
        bertprep.convert(out, tmp_path / "converted")
    with pytest.raises(UsageError, match=r"holds tfrecord/ and ofrecord/; name one"):
        opened(out)
    for record_format in FILES:
        data = opened(out, format=record_format)
        assert (data.folders, data.records.formats) == ((out / record_format,), [record_format])
        assert data.vocabulary == out / "vocab.txt"


def test_a_file_that_is_gone_is_named(out: Path) -> None:
    (out / "ofrecord" / "part-1").unlink()
    with pytest.raises(BertprepError, match=r"ofrecord/part-1: is missing, .*out/manifest\.json lists it"):
        find_records(out / "ofrecord")
    shutil.rmtree(out / "ofrecord")
    with pytest.raises(BertprepError, match=r"ofrecord/part-0: is missing, .*out/manifest\.json lists it"):
        find_records(out / "ofrecord")


def test_another_tools_manifest_above_other_records_is_none_of_ours(out: Path, tmp_path: Path) -> None:
    theirs = Path(shutil.copytree(out / "tfrecord", tmp_path / "theirs" / "tfrecord"))
    for content in ("[]", json.dumps({"name": "a web page"})):
        (theirs.parent / "manifest.json").write_text(content)
        assert find_records(theirs).manifest is None
    (theirs.parent / "manifest.json").unlink()
    shutil.copy(out / "manifest.json", theirs.parent)  # ours lists such files
    assert find_records(theirs).manifest is not None
