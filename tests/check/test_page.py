"""The page of `validate --html` shows the outcome, loads nothing and escapes all data."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bertprep.check.outcome import FileFacts, Finding, Outcome
from bertprep.check.page import Example, render, view
from bertprep.cli import main
from bertprep.commands.create import create
from bertprep.config import InstanceSettings
from bertprep.instances.vocabulary import Vocabulary
from bertprep.records.examples import PretrainingExamples
from bertprep.work.manifest import Manifest
from tests.check.tallied import outcome_of, sound_examples
from tests.corpora import deal
from tests.golden import GOLDEN

pytest.importorskip("matplotlib")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = (*SPECIAL, *(f"word{number}" for number in range(55)))
SETTINGS = {"seq": 32, "pred": 5, "whole_word": False, "corpus": "books", "seed": 12345}


def vocabulary_of(*tokens: str) -> Vocabulary:
    return Vocabulary(Path("vocab.txt"), tokens, "0" * 64, pad=0, unk=1, cls=2, sep=3, mask=4)


@pytest.fixture(scope="module")
def examples() -> PretrainingExamples:
    return sound_examples(400)


@pytest.fixture(scope="module")
def outcome(examples: PretrainingExamples) -> Outcome:
    found = outcome_of({"training": examples[:300], "test": examples[300:]}, vocabulary=len(WORDS), files=2)
    files = {file.name: {"documents": 7, "text": {"name": "a.txt", "bytes": 2_000_000}} for file in found.files}
    return replace(found, manifest=Manifest("masked-LM records", SETTINGS, files, {"bertprep": "0.1.0"}))


def examples_of(examples: PretrainingExamples, number: int = 3) -> list[Example]:
    return [Example("training/books_training_00000.tfrecord", row, examples[row : row + 1]) for row in range(number)]


def page(outcome: Outcome, drawn: list[Example] | None = None, vocabulary: Vocabulary | None = None) -> str:
    return render([view(outcome, drawn or [], vocabulary)])


def text_of(html: str) -> str:
    """What a reader sees, white space set aside; the drawings are left out."""
    plain = re.sub(r"<svg.*?</svg>", "", html, flags=re.DOTALL)
    body = ElementTree.fromstring(plain).find("body")
    assert body is not None
    return re.sub(r"\s+", " ", "".join(body.itertext()))


def assert_loads_nothing(html: str) -> None:
    assert not re.search(r"<(script|link|img|iframe|object|embed|base|image)\b|\son\w+=|url\((?!#)|@import", html)
    assert not re.search(r"(src|href|srcset|action|data)=\"(?!#)", html)


def test_the_page_shows_all_counts(outcome: Outcome, examples: PretrainingExamples) -> None:
    html = page(outcome, examples_of(examples), vocabulary_of(*WORDS))
    assert html == page(outcome, examples_of(examples), vocabulary_of(*WORDS))
    assert_loads_nothing(html)
    text = text_of(html)
    for shown in (
        "books: BERT training data", "seed12345", "bertprep0.1.0", f"training2300{examples.input_mask[:300].sum():,}",
        "Nothing was found wrong.", "B is random50.00% to ",
    ):  # fmt: skip
        assert shown in text
    assert text.count("and is the next sentence") + text.count("and is a random text") == 3
    charts = re.findall(r'<div class="chart" role="img" aria-label="(\w+)', html)
    assert charts == ["Length", "Segment", "Predictions", "Position"]


def test_errors_come_first_and_findings_are_grouped(outcome: Outcome) -> None:
    findings = [Finding("file-sizes", "", "as many in each", "other numbers", level="warning")]
    findings += [Finding("weights", f"training/{n:05d}", "1 and then 0", "0.5", 3, 12) for n in range(5000)]
    html = page(replace(outcome, findings=findings, sampled=True))
    text = text_of(html)
    assert text.index("Errors") < text.index("How it was made") < text.index("All findings")
    assert "5,000 errors and 1 warning were found." in text
    assert "training/00000, record 3: expected 1 and then 0, found 0.5 (12 records)" in text
    assert "… and 4,980 more" in text
    assert "the whole data set: expected as many in each, found other numbers" in text
    assert "A sample of the records was checked; duplicates and checksums were not." in text


def test_thousands_of_files_and_long_records_keep_the_page_small() -> None:
    examples = sound_examples(40, seq=1024, pred=160, vocabulary=len(WORDS))
    found = outcome_of({"training": examples}, vocabulary=len(WORDS))
    files = [FileFacts(f"training/part-{number}", "training", 1000 + number % 7, 10**9) for number in range(4096)]
    html = page(replace(found, files=files), examples_of(examples, 20), vocabulary_of(*WORDS))
    assert "512 more tokens" in html
    assert len(html.encode()) < 400_000


def test_tokens_names_and_findings_are_never_markup(outcome: Outcome, examples: PretrainingExamples) -> None:
    strange = ("<script>alert(1)</script>", "&amp;", '"', "'", "שלום", "\u202eevil", "\x01", "]]>", "<!--", "##<b>")
    finding = Finding("bad-message", "<i>.tfrecord", "<tag> 0A", '"&" \x00', 1)
    changed = replace(outcome, findings=[finding], folder=Path("a<b>&c"))
    html = page(changed, examples_of(examples, 20), vocabulary_of(*SPECIAL, *strange, *WORDS[15:]))
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


def test_without_manifest_vocabulary_and_readable_records(outcome: Outcome, examples: PretrainingExamples) -> None:
    html = page(replace(outcome, manifest=None), examples_of(examples))
    assert "There is no manifest.json beside the files" in html
    assert "No vocabulary is known" in html
    assert "#7" in text_of(html)
    finding = Finding("truncated", "a.tfrecord", "a whole record", "its beginning", 0)
    files = [FileFacts("a.tfrecord", "", 0, 3)]
    text = text_of(page(Outcome(Path("x"), "tfrecord", None, None, files=files, findings=[finding])))
    assert "1 error and 0 warnings were found." in text
    assert "Masking and next sentences" not in text


def test_the_command_writes_a_page_of_all_that_it_checked(golden_corpus: Path, tmp_path: Path) -> None:
    settings = InstanceSettings(seq=64, pred=10, dupe=1)
    texts = deal(golden_corpus, tmp_path / "text", 3)
    create(**vars(settings), inputs=texts, output=tmp_path / "out", vocab=GOLDEN / "vocab.txt", workers=1)
    damaged = sorted((tmp_path / "out/tfrecord/training").glob("*.tfrecord"))[1]
    damaged.write_bytes(damaged.read_bytes()[:-5])
    command = ["validate", str(tmp_path / "out"), "--workers", "1", "--html", str(tmp_path / "page.html")]
    assert main(command) == 1
    text = text_of((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert damaged.name in text.partition("Errors")[2]
    assert text.count("Masking and next sentences") == 2
    assert " the " in text.partition("Examples")[2]  # the vocabulary beside the records names the tokens
