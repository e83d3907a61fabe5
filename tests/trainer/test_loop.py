"""The loop with an engine of NumPy: nothing that is wrong with the data costs more than the step that it would have been in."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bertprep.errors import BertprepError
from bertprep.records import Examples
from bertprep.records.record_set import RecordSet
from tests.records.handmade import Dialect, Record, file_of
from tests.records.test_record_set import write_folder
from trainer import log as run_log
from trainer import loop
from trainer.batches import GlobalBatch, TrainingBatches
from trainer.checkpoint import find_checkpoints
from trainer.checkpoint import read as read_checkpoint
from trainer.loop import train
from trainer.metrics import StepResult, Sums
from trainer.model_config import ModelConfig
from trainer.optimizer import OptimizerSettings
from trainer.schedule import Schedule
from trainer.settings import Phase, RunSettings

SHARDS = (20, 13)  # records
STEPS, BATCH, SEED = 12, 8, 3  # three epochs
LAST = f"checkpoint-{STEPS:09d}.safetensors"


class Ranks:
    """What the ranks of a run, threads here, exchange; one that is left alone fails."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._barrier = threading.Barrier(count, timeout=10)
        self._given: list[Any] = [None] * count

    def gather(self, rank: int, value: Any) -> list[Any]:
        self._given[rank] = value
        self._barrier.wait()
        given = list(self._given)
        self._barrier.wait()
        return given


class NumPyEngine:
    """A model of one number, to which each step adds the learning rate times the sum of all tokens: no step can be missed."""

    device_name, precision = "NumPy", "off"
    versions: dict[str, str] = {"numpy": "any"}  # noqa: RUF012 - as the protocol has it

    def __init__(self, ranks: Ranks | None = None, rank: int = 0, *, has_accelerator: bool = False) -> None:
        self._ranks, self.data_rank, self.has_accelerator = ranks or Ranks(1), rank, has_accelerator
        self.data_world_size = self.processes = self.devices = self._ranks.count
        self.is_first = rank == 0
        self.on_step: Callable[[int], object] = lambda _: None

    def build(self, *_: Any, **__: Any) -> None:
        self.model = 0.0

    def restart(self) -> None:
        self.updates = 0

    def train(self, examples: Examples, *, step: int, learning_rate: float, stop: bool, **_: int) -> Callable[[], StepResult]:
        self.on_step(step)
        own = (float(examples.input_ids.sum()), float(len(examples)), stop)
        loss, sequences, stops = (sum(values) for values in zip(*self.gather(own), strict=True))
        self.model += learning_rate * loss
        self.updates += 1
        sums = Sums(masked_lm_loss=loss, masked_lm_weight=sequences, next_sentence_loss=1.0, sequences=sequences)
        return lambda: StepResult(sums, gradient_norm=float(step + 1), loss_scale=1.0, is_stop_wanted=stops > 0)

    def evaluate(self, examples: Examples, row_weights: NDArray[np.float32]) -> Sums:
        own = (float(examples.input_ids[row_weights > 0].sum()), float(row_weights.sum()))
        loss, sequences = (sum(values) for values in zip(*self.gather(own), strict=True))
        return Sums(masked_lm_loss=loss, masked_lm_weight=sequences, sequences=sequences)

    def state(self) -> dict[str, NDArray[np.float32]]:
        return {
            "model": np.array(self.model, np.float64).reshape(1).view(np.float32),
            "updates": np.array(self.updates, np.float32),
        }

    def restore(self, state: dict[str, NDArray[np.float32]]) -> None:
        self.model, self.updates = float(state["model"].view(np.float64)[0]), int(state["updates"])

    def gather(self, value: Any) -> list[Any]:
        return self._ranks.gather(self.data_rank, value)


class Data:
    """A folder of records, in either format, and how single ones are damaged."""

    def __init__(self, folder: Path, record_format: str = "tfrecord") -> None:
        self.folder, self._dialect = folder, Dialect(record_format)
        self.records: list[Record] = write_folder(folder, SHARDS, record_format)
        (folder / "test").mkdir()
        (folder / "test" / "part-0").write_bytes(file_of(*self.records[:10], dialect=self._dialect))

    def damage(self, number: int, split: str = "training") -> Callable[[], object]:
        """Spoil a record as a failing disk does; returns what repairs it."""
        file, record = (0, number) if number < SHARDS[0] else (1, number - SHARDS[0])
        path = self.folder / split / f"part-{file}"
        shard = self.records[: SHARDS[0]] if file == 0 else self.records[SHARDS[0] :]
        begin, end = (len(file_of(*shard[:count], dialect=self._dialect)) for count in (record, record + 1))
        whole = path.read_bytes()[begin:end]

        def write(data: bytes) -> None:
            with path.open("r+b") as opened:  # in place: it is mapped
                opened.seek(begin)
                opened.write(data)

        write(whole[:12] + b"\xff" * (len(whole) - 16) + whole[-4:])
        return lambda: write(whole)

    def first_step_of(self, number: int) -> int:
        """The step, from 1, that first meets a record."""
        with RecordSet([self.folder]) as records:
            batches = TrainingBatches(records, GlobalBatch(BATCH), seed=SEED)
            return next(step + 1 for step in range(STEPS) if number in batches.numbers(step))

    def met_first_at(self, step: int, count: int = 1) -> list[int]:
        """Records that this step is the first to meet, and that are not the first of a file, which says its shape."""
        numbers = [number for number in range(sum(SHARDS)) if number not in (0, SHARDS[0])]
        return [number for number in numbers if self.first_step_of(number) == step][:count]


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log, "draw_losses", lambda *_: None)


@pytest.fixture(params=["tfrecord", "ofrecord"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Data:
    return Data(tmp_path / "data", request.param)


def settings_of(data: Data, out: Path, *, devices: int = 1, accumulation: int = 1, **more: Any) -> RunSettings:
    phase = Phase(
        data=(data.folder,),
        seq=8,
        batch_size=BATCH // devices // accumulation,
        accumulation=accumulation,
        schedule=Schedule.google(peak=0.5, steps=STEPS, warmup_steps=2),
        has_test=more.pop("has_test", True),
    )
    settings = RunSettings(
        model=ModelConfig.preset("tiny", vocab_size=30522),
        phases=(phase,),
        optimizer=OptimizerSettings(name="adam"),
        out=out,
        seed=SEED,
        log_every=1,
        eval_every=0,
        save_every=5,
    )
    return replace(settings, **more)


def train_on_ranks(settings: RunSettings, count: int, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What came of each rank: the outcome, or the message of an error."""
    monkeypatch.setattr(loop, "StopSignal", _NoSignal)  # which threads cannot be sent
    ranks = Ranks(count)

    def run(rank: int) -> object:
        engine: Any = NumPyEngine(ranks, rank)
        try:
            return train(settings, engine)
        except BertprepError as error:
            return str(error)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


class _NoSignal:
    has_come = False

    def __enter__(self) -> _NoSignal:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def run(settings: RunSettings, **engine: Any) -> loop.Outcome:
    of_numpy: Any = NumPyEngine(**engine)
    return train(settings, of_numpy)


def entries(out: Path, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [entry for entry in found if entry["kind"] == kind]


def lasting(out: Path) -> list[dict[str, Any]]:
    """What a log says but for speeds and starts."""
    names = ("kind", "step", "loss", "masked_lm_loss", "gradient_norm", "record", "file", "what")
    found = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [{name: entry[name] for name in names if name in entry} for entry in found if entry["kind"] != "run"]


def saved_steps(out: Path) -> list[int]:
    return [read_checkpoint(path).step for path in find_checkpoints(out)]


@pytest.mark.parametrize("has_accelerator", [False, True])
def test_the_last_step_before_a_damaged_record_is_saved(data: Data, tmp_path: Path, *, has_accelerator: bool) -> None:
    run(settings_of(data, tmp_path / "whole"))
    repair = data.damage(number := data.met_first_at(4)[0])
    settings = settings_of(data, tmp_path / "out")
    for _ in range(2):  # the same command meets it again
        with pytest.raises(BertprepError) as error:
            run(settings, has_accelerator=has_accelerator)
        file, record = (0, number) if number < SHARDS[0] else (1, number - SHARDS[0])
        assert str(error.value).startswith(f"{data.folder}/training/part-{file}: record {record}: ")
        assert str(error.value).endswith(
            "; --skip-bad-records N goes on without so many; step 3 is saved, and the same command goes on from there"
        )
        assert saved_steps(tmp_path / "out") == [3]
    repair()
    assert run(settings, has_accelerator=has_accelerator).is_finished
    assert lasting(tmp_path / "out") == lasting(tmp_path / "whole")
    # the first began with a record that it could not know: its fingerprint is not known either
    found, expected = (read_checkpoint(tmp_path / name / LAST) for name in ("out", "whole"))
    assert found.state["model"].tobytes() == expected.state["model"].tobytes()


def test_a_record_damaged_under_way(data: Data, tmp_path: Path) -> None:
    """The run that meets it in its second epoch has read it before."""
    number = data.met_first_at(1)[0]
    engine: Any = NumPyEngine()
    engine.on_step = lambda step: data.damage(number) if step == 1 else None
    with pytest.raises(BertprepError, match=r"; step \d is saved, and the same command goes on from there$"):
        train(settings_of(data, tmp_path / "out", has_test=False), engine)
    (step,) = saved_steps(tmp_path / "out")[-1:]
    assert 4 <= step <= 8
    assert run(settings_of(data, tmp_path / "out", has_test=False, skip_bad_records=1)).is_finished
    assert [(entry["step"], entry["record"]) for entry in entries(tmp_path / "out", "bad_record")] == [
        (step + 1, number % SHARDS[0])
    ]


def test_a_fault_before_the_first_step_leaves_nothing_to_go_on_from(data: Data, tmp_path: Path) -> None:
    data.damage(data.met_first_at(1)[0])
    with pytest.raises(BertprepError, match=r"; no step was finished before$"):
        run(settings_of(data, tmp_path / "out"))
    assert find_checkpoints(tmp_path / "out") == []


def test_a_file_that_was_changed_ends_a_run_saved(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = NumPyEngine()
    monkeypatch.setattr("bertprep.records.record_set._most_open", lambda: 1)  # so that files are opened again and again
    part = data.folder / "training" / "part-1"
    engine.on_step = lambda step: part.write_bytes(part.read_bytes()[:-100]) if step == 3 else None
    with pytest.raises(BertprepError) as error:
        train(settings_of(data, tmp_path / "out"), engine)
    saved = saved_steps(tmp_path / "out")
    step = saved[-1]  # how far a thread had read ahead by then is a matter of time
    assert saved == sorted({*range(5, step, 5), step})
    assert str(error.value).startswith(f"{part}: ")
    assert str(error.value).endswith(f"; step {step} is saved, and the same command goes on from there")
    assert 4 <= step < STEPS


@pytest.mark.parametrize("has_accelerator", [False, True])
def test_bad_records_are_skipped_and_named_once(
    data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, has_accelerator: bool
) -> None:
    bad = [*data.met_first_at(2, 2), *data.met_first_at(4)]
    for number in bad:
        data.damage(number)
    out = tmp_path / "out"
    assert run(settings_of(data, out, skip_bad_records=3), has_accelerator=has_accelerator).is_finished
    named = entries(out, "bad_record")
    assert sorted((entry["step"], entry["file"], entry["record"]) for entry in named) == sorted(
        (
            data.first_step_of(number),
            str(data.folder / "training" / f"part-{int(number >= SHARDS[0])}"),
            number if number < SHARDS[0] else number - SHARDS[0],
        )
        for number in bad
    )
    said = capsys.readouterr().err
    for entry in named:
        assert (
            f"step {entry['step']}: without a bad record: {entry['file']}: record {entry['record']}: {entry['what']}\n" in said
        )
    assert {number for _, _, number in read_checkpoint(out / LAST).bad_records} == set(bad)


def test_in_the_place_of_a_bad_record_stands_the_next_good_one(data: Data) -> None:
    data.damage(5), data.damage(6)
    with RecordSet([data.folder]) as records:
        batches = TrainingBatches(records, GlobalBatch(33), seed=SEED, skip_bad=2)
        for step in range(2):
            found = batches.batch_of(step).input_ids
            for row, number in enumerate(batches.numbers(step).tolist()):
                expected = data.records[7 if number in (5, 6) else number]["input_ids"]
                assert found[row].tolist() == expected
        assert {(step, bad.number) for step, bad in batches.take_bad(1)} == {(0, 5), (0, 6), (1, 5), (1, 6)}


@pytest.mark.parametrize(("ranks", "accumulation"), [(2, 1), (2, 2), (4, 1)])
def test_what_is_skipped_is_the_same_for_every_world_size(
    ranks: int, accumulation: int, data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (5, 6, 30):
        data.damage(number)
    data.damage(4, "test")
    run(settings_of(data, tmp_path / "one", skip_bad_records=4))
    several = settings_of(data, tmp_path / "several", devices=ranks, accumulation=accumulation, skip_bad_records=4)
    assert train_on_ranks(several, ranks, monkeypatch) == [loop.Outcome(STEPS, is_finished=True)] * ranks
    assert lasting(tmp_path / "several") == lasting(tmp_path / "one")
    assert (tmp_path / "several" / LAST).read_bytes() == (tmp_path / "one" / LAST).read_bytes()


@pytest.mark.parametrize("stop_at", [1, 2, 3, 7, 9])
@pytest.mark.parametrize("has_accelerator", [False, True])
def test_a_run_that_is_stopped_ends_with_the_same_bytes(
    stop_at: int, data: Data, tmp_path: Path, *, has_accelerator: bool
) -> None:
    """The same checkpoints and log, with skipped records and means over steps on both sides of the stop."""
    for number in (5, 6, 30):
        data.damage(number)
    more = {"skip_bad_records": 3, "log_every": 4, "eval_every": 6}
    run(settings_of(data, tmp_path / "whole", **more), has_accelerator=has_accelerator)
    settings = settings_of(data, tmp_path / "stopped", **more)
    stop_signal: Any = SimpleNamespace(has_come=False)
    engine: Any = NumPyEngine(has_accelerator=has_accelerator)

    class Told(_NoSignal):
        def __enter__(self) -> Any:
            return stop_signal

    engine.on_step = lambda step: setattr(stop_signal, "has_come", step + 1 >= stop_at)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop, "StopSignal", Told)
        assert not train(settings, engine).is_finished
    assert run(settings, has_accelerator=has_accelerator).is_finished
    assert (tmp_path / "stopped" / LAST).read_bytes() == (tmp_path / "whole" / LAST).read_bytes()
    assert lasting(tmp_path / "stopped") == lasting(tmp_path / "whole")


def test_one_bad_record_too_many_ends_a_run_saved(data: Data, tmp_path: Path) -> None:
    first, second = data.met_first_at(2)[0], data.met_first_at(5)[0]
    data.damage(first), data.damage(second)
    settings = settings_of(data, tmp_path / "out", skip_bad_records=1)
    for _ in range(2):  # the first is not counted again
        with pytest.raises(BertprepError, match="; it is one bad record more than --skip-bad-records 1; step 4 is saved"):
            run(settings)
    assert saved_steps(tmp_path / "out")[-1] == 4
    assert run(replace(settings, skip_bad_records=2)).is_finished


def test_where_no_record_is_good_there_is_an_end(data: Data, tmp_path: Path) -> None:
    settings = settings_of(data, tmp_path / "out", skip_bad_records=1000)
    few = replace(settings.model, vocab_size=10)
    with pytest.raises(BertprepError, match=r"has the value .*none of the 33 records is good; no step was finished before$"):
        run(replace(settings, model=few))


def test_no_rank_waits_for_one_that_meets_a_damaged_record(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data.damage(number := data.met_first_at(4)[0])
    ends = train_on_ranks(settings_of(data, tmp_path / "out", devices=2), 2, monkeypatch)
    with RecordSet([data.folder]) as records:
        meets = next(
            rank for rank in range(2) if number in TrainingBatches(records, GlobalBatch(BATCH, 2, rank), seed=SEED).numbers(3)
        )
    saved = "step 3 is saved, and the same command goes on from there"
    assert f": record {number if number < SHARDS[0] else number - SHARDS[0]}: " in str(ends[meets])
    assert str(ends[meets]).endswith(saved)
    assert ends[1 - meets] == f"process {1 - meets} of 2: another one met data that it cannot take, and says which; {saved}"
    assert saved_steps(tmp_path / "out") == [3]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_damaged_record_of_the_test_split(ranks: int, data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found in the middle of an evaluation, which all ranks finish."""
    data.damage(4, "test")
    settings = settings_of(data, tmp_path / "out", devices=ranks, eval_every=6)
    ends = train_on_ranks(settings, ranks, monkeypatch)
    assert sum(f"{data.folder}/test/part-0: record 4: " in str(end) for end in ends) == 1
    assert all(str(end).endswith("; step 6 is saved, and the same command goes on from there") for end in ends)
    assert entries(tmp_path / "out", "evaluation") == []
    assert (
        train_on_ranks(replace(settings, skip_bad_records=1), ranks, monkeypatch)
        == [loop.Outcome(STEPS, is_finished=True)] * ranks
    )
    (evaluation,) = entries(tmp_path / "out", "evaluation")
    assert (evaluation["step"], evaluation["sequences"]) == (STEPS, 9)
    expected = np.mean([sum(record["input_ids"]) for number, record in enumerate(data.records[:10]) if number != 4])
    assert evaluation["masked_lm_loss"] == pytest.approx(expected)
    assert [(entry["split"], entry["record"]) for entry in entries(tmp_path / "out", "bad_record")] == [("test", 4)]


def test_a_line_has_the_means_since_the_line_before(data: Data, tmp_path: Path) -> None:
    run(settings_of(data, tmp_path / "each"))
    run(settings_of(data, tmp_path / "fourth", log_every=5))
    each, fifth = (entries(tmp_path / name, "train") for name in ("each", "fourth"))
    assert [entry["step"] for entry in fifth] == [5, 10, 12]
    for entry, steps in zip(fifth, (each[:5], each[5:10], each[10:]), strict=True):
        for name in ("loss", "masked_lm_loss", "next_sentence_loss", "gradient_norm"):
            assert entry[name] == pytest.approx(_mean([step[name] for step in steps]), rel=1e-12)
        assert entry["learning_rate"] == steps[-1]["learning_rate"]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)  # all steps have the same weight here
