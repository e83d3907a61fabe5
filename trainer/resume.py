"""Where a run begins: at its newest checkpoint, at weights that are given, or at the seed's; in all ranks alike.

What a checkpoint's header and the names in a file tell is checked before a framework is loaded, and again when all is known.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import atomic_file
from bertprep.progress import say
from bertprep.records.record_set import RecordSet
from bertprep.workspace.layout import VOCABULARY
from bertprep.workspace.manifest import sha256_of
from trainer import checkpoint
from trainer.checkpoint import BadRecordKey
from trainer.engines import Engine
from trainer.metrics import Interval
from trainer.phase_data import fingerprint, open_records
from trainer.schedule import LENGTHENED, find_lengthening, schedules_of
from trainer.settings import RunSettings
from trainer.weights import check_initial_weights, read_initial_weights

MODEL_CONFIG = "bert_config.json"
_FINGERPRINT = "records_sha256"


@dataclass(frozen=True)
class Beginning:
    """Where a run stands: what its newest checkpoint says beside the arrays, or nothing yet."""

    made_with: dict[str, Any]  # of its checkpoints from here on
    step: int = 0  # steps of the run that are made
    skipped: int = 0  # updates among them
    interval: Interval = field(default_factory=Interval)  # the steps since the last line of the log
    bad_records: frozenset[BadRecordKey] = frozenset()
    best: checkpoint.Evaluated | None = None  # of the best checkpoint


def describe_run(settings: RunSettings, records: Sequence[RecordSet], *, devices: int, precision: str) -> dict[str, Any]:
    """What the numbers of a run depend on, devices and versions aside; a checkpoint of other settings is of another run.

    `records` are those of each phase.
    """
    return {
        "model": asdict(settings.model),
        "optimizer": asdict(settings.optimizer),
        "phases": [
            {
                "seq": of_phase.seq,
                "pred": of_phase.pred,
                "records": len(of_phase),
                _FINGERPRINT: fingerprint(of_phase),
                "global_batch": phase.batch_size * devices * phase.accumulation,
                "schedule": asdict(phase.schedule),
            }
            for phase, of_phase in zip(settings.phases, records, strict=True)
        ],
        "precision": precision,
        "seed": settings.seed,
        "cased": settings.cased,
        "vocabulary_sha256": sha256_of(settings.vocabulary) if settings.vocabulary else None,
    }


def check_init(settings: RunSettings) -> None:
    """Refuse what a new run cannot begin with; a run that goes on has no need of it."""
    if settings.init and checkpoint.newest(settings.out) is None:
        check_initial_weights(settings.init, settings.model)


def check_beginning(settings: RunSettings, *, devices: int, precision: str) -> int:
    """Refuse what `begin` would refuse, as far as it is known without an engine; returns the steps that are made."""
    newest = _newest(settings)
    if newest is None:
        return 0
    with ExitStack() as opened:
        records = [opened.enter_context(open_records(settings, phase)) for phase in settings.phases]
        made_with = describe_run(settings, records, devices=devices, precision=precision)
    header = checkpoint.read_header(newest)
    _carry_on(settings, newest, header["step"], header, made_with)
    return int(header["step"])


def describe_finished(settings: RunSettings) -> str:
    """What is said of a run that has no step left."""
    out = settings.out
    return f"{out}: is finished, with {settings.steps:,} steps; --init {out} and another --out train it further"


def begin(settings: RunSettings, engine: Engine, made_with: Mapping[str, Any]) -> Beginning:
    """Give the engine what it begins with."""
    newest = _newest(settings)
    begun, said = Beginning(dict(made_with)), ""
    if newest:
        found = checkpoint.read(newest)
        now, said = _carry_on(settings, newest, found.step, found.made_with, made_with)
        engine.restore(found.state)
        best = checkpoint.read_best(settings.out, found.step, now) if settings.keep_best else None
        begun = Beginning(now, found.step, found.skipped, found.interval, found.bad_records, best)
    elif settings.init:
        engine.restore(read_initial_weights(settings.init, settings.model))
    step, made_with = begun.step, begun.made_with
    _check_ranks(engine, step, made_with)
    if engine.is_first:
        checkpoint.clear_leftovers(settings.out)
        _write_model_files(settings)
        if newest:
            say(f"{newest}: resuming after step {step:,}" + (", not with what --init names" if settings.init else ""))
        if said:
            say(said)
    return begun


def _newest(settings: RunSettings) -> Path | None:
    newest = checkpoint.newest(settings.out)
    if newest and not settings.resume:
        raise UsageError(f"{newest}: is there from a run before; leave --no-resume out to go on with it, or name another --out")
    return newest


def _carry_on(
    settings: RunSettings, newest: Path, step: int, then: Mapping[str, Any], now: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    """What a run that goes on from a checkpoint is made with, and what is to be said of it; raises where it is another run."""
    now = _with_known_fingerprints(now, then)
    history = {LENGTHENED: then[LENGTHENED]} if LENGTHENED in then else {}
    made_with, said, advice = {**now, **history}, "", "go on with the same settings, or name"
    if lengthening := find_lengthening(step, then, now):
        if settings.lengthen or lengthening.is_seamless:
            schedules = schedules_of(then)
            then = {**then, "phases": [{**phase, "schedule": None} for phase in then["phases"]]}
            now = {**now, "phases": [{**phase, "schedule": None} for phase in now["phases"]]}
            made_with, said = lengthening.enter(made_with, schedules), lengthening.describe()
        else:
            advice = "--lengthen goes on with the learning rates of the longer run; or go on with the same settings, or name"
    if difference := next(_differences(then, now), None):
        name, before, after = difference
        raise UsageError(
            f"{newest}: was made with {name} {before}, now it is {after}; {advice} another --out and take the weights by "
            f"--init {settings.out}"
        )
    return made_with, said


def _with_known_fingerprints(now: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of now with the checkpoint's fingerprints, where one of the two is not known for a bad record."""
    before = then.get("phases", ())
    phases = [
        {**of_now, _FINGERPRINT: of_then.get(_FINGERPRINT)}
        if None in (of_now[_FINGERPRINT], of_then.get(_FINGERPRINT))
        else of_now
        for of_now, of_then in zip(now["phases"], before, strict=False)
    ]
    return {**now, "phases": [*phases, *now["phases"][len(phases) :]]}


def _differences(then: Any, now: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The settings that differ, as (phases.0.global_batch, 256, 512)."""
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for key in now:
            yield from _differences(then.get(key), now[key], f"{name}.{key}" if name else str(key))
    elif isinstance(then, Sequence) and isinstance(now, Sequence) and not isinstance(now, str) and len(then) == len(now):
        for number, (one, other) in enumerate(zip(then, now, strict=True)):
            yield from _differences(one, other, f"{name}.{number}")
    elif then != now:
        yield name, then, now


def _check_ranks(engine: Engine, step: int, made_with: Mapping[str, Any]) -> None:
    """All ranks must train the same: their --out is one folder, their data are equally many records."""
    steps = engine.gather(step)
    if len(set(steps)) > 1:
        raise BertprepError(
            f"the processes stand at different steps, {', '.join(map(str, steps))}; --out must be one folder that all hosts see"
        )
    if len(set(engine.gather(crc32(json.dumps(made_with, sort_keys=True).encode())))) > 1:
        raise UsageError("the processes were given different settings or data; start all of them with the same command")


def _write_model_files(settings: RunSettings) -> None:
    """What a model is read with, beside its checkpoints."""
    with atomic_file(settings.out / MODEL_CONFIG) as file:
        file.write(settings.model.to_json().encode())
    if settings.vocabulary:
        with atomic_file(settings.out / VOCABULARY) as file:
            file.write(settings.vocabulary.read_bytes())
