"""Any tokenizer.json: ids are those of `tokenizers`, words are the pre-tokenizer's, and what a file carries is left out."""

import json
import pickle
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from bertprep.errors import BertprepError
from bertprep.instances.document_tokenizer import _SAME, Documents, DocumentTokenizer
from bertprep.instances.unicode_table import load_unicode_table
from bertprep.kernels import numbers as n
from tests.instances.small_tokenizers import KINDS, TEXT, content_of, wordpiece, write_tokenizer

SPELLED = ("[MASK]", "[UNK]", "</s>", "<s>", "<mask>", "<|begin_of_text|>", "<cls>", "##s", "▁", "Ġ")
DOCUMENTS = st.lists(
    st.one_of(
        st.text(max_size=40),
        st.lists(
            st.sampled_from([*SPELLED, *TEXT, " ", "\n", "\r\n", "Σ", "ΟΔΟΣ", "\u061d", "\ue000", "x" * 120]), max_size=6
        ).map("".join),
    ),
    max_size=5,
)


@cache
def opened(kind: str) -> DocumentTokenizer:
    with TemporaryDirectory() as folder:
        return DocumentTokenizer(write_tokenizer(Path(folder), kind), kind)


@cache
def library(kind: str) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer.from_str(content_of(kind))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def split(found: Documents) -> list[tuple[list[int], list[int]]]:
    ends = np.cumsum(found.lengths)[:-1]
    both = zip(np.split(found.tokens, ends), np.split(found.begins_word.astype(int), ends), strict=True)
    return [(tokens.tolist(), begins.tolist()) for tokens, begins in both]


def expected(kind: str, texts: Sequence[str]) -> list[tuple[list[int], list[int]]]:
    info = opened(kind).info
    never = set(info.special) - {info.unk}
    made = []
    for each in library(kind).encode_batch(list(texts), add_special_tokens=False):
        ids = [info.unk if id_ in never else id_ for id_ in each.ids]
        words = range(len(ids)) if kind == "characters" else each.word_ids
        made.append((ids, [int(a != b) for a, b in zip(words, [None, *words], strict=False)]))
    return made


@pytest.mark.parametrize("kind", KINDS)
@given(texts=DOCUMENTS)
def test_ids_and_words_are_those_of_the_library(kind: str, texts: list[str]) -> None:
    assert not texts or split(opened(kind).encode(texts)) == expected(kind, texts)


def test_cased_and_shorter_words_go_the_compiled_road_too(tmp_path: Path) -> None:
    content = json.loads(wordpiece(cased=True).to_str())
    content["model"]["max_input_chars_per_word"] = 100
    (path := tmp_path / "tokenizer.json").write_text(json.dumps(content))
    tokenizer, by_library = DocumentTokenizer(path, "x"), tokenizers.Tokenizer.from_str(json.dumps(content))
    texts = ["The " + "a" * 100, "The " + "a" * 101, "THE é", *TEXT]
    assert tokenizer._compiled
    assert [ids for ids, _ in split(tokenizer.encode(texts))] == [
        each.ids for each in by_library.encode_batch(texts, add_special_tokens=False)
    ]


def test_a_word_that_was_added_as_a_special_token_is_spelled(tmp_path: Path) -> None:
    by_library = wordpiece()
    by_library.add_special_tokens(["entity"])
    by_library.no_truncation()
    by_library.encode_special_tokens = True
    (path := tmp_path / "tokenizer.json").write_text(by_library.to_str())
    tokenizer = DocumentTokenizer(path, "x")
    assert tokenizer.is_compiled
    assert tokenizer.encode(["an entity"]).tokens.tolist() == by_library.encode("an entity", add_special_tokens=False).ids


def test_word_pieces_without_a_prefix_have_the_words_of_the_library(tmp_path: Path) -> None:
    content = json.loads(wordpiece().to_str())
    content["model"]["continuing_subword_prefix"] = ""
    (path := tmp_path / "tokenizer.json").write_text(json.dumps(content))
    begins_word = DocumentTokenizer(path, "x").encode(["unforeseeably xyz"]).begins_word
    assert (len(begins_word) > 2, begins_word.sum()) == (True, 2)


@pytest.mark.parametrize("lower", [True, False])
def test_the_text_of_the_compiled_road_is_the_same_to_both(lower: bool) -> None:
    """Each character between two letters, by the table of the compiled loop and by the library."""
    entries, replacements = load_unicode_table(lower=lower)
    normalizer, pre_tokenizer = BertNormalizer(lowercase=lower), BertPreTokenizer()
    points = [point for point in range(0x110000) if point not in (10, 13) and _SAME[lower].fullmatch(chr(point))]
    assert len(points) > 40_000
    for point in points:
        entry, found = int(entries[point]), chr(point)
        if at := entry >> n.REPLACEMENT_SHIFT:
            found = bytes(replacements[at + 2 : at + 2 + int(replacements[at])]).decode()
        words = {n.SPACE: ["a", "b"], n.DROP: ["ab"], n.ALONE: ["a", found, "b"]}.get(entry & n.CODE_POINT_KIND, [f"a{found}b"])
        assert [word for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(f"a{chr(point)}b"))] == words


def test_what_is_known_of_a_tokenizer() -> None:
    known = {kind: opened(kind).info for kind in KINDS}
    assert {kind: (info.model, info.words) for kind, info in known.items()} == {
        "wordpiece": ("WordPiece", "wordpiece"), "byte_bpe": ("BPE", "word_ids"), "unigram": ("Unigram", "table"),
        "llama": ("BPE", "word_ids"), "characters": ("BPE", "table"),
    }  # fmt: skip
    assert {kind: info.width for kind, info in known.items()} == {
        kind: max(library(kind).get_vocab().values()) + 1 for kind in KINDS
    }
    assert {kind: (info.cls, info.sep, info.pad, info.mask, info.unk) for kind, info in known.items()} == {
        "wordpiece": (7, 8, 0, 9, 6), "byte_bpe": (1, 2, 3, 4, 0), "unigram": (0, 2, 1, 4, 3),
        "llama": (128_000, 128_001, None, 128_002, None), "characters": (0, 2, 1, 29, 3),
    }  # fmt: skip
    assert known["byte_bpe"].special == (0, 1, 2, 3, 4)


def test_words_are_found_where_the_sample_meets_added_tokens(tmp_path: Path) -> None:
    """As in Gemma's file: nothing splits a text but its added tokens, so `word_ids` tell of these alone."""
    content = json.loads(content_of("unigram"))
    content["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    content["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    by_library = tokenizers.Tokenizer.from_str(json.dumps(content))
    by_library.add_tokens(["\n\n", "▁▁▁▁"])
    (path := tmp_path / "tokenizer.json").write_text(by_library.to_str())
    tokenizer = DocumentTokenizer(path, "x")
    assert tokenizer.info.words == "table"
    [(ids, begins)] = split(tokenizer.encode(["the dog the\n\nfox over the dog"]))
    words = "".join("|" * begin + str(by_library.id_to_token(each)) for each, begin in zip(ids, begins, strict=True))
    assert words == "|the|▁dog|▁the|\n\n|fox|▁over|▁the|▁dog"


def with_two_masks() -> tokenizers.Tokenizer:
    """A plain word [MASK] in the vocabulary, a special token <mask>, and a token with a name of its own."""
    content = json.loads(content_of("unigram"))
    content["model"]["vocab"].append(["[MASK]", -9.0])
    by_library = tokenizers.Tokenizer.from_str(json.dumps(content))
    by_library.add_special_tokens(["<blank>"])
    return by_library


@pytest.mark.parametrize(
    ("config", "mask"),
    [
        (None, "<mask>"),
        ({}, "<mask>"),
        ({"mask_token": "<blank>"}, "<blank>"),
        ({"mask_token": {"content": "<blank>", "special": True}}, "<blank>"),
        ({"mask_token": "none such"}, "<mask>"),
        ({"mask_token": None}, "<mask>"),
    ],
)
def test_the_mask_token_is_the_one_that_is_named_or_marked_as_special(tmp_path: Path, config: object, mask: str) -> None:
    (path := tmp_path / "tokenizer.json").write_text(with_two_masks().to_str())
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = DocumentTokenizer(path, "x")
    assert tokenizer.special_tokens["mask"] == mask
    assert tokenizer.info.mask == with_two_masks().token_to_id(mask)
    assert pickle.loads(pickle.dumps(tokenizer)).info == tokenizer.info


@pytest.mark.parametrize("content", ["[]", "{", '"x"'])
def test_a_config_that_is_none_is_refused_in_one_line(tmp_path: Path, content: str) -> None:
    path = write_tokenizer(tmp_path, "byte_bpe")
    path.with_name("tokenizer_config.json").write_text(content)
    with pytest.raises(BertprepError, match=r"tokenizer_config\.json: is not a tokenizer_config\.json: .*; fix or remove it$"):
        DocumentTokenizer(path, "x")


@pytest.mark.parametrize("kind", KINDS)
def test_a_template_adds_the_special_tokens_of_rows(kind: str, tmp_path: Path) -> None:
    """Files that have such a template are as they were; that of Llama adds no end, and that of the Unigram nothing."""
    tokenizer = DocumentTokenizer(write_tokenizer(tmp_path, kind), kind)
    content, info = tokenizer.content, tokenizer.info
    assert (content == content_of(kind).encode()) == (kind not in ("llama", "unigram"))
    made = tokenizers.Tokenizer.from_str(content.decode())
    made.no_truncation()
    made.no_padding()
    text = library(kind).encode("the dog", add_special_tokens=False).ids
    assert made.encode("the dog").ids == [info.cls, *text, info.sep]
    if content != content_of(kind).encode():
        pair = made.encode("the dog", "the dog")
        assert pair.ids == [info.cls, *text, info.sep, *text, info.sep]
        assert pair.type_ids == [0] * (len(text) + 2) + [1] * (len(text) + 1)
    (again := tmp_path / "again.json").write_bytes(content)
    assert DocumentTokenizer(again, kind).content == content
    assert DocumentTokenizer(again, kind).info == info


def test_a_template_keeps_what_trims_offsets(tmp_path: Path) -> None:
    """Without it, the offsets of a word of GPT-2 and its like begin at the space before."""
    trained = tokenizers.Tokenizer.from_str(content_of("byte_bpe"))
    trained.post_processor = tokenizers.processors.ByteLevel(trim_offsets=True)
    (path := tmp_path / "tokenizer.json").write_text(trained.to_str())
    made = tokenizers.Tokenizer.from_str(DocumentTokenizer(path, "x").content.decode())
    made.no_truncation()
    made.no_padding()
    found = made.encode("the dog")
    assert (found.tokens[0], found.tokens[-1]) == ("[CLS]", "[SEP]")
    assert found.offsets[found.tokens.index("Ġdog")] == (4, 7)


def test_half_a_surrogate_pair_is_a_question_mark() -> None:
    tokenizer = opened("byte_bpe")
    assert split(tokenizer.encode(["a\ud800b"])) == split(tokenizer.encode(["a?b"]))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{}", "is not a tokenizer.json that the library tokenizers can read: Model missing"),
        ("\xff", "is not a tokenizer.json that the library tokenizers can read"),
        (
            '{"model": {"type": "WordLevel", "vocab": {}, "unk_token": "x"}}',
            "has a vocabulary of 0 ids, expected 1 to 2,097,152",
        ),
        (
            '{"model": {"type": "BPE", "vocab": {"a": 4000000}, "merges": []}}',
            "has a vocabulary of 4,000,001 ids, expected 1 to 2,097,152",
        ),
    ],
)
def test_what_is_no_tokenizer_is_refused_in_one_line(tmp_path: Path, content: str, words: str) -> None:
    (path := tmp_path / "tokenizer.json").write_text(content, encoding="latin-1")
    with pytest.raises(BertprepError) as refused:
        DocumentTokenizer(path, "x")
    assert str(refused.value).startswith(f"{path}: {words}")
    assert "\n" not in str(refused.value)


def panics() -> dict[str, tuple[dict[str, Any], str]]:
    """Files with which the library panics: when it loads them, when it adds special tokens, and when it splits a word."""
    unknown = [{"SpecialToken": {"id": "[NONE]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    template = {"type": "TemplateProcessing", "single": unknown, "pair": [], "special_tokens": {}}
    model = json.loads(content_of("byte_bpe"))["model"]
    return {
        "map": ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}, "Precompiled: "),
        "template": ({"post_processor": template}, "no entry found for key"),
        "prefix": ({"model": {**model, "continuing_subword_prefix": "x" * 50}}, "range end index [0-9]+ out of range"),
    }


@pytest.mark.parametrize("name", panics())
def test_a_panic_of_the_library_is_one_line(name: str, tmp_path: Path) -> None:
    change, why = panics()[name]
    (path := tmp_path / "tokenizer.json").write_text(json.dumps({**json.loads(content_of("byte_bpe")), **change}))
    with pytest.raises(
        BertprepError, match=f"^{path}: is not a tokenizer.json that the library tokenizers can read: {why}"
    ) as refused:
        DocumentTokenizer(path, "x")
    assert "\n" not in str(refused.value)


def test_a_panic_on_a_text_is_one_line(tmp_path: Path) -> None:
    """Pieces of no characters are cut from what the normalizer leaves, which is nothing for most texts."""
    change = {
        "normalizer": {"type": "Replace", "pattern": {"Regex": "[^Z]"}, "content": ""},
        "pre_tokenizer": {"type": "FixedLength", "length": 0},
    }
    (path := tmp_path / "tokenizer.json").write_text(json.dumps({**json.loads(content_of("unigram")), **change}))
    tokenizer = DocumentTokenizer(path, "x")
    assert tokenizer.encode(["the dog"]).lengths.tolist() == [0]
    with pytest.raises(BertprepError, match=f"^{path}: cannot tokenize this text: chunk size must be non-zero$"):
        tokenizer.encode(["Z"])


@pytest.mark.parametrize(
    "model",
    [
        {"type": "WordLevel", "vocab": {"A": 0, "C": 1, "G": 2, "T": 3}, "unk_token": "[UNK]"},
        {"type": "Unigram", "vocab": [["A", -1.0], ["C", -1.0], ["G", -1.0], ["T", -1.0]]},
    ],
    ids=["words", "pieces"],
)
def test_only_the_text_of_the_user_decides_whether_a_vocabulary_covers_it(model: dict[str, Any], tmp_path: Path) -> None:
    """As one of DNA, without an unknown token: bertprep's own sample is none of its text."""
    split_all = {"type": "Split", "pattern": {"Regex": ""}, "behavior": "Isolated", "invert": False}
    (path := tmp_path / "tokenizer.json").write_text(json.dumps({"model": model, "pre_tokenizer": split_all}))
    tokenizer = DocumentTokenizer(path, "x")
    assert split(tokenizer.encode(["GATTACA"])) == [([2, 0, 3, 3, 0, 1, 0], [1] * 7)]
    assert tokenizer.info.words == "table"
    partly = tokenizer.encode(["GATTAXA"])
    assert (split(partly), partly.uncovered) == ([([2, 0, 3, 3, 0, 0], [1] * 6)], 1)


def test_special_tokens_in_a_text_are_refused_where_none_stands_for_them(tmp_path: Path) -> None:
    content = {
        "model": {"type": "BPE", "vocab": {"a": 0, "<s>": 1, "<": 2, "s": 3, "<s": 4, ">": 5}, "merges": ["< s", "<s >"]}
    }
    (path := tmp_path / "tokenizer.json").write_text(json.dumps(content))
    tokenizer = DocumentTokenizer(path, "x")
    assert tokenizer.encode(["a"]).tokens.tolist() == [0]
    with pytest.raises(BertprepError, match="turns text that spells a special token into that token, and has no unknown"):
        tokenizer.encode(["<s>"])
