"""`bertprep tokenize`: text becomes token shards, from which examples of any length are made without tokenizing again.

They are of sentences of text shards and a vocabulary, or with --tokenizer of whole documents from any source.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from bertprep.commands import Created, print_created, split_rows
from bertprep.commands.request import InParts, InRows, OfDocuments, OfText, function_of
from bertprep.errors import UsageError
from bertprep.files.paths import as_path, path_arg
from bertprep.options import MADE, option
from bertprep.terminal import print_table
from bertprep.work.layout import MDS_FORMAT, TOKENS
from bertprep.work.manifest import MDS

MEGATRON = "megatron"


@dataclass(frozen=True, kw_only=True)
class Tokenize(OfText, OfDocuments, InRows, InParts):
    """Which text becomes token shards, where, and how."""

    group: ClassVar[str] = MADE
    cased: bool = option(False, "keep upper case and accents, for a cased vocabulary")
    tokenizer: Path | str | None = option(
        None, "make shards of whole documents by any tokenizer.json: a file, a folder with one, or a model of the Hub, such as "
        "answerdotai/ModernBERT-base", metavar="FILE|OWNER/NAME", check=str,
    )  # fmt: skip
    format: str = option(
        MEGATRON, "with --tokenizer: token shards in Megatron's layout, or with mds also rows of --seq tokens for the readers "
        "of mosaicml-streaming", choices=(MEGATRON, MDS_FORMAT),
    )  # fmt: skip
    inputs: Sequence[Path | str] = option(
        (), "text files to use as shards unchanged: one sentence per line, a blank line after each document; with --tokenizer "
        "files, folders, patterns or URLs of documents, as shard takes them", name="--input", metavar="PATH", check=path_arg,
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.tokenizer is None:
            super().__post_init__()
            self.check_rows("--format mds", is_mds=self.format == MDS_FORMAT)
            of_documents = {"--dataset": self.dataset is not None, "--field": self.field != "text"}
            of_documents |= {"--one-document-per-file": self.one_document, "--format mds": self.format == MDS_FORMAT}
            _refuse(of_documents, "goes with --tokenizer; without it, bertprep shard splits documents into sentences first")
            return
        super(OfText, self).__post_init__()
        self.check_rows("--format mds", is_mds=self.format == MDS_FORMAT)
        of_text = {"--vocab": self.vocab is not None, "--cased": self.cased, "--lines-are-sentences": self.lines_are_sentences}
        _refuse(of_text, "is not for --tokenizer, whose file says all; leave it out")
        if (bool(self.inputs) or self.dataset is not None) != (self.output is not None):
            raise UsageError("--input or --dataset goes with --output, the folder for their tokens; give both, or neither")
        if self.format == MDS_FORMAT and self.part is not None:
            raise UsageError(
                "--format mds: needs all token shards; make them in parts, then bertprep convert --to mds in parts"
            )

    def tokenize(self) -> Created:
        """Make token shards of text shards, in the layout of Megatron's indexed data sets (docs/formats.md).

        The arguments are those of `create`, which uses these tokens as long as the text is the same. With `tokenizer`, a
        tokenizer.json or a model of the Hub, a document is a sequence, `inputs` or a `dataset` are what `shard` takes,
        `workers` are threads, and `format="mds"` adds an entry "mds" to "tokens" in `folders` and `manifests`.

        Raises `UsageError` for a request that cannot be met, `BertprepError` for invalid text or vocabulary, a failing machine,
        or other settings.

            bertprep.tokenize(vocab="vocab.txt", workdir="data", progress=True)
        """
        from bertprep.commands.document_job import make_documents
        from bertprep.commands.record_job import resolve_tokens
        from bertprep.records.token_shards import TokenFile

        workers = self.start_workers(shared=as_path(self.output or self.workdir))
        created = make_documents(self, workers) if self.tokenizer else resolve_tokens(self, workers).run(self, workers)
        folder = created.folders[TokenFile.BIN]
        created = replace(created, folders={TOKENS: folder}, manifests={TOKENS: created.manifests[TokenFile.BIN]})
        return self._make_mds(created, folder) if self.format == MDS_FORMAT else created

    def _make_mds(self, created: Created, tokens: Path) -> Created:
        from bertprep.commands.convert import make_mds

        if self.output is None:
            target = self.workspace.records(MDS_FORMAT, f"{tokens.parent.name}_seq_len_{self.seq}", tokens.name)
        else:
            target = as_path(self.output) / MDS_FORMAT
        started = time.monotonic()
        made = make_mds(self, tokens, target, 1)
        return replace(
            created,
            seconds=created.seconds + time.monotonic() - started,
            folders={**created.folders, MDS_FORMAT: target},
            manifests={**created.manifests, MDS_FORMAT: made.manifests[MDS]},
            made=created.made + made.tasks,
        )


def _refuse(given: Mapping[str, bool], why: str) -> None:
    for name in (name for name, is_given in given.items() if is_given):
        raise UsageError(f"{name}: {why}")


REQUEST = Tokenize
tokenize = function_of(Tokenize, Tokenize.tokenize)


def run(request: Tokenize) -> None:
    """Make the token shards, and print a summary of each split."""
    made = request.tokenize()
    counts = ("documents", "sentences", "tokens") if request.tokenizer is None else ("documents", "tokens")
    print_table([("split", "files", *counts, "MB"), *split_rows(made.manifests[TOKENS].files, *counts)])
    if rows := made.manifests.get(MDS_FORMAT):
        print_table([("split", "files", "rows", "MB"), *split_rows(rows.files, "samples")])
    print_created(made, request)
