"""This process's place among those of a run, as `python -m oneflow.distributed.launch` tells it by the environment.

OneFlow reads the same variables when it is loaded, and then waits for all processes: what is wrong with them must be found
before that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bertprep.errors import UsageError

_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Process:
    """One of `world_size` processes; on its host it is number `local_rank`, which is its GPU's number too."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0


def read_process(environment: Mapping[str, str]) -> Process:
    """What the launcher says; a process that was not started by it is alone.

    >>> read_process({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"})
    Process(rank=3, world_size=4, local_rank=1)
    """
    found = [name for name in _NAMES if environment.get(name)]
    if not found or environment.get("RANK") == "-1":  # which OneFlow itself sets where no launcher started the process
        return Process()
    if missing := [name for name in _NAMES if name not in found]:
        raise UsageError(
            f"{found[0]} is set in the environment, {missing[0]} is not; start processes with "
            "python -m oneflow.distributed.launch, which sets both"
        )
    try:
        process = Process(*(int(environment[name]) for name in _NAMES[:3]))
    except ValueError as error:
        raise UsageError(f"{', '.join(_NAMES[:3])}: must be numbers in the environment ({error})") from error
    if not 0 <= process.local_rank <= process.rank < process.world_size:
        raise UsageError(f"RANK {process.rank}, LOCAL_RANK {process.local_rank}: there are {process.world_size} processes")
    return process
