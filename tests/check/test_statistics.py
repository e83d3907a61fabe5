"""Faults of the whole are found, and clean sets of 61 settings raise no alarm but where no sentence has a next one."""

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest

import bertprep
from bertprep import records
from bertprep.check import statistics
from bertprep.check.counts import RecordCounts
from bertprep.check.expected import expect, minus_log_p
from bertprep.check.records import RecordChecker
from bertprep.commands.create import create
from bertprep.config import InstanceSettings
from bertprep.kernels import numbers as kernel
from bertprep.records import PretrainingExamples
from tests.check import RULES, VOCABULARY
from tests.check.clean_sets import SETS, validated_sets
from tests.golden import GOLDEN


def count(examples: PretrainingExamples) -> RecordCounts:
    checker = RecordChecker(RULES)
    checker.check(examples, np.arange(len(examples)))
    assert checker.findings("x") == []
    return checker.counts


def codes(tally: RecordCounts) -> list[str]:
    return [finding.code for finding in statistics.judge_split(tally, RULES, "training", expect(tally, RULES))]


@pytest.fixture(scope="module")
def golden(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> PretrainingExamples:
    """20,000 clean records, 309,000 predictions."""
    folder = tmp_path_factory.mktemp("records")
    settings = InstanceSettings(dupe=30)
    create(inputs=[golden_corpus], **vars(settings), output=folder, vocab=GOLDEN / "vocab.txt", formats="tfrecord", workers=1)
    with records.open(folder / "tfrecord/training/corpus_training_00000.tfrecord") as file:
        return file[:]


@pytest.fixture
def examples(golden: PretrainingExamples) -> PretrainingExamples:
    return PretrainingExamples(*(array.copy() for array in golden.arrays))


def predictions(examples: PretrainingExamples) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """(rows, columns of predictions, positions)."""
    rows, columns = np.nonzero(examples.masked_lm_weights)
    return rows, columns, examples.masked_lm_positions[rows, columns]


@pytest.mark.slow
def test_clean_sets_of_all_settings_have_no_other_finding(golden_corpus: Path, tmp_path: Path) -> None:
    """Nor does the page draw what it expects of them outside of what it says was found."""
    assert len(SETS) == 61
    for clean, outcome in validated_sets(range(len(SETS)), golden_corpus, tmp_path):
        found = sorted(finding.code for finding in outcome.findings if finding.code != "cut-off")  # the sentences are long
        assert found == clean.warnings, clean
        for fraction in itertools.chain(*(expected.fractions for expected in outcome.expected.values())):
            assert fraction.interval[0] <= fraction.expected[1], (clean, fraction)
            assert fraction.interval[1] >= fraction.expected[0], (clean, fraction)


@pytest.mark.parametrize("shown", ["mask to kept", "kept to mask", "random to mask"])
def test_replacement_fractions_off_by_one_point_are_found(examples: PretrainingExamples, shown: str) -> None:
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


@pytest.mark.parametrize(
    ("uses", "levels"),
    [
        (None, {0: "error", 0.3: "error", 0.47: "error", 0.59: "", 0.9: "warning", 1: "warning"}),
        (99, {0.59: "", 0.9: "", 1: "warning"}),
        (1000, {0.59: "", 0.9: "error", 1: "error"}),
        (20_000, {0.94: "", 0.98: "warning", 1: "warning"}),
    ],
    ids=["without a manifest", "too few documents", "few documents", "documents of one sentence"],
)
def test_the_fraction_of_random_next_sentences(golden: PretrainingExamples, uses: int | None, levels: dict[float, str]) -> None:
    assert {random: next_sentence_level(with_random_next(golden, random), uses=uses) for random in levels} == levels


def next_sentence_level(counts: RecordCounts, uses: int | None = None) -> str:
    found = statistics.judge_split(counts, RULES, "x", expect(counts, RULES, uses=uses), uses=uses)
    return next((finding.level for finding in found if finding.code == "next-sentence-share"), "")


def with_random_next(golden: PretrainingExamples, random: float) -> RecordCounts:
    counts = count(golden)
    for labels in (counts.next_sentence, counts.signs[[kernel.OPEN_FOLLOWS, kernel.OPEN_RANDOM]]):
        n = int(labels.sum())
        labels[:] = n - round(n * random), round(n * random)
    counts.signs[[kernel.OPEN_FOLLOWS, kernel.OPEN_RANDOM]] = labels
    return counts


def test_a_file_without_following_sentences_is_found(golden: PretrainingExamples) -> None:
    for random, level in ((1, ["warning"]), (0.59, [])):
        found = statistics.judge_file(with_random_next(golden, random), RULES, "x", files=10)
        assert [finding.level for finding in found if finding.code == "next-sentence-share"] == level


@pytest.mark.parametrize("drawn", ["every other token", "as often as in the text"])
def test_random_tokens_of_a_part_of_the_vocabulary_are_found(examples: PretrainingExamples, drawn: str) -> None:
    rows, columns, places = predictions(examples)
    labels, now = examples.masked_lm_ids[rows, columns], examples.input_ids[rows, places]
    chosen = np.flatnonzero((now != labels) & (now != VOCABULARY.mask))
    rng, size = np.random.default_rng(1), len(VOCABULARY)
    tokens = {
        "every other token": 1 + 2 * rng.integers(2, size // 2, len(chosen)),
        "as often as in the text": rng.permutation(labels)[: len(chosen)],
    }[drawn]
    examples.input_ids[rows[chosen], places[chosen]] = np.where(tokens == labels[chosen], now[chosen], tokens)
    tally = count(examples)
    assert codes(tally) == ["random-tokens"]
    assert [finding.code for finding in statistics.judge_file(tally, RULES, "x", files=10)] == ["random-tokens"]


@pytest.fixture(scope="module")
def speeches(tmp_path_factory: pytest.TempPathFactory) -> PretrainingExamples:
    """21,000 records of the sample corpus, whose documents have words of their own."""
    folder = tmp_path_factory.mktemp("speeches")
    bertprep.shard(shards=4, workdir=folder, workers=1)
    text = next(folder.rglob("sample_training_00000.txt"))
    create(inputs=[text], output=folder, vocab=GOLDEN / "vocab.txt", formats="tfrecord", dupe=3)
    with records.open(folder / "tfrecord/training/corpus_training_00000.tfrecord") as file:
        return file[:]


@pytest.mark.parametrize("labels", ["as made", "inverted", "2 % further on"])
def test_labels_that_do_not_fit_the_text_are_found(speeches: PretrainingExamples, labels: str) -> None:
    made = speeches.next_sentence_labels
    changed = {"as made": made, "inverted": 1 - made, "2 % further on": np.roll(made, len(made) // 50)}
    speeches = PretrainingExamples(*speeches.arrays[:-1], changed[labels])
    for by_manifest, level in ((True, "error"), (False, "warning")):
        rules = dataclasses.replace(RULES, by_manifest=by_manifest)
        judged = statistics.judge_file(count(speeches), rules, "x", files=1)
        found = [finding.level for finding in judged if finding.code == "next-sentence-text"]
        assert found == ([] if labels == "as made" else [level])


@pytest.mark.parametrize("order", ["random", "length", "first token"])
def test_what_neighbours_have_in_common_is_counted_by_itself(golden: PretrainingExamples, order: str) -> None:
    """The pairs of `wins` are tokens in common, lengths and first tokens: closer or less close than distant records are."""
    keys = {
        "random": np.random.default_rng(0).permutation(len(golden)),
        "length": golden.input_mask.sum(axis=1),
        "first token": golden.input_ids[:, 1],
    }
    examples = golden[np.argsort(keys[order], kind="stable")]
    checker = RecordChecker(RULES, len(examples))
    checker.check(examples, np.arange(len(examples)))
    checker.compare()
    _, lengths, first_tokens = checker.counts.wins.reshape(-1, 2)
    for what, (closer, less_close) in (("length", lengths), ("first token", first_tokens)):
        if what == order:
            assert closer > 20 * less_close
        else:
            assert 0.5 < closer / less_close < 2


def test_an_expected_fraction_with_slack_is_a_range() -> None:
    """From 792 to 808 of 1,000 here."""
    found = np.array([791, 793, 800, 807, 809])
    assert (minus_log_p(found, 1000, 800) > 0).tolist() == [True, True, False, True, True]
    assert (minus_log_p(found, 1000, 800, slack=0.01) > 0).tolist() == [True, False, False, False, True]


def test_draws_of_files_with_one_seed_are_correlated(golden: PretrainingExamples) -> None:
    """What is much for as many draws of their own may be chance of the draws that they share."""
    tally = count(golden)
    tally.shown += np.array([3000, -3000, 0])
    assert codes(tally) == ["replacement-shares"]
    assert [finding.code for finding in statistics.judge_split(tally, RULES, "x", expect(tally, RULES, streams=100))] == []


def test_files_with_one_seed_draw_fewer_different_random_tokens(golden: PretrainingExamples) -> None:
    tally = count(golden)
    fractions = np.ones(len(VOCABULARY))
    fractions[VOCABULARY.mask] = 0
    draws = np.random.default_rng(1).multinomial(int(tally.replaced.sum()) // 4, fractions / fractions.sum())
    tally.replaced[:] = 4 * draws
    assert codes(tally) == ["random-tokens"]
    assert [finding.code for finding in statistics.judge_split(tally, RULES, "x", expect(tally, RULES, streams=4))] == []


def test_all_full_or_nearly_all_short_records(golden: PretrainingExamples) -> None:
    tally = count(golden)

    def levels(short_seq_prob: float, uses: int | None = None) -> list[str]:
        expected = expect(tally, RULES, short_seq_prob=short_seq_prob, uses=uses)
        return [
            finding.level for finding in statistics.judge_split(tally, RULES, "x", expected) if finding.code == "short-share"
        ]

    assert levels(0.1) == []
    tally.lengths[:] = 0
    tally.lengths[128] = 10_000
    assert levels(0.1) == ["warning"]
    assert levels(0.0) == []
    of_a = tally.lengths_of_a.copy()
    tally.lengths_of_a[:] = 0
    tally.lengths_of_a[62] = 10_000  # sentences so long that all were truncated
    assert levels(0.1) == []
    tally.lengths_of_a[:] = of_a
    tally.lengths[40] = 190_000
    assert levels(0.1, uses=100) == ["warning"]
    assert levels(0.1, uses=99) == []
