"""Documents of any source to token shards by any tokenizer: the library's ids, Megatron's layout, a line for a mistake."""

import json
import os
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import bertprep
from bertprep.cli import main
from bertprep.errors import BertprepError, BertprepWarning, UsageError
from bertprep.instances.document_tokenizer import DocumentTokenizer
from bertprep.sources import copied_texts
from bertprep.sources.documents import Source
from bertprep.sources.plain_text import hash_file
from bertprep.text import tokenize_documents
from bertprep.tokens.documents import TokenDocuments, open_token_documents
from bertprep.tokens.shard import TokenShard
from tests.corpora import deal, sums
from tests.hub_server import HubServer, use_hub
from tests.instances.small_tokenizers import KINDS, TEXT, content_of, write_tokenizer
from tests.object_store import Store, store
from tests.tokens.mds_rows import read_rows

__all__ = ["store"]  # a fixture

DOCUMENTS = ["The first one.\nOf two lines.", "Straße, don't [MASK]", "", "12,5 km", " ", "last"]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    with HubServer() as server:
        use_hub(monkeypatch, server.url, tmp_path / "hugging face")
        yield server


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    return write_tokenizer(tmp_path, "byte_bpe")


def documents_of(found: TokenDocuments) -> list[list[int]]:
    return [
        shard.tokens[start:end].tolist()
        for shard in found.shards
        for start, end in zip(shard.starts, shard.starts[1:], strict=False)
    ]


def expected(kind: str, documents: list[str]) -> list[list[int]]:
    library = tokenizers.Tokenizer.from_str(content_of(kind))
    library.no_truncation()
    library.no_padding()
    library.encode_special_tokens = True
    return [ids for each in documents if (ids := library.encode(each, add_special_tokens=False).ids)]


def write_text(path: Path) -> None:
    path.write_text("\n\n".join(each for each in DOCUMENTS if each.strip()))


def write_lines(path: Path) -> None:
    path.write_text("".join(json.dumps({"id": 1, "text": each}) + "\n" for each in DOCUMENTS))


def write_parquet(path: Path) -> None:
    pq.write_table(pa.table({"text": DOCUMENTS}), path)


SOURCES: dict[str, Callable[[Path], None]] = {"a.txt": write_text, "a.jsonl": write_lines, "a.parquet": write_parquet}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("kind", ["llama", "wordpiece"])
def test_documents_of_any_source_are_the_librarys(name: str, kind: str, tmp_path: Path) -> None:
    SOURCES[name](tmp_path / name)
    path = write_tokenizer(tmp_path, kind)
    made = bertprep.tokenize(tokenizer=path, inputs=[tmp_path / name], output=tmp_path / "out")
    found = open_token_documents(tmp_path / "out")
    texts = [each for each in DOCUMENTS if each.strip()] if name == "a.txt" else DOCUMENTS
    assert documents_of(found) == expected(kind, texts)
    kept, own = (json.loads(each.read_text()) for each in (tmp_path / "out/tokens/tokenizer.json", path))
    assert {**kept, "post_processor": None} == {**own, "post_processor": None}
    assert (kept == own) == (kind == "wordpiece")  # llama's puts no end of a text after it
    [shard] = found.shards
    assert found.tokenizer.name == kind
    entry = made.manifests["tokens"].files[shard.path.name]
    assert (entry["documents"], entry["tokens"]) == (found.documents, found.tokens)
    as_megatron = TokenShard(shard.path).read()
    assert as_megatron.sentence_starts.tolist() == shard.starts.tolist()
    assert as_megatron.document_starts.tolist() == list(range(found.documents + 1))


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_depend_neither_on_batches_nor_threads(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lines(tmp_path / "a.jsonl")
    options: dict[str, Any] = {"tokenizer": write_tokenizer(tmp_path, kind), "inputs": [tmp_path / "a.jsonl"]}
    bertprep.tokenize(**options, output=tmp_path / "one", workers=1)
    monkeypatch.setattr(tokenize_documents, "_BATCH_CHARACTERS", 5)
    bertprep.tokenize(**options, output=tmp_path / "other")
    assert sums(tmp_path / "one") == sums(tmp_path / "other")


@pytest.mark.parametrize("own", [None, "7"])
def test_the_callers_number_of_threads_is_kept(
    own: str | None, tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAYON_NUM_THREADS", raising=False)
    if own:
        monkeypatch.setenv("RAYON_NUM_THREADS", own)
    write_lines(tmp_path / "a.jsonl")
    asked, encode = set(), DocumentTokenizer.encode

    def recorded(*arguments: Any) -> Any:
        asked.add(os.environ.get("RAYON_NUM_THREADS"))
        return encode(*arguments)

    monkeypatch.setattr(DocumentTokenizer, "encode", recorded)
    bertprep.tokenize(tokenizer=tokenizer, inputs=[tmp_path / "a.jsonl"], output=tmp_path / "out", workers=2)
    assert asked == {"2"}
    assert os.environ.get("RAYON_NUM_THREADS") == own


def test_a_corpus_whose_files_are_gone_has_both_splits_of_its_shards_their_sentences_joined(
    golden_corpus: Path, tmp_path: Path, tokenizer: Path
) -> None:
    data = tmp_path / "data"
    bertprep.shard(deal(golden_corpus, tmp_path / "text", 3), shards=2, workdir=data, corpus="mine", workers=1)
    (tmp_path / "text/text_1.txt").unlink()
    with pytest.warns(BertprepWarning, match="mine: its text shards are tokenized, in which .* no line breaks: .*text_1.txt"):
        made = bertprep.tokenize(tokenizer=tokenizer, workdir=data, corpus="mine", format="mds", seq=8)
    folder = made.folders["tokens"]
    assert made.folders["mds"] == data / "mds" / f"{folder.parent.name}_seq_len_8" / "mine"
    assert folder.parent.parent == data / "tokens"
    assert re.fullmatch("byte_bpe_[0-9a-f]{8}_without_lines", folder.parent.name)
    for split, files in (("training", 2), ("test", 1)):
        found = open_token_documents(folder, split)
        texts = [path.read_text().split("\n\n") for path in sorted((data / "sharded/mine" / split).iterdir())]
        documents = [" ".join(each.split("\n")).strip() for text in texts for each in text]
        assert documents_of(found) == expected("byte_bpe", documents)
        assert len(found.shards) == files


def test_a_model_of_the_hub_is_fetched_once(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hub.put("models/somebody/encoder", {"tokenizer.json": content_of("unigram").encode()})
    hub.put("models/somebody/none", {"config.json": b"{}"})
    write_text(Path("a.txt"))
    for _ in range(2):
        bertprep.tokenize(tokenizer="somebody/encoder", inputs=["a.txt"], output="out")
    found = open_token_documents("out")
    assert found.tokenizer.name == "encoder"
    assert documents_of(found) == expected("unigram", [each for each in DOCUMENTS if each.strip()])
    with pytest.raises(UsageError, match=r"--tokenizer somebody/none: this model has no tokenizer\.json; make one"):
        bertprep.tokenize(tokenizer="somebody/none", inputs=["a.txt"], output="other")


def test_a_model_of_the_hub_with_a_vocabulary_of_letters_needs_no_tokenizer_json(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    vocabulary = "\n".join(["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWC", "<mask>"]).encode()
    config = b'{"tokenizer_class": "EsmTokenizer"}'
    hub.put("models/somebody/esm2", {"vocab.txt": vocabulary, "tokenizer_config.json": config})
    Path("a.txt").write_text("LAGX\n")
    bertprep.tokenize(tokenizer="somebody/esm2", inputs=["a.txt"], output="out")
    found = open_token_documents("out")
    assert (found.tokenizer.name, documents_of(found)) == ("esm2", [[4, 5, 6, 3]])


@pytest.mark.parametrize("is_of_hub", [True, False])
def test_a_config_names_the_mask_token(
    is_of_hub: bool, hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is kept next to the tokens, so that what reads them knows it too."""
    monkeypatch.chdir(tmp_path)
    content, config = content_of("unigram").replace("<mask>", "<blank>").encode(), b'{"mask_token": "<blank>"}'
    hub.put("models/somebody/blank", {"tokenizer.json": content, "tokenizer_config.json": config})
    hub.put("models/somebody/none", {"tokenizer.json": content})
    write_text(Path("a.txt"))
    (folder := Path("blank")).mkdir()
    (folder / "tokenizer.json").write_bytes(content)
    bertprep.tokenize(tokenizer="somebody/none" if is_of_hub else "blank", inputs=["a.txt"], output="none")
    assert open_token_documents("none").tokenizer.mask is None
    assert "mask_token" not in json.loads(Path("none/tokens/tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_bytes(config)
    bertprep.tokenize(tokenizer="somebody/blank" if is_of_hub else "blank", inputs=["a.txt"], output="out")
    assert open_token_documents("out").tokenizer.mask == tokenizers.Tokenizer.from_str(content.decode()).token_to_id("<blank>")
    kept = Path("out/tokens/tokenizer_config.json").read_bytes()
    assert json.loads(kept)["mask_token"] == "<blank>"
    assert main(["validate", "out"]) == 0
    bertprep.convert("out", "rows", to="mds", seq=16)
    assert Path("rows/tokenizer_config.json").read_bytes() == kept


def trained_byte_bpe() -> tokenizers.Tokenizer:
    """What `ByteLevelBPETokenizer` trains, without a template that adds special tokens."""
    trained = tokenizers.ByteLevelBPETokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trained.train_from_iterator(TEXT, vocab_size=400, special_tokens=special, show_progress=False)
    return tokenizers.Tokenizer.from_str(trained.to_str())


@pytest.mark.parametrize("kind", [*KINDS, "trained"])
def test_the_folder_of_tokens_is_a_tokenizer_of_transformers(kind: str, tmp_path: Path) -> None:
    """A text gets the tokens that its row has, those around it too."""
    texts = ["AGAVE", "L"] if kind == "characters" else [*TEXT[:4], "Two lines.\n\n  The second."]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": each}) + "\n" for each in texts))
    given = trained_byte_bpe() if kind == "trained" else write_tokenizer(tmp_path, kind)
    bertprep.tokenize(tokenizer=given, inputs=[tmp_path / "a.jsonl"], output=tmp_path / "out")
    dataset = bertprep.TokenDataset(tmp_path / "out", seq=512, packed=False, objective="clm")
    rows = [(row := dataset[index])["input_ids"][row["attention_mask"] == 1].tolist() for index in range(len(dataset))]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out/tokens")
    found = [tokenizer(each) for each in texts]
    assert sorted(each["input_ids"] for each in found) == sorted(rows)
    assert all(sorted(each) == ["attention_mask", "input_ids"] for each in found)
    info = dataset.documents.tokenizer
    ids = [tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id, tokenizer.mask_token_id]
    assert ids == [info.cls, info.sep, info.pad, info.mask]
    first, second = (each["input_ids"] for each in found[:2])
    begin = 0 if info.cls is None else 1
    if kind in ("unigram", "llama", "trained"):  # whose template is ours
        assert tokenizer(*texts[:2])["input_ids"] == first + second[begin:]
    assert main(["validate", str(tmp_path / "out")]) == 0


def test_text_without_words_gets_a_remark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Text without spaces, as Chinese is, is one word to a tokenizer that marks spaces, where a pattern finds words in it."""
    (tmp_path / "a.txt").write_text("the,fox,dog,form," * 10)
    for kind in ("unigram", "byte_bpe"):
        file, output = write_tokenizer(tmp_path, kind), str(tmp_path / kind / "out")
        assert main(["tokenize", "--tokenizer", str(file), "--input", str(tmp_path / "a.txt"), "--output", output]) == 0
        shown = capsys.readouterr().err
        assert (
            "a.txt are in words of more than 16 tokens, as found by the rule table: masks of whole words and spans mask "
            "these words token by token" in shown
        ) == (kind == "unigram")


def test_a_tokenizer_has_the_name_of_its_folder_unless_that_is_the_current_one(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(tmp_path / "a.txt")
    monkeypatch.chdir(tokenizer.parent)
    for index, (given, name) in enumerate(
        [(tokenizer, "byte_bpe"), (tokenizer.parent, "byte_bpe"), ("./tokenizer.json", "tokenizer"), (".", "tokenizer")]
    ):
        made = bertprep.tokenize(tokenizer=given, inputs=[tmp_path / "a.txt"], output=tmp_path / str(index))
        assert made.manifest.made_with["tokenizer"]["name"] == name


def test_changed_text_and_another_tokenizer_are_refused(tmp_path: Path, tokenizer: Path) -> None:
    text = tmp_path / "a.txt"
    write_text(text)
    bertprep.tokenize(tokenizer=tokenizer, inputs=[text], output=tmp_path / "out")
    with pytest.raises(BertprepError, match=r"was made with tokenizer\.name .*, but this run has .*; choose another --output"):
        bertprep.tokenize(tokenizer=write_tokenizer(tmp_path, "llama"), inputs=[text], output=tmp_path / "out")
    text.write_text("Another text.\n")
    with pytest.raises(
        BertprepError, match=r"out/tokens: was made with another --input: inputs\[0\]\.bytes .*; choose another --output"
    ):
        bertprep.tokenize(tokenizer=tokenizer, inputs=[text], output=tmp_path / "out")


def test_small_files_are_one_shard_and_blank_ones_left_out(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tokenize_documents, "_TASK_BYTES", 100)
    sizes = {"a": 40, "b": 60, "blank": 0, "c": 30, "large": 300, "x": 100}
    for name, size in sizes.items():
        (tmp_path / f"{name}.txt").write_text("é" * (size // 2) or "\n \n")
    (tmp_path / "empty.jsonl").write_text('{"text": ""}\n')
    out = tmp_path / "out"
    assert main(["tokenize", "--tokenizer", str(tokenizer), "--input", str(tmp_path / "*"), "--output", str(out)]) == 0
    shown = capsys.readouterr().err
    assert f"warning: 1 blank file left out, such as {tmp_path / 'blank.txt'}\n" in shown
    assert "\n6 files became 5 documents" in shown
    found = open_token_documents(out)
    assert [shard.sizes[0] for shard in found.shards] == [2, 1, 1, 1]
    assert documents_of(found) == expected("byte_bpe", ["é" * (size // 2) for size in sizes.values() if size])
    made_with = json.loads((out / "tokens/manifest.json").read_text())["made_with"]
    assert [each["bytes"] for each in made_with["inputs"]] == [40, 60, 3, 30, 13, 300, 100]
    assert all(len(each["blake3"]) == 64 for each in made_with["inputs"])
    with pytest.raises(BertprepError, match=r"blank\.txt: is blank, like all other input"):
        bertprep.tokenize(tokenizer=tokenizer, inputs=[tmp_path / "blank.txt"], output=tmp_path / "none")


def test_a_file_without_a_document_between_large_ones_stops_nothing(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenize_documents, "_TASK_BYTES", 6400)
    for name in ("b", "d"):
        (tmp_path / f"{name}.txt").write_text(6400 * "x")
    for name in ("a", "c", "e"):
        (tmp_path / f"{name}.jsonl").write_text('{"text": ""}\n')
    bertprep.tokenize(tokenizer=tokenizer, inputs=[tmp_path / "*.*"], output=tmp_path / "out")
    assert [shard.sizes[0] for shard in open_token_documents(tmp_path / "out").shards] == [1, 1]


def test_a_file_that_changes_after_it_was_hashed_is_an_error(tmp_path: Path) -> None:
    (path := tmp_path / "a.txt").write_text("before")
    text = tokenize_documents.SourceText(Source(str(path), "text", {}), file=hash_file(path))
    assert list(text.documents()) == ["before"]
    path.write_text("afterwards")
    with pytest.raises(BertprepError, match=r"a\.txt: was changed since the start of the run"):
        list(text.documents())
    path.unlink()
    with pytest.raises(BertprepError, match=r"a\.txt: cannot be read: No such file"):
        list(text.documents())


def test_a_test_text_of_the_user_is_the_test_split(tmp_path: Path, tokenizer: Path) -> None:
    for name, texts in {"a": ["one", "two", "three"], "b": ["four", "five"], "t": ["two", "five", "six"]}.items():
        (tmp_path / f"{name}.txt").write_text("\n\n".join(texts))
    inputs = [tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "t.txt"]  # the last one is test text
    with pytest.warns(BertprepWarning, match="2 documents left out of the training split, because --test-input has them too"):
        made = bertprep.tokenize(tokenizer=tokenizer, inputs=inputs, test_inputs=[tmp_path / "t.txt"], output=tmp_path / "out")
    assert made.manifest.made_with["shards"] == 1
    for split, texts in {"training": ["one", "three", "four"], "test": ["two", "five", "six"]}.items():
        assert documents_of(open_token_documents(tmp_path / "out", split)) == expected("byte_bpe", texts)
    (outcome,) = bertprep.validate([tmp_path / "out"])
    assert outcome.findings == []
    with pytest.raises(UsageError, match="--test-input: contains all of --input"):
        bertprep.tokenize(tokenizer=tokenizer, inputs=inputs, test_inputs=inputs, output=tmp_path / "none")
    with pytest.raises(UsageError, match="--test-input: needs --tokenizer"):
        bertprep.tokenize(inputs=inputs, test_inputs=inputs, output=tmp_path / "none")


def test_many_lines_that_are_one_document_get_a_remark(
    tmp_path: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--tokenizer", str(tokenizer), "--output"]
    for name, line, documents in (("lines", "one\n", 1), ("documents", "one\n\n", 60)):
        (tmp_path / f"{name}.txt").write_text(60 * line)
        command = ["tokenize", *options, str(tmp_path / name), "--input", str(tmp_path / f"{name}.txt")]
        assert main([*command, "--one-document-per-block"]) == 0
        has_remark = f"first 50 lines of {tmp_path / name}.txt are read as one document" in capsys.readouterr().err
        assert has_remark == (documents == 1)
        assert open_token_documents(tmp_path / name).documents == documents
    both = ["tokenize", *options, str(tmp_path / "both"), "--input", str(tmp_path / "*.txt")]
    assert main([*both, "--one-document-per-block"]) == 0
    assert f"first 50 lines of {tmp_path / 'lines.txt'} are read as one document" in capsys.readouterr().err


MISTAKES = [
    ("--tokenizer none.json --input a.txt --output out", 2, "--tokenizer none.json: does not exist; name a tokenizer.json"),
    ("--tokenizer empty --input a.txt --output out", 2, "--tokenizer empty: this folder has no tokenizer.json and no"),
    (
        "--tokenizer byte_bpe --format MDS --seq 512 --input a.txt --output out",
        2,
        "--format MDS: unknown; choose one of megatron, mds",
    ),
    ("--tokenizer a.txt --input a.txt --output out", 1, "a.txt: is not a tokenizer.json that the library tokenizers can read"),
    ("--tokenizer byte_bpe --input a.txt", 2, "--input or --dataset needs --output"),
    (
        "--tokenizer byte_bpe --vocab v --input a.txt --output out",
        2,
        "--vocab: does not work with --tokenizer, whose file has all",
    ),
    ("--tokenizer byte_bpe --input dump.xml --output out", 2, "dump.xml: cannot be tokenized directly; first make text shards"),
    ("--tokenizer byte_bpe --input empty.jsonl --output out", 1, "empty.jsonl: no document with a token"),
    ("--dataset a/b", 2, "--dataset: needs --tokenizer"),
]


@pytest.mark.parametrize(("arguments", "status", "words"), MISTAKES)
def test_a_mistake_is_one_line(
    arguments: str, status: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    write_tokenizer(tmp_path, "byte_bpe")
    write_text(Path("a.txt"))
    Path("dump.xml").write_text("<mediawiki/>")
    Path("empty").mkdir()
    Path("empty.jsonl").write_text('{"text": ""}\n')
    assert main(["tokenize", *arguments.split()]) == status
    error = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert len(error) == 1
    assert words in error[0]
    assert not [path for path in Path("out").rglob("*") if path.is_file()]


def test_a_part_reports_nothing_of_all_files(tmp_path: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_lines(tmp_path / "a.jsonl")
    asked = ["--tokenizer", str(tokenizer), "--input", str(tmp_path / "a.jsonl"), "--output", str(tmp_path / "out")]
    for part in ("0/1", "finish"):
        assert main(["tokenize", *asked, "--part", part]) == 0
        assert " became " not in capsys.readouterr().err
    assert main(["tokenize", *asked]) == 0
    assert "1 file became 5 documents" in capsys.readouterr().err


def test_what_the_command_prints(tmp_path: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_lines(tmp_path / "a.jsonl")
    write_tokenizer(tmp_path, "characters")
    arguments = ["--input", str(tmp_path / "a.jsonl"), "--output"]
    assert main(["tokenize", "--tokenizer", str(tokenizer), *arguments, str(tmp_path / "out")]) == 0
    head, row, *_ = capsys.readouterr().out.splitlines()
    count = sum(map(len, expected("byte_bpe", DOCUMENTS)))
    assert head.split() == ["format", "split", "shards", "documents", "tokens", "MB"]
    assert row.split() == ["tokens", "training", "1", "5", f"{count}", "0.0"]
    assert main(["tokenize", "--tokenizer", str(tmp_path / "characters"), *arguments, str(tmp_path / "x")]) == 0
    assert "of the first tokens of" in capsys.readouterr().err
    assert np.all(open_token_documents(tmp_path / "x").shards[0].tokens < 30)


def test_rows_of_mds_are_made_of_the_tokens(tmp_path: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_lines(tmp_path / "a.jsonl")
    arguments = ["--tokenizer", str(tokenizer), "--input", str(tmp_path / "a.jsonl"), "--output", str(tmp_path / "out")]
    assert main(["tokenize", *arguments, "--format", "mds", "--seq", "8", "--column", "tokens"]) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["mds", "tokens"]
    found = read_rows(tmp_path / "out/mds/train/shard.00000.mds")
    ids = expected("byte_bpe", DOCUMENTS)
    rows = [[1, *each[at : at + 6], 2] for each in ids for at in range(0, len(each), 6)]
    assert [row["tokens"] for row in found] == rows
    assert ["mds", "train", "1", f"{len(rows)}", "0.0"] in [line.split() for line in capsys.readouterr().out.splitlines()]
    assert main(["tokenize", *arguments, "--format", "mds"]) == 2
    assert "--format mds: needs --seq" in capsys.readouterr().err


def test_token_shards_are_in_one_place_with_rows_and_without(tmp_path: Path, tokenizer: Path) -> None:
    """So that rows of what is tokenized already are made of it."""
    write_lines(tmp_path / "a.jsonl")
    asked: dict[str, Any] = {"tokenizer": tokenizer, "inputs": [tmp_path / "a.jsonl"], "output": tmp_path / "out"}
    alone = bertprep.tokenize(**asked)
    both = bertprep.tokenize(**asked, format="mds", seq=8)
    assert alone.folders == {"tokens": tmp_path / "out/tokens"}
    assert both.folders == {**alone.folders, "mds": tmp_path / "out/mds"}
    assert (both.made, both.kept) == (1, 1)  # the rows, and the tokens
    assert bertprep.tokenize(**asked, format="mds", seq=8).made == 0
    assert "nothing to do" in repr(bertprep.tokenize(**asked))


def test_help_lists_input_next_to_output(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["tokenize", "--help"])
    of_group = capsys.readouterr().out.partition("\nwhere:\n")[2].partition("\nhow:\n")[0]
    assert "--input PATH" in of_group
    assert "--output DIR" in of_group


def test_tokens_and_rows_in_a_store_are_those_of_a_disk(tmp_path: Path, tokenizer: Path, store: Store) -> None:
    write_lines(tmp_path / "a.jsonl")
    options: dict[str, Any] = {"tokenizer": tokenizer, "inputs": [tmp_path / "a.jsonl"], "format": "mds", "seq": 8}
    bertprep.tokenize(**options, output=tmp_path / "out")
    bertprep.tokenize(**options, output=f"{store.url}/out")
    assert sums(store.path("out")) == sums(tmp_path / "out")
    found = open_token_documents(f"{store.url}/out/tokens")
    assert documents_of(found) == expected("byte_bpe", DOCUMENTS)
    assert not [each for outcome in bertprep.validate([f"{store.url}/out"], workers=1) for each in outcome.findings]
    store.asked.clear()
    bertprep.tokenize(**options, output=f"{store.url}/out")
    assert store.count("PUT") == 0


def files_of(folder: Path) -> dict[str, bytes]:
    """The tokens, index and words below a folder, whatever the shard is called."""
    return {path.suffix: path.read_bytes() for path in folder.rglob("*") if path.suffix in (".bin", ".idx", ".words")}


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "llama"])
def test_a_tokenizer_and_a_data_set_that_are_objects_give_the_bytes_of_their_files(kind: str, tmp_path: Path) -> None:
    dataset = datasets.Dataset.from_dict({"id": range(len(DOCUMENTS)), "text": DOCUMENTS})
    library = tokenizers.Tokenizer.from_str(content_of(kind))
    library.no_truncation()
    library.no_padding()
    own = PreTrainedTokenizerFast(tokenizer_object=library, pad_token="<pads>", mask_token="<masks>")
    own.save_pretrained(tmp_path / kind)
    dataset.save_to_disk(tmp_path / "saved")
    by_path = bertprep.tokenize(tokenizer=tmp_path / kind, dataset=tmp_path / "saved", output=tmp_path / "path")
    by_object = bertprep.tokenize(tokenizer=own, dataset=dataset, output=tmp_path / "object")
    assert files_of(tmp_path / "object") == files_of(tmp_path / "path")
    tokenizer = {**by_path.manifest.made_with["tokenizer"], "name": "tokenizer"}
    assert by_object.manifest.made_with["tokenizer"] == tokenizer
    assert tokenizer["mask"] == own.convert_tokens_to_ids("<masks>")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "object/tokens" / name).read_bytes() == (tmp_path / "path/tokens" / name).read_bytes()
    assert [path.name for path in (tmp_path / "object").iterdir()] == ["tokens"]


def test_objects_are_known_by_their_content(tmp_path: Path) -> None:
    """A later process has other objects, and its tokenizer may have been called."""
    own = PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer.from_str(content_of("wordpiece")), pad_token="[PAD]")
    texts = {"text": DOCUMENTS}
    bertprep.tokenize(tokenizer=own, dataset=datasets.Dataset.from_dict(texts), output=tmp_path / "out")
    own(["a", "b c"], padding=True, truncation=True, max_length=2)
    for dataset in (pa.table(texts), datasets.Dataset.from_dict(texts).to_iterable_dataset()):
        assert bertprep.tokenize(tokenizer=own, dataset=dataset, output=tmp_path / "out").made == 0
    with pytest.raises(BertprepError, match=r"was made with another --input: inputs\[0\]\.blake3"):
        bertprep.tokenize(tokenizer=own, dataset=pa.table({"text": DOCUMENTS[:3]}), output=tmp_path / "out")


def test_large_data_sets_in_memory_become_several_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copied_texts, "FILE_BYTES", 30)
    monkeypatch.setattr(copied_texts, "_BATCH_BYTES", 10)
    monkeypatch.setattr(tokenize_documents, "_TASK_BYTES", 64)
    library = tokenizers.Tokenizer.from_str(content_of("byte_bpe"))
    texts = [f"{text} {number}" for number in range(9) for text in DOCUMENTS]
    bertprep.tokenize(tokenizer=library, dataset=pa.table({"text": texts}), output=tmp_path / "out")
    found = open_token_documents(tmp_path / "out")
    assert len(found.shards) > 5
    assert documents_of(found) == expected("byte_bpe", texts)


def test_what_is_neither_a_tokenizer_nor_a_data_set_is_refused(tmp_path: Path, tokenizer: Path) -> None:
    with pytest.raises(
        UsageError, match=r"^tokenizer: expected a path, OWNER/NAME, a fast tokenizer of .*, found an object of type object"
    ):
        bertprep.tokenize(inputs=["a.txt"], tokenizer=object(), output=tmp_path / "out")
    with pytest.raises(UsageError, match=r"^dataset: has type builtins\.list, expected"):
        bertprep.tokenize(dataset=["a text"], tokenizer=tokenizer, output=tmp_path / "out")


@pytest.mark.parametrize("kind", ["byte_bpe", "wordpiece", "llama"])
def test_a_token_ends_each_document_on_request(kind: str, tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl")
    path = write_tokenizer(tmp_path, kind)
    bertprep.tokenize(tokenizer=path, inputs=[tmp_path / "a.jsonl"], output=tmp_path / "out", append_eod=True)
    found = open_token_documents(tmp_path / "out")
    assert documents_of(found) == [[*ids, found.tokenizer.sep] for ids in expected(kind, DOCUMENTS)]
    [shard] = found.shards
    assert shard.words is not None
    bits = np.unpackbits(shard.words, count=shard.sizes[1], bitorder="little")
    assert bits[shard.starts[1:] - 1].all()
    assert not [each for outcome in bertprep.validate([tmp_path / "out"], workers=1) for each in outcome.findings]
    with pytest.raises(BertprepError, match="was made with --append-eod, but this run has no --append-eod"):
        bertprep.tokenize(tokenizer=path, inputs=[tmp_path / "a.jsonl"], output=tmp_path / "out")


def test_an_end_of_document_is_warned_of_where_rows_are_masked(tmp_path: Path, tokenizer: Path) -> None:
    write_lines(tmp_path / "a.jsonl")
    bertprep.tokenize(tokenizer=tokenizer, inputs=[tmp_path / "a.jsonl"], output=tmp_path / "out", append_eod=True)
    with pytest.warns(
        bertprep.BertprepWarning, match=r"tokens: was made with --append-eod, so each document ends with token \d+"
    ):
        bertprep.TokenDataset(tmp_path / "out", seq=16)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bertprep.TokenDataset(tmp_path / "out", seq=16, objective="clm")


def test_validate_finds_an_end_of_document_that_is_elsewhere(tmp_path: Path, tokenizer: Path) -> None:
    write_lines(tmp_path / "a.jsonl")
    bertprep.tokenize(tokenizer=tokenizer, inputs=[tmp_path / "a.jsonl"], output=tmp_path / "out", append_eod=True)
    [shard] = open_token_documents(tmp_path / "out").shards
    content = bytearray(shard.path.read_bytes())
    content[:2] = content[-2:]
    shard.path.write_bytes(content)
    found = [each.code for outcome in bertprep.validate([tmp_path / "out"], workers=1) for each in outcome.findings]
    assert "special-token" in found


def test_a_tokenizer_without_an_end_of_text_cannot_end_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_lines(tmp_path / "a.jsonl")
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0, "the": 1}, unk_token="?"))
    library.save(str(tmp_path / "tokenizer.json"))
    command = f"tokenize --tokenizer {tmp_path} --input {tmp_path}/a.jsonl --output {tmp_path}/out --append-eod".split()
    assert main(command) == 2
    assert "has no token that ends a text, such as </s>; leave it out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"append_eod": True, "format": "mds", "seq": 64}, "--append-eod: is only for token shards"),
        ({"append_eod": True, "tokenizer": None}, "--append-eod: needs --tokenizer"),
        ({"words": "w", "inputs": (), "output": None}, "--words w: names a column of --input or --dataset"),
    ],
)
def test_options_that_go_with_others(given: dict[str, Any], message: str, tmp_path: Path, tokenizer: Path) -> None:
    options: dict[str, Any] = {"tokenizer": tokenizer, "inputs": [tmp_path / "a.jsonl"], "output": tmp_path / "out"}
    with pytest.raises(UsageError, match=message):
        bertprep.tokenize(**{**options, **given})


def test_another_tokenizer_in_the_output_folder_is_not_replaced(tmp_path: Path, tokenizer: Path) -> None:
    write_lines(tmp_path / "a.jsonl")
    (other := tmp_path / "out/tokens/tokenizer_config.json").parent.mkdir(parents=True)
    other.write_text("{}")
    options: dict[str, Any] = {"tokenizer": tokenizer, "inputs": [tmp_path / "a.jsonl"], "output": tmp_path / "out"}
    with pytest.raises(BertprepError, match=r"tokenizer_config\.json: exists and differs from the one for this folder; choose"):
        bertprep.tokenize(**options)
    assert other.read_text() == "{}"
    other.write_bytes(DocumentTokenizer(tokenizer, "x").files()["tokenizer_config.json"])
    bertprep.tokenize(**options)
