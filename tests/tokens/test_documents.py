"""Token shards of documents: what is written is read back, sentence shards too, and a set that is not whole is refused."""

import json
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

import bertprep
from bertprep.errors import BertprepError, UsageError
from bertprep.tokens.documents import TokenizerInfo, open_token_documents
from bertprep.tokens.live import LiveExamples
from bertprep.tokens.shard import DOCUMENT_FILES, write_token_shard
from bertprep.work.manifest import TOKEN_SHARDS, Manifest, read_manifest

INFO = TokenizerInfo("tiny", "0" * 64, "BPE", 100, 2, 3, 0, 4, 1, (0, 1, 2, 3, 4), "word_ids")
DOCUMENTS = [[5, 6, 7], [8], [9, 10, 11, 12, 13, 14, 15], [99]]


def write_set(folder: Path, documents: list[list[int]] = DOCUMENTS, info: TokenizerInfo = INFO, *, shards: int = 1) -> Path:
    """Write token shards of documents, each of which begins a word at every second token, and their manifest."""
    folder.mkdir(exist_ok=True)
    files = {}
    for number in range(shards):
        own = documents[len(documents) * number // shards : len(documents) * (number + 1) // shards]
        paths = {end: folder / f"x_training_{number:05}.{end}" for end in DOCUMENT_FILES}
        with write_token_shard(paths, width=info.width) as writer:
            for at in range(0, len(own), 2):
                batch = own[at : at + 2]
                tokens = np.array([token for each in batch for token in each], np.int32)
                begins = np.concatenate([np.arange(len(each)) % 2 == 0 for each in batch])
                writer.add(tokens, np.array([len(each) for each in batch], np.int64), begins_word=begins)
        files |= {paths[end].name: entry for end, entry in writer.entries.items()}
        files[f"x_training_{number:05}.bin"] |= {"documents": writer.documents, "tokens": writer.tokens}
    manifest = Manifest(TOKEN_SHARDS, {"tokenizer": info.made_with}, files, {"bertprep": "0"})
    (folder / "manifest.json").write_bytes(manifest.as_bytes())
    return folder


@pytest.mark.parametrize(("width", "kind"), [(100, np.uint16), (65_499, np.uint16), (65_500, np.int32)])
def test_documents_are_read_as_they_were_written(tmp_path: Path, width: int, kind: type) -> None:
    info = TokenizerInfo(**{**vars(INFO), "width": width})
    found = open_token_documents(write_set(tmp_path / "set", info=info))
    assert found.tokenizer == info
    assert (found.documents, found.tokens, found.begins_word) == (4, 12, None)
    [shard] = pickle.loads(pickle.dumps(found.shards))
    assert shard.tokens.dtype == kind
    assert [shard.tokens[a:b].tolist() for a, b in zip(shard.starts, shard.starts[1:], strict=False)] == DOCUMENTS
    begins = np.unpackbits(shard.words, count=12, bitorder="little").tolist()
    assert begins == [1, 0, 1, 1, 1, 0, 1, 0, 1, 0, 1, 1]


def test_documents_are_one_line_on_a_screen(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "set", shards=2)
    assert repr(open_token_documents(folder)) == f"<TokenDocuments {folder}, training: 4 documents, 12 tokens by tiny>"


def test_documents_may_have_one_token_each(tmp_path: Path) -> None:
    found = open_token_documents(write_set(tmp_path / "set", [[5], [6], [7]]))
    assert (found.documents, found.tokens) == (3, 3)


@pytest.mark.parametrize("documents", [[], [[]], [[], [], []]])
def test_a_shard_without_a_token_is_not_written(tmp_path: Path, documents: list[list[int]]) -> None:
    with pytest.raises(BertprepError, match=r"x_training_00000\.words: there are no tokens to write; expected at least one$"):
        write_set(tmp_path / "set", documents)
    assert not list((tmp_path / "set").iterdir())


def test_the_bytes_are_those_of_the_layout(tmp_path: Path) -> None:
    write_set(tmp_path, [[5, 6], [], [7]])
    header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 2, 3)
    assert (tmp_path / "x_training_00000.bin").read_bytes() == struct.pack("<3H", 5, 6, 7)
    assert (tmp_path / "x_training_00000.idx").read_bytes() == header + struct.pack("<2i2q3q", 2, 1, 0, 4, 0, 1, 2)
    assert (tmp_path / "x_training_00000.words").read_bytes() == bytes([0b101])


def test_sentence_shards_are_read_as_documents(tmp_path: Path) -> None:
    text, vocab = tmp_path / "a.txt", tmp_path / "vocab.txt"
    text.write_text("ab c.\nc ab.\n\nab.\n")
    vocab.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "c", "."]) + "\n")
    bertprep.tokenize(inputs=[text], vocab=vocab, output=tmp_path / "tokens", lines_are_sentences=True)
    found = open_token_documents(tmp_path / "tokens")
    [shard] = found.shards
    assert shard.tokens.tolist() == [5, 6, 7, 8, 7, 5, 6, 8, 5, 6, 8]
    assert shard.starts.tolist() == [0, 8, 11]
    assert shard.words is None
    assert found.begins_word is not None
    assert found.begins_word.tolist() == [True] * 6 + [False] + [True] * 2
    assert found.tokenizer.special == (0, 1, 2, 3, 4)


def test_each_split_has_its_own_documents_and_another_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no split test; it has train"):
        open_token_documents(write_set(tmp_path), "test")


def test_a_vocabulary_is_refused_where_the_shards_have_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--vocab v.txt: .*has its own tokenizer.json, and --vocab is for token"):
        open_token_documents(write_set(tmp_path), vocab="v.txt")


def test_sentences_are_asked_for_where_pairs_are_made(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"has token shards of whole documents, made with --tokenizer, expected those of sentences"
    ):
        LiveExamples(write_set(tmp_path))


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("x_training_00000.bin", lambda data: data[:-1], r"\.bin: has 23 bytes, expected 24 bytes as in manifest"),
        ("x_training_00000.words", lambda _: None, r"\.words: is missing, .*manifest\.json lists it"),
        ("x_training_00000.bin", lambda data: data[:-2] + b"\x64\0", r"\.bin: token 11 is 100, expected 0 to 99"),
        ("x_training_00000.idx", lambda data: data[:34] + b"\4" + data[35:], r"sequence 1 has 1 tokens and begins at byte 6"),
    ],
    ids=["cut", "missing", "an id beyond", "a corrupt index"],
)
def test_a_damaged_set_is_refused_in_one_line(tmp_path: Path, name: str, change, words: str) -> None:  # type: ignore[no-untyped-def]
    path = write_set(tmp_path) / name
    data = change(path.read_bytes())
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(BertprepError, match=words) as refused:
        _ = open_token_documents(tmp_path).shards[0].tokens
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mask": 100}, r"has a special token 100, expected below its width, 100"),
        ({"special": [-1]}, r"tokenizer\.special is a list of 1, expected a list, each at least 0"),
        ({"width": 1 << 40}, r"tokenizer\.width is 1099511627776, expected at least 1 and at most 2,097,152"),
        ({"words": None}, r"tokenizer\.words is null"),
        ({"before": [100]}, r"has a special token 100, expected below its width, 100"),
        ({"after": "x"}, r"tokenizer\.after is \"x\", expected a list"),
        ({"gaps": [5]}, r"tokenizer\.gaps are not ranges of ids below its width"),
        ({"gaps": [5, 3]}, r"tokenizer\.gaps are not ranges of ids below its width"),
        ({"gaps": [90, 101]}, r"tokenizer\.gaps are not ranges of ids below its width"),
    ],
)
def test_what_a_manifest_says_of_a_tokenizer_is_checked(tmp_path: Path, change: dict[str, object], words: str) -> None:
    path = write_set(tmp_path) / "manifest.json"
    content = json.loads(path.read_text())
    content["made_with"]["tokenizer"] |= change
    path.write_text(json.dumps(content))
    with pytest.raises(BertprepError, match=words):
        read_manifest(tmp_path)


@pytest.mark.parametrize("tokens", [0, 1 << 60])
def test_counts_that_no_file_has_are_refused(tmp_path: Path, tokens: int) -> None:
    path = write_set(tmp_path) / "manifest.json"
    path.write_text(path.read_text().replace('"tokens": 12', f'"tokens": {tokens}'))
    with pytest.raises(BertprepError, match=rf"\.bin: manifest.json lists 4 documents with {tokens:,} tokens in 24 bytes,"):
        open_token_documents(tmp_path)
