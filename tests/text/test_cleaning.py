"""Documents are cleaned in batches as one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertprep.text import cleaning
from bertprep.text.cleaning import write_lines
from tests.corpora import clean_document

TEXTS = st.lists(
    st.lists(st.sampled_from("aB9.* \n\r\t\u2028\u00a0\u4e00\u0301\ud800\U00010400") | st.characters()).map("".join)
)


@given(TEXTS, st.sampled_from([1, 20, 500]))
def test_a_batch_is_cleaned_as_one_by_one(texts: list[str], batch_characters: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaning, "BATCH_CHARACTERS", batch_characters)
        lines = bytearray()
        empty = write_lines(texts, "lines", "", lines.extend)
    cleaned = [document for text in texts if (document := clean_document(text.encode(errors="replace").decode()))]
    assert lines.decode() == "".join(f"{document}\n\n" for document in cleaned)
    assert empty == len(texts) - len(cleaned)
