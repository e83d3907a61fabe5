"""The command line of the trainer. `pretrain` is the default: `python -m trainer --format ofrecord` pretrains.

Nothing imported here, or by a command before it has checked its options, loads a framework, which takes seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module

from bertprep import cli
from bertprep.options import Parser, add_options, read_options
from bertprep.terminal import exit_status
from trainer import phases
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
}
"""Options of Google's run_pretraining.py and run_squad.py, and what takes their place."""
_OF_EPOCHS = ("eval_every", "eval_sequences", "keep_best")
"""Of fine-tuning each epoch ends with an evaluation on all of the dev set, and the best checkpoint is kept."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0, 1 for data or machine, 2 for usage, 3 for stopped, 130 for Ctrl-C."""
    given = with_command(sys.argv[1:] if arguments is None else arguments)
    interrupted = "stopped" + "; the same command resumes from the newest checkpoint" * (given[0] in _OPTIONS)
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
    namespace = make_parser(command).parse_args(arguments)
    if command not in _OPTIONS:
        return int(import_module(f"trainer.{command}").run(namespace))
    runs = [read_options(_OPTIONS[command], each) for each in phases.split_phases(namespace)]
    # Each run has its own --seq and --pred, which are options of pretraining on records too.
    examples = read_options(ExampleSettings, namespace, seq=ExampleSettings.seq, pred=ExampleSettings.pred)
    return start(runs, read_options(EngineSettings, namespace), read_options(OptimizerSettings, namespace), examples)


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
        run.add_argument("--phases", metavar="SEQ:STEPS,...", help=phases.HELP)
    add_options(run, _OPTIONS[command], without=() if is_pretraining else _OF_EPOCHS)
    add_options(parser.add_argument_group("optimizer"), OptimizerSettings)
    add_options(parser.add_argument_group("devices"), EngineSettings)
    if is_pretraining:
        group = parser.add_argument_group("examples of token shards", "Settings of create, for token shards alone.")
        add_options(group, ExampleSettings, without=("seq", "pred", "cased"))  # token shards are cased or not themselves
