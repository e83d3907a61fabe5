"""What bertprep wrote in a format of tomorrow, or in none, is refused in one line: nothing is read, and nothing touched."""

import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import bertprep
from bertprep.cli import main
from bertprep.terminal import printable
from bertprep.version import __version__
from bertprep.work.format import FORMAT, FormatError, check_format
from bertprep.work.layout import LEDGER, MANIFEST, MAPPED
from tests.golden import GOLDEN
from tests.golden.make_manifests import make_each_kind
from tests.hostile import contents
from tests.hub_server import Account, HubServer, use_hub
from trainer.cli import main as trainer_main

VOCABULARY = GOLDEN / "vocab.txt"
TOKEN = "hf_of_me"
NEWER = f"has format {FORMAT + 1}, but bertprep {__version__} reads format {FORMAT}; use the version of bertprep that wrote it"
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "of tomorrow": ({"format": FORMAT + 1}, NEWER),
    "none": ({}, "has no format number, so no released version of bertprep wrote it; "),
}
TEXTS = ("--input", "text/text_0.txt", "text/text_1.txt")
OF_BOOKS = ("--workdir", "data", "--corpus", "books")
DOCUMENTS = ("--tokenizer", "byte_bpe/tokenizer.json", *TEXTS)
PART = (*TEXTS, "--vocab", str(VOCABULARY), "--format", "tfrecord", "--output", "parts")


@dataclass(frozen=True)
class Kind:
    """A kind of file that we write: the pattern of its path, and the command lines that read it."""

    path: str
    commands: tuple[Sequence[str], ...]


RECORDS = "data/tfrecord/*/books"
TOKENS = "data/tokens/*/books"
KINDS = {
    "text shards": Kind(
        f"data/sharded/books/{MANIFEST}",
        (
            ["validate", "data/sharded"],
            ["shard", *OF_BOOKS, *TEXTS],
            ["vocab", *OF_BOOKS],
            ["tokenize", *OF_BOOKS, "--vocab", str(VOCABULARY)],
            ["create", *OF_BOOKS, "--vocab", str(VOCABULARY)],
            ["create", *OF_BOOKS, "--vocab", str(VOCABULARY), "--dry-run"],
        ),
    ),
    "records": Kind(
        f"{RECORDS}/{MANIFEST}",
        (
            ["validate", RECORDS],
            ["validate", "data/tfrecord", "--remove-damaged"],
            ["inspect", f"{RECORDS}/training/books_training_00000.tfrecord"],
            ["convert", RECORDS, "target", "--to", "ofrecord"],
            ["create", *OF_BOOKS, "--vocab", str(VOCABULARY), "--dupe", "1"],
            ["push", RECORDS, "me/books", "--workdir", "data"],
            ["train", "--data", RECORDS],
        ),
    ),
    "records of given shards": Kind(
        f"given/ofrecord/{MANIFEST}",
        (
            ["validate", "given"],
            ["create", TEXTS[0], TEXTS[1], "--vocab", str(VOCABULARY), "--dupe", "1", "--output", "given"],
        ),
    ),
    "converted records": Kind(
        f"converted/{MANIFEST}", (["convert", RECORDS, "converted", "--to", "ofrecord", "--shards", "3"],)
    ),
    "token shards": Kind(
        f"{TOKENS}/{MANIFEST}",
        (
            ["validate", TOKENS],
            ["inspect", f"{TOKENS}/training/books_training_00000.bin"],
            ["tokenize", *OF_BOOKS, "--vocab", str(VOCABULARY)],
            ["create", "--input", TOKENS, "--vocab", str(VOCABULARY), "--output", "target"],
        ),
    ),
    "token shards of documents": Kind(
        f"documents/tokens/{MANIFEST}",
        (
            ["validate", "documents"],
            ["tokenize", *DOCUMENTS, "--output", "documents"],
            ["convert", "documents", "target", "--to", "mds", "--seq", "128"],
        ),
    ),
    "MDS": Kind(f"mds/{MANIFEST}", (["convert", "documents", "mds", "--to", "mds", "--seq", "128"], ["validate", "mds"])),
    "SQuAD": Kind(
        f"data/tfrecord/*/squad_v1.1/{MANIFEST}",
        (
            ["validate", "data/tfrecord"],
            ["task", "squad", "--workdir", "data", "--vocab", str(VOCABULARY), "--format", "tfrecord"],
        ),
    ),
    "sorted text": Kind(f"parts_of_shard/sharded/books/{MAPPED}/*/*/{MANIFEST}", (
        ["shard", *TEXTS, "--workdir", "parts_of_shard", "--corpus", "books", "--shards", "2"],
    )),
    "settings of a ledger": Kind(
        f"parts/tfrecord/{LEDGER}/settings.json",
        (["create", *PART], ["create", *PART, "--part", "0/2"], ["create", *PART, "--part", "finish"], ["validate", "parts"]),
    ),
    "settings of text shards": Kind(
        f"parts_of_shard/sharded/books/{LEDGER}/settings.json",
        (
            ["shard", *TEXTS, "--workdir", "parts_of_shard", "--corpus", "books", "--shards", "2"],
            ["create", "--workdir", "parts_of_shard", "--corpus", "books", "--vocab", str(VOCABULARY)],
        ),
    ),
    "marker of a ledger": Kind(
        f"parts/tfrecord/{LEDGER}/training/*.json",
        (["create", *PART], ["create", *PART, "--part", "0/2"], ["create", *PART, "--part", "finish"]),
    ),
    "listing": Kind(
        "data/download/bookscorpus/listing.json",
        (
            ["download", "bookcorpus", "--from-files", "text", "--workdir", "data"],
            ["shard", "--corpus", "bookscorpus", "--workdir", "data"],
        ),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with each kind of file."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_each_kind(folder)
        assert (
            main(["shard", *TEXTS, "--workdir", "parts_of_shard", "--corpus", "books", "--shards", "2", "--part", "1/2"]) == 0
        )
        assert main(["create", *PART, "--part", "1/2"]) == 0
        assert main(["download", "bookcorpus", "--from-files", "text", "--workdir", "data"]) == 0
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, which is the working directory."""
    shutil.copytree(made, tmp_path / "here", symlinks=True)
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    with HubServer() as server:
        use_hub(monkeypatch, server.url, tmp_path / "hf")
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        server.uploads.accounts[TOKEN] = Account("me")
        yield server


@pytest.mark.parametrize("found", [None, "1", "\x1b[2J\n\u202e", 0, 1.0, True, -1, [1], "x" * 1000])
def test_a_format_that_is_no_number_is_refused(found: object) -> None:
    with pytest.raises(FormatError, match=r"^a\.json: has format .{1,40}, expected 1; make it again$") as refused:
        check_format("a.json", {"format": found}, "make it again")
    assert printable(str(refused.value)) == str(refused.value)
    check_format("a.json", {"format": FORMAT}, "make it again")


def with_format(content: bytes, change: dict[str, Any]) -> bytes:
    """The JSON of a file with another format."""
    value = json.loads(content)
    assert value.pop("format") == FORMAT
    return json.dumps(value | change).encode()


def spoil(folder: Path) -> None:
    """Replace the content of a folder's data by bytes that no reader accepts, so that whoever reads any says so."""
    for path in folder.rglob("*"):
        if path.suffix in (".tfrecord", ".bin", ".mds") or (path.name.startswith("part-") and path.suffix != ".json"):
            path.write_bytes(b"\xff" * path.stat().st_size)


def change_format(path: Path, change: dict[str, Any]) -> None:
    path.write_bytes(with_format(path.read_bytes(), change))
    spoil(path.parent if LEDGER not in path.parts else path.parents[path.parts[::-1].index(LEDGER)])


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_another_format_is_refused(kind: str, bad: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, says = BAD[bad]
    paths = sorted(folder.glob(KINDS[kind].path))
    assert paths
    for path in paths:
        change_format(path, change)
    before = contents(folder)
    for command in KINDS[kind].commands:
        name, *options = [str(next(Path().glob(each))) if "*" in each else each for each in command]
        capsys.readouterr()
        assert (trainer_main(options) if name == "train" else main([name, *options])) == 1, command
        *others, line = capsys.readouterr().err.splitlines()
        found = re.fullmatch(rf"(bertprep|trainer): error: (.+?): {re.escape(printable(says))}.*", line)
        assert found, (command, line)
        assert Path(found[2]).absolute() in paths, command
        assert "error: " not in "".join(others), command
        assert contents(folder) == before, command


def test_the_manifest_of_another_program_in_a_folder_without_data_stops_nothing(folder: Path) -> None:
    (folder / "data/tfrecord/extension").mkdir()
    (folder / "data/tfrecord/extension" / MANIFEST).write_text('{"name": "a browser extension"}')
    assert [outcome.ok for outcome in bertprep.validate(["data/tfrecord"], workers=1)] == [True, True, True]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("kind", ["records", "token shards", "token shards of documents"])
def test_a_data_set_of_another_format_is_not_opened(kind: str, bad: str, folder: Path) -> None:
    change, says = BAD[bad]
    [path] = folder.glob(KINDS[kind].path)
    change_format(path, change)
    openers: dict[str, Callable[[Path], object]] = {
        "records": bertprep.RecordDataset,
        "token shards": lambda data: bertprep.LiveExamples(data, vocab=VOCABULARY),
        "token shards of documents": bertprep.TokenDataset,
    }
    before = contents(folder)
    with pytest.raises(FormatError) as refused:
        openers[kind](path.parent)
    assert str(refused.value).startswith(f"{path}: {says}")
    assert contents(folder) == before


def states(folder: Path) -> Iterator[tuple[dict[str, Any], Callable[[dict[str, Any]], None]]]:
    """The states of data sets and streams, and what loads each."""
    dataset = bertprep.TokenDataset(folder / "documents/tokens", seq=64)
    pairs = bertprep.PairDataset(next(folder.glob(TOKENS)), seq=64, vocab=VOCABULARY)
    for each in (dataset, pairs, bertprep.Mixture([(dataset, 1)])):
        yield each.state_dict(), each.load_state_dict
        stream = each.stream(4)
        yield stream.state_dict(), stream.load_state_dict


@pytest.mark.parametrize("bad", BAD)
def test_a_state_of_another_format_is_refused(bad: str, made: Path) -> None:
    change, says = BAD[bad]
    for state, load in states(made):
        assert state.pop("format") == FORMAT
        load(state | {"format": FORMAT})
        with pytest.raises(FormatError) as refused:
            load(state | change)
        assert str(refused.value).startswith(f"the state: {says}")
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("bad", BAD)
def test_a_pushed_data_set_of_another_format_is_refused(
    bad: str, folder: Path, hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    change, says = BAD[bad]
    records = str(next(folder.glob(RECORDS)))
    assert main(["push", records, "me/books", "--workdir", "pushed"]) == 0
    there = hub.repositories["datasets/me/books"]
    files = there.commits[there.revisions["main"]]
    hub.put("datasets/me/books", {**files, MANIFEST: with_format(files[MANIFEST], change)})
    pushed, before = there.revisions["main"], contents(folder)
    for command in (
        ["push", records, "me/books", "--workdir", "pushed"],
        ["download", "dataset", "me/books", "--workdir", "downloaded"],
    ):
        capsys.readouterr()
        assert main(command) == 1, command
        line = capsys.readouterr().err.splitlines()[-1]
        assert f"/datasets/me/books: its {MANIFEST}: {printable(says)}" in line, command
        assert (there.revisions["main"], contents(folder)) == (pushed, before), command
