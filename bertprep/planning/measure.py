"""Measures the cost of making records on this machine by making some, in a new process with workers, as `create` does.

Files are written where the records will go, and removed one by one. CPU time, wall time and memory are those of the process
and its workers together, from starting Python to its end.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import heapreplace
from pathlib import Path

import bertprep
from bertprep import pool, records
from bertprep.config import RecordFormat
from bertprep.errors import BertprepError
from bertprep.planning.pieces import Piece
from bertprep.records.make import RecordMaker, ShardTask
from bertprep.terminal import say

_RECORDS_LOOKED_AT = 4_000  # records of each piece sampled for the fraction of padding; they are in shuffled order
_BLOCK = 256
_MADE, _USED = "made.pickle", "used.pickle"
_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024  # the unit of ru_maxrss


@dataclass(frozen=True)
class MadePiece:
    """What one piece of text became; the tokens are those of the first `records_looked_at` records.

    `peak_bytes` is the peak memory of its process so far.
    """

    piece: Piece
    records: int
    file_bytes: dict[RecordFormat, int]
    records_looked_at: int
    tokens_looked_at: int
    process: int
    peak_bytes: int


@dataclass(frozen=True)
class Measured:
    """The cost of making some pieces; `peak_bytes` is the memory of the largest process, the first one included."""

    made: list[MadePiece]
    cpu_seconds: float
    wall_seconds: float
    peak_bytes: int

    @property
    def largest_first(self) -> MadePiece:
        """The largest of the pieces that were the first of their process, whose memory is thus not another piece's."""
        firsts: dict[int, MadePiece] = {}
        for made in self.made:
            firsts.setdefault(made.process, made)
        return max(firsts.values(), key=lambda made: made.piece.size_bytes)


@dataclass(frozen=True)
class Forecast:
    """The cost of making all shards."""

    cpu_seconds: float
    wall_seconds: float
    peak_bytes: int


def measure(
    pieces: Sequence[Piece], maker: RecordMaker, formats: Sequence[RecordFormat], folder: Path, workers: int
) -> Measured:
    """Make the records of these pieces in `folder` and remove them, in a new process with `workers` workers."""
    started = time.monotonic()
    source = str(Path(bertprep.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])}
    environment.setdefault("OPENBLAS_NUM_THREADS", "1")
    status = subprocess.run(
        [sys.executable, "-c", "from bertprep.planning.measure import serve; serve()"],
        input=pickle.dumps((pieces, maker, formats, folder, workers)),
        env=environment,
        check=False,
    ).returncode
    wall_seconds = time.monotonic() - started
    if status:
        raise BertprepError("plan: the process that measures was killed or failed; take fewer --workers")
    made = pickle.loads((folder / _MADE).read_bytes())
    if isinstance(made, BertprepError):
        raise made
    cpu_seconds, peak_bytes = pickle.loads((folder / _USED).read_bytes())
    return Measured(made, cpu_seconds, wall_seconds, peak_bytes)


def serve() -> None:
    """The process that `measure` starts: it reads its tasks from standard input and writes its results to the folder.

    The work is done in a fork: a spawned process is charged the memory of its parent, a fork is not.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C is for the parent
    pieces, maker, formats, folder, workers = pickle.loads(sys.stdin.buffer.read())
    if (process := os.fork()) == 0:
        try:
            (folder / _MADE).write_bytes(pickle.dumps(_make_all(pieces, maker, formats, folder, workers)))
            os._exit(0)
        except BaseException:
            say(traceback.format_exc())
        finally:
            os._exit(1)
    _, status, used = os.wait4(process, 0)
    own = resource.getrusage(resource.RUSAGE_SELF)
    cpu_seconds = used.ru_utime + used.ru_stime + own.ru_utime + own.ru_stime
    (folder / _USED).write_bytes(pickle.dumps((cpu_seconds, used.ru_maxrss * _MAXRSS_BYTES)))
    sys.exit(1 if status else 0)


def _make_all(
    pieces: Sequence[Piece], maker: RecordMaker, formats: Sequence[RecordFormat], folder: Path, workers: int
) -> list[MadePiece] | BertprepError:
    tasks = []
    for number, piece in enumerate(pieces):
        shard = replace(piece.shard, path=piece.path)
        paths: dict[str, Path] = {name: folder / f"{number:05d}.{name}" for name in formats}
        tasks.append((str(piece.shard.path), (piece, ShardTask(shard, maker.settings.shard_seed(shard.number), paths))))
    maker.prepare()
    try:
        with contextlib.closing(pool.run(partial(_make, maker), tasks, workers=workers)) as results:
            return [made for _, made in results]
    except BertprepError as error:
        return error


def _make(maker: RecordMaker, given: tuple[Piece, ShardTask]) -> MadePiece:
    """Make the records of a piece, sample some of them, remove them."""
    piece, task = given
    try:
        made = maker.make(task)
    except BertprepError as error:
        if piece.is_whole:
            raise
        raise BertprepError(f"{piece.shard.path}: in a piece of it that was measured: {error}") from error
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_BYTES
    looked_at, tokens = count_tokens(next(iter(task.paths.values())), _RECORDS_LOOKED_AT)
    for path in task.paths.values():
        path.unlink()
    file_bytes = {RecordFormat(name): facts["bytes"] for name, facts in made.facts.items()}
    return MadePiece(piece, made.records, file_bytes, looked_at, tokens, os.getpid(), peak_bytes)


def count_tokens(path: Path, most: int) -> tuple[int, int]:
    """(records, tokens without padding) of at most `most` first records of a file."""
    looked_at = tokens = 0
    with records.open(path) as file:
        for examples in file.blocks(_BLOCK):
            looked_at += len(examples)
            tokens += int(examples.input_mask.sum())
            if looked_at >= most:
                break
    return looked_at, tokens


def forecast(sizes: Sequence[int], start: Measured, measured: Measured, workers: int) -> Forecast:
    """The cost of shards of these sizes in bytes, on the line through two measurements: of little text, and of much.

    CPU time scales with the bytes of text, wall time with those of the busiest worker, memory with those of the largest shard.
    """

    def scaled(first: float, second: float, at_first: int, at_second: int, at: int) -> float:
        slope = max(0.0, second - first) / (at_second - at_first) if at_second > at_first else 0.0
        return second + slope * (at - at_second)

    def of_pieces(run: Measured) -> list[int]:
        return [made.piece.size_bytes for made in run.made]

    few, many = of_pieces(start), of_pieces(measured)
    small, large = start.largest_first, measured.largest_first
    worker_bytes = scaled(small.peak_bytes, large.peak_bytes, small.piece.size_bytes, large.piece.size_bytes, max(sizes))
    busiest = [busiest_worker_bytes(each, workers) for each in (few, many, sizes)]
    return Forecast(
        scaled(start.cpu_seconds, measured.cpu_seconds, sum(few), sum(many), sum(sizes)),
        scaled(start.wall_seconds, measured.wall_seconds, *busiest),
        max(measured.peak_bytes, round(worker_bytes)),
    )


def busiest_worker_bytes(sizes: Sequence[int], workers: int) -> int:
    """The most bytes that one worker gets if each takes the next shard when it becomes free.

    >>> busiest_worker_bytes([10, 10, 10], 2)
    20
    """
    busy = [0] * workers
    for size in sizes:
        heapreplace(busy, busy[0] + size)
    return max(busy)
