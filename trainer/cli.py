"""The command line of the trainer, whose default command is `pretrain`.

Options are checked before a framework is loaded, so most mistakes are reported at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from importlib import import_module

from bertprep import cli, recipes
from bertprep.options import add_options, read_options
from bertprep.parser import Parser
from bertprep.terminal import exit_status
from trainer.data import ExampleSettings
from trainer.loop import train
from trainer.run import prepare
from trainer.settings import EngineSettings, OptimizerSettings, RunOptions
from trainer.tasks import TASKS
from trainer.tasks.pretraining import Pretraining

PROGRAM = "python -m trainer"
FINISHED, STOPPED = 0, 3
"""Exit statuses. A run that was stopped has saved a checkpoint and can be resumed."""
COMMANDS = {
    **{command: task.help for command, task in TASKS.items()},
    "evaluate": "measure a model's loss or scores on records, and write its predictions",
    "export": "write a trained model for transformers or for Google's scripts",
    "bench": "measure sequences per second: skip steps, time steps, repeat",
}
"""Help texts by command. A command named for a task trains a model; the others are modules, imported when used, with
`add_arguments` and `run`."""
_OF_RECORDS = "is that of the records, which bertprep create or bertprep task has set"
HINTS = {
    # Google's run_pretraining.py
    "--bert-config-file": "is --model here",
    "--input-file": "is --data here: a folder of records",
    "--output-dir": "is --out here",
    "--init-checkpoint": "is --init here",
    "--max-seq-length": _OF_RECORDS,
    "--max-predictions-per-seq": _OF_RECORDS,
    "--do-train": "is a command here: pretrain, squad, glue or ner",
    "--do-eval": "is the command evaluate here; a run evaluates its model by itself",
    "--train-batch-size": "is --batch-size here: the sequences per device in a micro-batch",
    "--eval-batch-size": "is --batch-size here",
    "--learning-rate": "is --lr here",
    "--num-train-steps": "is --steps here",
    "--num-warmup-steps": "is --warmup-steps here",
    "--save-checkpoints-steps": "is --save-every here",
    "--max-eval-steps": "is --eval-sequences here, which counts sequences",
    "--iterations-per-loop": "has no counterpart: leave it out",
    "--use-tpu": "has no counterpart: leave it out",
    # Google's run_squad.py and run_classifier.py
    "--train-file": "is --data here: a folder of records, made by bertprep task squad",
    "--data-dir": "is --data here: a folder of records, made by bertprep task glue",
    "--task-name": "is --name here",
    "--version-2-with-negative": "is --version 2.0 here; the default is 1.1",
    "--do-predict": "is the command evaluate here",
    "--num-train-epochs": "is --epochs here",
    "--warmup-proportion": "is --warmup here",
    "--doc-stride": _OF_RECORDS,
    "--max-query-length": _OF_RECORDS,
    "--do-lower-case": _OF_RECORDS,
    # NVIDIA's run_pretraining.py
    "--input-files-dir": "is --data here: a folder of records",
    "--eval-files-dir": "is --data here, whose test split is found in the same folder",
    "--optimizer-type": "is --optimizer here",
    "--num-accumulation-steps": "is --accumulate here",
    "--display-loss-steps": "is --log-every here",
    "--use-xla": "is --xla here",
    "--horovod": "is --devices here, and --hosts for several machines",
}
"""What replaces an option of another program's script. A command shows only hints at options that it has."""
_OF_EPOCHS = ("eval_every", "eval_sequences", "keep_best")
"""Options that fine-tuning lacks: it evaluates on the whole dev set after each epoch, and keeps the best checkpoint."""


def main(arguments: Sequence[str] | None = None, *, program: str = PROGRAM) -> int:
    """Run one command and return the exit status.

    It is 0 for success, 1 for bad data or a failed machine, 2 for wrong usage, 3 for a stopped run, and 130 for Ctrl-C. Help
    texts call the program `program`.
    """
    given = with_command(sys.argv[1:] if arguments is None else arguments)
    interrupted = "stopped"
    if given[0] in TASKS:
        interrupted += "; the same command resumes from the newest checkpoint, if there is one"
    return exit_status(lambda: _run(given, program), "trainer", interrupted=interrupted)


def with_command(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with `pretrain` in front if they name no command.

    >>> with_command(["--steps", "10"])
    ['pretrain', '--steps', '10']
    """
    is_named = bool(arguments) and (arguments[0] in ("-h", "--help", "--version") or not arguments[0].startswith("-"))
    return list(arguments) if is_named else [Pretraining.command, *arguments]


def _run(arguments: Sequence[str], program: str) -> int:
    command = arguments[0]
    namespace = recipes.apply(command, make_parser(command, program).parse_args(arguments))
    if command not in TASKS:
        return int(import_module(f"trainer.{command}").run(namespace))
    engine, optimizer = read_options(EngineSettings, namespace), read_options(OptimizerSettings, namespace)
    # --seq and --pred belong to the options of pretraining, which reads records too.
    own = {"seq": ExampleSettings.seq, "pred": ExampleSettings.pred}
    return start(
        read_options(TASKS[command].options, namespace), engine, optimizer, read_options(ExampleSettings, namespace, **own)
    )


def start(options: RunOptions, settings: EngineSettings, optimizer: OptimizerSettings, examples: ExampleSettings) -> int:
    """Start or resume a run, train until it ends or is stopped, and return the exit status."""
    with ExitStack() as opened:
        prepared = prepare(options, settings, optimizer, examples, opened)
        if prepared is None or train(*prepared):
            return FINISHED
    return STOPPED


def make_parser(command: str, program: str = PROGRAM) -> Parser:
    """Return a parser for all commands that has the options of one of them."""
    description = "Train BERT on record files of any format. Options without a command are those of pretrain."
    return cli.make_parser(program, description, COMMANDS, command, partial(_add_options, command), HINTS)


def _add_options(command: str, parser: Parser) -> None:
    if command not in TASKS:
        import_module(f"trainer.{command}").add_arguments(parser)
        return
    task = TASKS[command]
    run = parser.add_argument_group("run")
    if task is Pretraining:
        recipes.add_option(run)
    add_options(run, task.options, without=_OF_EPOCHS if task.is_scored else ())
    add_options(parser.add_argument_group("optimizer"), OptimizerSettings)
    add_options(parser.add_argument_group("devices"), EngineSettings)
    if task is Pretraining:
        group = parser.add_argument_group(
            "examples of token shards", "Settings of bertprep create. They apply to token shards only."
        )
        add_options(group, ExampleSettings, without=("seq", "pred", "cased"))  # the manifest of token shards has the case
