"""Words are counted as BERT's tokenizer splits them: by eye, and compared with the readable reference."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertprep.errors import BertprepError
from bertprep.instances import reference
from bertprep.text import count_words as module
from bertprep.text.count_words import count_words


def counted(folder: Path, text: str, *, cased: bool = False) -> Counter[str]:
    (folder / "text.txt").write_bytes(text.encode())
    return count_words([folder / "text.txt"], cased=cased).words


def test_words_match_the_tokenizer(tmp_path: Path) -> None:
    assert counted(tmp_path, "Don't—北京 co-op\u00a0co\u00adop. NAÏVE\n") == Counter(
        ["don", "'", "t", "—", "北", "京", "co", "-", "op", "coop", ".", "naive"]
    )
    assert counted(tmp_path, "ΟΔΟΣ Йод 한", cased=False) == Counter(["οδος", "иод", "\u1112\u1161\u11ab"])
    assert counted(tmp_path, "ΟΔΟΣ Йод 한", cased=True) == Counter(["ΟΔΟΣ", "Йод", "한"])


@given(
    st.lists(st.text(st.sampled_from("aÉΣσ.北й가が\u0301\u093f \t\u2028\x01\xad\u3000İﬁ≠\U0001f600"), max_size=9), max_size=6),
    st.booleans(),
)
def test_lines_match_the_reference(tmp_path_factory: pytest.TempPathFactory, lines: list[str], cased: bool) -> None:
    folder = tmp_path_factory.mktemp("lines")
    expected = Counter(word for line in lines for word in reference.split_words(line, lower=not cased))
    assert counted(folder, "\n".join(lines), cased=cased) == expected


def test_files_and_blocks_are_added_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "The café, 北京 cafés\n" * 50
    once = counted(tmp_path, text)
    monkeypatch.setattr(module, "_BLOCK_BYTES", 7)
    assert counted(tmp_path, text) == once
    both = count_words([tmp_path / "text.txt"] * 2, cased=False, workers=2).words
    assert both == Counter({word: 2 * count for word, count in once.items()})


def test_words_that_are_too_long_are_only_numbered(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(f"{'a' * 200} {'b' * 201} {'c' * 300}.\n")
    counts = count_words([tmp_path / "text.txt"], cased=False)
    assert counts.words == Counter(["a" * 200, "."])
    assert (counts.too_long, counts.too_long_characters) == (2, 501)


def test_the_byte_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes(b"good\n" * 300_000 + b"bad \xff byte\n")
    with pytest.raises(BertprepError, match=r"text\.txt: byte 1,500,004: expected UTF-8, found 0xff"):
        count_words([tmp_path / "text.txt"], cased=False)
