"""Reports what a command made from a text: the numbers of files, documents and sentences, and the padding to expect.

The report is a message, or a warning if the documents are short. Warnings also reach callers in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bertprep.files.paths import HEAD_BYTES, as_path
from bertprep.progress import Reporter
from bertprep.terminal import counted, warn
from bertprep.text.padding import (
    FEW_SENTENCES,
    FIRST_FILES,
    LENGTHS,
    MANY_BLOCKS,
    SAMPLE_BYTES,
    TextSample,
    describe_text,
    sample_shards,
)
from bertprep.tokens.next_sentences import describe_lone
from bertprep.work.layout import TEST, TRAINING
from bertprep.work.truncation import MANY_CUT_OFF, Truncation

if TYPE_CHECKING:
    from bertprep.sources.documents import Source
    from bertprep.tokens.make import Texts
    from bertprep.work.made import Made

_ADVICE = (
    "with so few sentences, most next sentences are random: join documents that are parts of one text, or pack sentences of "
    "several documents into a record with create --pairs none"
)


def name_inputs(sources: Sequence[Source]) -> str:
    """Return the number of sources in words, such as "3 files" or, if any is in memory, "1 data set"."""
    from bertprep.sources.documents import MEMORY

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
    """Report the text shards made from `inputs`; `counts` has the number of documents and, if known, of sentences.

    Warns if the documents are short, unless the user chose this layout with an option or was warned before (`is_meant`).
    """
    sample, documents = sample_shards(shards), counts["documents"]
    sentences = counts["sentences"] / documents if counts.get("sentences") else sample.sentences
    padding = {seq: sample.record_padding(seq) for seq in lengths}
    cut_off = {seq: sample.cut_off(seq) for seq in lengths}
    line = describe_text(f"{inputs} became {counted(documents, 'document')}", sentences, padding, cut_off)
    if is_meant:
        reporter.message(line)
    else:
        _report(reporter, line, sentences, documents)


def warn_of_lone_documents(shares: Mapping[str, Sequence[float]], *, made_from: str = "") -> None:
    """Warn about shards in which a single document has the text, or nearly all of it.

    `shares` has, for each split, the fraction of each shard that its largest document has (`next_sentences.largest_shares`).
    `made_from` is what records are made from: "text shards", "token shards" or the user's "files"; "" while text is sharded.
    """
    again = f"make the {made_from} again with " if made_from else ""
    without = f"make records without next sentences with {'' if made_from else 'create '}--pairs none"
    for split, only in ((TRAINING, "the text"), (TEST, "the test split")):
        of_split = shares.get(split, ())
        fault = describe_lone(of_split, "files" if made_from == "files" else f"{split} shards", only)
        if not fault:
            continue
        if made_from == "files":
            advice = "put several documents into each file, with a blank line after each"
        elif len(of_split) > 1:
            advice = f"{again or 'make '}fewer {'--shards' if again else 'shards with --shards'}, such as --shards 1"
        elif split == TEST:
            advice = f"{again}a larger --test-fraction" if again else "hold out more text with --test-fraction"
        else:
            advice = f"{again}blank lines between documents" if again else "separate documents by blank lines"
        warn(f"{fault}; {advice}, or {without if split == TRAINING else 'give more test documents with --test-input'}")


def report_given(
    reporter: Reporter, texts: Texts, made: Made, *, lengths: Sequence[int] = LENGTHS, is_meant: bool = False
) -> None:
    """Report on text files that are used as shards; `is_meant` is true if the user declared each line a sentence."""
    entries = made.manifest.files.values()
    counts = {count: sum(entry.get(count, 0) for entry in entries) for count in ("documents", "sentences")}
    paths = [shard.path for shard in texts.shards]
    report_shards(reporter, counted(len(paths), "file"), counts, paths, lengths=lengths, is_meant=is_meant)


def warn_of_truncation(made: Made, seq: int, *, are_users_lines: bool) -> None:
    """Warn if much of the text is in no record, because it is at the end of sentences that are longer than a record.

    `are_users_lines` is true if each line of the user's files was taken for a sentence.
    """
    truncation = Truncation.of_entries(made.manifest.files.values())
    if truncation is None or truncation.cut_off <= MANY_CUT_OFF:
        return
    if are_users_lines:
        advice = "split the text into sentences with bertprep shard, or make longer records with --seq"
    else:
        advice = (
            "make longer records with --seq, keep all tokens with --pairs none, or look at the text: it has few ends of "
            "sentences, or the vocabulary divides its words into many pieces"
        )
    warn(
        f"{truncation.cut_off:.1%} of the text's {truncation.text_tokens:,} tokens are in no record: "
        f"{counted(truncation.long_sentences, 'sentence')} {'has' if truncation.long_sentences == 1 else 'have'} more than the "
        f"{seq - 3:,} tokens that fit a record of {seq:,}, and the rest is cut off; {advice}"
    )


def _report(reporter: Reporter, line: str, sentences: float, documents: int) -> None:
    """Print the line, or warn where many documents have few sentences each."""
    if sentences < FEW_SENTENCES and documents >= MANY_BLOCKS:
        warn(f"{line}; {_ADVICE}")
    else:
        reporter.message(line)


def report_token_shards(reporter: Reporter, inputs: str, documents: int, texts: Iterable[str]) -> None:
    """Report the token shards made from `inputs`, with sentences and padding estimated from the first of `texts`."""
    from bertprep.text.sentences import split_sentences

    sample, size = [], 0
    for text in texts:
        sample.append(split_sentences(text[:SAMPLE_BYTES]))
        size += len(text)
        if size >= SAMPLE_BYTES:
            break
    found = TextSample([each for each in sample if each])
    padding = {seq: found.row_padding(seq) for seq in LENGTHS}
    line = describe_text(f"{inputs} became {counted(documents, 'document')}", found.sentences, padding, of="rows")
    reporter.message(f"{line} if each document has rows of its own; packed rows have hardly any padding")


def report_books(reporter: Reporter, folder: Path, sources: Sequence[Source]) -> None:
    """Report on a folder of books, where each file is one document even if it has blank lines.

    Warns if its files seem to contain many documents, or only a few sentences each.
    """
    from bertprep.sources.documents import WHOLE
    from bertprep.text.blocks import read_blocks

    books = [source.location for source in sources if source.reader == WHOLE]
    sizes = [as_path(location).stat().st_size for location in books]
    heads = [read_blocks([location]) for location in books[:FIRST_FILES]]
    sample = TextSample([[sentence for block in head.sentences for sentence in block] for head in heads])
    sampled_bytes = sum(min(HEAD_BYTES, size) for size in sizes[:FIRST_FILES])
    sentences_per_byte = sum(map(len, sample.documents)) / max(1, sampled_bytes)
    sentences = sentences_per_byte * sum(sizes) / max(1, len(books))
    padding = {seq: sample.record_padding(seq) for seq in LENGTHS}
    cut_off = {seq: sample.cut_off(seq) for seq in LENGTHS}
    line = describe_text(f"{folder}: {counted(len(books), 'file')}, each one document", sentences, padding, cut_off)
    are_documents = sum(each.has_a_sentence_a_line and len(each.blocks) >= MANY_BLOCKS for each in heads)
    if 2 * are_documents > len(heads):
        warn(
            f"{line}; but blank lines seem to separate documents; to make each block a document, run bertprep shard --input "
            f"{folder} --one-document-per-block --corpus NAME"
        )
    else:
        _report(reporter, line, sentences, len(books))
