"""A vocabulary is taken as it is or refused with one line that says what is wrong."""

from pathlib import Path

import pytest

from bertprep.errors import BertprepError
from bertprep.instances import load_vocabulary

GOOD = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n"


def test_tokens_are_numbered_by_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text(GOOD)
    vocabulary = load_vocabulary(path)
    assert vocabulary.tokens[5] == "word"
    assert (vocabulary.unk, vocabulary.cls, vocabulary.sep, vocabulary.mask, len(vocabulary)) == (1, 2, 3, 4, 6)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"lacks \[PAD\], \[UNK\], \[CLS\], \[SEP\], \[MASK\]"),
        (GOOD.replace("[SEP]\n", "").encode(), r"lacks \[SEP\]"),
        (GOOD.encode() + b"more\nword\n", r"line 8 repeats 'word' of line 6"),
        (GOOD.encode() + b"\nmore\n", r"line 7 is empty"),
        (b"first\n" + GOOD.encode(), r"\[PAD\] is on line 2, expected on line 1"),
        (GOOD.encode() + b"\xff\n", r"byte 36 is not UTF-8"),
    ],
)
def test_refuses_what_is_no_vocabulary(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    with pytest.raises(BertprepError, match=message) as raised:
        load_vocabulary(path)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BertprepError, match=r"vocab\.txt: the vocabulary cannot be read: No such file"):
        load_vocabulary(tmp_path / "vocab.txt")
