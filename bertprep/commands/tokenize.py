"""`bertprep tokenize`: text shards become token shards, from which records of any length are made without tokenizing again."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from bertprep.commands import (
    DEFAULT_VOCABULARY_SIZE,
    Created,
    add_engine,
    add_part,
    add_texts,
    add_verify,
    add_workers,
    part_of,
    split_rows,
    tell_created,
    vocabulary_size_of,
)
from bertprep.errors import UsageError
from bertprep.files.places import place
from bertprep.pool import LOCAL, choose_workers
from bertprep.progress import Reporter
from bertprep.terminal import tell_table
from bertprep.workspace.layout import TOKENS
from bertprep.workspace.parts import Part, read_part


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cased", action="store_true", help="keep upper case and accents, for a cased vocabulary")
    add_texts(parser, "token shards", "DIR/CORPUS_training_00000.bin and so on")
    add_workers(parser)
    add_engine(parser)
    add_verify(parser)
    add_part(parser)


def run(options: argparse.Namespace) -> None:
    """Make the token shards, and print a summary of each split."""
    made = tokenize(
        cased=options.cased,
        vocab=options.vocab,
        vocab_size=vocabulary_size_of(options),
        inputs=options.input,
        lines_are_sentences=options.lines_are_sentences,
        output=options.output,
        workdir=options.workdir,
        corpus=options.corpus,
        workers=options.workers,
        engine=options.engine,
        verify=options.verify,
        part=part_of(options),
        progress=True,
    )
    rows = split_rows(made.manifests[TOKENS].files, "documents", "sentences", "tokens")
    tell_table([("split", "files", "documents", "sentences", "tokens", "MB"), *rows])
    tell_created(made, options)


def tokenize(
    *,
    cased: bool = False,
    vocab: Path | str | None = None,
    vocab_size: int = DEFAULT_VOCABULARY_SIZE,
    inputs: Sequence[Path | str] = (),
    lines_are_sentences: bool = False,
    output: Path | str | None = None,
    workdir: Path | str = "data",
    corpus: str | None = None,
    workers: int | None = None,
    engine: str = LOCAL,
    verify: bool = False,
    part: Part | str | None = None,
    progress: bool = False,
) -> Created:
    """Make token shards, two files for each text shard, in the layout of Megatron's indexed data sets (docs/formats.md).

    Text, vocabulary and the other arguments are those of `create`, which takes these tokens instead of the text as long as that
    is the same: with `inputs` and `output` each text file becomes a token shard in `output`, otherwise the text shards of
    `corpus` in `workdir` do, both splits. The one entry of `folders` and of `manifests` is "tokens".

    Raises `UsageError` for a request that cannot be met, `BertprepError` for invalid text or vocabulary, a failing machine, or
    an output folder made with other settings.

        bertprep.tokenize(vocab="vocab.txt", workdir="data", progress=True)
    """
    from bertprep.commands.record_job import resolve_tokens
    from bertprep.records.make import TokenMaker, make_records
    from bertprep.records.token_shards import TokenFile
    from bertprep.workspace.manifest import TOKEN_SHARDS
    from bertprep.workspace.record_home import check_free

    started = time.monotonic()
    workers = choose_workers(workers, engine, shared=place(workdir if output is None else output))
    reporter = Reporter(enabled=progress)
    part = read_part(part)
    if bool(inputs) != (output is not None):
        raise UsageError("--input and --output go together: text files as shards, and the folder for their tokens")
    job = resolve_tokens(
        cased=cased, vocab=vocab, vocab_size=vocab_size, inputs=inputs, output=output, workdir=workdir, corpus=corpus,
        workers=workers, verify=verify, part=part, lines_are_sentences=lines_are_sentences, reporter=reporter,
    )  # fmt: skip
    check_free(job.home.folder, [job.home.folder / name for shard in job.shards for name in shard.names.values()])
    manifests, made = make_records(
        job.shards,
        dict.fromkeys(TokenFile, job.home),
        job.made_with,
        TokenMaker(job.vocabulary, cased),
        workers,
        reporter,
        check_texts=bool(inputs),
        verify=verify,
        kind=TOKEN_SHARDS,
        part=part,
        command="tokenize",
    )
    return Created({TOKENS: job.home.folder}, {TOKENS: manifests[TokenFile.BIN]}, time.monotonic() - started, made)
