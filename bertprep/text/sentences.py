"""Splits a document's text into sentences, each on one line without line breaks of any kind.

Runs of white space, including all characters at which Python or another tool may break a line (vertical tab, form feed, next
line, U+2028, ...), become one space. Nothing else is changed or lost. Only a newline ends a line.

sentencex ends no sentence within quotation marks or brackets, so an unpaired mark can swallow everything up to the next one, 90
KB later in the sample; if lines are paragraphs, it therefore gets one at a time. It processes 50 to 100 MB a second and holds
the GIL, so only processes run in parallel.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise

from sentencex import get_sentence_boundaries

SENTENCE_ENDS = tuple(".!?…‽。．！？｡।॥؟۔։።")
CLOSING_MARKS = "\"'”’»)]」』）"


def choose_splitter(splitter: str, language: str) -> Callable[[str], list[str]]:
    """The function that splits a document into sentences: one of `config.SPLITTERS`."""
    return split_lines if splitter == "lines" else partial(split_sentences, language=language)


def split_lines(text: str) -> list[str]:
    r"""Each line that is not blank is a sentence.

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


def split_sentences(text: str, language: str) -> list[str]:
    r"""Sentences by the rules of the language, in text with one paragraph per line or wrapped at a width.

    >>> split_sentences("Mr. Jay was\nsent. He left at 3 p.m. and\n  came back.", "en")
    ['Mr. Jay was sent.', 'He left at 3 p.m. and came back.']
    >>> split_sentences("He said: (It is so.\nWe left. We came back.\nAll (of us) did.", "en")
    ['He said: (It is so.', 'We left.', 'We came back.', 'All (of us) did.']
    """
    lines = split_lines(text)
    paragraphs = lines if are_paragraphs(lines) else [" ".join(lines)]
    return [sentence for paragraph in paragraphs for sentence in split_paragraph(paragraph, language)]


def are_paragraphs(lines: list[str]) -> bool:
    """Whether lines are whole paragraphs or sentences, most of which then end like a sentence, and not wrapped text."""
    ends = sum(map(ends_sentence, lines[:-1]))  # the last one does in either case
    return 2 * ends > len(lines) - 1


def ends_sentence(line: str) -> bool:
    """Whether a line ends with a sentence-final mark, closing quotation marks and brackets aside."""
    return line.rstrip(CLOSING_MARKS).endswith(SENTENCE_ENDS)


def split_paragraph(text: str, language: str) -> list[str]:
    """The sentences of text without line ends."""
    # only the boundaries of sentencex's result are used, so no text can be lost
    cuts = [0, *(boundary["end_index"] for boundary in get_sentence_boundaries(language, text)), len(text)]
    sentences = (text[start:end].strip() for start, end in pairwise(cuts))
    return [sentence for sentence in sentences if sentence]
