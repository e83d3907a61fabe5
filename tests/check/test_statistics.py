"""Faults of the whole are found, and two hundred clean sets alarm no one."""

from pathlib import Path

import numpy as np
import pytest

from bertprep import records
from bertprep.check import statistics
from bertprep.check.duplicates import HashedFile, find_duplicates
from bertprep.check.findings import ERROR
from bertprep.check.outcome import FileFacts
from bertprep.check.record_checks import Counted, RecordChecker, RecordRules, check_file
from bertprep.config import InstanceSettings
from bertprep.creation import create
from bertprep.instances import load_vocabulary
from bertprep.records import Examples
from tests.check.clean_sets import write_clean_sets
from tests.corpora import deal
from tests.golden import GOLDEN

VOCABULARY = load_vocabulary(GOLDEN / "vocab.txt")


def rules_of(settings: InstanceSettings) -> RecordRules:
    v = VOCABULARY
    return RecordRules(
        settings.seq, settings.pred, len(v), v.cls, v.sep, v.mask, settings.masked_lm_prob, settings.whole_word
    )  # fmt: skip


RULES = rules_of(InstanceSettings())


def count(examples: Examples) -> Counted:
    checker = RecordChecker(RULES)
    checker.check(examples, np.arange(len(examples)))
    assert checker.findings("x") == []
    return checker.counted


def codes(counted: Counted) -> list[str]:
    return [finding.code for finding in statistics.judge(counted, RULES, "training")]


@pytest.fixture(scope="module")
def golden(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Examples:
    """20,000 clean records, 309,000 predictions."""
    folder = tmp_path_factory.mktemp("records")
    settings = InstanceSettings(dupe=30)
    create(inputs=[golden_corpus], settings=settings, output=folder, vocab=GOLDEN / "vocab.txt", formats="tfrecord", workers=1)
    with records.open(folder / "tfrecord" / "corpus_training_00000.tfrecord") as file:
        return file[:]


@pytest.fixture
def examples(golden: Examples) -> Examples:
    return Examples(*(array.copy() for array in golden.arrays))  # type: ignore[arg-type]


def predictions(examples: Examples) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """(rows, columns of predictions, places)."""
    rows, columns = np.nonzero(examples.masked_lm_weights)
    return rows, columns, examples.masked_lm_positions[rows, columns]


def test_two_hundred_clean_sets_have_no_error(golden_corpus: Path, tmp_path: Path) -> None:
    for settings, path in write_clean_sets(deal(golden_corpus, tmp_path / "text", 6), VOCABULARY, tmp_path, 200):
        rules = rules_of(settings)
        report = check_file(path, path.name, "", rules)
        assert report.counted is not None
        duplicates, _ = find_duplicates([HashedFile(path.name, "", report.hashes)])
        found = [*report.findings, *statistics.judge(report.counted, rules, "all files"), *duplicates]
        assert [str(finding) for finding in found if finding.level == ERROR] == []


def test_clean_records_are_fair(examples: Examples) -> None:
    assert codes(count(examples)) == []


@pytest.mark.parametrize("shown", ["mask to kept", "kept to mask", "random to mask"])
def test_replacement_shares_off_by_one_point_are_found(examples: Examples, shown: str) -> None:
    rows, columns, places = predictions(examples)
    labels, now = examples.masked_lm_ids[rows, columns], examples.input_ids[rows, places]
    source, target = {
        "mask to kept": (now == VOCABULARY.mask, labels),
        "kept to mask": (now == labels, np.full_like(labels, VOCABULARY.mask)),
        "random to mask": ((now != labels) & (now != VOCABULARY.mask), np.full_like(labels, VOCABULARY.mask)),
    }[shown]
    chosen = np.flatnonzero(source)[: len(rows) // 100]
    examples.input_ids[rows[chosen], places[chosen]] = target[chosen]
    assert 290_000 < len(rows) < 330_000
    assert codes(count(examples)) == ["replacement-shares"]


def test_masks_that_never_take_the_first_place_are_found(examples: Examples) -> None:
    rows, columns, places = predictions(examples)
    at_first = (columns == 0) & (places == 1) & (examples.masked_lm_positions[rows, 1] != 2)
    at_first &= examples.input_ids[rows, 2] != VOCABULARY.sep
    rows = rows[at_first]
    examples.input_ids[rows, 1] = examples.masked_lm_ids[rows, 0]
    examples.masked_lm_positions[rows, 0] = 2
    examples.masked_lm_ids[rows, 0] = examples.input_ids[rows, 2]
    examples.input_ids[rows, 2] = VOCABULARY.mask
    assert "position-shares" in codes(count(examples))


def test_a_token_that_is_never_predicted_is_found(golden: Examples) -> None:
    counted = count(golden)
    often = int(np.argsort(counted.tally.labels)[-50])
    counted.tally.labels[often] = 0
    assert codes(counted) == ["label-frequencies"]


@pytest.mark.parametrize(
    ("random", "level"), [(0, ["error"]), (1, ["error"]), (0.3, ["warning"]), (0.59, []), (0.9, ["warning"])]
)
def test_the_share_of_random_next_sentences(golden: Examples, random: float, level: list[str]) -> None:
    tally = count(golden).tally
    n = tally.records
    tally.next_sentence[:] = n - round(n * random), round(n * random)
    assert [finding.level for finding in statistics.judge_next_sentence(tally, "training")] == level


def test_records_that_are_all_full_or_nearly_all_short(golden: Examples) -> None:
    tally = count(golden).tally
    assert statistics.judge_lengths(tally, "x", short_seq_prob=0.1, documents=None) == []
    tally.lengths[:] = 0
    tally.lengths[128] = 10_000
    assert [f.code for f in statistics.judge_lengths(tally, "x", short_seq_prob=0.1, documents=None)] == ["short-share"]
    assert statistics.judge_lengths(tally, "x", short_seq_prob=0.0, documents=None) == []
    tally.lengths[40] = 190_000
    assert [f.level for f in statistics.judge_lengths(tally, "x", short_seq_prob=0.1, documents=50)] == ["warning"]


def test_a_file_of_another_size() -> None:
    files = [FileFacts(f"part-{number:05d}", "", records, 0) for number, records in enumerate([100, 110, 95, 30, 105])]
    (finding,) = statistics.judge_file_sizes(files)
    assert (finding.code, finding.file, finding.level) == ("file-sizes", "part-00003", "warning")
    assert statistics.judge_file_sizes(files[:3]) == []


def test_an_interval_holds_the_true_share() -> None:
    assert statistics.share_interval(0, 0) == (0.0, 1.0)
    low, high = statistics.share_interval(0, 10)
    assert low == 0
    assert 0.7 < high < 0.8
