"""Documents are cleaned in batches as one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertprep.config import BY_LINES, BY_RULES
from bertprep.text import cleaning
from bertprep.text.cleaning import write_lines
from bertprep.text.sentences import split_documents
from bertprep.text.wrapping import Counts
from tests.corpora import clean_document

TEXTS = st.lists(
    st.lists(st.sampled_from("aB9.* \n\r\t\u2028\u00a0\u4e00\u3002\u0301\ud800\U00010400") | st.characters()).map("".join)
)


@given(TEXTS, st.sampled_from([1, 20, 500]), st.sampled_from([BY_LINES, BY_RULES]))
def test_a_batch_is_cleaned_as_one_by_one(texts: list[str], batch_characters: int, splitter: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaning, "BATCH_CHARACTERS", batch_characters)
        lines, counts = bytearray(), Counts()
        empty = write_lines(texts, splitter, "en", counts, lines.extend)
    expected, one_by_one = [], Counts()
    for text in texts:
        decoded = text.encode(errors="replace").decode()
        if clean_document(decoded):
            (found,) = split_documents([decoded], splitter, "en", one_by_one)
            expected.append("\n".join(found))
    assert lines.decode() == "".join(f"{document}\n\n" for document in expected)
    assert empty == len(texts) - len(expected)
    assert counts == one_by_one
