"""Makes records or token shards of text shards: tokenize, generate, encode, and write one file for each format.

Each text shard is a task of the work loop (`work.run`). The bytes depend on shard, vocabulary and settings only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bertprep import kernels
from bertprep.config import DEFAULT_DIALECT, InstanceSettings, RecordFormat, Variant
from bertprep.errors import BertprepError
from bertprep.files.object_cache import open_local
from bertprep.files.paths import HEAD_BYTES, open_head
from bertprep.instances import Tokenizer, Vocabulary, generate_instances
from bertprep.instances.tokenizer import TokenizedShard
from bertprep.records.dataset_info import DatasetFolder
from bertprep.records.examples import Shape, kind_made_with
from bertprep.records.rows import RowMaker
from bertprep.records.token_shards import TokenFile, TokenShard, token_files, write_token_shard
from bertprep.records.write import entry_of, write_examples
from bertprep.work.layout import MANIFEST, TRAIN, TRAINING, split_order
from bertprep.work.ledger import Entry, Ledger
from bertprep.work.manifest import packages_of, sha256_of, versions_of
from bertprep.work.run import Maker, Task

MANY_UNKNOWN = 0.1  # far more than text has with a vocabulary of its language


@dataclass(frozen=True)
class TextShard:
    """A text shard, or a given token shard's .bin; `expected` is its entry in the manifest of text shards."""

    path: Path
    number: int
    tokens: TokenShard | None = None  # where it is tokenized already
    expected: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class ShardMaker(Maker):
    """Makes files of one text shard after another, with one tokenizer.

    With `checks_text` finished files must be of the text as it is now.
    """

    vocabulary: Vocabulary
    cased: bool
    checks_text: bool = False
    ensure: Callable[[], object] | None = None  # what has to be there before anything is made
    remark: str = ""

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer(self.vocabulary, lower=not self.cased)

    def __getstate__(self) -> dict[str, Any]:
        """Only what the tables are made of: a process builds its own."""
        return {**{each.name: getattr(self, each.name) for each in fields(self)}, "ensure": None}

    def prepare(self) -> None:
        if self.ensure:
            self.ensure()
        kernels.load()
        _ = self.tokenizer

    def remarks(self, todo: Sequence[Task]) -> Iterator[str]:
        if self.remark:
            yield self.remark
        shard: TextShard = todo[0].argument
        unknown = 0.0 if shard.tokens else self._unknown_fraction(shard.path)
        if unknown > MANY_UNKNOWN:
            yield (
                f"{self.label}: {unknown:.0%} of the first tokens of {shard.path} are [UNK]: {self.vocabulary.path} does not "
                "fit this text; name another vocabulary with --vocab, or leave it out to train one"
            )

    def _unknown_fraction(self, path: Path) -> float:
        try:
            with open_head(path) as file:
                text = file.read(HEAD_BYTES)
            tokens = self.tokenizer.tokenize_lines(text[: text.rfind(b"\n") + 1]).tokens
        except (OSError, ValueError):  # which is reported where all of it is read
            return 0.0
        return float(np.mean(tokens == self.vocabulary.unk)) if len(tokens) else 0.0

    def check(self, task: Task, folder: Path, entry: Entry) -> None:
        if not self.checks_text:
            return
        check_unchanged(folder, entry["text"], str(task.argument.path), *identify(task.argument))


@dataclass(frozen=True, kw_only=True)
class RecordMaker(ShardMaker):
    """Makes the record files of one shard after another."""

    settings: InstanceSettings
    variant: Variant = field(default=DEFAULT_DIALECT)
    label = "create"

    @property
    def shape(self) -> Shape:
        return Shape(kind_made_with(self.settings), self.settings.seq, self.settings.pred)

    @cached_property
    def rows(self) -> RowMaker:
        return RowMaker(self.vocabulary, self.shape)

    def prepare(self) -> None:
        super().prepare()
        _ = self.rows

    def amounts(self, entries: Sequence[Entry]) -> dict[str, float]:
        return {"records": entries[0]["examples"], "MB_of_text": entries[0]["text"]["bytes"] / 1e6}

    def make(self, argument: TextShard, paths: Mapping[str, Path]) -> dict[str, Entry]:
        shard, text = self._read(argument)
        seed = self.settings.shard_seed(argument.number)
        instances = generate_instances(shard, self.vocabulary, self.settings, seed=seed)
        if not len(instances):
            raise BertprepError(f"{argument.path}: gives no example; expected at least one for each of its documents")
        files = {RecordFormat(name): path for name, path in paths.items()}
        written = write_examples(self.rows.blocks(instances), files, self.variant, tidies=False)
        return {
            name: {"documents": shard.documents, **entry_of(file), "seed": seed, "text": text} for name, file in written.items()
        }

    def _read(self, shard: TextShard) -> tuple[TokenizedShard, dict[str, Any]]:
        """Return the tokens of a shard, stored ones unless the text has changed, and the manifest's entry for its text."""
        tokens, pairs = shard.tokens, self.settings.has_pairs
        if tokens and tokens.bin == shard.path:
            return tokens.read(self.vocabulary, pairs=pairs), tokens.text or text_entry(shard.path.name, *identify(shard))
        if tokens and tokens.text and identify_text(shard.path) == (tokens.text["bytes"], tokens.text["crc32c"]):
            check_text(shard.path, shard.expected, tokens.text)
            return tokens.read(self.vocabulary, pairs=pairs), tokens.text
        tokenized = self.tokenizer.tokenize_file(shard.path)
        return tokenized, _text_of(shard, tokenized)


@dataclass(frozen=True, kw_only=True)
class TokenMaker(ShardMaker):
    """Makes the token shard of one text shard after another."""

    label = "tokenize"

    def amounts(self, entries: Sequence[Entry]) -> dict[str, float]:
        sentences = sum(entry.get("sentences", 0) for entry in entries)
        return {"sentences": sentences, "MB_of_text": entries[0]["text"]["bytes"] / 1e6}

    def make(self, argument: TextShard, paths: Mapping[str, Path]) -> dict[str, Entry]:
        tokenized = self.tokenizer.tokenize_file(argument.path)
        text = _text_of(argument, tokenized)
        files = {TokenFile(name): path for name, path in paths.items()}
        written = write_token_shard(tokenized, files, vocabulary_tokens=len(self.vocabulary))
        counts = {"documents": tokenized.documents, "sentences": tokenized.sentences, "tokens": len(tokenized.tokens)}
        return {
            name: {**(counts if name == TokenFile.BIN else {}), "bytes": file.bytes, "sha256": file.sha256, "text": text}
            for name, file in written.items()
        }


def ledgers_by_format(
    template: Ledger,
    folders: Mapping[RecordFormat, Path],
    tasks: Sequence[Task],
    shapes: Mapping[str, Shape],
    labels: Sequence[str] = (),
) -> dict[str, Ledger]:
    """Return the ledger of each format's folder, like `template`; `shapes` are those of each split's records."""
    ledgers: dict[str, Ledger] = {}
    for which, folder in folders.items():
        names = [task.files[which] for task in tasks]
        index = None
        if which == RecordFormat.ARROW:
            splits = sorted({name.rpartition("/")[0] for name in names}, key=split_order)
            index = DatasetFolder(folder, {each: shapes[TRAINING if each == TRAIN else each] for each in splits}, labels)
        ledgers[which] = replace(template, folder=folder, versions=versions_of(*packages_of(names)), index=index)
    return ledgers


def _text_of(shard: TextShard, tokenized: TokenizedShard) -> dict[str, Any]:
    """Return the manifest's entry for a file's text; raises where it is not the text of the shards' manifest."""
    text = text_entry(shard.path.name, tokenized.text_bytes, f"{tokenized.text_crc32c:08x}")
    check_text(shard.path, shard.expected, text)
    return text


def check_unchanged(folder: Path, made: Mapping[str, Any], text: str, size_bytes: int, crc32c: str) -> None:
    """Raise if a folder was made of another text than the one that has this size and CRC-32C now."""
    if (size_bytes, crc32c) != (made["bytes"], made["crc32c"]):
        raise BertprepError(
            f"{folder}: was made from {made['bytes']:,} bytes of text (crc32c {made['crc32c']}), and {text} has changed since: "
            f"{size_bytes:,} bytes ({crc32c}); choose another --output, or remove this folder"
        )


def check_text(path: Path, expected: Mapping[str, Any] | None, read: Mapping[str, Any]) -> None:
    """Raise if the text that was read differs from the shards' manifest; one of 0.2.0, without CRC-32C, costs a sha256."""
    if expected is None:
        return
    name = "crc32c" if "crc32c" in expected else "sha256"
    found = read[name] if name in read else sha256_of(path)
    if (read["bytes"], found) == (expected["bytes"], expected[name]):
        return
    raise BertprepError(
        f"{path}: {read['bytes']:,} bytes with {name} {found[:16]} were read, expected {expected['bytes']:,} with "
        f"{expected[name][:16]}, as the {MANIFEST} of the text shards says; if this command finds the same again, remove the "
        "corrupt shard with bertprep validate --remove-damaged, and make it again with bertprep shard"
    )


def text_entry(name: str, size_bytes: int, crc32c: str) -> dict[str, Any]:
    return {"name": name, "bytes": size_bytes, "crc32c": crc32c}


def identify(shard: TextShard) -> tuple[int, str]:
    """Return size and CRC-32C of a shard's text; of given token shards, of both files."""
    if shard.tokens and shard.tokens.text:
        return shard.tokens.text["bytes"], shard.tokens.text["crc32c"]
    return identify_text(*(token_files(shard.path).values() if shard.tokens else [shard.path]))


def identify_text(*paths: Path) -> tuple[int, str]:
    """Size and CRC-32C of a file, or of several together."""
    block = np.empty(1 << 20, np.uint8)
    size_bytes = crc32c = 0
    for path in paths:
        try:
            with open_local(path) as file:
                while read := file.readinto(block.data):
                    size_bytes += read
                    crc32c = kernels.load().checksum(crc32c, block, read)
        except OSError as error:
            raise BertprepError(f"{path}: cannot be read: {error.strerror}; expected a text shard") from error
    return size_bytes, f"{crc32c:08x}"
