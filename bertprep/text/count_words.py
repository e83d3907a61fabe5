"""Counts the words of text files as BERT's basic tokenizer splits them: normalized, with punctuation and each Hanzi separate.

The code points of a block are looked up in the tokenizer's Unicode table all at once (NumPy). So a word is counted if and only
if the tokenizer finds it. This takes about 40 ns per character.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertprep import pool
from bertprep.errors import not_utf8, reading
from bertprep.files.object_cache import open_local
from bertprep.files.paths import as_path
from bertprep.instances.tokenizer import with_final_sigmas
from bertprep.instances.unicode_table import CODE_POINTS, decode_code_points, encode_code_points, load_replacements
from bertprep.kernels.numbers import ALONE, DROP, LONGEST_WORD, SPACE
from bertprep.progress import SILENT, Reporter
from bertprep.sources.plain_text import MAX_DOCUMENT_BYTES, too_long

_BLOCK_BYTES = 1 << 20


@dataclass
class WordCounts:
    """The counts of words, and of those that are too long for the tokenizer, which turns them into [UNK]."""

    words: Counter[str] = field(default_factory=Counter)
    too_long: int = 0
    too_long_characters: int = 0

    def update(self, others: "WordCounts") -> None:
        self.words.update(others.words)
        self.too_long += others.too_long
        self.too_long_characters += others.too_long_characters


class _Rules(NamedTuple):
    """What becomes of each code point (1,114,112,): the characters flat[start:start + width], and whether it is a word."""

    flat: NDArray[np.uint32]
    start: NDArray[np.int64]
    width: NDArray[np.uint8]
    is_word: NDArray[np.bool_]


def count_words(files: Sequence[Path], *, cased: bool, workers: int = 1, reporter: Reporter = SILENT) -> WordCounts:
    """Return the counts of the words in text files.

    Raises `BertprepError` for a file that cannot be read or is not UTF-8.
    """
    counts = WordCounts()
    tasks = [(str(path), (path, cased)) for path in files]
    with (
        reporter.progress("count words", len(tasks), "files") as shown,
        closing(pool.run(_count_words_of_file, tasks, workers=workers)) as results,
    ):
        for name, of_file in results:
            counts.update(of_file)
            shown.advance(MB_of_text=as_path(name).stat().st_size / 1e6)
    return counts


def _count_words_of_file(task: tuple[Path, bool]) -> WordCounts:
    path, cased = task
    rules = _load_rules(lower=not cased)
    counts = WordCounts()
    alone = np.zeros(CODE_POINTS, np.int64)
    for text in _read_blocks(path):
        words = _split(text, rules, alone, lower=not cased)
        for word, count in Counter(words).items():
            if len(word) <= LONGEST_WORD:
                counts.words[word] += count
            else:
                counts.too_long += count
                counts.too_long_characters += count * len(word)
    for point in np.flatnonzero(alone).tolist():
        counts.words[chr(point)] += int(alone[point])
    return counts


def _read_blocks(path: Path) -> Iterator[str]:
    """Yield whole lines, about a megabyte at a time."""
    position = 0
    with reading(path, "; give text files"), open_local(path) as file:
        while block := file.read(_BLOCK_BYTES):
            block += (rest := file.readline(MAX_DOCUMENT_BYTES))
            if len(rest) == MAX_DOCUMENT_BYTES:
                raise too_long(str(path), "a line")
            try:
                yield block.decode()
            except UnicodeDecodeError as error:
                raise not_utf8(f"{path}: byte {position + error.start:,}", error) from error
            position += len(block)


def _split(text: str, rules: _Rules, alone: NDArray[np.int64], *, lower: bool) -> list[str]:
    """Return the words of several characters or letters; add those that are always words by themselves to `alone`."""
    if lower and "Σ" in text:
        text = "\n".join(with_final_sigmas(line) if "Σ" in line else line for line in text.split("\n"))
    points = encode_code_points(text)
    start, width, is_word = rules.start[points], rules.width[points], rules.is_word[points]
    if width.min(initial=1) == width.max(initial=1) == 1:
        characters = rules.flat[start]
    else:
        ends = np.cumsum(width, dtype=np.int64)
        first = np.repeat(start - ends + width, width)
        characters = rules.flat[first + np.arange(len(first))]
        is_word = np.repeat(is_word, width)
    found = np.bincount(characters[is_word])
    alone[: len(found)] += found
    characters[is_word] = ord(" ")
    return decode_code_points(characters).split()


@cache
def _load_rules(*, lower: bool) -> _Rules:
    kinds, points, texts = load_replacements(lower=lower)
    start, width = np.arange(CODE_POINTS), np.ones(CODE_POINTS, np.uint8)
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    start[points], width[points] = CODE_POINTS + np.cumsum(lengths) - lengths, lengths
    start[kinds == SPACE] = ord(" ")
    width[kinds == DROP] = 0
    flat = np.concatenate([np.arange(CODE_POINTS, dtype=np.uint32), encode_code_points("".join(texts))])
    return _Rules(flat, start, width, kinds == ALONE)
