"""How every document is normalized before it is split: a paragraph a line, single spaces, no blank line within.

Characters are left as they are: BERT's tokenizer drops control characters and normalizes the rest itself.
"""

from bertprep.text.sentences import split_lines


def clean_document(text: str) -> str:
    r"""The document without blank lines, or '' where it has no letter and no digit.

    >>> clean_document("One  line.\r\n\n \tAnother.\n")
    'One line.\nAnother.'
    >>> clean_document("* * *\n")
    ''
    """
    cleaned = "\n".join(split_lines(text))
    return cleaned if any(map(str.isalnum, cleaned)) else ""
