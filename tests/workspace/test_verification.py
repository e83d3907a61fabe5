"""`--verify`: a file with the right size but wrong bytes is found by its sha256, and remade identically."""

import json
import shutil
from pathlib import Path

import pytest

import bertprep
from bertprep.cli import main
from bertprep.commands.create import create
from bertprep.commands.shard import shard
from bertprep.errors import BertprepError
from bertprep.progress import SILENT
from bertprep.workspace.journal import Journal
from bertprep.workspace.layout import MANIFEST
from bertprep.workspace.manifest import JOURNAL_SUFFIX, RECORDS, read_finished, read_manifest
from bertprep.workspace.verification import remove_damaged
from tests.corpora import sums
from tests.golden import GOLDEN

SETTINGS = bertprep.InstanceSettings(dupe=1)
CREATE = ["create", "--corpus", "gold", "--dupe", "1", "--vocab", str(GOLDEN / "vocab.txt"), "--workers", "2"]


@pytest.fixture(scope="module")
def made(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with everything made, which no test changes."""
    workdir = tmp_path_factory.mktemp("made")
    shard([golden_corpus], splitter="lines", workdir=workdir, corpus="gold", workers=1)
    create(workdir=workdir, corpus="gold", vocab=GOLDEN / "vocab.txt", **vars(SETTINGS), workers=1)
    return workdir


@pytest.fixture
def workdir(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "data")
    return tmp_path / "data"


def flip(path: Path) -> None:
    """Change one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def run(workdir: Path, *options: str) -> int:
    return main([*CREATE, "--workdir", str(workdir), *options])


def identities(folder: Path) -> dict[str, tuple[int, int]]:
    """Files that are written again are other ones, even with the same bytes."""
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def only(workdir: Path, pattern: str) -> Path:
    [path] = workdir.glob(pattern)
    return path


def test_a_flipped_byte_is_made_again_and_nothing_else(workdir: Path, made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = only(workdir, "ofrecord/*/gold/training/part-*2")
    flip(damaged)
    before = identities(workdir)
    assert run(workdir) == 0
    assert "create: all 5 shards are made already (sizes compared; --verify compares checksums)" in capsys.readouterr().err
    assert identities(workdir) == before

    assert run(workdir, "--verify") == 0
    shown = capsys.readouterr().err
    assert "verify ofrecord: 5/5 files" in shown
    [line] = [line for line in shown.splitlines() if "made again" in line]
    assert line.startswith(f"{damaged}: has sha256 ")
    assert "create: 1/1 shards" in shown
    assert sums(workdir) == sums(made)
    after = identities(workdir)
    changed = {path for path in after if after[path] != before[path]}
    assert changed == {str(damaged), str(damaged.parent.parent / MANIFEST)}


def test_what_is_right_is_only_read(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = identities(workdir)
    assert run(workdir, "--verify") == 0
    shown = capsys.readouterr().err
    assert "create: all 5 shards are made already (checksums compared)" in shown
    assert "made again" not in shown
    assert identities(workdir) == before


def test_missing_and_short_files_are_told_too(workdir: Path, made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone, short = only(workdir, "tfrecord/*/gold/test/*.tfrecord"), only(workdir, "tfrecord/*/gold/training/*_00000.tfrecord")
    size_bytes = short.stat().st_size
    gone.unlink()
    short.write_bytes(b"short")
    assert run(workdir, "--verify") == 0
    shown = capsys.readouterr().err
    assert f"{gone}: is missing; it is made again" in shown
    assert f"{short}: has 5 bytes, expected {size_bytes:,}; it is made again" in shown
    assert sums(workdir) == sums(made)


def test_files_of_an_unfinished_run_are_read_too(workdir: Path, made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged, missing = only(workdir, "ofrecord/*/gold/training/part-*1"), only(workdir, "ofrecord/*/gold/training/part-*3")
    as_unfinished(damaged.parent.parent)
    missing.unlink()
    flip(damaged)
    assert run(workdir, "--verify") == 0
    shown = capsys.readouterr().err
    assert f"{damaged}: has sha256 " in shown
    assert "create: 2/2 shards" in shown
    assert sums(workdir) == sums(made)


def as_unfinished(folder: Path) -> None:
    """The journal of a run that was killed just before its end, in place of the manifest."""
    content = json.loads((folder / MANIFEST).read_bytes())
    header = {name: content[name] for name in ("schema", "kind", "made_with")}
    entries = [{"name": name, "facts": facts} for name, facts in content["files"].items()]
    journal = folder / (MANIFEST + JOURNAL_SUFFIX)
    journal.write_text("".join(json.dumps(entry) + "\n" for entry in (header, *entries)))
    (folder / MANIFEST).unlink()


def test_a_run_killed_after_it_removed_a_file_is_continued_without_verify(workdir: Path, made: Path) -> None:
    damaged = only(workdir, "ofrecord/*/gold/training/part-*2")
    flip(damaged)
    folder = damaged.parent.parent
    manifest = read_manifest(folder)
    assert manifest is not None
    finished = read_finished(folder, RECORDS, manifest.made_with)
    journal = Journal(folder, RECORDS, manifest.made_with)
    assert remove_damaged(finished, journal, label="ofrecord", workers=1, reporter=SILENT)
    assert not damaged.exists()
    assert run(workdir) == 0
    assert sums(workdir) == sums(made)


def test_records_are_not_made_of_damaged_text_shards(workdir: Path, made: Path, golden_corpus: Path) -> None:
    text, records = only(workdir, "sharded/gold/training/*_00001.txt"), only(workdir, "ofrecord/*/gold/training/part-*1")
    flip(text)
    records.unlink()

    with pytest.raises(BertprepError) as error:
        create(workdir=workdir, corpus="gold", vocab=GOLDEN / "vocab.txt", **vars(SETTINGS), workers=1, verify=True)
    assert str(error.value).startswith(f"{text}: has sha256 ")
    assert "; bertprep shard --verify --corpus gold, with the --input it was made of" in str(error.value)
    shard([golden_corpus], splitter="lines", workdir=workdir, corpus="gold", workers=1, verify=True)
    create(workdir=workdir, corpus="gold", vocab=GOLDEN / "vocab.txt", **vars(SETTINGS), workers=1, verify=True)
    assert sums(workdir) == sums(made)


def test_cleaned_text_is_read_by_shard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "books.jsonl"
    source.write_text("".join(json.dumps({"text": f"This is document {n}. It has two sentences."}) + "\n" for n in range(50)))
    command = ["shard", "--input", str(source), "--corpus", "books", "--workdir", str(tmp_path / "data"), "--workers", "1"]
    assert main(command) == 0
    made = sums(tmp_path / "data")
    for name in ("formatted/books/books_00000.txt", "sharded/books/training/books_training_00002.txt"):
        flip(tmp_path / "data" / name)
        capsys.readouterr()
        assert main([*command, "--verify"]) == 0
        assert f"{tmp_path / 'data' / name}: has sha256 " in capsys.readouterr().err
        assert sums(tmp_path / "data") == made


def test_other_settings_are_refused_before_anything_is_removed(workdir: Path, golden_corpus: Path) -> None:
    flip(only(workdir, "sharded/gold/training/*_00001.txt"))
    before = sums(workdir)
    with pytest.raises(BertprepError, match="was made with --splitter lines, asked for is --splitter sentencex"):
        shard([golden_corpus], workdir=workdir, corpus="gold", workers=1, verify=True)
    assert sums(workdir) == before


@pytest.mark.parametrize("name", ["../../../mine.txt", "/mine.txt"])
def test_a_manifest_cannot_have_files_removed_outside_its_folder(workdir: Path, name: str) -> None:
    mine = workdir / "mine.txt"
    mine.write_text("mine")
    path = only(workdir, "ofrecord/*/gold/manifest.json")
    content = json.loads(path.read_bytes())
    content["files"][name.replace("/mine", f"{workdir}/mine") if name[0] == "/" else name] = {"bytes": 4, "sha256": "0" * 64}
    path.write_text(json.dumps(content))
    assert run(workdir, "--verify") == 1
    assert mine.read_text() == "mine"
