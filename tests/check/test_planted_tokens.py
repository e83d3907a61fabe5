"""Damage planted in token shards, and signed again as the tool of a stranger would sign it: what validate finds of it.

The ids of a shard are all possible values, so much of this is found only by asking the tokenizer next to the shards.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
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
from bertprep.sources.sample import read_speeches
from bertprep.text import tokenize_documents
from bertprep.tokens.shard import parse_index, write_token_shard

Ids = NDArray[np.int64]


@dataclass
class Shard:
    """The documents of a shard, and whether each token begins a word."""

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
            _, lengths, _ = parse_index(path.with_suffix(".idx"), path.with_suffix(".idx").read_bytes())
            ids = np.fromfile(path, np.uint16).astype(np.int64)
            bits = np.unpackbits(np.fromfile(path.with_suffix(".words"), np.uint8), bitorder="little")[: len(ids)]
            ends = np.cumsum(lengths)[:-1]
            name = path.relative_to(self.folder).with_suffix("").as_posix()
            self.shards[name] = Shard(np.split(ids, ends), np.split(bits.astype(bool), ends))

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
            paths = {end: self.folder / f"{name}.{end}" for end in ("bin", "idx", "words")}
            with write_token_shard(paths, width=self.info.width) as file:
                ids, lengths = np.concatenate(shard.documents), np.array([len(ids) for ids in shard.documents])
                file.add(ids.astype(np.int32), lengths, begins_word=np.concatenate(shard.words))
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


@pytest.fixture(scope="module", params=["BPE", "WordPiece"])
def clean(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of three shards of speeches and a test split."""
    folder = tmp_path_factory.mktemp("planted")
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
MISSED = {"half of the documents lost", "documents cut to 50 tokens", "all documents joined to one"}
"""What a set of token shards cannot tell by itself: shorter, longer and fewer documents."""
BY_CHANCE = {"one id put everywhere"}
"""Found if the id changes how the text around it is divided into tokens."""


def test_nothing_is_found_in_a_clean_set(clean: Path) -> None:
    [outcome] = bertprep.validate([clean], workers=1)
    assert outcome.findings == []


@pytest.mark.parametrize("name", PLANTS)
def test_a_plant_is_found(name: str, clean: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(clean, tmp_path / "set")
    info = TokenizerInfo.from_manifest(json.loads((folder / "manifest.json").read_text())["made_with"]["tokenizer"])
    tokens = Tokens(folder, info)
    PLANTS[name](tokens)
    tokens.write()
    [outcome] = bertprep.validate([folder], workers=1)
    codes = {finding.code for finding in outcome.findings}
    assert name in BY_CHANCE or bool(codes) == (name not in MISSED)
