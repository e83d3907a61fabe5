"""Token shards: the tokens of a text shard on disk, laid out as Megatron's indexed data sets.

    x.bin   the tokens of all sequences, one after the other
    x.idx   MMIDIDX 00 00, u64 version 1, u8 code of the numbers' type, u64 n sequences, u64 m document indices,
            i32 lengths[n] in tokens, i64 pointers[n] into x.bin in bytes, i64 document_indices[m] (0, then where each ends)

all little-endian. A sequence is a sentence, without special tokens. Megatron's own are read too. See docs/formats.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import atomic_file
from bertprep.files.object_cache import open_local
from bertprep.files.paths import open_head
from bertprep.instances.generator import MAX_TOKENS_IN_SHARD
from bertprep.instances.tokenizer import TokenizedShard
from bertprep.instances.vocabulary import MAX_TOKENS, Vocabulary
from bertprep.records.write import WrittenFile
from bertprep.work.manifest import Manifest

MAGIC = b"MMIDIDX\0\0"
_HEADER = np.dtype([("magic", "S9"), ("version", "<u8"), ("code", "u1"), ("sequences", "<u8"), ("indices", "<u8")])
_VERSION = 1
_CODES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
_UINT16, _INT32 = 8, 4
_MAX_IN_UINT16 = 65_499  # Megatron's own bound on the size of a vocabulary, DType.optimal_dtype
_HEAD_BYTES = 1 << 20
_MAKE_AGAIN = "the two files do not fit each other, or are corrupt: make both again"


class TokenFile(str, Enum):
    """The two files of a token shard, by the ends of their names."""

    BIN = "bin"
    IDX = "idx"

    __str__ = str.__str__


WORDS = "words"
"""The end of the name of the third, which token shards of whole documents have."""


def token_files(path: Path) -> dict[TokenFile, Path]:
    """Return both files of a token shard, of which `path` names either.

    >>> [file.name for file in token_files(Path("x_00000.idx")).values()]
    ['x_00000.bin', 'x_00000.idx']
    """
    return {each: path.with_name(f"{path.name.rpartition('.')[0]}.{each}") for each in TokenFile}


@dataclass(frozen=True)
class TokenShard:
    """A token shard, and what its manifest says: the name, size and CRC-32C of its text, and the sha256s of both files.

    Both are None where there is no manifest.
    """

    bin: Path
    text: dict[str, Any] | None = None
    checksums: dict[TokenFile, str] | None = None

    @classmethod
    def of(cls, folder: Path, name: str, manifest: Manifest | None) -> TokenShard:
        """The token shard with this .bin, relative to the folder, and what the folder's manifest, if it has one, says of it."""
        files = token_files(Path(name))
        entries = manifest.files if manifest else {}
        if not entries.keys() >= {path.as_posix() for path in files.values()}:
            return cls(folder / name)
        return cls(
            folder / name, entries[name].get("text"), {each: entries[path.as_posix()]["sha256"] for each, path in files.items()}
        )

    @property
    def files(self) -> dict[Path, str | None]:
        """Both files with their sha256s, as far as those are known."""
        return {path: self.checksums[each] if self.checksums else None for each, path in token_files(self.bin).items()}

    def read(self, vocabulary: Vocabulary, *, pairs: bool = True) -> TokenizedShard:
        """Return the tokens, to make `pairs` of sentences of or not; raises as `read_token_shard` and `check_sentences` do."""
        shard = read_token_shard(self.bin, vocabulary, self.checksums)
        if pairs and self.checksums is None:
            check_sentences(self.bin, shard)
        return shard

    def fingerprint(self) -> str:
        """The sha256s of both files, or without a manifest what costs little: of all of the .idx, and the first MB of the .bin.

        Raises `BertprepError` where a file cannot be read.
        """
        if self.checksums:
            return "".join(self.checksums[each] for each in TokenFile)
        found = ""
        for each, path in token_files(self.bin).items():
            head = read_bytes(path, size=-1 if each == TokenFile.IDX else _HEAD_BYTES)
            found += hashlib.sha256(f"{path.stat().st_size}\n".encode() + head).hexdigest()
        return found


def has_index(path: Path) -> bool:
    """Return whether a file is the .idx of a token shard, or there is one next to a .bin, as far as their beginning tells."""
    try:
        with open_head(token_files(path)[TokenFile.IDX]) as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def write_token_shard(
    shard: TokenizedShard, paths: Mapping[TokenFile, Path], *, vocabulary_tokens: int
) -> dict[TokenFile, WrittenFile]:
    """Write the given files of a shard atomically; `records` of the result is the number of sentences.

    Ids are uint16 where Megatron takes that for a vocabulary of `vocabulary_tokens`, else int32.
    """
    numbers = type_of_numbers(vocabulary_tokens)
    parts = {
        TokenFile.BIN: [shard.tokens.astype(numbers)],
        TokenFile.IDX: encode_index(numbers, shard.sentence_starts, shard.document_starts),
    }
    written = {}
    with ExitStack() as stack:
        files = {each: stack.enter_context(atomic_file(path)) for each, path in paths.items()}
        for each, file in files.items():
            digest = hashlib.sha256()
            for part in parts[each]:
                digest.update(part.data)
                file.write(part.data)
            written[each] = WrittenFile(shard.sentences, file.size_bytes, digest.hexdigest())
    return written


def type_of_numbers(vocabulary_tokens: int) -> np.dtype[Any]:
    """Return the type of the numbers that Megatron takes for a vocabulary of that size: uint16, or else int32."""
    return np.dtype(_CODES[_UINT16 if vocabulary_tokens <= _MAX_IN_UINT16 else _INT32])


def encode_index(numbers: np.dtype[Any], starts: NDArray[np.int64], documents: NDArray[np.int64]) -> list[NDArray[Any]]:
    """Return the parts of an .idx of sequences with these n + 1 starts in tokens; `documents` are its document indices."""
    code = next(code for code, kind in _CODES.items() if np.dtype(kind) == numbers)
    return [
        np.array([(MAGIC, _VERSION, code, len(starts) - 1, len(documents))], _HEADER),
        np.diff(starts).astype("<i4"),
        (starts[:-1] * numbers.itemsize).astype("<i8"),
        documents.astype("<i8"),
    ]


def read_token_shard(
    path: Path, vocabulary: Vocabulary | None = None, checksums: Mapping[TokenFile, str] | None = None
) -> TokenizedShard:
    """Read a token shard, of which `path` names either file; sequences and documents without tokens are dropped.

    Tokens are checked against the `vocabulary`, if given. Raises `BertprepError` for files that are missing, unreadable, of
    another sha256 than `checksums`, do not fit each other, or have no document.
    """
    files, sha256 = token_files(path), checksums or {}
    bin_path, idx_path = files[TokenFile.BIN], files[TokenFile.IDX]
    numbers, lengths, indices = parse_index(idx_path, read_bytes(idx_path, sha256.get(TokenFile.IDX)))
    if (count := int(lengths.sum(dtype=np.int64))) >= MAX_TOKENS_IN_SHARD:
        raise BertprepError(
            f"{idx_path}: lists {count:,} tokens, and a shard has less than {MAX_TOKENS_IN_SHARD:,}; make more, smaller ones"
        )
    tokens = _parse_tokens(bin_path, read_bytes(bin_path, sha256.get(TokenFile.BIN)), numbers, count)
    held = lengths > 0
    documents = np.concatenate([[0], np.cumsum(held)])[indices]
    documents = documents[np.diff(documents, prepend=-1) > 0]
    if len(documents) < 2:
        raise BertprepError(f"{bin_path}: holds no document; expected at least one with a token")
    if vocabulary:
        check_tokens(bin_path, tokens, vocabulary)
    return TokenizedShard(
        tokens=tokens,
        sentence_starts=np.concatenate([[0], np.cumsum(lengths[held], dtype=np.int64)]),
        document_starts=documents.astype(np.int64, copy=False),
        text_bytes=0,
        text_crc32c=0,
    )


def has_sentences(shard: TokenizedShard) -> bool:
    """Return whether a document has more than one sequence."""
    return shard.sentences > shard.documents


def check_sentences(path: Path, shard: TokenizedShard) -> None:
    """Raise `UsageError` if each document is one sequence, so that no pairs can be made; for shards whose manifest does not
    tell.
    """
    if not has_sentences(shard):
        raise UsageError(
            f"{path}: has no sentences: each of its {shard.documents:,} documents is one sequence, and pairs need more; "
            "make it with --split-sentences (of Megatron's preprocess_data) or bertprep tokenize, or take --pairs none"
        )


def parse_index(path: Path, data: bytes) -> tuple[np.dtype[Any], NDArray[np.int32], NDArray[np.int64]]:
    """Return (type of the numbers, lengths of the sequences in tokens, document indices) of an .idx, and check all of it."""
    if len(data) < _HEADER.itemsize or not data.startswith(MAGIC):
        raise BertprepError(
            f"{path}: is not the index of a token shard: it has {len(data):,} bytes and begins with {data[:9].hex(' ')}, "
            f"expected MMIDIDX; {_MAKE_AGAIN}"
        )
    _, version, code, n, m = np.frombuffer(data, _HEADER, 1)[0].tolist()
    if version != _VERSION or code not in _CODES:
        found = f"has version {version} and numbers of type {code}"
        raise BertprepError(f"{path}: {found}, expected version {_VERSION} and integers (type {', '.join(map(str, _CODES))})")
    expected = _HEADER.itemsize + 12 * n + 8 * m
    if len(data) not in (expected, expected + n):  # with a mode for each sequence
        raise BertprepError(
            f"{path}: has {len(data):,} bytes, expected {expected:,} for its {n:,} sequences and {m:,} document indices; "
            f"it is truncated, or corrupt; {_MAKE_AGAIN}"
        )
    numbers, at = np.dtype(_CODES[code]), _HEADER.itemsize
    lengths = np.frombuffer(data, "<i4", n, at)
    pointers = np.frombuffer(data, "<i8", n, at + 4 * n)
    indices = np.frombuffer(data, "<i8", m, at + 12 * n)
    ends = np.cumsum(lengths, dtype=np.int64)
    if (bad := np.flatnonzero((lengths < 0) | (pointers != (ends - lengths) * numbers.itemsize))).size:
        raise BertprepError(
            f"{path}: sequence {bad[0]:,} has {lengths[bad[0]]:,} tokens from byte {pointers[bad[0]]:,} of the .bin on, "
            f"expected 0 or more from where the one before ends; {_MAKE_AGAIN}"
        )
    if m == 0 or indices[0] != 0 or indices[-1] != n or (indices[1:] < indices[:-1]).any():
        found = f"{m:,} from {indices[0]:,} to {indices[-1]:,}" if m else "none"
        raise BertprepError(
            f"{path}: its document indices must ascend from 0 to its {n:,} sequences, found {found}; {_MAKE_AGAIN}"
        )
    return numbers, lengths, indices


def _parse_tokens(path: Path, data: bytes, numbers: np.dtype[Any], count: int) -> NDArray[np.int32]:
    """Return the `count` numbers of a .bin, none negative or beyond any vocabulary."""
    if len(data) != (expected := count * numbers.itemsize):
        raise BertprepError(
            f"{path}: has {len(data):,} bytes, expected {expected:,} for the tokens that {path.stem}.idx lists; {_MAKE_AGAIN}"
        )
    tokens = np.frombuffer(data, numbers)
    if numbers.kind == "i" and (bad := np.flatnonzero((tokens < 0) | (tokens >= MAX_TOKENS))).size:
        raise BertprepError(f"{path}: token {bad[0]:,} is {tokens[bad[0]]:,}, expected 0 to {MAX_TOKENS - 1:,}; {_MAKE_AGAIN}")
    return tokens.astype(np.int32, copy=False)


def read_bytes(path: Path, sha256: str | None = None, size: int = -1) -> bytes:
    """Return the bytes of a file, or its first `size`, which must have the sha256 of its manifest."""
    try:
        if path.exists() and not path.is_file():
            raise BertprepError(f"{path}: is not a plain file; expected one of the two files of a token shard")
        with open_local(path) as file:
            data: bytes = file.read(size)
    except OSError as error:
        raise BertprepError(
            f"{path}: cannot be read: {error.strerror or error}; a token shard is two files of one name, a .bin and an .idx"
        ) from error
    if sha256 and (found := hashlib.sha256(data).hexdigest()) != sha256:
        raise BertprepError(
            f"{path}: has sha256 {found[:16]}..., expected {sha256[:16]}... by its manifest; remove it with "
            "bertprep validate --remove-damaged, and make it again with bertprep tokenize"
        )
    return data


def check_tokens(path: Path, tokens: NDArray[np.int32], vocabulary: Vocabulary) -> None:
    """Raise `BertprepError` where a token is not one that text gives: not of the vocabulary, or [PAD], [CLS], [SEP], [MASK]."""
    if (most := int(tokens.max(axis=0))) >= len(vocabulary):
        raise BertprepError(
            f"{path}: token {int(tokens.argmax(axis=0)):,} is {most:,}, and {vocabulary.path} has {len(vocabulary):,} tokens; "
            "give the vocabulary that it was made with, by --vocab"
        )
    is_special = np.zeros(len(vocabulary), np.bool_)
    is_special[[vocabulary.pad, vocabulary.cls, vocabulary.sep, vocabulary.mask]] = True
    if (bad := np.flatnonzero(is_special[tokens])).size:
        raise BertprepError(
            f"{path}: token {bad[0]:,} is {vocabulary.tokens[tokens[bad[0]]]} of {vocabulary.path}, which no text gives; "
            "give the vocabulary that it was made with, by --vocab, or make it without special tokens"
        )
