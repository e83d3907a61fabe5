"""Show an example in readable form: its words, and at each masked position the original token and the token that a model sees.

A masked token is shown as `[MASK→original]`, as `shown→original` if a random token replaces it, and as `=original=` if it was
kept. The pieces of a word are joined, with `[shown→original]` for a replaced one. A tagged word is shown as `word/TAG`.
`legend` explains this to a reader in one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from unicodedata import east_asian_width

import numpy as np
from numpy.typing import NDArray

from bertprep.instances import Vocabulary
from bertprep.records.examples import Examples, MaskedExamples, PretrainingExamples, SquadExamples, TokenClassificationExamples
from bertprep.terminal import Printable, counted, printable, styled

State = Literal["plain", "special", "masked", "kept", "replaced"]
"""Kinds of tokens: plain; [CLS], [SEP] or [PAD]; and predicted tokens that show [MASK], themselves or another token."""

_CONTINUES = "##"
_SPECIAL, _SEGMENT_A, _SEGMENT_B, _TO_PREDICT, _ANSWER = "2", "36", "33", "1", "4"  # dim, cyan, yellow, bold, underlined


@dataclass(frozen=True)
class Token:
    """One token of an example; `text` is the original token, without ## if it is joined to the one before."""

    text: str
    shown: str
    state: State
    segment: int
    in_answer: bool
    tag: str = ""  # of the word that begins here
    has_others: bool = False  # whether the word has several tokens

    def __str__(self) -> str:
        replaced = f"{self.shown}→{self.text}"
        marked = {
            "masked": f"[MASK→{self.text}]",
            "replaced": f"[{replaced}]" if self.has_others else replaced,
            "kept": f"={self.text}=",
        }
        return marked.get(self.state, self.text)

    @property
    def look(self) -> tuple[str, ...]:
        """The SGR codes that style the token on a terminal."""
        codes = [_SEGMENT_B if self.segment else _SEGMENT_A]
        if self.state == "special":
            codes = [_SPECIAL]
        elif self.state != "plain":
            codes.append(_TO_PREDICT)
        if self.in_answer:
            codes.append(_ANSWER)
        return tuple(codes)


Word = list[Token]
"""Tokens that are joined without spaces."""


def token_text(identity: int, vocabulary: Vocabulary | None) -> str:
    """Return the text of a token from its vocabulary, or `#` and its id without a vocabulary.

    >>> token_text(2054, None)
    '#2054'
    """
    if vocabulary is None:
        return f"#{identity}"
    return vocabulary.tokens[identity] if 0 <= identity < len(vocabulary) else f"<{identity}: not in the vocabulary>"


def legend(kind: type[Examples]) -> str:
    """Return a line that explains how examples of a kind are shown, or "" if they are plain text."""
    if issubclass(kind, MaskedExamples):
        return "[MASK→x]: x was masked; a→b or [a→b]: the random token a replaces b; =c=: c was kept; x, b and c are predicted"
    return "word/TAG: a word and its tag" if issubclass(kind, TokenClassificationExamples) else ""


def text_length(examples: Examples, row: int) -> int:
    """Return the number of tokens without padding."""
    return int(np.count_nonzero(examples.input_mask[row]))


def describe(examples: Examples, row: int) -> str:
    """Return a text with the lengths of one example and its targets."""
    parts, in_b = [f"{text_length(examples, row):,} of {examples.seq:,} tokens"], np.count_nonzero(examples.segment_ids[row])
    if isinstance(examples, PretrainingExamples):
        label = "a random text" if examples.next_sentence_labels[row] else "the next sentence"
        parts.append(f"B has {in_b:,} and is {label}")
    if isinstance(examples, MaskedExamples):
        return ", ".join([*parts, counted(int(np.count_nonzero(examples.masked_lm_weights[row])), "prediction")])
    singles = [feature.name for feature in examples.features if feature.width == "one"]
    return ", ".join([*parts, f"B has {in_b:,}", *(f"{name} {getattr(examples, name)[row]}" for name in singles)])


def example_words(
    examples: Examples, row: int, vocabulary: Vocabulary | None, *, most: int | None = None, tags: Sequence[str] = ()
) -> list[Word]:
    """Return the words of one example without padding, or of its first `most` tokens. An answer in SQuAD is highlighted.

    `tags` are the names of the labels of tagged words; without names, labels are shown as numbers.
    """
    labels: dict[int, int] = {}
    if isinstance(examples, MaskedExamples):
        is_label = examples.masked_lm_weights[row] > 0
        positions, originals = examples.masked_lm_positions[row][is_label], examples.masked_lm_ids[row][is_label]
        labels = dict(zip(positions.tolist(), originals.tolist(), strict=True))
    answer = range(0)
    if isinstance(examples, SquadExamples) and examples.end_positions[row]:
        answer = range(examples.start_positions[row], examples.end_positions[row] + 1)
    ids = examples.input_ids[row, : text_length(examples, row)][:most].tolist()
    tokens = []
    for position, (identity, segment) in enumerate(zip(ids, examples.segment_ids[row].tolist(), strict=False)):
        text = shown = token_text(identity, vocabulary)
        state: State = "special" if shown in ("[CLS]", "[SEP]", "[PAD]") else "plain"
        if position in labels:
            text = token_text(labels[position], vocabulary)
            state = "masked" if shown == "[MASK]" else "kept" if shown == text else "replaced"
        tag = ""
        if isinstance(examples, TokenClassificationExamples) and examples.label_weights[row, position] > 0:
            label = int(examples.label_ids[row, position])
            tag = tags[label] if 0 <= label < len(tags) else str(label)
        tokens.append(Token(text, shown, state, segment, position in answer, tag))
    return [_with_tag(word) for word in _join(tokens)]


def _with_tag(word: Word) -> Word:
    """Return the word, with its tag, if it has one, as the last token; the tag of words without an entity is dim."""
    if not (tag := word[0].tag):
        return word
    text = f"/{tag}"
    return [*word, Token(text, text, "special" if tag == "O" else "plain", word[0].segment, in_answer=False)]


def sentence_words(tokens: NDArray[np.int32], vocabulary: Vocabulary) -> list[Word]:
    texts = [token_text(identity, vocabulary) for identity in tokens.tolist()]
    return _join(Token(text, text, "plain", 0, in_answer=False) for text in texts)


def _join(tokens: Iterable[Token]) -> list[Word]:
    words: list[Word] = []
    may_join = False  # to the token before
    for token in tokens:
        continues = token.text.startswith(_CONTINUES) and token.text != _CONTINUES
        if may_join and continues:
            words[-1] = [replace(each, has_others=True) for each in (*words[-1], token)]
            words[-1][-1] = replace(words[-1][-1], text=token.text[len(_CONTINUES) :])
        else:
            words.append([token])
        may_join = token.state != "special"
    return words


def write_words(words: list[Word], *, width: int | None, colour: bool) -> Printable:
    """Return the words as text, wrapped to `width` columns if that is given."""
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
