"""A vocabulary is taken as it is or refused with one line that says what is wrong."""

import os
from pathlib import Path

import pytest

from bertprep.errors import BertprepError
from bertprep.instances import load_vocabulary

GOOD = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n"


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_tokens_are_numbered_by_their_lines(line_end: str, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes(line_end.join(["[UNK]", "word", "[SEP]", "[CLS]", "[PAD]", "[MASK]", ""]).encode())
    vocabulary = load_vocabulary(tmp_path / "vocab.txt")
    assert (vocabulary.pad, vocabulary.unk, vocabulary.cls, vocabulary.sep, vocabulary.mask) == (4, 0, 3, 2, 5)
    assert (vocabulary.tokens[1], len(vocabulary)) == ("word", 6)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"lacks \[PAD\], \[UNK\], \[CLS\], \[SEP\], \[MASK\]"),
        (GOOD.replace("[SEP]\n", "").encode(), r"lacks \[SEP\]"),
        (GOOD.encode() + b"more\nword\n", r"line 8 repeats 'word' of line 6"),
        (GOOD.encode() + b"\nmore\n", r"line 7 is empty"),
        (GOOD.encode() + b"\xff\n", r"byte 36 is not UTF-8"),
        (b"\xef\xbb\xbf" + GOOD.encode(), r"begins with a byte order mark, .*; save it as UTF-8 without"),
        (GOOD.encode("utf-16"), r"byte 0 is not UTF-8"),
        (GOOD.encode() + 2 * (b"x" * 10_000 + b"\n"), rf"line 8 repeats '{'x' * 40}' of line 7; each"),
    ],
)
def test_refuses_what_is_no_vocabulary(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    with pytest.raises(BertprepError, match=message) as raised:
        load_vocabulary(path)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


def test_what_has_no_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(BertprepError, match=f"^{path}: is not a plain file; name a vocab.txt with --vocab$"):
            load_vocabulary(path)
    with (tmp_path / "large").open("wb") as file:
        file.truncate(10 << 30)
    with pytest.raises(BertprepError, match="has more than 67,108,864 bytes, which no vocabulary has"):
        load_vocabulary(tmp_path / "large")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BertprepError, match=r"vocab\.txt: cannot be read as a vocabulary: No such file"):
        load_vocabulary(tmp_path / "vocab.txt")
