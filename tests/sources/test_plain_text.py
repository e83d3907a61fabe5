"""Which bytes of a text file are a document, and what is not text."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertprep.errors import BertprepError
from bertprep.sources import plain_text
from bertprep.sources.plain_text import Piece, cut_file, hash_file, read_piece


def write(folder: Path, text: str | bytes) -> Path:
    (path := folder / "some.txt").write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def read(pieces: list[Piece]) -> list[str]:
    return [document.rstrip() for piece in pieces for document in read_piece(piece)]


def documents_of(path: Path, *, one_document: bool = False) -> list[str]:
    file = hash_file(path)
    return read([Piece(file, 0, file.size_bytes, one_document)])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("\n\n  One.\n  Two.\n \t\n\nThree.\r\n\r\nFour.", ["  One.\n  Two.", "Three.", "Four."]),
        ("One.\n\u00a0\u3000\u2003\nTwo.\n\x1c\x85\u2028\nThree.", ["One.", "Two.", "Three."]),  # white space of Unicode
        ("One.\n\u200b\nOne still.", ["One.\n\u200b\nOne still."]),  # a zero-width space is none
        ("\ufeffOne.\n\nTwo.", ["One.", "Two."]),  # a byte-order mark is no text
        ("\ufeff\n\nOne.", ["One."]),
        ("* * *\n\n\u4e00\n\n\u200b\n\n\u2014 7\n\n...", ["* * *", "\u4e00", "\u200b", "\u2014 7", "..."]),
    ],
)
def test_a_blank_line_ends_a_document(tmp_path: Path, text: str, found: list[str]) -> None:
    assert documents_of(write(tmp_path, text)) == found


def by_line(text: str) -> list[str]:
    """The definition: a line that str.strip leaves empty ends a document."""
    found, lines = [], []
    for line in [*text.split("\n"), ""]:
        if line.strip():
            lines.append(line)
        elif lines:
            found.append("\n".join(lines).rstrip())
            lines = []
    return found


@given(
    text=st.text(st.sampled_from("ab*\n\n\n \t\r\x0b\x1c\x85\xa0\u1680\u2005\u2028\u205f\u3000é€𝄞"), max_size=60),
    block=st.integers(1, 40),
    piece_bytes=st.integers(1, 30),
)
def test_pieces_match_reading_by_line(
    tmp_path_factory: pytest.TempPathFactory, text: str, block: int, piece_bytes: int
) -> None:
    file = hash_file(write(tmp_path_factory.mktemp("text"), text))
    pieces = list(cut_file(file, piece_bytes))
    assert [each.start for each in pieces[1:]] == [each.end for each in pieces[:-1]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_text, "BLOCK_BYTES", block)
        assert read(pieces) == by_line(text)


def test_invalid_utf8_is_reported_by_its_offset_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_text, "BLOCK_BYTES", 4)  # the offset is not that in a block
    for text, message in (
        (b"One.\n\nNa\xefve.\n", r"byte 8: expected UTF-8, found 0xef \(invalid continuation byte\)"),
        (b"\xef\xbb\xbfOne.\n\nNa\xefve.\n", r"byte 11: expected UTF-8, found 0xef"),  # with a byte order mark
        (b"Caf\n\xc3", r"byte 4: expected UTF-8, found 0xc3 \(unexpected end of data\)"),
    ):
        with pytest.raises(BertprepError, match=message):
            documents_of(write(tmp_path, text))


def test_a_file_that_changes_during_a_run_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "One.\n\nTwo.\n")
    file = hash_file(path)
    for other in ("One.\n\nTw", "One.\n\n\nTw\n", "One.\n\nTwo.\n\nThree.\n"):
        (tmp_path / "other").write_text(other)
        (tmp_path / "other").replace(path)
        with pytest.raises(BertprepError, match=r"some\.txt: was changed during the run; run the command again"):
            read([Piece(file, 0, file.size_bytes)])
    path.unlink()
    with pytest.raises(BertprepError, match=r"some\.txt: cannot be read: No such file"):
        read([Piece(file, 0, file.size_bytes)])
