"""`bertprep tokenize`: text becomes token shards, from which examples of any length are made without tokenizing again.

They are of sentences of text shards and a vocabulary, or with --tokenizer of whole documents from any source.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from bertprep.commands import Created, print_created, split_rows
from bertprep.commands.request import OfTokens, function_of
from bertprep.files.paths import as_path
from bertprep.terminal import print_table
from bertprep.work.layout import MDS_FORMAT, TOKENS
from bertprep.work.manifest import MDS


@dataclass(frozen=True, kw_only=True)
class Tokenize(OfTokens):
    """Which text becomes token shards, where, and how."""

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
        from bertprep.work.layout import TokenFile

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
