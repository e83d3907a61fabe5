"""Where documents end in plain text, its lines with single spaces, and where English sentences plainly end; over 1 GB a second.

A line is plain if nothing in it can have a distant meaning (no unpaired quotation mark or bracket, no list marker, no address)
and each sentence-final mark is at the end of the line, before a letter or digit (3.5), or between a known word and a capital.
All other lines are marked for sentencex. Text must be UTF-8.
"""

import numpy as np

from bertprep.kernels import numbers as n
from bertprep.kernels.language import i64, i64_p, inlined, kernel, subroutine, u8_p, u64, u64_p
from bertprep.kernels.memory import copy_64, find_bytes, load_u64, trailing_zeros

_NEWLINE, _BLANK = 10, 32


def _packed(characters):
    """UTF-8 of each character as one number, the first byte highest."""
    return np.array([int.from_bytes(character.encode(), "big") for character in characters], np.int64)


_CLOSING, _ENDS = _packed(n.CLOSING_MARKS), _packed(n.SENTENCE_ENDS)
_FIRST_BYTES = np.array(
    [[(1 << 8 * min(max(size - 8 * k, 0), 8)) - 1 for k in range(3)] for size in range(n.ENDER_WIDTH + 1)], np.uint64
)
"""Masks for the first n bytes of a word in three numbers."""
_NOT_ROMAN = np.array([chr(b).isalpha() and chr(b).lower() not in "ivxlcdm" for b in range(128)])
"""Letters that are no Roman numerals."""
_newlines, _spaces = find_bytes((_NEWLINE, _NEWLINE)), find_bytes((_BLANK, _BLANK))
_other_white = find_bytes((0, 31), (0xC2, 0xC2), (0xE1, 0xE3))
"""What may be white space other than the space, or its first byte."""
_marks = find_bytes(
    (0, 31), (0x21, 0x22), (0x27, 0x29), (0x2E, 0x2E), (0x3C, 0x40), (0x5B, 0x5D), (0x60, 0x60), (0x7B, 0x7D), (0x7F, 0xFF)
)  # fmt: skip
"""What can matter to where a sentence ends: all but letters, digits, space, ~ and # $ % & * + , - / : ; ^ _"""


@subroutine
def _untidy(text, at):
    """Of the 64 bytes at text[at], those that may be needless white space, or its first byte."""
    spaces = _spaces(text, at)
    return _other_white(text, at) | (spaces & (spaces >> u64(1)))


@inlined
def _is_letter(byte):
    return 97 <= (byte | 32) <= 122


@inlined
def _is_digit(byte):
    return 48 <= byte <= 57


@inlined
def _is_alphanumeric(byte):
    return _is_letter(byte) or _is_digit(byte)


@inlined
def _is_quote(text, at, last):
    """Whether a curly quotation mark that ends with the byte `last` is at text[at]."""
    return text[at] == 0xE2 and text[at + 1] == 0x80 and text[at + 2] == last


@subroutine
def _white_bytes(text, at, end):
    """How many bytes the white space character at text[at] has, 0 if it is none: those for which `str.isspace` is true."""
    byte = i64(text[at])
    if byte < 0x80:
        return i64(byte == 32 or 9 <= byte <= 13 or 28 <= byte <= 31)
    if byte == 0xC2 and at + 1 < end:
        return 2 * i64(text[at + 1] == 0x85 or text[at + 1] == 0xA0)
    if at + 2 < end:
        rest = (i64(text[at + 1]) << 8) | i64(text[at + 2])
        if byte == 0xE1:
            return 3 * i64(rest == 0x9A80)
        if byte == 0xE2:
            return 3 * i64(0x8080 <= rest <= 0x808A or rest == 0x80A8 or rest == 0x80A9 or rest == 0x80AF or rest == 0x819F)
        if byte == 0xE3:
            return 3 * i64(rest == 0x8080)
    return i64(0)


@kernel
def find_gaps(text: u8_p, size: i64, gaps: i64_p) -> i64:
    """Write the start and end of each gap between documents in text[:size]; return how many. TEXT_SLACK bytes after may be
    read.
    """
    count, done = i64(0), i64(0)
    for block in range(0, size, 64):
        marks = _newlines(text, block)
        while marks != u64(0):
            start = block + trailing_zeros(marks)
            marks &= marks - u64(1)
            if start < done or start >= size:
                continue
            at, last = start + 1, start
            while at < size:
                white = _white_bytes(text, at, size)
                if white == 0:
                    break
                if text[at] == _NEWLINE:
                    last = at
                at += white
            if last > start:
                done = last + 1
                gaps[2 * count], gaps[2 * count + 1] = start, done
                count += 1
    return count


@subroutine
def _ends_sentence(text, start, end):
    """Whether text[start:end] ends with a sentence-final mark, closing marks aside: `text.sentences.ends_sentence`."""
    while end > start:
        at = end - 1
        character = i64(text[at])
        while at > start and text[at] & 0xC0 == 0x80 and end - at < 4:
            at -= 1
            character |= i64(text[at]) << 8 * (end - 1 - at)
        for mark in _ENDS:
            if character == mark:
                return True
        is_closing = False
        for mark in _CLOSING:
            is_closing = is_closing or character == mark
        if not is_closing:
            return False
        end = at
    return False


@subroutine
def _tidy(text, at, end, out, to):
    """Copy text[at:end] to out[to:] with single spaces, without blank lines; return the end, the lines, and how many but the
    last end like a sentence.
    """
    line_start = to
    lines, ends, last_ends = i64(0), i64(0), False
    while True:
        if at < end:
            if text[at] == _BLANK and (to == line_start or out[to - 1] == _BLANK):
                at += 1
                continue
            copy_64(out, to, text, at)
            run = min(trailing_zeros(_untidy(text, at)), end - at)
            at += run
            to += run
            if run == 64:
                continue
        byte = i64(text[at]) if at < end else i64(_NEWLINE)
        if byte == _NEWLINE:
            if to > line_start and out[to - 1] == _BLANK:
                to -= 1
            if to > line_start:
                lines += 1
                ends += i64(last_ends)
                last_ends = _ends_sentence(out, line_start, to)
                out[to] = _NEWLINE
                to += 1
                line_start = to
            if at >= end:
                return to, lines, ends
            at += 1
            continue
        white = _white_bytes(text, at, end)
        if white == 0:
            out[to] = byte
            to += 1
            at += 1
            continue
        if to > line_start and out[to - 1] != _BLANK:
            out[to] = _BLANK
            to += 1
        at += white


@subroutine
def _starts_like_item(text, at):
    """Whether the line at text[at] may be a list item: `-`, or letters and digits with a dot or bracket after them."""
    byte = i64(text[at])
    if byte == 0x2A or byte == 0x2B or byte == 0x2D:
        return True
    while _is_letter(i64(text[at])) or _is_digit(i64(text[at])):
        at += 1
    return text[at] == 0x2E or text[at] == 0x29


@subroutine
def _closes_plainly(text, start, at):
    """Whether the round bracket at text[at] follows a word that makes it no list marker such as a) (ii) 3)."""
    i = at - 1
    plain = False
    while i >= start and _is_letter(i64(text[i])):
        plain = plain or _NOT_ROMAN[text[i]]
        i -= 1
    return plain and at - 1 - i > 1


@subroutine
def _slot(words, low, middle, high):
    """The entry of a word in the table, or the free one where it would be."""
    hashed = low * u64(0x9E3779B97F4A7C15) ^ middle * u64(0xC2B2AE3D27D4EB4F) ^ high * u64(0x165667B19E3779F9)
    slot = i64((hashed * u64(0x9E3779B97F4A7C15)) >> u64(64 - n.ENDER_BITS))
    while True:
        entry = slot * n.ENDER_ENTRY
        if words[entry + 3] == u64(0) or (words[entry] == low and words[entry + 1] == middle and words[entry + 2] == high):
            return entry
        slot = (slot + 1) & ((1 << n.ENDER_BITS) - 1)


@subroutine
def _look_up(text, start, at, words, unknown, count, most):
    """What the table says of the word before text[at], 0 if nothing, and how many words it lacked so far."""
    first = at
    while first > start and text[first - 1] != _BLANK and text[first - 1] != _NEWLINE:
        first -= 1
        byte = text[first]
        if at - first > n.ENDER_WIDTH or byte == 0x2E or byte == 0x2F or byte == 0x22 or byte == 0x28:  # . / " (
            return i64(n.ENDER_ASK), count
    size = at - first
    if size < 2 or first == start:
        return i64(n.ENDER_ASK), count
    low = load_u64(text, first) & _FIRST_BYTES[size, 0]
    middle = load_u64(text, first + 8) & _FIRST_BYTES[size, 1]
    high = load_u64(text, first + 16) & _FIRST_BYTES[size, 2]
    entry = _slot(words, low, middle, high)
    if words[entry + 3] == u64(0) and count < most:
        unknown[3 * count], unknown[3 * count + 1], unknown[3 * count + 2] = low, middle, high
        count += 1
    return i64(words[entry + 3]), count


_PLAIN, _LACKS_WORD, _ASK = 0, 1, 2  # what is known of a line so far


@subroutine
def _cut(text, start, end, words, unknown, count, most):
    """End sentences in text[start:end] with newlines; lines for sentencex end with ASK_LINE. Returns the unknown words so
    far.
    """
    line_start, last_cut = start, i64(-1)
    line = i64(_ASK if _starts_like_item(text, start) else _PLAIN)
    in_brackets, in_straight, in_curly = False, False, False  # where a mark may be
    bracketed, straight, curly, held = False, False, False, False  # what the line has so far, and whether marks within it
    for block in range(start, end, 64):
        marks = _marks(text, block)
        while marks != u64(0):
            at = block + trailing_zeros(marks)
            marks &= marks - u64(1)
            if at >= end:
                break
            byte = i64(text[at])
            if byte == _NEWLINE:
                if at == last_cut:
                    continue
                if held and (in_brackets or in_straight or in_curly or (bracketed and (straight or curly))):
                    line = i64(_ASK)  # a mark was within what is never closed, or in pairs that may cross
                if line != _PLAIN:
                    for i in range(line_start, last_cut + 1):
                        if text[i] == _NEWLINE:
                            text[i] = _BLANK
                    text[at] = n.ASK_LINE
                line_start = at + 1
                line = i64(_ASK if line_start < end and _starts_like_item(text, line_start) else _PLAIN)
                in_brackets, in_straight, in_curly = False, False, False
                bracketed, straight, curly, held = False, False, False, False
                continue
            if line == _ASK or 0x80 <= byte < 0xC0:  # the first byte of a character has decided
                continue
            after = i64(text[at + 1])
            if byte == 0x2E or byte == 0x21 or byte == 0x3F:  # . ! ?
                if after == _NEWLINE:
                    continue
                before = i64(text[at - 1]) if at > line_start else i64(_BLANK)
                if byte == 0x2E and (97 <= after <= 122 or _is_digit(after) or after == 0x2C):
                    if not (_is_letter(before) or _is_digit(before)):
                        line = i64(_ASK)
                    continue
                is_quoted = in_straight or in_curly
                held = held or is_quoted or in_brackets
                next_at = at + 1
                if in_straight and after == 0x22:
                    next_at += 1
                elif in_curly and _is_quote(text, at + 1, 0x9D):
                    next_at += 3
                elif (is_quoted or in_brackets) and after == _BLANK and _is_alphanumeric(i64(text[at + 2])):
                    continue  # sentencex ends no sentence within
                closes = next_at > at + 1
                follower = i64(text[next_at + 1])
                if closes and text[next_at] == _NEWLINE:
                    continue
                if closes and text[next_at] == _BLANK and (97 <= follower <= 122 or _is_digit(follower)):
                    continue  # "So?" he said.
                if not closes and not is_quoted:
                    opener = next_at + 1
                    if follower == 0x22:
                        follower, held = i64(text[opener + 1]), True
                    elif _is_quote(text, opener, 0x9C):
                        follower, held = i64(text[opener + 3]), True
                found = i64(n.ENDER_ASK)
                if text[next_at] == _BLANK and _is_alphanumeric(follower) and (closes or not is_quoted) and not in_brackets:
                    found, count = _look_up(text, line_start, at, words, unknown, count, most)
                if found == n.ENDER_CUTS:
                    text[next_at] = _NEWLINE
                    last_cut = next_at
                elif found == n.ENDER_ASK:
                    line = i64(_ASK)
                else:
                    line = i64(_LACKS_WORD)
            elif byte == 0x22:  # "
                straight, in_straight = True, not in_straight
            elif byte == 0x27:  # '
                if at == line_start or not _is_letter(i64(text[at - 1])) or not _is_letter(after):
                    line = i64(_ASK)
            elif byte == 0x28:  # (
                in_brackets, bracketed = True, True
            elif byte == 0x29:  # )
                in_brackets = False
                if not _closes_plainly(text, line_start, at):
                    line = i64(_ASK)
            elif byte == 0xE2 and after == 0x80:
                third = i64(text[at + 2])
                if third == 0x9C:  # left double quotation mark
                    curly, in_curly = True, True
                elif third == 0x9D:  # right
                    in_curly = False
                elif third == 0x99:  # apostrophe
                    if at == line_start or not _is_letter(i64(text[at - 1])) or not _is_letter(i64(text[at + 3])):
                        line = i64(_ASK)
                elif third != 0x93 and third != 0x94:  # dashes
                    line = i64(_ASK)
            elif not (byte == 0x3D or byte == 0x7C or 0xC3 <= byte <= 0xC5):  # = | and Latin letters
                line = i64(_ASK)
            if straight and curly:
                line = i64(_ASK)
    return count


@kernel
def split_text(
    text: u8_p, document_ends: i64_p, documents: i64, mode: i64,
    words: u64_p, unknown: u64_p, most_unknown: i64,
    out: u8_p, unknown_count: i64_p,
) -> i64:  # fmt: skip
    """Write the documents to `out`, a blank line after each; return the bytes.

    Document i ends at text[document_ends[i]]; TEXT_SLACK bytes after the last may be read. `out` holds `text`, two bytes a
    document and TEXT_SLACK. Unless `mode` is LINES_ONLY, wrapped lines are joined. With CUT_PLAIN plain lines are split by the
    table `words`; others end with ASK_LINE, and `unknown` gets three numbers for each unknown word.
    """
    start, to, count = i64(0), i64(0), i64(0)
    for document in range(documents):
        end = document_ends[document]
        document_start = to
        to, lines, ends = _tidy(text, start, end, out, to)
        start = end
        if mode != n.LINES_ONLY and 2 * ends <= lines - 1:
            for i in range(document_start, to - 1):
                if out[i] == _NEWLINE:
                    out[i] = _BLANK
        if mode == n.CUT_PLAIN and to > document_start:
            count = _cut(out, document_start, to, words, unknown, count, most_unknown)
        out[to] = _NEWLINE
        to += 1
    unknown_count[0] = count
    return to


@kernel
def keep_enders(words: u64_p, added: u64_p, says: i64_p, count: i64) -> i64:
    """Enter `count` words of three numbers, with what the table is to say of each."""
    for i in range(count):
        entry = _slot(words, added[3 * i], added[3 * i + 1], added[3 * i + 2])
        words[entry], words[entry + 1], words[entry + 2] = added[3 * i], added[3 * i + 1], added[3 * i + 2]
        words[entry + 3] = u64(says[i])
    return count
