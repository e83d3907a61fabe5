"""`bertprep inspect`: print examples of a record file, documents of a token shard, or pages of a Wikimedia dump.

For a folder, those of its first file are printed.

On a terminal, lines have its width and, unless NO_COLOR is set, colours; elsewhere an example is one plain line.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from bertprep.commands.request import WithVocabulary
from bertprep.errors import BertprepError, UsageError
from bertprep.files.paths import as_path, path_arg
from bertprep.options import MAX_NUMBER, OPTIONS, described, option
from bertprep.terminal import counted, print_results
from bertprep.work.layout import TOKENIZER, TokenFile

if TYPE_CHECKING:
    from bertprep.check.show import Word
    from bertprep.instances import TokenizedShard, Vocabulary
    from bertprep.instances.document_tokenizer import DocumentTokenizer
    from bertprep.records.records import Records
    from bertprep.tokens.shard import TokenShard
    from bertprep.work.data_set import DataSet

_SAMPLE = 256  # most of the first records, this many, must fit the vocabulary
_TOKENS_SHOWN = 512
"""The maximum number of tokens to show of a document, which may be a book."""
_HEAD_LINES = 20


@dataclass(frozen=True, kw_only=True)
class Inspect(WithVocabulary):
    """The request of `inspect`: a file or folder, the first example to show, and how many."""

    group: ClassVar[str] = OPTIONS
    file: Path | str = field(
        kw_only=False,
        metadata=described(
            "a TFRecord, OFRecord, Arrow or Parquet file, a token shard, or a Wikimedia dump; or a folder, for its first file",
            metavar="FILE",
            check=path_arg,
            positional=True,
        ),
    )
    record: int = option(0, "number of the first record, document of a token shard or page of a dump to show")
    records: int = option(3, "number of records, documents or pages to show", least=1, most=MAX_NUMBER)


REQUEST = Inspect


def run(request: Inspect) -> None:
    """Print some examples, documents or pages; documents of sentences have one sentence per line."""
    from bertprep.check.show import write_words
    from bertprep.sources.kinds import is_dump

    if not (file := as_path(request.file)).exists():
        raise UsageError(f"{file}: does not exist; name a record file, a token shard, or a folder of them")
    width, colour = _terminal()
    if file.is_file() and is_dump(str(file)):
        from bertprep.commands.inspect_dump import show_pages

        show_pages(file, request.record, request.records, width)
        return
    heading = []
    if file.is_dir():
        folder = file
        file, files = _first_file(folder)
        heading.append(f"{folder}: showing the first of {counted(files, 'file')}")
    with _open(file, None if request.vocab is None else as_path(request.vocab)) as source:
        noun, total, first = source.noun, source.total, request.record
        if not 0 <= first < total:
            raise UsageError(f"--record {first}: {file} has {noun}s 0 to {total - 1}; choose one of these")
        heading.append(source.about)
        if source.legend:
            heading.append(source.legend)
        print_results(*heading)
        for number in range(first, min(first + request.records, total)):
            description, lines = source.show(number)
            shown = (write_words(words, width=width, colour=colour) for words in lines)
            if not print_results("", f"{noun} {number}: {description}", *shown):
                return


class _Source(Protocol):
    """The contents of a file: `total` items, called `noun`, and the words of each."""

    noun: str
    total: int
    about: str
    legend: str  # a line that explains the notation, or ""

    def show(self, number: int) -> tuple[str, list[list[Word]]]:
        """Return a description of an item, and the words of each of its lines."""


@contextmanager
def _open(path: Path, vocab: Path | None) -> Iterator[_Source]:
    from bertprep import records
    from bertprep.instances.vocabulary import load_vocabulary_of
    from bertprep.sources.kinds import describe_text
    from bertprep.tokens.mds import tell_who_reads
    from bertprep.tokens.shard import TokenShard
    from bertprep.work.find import MDS_SUFFIX, find_data_sets
    from bertprep.work.manifest import TOKEN_SHARDS

    if path.suffix == MDS_SUFFIX:
        raise UsageError(tell_who_reads(path, path.parent))
    if path.suffix not in (".bin", ".idx") and (kind := describe_text(str(path))):
        import shlex

        shown_by = f"head -n {_HEAD_LINES} {shlex.quote(str(path))}"
        raise UsageError(f"{path}: is {kind}, expected records or a token shard; to show the text, run {shown_by}")
    (data_set,) = find_data_sets([path])
    if path.suffix in (".bin", ".idx"):
        if data_set.manifest and data_set.manifest.tokenizer:
            yield _open_ids(path, data_set, vocab)
            return
        if data_set.content == TOKEN_SHARDS:
            vocabulary = load_vocabulary_of(data_set, vocab)
            yield _Sentences(path, TokenShard(path.with_suffix(f".{TokenFile.BIN}")).read(vocabulary), vocabulary)
            return
    with records.open(path) as file:
        vocabulary = load_vocabulary_of(data_set, vocab)
        _check_fits(file, vocabulary)
        names = data_set.manifest.made_with.get("labels", ()) if data_set.manifest else ()
        yield _Records(file, vocabulary, names)


def _first_file(folder: Path) -> tuple[Path, int]:
    """Return the first record file or token shard in a folder, and the number of such files.

    If the folder has only text shards or MDS, return the first of those: `_open` then raises an error that says what to do.
    """
    from bertprep.work.find import find_data_sets
    from bertprep.work.manifest import MDS, TEXT_SHARDS

    data_sets = find_data_sets([folder])
    shown = [each for each in data_sets if each.content not in (TEXT_SHARDS, MDS)] or data_sets
    files = [each.folder / name for each in shown for name in each.files]
    # text shards are found with both splits where the folder of one is named
    in_folder = [folder / file.name for file in files if file.absolute().parent == folder.absolute()]
    return next((file for file in (*in_folder, *files) if file.exists()), files[0]), len(files)


def _open_ids(path: Path, data_set: DataSet, vocab: Path | None) -> _Ids:
    from bertprep.instances.document_tokenizer import DocumentTokenizer
    from bertprep.tokens.documents import open_token_documents

    if vocab is not None:
        raise UsageError(
            f"--vocab {vocab}: is not for whole documents, which have their {TOKENIZER} next to them; leave it out"
        )
    kept = data_set.folder / TOKENIZER
    tokenizer = DocumentTokenizer(kept, kept.name) if kept.is_file() else None
    [shard] = open_token_documents(path.with_suffix(f".{TokenFile.BIN}")).shards
    return _Ids(path, shard, tokenizer)


class _Ids:
    """Whole documents, shown as text if their tokenizer is available, else as ids."""

    noun = "document"
    legend = ""

    def __init__(self, path: Path, shard: TokenShard, tokenizer: DocumentTokenizer | None) -> None:
        self.total = shard.sizes[0]
        self._shard, self._tokenizer = shard, tokenizer
        self.about = f"{path}: {counted(self.total, self.noun)}" + (
            "" if tokenizer else f"; no {TOKENIZER} is next to them, so ids are shown"
        )

    def show(self, number: int) -> tuple[str, list[list[Word]]]:
        from bertprep.check.show import Token

        begin, end = self._shard.starts[number : number + 2].tolist()
        ids: list[int] = self._shard.tokens[begin : min(end, begin + _TOKENS_SHOWN)].tolist()
        text = self._tokenizer.decode(ids) if self._tokenizer else " ".join(f"#{identity}" for identity in ids)
        lines = [[[Token(word, word, "plain", 0, in_answer=False)] for word in line.split(" ")] for line in text.split("\n")]
        return _describe_tokens(end - begin, len(ids)), lines


class _Records:
    noun = "record"

    def __init__(self, file: Records, vocabulary: Vocabulary, tags: Sequence[str]) -> None:
        """Open a record file; `tags` are the names of labels in records of tagged words."""
        from bertprep.check.show import legend

        self.vocabulary, self.total = vocabulary, len(file)
        self.legend = legend(file.kind)
        self._file, self._tags = file, tags
        kind = f"{file.pred} predictions" if file.pred else f"for {file.kind.title}"
        self.about = f"{file.path}: {file.format}, {counted(self.total, self.noun)}, {file.seq} tokens, {kind}"

    def show(self, number: int) -> tuple[str, list[list[Word]]]:
        from bertprep.check.show import describe, example_words

        examples = self._file[number : number + 1]
        return describe(examples, 0), [example_words(examples, 0, self.vocabulary, tags=self._tags)]


class _Sentences:
    """Documents whose sentences a vocabulary tokenized."""

    noun = "document"
    legend = ""

    def __init__(self, path: Path, shard: TokenizedShard, vocabulary: Vocabulary) -> None:
        self.vocabulary, self.total = vocabulary, shard.documents
        self._shard = shard
        sentences = counted(shard.sentences, "sentence")
        self.about = f"{path}: {counted(self.total, self.noun)}, {sentences}, {len(shard.tokens):,} tokens"

    def show(self, number: int) -> tuple[str, list[list[Word]]]:
        from bertprep.check.show import sentence_words

        shard = self._shard
        first, last = shard.document_starts[number : number + 2].tolist()
        bounds = shard.sentence_starts[first : last + 1].tolist()
        stop = min(bounds[-1], bounds[0] + _TOKENS_SHOWN)
        lines = [
            sentence_words(shard.tokens[begin : min(end, stop)], self.vocabulary)
            for begin, end in pairwise(bounds)
            if begin < stop
        ]
        tokens = _describe_tokens(bounds[-1] - bounds[0], stop - bounds[0])
        return f"{counted(last - first, 'sentence')}, {tokens}", lines


def _describe_tokens(tokens: int, shown: int) -> str:
    """Return the number of tokens in a document, and of those shown if these are fewer, in words."""
    return f"{tokens:,} tokens" + (f", the first {shown:,}" if shown < tokens else "")


def _terminal() -> tuple[int | None, bool]:
    """Return (columns of the terminal or None, whether to use colours)."""
    on_terminal = sys.stdout.isatty()
    colour = on_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return shutil.get_terminal_size().columns if on_terminal else None, colour


def _check_fits(file: Records, vocabulary: Vocabulary) -> None:
    import numpy as np

    ids = file[:_SAMPLE].input_ids
    wrong = np.flatnonzero((ids[:, 0] != vocabulary.cls) | (ids.max(axis=1) >= len(vocabulary)))
    if 2 * len(wrong) > len(ids):
        raise BertprepError(
            f"{vocabulary.path}: is not the vocabulary of {file.path}: record {wrong[0]} has ids that it lacks, or does not "
            "begin with its [CLS]; name the right vocabulary with --vocab FILE"
        )
