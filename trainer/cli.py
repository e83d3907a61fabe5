"""The command line of the trainer; `pretrain` is the default command.

`--phases` is split first, so that each run has options with one value each. No framework is loaded before options are checked.
"""

from __future__ import annotations

import math
import sys
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from itertools import accumulate, cycle, pairwise
from typing import Any

from bertprep import cli, recipes
from bertprep.errors import UsageError
from bertprep.options import add_options, read_options
from bertprep.parser import Parser
from bertprep.terminal import counted, exit_status
from trainer.data import ExampleSettings
from trainer.settings import AnyOptions, EngineSettings, GlueOptions, OptimizerSettings, PretrainOptions, SquadOptions
from trainer.start import start

PRETRAIN = "pretrain"
COMMANDS = {
    PRETRAIN: "pretrain a model on records or token shards; resumes where it stopped",
    "squad": "fine-tune a model on SQuAD's records; resumes where it stopped",
    "glue": "fine-tune a model on records of labelled texts; resumes where it stopped",
    "evaluate": "a model's loss or scores on records, and its predictions",
    "export": "a trained model -> what transformers or Google's scripts load",
    "bench": "sequences per second: skip steps, time steps, repeat",
}
_OPTIONS: dict[str, type[AnyOptions]] = {PRETRAIN: PretrainOptions, "squad": SquadOptions, "glue": GlueOptions}
"""Of the commands that train; others have a module with `add_arguments` and `run`, which is loaded when it is needed."""
_OF_RECORDS = "is decided by the records here; bertprep task and create take --seq, and make others"
FORMER = {
    "--train-batch-size": "is --batch-size here, the sequences of a device in a micro-batch",
    "--learning-rate": "is --lr here",
    "--num-train-steps": "is --steps here",
    "--num-train-epochs": "is --epochs here",
    "--num-warmup-steps": "is --warmup-steps here",
    "--save-checkpoints-steps": "is --save-every here",
    "--init-checkpoint": "is --init here",
    "--bert-config-file": "is --model here",
    "--input-file": "is --data here, a folder of records",
    "--output-dir": "is --out here",
    "--seq": _OF_RECORDS,
    "--max-seq-length": _OF_RECORDS,
}
"""Options of Google's run_pretraining.py and run_squad.py, and what takes their place."""
_OF_EPOCHS = ("eval_every", "eval_sequences", "keep_best")
"""Of fine-tuning each epoch ends with an evaluation on all of the dev set, and the best checkpoint is kept."""
_PHASES_HELP = (
    "runs of these lengths, each from the weights of the one before, as 128:900,512:100, or 128:0.9,512:0.1 of --steps; "
    "--data, --batch-size, --accumulate, --lr, --warmup-steps, --pred and --masked-lm-prob may have a value for each "
    "(default: one run)"
)
_PER_PHASE = ("batch_size", "accumulate", "lr", "warmup_steps", "pred", "masked_lm_prob")
"""Options with a separator, which the parser reads as a tuple; so is --data of phases."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0, 1 for data or machine, 2 for usage, 3 for stopped, 130 for Ctrl-C."""
    given = with_command(sys.argv[1:] if arguments is None else arguments)
    interrupted = "stopped" + "; the same command resumes from the newest checkpoint, if there is one" * (given[0] in _OPTIONS)
    return exit_status(lambda: _run(given), "trainer", interrupted=interrupted)


def with_command(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with their command, which defaults to pretrain.

    >>> with_command(["--steps", "10"])
    ['pretrain', '--steps', '10']
    """
    is_named = bool(arguments) and (arguments[0] in ("-h", "--help", "--version") or not arguments[0].startswith("-"))
    return list(arguments) if is_named else [PRETRAIN, *arguments]


def _run(arguments: Sequence[str]) -> int:
    command = arguments[0]
    namespace = make_parser(command).parse_args(recipes.expand(arguments))
    if command not in _OPTIONS:
        return int(import_module(f"trainer.{command}").run(namespace))
    given = split_phases(namespace)
    phases = [read_options(_OPTIONS[command], each) for each in given]
    # Each run has its own --seq and --pred, which are options of pretraining on records too.
    own = {"seq": ExampleSettings.seq, "pred": ExampleSettings.pred}
    examples = [read_options(ExampleSettings, each, **own) for each in given]
    return start(phases, read_options(EngineSettings, namespace), read_options(OptimizerSettings, namespace), examples)


def make_parser(command: str) -> Parser:
    """Return a parser that knows all commands but only the options of one."""
    description = "Train BERT on record files of any format. Options without a command are those of pretrain."
    return cli.make_parser("python -m trainer", description, COMMANDS, command, partial(_add_options, command), FORMER)


def _add_options(command: str, parser: Parser) -> None:
    if command not in _OPTIONS:
        import_module(f"trainer.{command}").add_arguments(parser)
        return
    is_pretraining = command == PRETRAIN
    run = parser.add_argument_group("run")
    if is_pretraining:
        run.add_argument(recipes.OPTION, metavar=recipes.METAVAR, help=recipes.HELP)
        run.add_argument("--phases", metavar="SEQ:STEPS,...", help=_PHASES_HELP)
    add_options(run, _OPTIONS[command], without=() if is_pretraining else _OF_EPOCHS)
    add_options(parser.add_argument_group("optimizer"), OptimizerSettings)
    add_options(parser.add_argument_group("devices"), EngineSettings)
    if is_pretraining:
        group = parser.add_argument_group("examples of token shards", "Settings of create, for token shards alone.")
        add_options(group, ExampleSettings, without=("seq", "pred", "cased"))  # token shards are cased or not themselves


def split_phases(given: Namespace) -> list[Namespace]:
    """Return the options of each phase, or those of the only run."""
    phases: list[dict[str, Any]] = [{}]
    values = {name: getattr(given, name, None) for name in _PER_PHASE}
    if getattr(given, "phases", None) is not None:
        phases = _lengths_and_steps(given)
        values["data"] = tuple([folder] for folder in given.data)
    for name, of_phases in values.items():
        if not isinstance(of_phases, tuple) or not of_phases:  # a default
            continue
        if len(of_phases) not in (1, len(phases)):
            found = f"has {len(of_phases)} values for {counted(len(phases), 'phase')}"
            mixed = "; a run without --phases mixes folders" * (name == "data")
            raise UsageError(f"--{name.replace('_', '-')}: {found}; give one for all, or one for each{mixed}")
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
        elif min(fractions) <= 0 or not math.isclose(sum(fractions), 1, abs_tol=1e-6):
            raise UsageError(f"{option}: fractions must be above 0 and add up to 1")
        elif given.steps is None:
            raise UsageError(f"{option}: fractions of the steps need --steps N")
        else:
            ends = [round(given.steps * passed) for passed in accumulate(fractions)]
            steps = [end - begin for begin, end in pairwise([0, *ends])]
            if min(steps) < 1:
                raise UsageError(f"{option}: a phase has less than one of --steps {given.steps}; give more steps")
        phases = [{"seq": int(seq), "steps": of_phase} for seq, of_phase in zip(seqs, steps, strict=True)]
    except ValueError:
        expected = "SEQ:FRACTION,... or SEQ:STEPS,..., such as 128:0.9,512:0.1 or 128:900,512:100"
        raise UsageError(f"{option}: expected {expected}") from None
    if given.steps not in (None, sum(steps)):
        raise UsageError(f"--steps {given.steps}: the phases have {sum(steps)} steps; leave --steps out")
    return phases
