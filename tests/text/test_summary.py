"""What each command says that a text became, and when it asks what a document is: one rule, in a shell and in Python."""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import bertprep
from bertprep import cli
from bertprep.errors import BertprepError, BertprepWarning
from bertprep.text import shards
from bertprep.text.sentences import split_sentences
from tests.corpora import sums, write_books
from tests.golden import GOLDEN
from tests.instances.small_tokenizers import write_tokenizer

BOOKS = 20
SHARD = ["shard", "--input", "books", "--corpus", "books", "--workdir", "data"]
TOKENIZE = ["tokenize", "--tokenizer", "byte_bpe", "--input", "books", "--output", "tokens"]
ASKED = (
    "bertprep: error: --input books/book_000.txt: what is a document? the first 325 blocks between blank lines in the first 16 "
    "of 20 files have a median of 3 sentences; as documents they would {}; give --one-document-per-file if each file is a "
    "document, or --one-document-per-block if each block between blank lines is one; nothing was made\n"
)
WOULD = {
    "shard": "make records of 512 tokens with 80% padding and mostly random next sentences",
    "tokenize": "give the model no more context than that",
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_books(tmp_path / "books", BOOKS)
    write_tokenizer(tmp_path, "byte_bpe")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command in the place; returns what it says on standard error."""

    def run(command: Sequence[str], status: int = 0) -> str:
        assert cli.main([*command]) == status
        return capsys.readouterr().err

    return run


def of_python(command: Sequence[str], **answer: bool) -> dict[str, Any]:
    options = dict(zip(command[1::2], command[2::2], strict=True))
    return {name.removeprefix("--").replace("input", "inputs"): value for name, value in options.items()} | answer


@pytest.mark.parametrize("command", [SHARD, TOKENIZE], ids=lambda command: str(command[0]))
def test_books_are_asked_about_and_either_answer_is_taken(command: list[str], place: Path, run: Callable[..., str]) -> None:
    (place / command[-1]).mkdir()  # which the user may have made
    before = sums(place)
    assert run(command, 1) == ASKED.format(WOULD[command[0]])
    with pytest.raises(BertprepError, match="what is a document"):
        getattr(bertprep, command[0])(**of_python(command))
    assert sums(place) == before  # nothing was made
    *_, per_file = run([*command, "--one-document-per-file"]).splitlines()
    assert per_file.startswith("20 files became 20 documents of 60.0 sentences; expect ")
    assert run([*command, "--one-document-per-file"]).splitlines()[-1] == per_file  # no question, no warning
    elsewhere = [*command[:-1], "elsewhere"]
    *_, per_block = run([*elsewhere, "--one-document-per-block"]).splitlines()
    assert "warning" not in per_block
    assert per_block.startswith("20 files became 407 documents of ")
    assert run(elsewhere).splitlines()[-1].endswith(per_block)  # what exists is not asked about


def test_what_was_begun_goes_on_without_a_question(
    place: Path, run: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(shards._Reduce, "make", stop)
        run([*SHARD, "--one-document-per-block"], 1)
    assert not (place / "data/sharded/books/manifest.json").exists()
    assert "files became 407 documents" in run(SHARD)


def stop(*_: object) -> None:
    raise BertprepError("stopped")


PLAIN = {
    "rows": lambda sentences: ("rows.jsonl", "".join(f'{{"text": "{each}"}}\n' for each in sentences)),
    "Google's format": lambda sentences: ("text.txt", "\n\n".join("\n".join(sentences[n : n + 3]) for n in range(0, 60, 3))),
}


@pytest.mark.parametrize("kind", PLAIN)
def test_short_documents_that_are_plain_get_a_warning_in_a_shell_and_in_python(
    kind: str, place: Path, run: Callable[..., str]
) -> None:
    sentences = [each for each in split_sentences((place / "books" / "book_001.txt").read_text()) if '"' not in each][:60]
    name, content = PLAIN[kind](sentences)
    (place / name).write_text(content)
    command = ["shard", "--input", name, "--corpus", "c", "--workdir"]
    said = run([*command, "data"])
    [line] = [line.removeprefix("warning: ") for line in said.splitlines() if line.startswith("warning: ")]
    assert "padding in records of 128 tokens" in line
    assert line.endswith("are parts of one text, or pack sentences of several documents into a record with create --pairs none")
    with pytest.warns(BertprepWarning) as warned:
        bertprep.shard([name], corpus="c", workdir="again")
    assert [str(each.message) for each in warned] == [line]
    with warnings.catch_warnings():
        warnings.simplefilter("error", BertprepWarning)  # the user has said so, or it was said before
        bertprep.shard([name], corpus="c", workdir="again")
        bertprep.shard([name], corpus="c", workdir="meant", one_document_per_block=True)


@pytest.mark.parametrize("command", ["create", "tokenize"])
def test_shards_that_are_given_are_of_a_sentence_a_line(command: str, place: Path, run: Callable[..., str]) -> None:
    vocab = ["--vocab", str(GOLDEN / "vocab.txt")]
    (place / "out").mkdir()
    said = run([command, "--input", "books/book_000.txt", "--output", "out", *vocab], 1)
    assert "does not have one sentence per line: " in said
    assert "bertprep shard --input FILES --corpus NAME (with --one-document-per-file if each file is a document, or" in said
    lines = "\n".join(split_sentences((place / "books" / "book_000.txt").read_text()))
    (place / "wrapped.txt").write_text(lines.replace(" of ", " of\n").replace(" the ", " the\n").replace(" and ", " and\n"))
    assert "lines continue on the next one" in run([command, "--input", "wrapped.txt", "--output", "out", *vocab], 1)
    assert not [*(place / "out").iterdir()]
    (place / "text.txt").write_text(f"{lines}\n\n" * 8)
    said = run([command, "--input", "text.txt", "--output", "out", *vocab])
    assert "1 file became 8 documents of 60.0 sentences; expect " in said
    assert ("tokens, " in said) == (command == "tokenize")  # create knows its --seq
    assert run([command, "--input", "text.txt", "--output", "out", *vocab])  # again


def test_a_folder_of_books_is_a_document_for_each(place: Path, run: Callable[..., str]) -> None:
    said = run(["download", "bookcorpus", "--from-files", "books", "--workdir", "data"])
    assert said.startswith(
        f"{place}/books: 20 files, each one document of 60.1 sentences; expect 6% padding in records of 128 t"
    )
    run(["shard", "--workdir", "data"])  # no question
    for number in range(8):
        documents = ["One is a dog.\nTwo is a cat.\nThree is a cow."] * 20
        (place / "google" / f"{number}.txt").parent.mkdir(exist_ok=True)
        (place / "google" / f"{number}.txt").write_text("\n\n".join(documents))
    with pytest.warns(
        BertprepWarning, match="but blank lines seem to separate documents; .* run bertprep shard --input /.*/google --o"
    ):
        bertprep.download(["bookcorpus"], from_files="google", workdir="other")


def test_one_answer_only(run: Callable[..., str]) -> None:
    both = ["--one-document-per-file", "--one-document-per-block"]
    assert "give only one of the two" in run([*SHARD, *both], 2)
    for answer in both:
        assert f"{answer}: needs --tokenizer" in run(["tokenize", "--input", "a.txt", "--output", "b", answer], 2)


def test_shards_of_a_single_document_get_a_warning(place: Path) -> None:
    with pytest.warns(BertprepWarning, match="^4 of 4 training shards have a single document, .* such as --shards 1"):
        bertprep.shard(
            [place / "books"], corpus="books", one_document_per_file=True, shards=4, test_fraction=0.8, workdir="data"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error", BertprepWarning)
        bertprep.shard([place / "books"], corpus="whole", one_document_per_file=True, shards=1, workdir="data")


def test_a_test_split_of_a_single_document_gets_a_warning(place: Path) -> None:
    books = {"inputs": [place / "books"], "one_document_per_file": True, "shards": 1, "workdir": "data"}
    lone = (
        "^the test split has a single document, whose random next sentences come from itself; hold out more text with --test-f"
    )
    with pytest.warns(BertprepWarning, match=lone):
        made = bertprep.shard(corpus="lone", test_fraction=0.03, **books)  # of 20 books
    assert [entry["documents"] for name, entry in made.manifest.files.items() if name.startswith("test")] == [1]
    with warnings.catch_warnings():
        warnings.simplefilter("error", BertprepWarning)
        bertprep.shard(corpus="none", test_fraction=0, **books)
        bertprep.shard(corpus="more", test_fraction=0.2, **books)
