"""Measures what lower-casing takes from a text: BERT's uncased tokenizer also removes accents and other marks.

English loses nothing. German ä becomes a, Russian й becomes и, Japanese が becomes か; Hebrew points and many vowel signs of
Indic scripts and Thai are gone. Only a sample of the text is read, 2 MB in pieces at regular intervals, so the result
depends on the text alone, and costs some 20 ms.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertprep.files.object_cache import open_local
from bertprep.instances.unicode_table import CODE_POINTS, encode_code_points, load_unicode_table, read_replacement
from bertprep.kernels.numbers import CODE_POINT_KIND, DROP

MANY_CHANGES = 0.005
"""With a larger fraction of letters that change by more than case, the text is in a language that needs them.

In English it is at most 0.06% (the sample corpus, 106 articles of Wikipedia), and 0.8%, 1.4% and 2.7% in the Italian, German
and French sentences with which a splitter of sentences is tested.
"""
LETTERS, CHANGED = "sampled_letters", "changed_letters"
"""The counts of a manifest from which `validate` repeats the warning."""
SAMPLE_BYTES = 2 << 20
_PIECE_BYTES = 1 << 16
_SHOWN = 3


@dataclass(frozen=True)
class LetterChanges:
    """How many letters and marks a sample has, how many change by more than case, and the commonest changes in words."""

    letters: int = 0
    changed: int = 0
    commonest: tuple[str, ...] = ()

    @property
    def are_many(self) -> bool:
        return self.letters > 0 and self.changed > MANY_CHANGES * self.letters

    @classmethod
    def from_counts(cls, counts: Mapping[str, int]) -> LetterChanges:
        """Return the changes that a manifest counts."""
        return cls(counts.get(LETTERS, 0), counts.get(CHANGED, 0))

    @property
    def counts(self) -> dict[str, int]:
        """The counts for a manifest of lower-cased text, if anything changes."""
        return {LETTERS: self.letters, CHANGED: self.changed} if self.changed else {}

    @property
    def warning(self) -> str:
        """What lower-casing does to the text, without advice."""
        share = f"{self.changed / max(self.letters, 1):.1%}"
        commonest = f" ({', '.join(self.commonest)})" if self.commonest else ""
        return f"lower-casing as for uncased BERT changes more than the case of {share} of the letters of this text{commonest}"


NO_CHANGES = LetterChanges()


def measure_files(paths: Sequence[Path]) -> LetterChanges:
    """Measure a sample of text files. Those that cannot be read are left to whoever reads the whole text."""
    step = max(1, len(paths) * _PIECE_BYTES // SAMPLE_BYTES)
    chosen = paths[::step]
    counts = np.zeros(CODE_POINTS, np.int64)
    for path in chosen:
        with suppress(OSError):
            for piece in _read_pieces(path, SAMPLE_BYTES // len(chosen)):
                _count_points(piece.decode(errors="ignore"), counts)
    return _changes_in(counts)


def measure_texts(texts: Iterable[str]) -> LetterChanges:
    """Measure the beginning of texts, such as the questions of a task."""
    sample: list[str] = []
    size = 0
    for text in texts:
        sample.append(text)
        size += len(text)
        if size >= SAMPLE_BYTES:
            break
    counts = np.zeros(CODE_POINTS, np.int64)
    _count_points("\n".join(sample), counts)
    return _changes_in(counts)


def _read_pieces(path: Path, most: int) -> Iterable[bytes]:
    """Yield pieces of a file at regular intervals, `most` bytes together, or the whole file if it is no larger."""
    with open_local(path) as file:
        size = file.seek(0, 2)
        number = max(1, min(most, size) // _PIECE_BYTES)
        for index in range(number):
            file.seek(index * size // number)
            yield file.read(_PIECE_BYTES if size > most else (index + 1) * size // number - index * size // number)


def _count_points(text: str, counts: NDArray[np.int64]) -> None:
    points = np.frombuffer(text.encode(), np.uint8) if text.isascii() else encode_code_points(text)
    found = np.bincount(points)
    counts[: len(found)] += found


def _changes_in(counts: NDArray[np.int64]) -> LetterChanges:
    letters, changed, by_change = 0, 0, dict[str, int]()
    entries, table = load_unicode_table(lower=True)
    replacements = table.tobytes()
    for point in np.flatnonzero(counts).tolist():
        character, count = chr(point), int(counts[point])
        if unicodedata.category(character)[0] not in "LM":
            continue
        letters += count
        with_case = character.lower()
        entry = int(entries[point])
        without = "" if entry & CODE_POINT_KIND == DROP else read_replacement(entry, replacements) or character
        if without == with_case:
            continue
        changed += count
        change = _describe_change(with_case, without)
        by_change[change] = by_change.get(change, 0) + count
    commonest = sorted(by_change, key=lambda change: (-by_change[change], change))[:_SHOWN]
    return LetterChanges(letters, changed, tuple(commonest))


def _describe_change(before: str, after: str) -> str:
    """Return a change in words; marks stand on a dotted circle, and letters that become several are shown apart.

    >>> _describe_change("é", "e"), _describe_change("\u0301", "")
    ('é becomes e', '◌́ is removed')
    """
    before = f"◌{before}" if unicodedata.category(before[0])[0] == "M" else before
    return f"{before} becomes {' '.join(after)}" if after else f"{before} is removed"
