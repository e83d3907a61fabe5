"""`--phases`: one command for several runs, each from the weights of the one before.

The command line is split before it is checked, so that each run has options of its own with one value each.
"""

from __future__ import annotations

import math
from argparse import Namespace
from itertools import accumulate, cycle, pairwise
from typing import Any

from bertprep.errors import UsageError
from bertprep.terminal import counted

HELP = (
    "runs of these lengths, each from the weights of the one before, as 128:900,512:100, or 128:0.9,512:0.1 of --steps; "
    "--data, --batch-size, --accumulate, --lr, --warmup-steps and --pred may have a value for each (default: one run)"
)
PER_PHASE = ("batch_size", "accumulate", "lr", "warmup_steps", "pred")
"""Options with a separator, which the parser reads as a tuple; so is --data of phases."""


def split_phases(given: Namespace) -> list[Namespace]:
    """Return the options of each phase, or those of the only run."""
    phases: list[dict[str, Any]] = [{}]
    values = {name: getattr(given, name, None) for name in PER_PHASE}
    if getattr(given, "phases", None) is not None:
        phases = _lengths_and_steps(given)
        values["data"] = tuple([folder] for folder in given.data)
    for name, of_phases in values.items():
        if not isinstance(of_phases, tuple) or not of_phases:  # a default
            continue
        if len(of_phases) not in (1, len(phases)):
            found = f"has {len(of_phases)} values for {counted(len(phases), 'phase')}"
            raise UsageError(f"--{name.replace('_', '-')}: {found}; give one for all, or one for each")
        for phase, value in zip(phases, cycle(of_phases), strict=False):
            phase[name] = value
    return [Namespace(**{**vars(given), **phase}) for phase in phases]


def _lengths_and_steps(given: Namespace) -> list[dict[str, Any]]:
    """Return `seq` and `steps` of each phase of 128:0.9,512:0.1 (fractions of --steps) or 128:900,512:100."""
    option = f"--phases {given.phases}"
    if given.seq is not None:
        raise UsageError(f"--seq {given.seq} does not go with {option}, which gives the sequence length of each phase")
    try:
        seqs, lengths = zip(*(item.split(":") for item in given.phases.split(",")), strict=True)
        fractions = [float(length) for length in lengths]
        if "." not in given.phases:
            steps = [int(length) for length in lengths]
        elif given.steps is None or min(fractions) <= 0 or not math.isclose(sum(fractions), 1, abs_tol=1e-6):
            raise UsageError(f"{option}: fractions must be above 0 and add up to 1, and need --steps N")
        else:
            ends = [round(given.steps * passed) for passed in accumulate(fractions)]
            steps = [end - begin for begin, end in pairwise([0, *ends])]
        phases = [{"seq": int(seq), "steps": of_phase} for seq, of_phase in zip(seqs, steps, strict=True)]
    except ValueError:
        expected = "SEQ:FRACTION,... or SEQ:STEPS,..., such as 128:0.9,512:0.1 or 128:900,512:100"
        raise UsageError(f"{option}: expected {expected}") from None
    if given.steps not in (None, sum(steps)):
        raise UsageError(f"--steps {given.steps}: the phases have {sum(steps)} steps; leave --steps out")
    return phases
