"""Splits documents into sentences, each on one line, with single spaces.

The library sentencex has the rules for each language. It never ends a sentence inside quotation marks or brackets, even if they
are not closed; only a blank line closes them. So paragraphs are passed to it with blank lines between them.
"""

from sentencex import segment

from bertprep.config import BY_LINES
from bertprep.sources.plain_text import FIELD_GAP, ends_sentence

_PROBE = "She has a Ph.D. Yes, so has Mrs. Kay."
"""Text that sentencex 1.0.32 splits by English rules in another way than by those of each of its other languages."""
_OF_THREE_LETTERS = {
    "amh": "am", "ara": "ar", "arm": "hy", "ben": "bn", "bul": "bg", "bur": "my", "cat": "ca", "dan": "da", "deu": "de",
    "dut": "nl", "ell": "el", "eng": "en", "fin": "fi", "fra": "fr", "fre": "fr", "ger": "de", "gre": "el", "guj": "gu",
    "hin": "hi", "hye": "hy", "ita": "it", "jpn": "ja", "kan": "kn", "kaz": "kk", "mal": "ml", "mar": "mr", "mya": "my",
    "nld": "nl", "pan": "pa", "pol": "pl", "por": "pt", "rus": "ru", "slk": "sk", "slo": "sk", "spa": "es", "tam": "ta",
    "tel": "te", "ukr": "uk",
}  # fmt: skip
"""The codes of ISO 639-2 for sentencex's languages -> the codes that sentencex has for them."""


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


def has_rules(language: str) -> bool:
    """Return whether sentencex has rules for a language, its own or those of a related one.

    sentencex has no list of its languages. It silently uses English rules for any other code, so two sentences decide.

    >>> [language for language in ("en", "de", "de-at", "deu", "sv") if has_rules(language)]
    ['en', 'de', 'de-at']
    """
    return language in ("en", "simple") or segment(language, _PROBE) != segment("en", _PROBE)


def describe_missing_rules(language: str) -> str:
    """Return the rest of a warning that names a language, if sentencex has no rules for it, else ""."""
    if has_rules(language):
        return ""
    line = "sentencex has no rules for this language, so its English rules are used"
    meant = _OF_THREE_LETTERS.get(language)
    return f"{line}; did you mean {meant}?" if meant else line


def are_paragraphs(lines: list[str]) -> bool:
    """Return whether lines are paragraphs or sentences, not wrapped text: most of them end like a sentence."""
    ends = sum(map(ends_sentence, lines[:-1]))  # the last line ends a sentence in wrapped text too
    return 2 * ends > len(lines) - 1
