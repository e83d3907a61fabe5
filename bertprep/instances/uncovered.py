"""Counts the characters of a text that no token of a tokenizer covers, and tokenizes the rest.

The library `tokenizers` leaves them out or raises an error, depending on the model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

_NO_CHARACTER = "\ufdd0"
_UNKNOWN = f"{_NO_CHARACTER}unknown"
"""A token of bertprep's own for characters that no token covers; this code point is for programs, and in no text."""


def load_library(data: bytes) -> tokenizers.Tokenizer:
    """Return the tokenizer of a file without truncation, padding and dropout, and without special tokens from text."""
    tokenizer = tokenizers.Tokenizer.from_str(data.decode())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    if isinstance(tokenizer.model, BPE):
        tokenizer.model.dropout = None
    return tokenizer


class Marking(NamedTuple):
    """The library's tokenizer with an unknown token of bertprep's own, `unknown`, for a file that has none.

    `own_ids` has the id in the file for each id here, or -1: (v,). A BPE without an unknown token leaves characters out, and
    its ids are taken. Other models raise an error, so this tokenizer `gives_ids` instead.
    """

    library: tokenizers.Tokenizer
    unknown: int
    own_ids: NDArray[np.int32]
    gives_ids: bool

    def count_uncovered(self, texts: Sequence[str]) -> int:
        """Return the number of characters that no token of the file stands for; the bytes of one may be several tokens."""
        if self.own_ids[self.unknown] >= 0:
            return 0
        found = self.library.encode_batch_fast(texts, add_special_tokens=False)
        lossy = [text for text, each in zip(texts, found, strict=True) if self.unknown in each.ids]
        count = 0
        for each in self.library.encode_batch(lossy, add_special_tokens=False):  # with offsets, which take longer
            uncovered = {at for at, token in zip(each.offsets, each.ids, strict=True) if token == self.unknown}
            count += sum(end - begin for begin, end in uncovered)
        return count


def make_marking(
    data: bytes, tokenizer: tokenizers.Tokenizer, vocabulary: Mapping[str, int], unk: int | None
) -> Marking | None:
    """Return the tokenizer that marks characters that no token covers, or None if the file's own tokens cover all text."""
    if isinstance(tokenizer.model, BPE) and _covers_all_bytes(tokenizer):
        return None
    try:
        if tokenizer.model.tokenize(_NO_CHARACTER):  # to the unknown token
            return None
        gives_ids = False
    except Exception:  # the library raises no narrower class
        gives_ids = True
    content = json.loads(data)
    model = content["model"]
    if isinstance(model["vocab"], list):  # a Unigram's
        model["unk_id"] = len(model["vocab"])
        model["vocab"].append([_UNKNOWN, 0.0])
    else:
        model["unk_token"] = _UNKNOWN
        model["vocab"][_UNKNOWN] = max(model["vocab"].values(), default=-1) + 1
    library = load_library(json.dumps(content).encode())
    ids = library.get_vocab(with_added_tokens=True)
    own_ids = np.full(max(ids.values()) + 1, -1, np.int32)
    own_ids[[*ids.values()]] = [vocabulary.get(token, -1) for token in ids]
    own_ids[ids[_UNKNOWN]] = unk if gives_ids and unk is not None else -1
    return Marking(library, ids[_UNKNOWN], own_ids, gives_ids)


def _covers_all_bytes(tokenizer: tokenizers.Tokenizer) -> bool:
    """Return whether a BPE has a token for each byte of text, as byte-level ones and those with a byte fallback have."""
    if tokenizer.model.byte_fallback:
        tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    elif "ByteLevel(" in f"{tokenizer.normalizer}{tokenizer.pre_tokenizer}":
        tokens = ByteLevel.alphabet()
    else:
        return False
    return None not in map(tokenizer.token_to_id, tokens)
