"""The command line of the trainer: maps each command to the module, or an object in one, that implements it.

`pretrain` is the default, so `python -m trainer --format ofrecord` is `python -m trainer pretrain ...`. Nothing imported here,
or by a command before it has checked its options, loads a framework, which takes seconds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from bertprep import __version__
from bertprep.files.reservations import limit_cache
from bertprep.options import Parser
from bertprep.terminal import exit_status

PRETRAIN = "pretrain"
RESUMING = (PRETRAIN, "squad", "glue")
COMMANDS = {  # each module has `add_arguments`, and `run`, which returns the exit status
    PRETRAIN: ("trainer.pretrain", "train a model on records; resumes where it stopped"),
    "squad": ("trainer.finetune:SQUAD", "fine-tune a model on SQuAD's records; resumes where it stopped"),
    "glue": ("trainer.finetune:GLUE", "fine-tune a model on records of labelled texts; resumes where it stopped"),
    "evaluate": ("trainer.evaluate", "a model's loss or scores on records, and its predictions"),
    "export": ("trainer.export", "a trained model -> what transformers or Google's scripts load"),
    "bench": ("trainer.bench.run", "sequences per second: skip steps, time steps, repeat"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0, 1 for data or machine, 2 for usage, 3 for stopped, 130 for Ctrl-C."""
    given = with_command(sys.argv[1:] if arguments is None else arguments)
    resumes = "; the same command resumes from the newest checkpoint" if given[0] in RESUMING else ""
    return exit_status(lambda: _run(given), "trainer", interrupted=f"stopped{resumes}")


def _run(arguments: Sequence[str]) -> int:
    options = make_parser(arguments[0]).parse_args(arguments)
    if getattr(options, "cache_size", None) is not None:
        limit_cache(options.cache_size)
    return int(options.run(options))


def with_command(arguments: Sequence[str]) -> list[str]:
    """The arguments with their command, which defaults to pretrain.

    >>> with_command(["--steps", "10"])
    ['pretrain', '--steps', '10']
    """
    is_named = bool(arguments) and (arguments[0] in ("-h", "--help", "--version") or not arguments[0].startswith("-"))
    return list(arguments) if is_named else [PRETRAIN, *arguments]


def make_parser(command: str) -> argparse.ArgumentParser:
    """A parser that knows all commands but only the options of one."""
    parser = Parser(
        prog="python -m trainer",
        description="Train BERT on record files of any format. Options without a command are those of pretrain.",
    )
    parser.add_argument("--version", action="version", version=f"bertprep {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, (module_name, summary) in COMMANDS.items():
        of_command = commands.add_parser(name, help=summary, description=summary)
        if name == command:
            path, _, attribute = module_name.partition(":")
            found: Any = import_module(path)
            found = getattr(found, attribute) if attribute else found
            found.add_arguments(of_command)
            of_command.set_defaults(run=found.run)
    return parser
