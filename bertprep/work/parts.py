"""Divide the files of a command among many processes or machines with --part I/N.

Part I of N makes every N-th file, beginning with file I. The content of a file does not depend on the part, so parts may run in
any order, at the same time or twice, and N may change between runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeVar

from bertprep.errors import UsageError
from bertprep.options import MAX_NUMBER

Item = TypeVar("Item")
SLURM, KUBERNETES = "slurm", "kubernetes"
_NAMED = 4  # more parts are counted
_FORMS = f"expected I/N, such as 0/400 for the first of 400 parts, or {SLURM}, {KUBERNETES}/N or finish"


@dataclass(frozen=True)
class Part:
    """Part `index` of `count`, counted from 0.

    >>> Part(1, 3).assign("abcdefgh")
    'beh'
    """

    index: int
    count: int

    def assign(self, items: Sequence[Item]) -> Sequence[Item]:
        return items[self.index :: self.count]

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def name_parts(indexes: Sequence[int], count: int) -> str:
    """Return the names of some of `count` parts; of many only their number and the first.

    >>> name_parts([1], 2), name_parts([0, 2], 3), name_parts([0, 2, 3], 4)
    ('part 1/2', 'parts 0/3 and 2/3', 'parts 0/4, 2/4 and 3/4')
    >>> name_parts(range(1, 16), 16), name_parts(range(1, 16), 400)
    ('the other 15 parts', '15 other parts, such as 1/400')
    """
    names = [f"{index}/{count}" for index in indexes]
    if len(names) == 1:
        return f"part {names[0]}"
    if len(names) <= _NAMED:
        return f"parts {', '.join(names[:-1])} and {names[-1]}"
    return f"the other {len(names):,} parts" if len(names) == count - 1 else f"{len(names):,} other parts, such as {names[0]}"


class Finish(Enum):
    """The value of `--part finish`: make no files, but write the manifest of those that the parts have made."""

    FINISH = "finish"

    def assign(self, items: Sequence[Item]) -> Sequence[Item]:
        return items[:0]


FINISH: Literal[Finish.FINISH] = Finish.FINISH


def read_part(text: str | Part | Finish | None, *, environment: Mapping[str, str] = os.environ) -> Part | Finish | None:
    """Return the part that "3/400", "slurm" or "kubernetes/400" names, or `FINISH` for "finish".

    >>> read_part("3/400")
    Part(index=3, count=400)
    >>> read_part("slurm", environment={"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_COUNT": "4",
    ...     "SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_MAX": "10"})
    Part(index=2, count=4)
    """
    if text is None or isinstance(text, Part | Finish):
        return text
    if text == FINISH.value:
        return FINISH
    if text == SLURM:
        return _of_slurm(environment)
    index, slash, count = text.partition("/")
    if slash and index == KUBERNETES:
        index = str(_number(environment, "JOB_COMPLETION_INDEX", f"--part {text}: is for an Indexed Job of Kubernetes"))
    if not (re.fullmatch("[0-9]{1,13}", index) and re.fullmatch("[0-9]{1,13}", count)):
        raise UsageError(f"--part {text}: is not a part; {_FORMS}")
    return _checked(f"--part {text}", int(index), int(count))


def _checked(name: str, index: int, count: int) -> Part:
    if not 1 <= count <= MAX_NUMBER:
        raise UsageError(f"{name}: has {count:,} parts, expected 1 to {MAX_NUMBER:,}")
    if index >= count:
        numbers = "0/1" if count == 1 else f"0/{count} to {count - 1}/{count}"
        raise UsageError(f"{name}: there is no part {index} of {count}; parts are numbered from 0, {numbers}")
    return Part(index, count)


def _of_slurm(environment: Mapping[str, str]) -> Part:
    what = f"--part {SLURM}: is for a job array (sbatch --array=0-399)"
    one = _number(environment, "SLURM_ARRAY_TASK_ID", what)
    first = _number(environment, "SLURM_ARRAY_TASK_MIN", what)
    last = _number(environment, "SLURM_ARRAY_TASK_MAX", what)
    count = _number(environment, "SLURM_ARRAY_TASK_COUNT", what)
    step, rest = divmod(last - first, count - 1) if count > 1 else (1, last - first)
    if rest or step < 1 or (one - first) % step:
        raise UsageError(
            f"--part {SLURM}: the {count} ids of the array, {first} to {last}, are not evenly spaced; submit one such as 0-399 "
            "or 1-399:2; if files exist already, a smaller array makes the missing ones"
        )
    return _checked(f"--part {SLURM} (SLURM_ARRAY_TASK_ID={one})", (one - first) // step, count)


def _number(environment: Mapping[str, str], name: str, what: str) -> int:
    value = environment.get(name)
    if value is None:
        raise UsageError(f"{what}, but {name} is not set; give --part I/N")
    if not re.fullmatch("[0-9]{1,13}", value):
        raise UsageError(f"{what}, but {name}={value} is not a number; give --part I/N")
    return int(value)
