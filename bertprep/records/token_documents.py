"""Documents as ids of any tokenizer: token shards in which a document is one sequence.

    x.bin, x.idx   as in `token_shards`, a document one sequence without special tokens
    x.words        a bit for each token, the lowest of a byte first: 1 where it begins a word, as the first of a document does

Files are mapped, and the first use of a shard checks that all its ids are below the tokenizer's width. Token shards of
sentences are read too: a document is its sentences joined, and a table of the vocabulary says what begins a word.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import atomic_file
from bertprep.files.object_cache import fetch, open_local
from bertprep.files.paths import as_path, sizes_of
from bertprep.instances.document_tokenizer import TokenizerInfo as TokenizerInfo
from bertprep.records.data_sets import find_token_shards, load_vocabulary_of
from bertprep.records.token_shards import WORDS, TokenFile, TokenShard, encode_index, parse_index, read_bytes, type_of_numbers
from bertprep.records.write import HashedFile, WrittenFile
from bertprep.work.layout import MANIFEST, SPLIT_NAMES, TOKENIZER, TRAINING
from bertprep.work.manifest import Manifest

BIN, IDX, _ = DOCUMENT_FILES = (str(TokenFile.BIN), str(TokenFile.IDX), WORDS)
"""The ends of the names of a shard's files."""
_MAPPED = (np.dtype("<u2"), np.dtype("<i4"))
_AGAIN = "make the token shards again with bertprep tokenize"


class DocumentWriter:
    """The files of a shard being written, a batch of documents at a time; `written` has what became of them."""

    def __init__(self, files: Mapping[str, HashedFile], width: int) -> None:
        self.documents = self.tokens = 0
        self.written: dict[str, WrittenFile] = {}
        self._files, self._numbers = files, type_of_numbers(width)
        self._lengths: list[NDArray[np.int64]] = []
        self._bits = np.empty(0, np.bool_)  # of a byte of .words that is not full yet

    def add(self, tokens: NDArray[np.int32], lengths: NDArray[np.int64], begins_word: NDArray[np.bool_]) -> None:
        """Write the tokens of some documents, one after the other; documents without tokens are dropped."""
        lengths = lengths[lengths > 0]
        self._lengths.append(lengths)
        self.documents += len(lengths)
        self.tokens += len(tokens)
        bits = np.concatenate([self._bits, begins_word])
        full = len(bits) // 8 * 8
        self._bits = bits[full:]
        self._write(BIN, tokens.astype(self._numbers))
        self._write(WORDS, np.packbits(bits[:full], bitorder="little"))

    def finish(self) -> None:
        """Write what is known only at the end."""
        self._write(WORDS, np.packbits(self._bits, bitorder="little"))
        starts = np.cumsum(np.concatenate([[0], *self._lengths]), dtype=np.int64)
        for part in encode_index(self._numbers, starts, np.arange(len(starts))):
            self._write(IDX, part)

    def _write(self, end: str, data: NDArray[Any]) -> None:
        if end in self._files:
            self._files[end].write(data)


@contextmanager
def write_documents(paths: Mapping[str, Path], *, width: int) -> Iterator[DocumentWriter]:
    """Write those files of a shard that `paths` names by their ends, each whole or not at all.

    Numbers are uint16 where Megatron takes that for a vocabulary of `width` tokens, else int32. Raises `BertprepError` where no
    document has a token, or a write fails.
    """
    with ExitStack() as stack:
        files = {end: stack.enter_context(atomic_file(path)) for end, path in paths.items()}
        hashed = {end: HashedFile(file) for end, file in files.items()}
        writer = DocumentWriter(hashed, width)
        yield writer
        writer.finish()
        for end, file in files.items():
            sha256 = hashed[end].finish()
            writer.written[end] = WrittenFile(writer.documents, file.size_bytes, sha256)


@dataclass(frozen=True)
class DocumentShard:
    """The documents of a shard; `path` is its .bin, `counts` are (documents, tokens) of a manifest. It is pickled unmapped."""

    path: Path
    width: int
    has_words: bool
    counts: tuple[int, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def sizes(self) -> tuple[int, int]:
        """How many (documents, tokens) it has."""
        return self.counts or (len(self.starts) - 1, int(self.starts[-1]))

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each document starts, and the last ends, in tokens: (documents + 1,)."""
        return self._index[1]

    @cached_property
    def tokens(self) -> NDArray[np.uint16] | NDArray[np.int32]:
        """The ids of all documents, mapped into memory and checked, which reads all of the file."""
        self.check(self.mapped)
        return self.mapped

    @cached_property
    def mapped(self) -> NDArray[np.uint16] | NDArray[np.int32]:
        """The same before `check`, for what looks at few of them, or checks them as it goes."""
        numbers, starts = self._index
        data: NDArray[Any] = _map(self.path, int(starts[-1]) * numbers.itemsize).view(numbers)
        if numbers in _MAPPED:
            return data
        self.check(data)
        return data.astype(np.int32)

    def check(self, tokens: NDArray[Any], first: int = 0) -> None:
        """Raise `BertprepError` where an id is none of the tokenizer's; `first` is the index of the first of the tokens."""
        if int(tokens.min()) < 0 or int(tokens.max()) >= self.width:
            at = int(np.flatnonzero((tokens < 0) | (tokens >= self.width))[0])
            found = f"token {first + at:,} is {tokens[at]:,}, expected 0 to {self.width - 1:,} by its tokenizer"
            raise BertprepError(f"{self.path}: {found}; {_AGAIN}")

    @cached_property
    def words(self) -> NDArray[np.uint8] | None:
        """The bits of .words, mapped into memory; None where a table says what begins a word."""
        path = self.path.with_suffix(f".{WORDS}")
        return _map(path, -(-int(self.starts[-1]) // 8)) if self.has_words else None

    @cached_property
    def _index(self) -> tuple[np.dtype[Any], NDArray[np.int64]]:
        path = self.path.with_suffix(f".{IDX}")
        numbers, lengths, indices = parse_index(path, read_bytes(path))
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])[indices]
        starts = starts[np.diff(starts, prepend=-1) > 0]  # no document without tokens
        found = len(starts) - 1, int(starts[-1])
        if self.counts not in (None, found) or not found[0]:
            expected = (
                "at least one with a token" if self.counts is None else "{:,} of {:,} by its manifest".format(*self.counts)
            )
            raise BertprepError(f"{path}: has {found[0]:,} documents of {found[1]:,} tokens, expected {expected}; {_AGAIN}")
        return numbers, starts


@dataclass(frozen=True)
class TokenDocuments:
    """The documents of a split; `sha256` stands for their bytes.

    `begins_word` says of each id whether it begins a word where shards have no `words`: (width,).
    """

    folder: Path
    split: str
    tokenizer: TokenizerInfo
    shards: tuple[DocumentShard, ...]
    sha256: str
    begins_word: NDArray[np.bool_] | None = None

    @cached_property
    def documents(self) -> int:
        return sum(shard.sizes[0] for shard in self.shards)

    @cached_property
    def tokens(self) -> int:
        return sum(shard.sizes[1] for shard in self.shards)


def open_token_documents(folder: Path | str, split: str = TRAINING, vocab: Path | str | None = None) -> TokenDocuments:
    """Return the documents of a split of token shards: of any tokenizer, or sentences of a vocabulary.

    Raises `UsageError` where there are none, `BertprepError` where a file is missing or has another size than its manifest
    says, or a run has not finished them.
    """
    data_set = find_token_shards([as_path(folder)], any_tokenizer=True)
    folder, manifest = data_set.folder, data_set.manifest
    if manifest and manifest.tokenizer:
        if vocab is not None:
            raise UsageError(f"--vocab {vocab}: is for token shards of a vocabulary, and {folder} has its own {TOKENIZER}")
        tokenizer, begins_word = TokenizerInfo.from_manifest(manifest.tokenizer), None
    else:
        vocabulary = load_vocabulary_of(data_set, None if vocab is None else as_path(vocab))
        tokenizer = TokenizerInfo.from_vocabulary(vocabulary)
        begins_word = np.frombuffer(vocabulary.continues, np.uint8) == 0
    ends = DOCUMENT_FILES if begins_word is None else (BIN, IDX)
    bins = data_set.named(split)
    entries = {each: _entries(each, folder, ends, manifest) for each in bins}
    fetch({path: entry.get("sha256") for of_bin in entries.values() for path, entry in of_bin.items()})
    shards, checksums = [], []
    for path, of_bin in entries.items():
        entry = of_bin[path]
        counts = (entry["documents"], entry["tokens"]) if {"documents", "tokens"} <= entry.keys() else None
        if counts and not 0 < counts[0] <= counts[1] <= entry["bytes"]:
            found = "{:,} documents of {:,} tokens".format(*counts)
            raise BertprepError(f"{path}: cannot have {found} in {entry['bytes']:,} bytes, as {MANIFEST} says; {_AGAIN}")
        shards.append(DocumentShard(path, tokenizer.width, begins_word is None, counts))
        is_listed = all(of_bin.values())
        checksums.append("".join(each["sha256"] for each in of_bin.values()) if is_listed else TokenShard(path).fingerprint())
    sha256 = hashlib.sha256("".join(checksums).encode()).hexdigest()
    return TokenDocuments(folder, split, tokenizer, tuple(shards), sha256, begins_word)


def open_all_splits(folder: Path | str) -> dict[str, TokenDocuments]:
    """Return the documents of each split of token shards, training first; raises as `open_token_documents` does."""
    splits = find_token_shards([as_path(folder)], any_tokenizer=True).split_names or [TRAINING]
    return {SPLIT_NAMES[split]: open_token_documents(folder, split) for split in splits}


def _entries(path: Path, folder: Path, ends: Sequence[str], manifest: Manifest | None) -> dict[Path, dict[str, Any]]:
    paths = [path.with_suffix(f".{end}") for end in ends]
    names = {each.relative_to(folder).as_posix(): each for each in paths}
    listed = manifest.files if manifest else {}
    for name, size in [(name, listed[name]["bytes"]) for name in names if name in listed]:
        if (found := sizes_of(folder, [name]).get(name)) != size:
            has = "is missing" if found is None else f"has {found:,} bytes"
            raise BertprepError(f"{folder / name}: {has}, expected {size:,} bytes by {MANIFEST}; {_AGAIN}")
    return {each: listed.get(name, {}) for name, each in names.items()}


def _map(path: Path, size_bytes: int) -> NDArray[np.uint8]:
    try:
        with open_local(path) as file:
            if (found := os.fstat(file.fileno()).st_size) != size_bytes:
                raise BertprepError(f"{path}: has {found:,} bytes, expected {size_bytes:,} by its .{IDX}; {_AGAIN}")
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except OSError as error:
        raise BertprepError(f"{path}: cannot be read: {error.strerror or error}; {_AGAIN}") from error
