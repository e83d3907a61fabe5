"""Tokenizes documents with any tokenizer.json, and finds which tokens begin a word.

The library `tokenizers` does the work on all its threads. Settings in the file that would change the ids of a text are switched
off: truncation, padding, dropout, and special tokens for text that spells their names. BERT's own WordPiece is tokenized by the
compiled loop in `tokenizer` instead, which is much faster and gives the same ids. Documents with characters that the two might
treat differently, because they use different versions of Unicode, still go through the library.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import chain, compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers.models import BPE, WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from bertprep.errors import BertprepError, first_line
from bertprep.instances.given_words import GIVEN, Segmenter, begin_words, find_starts
from bertprep.instances.tokenizer import Tokenizer
from bertprep.instances.tokenizer_files import TOKENIZER, TOKENIZER_CONFIG
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
_NAMES = {
    "cls": ("[CLS]", "<s>", "<cls>", "<bos>", "[BOS]", "<|begin_of_text|>", "<|startoftext|>"),
    "sep": ("[SEP]", "</s>", "<sep>", "<eos>", "[EOS]", "<|end_of_text|>", "<|endoftext|>"),
    "pad": ("[PAD]", "<pad>", "<|pad|>", "<|padding|>", "<|finetune_right_pad_id|>"),
    "mask": ("[MASK]", "<mask>", "<|mask|>"),
    "unk": ("[UNK]", "<unk>", "<|unk|>"),
}
"""The usual names of special tokens."""
_MARKERS = (("▁",), ("Ġ", "Ċ"))
"""First characters of tokens that begin a word: in vocabularies of SentencePiece, and in byte-level ones."""
_SAMPLE = (
    "In 1905 the physicist's third paper (on “moving bodies”) wasn't finished; 3.14 x 10^8, e.g. A_b-c/d@e.org?\n"
    "def scale(values, by=2):\n    return [by * each for each in values]\n\n"
    "\tÜber Straßen, où l'été naît, 北京 и Москва 👍🏽 ▁x"
)
"""Text for comparing words found by the table of markers with those found by `word_ids`."""
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
    all special tokens. `words` is the rule by which words were found.
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

    @classmethod
    def from_manifest(cls, made_with: Mapping[str, Any]) -> TokenizerInfo:
        """Return the tokenizer that a manifest names; the manifest must have been checked."""
        known = {each.name: made_with[each.name] for each in fields(cls)}
        return cls(**{**known, "special": tuple(known["special"])})

    @classmethod
    def from_vocabulary(cls, vocabulary: Vocabulary) -> TokenizerInfo:
        """Return the properties of BERT's tokenizer with this vocab.txt."""
        ids = {name: getattr(vocabulary, name) for name in _NAMES}
        name, special = vocabulary.path.name, tuple(sorted(ids.values()))
        return cls(name, vocabulary.sha256, "WordPiece", len(vocabulary), **ids, special=special, words=WORDPIECE)

    @property
    def added_tokens(self) -> int:
        """Return the number of special tokens around a sequence: [CLS] and [SEP], if the tokenizer has them."""
        return (self.cls is not None) + (self.sep is not None)

    @property
    def made_with(self) -> dict[str, Any]:
        """Return the tokenizer's entry for a manifest."""
        return {**asdict(self), "special": list(self.special)}


class Documents(NamedTuple):
    """The tokens of some documents.

    `tokens` (tokens,) has the ids of all documents one after the other, and `lengths` (documents,) the number of tokens of
    each. `begins_word` (tokens,) is whether a token begins a word.
    """

    tokens: NDArray[np.int32]
    lengths: NDArray[np.int64]
    begins_word: NDArray[np.bool_]

    def ended_by(self, token: int) -> Documents:
        """Return the documents that have tokens, with this token at the end of each; it counts as a word of its own."""
        lengths = self.lengths[self.lengths > 0]
        ends = np.cumsum(lengths)
        tokens, begins_word = np.insert(self.tokens, ends, token), np.insert(self.begins_word, ends, True)
        return Documents(tokens, lengths + 1, begins_word)


class DocumentTokenizer:
    """A tokenizer that is read from a tokenizer.json.

    `config` is the tokenizer_config.json that names the mask token, by default the one next to the tokenizer.json. As an
    attribute it is None if the tokenizer.json alone is enough. `content` is the tokenizer.json for token shards: the file as it
    is, or with a template that puts [CLS] and [SEP] around a text, as rows have them. Its sha256 identifies the tokenizer.
    """

    def __init__(self, path: Path, name: str, config: Path | None = None, words: Segmenter | str | None = None) -> None:
        """Read `path`, and use `name` in manifests; raises `BertprepError` if `tokenizers` cannot read the file.

        `words` replaces the tokenizer's own words: a function that splits a text into words, or the name of the column that
        contains them.
        """
        self.path, self._words = path, words
        data = _read(path)
        if config is None and path.name == TOKENIZER:
            config = path.with_name(TOKENIZER_CONFIG)
        mask = _read_mask_token(config) if config and config.is_file() else None
        try:
            self._library = _load(data)
            ids = _find_special_ids(self._library)
            named = None if mask is None else self._library.token_to_id(mask)
            self.config = None if named in (None, ids["mask"]) else config
            ids["mask"] = ids["mask"] if named is None else named
            sample = _encode_own_text(self._library, _SAMPLE, add_special_tokens=False)
        except BaseException as error:
            raise _explained(path, "is not a tokenizer.json that the library tokenizers can read", error) from error
        vocabulary, added = self._library.get_vocab(with_added_tokens=True), self._library.get_added_tokens_decoder()
        special = {each for each in ids.values() if each is not None} | {each for each, token in added.items() if token.special}
        width = max([*vocabulary.values(), *special], default=-1) + 1
        if not 0 < width <= MAX_TOKENS:
            raise BertprepError(f"{path}: has a vocabulary of {width:,} ids, expected 1 to {MAX_TOKENS:,}")
        self._never = np.zeros(width, np.bool_)  # (width,), tokens that no text may be tokenized to
        self._never[[each for each in special if each != ids["unk"]]] = True
        self._added = np.zeros(width, np.bool_)  # (width,), added tokens that are not special; text is split around them
        self._added[[each for each in added if each not in special]] = True
        self._table = _begins_word_by_id(self._library, vocabulary, width)
        rule = GIVEN if words else _find_rule_of_words(self._library, sample, self._table, self._added)
        # Given words need the position of each token in the text, which the compiled loop does not return.
        self._compiled, self._lock = None if words else _compile(path, self._library, vocabulary), threading.Lock()
        self.content = _with_template(data, self._library, ids["cls"], ids["sep"])
        model, sha256 = type(self._library.model).__name__, hashlib.sha256(self.content).hexdigest()
        self.info = TokenizerInfo(name, sha256, model, width, **ids, special=tuple(sorted(special)), words=rule)

    def __reduce__(self) -> tuple[type[DocumentTokenizer], tuple[Path, str, Path | None, Segmenter | str | None]]:
        """Pickle only the arguments of `__init__`; the process that unpickles them reads the file again."""
        return DocumentTokenizer, (self.path, self.info.name, self.config, self._words)

    @property
    def special_tokens(self) -> dict[str, str]:
        """Return the names of the special tokens that exist, by "cls", "sep", "pad", "mask" and "unk"."""
        ids = {name: getattr(self.info, name) for name in _NAMES}
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
        begins_word = None
        if self._words:
            if callable(self._words):
                starts = [find_starts(self._words, text) for text in texts]
            tokens, lengths, begins_word = self._encode_with_words(texts, starts)
        elif self._compiled:
            tokens, lengths = self._encode_compiled(self._compiled, texts)
        else:
            tokens, lengths, begins_word = self._encode_by_library(texts)
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
        return Documents(tokens, lengths, begins_word)

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
        others, lengths[~is_same], _ = self._encode_by_library([*compress(texts, ~is_same)])
        merged = np.empty(len(tokens) + len(others), np.int32)
        is_compiled = np.repeat(is_same, lengths)
        merged[is_compiled], merged[~is_compiled] = tokens, others
        return merged, lengths

    def _encode_with_words(
        self, texts: Sequence[str], starts: Sequence[NDArray[np.int64]]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.bool_]]:
        """Return (tokens, lengths, whether a token begins a word), given where the words start in each text."""
        try:
            found = self._library.encode_batch(texts, add_special_tokens=False)
        except BaseException as error:
            raise _explained(self.path, "cannot tokenize this text", error) from error
        lengths = np.fromiter(map(len, found), np.int64, len(found))
        tokens = np.fromiter(chain.from_iterable(each.ids for each in found), np.int32, int(lengths.sum()))
        begins = [
            begin_words(of_text, np.array([end for _, end in each.offsets], np.int64))
            for of_text, each in zip(starts, found, strict=True)
        ]
        return tokens, lengths, np.concatenate([np.zeros(0, np.bool_), *begins])

    def _encode_by_library(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.bool_] | None]:
        """Return (tokens, lengths, whether a token begins a word), the last as None if the ids alone decide it."""
        by_table = self.info.words != WORD_IDS
        encode = self._library.encode_batch_fast if by_table else self._library.encode_batch
        try:
            if self._compiled:  # this may be a forked process, which the library's threads do not survive
                found = [self._library.encode(text, add_special_tokens=False) for text in texts]
            else:
                found = encode(texts, add_special_tokens=False)
        except BaseException as error:
            raise _explained(self.path, "cannot tokenize this text", error) from error
        lengths = np.fromiter(map(len, found), np.int64, len(found))
        tokens = np.fromiter(chain.from_iterable(each.ids for each in found), np.int32, int(lengths.sum()))
        if by_table:
            return tokens, lengths, None
        words = np.fromiter(chain.from_iterable(each.word_ids for each in found), np.int32, len(tokens))
        return tokens, lengths, np.diff(words, prepend=-1) != 0


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


def _read_mask_token(config: Path) -> str | None:
    """Return the `mask_token` of a tokenizer_config.json, which is a name or an object with the name as `content`."""
    try:
        found = parse_json(_read(config))
        token = found.get("mask_token")
        token = token.get("content") if isinstance(token, dict) else token
    except (ValueError, AttributeError) as error:
        raise BertprepError(f"{config}: is not a {TOKENIZER_CONFIG}: {first_line(error)}; fix or remove it") from error
    return token if isinstance(token, str) else None


def _with_template(data: bytes, tokenizer: tokenizers.Tokenizer, cls: int | None, sep: int | None) -> bytes:
    """Return a tokenizer.json with a template that puts [CLS] and [SEP] around a text, as far as the tokenizer has them.

    If the file's own template does that, the file is returned unchanged. Its JSON is edited, not written by the library, so
    that the sha256 does not depend on the library's version.
    """
    added = [each for each in (cls, sep) if each is not None]
    around = _encode_own_text(tokenizer, "a", add_special_tokens=True)
    plain = _encode_own_text(tokenizer, "a", add_special_tokens=False)
    if around is None or plain is None or not added:
        return data
    begin, end = ([] if each is None else [each] for each in (cls, sep))
    if around.ids == [*begin, *plain.ids, *end]:
        return data

    def place(sequence: str, number: int, *, begins: bool) -> list[dict[str, Any]]:
        tokens = [*(begin if begins else []), None, *end]
        return [
            {"Sequence": {"id": sequence, "type_id": number}}
            if each is None
            else {"SpecialToken": {"id": tokenizer.id_to_token(each), "type_id": number}}
            for each in tokens
        ]

    template = {
        "type": "TemplateProcessing",
        "single": place("A", 0, begins=True),
        "pair": [*place("A", 0, begins=True), *place("B", 1, begins=False)],
        "special_tokens": {
            token: {"id": token, "ids": [each], "tokens": [token]} for each in added if (token := tokenizer.id_to_token(each))
        },
    }
    content = json.loads(data)
    own = content.get("post_processor") or {}
    processors = own["processors"] if own.get("type") == "Sequence" else [own]
    kept = [each for each in processors if each.get("type") == "ByteLevel"]  # it trims the offsets of tokens
    content["post_processor"] = {"type": "Sequence", "processors": [*kept, template]} if kept else template
    return (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode()


def _load(data: bytes) -> tokenizers.Tokenizer:
    """Return the tokenizer of a file without truncation, padding and dropout, and without special tokens from text."""
    tokenizer = tokenizers.Tokenizer.from_str(data.decode())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    if isinstance(tokenizer.model, BPE):
        tokenizer.model.dropout = None
    return tokenizer


def _explained(path: Path, what: str, error: BaseException) -> BaseException:
    """Return an error of the library as one line; Ctrl-C stays as it is.

    A panic of the library is a `BaseException`, but not an `Exception`.
    """
    return error if isinstance(error, KeyboardInterrupt) else BertprepError(f"{path}: {what}: {first_line(error)}")


def _find_special_ids(tokenizer: tokenizers.Tokenizer) -> dict[str, int | None]:
    """Return the ids of the special tokens.

    These are the tokens that the tokenizer puts around the text "a", or else tokens with the usual names. If several of these
    names are in the vocabulary, one that the file marks as special is preferred.
    """
    special = {each for each, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    ids: dict[str, int | None] = {}
    for role, names in _NAMES.items():
        known = [each for each in map(tokenizer.token_to_id, names) if each is not None]
        ids[role] = next((each for each in known if each in special), known[0] if known else None)
    around = _encode_own_text(tokenizer, "a", add_special_tokens=True)
    if around and around.special_tokens_mask[0]:
        ids["cls"] = around.ids[0]
    if around and len(around) > 1 and around.special_tokens_mask[-1]:
        ids["sep"] = around.ids[-1]
    unknown = getattr(tokenizer.model, "unk_token", None)
    return {**ids, "unk": ids["unk"] if unknown is None else tokenizer.token_to_id(unknown)}


def _encode_own_text(tokenizer: tokenizers.Tokenizer, text: str, *, add_special_tokens: bool) -> tokenizers.Encoding | None:
    """Return the tokens of a text of bertprep's own, or None if the vocabulary does not cover it.

    Whether a tokenizer suits the user's text, only that text can tell.
    """
    try:
        return tokenizer.encode(text, add_special_tokens=add_special_tokens)
    except Exception:  # the library raises no narrower class
        return None


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
