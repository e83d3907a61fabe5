"""Make small tasks from the sample corpus by rules, in the files of SQuAD and GLUE; a tiny BERT learns them in minutes.

    python -m examples.end_to_end.sample_tasks SHARDS FOLDER N

SHARDS is `WORKDIR/sharded/sample`, N is the number of training examples of each task. The files are written to FOLDER:
squad/{train,dev}-v1.1.json and century/{train,dev}.tsv. The training files come from the training split of pretraining, the dev
files from its test split. So no speech is in both, although some sentences occur in several speeches.

SQuAD: a question has the words around a year, a month, an amount, a country or an institution, with a question phrase in its
place: "the convention of what year with Great Britain?" The context has one answer of that kind, at a random position, and
others of other kinds. `guess_among_answers` is the score of a reader who knows all possible answers but not the question.

GLUE: in which century was a sentence said? No sentence has a digit. The label is the century of the median year in its speech.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertprep.files.outputs import write_output

SEED = 12345
CONTEXT_WORDS = 40
"""The most words of a context: with its question it fits in a sequence of 96 tokens."""
STRETCH = 5
"""The most words of a question on either side of its question phrase."""
MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
COUNTRIES = (
    "Great Britain|England|France|Spain|Mexico|Germany|Russia|Japan|China|Cuba|Italy|Canada|Portugal|Brazil|Chile|Peru|Turkey|"
    "Austria|Denmark|Sweden|Korea|Vietnam|Iraq|Iran|Afghanistan|Nicaragua|Colombia|Venezuela|Hawaii|Panama|Texas|California"
)
INSTITUTIONS = (
    "Congress|Senate|House of Representatives|Supreme Court|Treasury|Navy|Army|Constitution|Union|Cabinet|Interior|Post-Office|"
    "Department of State|Department of Agriculture|Executive|Republic"
)
KINDS = {  # question phrase -> the answers to it
    "how much": re.compile(r"\$\d+(?:,\d{3})*(?:\.\d+)?(?: (?:million|billion))?"),
    "what year": re.compile(r"(?<![\d,.$])(?:1[6-9]|20)\d\d(?![\d%]|[,.]\d)"),
    "which month": re.compile(rf"\b(?:{MONTHS})\b"),
    "which institution": re.compile(rf"\b(?:{INSTITUTIONS})\b"),
    "which country": re.compile(rf"\b(?:{COUNTRIES})\b"),
}
CENTURIES = ("before_1900", "since_1900")
WORDS_OF_A_SENTENCE = range(8, 25)


class Answer(NamedTuple):
    """A span of a text that answers a kind of question."""

    kind: str
    start: int
    end: int


def read_documents(folder: Path) -> list[list[str]]:
    """Return the sentences of each document of the text shards in a folder, in the order of the files."""
    paths = sorted(folder.glob("*.txt"))
    if not paths:
        raise SystemExit(f"{folder}: has no text shards; run bertprep create --corpus sample first")
    documents = (document for path in paths for document in path.read_text(encoding="utf-8").split("\n\n"))
    return [document.strip("\n").split("\n") for document in documents if document.strip()]


def find_answers(text: str) -> list[Answer]:
    """Return all spans of a text that could answer a question, in the order of the text.

    >>> [text[a.start : a.end] for text in ["the convention of 1818 with Great Britain"] for a in find_answers(text)]
    ['1818', 'Great Britain']
    """
    found = (Answer(kind, *match.span()) for kind, pattern in KINDS.items() for match in pattern.finditer(text))
    return sorted(found, key=lambda answer: answer.start)


def make_question(sentence: str, answer: Answer) -> str:
    """Return a question: the words around an answer, with a question phrase in place of the answer.

    >>> make_question("the convention of 1818 with Great Britain.", Answer("what year", 18, 22))
    'the convention of what year with Great Britain?'
    """
    before, after = sentence[: answer.start], sentence[answer.end :]
    left = " ".join(before.split()[-STRETCH:]) + " " * before.endswith(" ")
    right = " " * after.startswith(" ") + " ".join(after.split()[:STRETCH])
    return (left + answer.kind + right).rstrip(".,;:- ") + "?"


def make_squad_shaped(documents: Sequence[list[str]], *, questions: int, seed: int = SEED) -> dict[str, Any]:
    """Return SQuAD v1.1's JSON with this many questions, or up to four more, or all; deterministic for equal arguments."""
    rng = random.Random(seed)
    sentences = [(title, index) for title, document in enumerate(documents) for index in range(len(document))]
    rng.shuffle(sentences)
    articles: dict[int, list[dict[str, Any]]] = {}
    missing = questions
    for title, index in sentences:
        if missing and (paragraph := _paragraph(documents[title], index, f"{title}-{index}", rng)):
            articles.setdefault(title, []).append(paragraph)
            missing -= min(missing, len(paragraph["qas"]))
    data = [{"title": f"speech {title}", "paragraphs": articles[title]} for title in sorted(articles)]
    return {"data": data, "version": "1.1"}


def _paragraph(document: Sequence[str], index: int, identifier: str, rng: random.Random) -> dict[str, Any] | None:
    """Return a context with questions about one of its sentences, or None if there is nothing to ask about."""
    if not find_answers(document[index]):
        return None
    context, start = _context(document, index, rng)
    found = find_answers(context)
    kinds = [answer.kind for answer in found]
    within = range(start, start + len(document[index]))
    askable = [
        answer for answer in found if kinds.count(answer.kind) == 1 and answer.start in within and answer.end - 1 in within
    ]
    if not askable or len(set(kinds)) == 1:
        return None
    questions = []
    for kind, first, last in askable:
        question = make_question(document[index], Answer(kind, first - start, last - start))
        answers = [{"answer_start": first, "text": context[first:last]}]
        questions.append({"answers": answers, "question": question, "id": f"{identifier}-{first}"})
    return {"context": context, "qas": questions}


def _context(sentences: Sequence[str], index: int, rng: random.Random) -> tuple[str, int]:
    """Return a sentence with as many neighbours as fit, drawn from either side, and the position where it begins."""
    first, last = index, index + 1
    words = len(sentences[index].split())
    while True:
        sides = [side for side in (first - 1, last) if 0 <= side < len(sentences)]
        sides = [side for side in sides if words + len(sentences[side].split()) <= CONTEXT_WORDS]
        if not sides:
            return " ".join(sentences[first:last]), len(" ".join([*sentences[first:index], ""]))
        side = rng.choice(sides)
        words += len(sentences[side].split())
        first, last = min(first, side), max(last, side + 1)


def guess_among_answers(squad: dict[str, Any]) -> float:
    """Return the exact match, in percent, of a reader who picks at random among the possible answers of a context."""
    chances = []
    for article in squad["data"]:
        for paragraph in article["paragraphs"]:
            chances += [1 / len(find_answers(paragraph["context"]))] * len(paragraph["qas"])
    return 100 * sum(chances) / len(chances)


def make_glue_shaped(documents: Sequence[list[str]], *, sentences: int, seed: int = SEED) -> list[tuple[str, str]]:
    """Return at most this many sentences with their centuries, equally many of each; deterministic for equal arguments."""
    rng = random.Random(seed)
    found: dict[str, dict[str, None]] = {century: {} for century in CENTURIES}  # in order, each sentence once
    for document in documents:
        years = sorted(int(text) for text in re.findall(r"\b(?:17|18|19|20)\d\d\b", " ".join(document)))
        if not years:
            continue
        century = CENTURIES[years[len(years) // 2] >= 1900]
        for sentence in document:
            if len(sentence.split()) in WORDS_OF_A_SENTENCE and not re.search(r"[\d\t\"]", sentence):
                found[century][sentence] = None
    count = min(sentences // 2, *(len(each) for each in found.values()))
    rows = [(sentence, century) for century, each in found.items() for sentence in rng.sample(list(each), count)]
    rng.shuffle(rows)
    return rows


def write_tasks(shards: Path, folder: Path, count: int) -> None:
    """Write the four files. The training files have this many questions and sentences, the dev files a tenth of it."""
    for name in ("squad", "century"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for split, name, examples in (("training", "train", count), ("test", "dev", count // 10)):
        documents = read_documents(shards / split)
        squad = make_squad_shaped(documents, questions=examples)
        rows = make_glue_shaped(documents, sentences=examples)
        write_output(folder / "squad" / f"{name}-v1.1.json", json.dumps(squad).encode())
        lines = ["\t".join(line) + "\n" for line in (("sentence", "label"), *rows)]
        write_output(folder / "century" / f"{name}.tsv", "".join(lines).encode())
        asked = sum(len(paragraph["qas"]) for article in squad["data"] for paragraph in article["paragraphs"])
        guess = f"a guess among the answers in a context scores {guess_among_answers(squad):.1f}"
        print(f"{name}: {asked:,} questions ({guess}), {len(rows):,} sentences, half of each century")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    write_tasks(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
