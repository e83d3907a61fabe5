"""An index of the documents of some text files: where each begins and ends, and nothing of the text itself.

A blank line, one that `str.strip` leaves empty, ends a document; so does the end of a file. Each file is read once, in
blocks, which finds its documents, checks that it is UTF-8 and takes its sha256: some 400 MB a second, in the memory of a
block and 20 bytes for each document. Workers then read the documents of their shard, and only those, by seeking.
"""

import codecs
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bertprep.errors import BertprepError, UsageError

BLOCK_BYTES = 4_000_000

# What stands between two documents, from the last line end of the one to the first byte of the next: blank lines, of
# characters for which str.isspace is true. Written without nested repeats of one byte, which could take exponential time.
_ASCII_SPACE = rb"[\t-\r\x1c-\x20]*"
_OTHER_SPACE = rb"\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80"
_BLANK_LINES = re.compile(rb"\n%b(?:(?:%b)%b)*\n" % (_ASCII_SPACE, _OTHER_SPACE, _ASCII_SPACE))


@dataclass(frozen=True)
class TextFile:
    """A file of text as it was when it was indexed."""

    path: Path
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Documents:
    """Places of n documents: each the bytes `start` to `end` of a file. None is blank."""

    file: npt.NDArray[np.int32]  # (n,) number of the file in a list of files
    start: npt.NDArray[np.int64]  # (n,)
    end: npt.NDArray[np.int64]  # (n,)

    def __len__(self) -> int:
        return len(self.file)

    @property
    def size_bytes(self) -> npt.NDArray[np.int64]:
        return self.end - self.start

    def take(self, which: npt.NDArray[np.int64]) -> "Documents":
        """The documents with the numbers `which`."""
        return Documents(self.file[which], self.start[which], self.end[which])


def index_documents(inputs: Sequence[Path]) -> tuple[tuple[TextFile, ...], Documents]:
    """The files `inputs` and their documents, in the order given.

    Raises `UsageError` for an input that is missing, no file or given twice (in any copy: its documents would be in the
    training and in the test data), `BertprepError` where the text is not UTF-8 or has no document.
    """
    files: list[TextFile] = []
    places: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
    first_with: dict[str, Path] = {}
    for path in inputs:
        try:
            if not path.exists():
                raise UsageError(f"{path}: no such file; --input takes text files")
            if not path.is_file():
                raise UsageError(f"{path}: is not a file; --input takes text files, for a folder give {path}/*.txt")
            file, start, end = _index_file(path)
        except OSError as error:
            raise BertprepError(f"{path}: cannot be read: {error.strerror or error}") from error
        if len(start) and file.sha256 in first_with:
            raise UsageError(f"{path}: has the same text as {first_with[file.sha256]}; give each text once")
        first_with[file.sha256] = path
        files.append(file)
        places.append((start, end))
    if not any(len(start) for start, _ in places):
        found = ", ".join(f"{file.path} ({file.size_bytes:,} bytes)" for file in files[:3]) or "no file"
        more = f" and {len(files) - 3:,} more" if len(files) > 3 else ""
        raise BertprepError(f"{found}{more}: no document found; expected text, with a blank line after each document")
    return tuple(files), Documents(
        np.repeat(np.arange(len(files), dtype=np.int32), [len(start) for start, _ in places]),
        np.concatenate([start for start, _ in places]),
        np.concatenate([end for _, end in places]),
    )


def _index_file(path: Path) -> tuple[TextFile, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    digest = hashlib.sha256()
    gaps = [np.empty((0, 2), np.int64)]  # per block (n, 2): where blank lines begin, where they end
    first = position = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES) + file.readline():  # whole lines only
            digest.update(block)
            _check_utf8(path, block, position)
            if position == 0 and block.startswith(codecs.BOM_UTF8):
                first = len(codecs.BOM_UTF8)
            # The line end before the block and, in a file that lacks it, after the last line make every blank line match.
            skipped = first if position == 0 else 0
            lines = b"".join((b"\n", block[skipped:] if skipped else block, b"" if block.endswith(b"\n") else b"\n"))
            spans = [match.span() for match in _BLANK_LINES.finditer(lines)]
            gaps.append(np.array(spans, np.int64).reshape(-1, 2) + (position + skipped - 1))
            position += len(block)
    gap = np.concatenate(gaps)
    start = np.concatenate(([first], gap[:, 1]))
    end = np.concatenate((gap[:, 0], [position]))
    whole = end > start  # not so before a gap that opens a file or goes on in the next block
    return TextFile(path, position, digest.hexdigest()), start[whole], end[whole]


def _check_utf8(path: Path, block: bytes, position: int) -> None:
    try:
        block.decode()
    except UnicodeDecodeError as error:
        raise BertprepError(
            f"{path}: byte {position + error.start:,}: expected UTF-8, found 0x{block[error.start]:02x} ({error.reason}); "
            "convert the file, for example with iconv -t UTF-8"
        ) from error


def read_documents(files: Mapping[int, Path] | Sequence[Path], documents: Documents) -> Iterator[str]:
    """The text of each document; one file is open at a time."""
    for number in np.unique(documents.file).tolist():
        path = files[number]
        of_file = documents.take(np.flatnonzero(documents.file == number))
        try:
            with path.open("rb") as file:
                for start, end in zip(of_file.start.tolist(), of_file.end.tolist(), strict=True):
                    file.seek(start)
                    text = file.read(end - start)
                    if len(text) < end - start:
                        raise EOFError(f"byte {end:,} is missing")
                    yield text.decode()
        except (OSError, EOFError, UnicodeDecodeError) as error:
            raise BertprepError(f"{path}: can no longer be read as it was at the start of the run: {error}") from error
