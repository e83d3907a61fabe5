"""Splits documents into sentences, each on one line, with single spaces.

The rules of a language are those of the library sentencex. It ends no sentence within quotation marks or brackets, and a blank
line ends both, so the paragraphs of a document are given to it with blank lines between them.
"""

from sentencex import segment

from bertprep.config import BY_LINES
from bertprep.sources.plain_text import FIELD_GAP, ends_sentence


def split_document(text: str, splitter: str, language: str) -> list[str]:
    """Return the lines of a document in a text shard: its own lines, or those of `split_sentences`."""
    return split_lines(text) if splitter == BY_LINES else split_sentences(text, language)


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

    Each field of a row of several begins a paragraph.

    >>> split_sentences("Mr. Jay was\nsent. He left at 3 p.m. and\n  came back.", "en")
    ['Mr. Jay was sent.', 'He left at 3 p.m. and came back.']
    >>> split_sentences("He said: (It is so.\nWe left. We came back.\nAll (of us) did.", "en")
    ['He said: (It is so.', 'We left.', 'We came back.', 'All (of us) did.']
    >>> split_sentences(FIELD_GAP.join(["A title without a mark", "It begins.\nIt ends."]))
    ['A title without a mark', 'It begins.', 'It ends.']
    """
    paragraphs = []
    for field in text.split(FIELD_GAP):
        lines = split_lines(field)
        paragraphs += lines if are_paragraphs(lines) else [" ".join(lines)]
    return [sentence for part in segment(language, "\n\n".join(paragraphs)) if (sentence := part.strip(" \n"))]


def are_paragraphs(lines: list[str]) -> bool:
    """Return whether lines are paragraphs or sentences, most of which then end like a sentence, and not wrapped text."""
    ends = sum(map(ends_sentence, lines[:-1]))  # the last one does in either case
    return 2 * ends > len(lines) - 1
