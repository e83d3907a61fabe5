"""A vocabulary is named by a file, by its name in the workspace or by a model; a trained one belongs to its text."""

from pathlib import Path

import pytest

from bertprep.errors import BertprepError, UsageError
from bertprep.instances import load_vocabulary
from bertprep.text.vocabulary import VocabularySettings, find_vocabulary, train, vocabulary_of_text
from bertprep.work.layout import Workspace
from bertprep.work.text_identity import identify_text, text_entry


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("the dog barks\nthe cat\n\n" * 20)
    return path


def test_text_size_and_case_have_a_vocabulary_each(text: Path, tmp_path: Path) -> None:
    workspace, other = Workspace(tmp_path / "data"), tmp_path / "other.txt"
    other.write_text("another text\n")
    paths = {
        vocabulary_of_text(workspace, "books", {path: None}, settings)
        for path in (text, other)
        for settings in (VocabularySettings(), VocabularySettings(cased=True), VocabularySettings(size=30))
    }
    assert len(paths) == 6
    renamed = text.rename(tmp_path / "renamed.txt")
    assert vocabulary_of_text(workspace, "books", {renamed: None}, VocabularySettings()) in paths
    assert not workspace.root.exists()  # nothing is made


def test_text_that_is_not_the_listed_one_is_refused(text: Path, tmp_path: Path) -> None:
    entry = text_entry(text.name, *identify_text(text))
    text.write_text("changed\n")
    with pytest.raises(BertprepError, match=r"text\.txt: .* bytes with crc32c .* were read, expected "):
        vocabulary_of_text(Workspace(tmp_path), "books", {text: entry}, VocabularySettings())


def test_a_text_that_gives_no_more_tokens_is_remarked_on(text: Path, tmp_path: Path) -> None:
    [line] = train([text], tmp_path / "vocab.txt", VocabularySettings(size=8000))
    tokens = len(load_vocabulary(tmp_path / "vocab.txt"))
    assert line == f"{tmp_path / 'vocab.txt'}: has {tokens} tokens, not 8,000: this text gives no more"
    assert train([text], tmp_path / "small.txt", VocabularySettings(size=tokens - 1)) == []


def test_a_name_is_one_of_the_workspace_before_that_of_a_model(text: Path, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "data")
    with pytest.raises(UsageError, match=r"is neither a file, nor a vocabulary in .*data; for that of a model, bertprep down"):
        find_vocabulary(workspace, "books_30")
    downloaded = workspace.download("vocab") / "books_30" / "vocab.txt"
    downloaded.parent.mkdir(parents=True)
    downloaded.write_text("[PAD]\n")
    assert find_vocabulary(workspace, "books_30") == downloaded
    trained = vocabulary_of_text(workspace, "books", {text: None}, VocabularySettings(size=30))
    train([text], trained, VocabularySettings(size=30))
    assert find_vocabulary(workspace, "books_30") == find_vocabulary(workspace, trained.stem) == trained
    assert find_vocabulary(workspace, text) == text
    with pytest.raises(UsageError, match=r"the vocabulary of google-bert/bert-base-uncased, the default, is not downloaded"):
        find_vocabulary(workspace, None)
