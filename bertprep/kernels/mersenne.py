"""The Mersenne Twister MT19937, with the same draws as CPython's `random.Random`; it makes all random choices of instances.

A generator is an array of 1,249 uint32: the state (624), the next 624 draws, and how many of these are used. Its state is that
of `random.Random(seed).getstate()` at first. 624 draws are made at once, at 0.4 ns per draw.
"""

from bertprep.kernels.language import i64, subroutine, u32, u64
from bertprep.kernels.memory import leading_zeros
from bertprep.kernels.numbers import TWISTER_STATE, TWISTER_USED

_MIDDLE = 397
_MATRIX, _UPPER, _LOWER = u32(0x9908B0DF), u32(0x80000000), u32(0x7FFFFFFF)


@subroutine
def _twisted(upper, lower):
    mixed = u32((upper & _UPPER) | (lower & _LOWER))
    return u32((mixed >> u32(1)) ^ ((u32(0) - (mixed & u32(1))) & _MATRIX))


@subroutine
def refill(generator):
    """Make the next 624 draws."""
    for i in range(TWISTER_STATE - _MIDDLE):
        generator[i] = generator[i + _MIDDLE] ^ _twisted(generator[i], generator[i + 1])
    for i in range(TWISTER_STATE - _MIDDLE, TWISTER_STATE - 1):
        generator[i] = generator[i + _MIDDLE - TWISTER_STATE] ^ _twisted(generator[i], generator[i + 1])
    last = TWISTER_STATE - 1
    generator[last] = generator[_MIDDLE - 1] ^ _twisted(generator[last], generator[0])
    for i in range(TWISTER_STATE):
        y = generator[i]
        y = u32(y ^ (y >> u32(11)))
        y = u32(y ^ ((y << u32(7)) & u32(0x9D2C5680)))
        y = u32(y ^ ((y << u32(15)) & u32(0xEFC60000)))
        generator[TWISTER_STATE + i] = u32(y ^ (y >> u32(18)))
    generator[TWISTER_USED] = 0


@subroutine
def draw(generator):
    """Return 32 random bits."""
    used = i64(generator[TWISTER_USED])
    if used == TWISTER_STATE:
        refill(generator)
        used = 0
    generator[TWISTER_USED] = used + 1
    return generator[TWISTER_STATE + used]


@subroutine
def draw_53_bits(generator):
    """Return `random()` times 2**53 as an integer: `random() < p` is `draw_53_bits() < ceil(p * 2**53)`."""
    high = i64(draw(generator) >> u32(5))
    low = i64(draw(generator) >> u32(6))
    return (high << 26) | low


@subroutine
def draw_below(generator, limit):
    """Return `_randbelow(limit)`, which equals `randint(0, limit - 1)`; 1 <= limit < 2**32."""
    shift = u32(leading_zeros(u64(limit)) - 32)
    while True:
        value = i64(draw(generator) >> shift)
        if value < limit:
            return value


@subroutine
def shuffle(generator, items, count):
    """Shuffle the first `count` items like `random.shuffle`."""
    for i in range(count - 1, 0, -1):
        j = draw_below(generator, i + 1)
        items[i], items[j] = items[j], items[i]


@subroutine
def shuffle_head(generator, items, count, head):
    """Make the draws of `shuffle`, but leave its result only in the first `head` items, which is faster.

    A step of `shuffle` swaps items i and j <= i, and no later step touches item i. So outside the head it is enough to copy
    item i to j. After a rejected draw, the item is copied onto itself.
    """
    used = i64(generator[TWISTER_USED])
    i = count - 1
    while i >= 1:
        # Draws are shifted by the same amount for all i + 1 with the same bit length.
        zeros = leading_zeros(u64(i + 1))
        shift = u32(zeros - 32)
        lowest = max((i64(1) << (63 - zeros)) - 1, 1)
        lowest_moved = max(lowest, head)
        while i >= lowest_moved:
            if used == TWISTER_STATE:
                refill(generator)
                used = 0
            value = i64(generator[TWISTER_STATE + used] >> shift)
            used += 1
            accepted = value <= i
            items[value if accepted else i] = items[i]
            i -= i64(accepted)
        while i >= lowest:
            if used == TWISTER_STATE:
                refill(generator)
                used = 0
            value = i64(generator[TWISTER_STATE + used] >> shift)
            used += 1
            accepted = value <= i
            j = value if accepted else i
            items[i], items[j] = items[j], items[i]
            i -= i64(accepted)
    generator[TWISTER_USED] = used
