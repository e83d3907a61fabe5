"""Computes the checksum of records in TFRecord files; TensorBoard's event files are TFRecord files, too."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels


def masked_checksum(data: NDArray[np.uint8]) -> int:
    """Return the masked CRC-32C of `data` (bytes,).

    >>> hex(masked_checksum(np.frombuffer(b"123456789", np.uint8)))
    '0xc78ab0e5'
    """
    checksum = kernels.load().checksum(0, data, len(data))
    # The format masks the CRC, because the CRC of data that contains its own CRC detects errors poorly.
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF
