"""What happens where a mapped file was cut short: its missing pages read as zeros from then on, and the file is marked.

The system sends SIGBUS to who reads a page of a mapped file that is behind the file's end by now; without a handler that is
the end of the process. This one may call nothing but the system. `bertprep.files.mapped_file` installs it, on 64-bit Linux,
whose numbers stand here.

It finds the mapping in a table of addresses, whose rows `numbers` describes.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import typing
from numba.extending import intrinsic

from bertprep.kernels.language import i64, i64_p, kernel, shifted, u32
from bertprep.kernels.numbers import (
    ACTION_BEFORE,
    CUTS,
    MAPPING_END,
    MAPPING_IS_CUT,
    MAPPING_ROWS,
    MAPPING_START,
    MAPPING_WIDTH,
    PAGE_SIZE,
)

_READ, _PRIVATE_ANONYMOUS_FIXED_NORESERVE = 1, 0x02 | 0x20 | 0x10 | 0x4000
_ADDRESS = 2  # in a siginfo_t, in 8 bytes
_i32 = types.int32
_mmap = types.ExternalFunction("mmap", typing.signature(i64, i64, i64, _i32, _i32, _i32, i64))
_sigaction = types.ExternalFunction("sigaction", typing.signature(_i32, _i32, i64, i64))
_raise = types.ExternalFunction("raise", typing.signature(_i32, _i32))


@intrinsic
def _table_cell(_context: Any) -> Any:
    """The place that holds the table's address, of which the linked kernels have one."""

    def generate(_context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        name, word = "bertprep_table_of_mappings", ir.IntType(64)
        cell = builder.module.globals.get(name)
        if cell is None:
            cell = ir.GlobalVariable(builder.module, word, name)
            cell.linkage, cell.initializer = "linkonce", word(0)
        return builder.bitcast(cell, word.as_pointer())

    return i64_p(), generate


@intrinsic
def _pointer(_context: Any, _address: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())

    return i64_p(i64), generate


@kernel
def take_table_of_mappings(address: i64) -> i64:
    _table_cell()[0] = address
    return 0


@kernel
def on_bus_error(signal: u32, information: i64_p, _context: i64_p) -> i64:
    """The handler; for what is no mapping of the table the one before it is put back, and gets the signal again."""
    table = _pointer(_table_cell()[0])
    address = information[_ADDRESS]
    for number in range(1, MAPPING_ROWS):
        row = shifted(table, MAPPING_WIDTH * number)
        if row[MAPPING_START] <= address and address < row[MAPPING_END]:
            page = address & -table[PAGE_SIZE]
            found = _mmap(page, row[MAPPING_END] - page, _READ, _PRIVATE_ANONYMOUS_FIXED_NORESERVE, -1, 0)
            if found == page:
                row[MAPPING_IS_CUT] = 1
                table[CUTS] += 1
                return 0
    _sigaction(signal, table[ACTION_BEFORE], 0)
    _pointer(table[ACTION_BEFORE])[0] = 0  # the default, should that one put this one back in its turn
    _raise(signal)
    return 0
