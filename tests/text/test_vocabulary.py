"""A vocabulary is named by a file, by its name in the workspace or by a model; a trained one belongs to its text."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bertprep
from bertprep.config import VocabularySettings
from bertprep.errors import BertprepError, UsageError
from bertprep.files.lock import locked
from bertprep.text.vocabulary import digest_of_texts, find_vocabulary, train
from bertprep.work.layout import Workspace
from bertprep.work.text_identity import identify_text, text_entry


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("the dog barks\nthe cat\n\n" * 20)
    return path


def test_each_text_and_setting_has_a_vocabulary(text: Path, tmp_path: Path) -> None:
    workspace, other = Workspace(tmp_path / "data"), tmp_path / "other.txt"
    other.write_text("another text\n")
    choices: list[dict[str, Any]] = [
        {}, {"cased": True}, {"size": 30}, {"coverage": 0.9995}, {"min_frequency": 5}, {"unused": 99}, {"special": ("[ENT]",)},
    ]  # fmt: skip
    paths = {
        workspace.vocabulary("books", VocabularySettings(**settings), digest_of_texts({path: None}))
        for path in (text, other)
        for settings in choices
    }
    assert len(paths) == 2 * len(choices)
    renamed = text.rename(tmp_path / "renamed.txt")
    assert workspace.vocabulary("books", VocabularySettings(size=30), digest_of_texts({renamed: None})) in paths
    assert not workspace.root.exists()  # nothing is made


@pytest.mark.parametrize("command", ["vocab --corpus books", "create --corpus books --format tfrecord"])
def test_the_second_of_two_runs_waits_for_the_vocabulary(command: str, golden_corpus: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    bertprep.shard(golden_corpus, corpus="books", workdir=data, shards=2, workers=1)
    path = bertprep.train_vocabulary(corpus="books", workdir=data, workers=1)
    trained = path.rename(tmp_path / "trained.txt")
    started = [sys.executable, "-m", "bertprep", *command.split(), "--workdir", str(data), "--workers", "1"]
    with locked(path.parent, f".{path.name}.lock"):
        run = subprocess.Popen(started, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert run.stderr is not None
        assert next(line for line in run.stderr if "another run" in line or "training" in line) == (
            f"{path.parent}: another run is writing here; waiting for it\n"
        )
        trained.rename(path)
    _, printed = run.communicate()
    assert run.returncode == 0, printed
    assert "count words" not in printed
    assert list(path.parent.iterdir()) == [path]


def test_text_that_is_not_the_listed_one_is_refused(text: Path) -> None:
    entry = text_entry(text.name, *identify_text(text))
    text.write_text("changed\n")
    with pytest.raises(BertprepError, match=r"text\.txt: .* bytes with crc32c .* were read, expected "):
        digest_of_texts({text: entry})


def test_a_name_is_one_of_the_workspace_before_that_of_a_model(text: Path, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "data")
    with pytest.raises(UsageError, match=r"is neither a file nor a vocabulary in .*data; if it is the name of a model, fetch"):
        find_vocabulary(workspace, "books_30")
    downloaded = workspace.download("vocab") / "books_30" / "vocab.txt"
    downloaded.parent.mkdir(parents=True)
    downloaded.write_text("[PAD]\n")
    assert find_vocabulary(workspace, "books_30") == downloaded
    trained = workspace.vocabulary("books", VocabularySettings(size=30), digest_of_texts({text: None}))
    train([text], trained, VocabularySettings(size=30))
    assert find_vocabulary(workspace, "books_30") == find_vocabulary(workspace, trained.stem) == trained
    assert find_vocabulary(workspace, text) == text
    with pytest.raises(UsageError, match=r"the default vocabulary, of google-bert/bert-base-uncased, is not downloaded"):
        find_vocabulary(workspace, None)


def test_a_short_name_is_the_vocabulary_of_the_same_case(text: Path, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "data")
    cased = bertprep.train_vocabulary([text], corpus="books", size=30, cased=True, workdir=workspace.root)
    assert find_vocabulary(workspace, "books_30", cased=True) == cased
    with pytest.raises(UsageError, match=rf"--vocab books_30: is in .*data only as {cased.stem}; add --cased"):
        find_vocabulary(workspace, "books_30")
    uncased = bertprep.train_vocabulary([text], corpus="books", size=30, workdir=workspace.root)
    assert find_vocabulary(workspace, "books_30") == uncased
    for name in ("books_30", "books_30_cased", cased.stem):
        assert find_vocabulary(workspace, name, cased=True) == cased
    assert find_vocabulary(workspace, uncased.stem, cased=True) == uncased  # which is refused if it has no capitals


def test_why_a_vocabulary_is_not_used_is_reported(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = {"workdir": tmp_path / "data", "progress": True}
    text.write_text("".join(f"The dog {n} barks.\nThe cat {n} sleeps.\nIt is late.\n\n" for n in range(60)))
    bertprep.shard([text], splitter="lines", one_document_per_block=True, corpus="books", **where)
    foreign = bertprep.train_vocabulary([text], size=60, **where)  # of all of the text, under another name
    asked = {"corpus": "books", "formats": "tfrecord", "workers": 1, **where}

    def reported(**more: Any) -> str:
        capsys.readouterr()
        bertprep.create(**asked, **more)
        return capsys.readouterr().err

    assert f"{foreign} is not used: it was trained on another text\n" in reported()
    assert " is not used" not in reported()  # nothing is trained
    [uncased] = (tmp_path / "data/vocab").glob("books_*")
    assert f"{uncased} is not used: it is uncased, and upper case is kept\n" in reported(cased=True)
    uncased.unlink()
    [cased] = (tmp_path / "data/vocab").glob("books_*")
    assert f"{cased} is not used: it is cased, and --cased is not given\n" in reported(dupe=2)


def test_create_takes_the_vocabulary_that_was_trained_on_its_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not that of another case or text; of several it asks for one, unless one has 8,000 tokens."""
    where = {"workdir": tmp_path / "data", "corpus": "books"}
    made = {**where, "formats": "tfrecord", "workers": 1}
    text = tmp_path / "text.txt"
    text.write_text("".join(f"The dog {n} barks.\nThe cat {n} sleeps.\nIt is late.\n\n" for n in range(60)))
    bertprep.shard([text], splitter="lines", one_document_per_block=True, **where)
    small = bertprep.train_vocabulary(size=60, **where)
    bertprep.train_vocabulary(size=60, cased=True, **where)
    bertprep.train_vocabulary([text], size=60, **where)

    def vocabulary_of(name: str) -> bytes:
        records = bertprep.create(**made, dupe=len(name), progress=True)
        return (records.folder / "vocab.txt").read_bytes()

    assert vocabulary_of("a") == small.read_bytes()
    assert f"using the vocabulary trained on this text, {small} (choose another with --vocab)" in capsys.readouterr().err
    other = bertprep.train_vocabulary(size=70, **where)
    with pytest.raises(UsageError, match=f"has 2 vocabularies, none with 8,000 tokens; choose one: --vocab .*{small.name}"):
        vocabulary_of("bb")
    default = bertprep.train_vocabulary(**where)
    assert vocabulary_of("ccc") == default.read_bytes() != other.read_bytes()
