"""Archives yield all of their bytes in bounded memory, or an error, never shorter text."""

import bz2
import gzip
import io
import lzma
import random
import tracemalloc
from pathlib import Path

import pytest
import zstandard

from bertprep.files.archives import BZIP2, COMPRESSIONS, GZIP, XZ, ZSTANDARD, BrokenArchiveError, decompress

WORDS = [f"word{number}" for number in range(5000)]
TEXT = " ".join(random.Random(0).choices(WORDS, k=80_000)).encode()  # several blocks of bzip2
PACK = {GZIP: gzip.compress, BZIP2: bz2.compress,
    ZSTANDARD: zstandard.ZstdCompressor(write_checksum=True).compress, XZ: lzma.compress}  # fmt: skip
SKIPPABLE = bytes.fromhex("502a4d18 05000000") + b"notes"  # a frame of Zstandard that holds no data


for_each = pytest.mark.parametrize("packing", COMPRESSIONS)


def unpack(path: Path, content: bytes, packing: str) -> bytes:
    path.write_bytes(content)
    with path.open("rb") as raw, decompress(raw, packing) as stream:
        return stream.read()


@for_each
def test_members_are_read_to_the_last(packing: str, tmp_path: Path) -> None:
    pack = PACK[packing]
    for parts in ([TEXT, b"end"], [b"", TEXT], [TEXT, b""], [b""], [b"", b""], [b"a"] * 100):
        assert unpack(tmp_path / "a", b"".join(map(pack, parts)), packing) == b"".join(parts), len(parts)


@for_each
def test_what_is_no_whole_archive_is_an_error(packing: str, tmp_path: Path) -> None:
    whole = PACK[packing](TEXT)
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 0x10]) + whole[middle + 1 :]
    broken = {
        "empty": b"",
        "another format": b"This is text.",
        "cut off": whole[:-1],
        "cut in the middle": whole[:middle],
        "cut off after a member": whole + whole[:4],
        "flipped": flipped,
        "garbage at the end": whole + b"garbage",
        "garbage between": whole + b"garbage" + whole,
    }
    for damage, content in broken.items():
        with pytest.raises((BrokenArchiveError, EOFError)) as error:
            unpack(tmp_path / "a", content, packing)
        assert len(str(error.value).splitlines()) == 1, damage


def test_padding_and_skippable_frames_are_no_garbage(tmp_path: Path) -> None:
    assert unpack(tmp_path / "a", gzip.compress(TEXT) + bytes(1000), GZIP) == TEXT
    frames = PACK[ZSTANDARD]
    assert unpack(tmp_path / "a", SKIPPABLE + frames(b"a") + SKIPPABLE + frames(b"b") + SKIPPABLE, ZSTANDARD) == b"ab"
    with pytest.raises(BrokenArchiveError, match="Truncated"):
        unpack(tmp_path / "a", frames(b"a") + SKIPPABLE[:-2], ZSTANDARD)


def pack_long(content: bytes) -> bytes:
    """As zstd --long=30 does."""
    parameters = zstandard.ZstdCompressionParameters(window_log=30, enable_ldm=True, write_checksum=True)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return packer.compress(content) + packer.flush()


def test_a_long_window_is_read(tmp_path: Path) -> None:
    packed = pack_long(TEXT)
    assert unpack(tmp_path / "a", packed, ZSTANDARD) == TEXT
    assert unpack(tmp_path / "a", packed + PACK[ZSTANDARD](b"end"), ZSTANDARD) == TEXT + b"end"
    for broken in (packed[:-1], packed[: len(packed) // 2], packed + b"garbage"):
        with pytest.raises((BrokenArchiveError, EOFError)):
            unpack(tmp_path / "a", broken, ZSTANDARD)


@for_each
def test_a_bomb_is_read_in_bounded_memory(packing: str) -> None:
    bomb = PACK[packing](bytes(32 << 20))
    assert len(bomb) < 40_000
    tracemalloc.start()
    try:
        with decompress(io.BytesIO(bomb), packing) as stream:
            size = sum(len(block) for block in iter(lambda: stream.read(1 << 16), b""))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size == 32 << 20
    assert peak < 20_000_000
