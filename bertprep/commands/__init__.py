"""The commands, one file each: options (`add_options`), the public function behind it, and its output (`run`).

`bertprep.cli` imports only the requested command, and a command imports slow modules (NumPy, readers, the network) in the
functions that use them, so `--help` and a mistyped option are answered at once. This file holds what several commands use.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertprep.config import DEFAULT_FORMATS, Dialect, InstanceSettings
from bertprep.errors import UsageError
from bertprep.options import add_options, existing_path, how_many_at_once, path_or_url, read_options, whole_number
from bertprep.pool import ENGINES, LOCAL
from bertprep.terminal import tell
from bertprep.workspace.layout import SPLIT_NAMES, TRAINING
from bertprep.workspace.parts import FINISH, Part, read_part

if TYPE_CHECKING:
    from bertprep.workspace.manifest import Manifest

DEFAULT_VOCABULARY_SIZE = 8000


@dataclass(frozen=True)
class Created:
    """What `create` leaves: the folder of each format, what the manifest says of its files, and the seconds it took.

    `made` is the number of shards whose records were missing.
    """

    folders: dict[str, Path]
    manifests: dict[str, Manifest]
    seconds: float
    made: int


def add_workdir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workdir", type=path_or_url, default=Path("data"), metavar="DIR", help="workspace (default: %(default)s)"
    )


def add_corpus(parser: argparse.ArgumentParser) -> None:
    """Options for a corpus and its workspace."""
    add_workdir(parser)
    parser.add_argument(
        "--corpus", metavar="NAME",
        help="wikipedia, bookcorpus, wikipedia+bookcorpus, or a name of your own "
        "(default: what was downloaded, or else sample; with --input: corpus; with --dataset: its name)",
    )  # fmt: skip


def add_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--verify",
        action="store_true",
        help="check existing files by sha256 too, not only by size, and remake damaged ones",
    )


def add_workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=how_many_at_once, metavar="INT", help="worker processes (default: one per CPU)")


def add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine", choices=ENGINES, default=LOCAL,
        help="where workers are: on this machine, or on the Ray cluster at $RAY_ADDRESS (default: %(default)s)",
    )  # fmt: skip


def add_part(parser: argparse.ArgumentParser) -> None:
    """Options for runs on several machines."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--part", metavar="I/N",
        help="make only every N-th file from number I on, I from 0 to N-1; slurm takes I and N from the job array, "
        "kubernetes/N takes I from the Job; parts may run at the same time, on any machines",
    )  # fmt: skip
    group.add_argument("--finish", action="store_true", help="make nothing: check that all parts are there, and finish")


def tell_created(created: Created, options: argparse.Namespace) -> None:
    """Print how long the missing files took and where they are, as the last lines of a command."""
    how = f"made in {created.seconds:.1f} s in" if created.made else "nothing was missing in"
    tell(how, *(f"  {folder}" for folder in created.folders.values()))
    tell_finished(options)


def tell_finished(options: argparse.Namespace) -> None:
    """Print that --finish has found nothing missing."""
    if options.finish:
        tell("all parts are there, and the manifest is written")


def part_of(options: argparse.Namespace) -> Part | None:
    """The part that these options ask for."""
    part = FINISH if options.finish else read_part(options.part)
    if part and getattr(options, "verify", False):
        raise UsageError("--verify: checks the files of all parts; run it without --part and --finish")
    return part


def add_vocab(parser: argparse.ArgumentParser) -> None:
    """Options for the vocabulary of existing records."""
    parser.add_argument(
        "--vocab", type=existing_path, metavar="FILE", help="vocabulary (default: the vocab.txt beside the records)"
    )


def add_record_options(parser: argparse.ArgumentParser, *, only_given: bool = False) -> None:
    """Options that determine the records and where they are written; `only_given` is that of `options.add_options`."""
    add_options(parser, InstanceSettings, only_given=only_given)
    parser.add_argument(
        "--format",
        metavar="NAMES",
        default=",".join(DEFAULT_FORMATS),
        help="record formats, of tfrecord, ofrecord, arrow and parquet (default: %(default)s)",
    )
    add_options(parser, Dialect, only_given=only_given)
    add_texts(parser, "records", "DIR/tfrecord and so on")
    add_workers(parser)


def add_texts(parser: argparse.ArgumentParser, made: str, place_of_made: str) -> None:
    """Options for the text shards and the vocabulary that something is made of, and for where that goes."""
    parser.add_argument(
        "--vocab", metavar="FILE|MODEL",
        help="vocabulary: a file, or a model whose vocabulary was downloaded, such as bert-base-uncased "
        "(default: one trained on the corpus)",
    )  # fmt: skip
    parser.add_argument(
        "--vocab-size", type=whole_number, metavar="INT",
        help=f"size of a trained vocabulary (default: {DEFAULT_VOCABULARY_SIZE})",
    )  # fmt: skip
    parser.add_argument(
        "--input", nargs="+", type=path_or_url, default=[], metavar="SHARD",
        help="text files to use as shards unchanged: one sentence per line, a blank line after each document"
        + (", or a folder of token shards" if made == "records" else ""),
    )  # fmt: skip
    parser.add_argument(
        "--lines-are-sentences", action="store_true",
        help="take each line of --input for a sentence, even if most have several or documents have one line",
    )  # fmt: skip
    parser.add_argument("--output", type=path_or_url, metavar="DIR", help=f"folder for the {made} of --input: {place_of_made}")
    add_corpus(parser)


def vocabulary_size_of(options: argparse.Namespace) -> int:
    """The size of the vocabulary to be trained; raises `UsageError` where one is requested and none will be trained."""
    if options.vocab_size is None:
        return DEFAULT_VOCABULARY_SIZE
    if options.vocab is not None:
        raise UsageError("--vocab-size: is for a vocabulary that is trained, and --vocab names one that exists; leave one out")
    size: int = options.vocab_size
    return size


def record_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments for `create` and `plan` from these options."""
    return {
        "settings": read_options(InstanceSettings, options),
        "dialect": read_options(Dialect, options),
        "formats": options.format,
        "vocab": options.vocab,
        "vocab_size": vocabulary_size_of(options),
        "inputs": options.input,
        "lines_are_sentences": options.lines_are_sentences,
        "output": options.output,
        "workdir": options.workdir,
        "corpus": options.corpus,
        "workers": options.workers,
    }


def split_rows(files: dict[str, dict[str, Any]], *counts: str) -> list[tuple[str, ...]]:
    """A row for each split of a manifest's files, training first: name, files, the totals of `counts`, and megabytes."""
    splits: dict[str, list[dict[str, Any]]] = {}
    for name, facts in sorted(files.items(), key=lambda item: SPLIT_NAMES.get(item[0].partition("/")[0]) != TRAINING):
        splits.setdefault(name.rpartition("/")[0], []).append(facts)
    return [
        (
            split,
            f"{len(entries):,}",
            *(f"{sum(facts.get(name, 0) for facts in entries):,}" for name in counts),
            f"{sum(facts['bytes'] for facts in entries) / 1e6:,.1f}",
        )
        for split, entries in splits.items()
    ]
