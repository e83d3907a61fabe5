"""Tokenizes documents with any tokenizer.json, and finds which tokens begin a word.

The library `tokenizers` does the work on all its threads. Settings in the file that would change the ids of a text are switched
off: truncation, padding, dropout, and special tokens for text that spells their names. Characters that no token covers are
counted. BERT's own WordPiece is tokenized by the compiled loop in `tokenizer` instead, which is much faster and gives the same
ids. Documents with characters that the two might treat differently, because they use different versions of Unicode, still go
through the library.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import chain, compress, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from bertprep.errors import BertprepError, first_line
from bertprep.instances.given_words import GIVEN, Segmenter, begin_words, find_starts
from bertprep.instances.special_tokens import (
    USUAL_NAMES,
    Template,
    find_named_tokens,
    find_special_ids,
    find_template,
    sidecars_of,
    template_of,
    with_added,
    with_template,
)
from bertprep.instances.tokenizer import Tokenizer
from bertprep.instances.tokenizer_files import TOKENIZER, TOKENIZER_CONFIG, how_to_convert, is_of_tokenizer
from bertprep.instances.uncovered import load_library, make_marking
from bertprep.instances.vocabulary import MAX_TOKENS, SPECIAL_TOKENS, Vocabulary
from bertprep.untrusted import parse_json, read_bounded

WORDPIECE, TABLE, WORD_IDS = ("wordpiece", "table", "word_ids")
"""The rules for finding words. By `WORDPIECE`, a token begins a word unless it begins with ##. By `TABLE`, it does if it begins
with the tokenizer's marker, such as ▁, or if it or the previous token was added to the vocabulary. By `WORD_IDS`, it does if
its `word_ids` differs from that of the previous token."""
MAX_WORD_TOKENS = 16
"""Words of more tokens are masked token by token. Tokenizers that mark only spaces make such words, for example a whole
paragraph of Chinese."""
MANY_LONG_WORDS = 0.2
"""Users are warned if more than this fraction of the tokens is in words of more than `MAX_WORD_TOKENS` tokens."""
_UNREADABLE = "is not a tokenizer.json that the library tokenizers can read"
_MARKERS = (("▁",), ("Ġ", "Ċ"))
"""First characters of tokens that begin a word: in vocabularies of SentencePiece, and in byte-level ones."""
_SAMPLE = (
    "In 1905 the physicist's third paper (on “moving bodies”) wasn't finished; 3.14 x 10^8, e.g. A_b-c/d@e.org?\n"
    "def scale(values, by=2):\n    return [by * each for each in values]\n\n"
    "\tÜber Straßen, où l'été naît, 北京 и Москва 👍🏽 ▁x"
)
"""Text for comparing words found by the table of markers with those found by `word_ids`."""
_SAMPLE_CHARACTERS = 1000
_HEAD_BYTES = 256
_COMMON = r"\u03a4-\u061c\u061e-\u07fc\u1e00-\u2e42\u3000-\ua7ca\uac00-\ud7a3\ufeff\uff00-\uffef\U0001f300-\U0001faff"
_SAME = {
    False: re.compile(rf"[\0-\u03a3{_COMMON}]*"),
    True: re.compile(rf"[\0-\u03a2{_COMMON}]*"),  # without Σ: at the end of a word, Google lower-cases it to another letter
}
"""Whether text is lower-cased -> pattern of texts for which the compiled loop and `tokenizers` give the same tokens: common
scripts, symbols and emoji."""
_LONGEST = (100, 200)
"""Lengths above which a word becomes [UNK], in characters: the default of `tokenizers`, and Google's."""


@dataclass(frozen=True)
class TokenizerInfo:
    """The properties of a tokenizer that readers of its token shards need.

    All ids are below `width`. The id of a special token is None if the tokenizer has no such token. `special` has the ids of
    all special tokens. `words` is the rule by which words were found. `before` and `after` have the tokens around a sequence,
    or None if these are [CLS] and [SEP], as far as they exist. `gaps` has the ranges of ids that no token has: the first id of
    each, and the one after its last.
    """

    name: str
    sha256: str
    model: str
    width: int
    cls: int | None
    sep: int | None
    pad: int | None
    mask: int | None
    unk: int | None
    special: tuple[int, ...]
    words: str
    before: tuple[int, ...] | None = None
    after: tuple[int, ...] | None = None
    gaps: tuple[int, ...] = ()

    @classmethod
    def from_manifest(cls, made_with: Mapping[str, Any]) -> TokenizerInfo:
        """Return the tokenizer that a manifest names; the manifest must have been checked."""
        values = ((each.name, made_with[each.name]) for each in fields(cls) if each.name in made_with)
        known: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in values}
        return cls(**known)

    @classmethod
    def from_vocabulary(cls, vocabulary: Vocabulary) -> TokenizerInfo:
        """Return the properties of BERT's tokenizer with this vocab.txt."""
        ids = {name: getattr(vocabulary, name) for name in USUAL_NAMES}
        used = [number for token, number in vocabulary.ids.items() if token.strip()]
        return cls(
            vocabulary.path.name, vocabulary.sha256, "WordPiece", len(vocabulary), **ids, special=tuple(sorted(ids.values())),
            words=WORDPIECE, gaps=_find_gaps(used, len(vocabulary)),
        )  # fmt: skip

    @property
    def added_tokens(self) -> int:
        """Return the number of special tokens around a sequence."""
        return sum(map(len, self.template))

    @property
    def template(self) -> Template:
        """Return the special tokens before and after a sequence."""
        usual = template_of(self.cls, self.sep)
        return (usual[0] if self.before is None else self.before, usual[1] if self.after is None else self.after)

    @property
    def is_never_drawn(self) -> NDArray[np.bool_]:
        """By id, whether it is no random token for masks: a special token, or an id that no token has: (width,)."""
        never = np.zeros(self.width, np.bool_)
        never[list(self.special)] = True
        for first, end in zip(self.gaps[::2], self.gaps[1::2], strict=True):
            never[first:end] = True
        return never

    @property
    def made_with(self) -> dict[str, Any]:
        """Return the tokenizer's entry for a manifest; it has `before`, `after` and `gaps` only if they are unusual."""
        usual = {"before": None, "after": None, "gaps": ()}
        values = {name: value for name, value in asdict(self).items() if name not in usual or value != usual[name]}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _find_gaps(ids: Iterable[int], width: int) -> tuple[int, ...]:
    """Return the ranges of ids below `width` that are not among `ids`, as the first id and the one after the last of each.

    >>> _find_gaps([0, 1, 5], 7)
    (2, 5, 6, 7)
    """
    is_gap = np.ones(width + 2, np.int8)  # from -1 to `width`
    is_gap[np.fromiter(ids, np.int64) + 1] = 0
    is_gap[[0, -1]] = 0
    return tuple(np.flatnonzero(np.diff(is_gap)).tolist())


class Documents(NamedTuple):
    """The tokens of some documents.

    `tokens` (tokens,) has the ids of all documents one after the other, and `lengths` (documents,) the number of tokens of
    each. `begins_word` (tokens,) is whether a token begins a word. `uncovered` is the number of characters without a token.
    """

    tokens: NDArray[np.int32]
    lengths: NDArray[np.int64]
    begins_word: NDArray[np.bool_]
    uncovered: int = 0

    def ended_by(self, token: int) -> Documents:
        """Return the documents that have tokens, with this token at the end of each; it counts as a word of its own."""
        lengths = self.lengths[self.lengths > 0]
        ends = np.cumsum(lengths)
        tokens, begins_word = np.insert(self.tokens, ends, token), np.insert(self.begins_word, ends, True)
        return Documents(tokens, lengths + 1, begins_word, self.uncovered)


class DocumentTokenizer:
    """A tokenizer that is read from a tokenizer.json.

    `configs` are files that name special tokens, such as tokenizer_config.json, by default those next to the tokenizer.json.
    `content` is the tokenizer.json for token shards: the file as it is, or with a template that puts special tokens around a
    text, as rows have them, and with the special tokens that only `configs` have. Its sha256 identifies the tokenizer.
    """

    def __init__(self, path: Path, name: str, configs: Sequence[Path] = (), words: Segmenter | str | None = None) -> None:
        """Read `path`, and use `name` in manifests; raises `BertprepError` if `tokenizers` cannot read the file.

        `words` replaces the tokenizer's own words: a function that splits a text into words, or the name of the column that
        contains them.
        """
        self.path, self._words, self._configs = path, words, configs
        data = _read(path)
        named = find_named_tokens(configs or sidecars_of(path))
        try:
            self._library = load_library(data)
            data = with_added(data, self._library, named)
            template = find_template(path, self._library)
            ids = find_special_ids(self._library, named, *template)
            usual = template_of(ids["cls"], ids["sep"])
            around = template if sum(map(len, template)) > 1 else usual
            sample = _encode_own_text(self._library, _SAMPLE)
        except BaseException as error:
            if why := _why_other_file(path, data):
                raise BertprepError(f"{path}: {why}; {how_to_convert(str(path.parent))}") from error
            raise _explained(path, _UNREADABLE, error) from error
        vocabulary, added = self._library.get_vocab(with_added_tokens=True), self._library.get_added_tokens_decoder()
        special = {each for each in ids.values() if each is not None} | {each for each, token in added.items() if token.special}
        special |= {*around[0], *around[1]}
        width = max([*vocabulary.values(), *special], default=-1) + 1
        if not 0 < width <= MAX_TOKENS:
            raise BertprepError(f"{path}: has a vocabulary of {width:,} ids, expected 1 to {MAX_TOKENS:,}")
        self._never = np.zeros(width, np.bool_)  # (width,), tokens that no text may be tokenized to
        self._never[[each for each in special if each != ids["unk"]]] = True
        self._added = np.zeros(width, np.bool_)  # (width,), added tokens that are not special; text is split around them
        self._added[[each for each in added if each not in special]] = True
        self._table = _begins_word_by_id(self._library, vocabulary, width)
        try:
            self._marking = make_marking(data, self._library, vocabulary, ids["unk"])
            if self._marking and not self._marking.gives_ids:  # it leaves out most of the sample
                sample = self._library.encode(_make_sample(vocabulary, special), add_special_tokens=False)
        except BaseException as error:
            raise _explained(path, _UNREADABLE, error) from error
        rule = GIVEN if words else _find_rule_of_words(self._library, sample, self._table, self._added)
        # Given words need the position of each token in the text, which the compiled loop does not return.
        self._compiled, self._lock = None if words else _compile(path, self._library, vocabulary), threading.Lock()
        self.content = data if template == around else with_template(data, self._library, *around)
        self.info = TokenizerInfo(
            name, hashlib.sha256(self.content).hexdigest(), type(self._library.model).__name__, width, **ids,
            special=tuple(sorted(special)), words=rule, before=None if around == usual else around[0],
            after=None if around == usual else around[1], gaps=_find_gaps(vocabulary.values(), width),
        )  # fmt: skip

    def __reduce__(self) -> tuple[type[DocumentTokenizer], tuple[Path, str, Sequence[Path], Segmenter | str | None]]:
        """Pickle only the arguments of `__init__`; the process that unpickles them reads the file again."""
        return DocumentTokenizer, (self.path, self.info.name, self._configs, self._words)

    @property
    def special_tokens(self) -> dict[str, str]:
        """Return the names of the special tokens that exist, by "cls", "sep", "pad", "mask" and "unk"."""
        ids = {name: getattr(self.info, name) for name in USUAL_NAMES}
        return {name: str(self._library.id_to_token(each)) for name, each in ids.items() if each is not None}

    @property
    def settings(self) -> dict[str, Any]:
        """Return the tokenizer_config.json with which `AutoTokenizer` of transformers opens `content`.

        Like rows, its encodings have no segments.
        """
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": ["input_ids", "attention_mask"],
            **{f"{name}_token": token for name, token in self.special_tokens.items()},
        }

    def files(self) -> dict[str, bytes]:
        """Return the files that make a folder of token shards a tokenizer folder of transformers, by name."""
        return {TOKENIZER: self.content, TOKENIZER_CONFIG: (json.dumps(self.settings, indent=2) + "\n").encode()}

    @property
    def is_compiled(self) -> bool:
        """Return whether a compiled loop, which uses one thread, does most of the work."""
        return self._compiled is not None

    def encode(self, texts: Sequence[str], starts: Sequence[NDArray[np.int64]] = ()) -> Documents:
        """Return the tokens of some documents, without special tokens.

        If a column contains the words, `starts` has the positions in characters where they start, for each document. A lone
        surrogate is replaced by a question mark. Several threads may call this at once. Raises `BertprepError` if the tokenizer
        has no token for a text.
        """
        texts = [text if text.isascii() else text.encode(errors="replace").decode() for text in texts]
        uncovered, begins_word = 0, None
        if callable(self._words):
            starts = [find_starts(self._words, text) for text in texts]
        if self._compiled:
            tokens, lengths = self._encode_compiled(self._compiled, texts)
        else:
            tokens, lengths, begins_word, uncovered = self._encode_by_library(texts, starts)
        if (spelled := self._never[tokens]).any():  # some models give special tokens in spite of encode_special_tokens
            if self.info.unk is None:
                raise BertprepError(
                    f"{self.path}: turns text that spells a special token into that token, and has no unknown token to use "
                    "instead; name another tokenizer"
                )
            tokens[spelled] = self.info.unk
        if begins_word is None:
            begins_word = self._table[tokens]
            if self.info.words == TABLE:
                begins_word |= _at_or_after(self._added[tokens])
        begins_word[(np.cumsum(lengths) - lengths)[lengths > 0]] = True
        return Documents(tokens, lengths, begins_word, uncovered)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of these ids, including special tokens."""
        return self._library.decode(ids, skip_special_tokens=False)

    def _encode_compiled(self, compiled: _Compiled, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return (tokens, lengths); texts that the library may tokenize differently are given to the library."""
        lines = [text.replace("\n", " ").replace("\r", " ") for text in texts]
        is_same = np.array([compiled.same.fullmatch(line) is not None for line in lines], np.bool_)
        text = "\n".join([*(line if same else "" for line, same in zip(lines, is_same.tolist(), strict=True)), ""])
        with self._lock:
            tokens, ends = compiled.tokenizer.tokenize_lines(text.encode())
        lengths = np.diff(ends, prepend=0)
        if is_same.all():
            return tokens, lengths
        others, lengths[~is_same], _, _ = self._encode_by_library([*compress(texts, ~is_same)])
        merged = np.empty(len(tokens) + len(others), np.int32)
        is_compiled = np.repeat(is_same, lengths)
        merged[is_compiled], merged[~is_compiled] = tokens, others
        return merged, lengths

    def _encode_by_library(
        self, texts: Sequence[str], starts: Sequence[NDArray[np.int64]] = ()
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.bool_] | None, int]:
        """Return (tokens, lengths, whether a token begins a word, characters without a token).

        The third is None if the ids alone decide it. With given words, `starts` has where they start in each text.
        """
        marking, by_table = self._marking, self.info.words not in (WORD_IDS, GIVEN)
        library = marking.library if marking and marking.gives_ids else self._library
        encode = library.encode_batch_fast if by_table else library.encode_batch
        try:
            if self._compiled:  # this may be a forked process, which the library's threads do not survive
                found = [library.encode(text, add_special_tokens=False) for text in texts]
            else:
                found = encode(texts, add_special_tokens=False)
            uncovered = marking.count_uncovered(texts) if marking else 0
        except BaseException as error:
            raise _explained(self.path, "cannot tokenize this text", error) from error
        lengths = np.fromiter(map(len, found), np.int64, len(found))
        tokens = np.fromiter(chain.from_iterable(each.ids for each in found), np.int32, int(lengths.sum()))
        is_kept = np.ones(len(tokens), np.bool_)
        if marking and marking.gives_ids:
            tokens = marking.own_ids[tokens]
            is_kept = tokens >= 0
            lengths = np.diff(np.concatenate([[0], np.cumsum(is_kept)])[np.cumsum([0, *lengths])])
        begins_word = None
        if self.info.words == GIVEN:
            ends = np.fromiter((end for each in found for _, end in each.offsets), np.int64, len(tokens))[is_kept]
            of_texts = np.split(ends, np.cumsum(lengths)[:-1])[: len(lengths)]
            begins = [begin_words(*each) for each in zip(starts, of_texts, strict=True)]
            begins_word = np.concatenate([np.zeros(0, np.bool_), *begins])
        elif not by_table:
            words = np.fromiter(chain.from_iterable(each.word_ids for each in found), np.int32, len(tokens))[is_kept]
            begins_word = np.diff(words, prepend=-1) != 0
        return tokens[is_kept], lengths, begins_word, uncovered


class _Compiled(NamedTuple):
    """The compiled loop, and the pattern of texts for which it gives the same tokens as `tokenizers`."""

    tokenizer: Tokenizer
    same: re.Pattern[str]


def _read(path: Path) -> bytes:
    try:
        return read_bounded(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BertprepError(f"{path}: cannot be read: {why}; name a tokenizer.json") from error


def _why_other_file(path: Path, data: bytes) -> str:
    """Return which other file of a tokenizer a file is, or "" if it is none that is known."""
    if data[:1] == data[2:3] == b"\n" and b"\x15" in data[:_HEAD_BYTES]:  # a message with a piece and its score
        return "is a SentencePiece model and no tokenizer.json"
    try:
        content = parse_json(data)
    except ValueError:
        return "has the tokens of a tokenizer and is no tokenizer.json" if is_of_tokenizer(path) else ""
    is_vocabulary = isinstance(content, dict) and all(isinstance(number, int) for number in content.values())
    return "has the tokens of a tokenizer and is no tokenizer.json" if content and is_vocabulary else ""


def _explained(path: Path, what: str, error: BaseException) -> BaseException:
    """Return an error of the library as one line; Ctrl-C and errors of bertprep stay as they are.

    A panic of the library is a `BaseException`, but not an `Exception`.
    """
    is_own = isinstance(error, KeyboardInterrupt | BertprepError)
    return error if is_own else BertprepError(f"{path}: {what}: {first_line(error)}")


def _encode_own_text(tokenizer: tokenizers.Tokenizer, text: str) -> tokenizers.Encoding | None:
    """Return the tokens of a text of bertprep's own, or None if the vocabulary does not cover it.

    Whether a tokenizer suits the user's text, only that text can tell.
    """
    try:
        return tokenizer.encode(text, add_special_tokens=False)
    except Exception:  # the library raises no narrower class
        return None


def _make_sample(vocabulary: Mapping[str, int], special: Collection[int]) -> str:
    """Return words of two tokens each, for a vocabulary that does not cover other text."""
    tokens = [token for token, number in sorted(vocabulary.items(), key=lambda item: item[1]) if number not in special]
    return " ".join(map("".join, pairwise(tokens)))[:_SAMPLE_CHARACTERS]


def share_in_long_words(begins_word: NDArray[np.bool_]) -> float:
    """Return the fraction of tokens in words of more than `MAX_WORD_TOKENS` tokens, given which tokens begin a word.

    >>> share_in_long_words(np.arange(100) % 20 < 4)  # each 20 tokens are 3 words of one token and one of 17
    0.85
    """
    starts = np.flatnonzero(begins_word)
    sizes = np.diff(starts, append=len(begins_word))
    return float(sizes[sizes > MAX_WORD_TOKENS].sum() / max(len(begins_word), 1))


def _at_or_after(marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which tokens are marked or come directly after a marked one."""
    both: NDArray[np.bool_] = marked.copy()
    both[1:] |= marked[:-1]
    return both


def _begins_word_by_id(tokenizer: tokenizers.Tokenizer, vocabulary: Mapping[str, int], width: int) -> NDArray[np.bool_]:
    """Return for each id whether its token begins a word, judged by the token's text alone: (width,).

    If no token in the vocabulary has a marker, every token begins a word.
    """
    begins_word = np.ones(width, np.bool_)
    if isinstance(tokenizer.model, WordPiece) and (prefix := tokenizer.model.continuing_subword_prefix):
        begins_word[[each for token, each in vocabulary.items() if token.startswith(prefix)]] = False
        return begins_word
    for markers in _MARKERS:
        if marked := [each for token, each in vocabulary.items() if token.startswith(markers)]:
            begins_word[:] = False
            begins_word[marked] = True
            break
    return begins_word


def _find_rule_of_words(
    tokenizer: tokenizers.Tokenizer, sample: tokenizers.Encoding | None, table: NDArray[np.bool_], added: NDArray[np.bool_]
) -> str:
    """Return the rule by which words are found.

    `word_ids` is the rule only if it splits the sample, and differently from the table. Without a pre-tokenizer, `word_ids`
    changes only at tokens that were added to the vocabulary, and so does not find words. `sample` is None if the vocabulary
    does not cover it.
    """
    if isinstance(tokenizer.model, WordPiece) and tokenizer.model.continuing_subword_prefix:
        return WORDPIECE
    if sample is None:
        return TABLE
    begins_word = np.diff(np.array(sample.word_ids, np.float64), prepend=-1) != 0
    is_split = (begins_word & ~_at_or_after(added[sample.ids]))[1:].any()
    return WORD_IDS if is_split and not np.array_equal(table[sample.ids][1:], begins_word[1:]) else TABLE


def _compile(path: Path, tokenizer: tokenizers.Tokenizer, vocabulary: Mapping[str, int]) -> _Compiled | None:
    """Return the compiled loop if the tokenizer differs from BERT's only in its vocabulary; otherwise None."""
    model, normalizer = tokenizer.model, tokenizer.normalizer
    if not (
        isinstance(model, WordPiece)
        and isinstance(normalizer, BertNormalizer)
        and isinstance(tokenizer.pre_tokenizer, BertPreTokenizer)
        and model.continuing_subword_prefix == "##"
        and model.max_input_chars_per_word in _LONGEST
        and normalizer.clean_text
        and normalizer.handle_chinese_chars
        and normalizer.strip_accents in (None, normalizer.lowercase)
        and all(token.special for token in tokenizer.get_added_tokens_decoder().values())
    ):
        return None
    own = tokenizer.get_vocab(with_added_tokens=False)
    # No word begins with a space, so text never becomes an added token.
    tokens = tuple(each if each in own else f" {each}" for each in sorted(vocabulary, key=vocabulary.__getitem__))
    ids = [vocabulary.get(token, -1) for token in SPECIAL_TOKENS]
    if min(ids) < 0 or model.unk_token != "[UNK]" or "" in vocabulary or "\n" in "".join(tokens):
        return None
    if len(tokens) != max(vocabulary.values()) + 1:
        return None
    made = Tokenizer(Vocabulary(path, tokens, "", *ids), lower=normalizer.lowercase, longest=model.max_input_chars_per_word)
    return _Compiled(made, _SAME[normalizer.lowercase])
