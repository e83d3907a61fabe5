"""`bertprep inspect`: the examples of a record file, or the documents of a token shard, from one on, or those with a word.

A terminal gets colours and lines of its width; otherwise, or if NO_COLOR is set, the output is plain text, one line per
example.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Collection, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from bertprep.commands import add_vocab
from bertprep.errors import BertprepError, UsageError
from bertprep.options import how_many, path_or_url, whole_number
from bertprep.terminal import tell
from bertprep.workspace.layout import MANIFEST, VOCABULARY
from bertprep.workspace.manifest import TEXT_SHARDS, TOKEN_SHARDS, sha256_of_vocabulary

if TYPE_CHECKING:
    from bertprep.check.word_search import Phrase
    from bertprep.instances import Vocabulary
    from bertprep.records.data_sets import DataSet
    from bertprep.records.reader import RecordFile

_SAMPLE = _BLOCK = 256  # records


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=path_or_url, help="a TFRecord, OFRecord, Arrow or Parquet file, or a token shard")
    parser.add_argument(
        "--record",
        type=whole_number,
        default=0,
        metavar="INT",
        help="first record, or document of a token shard, to show (default: %(default)s)",
    )
    parser.add_argument("--records", type=how_many, default=3, metavar="INT", help="how many to show (default: %(default)s)")
    parser.add_argument(
        "--search", metavar="WORD", help="show records or documents with this whole word, and say how many there are"
    )
    parser.add_argument("--pieces", action="store_true", help="show WordPiece tokens, not joined to words")
    add_vocab(parser)


def run(options: argparse.Namespace) -> None:
    """Print the examples."""
    if not options.file.exists():
        raise UsageError(f"{options.file}: does not exist; name a record file")
    show_examples(
        options.file,
        first=options.record,
        count=options.records,
        search=options.search,
        vocab=options.vocab,
        pieces=options.pieces,
    )


def show_examples(
    path: Path, *, first: int = 0, count: int = 3, search: str | None = None, vocab: Path | None = None, pieces: bool = False
) -> None:
    """Print `count` examples of a record file from record `first` on; with `search`, only of those that contain these words.

    Of a token shard documents are printed, a sentence a line; with `search`, only the sentences that contain the words.

    `vocab` defaults to the vocabulary beside the records. With `pieces`, word pieces are not joined to words.
    """
    import numpy as np

    from bertprep import records
    from bertprep.check.example_text import describe, example_words, write_words
    from bertprep.check.word_search import make_phrase
    from bertprep.instances import load_vocabulary
    from bertprep.records.data_sets import find_data_sets
    from bertprep.records.data_sets import search as search_folder

    if path.is_dir():
        files = (each.folder / name for each in search_folder(path) if each.kind != TEXT_SHARDS for name in each.files)
        example = next((f", such as {file}" for file in files), "")
        raise UsageError(f"{path}: is a folder; name a record file in it{example}")
    if path.suffix in (".bin", ".idx"):
        (data_set,) = find_data_sets([path])
        if data_set.kind == TOKEN_SHARDS:
            _show_documents(data_set, path, first=first, count=count, search=search, vocab=vocab, pieces=pieces)
            return
    with records.open(path) as file:
        if not 0 <= first < len(file):
            raise UsageError(f"--record {first}: {path} holds records 0 to {len(file) - 1}")
        (data_set,) = find_data_sets([path])
        if data_set.problem:
            raise data_set.problem
        vocabulary = load_vocabulary(vocab or _vocabulary_beside(data_set, path))
        _check_vocabulary(file, vocabulary, data_set)
        chosen: dict[int, Collection[int]] = {}  # record -> positions to highlight
        about = [f"{path}: {file.format}, {len(file):,} records, {file.seq} tokens, {_kind_in_words(file)}"]
        if search is None:
            chosen = dict.fromkeys(range(first, min(first + max(count, 0), len(file))), ())
        else:
            phrase = make_phrase(search, vocabulary)
            having = dict(_find_all(file, phrase))
            about.append(f'{len(having):,} of {len(file):,} records have "{phrase}"')
            chosen = {number: having[number] for number in [n for n in having if n >= first][: max(count, 0)]}
        tell(*about)
        examples = file[np.array(list(chosen), np.int64)]
        width, colour = _terminal()
        for row, (number, found) in enumerate(chosen.items()):
            words = example_words(examples, row, vocabulary, join=not pieces, found=found)
            tell("", f"record {number}: {describe(examples, row)}", write_words(words, width=width, colour=colour))


def _show_documents(
    data_set: DataSet, path: Path, *, first: int, count: int, search: str | None, vocab: Path | None, pieces: bool
) -> None:
    """Print documents of a token shard, each sentence in a line or more."""
    import numpy as np

    from bertprep.check.example_text import sentence_words, write_words
    from bertprep.check.word_search import find_in_text, make_phrase
    from bertprep.records.data_sets import load_vocabulary_of
    from bertprep.records.token_shards import read_token_shard

    if data_set.problem:
        raise data_set.problem
    vocabulary = load_vocabulary_of(data_set, vocab)
    shard = read_token_shard(path, vocabulary)
    if not 0 <= first < shard.documents:
        raise UsageError(f"--record {first}: {path} holds documents 0 to {shard.documents - 1}")
    about = f"{path}: {shard.documents:,} documents, {shard.sentences:,} sentences, {len(shard.tokens):,} tokens"
    chosen = range(first, min(first + max(count, 0), shard.documents))
    found: set[int] = set()  # tokens to highlight
    lines = [about]
    if search is not None:
        phrase = make_phrase(search, vocabulary)
        begins = find_in_text(shard.tokens[np.newaxis], phrase)[1]
        ends = begins + len(phrase.numbers) - 1
        begins = begins[np.equal(*(np.searchsorted(shard.sentence_starts, each, "right") for each in (begins, ends)))]
        sentences = np.searchsorted(shard.sentence_starts, begins, "right") - 1
        having = np.unique(np.searchsorted(shard.document_starts, sentences, "right") - 1)
        found = {position for begin in begins.tolist() for position in range(begin, begin + len(phrase.numbers))}
        lines.append(f'{len(having):,} of {shard.documents:,} documents have "{phrase}"')
        chosen = having[having >= first][: max(count, 0)].tolist()
    tell(*lines)
    width, colour = _terminal()
    for document in chosen:
        start, end = shard.document_starts[document : document + 2].tolist()
        bounds = shard.sentence_starts[start : end + 1].tolist()
        tell("", f"document {document}: {end - start:,} sentences, {bounds[-1] - bounds[0]:,} tokens")
        for begin, stop in pairwise(bounds):
            here = {position - begin for position in range(begin, stop) if position in found} if found else set()
            if found and not here:
                continue
            words = sentence_words(shard.tokens[begin:stop], vocabulary, join=not pieces, found=here)
            tell(write_words(words, width=width, colour=colour))


def _terminal() -> tuple[int | None, bool]:
    """(columns of the terminal, None where the output is none; whether to use colours)."""
    on_terminal = sys.stdout.isatty()
    colour = on_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return shutil.get_terminal_size().columns if on_terminal else None, colour


def _find_all(file: RecordFile, phrase: Phrase) -> Iterator[tuple[int, set[int]]]:
    """The records that contain the phrase, in order, with the positions of its tokens."""
    from bertprep.check.word_search import find_phrase
    from bertprep.records.examples import rows_in_block

    start = 0
    for examples in file.blocks(rows_in_block(_BLOCK, seq=file.seq, pred=file.pred, kind=file.kind)):
        rows, columns = find_phrase(examples, phrase)
        positions: dict[int, set[int]] = {}
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            positions.setdefault(row, set()).update(range(column, column + len(phrase.numbers)))
        yield from ((start + row, found) for row, found in positions.items())
        start += len(examples)


def _check_vocabulary(file: RecordFile, vocabulary: Vocabulary, data_set: DataSet) -> None:
    """Raise if the manifest names another vocabulary, or most of the first records cannot have been made with this one."""
    import numpy as np

    from bertprep.records import MaskedExamples

    made_with = sha256_of_vocabulary(data_set.manifest) if data_set.manifest else None
    if made_with not in (None, vocabulary.sha256):
        raise BertprepError(
            f"{vocabulary.path}: is not the vocabulary that {file.path} was made with: sha256 {vocabulary.sha256[:16]}..., "
            f"expected {made_with[:16]}... by {data_set.home.folder / MANIFEST}; name that with --vocab FILE"
        )
    examples = file[:_SAMPLE]
    first = examples.input_ids[:, 0]
    highest = examples.input_ids.max(axis=1)
    if isinstance(examples, MaskedExamples):
        highest = np.maximum(highest, examples.masked_lm_ids.max(axis=1))
    wrong = np.flatnonzero((first != vocabulary.cls) | (highest >= len(vocabulary)))
    if 2 * len(wrong) > len(examples):
        record = wrong[0]
        found = f"begins with token {first[record]}, expected [CLS], which is {vocabulary.cls}"
        if highest[record] >= len(vocabulary):
            found = f"has token {highest[record]:,}, expected less than {len(vocabulary):,}, the number of its tokens"
        raise BertprepError(
            f"{vocabulary.path}: is not the vocabulary of {file.path}: record {record} {found}; name that with --vocab FILE"
        )


def _kind_in_words(file: RecordFile) -> str:
    return f"{file.pred} predictions" if file.pred else f"for {file.kind.title}"


def _vocabulary_beside(data_set: DataSet, path: Path) -> Path:
    if data_set.vocabulary:
        return data_set.vocabulary
    raise UsageError(f"{path}: has no {VOCABULARY} beside it; name the vocabulary with --vocab FILE")
