"""What ends a document of plain text: a blank line, or the end of the file?

Google's format has a sentence a line and a blank line after each document; books have paragraphs between blank lines. Read as
documents, these give records of padding, in which next sentences are random. So the beginning of the text is looked at, at most
`HEAD_BYTES` of each of the first `FIRST_FILES` files, and where its blocks of lines look like paragraphs, the user is asked,
before anything is made. Costs a few tenths of a second at most, whatever the size of the text.
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

from bertprep.errors import BertprepError
from bertprep.files.paths import HEAD_BYTES, as_path, open_head
from bertprep.sources.documents import TEXT, Source
from bertprep.sources.plain_text import GAP, ends_sentence, has_word
from bertprep.sources.readers import is_local, open_stream, suffixes
from bertprep.text.padding import FEW_SENTENCES, FIRST_FILES, LENGTHS, MANY_BLOCKS, TextSample
from bertprep.text.sentences import split_lines, split_sentences
from bertprep.work.manifest import TEXT_SHARDS, read_manifest

_MAX_BLOCKS = 1000  # more files are then not read
FILE_OR_BLOCK = (
    "--one-document-per-file if each file is a document, or --one-document-per-block if each block between blank lines is one"
)


@dataclass(frozen=True)
class Blocks:
    """The blocks of lines, between blank lines, at the beginning of so many plain text files."""

    files: int
    blocks: Sequence[Sequence[str]]
    language: str = "en"

    @cached_property
    def sentences(self) -> list[list[str]]:
        """Return the sentences that each block has as a document."""
        return [split_sentences("\n".join(block), self.language) for block in self.blocks]

    @property
    def lines(self) -> int:
        return sum(map(len, self.blocks))

    @cached_property
    def lines_of_several(self) -> int:
        """Return the number of lines that hold several sentences."""
        return sum(len(split_sentences(line, self.language)) > 1 for block in self.blocks for line in block)

    @property
    def of_one_line(self) -> int:
        return sum(len(block) == 1 for block in self.blocks)

    @property
    def wrapped_lines(self) -> int:
        """Return the number of lines that plainly go on in the next one: without a sentence's end, before a small letter."""
        if not self._has_capitals:  # then a small letter tells nothing
            return 0
        pairs = (pair for block in self.blocks for pair in pairwise(block))
        return sum(not ends_sentence(line) and after[:1].islower() for line, after in pairs)

    @property
    def _has_capitals(self) -> bool:
        return any(line != line.lower() for block in self.blocks for line in block)

    @property
    def has_a_sentence_a_line(self) -> bool:
        """Whether it is Google's format: most blocks have several lines, and most lines are one sentence, hardly any a part."""
        if 2 * self.of_one_line >= len(self.blocks):
            return False
        ended = sum(ends_sentence(line) for block in self.blocks for line in block)
        are_sentences = 2 * ended > self.lines and 2 * self.lines_of_several < self.lines
        return are_sentences and 4 * self.wrapped_lines < self.lines

    @property
    def are_paragraphs(self) -> bool:
        """Whether the blocks are many, of few sentences each, and not in Google's format: paragraphs, or short documents."""
        if len(self.blocks) < MANY_BLOCKS * self.files or self.has_a_sentence_a_line:
            return False
        return bool(self.blocks) and self.sentences_of_a_block < FEW_SENTENCES

    @property
    def sentences_of_a_block(self) -> float:
        """Return the number of sentences in the median block."""
        return float(np.median([len(block) for block in self.sentences]))

    def describe(self) -> str:
        """Describe the blocks, and the records that they would become, for a message."""
        padding = TextSample(self.sentences).record_padding(LENGTHS[-1])
        files = "the file" if self.files == 1 else f"{self.files} files"
        return (
            f"the first {len(self.blocks):,} blocks between blank lines in {files} have {self.sentences_of_a_block:g} "
            f"sentences in the median; as documents they would make records of {LENGTHS[-1]} tokens with {padding:.0%} padding "
            "and mostly random next sentences"
        )


def read_blocks(locations: Sequence[str], language: str = "en") -> Blocks:
    """Return the blocks at the beginning of plain text files; a file that cannot be read is left to the reader of all of it."""
    blocks: list[list[str]] = []
    files = 0
    for location in locations[:FIRST_FILES]:
        with contextlib.suppress(BertprepError, OSError, UnicodeDecodeError):
            blocks += _blocks_of(location)
            files += 1
        if len(blocks) >= _MAX_BLOCKS:
            break
    return Blocks(files, blocks, language)


def check_blocks(sources: Sequence[Source], language: str = "en") -> None:
    """Raise `BertprepError` where the blocks of plain text seem to be paragraphs, not documents.

    Sources whose files are documents, or of another kind, are not looked at.
    """
    locations = [source.location for source in sources if source.reader == TEXT]
    found = read_blocks(locations, language)
    if found.are_paragraphs:
        raise BertprepError(
            f"--input {locations[0]}: what is a document? {found.describe()}; give {FILE_OR_BLOCK}; nothing was made"
        )


def _blocks_of(location: str) -> Iterator[list[str]]:
    is_plain = is_local(location) and not suffixes(location)[1]
    with open_head(as_path(location)) if is_plain else open_stream(location) as file:
        head = file.read(HEAD_BYTES)
    text = getincrementaldecoder("utf-8")().decode(head.removeprefix(BOM_UTF8))  # the last character may go on
    if len(head) == HEAD_BYTES:  # the last block may go on
        text = text.rpartition("\n\n")[0] or text
    for block in GAP.split(text):
        if has_word(block):
            yield split_lines(block)


def check_lines_are_sentences(paths: Sequence[Path]) -> None:
    """Raise `BertprepError` if most lines of text files hold several sentences or go on in the next, or most documents have
    one line.

    The beginning of the first files is judged, except for text shards of a manifest.
    """
    head = read_blocks([str(path) for path in paths if not _is_listed(path)])
    if 2 * head.lines_of_several > head.lines:
        why = f"{head.lines_of_several:,} of its first {head.lines:,} lines hold several sentences"
    elif 2 * head.of_one_line > len(head.blocks):
        why = f"{head.of_one_line:,} of its first {len(head.blocks):,} documents have one line only"
    elif 2 * head.wrapped_lines > head.lines:
        why = f"{head.wrapped_lines:,} of its first {head.lines:,} lines go on in the next one"
    else:
        return
    how = f" (with {FILE_OR_BLOCK})" if head.are_paragraphs else ""
    raise BertprepError(
        f"--input {paths[0]}: is not one sentence a line: {why}, so next sentences would be random; bertprep shard --input "
        f"FILES --corpus NAME{how} splits text into sentences, and create --corpus NAME takes these; --lines-are-sentences "
        "takes the lines as they are"
    )


def _is_listed(path: Path) -> bool:
    for folder in (path.parent, path.parent.parent):
        with contextlib.suppress(BertprepError):  # what is not a manifest lists nothing
            manifest = read_manifest(folder)
            if manifest and manifest.kind == TEXT_SHARDS and path.relative_to(folder).as_posix() in manifest.files:
                return True
    return False
