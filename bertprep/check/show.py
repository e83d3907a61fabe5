"""One example in readable form: its words, and at each masked position the original and what the model sees; searches words.

A masked token is `[MASK→original]`, or `shown→original` for a random token, and `=original=` if it was kept. Words are found by
token ids in the original: `state` is found neither in `states` nor in `state ##s`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Literal
from unicodedata import east_asian_width

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import UsageError
from bertprep.instances import Vocabulary
from bertprep.instances.reference import tokenize
from bertprep.records.examples import Examples, MaskedExamples, PretrainingExamples, SquadExamples
from bertprep.terminal import Printable, counted, printable, styled

State = Literal["plain", "special", "masked", "kept", "replaced"]
"""Kinds of tokens: plain; [CLS], [SEP] or [PAD]; and predicted ones, shown as [MASK], unchanged or as another token."""

_CONTINUES = "##"
_SPECIAL, _SEGMENT_A, _SEGMENT_B, _TO_PREDICT, _FOUND = "2", "36", "33", "1", "4"  # dim, cyan, yellow, bold, underlined


@dataclass(frozen=True)
class Token:
    """One token of an example; `text` is the original, without ## if it is joined."""

    text: str
    shown: str
    state: State
    segment: int
    is_found: bool

    def __str__(self) -> str:
        marked = {"masked": f"[MASK→{self.text}]", "replaced": f"{self.shown}→{self.text}", "kept": f"={self.text}="}
        return marked.get(self.state, self.text)

    @property
    def look(self) -> tuple[str, ...]:
        """The SGR codes on a terminal."""
        of_segment = (_SEGMENT_B if self.segment else _SEGMENT_A,) + (_TO_PREDICT,) * (self.state != "plain")
        return ((_SPECIAL,) if self.state == "special" else of_segment) + (_FOUND,) * self.is_found


Word = list[Token]
"""Tokens that are written without a space between them."""


def token_text(identity: int, vocabulary: Vocabulary | None) -> str:
    """Return a token as its vocabulary spells it, or `#` and its id if that is unknown.

    >>> token_text(2054, None)
    '#2054'
    """
    if vocabulary is None:
        return f"#{identity}"
    return vocabulary.tokens[identity] if 0 <= identity < len(vocabulary) else f"<{identity}: not in the vocabulary>"


def text_length(examples: Examples, row: int) -> int:
    """Return the number of tokens without padding."""
    return int(np.count_nonzero(examples.input_mask[row]))


def describe(examples: Examples, row: int) -> str:
    """Return a sentence with the lengths of one example and its targets."""
    parts, in_b = [f"{text_length(examples, row):,} of {examples.seq:,} tokens"], np.count_nonzero(examples.segment_ids[row])
    if isinstance(examples, PretrainingExamples):
        label = "a random text" if examples.next_sentence_labels[row] else "the next sentence"
        parts.append(f"B has {in_b:,} and is {label}")
    if isinstance(examples, MaskedExamples):
        return ", ".join([*parts, counted(int(np.count_nonzero(examples.masked_lm_weights[row])), "prediction")])
    singles = [feature.name for feature in examples.features if feature.width == "one"]
    return ", ".join([*parts, f"B has {in_b:,}", *(f"{name} {getattr(examples, name)[row]}" for name in singles)])


def example_words(
    examples: Examples, row: int, vocabulary: Vocabulary | None, *, found: Collection[int] = (), most: int | None = None
) -> list[Word]:
    """Return the words of one example without padding, or of its first `most` tokens, with those in `found` highlighted."""
    labels: dict[int, int] = {}
    if isinstance(examples, MaskedExamples):
        is_label = examples.masked_lm_weights[row] > 0
        positions, originals = examples.masked_lm_positions[row][is_label], examples.masked_lm_ids[row][is_label]
        labels = dict(zip(positions.tolist(), originals.tolist(), strict=True))
    if isinstance(examples, SquadExamples) and examples.end_positions[row]:
        found = {*found, *range(examples.start_positions[row], examples.end_positions[row] + 1)}
    ids = examples.input_ids[row, : text_length(examples, row)][:most].tolist()
    tokens = []
    for position, (identity, segment) in enumerate(zip(ids, examples.segment_ids[row].tolist(), strict=False)):
        text = shown = token_text(identity, vocabulary)
        state: State = "special" if shown in ("[CLS]", "[SEP]", "[PAD]") else "plain"
        if position in labels:
            text = token_text(labels[position], vocabulary)
            state = "masked" if shown == "[MASK]" else "kept" if shown == text else "replaced"
        tokens.append(Token(text, shown, state, segment, position in found))
    return _join(tokens)


def sentence_words(tokens: NDArray[np.int32], vocabulary: Vocabulary, found: Collection[int] = ()) -> list[Word]:
    texts = [token_text(identity, vocabulary) for identity in tokens.tolist()]
    return _join((Token(text, text, "plain", 0, at in found) for at, text in enumerate(texts)))


def _join(tokens: Iterable[Token]) -> list[Word]:
    words: list[Word] = []
    may_join = False  # to the token before
    for token in tokens:
        continues = token.text.startswith(_CONTINUES) and token.text != _CONTINUES
        if may_join and continues and token.state != "replaced":
            words[-1].append(replace(token, text=token.text[len(_CONTINUES) :]))
        else:
            words.append([token])
        may_join = token.state not in ("special", "replaced")
    return words


def write_words(words: list[Word], *, width: int | None, colour: bool) -> Printable:
    """Return the words as text, in lines of at most `width` columns if a width is given."""
    lines: list[list[str]] = [[]]
    used = 0
    for word in words:
        texts = [printable(str(token)) for token in word]
        columns = sum(2 if east_asian_width(character) in "WF" else 1 for character in "".join(texts))
        if width is not None and lines[-1] and used + 1 + columns > width:
            lines.append([])
            used = 0
        used += columns + bool(lines[-1])
        looks = (token.look if colour else () for token in word)
        lines[-1].append("".join(styled(text, look) if look else text for text, look in zip(texts, looks, strict=True)))
    return Printable("\n".join(" ".join(line) for line in lines))


@dataclass(frozen=True)
class Phrase:
    """The tokens to search for, and for each id whether it continues a word."""

    pieces: tuple[str, ...]
    numbers: tuple[int, ...]
    continues: NDArray[np.bool_]  # (vocabulary + 1,): the last entry is for all ids beyond it

    def __str__(self) -> str:
        return " ".join(self.pieces).replace(" ##", "")


def make_phrase(text: str, vocabulary: Vocabulary) -> Phrase:
    """Return the tokens of some words, lower-cased for an uncased vocabulary; raises `UsageError` if it cannot spell them."""
    known = {token: number for number, token in enumerate(vocabulary.tokens)}
    cased = any(token != token.lower() for token in vocabulary.tokens if token[:1] != "[")
    pieces = tuple(tokenize(text, set(known), lower=not cased))
    if not pieces or "[UNK]" in pieces:
        raise UsageError(f"--search {text}: cannot be written in the tokens of {vocabulary.path}, so no record has it")
    continues = np.frombuffer(vocabulary.continues + b"\0", np.bool_)
    return Phrase(pieces, tuple(known[piece] for piece in pieces), continues)


def find_phrase(examples: Examples, phrase: Phrase) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (rows, columns) at which the phrase begins, ordered by row, in the text with labels restored."""
    restored: NDArray[np.int32] = examples.input_ids.copy()
    if isinstance(examples, MaskedExamples):
        is_label = (examples.masked_lm_weights > 0) & (examples.masked_lm_positions < examples.seq)
        rows, columns = np.nonzero(is_label)
        restored[rows, examples.masked_lm_positions[rows, columns]] = examples.masked_lm_ids[rows, columns]
    return find_in_text(restored, phrase)


def find_in_text(text: NDArray[np.int32], phrase: Phrase) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the same for rows of tokens, (n, length)."""
    rows, columns = np.nonzero(text == phrase.numbers[0])
    padded = np.pad(text, ((0, 0), (0, len(phrase.numbers))), constant_values=-1)  # no token, which continues no word
    for offset, number in enumerate(phrase.numbers[1:], 1):
        is_next = padded[rows, columns + offset] == number
        rows, columns = rows[is_next], columns[is_next]
    after = padded[rows, columns + len(phrase.numbers)]
    is_whole = ~phrase.continues[np.minimum(after, len(phrase.continues) - 1)]
    return rows[is_whole], columns[is_whole]
