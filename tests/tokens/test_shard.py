"""Token shards: what is written is read back, as Megatron's layout has it; what does not fit is refused in one line."""

import os
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from bertprep.files.checksums import digest
from bertprep.instances.tokenizer import TokenizedShard
from bertprep.instances.vocabulary import Vocabulary
from bertprep.tokens.shard import TokenShard, write_token_shard
from bertprep.work.layout import TokenFile, token_files
from bertprep.work.recognize import is_token_index

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
VOCABULARY = Vocabulary(Path("vocab.txt"), tuple(TOKENS), "", 0, 1, 2, 3, 4)


def test_a_shard_is_read_as_it_was_written(tmp_path: Path) -> None:
    shard = small_shard([[5, 6], [7]], [[8, 9, 10]])
    for tokens, size in ((65_499, 2), (65_500, 4)):
        files = token_files(tmp_path / f"x_{tokens}.bin")
        write_sentences(shard, files, width=tokens)
        assert files[TokenFile.BIN].stat().st_size == 6 * size
        assert files[TokenFile.IDX].stat().st_size == 34 + 3 * 12 + 3 * 8
        assert_equal(TokenShard(files[TokenFile.BIN]).read(VOCABULARY), shard)


def test_the_bytes_are_those_of_the_layout(tmp_path: Path) -> None:
    files = token_files(tmp_path / "x.bin")
    write_sentences(small_shard([[5, 6], [7]], [[8, 9, 10]]), files, width=13)
    assert files[TokenFile.BIN].read_bytes() == struct.pack("<6H", 5, 6, 7, 8, 9, 10)
    assert files[TokenFile.IDX].read_bytes() == index(8, [2, 1, 3], [0, 4, 6], [0, 2, 3])


@pytest.mark.parametrize(("code", "kind"), [(1, "u1"), (2, "i1"), (3, "<i2"), (4, "<i4"), (5, "<i8"), (8, "<u2")])
def test_numbers_of_each_integer_type_are_read(tmp_path: Path, code: int, kind: str) -> None:
    tokens = np.array([5, 6, 7], kind)
    path = write(tmp_path, tokens.tobytes(), index(code, [2, 1], [0, 2 * tokens.itemsize], [0, 2]))
    assert_equal(TokenShard(path).read(VOCABULARY), small_shard([[5, 6], [7]]))


def test_what_has_no_tokens_is_dropped_and_modes_are_ignored(tmp_path: Path) -> None:
    path = write(tmp_path, ids(5, 6, 7), index(8, [0, 2, 0, 1, 0], [0, 0, 4, 4, 6], [0, 0, 3, 4, 4, 5]) + bytes(5))
    assert_equal(TokenShard(path).read(), small_shard([[5, 6]], [[7]]))


def ids(*tokens: int) -> bytes:
    return np.array(tokens, "<u2").tobytes()


def index(code: int, lengths: list[int], pointers: list[int], documents: list[int]) -> bytes:
    header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(lengths), len(documents))
    rest = np.array(lengths, "<i4"), np.array(pointers, "<i8"), np.array(documents, "<i8")
    return header + b"".join(array.tobytes() for array in rest)


GOOD = (8, [2, 1], [0, 4], [0, 1, 2])


def faults() -> list[tuple[str, bytes, bytes, str]]:
    """(what is wrong, .bin, .idx, words of the message)."""
    good, tokens = index(*GOOD), ids(5, 6, 7)
    return [
        ("a cut .bin", tokens[:-1], good, "x.bin: has 5 bytes, expected 6 for the tokens that x.idx lists"),
        ("a .bin of another", tokens + ids(8), good, "x.bin: has 8 bytes, expected 6"),
        ("an empty .bin", b"", good, "x.bin: has 0 bytes, expected 6"),
        ("a cut .idx", tokens, good[:-1], "x.idx: has 81 bytes, expected 82 for its 2 sequences and 3 document indices"),
        ("a cut header", tokens, good[:20], "x.idx: is not the index of a token shard: it has 20 bytes"),
        ("an empty .idx", tokens, b"", "x.idx: is not the index of a token shard: it has 0 bytes"),
        ("another magic", tokens, b"X" + good[1:], "begins with 58 4d 49"),
        (
            "another version",
            tokens,
            good[:9] + b"\2" + good[10:],
            "has version 2 and ids of type 8, expected version 1",
        ),
        ("floats", tokens, index(7, *GOOD[1:]), "has version 1 and ids of type 7, expected version 1 and integers"),
        ("a huge count", tokens, good[:18] + b"\xff" * 8 + good[26:], "for its 18,446,744,073,709,551,615 sequences"),
        ("a negative length", tokens, index(8, [4, -1], [0, 8], [0, 2]), "x.idx: sequence 1 has -1 tokens"),
        ("lengths beyond", tokens, index(8, [2**31 - 2, 1], [0, 2**32 - 4], [0, 2]), "has 6 bytes, expected 4,294,967,294"),
        ("too many tokens", tokens, index(8, [2**31 - 1, 1], [0, 2**32 - 2], [0, 2]), "x.idx: lists 2,147,483,648 tokens"),
        ("a hostile pointer", tokens, index(8, [2, 1], [0, 2**62], [0, 2]), "1 tokens and begins at byte 4,611,686,018"),
        ("overlapping", tokens, index(8, [2, 1], [0, 2], [0, 2]), "sequence 1 has 1 tokens and begins at byte 2 of the .bin"),
        ("no indices", tokens, index(8, [2, 1], [0, 4], []), "must ascend from 0 to 2, the number of sequences, found none"),
        ("indices from 1", tokens, index(8, [2, 1], [0, 4], [1, 2]), "found 2 from 1 to 2"),
        ("indices that end early", tokens, index(8, [2, 1], [0, 4], [0, 1]), "found 2 from 0 to 1"),
        ("indices that fall", tokens, index(8, [2, 1], [0, 4], [0, 2, 1, 2]), "must ascend"),
        ("no document", b"", index(8, [], [], [0]), "x.bin: has no documents"),
        ("only empty sequences", b"", index(8, [0], [0], [0, 1]), "x.bin: has no documents"),
        ("a token beyond", ids(5, 13, 7), good, "x.bin: token 1 is 13, and vocab.txt has 13 tokens"),
        ("a special token", ids(5, 6, 4), good, r"x.bin: token 2 is [MASK] by vocab.txt, which text never contains"),
        ("a negative token", struct.pack("<3i", 5, -1, 7), index(4, [2, 1], [0, 8], [0, 2]), "token 1 is -1, expected 0 to"),
        ("a huge token", struct.pack("<3q", 5, 6, 2**40), index(5, [2, 1], [0, 16], [0, 2]), "token 2 is 1,099,511,627,776"),
    ]


@pytest.mark.parametrize(("tokens", "index", "words"), [each[1:] for each in faults()], ids=[each[0] for each in faults()])
def test_what_does_not_fit_is_refused(tmp_path: Path, tokens: bytes, index: bytes, words: str) -> None:
    with pytest.raises(BertprepError) as refused:
        TokenShard(write(tmp_path, tokens, index)).read(VOCABULARY)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("changed", ["bin", "idx"])
def test_a_file_that_is_not_that_of_its_manifest_is_refused(tmp_path: Path, changed: str) -> None:
    """Although another token, and another document, would do as well."""
    path = write(tmp_path, ids(5, 6, 7), index(*GOOD))
    listed = {end: {"blake3": digest(path.with_suffix(f".{end}").read_bytes())} for end in ("bin", "idx")}
    shard = TokenShard(path, listed)
    assert_equal(shard.read(VOCABULARY), small_shard([[5, 6]], [[7]]))
    write(tmp_path, *((ids(5, 6, 8), index(*GOOD)) if changed == "bin" else (ids(5, 6, 7), index(8, [2, 1], [0, 4], [0, 2]))))
    assert TokenShard(path).read(VOCABULARY)
    with pytest.raises(BertprepError, match=rf"x\.{changed}: has blake3 .*, expected blake3 .* as in its manifest"):
        shard.read(VOCABULARY)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, ids(5), index(8, [1], [0], [0, 1]))
    path.with_suffix(".idx").unlink()
    with pytest.raises(BertprepError, match=r"x\.idx: cannot be read: No such file or directory; a token shard is a"):
        TokenShard(path).read()


@pytest.mark.parametrize("end", TokenFile)
def test_a_fifo_is_no_token_shard(tmp_path: Path, end: TokenFile) -> None:
    path = write(tmp_path, ids(5), index(8, [1], [0], [0, 1]))
    fifo = token_files(path)[end]
    fifo.unlink()
    os.mkfifo(fifo)
    assert is_token_index(token_files(path)[TokenFile.IDX]) == (end == TokenFile.BIN)
    with pytest.raises(BertprepError, match=rf"x\.{end}: cannot be read: it is not a plain file"):
        TokenShard(path).fingerprint()


def test_documents_without_sentences_give_no_pairs(tmp_path: Path) -> None:
    files = token_files(tmp_path / "x.bin")
    write_sentences(small_shard([[5], [6]], [[7]]), files, width=13)
    TokenShard(files[TokenFile.BIN]).read(pairs=True)
    write_sentences(small_shard([[5, 6]], [[7]]), files, width=13)
    with pytest.raises(UsageError, match="has no sentences: each of its 2 documents is one sequence"):
        TokenShard(files[TokenFile.BIN]).read(pairs=True)


def write_sentences(shard: TokenizedShard, paths: Mapping[TokenFile, Path], *, width: int) -> None:
    """Write token shards of sentences."""
    with write_token_shard(paths, width=width) as writer:  # type: ignore[arg-type] # a TokenFile is a str
        lengths, sequences = np.diff(shard.sentence_starts), np.diff(shard.document_starts)
        writer.add(shard.tokens, lengths, sequences=sequences)


def small_shard(*documents: list[list[int]]) -> TokenizedShard:
    sentences = [sentence for document in documents for sentence in document]
    return TokenizedShard(
        np.array([token for sentence in sentences for token in sentence], np.int32),
        starts([len(sentence) for sentence in sentences]),
        starts([len(document) for document in documents]),
        0,
        0,
    )


def starts(lengths: list[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def assert_equal(read: TokenizedShard, expected: TokenizedShard) -> None:
    for name in ("tokens", "sentence_starts", "document_starts"):
        found, wanted = getattr(read, name), getattr(expected, name)
        assert found.dtype == wanted.dtype
        assert found.tolist() == wanted.tolist()


def write(folder: Path, tokens: bytes, index: bytes) -> Path:
    (folder / "x.bin").write_bytes(tokens)
    (folder / "x.idx").write_bytes(index)
    return folder / "x.bin"
