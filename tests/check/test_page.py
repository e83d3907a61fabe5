"""The page of `validate --html` shows the outcome, loads nothing and escapes all data."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import bertprep
from bertprep.check.advice import ADVICE, MEANINGS
from bertprep.check.finding import Finding
from bertprep.check.labels import name_outcomes
from bertprep.check.outcome import CheckedFile, Outcome
from bertprep.check.page import Example, render, view, write_page
from bertprep.cli import main
from bertprep.instances import load_vocabulary
from bertprep.instances.vocabulary import Vocabulary
from bertprep.records.examples import PretrainingExamples
from tests.golden import GOLDEN

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
    return render([view(outcome, examples or [], vocabulary, "TFRecord: books, 32 tokens")])


def text_of(html: str) -> str:
    """What a reader sees, white space set aside; the drawings are left out."""
    plain = re.sub(r"<svg.*?</svg>", "", html, flags=re.DOTALL)
    body = ElementTree.fromstring(plain).find("body")
    assert body is not None
    return re.sub(r"\s+", " ", "".join(body.itertext()))


def charts_of(html: str) -> list[str]:
    """The titles of the charts, which are their text alternatives too."""
    return re.findall(r'<div class="chart" role="img" aria-label="([^."]+)', html)


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
        "TFRecord: books, 32 tokens", "Random seed12345, plus its number for each shard", f"{records:,}",
        "No errors, 2 warnings",
        "[UNK]", "Second segments from another document", "Frequent tokens", "Masked tokens15%", "version of NumPy",
    ):  # fmt: skip
        assert shown in text
    assert text.count("and is the next sentence") + text.count("and is a random text") == 3
    assert charts_of(html) == [
        "Length of records",
        "Length of segment A",
        "Masked tokens of a record",
        "Masking by position",
        "Length of sentences",
    ]
    assert "{" not in text  # no JSON


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
    assert charts_of(html) == ["Length of documents"]
    assert re.search(r"A document has \d+\.\d sentences on average", html)


def test_errors_come_first_and_findings_are_grouped(outcome: Outcome) -> None:
    findings = [Finding("file-sizes", "", "as many in each", "other numbers", level="warning")]
    findings += [Finding("weights", f"training/{n:05d}", "1 and then 0", "0.5", 3, 12) for n in range(5000)]
    text = text_of(page(replace(outcome, findings=findings, sampled=True)))
    assert text.index("error weights") < text.index("warning file-sizes") < text.index("Sequence length")
    assert "5,000 errors, 1 warning" in text
    assert MEANINGS["weights"] in text
    assert f"What to do: {ADVICE['file-sizes']}" in text
    assert "training/00000, record 3: expected 1 and then 0; found 0.5 (12 records)" in text
    assert "… and 4,980 more" in text
    assert "the whole data set: expected as many in each; found other numbers" in text
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
    assert ">part-0</code>, record 12,345 " in html
    assert '<span class="a"><small>[CLS]</small> the <mark class="masked" title="masked; shown as [MASK]">' in html
    assert '<span class="b">ad<mark class="kept" title="masked; shown unchanged">mit</mark>' in html
    assert "<s>of</s> ted</mark> new <small>[SEP]</small></span>" in html


def test_without_manifest_vocabulary_and_readable_records(outcome: Outcome, examples: list[Example]) -> None:
    html = page(replace(outcome, manifest=None), examples)
    assert "There is no manifest.json next to the files" in html
    assert "No vocabulary is known" in html
    finding = Finding("truncated", "a.tfrecord", "a whole record", "its beginning", 0)
    files = [CheckedFile("a.tfrecord", "", size_bytes=3)]
    text = text_of(page(Outcome(Path("x"), "tfrecord", None, None, files=files, findings=[finding])))
    assert "1 error, no warnings" in text
    assert "has checked nothing in 1 file" in text
    assert "Masking and next sentences" not in text


def test_the_command_writes_a_page_of_all_that_it_checked(made: Path, tmp_path: Path) -> None:
    sets = [bertprep.convert(made, tmp_path / to / "books", to=to, workers=1).folder for to in ("ofrecord", "tfrecord")]
    corrupt = sorted((sets[1] / "training").iterdir())[1]
    corrupt.write_bytes(corrupt.read_bytes()[:-5])
    assert main(["validate", str(tmp_path), "--workers", "1", "--html", str(tmp_path / "page.html")]) == 1
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert_loads_nothing(html)
    rows = re.findall(r'<th scope="row"><a href="#set-(\d)">([^<]+)</a>.*<span class="(\w+)">([^<]+)</span></td></tr>', html)
    assert rows == [
        ("1", "OFRecord: books, 32 tokens", "warning", "2 warnings"),
        ("2", "TFRecord: books, 32 tokens", "error", "3 errors, 2 warnings"),
    ]
    text = text_of(html)
    assert corrupt.name in text.partition("Findings")[2]
    assert re.findall(r'<div id="(set-\d)-masking">', html) == ["set-1", "set-2"]
    assert " the " in text.partition("Examples")[2]  # the vocabulary beside the records names the tokens


def test_the_same_records_in_two_formats_have_one_section(made: Path, tmp_path: Path) -> None:
    sets = [bertprep.convert(made, tmp_path / to / "books", to=to, workers=1).folder for to in ("ofrecord", "tfrecord")]
    write_page(bertprep.validate(sets, workers=1), None, tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert re.findall(r'<div id="(set-\d)-(?:masking|settings)">', html) == ["set-1", "set-1"]
    assert 'These are the records of <a href="#set-1">OFRecord: books, 32 tokens</a> in another format' in html
    assert html.count("<article>") == 8


def test_each_data_set_of_a_workspace_has_a_name_of_its_own(outcome: Outcome) -> None:
    assert outcome.manifest
    other = replace(outcome.manifest, made_with={**outcome.manifest.made_with, "dupe": 2})
    assert name_outcomes([outcome, replace(outcome, manifest=other)]) == [
        "TFRecord: books, 32 tokens (each document is used 1 time)",
        "TFRecord: books, 32 tokens (each document is used 2 times)",
    ]
    bare = [Outcome(Path(name) / "x", "text shards", None, None) for name in ("a", "b", "b")]
    assert name_outcomes(bare[:2]) == ["Text shards: x (a/x)", "Text shards: x (b/x)"]
    assert len(set(name_outcomes(bare))) == 3


def test_a_share_that_is_not_expected_is_red(outcome: Outcome) -> None:
    (expected,) = (outcome.expected[split] for split in outcome.expected if split == "training")
    wrong = replace(expected, fractions=[expected.fractions[0]._replace(hits=0, interval=(0.0, 0.01)), *expected.fractions[1:]])
    html = page(replace(outcome, expected={**outcome.expected, "training": wrong}))
    assert re.findall(r'<td class="number error">([^<]+)', html) == ["0.00%"]


def test_fifty_data_sets_keep_the_page_small(made: Path, tmp_path: Path) -> None:
    (found,) = bertprep.validate([made], workers=1)
    write_page([found] * 50, None, tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert len(set(re.findall(r"<h2>([^<]+)</h2>", html))) == 50
    assert html.count("<article>") == 100
    assert len(html.encode()) < 2_000_000


def test_the_overview_has_no_empty_columns(outcome: Outcome, made: Path) -> None:
    (text,) = bertprep.validate([made.parents[2] / "sharded"], workers=1)
    views = [view(each, [], None, each.kind) for each in (outcome, text)]

    def titles(*shown: dict[str, object]) -> list[str]:
        overview = re.search(r'<table class="overview">.*?</thead>', render(shown), re.DOTALL)
        assert overview is not None
        return re.findall(r"<th [^>]*>([^<]*)</th>", overview[0])

    assert titles(views[1]) == ["data set", "splits", "documents", "findings"]
    assert titles(*views) == ["data set", "splits", "documents", "records", "tokens", "padding", "[UNK]", "findings"]
