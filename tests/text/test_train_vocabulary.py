"""A trained vocabulary: its content, checked by eye; what it lacks, with the cause; and the same file on every run."""

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

import bertprep
from bertprep.config import VocabularySettings
from bertprep.errors import BertprepError, UsageError
from bertprep.files.paths import checksum_of
from bertprep.progress import Reporter
from bertprep.sources.sample import write_sample
from bertprep.text.train_vocabulary import is_trained_here, train_vocabulary
from bertprep.work.layout import Workspace


def train(folder: Path, text: str, **choices: Any) -> list[str]:
    (folder / "text.txt").write_text(text, encoding="utf-8")
    train_vocabulary([folder / "text.txt"], folder / "vocab.txt", VocabularySettings(**choices))
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


def test_every_character_of_a_text_is_a_token(tmp_path: Path) -> None:
    """Of 6,000 Hanzi, as frequent as in a language, none is missing from a vocabulary of the size of bert-base-chinese."""
    hanzi = [chr(0x4E00 + number) for number in range(6_000)]
    text = "\n".join(each * (1 + 3_000 // (number + 1)) for number, each in enumerate(hanzi))
    assert set(hanzi).issubset(train(tmp_path, text, size=21_128))
    assert set(hanzi).issubset(train(tmp_path, text, size=8_000))


def test_beyond_half_of_the_size_characters_must_be_as_frequent_as_merges(tmp_path: Path) -> None:
    # of 15 tokens that are not special, 7 are characters at once; ab and ac are more frequent than the others
    text = "ab " * 9 + "ac " * 8 + "一一一一丁丁丁丁七七七七万丈三上下不与"
    tokens = train(tmp_path, text, size=20)
    assert tokens[5:] == ["##b", "##c", "a", "b", "c", "一", "丁", "七", "万", "丈", "三", "上", "下", "ab", "ac"]
    assert train(tmp_path, text, size=14)[5:] == ["##b", "##c", "a", "b", "c", "一", "丁", "ab", "ac"]


LACKS: list[tuple[str, dict[str, Any], list[str]]] = [
    # text, settings, what is said
    ("ten tents", {"size": 15}, []),
    ("the dog", {"size": 50}, ["has 15 tokens, not 50: no other pair of pieces occurs twice"]),
    ("the the", {"size": 50, "min_frequency": 3}, [
        "has 10 tokens, not 50: no other pair of pieces occurs 3 times (--min-frequency)"
    ]),
    ("aaab " * 99 + "z", {"size": 50, "coverage": 0.99}, [
        "has 12 tokens, not 50: no other pair of pieces occurs twice in words within --coverage 0.99"
    ]),
    ("一一一丁丁七", {"size": 7}, [
        "has no token for 1 rare character, 16.67% of the text, so words with them become [UNK]; choose a --size above 7"
    ]),
    ("ab " + "c" * 201, {"size": 10}, [
        "1 word of the text had more than 200 characters, which BERT's tokenizer turns into [UNK]; put spaces between the "
        "words of text that has none, such as Thai or DNA",
        "has 8 tokens, not 10: no other pair of pieces occurs twice",
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "settings", "said"), LACKS)
def test_what_a_vocabulary_lacks_is_said_with_its_cause(
    text: str, settings: dict[str, Any], said: list[str], tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    with warnings.catch_warnings(record=True) as found:
        bertprep.train_vocabulary([tmp_path / "text.txt"], output=tmp_path / "vocab.txt", **settings)
    assert [str(each.message) for each in found] == [f"{tmp_path / 'vocab.txt'}: {line}" for line in said]


def test_coverage_leaves_out_the_rarest_characters_with_their_words(tmp_path: Path) -> None:
    text = "ab " * 50 + "az"
    assert train(tmp_path, text)[5:] == ["##b", "##z", "a", "b", "z", "ab"]
    assert train(tmp_path, text, coverage=0.99)[5:] == ["##b", "a", "b", "ab"]


def test_reserved_and_own_tokens_stand_where_googles_do(tmp_path: Path) -> None:
    tokens = train(tmp_path, "ten tents", unused=99, special=("[ENT]", "<url>"))
    assert tokens[:2] + tokens[99:106] == [
        *("[PAD]", "[unused0]", "[unused98]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[ENT]", "<url>"),
    ]
    assert tokens[106:114] == ["##e", "##n", "##s", "##t", "e", "n", "s", "t"]
    assert is_trained_here(tmp_path / "vocab.txt")


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("[CLS]", "is already a token"),
        ("ent", r"text may have this as a word; put it in brackets, as in \[ent\]"),
        ("Ent", "text may have this as a word"),
        ("##x", r"put it in brackets, as in \[x\]"),
        ("[a b]", "must have only printable characters, without spaces"),
        ("", "must have only printable characters"),
        ("\ud800", "must have only printable characters"),
    ],
)
def test_a_special_token_that_cannot_be_one_is_a_usage_error(token: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=why):
        bertprep.train_vocabulary([tmp_path / "text.txt"], output=tmp_path / "vocab.txt", special=[token])


def test_a_size_without_space_for_characters_is_a_usage_error(tmp_path: Path) -> None:
    assert len(train(tmp_path, "ten tents", size=12)) == 12
    with pytest.raises(UsageError, match=r"--size 6: too small, since 5 tokens are special; choose a larger one"):
        train(tmp_path, "ten tents", size=6)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("\n\n", r"no words found to train a vocabulary on: the text has only white space and "),
        (
            "acgt" * 60 + "\n",
            r"all words have more than 200 characters, which BERT's tokenizer turns into \[UNK\]; put spaces",
        ),
    ],
)
def test_text_without_a_word_is_an_error_that_names_the_cause(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(BertprepError, match=rf"text\.txt: {why}"):
        train(tmp_path, text)
    assert not (tmp_path / "vocab.txt").exists()


def test_merges_show_their_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text("ten tents")
    train_vocabulary([tmp_path / "text.txt"], tmp_path / "vocab.txt", VocabularySettings(size=15), reporter=Reporter())
    assert re.search(r"^count words: 1/1 files.*\nmerge pairs: 15/15 tokens, in ", capsys.readouterr().err)


def test_the_number_of_workers_and_the_order_of_files_do_not_matter(tmp_path: Path) -> None:
    files = []
    for number, text in enumerate(
        ("ten tents of the ten men\n" * 9, "then the men tend the hens\n" * 8, "一 hen, 二 hens\n" * 3)
    ):
        files.append(tmp_path / f"{number}.txt")
        files[-1].write_text(text, encoding="utf-8")
    made = {}
    for workers in (1, 3):
        for order in (files, files[::-1]):
            path = tmp_path / f"{workers}_{order[0].stem}.vocab"
            train_vocabulary(order, path, VocabularySettings(size=60), workers=workers)
            made[path.name] = path.read_bytes()
    assert len(set(made.values())) == 1


def test_the_bytes_of_the_sample_vocabulary_are_pinned(tmp_path: Path) -> None:
    text = write_sample(Workspace(tmp_path))
    train_vocabulary([text], tmp_path / "vocab.txt", VocabularySettings())
    # One file for every version of Python, of tokenizers and of this package. Another one is a breaking change.
    assert checksum_of(tmp_path / "vocab.txt", "sha256") == "a952e82633764d301e796f3fa98ae359f8ceb361999a12d76ade51e4458362f9"
