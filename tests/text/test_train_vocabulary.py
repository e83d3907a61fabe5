"""A trained vocabulary: its content, checked by eye; its merges; and the same file on every run."""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertprep.errors import BertprepError, UsageError
from bertprep.files.paths import checksum_of
from bertprep.sources.sample import write_sample
from bertprep.text.train_vocabulary import count_words, merge_pairs, split_characters, train_vocabulary
from bertprep.work.layout import Workspace


def train(folder: Path, text: str, **choices: Any) -> list[str]:
    (folder / "text.txt").write_text(text, encoding="utf-8")
    train_vocabulary([folder / "text.txt"], folder / "vocab.txt", **choices)
    return (folder / "vocab.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")


def test_special_tokens_then_characters_then_merges(tmp_path: Path) -> None:
    # ##e + ##n occurs 5 times, then t + ##en 5 times, then ten + ##t twice; tent + ##s occurs once and is not merged
    assert train(tmp_path, "Ten tents.\n\nten, TENT ten\n") == [
        *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
        *("##e", "##n", "##s", "##t", ",", ".", "e", "n", "s", "t"),
        "##en",
        "ten",
        "tent",
    ]


def test_a_cased_vocabulary_keeps_capitals_and_accents(tmp_path: Path) -> None:
    assert train(tmp_path, "Été Été", cased=True)[5:] == ["##t", "##é", "t", "É", "é", "##té", "Été"]
    assert train(tmp_path, "Été Été", cased=False)[5:] == ["##e", "##t", "e", "t", "##te", "ete"]


def test_words_match_the_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Don't—北京 co-op\u00a0co\u00adop. NAÏVE\n", encoding="utf-8")
    assert count_words([tmp_path / "text.txt"], cased=False).words == Counter(
        ["don", "'", "t", "—", "北", "京", "co", "-", "op", "coop", ".", "naive"]
    )


def test_very_rare_characters_of_a_text_with_very_many_are_left_out(tmp_path: Path) -> None:
    many = "".join(chr(0x4E00 + number) for number in range(1_200))
    tokens = train(tmp_path, many + many[200:])
    assert tokens[5:] == list(many[200:])


def test_a_size_below_the_characters_is_a_usage_error(tmp_path: Path) -> None:
    assert len(train(tmp_path, "ten tents", size=13)) == 13
    with pytest.raises(UsageError, match=r"vocabulary of 12 tokens: too small; .* take 13; choose a larger --size"):
        train(tmp_path, "ten tents", size=12)


def test_text_without_a_word_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BertprepError, match=r"text\.txt: no words found to train a vocabulary on"):
        train(tmp_path, "\n\n")
    assert not (tmp_path / "vocab.txt").exists()


def slowly_merged(words: dict[str, int]) -> list[str]:
    """The definition of byte-pair merges: count all pairs anew before each."""
    pieces = {word: split_characters(word) for word in words}
    merged: list[str] = []
    while True:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in pairwise(pieces[word]):
                pairs[pair] += count
        best = min(pairs, key=lambda pair: (-pairs[pair], pair), default=None)
        if best is None or pairs[best] < 2:
            return merged
        merged.append(best[0] + best[1][2:])
        for word, old in pieces.items():
            text = "\0".join(old) + "\0"
            left, right = best[0] + "\0", best[1] + "\0"
            new, at = "", 0
            while at < len(text):  # left to right, at the boundaries of pieces
                if text.startswith(left + right, at):
                    new, at = new + merged[-1] + "\0", at + len(left + right)
                else:
                    end = text.index("\0", at) + 1
                    new, at = new + text[at:end], end
            pieces[word] = new.split("\0")[:-1]


@given(st.dictionaries(st.text("abc", min_size=1, max_size=9), st.integers(1, 4), min_size=1, max_size=12))
def test_merges_match_the_slow_definition(words: dict[str, int]) -> None:
    assert list(merge_pairs([split_characters(word) for word in words], list(words.values()))) == slowly_merged(words)


def test_the_bytes_of_the_sample_vocabulary_are_pinned(tmp_path: Path) -> None:
    text = write_sample(Workspace(tmp_path))
    train_vocabulary([text], tmp_path / "vocab.txt")
    # One file for every version of Python, of tokenizers and of this package. Another one is a breaking change.
    assert checksum_of(tmp_path / "vocab.txt", "sha256") == "a952e82633764d301e796f3fa98ae359f8ceb361999a12d76ade51e4458362f9"
