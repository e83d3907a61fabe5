"""Merges are those of the definition of byte-pair encoding, whatever the order of words."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from bertprep.text.merge_pairs import merge_pairs


def slowly_merged(words: dict[str, int], least: int) -> list[tuple[str, int]]:
    """The definition of byte-pair merges: count all pairs anew before each."""
    pieces = {word: [word[0], *(f"##{character}" for character in word[1:])] for word in words}
    merged: list[tuple[str, int]] = []
    while True:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in pairwise(pieces[word]):
                pairs[pair] += count
        best = min(pairs, key=lambda pair: (-pairs[pair], pair), default=None)
        if best is None or pairs[best] < least:
            return merged
        token = best[0] + best[1][2:]
        merged.append((token, pairs[best]))
        for word, old in pieces.items():
            text = "\0".join(old) + "\0"
            left, right = best[0] + "\0", best[1] + "\0"
            new, at = "", 0
            while at < len(text):  # left to right, at the boundaries of pieces
                if text.startswith(left + right, at):
                    new, at = new + token + "\0", at + len(left + right)
                else:
                    end = text.index("\0", at) + 1
                    new, at = new + text[at:end], end
            pieces[word] = new.split("\0")[:-1]


@given(st.dictionaries(st.text("abc", min_size=1, max_size=9), st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 4))
def test_merges_match_the_slow_definition(words: dict[str, int], least: int) -> None:
    expected = slowly_merged(words, least)
    assert list(merge_pairs(words, least)) == expected
    assert list(merge_pairs(dict(reversed(words.items())), least)) == expected


def test_a_token_that_is_made_twice_counts_both_ways() -> None:
    # abc from a + ##bc and from ab + ##c; together with ##d it is more frequent than either
    words = {"ab": 9, "abcd": 5, "bc": 9, "xbc": 8, "xbcd": 1}
    assert list(merge_pairs(words)) == slowly_merged(words, 2)


def test_no_words_have_no_merges() -> None:
    assert list(merge_pairs({})) == list(merge_pairs({"a": 5, "b": 1})) == []
