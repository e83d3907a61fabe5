r"""Makes paragraphs of the lines of a document: joins lines that were wrapped, and drops what belongs to a page.

A blank line ends a paragraph. The lines between blank lines are wrapped if they reach nearly the same width, at most
`MAX_WIDTH`: the first word of the next line would not have fit. Any other line is a paragraph of its own: a heading, an item
of a list, a verse. In one block a heading may stand above wrapped lines, so each line break is judged, by the lines of the
whole block and by those of the whole document.
"""

from __future__ import annotations

import bisect
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from bertprep.text.scripts import CLOSING, UNSPACED, codes_of, set_of, table_of

MAX_WIDTH = 120
"""Longer lines are not wrapped; a character of full width counts as two."""
_LEAST_WIDTH = 30
"""Shorter lines are not wrapped, unless they continue with a small letter."""
_SLACK = 14
"""By how much wrapped lines differ in width, in most blocks."""
_PEAK, _MANY_LINES, _FEW_LINES = 8, 5, 20
"""A document is wrapped where a fifth of its lines reach a width to within eight columns, and at most a twentieth exceed it."""
_SAMPLED_BLOCKS = 32
_WIDE = re.compile(
    "[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\ua960-\ua97f\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\U0001f300-\U0003ffff]"
)
_BREAK_WITHOUT_SPACE = re.compile(f"(?<=[{UNSPACED}])\\s*\n\\s*(?=[{UNSPACED}])")
_HYPHENS = "-\u2010\u00ad\u00ac"
_HYPHENATED = re.compile(rf"[{_HYPHENS}](?<=[^\W\d_].)\n\s*(?=([^\W_]{{1,40}}))")
_LETTERS_BEFORE = re.compile(r"[^\W\d_]+$")
_CONTINUED = "\x0c"
"""Ends the last line of a page whose sentence goes on; it counts as white space."""
_ALSO_JOINING = _HYPHENS + _CONTINUED
_SUSPENDED = frozenset((
    "and", "or", "to", "und", "oder", "bis", "sowie", "bzw", "et", "ou", "y", "o", "e", "ed", "en", "of", "och",
    "eller", "og", "i", "a", "и", "или", "lub", "oraz",
))  # fmt: skip
"""Words before which a hyphen stays at the end of its word, as in `pre- and postwar`."""
_FIRST = re.compile(r"[\s\"'“”‘’„«»(\[{¿¡_*]{0,40}([^\s\"'“”‘’„«»(\[{¿¡_*])")
_FIRST_WORD = re.compile(f"\\s*([^\\s{_WIDE.pattern[1:-1]}]+|..?)")
_ITEM_BELOW = re.compile(r"\n[ \t]*(?:(?:[-*+•◦▪·‣]|[0-9]{1,3}[.)])[ \t]|[|│┃┌├└┏┣┗╔║╠╚+─━═┼])")
_ITEM = re.compile(r"\s*(?:[-*+•◦▪·‣–—]|\(?(?:[0-9]{1,3}|[A-Za-z]|[ivxIVX]{1,5})[.)]|\[[0-9]+\])\s")
_LONGEST_VERSE = 90
_NUMBER_WIDTH, _HEAD_WIDTH = 24, 80
_IS_SPACE = table_of(r"\s") & ~table_of(r"\n")
_IS_HYPHEN = table_of(_HYPHENS)
_TABLE = "|│┃┌├└┏┣┗╔║╠╚+─━═┼"
"""What begins a line of a table."""
_MAY_BEGIN_ITEM = table_of(f"-*+•◦▪·‣0-9\\t{_TABLE}")
_IS_UNSPACED = table_of(UNSPACED)
_MORE_WIDTH = table_of(_WIDE.pattern[1:-1]).astype(np.int8) + np.int8(7) * table_of("\\t")
"""By how much a character is wider than one column; a tab is about eight columns."""
_ENDS = frozenset(".!?…:‽。．！？｡।॥؟۔։።။៕។་།")
_CLOSING = "".join(set_of(CLOSING))
_INNER_WORD = re.compile(r"(?<=[\w,;] )[^\W\d_]")
_FIRST_LETTER = re.compile(r"[^\W\d_]")
_PAGE_NUMBER = (
    r"(?:[Pp]age |[Ss]eite |[Pp]\. ?)?[-–—\[(|~*]*[^\S\n]?([0-9]{1,4}|[ivxlc]{1,7})[^\S\n]?[-–—\])|~*]*"
    r"(?: (?:of|von|/) [0-9]{1,4})?"
)
_ODD_SPACES = [*filter(str.isspace, map(chr, range(0x3001)))]
_ODD_SPACES.remove(" ")
_ODD_SPACES.remove("\n")
_IS_NUMBER_LINE = re.compile(rf"\s*{_PAGE_NUMBER}\s*")
_HAS_ONLY_DIGITS = re.compile(r"[^\W\d_]{0,5}[\W_]*[0-9]{1,4}[\W_]*$")
_HEAD_NUMBER = re.compile(rf"^(?:{_PAGE_NUMBER}(?=\s)|\[[^\]]*\])|(?:(?<=\s){_PAGE_NUMBER}|\[[^\]]*[0-9]\])$")


@dataclass
class Counts:
    """What was changed in documents beside white space, and what was too long."""

    joined_words: int = 0
    kept_hyphens: int = 0
    page_numbers: int = 0
    running_heads: int = 0
    form_feeds: int = 0
    divided_sentences: int = 0
    long_lines: int = 0


@dataclass(frozen=True)
class _Lines:
    """The lines of a text with single spaces: where each begins and ends, its first and last character.

    `widths` are those on a terminal with the spaces that the lines had, such as their indentation.
    """

    text: str
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    widths: npt.NDArray[np.int64]
    firsts: npt.NDArray[Any]
    lasts: npt.NDArray[Any]
    has_unspaced: bool

    @classmethod
    def of(cls, text: str) -> _Lines:
        codes = codes_of(text, 1)
        are_ends = codes == ord("\n")
        ends = np.flatnonzero(are_ends)
        starts = np.concatenate([[0], ends[:-1] + 1])
        widths = ends - starts
        has_unspaced = not text.isascii() and bool(_IS_UNSPACED.take(codes).any())
        if has_unspaced or "\t" in text:
            more = np.concatenate([[0], np.cumsum(_MORE_WIDTH.take(codes), dtype=np.int32)])
            widths = widths + more[ends] - more[starts]
        spaces = codes == ord(" ")
        surplus = np.concatenate([spaces[:1], spaces[1:] & (spaces | are_ends)[:-1]])
        if surplus.any():
            text, codes = _without(text, codes, surplus)
            ends = np.flatnonzero(codes == ord("\n"))
            starts = np.concatenate([[0], ends[:-1] + 1])
        return cls(text, starts, ends, widths, codes[starts], codes[ends - 1], has_unspaced)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return self.ends - self.starts

    def select(self, chosen: npt.NDArray[np.bool_]) -> list[str]:
        return [
            self.text[start:end] for start, end in zip(self.starts[chosen].tolist(), self.ends[chosen].tolist(), strict=True)
        ]


def _without(text: str, codes: npt.NDArray[Any], surplus: npt.NDArray[np.bool_]) -> tuple[str, npt.NDArray[Any]]:
    """Return a text without surplus spaces, and its code points."""
    left = codes[~surplus]
    if codes.dtype == np.uint8:
        return left[:-1].tobytes().decode("latin-1"), left
    if (codes == 0xFFFF).any():  # stands for characters of other planes
        chosen = np.frombuffer(f"{text}\n".encode("utf-32-le", "surrogatepass"), np.uint32)[~surplus]
        return chosen[:-1].tobytes().decode("utf-32-le", "surrogatepass"), left
    return left[:-1].tobytes().decode("utf-16-le", "surrogatepass"), left


def find_paragraphs(text: str, counts: Counts) -> list[str]:
    """Return the paragraphs of a document, with single spaces; what else is changed is added to `counts`."""
    return _Document(text, counts).paragraphs() if "\n" in text or "\r" in text else [*filter(None, [with_single_spaces(text)])]


def _without_space_at_end(line: str) -> str:
    return line.rstrip() if "\x0c" not in line else line.rstrip(" \t")  # a form feed ends a page


class _Document:
    """A document as lines, and the width at which most of them are wrapped."""

    def __init__(self, text: str, counts: Counts) -> None:
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = _Lines.of(text)
        if _IS_SPACE.take(lines.lasts).any():
            lines = _Lines.of("\n".join(map(_without_space_at_end, text.split("\n"))))
        short = lines.select((lines.lengths > 0) & (lines.lengths <= _NUMBER_WIDTH))
        if "\x0c" in text or sum(_HAS_ONLY_DIGITS.match(line) is not None for line in short) > 2:
            lines = _Lines.of(drop_page_ends(lines.text, counts))
        self._lines, self._counts = lines, counts
        self._width = 0

    def paragraphs(self) -> list[str]:
        """Return the paragraphs, with single spaces."""
        text, lines = self._lines.text, self._lines
        edges = np.flatnonzero(np.diff(np.concatenate([[False], lines.lengths > 0, [False]])))
        starts, ends = edges[::2], edges[1::2]  # the first line of each block, and the line behind it
        found: list[str] = []
        done = 0
        for first, last in self._find_doubtful(starts, ends) if len(starts) else []:
            start, end = lines.starts[first], lines.ends[last - 1]
            found += self._unwrap(text[done:start])
            found += [self._join(each) if "\n" in each else each for each in self._divide(text[start:end].split("\n"), first)]
            done = end
        found += self._unwrap(text[done:])
        if any(space in text for space in _ODD_SPACES):
            found = [*map(with_single_spaces, found)]
        return [*filter(None, found)]

    def _find_doubtful(self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
        """Return the first line of each block that needs a closer look, and the line behind it.

        The others have one line, or all their lines but the last reach nearly the width of the document. So it is with most of
        a book, and NumPy finds them. Blocks with a hyphen at the end of a line, or an item of a list, are doubtful too.
        """
        sizes = ends - starts
        lines = self._lines
        of_lines = lines.widths[lines.lengths > 0]
        first = np.cumsum(sizes) - sizes
        is_last = np.zeros(len(of_lines), np.bool_)
        is_last[first + sizes - 1] = True
        most = np.maximum.reduceat(of_lines, first)
        least = np.minimum.reduceat(np.where(is_last, MAX_WIDTH, of_lines), first)
        self._width = self._find_width(starts, ends, of_lines[np.repeat(sizes > 1, sizes)])
        is_plain = (least >= self._width - _SLACK) & (most >= self._width - _SLACK // 2) & (most <= self._width + _SLACK)
        is_plain &= (self._width > 0) & (most <= MAX_WIDTH)
        special = _IS_HYPHEN.take(lines.lasts) | _MAY_BEGIN_ITEM.take(lines.firsts)
        of_special = np.unique(np.searchsorted(starts, np.flatnonzero(special & (lines.lengths > 0)), side="right") - 1)
        for block in of_special[is_plain[of_special]].tolist():
            of_block = lines.text[lines.starts[starts[block]] : lines.ends[ends[block] - 1]]
            is_plain[block] &= not (_HYPHENATED.search(of_block) or _ITEM_BELOW.search(of_block))
        doubtful = np.flatnonzero(~is_plain & (sizes > 1))
        return [*zip(starts[doubtful].tolist(), ends[doubtful].tolist(), strict=True)]

    def _find_width(self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], widths: npt.NDArray[np.int64]) -> int:
        """Return the width at which the document is wrapped, or 0: the one that many lines reach and hardly any exceeds.

        `widths` are those of the lines of blocks of several lines. Verse and lists have none.
        """
        counts = np.cumsum(np.bincount(np.minimum(widths, MAX_WIDTH + 1), minlength=MAX_WIDTH + 2))
        reached = counts - np.concatenate([np.zeros(_PEAK, np.int64), counts[:-_PEAK]])  # lines of the last so many widths
        are_peaks = (_MANY_LINES * reached >= counts[MAX_WIDTH]) & (reached > 2)
        are_peaks[:_LEAST_WIDTH] = are_peaks[MAX_WIDTH + 1] = False
        if not are_peaks.any():
            return 0
        width = int(np.searchsorted(counts, 0.98 * counts[np.flatnonzero(are_peaks)[-1]]))
        if _FEW_LINES * (counts[MAX_WIDTH] - counts[width]) > counts[MAX_WIDTH]:
            return 0
        breaks: list[_Break] = []
        chosen = np.flatnonzero(ends - starts > 1)
        for block in chosen[:: len(chosen) // _SAMPLED_BLOCKS + 1].tolist():
            first, last = starts[block], ends[block]
            lines = self._lines.text[self._lines.starts[first] : self._lines.ends[last - 1]].split("\n")
            for line, after, of_line in zip(lines, lines[1:], self._lines.widths[first:last].tolist(), strict=False):
                if width - _SLACK <= of_line <= width:
                    breaks.append(_Break.between(line, after))
        return 0 if width < _LONGEST_VERSE and _are_verses(breaks) else width

    def _unwrap(self, text: str) -> list[str]:
        """Return the blocks of a text, each as one line."""
        blocks = text.split("\n\n")
        if self._lines.has_unspaced:
            blocks = [_BREAK_WITHOUT_SPACE.sub("", block) for block in blocks]
        return [block.strip("\n").replace("\n", " ") for block in blocks]

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(re.findall(r"[^\W\d_]+", self._lines.text.lower()))

    def _divide(self, lines: Sequence[str], first: int) -> Iterator[str]:
        """Yield the paragraphs of a block, whose first line has the number `first`: each is a line, or wrapped lines."""
        widths = self._lines.widths[first : first + len(lines)].tolist()
        runs: list[list[int]] = [[]]
        has_long = False
        for index, width in enumerate(widths):
            if width > MAX_WIDTH:
                runs += [[index], []]
                has_long = True
            else:
                runs[-1].append(index)
        for run in filter(None, runs):
            chosen = [lines[index] for index in run]
            paragraph = chosen[0]
            for line, joins in zip(
                chosen[1:], self._find_joins(chosen, [widths[index] for index in run], has_long), strict=True
            ):
                if joins:
                    paragraph += f"\n{line}"
                else:
                    yield paragraph
                    paragraph = line
            yield paragraph

    def _find_joins(self, lines: Sequence[str], widths: Sequence[int], has_long: bool) -> list[bool]:
        """Return for each line but the last whether the next one continues it; `has_long` if the block has unwrapped lines."""
        if len(lines) == 1:
            return []
        if has_long and len(lines) < 4 and not any(line[-1] in _ALSO_JOINING for line in lines[:-1]):
            return [False] * (len(lines) - 1)
        widest = max(widths)
        is_near = bool(self._width) and widest >= self._width - _SLACK // 2 and not has_long
        if is_near:
            widest = max(widest, self._width)
        breaks = [_Break.between(line, after) for line, after in pairwise(lines)]
        full = [width + 1 + each.word > widest for width, each in zip(widths[:-1], breaks, strict=True)]
        share = sum(full) / len(full)
        has_letters = any(each.first.islower() or each.first.isupper() for each in breaks if not each.is_end)
        are_verses = widest < _LONGEST_VERSE and _are_verses(breaks)
        if widest < _LEAST_WIDTH:
            is_wrapped = False
        elif has_long:
            is_wrapped = len(lines) > 3 and share >= 0.8 and has_letters and not are_verses
        elif is_near:
            is_wrapped = share >= 0.5 or (has_letters and not are_verses)
        elif has_letters:
            is_wrapped = share >= 0.5 and not are_verses
        else:
            is_wrapped = share >= 0.7 and (len(lines) > 2 or widest >= 2 * _LEAST_WIDTH)
        items = sum(each.is_item for each in breaks)
        joins = []
        for width, each, is_full in zip(widths[:-1], breaks, full, strict=True):
            continues = each.first.islower() and not each.is_end
            if each.is_table or (each.is_item and (items > 1 or each.is_end or not is_full)):
                joins.append(False)
            elif each.is_continued or (each.is_hyphen and each.first.islower()):
                joins.append(True)
            elif is_wrapped:
                is_nearly_full = (continues and 2 * width >= widest) or (is_near and 4 * width >= 3 * widest)
                joins.append(is_full or (is_nearly_full and not each.is_end))
            else:
                joins.append(is_full and continues and widest >= _LEAST_WIDTH and not are_verses)
        return joins

    def _join(self, paragraph: str) -> str:
        """Return wrapped lines as one."""
        if _HYPHENATED.search(paragraph):
            paragraph = _HYPHENATED.sub(self._join_word, paragraph)
        if self._lines.has_unspaced:
            paragraph = _BREAK_WITHOUT_SPACE.sub("", paragraph)
        return paragraph.replace("\n", " ")

    def _join_word(self, match: re.Match[str]) -> str:
        """Return what joins the two parts of a divided word: nothing, or a hyphen that may belong to the word."""
        hyphen, end = match[0][0], match[1]
        if end.lower() in _SUSPENDED:
            return f"{hyphen} "
        begin = _LETTERS_BEFORE.search(match.string[max(0, match.start() - 40) : match.start()])
        if hyphen == "\u00ad" or (begin and (begin[0] + end).lower() in self._words):
            self._counts.joined_words += 1
            return ""
        self._counts.kept_hyphens += 1
        return hyphen


@dataclass(frozen=True)
class _Break:
    """A line break: whether the line before ends a sentence or a part of a word, and how the line behind begins."""

    is_end: bool
    is_continued: bool
    is_hyphen: bool
    is_item: bool
    is_table: bool
    first: str
    word: int  # the width of the first word behind it
    line: str

    @classmethod
    def between(cls, line: str, after: str) -> _Break:
        found = _FIRST_WORD.match(after)
        word = found[1] if found else ""
        return cls(
            is_end=ends_paragraph(line),
            is_continued=line.endswith(_CONTINUED),
            is_hyphen=_has_hyphen(line),
            is_table=line[:1] in _TABLE or after[:1] in _TABLE,
            is_item=_ITEM.match(after) is not None,
            first=_first_of(after),
            line=line,
            word=len(word) + (0 if word.isascii() else len(_WIDE.findall(word))),
        )


def _are_verses(breaks: Sequence[_Break]) -> bool:
    """Return whether lines begin with capital letters, inside of sentences, far more often than other words do."""
    firsts = [each.first for each in breaks if not each.is_end]
    small, capital = sum(map(str.islower, firsts)), sum(map(str.isupper, firsts))
    if capital <= 0.4 * (small + capital):
        return False
    inside = [letter for each in breaks for letter in _INNER_WORD.findall(each.line)]
    return capital > (small + capital) * (0.4 + sum(map(str.isupper, inside)) / max(1, len(inside)))


def _has_hyphen(line: str) -> bool:
    return line[-1:] in _HYPHENS and line[-2:-1].isalpha()


def ends_paragraph(line: str) -> bool:
    """Return whether a line ends with a mark that ends a sentence, or a colon, not counting closing marks."""
    return line.rstrip(_CLOSING)[-1:] in _ENDS


def _first_of(line: str) -> str:
    """Return the first character of a line that is no mark of punctuation, if one comes soon."""
    found = _FIRST.match(line)
    return found[1] if found else ""


def with_single_spaces(line: str) -> str:
    """Return a line with single spaces in place of white space."""
    # only the space is printable white space: most lines pass this test, which is five times as fast as splitting them
    if not line.isprintable():
        return " ".join(line.split())
    while "  " in line:
        line = line.replace("  ", " ")
    return line.strip(" ")


def drop_page_ends(text: str, counts: Counts) -> str:
    r"""Return a text without its form feeds, page numbers and running heads, with the sentences around them joined.

    Page numbers stand next to form feeds, or follow one another through text that they interrupt. A running head is a line next
    to several ends of pages, or one that interrupts a sentence.

    >>> drop_page_ends("The house and\n12\n\x0cTHE BOOK OF DAYS\n\nthe tree.", counts := Counts())
    'The house and\x0c\nthe tree.'
    >>> counts.page_numbers, counts.running_heads, counts.form_feeds
    (1, 1, 1)
    """
    lines = text.replace("\x0c", "\n\x0c\n").split("\n")
    filled = [index for index, line in enumerate(lines) if line == "\x0c" or not _is_blank(line)]
    order = {index: place for place, index in enumerate(filled)}
    feeds = [index for index in filled if lines[index] == "\x0c"]
    numbers = _find_page_numbers(lines, filled, order)
    marks = sorted({*feeds, *numbers})
    if not marks:
        return text
    dropped = set(marks)
    beside: dict[int, str] = {}
    kept = [index for index in filled if index not in dropped]
    for mark in marks:
        place = bisect.bisect(kept, mark)
        for index in kept[max(0, place - 1) : place + 1]:
            if len(line := lines[index].strip()) <= _HEAD_WIDTH:
                words = _HEAD_NUMBER.sub("", line).split()
                beside[index] = " ".join(words if len(words) > 1 else line.split()).lower()  # Chapter 1 is not Chapter 2
    repeated = Counter(key for key in beside.values() if len(key) > 2 and _FIRST_LETTER.search(key))
    heads = {index for index, key in beside.items() if repeated[key] > (3 if ends_paragraph(key) else 1)}
    dropped |= heads
    lone = _find_lone_heads(lines, [index for index in kept if index not in dropped], feeds)
    heads |= lone
    counts.form_feeds += len(feeds)
    counts.page_numbers += len(numbers)
    counts.running_heads += len(heads)
    dropped |= lone
    width = statistics.median(len(lines[index]) for index in filled)
    left: list[str] = []
    is_break = False
    last = ""
    waiting: list[str] = []
    for index, line in enumerate(lines):
        if index in dropped:
            is_break = True
        elif _is_blank(line):
            waiting.append(line)
        else:
            if not is_break:
                left += waiting
            elif last and _continues(last, line, width):
                left[-1] += "" if _has_hyphen(last) else _CONTINUED
            elif last:
                left.append("")
            left.append(line)
            last, is_break = line, False
            waiting.clear()
    return "\n".join(left)


def _is_blank(line: str) -> bool:
    return not line or line.isspace()


def _continues(line: str, after: str, width: float) -> bool:
    """Return whether a sentence goes on from the last line of a page to the first of the next one."""
    return not ends_paragraph(line) and (_first_of(after).islower() or 5 * len(line) >= 4 * width)


def _find_page_numbers(lines: Sequence[str], filled: Sequence[int], order: dict[int, int]) -> set[int]:
    """Return the indices of lines that are page numbers."""
    found, row = set(), list[tuple[int, int]]()
    rows = [row]
    for index in filled:
        if not (match := _IS_NUMBER_LINE.fullmatch(lines[index])):
            continue
        place = order[index]
        if "\x0c" in (lines[each] for each in filled[max(0, place - 1) : place + 2]):
            found.add(index)
        elif match[1].isdigit():
            number = int(match[1])
            if not row or number - row[-1][0] not in (1, 2):
                row = []
                rows.append(row)
            row.append((number, index))
    for row in rows:
        places = [order[index] for _, index in row]
        interrupts = sum(place > 0 and not ends_paragraph(lines[filled[place - 1]]) for place in places)
        is_far = all(after - before > 5 for before, after in pairwise(places))
        if len(row) > 2 and is_far and 3 * interrupts >= len(row):
            found.update(index for _, index in row)
    return found


def _find_lone_heads(lines: Sequence[str], kept: Sequence[int], feeds: Sequence[int]) -> set[int]:
    """Return the indices of lines below a form feed that stand in the middle of a sentence."""
    found = set()
    for feed in feeds:
        place = bisect.bisect(kept, feed)
        if 0 < place < len(kept) - 1 and not ends_paragraph(lines[kept[place - 1]]):
            head, after = lines[kept[place]], lines[kept[place + 1]]
            is_apart = kept[place + 1] - kept[place] > 1 or head.isupper()
            is_head = len(head) <= _HEAD_WIDTH and not _first_of(head).islower() and not ends_paragraph(head)
            if is_apart and is_head and _first_of(after).islower():
                found.add(kept[place])
    return found
