"""One example as a person reads it: words in the colours of their segments, and at each masked place what stood there.

A masked token is `[MASK→original]`, or `shown→original` where the generator put a random token, and `=original=` where it
left the token as it was. Pieces of a word are joined: `gov [MASK→##ern] ##ment` is read as `gov[MASK→ern]ment`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from dataclasses import dataclass

from bertprep.instances import Vocabulary
from bertprep.records.examples import Examples
from bertprep.terminal import Printable, printable, styled

_CONTINUES = "##"
_SPECIAL, _SEGMENT_A, _SEGMENT_B, _MASKED, _FOUND = "2", "36", "33", "1", "4"  # dim, cyan, yellow, bold, underlined


@dataclass(frozen=True)
class Piece:
    """What is written without a space in it, and the codes of its look on a terminal."""

    text: Printable
    look: tuple[str, ...]


Word = list[Piece]


def example_words(
    examples: Examples, number: int, vocabulary: Vocabulary, *, join: bool = True, found: Collection[int] = ()
) -> list[Word]:
    """The words of one example, padding left out; without `join` each piece is one; those at the places `found` stand out."""

    def token(identity: int) -> str:
        return vocabulary.tokens[identity] if identity < len(vocabulary) else f"<{identity}: not in the vocabulary>"

    originals = {
        position: token(label)
        for position, label, weight in zip(
            examples.masked_lm_positions[number].tolist(),
            examples.masked_lm_ids[number].tolist(),
            examples.masked_lm_weights[number].tolist(),
            strict=True,
        )
        if weight > 0
    }
    words: list[Word] = []
    stands_alone = True  # what came last: nothing is joined to it
    length = int(examples.input_mask[number].sum())
    shown_and_segments = zip(examples.input_ids[number, :length], examples.segment_ids[number], strict=False)
    for position, (identity, segment) in enumerate(shown_and_segments):
        shown = token(int(identity))
        original = originals.get(position)
        is_special = original is None and shown in ("[CLS]", "[SEP]", "[PAD]")
        look: tuple[str, ...] = (_SPECIAL,) if is_special else (_SEGMENT_B if segment else _SEGMENT_A,)
        look += (_MASKED,) * (original is not None) + (_FOUND,) * (position in found)
        is_random = original not in (None, shown) and shown != "[MASK]"
        joins = join and not (is_random or stands_alone) and (original or shown).startswith(_CONTINUES)
        piece = Piece(printable(_mark(shown, original, joins)), look)
        words[-1:] = [[*words[-1], piece]] if joins else [*words[-1:], [piece]]
        stands_alone = is_special or is_random
    return words


def _mark(shown: str, original: str | None, joins: bool) -> str:
    """The text of one place."""
    start = len(_CONTINUES) if joins else 0
    if original is None:
        return shown[start:]
    if shown == "[MASK]":
        return f"[MASK→{original[start:]}]"
    return f"={original[start:]}=" if shown == original else f"{shown}→{original}"


def write_words(words: list[Word], *, width: int | None, colour: bool) -> Printable:
    """The words as text, in lines of at most `width` columns where a width is given."""
    lines: list[list[str]] = [[]]
    used = 0
    for word in words:
        columns = sum(map(_columns, (piece.text for piece in word)))
        if width is not None and lines[-1] and used + 1 + columns > width:
            lines.append([])
            used = 0
        used += columns + bool(lines[-1])
        lines[-1].append("".join(styled(piece.text, piece.look) if colour else piece.text for piece in word))
    return Printable("\n".join(" ".join(line) for line in lines))


def _columns(text: str) -> int:
    """How wide a terminal shows the text: Chinese characters take two columns.

    >>> _columns("word"), _columns("語")
    (4, 2)
    """
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)
