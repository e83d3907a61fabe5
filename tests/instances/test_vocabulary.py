"""A vocabulary is taken as it is or refused with one line that says what is wrong."""

import os
import re
from pathlib import Path

import pytest

from bertprep.errors import BertprepError
from bertprep.instances import load_vocabulary
from bertprep.instances.vocabulary import case_conflict, repeat_warnings

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
        (GOOD.encode() + b"\xff\n", r"byte 36 is not UTF-8"),
        (GOOD.encode("utf-16"), r"byte 0 is not UTF-8"),
    ],
)
def test_refuses_what_is_no_vocabulary(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    with pytest.raises(BertprepError, match=message) as raised:
        load_vocabulary(path)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


def test_a_repeated_token_of_any_length_is_named_in_a_short_line(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text(GOOD + 2 * ("x" * 10_000 + "\n") + "word\n")
    [line] = repeat_warnings(load_vocabulary(tmp_path / "vocab.txt"))
    assert re.search("lines 6, 7 are never used, since line 9 repeats 'word'", line)
    (tmp_path / "vocab.txt").write_text(GOOD + 2 * ("x" * 10_000 + "\n"))
    [line] = repeat_warnings(load_vocabulary(tmp_path / "vocab.txt"))
    assert re.search(f"line 7 is never used, since line 8 repeats '{'x' * 40}'", line)


ENGLISH = ("a", "b", "##a", "##b", "the", "##ing", ".")
CHINESE = ("的", "一", "##是", "。", "a", "usb")
GEORGIAN = ("ა", "ბ", "##ა", "და")  # has capitals in Unicode, though not in words


@pytest.mark.parametrize(
    ("tokens", "cased", "conflict"),
    [
        (ENGLISH, False, ""),
        (ENGLISH, True, "none of its tokens is a capital letter"),
        ((*ENGLISH, "NASA"), True, "none of its tokens is a capital letter"),
        ((*ENGLISH, "A"), True, ""),
        ((*ENGLISH, "A", "##A", "The"), False, "3 of its 10 tokens have capital letters"),
        ((*ENGLISH, "[unused1]", "[NEWS]"), False, ""),
        ((*(each + other for each in "abcdefgh" for other in "abcdefgh"), "USB", "K"), False, ""),
        ((), True, ""),
        (CHINESE, False, ""),
        (CHINESE, True, ""),
        (GEORGIAN, False, ""),
        (GEORGIAN, True, ""),
        (("ア", "##ア", "の", "NHK"), True, ""),
    ],
)
def test_a_vocabulary_that_cannot_be_meant_for_text_of_a_case(
    tokens: tuple[str, ...], cased: bool, conflict: str, tmp_path: Path
) -> None:
    """Scripts without case fit either, with a few Latin words among them too; so does what is not certain."""
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *tokens]), encoding="utf-8")
    found = case_conflict(load_vocabulary(tmp_path / "vocab.txt"), cased=cased)
    assert bool(found) == bool(conflict)
    assert found.startswith(conflict)


def test_what_has_no_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(
            BertprepError,
            match=f"^{path}: cannot be read as a vocabulary: it is not a plain file; name a vocab.txt with --vocab$",
        ):
            load_vocabulary(path)
    with (tmp_path / "large").open("wb") as file:
        file.truncate(10 << 30)
    with pytest.raises(BertprepError, match="has more than 67,108,864 bytes, too many for a vocabulary"):
        load_vocabulary(tmp_path / "large")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BertprepError, match=r"vocab\.txt: cannot be read as a vocabulary: No such file"):
        load_vocabulary(tmp_path / "vocab.txt")
