"""Token shards: the token ids of documents in Megatron's indexed data set format, plus a file that marks where words begin.

    x.bin     the tokens of all sequences, one after the other
    x.idx     MMIDIDX 00 00, u64 version 1, u8 code of the id type, u64 n sequences, u64 m document indices,
              i32 lengths[n] in tokens, i64 pointers[n] into x.bin in bytes, i64 document_indices[m]: 0, then the document ends
    x.words   one bit per token, least significant bit first: 1 if the token begins a word; a document's first token always does

All numbers are little-endian. A sequence has no special tokens. It is a sentence if a vocabulary made it, and a whole document
if a tokenizer.json did. Only whole documents have a .words file: their tokenizer decides where words begin by a rule on the
text, so no table of ids can tell. Files written by Megatron are read too. See docs/reference/formats.md.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BadTokenError, BertprepError, UsageError
from bertprep.files.atomic import atomic_file
from bertprep.files.checksums import BLAKE3, show_checksum
from bertprep.files.hashed import HashedFile
from bertprep.files.object_cache import local_copy, open_local
from bertprep.files.paths import checksum_of
from bertprep.instances.generator import MAX_TOKENS_IN_SHARD
from bertprep.instances.tokenizer import TokenizedShard
from bertprep.instances.vocabulary import MAX_TOKENS, Vocabulary
from bertprep.work.layout import MANIFEST, WORDS, TokenFile
from bertprep.work.ledger import Entry
from bertprep.work.manifest import Manifest
from bertprep.work.recognize import OLD_TOKEN_INDEX_MAGIC, TOKEN_INDEX_MAGIC

BIN, IDX = TokenFile.BIN.value, TokenFile.IDX.value
DOCUMENT_FILES = (BIN, IDX, WORDS)
"""The file name extensions of a shard of whole documents."""
_HEADER = np.dtype([("magic", "S9"), ("version", "<u8"), ("code", "u1"), ("sequences", "<u8"), ("indices", "<u8")])
_VERSION = 1
_CODES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
_UINT16, _INT32 = 8, 4
_MAPPED = (np.dtype("<u2"), np.dtype("<i4"))
_MAX_IN_UINT16 = 65_499  # the largest vocabulary for which Megatron's DType.optimal_dtype chooses uint16
_HEAD_BYTES = 1 << 20
_MAKE_AGAIN = "the .bin and the .idx do not belong together, or one of them is corrupt; make both again"
_TOKENIZE_AGAIN = "make the token shards again with bertprep tokenize"


class Index(NamedTuple):
    """The contents of an .idx: the type of the ids, and where sequences (in tokens) and documents (in sequences) start.

    The last element of each array is the end: (sequences + 1,), (documents + 1,). Sequences and documents without tokens are
    left out.
    """

    dtype: np.dtype[Any]
    sequence_starts: NDArray[np.int64]
    document_starts: NDArray[np.int64]


@dataclass(frozen=True)
class TokenShard:
    """A token shard; `path` is its .bin. Its files are mapped into memory at first use, and a pickled shard has none mapped.

    `listed` has the manifest's entry of each file by its extension, and is empty without a manifest. Ids must be below `width`.
    Raises `BertprepError` for files that are missing, unreadable or corrupt.
    """

    path: Path
    listed: Mapping[str, Entry] = field(default_factory=dict)
    width: int = MAX_TOKENS
    has_words: bool = False

    @classmethod
    def of(
        cls, folder: Path, name: str, manifest: Manifest | None, *, width: int = MAX_TOKENS, has_words: bool = False
    ) -> TokenShard:
        """Return the token shard whose .bin has this name in a folder, with its files' entries in the folder's manifest."""
        shard = cls(folder / name, {}, width, has_words)
        names = {end: path.relative_to(folder).as_posix() for end, path in shard.paths.items()}
        if manifest is None or not manifest.files.keys() >= set(names.values()):
            return shard
        return cls(folder / name, {end: manifest.files[each] for end, each in names.items()}, width, has_words)

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def paths(self) -> dict[str, Path]:
        """The shard's files by extension."""
        return {end: self.path.with_suffix(f".{end}") for end in (DOCUMENT_FILES if self.has_words else (BIN, IDX))}

    @property
    def checksums(self) -> dict[Path, str | None]:
        """The BLAKE3 of each file, or None if no manifest lists it."""
        return {path: self.listed[end][BLAKE3] if self.listed else None for end, path in self.paths.items()}

    @property
    def text(self) -> dict[str, Any] | None:
        """The name, size and CRC-32C of the text shard that was tokenized, if the manifest has them."""
        return self.listed.get(BIN, {}).get("text")

    @property
    def counts(self) -> tuple[int, int] | None:
        """The numbers of (documents, tokens) in the manifest, or None if it lists none."""
        entry = self.listed.get(BIN, {})
        return (entry["documents"], entry["tokens"]) if {"documents", "tokens"} <= entry.keys() else None

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of (documents, tokens), from the manifest if it lists them, else from the .idx."""
        return self.counts or self._counts_of(self.index)

    @property
    def sequence_starts(self) -> NDArray[np.int64]:
        """The first token of each sequence, and the end of the last: (sequences + 1,)."""
        return self.index.sequence_starts

    @property
    def document_starts(self) -> NDArray[np.int64]:
        """The first sequence of each document, and the end of the last: (documents + 1,)."""
        return self.index.document_starts

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The first token of each document, and the end of the last: (documents + 1,)."""
        if len(self.document_starts) == len(self.sequence_starts):
            return self.sequence_starts  # each document is one sequence, and there may be millions
        return self.sequence_starts[self.document_starts]

    @cached_property
    def tokens(self) -> NDArray[np.uint16] | NDArray[np.int32]:
        """The ids of all documents. The first use reads both files completely, and checks every id and the index."""
        _ = self.index
        self.check_ids(self.mapped)
        return self.mapped

    @cached_property
    def mapped(self) -> NDArray[np.uint16] | NDArray[np.int32]:
        """The unchecked ids of all documents, for readers that need few of them or call `check_ids` as they go."""
        data: NDArray[Any] = _map(self.path, self.sizes[1] * self._dtype.itemsize).view(self._dtype)
        if self._dtype in _MAPPED:
            return data
        self.check_ids(data)
        return data.astype(np.int32)

    @cached_property
    def words(self) -> NDArray[np.uint8] | None:
        """The bytes of the .words file, or None if the shard has no such file."""
        return _map(self.paths[WORDS], -(-self.sizes[1] // 8)) if self.has_words else None

    @property
    def _dtype(self) -> np.dtype[Any]:
        """The type of the ids. An .idx may be large, so only its header is read where that is enough."""
        if self.counts is None or "index" in self.__dict__:
            return self.index.dtype
        header = np.frombuffer(read_bytes(self.paths[IDX], _HEADER.itemsize).ljust(_HEADER.itemsize, b"\0"), _HEADER)[0]
        if header["magic"] != TOKEN_INDEX_MAGIC.rstrip(b"\0") or int(header["code"]) not in _CODES:
            return self.index.dtype  # raises, and says what is wrong
        return np.dtype(_CODES[int(header["code"])])

    @cached_property
    def index(self) -> Index:
        """The contents of the .idx, checked."""
        path = self.paths[IDX]
        dtype, lengths, indices = read_index(path)
        has_tokens = lengths > 0
        documents = np.concatenate([[0], np.cumsum(has_tokens)])[indices]
        documents = documents[np.diff(documents, prepend=-1) > 0].astype(np.int64, copy=False)
        starts = np.concatenate([[0], np.cumsum(lengths[has_tokens], dtype=np.int64)])
        index = Index(dtype, starts, documents)
        if len(documents) < 2:
            raise BertprepError(f"{self.path}: has no documents; expected at least one document with a token")
        if self.counts not in (None, found := self._counts_of(index)):
            has, expected = ("{:,} documents with {:,} tokens".format(*each) for each in (found, self.counts or found))
            raise BertprepError(f"{path}: has {has}, expected {expected} as in {MANIFEST}; {_TOKENIZE_AGAIN}")
        return index

    def check_ids(self, tokens: NDArray[Any], first: int = 0) -> None:
        """Raise `BadTokenError` if an id is not in the tokenizer; `first` is the position in the shard of the first token."""
        if int(tokens.min()) < 0 or int(tokens.max()) >= self.width:
            at = int(np.flatnonzero((tokens < 0) | (tokens >= self.width))[0])
            found = f"token {first + at:,} is {tokens[at]:,}, expected 0 to {self.width - 1:,}, the ids of its tokenizer"
            raise BadTokenError(f"{self.path}: {found}; {_TOKENIZE_AGAIN}")

    def read(self, vocabulary: Vocabulary | None = None, *, pairs: bool = False) -> TokenizedShard:
        """Return the sentences after checking both files, and the ids against the `vocabulary` if it is given.

        With `pairs`, raises `UsageError` for a shard without a manifest whose documents have no sentences.
        """
        # A copy maps the files and soon ends with its mappings: the caller may have thousands of shards.
        return replace(self)._read(vocabulary, pairs)

    def _read(self, vocabulary: Vocabulary | None, pairs: bool) -> TokenizedShard:
        self.verify()
        if (count := int(self.sequence_starts[-1])) >= MAX_TOKENS_IN_SHARD:
            raise BertprepError(
                f"{self.paths[IDX]}: lists {count:,} tokens, expected fewer than {MAX_TOKENS_IN_SHARD:,} in a shard; "
                "make more and smaller shards"
            )
        tokens = self.tokens.astype(np.int32, copy=False)
        if vocabulary:
            check_tokens(self.path, tokens, vocabulary)
        if pairs and not self.listed:
            self._check_sentences()
        return TokenizedShard(tokens, self.sequence_starts, self.document_starts, text_bytes=0, text_crc32c=0)

    def verify(self) -> None:
        """Raise `BertprepError` for a file whose checksum differs from the manifest's."""
        for path, listed in self.checksums.items():
            if listed is None:
                continue
            with _reading(path):
                found = checksum_of(local_copy(path))
            if found != listed:
                raise BertprepError(
                    f"{path}: has {show_checksum(found)}, expected {show_checksum(listed)} as in its manifest; remove it with "
                    "bertprep validate --remove-damaged, and make it again with bertprep tokenize"
                )

    def fingerprint(self) -> str:
        """Return the checksums of all files that the manifest lists, joined.

        Without a manifest, return checksums that are cheap to compute: of the .idx, and of the first MiB of the .bin.
        """
        if self.listed:
            return "".join(self.listed[end][BLAKE3] for end in self.paths)
        found = ""
        for end in (BIN, IDX):
            head = read_bytes(self.paths[end], size=-1 if end == IDX else _HEAD_BYTES)
            found += hashlib.sha256(f"{self.paths[end].stat().st_size}\n".encode() + head).hexdigest()
        return found

    @property
    def has_sentences(self) -> bool:
        """Whether any document has more than one sequence."""
        return len(self.sequence_starts) > len(self.document_starts)

    def _check_sentences(self) -> None:
        if not self.has_sentences:
            raise UsageError(
                f"{self.path}: has no sentences: each of its {len(self.document_starts) - 1:,} documents is one sequence, and "
                "pairs are made of several; make it again with --split-sentences of Megatron's preprocess_data or with "
                "bertprep tokenize, or use --pairs none"
            )

    @staticmethod
    def _counts_of(index: Index) -> tuple[int, int]:
        return len(index.document_starts) - 1, int(index.sequence_starts[-1])


class TokenShardWriter:
    """Writes the files of a token shard, a few documents at a time; at the end `entries` has the files' sizes and checksums."""

    def __init__(self, files: Mapping[str, HashedFile], width: int) -> None:
        self.documents = self.sequences = self.tokens = 0
        self.entries: dict[str, Entry] = {}
        self._files, self._dtype = files, dtype_of(width)
        self._lengths: list[NDArray[np.int64]] = []  # tokens of each sequence
        self._document_lengths: list[NDArray[np.int64]] = []  # sequences of each document
        self._bits = np.empty(0, np.bool_)  # the last bits of .words, which do not fill a byte yet

    def add(
        self,
        tokens: NDArray[np.int32],
        lengths: NDArray[np.int64],
        *,
        sequences: NDArray[np.int64] | None = None,
        begins_word: NDArray[np.bool_] | None = None,
    ) -> None:
        """Write the concatenated `tokens` of sequences with these `lengths`.

        `sequences` is the number of sequences in each document. Without it every sequence is a document, and empty ones are
        dropped.
        """
        if sequences is None:
            lengths = lengths[lengths > 0]
            sequences = np.ones(len(lengths), np.int64)
        self._lengths.append(lengths)
        self._document_lengths.append(sequences)
        self.documents += len(sequences)
        self.sequences += len(lengths)
        self.tokens += len(tokens)
        self._write(BIN, tokens.astype(self._dtype))
        if begins_word is not None:
            bits = np.concatenate([self._bits, begins_word])
            full = len(bits) // 8 * 8
            self._bits = bits[full:]
            self._write(WORDS, np.packbits(bits[:full], bitorder="little"))

    def finish(self) -> None:
        """Write the .idx, whose header has the final counts, and the last bits of .words."""
        self._write(WORDS, np.packbits(self._bits, bitorder="little"))
        starts = np.cumsum(np.concatenate([[0], *self._lengths]), dtype=np.int64)
        documents = np.cumsum(np.concatenate([[0], *self._document_lengths]), dtype=np.int64)
        for part in _encode_index(self._dtype, starts, documents):
            self._write(IDX, part)

    def _write(self, end: str, data: NDArray[Any]) -> None:
        if end in self._files:
            self._files[end].write(data)


@contextmanager
def write_token_shard(paths: Mapping[str, Path], *, width: int) -> Iterator[TokenShardWriter]:
    """Write the files of a shard that `paths` names by extension, each complete or not at all.

    `width` is the size of the vocabulary, which decides the type of the ids (`dtype_of`). Raises `BertprepError` if no document
    has a token, or if a write fails.
    """
    with ExitStack() as stack:
        files = {end: stack.enter_context(atomic_file(path, tidies=False)) for end, path in paths.items()}
        hashed = {end: HashedFile(file) for end, file in files.items()}
        writer = TokenShardWriter(hashed, width)
        yield writer
        if not writer.tokens:
            raise BertprepError(f"{', '.join(map(str, paths.values()))}: there are no tokens to write; expected at least one")
        writer.finish()
        for end, file in files.items():
            checksum = hashed[end].finish()
            writer.entries[end] = {"bytes": file.size_bytes, BLAKE3: checksum}


def dtype_of(width: int) -> np.dtype[Any]:
    """Return the type that Megatron chooses for the ids of a vocabulary of `width` tokens: uint16 or int32."""
    return np.dtype(_CODES[_UINT16 if width <= _MAX_IN_UINT16 else _INT32])


def _encode_index(dtype: np.dtype[Any], starts: NDArray[np.int64], documents: NDArray[np.int64]) -> list[NDArray[Any]]:
    """Return the parts of an .idx in their order; `starts` has each sequence's first token and the end of the last."""
    code = next(code for code, kind in _CODES.items() if np.dtype(kind) == dtype)
    return [
        np.array([(TOKEN_INDEX_MAGIC, _VERSION, code, len(starts) - 1, len(documents))], _HEADER),
        np.diff(starts).astype("<i4"),
        (starts[:-1] * dtype.itemsize).astype("<i8"),
        documents.astype("<i8"),
    ]


def parse_index(path: Path, data: bytes) -> tuple[np.dtype[Any], NDArray[np.int32], NDArray[np.int64]]:
    """Return (type of the ids, lengths of the sequences in tokens, document indices) of an .idx.

    Raises `BertprepError` for the first fault in it.
    """
    code, n, m = _check_header(path, data[: _HEADER.itemsize], len(data))
    dtype, at = np.dtype(_CODES[code]), _HEADER.itemsize
    lengths = np.frombuffer(data, "<i4", n, at)
    pointers = np.frombuffer(data, "<i8", n, at + 4 * n)
    indices = np.frombuffer(data, "<i8", m, at + 12 * n)
    ends = np.cumsum(lengths, dtype=np.int64)
    if (bad := np.flatnonzero((lengths < 0) | (pointers != (ends - lengths) * dtype.itemsize))).size:
        raise BertprepError(
            f"{path}: sequence {bad[0]:,} has {lengths[bad[0]]:,} tokens and begins at byte {pointers[bad[0]]:,} of the .bin, "
            f"expected at least 0 tokens, which begin where the previous sequence ends; {_MAKE_AGAIN}"
        )
    if m == 0 or indices[0] != 0 or indices[-1] != n or (indices[1:] < indices[:-1]).any():
        found = f"{m:,} from {indices[0]:,} to {indices[-1]:,}" if m else "none"
        raise BertprepError(
            f"{path}: its document indices must ascend from 0 to {n:,}, the number of sequences, found {found}; {_MAKE_AGAIN}"
        )
    return dtype, lengths, indices


def read_index(path: Path) -> tuple[np.dtype[Any], NDArray[np.int32], NDArray[np.int64]]:
    """Read an .idx, and return what `parse_index` finds in it; a file that its header does not explain is not read."""
    with _reading(path), open_local(path) as file:
        header = file.read(_HEADER.itemsize)
        _check_header(path, header, os.fstat(file.fileno()).st_size)
        return parse_index(path, header + file.read())


def _check_header(path: Path, header: bytes, size_bytes: int) -> tuple[int, int, int]:
    """Return (code of the id type, sequences, document indices) of an .idx of this size, or raise `BertprepError`."""
    if len(header) < _HEADER.itemsize or not header.startswith(TOKEN_INDEX_MAGIC):
        if header.startswith(OLD_TOKEN_INDEX_MAGIC):
            raise BertprepError(
                f"{path}: is the index of an older data set of fairseq or Megatron (lazy or cached), expected one of "
                "--dataset-impl mmap; make both files again with that option"
            )
        raise BertprepError(
            f"{path}: is not the index of a token shard: it has {size_bytes:,} bytes and begins with {header[:9].hex(' ')}, "
            f"expected MMIDIDX; {_MAKE_AGAIN}"
        )
    _, version, code, n, m = np.frombuffer(header, _HEADER, 1)[0].tolist()
    if version != _VERSION or code not in _CODES:
        found = f"has version {version} and ids of type {code}"
        raise BertprepError(f"{path}: {found}, expected version {_VERSION} and integers (type {', '.join(map(str, _CODES))})")
    expected = _HEADER.itemsize + 12 * n + 8 * m
    if size_bytes not in (expected, expected + n):  # multimodal data sets have one more byte per sequence, its mode
        raise BertprepError(
            f"{path}: has {size_bytes:,} bytes, expected {expected:,} for its {n:,} sequences and {m:,} document indices; "
            f"it is truncated or corrupt; {_MAKE_AGAIN}"
        )
    return code, n, m


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BertprepError(
            f"{path}: cannot be read: {error.strerror or error}; a token shard is a .bin and an .idx file of the same name"
        ) from error


def read_bytes(path: Path, size: int = -1) -> bytes:
    """Return the first `size` bytes of a file of a token shard, by default all."""
    with _reading(path), open_local(path) as file:
        data: bytes = file.read(size)
    return data


def _map(path: Path, size_bytes: int) -> NDArray[np.uint8]:
    """Return a file mapped into memory; raise `BertprepError` unless it has this size."""
    with _reading(path), open_local(path) as file:
        if (found := os.fstat(file.fileno()).st_size) != size_bytes:
            listed_by = f"the tokens that {path.stem}.{IDX} lists"
            raise BertprepError(f"{path}: has {found:,} bytes, expected {size_bytes:,} for {listed_by}; {_MAKE_AGAIN}")
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def check_tokens(path: Path, tokens: NDArray[np.int32], vocabulary: Vocabulary) -> None:
    """Raise `BertprepError` for a token that text cannot contain: not in the vocabulary, or [PAD], [CLS], [SEP] or [MASK]."""
    if (most := int(tokens.max(axis=0))) >= len(vocabulary):
        raise BertprepError(
            f"{path}: token {int(tokens.argmax(axis=0)):,} is {most:,}, and {vocabulary.path} has {len(vocabulary):,} tokens; "
            "name the vocabulary that this file was made with by --vocab"
        )
    is_special = np.zeros(len(vocabulary), np.bool_)
    is_special[[vocabulary.pad, vocabulary.cls, vocabulary.sep, vocabulary.mask]] = True
    if (bad := np.flatnonzero(is_special[tokens])).size:
        raise BertprepError(
            f"{path}: token {bad[0]:,} is {vocabulary.tokens[tokens[bad[0]]]} by {vocabulary.path}, which text never contains; "
            "name the vocabulary that this file was made with by --vocab, or make the file again without special tokens"
        )
