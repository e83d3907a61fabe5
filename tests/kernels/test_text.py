"""The kernels for plain text, against definitions in Python. `test_portable` runs this without the processor's instructions."""

import re

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bertprep import kernels
from bertprep.kernels.numbers import LINES_ONLY, PARAGRAPHS, TEXT_SLACK

WHITE = [chr(i) for i in range(0x110000) if chr(i).isspace()]
ASCII_SPACE = rb"[\t-\r\x1c-\x20]*"
OTHER_SPACE = b"|".join(re.escape(white.encode()) for white in WHITE if not white.isascii())
GAP = re.compile(rb"\n%b(?:(?:%b)%b)*\n" % (ASCII_SPACE, OTHER_SPACE, ASCII_SPACE))

BYTES = st.binary(max_size=200) | st.lists(
    st.sampled_from([b"a" * 61, b" ", b"\n", b"\xc3", b"\xe2\x80", b"\xf0\x9f\x98\x80", b"\xed\xa0\x80", b"\xc3\xa9"])
    | st.binary(max_size=3)
).map(b"".join)
LINES = st.lists(st.sampled_from(["\n", "\n", " ", "a", "b" * 70, "\u200b", "\u2070", "\ue000", *WHITE])).map("".join)


def array(text: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text + b"\xaa" * TEXT_SLACK, np.uint8)


@given(LINES)
@example("\n" * 200)
@example("a\n" + "\u2028" * 100 + "\nb\n \n")
def test_gaps_between_documents(lines: str) -> None:
    text = lines.encode()
    gaps = np.empty(len(text) + 2, np.int64)
    count = kernels.load().find_gaps(array(text), len(text), gaps)
    assert gaps[: 2 * count].reshape(-1, 2).tolist() == [list(gap.span()) for gap in GAP.finditer(text)]


@pytest.mark.parametrize("mode", [LINES_ONLY, PARAGRAPHS])
@given(texts=st.lists(BYTES))
def test_no_bytes_make_the_output_longer_than_it_may_be(mode: int, texts: list[bytes]) -> None:
    size = sum(map(len, texts))
    out = np.full(size + 2 * len(texts) + 2 * TEXT_SLACK, 0x55, np.uint8)
    nothing, count = np.empty(0, np.uint64), np.zeros(1, np.int64)
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    written = kernels.load().split_text(array(b"".join(texts)), ends, len(texts), mode, nothing, nothing, 0, out, count)
    assert written <= size + 2 * len(texts)
    assert (out[size + 2 * len(texts) + TEXT_SLACK :] == 0x55).all()
