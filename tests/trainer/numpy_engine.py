"""An engine of NumPy, and records that it trains on: complete runs with all of their files, in milliseconds."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bertprep.errors import BertprepError
from bertprep.files.atomic import AtomicFile
from bertprep.records.records import Records
from tests.records.handmade import Record, Variant, file_of
from tests.records.test_records import write_folder
from trainer import cli, log, loop
from trainer import run as run_module
from trainer.batches import GlobalBatch, TrainingBatches
from trainer.checkpoint import BEST, find_checkpoints, read_header
from trainer.cli import FINISHED, main, start
from trainer.data import ExampleSettings
from trainer.engines import Batch, Engine, Processor, StepResult
from trainer.engines.choice import choose_execution
from trainer.loop import Stop
from trainer.model_config import ModelConfig
from trainer.run import Run
from trainer.settings import EngineSettings, OptimizerSettings, RunOptions
from trainer.tasks.pretraining import Pretraining, PretrainOptions
from trainer.tasks.task import Sums, Task

SHARDS = (20, 13)  # records
STEPS, BATCH, SEED = 12, 8, 3  # three epochs
LAST = f"checkpoint-{STEPS:09d}.safetensors"
_THREAD = threading.local()  # `engine`, and `stop` of its run


class Ranks:
    """What the ranks of a run, threads here, exchange; one that is left alone fails."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._barrier = threading.Barrier(count, timeout=600)
        self._given: list[Any] = [None] * count

    def gather(self, rank: int, value: Any) -> list[Any]:
        self._given[rank] = value
        self._barrier.wait()
        given = list(self._given)
        self._barrier.wait()
        return given


class NumPyEngine(Engine):
    """A model of one number, to which each step adds the learning rate times the sum of all tokens: no step can be missed."""

    device_name = "NumPy"
    processor = Processor("Abacus")
    versions: Mapping[str, str] = MappingProxyType({"numpy": "any"})
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({"model": (2,), "updates": ()})

    def __init__(self, ranks: Ranks | None = None, rank: int = 0, **attributes: Any) -> None:
        self.ranks, self.rank, self.data_rank = ranks or Ranks(1), rank, rank
        self.data_world_size = self.processes = self.devices = self.ranks.count
        self.has_accelerator = False
        self.on_step: Callable[[int], object] = lambda _: None  # as a step, counted from 1, is started
        self.norms: Mapping[int, float] = {}  # of steps, from 1, whose gradients are not finite
        self.loss_scale = 1.0
        self.test_loss: Callable[[int], float] = lambda _: 0.0  # what an evaluation after so many updates adds to each sequence
        self.outputs: Callable[[NDArray[np.int32], int], dict[str, NDArray[np.float32]]] = lambda *_: {}
        self.model, self.updates = 0.0, 0
        self.events: list[str] = []  # the calls, steps counted from 1
        self.results: dict[int, StepResult] = {}
        self.restored: list[Mapping[str, NDArray[np.float32]]] = []
        self.on_open: Callable[[EngineSettings], object] = lambda _: None
        for name, value in attributes.items():
            setattr(self, name, value)
        self.execution = choose_execution(EngineSettings(engine="tensorflow"), [self.processor])

    def open(self, settings: EngineSettings) -> NumPyEngine:
        self.execution = choose_execution(settings, [self.processor])
        self.on_open(settings)
        return self

    def build(self, *_: Any, task: Task = Pretraining(), **__: Any) -> None:  # noqa: B008 - it has no state
        self.task = task

    def train(
        self, batch: Batch, *, step: int, learning_rate: float, accumulation: int, stop: bool
    ) -> Callable[[], StepResult]:
        assert len(batch["input_ids"]) % accumulation == 0
        self.on_step(step)
        self.events.append(f"start {step}")
        *sums, stops = self._sum(*self._sums_of(batch), float(stop))
        norm = self.norms.get(step, float(step))
        if np.isfinite(norm) and sums[1] > 0:  # else no row counts
            self.model += learning_rate * sums[0]
            self.updates += 1
        result = StepResult(self._in_rows(*sums), norm, self.loss_scale, is_stop_wanted=stops > 0)

        def wait() -> StepResult:
            self.events.append(f"wait {step}")
            self.results[step] = result
            return result

        return wait

    def evaluate(self, batch: Batch) -> Sums:
        self.events.append("evaluate")
        loss, weight = self._sums_of(batch)
        return self._in_rows(*self._sum(loss + weight * self.test_loss(self.updates), weight))

    def _sums_of(self, batch: Batch) -> tuple[float, float]:
        """The sum of the tokens of the rows that count, and the weights of what is to be predicted in them."""
        weights = batch["row_weights"]
        targets = weights @ batch["masked_lm_weights"] if "masked_lm_weights" in batch else weights
        return float(batch["input_ids"].sum(1) @ weights.astype(np.float64)), float(targets.sum())

    def _in_rows(self, loss: float, weight: float) -> Sums:
        return np.array([[loss, 0.0, weight]] + [[weight / 2, 0.0, weight]] * (len(self.task.outputs) - 1))

    def _sum(self, *values: float) -> list[float]:
        return [sum(of_ranks) for of_ranks in zip(*self.gather(values), strict=True)]

    def predict(self, batch: Batch) -> dict[str, NDArray[np.float32]]:
        """What `outputs` gives for the tokens of this rank's rows, after so many updates, of all ranks."""
        self.events.append("predict")
        of_all = self.gather(self.outputs(batch["input_ids"], self.updates))
        return {name: np.concatenate([rows[name] for rows in of_all]) for name in of_all[0]}

    def state(self) -> dict[str, NDArray[np.float32]]:
        self.events.append("state")
        return {
            "model": np.array(self.model, np.float64).reshape(1).view(np.float32),
            "updates": np.array(self.updates, np.float32),
        }

    def restore(self, state: Mapping[str, NDArray[np.float32]]) -> None:
        self.restored.append(state)
        if "model" in state:
            self.model, self.updates = float(state["model"].view(np.float64)[0]), int(state["updates"])

    def gather(self, value: Any) -> list[Any]:
        return self.ranks.gather(self.data_rank, value)

    def peak_memory(self) -> int | None:
        return None


class RecordFolder:
    """Records in one of the formats that are made by hand, a model for them, and how single records become corrupt."""

    def __init__(self, folder: Path, record_format: str = "tfrecord") -> None:
        self.folder, self._variant = folder, Variant(record_format)
        self.out, self.other = folder.with_name("out"), folder.with_name("other")  # of a run, and of one to compare it with
        self.records: list[Record] = write_folder(folder, SHARDS, record_format)
        (folder / "test").mkdir()
        self.write(folder / "test" / "part-0", self.records[:10])
        (folder / "model.json").write_text(ModelConfig.preset("tiny", vocab_size=30522).to_json())

    def write(self, path: Path, records: Sequence[Record]) -> None:
        path.write_bytes(file_of(*records, variant=self._variant))

    def corrupt(self, index: int, split: str = "training") -> Callable[[], object]:
        """Overwrite a record as a failing disk does; returns what repairs it."""
        file, record = self.position(index)
        path = self.folder / split / f"part-{file}"
        shard = self.records[: SHARDS[0]] if file == 0 else self.records[SHARDS[0] :]
        begin, end = (len(file_of(*shard[:count], variant=self._variant)) for count in (record, record + 1))
        valid = path.read_bytes()[begin:end]

        def write(data: bytes) -> None:
            with path.open("r+b") as opened:  # in place: it is mapped
                opened.seek(begin)
                opened.write(data)

        write(valid[:12] + b"\xff" * (len(valid) - 16) + valid[-4:])
        return lambda: write(valid)

    @staticmethod
    def position(index: int) -> tuple[int, int]:
        """The file of a record, and its index there."""
        return (0, index) if index < SHARDS[0] else (1, index - SHARDS[0])

    def name(self, index: int) -> str:
        """How errors name a record of the training split."""
        file, record = self.position(index)
        return f"{self.folder}/training/part-{file}: record {record}: "

    def batches(self, batch: GlobalBatch | None = None) -> TrainingBatches:
        with Records([self.folder]) as records:
            return TrainingBatches(records, batch or GlobalBatch(BATCH), seed=SEED)

    def first_read_at(self, step: int, count: int = 1) -> list[int]:
        """Records that this step is the first to read, and that are not the first of a file, which has its shape."""
        batches = self.batches()
        before = {0, SHARDS[0], *(index for earlier in range(step - 1) for index in batches.indices(earlier).tolist())}
        return [index for index in batches.indices(step - 1).tolist() if index not in before][:count]


def options_of(
    data: RecordFolder, out: Path | None = None, *, ranks: int = 1, accumulation: int = 1, **more: Any
) -> PretrainOptions:
    """A run of 12 steps of 8 sequences, logged at each step and saved at every fifth, unless `more` says otherwise."""
    given: dict[str, Any] = {
        "steps": STEPS, "learning_rate": 0.5, "warmup_steps": 2, "seed": SEED, "log_every": 1, "eval_every": 0,
        "save_every": 5, "data": (data.folder,), "model": str(data.folder / "model.json"), **more,
    }  # fmt: skip
    return PretrainOptions(out=out or data.out, batch_size=BATCH // ranks // accumulation, accumulation=accumulation, **given)


def run(
    options: RunOptions, engine: NumPyEngine | None = None, *, given: Mapping[str, Any] | None = None, **attributes: Any
) -> bool:
    """Whether a run finished, which a signal may stop; `given` are options of on-the-fly examples."""
    with _numpy_engines():
        return _start(options, engine or NumPyEngine(**attributes), given or {})


def run_command(*words: object, **attributes: Any) -> int:
    """The exit status of a command of the trainer."""
    with _numpy_engines():
        _THREAD.engine = NumPyEngine(**attributes)
        return main(list(map(str, words)))


def run_command_on(engines: Sequence[NumPyEngine], *words: object) -> list[int]:
    """The exit status of each rank of a command."""

    def of_rank(engine: NumPyEngine) -> int:
        _THREAD.engine = engine
        return main(list(map(str, words)))

    with _numpy_engines(), ThreadPoolExecutor(len(engines)) as pool:
        return list(pool.map(of_rank, engines))


def refuse(line: str) -> tuple[int, str]:
    """The exit status of a command line that cannot be obeyed, and the one line printed, before a framework is loaded."""
    output, errors = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(errors):
        for module in ("run", "evaluate", "bench"):
            patch.setattr(f"trainer.{module}.open_engine", lambda _: pytest.fail("a framework was loaded"))
        patch.setattr("trainer.engines.choice.importlib.util.find_spec", lambda _: True)
        patch.setattr("trainer.engines.choice.may_have_accelerator", lambda: False)
        try:
            status = main(line.split())
        except SystemExit as ended:  # argparse's
            status = int(ended.code or 0)
    [error] = errors.getvalue().splitlines()
    assert (output.getvalue(), error[:16]) == ("", "trainer: error: ")
    return status, error[16:]


def pattern_of(parts: str) -> str:
    """What matches the parts between bars, in this order."""
    return ".*".join(map(re.escape, parts.split(" | ")))


def plan(line: str, **attributes: Any) -> Run:
    """The run that a command line would train: all that happens before the first step."""
    runs: list[Run] = []
    with _numpy_engines() as patch:
        patch.setattr(cli, "train", lambda run, _: runs.append(run) or True)
        patch.setattr(run_module, "known_devices", lambda _: (None, None))  # so that the engine is asked
        patch.setattr("trainer.engines.choice.importlib.util.find_spec", lambda name: name == "tensorflow" or None)
        _THREAD.engine = NumPyEngine(**attributes)
        assert main(line.split()) == 0
    [run] = runs
    return run


def run_ranks(options: RunOptions, *engines: NumPyEngine, given: Mapping[str, Any] | None = None) -> list[object]:
    """Whether each rank finished, or the message of its error."""

    def of_rank(engine: NumPyEngine) -> object:
        try:
            return _start(options, engine, given or {})
        except BertprepError as error:
            return str(error)

    with _numpy_engines() as patch, ThreadPoolExecutor(len(engines)) as pool:
        patch.setattr(loop, "Stop", Unsignalled)
        return list(pool.map(of_rank, engines))


def make_ranks(count: int, **attributes: Any) -> list[NumPyEngine]:
    ranks = Ranks(count)
    return [NumPyEngine(ranks, rank, **attributes) for rank in range(count)]


class Unsignalled(Stop):
    """Of a thread, which gets no signals: `stop_this_rank` stands for one."""

    def on_signals(self) -> AbstractContextManager[None]:
        _THREAD.stop = self
        return nullcontext()


def stop_this_rank() -> None:
    _THREAD.stop.is_signalled = True


@contextmanager
def _numpy_engines() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        for module in ("trainer.run", "trainer.evaluate"):
            patch.setattr(f"{module}.open_engine", lambda settings: _THREAD.engine.open(settings))
            patch.setattr(f"{module}.check_engine", lambda *_, **__: None)
        patch.setattr(run_module, "is_first_process", lambda _: _THREAD.engine.is_first)
        patch.setattr(log, "draw_losses", lambda *_: None)
        patch.setattr("trainer.engines.choice.may_have_accelerator", lambda: False)
        yield patch


def _start(options: RunOptions, engine: NumPyEngine, given: Mapping[str, Any]) -> bool:
    _THREAD.engine = engine
    settings = EngineSettings(engine="tensorflow", devices=engine.devices)
    return start(options, settings, OptimizerSettings(), ExampleSettings(**given)) == FINISHED


def at_step(step: int, do: Callable[[], object]) -> Callable[[int], object]:
    """Do something as a step is started."""
    return lambda started: do() if started == step else None


def sigterm() -> None:
    signal.raise_signal(signal.SIGTERM)


def kill(
    options: RunOptions, *, step: int = 0, saving: str = "", method: str = "fork", engine: type[NumPyEngine] = NumPyEngine,
    **attributes: Any,
) -> None:  # fmt: skip
    """SIGKILL a run as it starts a step, or when a file with `saving` in its path is written but has no name yet."""
    context: Any = multiprocessing.get_context(method)
    process = context.Process(target=_run_until, args=(options, step, saving, engine, attributes))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def _run_until(options: RunOptions, step: int, saving: str, engine: type[NumPyEngine], attributes: Mapping[str, Any]) -> None:
    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch:
        if saving:
            commit = AtomicFile.commit
            patch.setattr(AtomicFile, "commit", lambda file: die() if saving in str(file.path) else commit(file))
        run(options, engine(**attributes, on_step=at_step(step, die)))


def read_entries(out: Path, *kinds: str) -> list[dict[str, Any]]:
    """The entries of a run's log, all or those of some kinds."""
    found = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [entry for entry in found if not kinds or entry["kind"] in kinds]


def lasting(out: Path) -> list[dict[str, Any]]:
    """A log without throughput and starts, which differ from run to run."""
    return [
        {name: value for name, value in entry.items() if "per_second" not in name and name != "seconds_left"}
        for entry in read_entries(out)
        if entry["kind"] != "run"
    ]


def checkpoints(out: Path) -> dict[str, Any]:
    return {path.name: path.read_bytes() for path in sorted(out.glob("*.safetensors"))}


def assert_same_run(found: Path, expected: Path, *, is_repaired: bool = False) -> None:
    """The same log, and the same bytes in the last checkpoint, the best one and all others that both runs have kept.

    If a file was repaired between two starts, headers differ in its fingerprint alone.
    """
    ours, theirs = checkpoints(found), checkpoints(expected)
    if is_repaired:
        ours, theirs = (
            {name: {**read_header(out / name), "files": None} for name in names}
            for out, names in ((found, ours), (expected, theirs))
        )
    assert ours.keys() >= {find_checkpoints(expected)[-1].name, *theirs.keys() & {BEST}}
    for name in ours.keys() & theirs.keys():
        assert ours[name] == theirs[name], name
    assert lasting(found) == lasting(expected)
    assert not list(found.rglob("*.tmp"))


def saved_steps(out: Path) -> list[int]:
    return [read_header(path)["step"] for path in find_checkpoints(out)]
