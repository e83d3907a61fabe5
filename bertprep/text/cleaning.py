"""Normalizes documents before they are split: one paragraph per line, single spaces, no blank lines.

Characters are unchanged: BERT's tokenizer drops control characters and normalizes the rest.
"""

from bertprep.text.sentences import split_lines


def clean_document(text: str) -> str:
    r"""The document without blank lines, or '' if it has no letter and no digit.

    >>> clean_document("One  line.\r\n\n \tAnother.\n")
    'One line.\nAnother.'
    >>> clean_document("* * *\n")
    ''
    """
    cleaned = "\n".join(split_lines(text))
    return cleaned if any(map(str.isalnum, cleaned)) else ""
