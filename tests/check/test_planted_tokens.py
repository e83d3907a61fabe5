"""Damage planted in token shards, and signed again as the tool of a stranger would sign it: what validate finds of it.

The ids of a shard are all possible values, so much of this is found only by asking the tokenizer next to the shards.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import bertprep
from bertprep.files.checksums import BLAKE3
from bertprep.files.paths import checksum_of
from bertprep.instances.document_tokenizer import TokenizerInfo
from bertprep.instances.vocabulary import load_vocabulary
from bertprep.sources.sample import read_speeches
from bertprep.text import tokenize_documents
from bertprep.tokens.shard import parse_index, write_token_shard
from tests.golden import GOLDEN

Ids = NDArray[np.int64]
SENTENCES = "sentences"
KINDS = "BPE", "WordPiece", SENTENCES


@dataclass
class Shard:
    """The documents of a shard, and whether each token begins a word, or in shards of sentences a sentence."""

    documents: list[Ids]
    words: list[NDArray[np.bool_]]


@dataclass
class Tokens:
    """A data set of token shards in memory, of which a plant changes something."""

    folder: Path
    info: TokenizerInfo
    shards: dict[str, Shard] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(7)
        for path in sorted(self.folder.rglob("*.bin")):
            _, lengths, documents = parse_index(path.with_suffix(".idx"), path.with_suffix(".idx").read_bytes())
            ids = np.fromfile(path, np.uint16).astype(np.int64)
            if self.has_words:
                bits = np.unpackbits(np.fromfile(path.with_suffix(".words"), np.uint8), bitorder="little")[: len(ids)]
            else:
                bits = np.zeros(len(ids), np.uint8)
                bits[np.cumsum(lengths) - lengths] = 1
            ends = np.cumsum(lengths)[documents[1:] - 1][:-1]
            name = path.relative_to(self.folder).with_suffix("").as_posix()
            self.shards[name] = Shard(np.split(ids, ends), np.split(bits.astype(bool), ends))

    @property
    def has_words(self) -> bool:
        return self.info.model != SENTENCES

    @property
    def training(self) -> list[Shard]:
        return [shard for name, shard in self.shards.items() if name.startswith("training")]

    def drawn(self, count: int) -> Ids:
        return self.random.integers(max(self.info.special) + 1, self.info.width, count)

    def change(self, change: Callable[[Ids], Ids]) -> None:
        """Change the ids of each training document; the borders of words stay where they are."""
        for shard in self.training:
            shard.documents = [change(ids) for ids in shard.documents]

    def replace(self, share: float, ids: Callable[[int], Any]) -> None:
        self.change(lambda old: np.where(self.random.random(len(old)) < share, ids(len(old)), old))

    def write(self) -> None:
        """Write the shards, and a manifest with their counts and checksums."""
        manifest = json.loads((self.folder / "manifest.json").read_text())
        for name in manifest["files"]:
            (self.folder / name).unlink(missing_ok=True)
        manifest["files"] = {}
        for name, shard in self.shards.items():
            paths = {end: self.folder / f"{name}.{end}" for end in ("bin", "idx", "words")[: 3 if self.has_words else 2]}
            with write_token_shard(paths, width=self.info.width) as file:
                ids, lengths = np.concatenate(shard.documents), np.array([len(ids) for ids in shard.documents])
                begins = np.concatenate(shard.words)
                if self.has_words:
                    file.add(ids.astype(np.int32), lengths, begins_word=begins)
                else:
                    sequences = np.array([np.count_nonzero(begins) for begins in shard.words])
                    file.add(ids.astype(np.int32), np.diff(np.flatnonzero(begins), append=len(ids)), sequences=sequences)
            for end, path in paths.items():
                counts = {"documents": len(shard.documents), "tokens": sum(map(len, shard.documents))} if end == "bin" else {}
                entry = {**counts, "bytes": path.stat().st_size, BLAKE3: checksum_of(path)}
                manifest["files"][f"{name}.{end}"] = entry
        (self.folder / "manifest.json").write_text(json.dumps(manifest))


def tokenizer_of(kind: str, texts: list[str], folder: Path) -> Path:
    """Train a tokenizer of a kind on some text."""
    trainer: Any
    if kind == "BPE":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=4000, special_tokens=["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"], show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )  # fmt: skip
    else:
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        trainer = trainers.WordPieceTrainer(vocab_size=4000, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def vocabulary_in(folder: Path) -> Path:
    """Write a vocabulary as large as BERT's; half of its words are in no text."""
    tokens = (GOLDEN / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
    content = [*tokens, *(f"word{number}" for number in range(30_522 - len(tokens)))]
    (folder / "vocab.txt").write_text("\n".join(content) + "\n", encoding="utf-8")
    return folder / "vocab.txt"


@pytest.fixture(scope="module", params=KINDS)
def clean(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of three shards of speeches and a test split."""
    folder = tmp_path_factory.mktemp("planted")
    if request.param == SENTENCES:
        speeches = list(read_speeches())[60:100]
        (folder / "a.txt").write_text("\n\n".join(" ".join(speech.split()) for speech in speeches))
        how = {"workdir": folder, "corpus": "speeches", "workers": 1}
        bertprep.shard([folder / "a.txt"], shards=3, test_fraction=0.2, one_document_per_block=True, **how)
        return bertprep.tokenize(vocab=vocabulary_in(folder), **how).folder
    texts = [" ".join(speech.split()) for speech in list(read_speeches())[60:100]]
    for number in range(3):
        (folder / f"{number}.txt").write_text("\n\n".join(texts[number::3]))
    tokenizer = tokenizer_of(request.param, texts, folder / "tokenizer")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenize_documents, "_TASK_BYTES", 1)
        made = bertprep.tokenize(
            inputs=[folder / "0.txt", folder / "1.txt", folder / "2.txt"], tokenizer=tokenizer, output=folder / "out",
            test_fraction=0.1, one_document_per_block=True, workers=1,
        )  # fmt: skip
    return made.folders["tokens"]


def info_of(folder: Path) -> TokenizerInfo:
    made_with = json.loads((folder / "manifest.json").read_text())["made_with"]["tokenizer"]
    if isinstance(made_with, dict):
        return TokenizerInfo.from_manifest(made_with)
    info = TokenizerInfo.from_vocabulary(load_vocabulary(folder / "vocab.txt"))
    return replace(info, model=SENTENCES)


def in_each(change: Callable[[Any], Any]) -> Callable[[Tokens], None]:
    return lambda tokens: tokens.change(change)


def reverse_shard(tokens: Tokens) -> None:
    shard = tokens.training[0]
    ends = np.cumsum([len(ids) for ids in shard.documents])[:-1]
    shard.documents = np.split(np.concatenate(shard.documents)[::-1], ends)


def permute(tokens: Tokens) -> None:
    first = max(tokens.info.special) + 1
    order = np.concatenate([np.arange(first), first + tokens.random.permutation(tokens.info.width - first)])
    tokens.change(lambda ids: order[ids])


def draw_shard(tokens: Tokens) -> None:
    shard = tokens.training[0]
    shard.documents = [tokens.drawn(len(ids)) for ids in shard.documents]


def set_words(change: Callable[[Tokens, NDArray[np.bool_]], NDArray[np.bool_]]) -> Callable[[Tokens], None]:
    def plant(tokens: Tokens) -> None:
        for shard in tokens.training:
            shard.words = [change(tokens, words) for words in shard.words]

    return plant


def put_around(before: list[str], after: list[str]) -> Callable[[Tokens], None]:
    def plant(tokens: Tokens) -> None:
        first, last = ([getattr(tokens.info, name) for name in names] for names in (before, after))
        for shard in tokens.training:
            shard.documents = [np.concatenate([first, ids, last]).astype(np.int64) for ids in shard.documents]
            shard.words = [
                np.concatenate([[True] * len(first), words, [True] * len(last)]).astype(bool) for words in shard.words
            ]

    return plant


def keep(choose: Callable[[Shard], Shard]) -> Callable[[Tokens], None]:
    def plant(tokens: Tokens) -> None:
        for name in [name for name in tokens.shards if name.startswith("training")]:
            tokens.shards[name] = choose(tokens.shards[name])

    return plant


def repeat_shard(tokens: Tokens) -> None:
    name = next(name for name in tokens.shards if name.startswith("training"))
    tokens.shards[name.replace("00000", "00009")] = tokens.shards[name]


def train_on_test(tokens: Tokens) -> None:
    test = next(shard for name, shard in tokens.shards.items() if name.startswith("test"))
    tokens.training[0].documents += test.documents
    tokens.training[0].words += test.words


def swap_tokenizer(tokens: Tokens) -> None:
    """Another tokenizer of the same size, which the manifest names."""
    path = tokens.folder / "tokenizer.json"
    content = json.loads(path.read_text())
    vocabulary = content["model"]["vocab"]
    first = max(tokens.info.special) + 1
    names = sorted(vocabulary, key=vocabulary.__getitem__)
    moved = names[first:][::-1]
    content["model"]["vocab"] = {name: at for at, name in enumerate([*names[:first], *moved])}
    path.write_text(json.dumps(content))
    manifest = json.loads((tokens.folder / "manifest.json").read_text())
    manifest["made_with"]["tokenizer"]["sha256"] = checksum_of(path, "sha256")
    (tokens.folder / "manifest.json").write_text(json.dumps(manifest))


PLANTS: dict[str, Callable[[Tokens], None]] = {
    "all tokens of a shard reversed": reverse_shard,
    "tokens reversed in each document": in_each(lambda ids: ids[::-1]),
    "tokens shuffled in each document": lambda tokens: tokens.change(tokens.random.permutation),
    "5% random ids": lambda tokens: tokens.replace(0.05, tokens.drawn),
    "1% random ids": lambda tokens: tokens.replace(0.01, tokens.drawn),
    "a shard of random ids": draw_shard,
    "one id put everywhere": lambda tokens: tokens.replace(0.01, lambda _: max(tokens.info.special) + 300),
    "all ids + 1": lambda tokens: tokens.change(lambda ids: np.minimum(ids + 1, tokens.info.width - 1)),
    "all ids permuted": permute,
    "another tokenizer": swap_tokenizer,
    "no token begins a word": set_words(lambda _, words: np.zeros_like(words)),
    "every token begins a word": set_words(lambda _, words: np.ones_like(words)),
    "words begin one token later": set_words(lambda _, words: np.roll(words, 1)),
    "2% of the words flipped": set_words(lambda tokens, words: words ^ (tokens.random.random(len(words)) < 0.02)),
    "0.1% [MASK]": lambda tokens: tokens.replace(0.001, lambda _: tokens.info.mask),
    "[CLS] before each document": put_around(["cls"], []),
    "[PAD] after each document": put_around([], ["pad", "pad"]),
    "30% [UNK]": lambda tokens: tokens.replace(0.3, lambda _: tokens.info.unk),
    "a shard twice under two names": repeat_shard,
    "each document twice": keep(lambda shard: Shard(shard.documents * 2, shard.words * 2)),
    "the test documents in training": train_on_test,
    "all documents joined to one": keep(lambda shard: Shard([np.concatenate(shard.documents)], [np.concatenate(shard.words)])),
    "documents cut to 50 tokens": keep(
        lambda shard: Shard([ids[:50] for ids in shard.documents], [words[:50] for words in shard.words])
    ),
    "half of the documents lost": keep(lambda shard: Shard(shard.documents[::2], shard.words[::2])),
}
CODES = {
    "all tokens of a shard reversed": "round-trip",
    "tokens reversed in each document": "round-trip",
    "tokens shuffled in each document": "round-trip",
    "5% random ids": "round-trip words",
    "1% random ids": "round-trip words",
    "a shard of random ids": "round-trip",
    "one id put everywhere": "words",
    "all ids + 1": "round-trip",
    "all ids permuted": "round-trip",
    "another tokenizer": "round-trip",
    "no token begins a word": "words",
    "every token begins a word": "words",
    "words begin one token later": "words",
    "2% of the words flipped": "words",
    "0.1% [MASK]": "special-token",
    "[CLS] before each document": "special-token",
    "[PAD] after each document": "special-token",
    "30% [UNK]": "unknown-tokens",
    "a shard twice under two names": "identical-files",
    "each document twice": "document-twice",
    "the test documents in training": "document-in-both-splits",
    "all documents joined to one": "",
    "documents cut to 50 tokens": "",
    "half of the documents lost": "",
}
"""The finding of each plant in sets of documents; cut, joined and lost documents leave tokens that could be right."""
BY_CHANCE = {"one id put everywhere"}
"""Found if the id changes how the text around it is divided into tokens."""
MISSED_IN_SENTENCES = {"5% random ids", "1% random ids", "all ids permuted", "one id put everywhere"}
"""Most tokens of a large vocabulary are words of their own, which can stand anywhere."""
WITH_TOKENIZER = {
    "another tokenizer", "no token begins a word", "every token begins a word", "words begin one token later",
    "2% of the words flipped",
}  # fmt: skip
"""What shards of sentences do not have."""


def test_nothing_is_found_in_a_clean_set(clean: Path) -> None:
    [outcome] = bertprep.validate([clean], workers=1)
    assert outcome.findings == []


@pytest.mark.parametrize(
    ("clean", "name"),
    [(kind, name) for kind in KINDS for name in PLANTS if kind != SENTENCES or name not in WITH_TOKENIZER],
    indirect=["clean"],
)
def test_a_plant_is_found(name: str, clean: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(clean, tmp_path / "set")
    tokens = Tokens(folder, info_of(folder))
    PLANTS[name](tokens)
    tokens.write()
    [outcome] = bertprep.validate([folder], workers=1)
    codes = {finding.code for finding in outcome.findings}
    expected = {*CODES[name].split()}
    if name in BY_CHANCE or (not tokens.has_words and name in MISSED_IN_SENTENCES):
        return
    assert codes & expected if expected else not codes
