"""Splits documents into sentences, each on one line, with single spaces.

The library sentencex has the rules for each language, and uses those of English for a code that it does not know. It never
ends a sentence inside quotation marks or brackets, even if they are not closed; only a blank line closes them. So paragraphs
are passed to it with blank lines between them.
"""

from sentencex import segment

from bertprep.config import BY_LINES
from bertprep.sources.plain_text import FIELD_GAP, ends_sentence


def split_document(text: str, splitter: str, language: str) -> list[str]:
    """Return the lines of a document in a text shard: its own lines with the splitter `BY_LINES`, else its sentences."""
    return split_lines(text) if splitter == BY_LINES else split_sentences(text, language)


def split_lines(text: str) -> list[str]:
    r"""Return the lines that are not blank, with single spaces.

    >>> split_lines("It is\u00a0so. Or not?\r\n \x0cYes.\u2028No.\n")
    ['It is so. Or not?', 'Yes. No.']
    """
    # line by line, since a list of all words of a long document would take ten times its size
    return [tidied for line in text.split("\n") if (tidied := _with_single_spaces(line))]


def _with_single_spaces(line: str) -> str:
    # only the space is printable white space: most lines pass this test, which is five times as fast as splitting them
    if line.isprintable() and "  " not in line:
        return line.strip(" ")
    return " ".join(line.split())


def split_sentences(text: str, language: str = "en") -> list[str]:
    r"""Return the sentences of a text, which may have one paragraph per line or lines wrapped at some width.

    If the text is a row of several fields, each field begins a paragraph.

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
    """Return whether lines are paragraphs or sentences, not wrapped text: most of them end like a sentence."""
    ends = sum(map(ends_sentence, lines[:-1]))  # the last line ends a sentence in wrapped text too
    return 2 * ends > len(lines) - 1
