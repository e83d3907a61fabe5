"""MDS, the shards of mosaicml-streaming, which ModernBERT's and its relatives' trainers read: rows of token ids.

    DIR/{manifest.json,train/,test/}       DIR/train/{index.json,shard.00000.mds,...}
    shard.00000.mds   u32 n rows, u32 begins[n + 1] of the rows from the start of the file, and its end, config as JSON, rows
    a row             u32 size of each column of variable size, then the columns in the order of their names
    index.json        {"shards": [config + samples, raw_data, zip_data], "version": 2}, written last

all little-endian, as MDSWriter writes them to the byte. A row is [CLS], a piece of a document, [SEP], as far as the tokenizer
has these: a long document gives several. The lengths of the token shards tell which rows a shard has before any is written,
so each shard is a task of its own. See docs/formats.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import atomic_file, write_if_different
from bertprep.files.object_cache import open_local
from bertprep.records.token_documents import TokenDocuments
from bertprep.records.token_shards import type_of_numbers
from bertprep.untrusted import COUNT, LIST, TEXTS, check_values, parse_json
from bertprep.work.layout import TOKENIZER, TRAIN, TRAINING, VOCABULARY, by_number
from bertprep.work.ledger import Entry, Ledger
from bertprep.work.manifest import MDS, versions_of
from bertprep.work.run import Maker, Task

INDEX = "index.json"
COLUMNS = INPUT_IDS, TOKENS = ("input_ids", "tokens")
"""What the column of ids is called: by ModernBERT, and by EuroBERT."""
_SIZE_LIMIT = 1 << 26
_VERSION = 2
INDEX_HASH = "sha1"
_FIXED = {"int": 8}  # bytes
_CONFIG = {"column_names": TEXTS, "column_encodings": TEXTS, "column_sizes": LIST}
_TYPES = {8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 32: "uint32", 33: "int32", 64: "uint64", 65: "int64"}


class Span(NamedTuple):
    """Rows `first` to `stop` - 1 of those that the documents of a token shard give."""

    shard: int
    first: int
    stop: int


@dataclass(frozen=True)
class MdsWriter:
    """Rows of at most `seq` tokens of documents; `column` has their ids."""

    documents: TokenDocuments
    seq: int
    column: str = INPUT_IDS

    @cached_property
    def config(self) -> dict[str, Any]:
        """What each shard says of its columns."""
        columns = dict(sorted({"id": "str", self.column: f"ndarray:{self._numbers.name}", "len": "int"}.items()))
        return {
            "column_encodings": [*columns.values()],
            "column_names": [*columns],
            "column_sizes": [_FIXED.get(each) for each in columns.values()],
            "compression": None,
            "format": "mds",
            "hashes": [INDEX_HASH],
            "size_limit": _SIZE_LIMIT,
            "version": _VERSION,
        }

    def plan(self) -> list[list[Span]]:
        """Return the rows of each shard: as many as fit in its limit of bytes."""
        shards: list[list[Span]] = [[]]
        empty = 8 + len(json.dumps(self.config, sort_keys=True))
        left = _SIZE_LIMIT - empty
        for number in range(len(self.documents.shards)):
            ends = np.cumsum(self._row_sizes(number))
            first = before = 0
            while first < len(ends):
                stop = int(np.searchsorted(ends, before + left, side="right"))
                if stop == first and not shards[-1]:
                    stop += 1  # a row that is longer than the limit has a shard of its own
                if stop > first:
                    shards[-1].append(Span(number, first, stop))
                    left -= int(ends[stop - 1]) - before
                    first, before = stop, int(ends[stop - 1])
                if first < len(ends):
                    shards.append([])
                    left = _SIZE_LIMIT - empty
        return shards

    def rows(self, span: Span) -> Iterator[tuple[str, NDArray[Any]]]:
        """Yield (id, token ids) of some rows."""
        shard, info = self.documents.shards[span.shard], self.documents.tokenizer
        starts, (documents, pieces) = shard.starts, self._pieces(span.shard, span.first, span.stop)
        begins = starts[documents] + pieces * self._room
        ends = np.minimum(begins + self._room, starts[documents + 1])
        tokens = shard.mapped
        shard.check(tokens[begins[0] : ends[-1]], int(begins[0]))
        before, after = (np.array([] if each is None else [each], self._numbers) for each in (info.cls, info.sep))
        name = shard.path.stem
        for document, piece, begin, end in zip(*(each.tolist() for each in (documents, pieces, begins, ends)), strict=True):
            yield (
                f"{name}-{document}-{piece}",
                np.concatenate([before, tokens[begin:end].astype(self._numbers, copy=False), after]),
            )

    def encode(self, spans: Sequence[Span]) -> tuple[bytes, int]:
        """Return the bytes of a shard, and how many rows it has."""
        head = json.dumps(self.config, sort_keys=True).encode()
        order = self.config["column_names"]
        samples = []
        for span in spans:
            for name, tokens in self.rows(span):
                parts = {"id": name.encode(), self.column: encode_array(tokens), "len": np.int64(len(tokens)).tobytes()}
                sizes = np.array([len(parts[each]) for each in order if each != "len"], "<u4")
                samples.append(sizes.tobytes() + b"".join(parts[each] for each in order))
        begins = np.cumsum([4 * (len(samples) + 2) + len(head), *map(len, samples)])
        return b"".join([np.uint32(len(samples)).tobytes(), begins.astype("<u4").tobytes(), head, *samples]), len(samples)

    @property
    def _numbers(self) -> np.dtype[Any]:
        """The type of ids in rows, whatever that of the token shards is, which another tool may have written."""
        return type_of_numbers(self.documents.tokenizer.width)

    @property
    def _room(self) -> int:
        return self.seq - self.documents.tokenizer.added_tokens

    def _row_sizes(self, shard: int) -> NDArray[np.int64]:
        """The bytes of each row that a token shard gives, with its entry in the table of begins."""
        found, room = self.documents.shards[shard], self._room
        lengths, counts = np.diff(found.starts), self._counts(shard)
        documents, pieces = self._pieces(shard, 0, int(counts.sum()))
        tokens = np.minimum(lengths[documents] - pieces * room, room) + self.documents.tokenizer.added_tokens
        array = 1 + np.choose(np.searchsorted([256, 65_536], tokens, side="right"), [1, 2, 4]) + tokens * self._numbers.itemsize
        name = len(found.path.stem.encode()) + 2 + _digits(documents) + _digits(pieces)
        sizes: NDArray[np.int64] = 8 + name + array + 8 + 4
        return sizes

    def _counts(self, shard: int) -> NDArray[np.int64]:
        return -(-np.diff(self.documents.shards[shard].starts) // self._room)

    def _pieces(self, shard: int, first: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(document, which piece of it) of some rows of a token shard."""
        counts = self._counts(shard)
        ends = np.cumsum(counts)
        rows = np.arange(first, stop)
        documents = np.searchsorted(ends, rows, side="right")
        return documents, rows - (ends - counts)[documents]


def _digits(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    return 1 + np.searchsorted(10 ** np.arange(1, 19), numbers, side="right")


@dataclass(frozen=True)
class MdsMaker(Maker):
    """Makes one MDS shard after another: the argument of a task is (split, spans)."""

    writers: Mapping[str, MdsWriter]
    label = "mds"

    def make(self, argument: tuple[str, Sequence[Span]], paths: Mapping[str, Path]) -> dict[str, Entry]:
        split, spans = argument
        data, samples = self.writers[split].encode(spans)
        with atomic_file(paths[MDS], tidies=False) as file:
            file.write(data)
        sums = {name: hashlib.new(name, data).hexdigest() for name in ("sha256", INDEX_HASH)}
        return {MDS: {"samples": samples, "bytes": len(data), **sums}}

    def amounts(self, entries: Sequence[Entry]) -> dict[str, float]:
        return {"rows": entries[0]["samples"], "MB": entries[0]["bytes"] / 1e6}


@dataclass(frozen=True)
class MdsIndex:
    """The index.json of each split, which StreamingDataset reads."""

    folder: Path
    writers: Mapping[str, MdsWriter]

    @property
    def paths(self) -> list[Path]:
        return [self.folder / folder_of(split) / INDEX for split in self.writers]

    def write(self, files: Mapping[str, Entry]) -> None:
        for (split, writer), path in zip(self.writers.items(), self.paths, strict=True):
            shards = []
            for name in sorted((name for name in files if name.startswith(f"{folder_of(split)}/")), key=by_number):
                entry = files[name]
                raw = {"basename": Path(name).name, "bytes": entry["bytes"], "hashes": {INDEX_HASH: entry[INDEX_HASH]}}
                shards.append({**writer.config, "samples": entry["samples"], "raw_data": raw, "zip_data": None})
            write_if_different(path, json.dumps({"version": _VERSION, "shards": shards}, sort_keys=True).encode())


def folder_of(split: str) -> str:
    """Return the folder of a split, which trainers call train."""
    return TRAIN if split == TRAINING else split


def mds_job(
    documents: Mapping[str, TokenDocuments], target: Path, seq: int, column: str
) -> tuple[MdsMaker, Ledger, list[Task]]:
    """Return what makes the rows of documents, by split, in a folder: all that `work.run` needs."""
    writers = {split: MdsWriter(each, seq, column) for split, each in documents.items()}
    first = next(iter(documents.values()))
    kept = [name for name in (TOKENIZER, VOCABULARY) if (first.folder / name).is_file()][:1]
    if seq <= (added := first.tokenizer.added_tokens):
        raise UsageError(f"--seq {seq}: has no room for a token next to the {added} special ones")
    ledger = Ledger(
        folder=target,
        kind=MDS,
        made_with={
            "seq": seq,
            "column": column,
            "tokenizer": first.tokenizer.made_with,
            "converted_from": {split: each.sha256 for split, each in documents.items()},
        },
        versions=versions_of("numpy"),
        index=MdsIndex(target, writers),
        copies={name: first.folder / name for name in kept},
        advice="choose another target folder",
    )
    tasks = [
        Task(str(target / name), {MDS: name}, (split, spans))
        for split, writer in writers.items()
        for number, spans in enumerate(writer.plan())
        if (name := f"{folder_of(split)}/shard.{number:05}.mds")
    ]
    return MdsMaker(writers), ledger, tasks


class MdsFile:
    """An MDS shard by any writer, checked as it is opened; a row is a mapping of columns to bytes.

    Raises `BertprepError` where it is none, is cut, or is compressed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open_local(path) as file:
                self._data = memoryview(file.read())
        except OSError as error:
            raise BertprepError(f"{path}: cannot be read: {error.strerror or error}; name an MDS shard") from error
        try:
            self._begins, self.config = self._parse()
        except (ValueError, KeyError) as error:
            raise BertprepError(f"{path}: is not an MDS shard: {error}; make it again") from error
        self.names: list[str] = self.config["column_names"]
        self.encodings = dict(zip(self.names, self.config["column_encodings"], strict=True))
        self._sizes: list[int | None] = self.config["column_sizes"]

    def __len__(self) -> int:
        return len(self._begins) - 1

    @property
    def size_bytes(self) -> int:
        return len(self._data)

    def digest(self, name: str) -> str:
        """Return a checksum of the file, by the name of the hash."""
        return hashlib.new(name, self._data).hexdigest()

    def _parse(self) -> tuple[NDArray[np.uint32], dict[str, Any]]:
        size = len(self._data)
        count = int.from_bytes(self._data[:4], "little")
        table = 4 * (count + 2)
        if size < table:
            raise ValueError(f"it has {size:,} bytes, expected {table:,} and more for {count:,} rows")
        begins = np.frombuffer(self._data, "<u4", count + 1, 4)
        if begins[0] < table or begins[-1] != size or (np.diff(begins.astype(np.int64)) < 0).any():
            raise ValueError(f"its rows do not ascend from byte {table:,} on to its {size:,} bytes")
        config = check_values(parse_json(bytes(self._data[table : begins[0]])), _CONFIG, needed=tuple(_CONFIG))
        sizes = config["column_sizes"]
        if len({len(config[name]) for name in _CONFIG}) > 1 or not all(size is None or COUNT.holds(size) for size in sizes):
            raise ValueError("its columns, their encodings and sizes do not fit each other")
        return begins, config

    def row(self, number: int) -> dict[str, bytes]:
        """Return the bytes of each column of a row; raises `BertprepError` where they do not fill it."""
        data = self._data[self._begins[number] : self._begins[number + 1]]
        variable = sum(size is None for size in self._sizes)
        sizes = iter(np.frombuffer(data[: len(data) // 4 * 4], "<u4")[:variable].tolist())
        at = 4 * variable
        found = {}
        for name, fixed in zip(self.names, self._sizes, strict=True):
            size = next(sizes, 0) if fixed is None else fixed
            found[name] = bytes(data[at : at + size])
            at += size
        if at != len(data):
            raise BertprepError(f"{self.path}: row {number:,} has {len(data):,} bytes, expected {at:,}; make it again")
        return found

    def tokens(self, number: int, column: str) -> NDArray[Any]:
        """Return the whole numbers of a row; raises `BertprepError` where the column has none."""
        data = self.row(number)[column]
        try:
            return decode_array(self.encodings[column], data)
        except (IndexError, KeyError, ValueError) as error:
            raise BertprepError(
                f"{self.path}: row {number:,}: {column}, {self.encodings[column]} of {len(data):,} bytes, is no list of whole "
                f"numbers: {error}; make it again"
            ) from error


def encode_array(values: NDArray[Any]) -> bytes:
    """Return an array as `ndarray:TYPE` has it: u8 (1 << 2 | log2 of the bytes of a dimension), its length, the values."""
    code = int(np.searchsorted([256, 65_536], len(values), side="right"))
    return bytes([4 | code]) + len(values).to_bytes(1 << code, "little") + values.tobytes()


def decode_array(encoding: str, data: bytes) -> NDArray[Any]:
    """Return a list of whole numbers, of `ndarray`, `ndarray:TYPE` or `ndarray:TYPE:LENGTH`; raises `ValueError` for others.

    >>> decode_array("ndarray:uint16", encode_array(np.array([5, 6], np.uint16))).tolist()
    [5, 6]
    """
    kind, *known = encoding.split(":")
    if kind != "ndarray":
        raise ValueError("expected the encoding ndarray")
    if not known:
        known, data = [_TYPES[data[0]]], data[1:]
    count = int(known[1]) if len(known) > 1 else -1
    if count < 0:
        dimensions, size = data[0] >> 2, 1 << (data[0] & 3)
        if dimensions != 1:
            raise ValueError(f"it has {dimensions} dimensions")
        count, data = int.from_bytes(data[1 : 1 + size], "little"), data[1 + size :]
    if known[0] not in _TYPES.values() or len(data) != count * np.dtype(known[0]).itemsize:
        raise ValueError(f"expected {count:,} of {known[0]}")
    return np.frombuffer(data, np.dtype(known[0]).newbyteorder("<"))
