"""Show the examples of a record file: the first ones, those from a number on, or those that have a word.

On a terminal in colours and in lines of its width; elsewhere, and where NO_COLOR asks for it, as plain text, a line an
example.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np

from bertprep import records
from bertprep.check.example_text import describe, example_words, write_words
from bertprep.check.word_search import Phrase, find_phrase, make_phrase
from bertprep.errors import BertprepError, UsageError
from bertprep.instances import Vocabulary, load_vocabulary
from bertprep.records.examples import rows_in_block
from bertprep.records.reader import RecordFile
from bertprep.terminal import tell
from bertprep.workspace.layout import MANIFEST, SPLIT_NAMES, VOCABULARY
from bertprep.workspace.manifest import sha256_of_vocabulary
from bertprep.workspace.record_home import find_home, find_vocabulary

_SAMPLE = _BLOCK = 256  # records


def show_examples(
    path: Path, *, first: int = 0, count: int = 3, search: str | None = None, vocab: Path | None = None, pieces: bool = False
) -> None:
    """Print `count` examples of a record file from number `first` on; with `search` of those that have these words.

    Without `vocab` the vocabulary beside the records is taken. With `pieces` tokens are shown as they are.
    """
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name a record file in it, such as part-0")
    with records.open(path) as file:
        if not 0 <= first < len(file):
            raise UsageError(f"--record {first}: {path} holds records 0 to {len(file) - 1}")
        vocabulary = load_vocabulary(vocab or _vocabulary_beside(path))
        _check_vocabulary(file, vocabulary)
        chosen: dict[int, Collection[int]] = {}  # number of a record -> places that stand out
        about = [f"{path}: {file.format}, {len(file):,} records, {file.seq} tokens, {file.pred} predictions"]
        if search is None:
            chosen = dict.fromkeys(range(first, min(first + max(count, 0), len(file))), ())
        else:
            phrase = make_phrase(search, vocabulary)
            having = dict(_find_all(file, phrase))
            about.append(f'{len(having):,} of {len(file):,} records have "{phrase}"')
            chosen = {number: having[number] for number in [n for n in having if n >= first][: max(count, 0)]}
        tell(*about)
        examples = file[np.array(list(chosen), np.int64)]
        on_terminal = sys.stdout.isatty()
        colour = on_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        width = shutil.get_terminal_size().columns if on_terminal else None
        for row, (number, found) in enumerate(chosen.items()):
            words = example_words(examples, row, vocabulary, join=not pieces, found=found)
            tell("", f"record {number}: {describe(examples, row)}", write_words(words, width=width, colour=colour))


def _find_all(file: RecordFile, phrase: Phrase) -> Iterator[tuple[int, set[int]]]:
    """The records that have the phrase, in order, and the places of its tokens in each."""
    start = 0
    for examples in file.blocks(rows_in_block(_BLOCK, seq=file.seq, pred=file.pred)):
        rows, columns = find_phrase(examples, phrase)
        places: dict[int, set[int]] = {}
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            places.setdefault(row, set()).update(range(column, column + len(phrase.numbers)))
        yield from ((start + row, found) for row, found in places.items())
        start += len(examples)


def _check_vocabulary(file: RecordFile, vocabulary: Vocabulary) -> None:
    """Raise where the manifest names another vocabulary, or most of the first records cannot have been made with this one."""
    folder = file.path.absolute().parent
    home = find_home(folder.parent if folder.name in SPLIT_NAMES else folder)
    made_with = sha256_of_vocabulary(home.manifest) if home.manifest else None
    if made_with not in (None, vocabulary.sha256):
        raise BertprepError(
            f"{vocabulary.path}: is not the vocabulary that {file.path} was made with: sha256 {vocabulary.sha256[:16]}..., "
            f"expected {made_with[:16]}... by {home.folder / MANIFEST}; name that: --vocab FILE"
        )
    examples = file[:_SAMPLE]
    first = examples.input_ids[:, 0]
    highest = np.maximum(examples.input_ids.max(axis=1), examples.masked_lm_ids.max(axis=1))
    wrong = np.flatnonzero((first != vocabulary.cls) | (highest >= len(vocabulary)))
    if 2 * len(wrong) > len(examples):
        record = wrong[0]
        found = f"begins with token {first[record]}, expected [CLS], which is {vocabulary.cls}"
        if highest[record] >= len(vocabulary):
            found = f"has token {highest[record]:,}, expected less than {len(vocabulary):,}, the number of its tokens"
        raise BertprepError(
            f"{vocabulary.path}: is not the vocabulary of {file.path}: record {record} {found}; name that with --vocab FILE"
        )


def _vocabulary_beside(path: Path) -> Path:
    if found := find_vocabulary(path.absolute().parent):
        return found
    raise UsageError(f"{path}: no {VOCABULARY} lies beside it; name the vocabulary with --vocab FILE")
