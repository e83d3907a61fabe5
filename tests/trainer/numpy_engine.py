"""An engine of NumPy, and records that it trains on: the loop, with all of its files, in milliseconds."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bertprep.errors import BertprepError
from bertprep.records import Examples, PretrainingExamples
from bertprep.records.record_set import RecordSet
from tests.records.handmade import Dialect, Record, file_of
from tests.records.test_record_set import write_folder
from trainer import loop
from trainer.batches import GlobalBatch, TrainingBatches
from trainer.checkpoint import find_checkpoints
from trainer.checkpoint import read as read_checkpoint
from trainer.loop import train
from trainer.metrics import StepResult
from trainer.model_config import ModelConfig
from trainer.schedule import Schedule
from trainer.settings import OptimizerSettings, Phase, RunSettings
from trainer.tasks import Sums, Task
from trainer.tasks.pretraining import PRETRAINING, PretrainingSums

SHARDS = (20, 13)  # records
STEPS, BATCH, SEED = 12, 8, 3  # three epochs
LAST = f"checkpoint-{STEPS:09d}.safetensors"


class Ranks:
    """What the ranks of a run, threads here, exchange; one that is left alone fails."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._barrier = threading.Barrier(count, timeout=120)
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
    norms: Mapping[int, float] = MappingProxyType({})  # of steps, from 1, whose gradients are not finite

    def __init__(self, ranks: Ranks | None = None, rank: int = 0, *, has_accelerator: bool = False) -> None:
        self._ranks, self.data_rank, self.has_accelerator = ranks or Ranks(1), rank, has_accelerator
        self.data_world_size = self.processes = self.devices = self._ranks.count
        self.is_first = rank == 0
        self.on_step: Callable[[int], object] = lambda _: None
        self.loss_scale = 1.0
        self.test_loss: Callable[[int], float] = lambda updates: 0.0  # noqa: ARG005 - more than that of the tokens
        self.says: Callable[[NDArray[np.int32], int], dict[str, NDArray[np.float32]]] = lambda *_: {}
        self.events: list[str] = []  # what was asked of it, steps counted from 1

    def build(self, *_: Any, task: Task = PRETRAINING, **__: Any) -> None:
        self.model, self.task = 0.0, task

    def restart(self) -> None:
        self.updates = 0
        self.events.append("restart")

    def train(
        self, examples: PretrainingExamples, *, step: int, learning_rate: float, stop: bool, **_: int
    ) -> Callable[[], StepResult]:
        self.on_step(step)
        self.events.append(f"begin {step + 1}")
        own = (float(examples.input_ids.sum()), float(len(examples)), stop)
        loss, sequences, stops = (sum(values) for values in zip(*self.gather(own), strict=True))
        norm = self.norms.get(step + 1, float(step + 1))
        if np.isfinite(norm):
            self.model += learning_rate * loss
            self.updates += 1
        sums: Sums = PretrainingSums(
            masked_lm_loss_sum=loss, masked_lm_weight_sum=sequences, next_sentence_loss_sum=1.0, sequences=sequences
        )
        if self.task is not PRETRAINING:
            sums = self.task.sums(loss, *[0.0] * (len([*self.task.sums()]) - 2), sequences)

        def wait() -> StepResult:
            self.events.append(f"wait {step + 1}")
            return StepResult(sums, norm, self.loss_scale, is_stop_wanted=stops > 0)

        return wait

    def evaluate(self, examples: PretrainingExamples, row_weights: NDArray[np.float32]) -> PretrainingSums:
        self.events.append("evaluate")
        count = float(row_weights.sum())
        own = (float(examples.input_ids[row_weights > 0].sum()) + count * self.test_loss(self.updates), count)
        loss, sequences = (sum(values) for values in zip(*self.gather(own), strict=True))
        return PretrainingSums(masked_lm_loss_sum=loss, masked_lm_weight_sum=sequences, sequences=sequences)

    def predict(self, examples: Examples) -> dict[str, NDArray[np.float32]]:
        """What `says` gives for the tokens of this rank's rows, after so many updates, of all ranks."""
        self.events.append("predict")
        of_all = self.gather(self.says(examples.input_ids, self.updates))
        return {name: np.concatenate([rows[name] for rows in of_all]) for name in of_all[0]}

    def state(self) -> dict[str, NDArray[np.float32]]:
        self.events.append("state")
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


def phase_of(
    data: Data, steps: int = STEPS, *, warmup_steps: int = 2, batch_size: int = BATCH, accumulation: int = 1, **more: Any
) -> Phase:
    schedule = Schedule(peak=0.5, steps=steps, warmup_steps=warmup_steps)
    return Phase(data=(data.folder,), seq=8, batch_size=batch_size, accumulation=accumulation, schedule=schedule, **more)


def settings_of(data: Data, out: Path, *, devices: int = 1, accumulation: int = 1, **more: Any) -> RunSettings:
    """A run of 12 steps of 8 sequences, logged at each step and saved at every fifth, unless `more` says otherwise."""
    phase = phase_of(
        data,
        batch_size=BATCH // devices // accumulation,
        accumulation=accumulation,
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
    """Whether each rank finished, or the message of its error."""
    monkeypatch.setattr(loop, "StopSignal", NoSignal)  # which threads cannot be sent
    ranks = Ranks(count)

    def run(rank: int) -> object:
        engine: Any = NumPyEngine(ranks, rank)
        try:
            return train(settings, engine)
        except BertprepError as error:
            return str(error)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


class NoSignal:
    """No signal, and none that is sent is noticed."""

    has_come = False

    def __enter__(self) -> NoSignal:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@contextmanager
def stopped_at(step: int, engine: NumPyEngine) -> Iterator[None]:
    """A signal to stop arrives as a step is begun, from 1."""
    signal: Any = NoSignal()
    engine.on_step = lambda index: setattr(signal, "has_come", index + 1 >= step)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop, "StopSignal", lambda: signal)
        yield


def run(settings: RunSettings, **engine: Any) -> bool:
    of_numpy: Any = NumPyEngine(**engine)
    return train(settings, of_numpy)


def entries(out: Path, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [entry for entry in found if entry["kind"] == kind]


def lasting(out: Path) -> list[dict[str, Any]]:
    """What a log says but for throughput and starts."""
    found = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [
        {name: value for name, value in entry.items() if "per_second" not in name and name != "seconds_left"}
        for entry in found
        if entry["kind"] != "run"
    ]


def checkpoints(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.glob("*.safetensors"))}


def saved_steps(out: Path) -> list[int]:
    return [read_checkpoint(path).run.step for path in find_checkpoints(out)]
