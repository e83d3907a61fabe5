"""The data of a phase: its global batch, and an evaluation that meets each test record once, however many ranks there are."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bertprep.records import Examples
from bertprep.records.record_set import RecordSet
from tests.records.test_record_set import write_folder
from trainer.metrics import Sums, training_flops
from trainer.model_config import ModelConfig
from trainer.phase_data import PhaseData, fingerprint
from trainer.schedule import Schedule
from trainer.settings import Phase
from trainer.unigram import unigram_loss

MODEL = ModelConfig.preset("tiny", vocab_size=100_000)


class Counter:
    """An engine that counts: each sequence, and the first token of each as its loss."""

    data_world_size, devices = 2, 2

    def __init__(self, rank: int) -> None:
        self.data_rank = rank

    def evaluate(self, examples: Examples, row_weights: NDArray[np.float32]) -> Sums:
        loss = float(examples.input_ids[: len(row_weights), 0] @ row_weights)
        return Sums(next_sentence_loss=loss, sequences=float(row_weights.sum()))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """30 training records and 11 test records, the first 4 of which are in training too."""
    write_folder(tmp_path / "data", (20, 10))
    (tmp_path / "data" / "test").mkdir()
    for number, (size, seed) in enumerate([(4, 0), (7, 1)]):
        write_folder(tmp_path / f"{seed}", (size,), seed=seed)
        (tmp_path / f"{seed}" / "training" / "part-0").rename(tmp_path / "data" / "test" / f"part-{number}")
    return tmp_path / "data"


def open_phase(folder: Path, *, rank: int = 0, eval_sequences: int = 0, has_test: bool = True) -> PhaseData:
    schedule = Schedule.google(peak=1e-4, steps=10, warmup_steps=1)
    phase = Phase(data=(folder,), seq=8, batch_size=3, accumulation=2, schedule=schedule, has_test=has_test)
    settings: Any = SimpleNamespace(model=MODEL, seed=1, eval_sequences=eval_sequences, skip_bad_records=0)
    engine: Any = Counter(rank)
    return PhaseData(settings, phase, engine)


def test_a_global_batch_is_all_devices_micro_batches(folder: Path) -> None:
    with open_phase(folder, rank=1) as data:
        assert data.batch.size == 3 * 2 * 2
        assert (data.batch.rank_size, data.batch.micro_batch, data.batch.rows) == (6, 3, range(6, 12))
        assert data.flops == 12 * training_flops(MODEL, seq=8, pred=2)
        assert data.test is not None
        assert (len(data.records), len(data.test)) == (30, 11)


@pytest.mark.parametrize(("eval_sequences", "expected"), [(0, 11), (11, 11), (7, 7), (100, 11)])
def test_an_evaluation_is_of_the_first_sequences_each_once(eval_sequences: int, expected: int, folder: Path) -> None:
    sums = Sums()
    for rank in range(2):
        engine: Any = Counter(rank)
        with open_phase(folder, rank=rank, eval_sequences=eval_sequences) as data:
            sums = sums.plus(data.evaluate(engine).sums)  # which an engine does for all ranks
    with RecordSet([folder], "test") as records:
        first = Examples.empty(expected, seq=8, pred=2)
        records.gather_into(first, np.arange(expected))
    assert (sums.sequences, sums.next_sentence_loss) == (expected, first.input_ids[:, 0].sum())


def test_the_unigram_loss_is_of_the_same_sequences(folder: Path) -> None:
    with open_phase(folder, eval_sequences=4) as data, RecordSet([folder], "test") as test:
        of_four, of_all = (unigram_loss(data.records, test, vocab_size=100_000, test_sequences=count) for count in (4, 0))
        assert data.unigram_loss == of_four != of_all


def test_without_a_test_split_there_is_nothing_to_evaluate_on(folder: Path) -> None:
    with open_phase(folder, has_test=False) as data:
        assert data.test is None
        assert data.unigram_loss is None


def test_data_are_known_again_by_their_records(tmp_path: Path) -> None:
    write_folder(tmp_path / "data", (20, 10))
    write_folder(tmp_path / "other format", (20, 10), "ofrecord")
    write_folder(tmp_path / "other order", (20, 10))
    first, second = (tmp_path / "other order" / "training" / f"part-{number}" for number in (0, 1))
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    prints = {}
    for name in ("data", "other format", "other order"):
        with open_phase(tmp_path / name, has_test=False) as data:
            prints[name] = fingerprint(data.records)
    assert prints["other format"] == prints["data"]
    assert prints["other order"] != prints["data"]
