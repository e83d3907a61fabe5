"""Computes CRC-32C (Castagnoli), the checksum of TFRecord files, by an instruction of the processor or else by a table."""

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from bertprep.kernels.language import CPU_FEATURES, i64, kernel, subroutine, u8_p, u32, u64
from bertprep.kernels.memory import load_u64

_POLYNOMIAL = 0x82F63B78
_ONES = u64(0xFFFFFFFF)
_MASK_DELTA = u64(0xA282EAD8)
_ON_X86 = bool(CPU_FEATURES.get("sse4.2"))
_HAS_INSTRUCTION = _ON_X86 or bool(CPU_FEATURES.get("crc"))
"""Whether this processor has an instruction for CRC-32C, as most x86-64 and ARMv8 processors do. Others would crash on it."""


def _table() -> np.ndarray:
    value = np.arange(256, dtype=np.uint64)
    for _ in range(8):
        value = (value >> np.uint64(1)) ^ np.where(value & np.uint64(1), np.uint64(_POLYNOMIAL), np.uint64(0))
    return value


_TABLE = _table()


@subroutine
def _crc32c_by_table(previous, data, start, size):
    checksum = previous ^ _ONES
    for at in range(start, start + size):
        checksum = (checksum >> u64(8)) ^ _TABLE[i64((checksum ^ u64(data[at])) & u64(255))]
    return checksum ^ _ONES


@intrinsic
def _after_eight_bytes(_context, _checksum, _data):
    def generate(_context, builder, _signature, arguments):
        checksum, data = arguments
        name, narrow = ("llvm.x86.sse42.crc32.64.64", 64) if _ON_X86 else ("llvm.aarch64.crc32cx", 32)
        kind = ir.IntType(narrow)
        function = builder.module.declare_intrinsic(name, (), ir.FunctionType(kind, [kind, data.type]))
        result = builder.call(function, [checksum if _ON_X86 else builder.trunc(checksum, kind), data])
        return result if _ON_X86 else builder.zext(result, data.type)

    return u64(u64, u64), generate


@subroutine
def _crc32c_by_instruction(previous, data, start, size):
    checksum = previous ^ _ONES
    eights = start + (size & ~7)
    for at in range(start, eights, 8):
        checksum = _after_eight_bytes(checksum, load_u64(data, at))
    return _crc32c_by_table(checksum ^ _ONES, data, eights, size & 7)


crc32c = _crc32c_by_instruction if _HAS_INSTRUCTION else _crc32c_by_table


@subroutine
def masked_crc32c(data, start, size):
    """Return TFRecord's masked checksum; the mask is needed because the CRC of data that contains its own CRC is weak."""
    checksum = crc32c(u64(0), data, start, size)
    return u32((((checksum >> u64(15)) | (checksum << u64(17))) + _MASK_DELTA) & _ONES)


@kernel(data="size")
def checksum(previous: i64, data: u8_p, size: i64) -> i64:
    """Return the CRC-32C of `size` bytes that follow bytes with the checksum `previous` (0 if none precede them)."""
    return i64(crc32c(u64(previous), data, i64(0), size))
