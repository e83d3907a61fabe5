"""Faulty data costs at most the step that would have used it, whichever rank meets it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bertprep.errors import BertprepError
from tests.trainer.numpy_engine import (
    BATCH,
    SHARDS,
    STEPS,
    RecordFolder,
    assert_same_run,
    at_step,
    make_ranks,
    options_of,
    read_entries,
    run,
    run_ranks,
    saved_steps,
)
from trainer.batches import GlobalBatch


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
        assert saved_steps(data.out) == [3]
    repair()
    assert run_ranks(options, *make_ranks(ranks)) == [True] * ranks
    assert_same_run(data.out, data.other)


def test_a_fault_before_the_first_step_leaves_no_checkpoint(data: RecordFolder) -> None:
    data.corrupt(data.first_read_at(1)[0])
    with pytest.raises(BertprepError, match=r"; no step was finished before$"):
        run(options_of(data))
    assert saved_steps(data.out) == []


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_file_that_is_truncated_ends_all_ranks_saved(ranks: int, data: RecordFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertprep.records.record_set._most_open", lambda: 1)  # so that files are opened again and again
    part = data.folder / "training" / "part-1"
    engines = make_ranks(ranks)
    engines[0].on_step = at_step(4, lambda: part.write_bytes(part.read_bytes()[:-100]))
    ends = run_ranks(options_of(data, ranks=ranks), *engines)
    step = saved_steps(data.out)[-1]  # how far a thread had read ahead by then is a matter of time
    assert any(str(end).startswith(f"{part}: ") for end in ends)
    assert all(str(end).endswith(f"; step {step} is saved, and the same command resumes after it") for end in ends)
    assert 4 <= step < STEPS


@pytest.mark.parametrize(("ranks", "every"), [(1, 6), (2, 6), (1, 0), (2, 0)])
def test_a_bad_record_of_the_test_split(ranks: int, every: int, data: RecordFolder) -> None:
    """All ranks finish the evaluation that reads it, which is made again when it is repaired."""
    out, undisturbed = data.out, data.other
    options = options_of(data, out, ranks=ranks, eval_every=every, keep_best=True)
    assert run_ranks(replace(options, out=undisturbed), *make_ranks(ranks)) == [True] * ranks
    repair = data.corrupt(4, "test")
    for step in (every or STEPS, STEPS):  # the same command reads it again
        ends = list(map(str, run_ranks(options, *make_ranks(ranks))))
        assert sum(f"{data.folder}/test/part-0: record 4: " in end for end in ends) == 1
        assert all(end.endswith(f"; step {step} is saved, and the same command resumes after it") for end in ends)
        assert read_entries(out, "evaluation") == []
    repair()
    assert run_ranks(options, *make_ranks(ranks)) == [True] * ranks
    if every == 0:
        assert_same_run(out, undisturbed)


@pytest.mark.parametrize("split", ["training", "test"])
def test_records_without_masked_tokens_are_refused(split: str, tmp_path: Path) -> None:
    """Their losses are 0, which looks like a perfect model."""
    data = RecordFolder(tmp_path / "data")
    for path in (data.folder / split).glob("part-*"):
        data.write(path, [{**record, "masked_lm_weights": [0.0, 0.0]} for record in data.records[: SHARDS[0]]])
    with pytest.raises(BertprepError) as error:
        run(options_of(data))
    parts = ["step 1: ", " of 0 masked tokens or labels"]
    if split == "test":
        parts = [f"{data.folder}/test/part-0: record 0: ", " 20 ", "masked_lm_weights", "; step 12 is"]
    assert all(part in str(error.value) for part in parts)
    assert all(np.isfinite(entry["loss"]) for entry in read_entries(data.out, "evaluation"))
