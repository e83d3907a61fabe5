"""Splits documents into sentences, each on one line, with single spaces.

`text.wrapping` makes paragraphs of the lines, and `text.boundaries` finds where sentences end in them.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

from bertprep.config import BY_LINES
from bertprep.sources.plain_text import FIELD_GAP
from bertprep.text.boundaries import SentenceSplitter
from bertprep.text.long_sentences import is_too_long
from bertprep.text.wrapping import Counts, find_paragraphs, with_single_spaces


def split_documents(texts: Sequence[str], splitter: str, language: str, counts: Counts) -> Iterator[list[str]]:
    """Yield the lines of each document in a text shard: its own lines with the splitter `BY_LINES`, else its sentences.

    Many documents take less time together than one by one. What is changed beside white space, and lines that are too long, are
    added to `counts`.
    """
    if splitter == BY_LINES:
        for text in texts:
            lines = split_lines(text)
            counts.long_lines += sum(map(is_too_long, lines))
            yield lines
        return
    sentences = SentenceSplitter(language)
    for is_small, group in groupby(texts, str.islower):
        documents = [[each for field in text.split(FIELD_GAP) for each in find_paragraphs(field, counts)] for text in group]
        before = sentences.divided
        # an empty paragraph ends each document
        found = sentences.split([each for document in documents for each in (*document, "")], has_capitals=not is_small)
        counts.divided_sentences += sentences.divided - before
        start = 0
        for _ in documents:
            end = found.index("", start)
            yield found[start:end]
            start = end + 1


def split_lines(text: str) -> list[str]:
    r"""Return the lines that are not blank, with single spaces.

    >>> split_lines("It is\u00a0so. Or not?\r\n \x0cYes.\u2028No.\n")
    ['It is so. Or not?', 'Yes. No.']
    """
    # line by line, since a list of all words of a long document would take ten times its size
    return [tidied for line in text.split("\n") if (tidied := with_single_spaces(line))]


def split_sentences(text: str, language: str = "en", counts: Counts | None = None) -> list[str]:
    r"""Return the sentences of a text, which may have one paragraph per line or lines wrapped at some width.

    If the text is a row of several fields, each field begins a paragraph.

    >>> split_sentences("Chapter 1\n\nMr. Jay was sent away, and hardly anybody\nmissed him. He left at 3 p.m. and came back.")
    ['Chapter 1', 'Mr. Jay was sent away, and hardly anybody missed him.', 'He left at 3 p.m. and came back.']
    >>> split_sentences("He said: (It is so.\nWe left. We came back.\nAll (of us) did.", "en")
    ['He said: (It is so.', 'We left.', 'We came back.', 'All (of us) did.']
    >>> split_sentences(FIELD_GAP.join(["A title without a mark", "It begins.\nIt ends."]))
    ['A title without a mark', 'It begins.', 'It ends.']
    """
    return next(split_documents([text], "", language, counts or Counts()))
