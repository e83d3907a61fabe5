"""The compiled generator equals its readable twin, on many small corpora and settings, the odd ones among them.

A person can follow here that full sentences (--pairs none) are what docs/reference/formats.md says; test_golden.py has pairs.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertprep.config import NEXT_SENTENCE, PAIRS, InstanceSettings
from bertprep.errors import BertprepError, UsageError
from bertprep.instances import Vocabulary, generator, load_vocabulary
from tests.instances.examples import PlainExample, compiled_examples, reference_examples

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
LARGE = 30_522
NO_TOKENS = ["\u200b", "\x00\ufffd", "\u0301"]  # lines that are not blank and yet hold no token
WORDS = ["the", "of", "tha", "lon", "Lonnth", "ABC", "q", "thelonofthe", "xyzzy", "don't", "U.S.", "3.14", "[MASK]", "##a",
         "naïve", "Zürich", "北京", "İstanbul", "ΟΔΟΣ", "ǅ", "x" * 201, "é" * 120, "zero\u200bwidth", "no\u00a0break", "🙂",
         "a\u2028b", "≠", "\u1fef", "Å", "\r", "tab\tbed"]  # fmt: skip


def small_tokens() -> list[str]:
    """100 tokens: most words fall into pieces or are unknown."""
    words = ["the", "of", "tha", "lon", "##nth", "##of", ".", ",", "'", "[", "]", "#", "北", "##京"]
    tokens = [*SPECIAL, *words, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    return tokens + [f"[unused{n}]" for n in range(100 - len(tokens))]


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Vocabulary]:
    folder = tmp_path_factory.mktemp("vocabularies")
    found = {}
    large = [*small_tokens(), *(f"unused{number}" for number in range(LARGE - 100))]  # as many as BERT's own
    for tokens in (small_tokens(), large):
        path = folder / f"{len(tokens)}.txt"
        path.write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
        found[len(tokens)] = load_vocabulary(path)
    return found


any_text = st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=12)
sentences = st.lists(st.sampled_from(WORDS) | st.sampled_from(WORDS[:8]) | any_text, min_size=1, max_size=40).map(" ".join)
documents = st.lists(sentences | st.sampled_from(NO_TOKENS), min_size=1, max_size=8).map("\n".join)
corpora = st.lists(documents, min_size=1, max_size=6).map("\n\n".join)


@st.composite
def instance_settings(draw: st.DrawFn) -> InstanceSettings:
    seq = draw(st.sampled_from([8, 9, 16, 63, 64, 65, 128, 512]) | st.integers(8, 512))
    pairs = draw(st.sampled_from(PAIRS))
    return InstanceSettings(
        seq=seq,
        pred=draw(st.integers(1, min(80, seq - 3)) | st.just(seq - 3)),
        dupe=draw(st.integers(1, 3)),
        masked_lm_prob=draw(st.sampled_from([0.15, 0.3, 0.01, 1.0]) | st.floats(0.01, 1.0)),
        short_seq_prob=draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])) if pairs == NEXT_SENTENCE else 0.1,
        pairs=pairs,
        whole_word=draw(st.booleans()),
        cased=draw(st.booleans()),
    )


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=corpora, size=st.sampled_from([100, LARGE]), asked=instance_settings(), seed=st.integers(0, 2**40))
def test_compiled_equals_reference(
    text: str, size: int, asked: InstanceSettings, seed: int, vocabularies: dict[int, Vocabulary], tmp_path: Path
) -> None:
    check(f"the end\n\n{text}", vocabularies[size], asked, seed, tmp_path)  # one document at least has a token


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("whole_word", [False, True])
@pytest.mark.parametrize(
    "lines",
    [["one word"], ["a"], ["the of " * 400], ["the"] * 300, ["the of", "", "the"], ["", "", "a b", "", "", ""]],
    ids=["one sentence", "one token", "a long sentence", "many short ones", "two documents", "blank lines"],
)
def test_compiled_equals_reference_at_the_edges(
    lines: Sequence[str], whole_word: bool, pairs: str, vocabularies: dict[int, Vocabulary], tmp_path: Path
) -> None:
    short = {"short_seq_prob": 0.5} if pairs == NEXT_SENTENCE else {}
    for seq in (8, 128, 512):
        asked = InstanceSettings(seq=seq, pred=5, whole_word=whole_word, pairs=pairs, **short)
        check("\n".join(lines), vocabularies[100], asked, 7, tmp_path)


def check(text: str, vocabulary: Vocabulary, asked: InstanceSettings, seed: int, folder: Path) -> None:
    path = folder / "shard.txt"
    path.write_bytes(text.encode())
    compiled = compiled_examples(path, vocabulary, asked, seed=seed)
    assert compiled == reference_examples(path, vocabulary, asked, seed=seed)
    assert compiled


# --- full sentences


NAMES = [*SPECIAL, *(f"w{number}" for number in range(5, 20))]
SIX_TOKENS = InstanceSettings(seq=8, pred=6, dupe=1, masked_lm_prob=0.01, pairs="none")


def full_sentences(folder: Path, text: str, seed: int, examples_of: Callable[..., list[PlainExample]]) -> tuple[Any, ...]:
    """Return the text of the sequences, of up to six tokens each, in ascending order."""
    (folder / "vocab.txt").write_text("".join(f"{name}\n" for name in NAMES))
    (folder / "text").write_text(text)
    texts = []
    for example in examples_of(folder / "text", load_vocabulary(folder / "vocab.txt"), SIX_TOKENS, seed=seed):
        for position, label in zip(example.masked_lm_positions, example.masked_lm_ids, strict=True):
            example.input_ids[position] = label
        texts.append(tuple(example.input_ids[1:-1]))
    return tuple(sorted(texts))


@pytest.mark.parametrize("examples_of", [compiled_examples, reference_examples])
def test_a_sentence_of_just_the_most_tokens_is_a_sequence(
    examples_of: Callable[..., list[PlainExample]], tmp_path: Path
) -> None:
    text = "w5 w6 w7\nw8 w9 w10 w11 w12 w13\n"  # after which nothing is left, not even an empty sequence
    assert full_sentences(tmp_path, text, 1, examples_of) == ((5, 6, 7), (8, 9, 10, 11, 12, 13))


def test_a_person_can_follow_full_sentences(tmp_path: Path) -> None:
    """Sequences of up to six tokens of text: sentences join, [SEP] divides documents, a long sentence goes on in the next."""
    text = f"w5 w6\nw7 w8 w9 w10\n\nw11\n\n{' '.join(NAMES[12:])}\n"
    orders = {full_sentences(tmp_path, text, seed, compiled_examples) for seed in range(20)}
    sep = 3
    assert orders == {
        tuple(sorted(texts))
        for texts in (
            [(5, 6, 7, 8, 9, 10), (11,), (12, 13, 14, 15, 16, 17), (18, 19)],  # the documents as they are
            [(5, 6, 7, 8, 9, 10), (12, 13, 14, 15, 16, 17), (18, 19, sep, 11)],
            [(11, sep, 5, 6), (7, 8, 9, 10), (12, 13, 14, 15, 16, 17), (18, 19)],
            [(11,), (12, 13, 14, 15, 16, 17), (18, 19, sep, 5, 6), (7, 8, 9, 10)],
            [(12, 13, 14, 15, 16, 17), (18, 19, sep, 5, 6), (7, 8, 9, 10, sep, 11)],
            [(12, 13, 14, 15, 16, 17), (18, 19, sep, 11), (5, 6, 7, 8, 9, 10)],
        )
    }


def test_a_shard_that_is_too_large_is_refused(
    vocabularies: dict[int, Vocabulary], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generator, "MAX_TOKENS_IN_SHARD", 30)
    expected = "a shard of 10 tokens is too large, expected at most 30 in --dupe 5 rounds of full sentences; make"
    with pytest.raises(BertprepError, match=expected):
        check("the " * 10, vocabularies[100], InstanceSettings(pairs="none"), 1, tmp_path)


@pytest.mark.parametrize(
    ("given_settings", "message"),
    [
        ({"pairs": "sentence"}, "--pairs sentence: unknown; choose one of next-sentence, none"),
        ({"pairs": "none", "short_seq_prob": 0.5}, "--short-seq-prob 0.5: is for sentence pairs; leave it out, since"),
        ({"pairs": "none", "pred": 127}, "--pred 127: must be at least 1 and at most 126, the 128 tokens of a sequence minus "),
        ({"pred": 126}, r"--pred 126: must be at least 1 and at most 125, .* minus \[CLS\] and two \[SEP\]"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(given_settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        InstanceSettings(**given_settings)  # type: ignore[arg-type]
