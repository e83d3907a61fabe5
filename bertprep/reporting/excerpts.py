"""Examples to read: drawn evenly over a data set's files, and set as text with each masked place and what stood there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertprep.check.outcome import FileFacts
from bertprep.instances.vocabulary import Vocabulary
from bertprep.records.examples import Examples
from bertprep.reporting.amounts import count
from bertprep.reporting.markup import Markup, element, join

MOST_TOKENS = 512
"""Of one excerpt; what is behind them is only counted."""

_SPECIAL = ("[CLS]", "[SEP]", "[PAD]")


@dataclass(frozen=True)
class Excerpt:
    """One record, with the place where it stands."""

    file: str
    record: int
    examples: Examples  # of one record


def choose(files: Sequence[FileFacts], number: int) -> list[tuple[str, int]]:
    """(file, record) of `number` records that stand evenly over all; the same on every run.

    >>> choose([FileFacts("a", "", 100, 0), FileFacts("b", "", 50, 0)], 3)
    [('a', 25), ('a', 75), ('b', 25)]
    """
    ends = np.cumsum([file.records for file in files], dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    number = min(number, total)
    chosen = [(2 * index + 1) * total // (2 * number) for index in range(number)]
    places = np.searchsorted(ends, chosen, side="right")
    return [
        (files[place].name, record - int(ends[place]) + files[place].records)
        for place, record in zip(places.tolist(), chosen, strict=True)
    ]


def token_text(vocabulary: Vocabulary | None, token: int) -> str:
    """A token as its vocabulary writes it, or its number.

    >>> token_text(None, 2054)
    '#2054'
    """
    return vocabulary.tokens[token] if vocabulary and 0 <= token < len(vocabulary) else f"#{token}"


def show(excerpt: Excerpt, vocabulary: Vocabulary | None) -> Markup:
    """One example as a block of the page."""
    examples = excerpt.examples
    length = int(np.count_nonzero(examples.input_mask[0]))
    second = int(np.count_nonzero(examples.segment_ids[0]))
    predictions = int(np.count_nonzero(examples.masked_lm_weights[0]))
    facts = (
        f"{count(length)} of {count(examples.seq)} tokens, {predictions} predictions; "
        f"B has {count(second)} and is {'a random text' if examples.next_sentence_labels[0] else 'the next sentence'}"
    )
    heading = element("h3", element("code", excerpt.file), f", record {count(excerpt.record)}")
    return element("article", heading, element("p", facts, class_="facts"), _text(excerpt, vocabulary, length))


def _text(excerpt: Excerpt, vocabulary: Vocabulary | None, length: int) -> Markup:
    examples = excerpt.examples
    labels = {
        int(position): int(label)
        for position, label, weight in zip(
            examples.masked_lm_positions[0], examples.masked_lm_ids[0], examples.masked_lm_weights[0], strict=True
        )
        if weight
    }
    segments: list[list[Markup]] = [[], []]
    for position in range(min(length, MOST_TOKENS)):
        shown = token_text(vocabulary, int(examples.input_ids[0, position]))
        if position in labels:
            written, joined = _masked(token_text(vocabulary, labels[position]), shown)
        else:
            joined = shown.startswith("##") and len(shown) > 2
            written = element("small", shown) if shown in _SPECIAL else join(shown[2:] if joined else shown)
        words = segments[int(examples.segment_ids[0, position] != 0)]
        words.append(join("" if joined or not words else " ", written))
    parts: list[Markup] = [
        element("span", *words, class_=name) for name, words in zip(("a", "b"), segments, strict=True) if words
    ]
    rest = f" … {count(length - MOST_TOKENS)} more tokens" if length > MOST_TOKENS else None
    return element("p", parts[0] if parts else None, *(join(" ", part) for part in parts[1:]), rest, dir="auto", class_="text")


def _masked(label: str, shown: str) -> tuple[Markup, bool]:
    """A masked place: the token that stood there, marked by what stands there now; and whether it continues a word."""
    joined = label.startswith("##") and len(label) > 2
    text = label[2:] if joined else label
    if shown == label:
        return element("mark", text, class_="kept", title="to predict; left as it was"), joined
    if shown == "[MASK]":
        return element("mark", text, title="to predict; shown as [MASK]"), joined
    return element("mark", element("s", shown), " ", text, class_="other", title="to predict; another token is shown"), joined
