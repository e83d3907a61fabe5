"""The epoch of a data set, which its copies in this process and its DataLoader's workers share.

A DataLoader reads copies of a data set, and a worker that outlives an epoch (`persistent_workers=True`) never gets a newer one.
So the number is in memory that a process shares with its children, however they are started, and only a pickle that is not for
a child carries it as a plain number.

A child that counts epochs itself, such as one of several training runs that a program starts with one data set, owns its number
from then on, so that the runs do not disturb each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing.context import get_spawning_popen
from multiprocessing.sharedctypes import RawArray
from typing import Any


class Epoch:
    """A number from 0 on, which `choose` and `restore` change in all copies at once."""

    def __init__(self, number: int = 0) -> None:
        """Start at an epoch that nobody has chosen."""
        self._shared = RawArray("q", [number, False])
        self._owner = os.getpid()

    @property
    def number(self) -> int:
        return int(self._shared[0])

    def choose(self, number: int) -> None:
        """Set the epoch for this process and its children, as the program asks that counts epochs."""
        if self._owner != os.getpid():
            self._shared, self._owner = RawArray("q", 2), os.getpid()
        self._shared[:] = [number, True]

    def restore(self, number: int) -> None:
        """Set the epoch to that of a checkpoint, unless the program has chosen a later one."""
        number_here, is_chosen = self._shared
        if not is_chosen or number > number_here:
            self._shared[0] = number

    def __copy__(self) -> Epoch:
        return self

    def __deepcopy__(self, _memo: object) -> Epoch:
        return self

    def __reduce__(self) -> tuple[Callable[..., Epoch], tuple[Any, ...]]:
        if get_spawning_popen() is None:
            return Epoch, (self.number,)
        return _shared_by, (self._shared, self._owner)  # can be pickled only for a child that is being started


def _shared_by(shared: Any, owner: int) -> Epoch:
    epoch = Epoch()
    epoch._shared, epoch._owner = shared, owner
    return epoch
