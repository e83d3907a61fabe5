"""The compiled tokenizer is Google's: on every character, on `tokenizers`' English, and on what is no text at all."""

import io
import os
import unicodedata
from itertools import pairwise
from pathlib import Path

import pytest

from bertprep.errors import BertprepError
from bertprep.instances import TokenizedShard, Tokenizer, load_vocabulary, reference

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def vocabulary_of(folder: Path, *tokens: str) -> Path:
    path = folder / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in [*SPECIAL, *tokens]), encoding="utf-8")
    return path


def tokenize(folder: Path, text: str | bytes, *tokens: str, lower: bool = True) -> tuple[TokenizedShard, list[list[str]]]:
    """The shard, and its sentences in tokens."""
    vocabulary = load_vocabulary(vocabulary_of(folder, *tokens))
    path = folder / "shard.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    shard = Tokenizer(vocabulary, lower=lower).tokenize_file(path)
    starts = shard.sentence_starts.tolist()
    names = [vocabulary.tokens[token] for token in shard.tokens.tolist()]
    return shard, [names[start:end] for start, end in pairwise(starts)]


def test_hub_text_words_into_the_longest_pieces(tmp_path: Path) -> None:
    _, sentences = tokenize(tmp_path, "Unaffable, unwanted\n", "un", "##aff", "##able", "##a", "##want", "##ed", ",")
    assert sentences == [["un", "##aff", "##able", ",", "un", "##want", "##ed"]]


def test_only_two_signs_mark_a_piece_that_continues_a_word(tmp_path: Path) -> None:
    _, sentences = tokenize(tmp_path, "wants\nwant#s\n", "want", "#xs", "#", "s")
    assert sentences == [["[UNK]"], ["want", "#", "s"]]


def test_blank_lines_end_documents_and_lines_without_tokens_do_not(tmp_path: Path) -> None:
    shard, sentences = tokenize(tmp_path, "a\n\u200b\na a\n \t\u00a0\n\n\na\r\n\r\na a a", "a")
    assert sentences == [["a"], ["a", "a"], ["a"], ["a", "a", "a"]]
    assert shard.document_starts.tolist() == [0, 2, 3, 4]


def test_lines_are_tokenized_by_themselves(tmp_path: Path) -> None:
    """Also those that have no token; "Σ" is a final one at the end of its line, and 15 letters fit into the table of words."""
    tokens = ["a", "b", "##b", ",", "é", "##σ", "ας", "x" * 15, "x" * 16]
    tokenizer = Tokenizer(load_vocabulary(vocabulary_of(tmp_path, *tokens)), lower=True)
    lines = ["a b", "", "abb,a", " \t", "\u200b", "ΑΣ", "X" * 15, "x" * 16, "?"]
    tokenized = tokenizer.tokenize_lines("".join(f"{line}\n" for line in lines).encode())
    found = [[([*SPECIAL, *tokens])[token] for token in tokenized.tokens[start:end]]
             for start, end in pairwise([0, *tokenized.ends.tolist()])]  # fmt: skip
    assert found == [["a", "b"], [], ["a", "##b", "##b", ",", "a"], [], [], ["ας"], ["x" * 15], ["x" * 16], ["[UNK]"]]
    assert [len(part) for part in tokenizer.tokenize_lines(b"")] == [0, 0]
    for wrong in (b"a", b"\xff\n"):
        with pytest.raises(ValueError, match="is not UTF-8, or does not end with a newline"):
            tokenizer.tokenize_lines(wrong)


def test_a_carriage_return_vanishes_and_joins_its_neighbours(tmp_path: Path) -> None:
    assert tokenize(tmp_path, "a\rb\n", "ab", "a", "b")[1] == [["ab"]]


@pytest.mark.parametrize(("size", "expected"), [(200, "word"), (201, "[UNK]")])
@pytest.mark.parametrize("letter", ["x", "é", "Å"])
def test_a_word_of_more_than_200_characters_is_unknown(tmp_path: Path, letter: str, size: int, expected: str) -> None:
    pieces = "x", "##x", "e", "##e", "a", "##a"
    _, [sentence] = tokenize(tmp_path, letter * size, *pieces)
    assert (sentence == ["[UNK]"]) == (expected == "[UNK]")
    assert sentence == reference.tokenize(letter * size, set(pieces), lower=True)


@pytest.mark.parametrize(
    "text", ["ΟΔΟΣ ΣΟΦΟΣ, Σ", "ΑΣ\x01Α", "ΑΣ\x85Α", "ΑΣ\x0bΑ", "ΑΣ\ufffdΑ", "Α\x01Σ", "ΑΣ\u200bΑ", "ΑΣ.Α ΑΣ'", "ΑΣ\tΑ", "Σ北Σ"]
)
def test_a_capital_sigma_at_the_end_of_a_word_becomes_a_final_one(tmp_path: Path, text: str) -> None:
    letters = "οδσφας"
    tokens = [*letters, *(f"##{letter}" for letter in letters), ",", ".", "'", "北"]
    assert tokenize(tmp_path, text, *tokens)[1] == [reference.tokenize(text, set(tokens), lower=True)]


@pytest.mark.parametrize("lower", [True, False], ids=["uncased", "cased"])
def test_treats_every_character_as_the_reference_does(tmp_path: Path, lower: bool) -> None:
    # One line a character, between two letters; the vocabulary knows every character that can come out. The running
    # Python knows an older or newer Unicode than the table's 15.1, so characters that have changed are left out. Of the
    # 137,000 for private use, those of the table's first plane will do.
    assigned = (chr(point) for point in range(0xF0000) if unicodedata.category(chr(point)) not in ("Cs", "Cn"))
    lines = [f"a{character}b" for character in assigned if character not in "\n\u1734"]  # U+1734: Mn until Unicode 14
    expected = [list(reference.split_words(line.replace("\r", ""), lower=lower)) for line in lines]
    characters = sorted({character for words in expected for word in words for character in word})
    tokens = [form for character in characters for form in (character, f"##{character}")]
    _, found = tokenize(tmp_path, "\n".join(lines) + "\n", *tokens, lower=lower)
    assert len(found) == len(lines)
    for line, words, sentence in zip(lines, expected, found, strict=True):
        pieces = [f"##{c}" if i else c for word in words for i, c in enumerate(word)]
        assert sentence == pieces, f"U+{ord(line[1]):04X}"


@pytest.mark.parametrize(
    ("text", "offset", "byte"),
    [
        (b"good\nbad \xff byte\n", 9, "0xff"),
        (b"\x80", 0, "0x80"),
        (b"caf\xc3", 3, "0xc3"),
        (b"overlong \xc0\xaf\n", 9, "0xc0"),
        (b"surrogate \xed\xa0\x80\n", 10, "0xed"),
        (b"beyond \xf4\x90\x80\x80\n", 7, "0xf4"),
    ],
)
def test_names_the_byte_that_is_not_utf_8(tmp_path: Path, text: bytes, offset: int, byte: str) -> None:
    with pytest.raises(BertprepError, match=rf"shard\.txt: byte {offset} \({byte}\) is not UTF-8"):
        tokenize(tmp_path, text, "a")


@pytest.mark.parametrize(
    ("text", "message"), [("", "is empty"), ("\n \n\t\n", "contains no document"), ("\u200b", "contains no document")]
)
def test_text_without_a_document_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BertprepError, match=message):
        tokenize(tmp_path, text, "a")


def test_text_that_is_cut_short_while_it_is_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Tokenizer._tokenize

    def cut_and_read(self: Tokenizer, path: Path, file: io.RawIOBase, size_bytes: int) -> TokenizedShard:
        os.truncate(path, 4)
        return read(self, path, file, size_bytes)

    monkeypatch.setattr(Tokenizer, "_tokenize", cut_and_read)
    with pytest.raises(BertprepError, match=r"shard\.txt: was truncated while it was read, after 4 of its 9 bytes; "):
        tokenize(tmp_path, "a a a a\n\n", "a")
