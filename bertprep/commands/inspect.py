"""`bertprep inspect`: the examples of a record file, or the documents of a token shard, from one on, or those with a word.

A terminal gets colours and lines of its width; otherwise (or with NO_COLOR) an example is one plain line.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bertprep.commands.request import WithVocabulary
from bertprep.errors import BertprepError, UsageError
from bertprep.files.paths import as_path, path_arg
from bertprep.options import MAX_NUMBER, OPTIONS, described, option
from bertprep.terminal import counted, print_results
from bertprep.work.layout import TOKENIZER, TokenFile
from bertprep.work.manifest import MDS, TEXT_SHARDS, TOKEN_SHARDS

if TYPE_CHECKING:
    from bertprep.check.show import Phrase, Word
    from bertprep.instances import TokenizedShard, Vocabulary
    from bertprep.instances.document_tokenizer import DocumentTokenizer
    from bertprep.records.records import Records
    from bertprep.tokens.shard import TokenShard
    from bertprep.work.data_set import DataSet

_SAMPLE = _BLOCK = 256  # records


@dataclass(frozen=True, kw_only=True)
class Inspect(WithVocabulary):
    """Which examples of a file to show, from one on, or those with a word."""

    group: ClassVar[str] = OPTIONS
    file: Path | str = field(
        kw_only=False,
        metadata=described(
            "a TFRecord, OFRecord, Arrow or Parquet file, or a token shard",
            metavar="FILE",
            check=path_arg,
            positional=True,
        ),
    )
    record: int = option(0, "first record, or document of a token shard, to show")
    records: int = option(3, "how many to show", least=1, most=MAX_NUMBER)
    search: str | None = option(
        None, "show records or documents with this whole word, and say how many there are", metavar="WORD"
    )


REQUEST = Inspect


def run(request: Inspect) -> None:
    """Print examples, or documents with a sentence a line, from one on; with `search` only those that contain these words."""
    from bertprep.check.show import write_words

    if not (file := as_path(request.file)).exists():
        raise UsageError(f"{file}: does not exist; name a record file")
    with _open(file, None if request.vocab is None else as_path(request.vocab)) as source:
        noun, total, first = source.noun, source.total, request.record
        if not 0 <= first < total:
            raise UsageError(f"--record {first}: {file} holds {noun}s 0 to {total - 1}")
        about, found = [source.about], {}
        chosen: Sequence[int] = range(first, min(first + request.records, total))
        if request.search is not None:
            phrase = source.phrase(request.search)
            found = source.find(phrase)
            about.append(f'{len(found):,} of {total:,} {noun}s have "{phrase}"')
            chosen = [number for number in found if number >= first][: request.records]
        print_results(*about)
        width, colour = _terminal()
        for number in chosen:
            description, lines = source.show(number, found.get(number, set()))
            print_results(
                "", f"{noun} {number}: {description}", *(write_words(words, width=width, colour=colour) for words in lines)
            )


@contextmanager
def _open(path: Path, vocab: Path | None) -> Iterator[Any]:
    from bertprep import records
    from bertprep.instances.vocabulary import load_vocabulary_of
    from bertprep.tokens.mds import tell_who_reads
    from bertprep.tokens.shard import TokenShard
    from bertprep.work.find import MDS_SUFFIX, find_data_sets, search

    if path.is_dir():
        files = (each.folder / name for each in search(path) if each.content not in (TEXT_SHARDS, MDS) for name in each.files)
        example = next((f", such as {file}" for file in files), "")
        raise UsageError(f"{path}: is a folder; name a record file in it{example}")
    if path.suffix == MDS_SUFFIX:
        raise UsageError(tell_who_reads(path, path.parent))
    if path.suffix in (".bin", ".idx"):
        (data_set,) = find_data_sets([path])
        if data_set.manifest and data_set.manifest.tokenizer:
            yield _open_ids(path, data_set)
            return
        if data_set.content == TOKEN_SHARDS:
            vocabulary = load_vocabulary_of(data_set, vocab)
            yield _Documents(path, TokenShard(path.with_suffix(f".{TokenFile.BIN}")).read(vocabulary), vocabulary)
            return
    with records.open(path) as file:
        (data_set,) = find_data_sets([path])
        vocabulary = load_vocabulary_of(data_set, vocab)
        _check_fits(file, vocabulary)
        yield _Records(file, vocabulary)


def _open_ids(path: Path, data_set: DataSet) -> _Ids:
    from bertprep.instances.document_tokenizer import DocumentTokenizer
    from bertprep.tokens.documents import open_token_documents

    kept = data_set.folder / TOKENIZER
    tokenizer = DocumentTokenizer(kept, kept.name) if kept.is_file() else None
    [shard] = open_token_documents(path.with_suffix(f".{TokenFile.BIN}")).shards
    return _Ids(path, shard, tokenizer)


class _Ids:
    """Documents of ids, shown as text if the tokenizer is there."""

    noun = "document"

    def __init__(self, path: Path, shard: TokenShard, tokenizer: DocumentTokenizer | None) -> None:
        self.total = shard.sizes[0]
        self._shard, self._tokenizer = shard, tokenizer
        self.about = f"{path}: {counted(self.total, self.noun)}" + ("" if tokenizer else f", no {TOKENIZER} next to them")

    def phrase(self, search: str) -> str:
        return search

    def find(self, phrase: str) -> dict[int, set[int]]:
        """Return those whose text has the phrase, not within a word."""
        words = re.compile(rf"(?<!\w){re.escape(phrase)}(?!\w)")
        return {number: set() for number in range(self.total) if words.search(self._text(number))}

    def show(self, number: int, found: set[int]) -> tuple[str, list[list[Word]]]:  # noqa: ARG002 - as others
        """Return a description of a document, and the words of its lines."""
        from bertprep.check.show import Token

        lines = self._text(number).split("\n")
        words = [[[Token(word, word, "plain", 0, is_found=False)] for word in line.split(" ")] for line in lines]
        return f"{len(self._ids(number)):,} tokens", words

    def _ids(self, number: int) -> list[int]:
        starts = self._shard.starts
        ids: list[int] = self._shard.tokens[starts[number] : starts[number + 1]].tolist()
        return ids

    def _text(self, number: int) -> str:
        ids = self._ids(number)
        return self._tokenizer.decode(ids) if self._tokenizer else " ".join(f"#{each}" for each in ids)


class _Records:
    noun = "record"

    def __init__(self, file: Records, vocabulary: Vocabulary) -> None:
        self.vocabulary, self.total = vocabulary, len(file)
        self._file = file
        kind = f"{file.pred} predictions" if file.pred else f"for {file.kind.title}"
        self.about = f"{file.path}: {file.format}, {counted(self.total, self.noun)}, {file.seq} tokens, {kind}"

    def phrase(self, search: str) -> Phrase:
        from bertprep.check.show import make_phrase

        return make_phrase(search, self.vocabulary)

    def find(self, phrase: Phrase) -> dict[int, set[int]]:
        """Return the records that contain the phrase, in order, with the positions of its tokens."""
        from bertprep.check.show import find_phrase
        from bertprep.records.examples import rows_in_block

        file, start = self._file, 0
        found: dict[int, set[int]] = {}
        for examples in file.blocks(rows_in_block(_BLOCK, seq=file.seq, pred=file.pred, kind=file.kind)):
            rows, columns = find_phrase(examples, phrase)
            for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
                found.setdefault(start + row, set()).update(range(column, column + len(phrase.numbers)))
            start += len(examples)
        return found

    def show(self, number: int, found: set[int]) -> tuple[str, list[list[Word]]]:
        from bertprep.check.show import describe, example_words

        examples = self._file[number : number + 1]
        return describe(examples, 0), [example_words(examples, 0, self.vocabulary, found=found)]


class _Documents:
    noun = "document"

    def __init__(self, path: Path, shard: TokenizedShard, vocabulary: Vocabulary) -> None:
        self.vocabulary, self.total = vocabulary, shard.documents
        self._shard = shard
        sentences = counted(shard.sentences, "sentence")
        self.about = f"{path}: {counted(self.total, self.noun)}, {sentences}, {len(shard.tokens):,} tokens"

    def phrase(self, search: str) -> Phrase:
        from bertprep.check.show import make_phrase

        return make_phrase(search, self.vocabulary)

    def find(self, phrase: Phrase) -> dict[int, set[int]]:
        """Return the documents with a sentence that contains the phrase, with the positions of its tokens."""
        import numpy as np

        from bertprep.check.show import find_in_text

        shard, size = self._shard, len(phrase.numbers)
        begins = find_in_text(shard.tokens[np.newaxis], phrase)[1]
        sentences, sentences_of_ends = (
            np.searchsorted(shard.sentence_starts, each, "right") - 1 for each in (begins, begins + size - 1)
        )
        documents = np.searchsorted(shard.document_starts, sentences, "right") - 1
        is_inside = sentences == sentences_of_ends
        found: dict[int, set[int]] = {}
        for document, begin in zip(documents[is_inside].tolist(), begins[is_inside].tolist(), strict=True):
            found.setdefault(document, set()).update(range(begin, begin + size))
        return found

    def show(self, number: int, found: set[int]) -> tuple[str, list[list[Word]]]:
        """Return a description of a document, and the words of its (matching) sentences."""
        from bertprep.check.show import sentence_words

        shard = self._shard
        first, last = shard.document_starts[number : number + 2].tolist()
        bounds = shard.sentence_starts[first : last + 1].tolist()
        lines = []
        for begin, end in pairwise(bounds):
            here = {position - begin for position in found if begin <= position < end}
            if here or not found:
                lines.append(sentence_words(shard.tokens[begin:end], self.vocabulary, found=here))
        return f"{counted(last - first, 'sentence')}, {bounds[-1] - bounds[0]:,} tokens", lines


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
            f"{vocabulary.path}: is not the vocabulary of {file.path}: record {wrong[0]} has tokens that it lacks, or does not "
            "begin with its [CLS]; name that with --vocab FILE"
        )
