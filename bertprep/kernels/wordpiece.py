"""BERT's tokenizer, from UTF-8 text to WordPiece ids, at about 300 MB of English text per second.

One vector comparison finds a run of up to 15 ASCII letters and digits, which is then looked up in a cache of words. Other text
goes code point by code point through the table of `instances.unicode_table`, and its words are then matched in a trie, longest
piece first.
"""

import numpy as np

from bertprep.kernels import numbers as n
from bertprep.kernels.language import i32_p, i64, i64_p, inlined, kernel, struct, subroutine, u8_p, u32_p, u64, u64_p
from bertprep.kernels.memory import copy_16, find_bytes, load_u64, store_u64, trailing_zeros

CACHED_BYTES = 15
CACHED_IDS = 4
COUNT_SHIFT = 56  # the sixteenth byte of a cached word is its number of ids
CHILD, TOKEN = 1, 2  # numbers in a step of the trie

_LOW_BYTES = np.array([(1 << 8 * min(n, 8)) - 1 for n in range(CACHED_BYTES + 1)], np.uint64)
_HIGH_BYTES = np.array([(1 << 8 * max(n - 8, 0)) - 1 for n in range(CACHED_BYTES + 1)], np.uint64)
"""Masks that keep the first n bytes of a word, which is in two numbers."""
_WORD, _CONTINUATION = 0, 1  # the trie's two roots: for the first piece of a word, and for the others
_NEWLINE, _BLANK_SPACE, _HASH = 10, 32, 35
_letters_and_digits = find_bytes((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A))

Tables = struct(
    {"trie": "TRIE_STEP * (mask + 1)", "cache": "CACHE_ENTRY << CACHE_BITS", "word": "WORD_BUFFER_SIZE"},
    entries=u32_p, replacements=u8_p,  # see `instances.unicode_table`
    lower=i64, unknown=i64, longest=i64,  # a word of more than `longest` code points becomes [UNK]
    trie=i32_p, mask=i64,  # see `build_trie`
    cache=u64_p,  # CACHE_ENTRY << CACHE_BITS numbers, zeros at first
    word=u8_p,  # WORD_BUFFER_SIZE bytes
)  # fmt: skip
"""The tables of the tokenizer, `t` below; the last two are scratch memory."""


@subroutine
def _slot(trie, mask, node, byte):
    """Return where the trie has the step from `node` by `byte`, or where it would be put."""
    key = (node << 8) | byte
    slot = ((key * 0x9E3779B97F4A7C15) >> 20) & mask
    while trie[n.TRIE_STEP * slot] != key and trie[n.TRIE_STEP * slot] != n.TRIE_FREE:
        slot = (slot + 1) & mask
    return n.TRIE_STEP * slot


@kernel(text="ends[count - 1] if count else 0", ends="count", trie="TRIE_STEP * (mask + 1)")
def build_trie(text: u8_p, ends: i64_p, count: i64, trie: i32_p, mask: i64) -> i64:
    """Put the tokens text[ends[i - 1]:ends[i]] into the trie with their ids i; `##x` becomes x below the continuation root.

    `trie` has mask + 1 steps, a power of two, of TRIE_STEP numbers that are all TRIE_FREE. Return the number of nodes, or -1 if
    the trie is too small.
    """
    nodes = i64(2)
    start = i64(0)
    for number in range(count):
        end = ends[number]
        at, node, slot = start, i64(_WORD), i64(0)
        if end - start > 2 and text[start] == _HASH and text[start + 1] == _HASH:
            at, node = start + 2, i64(_CONTINUATION)
        while at < end:
            byte = i64(text[at])
            slot = _slot(trie, mask, node, byte)
            if trie[slot] == n.TRIE_FREE:
                if 2 * nodes > mask:
                    return -1
                trie[slot] = (node << 8) | byte
                trie[slot + CHILD] = nodes
                nodes += 1
            node = i64(trie[slot + CHILD])
            at += 1
        trie[slot + TOKEN] = number
        start = end
    return nodes


@subroutine
def _match(t, size, tokens, at):
    """Write the pieces of the word in the buffer to tokens[at:], longest match first; return their number, 1 for [UNK]."""
    count = i64(0)
    start = i64(0)
    node = i64(_WORD)
    while start < size:
        found, found_end = i64(-1), start
        i = start
        while i < size:
            slot = _slot(t.trie, t.mask, node, i64(t.word[i]))
            if t.trie[slot] == n.TRIE_FREE:
                break
            node = i64(t.trie[slot + CHILD])
            i += 1
            if t.trie[slot + TOKEN] >= 0:
                found, found_end = i64(t.trie[slot + TOKEN]), i
        if found < 0:
            tokens[at] = t.unknown
            return i64(1)
        tokens[at + count] = found
        count += 1
        start = found_end
        node = i64(_CONTINUATION)
    return count


@subroutine
def _lowered(value):
    above_z = value + u64(0x2525252525252525)
    from_a = value + u64(0x3F3F3F3F3F3F3F3F)
    return value | (((from_a & ~above_z) & u64(0x8080808080808080)) >> u64(2))


@subroutine
def _match_and_keep(t, low, high, size, entry, tokens, at):
    """Write the ids of a word that is not in the cache, put it there, and return the number of ids."""
    store_u64(t.word, 0, low)
    store_u64(t.word, 8, high)
    count = _match(t, size, tokens, at)
    if count <= CACHED_IDS:
        t.cache[entry] = low
        t.cache[entry + 1] = high | u64(count << COUNT_SHIFT)
        copy_16(t.cache, entry + 2, tokens, at)
    return count


@inlined
def _look_up(t, low, high, size, tokens, at):
    """Write the ids of a word of at most 15 bytes, given as two numbers; return their number. This overwrites the buffer."""
    cache = t.cache
    hashed = low * u64(0x9E3779B97F4A7C15) + high * u64(0xC2B2AE3D27D4EB4F)
    entry = i64(hashed >> u64(64 - n.CACHE_BITS)) * n.CACHE_ENTRY
    kept = cache[entry + 1]
    if cache[entry] == low and (kept ^ high) << u64(64 - COUNT_SHIFT) == u64(0):
        copy_16(tokens, at, cache, entry + 2)
        return i64(kept >> u64(COUNT_SHIFT))
    return _match_and_keep(t, low, high, size, entry, tokens, at)


@subroutine
def _finish_word(t, size, length, tokens, at):
    """Write the ids of the normalized word in the buffer, with `size` bytes and `length` code points; return their number."""
    if size == 0:
        return i64(0)
    if length > t.longest:
        tokens[at] = t.unknown
        return i64(1)
    if size > CACHED_BYTES:
        return _match(t, size, tokens, at)
    low = load_u64(t.word, 0) & _LOW_BYTES[size]
    high = load_u64(t.word, 8) & _HIGH_BYTES[size]
    return _look_up(t, low, high, size, tokens, at)


@subroutine
def _decode_character(text, at, size):
    """Return (code point, size in bytes) of the UTF-8 character at text[at], or (-1, 0) if there is no valid one."""
    first = i64(text[at])
    if first < 0x80:
        return first, i64(1)
    if first < 0xC2 or first > 0xF4:
        return i64(-1), i64(0)
    length = i64(2) + i64(first >= 0xE0) + i64(first >= 0xF0)
    if at + length > size:
        return i64(-1), i64(0)
    value = first & (0x7F >> length)
    for i in range(1, length):
        byte = i64(text[at + i])
        if byte & 0xC0 != 0x80:
            return i64(-1), i64(0)
        value = (value << 6) | (byte & 0x3F)
    if length == 3 and (value < 0x800 or 0xD800 <= value <= 0xDFFF):
        return i64(-1), i64(0)
    if length == 4 and (value < 0x10000 or value > 0x10FFFF):
        return i64(-1), i64(0)
    return value, length


@subroutine
def _tokenize_any(t, text, at, size, tokens, count):
    """Tokenize the word at text[at], and the character after it if that is a word of its own.

    Return the end, or -1 minus the offset of invalid UTF-8; the number of tokens so far; and whether the text was blank.
    """
    word_size, length, is_blank = i64(0), i64(0), True
    while True:
        code_point, width = _decode_character(text, at, size)
        if code_point < 0:
            return -1 - at, count, is_blank
        if code_point == _NEWLINE:
            break
        entry = i64(t.entries[code_point])
        kind = entry & n.CODE_POINT_KIND
        source, start, characters = text, at, i64(1)
        at += width
        if not entry & n.BLANK:
            is_blank = False
        if kind == n.SPACE:
            break
        if kind == n.DROP:
            continue
        if entry >> n.REPLACEMENT_SHIFT:
            start = entry >> n.REPLACEMENT_SHIFT
            width, characters = i64(t.replacements[start]), i64(t.replacements[start + 1])
            source, start = t.replacements, start + 2
        if kind == n.ALONE:
            count += _finish_word(t, word_size, length, tokens, count)
            word_size, length = i64(0), i64(0)
        if length <= n.LONGEST_WORD:
            for i in range(width):
                t.word[word_size + i] = source[start + i]
            word_size += width
        length += characters
        if kind == n.ALONE:
            break
    count += _finish_word(t, word_size, length, tokens, count)
    return at, count, is_blank


@inlined
def _ascii_word(t, text, at, tokens, count):
    """Tokenize a run of up to 15 ASCII letters and digits at text[at].

    Return its end, which is `at` if there is no such run, and the number of tokens so far.
    """
    run = trailing_zeros(~_letters_and_digits(text, at))
    if 0 < run <= CACHED_BYTES:
        after = i64(text[at + run])
        if after < 0x80 and (i64(t.entries[after]) & n.CODE_POINT_KIND) != n.DROP:
            low = load_u64(text, at) & _LOW_BYTES[run]
            high = load_u64(text, at + 8) & _HIGH_BYTES[run]
            if t.lower:
                low, high = _lowered(low), _lowered(high)
            count += _look_up(t, low, high, run, tokens, count)
            at += run + i64(after == _BLANK_SPACE)
    return at, count


@kernel(text="size + TEXT_SLACK", state="TOKENIZER_STATE_SIZE", tokens="state[TOKENS] + size + TOKEN_SLACK")
def tokenize(
    tables: Tables,
    text: u8_p,
    size: i64,
    each_line: i64,
    state: i64_p,
    tokens: i32_p,
    sentence_ends: i64_p,
    document_ends: i64_p,
) -> i64:
    """Tokenize complete lines; return -1, or the offset of invalid UTF-8.

    `text` must end with a newline, after which TEXT_SLACK bytes may be read. The kernel continues from `state`, the numbers of
    tokens, sentences and documents so far. With `each_line`, every line is a sentence, even an empty one. `tokens` must have
    space for one token per byte of text plus TOKEN_SLACK, and `sentence_ends` and `document_ends` for one number per line.
    """
    t = Tables(tables)
    count, sentences, documents = state[n.TOKENS], state[n.SENTENCES], state[n.DOCUMENTS]
    sentence_start = count
    blank = True
    at = i64(0)
    while at < size:
        after_word, count = _ascii_word(t, text, at, tokens, count)
        if after_word > at:
            blank = False
            at = after_word
            continue
        byte = i64(text[at])
        if byte == _BLANK_SPACE:
            at += 1
            continue
        if byte == _NEWLINE:
            at += 1
            if each_line or count > sentence_start:
                sentence_ends[sentences] = count
                sentences += 1
                sentence_start = count
            elif blank and sentences > (document_ends[documents - 1] if documents else 0):
                document_ends[documents] = sentences
                documents += 1
            blank = True
            continue
        if byte < 0x80 and (i64(t.entries[byte]) & n.CODE_POINT_KIND) == n.ALONE:
            count += _look_up(t, u64(byte), u64(0), 1, tokens, count)
            blank = False
            at += 1
            continue
        after_word, count, is_blank = _tokenize_any(t, text, at, size, tokens, count)
        if after_word < 0:
            return -1 - after_word
        at = after_word
        blank = blank and is_blank
    state[n.TOKENS], state[n.SENTENCES], state[n.DOCUMENTS] = count, sentences, documents
    return -1
