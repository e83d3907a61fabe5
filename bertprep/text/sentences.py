"""Splits documents into sentences, each on one line, with single spaces.

sentencex ends no sentence within quotation marks or brackets, so paragraphs are split one at a time. `split_sentences` and
`split_lines` define the sentences of a document; `Splitter` finds the same ones in many documents at once: a kernel splits
lines in which English sentences plainly end, sentencex the others.
"""

from functools import cache
from importlib.metadata import version

import numpy as np
import numpy.typing as npt
from sentencex import segment

from bertprep import kernels
from bertprep.kernels.numbers import (
    ASK_LINE,
    CUT_PLAIN,
    ENDER_ASK,
    ENDER_BITS,
    ENDER_CUTS,
    ENDER_ENTRY,
    ENDER_WIDTH,
    LINES_ONLY,
    PARAGRAPHS,
)
from bertprep.sources.plain_text import ends_sentence

PLAIN_IN = ("1.0.32",)
"""The versions of sentencex whose English rules the kernel was compared with; with another one every line is sentencex's."""
_MAX_UNKNOWN = 4096
_CUT_AGAIN = 50
"""As many new words in a batch make it cheaper to cut it again than to ask about their lines."""
_MAX_WORDS = 3 << ENDER_BITS - 2
_NUMBERS = ENDER_WIDTH // 8


class Splitter:
    """Splits documents into lines of text shards; remembers words, so use one for many."""

    def __init__(self, splitter: str, language: str) -> None:
        self._language = language
        self._mode = PARAGRAPHS if splitter != "lines" else LINES_ONLY
        if self._mode == PARAGRAPHS and language == "en" and version("sentencex") in PLAIN_IN:
            self._mode = CUT_PLAIN
        self._words = np.zeros(ENDER_ENTRY << ENDER_BITS if self._mode == CUT_PLAIN else 0, np.uint64)
        self._known = 0
        self._unknown = np.empty(_MAX_UNKNOWN * _NUMBERS, np.uint64)
        self._unknown_count = np.zeros(1, np.int64)
        self._buffer = bytearray()
        self._out = np.empty(0, np.uint8)

    def split(self, text: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> bytes | memoryview:
        """Return a line for each sentence and a blank line after each document; valid until the next call.

        Document i, UTF-8 and not blank, ends at text[ends[i]]; TEXT_SLACK bytes follow the last one.
        """
        if len(self._buffer) < (needed := len(text) + 2 * len(ends)):
            self._buffer = bytearray(needed + needed // 4)
            self._out = np.frombuffer(self._buffer, np.uint8)
        size = self._run(text, ends)
        if self._mode == CUT_PLAIN and self._learn() > _CUT_AGAIN:
            size = self._run(text, ends)
        lines = memoryview(self._buffer)[:size]
        if self._mode == LINES_ONLY:
            return lines
        if self._mode == PARAGRAPHS:
            return b"\n".join(map(self._ask, bytes(lines).split(b"\n")))
        found: list[bytes | memoryview] = []
        done = 0
        for end in np.flatnonzero(self._out[:size] == ASK_LINE).tolist():
            start = max(done, self._buffer.rfind(b"\n", done, end) + 1)
            found += lines[done:start], self._ask(lines[start:end]), b"\n"
            done = end + 1
        return b"".join((*found, lines[done:])) if found else lines

    def _run(self, text: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> int:
        return kernels.load().split_text(
            text, ends, len(ends), self._mode,
            self._words, self._unknown, _MAX_UNKNOWN,
            self._out, self._unknown_count,
        )  # fmt: skip

    def _ask(self, line: bytes | memoryview) -> bytes:
        return "\n".join(split_paragraph(str(line, "utf-8"), self._language)).encode()

    def _learn(self) -> int:
        words = self._unknown[: int(self._unknown_count[0]) * _NUMBERS].tobytes()
        new = {words[at : at + ENDER_WIDTH] for at in range(0, len(words), ENDER_WIDTH)}
        added = sorted(new)[: _MAX_WORDS - self._known]
        if added:
            self._known += len(added)
            says = [ENDER_CUTS if always_ends(word.rstrip(b"\0").decode()) else ENDER_ASK for word in added]
            kernels.load().keep_enders(
                self._words, np.frombuffer(b"".join(added), np.uint64), np.array(says, np.int64), len(added)
            )
        return len(added)


@cache
def load_splitter(splitter: str, language: str) -> Splitter:
    """This process's splitter of a kind."""
    return Splitter(splitter, language)


def always_ends(word: str) -> bool:
    """Return whether a mark after `word` always ends an English sentence.

    >>> always_ends("house"), always_ends("Mr"), always_ends("ft"), always_ends("Yahoo")
    (True, False, False, False)
    """
    sentences = [
        *(
            f"Tom {word}. ",
            f"Xenia saw 7 {word}. ",
            f"it was {word}. ",
            f"7 of {word}. ",
            f"J. Doe was {word}! ",
            f"Eve was {word}? ",
        ),
        "The end.",
    ]
    found: list[str] = segment("en", "".join(sentences))
    return found == sentences


def split_lines(text: str) -> list[str]:
    r"""Return the lines that are not blank as sentences.

    >>> split_lines("It is\u00a0so. Or not?\r\n \x0cYes.\u2028No.\n")
    ['It is so. Or not?', 'Yes. No.']
    """
    # line by line: the list of all words of a long document would take ten times its size
    return [tidied for line in text.split("\n") if (tidied := _with_single_spaces(line))]


def _with_single_spaces(line: str) -> str:
    # white space other than the space is not printable, so most lines pass this test, which takes a fifth of the time
    if line.isprintable() and "  " not in line:
        return line.strip(" ")
    return " ".join(line.split())


def split_sentences(text: str, language: str = "en") -> list[str]:
    r"""Return the sentences by the rules of the language, in text with one paragraph per line or wrapped at a width.

    >>> split_sentences("Mr. Jay was\nsent. He left at 3 p.m. and\n  came back.", "en")
    ['Mr. Jay was sent.', 'He left at 3 p.m. and came back.']
    >>> split_sentences("He said: (It is so.\nWe left. We came back.\nAll (of us) did.", "en")
    ['He said: (It is so.', 'We left.', 'We came back.', 'All (of us) did.']
    """
    lines = split_lines(text)
    paragraphs = lines if are_paragraphs(lines) else [" ".join(lines)]
    return [sentence for paragraph in paragraphs for sentence in split_paragraph(paragraph, language)]


def are_paragraphs(lines: list[str]) -> bool:
    """Return whether lines are paragraphs or sentences, most of which then end like a sentence, and not wrapped text."""
    ends = sum(map(ends_sentence, lines[:-1]))  # the last one does in either case
    return 2 * ends > len(lines) - 1


def split_paragraph(text: str, language: str) -> list[str]:
    """Return the sentences of text without line ends."""
    return [sentence for part in segment(language, text) if (sentence := part.strip(" "))]
