"""A BERT vocabulary: one token a line; its id is the line number, from 0."""

import codecs
import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bertprep.errors import BertprepError

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MAX_TOKENS = 1 << 21
"""What three bytes of a varint hold."""
_MAX_BYTES = 64 << 20
_SHOWN = 40  # characters of a token, in errors


@dataclass(frozen=True)
class Vocabulary:
    """The tokens by number, and the numbers of the special ones; `sha256` is that of the file."""

    path: Path
    tokens: tuple[str, ...]
    sha256: str
    pad: int
    unk: int
    cls: int
    sep: int
    mask: int

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def made_with(self) -> dict[str, Any]:
        """What the manifest of records says of their vocabulary: `pad` only where it is not 0, as in most."""
        return {"tokens": len(self), "sha256": self.sha256, **({"pad": self.pad} if self.pad else {})}

    @cached_property
    def continues(self) -> bytes:
        """A byte for each token, 1 where it continues a word."""
        return bytes([token[:2] == "##" for token in self.tokens])


def load_vocabulary(path: Path) -> Vocabulary:
    """Read a vocabulary file.

    Raises `BertprepError` if it is unreadable, not UTF-8, has an empty line or a token twice, or lacks a special token.
    """
    try:
        content = _read(path)
        lines = content.decode().split("\n")
    except OSError as error:
        raise BertprepError(
            f"{path}: cannot be read as a vocabulary: {error.strerror}; name a vocab.txt with --vocab"
        ) from error
    except UnicodeDecodeError as error:
        raise BertprepError(
            f"{path}: byte {error.start} is not UTF-8; a vocabulary is a text file of one token a line"
        ) from error
    if lines[-1] == "":
        lines.pop()
    tokens = tuple(map(str.strip, lines))
    numbers = {token: number for number, token in enumerate(tokens)}
    missing = [token for token in SPECIAL_TOKENS if token not in numbers]
    if missing:
        if content.startswith(codecs.BOM_UTF8):
            raise BertprepError(
                f"{path}: begins with a byte order mark, which is taken for a part of its first token; save it as UTF-8 without"
            )
        raise BertprepError(
            f"{path}: lacks {', '.join(missing)}, which every BERT vocabulary has; is it a vocab.txt of BERT's?"
        )
    if len(numbers) < len(tokens):
        again = next(number for number, token in enumerate(tokens) if numbers[token] != number)
        raise BertprepError(
            f"{path}: line {numbers[tokens[again]] + 1} repeats {tokens[again][:_SHOWN]!r} of line {again + 1}; "
            "each token must stand once, else its number is ambiguous"
        )
    if "" in numbers:
        raise BertprepError(f"{path}: line {numbers[''] + 1} is empty; each line must hold a token")
    if len(tokens) > MAX_TOKENS:
        raise BertprepError(f"{path}: has {len(tokens):,} tokens; at most {MAX_TOKENS:,} are supported")
    sha256 = hashlib.sha256(content).hexdigest()
    return Vocabulary(path, tokens, sha256, *(numbers[token] for token in SPECIAL_TOKENS))


def _read(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise BertprepError(f"{path}: is not a plain file; name a vocab.txt with --vocab")
    with path.open("rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise BertprepError(
            f"{path}: has more than {_MAX_BYTES:,} bytes, which no vocabulary has; name a vocab.txt with --vocab"
        )
    return content
