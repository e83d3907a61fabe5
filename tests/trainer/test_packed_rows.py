"""Packed rows have the examples of a step, each once and by itself, and the step's loss and gradients."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bertprep.records import MaskedExamples, PretrainingExamples
from bertprep.records.records import Records
from bertprep.records.write import write_examples
from tests.trainer.numpy_engine import RecordFolder, plan, refuse
from tests.trainer.small_data import write_data
from tests.trainer.small_runs import MODEL, PRED, SEQ, TASKS, build, loss_of, make_batch, on_engines_with, train_step
from trainer.batches import GlobalBatch, TrainingBatches, features
from trainer.packed_rows import Capacity, assign_rows, pack

EXAMPLES = 48
ONE_LAYER = replace(MODEL.without_dropout(), num_hidden_layers=1)  # compiled for each number of rows


def short_examples(step: int = 0) -> PretrainingExamples:
    """Examples of which several fit in a row."""
    rng = np.random.default_rng(step)
    examples = make_batch(step, sequences=EXAMPLES)
    lengths = rng.integers(PRED + 1, SEQ // 2, (EXAMPLES, 1))
    lengths[::10] = SEQ
    examples.input_mask[...] = np.arange(SEQ) < lengths
    return examples


def short_batch(step: int = 0, *, has_pairs: bool = True) -> dict[str, NDArray[Any]]:
    """Short examples, of which the third does not count."""
    examples = short_examples(step)
    arrays = features(examples if has_pairs else MaskedExamples(*examples.arrays[:-1]))
    arrays["row_weights"][2] = arrays["masked_lm_weights"][2] = 0
    return arrays


def found_examples(packed: dict[str, NDArray[Any]]) -> list[tuple[Any, ...]]:
    """The examples in packed rows, each as it was by itself."""
    found = []
    for row in range(len(packed["input_ids"])):
        for index, weight in enumerate(packed["row_weights"][row]):
            [tokens] = np.nonzero(packed["sequence_ids"][row] == index + 1)
            if weight == 0:
                assert tokens.size == 0
                continue
            first = packed["first_positions"][row, index]
            assert tokens.tolist() == list(range(first, first + len(tokens)))
            assert packed["position_ids"][row, tokens].tolist() == list(range(len(tokens)))
            predicted = np.isin(packed["masked_lm_positions"][row], tokens) & (packed["masked_lm_weights"][row] != 0)
            found.append(
                (
                    packed["input_ids"][row, tokens].tolist(),
                    packed["segment_ids"][row, tokens].tolist(),
                    (packed["masked_lm_positions"][row, predicted] - first).tolist(),
                    packed["masked_lm_ids"][row, predicted].tolist(),
                    packed["next_sentence_labels"][row, index],
                )
            )
    return found


def test_each_example_is_once_in_the_rows_as_it_was_by_itself() -> None:
    batch = short_batch()
    packed = pack(batch, micro_batches=4)
    assert packed["input_ids"].shape == (28, SEQ)  # 7 rows of a micro-batch of 12
    lengths, predictions = batch["input_mask"].sum(1), batch["masked_lm_weights"].sum(1).astype(int)
    expected = [
        (
            batch["input_ids"][row, : lengths[row]].tolist(),
            batch["segment_ids"][row, : lengths[row]].tolist(),
            batch["masked_lm_positions"][row, : predictions[row]].tolist(),
            batch["masked_lm_ids"][row, : predictions[row]].tolist(),
            batch["next_sentence_labels"][row],
        )
        for row in range(EXAMPLES)
        if row != 2
    ]
    assert sorted(found_examples(packed)) == sorted(expected)
    assert packed["masked_lm_weights"].sum() == batch["masked_lm_weights"].sum()
    assert packed["input_mask"].sum() == sum(lengths) - lengths[2]


def test_rows_hold_what_fits_and_are_few() -> None:
    rng = np.random.default_rng(1)
    capacity = Capacity(tokens=512, predictions=80)
    lengths = np.minimum(512, rng.lognormal(4.5, 1, 2000)).astype(int) + 0
    predictions = np.maximum(1, np.round(lengths * 0.15)).astype(int)
    rows = assign_rows(lengths.tolist(), predictions.tolist(), capacity)
    assert sorted(example for row in rows for example in row) == np.flatnonzero(lengths).tolist()
    for row in rows:
        assert lengths[row].sum() <= 512
        assert predictions[row].sum() <= 80
        assert len(row) <= capacity.examples
    assert len(rows) < 1.06 * lengths.sum() / 512


def test_a_micro_batch_has_few_different_numbers_of_rows() -> None:
    sizes = {len(pack(short_batch(step), micro_batches=1)["input_ids"]) for step in range(40)}
    assert 1 < len(sizes) <= 8
    assert all(size % 2 == 0 for size in sizes)  # of 48 examples


def test_a_batch_of_bad_records_alone_is_a_row_of_padding() -> None:
    batch = {name: np.zeros_like(array) for name, array in short_batch().items()}
    packed = pack(batch, micro_batches=2)
    assert packed["input_ids"].shape == (2, SEQ)
    assert not any(array.any() for array in packed.values())


@on_engines_with("has_pairs", {"tensorflow": [True, False], "torch": [True, False]})
def test_a_packed_step_has_the_loss_and_the_gradients_of_its_examples(engine: str, has_pairs: bool) -> None:
    task = TASKS["pretraining" if has_pairs else "unpaired"]
    one, other = (build(engine, ONE_LAYER, optimizer="lamb", task=task) for _ in range(2))
    for step in range(3):
        batch = short_batch(step, has_pairs=has_pairs)
        packed = pack(batch, micro_batches=2)
        assert len(packed["input_ids"]) < 0.8 * EXAMPLES
        expected, found = train_step(one, batch, step, accumulation=3), train_step(other, packed, step, accumulation=2)
        assert loss_of(found, task) == pytest.approx(loss_of(expected, task), abs=1e-5)
        assert found.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-5)
        np.testing.assert_array_equal(found.sums[:, 2], expected.sums[:, 2])
    expected_state, state = one.state(), other.state()
    for name in (name for name in state if name.endswith("adam_m")):
        np.testing.assert_allclose(state[name], expected_state[name], rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("record_format", ["tfrecord", "ofrecord", "arrow", "parquet"])
def test_ranks_share_the_rows_of_a_global_batch(record_format: str, tmp_path: Path) -> None:
    """Of any format alike; the records are short, and their order and the batch of each step are those without packing."""
    folder = write_data(tmp_path / record_format, records=50, record_format=record_format)
    with Records([folder]) as records:
        for step in (0, 3):
            unpacked = TrainingBatches(records, GlobalBatch(24), seed=1).read(step)
            expected = pack(unpacked.arrays, micro_batches=4)
            for world_size in (1, 2, 4):
                ranks = [
                    TrainingBatches(records, GlobalBatch(24, world_size, rank), seed=1, packed_into=4).read(step)
                    for rank in range(world_size)
                ]
                for name, array in expected.items():
                    np.testing.assert_array_equal(np.concatenate([rank.arrays[name] for rank in ranks]), array)


def test_a_bad_record_is_left_out_and_reported_by_the_rank_that_would_have_it(tmp_path: Path) -> None:
    data = RecordFolder(tmp_path / "data")
    data.corrupt(5)
    with Records([data.folder]) as records:
        ranks = [TrainingBatches(records, GlobalBatch(24, 2, rank), seed=1, packed_into=2) for rank in range(2)]
        step = next(step for step in range(9) for rank in ranks if 5 in rank.indices(step))
        of_ranks = [rank.read(step) for rank in ranks]
        assert [len(batch.bad) for batch in of_ranks] == [int(5 in rank.indices(step)) for rank in ranks]
    assert sum(batch.arrays["row_weights"].sum() for batch in of_ranks) == 23


def test_the_plan_says_what_packing_saves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data").mkdir()
    write_examples([short_examples()], {"tfrecord": tmp_path / "data" / "part-0.tfrecord"})
    (tmp_path / "model.json").write_text(MODEL.to_json())
    settings = f"--model {tmp_path / 'model.json'} --steps 9"
    command = f"--data {tmp_path / 'data'} {settings} --out {tmp_path / 'out'}"
    saved = "28 rows in the first step; padding 62% -> 34%: 1.7 times fewer rows"
    for options, expected in (
        (f"--batch-size {EXAMPLES} --pack", [saved]),
        (f"--batch-size {EXAMPLES // 2} --accumulate 2 --pack", [saved]),
        (f"--batch-size {EXAMPLES}", []),
    ):
        plan(f"{command} {options}")
        printed = capsys.readouterr().err.splitlines()
        assert [line.split(maxsplit=1)[1] for line in printed if line.startswith("packing")] == expected


def test_what_cannot_be_packed_is_a_line(tmp_path: Path) -> None:
    folder = write_data(tmp_path / "data")
    status, message = refuse(f"--data {folder} --pack --engine oneflow --out {tmp_path / 'out'}")
    assert status == 2
    assert message.startswith(
        "--engine oneflow: does not support packed rows; use --engine torch or tensorflow, or train without --pack"
    )
