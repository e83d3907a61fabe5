"""Which bytes of a text file are a document, and what is no text."""

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertprep.errors import BertprepError, UsageError
from bertprep.text import documents
from bertprep.text.documents import index_documents, read_documents


def write(folder: Path, *texts: str | bytes) -> list[Path]:
    paths = [folder / f"{number}.txt" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    return paths


def documents_of(paths: list[Path]) -> list[str]:
    _, found = index_documents(paths)
    return list(read_documents(paths, found))


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


def test_the_index_tells_where_documents_lie(tmp_path: Path) -> None:
    files, found = index_documents(write(tmp_path, "Ä b.\n\nC.\n", "D.\n\n"))

    assert [file.size_bytes for file in files] == [10, 4]
    assert found.file.tolist() == [0, 0, 1]
    assert found.start.tolist() == [0, 7, 0]
    assert found.end.tolist() == [5, 10, 2]
    assert found.size_bytes.tolist() == [5, 3, 2]


def by_line(text: str) -> list[str]:
    """The definition: a line that str.strip leaves empty ends a document."""
    found, lines = [], []
    for line in [*text.split("\n"), ""]:
        if line.strip():
            lines.append(line)
        elif lines:
            found.append("\n".join(lines))
            lines = []
    return found


@given(
    text=st.text(st.sampled_from("ab\n\n\n \t\r\x0b\x1c\x85\xa0\u1680\u2005\u2028\u205f\u3000é€𝄞"), max_size=60),
    block_bytes=st.integers(1, 40),
)
def test_the_index_finds_what_reading_by_line_finds(
    tmp_path_factory: pytest.TempPathFactory, text: str, block_bytes: int
) -> None:
    (path,) = write(tmp_path_factory.mktemp("text"), text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "BLOCK_BYTES", block_bytes)
        if by_line(text):
            assert [document.rstrip() for document in documents_of([path])] == [d.rstrip() for d in by_line(text)]
        else:
            with pytest.raises(BertprepError, match="no document found"):
                documents_of([path])


def test_bytes_that_are_not_utf8_are_named_by_file_and_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "BLOCK_BYTES", 4)  # the place counts from the start of the file, not of a block
    paths = write(tmp_path, "One.\n", b"One.\n\nNa\xefve.\n")
    with pytest.raises(BertprepError) as error:
        index_documents(paths)
    assert str(error.value) == (
        f"{paths[1]}: byte 8: expected UTF-8, found 0xef (invalid continuation byte); "
        "convert the file, for example with iconv -t UTF-8"
    )


def test_a_file_that_ends_within_a_character_is_not_utf8(tmp_path: Path) -> None:
    with pytest.raises(BertprepError, match=r"0\.txt: byte 4: expected UTF-8, found 0xc3 \(unexpected end of data\)"):
        index_documents(write(tmp_path, b"Caf\n\xc3"))


def test_text_without_a_document_is_an_error(tmp_path: Path) -> None:
    paths = write(tmp_path, "", " \n\n", "\ufeff")
    with pytest.raises(BertprepError) as error:
        index_documents(paths)
    assert str(error.value) == (
        f"{paths[0]} (0 bytes), {paths[1]} (3 bytes), {paths[2]} (3 bytes): no document found; "
        "expected text, with a blank line after each document"
    )


def test_an_input_that_is_no_file_is_a_wrong_request(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"missing\.txt: no such file; --input takes text files"):
        index_documents([tmp_path / "missing.txt"])
    with pytest.raises(UsageError, match=r"is not a file; --input takes text files, for a folder give .*/\*\.txt"):
        index_documents([tmp_path])


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> None:
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(documents, "_index_file", fail)
    with pytest.raises(BertprepError, match=r"0\.txt: cannot be read: Input/output error"):
        index_documents(write(tmp_path, "One.\n"))


def test_the_same_text_twice_is_a_wrong_request(tmp_path: Path) -> None:
    paths = write(tmp_path, "One.\n\nTwo.\n", "One.\n\nTwo.\n")
    with pytest.raises(UsageError, match=r"1\.txt: has the same text as .*0\.txt; give each text once"):
        index_documents(paths)


def test_text_that_changes_between_index_and_reading_is_named(tmp_path: Path) -> None:
    paths = write(tmp_path, "One.\n\nTwo.\n")
    _, found = index_documents(paths)

    write(tmp_path, "One.\n\nTw")
    with pytest.raises(BertprepError, match=r"0\.txt: can no longer be read as .* of the run: byte 11 is missing"):
        list(read_documents(paths, found))
    paths[0].unlink()
    with pytest.raises(BertprepError, match=r"0\.txt: can no longer be read as .* of the run: .*No such file"):
        list(read_documents(paths, found))
