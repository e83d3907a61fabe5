"""Where a run starts: at its newest checkpoint, at the weights of --init, or at the seed's; the same in all ranks.

What a checkpoint's header and the names in a file say is checked before a framework is loaded, and again when all is known.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import atomic_file, remove_leftovers
from bertprep.progress import say
from bertprep.records.live import LiveExamples
from bertprep.records.record_set import Records, RecordSet
from bertprep.workspace.layout import TRAINING, VOCABULARY
from bertprep.workspace.manifest import sha256_of
from trainer import checkpoint
from trainer.batches import empty_for, open_split
from trainer.checkpoint import RunState
from trainer.engines import Engine
from trainer.metrics import Interval
from trainer.schedule import LENGTHENED, find_lengthening, schedules_of
from trainer.settings import RunSettings
from trainer.tasks.pretraining import PRETRAINING
from trainer.tasks.registry import describe_task, task_of_checkpoint
from trainer.weights import check_initial_weights, describe_other_head, read_initial_weights

MODEL_CONFIG = "bert_config.json"
_FINGERPRINT = "records_sha256"
_FINGERPRINT_RECORDS = 256
_FILES = "files_sha256"


def describe_run(settings: RunSettings, records: Sequence[Records], *, devices: int, precision: str) -> dict[str, Any]:
    """What the numbers of a run depend on, devices and versions aside; a checkpoint of other settings is of another run.

    `records` are those of each phase. A run that begins with records from a store knows no fingerprints yet, since these need
    many files; `add_fingerprints` does them. Until then what the manifests say of the files stands for the data.
    """
    is_new = checkpoint.newest(settings.out) is None
    return {
        "model": asdict(settings.model),
        "optimizer": asdict(settings.optimizer),
        "phases": [
            {
                **phase.describe_reading(),
                "seq": of_phase.seq,
                "pred": of_phase.pred,
                "records": len(of_phase),
                _FINGERPRINT: None if is_new and of_phase.is_of_store else _fingerprint(of_phase),
                **_of_files(of_phase),
                "global_batch": phase.batch_size * devices * phase.accumulation,
                "schedule": asdict(phase.schedule),
            }
            for phase, of_phase in zip(settings.phases, records, strict=True)
        ],
        "precision": precision,
        "seed": settings.seed,
        "cased": settings.cased,
        "vocabulary_sha256": sha256_of(settings.vocabulary) if settings.vocabulary else None,
        **settings.task.made_with(),
    }


def _of_files(records: Records) -> dict[str, str]:
    """What the manifests say of the files of records, if they do."""
    return {_FILES: records.files_sha256} if isinstance(records, RecordSet) and records.files_sha256 else {}


def _without_needless(made_with: Mapping[str, Any]) -> dict[str, Any]:
    """What a run is made with, where fingerprints are known without the files': the same records may be in other files."""
    phases = [
        {key: phase[key] for key in phase if key != _FILES or phase[_FINGERPRINT] is None} for phase in made_with["phases"]
    ]
    return {**made_with, "phases": phases}


def _fingerprint(records: Records) -> str | None:
    """The sha256 of some records' values, spread over all: the same in either format, wherever they are stored.

    None where one of them is bad: then it cannot be known whether the data are those of before. That of live examples is of all
    that they are made of, since it would cost an epoch to make such records.
    """
    if isinstance(records, LiveExamples):
        return records.sha256
    numbers = _fingerprint_numbers(records)
    examples = empty_for(records, len(numbers))
    if records.gather_good(examples, numbers):
        return None
    return sha256(b"".join(array.tobytes() for array in examples.arrays)).hexdigest()


def _fingerprint_numbers(records: Records) -> NDArray[np.int64]:
    count = min(_FINGERPRINT_RECORDS, len(records))
    return np.arange(count, dtype=np.int64) * len(records) // count


def add_fingerprints(
    made_with: Mapping[str, Any], records: Sequence[Records], engine: Engine, *, waits: bool
) -> Mapping[str, Any]:
    """What a run is made with, with the fingerprints that were not known at its start; raises where ranks differ in them.

    Where any rank cannot tell them, or would wait for files and is not to, they stay unknown, which is no obstacle to resuming.
    """
    phases = [dict(phase) for phase in made_with["phases"]]
    is_known = True
    for phase, of_phase in zip(phases, records, strict=True):
        if phase[_FINGERPRINT] is None and of_phase.is_of_store:
            if waits or of_phase.are_here(_fingerprint_numbers(of_phase)):
                with suppress(BertprepError):  # of a file that cannot be read, which the step that needs it names
                    phase[_FINGERPRINT] = _fingerprint(of_phase)
            is_known &= phase[_FINGERPRINT] is not None
    if phases == made_with["phases"] and is_known:
        return made_with
    if not all(engine.gather(int(is_known))):
        return made_with
    made_with = _without_needless({**made_with, "phases": phases})
    _check_same_settings(engine, made_with)
    return made_with


def check_init(settings: RunSettings) -> None:
    """Refuse weights that a new run cannot start from; a resumed one has no need of them."""
    if settings.init and checkpoint.newest(settings.out) is None:
        check_initial_weights(settings.init, settings.model, settings.task)


def check_resume(settings: RunSettings, *, devices: int, precision: str) -> int:
    """Refuse what `resume` would refuse, as far as it is known without an engine; returns the finished steps."""
    newest = _newest(settings)
    if newest is None:
        return 0
    with ExitStack() as opened:
        records = [opened.enter_context(open_split(settings, phase, TRAINING)) for phase in settings.phases]
        made_with = describe_run(settings, records, devices=devices, precision=precision)
    header = checkpoint.read_header(newest)
    _compare(settings, newest, header["step"], header, made_with)
    return int(header["step"])


def describe_finished(settings: RunSettings) -> str:
    """The line for a run that has no step left."""
    out = settings.out
    ignored = "; --init is for a run that has not begun" if settings.init else ""
    return f"{out}: is finished, with {settings.steps:,} steps{ignored}; --init {out} and another --out train it further"


def resume(settings: RunSettings, engine: Engine, made_with: Mapping[str, Any]) -> RunState:
    """Give the engine what it starts from."""
    newest = _newest(settings)
    run, message, other_head = RunState(_without_needless(made_with)), "", ""
    if newest:
        run, arrays = checkpoint.read(newest)
        expected = len(Interval(settings.task.sums()).numbers)
        if len(run.interval) not in (0, expected):
            raise checkpoint.damaged(newest, f"its header has an interval of {len(run.interval)} numbers, expected {expected}")
        compared, message = _compare(settings, newest, run.step, run.made_with, made_with)
        run.made_with = _without_needless(compared)
        engine.restore(arrays)
        run.best = checkpoint.read_best(settings.out, run.step, run.made_with) if settings.keep_best else None
    elif settings.init:
        other_head = describe_other_head(settings.init, settings.model, settings.task)
        engine.restore(read_initial_weights(settings.init, settings.model, settings.task, heads=not other_head))
    _check_ranks(engine, run)
    if engine.is_first:
        remove_leftovers(settings.out)
        _write_model_files(settings)
        if newest:
            say(f"{newest}: resuming after step {run.step:,}" + (", not from what --init names" if settings.init else ""))
        for line in filter(None, (message, other_head)):
            say(line)
    return run


def _newest(settings: RunSettings) -> Path | None:
    newest = checkpoint.newest(settings.out)
    if newest and not settings.resume:
        raise UsageError(f"{newest}: is there from an earlier run; leave --no-resume out to resume it, or name another --out")
    return newest


def _compare(
    settings: RunSettings, newest: Path, step: int, then: Mapping[str, Any], now: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    """What a run that resumes from a checkpoint is made with, and what to say of it; raises where it is another run."""
    trained = task_of_checkpoint(then)
    if trained != settings.task and trained.name == settings.task.name == PRETRAINING.name:
        raise UsageError(
            f"{newest}: is of {describe_task(trained)}, the data are for {describe_task(settings.task)}; "
            f"name another --out and take the weights by --init {settings.out}"
        )
    now = _with_known_fingerprints(now, then)
    history = {LENGTHENED: then[LENGTHENED]} if LENGTHENED in then else {}
    made_with, message, advice = {**now, **history}, "", "resume with the same settings, or name"
    if lengthening := find_lengthening(step, then, now):
        if settings.lengthen or lengthening.is_seamless:
            schedules = schedules_of(then)
            then = {**then, "phases": [{**phase, "schedule": None} for phase in then["phases"]]}
            now = {**now, "phases": [{**phase, "schedule": None} for phase in now["phases"]]}
            made_with, message = lengthening.enter(made_with, schedules), lengthening.describe()
        else:
            advice = "--lengthen resumes with the learning rates of the longer run; or resume with the same settings, or name"
    if difference := next(_differences(then, now), None):
        name, before, after = difference
        raise UsageError(
            f"{newest}: was made with {name} {before}, now it is {after}; {advice} another --out and take the weights by "
            f"--init {settings.out}"
        )
    return made_with, message


def _with_known_fingerprints(now: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of now with the checkpoint's fingerprints, where one of the two is not known, for a bad record or a file.

    Only there the files are compared, where both know them: checkpoints of earlier versions do not.
    """
    phases = [dict(phase) for phase in now["phases"]]
    for phase, before in zip(phases, then.get("phases", ()), strict=False):
        if None in (known := (phase[_FINGERPRINT], before.get(_FINGERPRINT))):
            phase[_FINGERPRINT] = known[1]
            if _FILES in phase and _FILES in before:
                continue
        phase.pop(_FILES, None)
        if _FILES in before:
            phase[_FILES] = before[_FILES]
    return {**now, "phases": phases}


def _differences(then: Any, now: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The settings that differ, as (phases.0.global_batch, 256, 512)."""
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        gone = [key for key in then if key not in now] if name else []  # a header itself has more than settings
        for key in (*gone, *now):
            yield from _differences(then.get(key), now.get(key), f"{name}.{key}" if name else str(key))
    elif isinstance(then, Sequence) and isinstance(now, Sequence) and not isinstance(now, str) and len(then) == len(now):
        for number, (one, other) in enumerate(zip(then, now, strict=True)):
            yield from _differences(one, other, f"{name}.{number}")
    elif then != now:
        yield name, then, now


def _check_ranks(engine: Engine, run: RunState) -> None:
    """All ranks must train the same: their --out is one folder, their data are equally many records."""
    steps = engine.gather(run.step)
    if len(set(steps)) > 1:
        raise BertprepError(
            f"the processes stand at different steps, {', '.join(map(str, steps))}; --out must be one folder that all hosts see"
        )
    _check_same_settings(engine, run.made_with)


def _check_same_settings(engine: Engine, made_with: Mapping[str, Any]) -> None:
    if len(set(engine.gather(crc32(json.dumps(made_with, sort_keys=True).encode())))) > 1:
        raise UsageError("the processes were given different settings or data; start all of them with the same command")


def _write_model_files(settings: RunSettings) -> None:
    """Write what a model is read with, beside its checkpoints."""
    with atomic_file(settings.out / MODEL_CONFIG, replace=True) as file:
        file.write(settings.model.to_json().encode())
    if settings.vocabulary:
        with atomic_file(settings.out / VOCABULARY, replace=True) as file:
            file.write(settings.vocabulary.read_bytes())
