"""`bertprep tokenize`: text becomes token shards, from which examples of any length are made without tokenizing again.

They are of sentences of text shards and a vocabulary, or with --tokenizer of whole documents from any source.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bertprep.commands.request import OfTokens, function_of
from bertprep.files.paths import as_path
from bertprep.terminal import print_results
from bertprep.work.layout import MDS_FORMAT
from bertprep.work.made import Made


@dataclass(frozen=True, kw_only=True)
class Tokenize(OfTokens):
    """Which text becomes token shards, where, and how."""

    def tokenize(self) -> Made:
        """Make token shards of text shards, in the layout of Megatron's indexed data sets (docs/formats.md).

        The arguments are those of `create`, which uses these tokens as long as the text is the same. With `tokenizer`, a
        tokenizer.json or a model of the Hub, a document is a sequence, `inputs` or a `dataset` are what `shard` takes,
        `workers` are threads, and `format="mds"` adds an entry "mds" to "tokens" in `folders` and `manifests`.

        Raises `UsageError` for a request that cannot be met, `BertprepError` for invalid text or vocabulary, a failing machine,
        or other settings.

            bertprep.tokenize(vocab="vocab.txt", workdir="data", progress=True)
        """
        from bertprep.commands.document_job import make_documents
        from bertprep.commands.record_job import make_tokens

        workers = self.start_workers(shared=as_path(self.output or self.workdir))
        made = make_documents(self, workers) if self.tokenizer else make_tokens(self, workers)
        return self._make_mds(made, made.folder) if self.format == MDS_FORMAT else made

    def _make_mds(self, made: Made, tokens: Path) -> Made:
        from bertprep.commands.convert import make_mds

        if self.output is None:
            target = self.workspace.records(MDS_FORMAT, f"{tokens.parent.name}_seq_len_{self.seq}", tokens.name)
        else:
            target = as_path(self.output) / MDS_FORMAT
        mds = make_mds(self, tokens, target, 1, "tokenize")
        return Made(
            folders={**made.folders, **mds.folders},
            manifests={**made.manifests, **mds.manifests},
            made=made.made + mds.made,
            kept=made.kept + mds.kept,
            seconds=made.seconds + mds.seconds,
        )


REQUEST = Tokenize
tokenize = function_of(Tokenize, Tokenize.tokenize)


def run(request: Tokenize) -> None:
    """Make the token shards, and print a summary of each split."""
    print_results(*request.tokenize().lines(), *request.finished_lines())
