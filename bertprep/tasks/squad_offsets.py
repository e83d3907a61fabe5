"""Finds out why answers of SQuAD's layout do not stand at their `answer_start`, which counts the characters before them.

Tools count something else: UTF-8 bytes, UTF-16 units, words, or characters of a text whose blanks or line breaks they changed.
The cause that explains the most answers is named.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

from bertprep.tasks.squad import SquadData

_SHIFT = 32  # characters
_SAMPLE = 2000  # answers whose cause is looked for
Cause = Callable[[str, str, int], bool]


def _counts_bytes(context: str, answer: str, start: int) -> bool:
    return context.encode().startswith(answer.encode(), start)


def _counts_utf_16(context: str, answer: str, start: int) -> bool:
    return context.encode("utf-16-le").startswith(answer.encode("utf-16-le"), 2 * start)


def _counts_words(context: str, answer: str, start: int) -> bool:
    words, wanted = context.split(), answer.split()
    return words[start : start + len(wanted)] == wanted


def _counts_without_leading_blanks(context: str, answer: str, start: int) -> bool:
    return context != context.lstrip() and context.lstrip().startswith(answer, start)


def _counts_line_breaks_once(context: str, answer: str, start: int) -> bool:
    return "\r\n" in context and context.replace("\r\n", "\n").startswith(answer.replace("\r\n", "\n"), start)


def _counts_line_breaks_twice(context: str, answer: str, start: int) -> bool:
    return "\n" in context and context.replace("\n", "\r\n").startswith(answer.replace("\n", "\r\n"), start)


def _counts_single_spaces(context: str, answer: str, start: int) -> bool:
    return " ".join(context.split()).startswith(answer, start)


def _counts_composed(context: str, answer: str, start: int) -> bool:
    forms: tuple[Literal["NFC", "NFD", "NFKC"], ...] = ("NFC", "NFD", "NFKC")
    return any(
        not unicodedata.is_normalized(form, context + answer)
        and unicodedata.normalize(form, context).startswith(unicodedata.normalize(form, answer), start)
        for form in forms
    )


def _has_other_case(context: str, answer: str, start: int) -> bool:
    return context.casefold().startswith(answer.casefold(), start)


CAUSES: dict[str, Cause] = {
    "answer_start counts UTF-8 bytes": _counts_bytes,
    "answer_start counts UTF-16 units": _counts_utf_16,
    "answer_start counts words": _counts_words,
    "answer_start does not count the blanks at the beginning of the context": _counts_without_leading_blanks,
    r"answer_start counts \r\n as one character": _counts_line_breaks_once,
    r"answer_start counts \n as two characters": _counts_line_breaks_twice,
    "answer_start counts repeated blanks as one": _counts_single_spaces,
    "answer_start counts another Unicode normal form": _counts_composed,
    "the answers have other upper and lower case than the context": _has_other_case,
}
"""What is wrong with an answer_start, in words -> whether that explains where an answer stands in its context."""


def explain_offsets(data: SquadData, misplaced: Sequence[int]) -> str:
    """Return the likely cause for the questions whose answer is not at its answer_start."""
    sample = misplaced[:_SAMPLE]
    found: Counter[str] = Counter()
    for question in sample:
        context, start = data.contexts[data.paragraphs[question]], int(data.answer_starts[question])
        found.update(causes_of(context, data.answers[question][0], start))
    name, count = max(found.items(), key=lambda item: item[1])  # of equal ones the first, as CAUSES orders them
    return f"in {count:,} of {len(sample):,}, {name}"


def causes_of(context: str, answer: str, start: int) -> list[str]:
    """Return all causes that explain an answer, or else how far away the context has it.

    >>> causes_of("中文, Maus", "Maus", 8), causes_of("Ein Bär", "Bär", 5)
    (['answer_start counts UTF-8 bytes'], ['answer_start is 1 too large'])
    """
    if start >= 0 and (known := [name for name, explains in CAUSES.items() if explains(context, answer, start)]):
        return known
    if answer not in context:
        return ["the context does not contain the answer"]
    if start <= 0:
        return [f"answer_start is {'0, but the answer is further on' if start == 0 else 'negative'}"]
    near = [offset for offset in range(max(0, start - _SHIFT), start + _SHIFT) if context.startswith(answer, offset)]
    if not near:
        return [f"the context has the answer more than {_SHIFT} characters away"]
    shift = start - min(near, key=lambda offset: abs(offset - start))
    return [f"answer_start is {abs(shift)} too {'large' if shift > 0 else 'small'}"]
