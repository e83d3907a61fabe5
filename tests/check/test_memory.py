"""Validation of text that repeats without end: what is wrong is found, in some 100 MB."""

import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import bertprep
from bertprep import records
from bertprep.check.continuations import Continuations
from bertprep.check.finding import Finding
from bertprep.check.outcome import CheckedFile, Outcome
from bertprep.check.text_shards import check_text
from bertprep.commands.validate import validate
from bertprep.records import PretrainingExamples
from tests.check import VOCABULARY
from tests.golden import GOLDEN

MAX_BYTES = 100_000_000
THE = VOCABULARY.tokens.index("the")
RNG = random.Random(1)


def sentences(words: str, count: int, characters: int) -> str:
    """Documents of ten sentences, of letters drawn from `words`."""
    lines = ("".join(RNG.choices(words, k=characters)) for _ in range(count))
    return "\n\n".join("\n".join(line for _, line in zip(range(10), lines, strict=False)) for _ in range(count // 10))


def peak(check: Callable[[], list[Finding]]) -> tuple[list[str], int]:
    """Return the codes of what a check finds, and the bytes that it allocates at most."""
    tracemalloc.start()
    try:
        found = check()
        return sorted({finding.code for finding in found}), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def validated(folder: Path) -> list[Finding]:
    (outcome,) = validate([folder], workers=1)
    assert isinstance(outcome, Outcome)
    return outcome.findings


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        pytest.param(sentences("一二三四五六七八九", 2000, 20), ["unknown-tokens"], id="Chinese, an English vocabulary"),
        pytest.param("\n".join(["the " * 12] * 10 + [""]) * 300, [], id="one word"),
        pytest.param("the cat saw the dog .\nthen it ran to the house .\n\n" * 2000, ["padding-share"], id="one document"),
        pytest.param("the\n\n" * 2000, ["next-sentence-share", "padding-share"], id="documents of one word"),
    ],
)
def test_text_that_repeats(text: str, codes: list[str], tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    bertprep.create(
        inputs=[tmp_path / "text.txt"], lines_are_sentences=True, vocab=GOLDEN / "vocab.txt", dupe=1, seq=64, pred=10,
        formats="tfrecord", output=tmp_path, workers=1,
    )  # fmt: skip
    found, allocated = peak(lambda: validated(tmp_path / "tfrecord"))
    assert set(codes) <= set(found)
    assert allocated < MAX_BYTES


def block(rows: int = 2000) -> PretrainingExamples:
    """Records of [CLS] 60 tokens [SEP] 60 tokens [SEP] with one prediction, all of them equal."""
    examples = PretrainingExamples.empty(rows, seq=123, pred=1)
    for array in examples.arrays:
        array[...] = 0
    examples.input_ids[:] = THE
    examples.input_ids[:, 0] = VOCABULARY.cls
    examples.input_ids[:, [61, 122]] = VOCABULARY.sep
    examples.input_mask[:] = 1
    examples.segment_ids[:, 62:] = 1
    examples.masked_lm_positions[:] = 5
    examples.masked_lm_ids[:] = THE
    examples.masked_lm_weights[:] = 1
    examples.next_sentence_labels[:] = 1
    return examples


@pytest.mark.parametrize(
    ("token", "codes"),
    [
        (None, ["duplicate-records"]),
        (VOCABULARY.unk, ["no-cls", "separators"]),
        (VOCABULARY.pad, ["no-cls", "padding", "separators"]),
        (VOCABULARY.cls, ["no-cls", "separators"]),
        (VOCABULARY.sep, ["no-cls", "separators"]),
        (VOCABULARY.mask, ["no-cls", "separators"]),
    ],
)
def test_records_of_one_token(token: int | None, codes: list[str], tmp_path: Path) -> None:
    """With None valid records, each the same; else that token everywhere."""
    examples = block()
    if token is not None:
        examples.input_ids[:] = token
    (tmp_path / "vocab.txt").write_bytes((GOLDEN / "vocab.txt").read_bytes())
    records.write_examples([examples], {"tfrecord": tmp_path / "records.tfrecord"})
    found, allocated = peak(lambda: validated(tmp_path))
    assert set(codes) <= set(found)
    assert allocated < MAX_BYTES


@pytest.mark.parametrize("seq", [64, 512, 4096])
@pytest.mark.parametrize("distinct", [1, 2, 50, 100_000])
def test_the_text_of_any_records_is_compared_in_bounded_memory(distinct: int, seq: int) -> None:
    """The tokens of 2,048 records are drawn from this many, or for 50 stand in the same order in all records."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(10, 10 + distinct, (2048, seq), np.int32)
    if distinct == 50:
        tokens[:] = 10 + np.arange(seq) % 50
    _, allocated = peak(lambda: compare(tokens))
    assert allocated < MAX_BYTES


def compare(tokens: NDArray[np.int32]) -> list[Finding]:
    rows, seq = 64, tokens.shape[1]
    texts = Continuations(len(tokens), seq, VOCABULARY.sep)
    for start in range(0, len(tokens), rows):
        examples = PretrainingExamples.empty(rows, seq=seq, pred=1)
        for array in examples.arrays:
            array[...] = 0
        examples.input_ids[:] = tokens[start : start + rows]
        examples.input_ids[:, [seq // 2, seq - 1]] = VOCABULARY.sep
        examples.input_mask[:] = 1
        examples.segment_ids[:, seq // 2 + 1 :] = 1
        examples.next_sentence_labels[:] = 1
        texts.add(examples)
    texts.count()
    return []


@pytest.mark.parametrize("line", [b"\n", b" \n", b"\xff\n", b"\0\n"])
def test_text_of_bad_lines_alone(line: bytes, tmp_path: Path) -> None:
    text = line * 50_000
    (tmp_path / "a.txt").write_bytes(text)
    file = CheckedFile("a.txt", "", tmp_path)

    def check() -> list[Finding]:
        check_text(file)
        return file.findings

    found, allocated = peak(check)
    assert found
    assert allocated < 2_000_000  # the text, some 150 kB, is read as a unit
