"""The phases of a run, from what is asked for to what the loop is given.

    --phases 128:0.9,512:0.1         length : fraction of --steps
    --phases 128:7038,512:782        length : steps
    --phases FILE.json               [{"data": ["DIR"], "seq": 128, "share": 0.9, "batch_size": 64, "lr": 0.0006}, ...]

A run without `--phases` is one phase. Options that hold for a phase may have one value for all, or one for each; what a phase
file does not say is taken from them. Numbers of steps come last: they follow from the data and the devices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from bertprep.errors import BertprepError, UsageError
from bertprep.files.places import place
from bertprep.options import check_options, command_line, option
from bertprep.records.live import DEFAULT_GROUP
from bertprep.untrusted import COUNT, TEXTS, Rule, check_values, parse_json, read_bounded
from trainer.data import Data
from trainer.schedule import Schedule
from trainer.settings import Phase

Entry = Mapping[str, Any]
"""What is asked of one phase: of `data`, `seq`, `steps` or `fraction`, and `_PER_PHASE`, those that are given."""
SCHEDULES = ("google", "nvidia")
SHUFFLES = RECORDS, SHARDS = ("records", "shards")
_DEFAULTS = {"adam": ("google", 1e-4), "lamb": ("nvidia", 2e-3)}  # schedule and learning rate
_PER_PHASE = ("batch_size", "accumulation", "learning_rate", "warmup_steps", "pred")
_WITH_A_POINT = Rule("a number with a point", lambda value: type(value) is float)
_RULES = {  # what a phase file may say of a phase
    "data": Rule("a list of folders", lambda value: bool(value) and TEXTS.holds(value)),
    "seq": COUNT,
    "steps": COUNT,
    "share": _WITH_A_POINT,
    "batch_size": COUNT,
    "accumulate": COUNT,
    "lr": _WITH_A_POINT,
    "warmup_steps": COUNT,
    "pred": COUNT,
}
_OUR_NAMES = {"share": "fraction", "accumulate": "accumulation", "lr": "learning_rate"}


@dataclass(frozen=True, kw_only=True)
class PhaseOptions:
    """The options of the command line that phases are made of."""

    data: tuple[Path, ...] = option(
        (), "folders of records, with training/ and test/ below; several are mixed (default: the newest of the workspace)",
        metavar="DIR", urls=True,
    )  # fmt: skip
    seq: int | None = option(None, "length of a sequence in tokens (default: 128, or that of --data)", least=1)
    phases: str | None = option(
        None, "phases with data of their own: SEQ:FRACTION of the steps, as 128:0.9,512:0.1, or SEQ:STEPS, as 128:900,512:100, "
        'or a .json file: a list of {"data", "seq", "pred", "steps" or "share", "batch_size", "accumulate", "lr", '
        '"warmup_steps"} (default: one phase)',
        metavar="SEQ:FRACTION,...|FILE",
    )  # fmt: skip
    steps: int | None = option(
        None, "updates of the run (default: one pass over the training records, of the first phase where there are several)"
    )
    batch_size: tuple[int, ...] = option(
        (), "sequences of a device in a micro-batch (default: 32)", metavar="N[,N...]", separator=","
    )
    accumulation: tuple[int, ...] = option(
        (), "micro-batches in a step (default: 1)", name="--accumulate", also=("--grad-acc-steps",), metavar="N[,N...]",
        separator=",",
    )  # fmt: skip
    learning_rate: tuple[float, ...] = option(
        (), "peak learning rate, for the global batch whatever its size (default: 1e-4 with adam, 2e-3 with lamb)", name="--lr",
        metavar="N[,N...]", separator=",",
    )  # fmt: skip
    warmup_steps: tuple[int, ...] = option(
        (), "updates in which the learning rate rises (default: a tenth of the steps)", metavar="N[,N...]", separator=","
    )
    pred: tuple[int, ...] = option(
        (), "token shards: maximum number of masked tokens in a sequence (default: 20)", metavar="N[,N...]", separator=","
    )
    shuffle: str | None = option(
        None, "what is permuted together in an epoch: all records, or those of some shards at a time, taken in permuted order "
        "(default: records; of token shards shards)", choices=SHUFFLES,
    )  # fmt: skip
    shuffle_shards: int | None = option(
        None,
        f"how many shards at a time with --shuffle shards; their examples are in memory (default: {DEFAULT_GROUP})",
        least=1,
    )
    schedule: str | None = option(
        None, "how the learning rate decays (default: google with adam, nvidia with lamb)", choices=SCHEDULES
    )

    def __post_init__(self) -> None:
        check_options(self)
        if self.shuffle == RECORDS and self.shuffle_shards is not None:
            raise UsageError(f"--shuffle-shards {self.shuffle_shards}: is for --shuffle {SHARDS}, not {RECORDS}")

    def shuffles_shards(self, data: Data) -> bool:
        """Whether the records of some shards are permuted together, and not all."""
        return data.live is not None or self.shuffle == SHARDS

    def entries(self, number: int) -> list[dict[str, Any]]:
        """What the options alone ask of each of `number` phases."""
        common = {name: value for name in ("data", "seq") if (value := getattr(self, name))}
        entries: list[dict[str, Any]] = [dict(common) for _ in range(number)]
        for name in _PER_PHASE:
            given: tuple[Any, ...] = getattr(self, name)
            if len(given) not in (0, 1, number):
                alone: dict[str, Any] = {name: given}
                asked = " ".join(command_line(PhaseOptions(**alone)))
                phases = "1 phase" if number == 1 else f"{number} phases"
                raise UsageError(f"{asked}: has {len(given)} values for {phases}; give one for all, or one for each")
            for entry, value in zip(entries, given * number if len(given) == 1 else given, strict=False):
                entry[name] = value
        return entries


def read_phases(options: PhaseOptions) -> list[Entry]:
    """What is asked of each phase, by `--phases` and the other options; raises where they do not go together."""
    text = options.phases
    if text is None:
        return list(options.entries(1))
    if options.data:
        raise UsageError("--data does not go with --phases; a phase file names the data of each phase")
    if text.endswith(".json") or Path(text).is_file():
        entries, source = _read_file(place(text)), f"{text}: "
    else:
        if options.seq is not None:
            raise UsageError(f"--seq {options.seq} does not go with --phases {text}, which has the length of each phase")
        entries, source = [_read_item(item, text) for item in text.split(",")], f"--phases {text}: "
    _check_lengths(entries, source)
    return [{**common, **entry} for common, entry in zip(options.entries(len(entries)), entries, strict=True)]


def _read_item(item: str, text: str) -> Entry:
    seq, _, length = item.strip().partition(":")
    try:
        return {"seq": int(seq), "fraction": float(length)} if "." in length else {"seq": int(seq), "steps": int(length)}
    except ValueError:
        raise UsageError(
            f"--phases {text}: {item!r} is not a phase; expected SEQ:FRACTION or SEQ:STEPS, such as 128:0.9,512:0.1, "
            "or the name of a .json file"
        ) from None


def _read_file(path: Path) -> list[Entry]:
    try:
        content = parse_json(read_bounded(path))
    except OSError as error:
        raise UsageError(f"--phases {path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise BertprepError(f"{path}: is not JSON ({error}); expected a list of phases") from error
    if not (isinstance(content, list) and content and all(isinstance(entry, dict) for entry in content)):
        raise BertprepError(f'{path}: expected a list of phases, such as [{{"seq": 128, "share": 0.9}}, ...]')
    for number, entry in enumerate(content, 1):
        if unknown := [key for key in entry if key not in _RULES]:
            raise BertprepError(f"{path}: phase {number}: {unknown[0]!r} is unknown; a phase may have {', '.join(_RULES)}")
        try:
            check_values(entry, _RULES, place=f"phase {number}: ")
        except ValueError as error:
            raise BertprepError(f"{path}: {error}") from error
    named = [{_OUR_NAMES.get(key, key): value for key, value in entry.items()} for entry in content]
    return [{**entry, "data": tuple(map(place, entry["data"]))} if "data" in entry else entry for entry in named]


def _check_lengths(entries: Sequence[Entry], source: str) -> None:
    """Raise where phases have not all steps, or all fractions that add up to 1; one phase needs neither."""
    fractions = [entry["fraction"] for entry in entries if "fraction" in entry]
    steps = [entry["steps"] for entry in entries if "steps" in entry]
    if len(entries) == 1 and not fractions:
        return
    if fractions and steps:
        raise UsageError(
            f"{source}fractions ({fractions[0]}) and steps ({steps[0]}) are mixed; give fractions alone, or steps alone"
        )
    if len(fractions or steps) < len(entries):
        raise UsageError(f"{source}a phase has neither a fraction nor steps; each of several needs one")
    if fractions and not (min(fractions) > 0 and math.isclose(sum(fractions), 1, abs_tol=1e-6)):
        raise UsageError(
            f"{source}fractions must be above 0 and add up to 1, these give {sum(fractions):g}; steps have no point"
        )


def make_phases(
    entries: Sequence[Entry], data: Sequence[Data], options: PhaseOptions, *, devices: int, optimizer: str
) -> tuple[Phase, ...]:
    """The phases of a run on `devices` devices; without `--steps` the first phase passes over its training records once."""
    if options.shuffle_shards is not None and not any(map(options.shuffles_shards, data)):
        raise UsageError(
            f"--shuffle-shards {options.shuffle_shards}: is for --shuffle {SHARDS} and for token shards, {data[0].folders[0]} "
            f"holds records, which are all permuted together; leave it out, or give --shuffle {SHARDS}"
        )
    default_schedule, learning_rate = _DEFAULTS[optimizer]
    schedule = options.schedule or default_schedule
    phases = []
    for entry, of_phase, steps in zip(entries, data, _steps_of(entries, data, options.steps, devices), strict=True):
        peak, warmup_steps = entry.get("learning_rate", learning_rate), entry.get("warmup_steps", steps // 10)
        if warmup_steps > steps:
            raise UsageError(
                f"--warmup-steps {warmup_steps}: are more than the {steps} steps, so --lr {peak:g} would not be reached"
            )
        cut = {name: entry[name] for name in ("batch_size", "accumulation") if name in entry}
        numbers = {"peak": peak, "steps": steps, "warmup_steps": warmup_steps}
        made = Schedule(**numbers) if schedule == "google" else Schedule.nvidia(optimizer, **numbers)
        if options.shuffles_shards(of_phase):
            cut["shuffle_shards"] = options.shuffle_shards or DEFAULT_GROUP
        test = of_phase.has_test
        phases.append(Phase(data=of_phase.folders, seq=of_phase.seq, schedule=made, has_test=test, live=of_phase.live, **cut))
    return tuple(phases)


def _steps_of(entries: Sequence[Entry], data: Sequence[Data], asked: int | None, devices: int) -> list[int]:
    """The steps of each phase: fractions are rounded so that they add up to the steps of the run."""
    given = [entry["steps"] for entry in entries if "steps" in entry]
    if given:
        if asked not in (None, sum(given)):
            raise UsageError(f"--steps {asked}: the phases have {sum(given)} steps; leave --steps out")
        return given
    total = asked
    if total is None:
        first = entries[0]
        global_batch = devices * first.get("batch_size", Phase.batch_size) * first.get("accumulation", Phase.accumulation)
        total = max(1, data[0].records // max(1, global_batch))
    if len(entries) == 1:
        return [total]
    ends, passed = [0], 0.0
    for entry in entries:
        passed += entry["fraction"]
        ends.append(round(total * passed))
    steps = [end - start for start, end in pairwise(ends)]
    if 0 in steps:
        number = steps.index(0)
        raise UsageError(
            f"--steps {total}: phase {number + 1}, a fraction of {entries[number]['fraction']}, has no step; give more steps"
        )
    return steps


def check_learning(phases: Sequence[Phase], data: Sequence[Data], *, devices: int) -> None:
    """Raise `UsageError` where the learning rate of a phase never leaves 0, that of its last and only step."""
    for number, (phase, of_phase) in enumerate(zip(phases, data, strict=True), 1):
        if phase.schedule.learning_rate(1) > 0:
            continue
        which = "the run" if len(phases) == 1 else f"phase {number}"
        size = phase.batch_size * devices * phase.accumulation
        raise UsageError(
            f"{phase.data[0]}: {which} has one step, of {size:,} sequences where there are {of_phase.records:,} records; the "
            "last step has a learning rate of 0, so nothing would be learned; give more --steps, or a smaller --batch-size"
        )
