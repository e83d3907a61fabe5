"""Makes pairs of segments from sentences: ALBERT's, which may be swapped, and ELECTRA's, which always keep their order.

A segment is a run of sentences, given by its first token and its size, so no tokens are copied. `bertprep.tokens.reference` has
the algorithm in plain Python. Random numbers are drawn as in `mask_rows`.
"""

from bertprep.kernels.language import i32_p, i64, i64_p, inlined, kernel, struct, subroutine, u8_p, u64, u64_p
from bertprep.kernels.mask_rows import draw
from bertprep.kernels.memory import shifted

_HALF = u64(32)

PairSettings = struct(
    {"state": "1"},
    longest=i64,  # the most tokens of both segments together
    swaps=i64,  # whether to make ALBERT's pairs for sentence order, or else ELECTRA's segments
    short_below=i64,  # the probability of a shorter pair, in units of 2**-32
    alone_below=i64,  # the probability that ELECTRA's first segment gets all sentences, in units of 2**-32
    state=u64_p,  # the state of the draws
)
"""The settings of pairs, `s` below."""


@inlined
def _below(s, most):
    """Return a random number from 0 to `most` - 1."""
    return i64(((draw(s.state) >> _HALF) * u64(most)) >> _HALF)


@inlined
def _happens(s, below):
    """Return True with the probability `below` / 2**32."""
    return i64(draw(s.state) >> _HALF) < below


@subroutine
def _cut_pair(s, begins, sizes):
    """Remove tokens from the start or the end of the longer segment, at random, until both together have `longest` tokens."""
    while sizes[0] + sizes[1] > s.longest:
        longer = 0 if sizes[0] > sizes[1] else 1
        if _below(s, i64(2)):
            begins[longer] += 1
        sizes[longer] -= 1


@subroutine
def _draw_other(s, document, documents, document_starts, starts, begins, sizes, wanted):
    """Make the second segment from sentences of another document, from a random one on, until it has the wanted tokens."""
    other = document
    for _ in range(10):
        other = _below(s, documents)
        if other != document:
            break
    first = document_starts[other] + _below(s, document_starts[other + 1] - document_starts[other])
    end = first + 1
    while end < document_starts[other + 1] and starts[end] - starts[first] < wanted:
        end += 1
    begins[1], sizes[1] = starts[first], starts[end] - starts[first]


@subroutine
def _order_pair(s, first, end, target, document, documents, document_starts, starts, begins, sizes):
    """Split sentences first to end - 1 at random into two segments, and swap these in half of the cases.

    Return whether they were swapped. A single sentence gets a second segment from another document, which counts as swapped.
    """
    if end - first == 1:
        begins[0], sizes[0] = starts[first], starts[end] - starts[first]
        _draw_other(s, document, documents, document_starts, starts, begins, sizes, target - sizes[0])
        _cut_pair(s, begins, sizes)
        return 1
    middle = first + 1 + _below(s, end - first - 1)
    is_swapped = _below(s, i64(2))
    a, b = is_swapped, 1 - is_swapped
    begins[a], sizes[a] = starts[first], starts[middle] - starts[first]
    begins[b], sizes[b] = starts[middle], starts[end] - starts[middle]
    _cut_pair(s, begins, sizes)
    return is_swapped


@subroutine
def _split_segments(s, first, end, target, starts, begins, sizes):
    """Give sentences to the first segment up to half of the target, and the others to the second, which may be empty.

    The sentence that crosses the half goes to either segment at random.
    """
    half = (target - 3) // 2
    if _happens(s, s.alone_below):
        half = i64(1 << 40)
    middle = first + 1
    while middle < end:
        size = starts[middle] - starts[first]
        longer = starts[middle + 1] - starts[first]
        if longer >= half and (size >= half or _below(s, i64(2)) == 0):
            break
        middle += 1
    begins[0], sizes[0] = starts[first], min(starts[middle] - starts[first], s.longest + 1)
    begins[1], sizes[1] = starts[middle], min(starts[end] - starts[middle], max(i64(0), s.longest - sizes[0]))


@kernel(
    "documents >= 1",
    starts="int(document_starts[documents]) + 1", document_starts="documents + 1",
    begins="2 * (int(document_starts[documents]) - int(document_starts[0]))",
    sizes="2 * (int(document_starts[documents]) - int(document_starts[0]))",
    is_swapped="int(document_starts[documents]) - int(document_starts[0])",
)  # fmt: skip
def make_pairs(
    settings: PairSettings, starts: i64_p, document_starts: i64_p, documents: i64, begins: i64_p, sizes: i32_p, is_swapped: u8_p
) -> i64:
    """Make the pairs of all documents, and return their number.

    The first segment of pair i has sizes[2i] tokens from begins[2i] on, and the second sizes[2i + 1] from begins[2i + 1] on. A
    second segment of 0 tokens is missing. Document d has the sentences document_starts[d] to document_starts[d + 1] - 1, and
    sentence j the tokens starts[j] to starts[j + 1] - 1; neither is empty.
    """
    s = PairSettings(settings)
    pairs = i64(0)
    target = s.longest + 3 * (1 - s.swaps)  # ELECTRA counts the special tokens
    for document in range(documents):
        if s.swaps:
            target = s.longest
            if _happens(s, s.short_below):
                target = 2 + _below(s, s.longest - 1)
        first, end = document_starts[document], document_starts[document]
        while end < document_starts[document + 1]:
            end += 1
            if end < document_starts[document + 1] and starts[end] - starts[first] < target:
                continue
            of_begins, of_sizes = shifted(begins, 2 * pairs), shifted(sizes, 2 * pairs)
            if s.swaps:
                is_swapped[pairs] = _order_pair(
                    s, first, end, target, i64(document), documents, document_starts, starts, of_begins, of_sizes
                )
            else:
                _split_segments(s, first, end, target, starts, of_begins, of_sizes)
                is_swapped[pairs] = 0
                target = s.longest + 3
                if _happens(s, s.short_below):
                    target = 5 + _below(s, s.longest - 1)
            pairs += 1
            first = end
    return pairs
