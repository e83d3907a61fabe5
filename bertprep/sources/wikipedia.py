"""Wikipedia from the Hub: articles without markup, but with section headings, link lists and category names as lines.

Only what reads as prose is kept: a line that ends as a sentence does, or that is too long for a heading. That drops "See
also", "External links" and the names below them in any language, which would otherwise be sentences for the next-sentence
task. The rule looks at one line at a time.
"""

from bertprep.text.sentences import ends_sentence

LONGEST_HEADING = 80
"""Characters; a line that is longer is kept whatever it ends with, so that a script without full stops loses nothing."""


def prose_of(article: str) -> str:
    r"""The lines of an article that are prose.

    >>> prose_of("A cat is an animal.\n\nSee also\n\nDog\nList of cats\n\nReferences\n\nFelines")
    'A cat is an animal.'
    """
    return "\n".join(line for line in map(str.strip, article.split("\n")) if is_prose(line))


def is_prose(line: str) -> bool:
    """Whether a line ends as a sentence does, or is too long for a heading or an entry of a list."""
    return ends_sentence(line) or len(line) > LONGEST_HEADING
