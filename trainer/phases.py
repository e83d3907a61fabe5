"""The phases of a run, from what is asked for to what the loop is given.

    --phases 128:0.9,512:0.1         length : share of --steps
    --phases 128:7038,512:782        length : steps
    --phases FILE.json               [{"data": ["DIR"], "seq": 128, "share": 0.9, "batch_size": 64, "lr": 0.0006}, ...]

A run without `--phases` is one phase. Options that hold for a phase may have one value for all, or one for each; what a phase
file does not say is taken from them. Numbers of steps are known last: they follow from the data and the devices.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from bertprep.errors import BertprepError, UsageError
from bertprep.untrusted import parse_json, read_bounded
from trainer.data import Data
from trainer.schedule import Schedule
from trainer.settings import Phase

DEFAULT_RATES = {"adam": 1e-4, "lamb": 2e-3}
SCHEDULES = ("google", "nvidia")
DEFAULT_SCHEDULES = {"adam": "google", "lamb": "nvidia"}


@dataclass(frozen=True, kw_only=True)
class PhaseRequest:
    """What is asked of a phase; None is for what follows from the data, the steps or the optimizer."""

    data: tuple[Path, ...] = ()  # or the newest of the workspace
    seq: int | None = None
    steps: int | None = None
    share: float | None = None  # of the steps of the run
    batch_size: int = 32
    accumulate: int = 1
    lr: float | None = None
    warmup_steps: int | None = None


@dataclass(frozen=True, kw_only=True)
class PhaseOptions:
    """Values of the options that hold for phases, each for all of them or with one for each; none is the default."""

    data: tuple[Path, ...] = ()
    seq: int | None = None
    batch_size: tuple[int, ...] = ()
    accumulate: tuple[int, ...] = ()
    lr: tuple[float, ...] = ()
    warmup_steps: tuple[int, ...] = ()

    def of_phases(self, number: int) -> list[PhaseRequest]:
        """What the options alone ask of each of so many phases."""
        values: list[dict[str, Any]] = [{"data": self.data, "seq": self.seq} for _ in range(number)]
        for name in ("batch_size", "accumulate", "lr", "warmup_steps"):
            given: tuple[Any, ...] = getattr(self, name)
            if len(given) not in (0, 1, number):
                phases = "1 phase" if number == 1 else f"{number} phases"
                raise UsageError(
                    f"--{name.replace('_', '-')} {','.join(map(str, given))}: has {len(given)} values for {phases}; "
                    "give one for all, or one for each"
                )
            for place, value in enumerate(given * number if len(given) == 1 else given):
                values[place][name] = value
        return [PhaseRequest(**each) for each in values]


def read_phases(text: str | None, options: PhaseOptions) -> list[PhaseRequest]:
    """What `--phases` and the options that hold for phases ask for; raises where they do not go together."""
    if text is None:
        return options.of_phases(1)
    if options.data:
        raise UsageError("--data does not go with --phases; a phase file names the data of each phase")
    if text.endswith(".json") or Path(text).is_file():
        entries, source = _read_file(Path(text)), f"{text}: "
    else:
        if options.seq is not None:
            raise UsageError(f"--seq {options.seq} does not go with --phases {text}, which has the length of each phase")
        entries, source = [_read_item(item, text) for item in text.split(",")], f"--phases {text}: "
    requests = [replace(request, **entry) for request, entry in zip(options.of_phases(len(entries)), entries, strict=True)]
    _check_lengths(requests, source)
    return requests


def _read_item(item: str, text: str) -> dict[str, Any]:
    seq, _, length = item.strip().partition(":")
    try:
        return {"seq": int(seq), "share": float(length)} if "." in length else {"seq": int(seq), "steps": int(length)}
    except ValueError:
        raise UsageError(
            f"--phases {text}: {item!r} is no phase; expected SEQ:SHARE or SEQ:STEPS, such as 128:0.9,512:0.1, "
            "or the name of a .json file"
        ) from None


def _read_file(path: Path) -> list[dict[str, Any]]:
    try:
        content = parse_json(read_bounded(path))
    except OSError as error:
        raise UsageError(f"--phases {path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise BertprepError(f"{path}: is not JSON ({error}); expected a list of phases") from error
    if not (isinstance(content, list) and content and all(isinstance(entry, dict) for entry in content)):
        raise BertprepError(f'{path}: expected a list of phases, such as [{{"seq": 128, "share": 0.9}}, ...]')
    return [_read_entry(entry, f"{path}: phase {number}") for number, entry in enumerate(content, 1)]


_KINDS = {  # what a phase file may say of a phase
    "data": (list, "a list of folders"),
    "seq": (int, "a whole number"),
    "steps": (int, "a whole number"),
    "share": (float, "a number with a point"),
    "batch_size": (int, "a whole number"),
    "accumulate": (int, "a whole number"),
    "lr": (float, "a number with a point"),
    "warmup_steps": (int, "a whole number"),
}


def _read_entry(entry: dict[str, Any], place: str) -> dict[str, Any]:
    for name, value in entry.items():
        if name not in _KINDS:
            raise BertprepError(f"{place}: {name!r} is unknown; a phase may have {', '.join(_KINDS)}")
        kind, expected = _KINDS[name]
        is_right = type(value) is kind
        if name == "data":
            is_right = is_right and bool(value) and all(isinstance(folder, str) for folder in value)
        if not is_right:
            raise BertprepError(f"{place}: {name} is {json.dumps(value)}, expected {expected}")
    return {**entry, "data": tuple(map(Path, entry["data"]))} if "data" in entry else entry


def _check_lengths(requests: Sequence[PhaseRequest], source: str) -> None:
    """Raise where phases are not all of steps or all of shares, which add up to 1; one phase needs neither."""
    shares = [request.share for request in requests if request.share is not None]
    steps = [request.steps for request in requests if request.steps is not None]
    if len(requests) == 1 and not shares:
        return
    if shares and steps:
        raise UsageError(f"{source}shares ({shares[0]}) and steps ({steps[0]}) are mixed; give shares alone, or steps alone")
    if len(shares or steps) < len(requests):
        raise UsageError(f"{source}a phase has neither a share nor steps; each of several needs one")
    if shares and not (min(shares) > 0 and math.isclose(sum(shares), 1, abs_tol=1e-6)):
        raise UsageError(f"{source}shares must be above 0 and add up to 1, these give {sum(shares):g}; steps have no point")


def make_phases(
    requests: Sequence[PhaseRequest],
    data: Sequence[Data],
    *,
    steps: int | None,
    devices: int,
    optimizer: str,
    schedule: str | None,
) -> tuple[Phase, ...]:
    """The phases of a run on so many devices; `steps` is None for one pass over the training records (of the first phase)."""
    schedule = schedule or DEFAULT_SCHEDULES.get(optimizer, SCHEDULES[0])
    if schedule not in SCHEDULES:
        raise UsageError(f"--schedule {schedule}: unknown; choose one of {', '.join(SCHEDULES)}")
    global_batch = requests[0].batch_size * devices * requests[0].accumulate
    one_pass = max(1, data[0].records // max(1, global_batch))
    return tuple(
        Phase(
            data=of_phase.folders,
            seq=of_phase.seq,
            batch_size=request.batch_size,
            accumulation=request.accumulate,
            schedule=_schedule_of(request, phase_steps, optimizer, schedule),
            has_test=of_phase.has_test,
        )
        for request, of_phase, phase_steps in zip(requests, data, _steps_of(requests, steps, one_pass), strict=True)
    )


def check_learning(phases: Sequence[Phase], data: Sequence[Data], *, devices: int) -> None:
    """Raise `UsageError` where the learning rate of a phase never leaves 0, that of its last and only step."""
    for number, (phase, of_phase) in enumerate(zip(phases, data, strict=True), 1):
        if phase.schedule.learning_rate(1) > 0:
            continue
        which = "the run" if len(phases) == 1 else f"phase {number}"
        size = phase.batch_size * devices * phase.accumulation
        raise UsageError(
            f"{phase.data[0]}: {which} has one step, of {size:,} sequences where there are {of_phase.records:,} records; the "
            "last step has a learning rate of 0, so nothing would be learnt; give more --steps, or a smaller --batch-size"
        )


def _schedule_of(request: PhaseRequest, steps: int, optimizer: str, schedule: str) -> Schedule:
    peak = DEFAULT_RATES.get(optimizer, 1e-4) if request.lr is None else request.lr
    warmup_steps = steps // 10 if request.warmup_steps is None else request.warmup_steps
    if warmup_steps > steps:
        raise UsageError(
            f"--warmup-steps {warmup_steps}: are more than the {steps} steps, so --lr {peak:g} would not be reached"
        )
    if schedule == "google":
        return Schedule.google(peak=peak, steps=steps, warmup_steps=warmup_steps)
    return Schedule.nvidia(optimizer, peak=peak, steps=steps, warmup_steps=warmup_steps)


def _steps_of(requests: Sequence[PhaseRequest], asked: int | None, one_pass: int) -> list[int]:
    """The steps of each phase: shares are rounded so that they add up to the steps of the run."""
    given = [request.steps for request in requests if request.steps is not None]
    if given:
        if asked not in (None, sum(given)):
            raise UsageError(f"--steps {asked}: the phases have {sum(given)} steps; leave --steps out")
        return given
    total = one_pass if asked is None else asked
    if len(requests) == 1:
        return [total]
    ends, passed = [0], 0.0
    for request in requests:
        passed += request.share or 0
        ends.append(round(total * passed))
    steps = [end - start for start, end in pairwise(ends)]
    if 0 in steps:
        number = steps.index(0)
        raise UsageError(
            f"--steps {total}: phase {number + 1}, a share of {requests[number].share}, has no step; give more steps"
        )
    return steps
