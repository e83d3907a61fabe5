"""A test split by the hash of documents: the documents that `shard` holds out, with their lines, whoever makes which part."""

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bertprep
from bertprep.cli import main
from bertprep.errors import BertprepWarning, UsageError
from bertprep.instances.document_tokenizer import DocumentTokenizer
from bertprep.text import held_out, tokenize_documents
from bertprep.tokens.documents import open_token_documents
from bertprep.work.run import FAIL_AFTER
from tests.corpora import sums
from tests.instances.small_tokenizers import write_tokenizer
from tests.object_store import Store, store

__all__ = ["store"]  # a fixture

WORDS = ["the", "fox", "and", "a", "dog", "saw", "one", "of", "the", "United", "States", "in", "order", "to", "form"]


def make_documents(count: int, seed: int = 1) -> list[str]:
    """Documents of several lines, some wrapped and some whole, each with a word of its own."""
    draw = random.Random(seed)
    documents = []
    for number in range(count):
        lines = [" ".join(draw.choices(WORDS, k=draw.randint(2, 9))) + draw.choice([".", "!", ""]) for _ in range(4)]
        documents.append(f"Document {seed}x{number}.\n" + "\n".join(lines))
    return documents


def write_files(folder: Path, documents: Sequence[str], files: int = 3) -> list[Path]:
    """The documents over text, JSON Lines and Parquet files."""
    folder.mkdir(exist_ok=True)
    paths = []
    for number in range(files):
        own = documents[number::files]
        if number % 3 == 0:
            (path := folder / f"{number}.txt").write_text("\n\n".join(own))
        elif number % 3 == 1:
            (path := folder / f"{number}.jsonl").write_text("".join(json.dumps({"text": each}) + "\n" for each in own))
        else:
            pq.write_table(pa.table({"text": list(own)}), path := folder / f"{number}.parquet")
        paths.append(path)
    return paths


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    return write_tokenizer(tmp_path, "byte_bpe")


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file is a token shard, and each of two files a test shard."""
    monkeypatch.setattr(tokenize_documents, "_TASK_BYTES", 1000)
    monkeypatch.setattr(held_out, "_TEST_SHARD_BYTES", 1000)


def texts_of(folder: Path, split: str = "training") -> list[str]:
    """The text of each document in token shards."""
    found = open_token_documents(folder, split)
    kept = DocumentTokenizer(found.folder / "tokenizer.json", "kept")
    return [
        kept.decode(shard.tokens[start:end].tolist())
        for shard in found.shards
        for start, end in zip(shard.starts, shard.starts[1:], strict=False)
    ]


def names(texts: Sequence[str]) -> list[str]:
    return sorted(re.findall(r"Document (\w+)", " ".join(texts)))


def names_of_shards(folder: Path, split: str) -> list[str]:
    return names([path.read_text() for path in (folder / split).iterdir()])


def test_the_documents_that_shard_holds_out_are_held_out_with_their_lines(tmp_path: Path, tokenizer: Path) -> None:
    documents = make_documents(60)
    paths = write_files(tmp_path / "in", documents)
    where: dict[str, Any] = {"one_document_per_block": True, "workers": 1}
    sharded = bertprep.shard(paths, workdir=tmp_path / "data", corpus="mine", test_fraction=0.2, **where).folder
    made = bertprep.tokenize(inputs=paths[::-1], tokenizer=tokenizer, output=tmp_path / "out", test_fraction=0.2, **where)
    training, test = (texts_of(tmp_path / "out", split) for split in ("training", "test"))
    assert names(training) == names_of_shards(sharded, "training")
    assert names(test) == names_of_shards(sharded, "test")
    assert 5 < len(test) < 20
    assert sorted(training + test) == sorted(documents)
    made_with = made.manifest.made_with
    assert (made_with["test_fraction"], made_with["shards"], made_with["test_shards"]) == (0.2, 3, 2)
    assert not (tmp_path / "out/tokens/.hashed").exists()
    rows = bertprep.TokenDataset(tmp_path / "out", split="test", seq=64)
    assert rows.documents.documents == len(test)
    (outcome,) = bertprep.validate([tmp_path / "out"])
    assert outcome.findings == []


def test_copies_of_a_document_stay_in_its_split(tmp_path: Path, tokenizer: Path) -> None:
    documents = make_documents(30)
    paths = write_files(tmp_path / "in", [*documents, *documents[::-1], "?!", "..."])
    where: dict[str, Any] = {"tokenizer": tokenizer, "one_document_per_block": True, "workers": 1, "test_fraction": 0.3}
    bertprep.tokenize(inputs=paths, output=tmp_path / "out", **where)
    training, test = (texts_of(tmp_path / "out", split) for split in ("training", "test"))
    assert not set(training) & set(test)
    assert sorted(training + test) == sorted([*documents, *documents, "?!", "..."])
    assert {"?!", "..."} <= set(training)  # they have no word, and so no hash in text shards


def test_neither_workers_nor_parts_nor_a_kill_change_a_byte(tmp_path: Path, tokenizer: Path) -> None:
    inputs = [str(path) for path in write_files(tmp_path / "in", make_documents(60), files=5)]
    command = [
        "tokenize", "--tokenizer", str(tokenizer), "--test-fraction", "0.2", "--one-document-per-block", "--input", *inputs,
    ]  # fmt: skip
    assert main([*command, "--workers", "1", "--output", str(tmp_path / "one")]) == 0
    assert main([*command, "--workers", "3", "--output", str(tmp_path / "three")]) == 0
    for part in ("1/2", "0/2", "finish"):
        assert main([*command, "--workers", "1", "--part", part, "--output", str(tmp_path / "parts")]) == 0
    expected = sums(tmp_path / "one")
    assert sums(tmp_path / "three") == expected
    assert sums(tmp_path / "parts") == expected


def test_a_corpus_in_a_store_is_that_of_a_disk(tmp_path: Path, tokenizer: Path, store: Store) -> None:
    paths = write_files(tmp_path / "in", make_documents(40))
    for workdir in (str(tmp_path / "data"), f"{store.url}/data"):
        where: dict[str, Any] = {"workdir": workdir, "corpus": "mine", "workers": 1}
        bertprep.shard(paths, one_document_per_block=True, **where)
        bertprep.tokenize(tokenizer=tokenizer, **where)
    assert sums(store.path("data")) == sums(tmp_path / "data")


@pytest.mark.parametrize("after", [1, 2, 3, 5])
def test_a_killed_run_is_resumed(after: int, tmp_path: Path, tokenizer: Path) -> None:
    """In the pass over the hashes, which makes two files, or after it."""
    inputs = [str(path) for path in write_files(tmp_path / "in", make_documents(60))]
    options = ["--tokenizer", str(tokenizer), "--test-fraction", "0.2", "--one-document-per-block", "--workers", "1"]
    command = [sys.executable, "-m", "bertprep", "tokenize", *options, "--input", *inputs, "--output"]
    killed = {**os.environ, FAIL_AFTER: f"{after} SIGKILL"}
    assert subprocess.run([*command, str(tmp_path / "out")], check=False, env=killed).returncode == -signal.SIGKILL
    for name in ("out", "whole"):
        subprocess.run([*command, str(tmp_path / name)], check=True)
    assert sums(tmp_path / "out") == sums(tmp_path / "whole")


def test_hashes_of_few_documents_at_a_time_choose_the_same(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = make_documents(40)
    paths = write_files(tmp_path / "in", [*documents, *documents[:20]])
    options: dict[str, Any] = {"one_document_per_block": True, "workers": 1, "corpus": "mine"}
    for name, bits in (("one", 22), ("other", 2)):
        monkeypatch.setattr(held_out, "_AT_ONCE_BITS", bits)
        bertprep.shard(paths, workdir=tmp_path / name, **options)
        bertprep.tokenize(tokenizer=tokenizer, workdir=tmp_path / name, corpus="mine", workers=1)
    assert sums(tmp_path / "one/tokens") == sums(tmp_path / "other/tokens")


def test_a_corpus_is_read_from_its_files_with_its_lines_and_its_split(
    tmp_path: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = make_documents(60)
    paths = write_files(tmp_path / "in", [*documents, *documents[:10], "?!"])
    where: dict[str, Any] = {"workdir": tmp_path / "data", "corpus": "mine", "workers": 1}
    sharded = bertprep.shard(paths[::-1], test_fraction=0.3, shards=2, one_document_per_block=True, **where).folder
    made = bertprep.tokenize(tokenizer=tokenizer, **where)
    training, test = (texts_of(made.folder, split) for split in ("training", "test"))
    assert sorted(training + test) == sorted(documents)  # no copy and nothing without a word, as in the text shards
    assert names(training) == names_of_shards(sharded, "training")
    assert names(test) == names_of_shards(sharded, "test")
    assert str(tmp_path) not in (sharded / "manifest.json").read_text() + (made.folder / "manifest.json").read_text()
    assert capsys.readouterr().err == ""

    again = bertprep.shard(
        paths, test_fraction=0.3, shards=2, one_document_per_block=True, **{**where, "workdir": tmp_path / "2"}
    )
    assert sums(again.folder) == sums(sharded)
    assert sums(bertprep.tokenize(tokenizer=tokenizer, **{**where, "workdir": tmp_path / "2"}).folder) == sums(made.folder)

    for path in paths:
        path.unlink()
    assert bertprep.tokenize(tokenizer=tokenizer, **where).made == 0  # finished, so no file is needed


def test_a_corpus_with_a_test_text_has_it(tmp_path: Path, tokenizer: Path) -> None:
    documents = make_documents(20)
    paths = write_files(tmp_path / "in", documents)
    rewrapped = documents[3].replace("\n", "  \n")  # the same sentences, so the same document
    (test_text := tmp_path / "test.txt").write_text("\n\n".join([rewrapped, *make_documents(5, seed=2)]))
    where: dict[str, Any] = {"workdir": tmp_path / "data", "corpus": "mine", "workers": 1}
    bertprep.shard(paths, test_inputs=[test_text], one_document_per_block=True, **where)
    folder = bertprep.tokenize(tokenizer=tokenizer, **where).folder
    assert sorted(texts_of(folder)) == sorted(set(documents) - {documents[3]})
    assert names(texts_of(folder, "test")) == sorted(["1x3", *(f"2x{number}" for number in range(5))])


def change(path: Path) -> None:
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"text": make_documents(3, seed=9)}), path)
    else:
        path.write_text(path.read_text().replace("fox", "cat"))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_changed_files_are_not_read(number: int, tmp_path: Path, tokenizer: Path) -> None:
    paths = write_files(tmp_path / "in", make_documents(30))
    where: dict[str, Any] = {"workdir": tmp_path / "data", "corpus": "mine", "workers": 1}
    bertprep.shard(paths, one_document_per_block=True, **where)
    change(paths[number])
    with pytest.warns(BertprepWarning, match="its text shards are tokenized, .* changed.*--input"):
        made = bertprep.tokenize(tokenizer=tokenizer, **where)
    assert made.folder.parent.name.endswith("_without_lines")
    assert not any("\n" in text for text in texts_of(made.folder))


def test_text_in_memory_and_a_broken_note_are_text_shards(tmp_path: Path, tokenizer: Path) -> None:
    where: dict[str, Any] = {"workdir": tmp_path / "data", "corpus": "mine", "workers": 1}
    bertprep.shard(dataset=pa.table({"text": make_documents(30)}), **where)
    note = tmp_path / "data/.sources/mine.json"
    assert not note.exists()
    note.parent.mkdir()
    for content in (None, "{", '[{"location": "/etc/passwd"}]', "[1]", "3"):
        if content is not None:
            note.write_text(content)
        with pytest.warns(
            BertprepWarning, match="from which files they were made is not known here; to keep line breaks, give"
        ):
            bertprep.tokenize(tokenizer=tokenizer, **where)


def test_text_shards_of_another_version_are_noticed(tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of the splitter may give a document another hash."""
    paths = write_files(tmp_path / "in", make_documents(60))
    where: dict[str, Any] = {"workdir": tmp_path / "data", "corpus": "mine", "workers": 1}
    bertprep.shard(paths, test_fraction=0.5, one_document_per_block=True, **where)
    hashed = held_out.hash_document
    monkeypatch.setattr(held_out, "hash_document", lambda lines: hashed(bytes(lines)[::-1]))
    with pytest.warns(BertprepWarning, match="are for training and .* for testing, but the text shards have"):
        bertprep.tokenize(tokenizer=tokenizer, **where)


def test_a_single_document_is_refused(tmp_path: Path, tokenizer: Path) -> None:
    (path := tmp_path / "a.txt").write_text("Only one.")
    with pytest.raises(UsageError, match=r"--test-fraction 0\.1: the text is a single document"):
        bertprep.tokenize(inputs=[path], tokenizer=tokenizer, output=tmp_path / "out", test_fraction=0.1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"corpus": "mine", "tokenizer": "t"}, "--test-fraction 0.1: is for --input or --dataset; a corpus has the test split"),
        ({"inputs": ["a"], "output": "o"}, "--test-fraction: needs --tokenizer"),
        ({"inputs": ["a"], "test_inputs": ["b"], "tokenizer": "t", "output": "o"}, "cannot be used with --test-input"),
    ],
)
def test_a_contradiction_is_one_line(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        bertprep.tokenize(test_fraction=0.1, **options)
