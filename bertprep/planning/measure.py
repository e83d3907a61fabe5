"""What making records costs on this machine, measured by making some: in worker processes, warm, as `create` does it.

Two things are kept apart. What a process costs before its first shard, and the memory of one, come from `bertprep create`
itself, run in new processes on a little text and on the largest piece. What the text costs comes from `RecordMaker.make`
through the pool with as many workers as will be used, so that what workers take from each other (caches, memory, the disk) is
in it. Files are written where the records will lie, and removed again one by one.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import bertprep
from bertprep import pool, records
from bertprep.config import Dialect, InstanceSettings, RecordFormat
from bertprep.errors import BertprepError
from bertprep.planning.pieces import Piece
from bertprep.records.make import RecordMaker, ShardTask

_RECORDS_LOOKED_AT = 10_000  # in each piece, for the share of padding; records are in shuffled order
_BLOCK = 256

# Between us and the command stands a small process: a process counts as its own the memory of the one that started it.
_REPORT = """
import json, resource, subprocess, sys, time
started = time.monotonic()
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
peak_bytes = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print(json.dumps([done.returncode, done.stderr, used.ru_utime + used.ru_stime, time.monotonic() - started, peak_bytes]))
"""


@dataclass(frozen=True)
class PieceCost:
    """What one piece of text became, and what that took; `is_first` where the process had made nothing before."""

    piece: Piece
    process: int
    is_first: bool
    records: int
    file_bytes: dict[RecordFormat, int]
    records_looked_at: int
    tokens_looked_at: int
    cpu_seconds: float
    wall_seconds: float


@dataclass(frozen=True)
class CommandCost:
    """What one `bertprep create` took, from starting Python to its end."""

    cpu_seconds: float
    wall_seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class PieceTask:
    """A piece, and the files that are made of it."""

    piece: Piece
    task: ShardTask


def measure_pieces(
    pieces: Sequence[Piece], maker: RecordMaker, formats: Sequence[RecordFormat], folder: Path, workers: int
) -> list[PieceCost]:
    """Make the records of all pieces in `folder`, remove them, and tell what each took."""
    tasks = []
    for number, piece in enumerate(pieces):
        paths = {name: folder / f"{number:05d}.{name}" for name in formats}
        shard = replace(piece.shard, path=piece.path)
        task = ShardTask(shard, maker.settings.shard_seed(shard.number), paths)
        tasks.append((str(piece.shard.path), PieceTask(piece, task)))
    maker.prepare()
    costs: list[PieceCost] = []
    seen: set[int] = set()
    with contextlib.closing(pool.run(Measurer(maker).measure, tasks, workers=workers)) as results:
        for _, cost in results:
            costs.append(replace(cost, is_first=cost.process not in seen))
            seen.add(cost.process)
    return costs


@dataclass(frozen=True)
class Measurer:
    """Makes one piece after another, as a worker of `create` does."""

    maker: RecordMaker

    def measure(self, given: PieceTask) -> PieceCost:
        """Make the records of a piece, look at some of them, remove them."""
        cpu_started, wall_started = time.process_time(), time.monotonic()
        try:
            made = self.maker.make(given.task)
        except BertprepError as error:
            if given.piece.is_whole:
                raise
            raise BertprepError(f"{given.piece.shard.path}: in a part of it that was measured: {error}") from error
        cpu_seconds, wall_seconds = time.process_time() - cpu_started, time.monotonic() - wall_started
        paths = given.task.paths
        looked_at, tokens = count_tokens(next(iter(paths.values())), _RECORDS_LOOKED_AT)
        for path in paths.values():
            path.unlink()
        sizes = {name: facts["bytes"] for name, facts in made.facts.items()}
        return PieceCost(given.piece, os.getpid(), False, made.records, sizes, looked_at, tokens, cpu_seconds, wall_seconds)


def count_tokens(path: Path, most: int) -> tuple[int, int]:
    """(records, tokens in them that are not padding) of the first records of a file, `most` at the most."""
    looked_at = tokens = 0
    with records.open(path) as file:
        for examples in file.blocks(_BLOCK):
            looked_at += len(examples)
            tokens += int(examples.input_mask.sum())
            if looked_at >= most:
                break
    return looked_at, tokens


def measure_create(
    text: Path, vocabulary: Path, settings: InstanceSettings, dialect: Dialect, formats: Sequence[str], folder: Path
) -> CommandCost:
    """Run `bertprep create` on one text in a new process with one worker."""
    command = [
        sys.executable, "-m", "bertprep", "create", "--input", str(text), "--output", str(folder), "--vocab", str(vocabulary),
        "--format", ",".join(formats), "--workers", "1", "--seq", str(settings.seq), "--pred", str(settings.pred),
        "--dupe", str(settings.dupe), "--masked-lm-prob", str(settings.masked_lm_prob),
    ]  # fmt: skip
    command += ["--feature-names", dialect.feature_names, "--compress", dialect.compress]
    command += ["--whole-word"] * settings.whole_word + ["--cased"] * settings.cased
    source = str(Path(bertprep.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])}
    environment.setdefault("OPENBLAS_NUM_THREADS", "1")
    report = subprocess.run(
        [sys.executable, "-c", _REPORT, *command], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    status, message, cpu_seconds, wall_seconds, peak_bytes = json.loads(report.stdout)
    if status:
        raise BertprepError(message.strip().rpartition("\n")[2].removeprefix("bertprep: error: "))
    return CommandCost(cpu_seconds, wall_seconds, peak_bytes)
