"""Reads BERT vocabularies, such as vocab.txt: one token per line, whose id is its line number, counted from 0.

The ids of a published vocabulary are fixed by its model, so no line is judged: a token that is blank, as U+2028 in Google's
Chinese vocabulary, or that is repeated, keeps its id.
"""

import codecs
import hashlib
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from bertprep.files.object_cache import open_local
from bertprep.terminal import listed
from bertprep.work.data_set import DataSet
from bertprep.work.layout import MANIFEST, VOCABULARY
from bertprep.work.manifest import sha256_of_vocabulary
from bertprep.work.resume import what_finishes

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MAX_TOKENS = 1 << 21
"""The number of ids that fit in a varint of three bytes."""
MANY_UNKNOWN = 0.1
"""With a larger fraction of unknown tokens, the vocabulary is probably for another language than the text's."""
MANY_PIECES = 0.6
"""With a larger fraction of ## tokens, a word has more than 2.5 tokens on average, so the vocabulary hardly knows the words.

English text has 0.07 with 8,000 tokens trained on it, 0.28 with 2,000 and 0.51 with 500.
"""
MANY_HANZI = 0.2
"""With a larger fraction of Hanzi among the tokens, words of several tokens are mostly those that BERT's tokenizer cuts up."""
_HANZI = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]")
_MAX_BYTES = 64 << 20
_SHOWN = 40  # characters of a token in an error
_MANY_LOWER = 0.5  # fraction of lower-case tokens; far smaller in Chinese or Japanese, where few letters have two cases
_MANY_CAPITALS = 0.05  # fraction of tokens with capitals; a fifth in a cased English vocabulary, none in an uncased one


@dataclass(frozen=True)
class Vocabulary:
    """The tokens in the order of their ids, the ids of the special tokens, and the sha256 of the file."""

    path: Path
    tokens: tuple[str, ...]
    sha256: str
    pad: int
    unk: int
    cls: int
    sep: int
    mask: int

    @cached_property
    def continues_word(self) -> NDArray[np.bool_]:
        """By id, whether a token continues a word, as ## tokens do: (v,)."""
        return np.array([token.startswith("##") for token in self.tokens])

    @cached_property
    def is_hanzi(self) -> NDArray[np.bool_]:
        """By id, whether a token is a single Hanzi, which BERT's tokenizer takes for a word: (v,)."""
        return np.array([_HANZI.fullmatch(token) is not None for token in self.tokens])

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each token. A repeated token has that of its last line, as in the loaders of Google and transformers."""
        return {token: number for number, token in enumerate(self.tokens)}

    @cached_property
    def drawn_ids(self) -> NDArray[np.int32]:
        """The ids among which Google's generator draws random tokens: one of each token, and one of all that are blank."""
        return np.array([*{token.strip(): number for number, token in enumerate(self.tokens)}.values()], np.int32)

    @property
    def made_with(self) -> dict[str, Any]:
        """Return the vocabulary's entry for a manifest of records; it has `pad` only if that id is not 0."""
        return {"tokens": len(self), "sha256": self.sha256, **({"pad": self.pad} if self.pad else {})}


def case_conflict(vocabulary: Vocabulary, *, cased: bool) -> str:
    """Return why a vocabulary does not fit cased or lower-cased text; "" if it may fit.

    A vocabulary for a script without case, such as Chinese, or with case that `str.title` ignores, such as Georgian, fits both.
    """
    capitals = 0 if cased else len(capital_tokens(vocabulary))
    if not cased and not capitals:
        return ""
    tokens = [token for token in vocabulary.tokens if not _is_in_brackets(token)]
    if not cased:
        if capitals <= _MANY_CAPITALS * len(tokens):
            return ""
        return f"{capitals:,} of its {len(tokens):,} tokens have capital letters, but without --cased the text is lower-cased"
    has_capital = any(len(token) == 1 and token != token.lower() for token in tokens)
    lower = sum(token != token.title() for token in tokens)
    if has_capital or lower <= _MANY_LOWER * len(tokens):
        return ""
    return "none of its tokens is a capital letter, so with --cased each word that begins with one is [UNK]"


def capital_tokens(vocabulary: Vocabulary) -> list[str]:
    """Return the tokens with capital letters, which lower-cased text never gives, except for [PAD], [unused1] and the like."""
    lowered = "\n".join(vocabulary.tokens).lower().split("\n")  # ten times as fast as lower-casing each token
    of_both = zip(vocabulary.tokens, lowered, strict=True)
    return [token for token, lower in of_both if token != lower and not _is_in_brackets(token)]


def _is_in_brackets(token: str) -> bool:
    return token.startswith("[") and token.endswith("]")


def load_vocabulary(path: Path) -> Vocabulary:
    """Read a vocabulary file, as the loaders of Google and transformers do: white space around a token does not belong to it.

    A folder stands for the vocab.txt in it. A token of white space alone is kept, and no text has it. Raises `BertprepError`
    if the file cannot be read, is not UTF-8, is too large, or lacks a special token.
    """
    path = path / VOCABULARY if path.is_dir() else path
    try:
        content = _read(path)
        lines = content.decode("utf-8-sig").split("\n")
    except OSError as error:
        raise BertprepError(
            f"{path}: cannot be read as a vocabulary: {error.strerror}; name a vocab.txt with --vocab"
        ) from error
    except UnicodeDecodeError as error:
        advice = _why_not_utf_8(path, content)
        raise BertprepError(
            f"{path}: byte {error.start} is not UTF-8; expected a text file with one token per line; {advice}"
        ) from error
    if lines[-1] == "":
        lines.pop()
    tokens = tuple(line.strip() or line.removesuffix("\r") for line in lines)
    if missing := [token for token in SPECIAL_TOKENS if token not in tokens]:
        raise BertprepError(f"{path}: {_why_no_vocabulary(path, content, tokens, missing)}")
    if len(tokens) > MAX_TOKENS:
        raise BertprepError(f"{path}: has {len(tokens):,} tokens, expected at most {MAX_TOKENS:,}")
    of_special = (len(tokens) - 1 - tokens[::-1].index(token) for token in SPECIAL_TOKENS)
    return Vocabulary(path, tokens, hashlib.sha256(content).hexdigest(), *of_special)


def _why_not_utf_8(path: Path, content: bytes) -> str:
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return f"it is UTF-16: iconv -f UTF-16 -t UTF-8 {path} > NEW"
    return "a tokenizer in another form is for bertprep tokenize --tokenizer"


def _why_no_vocabulary(path: Path, content: bytes, tokens: Sequence[str], missing: Sequence[str]) -> str:
    """Return what is wrong with a file that lacks special tokens, and what to do."""
    if _has_sentencepieces(tokens):
        return f"has {_SENTENCEPIECES}: {_wordpieces(path, tokens)}"
    columns = {token.partition("\t")[0].strip() for token in tokens}
    if columns.issuperset(SPECIAL_TOKENS):
        return f"has several columns, separated by tabs, and a vocab.txt only tokens: cut -f 1 {path} > NEW"
    if content.lstrip()[:1] == b"{":
        if listed_by := _tokens_by_json(content):
            command = f"jq -r {shlex.quote(listed_by)} {shlex.quote(str(path))} > NEW"
            return f"is JSON, and a vocab.txt has one token per line: {command}"
        return "is JSON, and a vocab.txt has one token per line; a tokenizer.json is for bertprep tokenize --tokenizer"
    return (
        f"lacks {', '.join(missing)}, which every BERT vocabulary has; name the vocab.txt of a BERT model, or train yours "
        "again with these as special tokens"
    )


_BEGINS_WORD = "\u2581"
_SENTENCEPIECES = (
    f"the tokens of SentencePiece, with {_BEGINS_WORD} where a word begins, and a vocab.txt has ## where none does"
)


def _has_sentencepieces(tokens: Sequence[str]) -> bool:
    return any(token.startswith(_BEGINS_WORD) for token in tokens) and not any(token.startswith("##") for token in tokens)


def _wordpieces(path: Path, tokens: Sequence[str]) -> str:
    """Return a command that writes the vocab.txt of a list of SentencePiece's tokens; each of its lines stays a line."""
    have = {token.partition("\t")[0].strip() for token in tokens}
    special = "".join(f" '{token}'" for token in SPECIAL_TOKENS if token not in have)
    command = rf"cut -f 1 {shlex.quote(str(path))} | sed -E '/^({_BEGINS_WORD}|\[.*\]$|<.*>$)/!s/^/##/; s/^{_BEGINS_WORD}//'"
    return rf"(printf '%s\n'{special}; {command}) > NEW" if special else f"{command} > NEW"


def _tokens_by_json(content: bytes) -> str:
    """Return the filter of jq that lists the tokens of a WordPiece vocabulary in JSON by their ids; "" for other JSON."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return ""
    model = found.get("model")
    if isinstance(model, dict) and model.get("type") == "WordPiece" and isinstance(model.get("vocab"), dict):
        ids = [*model["vocab"].values(), *(each["id"] for each in found.get("added_tokens") or [])]
        listed = "[(.model.vocab | to_entries[]), (.added_tokens[]? | {key: .content, value: .id})] | unique_by(.value)[].key"
    elif not set(SPECIAL_TOKENS) - set(found):
        ids, listed = list(found.values()), "to_entries | sort_by(.value)[].key"
    else:
        return ""
    without_gaps = all(isinstance(each, int) for each in ids) and set(ids) == set(range(len(set(ids))))
    return listed if without_gaps else ""


def fit_warnings(first: NDArray[Any], vocabulary: Vocabulary, text: Path, advice: str) -> list[str]:
    """Return a warning if so many of the first tokens (n,) of a text are [UNK], or ##, that the vocabulary does not fit it."""
    if not len(first):
        return []
    unknown = float(np.mean(first == vocabulary.unk))
    pieces = float(vocabulary.continues_word.take(first, mode="clip").mean())
    if unknown > MANY_UNKNOWN:
        what = f"{unknown:.0%} of the first tokens of {text} are [UNK]"
        if _has_sentencepieces(vocabulary.tokens):
            advice = f"it has {_SENTENCEPIECES}: {_wordpieces(vocabulary.path, vocabulary.tokens)}; {advice}"
    elif pieces > MANY_PIECES:
        what = f"{pieces:.0%} of the first tokens of {text} continue a word, as in th ##i ##s"
    else:
        return []
    return [f"{what}: {vocabulary.path} does not fit this text; {advice}"]


def padding_warnings(vocabulary: Vocabulary) -> list[str]:
    """Return a warning if the id of [PAD] is not 0; other tools assume that it is."""
    if vocabulary.pad == 0:
        return []
    return [f"[PAD] is token {vocabulary.pad} of {vocabulary.path}, so input_ids are padded with {vocabulary.pad}, not with 0"]


def repeat_warnings(vocabulary: Vocabulary) -> list[str]:
    """Return a warning if tokens are repeated, which names the lines that are never used."""
    ids = vocabulary.ids
    unused = [number for number, token in enumerate(vocabulary.tokens) if ids[token] != number and token.strip()]
    if not unused:
        return []
    token, lines = vocabulary.tokens[unused[0]], listed([f"{number + 1:,}" for number in unused])
    are = f"lines {lines} are" if len(unused) > 1 else f"line {lines} is"
    return [
        f"{vocabulary.path}: {are} never used, since line {ids[token] + 1:,} repeats {token[:_SHOWN]!r}, and the last one "
        "counts, as in the loaders of Google and transformers; all ids stay"
    ]


def load_vocabulary_of(data_set: DataSet, vocab: Path | None = None) -> Vocabulary:
    """Read `vocab`, or the vocabulary next to the data set, and check it against the manifest.

    Raises `UsageError` if there is no vocabulary, and `BertprepError` if the data set was made with another one.
    """
    if data_set.problem:
        raise data_set.problem
    if (path := vocab or data_set.vocabulary) is None:
        if data_set.is_unfinished:  # the run copies the vocabulary there at its end
            raise UsageError(
                f"{data_set.folder}: has no {VOCABULARY} yet, because it is not finished (--vocab FILE names the vocabulary); "
                f"{what_finishes(data_set.folder)}"
            )
        raise UsageError(
            f"{data_set.folder}: has no {VOCABULARY} next to it; copy the one that it was made with there, or name it with "
            "--vocab FILE where a command has that option"
        )
    vocabulary = load_vocabulary(path)
    expected = sha256_of_vocabulary(data_set.manifest)
    if expected not in (None, vocabulary.sha256):
        advice = "name the right one with --vocab FILE"
        if vocab is None:  # not every command has --vocab
            advice = "copy the right one over it, or run the command that made the data again, which writes it"
        raise BertprepError(
            f"{path}: is not the vocabulary that {data_set.folder} was made with: its sha256 is {vocabulary.sha256[:16]}..., "
            f"but {data_set.folder / MANIFEST} lists {expected[:16]}...; {advice}"
        )
    return vocabulary


def _read(path: Path) -> bytes:
    with open_local(path) as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise BertprepError(
            f"{path}: has more than {_MAX_BYTES:,} bytes, too many for a vocabulary; name a vocab.txt with --vocab"
        )
    return content
