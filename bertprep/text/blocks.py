"""Detects plain text in which a blank line ends a paragraph, not a document, before anything is made from it.

In Google's format each line is a sentence and a blank line follows each document. In books, blank lines separate paragraphs.
Paragraphs that are read as documents become records that are mostly padding and have random next sentences. So the beginnings
of the first `FIRST_FILES` files are read, at most `HEAD_BYTES` of each. If their blocks look like paragraphs, the command stops
and the user chooses. This takes a few tenths of a second at most, whatever the size of the text.
"""

from __future__ import annotations

import contextlib
from codecs import BOM_UTF8, getincrementaldecoder
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np

from bertprep.config import BY_RULES
from bertprep.errors import BertprepError
from bertprep.files.paths import HEAD_BYTES, as_path, open_head
from bertprep.sources.documents import Source
from bertprep.sources.kinds import TEXT
from bertprep.sources.plain_text import GAP, ends_sentence, has_word
from bertprep.sources.readers import is_compressed, is_local, open_stream
from bertprep.text.padding import FEW_SENTENCES, FIRST_FILES, LENGTHS, MANY_BLOCKS, TextSample
from bertprep.text.sentences import split_documents, split_lines
from bertprep.text.wrapping import Counts
from bertprep.work.manifest import TEXT_SHARDS, read_manifest

_MAX_BLOCKS = 1000  # no further file is read after this many
FILE_OR_BLOCK = (
    "--one-document-per-file if each file is a document, or --one-document-per-block if each block between blank lines is one"
)


@dataclass(frozen=True)
class Blocks:
    """Blocks of lines that blank lines separate, from the beginnings of plain text files; `files` is the number of files."""

    files: int
    blocks: Sequence[Sequence[str]]
    language: str = "en"

    @cached_property
    def sentences(self) -> list[list[str]]:
        """Return the sentences of each block, as if the block were a document."""
        return self._split(["\n".join(block) for block in self.blocks])

    @property
    def lines(self) -> int:
        return sum(map(len, self.blocks))

    @cached_property
    def lines_of_several(self) -> int:
        """Return the number of lines that contain several sentences."""
        return sum(len(found) > 1 for found in self._split([line for block in self.blocks for line in block]))

    def _split(self, texts: Sequence[str]) -> list[list[str]]:
        return [*split_documents(texts, BY_RULES, self.language, Counts())]

    @property
    def of_one_line(self) -> int:
        return sum(len(block) == 1 for block in self.blocks)

    @property
    def wrapped_lines(self) -> int:
        """Return the number of lines that end without ending a sentence and are followed by a lowercase letter."""
        if not self._has_capitals:  # without capitals, a lowercase letter proves nothing
            return 0
        pairs = (pair for block in self.blocks for pair in pairwise(block))
        return sum(not ends_sentence(line) and after[:1].islower() for line, after in pairs)

    @property
    def _has_capitals(self) -> bool:
        return any(line != line.lower() for block in self.blocks for line in block)

    @property
    def has_a_sentence_a_line(self) -> bool:
        """Whether this is Google's format: most blocks have several lines, most lines are one sentence, and few are wrapped."""
        if 2 * self.of_one_line >= len(self.blocks):
            return False
        ended = sum(ends_sentence(line) for block in self.blocks for line in block)
        are_sentences = 2 * ended > self.lines and 2 * self.lines_of_several < self.lines
        return are_sentences and 4 * self.wrapped_lines < self.lines

    @property
    def are_paragraphs(self) -> bool:
        """Whether there are many blocks of few sentences, not in Google's format: paragraphs, or very short documents."""
        if len(self.blocks) < MANY_BLOCKS * self.files or self.has_a_sentence_a_line:
            return False
        return bool(self.blocks) and self.sentences_of_a_block < FEW_SENTENCES

    @property
    def sentences_of_a_block(self) -> float:
        """Return the median number of sentences in a block."""
        return float(np.median([len(block) for block in self.sentences]))

    def describe(self, all_files: int) -> str:
        """Describe the blocks for a message; `all_files` is the number of files of the text."""
        files = f"{self.files} files" if self.files == all_files else f"the first {self.files} of {all_files:,} files"
        return (
            f"the first {len(self.blocks):,} blocks between blank lines in {'the file' if all_files == 1 else files} have a "
            f"median of {self.sentences_of_a_block:g} sentences"
        )

    def describe_records(self) -> str:
        """Describe the records that the blocks would make as documents, for a message."""
        padding = TextSample(self.sentences).record_padding(LENGTHS[-1])
        return f"make records of {LENGTHS[-1]} tokens with {padding:.0%} padding and mostly random next sentences"


def read_blocks(locations: Sequence[str], language: str = "en") -> Blocks:
    """Return the blocks at the beginnings of plain text files, without those of files that cannot be read.

    Such a file is reported later, when all of it is read.
    """
    blocks: list[list[str]] = []
    files = 0
    for location in locations[:FIRST_FILES]:
        with contextlib.suppress(BertprepError, OSError, UnicodeDecodeError):
            blocks += _blocks_of(location)
            files += 1
        if len(blocks) >= _MAX_BLOCKS:
            break
    return Blocks(files, blocks, language)


def check_blocks(sources: Sequence[Source], language: str = "en", *, makes_pairs: bool = True) -> None:
    """Raise `BertprepError` if the blocks of plain text seem to be paragraphs, not documents.

    Only sources in which blank lines separate documents are checked. `makes_pairs` is false for token shards of whole
    documents, whose rows have no pairs of sentences.
    """
    locations = [source.location for source in sources if source.reader == TEXT]
    found = read_blocks(locations, language)
    if found.are_paragraphs:
        result = found.describe_records() if makes_pairs else "give the model no more context than that"
        raise BertprepError(
            f"--input {locations[0]}: what is a document? {found.describe(len(locations))}; as documents they would {result}; "
            f"give {FILE_OR_BLOCK}; nothing was made"
        )


def _blocks_of(location: str) -> Iterator[list[str]]:
    is_plain = is_local(location) and not is_compressed(location)
    with open_head(as_path(location)) if is_plain else open_stream(location) as file:
        head = file.read(HEAD_BYTES)
    text = getincrementaldecoder("utf-8")().decode(head.removeprefix(BOM_UTF8))  # drops an incomplete last character
    if len(head) == HEAD_BYTES:  # the last block may be incomplete
        text = text.rpartition("\n\n")[0] or text
    for block in GAP.split(text):
        if has_word(block):
            yield split_lines(block)


def check_lines_are_sentences(paths: Sequence[Path]) -> None:
    """Raise `BertprepError` if text files do not seem to have one sentence per line.

    That is the case if most lines contain several sentences or continue on the next line, or if most documents have only one
    line. The beginnings of the first files are checked, except for text shards that a manifest lists.
    """
    head = read_blocks([str(path) for path in paths if not _is_listed(path)])
    if 2 * head.lines_of_several > head.lines:
        why = f"{head.lines_of_several:,} of its first {head.lines:,} lines contain several sentences"
    elif 2 * head.of_one_line > len(head.blocks):
        why = f"{head.of_one_line:,} of its first {len(head.blocks):,} documents have only one line"
    elif 2 * head.wrapped_lines > head.lines:
        why = f"{head.wrapped_lines:,} of its first {head.lines:,} lines continue on the next one"
    else:
        return
    how = f" (with {FILE_OR_BLOCK})" if head.are_paragraphs else ""
    raise BertprepError(
        f"--input {paths[0]}: does not have one sentence per line: {why}, so next sentences would be random; split the text "
        f"into sentences with bertprep shard --input FILES --corpus NAME{how}, then run create --corpus NAME, or keep the "
        "lines as they are with --lines-are-sentences"
    )


def _is_listed(path: Path) -> bool:
    for folder in (path.parent, path.parent.parent):
        with contextlib.suppress(BertprepError):  # a file that is not a manifest lists nothing
            manifest = read_manifest(folder)
            if manifest and manifest.kind == TEXT_SHARDS and path.relative_to(folder).as_posix() in manifest.files:
                return True
    return False
