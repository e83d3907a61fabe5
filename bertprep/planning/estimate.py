"""From what pieces of a text became and took to what all of it will become and take. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapreplace

from bertprep.config import RecordFormat
from bertprep.planning.measure import CommandCost, PieceCost
from bertprep.planning.pieces import Piece
from bertprep.records.make import TextShard
from bertprep.workspace.layout import TEST, TRAINING


@dataclass(frozen=True)
class Made:
    """Records by split and bytes by format, of a whole text."""

    records: dict[str, int]
    size_bytes: dict[RecordFormat, int]


def scale(shards: Sequence[TextShard], sizes: Sequence[int], costs: Sequence[PieceCost]) -> Made:
    """What all shards give: as measured where a shard was measured whole, else by its bytes of text."""
    whole = {cost.piece.shard.path: cost for cost in costs if cost.piece.is_whole}
    measured_bytes = sum(cost.piece.size_bytes for cost in costs)
    records_a_byte = sum(cost.records for cost in costs) / measured_bytes
    bytes_a_byte = {name: sum(cost.file_bytes[name] for cost in costs) / measured_bytes for name in costs[0].file_bytes}
    records = {TRAINING: 0.0, TEST: 0.0}
    size_bytes = dict.fromkeys(bytes_a_byte, 0.0)
    for shard, size in zip(shards, sizes, strict=True):
        split = TEST if next(iter(shard.names.values())).startswith(f"{TEST}/") else TRAINING
        cost = whole.get(shard.path)
        records[split] += cost.records if cost else size * records_a_byte
        for name, rate in bytes_a_byte.items():
            size_bytes[name] += cost.file_bytes[name] if cost else size * rate
    return Made({name: round(n) for name, n in records.items()}, {name: round(n) for name, n in size_bytes.items()})


def estimate_seconds(sizes: Sequence[int], costs: Sequence[PieceCost], start: CommandCost, workers: int) -> tuple[float, float]:
    """(CPU, wall) seconds of making shards of these sizes: starting, each worker's first steps, and the text, warm.

    The first shard of a process costs more, since memory and the table of words are new; the others go by their bytes.
    """
    warm = [cost for cost in costs if not cost.is_first] or list(costs)
    warm_bytes = sum(cost.piece.size_bytes for cost in warm)
    cpu_a_byte = sum(cost.cpu_seconds for cost in warm) / warm_bytes
    wall_a_byte = sum(cost.wall_seconds for cost in warm) / warm_bytes
    firsts = [cost for cost in costs if cost.is_first]
    extra_cpu = sum(cost.cpu_seconds - cpu_a_byte * cost.piece.size_bytes for cost in firsts) / len(firsts)
    extra_wall = sum(cost.wall_seconds - wall_a_byte * cost.piece.size_bytes for cost in firsts) / len(firsts)
    cpu_seconds = start.cpu_seconds + workers * max(0.0, extra_cpu) + cpu_a_byte * sum(sizes)
    busy_until = [max(0.0, extra_wall)] * workers
    for size in sizes:  # as the pool hands them out
        heapreplace(busy_until, busy_until[0] + wall_a_byte * size)
    return cpu_seconds, start.wall_seconds + max(busy_until)


def estimate_peak_bytes(sizes: Sequence[int], largest: Piece, alone: CommandCost, start: CommandCost) -> int:
    """The most memory that a worker needs: what it begins with, and what grows with its largest shard.

    An upper bound with several workers, who share the parent's libraries.
    """
    growth_bytes = max(0, alone.peak_bytes - start.peak_bytes)
    return round(start.peak_bytes + growth_bytes * max(sizes) / largest.size_bytes)


def padding_share(costs: Sequence[PieceCost], seq: int) -> float:
    """The share of all places that hold padding: of each piece as in the records looked at, weighted by its records."""
    tokens = sum(cost.records * cost.tokens_looked_at / cost.records_looked_at for cost in costs if cost.records_looked_at)
    return 1 - tokens / (seq * sum(cost.records for cost in costs if cost.records_looked_at))
