"""Write rows of token ids as MDS, the shards of mosaicml-streaming, which the trainers of ModernBERT and its relatives read.

    DIR/{manifest.json,train/,test/}       DIR/train/{index.json,shard.00000.mds,...}
    shard.00000.mds   u32 n rows, u32 begins[n + 1] (each row's offset in the file, then the file's end), config as JSON, rows
    a row             u32 size of each column of variable size, then the columns in the order of their names
    index.json        {"shards": [config + samples, raw_data, zip_data], "version": 2}, written last

All numbers are little-endian, and the bytes are those of MDSWriter. A row is [CLS], a piece of a document, [SEP], without those
of the two that the tokenizer lacks; a long document becomes several rows. Each token shard becomes one MDS shard, after its
checksums were compared with the manifest. bertprep does not read MDS: StreamingDataset checks its own hashes. See
docs/reference/formats.md.
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
"""The name of the column of ids in ModernBERT's trainer; in EuroBERT's it is tokens."""
_INDEX = "index.json"
_INDEX_HASH = "sha1"
_VERSION = 2
_SIZE_LIMIT = 1 << 26  # MDSWriter writes its limit into each shard; readers ignore it
_MAX_BYTES = (1 << 32) - 1  # the largest shard, since offsets are u32
_BYTES_OF_INT = 8


@dataclass(frozen=True)
class MdsWriter:
    """Splits documents into rows of at most `seq` tokens; the ids are in `column`, as `dtype`, by default uint16 or int32."""

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
        """The description of the columns, which each shard and the index contain."""
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
        """Yield (id, token ids) for each row of a token shard."""
        tokenizer, starts, tokens = self.documents.tokenizer, shard.starts, shard.tokens
        before, after = (np.array(tokens, self._type) for tokens in tokenizer.template)
        longest = self.seq - tokenizer.added_tokens
        for document, (start, end) in enumerate(zip(starts.tolist(), starts[1:].tolist(), strict=False)):
            for piece, begin in enumerate(range(start, end, longest)):
                ids = tokens[begin : min(begin + longest, end)].astype(self._type, copy=False)
                yield f"{shard.path.stem}-{document}-{piece}", np.concatenate([before, ids, after])

    def encode(self, shard: TokenShard) -> tuple[bytes, int]:
        """Return the bytes of a token shard's MDS shard, and its number of rows; raises `BertprepError` above 4 GiB."""
        head = json.dumps(self.config, sort_keys=True).encode()
        rows, size_bytes = [], 0
        for name, tokens in self.rows(shard):
            row = self._encode_row(name, tokens)
            rows.append(row)
            size_bytes += len(row) + 4
            if size_bytes + len(head) + 8 > _MAX_BYTES:
                raise BertprepError(
                    f"{shard.path}: its rows take more than {_MAX_BYTES:,} bytes, the limit of an MDS shard; "
                    "make more and smaller token shards"
                )
        begins = np.cumsum([4 * (len(rows) + 2) + len(head), *map(len, rows)])
        return b"".join([np.uint32(len(rows)).tobytes(), begins.astype("<u4").tobytes(), head, *rows]), len(rows)

    def _encode_row(self, name: str, tokens: NDArray[Any]) -> bytes:
        """Return the bytes of a row: the sizes of its columns of variable size, then all columns, ordered by name."""
        values = {"id": name.encode(), self.column: encode_array(tokens), "len": np.int64(len(tokens)).tobytes()}
        columns = self.config["column_names"]
        sizes = np.array([len(values[column]) for column in columns if column != "len"], "<u4")
        return sizes.tobytes() + b"".join(values[column] for column in columns)

    @property
    def _type(self) -> np.dtype[Any]:
        """The type of the ids in rows; that of the token shards may differ, since another tool may have written them."""
        return dtype_of(self.documents.tokenizer.width) if self.dtype is None else np.dtype(self.dtype)


@dataclass(frozen=True)
class MdsMaker(Maker):
    """Makes the MDS shard of one token shard after another; a task's argument is (split, token shard)."""

    writers: Mapping[str, MdsWriter]
    label = "mds"

    def make(self, argument: tuple[str, TokenShard], paths: Mapping[str, Path]) -> dict[str, Entry]:
        split, shard = argument
        shard.verify()
        data, samples = self.writers[split].encode(shard)
        with atomic_file(paths[MDS], tidies=False) as file:
            file.write(data)
        checksums = {BLAKE3: digest(data), _INDEX_HASH: hashlib.new(_INDEX_HASH, data).hexdigest()}
        return {MDS: {"samples": samples, "bytes": len(data), **checksums}}

    def amounts(self, entries: Sequence[Entry]) -> dict[str, float]:
        return {"rows": entries[0]["samples"], "MB": entries[0]["bytes"] / 1e6}


@dataclass(frozen=True)
class MdsIndex:
    """Writes the index.json of each split for StreamingDataset."""

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
    """Return the name of a split's folder: trainers of MDS expect train for the training split."""
    return TRAIN if split == TRAINING else split


def mds_job(
    documents: Mapping[str, TokenDocuments], target: Path, seq: int, column: str, dtype: str | None = None, *,
    command: str = "convert",
) -> Job:  # fmt: skip
    """Return the job that writes the documents of each split as MDS to a folder; `command` is the one that a user called."""
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
    """Return a line that explains how to check or read MDS; `folder` has its index.json."""
    return (
        f"{path}: is MDS, which bertprep writes but does not read; to check its hashes, use mosaicml-streaming: "
        f'StreamingDataset(local="{folder}", validate_hash="{_INDEX_HASH}")'
    )


def encode_array(values: NDArray[Any]) -> bytes:
    """Encode an array for a column of type `ndarray:TYPE`: u8 (1 << 2 | log2 of the size of the length), length, values."""
    code = int(np.searchsorted([256, 65_536], len(values), side="right"))
    return bytes([4 | code]) + len(values).to_bytes(1 << code, "little") + values.tobytes()
