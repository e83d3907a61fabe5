"""Recognize by its first bytes what a file contains: records of some format, or the index of a token shard.

    TFRecord   a u64 length and its correct checksum; if that is wrong, 0x0A, the tag of a map entry, follows both
    OFRecord   an i64 length, and 0x0A, the tag of a map entry, after it
    Arrow      a stream of messages, each after FF FF FF FF and its size, or a file that begins with ARROW1
    Parquet    a file that begins with PAR1

Arrow and Parquet files contain records if they have a column of token ids.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bertprep.config import RecordFormat
from bertprep.errors import BertprepError
from bertprep.files.archives import GZIP, BrokenArchiveError, decompress
from bertprep.files.crc32c import masked_checksum
from bertprep.files.object_cache import open_local
from bertprep.files.paths import open_head

if TYPE_CHECKING:
    import pyarrow as pa

GZIP_MAGIC = b"\x1f\x8b"
TOKEN_INDEX_MAGIC = b"MMIDIDX\0\0"
OLD_TOKEN_INDEX_MAGIC = b"TNTIDX\0\0"
"""Of fairseq and Megatron with --dataset-impl lazy or cached; bertprep only says what it is."""
ARROW_FILE_MAGIC, PARQUET_MAGIC = b"ARROW1", b"PAR1"
TOKENS_COLUMN = "input_ids"
_ARROW_STREAM_MAGIC = b"\xff\xff\xff\xff"
_MAP_ENTRY = 0x0A
_MAX_MESSAGE_BYTES = 1 << 31  # no protobuf message is longer
_HEAD_BYTES = 16


def find_format(path: Path, data: NDArray[np.uint8], *, is_whole: bool = True) -> RecordFormat:
    """Return the format of a file, given all or the first of its bytes. Raises `BertprepError` for an empty or unknown file."""
    if len(data) == 0:
        raise BertprepError(f"{path}: is empty; make it again")
    head = data[:13].tobytes()
    length = int.from_bytes(head[:8], "little")
    if len(data) >= 12 and int.from_bytes(head[8:12], "little") == masked_checksum(data[:8]):
        return RecordFormat.TFRECORD
    if head.startswith((_ARROW_STREAM_MAGIC, ARROW_FILE_MAGIC)):
        return RecordFormat.ARROW
    if head.startswith(PARQUET_MAGIC):
        return RecordFormat.PARQUET
    if len(data) >= 9 and length < _MAX_MESSAGE_BYTES:
        if head[8] == _MAP_ENTRY:
            return RecordFormat.OFRECORD
        if head[12:] == bytes([_MAP_ENTRY]) and length <= len(data) - 16:
            return RecordFormat.TFRECORD
    if head[:1] == b"\x78" and len(data) > 1 and int.from_bytes(head[:2], "big") % 31 == 0:
        command = 'import sys, zlib; open(sys.argv[2], "wb").write(zlib.decompress(open(sys.argv[1], "rb").read()))'
        raise BertprepError(
            f"{path}: is compressed with zlib, as by TensorFlow with ZLIB; decompress it, or use GZIP: python -c '{command}' "
            f"{shlex.quote(str(path))} NEW.tfrecord"
        )
    size = f"{'' if is_whole else 'more than '}{len(data):,} bytes"
    raise BertprepError(
        f"{path}: is neither TFRecord, OFRecord, Arrow nor Parquet: it has {size} and begins with {head[:12].hex(' ')}; "
        "give a file that bertprep create or a similar tool has made"
    )


def sniff_format(path: Path) -> RecordFormat | None:
    """Return the format of a file of records, compressed or not; None if it is another file or cannot be read."""
    try:
        with open_head(path) as file:
            is_compressed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
            file.seek(0)
            head = (decompress(file, GZIP) if is_compressed else file).read(_HEAD_BYTES)
        found = find_format(path, np.frombuffer(head, np.uint8), is_whole=False)
    except (OSError, EOFError, BrokenArchiveError, BertprepError):
        return None
    return None if found.is_columnar and not _has_token_column(path) else found


def is_token_index(path: Path) -> bool:
    """Return whether a file begins like the .idx of a token shard."""
    try:
        with open_head(path) as file:
            return file.read(len(TOKEN_INDEX_MAGIC)).startswith((TOKEN_INDEX_MAGIC, OLD_TOKEN_INDEX_MAGIC))
    except OSError:
        return False


def _has_token_column(path: Path) -> bool:
    """Return whether an Arrow or Parquet file has a column of token ids; False if its schema cannot be read."""
    import pyarrow as pa

    failures = pa.ArrowException, BertprepError, OSError, ValueError, LookupError, TypeError, OverflowError, MemoryError
    try:
        column = read_schema(path).field(TOKENS_COLUMN).type
    except failures:
        return False
    return is_list(column) and is_integer(column.value_type)


def read_schema(path: Path) -> pa.Schema:
    """Return the schema of an Arrow or Parquet file. For a corrupt one, pyarrow's own error is raised."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_local(path) as raw, pa.PythonFile(raw) as file:
        is_parquet = file.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
        file.seek(0)
        return pq.read_schema(file) if is_parquet else open_arrow(file).schema


def open_arrow(source: pa.NativeFile) -> Any:
    """Open `source` as an Arrow file or, if it is not one, as an Arrow stream."""
    import pyarrow as pa

    is_file = source.read(len(ARROW_FILE_MAGIC)) == ARROW_FILE_MAGIC
    source.seek(0)
    return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source, options=pa.ipc.IpcReadOptions(use_threads=False))


def is_integer(kind: pa.DataType) -> bool:
    """Return whether a column has integers, or booleans, which can be cast to integers."""
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def is_list(kind: pa.DataType) -> bool:
    """Return whether a column has a list in each row."""
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
