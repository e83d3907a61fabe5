"""Readable examples, spread evenly over the files of a data set, each a block of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from bertprep import records
from bertprep.check.example_text import Token, Word, describe, example_words, text_length
from bertprep.check.outcome import FileFacts
from bertprep.errors import BertprepError
from bertprep.instances.vocabulary import Vocabulary
from bertprep.records.examples import Examples
from bertprep.reporting.markup import Markup, count, element, join

MOST_TOKENS = 512
"""Tokens shown of one excerpt; the rest are only counted."""
_TITLES = {
    "masked": "predicted; shown as [MASK]",
    "kept": "predicted; unchanged",
    "replaced": "predicted; another token is shown",
}


@dataclass(frozen=True)
class Excerpt:
    """One record, with its file and its number in it."""

    file: str
    record: int
    examples: Examples  # of one record


def draw_excerpts(folder: Path, files: Sequence[FileFacts], number: int) -> list[Excerpt]:
    """Records spread evenly over all files; unreadable ones are skipped, since a finding reports them."""
    excerpts: list[Excerpt] = []
    for name, chosen in groupby(choose(files, number), key=lambda pair: pair[0]):
        try:
            with records.open(folder / name) as file:
                for _, record in chosen:
                    if record < len(file):
                        excerpts.append(Excerpt(name, record, file[np.array([record], np.int64)]))
        except BertprepError:
            continue
    return excerpts


def choose(files: Sequence[FileFacts], number: int) -> list[tuple[str, int]]:
    """(file, record) of `number` records spread evenly over all; the same on every run.

    >>> choose([FileFacts("a", "", 100, 0), FileFacts("b", "", 50, 0)], 3)
    [('a', 25), ('a', 75), ('b', 25)]
    """
    ends = np.cumsum([file.records for file in files], dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    number = min(number, total)
    chosen = [(2 * index + 1) * total // (2 * number) for index in range(number)]
    at = np.searchsorted(ends, chosen, side="right")
    return [
        (files[index].name, record - int(ends[index]) + files[index].records)
        for index, record in zip(at.tolist(), chosen, strict=True)
    ]


def show(excerpt: Excerpt, vocabulary: Vocabulary | None) -> Markup:
    """One example as a block of the page."""
    heading = element("h3", element("code", excerpt.file), f", record {count(excerpt.record)}")
    words = example_words(excerpt.examples, 0, vocabulary, most=MOST_TOKENS)
    segments = [
        element("span", *(join(" " if at else None, _word(word)) for at, word in enumerate(of_segment)), class_=name)
        for name, of_segment in groupby(words, key=lambda word: "b" if word[0].segment else "a")
    ]
    more = text_length(excerpt.examples, 0) - MOST_TOKENS
    rest = f" … {count(more)} more tokens" if more > 0 else None
    text = element("p", *(join(" " if at else None, span) for at, span in enumerate(segments)), rest, dir="auto", class_="text")
    return element("article", heading, element("p", describe(excerpt.examples, 0), class_="facts"), text)


def _word(word: Word) -> Markup:
    return join(*map(_token, word))


def _token(token: Token) -> Markup | str:
    """A token; a predicted one as the original, marked by its kind."""
    if token.state == "plain":
        return token.text
    if token.state == "special":
        return element("small", token.text)
    replaced = (element("s", token.shown), " ") if token.state == "replaced" else ()
    class_ = None if token.state == "masked" else token.state
    return element("mark", *replaced, token.text, class_=class_, title=_TITLES[token.state])
