"""The checksum of the records of TFRecord files, and of the events that TensorBoard reads, which are such files too."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels


def masked_checksum(data: NDArray[np.uint8]) -> int:
    """Return the masked CRC-32C of these bytes.

    >>> hex(masked_checksum(np.frombuffer(b"123456789", np.uint8)))
    '0xc78ab0e5'
    """
    checksum = kernels.load().checksum(0, data, len(data))
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF  # a CRC of data that has its own CRC would be weak
