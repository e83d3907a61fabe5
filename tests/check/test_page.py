"""The page of `validate --html` shows the outcome, loads nothing and escapes all data."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import bertprep
from bertprep.check.finding import Finding
from bertprep.check.outcome import CheckedFile, Outcome
from bertprep.check.page import Example, render, view
from bertprep.cli import main
from bertprep.instances import load_vocabulary
from bertprep.instances.vocabulary import Vocabulary
from bertprep.records.examples import PretrainingExamples
from tests.golden import GOLDEN

pytest.importorskip("matplotlib")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def vocabulary_of(*tokens: str) -> Vocabulary:
    return Vocabulary(Path("vocab.txt"), tokens, "0" * 64, pad=0, unk=1, cls=2, sep=3, mask=4)


@pytest.fixture(scope="module")
def made(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of records of two training files and one for testing."""
    workdir = tmp_path_factory.mktemp("made")
    bertprep.shard([golden_corpus], splitter="lines", shards=2, workdir=workdir, corpus="books", workers=1)
    settings = {"seq": 32, "pred": 5, "dupe": 1, "vocab": GOLDEN / "vocab.txt", "formats": "tfrecord", "workers": 1}
    return bertprep.create(workdir=workdir, corpus="books", **settings).folders["tfrecord"]


@pytest.fixture(scope="module")
def outcome(made: Path) -> Outcome:
    (found,) = bertprep.validate([made], workers=1)
    return found


@pytest.fixture(scope="module")
def examples(made: Path) -> list[Example]:
    with bertprep.records.open(path := made / "training/books_training_00000.tfrecord") as file:
        return [Example(str(path), row, file[row : row + 1]) for row in range(20)]


def page(outcome: Outcome, examples: list[Example] | None = None, vocabulary: Vocabulary | None = None) -> str:
    return render([view(outcome, examples or [], vocabulary)])


def text_of(html: str) -> str:
    """What a reader sees, white space set aside; the drawings are left out."""
    plain = re.sub(r"<svg.*?</svg>", "", html, flags=re.DOTALL)
    body = ElementTree.fromstring(plain).find("body")
    assert body is not None
    return re.sub(r"\s+", " ", "".join(body.itertext()))


def assert_loads_nothing(html: str) -> None:
    assert not re.search(r"<(script|link|img|iframe|object|embed|base|image)\b|\son\w+=|url\((?!#)|@import", html)
    assert not re.search(r"(src|href|srcset|action|data)=\"(?!#)", html)


def test_the_page_shows_all_counts(outcome: Outcome, examples: list[Example]) -> None:
    vocabulary = load_vocabulary(GOLDEN / "vocab.txt")
    html = page(outcome, examples[:3], vocabulary)
    assert html == page(outcome, examples[:3], vocabulary)
    assert_loads_nothing(html)
    text = text_of(html)
    records = outcome.counts["training"].records
    for shown in (
        "books: BERT training data, tfrecord 32/5", "seed12345", f"training2{records:,}", "no errors, no warnings: ", "[UNK]",
        "B is random",
    ):  # fmt: skip
        assert shown in text
    assert text.count("and is the next sentence") + text.count("and is a random text") == 3
    charts = re.findall(r'<div class="chart" role="img" aria-label="(\w+)', html)
    assert charts == ["Length", "Segment", "Predictions", "Position"]


def test_the_mean_lengths_of_a_and_b_leave_out_special_tokens(made: Path) -> None:
    path = made / "training/books_training_00000.tfrecord"
    (outcome,) = bertprep.validate([path], workers=1)
    with bertprep.records.open(path) as file:
        masks, segments = file[:].input_mask, file[:].segment_ids
    mean_b = segments.sum(axis=1).mean() - 1  # [SEP]
    mean_a = (masks - segments).sum(axis=1).mean() - 2  # [CLS] and [SEP]
    assert f"A has {mean_a:.1f} tokens on average, B {mean_b:.1f}, without [CLS] and [SEP]." in page(outcome)


def test_the_page_of_text_shows_the_lengths_of_documents(made: Path) -> None:
    (text,) = bertprep.validate([made.parents[2] / "sharded"], workers=1)
    html = page(text)
    assert "books: text shards" in text_of(html)
    assert re.findall(r'<div class="chart" role="img" aria-label="(\w+)', html) == ["Documents"]
    assert re.search(r"A document has \d+\.\d sentences on average", html)


def test_errors_come_first_and_findings_are_grouped(outcome: Outcome) -> None:
    findings = [Finding("file-sizes", "", "as many in each", "other numbers", level="warning")]
    findings += [Finding("weights", f"training/{n:05d}", "1 and then 0", "0.5", 3, 12) for n in range(5000)]
    text = text_of(page(replace(outcome, findings=findings, sampled=True)))
    assert text.index("Errors") < text.index("How it was made") < text.index("All findings")
    assert "5,000 errors, 1 warning: " in text
    assert "training/00000, record 3: expected 1 and then 0, found 0.5 (12 records)" in text
    assert "… and 4,980 more" in text
    assert "the whole data set: expected as many in each, found other numbers" in text
    assert "A sample of the records was checked; duplicates and checksums were not." in text


def test_thousands_of_files_and_long_records_keep_the_page_small(outcome: Outcome) -> None:
    files = [CheckedFile(f"training/part-{number}", "training", records=1000 + number % 7) for number in range(4096)]
    long = PretrainingExamples(*(np.ones_like(array) for array in PretrainingExamples.empty(1, seq=1024, pred=160).arrays))
    html = page(replace(outcome, files=files), [Example("part-0", 0, long)] * 20, load_vocabulary(GOLDEN / "vocab.txt"))
    assert "512 more tokens" in html
    assert len(html.encode()) < 500_000


def test_tokens_names_and_findings_are_never_markup(outcome: Outcome, examples: list[Example]) -> None:
    strange = ("<script>alert(1)</script>", "&amp;", '"', "'", "שלום", "\u202eevil", "\x01", "]]>", "<!--", "##<b>")
    finding = Finding("bad-message", "<i>.tfrecord", "<tag> 0A", '"&" \x00', 1)
    changed = replace(outcome, findings=[finding], folder=Path("a<b>&c"))
    html = page(changed, examples, vocabulary_of(*SPECIAL, *strange * 300))
    assert_loads_nothing(html)
    text = text_of(html)
    for token in ("<script>alert(1)</script>", "&amp;", "שלום", "]]>", "<!--", "<i>.tfrecord, record 1: expected <tag> 0A"):
        assert token in text
    assert not [character for character in ("\x00", "\x01", "\u202e") if character in html]


def test_an_example_is_text_with_marked_predictions(outcome: Outcome) -> None:
    tokens = vocabulary_of(*SPECIAL, "the", "states", "ad", "##mit", "##ted", "of", "new")
    one = PretrainingExamples(*(np.zeros_like(array) for array in PretrainingExamples.empty(1, seq=12, pred=3).arrays))
    one.input_ids[0, :9] = 2, 5, 4, 3, 7, 8, 10, 11, 3  # [CLS] the [MASK] [SEP] ad ##mit of new [SEP]
    one.input_mask[0, :9] = 1
    one.segment_ids[0, 4:9] = 1
    one.masked_lm_positions[0] = 2, 5, 6
    one.masked_lm_ids[0] = 6, 8, 9  # states, ##mit as it was, ##ted shown as "of"
    one.masked_lm_weights[0] = 1
    html = page(outcome, [Example("part-0", 12345, one)], tokens)
    assert "9 of 12 tokens, B has 5 and is the next sentence, 3 predictions" in html
    assert ">part-0</code>, record 12,345<" in html
    assert '<span class="a"><small>[CLS]</small> the <mark class="masked" title="predicted; shown as [MASK]">' in html
    assert '<span class="b">ad<mark class="kept" title="predicted; unchanged">mit</mark>' in html
    assert "<s>of</s> ##ted</mark> new <small>[SEP]</small></span>" in html


def test_without_manifest_vocabulary_and_readable_records(outcome: Outcome, examples: list[Example]) -> None:
    html = page(replace(outcome, manifest=None), examples)
    assert "There is no manifest.json next to the files" in html
    assert "No vocabulary is known" in html
    finding = Finding("truncated", "a.tfrecord", "a whole record", "its beginning", 0)
    files = [CheckedFile("a.tfrecord", "", size_bytes=3)]
    text = text_of(page(Outcome(Path("x"), "tfrecord", None, None, files=files, findings=[finding])))
    assert "1 error, no warnings: nothing in 1 file" in text
    assert "Masking and next sentences" not in text


def test_the_command_writes_a_page_of_all_that_it_checked(made: Path, tmp_path: Path) -> None:
    sets = [bertprep.convert(made, tmp_path / to / "books", to=to, workers=1).folder for to in ("ofrecord", "tfrecord")]
    corrupt = sorted((sets[1] / "training").iterdir())[1]
    corrupt.write_bytes(corrupt.read_bytes()[:-5])
    assert main(["validate", str(tmp_path), "--workers", "1", "--html", str(tmp_path / "page.html")]) == 1
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert_loads_nothing(html)
    index = re.findall(r'<li><a href="#set-(\d)">([^<]+)</a>, <span class="(\w+)">(\d error|no error)', html)
    assert index == [
        ("1", "books: BERT training data, ofrecord 32/5", "good", "no error"),
        ("2", "books: BERT training data, tfrecord 32/5", "error", "3 error"),
    ]
    text = text_of(html)
    assert corrupt.name in text.partition("Errors")[2]
    assert text.count("Masking and next sentences") == 2
    assert " the " in text.partition("Examples")[2]  # the vocabulary beside the records names the tokens
