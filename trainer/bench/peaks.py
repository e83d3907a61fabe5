"""What devices can multiply at most: dense bf16, as their makers' data sheets say, for model FLOPs utilization (MFU).

NVIDIA's: the data sheets of A100, H100 (SXM, PCIe), H200, H800, GH200, A10, A40, L4 and L40S, without sparsity, which doubles
them. Google's: the pages of TPU v4, v5e, v5p and v6e in the documentation of Google Cloud. Another device has no MFU.
"""

from __future__ import annotations

import re

_PEAKS = {  # of the whole name that the driver tells, since a part of a GPU (MIG, vGPU) has a longer one: TFLOP/s
    r"A100-(SXM4|PCIE)-(40|80)GB|A100 80GB PCIe": 312.0,
    r"A10": 125.0,
    r"A40": 149.7,
    r"L40S": 362.0,
    r"L4": 121.0,
    r"H100 PCIe": 756.5,
    r"(H100|H800) 80GB HBM3": 989.4,
    r"H200|GH200 480GB": 989.4,
    r"TPU v4": 275.0,
    r"TPU v5 lite|TPU v5e": 197.0,
    r"TPU v5p?": 459.0,
    r"TPU v6 lite|TPU v6e": 918.0,
}


def peak_of(device: str) -> float | None:
    """FLOP/s of one device of this name, as engines tell it, or of each of several; None where it is not known.

    >>> peak_of("8 x NVIDIA H100 80GB HBM3"), peak_of("NVIDIA A10G"), peak_of("CPU")
    (989400000000000.0, None, None)
    """
    return next((tera * 1e12 for name, tera in _PEAKS.items() if re.fullmatch(rf"(\d+ x )?(NVIDIA )?({name})", device)), None)
