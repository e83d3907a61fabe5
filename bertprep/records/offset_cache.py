"""Offsets of records, found once by a walk over a large file and kept in the user's cache: one .npy a file.

    $BERTPREP_CACHE/offsets/HASH.npy    int64 (records + 1,), where HASH is of path, size and time of change

Kernels read wherever offsets lead, so kept ones count only where they ascend from 0 to the size of the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertprep.trusted_cache import own_folder

_MAPPED_BYTES = 1 << 20  # larger ones are mapped, so that processes share them
_KEPT_S = 60 * 86400  # after the last use


def kept_offsets(path: Path, status: os.stat_result, size_bytes: int) -> NDArray[np.int64] | None:
    """Return the kept offsets (records + 1,) of a file of this size, None where there are none that fit it."""
    if (kept := _kept_at(path, status)) is None:
        return None
    try:
        offsets: NDArray[np.int64] = np.load(kept, mmap_mode="r" if kept.stat().st_size > _MAPPED_BYTES else None)
        os.utime(kept)
    except (OSError, ValueError, EOFError):
        return None
    if not (isinstance(offsets, np.ndarray) and offsets.dtype == np.int64 and offsets.ndim == 1 and len(offsets) > 1):
        return None
    fits = offsets[0] == 0 and offsets[-1] == size_bytes and bool((offsets[:-1] < offsets[1:]).all())
    return np.asarray(offsets) if fits and offsets.flags.c_contiguous and offsets.flags.aligned else None


def keep_offsets(path: Path, status: os.stat_result, offsets: NDArray[np.int64]) -> None:
    """Keep the offsets of a file, where that can be done, and remove what was not used for long."""
    if (kept := _kept_at(path, status)) is None:
        return
    written = kept.with_suffix(f".{os.getpid()}.tmp")
    with contextlib.suppress(OSError):
        for other in kept.parent.iterdir():
            if time.time() - other.stat().st_mtime > _KEPT_S:
                other.unlink()
        try:
            with written.open("wb") as file:
                np.save(file, offsets)
            written.replace(kept)
        finally:
            written.unlink(missing_ok=True)


def _kept_at(path: Path, status: os.stat_result) -> Path | None:
    folder = own_folder("offsets", warns=False)
    if folder is None:
        return None
    identity = f"{path.absolute()}\0{status.st_size}\0{status.st_mtime_ns}"
    return folder / f"{hashlib.sha256(identity.encode(errors='surrogateescape')).hexdigest()[:32]}.npy"
