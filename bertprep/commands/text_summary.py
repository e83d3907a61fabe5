"""The report on what a text became, of each command that makes documents: files, documents, sentences, padding to expect.

A text of short documents gets a warning, which reaches callers in Python too; any other a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bertprep.commands.request import OfDocuments
from bertprep.files.paths import HEAD_BYTES, as_path
from bertprep.progress import Reporter
from bertprep.sources.documents import MEMORY, WHOLE, Source
from bertprep.terminal import counted, warn
from bertprep.text.blocks import FEW_SENTENCES, MANY_BLOCKS, check_blocks, read_blocks
from bertprep.text.padding import FIRST_FILES, LENGTHS, SAMPLE_BYTES, TextSample, describe_text, sample_shards
from bertprep.text.sentences import split_sentences
from bertprep.work.layout import LEDGER, MANIFEST, MAPPED

_ADVICE = (
    "with so few sentences most next sentences are random: join documents that are parts of one text, or pack sentences of "
    "several into a record with create --pairs none"
)


def ask_what_a_document_is(request: OfDocuments, sources: Sequence[Source], folder: Path, language: str = "en") -> None:
    """Raise `BertprepError` where plain text seems to be of paragraphs, before anything is made of it in `folder`.

    A request that says what a document is, or resumes an earlier run, is not asked.
    """
    if not request.one_document_per_block and not is_started(folder):
        check_blocks(sources, language)


def is_started(*folders: Path) -> bool:
    """Return whether an earlier run has started or finished files in one of these folders."""
    return any((folder / name).exists() for folder in folders for name in (MANIFEST, LEDGER, MAPPED))


def name_inputs(sources: Sequence[Source]) -> str:
    """Return the number of the sources, which are files or in memory."""
    return counted(len(sources), "data set" if any(each.reader == MEMORY for each in sources) else "file")


def report_shards(
    reporter: Reporter,
    inputs: str,
    counts: Mapping[str, int],
    shards: Sequence[Path],
    *,
    lengths: Sequence[int] = LENGTHS,
    is_meant: bool = False,
) -> None:
    """Report what `inputs` became: text shards with these `counts` of documents and, where they are known, sentences.

    Warns of short documents, unless the user said that they are meant (`is_meant`).
    """
    sample, documents = sample_shards(shards), counts["documents"]
    sentences = counts["sentences"] / documents if counts.get("sentences") else sample.sentences
    padding = {seq: sample.record_padding(seq) for seq in lengths}
    line = describe_text(f"{inputs} became {counted(documents, 'document')}", sentences, padding)
    if is_meant:
        reporter.message(line)
    else:
        _report(reporter, line, sentences, documents)


def _report(reporter: Reporter, line: str, sentences: float, documents: int) -> None:
    """Print the line, or warn where many documents have few sentences each."""
    if sentences < FEW_SENTENCES and documents >= MANY_BLOCKS:
        warn(f"{line}; {_ADVICE}")
    else:
        reporter.message(line)


def report_token_shards(reporter: Reporter, inputs: str, documents: int, texts: Iterable[str]) -> None:
    """Report what `inputs` became: token shards of so many documents, by the first of their texts."""
    sample, size = [], 0
    for text in texts:
        sample.append(split_sentences(text[:SAMPLE_BYTES]))
        size += len(text)
        if size >= SAMPLE_BYTES:
            break
    found = TextSample([each for each in sample if each])
    padding = {seq: found.row_padding(seq) for seq in LENGTHS}
    line = describe_text(f"{inputs} became {counted(documents, 'document')}", found.sentences, padding, "rows")
    reporter.message(f"{line}, where each document has rows of its own; packed rows have hardly any")


def report_books(reporter: Reporter, folder: Path, sources: Sequence[Source]) -> None:
    """Report what a folder of books becomes: each file is a document, whatever its blank lines.

    Warns where its files seem to be of many documents, or of a few sentences each.
    """
    books = [source.location for source in sources if source.reader == WHOLE]
    sizes = [as_path(location).stat().st_size for location in books]
    heads = [read_blocks([location]) for location in books[:FIRST_FILES]]
    sample = TextSample([[sentence for block in head.sentences for sentence in block] for head in heads])
    sampled_bytes = sum(min(HEAD_BYTES, size) for size in sizes[:FIRST_FILES])
    sentences_per_byte = sum(map(len, sample.documents)) / max(1, sampled_bytes)
    sentences = sentences_per_byte * sum(sizes) / max(1, len(books))
    padding = {seq: sample.record_padding(seq) for seq in LENGTHS}
    line = describe_text(f"{folder}: {counted(len(books), 'file')}, each one document", sentences, padding)
    are_documents = sum(each.has_a_sentence_a_line and len(each.blocks) >= MANY_BLOCKS for each in heads)
    if 2 * are_documents > len(heads):
        warn(
            f"{line}; but blank lines seem to separate documents: bertprep shard --input {folder} --one-document-per-block "
            "--corpus NAME takes each block as one"
        )
    else:
        _report(reporter, line, sentences, len(books))
