"""Selects the text that a plan is measured on: whole text shards, or whole documents of large ones, from all over the corpus.

A small corpus is measured whole. In a larger one, offsets are spread evenly over its bytes, at least two per worker, so that
most of the work is done by warm workers. The shard at an offset is taken whole if it is small enough, otherwise stretches of it
are copied to a file. Pieces are as large as the budget allows: a large shard costs more per byte than a small one, because its
tokens fit no cache.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bertprep.errors import BertprepError
from bertprep.files.atomic import explain_write_error
from bertprep.records.make import TextShard

FEWEST_PIECES = 8
SMALLEST_PIECE_BYTES = 200_000
STRETCHES_A_PIECE = 4
_USUAL_DUPE = 5
_FIRST_BYTES = 20_000
_DOCUMENT_END = re.compile(rb"\n[ \t\r]*\n")
_LINE_END = re.compile(rb"\n")


@dataclass(frozen=True)
class Piece:
    """Text to be measured: `path` is the shard itself, or a file with documents of it."""

    shard: TextShard
    path: Path
    size_bytes: int
    is_whole: bool


def size_of(shard: TextShard) -> int:
    """The bytes of a text shard; raises `BertprepError` if it cannot be read or is empty."""
    try:
        size_bytes = shard.path.stat().st_size
    except OSError as error:
        raise BertprepError(f"{shard.path}: cannot be read: {error.strerror}; expected a text shard") from error
    if not size_bytes:
        raise BertprepError(f"{shard.path}: is empty; expected one sentence a line and a blank line after each document")
    return size_bytes


def choose_pieces(
    shards: Sequence[TextShard], sizes: Sequence[int], folder: Path, *, workers: int, dupe: int, budget_bytes: int
) -> list[Piece]:
    """The pieces to measure for shards of these sizes in bytes; those that are not whole shards are written to `folder`."""
    budget_bytes = budget_bytes * _USUAL_DUPE // max(dupe, _USUAL_DUPE)  # so that time and disk do not depend on --dupe
    if sum(sizes) <= budget_bytes:
        return [Piece(shard, shard.path, size, True) for shard, size in zip(shards, sizes, strict=True)]
    wanted = max(FEWEST_PIECES, 2 * workers)
    piece_bytes = max(SMALLEST_PIECE_BYTES, budget_bytes // wanted)
    pieces: list[Piece] = []
    for number, count in sorted(Counter(_shards_at(sizes, wanted)).items()):
        shard, size = shards[number], sizes[number]
        if size <= count * piece_bytes:
            pieces.append(Piece(shard, shard.path, size, True))
            continue
        for at in range(count):
            path = folder / f"piece_{number:05d}_{at}.txt"
            text = cut_documents(shard.path, at * size // count, (at + 1) * size // count, piece_bytes)
            if not text:  # lines of megabytes; this shard is measured only if no other is
                continue
            try:
                path.write_bytes(text)
            except OSError as error:
                raise explain_write_error(path, error) from error
            pieces.append(Piece(shard, path, len(text), False))
    return pieces or [Piece(shards[0], shards[0].path, sizes[0], True)]


def first_documents(piece: Piece, folder: Path, number: int) -> Piece:
    """The beginning of a piece, as a file in `folder`: so little work that it shows the startup cost."""
    text = cut_documents(piece.path, 0, piece.size_bytes, _FIRST_BYTES)
    if not text:
        return piece
    path = folder / f"first_{number:05d}.txt"
    path.write_bytes(text)
    return Piece(piece.shard, path, len(text), False)


def _shards_at(sizes: Sequence[int], count: int) -> list[int]:
    """The numbers of the shards at `count` offsets that are spread evenly over their bytes.

    >>> _shards_at([10, 10, 60], 4)
    [1, 2, 2, 2]
    """
    total, number, end = sum(sizes), 0, sizes[0]
    found = []
    for at in range(count):
        while end * 2 * count <= total * (2 * at + 1):  # the offset is past this shard
            number += 1
            end += sizes[number]
        found.append(number)
    return found


def cut_documents(path: Path, start: int, stop: int, size_bytes: int) -> bytes:
    """About `size_bytes` of the documents from byte `start` to byte `stop` of a text shard, in stretches evenly spread.

    A stretch begins and ends with a document, or with a line if one document is larger than a stretch.
    """
    length = size_bytes // STRETCHES_A_PIECE
    step = (stop - start) // STRETCHES_A_PIECE
    stretches = []
    try:
        with path.open("rb") as file:
            for first in range(start, start + STRETCHES_A_PIECE * step, step):
                file.seek(first)
                stretches.append(_whole_documents(file.read(min(length, step)), at_start=first == 0))
    except OSError as error:
        raise BertprepError(f"{path}: cannot be read: {error.strerror}; expected a text shard") from error
    return b"".join(stretches)


def _whole_documents(text: bytes, *, at_start: bool) -> bytes:
    r"""The whole documents in a stretch of text, with a blank line after the last.

    >>> _whole_documents(b"rest of one\n\nwhole\n\nanother\n\nhalf of o", at_start=False)
    b'whole\n\nanother\n\n'
    """
    for boundary in (_DOCUMENT_END, _LINE_END):
        ends = [match.end() for match in boundary.finditer(text)]
        if at_start:
            ends.insert(0, 0)
        if len(ends) >= 2:
            return text[ends[0] : ends[-1]].rstrip(b"\n") + b"\n\n"
    return b""  # a line longer than all that was read
