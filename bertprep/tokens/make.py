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
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.config import DEFAULT_DIALECT, InstanceSettings, RecordFormat, Variant
from bertprep.errors import BertprepError
from bertprep.files.paths import HEAD_BYTES, open_head
from bertprep.instances import Tokenizer, Vocabulary, generate_instances
from bertprep.instances.tokenizer import TokenizedShard
from bertprep.instances.vocabulary import MANY_UNKNOWN
from bertprep.records.examples import Shape, kind_made_with
from bertprep.records.rows import RowMaker
from bertprep.records.write import entry_of, write_examples
from bertprep.tokens.shard import BIN, TokenShard, write_token_shard
from bertprep.work.layout import token_files
from bertprep.work.ledger import Entry
from bertprep.work.run import Maker, Task
from bertprep.work.texts import check_text, check_unchanged, identify_text, text_entry

_FIRST_TOKENS = 1 << 14  # of a token shard, in which [UNK] is counted: about as many as the first bytes of a text give


@dataclass(frozen=True)
class TextShard:
    """A text shard, or a given token shard's .bin; `expected` is its entry in the manifest of text shards."""

    path: Path
    number: int
    tokens: TokenShard | None = None  # where it is tokenized already
    expected: Mapping[str, Any] | None = None

    @property
    def is_tokens(self) -> bool:
        """Whether it is a given token shard, whose text may be gone."""
        return self.tokens is not None and self.tokens.path == self.path


@dataclass(frozen=True, kw_only=True)
class ShardMaker(Maker):
    """Makes files of one text shard after another, with one tokenizer.

    With `checks_text` finished files must be of the text as it is now.
    """

    vocabulary: Vocabulary
    cased: bool
    checks_text: bool = False
    ensure: Callable[[], object] | None = None  # what has to be there before anything is made
    note: str = ""

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
        shard: TextShard = todo[0].argument
        try:
            tokens = self._first_tokens(shard)
        except (BertprepError, OSError, ValueError):  # which is reported where all of it is read
            return
        unknown = float(np.mean(tokens == self.vocabulary.unk)) if len(tokens) else 0.0
        if unknown > MANY_UNKNOWN:
            advice = "and name another with --vocab, or leave --vocab out to train one on this text"
            if shard.is_tokens:
                advice = "and the token shards, and run bertprep tokenize with another --vocab"
            yield (
                f"{unknown:.0%} of the first tokens of {shard.path} are [UNK]: {self.vocabulary.path} does not fit this text; "
                f"remove what is made with it, {advice}"
            )

    def _first_tokens(self, shard: TextShard) -> NDArray[Any]:
        if shard.tokens and shard.is_tokens:
            return replace(shard.tokens).mapped[:_FIRST_TOKENS]  # of a copy, since what is mapped stays so
        with open_head(shard.path) as file:
            text = file.read(HEAD_BYTES)
        return self.tokenizer.tokenize_lines(text[: text.rfind(b"\n") + 1]).tokens

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
        if tokens and shard.is_tokens:
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
        with write_token_shard(paths, width=len(self.vocabulary)) as writer:
            lengths, sentences = np.diff(tokenized.sentence_starts), np.diff(tokenized.document_starts)
            writer.add(tokenized.tokens, lengths, sequences=sentences)
        counts = {"documents": writer.documents, "sentences": writer.sequences, "tokens": writer.tokens}
        return {end: {**(counts if end == BIN else {}), **entry, "text": text} for end, entry in writer.entries.items()}


def _text_of(shard: TextShard, tokenized: TokenizedShard) -> dict[str, Any]:
    """Return the manifest's entry for a file's text; raises where it is not the text of the shards' manifest."""
    text = text_entry(shard.path.name, tokenized.text_bytes, f"{tokenized.text_crc32c:08x}")
    check_text(shard.path, shard.expected, text)
    return text


def identify(shard: TextShard) -> tuple[int, str]:
    """Return size and CRC-32C of a shard's text; of given token shards, of both files."""
    if shard.tokens and shard.tokens.text:
        return shard.tokens.text["bytes"], shard.tokens.text["crc32c"]
    return identify_text(*(token_files(shard.path).values() if shard.tokens else [shard.path]))
