"""Which bytes of a text file are a document, and what is not text."""

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertprep.errors import BertprepError, UsageError
from bertprep.text import documents
from bertprep.text.documents import TextIndex, TextInput, index_documents
from tests.corpora import texts_of


def write(folder: Path, *texts: str | bytes) -> list[Path]:
    paths = [folder / f"{number}.txt" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    return paths


def index(paths: list[Path], *, keep_duplicates: bool = False, one_document: bool = False) -> TextIndex:
    return index_documents([TextInput(path, one_document) for path in paths], keep_duplicates=keep_duplicates)


def documents_of(paths: list[Path]) -> list[str]:
    return texts_of(index(paths, keep_duplicates=True))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("One.\nTwo.\n\nThree.\n", ["One.\nTwo.", "Three.\n"]),
        ("One.\n\nTwo.", ["One.", "Two."]),  # no line end at the end of the file
        ("\n\nOne.\n\n\n\nTwo.\n\n", ["One.", "Two."]),  # blank lines before, between and after
        ("One.\n \t\nTwo.\n\n  ", ["One.", "Two."]),  # a line of white space is blank
        ("One.\r\n\r\nTwo.\r\n", ["One.\r", "Two.\r\n"]),  # line ends of Windows
        ("One.\n\u00a0\u3000\u2003\nTwo.\n\x1c\x85\u2028\nThree.", ["One.", "Two.", "Three."]),  # white space of Unicode
        ("One.\n\u200b\nOne still.", ["One.\n\u200b\nOne still."]),  # a zero-width space is none
        ("  One.\n  Two.\n\n  Three.", ["  One.\n  Two.", "  Three."]),  # indented
        ("\ufeffOne.\n\nTwo.", ["One.", "Two."]),  # a byte-order mark is no text
        ("\ufeff\n\nOne.", ["One."]),
    ],
)
def test_a_blank_line_ends_a_document(tmp_path: Path, text: str, found: list[str]) -> None:
    assert documents_of(write(tmp_path, text)) == found


def test_the_end_of_a_file_ends_a_document(tmp_path: Path) -> None:
    assert documents_of(write(tmp_path, "One.\n\nTwo.", "", "Three.\n")) == ["One.", "Two.", "Three.\n"]


def test_the_index_has_the_offsets_of_documents(tmp_path: Path) -> None:
    found_in_files = index(write(tmp_path, "Ä b.\n\nC.\n", "D.\n\n"))
    found = found_in_files.documents

    assert [file.size_bytes for file in found_in_files.files] == [10, 4]
    assert found.file.tolist() == [0, 0, 1]
    assert found.start.tolist() == [0, 7, 0]
    assert found.end.tolist() == [5, 10, 2]
    assert found.size_bytes.tolist() == [5, 3, 2]


def by_line(text: str) -> list[str]:
    """The definition: a line that str.strip leaves empty ends a document; one without letter or digit is none."""
    found, lines = [], []
    for line in [*text.split("\n"), ""]:
        if line.strip():
            lines.append(line)
        elif lines:
            found.append("\n".join(lines))
            lines = []
    return [document for document in found if any(map(str.isalnum, document))]


@given(
    text=st.text(st.sampled_from("ab\n\n\n \t\r\x0b\x1c\x85\xa0\u1680\u2005\u2028\u205f\u3000é€𝄞"), max_size=60),
    block_bytes=st.integers(1, 40),
)
def test_the_index_matches_reading_by_line(tmp_path_factory: pytest.TempPathFactory, text: str, block_bytes: int) -> None:
    (path,) = write(tmp_path_factory.mktemp("text"), text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "BLOCK_BYTES", block_bytes)
        if by_line(text):
            assert [document.rstrip() for document in documents_of([path])] == [d.rstrip() for d in by_line(text)]
        else:
            with pytest.raises(BertprepError, match="no document found"):
                documents_of([path])


def test_invalid_utf8_is_reported_with_file_and_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "BLOCK_BYTES", 4)  # the place counts from the start of the file, not of a block
    paths = write(tmp_path, "One.\n", b"One.\n\nNa\xefve.\n")
    with pytest.raises(BertprepError) as error:
        index(paths)
    assert str(error.value) == (
        f"{paths[1]}: byte 8: expected UTF-8, found 0xef (invalid continuation byte); "
        "convert the file, for example with iconv -t UTF-8"
    )


def test_a_file_truncated_within_a_character_is_not_utf8(tmp_path: Path) -> None:
    with pytest.raises(BertprepError, match=r"0\.txt: byte 4: expected UTF-8, found 0xc3 \(unexpected end of data\)"):
        index(write(tmp_path, b"Caf\n\xc3"))


def test_text_without_a_document_is_an_error(tmp_path: Path) -> None:
    paths = write(tmp_path, "", " \n\n", "\ufeff")
    with pytest.raises(BertprepError) as error:
        index(paths)
    assert str(error.value) == (
        f"{paths[0]} (0 bytes), {paths[1]} (3 bytes), {paths[2]} (3 bytes): no document found; "
        "expected text, with a blank line after each document"
    )


def test_an_input_that_is_not_a_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"missing\.txt: no such file; --input takes text files"):
        index([tmp_path / "missing.txt"])
    with pytest.raises(UsageError, match=r"is not a file; --input takes text files"):
        index([tmp_path])


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(given: TextInput) -> None:
        raise OSError(errno.EIO, "Input/output error", str(given.path))

    monkeypatch.setattr(documents, "_read_index", fail)
    with pytest.raises(BertprepError, match=r"0\.txt: cannot be read: Input/output error"):
        index(write(tmp_path, "One.\n"))


def test_a_file_given_twice_is_a_usage_error(tmp_path: Path) -> None:
    paths = write(tmp_path, "One.\n\nTwo.\n")
    with pytest.raises(UsageError, match=r"0\.txt: is given twice; give each text once"):
        index([paths[0], tmp_path / ".." / tmp_path.name / "0.txt"])


def test_of_equal_documents_the_first_is_kept(tmp_path: Path) -> None:
    paths = write(tmp_path, "One.\n\nTwo\r\nlines.\n\nOne.\n\nThree.", "Two\nlines.\n\nFour.\n\nThree.\n")
    found = index(paths)
    assert texts_of(found) == ["One.", "Two\r\nlines.", "Three.", "Four."]
    assert (found.duplicates, found.empty) == (3, 0)

    everything = index(paths, keep_duplicates=True)
    assert (len(everything.documents), everything.duplicates) == (7, 0)


@given(
    names=st.lists(st.text(st.sampled_from("abé\n"), min_size=1, max_size=6).filter(lambda t: t == t.strip()), min_size=1),
    block_bytes=st.integers(1, 20),
)
def test_the_kept_duplicate_does_not_depend_on_blocks(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], block_bytes: int
) -> None:
    texts = ["\n".join(line for line in name.split("\n") if line) for name in names]
    paths = write(tmp_path_factory.mktemp("text"), "\n\n".join(texts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "BLOCK_BYTES", block_bytes)
        found = index(paths)
    assert texts_of(found) == list(dict.fromkeys(texts))
    assert found.duplicates == len(texts) - len(found.documents)


def test_a_document_without_letter_or_digit_is_dropped(tmp_path: Path) -> None:
    paths = write(tmp_path, "* * *\n\n\u4e00\n\n\u200b\n\n\u2014 7\n\n...")
    found = index(paths)
    assert texts_of(found) == ["\u4e00", "\u2014 7"]
    assert found.empty == 3


def test_a_file_can_be_one_document(tmp_path: Path) -> None:
    paths = write(tmp_path, "\ufeffCall me Ishmael.\n\n\nSome years ago.\n\n", "Another book.")
    found = index(paths, one_document=True)
    assert texts_of(found) == ["Call me Ishmael.\n\n\nSome years ago.\n\n", "Another book."]


def test_text_that_changes_between_index_and_reading_is_named(tmp_path: Path) -> None:
    paths = write(tmp_path, "One.\n\nTwo.\n")
    found = index(paths)

    for other in ("One.\n\nTw", "One.\n\n\nTw\n", "One.\n\nTwo.\n\nThree.\n"):
        (tmp_path / "other").write_text(other)
        (tmp_path / "other").replace(paths[0])
        with pytest.raises(BertprepError, match=r"0\.txt: can no longer be read as .* of the run: it was changed"):
            texts_of(found)
    paths[0].unlink()
    with pytest.raises(BertprepError, match=r"0\.txt: can no longer be read as .* of the run: .*No such file"):
        texts_of(found)
