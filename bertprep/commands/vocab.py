"""`bertprep vocab`: train a WordPiece vocabulary on text files or on the text shards of a corpus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from bertprep.commands.function import function_of
from bertprep.commands.request import OfCorpus, OnExecutor, check_is_no_folder, check_one_case
from bertprep.config import VocabularySettings
from bertprep.errors import UsageError
from bertprep.files.outputs import check_output
from bertprep.files.paths import as_path, path_arg
from bertprep.options import MADE, described, narrowed, option
from bertprep.sources.corpora import GIVEN, name_corpus
from bertprep.terminal import print_results, warn
from bertprep.text.vocabulary import digest_of_texts, train, train_once, why_fewer_tokens
from bertprep.work.layout import TRAINING, VOCABULARY
from bertprep.work.ledger import Entry


@dataclass(frozen=True, kw_only=True)
class Vocab(VocabularySettings, OfCorpus, OnExecutor):
    """The request of `vocab`: the settings of a vocabulary, and the text to train it on."""

    group: ClassVar[str] = MADE
    uncased: bool = option(False, "lower-case the text, even if that changes much more than the case, as in German or Japanese")
    inputs: Sequence[Path | str] = field(
        default=(),
        kw_only=False,
        metadata=described("train on these text files instead of a corpus", name="--input", metavar="FILE", check=path_arg),
    )
    output: Path | str | None = option(None, "file to write (default: one in the workspace)", metavar="FILE", check=path_arg)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_case(self)

    def train_vocabulary(self) -> Path:
        """Train a vocabulary on text files, or on the training shards of `corpus`, and return its path.

        Unless `cased` or `uncased` is given, it is cased if lower-casing would change much more than the case of the text.
        """
        if self.corpus is not None and self.inputs and self.output:
            raise UsageError("--corpus: has no effect together with --input and --output; leave it out")
        from bertprep.commands.texts import check_text_files, choose_case
        from bertprep.instances.lower_case import measure_files
        from bertprep.text.train_vocabulary import is_trained_here, reserved_tokens

        reserved_tokens(self)  # refuse a wrong one before text is read
        if self.output is not None:
            path = as_path(self.output)
            check_is_no_folder("--output", path, VOCABULARY)
            check_output(path, is_trained_here, "--output")
        given = check_text_files(self.inputs)
        workers = self.start_workers(shared=None if given else self.workspace.root, read=given)
        corpus, texts = self._find_texts(given)
        letters = measure_files([*texts])
        cased = choose_case(letters, self.reporter, cased=self.cased, uncased=self.uncased, trains=True)
        settings = replace(narrowed(VocabularySettings, self), cased=cased)
        if self.output is None:
            path = self.workspace.vocabulary(corpus, settings, digest_of_texts(texts))
            if path.exists():
                return path
            message = f"training a vocabulary of {self.size:,} tokens: {path}"
            lines = train_once([*texts], path, settings, workers, self.reporter, message)
        else:
            lines = train([*texts], path, settings, workers, self.reporter)
        for line in lines:
            warn(line)
        if line := why_fewer_tokens(path, settings):
            warn(line)
        return path

    def _find_texts(self, given: Sequence[Path]) -> tuple[str, dict[Path, Entry | None]]:
        """Return the name of the corpus, and its text files with their manifest entries (None for files of --input)."""
        if given:
            return name_corpus(GIVEN if self.corpus is None else self.corpus, self.workspace), dict.fromkeys(given)
        from bertprep.commands.texts import choose_corpus, ensure_shards, texts_of_corpus

        corpus = choose_corpus(self.workspace, self.corpus, self.reporter)
        manifest = ensure_shards(self, self.workspace, corpus)
        shards = texts_of_corpus(self.workspace, corpus, manifest).shards
        return corpus, {shard.path: shard.expected for shard in shards if shard.split == TRAINING}


REQUEST = Vocab
train_vocabulary = function_of(Vocab, Vocab.train_vocabulary)


def run(request: Vocab) -> None:
    """Train a vocabulary, and print its path."""
    print_results(str(request.train_vocabulary()))
