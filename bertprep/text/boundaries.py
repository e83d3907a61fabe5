"""Finds where sentences end in paragraphs.

A mark of Unicode's Sentence_Terminal property ends a sentence, with the closing quotation marks, brackets and footnote marks
behind it. There is no state: a quotation mark or bracket that is never closed changes nothing. Marks that also stand inside a
sentence, such as the full stop, need a space behind them and then no small letter, and the word before them must not be an
abbreviation. Marks of other scripts, such as the ideographic full stop, end a sentence wherever they stand.

NumPy finds the marks of many paragraphs at once and decides about most of them: about those with a letter or a digit behind
them, about those with a space and a small letter, and about those between a usual word and a capital letter. Python decides
about the others, one by one. Both need a time that is linear in the length of the text.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from bertprep.text.abbreviations import Abbreviations, abbreviations_of
from bertprep.text.long_sentences import HEAVY, MAX_CHARACTERS, MAX_WORDS, SHORT, SHORT_WITHOUT_HEAVY, divide
from bertprep.text.scripts import (
    CLOSING,
    HAN,
    KANA,
    OPENING,
    OWN_STOPS,
    RARE_STOPS,
    SPACED_STOPS,
    THAI,
    VOWEL_SIGNS,
    codes_of,
    set_of,
    table_of,
)

_READ = 5
"""The number of last letters by which NumPy knows a word."""
_SPACED_MARKS = set_of(SPACED_STOPS)
_OPENING_MARKS = set_of(OPENING)
_CLOSING_APART = re.sub("[_*\u2018\u201c\u00ab\u2039]", "", CLOSING)
"""Without marks that rather open what follows."""
_CLOSES = f"(?!(?<=[\u3002\uff01\uff1f\u201d\u2019])[\u201c\u2018])[{CLOSING.replace('_*', '')}]|[_*](?![\\w.])"
"""Closing marks. The mark \u201c closes in German, but opens behind a stop of Chinese or another mark that closes."""
_MARKS = f"(?:{_CLOSES}|[{OWN_STOPS}{RARE_STOPS}]|[{SPACED_STOPS}](?!\\w)){{0,20}}"
_STOP = re.compile(
    f"[{OWN_STOPS}{RARE_STOPS}{SPACED_STOPS}]{_MARKS}(?:\\[(?:[0-9]{{1,3}}|[a-z])\\]{_MARKS})?(?: [{OWN_STOPS}]{_MARKS})?"
    f"(?: (?:[{_CLOSING_APART}]{{1,4}}|[:;=]['-]?[()DPp]{{1,4}})(?=[ \n]|$))?(?: |(?=\\S))"
)
"""A mark, those behind it, closing marks and smileys that a space separates from it, as in French, and the space behind all."""
_OWN_STOP = re.compile(f"[{OWN_STOPS}{RARE_STOPS}]")
_TAIL = re.compile("[^\\s\"'\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb\u2039\u203a(\\[{\u2013\u2014\u2015_*/]+$")
"""The last word of a string, without what stands before it."""
_LETTER = f"(?:[^\\W\\d_][{VOWEL_SIGNS}]*)"
_NEXT = re.compile(f"{_LETTER}+")
_NUMBER = re.compile("(?:[0-9]{1,3}|[A-Za-z])(?:\\.[0-9]{1,3})*|[IVXLC]{1,6}|[ivxl]{1,6}")
_CHAPTER = re.compile("[^\\W\\d_]+ ")
_NUMERAL = re.compile("[0-9]+|[IVXLC]+|[A-Z]")
_DOTTED = re.compile(f"-?{_LETTER}{{1,3}}(?:[.-]{{1,2}}{_LETTER}{{1,3}})+|[^\\W_]+-(?:{_LETTER}\\.)+{_LETTER}")
"""A word with a full stop inside, such as U.S, Ph.D, J.-H, pro-U.S or कि.मी."""
_NEVER = frozenset((
    "e.g", "i.e", "z.b", "d.h", "u.a", "o.ä", "i.d.r", "m.e", "т.е", "т.н", "т.к", "p.ex", "t.ex", "bl.a", "f.eks",
    "o.a", "i.a", "m.m", "d.v.s", "п.э", "п.е", "тј", "т.ј", "н.э", "н.е", "p.e", "t.j", "n.b",
))  # fmt: skip
"""Such words that no sentence ends with."""
_LAST_LETTERS = ("т. ", "и ")
_NO_START = frozenset(",;:.!?\u2026%)]}\u060c\u061b\u3001\uff0c\uff1b\uff1a\uff09\u300d\u300f\u3011\u300b")
"""Marks that do not begin a sentence."""
_THAI = re.compile(f"[{THAI}]")
_CJK = re.compile(f"[{HAN}{KANA}]")
_PARTICLE = re.compile(
    "と(?!ころ|にかく|ても|もあれ|もに)|って|など|という|の(?!ち)|を|が|に(?!も|わか)|は(?!い|じ)|へ|で(?!も|は|す|き|ご)|も(?!し|う|っと|ち|の)"
)
"""What follows a quotation inside a Japanese sentence."""


_IS_STOP = table_of(SPACED_STOPS + OWN_STOPS)
_IS_HEAVY = table_of(HEAVY)
_IS_LETTER = table_of("A-Za-z")
_IS_STOP[0xFFFF] = True  # Python decides
_IS_CLOSING = table_of(CLOSING)
_IS_OPENING = table_of("\"'\u2018\u201c\u201e\u00ab(\\[")
_IS_INSIDE = table_of("\\x00-\u03ff\u0400-\u052f") & ~(_IS_STOP | _IS_CLOSING | table_of(" \\["))
"""What stands inside a sentence behind a usual mark without a space: the characters of scripts that have spaces."""


class SentenceSplitter:
    """Splits paragraphs of a language; `divided` counts the sentences that were too long."""

    def __init__(self, language: str) -> None:
        self.divided = 0
        self._language = abbreviations_of(language)
        self._keys, self._are_titles = _keys_of(self._language)

    def split(self, paragraphs: Sequence[str], *, has_capitals: bool = True) -> list[str]:
        """Return the sentences of paragraphs, which have single spaces; an empty paragraph is one empty sentence.

        Without capital letters, a small letter begins a sentence.

        >>> SentenceSplitter("en").split(["(It is so. Mr. Jay said: “Go!” Then he went.¹ All did."])
        ['(It is so.', 'Mr. Jay said: “Go!”', 'Then he went.¹', 'All did.']
        """
        text = "\n".join(paragraphs)
        codes = codes_of(text, 8)  # what is read before the first character and behind the last one is read at the end
        ends, starts = self._find_ends(text, codes, has_capitals)
        sentences = [text[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        found: list[str] = []
        done = 0
        is_heavy = codes.dtype != np.uint8 and bool(_IS_HEAVY.take(codes).any())
        for index in np.flatnonzero(ends - starts > (SHORT if is_heavy else SHORT_WITHOUT_HEAVY)).tolist():
            sentence = sentences[index]
            if is_heavy or len(sentence) > MAX_CHARACTERS or sentence.count(" ") >= MAX_WORDS:
                parts = divide(sentence)
                self.divided += len(parts) > 1
                found += sentences[done:index]
                found += parts
                done = index + 1
        return found + sentences[done:]

    def _find_ends(
        self, text: str, codes: npt.NDArray[Any], has_capitals: bool
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the end and the start of each sentence."""
        if codes.dtype == np.uint8:
            is_stop = (codes == ord(".")) | (codes == ord("!")) | (codes == ord("?"))
        else:
            is_stop = _IS_STOP.take(codes)
        is_stop[1:] = is_stop[1:] & ~is_stop[:-1]  # the first of several
        stops = np.flatnonzero(is_stop)
        marks, after = codes[stops], codes[stops + 1]
        is_usual = (marks == ord(".")) | (marks == ord("!")) | (marks == ord("?"))
        spaces = stops + 1 + _IS_CLOSING[after]
        has_space = codes[spaces] == ord(" ")
        first = codes[spaces + 1]
        letter = np.where(_IS_OPENING[first], codes[spaces + 2], first)
        is_small = _between("a", first, "z") & has_capitals
        # no mark stands at an end of a paragraph, before a small letter, or before a letter, a digit or a dash without a space
        never = (
            (codes[spaces] == ord("\n"))
            | (codes[stops - 1] == ord("\n"))
            | (is_usual & ((has_space & is_small) | _IS_INSIDE[after]))
        )
        before_capital = is_usual & has_space & _between("A", letter, "Z") & ~never
        sure = before_capital & (marks != ord("."))
        dots = np.flatnonzero(before_capital & (marks == ord(".")))
        is_end, is_title = self._judge_words(codes, stops[dots])
        sure[dots] = is_end
        never[dots] |= is_title & (spaces[dots] == stops[dots] + 1)
        doubtful = stops[~(sure | never)]
        lines = np.flatnonzero(codes[: len(text)] == ord("\n"))
        known = np.sort(np.concatenate([spaces[sure], lines]))
        before = np.concatenate([[0], known + 1])[np.searchsorted(known, doubtful)]
        decided = np.array(self._decide(text, doubtful.tolist(), before.tolist(), has_capitals), np.int64).reshape(-1, 2)
        ends = np.concatenate([known, decided[:, 0], [len(text)]])
        starts = np.concatenate([known + 1, decided[:, 1], [len(text) + 1]])
        order = np.argsort(ends, kind="stable")
        return ends[order], np.concatenate([[0], starts[order][:-1]])

    def _judge_words(
        self, codes: npt.NDArray[Any], stops: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Return of each full stop before a capital letter whether it ends a sentence, and whether the word is a title.

        Neither is certain of a word that may be an abbreviation, or has other characters than ASCII letters.
        """
        keys = np.zeros(len(stops), np.uint64)
        counts = np.zeros(len(stops), np.int64)
        goes_on = np.ones(len(stops), np.bool_)
        for distance in range(1, _READ + 1):
            letters = codes[stops - distance]
            is_letter = goes_on & _IS_LETTER.take(letters)
            keys |= np.where(is_letter, letters.astype(np.uint64) << np.uint64(8 * (distance - 1)), np.uint64(0))
            counts += is_letter
            counts[goes_on & ~is_letter & (letters != ord(" ")) & (letters != ord("\n"))] = -_READ  # another character
            goes_on = is_letter
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        is_listed = self._keys[place] == keys
        return (counts > 1) & ~is_listed, (counts > 1) & (counts < _READ) & is_listed & self._are_titles[place]

    def _decide(self, text: str, stops: list[int], starts: list[int], has_capitals: bool) -> list[tuple[int, int]]:
        """Return the end of each sentence that ends at one of the doubtful `stops`, and the start of the next.

        Before each, the last known start of a sentence is in `starts`.
        """
        titles, words = self._language.titles, self._language.words
        found: list[tuple[int, int]] = []
        last = 0
        for stop, start in zip(stops, starts, strict=True):
            if stop < last:
                continue
            if text[stop] == "." and text[stop + 1 : stop + 2] == " ":  # most of them
                word = text[max(0, stop - 40) : stop].rpartition(" ")[2]
                if word in titles:
                    continue
                if text[stop + 2].isupper() and len(word) > 1 and word.isalpha() and word not in words:
                    last = stop + 2
                    found.append((stop + 1, last))
                    continue
            match = _STOP.match(text, stop)
            if match is None or (end := match.end()) >= len(text):
                continue
            if self._ends(text, max(start, last), stop, end, has_capitals):
                last = end
                found.append((end - 1 if text[end - 1] == " " else end, end))
        return found

    def _ends(self, text: str, start: int, stop: int, end: int, has_capitals: bool) -> bool:
        """Return whether the sentence from `start` ends with the marks from `stop` to `end`."""
        mark, first, position = text[stop], text[end], end
        if mark not in _SPACED_MARKS or (mark != "." and _OWN_STOP.search(text, stop, end)):
            is_number = mark == "．" and text[stop - 1 : stop].isdigit() and first.isdigit()
            return not (is_number or first in _NO_START or _PARTICLE.match(text, end))
        if text[end - 1] != " ":
            is_inside = mark not in "!?" or not _CJK.match(text, stop - 1) or not _CJK.match(text, end)
            return not (is_inside or _PARTICLE.match(text, end))
        while first in _OPENING_MARKS and position + 1 < len(text):
            position += 1
            first = text[position]
        is_item = text[position - 1] in "([" and text[position + 1 : position + 2] in (")", "]")
        if (has_capitals and first.islower() and not is_item) or (
            first in _NO_START and not text[position + 1 : position + 2].isalpha()
        ):
            return False
        if mark != "." or text[stop + 1] == ".":
            return True
        return not self._is_abbreviation(text, start, stop, position)

    def _is_abbreviation(self, text: str, start: int, stop: int, after: int) -> bool:
        """Return whether the full stop at `stop` belongs to the word before it; the next word begins at `after`."""
        language = self._language
        start = max(start, stop - 100)  # far enough, and the time stays linear
        start = max(start, text.rfind("\n", start, stop) + 1)
        begin = max(text.rfind(" ", start, stop) + 1, start)
        if (found := _TAIL.search(text[begin:stop])) is None:
            return False
        word, before = found[0], text[start:begin]
        small = word.lower()
        if small in language.titles or small in _NEVER or _THAI.match(word[-1]):
            return True
        if _NUMBER.fullmatch(word) and (len(before) < 3 or _CHAPTER.fullmatch(before)):
            return True  # that of a list's item, a heading or a figure
        following = _NEXT.match(text, after)
        next_word = following[0] if following else ""
        if small in language.numbered and (text[after : after + 1].isnumeric() or _NUMERAL.fullmatch(next_word)):
            return True
        is_initial = len(next_word) == 1 and text[after + 1 : after + 2] == "."
        if next_word.lower() in language.starters and not is_initial:
            return False
        if small in language.others:
            return True
        if len(word) == 1 and word.isalpha():  # not with a vowel sign: है is a word
            if before.endswith(_LAST_LETTERS) and small in "дпкe":
                return False
            return word != "I" or (before[:1].isupper() and before.split()[-1][:1].isupper())
        if word.isdigit() or _NUMERAL.fullmatch(word):
            return language.has_ordinals and len(word) < 4 and next_word[:1].isalpha()
        return _DOTTED.fullmatch(word) is not None


def _between(first: str, codes: npt.NDArray[Any], last: str) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = (codes >= ord(first)) & (codes <= ord(last))
    return found


@cache
def _keys_of(language: Abbreviations) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """Return the keys of the abbreviations of a language, in order, and which of them are those of titles."""
    titles = {_key_of(word) for word in language.titles}
    keys = sorted({_key_of(word) for word in language.words})
    return np.array(keys, np.uint64), np.array([key in titles for key in keys])


def _key_of(word: str) -> int:
    """Return the key of `_read_words` for a word."""
    return int.from_bytes(word[-_READ:].encode("latin-1", "replace"), "big")
