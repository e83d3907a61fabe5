"""The padding that is forecast, next to that of records that were made."""

from pathlib import Path

import numpy as np
import pytest

import bertprep
from bertprep.text.padding import TextSample, describe_text, sample_shards
from tests.corpora import write_books


def test_the_forecast_is_near_the_padding_of_records(tmp_path: Path) -> None:
    """Of 40 books of 60 sentences: as 40 documents, which differ by chance, and as more than eight hundred."""
    books = write_books(tmp_path / "text", 40)
    vocab = None
    for answer, tolerance in (("one_document_per_file", 0.06), ("one_document_per_block", 0.025)):
        where = {"workdir": tmp_path / answer, "corpus": "books"}
        bertprep.shard(books, **where, shards=1, test_fraction=0, **{answer: True})
        sample = sample_shards([tmp_path / answer / "sharded" / "books" / "training" / "books_training_00000.txt"])
        vocab = vocab or bertprep.train_vocabulary(**where, size=5000)
        for seq, pred in ((128, 20), (512, 80)):
            made = bertprep.create(**where, seq=seq, pred=pred, vocab=vocab, formats="tfrecord", dupe=20)
            [outcome] = bertprep.validate([made.folders["tfrecord"]])
            assert sample.record_padding(seq) == pytest.approx(outcome.counts["training"].padding_share, abs=tolerance)


def test_the_sample_is_the_beginning_of_several_shards(tmp_path: Path) -> None:
    shards = []
    for number in range(3):
        shards.append(tmp_path / f"{number}.txt")
        shards[-1].write_text(f"Document {number}.\nIt has two sentences.\n\nAnother one.\n\n")
    sample = sample_shards(shards)
    assert sample.documents == [
        each for number in range(3) for each in ([f"Document {number}.", "It has two sentences."], ["Another one."])
    ]
    assert sample.sentences == 1.5


def test_rows_of_a_document_each() -> None:
    """A document of 300 words and a full stop in rows of 128 tokens, two of them special: three rows, the last of 79 words."""
    words = [["word " * 300 + "."]]
    assert TextSample(words).row_padding(128) == pytest.approx(1 - (331 + 3 * 2) / (3 * 128))


def test_longer_documents_have_less_padding() -> None:
    padding = [TextSample([["A sentence of six words ends."] * n] * 100).record_padding(128) for n in (1, 2, 5, 20, 200)]
    assert padding == sorted(padding, reverse=True)
    assert np.round(padding[0], 2) == 0.85  # both segments a sentence of 8 tokens, and three special ones: 19 of 128
    assert padding[-1] < 0.2  # the tenth of documents that give short records


def test_a_sample_without_sentences_has_no_padding() -> None:
    for documents in ([], [[]], [[], []]):
        assert TextSample(documents).record_padding(128) == 0
        assert TextSample(documents).sentences == 0


def test_the_line_is_for_people() -> None:
    line = describe_text("50 files became 50 documents", 52.64, {128: 0.0621, 512: 0.217})
    assert line == "50 files became 50 documents of 52.6 sentences; expect 6% padding in records of 128 tokens, 22% of 512"
    line = describe_text("2 files became 9 documents", 1200, {1024: 0.5}, of="rows, one document each,")
    assert (
        line == "2 files became 9 documents of 1,200.0 sentences; expect 50% padding in rows, one document each, of 1024 tokens"
    )
