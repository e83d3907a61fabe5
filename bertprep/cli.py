"""The command line: find the command, parse its options, run it; an error becomes one line and an exit status."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from bertprep import __version__
from bertprep.errors import UsageError
from bertprep.options import Parser
from bertprep.terminal import exit_status, run_program

COMMANDS = {
    "download": "fetch corpora, tasks, weights and vocabularies into the workspace; resumes",
    "shard": "text -> text shards: one sentence per line, documents spread over shards, a test split",
    "vocab": "train a vocabulary",
    "tokenize": "text shards -> token shards: the tokens of each sentence, in the layout that Megatron reads",
    "create": "text shards, or the files of SQuAD and GLUE -> TFRecord, OFRecord, Arrow or Parquet files",
    "convert": "records -> another format or dialect, or more or fewer files; lossless",
    "validate": "is this data right? findings, a table, exit status 0 or 1",
    "inspect": "show the examples of a record file in readable form",
    "push": "records -> a data set on the Hugging Face Hub, as Parquet with a card; resumes",
}
"""Each command, which is the module of that name in `bertprep.commands`, with its summary."""
_MOVED = {"plan": "bertprep create --dry-run", "report": "bertprep validate --html PAGE"}
"""Former commands, and what does their work now."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0, 1 for data or machine, 2 for usage, 130 for Ctrl-C."""
    # NumPy's linear algebra is not used; starting its threads would cost more than reading a small file
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return exit_status(
        lambda: _run(sys.argv[1:] if arguments is None else arguments),
        "bertprep",
        interrupted="stopped; finished files are kept, and the same command resumes",
    )


def run() -> NoReturn:
    """Entry point of the process. Skips the interpreter's shutdown, which would cost a tenth of a short run."""
    os._exit(run_program(main, "bertprep"))


def _run(arguments: Sequence[str]) -> None:
    options = _parser(arguments).parse_args(arguments)
    try:
        options.run(options)
    finally:
        if "bertprep.ray_pool" in sys.modules:  # which no other command needs to import
            from bertprep import ray_pool

            ray_pool.close()


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """A parser that knows all commands but only the options of the given one, so that no other is imported."""
    asked = next((argument for argument in arguments if not argument.startswith("-")), None)
    if asked in _MOVED:
        raise UsageError(f"{asked}: is now {_MOVED[asked]}")
    parser = Parser(
        prog="bertprep",
        description="Download, make, check and convert the data that BERT-type models are pretrained on.",
    )
    parser.add_argument("--version", action="version", version=f"bertprep {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        of_command = commands.add_parser(name, help=summary, description=summary)
        if name == asked:
            command = importlib.import_module(f"bertprep.commands.{name}")
            command.add_options(of_command)
            of_command.set_defaults(run=command.run)
    return parser
