"""Arrays of integers that take long to find, kept in the user's cache: one .npy each, removed when it was not used for long.

    $BERTPREP_CACHE/KIND/HASH.npy    int64 (n,), where HASH is of all that the array depends on

Only this user can write there, but a run may have died or another version written: who takes an array checks what is in it.
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


def kept_array(kind: str, depends_on: str) -> NDArray[np.int64] | None:
    """Return the kept array (n,) of this kind that depends on this text; None where there is none."""
    if (path := _path(kind, depends_on)) is None:
        return None
    try:
        array = np.load(path, mmap_mode="r" if path.stat().st_size > _MAPPED_BYTES else None)
        os.utime(path)
    except (OSError, ValueError, EOFError):
        return None
    if not isinstance(array, np.ndarray) or array.dtype != np.int64 or array.ndim != 1:
        return None
    return np.asarray(array) if array.flags.c_contiguous and array.flags.aligned else None


def keep_array(kind: str, depends_on: str, array: NDArray[np.int64]) -> None:
    """Keep an array (n,), where that can be done, and remove those of its kind that were not used for long."""
    if (path := _path(kind, depends_on)) is None:
        return
    written = path.with_suffix(f".{os.getpid()}.tmp")
    with contextlib.suppress(OSError):
        for other in path.parent.iterdir():
            if time.time() - other.stat().st_mtime > _KEPT_S:
                other.unlink()
        try:
            with written.open("wb") as file:
                np.save(file, array)
            written.replace(path)
        finally:
            written.unlink(missing_ok=True)


def _path(kind: str, depends_on: str) -> Path | None:
    folder = own_folder(kind, warns=False)
    if folder is None:
        return None
    return folder / f"{hashlib.sha256(depends_on.encode(errors='surrogateescape')).hexdigest()[:32]}.npy"
