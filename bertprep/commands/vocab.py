"""`bertprep vocab`, and the choice of the vocabulary for records: a file, a download, or one trained here."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import ClassVar

from bertprep.commands.request import OfCorpus, OnExecutor, check_is_no_folder, function_of
from bertprep.commands.shard import check_text_files, choose_corpus, ensure_shards
from bertprep.errors import UsageError
from bertprep.files.outputs import check_output
from bertprep.files.paths import as_path, path_arg
from bertprep.options import MADE, described, option
from bertprep.sources.catalogue import DEFAULT_MODEL
from bertprep.sources.corpora import GIVEN, name_corpus
from bertprep.terminal import listed, print_results, warn
from bertprep.work.layout import TRAINING, VOCABULARY, Workspace
from bertprep.work.ledger import Entry

DEFAULT_VOCABULARY_SIZE = 8000


@dataclass(frozen=True, kw_only=True)
class Vocab(OfCorpus, OnExecutor):
    """A WordPiece vocabulary, of text files or of the training shards of a corpus."""

    group: ClassVar[str] = MADE
    size: int = option(  # with the special ones
        DEFAULT_VOCABULARY_SIZE, "number of tokens", least=5, also=("--vocab-size",)
    )
    cased: bool = option(False, "keep upper case and accents")
    inputs: Sequence[Path | str] = field(
        default=(),
        kw_only=False,
        metadata=described("train on these text files instead", name="--input", metavar="FILE", check=path_arg),
    )
    output: Path | str | None = option(None, "file to write (default: one in the workspace)", metavar="FILE", check=path_arg)

    def train_vocabulary(self) -> Path:
        """Train a vocabulary on text files, or on the training shards of `corpus`; returns its path."""
        if self.corpus is not None and self.inputs and self.output:
            raise UsageError("--corpus: has no effect with both --input and --output; leave it out")
        if self.output is not None:
            from bertprep.text.train_vocabulary import is_trained_here

            path = as_path(self.output)
            check_is_no_folder("--output", path, VOCABULARY)
            check_output(path, is_trained_here, "--output")
        reporter, workspace = self.reporter, self.workspace
        texts: dict[Path, Entry | None] = dict.fromkeys(check_text_files(self.inputs))
        workers = self.start_workers(shared=None if texts else workspace.root, read=[*texts])
        if texts:
            corpus = name_corpus(GIVEN if self.corpus is None else self.corpus, workspace)
        else:
            corpus = choose_corpus(workspace, self.corpus, reporter)
            sharded = ensure_shards(workspace, corpus, workers, reporter)
            training = [name for name in sharded.files if name.startswith(TRAINING + "/")]
            texts = {workspace.sharded(corpus) / name: sharded.files[name] for name in training}
        if self.output is None:
            return self.find_or_train(corpus, texts, workers, is_default=False)
        path = as_path(self.output)
        self._train([*texts], path, workers)
        return path

    def find_or_train(self, corpus: str, training: Mapping[Path, Entry | None], workers: int, *, is_default: bool) -> Path:
        """Return the vocabulary of this text in the workspace, trained if it is missing; `is_default` if none was named."""
        from bertprep.work.texts import check_text, identify_text

        identities = {path: identify_text(path) for path in training}
        for path, (size_bytes, crc32c) in identities.items():
            check_text(path, training[path], {"bytes": size_bytes, "crc32c": crc32c})
        text = hashlib.sha256("".join(crc32c for _, crc32c in identities.values()).encode()).hexdigest()
        path = self.workspace.vocabulary(corpus, size=self.size, cased=self.cased, text=text)
        if path.exists():
            return path
        advice = " (--vocab names an existing one)" if is_default else ""
        self.reporter.message(f"training a vocabulary of {self.size:,} tokens{advice}: {path}")
        self._train([*training], path, workers, report=self.reporter.message if is_default else warn)
        return path

    def _train(self, files: Sequence[Path], path: Path, workers: int, report: Callable[[str], None] = warn) -> None:
        from bertprep.instances import load_vocabulary
        from bertprep.text.train_vocabulary import train_vocabulary

        train_vocabulary(files, path, size=self.size, cased=self.cased, workers=workers, reporter=self.reporter)
        if (tokens := len(load_vocabulary(path))) < self.size:
            report(f"{path}: has {tokens:,} tokens, not {self.size:,}: this text gives no more")


REQUEST = Vocab
train_vocabulary = function_of(Vocab, Vocab.train_vocabulary)


def run(request: Vocab) -> None:
    """Train, and print the path."""
    print_results(str(request.train_vocabulary()))


def find_vocabulary(workspace: Workspace, given: Path | str | None, default: str = DEFAULT_MODEL) -> Path:
    """Return the file `given`, or the vocabulary of that name: one of the workspace, or that of a downloaded model.

    Without `given` it is that of the model `default`.
    """
    vocab = default if given is None else given
    if (path := as_path(vocab)).exists():
        return path
    if not re.fullmatch(r"(\w[\w.-]*/)?\w[\w.-]*(?<!\.txt)", str(vocab)):
        raise UsageError(f"--vocab {vocab}: does not exist; name a vocab.txt, one token per line")
    trained = workspace.vocabularies(str(vocab))
    if len(trained) == 1:
        return trained[0]
    if trained:
        raise UsageError(f"--vocab {vocab}: names {len(trained)} vocabularies; choose one of {listed(list(map(str, trained)))}")
    for kind, model in product(("vocab", "weights"), (str(vocab), f"google-bert/{vocab}")):
        path = workspace.download(kind) / model / VOCABULARY
        if path.is_file():
            return path
    model = "" if str(vocab) in (DEFAULT_MODEL, DEFAULT_MODEL.partition("/")[2]) else f" --model {vocab}"
    command = f"bertprep download vocab{model}"
    if given is None:
        raise UsageError(
            f"the vocabulary of {default}, the default, is not downloaded; {command} fetches it, or --vocab FILE names another"
        )
    names = [path.stem for path in workspace.vocabularies()]
    choice = f" (it has {listed(names)})" if names else ""
    raise UsageError(
        f"--vocab {vocab}: is neither a file, nor a vocabulary in {workspace.root}{choice}; for that of a model, "
        f"{command} fetches it"
    )
