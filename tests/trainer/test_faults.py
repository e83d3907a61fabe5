"""Faulty data costs at most the step that would have used it, whichever rank meets it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertprep.errors import BertprepError
from bertprep.records.records import Records
from tests.trainer.numpy_engine import (
    BATCH,
    LAST,
    SHARDS,
    STEPS,
    RecordFolder,
    assert_same_run,
    at_step,
    lasting,
    make_ranks,
    options_of,
    read_entries,
    run,
    run_ranks,
    saved_steps,
    sigterm,
    stop_this_rank,
)
from trainer.batches import GlobalBatch
from trainer.checkpoint import read


@pytest.fixture
def data(tmp_path: Path) -> RecordFolder:
    return RecordFolder(tmp_path / "data", "ofrecord")


@pytest.mark.parametrize(("ranks", "has_accelerator"), [(1, False), (1, True), (2, False), (2, True)])
def test_the_last_step_before_a_bad_record_is_saved(ranks: int, has_accelerator: bool, data: RecordFolder) -> None:
    """By all ranks, none of which waits for the one that reads it."""
    run(options_of(data, data.other))
    repair = data.corrupt(index := data.first_read_at(4)[0])
    options = options_of(data, ranks=ranks)
    for _ in range(2):  # the same command reads it again
        ends = list(map(str, run_ranks(options, *make_ranks(ranks, has_accelerator=has_accelerator))))
        reads = next(rank for rank in range(ranks) if index in data.batches(GlobalBatch(BATCH, ranks, rank)).indices(3))
        assert all(end.endswith("; step 3 is saved, and the same command resumes after it") for end in ends)
        assert [end.startswith(data.name(index)) for end in ends] == [rank == reads for rank in range(ranks)]
        assert "--skip-bad-records 0" in ends[reads]
        assert saved_steps(data.out) == [3]
    repair()
    assert run_ranks(options, *make_ranks(ranks)) == [True] * ranks
    assert_same_run(data.out, data.other)


def test_a_bad_record_that_is_read_first_is_named(data: RecordFolder) -> None:
    data.corrupt(5)
    with Records([data.folder]) as records:
        records.limit_ids(30522)
        [error] = records.gather_good(records.kind.empty(2, seq=records.seq, pred=records.pred), np.array([5, 6]))
    assert (error.row, str(error).startswith(data.name(5))) == (0, True)


def test_a_fault_before_the_first_step_leaves_no_checkpoint(data: RecordFolder) -> None:
    data.corrupt(data.first_read_at(1)[0])
    with pytest.raises(BertprepError, match=r"; no step was finished before$"):
        run(options_of(data))
    assert saved_steps(data.out) == []


@pytest.mark.parametrize("has_accelerator", [False, True])
def test_bad_records_are_skipped_counted_and_logged_once(
    data: RecordFolder, capsys: pytest.CaptureFixture[str], *, has_accelerator: bool
) -> None:
    bad = {index: step for step, count in ((2, 2), (4, 1)) for index in data.first_read_at(step, count)}
    for index in bad:
        data.corrupt(index)
    out = data.out
    assert run(options_of(data, out, skip_bad_records=3), has_accelerator=has_accelerator)
    logged = read_entries(out, "bad_record")
    assert sorted((entry["step"], entry["what"].partition(": record ")[0]) for entry in logged) == sorted(
        (step, data.name(index).partition(": record ")[0]) for index, step in bad.items()
    )
    printed = capsys.readouterr().err
    assert [printed.count(entry["what"]) for entry in logged] == [1, 1, 1]


def test_one_bad_record_too_many_ends_a_run_saved(data: RecordFolder) -> None:
    data.corrupt(data.first_read_at(2)[0]), data.corrupt(data.first_read_at(5)[0])
    options = options_of(data, skip_bad_records=1)
    for _ in range(2):  # the first is not counted again
        with pytest.raises(BertprepError, match="--skip-bad-records 1; step 4 is saved"):
            run(options)
    assert saved_steps(data.out)[-1] == 4
    assert run(replace(options, skip_bad_records=2))


def test_a_resumed_rank_counts_the_records_that_it_has_skipped(data: RecordFolder) -> None:
    """On the second rank too: with one allowed, the next one ends the run."""
    second = data.batches(GlobalBatch(BATCH, 2, 1))
    firsts = {0, SHARDS[0]}
    of_steps = [[each for each in second.indices(step).tolist() if each not in firsts] for step in (0, 3)]
    data.corrupt(of_steps[0][0]), data.corrupt(next(each for each in of_steps[1] if each not in of_steps[0]))
    options = options_of(data, ranks=2, skip_bad_records=1)
    engines = make_ranks(2)
    engines[0].on_step = at_step(2, stop_this_rank)
    run_ranks(options, *engines)
    assert saved_steps(data.out)
    assert "--skip-bad-records 1; step 3 is saved" in str(run_ranks(options, *make_ranks(2))[1])


@pytest.mark.parametrize(("ranks", "accumulation"), [(2, 2), (4, 1)])
def test_skipped_records_leave_the_same_sums_for_any_number_of_ranks(ranks: int, accumulation: int, data: RecordFolder) -> None:
    for index in (5, 6, 30):
        data.corrupt(index)
    data.corrupt(4, "test")
    run(options_of(data, data.other, skip_bad_records=4))
    several = options_of(data, ranks=ranks, accumulation=accumulation, skip_bad_records=4)
    assert run_ranks(several, *make_ranks(ranks)) == [True] * ranks
    assert (data.out / LAST).read_bytes() == (data.other / LAST).read_bytes()
    numbers = [[entry for entry in lasting(out) if "what" not in entry] for out in (data.other, data.out)]
    assert numbers[0] == numbers[1]  # records are logged by the first rank that reads them, others are printed by theirs


@pytest.mark.parametrize("stop_at", [1, 3, 7])
def test_a_run_with_bad_records_that_is_stopped_ends_with_the_same_bytes(stop_at: int, data: RecordFolder) -> None:
    """With skipped records on both sides of the stop."""
    for index in (5, 6, 30):
        data.corrupt(index)
    options = options_of(data, skip_bad_records=3, eval_every=6)
    run(replace(options, out=data.other))
    assert not run(options, on_step=at_step(stop_at, sigterm))
    assert run(options)
    assert_same_run(data.out, data.other)


@pytest.mark.parametrize(
    ("ranks", "bad_ranks", "has_accelerator"), [(1, [0], False), (1, [0], True), (2, [1], False), (2, [0, 1], False)]
)
def test_a_step_of_bad_records_alone_makes_no_update(
    ranks: int, bad_ranks: list[int], data: RecordFolder, *, has_accelerator: bool
) -> None:
    """Where those of one rank are bad, the others make one. A run that is stopped there ends with the same bytes."""
    batches, firsts = data.batches(), {0, SHARDS[0]}  # which have the shape of their files
    step = next(step for step in range(2, 5) if firsts.isdisjoint(batches.indices(step - 1).tolist()))
    for rank in bad_ranks:
        for index in data.batches(GlobalBatch(BATCH, ranks, rank)).indices(step - 1).tolist():
            data.corrupt(index)
    options = options_of(data, data.other, ranks=ranks, skip_bad_records=BATCH, save_every=1, keep=STEPS)
    assert run_ranks(options, *make_ranks(ranks, has_accelerator=has_accelerator)) == [True] * ranks
    before, after = (read(data.other / f"checkpoint-{number:09d}.safetensors").state for number in (step - 1, step))
    is_same = {name: bool(np.array_equal(before[name], after[name])) for name in before}
    assert is_same["model"] == (len(bad_ranks) == ranks)
    assert (step in [entry["step"] for entry in read_entries(data.other, "train")]) == (len(bad_ranks) < ranks)
    engines = make_ranks(ranks, has_accelerator=has_accelerator)
    engines[0].on_step = at_step(step, stop_this_rank)
    options = replace(options, out=data.out)
    assert run_ranks(options, *engines)[0] is False
    assert run_ranks(options, *make_ranks(ranks)) == [True] * ranks
    assert_same_run(data.out, data.other)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_test_split_without_a_target_but_in_bad_records_is_not_evaluated(
    ranks: int, data: RecordFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    without_targets = {**data.records[0], "masked_lm_weights": [0.0, 0.0]}
    data.write(data.folder / "test" / "part-0", [without_targets, data.records[1]])
    data.corrupt(1, "test")
    options = options_of(data, ranks=ranks, skip_bad_records=1, keep_best=True)
    for _ in range(2):  # it is finished then
        assert run_ranks(options, *make_ranks(ranks)) == [True] * ranks
    printed = capsys.readouterr().err
    assert printed.count("step 12: test split: not evaluated, since none of its good records has a masked token\n") == 1
    assert (read_entries(data.out, "evaluation"), saved_steps(data.out)[-1]) == ([], STEPS)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("step", [4, STEPS])
def test_an_evaluation_that_fails_costs_no_step(ranks: int, step: int, data: RecordFolder) -> None:
    """It is made up by the same command."""

    def fail(updates: int) -> float:
        if updates == step:
            raise BertprepError("out of memory")
        return 0.0

    options = options_of(data, ranks=ranks, eval_every=4)
    ends = run_ranks(options, *make_ranks(ranks, test_loss=fail))
    assert ends == ["out of memory"] * ranks
    assert saved_steps(data.out)[-1] == step
    assert run_ranks(options, *make_ranks(ranks)) == [True] * ranks
    assert run_ranks(replace(options, out=data.other), *make_ranks(ranks)) == [True] * ranks
    assert_same_run(data.out, data.other)


@pytest.mark.parametrize(("ranks", "every"), [(1, 6), (2, 6), (1, 0), (2, 0)])
def test_a_bad_record_of_the_test_split(ranks: int, every: int, data: RecordFolder) -> None:
    """All ranks finish the evaluation that reads it, which is made again when it is repaired, or without it."""
    out, skipped, undisturbed = data.out, data.folder.with_name("skipped"), data.other
    options = options_of(data, out, ranks=ranks, eval_every=every, keep_best=True)
    assert run_ranks(replace(options, out=undisturbed), *make_ranks(ranks)) == [True] * ranks
    repair = data.corrupt(4, "test")
    step = every or STEPS
    for _ in range(2):  # the same command reads it again
        ends = list(map(str, run_ranks(options, *make_ranks(ranks))))
        assert sum(f"{data.folder}/test/part-0: record 4: " in end for end in ends) == 1
        assert all(end.endswith(f"; step {step} is saved, and the same command resumes after it") for end in ends)
        assert read_entries(out, "evaluation") == []
    shutil.copytree(out, skipped)
    assert run_ranks(replace(options, out=skipped, skip_bad_records=1), *make_ranks(ranks)) == [True] * ranks
    evaluation = read_entries(skipped, "evaluation")[-1]
    assert (evaluation["step"], evaluation["sequences"]) == (STEPS, 9)
    good: list[Any] = [record for index, record in enumerate(data.records[:10]) if index != 4]
    totals = [sum(sum(record[name]) for record in good) for name in ("input_ids", "masked_lm_weights")]
    assert evaluation["masked_lm_loss"] == pytest.approx(totals[0] / totals[1])
    repair()
    assert run_ranks(options, *make_ranks(ranks)) == [True] * ranks
    assert_same_run(out, undisturbed, is_repaired=True)


@pytest.mark.parametrize("split", ["training", "test"])
def test_records_without_masked_tokens_are_refused(split: str, tmp_path: Path) -> None:
    """Their losses are 0, which looks like a perfect model."""
    data = RecordFolder(tmp_path / "data")
    for path in (data.folder / split).glob("part-*"):
        data.write(path, [{**record, "masked_lm_weights": [0.0, 0.0]} for record in data.records[: SHARDS[0]]])
    with pytest.raises(BertprepError) as error:
        run(options_of(data))
    parts = ["step 1: ", " 0 masked tokens or labels", "/part-", " with bertprep inspect; no checkpoint was saved before"]
    if split == "test":
        parts = [f"{data.folder}/test/part-0: record 0: ", " 20 ", "masked_lm_weights", "; step 12 is"]
    assert all(part in str(error.value) for part in parts)
    assert all(np.isfinite(entry["loss"]) for entry in read_entries(data.out, "evaluation"))
