"""Small tasks in the files of SQuAD and CoLA, made by rules from the sample corpus; a tiny BERT learns them in minutes.

    python scripts/sample_tasks.py SHARDS FOLDER [--squad N] [--cola N]

SHARDS is `WORKDIR/sharded/sample`. FOLDER gets squad/v1.1/{train,dev}-v1.1.json and CoLA/{train,dev}.tsv: train from the
training split, dev from the test split, so that no speech is in both and pretraining has not read the dev sentences.

A question is a stretch of a sentence with a year, an amount, a number or a name replaced by a question phrase: "convention of
what year with great britain ?" for "the convention of 1818 with Great Britain". Its context has that sentence among its
neighbours, at no fixed position, and holds another answer of the same kind: to know the kind is not enough, and `guess_by_kind`
says what that alone would score. In an unacceptable sentence a run of words is in another order.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bertprep.errors import BertprepError  # noqa: E402
from bertprep.files.atomic import atomic_file  # noqa: E402

SEED = 12345
CONTEXT_WORDS = 40
"""The most words of a context: with its question it fits in a sequence of 128 tokens."""
STRETCH = 6
"""The most words of a question on either side of its question phrase."""
MIN_QUESTION_WORDS = 7
REORDERED = 4
"""Words of a run that is reordered."""

MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
KINDS = {  # question phrase -> its answers; text that one kind matches is no answer of a later one
    "how much": re.compile(r"\$\d[\d,]*(?:\.\d+)?(?: (?:million|billion))?"),
    "what year": re.compile(r"(?<![\d,.$])(?:1[5-9]|20)\d\d(?![\d%]|[,.]\d)"),
    "how many": re.compile(r"(?<![\d,.$])\d[\d,]*(?:\.\d+)?(?: (?:million|billion))?(?![\d%])"),
    "which month": re.compile(rf"\b(?:{MONTHS})\b"),
    "which name": re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+(?: [A-Z][a-z]+)*"),
}


class Answer(NamedTuple):
    """A stretch of a text that answers a kind of question."""

    kind: str
    start: int
    end: int


def read_documents(folder: Path) -> Iterator[list[str]]:
    """The sentences of each document of the text shards in a folder, in the order of files."""
    paths = sorted(folder.glob("*.txt"))
    if not paths:
        raise BertprepError(f"{folder}: has no text shards; run bertprep create --corpus sample first")
    for path in paths:
        for document in path.read_text(encoding="utf-8").split("\n\n"):
            if sentences := document.split("\n") if document.strip() else []:
                yield [sentence for sentence in sentences if sentence]


def find_answers(text: str) -> list[Answer]:
    """All that could be asked of a text, in its order.

    >>> [text[a.start : a.end] for text in ["the convention of 1818 with Great Britain"] for a in find_answers(text)]
    ['1818', 'Great Britain']
    """
    answers: list[Answer] = []
    for kind, pattern in KINDS.items():
        for match in pattern.finditer(text):
            start, end = match.span()
            while text[end - 1] == ",":
                end -= 1
            if not any(start < other.end and other.start < end for other in answers):
                answers.append(Answer(kind, start, end))
    return sorted(answers, key=lambda answer: answer.start)


def make_question(sentence: str, answer: Answer) -> str:
    """The words around an answer, with a question phrase in its position.

    >>> make_question("the convention of 1818 with Great Britain.", Answer("what year", 18, 22))
    'the convention of what year with Great Britain?'
    """
    before, after = sentence[: answer.start].split()[-STRETCH:], sentence[answer.end :].split()[:STRETCH]
    return " ".join([*before, answer.kind, *after]).rstrip(".,;:") + "?"


def make_squad_shaped(documents: Sequence[list[str]], *, questions: int, seed: int = SEED) -> dict[str, Any]:
    """SQuAD v1.1's JSON with at most this many questions, an article per document; the same for the same arguments."""
    rng = random.Random(seed)
    sentences = [(title, index) for title, document in enumerate(documents) for index in range(len(document))]
    rng.shuffle(sentences)
    paragraphs: dict[int, list[dict[str, Any]]] = {}
    missing = questions
    for title, index in sentences:
        if missing and (paragraph := _paragraph(documents[title], index, f"{title}-{index}", rng)):
            paragraphs.setdefault(title, []).append(paragraph)
            missing -= 1
    return {
        "data": [{"title": f"speech {title}", "paragraphs": paragraphs[title]} for title in sorted(paragraphs)],
        "version": "1.1",
    }


def _paragraph(document: Sequence[str], index: int, identifier: str, rng: random.Random) -> dict[str, Any] | None:
    """A context with a question about one sentence of it; None where nothing in it can be asked."""
    context, start = _context(document, index, rng)
    found = find_answers(context)
    texts = {kind: {context[answer.start : answer.end] for answer in found if answer.kind == kind} for kind in KINDS}
    askable: dict[str, list[tuple[Answer, str]]] = {}
    for answer in found:
        text = context[answer.start : answer.end]
        within = start <= answer.start and answer.end <= start + len(document[index])
        if within and context.count(text) == 1 and len(texts[answer.kind]) > 1:
            question = make_question(document[index], answer._replace(start=answer.start - start, end=answer.end - start))
            if len(question.split()) >= MIN_QUESTION_WORDS:
                askable.setdefault(answer.kind, []).append((answer, question))
    if not askable:
        return None
    answer, question = rng.choice(askable[rng.choice(sorted(askable))])
    answers = [{"answer_start": answer.start, "text": context[answer.start : answer.end]}]
    return {"context": context, "qas": [{"answers": answers, "question": question, "id": identifier}]}


def _context(sentences: Sequence[str], index: int, rng: random.Random) -> tuple[str, int]:
    """A sentence among its neighbours, as many as fit, and where it begins; which side grows is left to chance."""
    first, last = index, index + 1
    words = len(sentences[index].split())
    while True:
        sides = [side for side in (first - 1, last) if 0 <= side < len(sentences)]
        sides = [side for side in sides if words + len(sentences[side].split()) <= CONTEXT_WORDS]
        if not sides:
            break
        side = rng.choice(sides)
        words += len(sentences[side].split())
        first, last = min(first, side), max(last, side + 1)
    return " ".join(sentences[first:last]), len(" ".join([*sentences[first:index], ""]))


def guess_by_kind(squad: dict[str, Any]) -> float:
    """The exact match, in percent, of a reader who picks at random among the answers of the kind that is asked for."""
    chances = []
    for article in squad["data"]:
        for paragraph in article["paragraphs"]:
            context = paragraph["context"]
            found = find_answers(context)
            for entry in paragraph["qas"]:
                (asked,) = (answer for answer in found if answer.start == entry["answers"][0]["answer_start"])
                same_kind = {context[answer.start : answer.end] for answer in found if answer.kind == asked.kind}
                chances.append(1 / len(same_kind))
    return 100 * sum(chances) / len(chances)
