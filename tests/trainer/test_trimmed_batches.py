"""Trimmed batches have each record once in an epoch, with the loss and gradients that it has at full width."""

from pathlib import Path

import numpy as np
import pytest

from bertprep.records.records import Records
from bertprep.records.write import write_examples
from tests.trainer.numpy_engine import RecordFolder, plan, refuse
from tests.trainer.small_data import make_squad, write_data
from tests.trainer.small_runs import MODEL, PRED, SEQ, build, loss_of, on_engines, train_step
from tests.trainer.test_packed_rows import ONE_LAYER, short_batch, short_examples
from trainer.batches import GlobalBatch, RankBatch, TrainingBatches, features
from trainer.engines.choice import PACKED
from trainer.trimmed_batches import arrange, eighths, steps_of_window, trim


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """144 records, most of them short."""
    folder = tmp_path_factory.mktemp("short")
    write_examples([short_examples(step) for step in range(3)], {"tfrecord": folder / "part-0.tfrecord"})
    return folder


def read(folder: Path, step: int, *, size: int = 8, world: int = 1, rank: int = 0) -> RankBatch:
    with Records([folder]) as records:
        return TrainingBatches(records, GlobalBatch(size, world, rank), seed=1, trims=True).read(step)


def test_each_record_is_once_in_an_epoch_and_a_step_is_read_by_its_number_alone(data: Path) -> None:
    """Windows of 32 steps end within epochs of 18 steps."""
    with Records([data]) as records:
        batches = TrainingBatches(records, GlobalBatch(8), seed=1, trims=True)
        indices = np.stack([batches.indices(step) for step in range(54)])
        for epoch in range(3):
            assert sorted(indices[18 * epoch :][:18].ravel().tolist()) == list(range(144))
        assert not np.array_equal(indices[:18], indices[18:36])
        for step in (0, 31, 32, 53):
            expected = records.kind.empty(8, seq=SEQ, pred=PRED)
            records.gather_into(expected, indices[step])
            expected_arrays, found = features(expected), read(data, step).arrays
            for name, array in found.items():
                whole = expected_arrays[name]
                np.testing.assert_array_equal(array, whole if whole.ndim == 1 else whole[:, : array.shape[1]], err_msg=name)
            assert found["masked_lm_weights"].sum() == expected_arrays["masked_lm_weights"].sum()
            assert found["input_mask"].sum() == expected_arrays["input_mask"].sum()


def test_batches_are_of_few_widths_in_random_order_and_mostly_narrow(data: Path) -> None:
    widths = [read(data, step).arrays["input_ids"].shape[1] for step in range(18)]
    shapes = {read(data, step).arrays["masked_lm_ids"].shape[1] for step in range(18)}
    assert len(set(widths)) <= 8
    assert len(shapes) <= 8
    assert np.mean(widths) < 0.7 * SEQ
    assert widths != sorted(widths)
    assert max(widths) == SEQ


def test_a_batch_of_two_epochs_stays_between_them() -> None:
    epochs = np.repeat([0, 1, 2], [6, 8, 6])
    rows = arrange(np.arange(20) % 5, epochs, steps=5, seed=1, window=0)
    assert epochs[rows].ravel().tolist() == sorted(epochs.tolist())
    assert sorted(rows.ravel().tolist()) == list(range(20))


def test_a_width_holds_the_last_token_and_the_last_prediction() -> None:
    batch = {
        "input_ids": np.ones((4, 16), np.int32),
        "input_mask": (np.arange(16) < np.array([[2], [3], [9], [16]])).astype(np.int32),
        "masked_lm_positions": np.array([[1, 0, 0, 0], [11, 0, 0, 0], [1, 2, 3, 0], [1, 0, 0, 0]]),
        "masked_lm_weights": np.array([[1, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0]], np.float32),
        "row_weights": np.array([1, 1, 1, 0], np.float32),
    }
    assert eighths(batch).tolist() == [2, 6, 6, 1]
    assert {name: array.shape for name, array in trim(batch).items()} == {
        "input_ids": (4, 12), "input_mask": (4, 12), "masked_lm_positions": (4, 3), "masked_lm_weights": (4, 3),
        "row_weights": (4,),
    }  # fmt: skip


@pytest.mark.parametrize("size", [1, 32, 1 << 14, 1 << 20])
def test_a_window_holds_few_records(size: int) -> None:
    assert 1 <= steps_of_window(size) <= 32
    assert steps_of_window(size) * size <= max(size, 1 << 15)


def test_ranks_share_a_global_batch_of_one_width(data: Path) -> None:
    for step in (0, 7, 33):
        expected = read(data, step).arrays
        ranks = [read(data, step, world=4, rank=rank).arrays for rank in range(4)]
        for name, array in expected.items():
            np.testing.assert_array_equal(np.concatenate([rank[name] for rank in ranks]), array)


def test_a_bad_record_is_reported_once_by_the_step_and_the_rank_that_have_it(tmp_path: Path) -> None:
    folder = RecordFolder(tmp_path / "data")
    folder.corrupt(5)
    with Records([folder.folder]) as records:
        ranks = [TrainingBatches(records, GlobalBatch(4, 2, rank), seed=1, trims=True) for rank in range(2)]
        steps = range(len(records) // 4)
        bad = [(step, error.index) for step in steps for batches in ranks for error in batches.read(step).bad]
        assert [index for _, index in bad] == [5]
        assert any(5 in batches.indices(bad[0][0]) for batches in ranks)
        weights = [batches.read(bad[0][0]).arrays["row_weights"] for batches in ranks]
    assert np.concatenate(weights).sum() == 3


@on_engines(*PACKED)
def test_a_trimmed_step_has_the_loss_and_the_gradients_of_its_rows(engine: str) -> None:
    one, other = (build(engine, ONE_LAYER) for _ in range(2))
    for step in range(2):
        batch = short_batch(step)
        short = {name: array[eighths(batch) < 6] for name, array in batch.items()}
        short = {name: array[: len(array) // 2 * 2] for name, array in short.items()}
        trimmed = trim(short)
        assert trimmed["input_ids"].shape[1] < SEQ
        expected, found = (train_step(*each, step, accumulation=2) for each in ((one, short), (other, trimmed)))
        assert loss_of(found) == pytest.approx(loss_of(expected), abs=1e-5)
        assert found.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-5)


def test_the_plan_says_what_trimming_saves(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.json").write_text(MODEL.to_json())
    plan(f"--data {data} --model {tmp_path / 'model.json'} --steps 18 --batch-size 8 --trim --out {tmp_path / 'out'}")
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("trimming")]
    assert line.split(maxsplit=1)[1].startswith("in the first 18 steps padding ")
    assert line.endswith(" times fewer tokens")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--pack", "--trim: cannot be combined with --pack, which leaves little padding; leave --trim out"),
        (
            "--engine oneflow",
            "--trim: --engine oneflow has a static graph, which needs one width; leave it out, or use --engine torch",
        ),
    ],
)
def test_what_cannot_be_trimmed_is_a_line(options: str, expected: str, tmp_path: Path) -> None:
    folder = write_data(tmp_path / "data")
    status, message = refuse(f"--data {folder} --trim {options} --out {tmp_path / 'out'}")
    assert (status, message[: len(expected)]) == (2, expected)


def test_squads_loss_would_change_by_trimming(tmp_path: Path) -> None:
    folder = make_squad(tmp_path)
    status, message = refuse(f"squad --data {folder} --trim --out {tmp_path / 'out'}")
    assert status == 2
    assert message.startswith("--trim: would change the loss of SQuAD v1.1, whose softmax includes the padding of a window")
