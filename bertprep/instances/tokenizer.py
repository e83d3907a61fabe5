"""Tokenizes text shards with a compiled WordPiece, which reads blocks of UTF-8 bytes and makes no Python object per word.

Text is read as in Google's generator: lines end only at newlines, carriage returns are deleted, a blank line ends a document,
and a line without tokens is dropped. A shard needs 4 bytes of memory per token, 8 per sentence, and a block of text.
"""

import io
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.errors import BertprepError
from bertprep.files.object_cache import open_local
from bertprep.instances.unicode_table import load_unicode_table
from bertprep.instances.vocabulary import Vocabulary
from bertprep.kernels.numbers import (
    CACHE_BITS,
    CACHE_ENTRY,
    LONGEST_WORD,
    TEXT_SLACK,
    TOKEN_SLACK,
    TOKENIZER_STATE_SIZE,
    TRIE_FREE,
    TRIE_STEP,
    WORD_BUFFER_SIZE,
)

_BLOCK_BYTES = 1 << 18
_CAPITAL_SIGMA = "Σ".encode()
# Google's tokenizer removes these before lower-casing. It also removes others, but they do not affect final sigmas.
_DROPPED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffd]")


_LONG_WORD = re.compile(
    r"[^\s!-/:-@\[-`{-~\u2000-\u206f\u3000-\u303f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef]"
    rf"{{{LONGEST_WORD + 1},}}"
)


@dataclass(frozen=True)
class TokenizedShard:
    """The tokens of a text shard, and where its sentences and documents start.

    Sentence s is tokens[sentence_starts[s]:sentence_starts[s + 1]]. Document d has the sentences document_starts[d] to
    document_starts[d + 1] - 1. No sentence and no document is empty.
    """

    tokens: NDArray[np.int32]
    sentence_starts: NDArray[np.int64]
    document_starts: NDArray[np.int64]
    text_bytes: int
    text_crc32c: int

    @property
    def documents(self) -> int:
        return len(self.document_starts) - 1

    @property
    def sentences(self) -> int:
        return len(self.sentence_starts) - 1


class TokenizedLines(NamedTuple):
    """The tokens of many lines: line 0 is tokens[:ends[0]], and line i is tokens[ends[i - 1]:ends[i]]. Lines may be empty."""

    tokens: NDArray[np.int32]
    ends: NDArray[np.int64]


class Tokenizer:
    """BERT's tokenizer for one vocabulary. It caches words, so use the same object for many shards.

    A word of more than `longest` code points becomes [UNK].
    """

    def __init__(self, vocabulary: Vocabulary, *, lower: bool, longest: int = LONGEST_WORD) -> None:
        self._lower = lower
        entries, replacements = load_unicode_table(lower=lower)
        trie, mask = _build_trie(vocabulary)
        self._run = kernels.load().tokenize.bind(
            {
                "entries": entries, "replacements": replacements,
                "lower": int(lower), "unknown": vocabulary.unk, "longest": longest,
                "trie": trie, "mask": mask, "cache": _aligned_zeros(CACHE_ENTRY << CACHE_BITS),
                "word": np.zeros(WORD_BUFFER_SIZE, np.uint8),
            }
        )  # fmt: skip

    def tokenize_file(self, path: Path) -> TokenizedShard:
        """Return the tokens of a shard with one sentence per line and a blank line between documents.

        Raises `BertprepError` if the file cannot be read, is not UTF-8, or contains no document.
        """
        if not path.is_file():
            raise BertprepError(f"{path}: {'is not a file' if path.exists() else 'does not exist'}; expected a text shard")
        try:
            with open_local(path) as file:
                shard = self._tokenize(path, file, os.fstat(file.fileno()).st_size)
        except OSError as error:
            raise BertprepError(f"{path}: cannot be read: {error.strerror}") from error
        if shard.text_bytes == 0:
            raise BertprepError(f"{path}: is empty; expected one sentence per line and a blank line after each document")
        if shard.documents == 0:
            raise BertprepError(f"{path}: contains no document: no line of its {shard.text_bytes:,} bytes has a token")
        return shard

    def tokenize_lines(self, text: bytes) -> TokenizedLines:
        """Return the tokens of each line, including empty lines.

        `text` is UTF-8 and ends with a newline; otherwise this raises `ValueError`.
        """
        size = len(text)
        if size == 0:
            return TokenizedLines(np.empty(0, np.int32), np.empty(0, np.int64))
        buffer = bytearray(text)
        if self._lower and buffer.find(_CAPITAL_SIGMA[0]) >= 0:
            lower_final_sigmas(buffer, size)
        buffer += bytes(TEXT_SLACK)
        tokens = np.empty(size + TOKEN_SLACK, np.int32)  # the OS allocates only the pages that are written
        ends = np.empty(text.count(b"\n"), np.int64)
        state = np.zeros(TOKENIZER_STATE_SIZE, np.int64)
        wrong = self._run(np.frombuffer(buffer, np.uint8), size, True, state, tokens, ends, ends)
        if wrong >= 0 or not text.endswith(b"\n"):
            raise ValueError("the text is not UTF-8, or does not end with a newline")
        return TokenizedLines(tokens[: ends[-1]], ends)

    def _tokenize(self, path: Path, file: io.BufferedIOBase, size: int) -> TokenizedShard:
        state = np.zeros(TOKENIZER_STATE_SIZE, np.int64)
        # Capacity for the worst case, where each token and sentence has one byte. The OS allocates only pages that are written.
        tokens = np.empty(size + 1 + TOKEN_SLACK, np.int32)
        sentence_ends = np.empty(size // 2 + 1, np.int64)
        document_ends = np.empty(size // 2 + 1, np.int64)
        text_bytes = text_crc32c = 0
        while lines := file.read(_BLOCK_BYTES) + file.readline():  # a block stays in the processor's cache
            if text_bytes + len(lines) > size:
                raise BertprepError(f"{path}: grew while it was read; wait until it is complete, and run the same command")
            text_crc32c = kernels.load().checksum(text_crc32c, np.frombuffer(lines, np.uint8), len(lines))
            buffer = bytearray(lines if lines.endswith(b"\n") else lines + b"\n")
            end = len(buffer)
            if self._lower and buffer.find(_CAPITAL_SIGMA[0]) >= 0:
                lower_final_sigmas(buffer, end)
            buffer += bytes(TEXT_SLACK)
            wrong = self._run(np.frombuffer(buffer, np.uint8), end, False, state, tokens, sentence_ends, document_ends)
            if wrong >= 0:
                raise BertprepError(
                    f"{path}: byte {text_bytes + wrong} (0x{buffer[wrong]:02x}) is not UTF-8; "
                    "convert the file, for example with iconv, or fix this byte"
                )
            text_bytes += len(lines)
        if text_bytes < size:
            raise BertprepError(
                f"{path}: was truncated while it was read, after {text_bytes:,} of its {size:,} bytes; make sure that nothing "
                "else writes it, make it again, and run the same command"
            )
        n_tokens, n_sentences, n_documents = (int(n) for n in state)
        ends = document_ends[:n_documents]
        if n_sentences > (ends[-1] if n_documents else 0):  # no blank line after the last document
            ends = np.append(ends, n_sentences)
        return TokenizedShard(
            tokens=tokens[:n_tokens],
            sentence_starts=np.concatenate([[0], sentence_ends[:n_sentences]]).astype(np.int64),
            document_starts=np.concatenate([[0], ends]).astype(np.int64),
            text_bytes=size,
            text_crc32c=text_crc32c,
        )


def share_of_long_words(text: str) -> float:
    """Return the fraction of a text in words of more than `LONGEST_WORD` characters, without spaces, punctuation and Hanzi.

    >>> share_of_long_words("acgt" * 75 + ", a " * 75)
    0.5
    """
    return sum(map(len, _LONG_WORD.findall(text))) / max(len(text), 1)


def _build_trie(vocabulary: Vocabulary) -> tuple[NDArray[np.int32], int]:
    """Return the vocabulary as a hashed trie for the tokenizer kernel, and its number of steps less one, as a bit mask."""
    tokens = (token or " " for token in vocabulary.tokens)  # no word has a space, so a blank line matches nothing
    lines = np.frombuffer("\n".join([*tokens, ""]).encode(), np.uint8)
    is_end = lines == ord("\n")
    text, ends = lines[~is_end], np.flatnonzero(is_end) - np.arange(len(vocabulary))
    size = 1 << 12
    while size < len(text):
        size *= 2
    while True:
        trie = np.full(TRIE_STEP * size, TRIE_FREE, np.int32)
        if kernels.load().build_trie(text, ends, len(ends), trie, size - 1) >= 0:
            return trie, size - 1
        size *= 2


def _aligned_zeros(count: int) -> NDArray[np.uint64]:
    zeros = np.zeros(count + 8, np.uint64)
    start = -zeros.ctypes.data % 64 // zeros.itemsize
    return zeros[start : start + count]


def lower_final_sigmas(buffer: bytearray, size: int) -> None:
    """Replace in place each capital sigma that `str.lower` turns into a final sigma.

    The kernel lower-cases each letter on its own, and so cannot see whether a sigma ends a word.
    """
    found = buffer.find(_CAPITAL_SIGMA, 0, size)
    while found >= 0:
        start, end = buffer.rfind(10, 0, found) + 1, buffer.find(10, found, size)
        line = bytes(buffer[start:end]).decode("utf-8", "surrogateescape")
        buffer[start:end] = with_final_sigmas(line).encode("utf-8", "surrogateescape")
        found = buffer.find(_CAPITAL_SIGMA, end, size)


def with_final_sigmas(text: str) -> str:
    """Return the text with each capital sigma at the end of a word in lower case.

    >>> with_final_sigmas("ΟΔΟΣ ΣΟΦΟΣ")
    'ΟΔΟς ΣΟΦΟς'
    """
    # Lower-casing turns every sigma into a sigma, so both texts have the same number of them, in the same order.
    lowered = iter([c for c in _DROPPED.sub("", text).lower() if c in "σς"])
    return "".join("ς" if c in "Σσς" and next(lowered) == "ς" and c == "Σ" else c for c in text)
