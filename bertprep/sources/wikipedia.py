"""Extracts prose from the Hub's Wikipedia, whose articles still contain section headings, link lists and category names.

A line is kept if it ends like a sentence or is too long for a heading. That drops "See also", "External links" and the names
below them in any language, which would otherwise become sentences of the next-sentence task. Each line is judged alone.
"""

from bertprep.text.sentences import ends_sentence

LONGEST_HEADING = 80
"""Characters; a longer line is kept whatever its end, so that a script without full stops loses nothing."""


def prose_of(article: str) -> str:
    r"""The lines of an article that are prose.

    >>> prose_of("A cat is an animal.\n\nSee also\n\nDog\nList of cats\n\nReferences\n\nFelines")
    'A cat is an animal.'
    """
    return "\n".join(line for line in map(str.strip, article.split("\n")) if is_prose(line))


def is_prose(line: str) -> bool:
    """Whether a line ends like a sentence, or is too long for a heading or a list item."""
    return ends_sentence(line) or len(line) > LONGEST_HEADING
