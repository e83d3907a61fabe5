"""MDS, the shards of mosaicml-streaming, which ModernBERT's and its relatives' trainers read: rows of token ids.

    DIR/{manifest.json,train/,test/}       DIR/train/{index.json,shard.00000.mds,...}
    shard.00000.mds   u32 n rows, u32 begins[n + 1] of the rows from the start of the file, and its end, config as JSON, rows
    a row             u32 size of each column of variable size, then the columns in the order of their names
    index.json        {"shards": [config + samples, raw_data, zip_data], "version": 2}, written last

all little-endian, as MDSWriter writes them to the byte. A row is [CLS], a piece of a document, [SEP], as far as the tokenizer
has these: a long document gives several. Each token shard becomes one MDS shard. They are not read back here: streaming checks
its own hashes. See docs/reference/formats.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import atomic_file, write_if_different
from bertprep.files.checksums import BLAKE3, digest
from bertprep.instances.tokenizer_files import TOKENIZER_CONFIG
from bertprep.tokens.documents import TokenDocuments
from bertprep.tokens.shard import TokenShard, dtype_of
from bertprep.work.layout import TOKENIZER, TRAIN, TRAINING, VOCABULARY, by_number
from bertprep.work.ledger import Entry, Ledger
from bertprep.work.manifest import MDS, versions_of
from bertprep.work.run import Job, Maker, Task

INPUT_IDS = "input_ids"
"""What ModernBERT's trainer calls the column of ids; EuroBERT's calls it tokens."""
_INDEX = "index.json"
_INDEX_HASH = "sha1"
_VERSION = 2
_SIZE_LIMIT = 1 << 26  # which MDSWriter writes down; readers do not look at it
_MAX_BYTES = (1 << 32) - 1  # of a shard, whose offsets are u32
_BYTES_OF_INT = 8


@dataclass(frozen=True)
class MdsWriter:
    """Rows of at most `seq` tokens of documents; `column` has their ids, as `dtype` or the smallest type that holds them."""

    documents: TokenDocuments
    seq: int
    column: str = INPUT_IDS
    dtype: str | None = None

    def __post_init__(self) -> None:
        width = self.documents.tokenizer.width
        if width > np.iinfo(self._type).max + 1:
            raise UsageError(f"--dtype {self.dtype}: cannot hold the {width:,} ids of this tokenizer; choose int32 or int64")

    @cached_property
    def config(self) -> dict[str, Any]:
        """The columns, as each shard and the index list them."""
        columns = dict(sorted({"id": "str", self.column: f"ndarray:{self._type.name}", "len": "int"}.items()))
        return {
            "column_encodings": [*columns.values()],
            "column_names": [*columns],
            "column_sizes": [_BYTES_OF_INT if encoding == "int" else None for encoding in columns.values()],
            "compression": None,
            "format": "mds",
            "hashes": [_INDEX_HASH],
            "size_limit": _SIZE_LIMIT,
            "version": _VERSION,
        }

    def rows(self, shard: TokenShard) -> Iterator[tuple[str, NDArray[Any]]]:
        """Yield (id, token ids) of the rows of a token shard."""
        tokenizer, starts, tokens = self.documents.tokenizer, shard.starts, shard.tokens
        before = np.array([] if tokenizer.cls is None else [tokenizer.cls], self._type)
        after = np.array([] if tokenizer.sep is None else [tokenizer.sep], self._type)
        longest = self.seq - tokenizer.added_tokens
        for document, (start, end) in enumerate(zip(starts.tolist(), starts[1:].tolist(), strict=False)):
            for piece, begin in enumerate(range(start, end, longest)):
                ids = tokens[begin : min(begin + longest, end)].astype(self._type, copy=False)
                yield f"{shard.path.stem}-{document}-{piece}", np.concatenate([before, ids, after])

    def encode(self, shard: TokenShard) -> tuple[bytes, int]:
        """Return the bytes of the MDS shard of a token shard, and its number of rows; raises `BertprepError` above 4 GiB."""
        head = json.dumps(self.config, sort_keys=True).encode()
        rows, size_bytes = [], 0
        for name, tokens in self.rows(shard):
            row = self._encode_row(name, tokens)
            rows.append(row)
            size_bytes += len(row) + 4
            if size_bytes + len(head) + 8 > _MAX_BYTES:
                raise BertprepError(
                    f"{shard.path}: its rows take more than {_MAX_BYTES:,} bytes, the most that an MDS shard can have; "
                    "make more, smaller token shards"
                )
        begins = np.cumsum([4 * (len(rows) + 2) + len(head), *map(len, rows)])
        return b"".join([np.uint32(len(rows)).tobytes(), begins.astype("<u4").tobytes(), head, *rows]), len(rows)

    def _encode_row(self, name: str, tokens: NDArray[Any]) -> bytes:
        """Return the sizes of the columns of variable size, then all columns, in the order of their names."""
        values = {"id": name.encode(), self.column: encode_array(tokens), "len": np.int64(len(tokens)).tobytes()}
        columns = self.config["column_names"]
        sizes = np.array([len(values[column]) for column in columns if column != "len"], "<u4")
        return sizes.tobytes() + b"".join(values[column] for column in columns)

    @property
    def _type(self) -> np.dtype[Any]:
        """The type of ids in rows, whatever that of the token shards is, which another tool may have written."""
        return dtype_of(self.documents.tokenizer.width) if self.dtype is None else np.dtype(self.dtype)


@dataclass(frozen=True)
class MdsMaker(Maker):
    """Makes the MDS shard of one token shard after another: the argument of a task is (split, token shard)."""

    writers: Mapping[str, MdsWriter]
    label = "mds"

    def make(self, argument: tuple[str, TokenShard], paths: Mapping[str, Path]) -> dict[str, Entry]:
        split, shard = argument
        data, samples = self.writers[split].encode(shard)
        with atomic_file(paths[MDS], tidies=False) as file:
            file.write(data)
        checksums = {BLAKE3: digest(data), _INDEX_HASH: hashlib.new(_INDEX_HASH, data).hexdigest()}
        return {MDS: {"samples": samples, "bytes": len(data), **checksums}}

    def amounts(self, entries: Sequence[Entry]) -> dict[str, float]:
        return {"rows": entries[0]["samples"], "MB": entries[0]["bytes"] / 1e6}


@dataclass(frozen=True)
class MdsIndex:
    """The index.json of each split, which StreamingDataset reads."""

    folder: Path
    writers: Mapping[str, MdsWriter]

    @property
    def paths(self) -> list[Path]:
        return [self.folder / folder_of(split) / _INDEX for split in self.writers]

    def write(self, files: Mapping[str, Entry]) -> None:
        for (split, writer), path in zip(self.writers.items(), self.paths, strict=True):
            shards = []
            for name in sorted((name for name in files if name.startswith(f"{folder_of(split)}/")), key=by_number):
                entry = files[name]
                raw = {"basename": Path(name).name, "bytes": entry["bytes"], "hashes": {_INDEX_HASH: entry[_INDEX_HASH]}}
                shards.append({**writer.config, "samples": entry["samples"], "raw_data": raw, "zip_data": None})
            write_if_different(path, json.dumps({"version": _VERSION, "shards": shards}, sort_keys=True).encode())


def folder_of(split: str) -> str:
    """Return the folder of a split, which trainers call train."""
    return TRAIN if split == TRAINING else split


def mds_job(
    documents: Mapping[str, TokenDocuments], target: Path, seq: int, column: str, dtype: str | None = None, *,
    command: str = "convert",
) -> Job:  # fmt: skip
    """Return the job by which a command makes the rows of documents, by split, in a folder."""
    writers = {split: MdsWriter(each, seq, column, dtype) for split, each in documents.items()}
    first = next(iter(documents.values()))
    kept = [name for name in (TOKENIZER, VOCABULARY) if (first.folder / name).is_file()][:1]
    configs = [TOKENIZER_CONFIG] if TOKENIZER in kept and (first.folder / TOKENIZER_CONFIG).is_file() else []
    ledger = Ledger(
        folder=target,
        kind=MDS,
        made_with={
            "seq": seq,
            "column": column,
            **({} if dtype is None else {"dtype": dtype}),
            "shards": "one for each token shard",  # unlike those of 0.2.0, with which they do not mix
            "tokenizer": first.tokenizer.made_with,
            "converted_from": {split: each.sha256 for split, each in documents.items()},
        },
        versions=versions_of("numpy"),
        index=MdsIndex(target, writers),
        copies={name: first.folder / name for name in (*kept, *configs)},
        advice="choose another target folder",
        command=command,
    )
    tasks = [
        Task(str(target / name), {MDS: name}, (split, shard))
        for split, of_split in documents.items()
        for index, shard in enumerate(of_split.shards)
        if (name := f"{folder_of(split)}/shard.{index:05}.mds")
    ]
    return Job(MdsMaker(writers), {MDS: ledger}, tasks)


def tell_who_reads(path: Path, folder: Path) -> str:
    """Return the line about MDS where data is to be checked or shown; `folder` has the index.json of it."""
    return (
        f"{path}: is MDS, which bertprep writes and does not read; StreamingDataset of mosaicml-streaming checks its hashes: "
        f'StreamingDataset(local="{folder}", validate_hash="{_INDEX_HASH}")'
    )


def encode_array(values: NDArray[Any]) -> bytes:
    """Return an array as `ndarray:TYPE` has it: u8 (1 << 2 | log2 of the bytes of its length), its length, the values."""
    code = int(np.searchsorted([256, 65_536], len(values), side="right"))
    return bytes([4 | code]) + len(values).to_bytes(1 << code, "little") + values.tobytes()
