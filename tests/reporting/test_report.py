"""The report shows the outcome, loads nothing, escapes all data, and fits every screen."""

from __future__ import annotations

import re
import shutil
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bertprep.check.findings import Finding
from bertprep.check.outcome import FileFacts, Outcome
from bertprep.cli import main
from bertprep.commands.create import create
from bertprep.commands.report import report
from bertprep.config import InstanceSettings
from bertprep.errors import UsageError
from bertprep.instances.vocabulary import Vocabulary
from bertprep.records.examples import PretrainingExamples
from bertprep.reporting.excerpts import Excerpt, choose, show
from bertprep.reporting.figures import maskable_by_position
from bertprep.reporting.page import page
from bertprep.workspace.manifest import Manifest
from tests.check.tallied import outcome_of, sound_examples
from tests.corpora import deal
from tests.golden import GOLDEN

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = (*SPECIAL, *(f"word{number}" for number in range(55)))
SETTINGS = {
    "seq": 32,
    "pred": 5,
    "masked_lm_prob": 0.15,
    "short_seq_prob": 0.1,
    "whole_word": False,
    "corpus": "books",
    "seed": 12345,
}


def vocabulary_of(*tokens: str) -> Vocabulary:
    return Vocabulary(Path("vocab.txt"), tokens, "0" * 64, pad=0, unk=1, cls=2, sep=3, mask=4)


def made_by_bertprep(outcome: Outcome) -> Outcome:
    files = {file.name: {"documents": 7, "text": {"name": "a.txt", "bytes": 2_000_000}} for file in outcome.files}
    return replace(outcome, manifest=Manifest("masked-LM records", SETTINGS, files, {"bertprep": "0.1.0"}))


@pytest.fixture(scope="module")
def examples() -> PretrainingExamples:
    return sound_examples(400)


@pytest.fixture(scope="module")
def outcome(examples: PretrainingExamples) -> Outcome:
    found = outcome_of({"training": examples[:300], "test": examples[300:]}, vocabulary=len(WORDS), files=2)
    return made_by_bertprep(found)


def excerpts_of(examples: PretrainingExamples, number: int = 3) -> list[Excerpt]:
    return [Excerpt("training/books_training_00000.tfrecord", row, examples[row : row + 1]) for row in range(number)]


def parse(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


def text_of(html: str) -> str:
    """What a reader sees, white space set aside."""
    body = parse(html).find("body")
    assert body is not None
    return re.sub(r"\s+", " ", "".join(body.itertext()))


def assert_loads_nothing(html: str) -> None:
    for element in parse(html).iter():
        assert element.tag not in {"script", "link", "img", "iframe", "object", "embed", "base", "image", "use"}
        assert not {"src", "href", "srcset", "action", "data", "{http://www.w3.org/1999/xlink}href"} & set(element.attrib)
        assert not [name for name in element.attrib if name.startswith("on")]
    assert not re.search(r"url\(|@import|https?:", html)


def test_the_page_shows_all_counts(outcome: Outcome, examples: PretrainingExamples) -> None:
    html = page(outcome, excerpts_of(examples), vocabulary_of(*WORDS))
    assert html == page(outcome, excerpts_of(examples), vocabulary_of(*WORDS))
    assert_loads_nothing(html)
    text = text_of(html)
    assert "books: BERT pretraining data" in text
    assert "400 records of 32 tokens, each with up to 5 of them" in text
    assert "4 TFRecord files" in text
    assert "8.0 MB in 4 shards" in text
    assert "files224" in text
    assert "records300100400" in text
    assert "documents141428" in text
    assert f"tokens{examples.input_mask[:300].sum():,}" in text
    assert "Nothing was found wrong." in text
    assert "No record repeats another." in text
    assert text.count("and is the next sentence") + text.count("and is a random text") == 3


def test_every_chart_has_a_text_alternative(outcome: Outcome) -> None:
    drawings = list(parse(page(outcome, [], None)).iter("svg"))
    assert len(drawings) > 20
    assert all(drawing.get("role") == "img" and drawing.get("aria-label") for drawing in drawings)
    charts = [drawing for drawing in drawings if drawing.get("class") == "chart"]
    assert len(charts) == 5
    assert all(drawing.find("title") is None for drawing in charts)  # nothing pops up over a chart


def test_errors_come_first_and_findings_are_grouped(outcome: Outcome) -> None:
    names = [f"training/{number:05d}" for number in range(5000)]
    findings = [Finding("warning", "file-sizes", "", None, "as many in each", "other numbers")]
    findings += [Finding("error", "weights", name, 3, "1 and then 0", "0.5", count=12) for name in names]
    html = page(replace(outcome, findings=findings), [], None)
    text = text_of(html)
    assert text.index("Errors") < text.index("How it was made") < text.index("All findings")
    assert "5,000 errors and 1 warning were found." in text
    assert "training/00000, record 3: expected 1 and then 0, found 0.5 (12 records)" in text
    assert "… and 4,980 more" in text
    assert "the whole data set: expected as many in each, found other numbers" in text
    assert len(html) < 100_000


def test_thousands_of_files_are_summed_up(outcome: Outcome) -> None:
    files = [FileFacts(f"training/part-{number}", "training", 1000 + number % 7, 10**9) for number in range(4096)]
    html = page(replace(outcome, files=files, manifest=None), [], None)
    assert "Files by their records" in html
    assert "Between 1,000 and 1,006 records in a file" in text_of(html)
    assert "4,096.0 GB" in text_of(html)
    assert len(html) < 100_000


def test_tokens_are_never_markup(outcome: Outcome, examples: PretrainingExamples) -> None:
    strange = ("<script>alert(1)</script>", "&amp;", '"', "'", "שלום", "\u202eevil", "\x01", "]]>", "<!--", "##<b>")
    html = page(outcome, excerpts_of(examples, 20), vocabulary_of(*SPECIAL, *strange, *WORDS[15:]))
    assert_loads_nothing(html)
    text = text_of(html)
    for token in ("<script>alert(1)</script>", "&amp;", "שלום", "]]>", "<!--"):
        assert token in text
    assert "\x01" not in html
    assert "\u202e" not in html


def test_file_names_and_findings_are_never_markup(outcome: Outcome) -> None:
    finding = Finding("error", "bad-message", "<i>.tfrecord", 1, "<tag> 0A", '"&" \x00')
    html = page(replace(outcome, findings=[finding], folder=Path("a<b>&c")), [], None)
    assert_loads_nothing(html)
    assert '<i>.tfrecord, record 1: expected <tag> 0A, found "&" \ufffd' in text_of(html)


def test_an_example_is_text_with_marked_predictions() -> None:
    tokens = vocabulary_of(*SPECIAL, "the", "states", "ad", "##mit", "##ted", "of", "new")
    one = PretrainingExamples(*(np.zeros_like(array) for array in PretrainingExamples.empty(1, seq=12, pred=3).arrays))
    one.input_ids[0, :9] = 2, 5, 4, 3, 7, 8, 10, 11, 3  # [CLS] the [MASK] [SEP] ad ##mit of new [SEP]
    one.input_mask[0, :9] = 1
    one.segment_ids[0, 4:9] = 1
    one.masked_lm_positions[0] = 2, 5, 6
    one.masked_lm_ids[0] = 6, 8, 9  # states, ##mit as it was, ##ted shown as "of"
    one.masked_lm_weights[0] = 1
    html = show(Excerpt("part-0", 12345, one), tokens)
    assert "9 of 12 tokens, B has 5 and is the next sentence, 3 predictions" in html
    assert ">part-0</code>, record 12,345<" in html
    assert '<span class="a"><small>[CLS]</small> the <mark title="predicted; shown as [MASK]">states</mark>' in html
    assert '<span class="b">ad<mark class="kept" title="predicted; unchanged">mit</mark>' in html
    assert "<s>of</s> ##ted</mark> new <small>[SEP]</small></span>" in html


def test_invalid_records_can_be_shown() -> None:
    one = PretrainingExamples(*(np.full_like(array, 99) for array in PretrainingExamples.empty(1, seq=8, pred=2).arrays))
    assert "&lt;99: not in the vocabulary&gt;" in show(Excerpt("a", 0, one), vocabulary_of(*WORDS))


def test_without_manifest_and_vocabulary(outcome: Outcome, examples: PretrainingExamples) -> None:
    html = page(replace(outcome, manifest=None), excerpts_of(examples), None)
    assert "There is no manifest.json beside the files" in html
    assert "No vocabulary is known" in html
    assert "#7" in text_of(html)
    assert ">documents<" not in html


def test_uncounted_tokens_are_not_shown(examples: PretrainingExamples) -> None:
    outcome = outcome_of({"": examples}, vocabulary=len(WORDS))
    assert "Masked tokens" in page(outcome, [], None)
    outcome.tallies[""] = replace(outcome.tallies[""], labels=np.zeros(0, np.int64), tokens=np.zeros(0, np.int64))
    assert "Masked tokens" not in page(outcome, [], None)


def test_long_records_keep_the_page_small() -> None:
    examples = sound_examples(40, seq=1024, pred=160, vocabulary=len(WORDS))
    outcome = outcome_of({"training": examples}, vocabulary=len(WORDS))
    html = page(outcome, excerpts_of(examples, 20), vocabulary_of(*WORDS))
    assert "512 more tokens" in html
    assert len(html.encode()) < 300_000


def test_a_report_on_a_sample(outcome: Outcome) -> None:
    text = text_of(page(replace(outcome, sampled=True), [], None))
    assert "400 records were checked" in text
    assert "Duplicates were not checked" in text


def test_a_report_on_unreadable_files() -> None:
    finding = Finding("error", "truncated", "a.tfrecord", 0, "a whole record", "its beginning")
    files = [FileFacts("a.tfrecord", "", 0, 3)]
    text = text_of(page(Outcome(Path("x"), "tfrecord", None, None, files=files, findings=[finding]), [], None))
    assert "1 error and 0 warnings were found." in text
    assert "Masking and next sentences" not in text


def test_duplicates_are_listed_by_split(outcome: Outcome) -> None:
    text = text_of(page(replace(outcome, duplicates={"training": 3, "test": 0, "across": 1}), [], None))
    assert "training records that repeat another: 3 (1.000 %)" in text
    assert "test records that are in training too: 1 (1.000 %)" in text


def test_expected_counts_are_computed(outcome: Outcome, examples: PretrainingExamples) -> None:
    tally, expected = outcome.tallies["training"], outcome.expected["training"]
    maskable = (examples.input_mask == 1) & (examples.input_ids != 2) & (examples.input_ids != 3)
    assert maskable_by_position(tally).tolist() == maskable[:300].sum(axis=0).tolist()
    assert expected.predictions is not None
    assert expected.predictions.tolist() == tally.predictions.tolist()
    by_position = (maskable / maskable.sum(axis=1, keepdims=True) * examples.masked_lm_weights.sum(axis=1, keepdims=True))[:300]
    assert expected.positions == pytest.approx(by_position.sum(axis=0), rel=1e-4)


def test_examples_are_drawn_evenly() -> None:
    files = [FileFacts("a", "", 1000, 0), FileFacts("empty", "", 0, 0), FileFacts("b", "", 1000, 0)]
    chosen = choose(files, 20)
    assert [name for name, _ in chosen] == ["a"] * 10 + ["b"] * 10
    assert chosen[0] == ("a", 50)
    assert choose(files[1:2], 20) == []
    assert choose([FileFacts("a", "", 2, 0)], 20) == [("a", 0), ("a", 1)]


@pytest.fixture(scope="module")
def records_folder(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    settings = InstanceSettings(seq=64, pred=10, dupe=1)
    texts = deal(golden_corpus, folder / "text", 3)
    made = create(settings=settings, inputs=texts, output=folder / "out", vocab=GOLDEN / "vocab.txt", workers=1)
    return made.folders["tfrecord"].parent


def test_the_command_writes_a_page_beside_the_manifest(records_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(records_folder / "ofrecord"), "--workers", "1"]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path == records_folder / "report.html"
    text = text_of(path.read_text(encoding="utf-8"))
    assert "3 OFRecord files" in text
    assert "part-2, record" in text
    assert " the " in text.partition("Examples")[2]  # the vocabulary beside the records names the tokens


def test_a_workspace_gives_the_newest_data_set(records_folder: Path) -> None:
    path = report(workdir=records_folder, workers=1, sample=10)
    assert path == records_folder / "report.html"


def test_a_damaged_file_is_reported_beside_the_others(records_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(records_folder / "tfrecord", folder)
    damaged = sorted(folder.glob("*.tfrecord"))[1]
    damaged.write_bytes(damaged.read_bytes()[:-5])
    text = text_of(report(folder, workers=1).read_text(encoding="utf-8"))
    assert text.index("Errors") < text.index("How it was made")
    assert damaged.name in text
    assert "Masking and next sentences" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["nowhere"], "does not exist"), (["."], "holds no"), (["--workdir", "nowhere"], "does not exist")],
)
def test_an_impossible_report_is_one_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_folder_as_output_is_refused(records_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        report(records_folder / "tfrecord", output=tmp_path)
