"""The command line: parse, build a configuration, call one function.

Options that decide bytes are the fields of the dataclasses in `config`, with their help and defaults; only what does not is
spelled out here. `commands` has what each command does.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from bertprep import __version__, standard_streams
from bertprep.commands.tables import (
    convert_command,
    create_command,
    download_command,
    inspect_command,
    plan_command,
    report_command,
    shard_command,
    train_command,
    validate_command,
)
from bertprep.config import RECORD_FORMATS, Dialect, InstanceSettings, ShardSettings
from bertprep.errors import BertprepError, explain_system_error
from bertprep.options import Parser, add_options, how_many, how_many_at_once, number, whole_number
from bertprep.sources.catalogue import WIKIPEDIA_DATE
from bertprep.terminal import say, say_warnings

INTERRUPTED = 130
_CORPUS_HELP = (
    "wikipedia, bookcorpus, wikipedia+bookcorpus, or a name of your own "
    "(default: what was downloaded, or else sample; with --input: corpus)"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0, 1 for data or machine, 2 for usage, 130 for Ctrl-C."""
    # NumPy's linear algebra is not used here; starting its threads would cost more than reading a small file
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    options = _parser().parse_args(arguments)
    try:
        options.command(options)
    except BertprepError as error:
        say(f"bertprep: error: {error}")
        return error.exit_status
    except KeyboardInterrupt:
        say("bertprep: stopped; what is finished is kept, the same command continues")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        return 0
    except OSError as error:
        if (explained := explain_system_error(error)) is None:
            raise
        say(f"bertprep: error: {explained}")
        return explained.exit_status
    return 0


def run() -> NoReturn:
    """The process of the command line. Taking Python apart at its end would cost a tenth of a short run, so it is left out."""
    say_warnings()
    os._exit(standard_streams.run(main, "bertprep"))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="bertprep",
        description="Download, make, check and convert the data that BERT-type models are pretrained on.",
    )
    parser.add_argument("--version", action="version", version=f"bertprep {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    download = _command(
        commands, "download", download_command, "corpora, tasks, weights, vocabularies -> the workspace; resumes"
    )
    download.add_argument("names", nargs="+", metavar="NAME", help="wikipedia, bookcorpus, squad, glue, weights, vocab, or all")
    download.add_argument("--language", default="en", metavar="CODE", help="which Wikipedia (default: %(default)s)")
    download.add_argument("--date", default=WIKIPEDIA_DATE, metavar="DAY", help="of which day (default: %(default)s)")
    download.add_argument("--from-dump", metavar="FILE|URL", help="take a pages-articles dump as the Wikipedia instead")
    download.add_argument(
        "--from-files", type=Path, metavar="DIR", help="take a folder of .txt books as the BookCorpus instead"
    )
    download.add_argument(
        "--model", action="append", default=[], metavar="ID", dest="models",
        help="for weights and vocab, may be given several times (default: the two BERT models, and the smaller's vocabulary)",
    )  # fmt: skip
    download.add_argument(
        "--connections", type=how_many_at_once, default=4, metavar="INT", help="files fetched at once (default: %(default)s)"
    )
    download.add_argument("--dry-run", action="store_true", help="show what would be fetched, and write nothing")
    _add_workdir(download)

    shard = _command(commands, "shard", shard_command, "text -> text shards: sentences, spread over shards, a test split")
    shard.add_argument(
        "--input", nargs="+", default=[], metavar="PATH",
        help="files, folders or URLs: text (a blank line ends a document), .jsonl, .parquet, a Wikimedia dump .xml; each also "
        ".gz, .bz2, .zst (default: what was downloaded, or else the sample)",
    )  # fmt: skip
    shard.add_argument(
        "--field", default="text", metavar="NAME", help="what holds the text in JSON Lines or Parquet (default: text)"
    )
    shard.add_argument("--one-document-per-file", action="store_true", help="blank lines in a text file end no document")
    add_options(shard, ShardSettings)
    _add_place(shard)
    _add_verify(shard)
    _add_workers(shard)

    vocabulary = _command(commands, "vocab", None, "vocabularies")
    actions = vocabulary.add_subparsers(title="commands", required=True, metavar="COMMAND")
    train = _command(actions, "train", train_command, "train a WordPiece vocabulary on the training shards of a corpus")
    train.add_argument("--size", type=whole_number, default=8000, metavar="INT", help="number of tokens (default: %(default)s)")
    train.add_argument("--cased", action="store_true", help="keep upper case and accents")
    train.add_argument("--input", nargs="+", type=Path, default=[], metavar="FILE", help="text files to train on instead")
    train.add_argument("--output", type=Path, metavar="FILE", help="where to write it (default: in the workspace)")
    _add_place(train)

    create = _command(commands, "create", create_command, "text shards -> TFRecord and OFRecord files")
    _add_verify(create)
    _add_record_options(create)

    plan = _command(commands, "plan", plan_command, "what create would make and cost here, and what a training run makes of it")
    _add_record_options(plan)
    plan.add_argument(
        "--records", nargs="+", type=Path, default=[], metavar="DIR",
        help="records that are there already: only what a training run makes of them (with --phases one folder for each)",
    )  # fmt: skip
    plan.add_argument("--steps", type=how_many, metavar="INT", help="steps of the training run")
    plan.add_argument(
        "--global-batch", nargs="+", type=how_many, metavar="INT", help="sequences in a step; with --phases one for each"
    )
    plan.add_argument(
        "--phases", action="store_true",
        help="plan both published phases, 128/20 and 512/80 (default: 7,820 steps, 65,536 and 32,768 sequences)",
    )  # fmt: skip
    plan.add_argument("--json", type=Path, metavar="FILE", help="write the plan to FILE too")

    convert = _command(
        commands,
        "convert",
        convert_command,
        "records of one format -> the other's, in another dialect, or over more or fewer files; lossless",
    )
    convert.add_argument("source", type=Path, metavar="SRC", help="a record file, or a folder of them, whoever made them")
    convert.add_argument("target", type=Path, metavar="DST", help="the file to be made, or the folder")
    convert.add_argument("--to", metavar="FORMAT", help="tfrecord or ofrecord (default: the other one)")
    add_options(convert, Dialect)
    convert.add_argument(
        "--shards", type=whole_number, metavar="INT", help="files for each split, into a folder (default: as many as there are)"
    )
    _add_workers(convert)

    validate = _command(commands, "validate", validate_command, "is this data right? findings, a table, exit status 0 or 1")
    validate.add_argument(
        "paths", nargs="*", type=Path, default=[Path("data")], metavar="PATH",
        help="a workspace, a folder of records, or record files, whoever made them (default: data)",
    )  # fmt: skip
    validate.add_argument("--vocab", type=Path, metavar="FILE", help="vocabulary (default: the vocab.txt beside the records)")
    validate.add_argument(
        "--masked-lm-prob", type=number, metavar="FLOAT",
        help="share of masked tokens in records without a manifest (default: 0.15)",
    )  # fmt: skip
    validate.add_argument("--sample", type=how_many, metavar="INT", help="look at that many records of each file only")
    validate.add_argument("--json", type=Path, metavar="FILE", help="write all that was found to FILE too")
    _add_workers(validate)

    inspect = _command(commands, "inspect", inspect_command, "show the examples of a record file as a person reads them")
    inspect.add_argument("file", type=Path, help="a TFRecord or OFRecord file")
    inspect.add_argument(
        "--record", type=whole_number, default=0, metavar="INT", help="number of the first record shown (default: %(default)s)"
    )
    inspect.add_argument("--records", type=how_many, default=3, metavar="INT", help="how many are shown (default: %(default)s)")
    inspect.add_argument("--search", metavar="WORD", help="show those that have this word, whole, and say how many do")
    inspect.add_argument("--pieces", action="store_true", help="show the tokens as they are, words not joined")
    inspect.add_argument("--vocab", type=Path, metavar="FILE", help="vocabulary (default: the vocab.txt beside the records)")

    report = _command(commands, "report", report_command, "records as one HTML page: how made, whether right, with examples")
    report.add_argument("path", nargs="?", type=Path, metavar="PATH", help="records (default: the newest of the workspace)")
    report.add_argument("--output", type=Path, metavar="FILE", help="the page (default: report.html beside the manifest)")
    report.add_argument("--vocab", type=Path, metavar="FILE", help="vocabulary (default: the vocab.txt beside the records)")
    report.add_argument(
        "--sample", type=how_many, metavar="INT", help="look at so many records of each file only, and for no duplicates"
    )
    _add_workdir(report)
    _add_workers(report)
    return parser


def _command(commands: Any, name: str, function: Any, summary: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=summary)
    if function is not None:
        parser.set_defaults(command=function)
    return parser


def _add_record_options(parser: argparse.ArgumentParser) -> None:
    """What decides the records, and where they are made."""
    add_options(parser, InstanceSettings)
    parser.add_argument(
        "--format", metavar="NAMES", default=",".join(RECORD_FORMATS), help="record formats (default: %(default)s)"
    )
    add_options(parser, Dialect)
    parser.add_argument(
        "--vocab", metavar="FILE",
        help="vocabulary: a file, or a model whose vocabulary was downloaded, such as bert-base-uncased "
        "(default: one trained on the corpus)",
    )  # fmt: skip
    parser.add_argument(
        "--vocab-size",
        type=whole_number,
        default=8000,
        metavar="INT",
        help="size of a trained vocabulary (default: %(default)s)",
    )
    parser.add_argument(
        "--input", nargs="+", type=Path, default=[], metavar="SHARD",
        help="text files to take as shards as they are: one sentence a line, a blank line after each document",
    )  # fmt: skip
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="where the records of --input go: DIR/tfrecord, DIR/ofrecord"
    )
    _add_place(parser)
    _add_workers(parser)


def _add_workdir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workdir", type=Path, default=Path("data"), metavar="DIR", help="workspace (default: %(default)s)")


def _add_place(parser: argparse.ArgumentParser) -> None:
    _add_workdir(parser)
    parser.add_argument("--corpus", metavar="NAME", help=_CORPUS_HELP)


def _add_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--verify", action="store_true",
        help="read the sha256 of all files that are there already, and make those again that are not as they were made",
    )  # fmt: skip


def _add_workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=how_many_at_once, metavar="INT", help="worker processes (default: one a processor)")
