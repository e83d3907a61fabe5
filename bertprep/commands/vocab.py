"""`bertprep vocab train`, and the choice of the vocabulary for records: a file, a download, or one trained here."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from bertprep.commands import DEFAULT_VOCABULARY_SIZE, add_corpus, add_engine, add_workers
from bertprep.commands.shard import check_text_files, choose_corpus, ensure_shards
from bertprep.errors import UsageError
from bertprep.files.places import place
from bertprep.options import path_or_url, whole_number
from bertprep.pool import LOCAL, choose_workers
from bertprep.progress import Reporter
from bertprep.sources.catalogue import DEFAULT_MODEL
from bertprep.sources.corpora import GIVEN, name_corpus
from bertprep.terminal import say, tell
from bertprep.workspace.layout import TRAINING, VOCABULARY, Workspace
from bertprep.workspace.parts import Part


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `vocab train`, the only vocabulary command so far."""
    summary = "train a WordPiece vocabulary on the training shards of a corpus"
    train = parser.add_subparsers(title="commands", required=True, metavar="COMMAND").add_parser(
        "train", help=summary, description=summary
    )
    train.add_argument(
        "--size", type=whole_number, default=DEFAULT_VOCABULARY_SIZE, metavar="INT",
        help="number of tokens (default: %(default)s)",
    )  # fmt: skip
    train.add_argument("--cased", action="store_true", help="keep upper case and accents")
    train.add_argument(
        "--input", nargs="+", type=path_or_url, default=[], metavar="FILE", help="train on these text files instead"
    )
    train.add_argument("--output", type=path_or_url, metavar="FILE", help="file to write (default: one in the workspace)")
    add_corpus(train)
    add_workers(train)
    add_engine(train)


def run(options: argparse.Namespace) -> None:
    """Train, and print the path."""
    if options.corpus is not None and options.input and options.output:
        raise UsageError("--corpus: with --input and --output no corpus is read and no file is named after it; leave it out")
    path = train_vocabulary_of(
        options.input,
        output=options.output,
        size=options.size,
        cased=options.cased,
        workdir=options.workdir,
        corpus=options.corpus,
        workers=options.workers,
        engine=options.engine,
        progress=True,
    )
    tell(str(path))


def train_vocabulary_of(
    inputs: Sequence[Path | str] = (),
    *,
    output: Path | str | None = None,
    size: int = DEFAULT_VOCABULARY_SIZE,
    cased: bool = False,
    workdir: Path | str = "data",
    corpus: str | None = None,
    workers: int | None = None,
    engine: str = LOCAL,
    progress: bool = False,
) -> Path:
    """Train a vocabulary on text files, or on the training shards of `corpus`; returns its path."""
    reporter, workspace = Reporter(enabled=progress), Workspace(place(workdir))
    files = check_text_files(inputs)
    workers = choose_workers(workers, engine, shared=None if files else workspace.root, read=files)
    if files:
        corpus = name_corpus(GIVEN if corpus is None else corpus, workspace)
    else:
        corpus = choose_corpus(workspace, corpus, reporter)
        sharded = ensure_shards(workspace, corpus, workers, reporter)
        files = [workspace.sharded(corpus) / name for name in sharded.files if name.startswith(TRAINING + "/")]
    if output is None:
        return trained_vocabulary(workspace, corpus, files, size=size, cased=cased, workers=workers, reporter=reporter)
    _train(files, place(output), size=size, cased=cased, workers=workers, reporter=reporter)
    return place(output)


def find_vocabulary(workspace: Workspace, vocab: Path | str) -> Path:
    """The file `vocab`, or the downloaded vocabulary of the model of that name."""
    if (path := place(vocab)).exists():
        return path
    if not re.fullmatch(r"(\w[\w.-]*/)?\w[\w.-]*(?<!\.txt)", str(vocab)):
        raise UsageError(f"--vocab {vocab}: does not exist; name a vocab.txt, one token per line")
    for kind, model in product(("vocab", "weights"), (str(vocab), f"google-bert/{vocab}")):
        path = workspace.download(kind) / model / VOCABULARY
        if path.is_file():
            return path
    model = "" if str(vocab) in (DEFAULT_MODEL, DEFAULT_MODEL.partition("/")[2]) else f" --model {vocab}"
    raise UsageError(
        f"--vocab {vocab}: is neither a file nor a downloaded vocabulary; bertprep download vocab{model} fetches it"
    )


def trained_vocabulary(
    workspace: Workspace,
    corpus: str,
    training: Sequence[Path],
    *,
    size: int,
    cased: bool,
    part: Part | None = None,
    workers: int,
    reporter: Reporter,
) -> Path:
    """The vocabulary trained on these training shards; trained first if there is none.

    Parts do not wait for each other: several may train it, and write the same file.
    """
    from bertprep.files.lock import locked
    from bertprep.instances.vocabulary import SPECIAL_TOKENS
    from bertprep.records.make import identify_text

    text = hashlib.sha256("".join(crc32c for _, crc32c in map(identify_text, training)).encode()).hexdigest()
    path = workspace.vocabulary(corpus, size=size, cased=cased, text=text)
    if path.exists():
        return path
    if size < len(SPECIAL_TOKENS):
        raise UsageError(f"a vocabulary of {size} tokens: must have at least the five special ones")
    with contextlib.nullcontext() if part else locked(path.parent, f".{path.name}.lock", wait=True):
        if not path.exists():  # another run may have trained it during the wait
            reporter.say(f"training a vocabulary of {size:,} tokens (--vocab takes an existing one): {path}")
            _train(training, path, size=size, cased=cased, workers=workers, reporter=reporter)
    return path


def _train(files: Sequence[Path], path: Path, *, size: int, cased: bool, workers: int, reporter: Reporter) -> None:
    """Train a vocabulary, with a message if the text yields fewer tokens than requested."""
    from bertprep.instances import load_vocabulary
    from bertprep.text.train_vocabulary import train_vocabulary

    train_vocabulary(files, path, size=size, cased=cased, workers=workers, reporter=reporter)
    if (tokens := len(load_vocabulary(path))) < size:
        say(f"{path}: has {tokens:,} tokens, all that this text gives; {size:,} were asked for")
