"""`bertprep tokenize`: text shards become token shards, from which records of any length are made without tokenizing again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from bertprep.commands import Created, split_rows, tell_created
from bertprep.commands.request import InParts, OfText, function_of
from bertprep.files.places import place
from bertprep.options import MADE, option
from bertprep.terminal import tell_table
from bertprep.work.layout import TOKENS


@dataclass(frozen=True, kw_only=True)
class Tokenize(OfText, InParts):
    """Which text becomes token shards, where, and how."""

    group: ClassVar[str] = MADE
    cased: bool = option(False, "keep upper case and accents, for a cased vocabulary")

    def tokenize(self) -> Created:
        """Make token shards, two files for each text shard, in the layout of Megatron's indexed data sets (docs/formats.md).

        Text, vocabulary and the other arguments are those of `create`, which takes these tokens instead of the text as long as
        that is the same: with `inputs` and `output` each text file becomes a token shard in `output`, otherwise the text shards
        of `corpus` in `workdir` do, both splits. The one entry of `folders` and of `manifests` is "tokens".

        Raises `UsageError` for a request that cannot be met, `BertprepError` for invalid text or vocabulary, a failing machine,
        or an output folder made with other settings.

            bertprep.tokenize(vocab="vocab.txt", workdir="data", progress=True)
        """
        from bertprep.commands.record_job import resolve_tokens
        from bertprep.records.token_shards import TokenFile

        workers = self.start_workers(shared=place(self.output or self.workdir))
        created = resolve_tokens(self, workers).run(self, workers)
        return replace(
            created, folders={TOKENS: created.folders[TokenFile.BIN]}, manifests={TOKENS: created.manifests[TokenFile.BIN]}
        )


REQUEST = Tokenize
tokenize = function_of(Tokenize, Tokenize.tokenize)


def run(request: Tokenize) -> None:
    """Make the token shards, and print a summary of each split."""
    made = request.tokenize()
    rows = split_rows(made.manifests[TOKENS].files, "documents", "sentences", "tokens")
    tell_table([("split", "files", "documents", "sentences", "tokens", "MB"), *rows])
    tell_created(made, request)
