"""SHA-256 with the processor's instructions, of two streams at a time; compiled only where it has them.

Each instruction waits for the previous one, so two interleaved streams reach 2.4 GB/s instead of 1.8. The state of a stream is
in the order A B E F, C D G H.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from bertprep.kernels.language import CPU_FEATURES, i64, kernel, u8_p, u32_p

_BLOCK_BYTES = 64
_WORD, _FOUR = ir.IntType(32), ir.VectorType(ir.IntType(32), 4)


def _round_constants():
    """The first 32 bits of the fractional parts of the cube roots of the first 64 primes, in exact arithmetic."""
    primes = [n for n in range(2, 312) if all(n % k for k in range(2, n))]

    def cube_root(value):
        low, high = 0, 1 << 40
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if middle**3 <= value else (low, middle - 1)
        return low

    return [cube_root(prime << 96) & 0xFFFFFFFF for prime in primes]


_CONSTANTS = _round_constants()


class _Stream:
    """The generated code of one stream: where its state and its data are."""

    def __init__(self, builder, state, data):
        self._builder, self._data = builder, data
        pointer = builder.bitcast(state, _FOUR.as_pointer())
        self._halves = [builder.gep(pointer, [_WORD(n)]) for n in range(2)]
        self._kept = [cgutils.alloca_once(builder, _FOUR) for _ in self._halves]
        for half, kept in zip(self._halves, self._kept, strict=True):
            builder.store(self._load(half), kept)

    def _load(self, pointer):
        value = self._builder.load(pointer)
        value.align = 4
        return value

    def begin(self, offset):
        """Take the next block: 16 words, big-endian in the data."""
        builder = self._builder
        swap = builder.module.declare_intrinsic("llvm.bswap.v4i32", (), ir.FunctionType(_FOUR, [_FOUR]))
        block = builder.bitcast(builder.gep(self._data, [offset]), _FOUR.as_pointer())
        self._words = []
        for n in range(4):
            value = builder.load(builder.gep(block, [_WORD(n)]))
            value.align = 1
            self._words.append(builder.call(swap, [value]))
        self._state = [builder.load(kept) for kept in self._kept]
        self._before = list(self._state)

    def four_rounds(self, number):
        """Rounds 4 * number to 4 * number + 3, and the words for four rounds further on."""
        builder, words = self._builder, self._words
        if number >= 4:
            first = self._call("llvm.x86.sha256msg1", words[number - 4], words[number - 3])
            middle = self._shuffled(words[number - 2], words[number - 1], [1, 2, 3, 4])
            words.append(self._call("llvm.x86.sha256msg2", builder.add(first, middle), words[number - 1]))
        added = builder.add(words[number], ir.Constant(_FOUR, _CONSTANTS[4 * number : 4 * number + 4]))
        abef, cdgh = self._state
        cdgh = self._call("llvm.x86.sha256rnds2", cdgh, abef, added)
        abef = self._call("llvm.x86.sha256rnds2", abef, cdgh, self._shuffled(added, added, [2, 3, 0, 0]))
        self._state = [abef, cdgh]

    def end(self):
        for kept, before, after in zip(self._kept, self._before, self._state, strict=True):
            self._builder.store(self._builder.add(before, after), kept)

    def give_back(self):
        for half, kept in zip(self._halves, self._kept, strict=True):
            self._builder.store(self._builder.load(kept), half).align = 4

    def _call(self, name, *operands):
        function = self._builder.module.declare_intrinsic(name, (), ir.FunctionType(_FOUR, [_FOUR] * len(operands)))
        return self._builder.call(function, operands)

    def _shuffled(self, low, high, lanes):
        return self._builder.shuffle_vector(low, high, ir.Constant(_FOUR, lanes))


@intrinsic
def _hash_two(_context, _state_a, _data_a, _state_b, _data_b, _blocks):
    def generate(context, builder, _signature, arguments):
        state_a, data_a, state_b, data_b, blocks = arguments
        _hash(builder, blocks, [_Stream(builder, state_a, data_a), _Stream(builder, state_b, data_b)])
        return context.get_dummy_value()

    return types.none(u32_p, u8_p, u32_p, u8_p, i64), generate


def _hash(builder, blocks, streams):
    with cgutils.for_range(builder, blocks) as loop:
        offset = builder.mul(loop.index, ir.IntType(64)(_BLOCK_BYTES))
        for stream in streams:
            stream.begin(offset)
        for number in range(16):
            for stream in streams:
                stream.four_rounds(number)
        for stream in streams:
            stream.end()
    for stream in streams:
        stream.give_back()


if CPU_FEATURES.get("sha"):

    @kernel
    def sha256_of_two(state_a: u32_p, data_a: u8_p, state_b: u32_p, data_b: u8_p, blocks: i64) -> i64:
        """Hash `blocks` blocks of each stream into its state."""
        _hash_two(state_a, data_a, state_b, data_b, blocks)
        return 0
