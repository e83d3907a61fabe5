"""Text shards to token shards, and what takes these: create, validate, inspect; those of Megatron too."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertprep
from bertprep.cli import main
from bertprep.commands.create import create
from bertprep.commands.shard import shard
from bertprep.commands.tokenize import tokenize
from bertprep.commands.validate import validate
from bertprep.errors import BertprepError, UsageError
from bertprep.instances import Tokenizer, load_vocabulary
from bertprep.instances.tokenizer_files import tokenizer_files
from bertprep.tokens.shard import TokenShard
from bertprep.work.choose import find_records, find_token_shards
from tests.corpora import deal, sums
from tests.golden import GOLDEN
from tests.object_store import store

__all__ = ["store"]  # a fixture

VOCABULARY = GOLDEN / "vocab.txt"
MEGATRON = GOLDEN / "token_shards"
SETTINGS = bertprep.InstanceSettings(seq=64, pred=10, dupe=1)
FOLDER = "lower_case_1_vocab_c9638303_shard_3_test_split_10/mine"


def make(workdir: Path, **options: Any) -> dict[str, str]:
    """Records of the corpus in a workspace; their checksums."""
    made = create(workdir=workdir, corpus="mine", **vars(SETTINGS), vocab=VOCABULARY, formats="tfrecord", workers=1, **options)
    return sums(made.folders["tfrecord"])


@pytest.fixture(scope="module")
def made(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with text shards and their tokens."""
    folder = tmp_path_factory.mktemp("made")
    shard(deal(golden_corpus, folder / "text", 3), shards=3, workdir=folder, corpus="mine", workers=1)
    tokenize(workdir=folder, corpus="mine", vocab=VOCABULARY, workers=1)
    return folder


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def tokens(copy: Path) -> Path:
    """A folder of token shards, with its manifest."""
    return copy / "tokens" / FOLDER


@pytest.fixture
def foreign(tokens: Path, tmp_path: Path) -> Path:
    """The training shards as another tool leaves them: without a manifest or a vocabulary."""
    return Path(shutil.copytree(tokens / "training", tmp_path / "foreign"))


def test_each_text_shard_becomes_two_files(made: Path) -> None:
    folder = made / "tokens" / FOLDER
    manifest = json.loads((folder / "manifest.json").read_text())
    names = [f"{split}/mine_{split}_{n:05d}" for split, count in (("training", 3), ("test", 1)) for n in range(count)]
    assert sorted(manifest["files"]) == sorted(f"{name}.{end}" for name in names for end in ("bin", "idx"))
    assert sorted(sums(folder)) == sorted([*manifest["files"], "manifest.json", "vocab.txt"])
    tokenizer = Tokenizer(load_vocabulary(VOCABULARY), lower=True)
    for name in names:
        expected = tokenizer.tokenize_file(made / "sharded/mine" / f"{name}.txt")
        read = TokenShard(folder / f"{name}.bin").read(load_vocabulary(VOCABULARY))
        for array in ("tokens", "sentence_starts", "document_starts"):
            assert np.array_equal(getattr(read, array), getattr(expected, array))
        entry = manifest["files"][f"{name}.bin"]
        assert [entry[what] for what in ("documents", "sentences", "tokens")] == [
            expected.documents, expected.sentences, len(expected.tokens)
        ]  # fmt: skip
        of_index = manifest["files"][f"{name}.idx"]
        assert not {"documents", "sentences", "tokens"} & of_index.keys()  # which would count them twice
        assert entry["text"]["crc32c"] == f"{expected.text_crc32c:08x}"


@pytest.mark.parametrize("is_whole", [False, True])
@pytest.mark.parametrize("dtype", ["uint16", "int32"])
def test_megatron_reads_the_same_values(dtype: str, is_whole: bool, golden_corpus: Path, tmp_path: Path) -> None:
    """The golden values are what its IndexedDataset read from these files, of sentences and of whole documents."""
    text, vocabulary = tmp_path / "text.txt", VOCABULARY
    text.write_bytes(golden_corpus.read_bytes()[:60_000])
    if dtype == "int32":
        vocabulary = tmp_path / "large.txt"
        vocabulary.write_text(VOCABULARY.read_text() + "".join(f"unused{number}\n" for number in range(1, 70_001)))
    how: dict[str, Any] = {"vocab": vocabulary}
    if is_whole:
        how = {"tokenizer": tmp_path / "tokenizer.json"}
        how["tokenizer"].write_bytes(tokenizer_files(load_vocabulary(vocabulary), cased=False, seq=128)["tokenizer.json"])
    made = tokenize(inputs=[text], output=tmp_path / "out", workers=1, **how).folders["tokens"]
    read_by_megatron = json.loads((MEGATRON / "read_by_megatron.json").read_text())
    expected = read_by_megatron[dtype] | (read_by_megatron["whole_documents"] if is_whole else {})
    path = made / "corpus_training_00000.bin"
    tokens = np.fromfile(path, f"<{np.dtype(expected['dtype']).str[1:]}")
    read = TokenShard(path).read()
    assert hashlib.sha256(tokens.astype("<i8").tobytes()).hexdigest() == expected["tokens_sha256"]
    assert np.diff(read.sentence_starts).tolist() == expected["lengths"]
    assert read.document_starts.tolist() == expected["document_indices"]
    assert tokens[: len(expected["first"])].tolist() == expected["first"]


@pytest.mark.parametrize("name", ["uint16", "int32", "multimodal", "whole_documents"])
def test_what_megatron_wrote_is_read(name: str) -> None:
    documents = [each for each in json.loads((MEGATRON / "made_by_megatron.json").read_text())["documents"] if each]
    if name == "whole_documents":
        documents = [[list(chain(*document))] for document in documents]
    read = TokenShard(MEGATRON / f"{name}.bin").read(load_vocabulary(VOCABULARY))
    sentences = [sentence for document in documents for sentence in document]
    assert read.tokens.tolist() == list(chain(*sentences))
    assert read.sentence_starts.tolist() == [0, *accumulate(map(len, sentences))]
    assert read.document_starts.tolist() == [0, *accumulate(map(len, documents))]


def test_token_shards_that_nobody_names_are_not_taken(tokens: Path, copy: Path) -> None:
    """What `create` makes of a corpus does not depend on what else is in the workspace: --input names token shards."""
    (tokens / "manifest.json").write_text("{")
    for path in tokens.rglob("*.bin"):
        path.write_bytes(bytes(path.stat().st_size))
    made = make(copy)
    shutil.rmtree(copy / "tfrecord")
    shutil.rmtree(copy / "tokens")
    assert make(copy) == made


def test_text_that_is_not_that_of_its_manifest_is_refused(copy: Path) -> None:
    text = copy / "sharded/mine/training/mine_training_00000.txt"
    text.write_bytes(text.read_bytes().replace(b"e", b"a", 1))  # of the same size
    said = rf"^{text}: [\d,]+ bytes with crc32c \w+ were read, expected [\d,]+ with \w+ as in the manifest.json of the text "
    with pytest.raises(BertprepError, match=said):
        make(copy)
    shutil.rmtree(copy / "tokens")
    with pytest.raises(BertprepError, match=said):
        tokenize(workdir=copy, corpus="mine", vocab=VOCABULARY, workers=1)
    with pytest.raises(BertprepError, match=said):  # before a vocabulary is trained on it
        tokenize(workdir=copy, corpus="mine", workers=1)
    assert not (copy / "vocab").exists()


def edit_files(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((folder / "manifest.json").read_text())
    for entry in content["files"].values():
        change(entry)
    (folder / "manifest.json").write_text(json.dumps(content))


def test_records_and_tokens_of_another_text_than_the_shards_are_found(copy: Path, tokens: Path) -> None:
    make(copy)
    (records,) = (copy / "tfrecord").glob("*/mine")
    for folder in (records, tokens):
        edit_files(folder, lambda entry: entry["text"].update(crc32c="0" * 8) if "00001" in entry["text"]["name"] else None)
    findings = [each for outcome in validate([copy], workers=1) for each in outcome.findings]
    found = [each.file for each in findings if each.code == "text-changed"]
    assert sorted(found) == sorted(f"training/mine_training_00001.{end}" for end in ("tfrecord", "bin", "idx"))
    assert {each.level for each in findings if each.code != "text-changed"} <= {"warning"}  # of the golden text itself


def test_damaged_tokens_are_one_line_and_made_again(tokens: Path, copy: Path, tmp_path: Path) -> None:
    path = tokens / "training/mine_training_00001.bin"
    content = bytearray(path.read_bytes())
    content[10] ^= 1
    path.write_bytes(content)
    asked: dict[str, Any] = {"inputs": [tokens], "output": tmp_path / "out", **vars(SETTINGS), "workers": 1}
    with pytest.raises(BertprepError, match=r"has blake3 .* as in its manifest; remove it with bertprep validate"):
        create(**asked)
    expected = sums(tokens)
    path.unlink()
    tokenize(workdir=copy, corpus="mine", vocab=VOCABULARY, workers=1)
    assert sums(tokens) != expected
    assert create(**asked).manifest.files


def test_nothing_is_forecast_of_token_shards(tokens: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What padding to expect is said of text."""
    create(inputs=[tokens], output=tmp_path / "out", **vars(SETTINGS), workers=1, progress=True)
    said = capsys.readouterr().err
    assert "create: 3/3 shards" in said
    assert " became " not in said


def test_records_of_a_folder_of_tokens_are_those_of_its_text(tokens: Path, copy: Path, tmp_path: Path) -> None:
    texts = sorted((copy / "sharded/mine/training").iterdir())
    expected = create(inputs=texts, output=tmp_path / "a", vocab=VOCABULARY, **vars(SETTINGS), workers=1)
    assert expected.made == 3
    create(inputs=[tokens], output=tmp_path / "b", **vars(SETTINGS), workers=1)  # the vocabulary lies beside them
    create(inputs=sorted((tokens / "training").glob("*.bin")), output=tmp_path / "c", **vars(SETTINGS), workers=1)
    assert sums(tmp_path / "a") == sums(tmp_path / "b") == sums(tmp_path / "c")
    assert create(inputs=[tokens], output=tmp_path / "a", **vars(SETTINGS), workers=1).made == 0


def test_records_of_tokens_of_another_tool(foreign: Path, copy: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no vocab.txt next to it; copy the one that it was made with there"):
        create(inputs=[foreign], output=tmp_path / "a", **vars(SETTINGS))
    made = create(inputs=[foreign], output=tmp_path / "a", vocab=VOCABULARY, **vars(SETTINGS), workers=1)
    own = make(copy)
    assert (
        sums(made.folders["tfrecord"] / "training").items() <= {n.removeprefix("training/"): s for n, s in renamed(own)}.items()
    )
    path = next(foreign.glob("*.bin"))
    path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(BertprepError, match=r"but .* has changed since"):
        create(inputs=[foreign], output=tmp_path / "a", vocab=VOCABULARY, **vars(SETTINGS))


def renamed(found: dict[str, str]) -> list[tuple[str, str]]:
    return [(name.replace("mine_", "corpus_"), checksum) for name, checksum in found.items()]


def test_what_create_refuses(tokens: Path, tmp_path: Path) -> None:
    other, whole = tmp_path / "other.txt", MEGATRON / "whole_documents.bin"
    other.write_text(VOCABULARY.read_text() + "[another]\n")
    training, text = tokens / "training", tokens.parents[2] / "text/text_0.txt"
    for inputs, more, message in (
        ([tokens], {"cased": True}, "was tokenized without --cased"),
        ([tokens], {"vocab": other}, r"other\.txt: is not the vocabulary that .* was made with"),
        ([whole], {"vocab": VOCABULARY}, "has no sentences: each of its 4 documents is one sequence"),
        (
            [training, MEGATRON / "uint16.bin"],
            {"vocab": VOCABULARY},
            r"is not in the same folder as .*; name the",
        ),
        ([training, text], {"vocab": VOCABULARY}, r"text_0\.txt: is not a token shard; name token shards or text, not both"),
    ):
        with pytest.raises(BertprepError, match=message):
            create(inputs=inputs, output=tmp_path / "b", **more)  # type: ignore[arg-type]
    shutil.rmtree(training)
    (tokens / "manifest.json").unlink()
    with pytest.raises(UsageError, match="has no training split; name the folder of another split"):
        create(inputs=[tokens], output=tmp_path / "a", **vars(SETTINGS))
    with pytest.raises(UsageError, match="has token shards, and a forecast needs text; name the text"):
        bertprep.forecast(inputs=[tokens], output=tmp_path / "a", vocab=VOCABULARY)
    with pytest.raises(UsageError, match="has token shards, expected records; make records from them with bertprep create"):
        find_records(tokens)
    with pytest.raises(UsageError, match="has text shards, expected token shards"):
        find_token_shards([tokens.parents[2] / "sharded"])
    assert not (tmp_path / "a").exists()


def flip(path: Path, at: int, value: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(value)] = value
    path.write_bytes(content)


def give_other_counts(path: Path) -> None:
    manifest = path.parents[1] / "manifest.json"
    content = json.loads(manifest.read_text())
    content["files"]["training/mine_training_00000.bin"]["sentences"] += 1
    manifest.write_text(json.dumps(content))


FAULTS: dict[str, tuple[Callable[[Path], Any], list[tuple[str, str]]]] = {
    "cut": (lambda path: os.truncate(path, 100), [("file-changed", ".bin"), ("token-shard", ".bin")]),
    "without its index": (lambda path: path.with_suffix(".idx").unlink(), [("file-missing", ".idx")]),
    "missing": (lambda path: path.unlink(), [("file-missing", ".bin")]),
    "a special token": (lambda path: flip(path, 0, load_vocabulary(VOCABULARY).sep.to_bytes(2, "little")),
                        [("file-changed", ".bin"), ("special-token", ".bin")]),
    "beyond the vocabulary": (lambda path: flip(path, 0, b"\xff\xff"), [("file-changed", ".bin"), ("id-range", ".bin")]),
    "a hostile index": (lambda path: flip(path.with_suffix(".idx"), 34, b"\xff" * 4),
                        [("file-changed", ".idx"), ("token-shard", ".bin")]),
    "other counts": (give_other_counts, [("manifest", ".bin")]),
    "another vocabulary": (lambda path: (path.parents[1] / "vocab.txt").write_text(VOCABULARY.read_text() + "[another]\n"),
                           [("manifest", "vocab.txt")]),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found(name: str, tokens: Path) -> None:
    plant, expected = FAULTS[name]
    assert not validate([tokens], workers=1)[0].findings
    plant(tokens / "training/mine_training_00000.bin")
    (outcome,) = validate([tokens], workers=1)
    found = sorted((finding.code, finding.file) for finding in outcome.findings)
    assert [code for code, _ in found] == sorted(code for code, _ in expected)
    assert all(file.endswith(end) for (_, file), (_, end) in zip(found, sorted(expected), strict=True))
    assert outcome.errors == len(expected)


def test_tokens_of_megatron_are_validated() -> None:
    (outcome,) = validate([MEGATRON], vocab=VOCABULARY, workers=1)
    assert [(finding.code, finding.file) for finding in outcome.findings] == [
        ("identical-files", "uint16.bin"),  # the files hold the same documents
        ("identical-files", "whole_documents.bin"),
        ("no-sentences", "whole_documents.bin"),
        ("document-twice", "uint16.bin"),
        ("document-twice", "whole_documents.bin"),
    ]
    assert outcome.token_counts[""].documents == 16
    assert outcome.token_counts[""].documents_by_sentences.sum() == 16
    assert outcome.token_counts[""].sentences == 3 * 11 + 4


def test_a_workspace_is_validated_with_its_tokens(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(made), "--workers", "1", "--json", str(tmp_path / "v.json")]) == 0
    assert "mine, token shards: no errors, no warnings\n" in capsys.readouterr().out
    content = json.loads((tmp_path / "v.json").read_text())
    (of_tokens,) = (each for each in content["data_sets"] if each["kind"] == "token shards")
    assert of_tokens["splits"]["training"]["sentences"] == sum(of_tokens["splits"]["training"]["lengths"])


def test_what_was_begun_with_lines_that_are_sentences_goes_on_without_saying_so(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("One sentence. Another one. A third.\n" * 20)
    asked: dict[str, Any] = {"inputs": [text], "output": tmp_path / "out", "vocab": VOCABULARY, "workers": 1}
    with pytest.raises(BertprepError, match="does not have one sentence per line"):
        tokenize(**asked)
    assert tokenize(**asked, lines_are_sentences=True).made == 1
    assert tokenize(**asked).made == 0


def test_documents_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("One sentence.\nAnother two words.\n\nThe second document.\nIt has two.\n")
    folder = tokenize(inputs=[text], output=tmp_path / "out", vocab=VOCABULARY, workers=1).folders["tokens"]
    path = str(folder / "corpus_training_00000.bin")
    assert main(["inspect", path, "--records", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{path}: 2 documents, 4 sentences, ")
    assert lines[2].startswith("document 0: 2 sentences, ")
    assert lines[3:] == ["one sentence .", "another two words ."]
    assert main(["inspect", path, "--record", "1"]) == 0
    second = ["", lines_of_second(folder), "the second document .", "it has two ."]
    assert capsys.readouterr().out.splitlines()[1:] == second
    assert main(["inspect", path, "--record", "2"]) == 2


def lines_of_second(folder: Path) -> str:
    shard = TokenShard(folder / "corpus_training_00000.bin").read()
    return f"document 1: 2 sentences, {shard.sentence_starts[4] - shard.sentence_starts[2]:,} tokens"


def test_the_page_of_tokens(tokens: Path, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert main(["validate", str(tokens), "--workers", "1", "--html", str(path)]) == 0
    html = path.read_text(encoding="utf-8")
    assert "no findings" in html
    for title in ("Length of documents", "Length of sentences"):
        assert f"<h4>{title}</h4>" in html


def test_our_own_token_shards_may_have_one_sentence_a_document(tmp_path: Path) -> None:
    """Other tools' are told that create makes no pairs of them."""
    (tmp_path / "a.txt").write_text("the cat saw\n\nthe dog ran\n\n")
    made = bertprep.tokenize(
        inputs=[tmp_path / "a.txt"], lines_are_sentences=True, vocab=VOCABULARY, output=tmp_path / "out", workers=1
    )
    [outcome] = validate([made.folder], workers=1)
    assert outcome.findings == []
