"""The command line: finds the command, reads its request and runs it. An error becomes one line and an exit status."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from bertprep import recipes
from bertprep.errors import BertprepError
from bertprep.options import add_options, read_options
from bertprep.parser import Parser, ShowVersion
from bertprep.terminal import exit_status, run_program
from bertprep.version import __version__

COMMANDS = {
    "download": "fetch corpora, tasks, weights and vocabularies into the workspace; resumes",
    "shard": "turn text into text shards: one sentence per line, documents spread over shards, a test split",
    "vocab": "train a WordPiece vocabulary on a corpus or on text files",
    "tokenize": "tokenize text once: into Megatron's .bin and .idx files, or MDS for mosaicml-streaming",
    "create": "make records for pretraining from text shards, as TFRecord, OFRecord, Arrow or Parquet files",
    "task": "make records for fine-tuning from the files of SQuAD, GLUE or tagged words",
    "convert": "convert records to another format, variant or number of files without loss, or token shards to MDS",
    "validate": "check whether data is right: findings, a table, exit status 0 or 1",
    "inspect": "show the examples of a record file in readable form",
    "push": "upload records to the Hugging Face Hub as a data set: Parquet with a card; resumes",
    "train": "pretrain or fine-tune BERT on records with an engine: tensorflow, torch or oneflow; resumes",
}
"""Each command with its summary. A command is the module of that name in `bertprep.commands`; train is `python -m trainer`."""
EXAMPLES = {
    "download": "bertprep download wikipedia bookcorpus",
    "shard": "bertprep shard --input books/*.txt --corpus books --one-document-per-file",
    "vocab": "bertprep vocab --size 30000 --corpus books",
    "tokenize": "bertprep tokenize --tokenizer answerdotai/ModernBERT-base --input texts/*.jsonl --output tokens",
    "create": "bertprep create --corpus books --seq 128 --pred 20",
    "task": "bertprep task glue mrpc --seq 128",
    "convert": "bertprep convert records/tfrecord records/parquet",
    "validate": "bertprep validate data --html page.html",
    "inspect": "bertprep inspect records/tfrecord/training/books_training_00000.tfrecord --records 1",
    "push": "bertprep push records/parquet OWNER/NAME",
}
"""The example that each command's --help shows."""
_TRAIN = "train"
_OF_EXAMPLES = "is chosen where examples are made: by bertprep create, by the trainer, or by TokenDataset"
HINTS = {
    # Google's create_pretraining_data.py, and the Model Garden's
    "--input-file": "is --input here",
    "--output-file": "is --output here",
    "--do-lower-case": "is the default here; give --cased for false",
    "--nodo-lower-case": "is --cased here",
    "--do-whole-word-mask": "is --whole-word here; leave it out for false",
    "--nodo-whole-word-mask": "is the default here; --whole-word masks whole words",
    "--use-v2-feature-names": "is --feature-names tf2 here, with --format tfrecord",
    "--gzip-compress": "is --compress gzip here, with --format tfrecord",
    # Google's run_squad.py and run_classifier.py
    "--train-file": "is --input here",
    "--predict-file": "is --input here, after the file for training",
    "--version-2-with-negative": "is --version 2.0 here; the default is 1.1",
    "--task-name": "is an argument of bertprep task glue, as in bertprep task glue mrpc",
    "--data-dir": "is --input here",
    "--output-dir": "is --output here",
    # NVIDIA's bertPrep.py
    "--action": "is a command here: download, shard or create",
    "--dataset": "is an argument of bertprep download, and the corpus of other commands",
    "--input-files": "is --input here",
    "--n-training-shards": "is --shards here",
    "--n-test-shards": "has no counterpart: test shards are about as large as training shards",
    "--fraction-test-set": "is --test-fraction here",
    "--segmentation-method": "is --splitter here, with --language",
    "--n-processes": "is --workers here",
    # LDDL's preprocess_bert_pretrain and balance_dask_output
    "--target-seq-length": "is --seq here",
    "--duplicate-factor": "is --dupe here",
    "--masked-lm-ratio": "is --masked-lm-prob here",
    "--masking": "is what bertprep create does; bertprep tokenize leaves the masks to the trainer",
    "--num-blocks": "is --shards here",
    "--num-shards": "is --shards here",
    "--sample-ratio": "has no counterpart: all documents are used",
    "--bin-size": "has no counterpart: the trainer packs rows of all lengths",
    # run_mlm.py of transformers
    "--dataset-name": "is --dataset here",
    "--tokenizer-name": "is --tokenizer here",
    "--validation-file": "is --test-input here",
    "--validation-split-percentage": "is --test-fraction here, a fraction such as 0.05",
    "--preprocessing-num-workers": "is --workers here",
    "--max-seq-length": _OF_EXAMPLES,
    "--mlm-probability": _OF_EXAMPLES,
    "--line-by-line": "is packed=False of TokenDataset, with one document for each row",
    "--pad-to-max-length": "is packed=False of TokenDataset",
}
"""What replaces an option of another program's script. Only a command that has all options that the words name shows them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, 1 for data or machine, 2 for usage, 130 for Ctrl-C."""
    # NumPy's linear algebra is not used, and starting its threads would take longer than reading a small file
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return exit_status(
        lambda: _run((sys.argv[1:] if arguments is None else arguments) or ["--help"]),
        "bertprep",
        interrupted="stopped; finished files are kept, and the same command resumes",
    )


def run() -> NoReturn:
    """Run the program, without the interpreter's shutdown, which takes a tenth of the time of a short run."""
    os._exit(run_program(main, "bertprep"))


def make_parser(
    prog: str,
    description: str,
    commands: Mapping[str, str],
    chosen: str | None,
    add: Callable[[Parser], object],
    hints: Mapping[str, str],
) -> Parser:
    """Return a parser for all commands, with only the options of the chosen one, which `add` adds.

    `hints` say what replaces the options of other programs' scripts (`Parser`).
    """
    parser = Parser(prog=prog, description=description)
    parser.add_argument("--version", action=ShowVersion, nargs=0, const=f"bertprep {__version__}", help="show the version")
    subparsers = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, summary in commands.items():
        of_command = subparsers.add_parser(name, help=summary, description=summary, hints=hints)
        if name == chosen:
            add(of_command)
    return parser


def _run(arguments: Sequence[str]) -> None:
    if arguments[0] == _TRAIN:
        _train(arguments[1:])
    options = recipes.apply(arguments[0], make_command_parser(arguments).parse_args(arguments))
    try:
        options.run(read_options(options.request, options, progress=True))
    finally:
        if "bertprep.ray_pool" in sys.modules:  # imported only if the command used a cluster
            from bertprep import ray_pool

            ray_pool.close()


def _train(arguments: Sequence[str]) -> NoReturn:
    """Run `python -m trainer` in this process. The trainer imports this package, so this package must not import it."""
    import runpy
    from importlib.util import find_spec

    trainer = find_spec("trainer")
    if trainer is None or Path(str(trainer.origin)).parents[1] != Path(__file__).parents[1]:
        found = f"Python finds {trainer.origin} instead" if trainer else "it is not installed"
        raise BertprepError(f"train: needs the package trainer, which comes with bertprep, but {found}")
    sys.argv[1:] = arguments
    runpy.run_module("trainer", init_globals={"PROGRAM": "bertprep train"}, run_name="__main__", alter_sys=True)
    raise SystemExit(0)


def make_command_parser(arguments: Sequence[str]) -> Parser:
    """Return the parser for the command that the arguments name."""
    chosen = next((argument for argument in arguments if not argument.startswith("-")), None)
    description = "Download, make, check and convert the data that BERT-type models are pretrained on."
    return make_parser("bertprep", description, COMMANDS, chosen, partial(_add_requests, str(chosen)), HINTS)


def _add_requests(name: str, parser: Parser) -> None:
    if name == _TRAIN:
        return
    command = importlib.import_module(f"bertprep.commands.{name}")
    parser.set_example(EXAMPLES[name])
    if not isinstance(command.REQUEST, dict):
        add_options(parser, command.REQUEST)
        if name in recipes.COMMANDS:
            recipes.add_option(parser, name)
        parser.set_defaults(run=command.run, request=command.REQUEST)
        return
    subparsers = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for below, request in command.REQUEST.items():
        summary = request.__doc__.partition("\n")[0].rstrip(".").replace("`", "")
        of_request = subparsers.add_parser(below, help=summary, description=summary, hints=HINTS)
        add_options(of_request, request)
        of_request.set_defaults(run=command.run, request=request)
