"""Finds the special tokens of a tokenizer: those of its template, those that files next to it name, those with usual names.

A template puts special tokens before and after a text, as rows have them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers.models import Unigram, WordLevel

from bertprep.errors import BertprepError
from bertprep.instances.tokenizer_files import TOKENIZER, TOKENIZER_CONFIG, name_of_token, read_config

ADDED_TOKENS, SPECIAL_TOKENS_MAP = ("added_tokens.json", "special_tokens_map.json")
_ROLES = ("mask", "pad", "unk", "cls", "sep", "bos", "eos")
USUAL_NAMES = {
    "cls": ("[CLS]", "<s>", "<cls>", "<bos>", "[BOS]", "<|begin_of_text|>", "<|startoftext|>"),
    "sep": ("[SEP]", "</s>", "<sep>", "<eos>", "[EOS]", "<|end_of_text|>", "<|endoftext|>"),
    "pad": ("[PAD]", "<pad>", "<|pad|>", "<|padding|>", "<|finetune_right_pad_id|>"),
    "mask": ("[MASK]", "<mask>", "<|mask|>"),
    "unk": ("[UNK]", "<unk>", "<|unk|>"),
}
"""The usual names of special tokens."""
_MASK_LETTERS = ("mask", "mdmmask")
"""The letters of a special token that is a mask under another name, such as LLaDA's <|mdm_mask|>; [gMASK] is for generation."""

Template = tuple[tuple[int, ...], tuple[int, ...]]
"""The special tokens before and after a sequence."""


class NamedTokens(NamedTuple):
    """The special tokens that files next to a tokenizer.json name.

    `roles` has them by "cls", "sep", "pad", "mask" and "unk". `absent` has "cls" or "sep" if the files say that it is null.
    `ids` has the ids of tokens, and `special` those of these tokens that a file marks as special.
    """

    roles: Mapping[str, str]
    absent: Sequence[str]
    ids: Mapping[str, int]
    special: Collection[str]


def sidecars_of(tokenizer: Path) -> list[Path]:
    """Return the files next to a tokenizer.json that name special tokens; those that come first count less."""
    if tokenizer.name != TOKENIZER:
        return []
    paths = (tokenizer.with_name(name) for name in (ADDED_TOKENS, SPECIAL_TOKENS_MAP, TOKENIZER_CONFIG))
    return [path for path in paths if path.is_file()]


def find_named_tokens(configs: Sequence[Path]) -> NamedTokens:
    """Return the special tokens that files of transformers name; raises `BertprepError` if one is not such a file.

    If they name no pair of cls_token and sep_token, the tokens around a text are bos_token and eos_token, unless these are the
    same token, which ends a text.
    """
    named: dict[str, str] = {}
    ids: dict[str, int] = {}
    nulls: set[str] = set()
    special: set[str] = set()
    for path in configs:
        found = read_config(path)
        if path.name == ADDED_TOKENS:
            ids |= {token: number for token, number in found.items() if isinstance(number, int)}
            continue
        listed = found.get("added_tokens_decoder")
        for number, token in listed.items() if isinstance(listed, dict) else ():
            name = name_of_token(token)
            if name and number.isdecimal():
                ids[name] = int(number)
                if isinstance(token, dict) and token.get("special"):
                    special.add(name)
        named |= {role: name for role in _ROLES if (name := name_of_token(found.get(f"{role}_token")))}
        nulls |= {role for role in _ROLES if found.get(f"{role}_token", "") is None}
    begin, end = named.pop("bos", None), named.pop("eos", None)
    if begin == end:
        begin = None
    if begin and end and not ("cls" in named and "sep" in named):
        named |= {"cls": begin, "sep": end}
    for role, name in (("cls", begin), ("sep", end)):
        if name:
            named.setdefault(role, name)
    absent = [role for role, other in (("cls", "bos"), ("sep", "eos")) if other in nulls and role not in named]
    return NamedTokens(named, absent, ids, special)


def find_special_ids(
    tokenizer: tokenizers.Tokenizer, named: NamedTokens, before: Sequence[int], after: Sequence[int]
) -> dict[str, int | None]:
    """Return the ids of the special tokens.

    These are a single token that the template puts `before` or `after` a text, or else the `named` ones, or else tokens with
    the usual names. If several of these names are in the vocabulary, one that the file marks as special is preferred.
    """
    special = {each: token.content for each, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    ids: dict[str, int | None] = {}
    for role, names in USUAL_NAMES.items():
        known = [each for each in map(tokenizer.token_to_id, names) if each is not None]
        ids[role] = next((each for each in known if each in special), known[0] if known else None)
    if ids["mask"] is None:
        ids["mask"] = next((each for each, name in special.items() if _letters_of(name) in _MASK_LETTERS), None)
    ids |= dict.fromkeys(named.absent)
    for role, token in named.roles.items():
        number = tokenizer.token_to_id(token)
        ids[role] = ids[role] if number is None else number
    if len(before) == 1:
        ids["cls"] = before[0]
    if len(after) == 1:
        ids["sep"] = after[0]
    if (unknown := _unknown_id(tokenizer)) is not None:
        ids["unk"] = unknown
    elif ids["unk"] in (ids["cls"], ids["sep"], ids["pad"]):  # as in GPT-2's files, which name <|endoftext|> for all
        ids["unk"] = None
    return ids


def _unknown_id(tokenizer: tokenizers.Tokenizer) -> int | None:
    """Return the id of the token that the model itself gives for unknown text, if it has one."""
    if isinstance(tokenizer.model, Unigram):  # whose object does not show it
        number: int | None = json.loads(tokenizer.model.__getstate__())["unk_id"]
        return number
    name = getattr(tokenizer.model, "unk_token", None)
    return None if name is None else tokenizer.token_to_id(name)


def _letters_of(token: str) -> str:
    return "".join(filter(str.isalpha, token)).lower()


def template_of(cls: int | None, sep: int | None) -> Template:
    return () if cls is None else (cls,), () if sep is None else (sep,)


def with_added(data: bytes, tokenizer: tokenizers.Tokenizer, named: NamedTokens) -> bytes:
    """Add the tokens that other files have, with the ids after the tokenizer's last; return its file with them."""
    usual = {*chain.from_iterable(USUAL_NAMES.values()), *named.roles.values(), *named.special}
    added = []
    for token, number in sorted(named.ids.items(), key=lambda item: item[1]):
        if tokenizer.token_to_id(token) is None and number == _width_of(tokenizer):
            is_special = token in usual
            made = tokenizers.AddedToken(token, normalized=not is_special, special=is_special)
            tokenizer.add_special_tokens([made]) if is_special else tokenizer.add_tokens([made])
            settings = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": not is_special}
            added.append({"id": number, "content": token, **settings, "special": is_special})
    if not added:
        return data
    content = json.loads(data)
    content["added_tokens"] = [*content.get("added_tokens", []), *added]
    return _written(content)


def _width_of(tokenizer: tokenizers.Tokenizer) -> int:
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1


def _written(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode()


def find_template(path: Path, tokenizer: tokenizers.Tokenizer) -> Template:
    """Return the tokens that a file's template puts before and after a text; raises `BertprepError` if it has no text.

    The template is applied to a token of bertprep's own, as the vocabulary may cover no text that is known here.
    """
    if tokenizer.post_processor is None:
        return (), ()
    text = tokenizers.Tokenizer(WordLevel({"a": 0}, unk_token="a")).encode("a")
    around = tokenizer.post_processor.process(text, None, True)
    if 0 not in around.special_tokens_mask:
        raise BertprepError(
            f"{path}: the template in its post_processor has special tokens and no text; put the text between them: "
            '{"Sequence": {"id": "A", "type_id": 0}}'
        )
    at = around.special_tokens_mask.index(0)
    return tuple(around.ids[:at]), tuple(around.ids[at + 1 :])


def with_template(data: bytes, tokenizer: tokenizers.Tokenizer, before: Sequence[int], after: Sequence[int]) -> bytes:
    """Return a tokenizer.json with a template that puts these tokens before and after a text.

    Its JSON is edited, not written by the library, so that the sha256 does not depend on the library's version.
    """

    def special(tokens: Sequence[int], segment: int) -> list[dict[str, Any]]:
        return [{"SpecialToken": {"id": tokenizer.id_to_token(each), "type_id": segment}} for each in tokens]

    def text(name: str, segment: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": segment}}

    single = [*special(before, 0), text("A", 0), *special(after, 0)]
    template = {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, text("B", 1), *special(after, 1)],
        "special_tokens": {
            token: {"id": token, "ids": [each], "tokens": [token]}
            for each in [*before, *after]
            if (token := tokenizer.id_to_token(each))
        },
    }
    content = json.loads(data)
    own = content.get("post_processor") or {}
    processors = own["processors"] if own.get("type") == "Sequence" else [own]
    kept = [each for each in processors if each.get("type") == "ByteLevel"]  # it trims the offsets of tokens
    content["post_processor"] = {"type": "Sequence", "processors": [*kept, template]} if kept else template
    return _written(content)
