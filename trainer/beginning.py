"""Where a run begins: at its newest checkpoint, at weights that are given, or at the seed's; in all ranks alike."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any
from zlib import crc32

from bertprep.atomic import atomic_file
from bertprep.errors import BertprepError, UsageError
from bertprep.layout import VOCABULARY
from bertprep.manifest import sha256_of
from bertprep.progress import say
from trainer import checkpoint
from trainer.engines import Engine
from trainer.initial_weights import read_initial_weights
from trainer.phase_data import PhaseData
from trainer.settings import RunSettings

MODEL_CONFIG = "bert_config.json"


def describe_run(settings: RunSettings, engine: Engine, phases: Sequence[PhaseData]) -> dict[str, Any]:
    """What the numbers of a run depend on, devices and versions aside; a checkpoint of other settings is of another run."""
    return {
        "model": asdict(settings.model),
        "optimizer": asdict(settings.optimizer),
        "phases": [
            {
                "seq": data.records.seq,
                "pred": data.records.pred,
                "records": len(data.records),
                "records_sha256": data.fingerprint(),
                "global_batch": data.batch.size,
                "schedule": asdict(data.phase.schedule),
            }
            for data in phases
        ],
        "precision": engine.precision,
        "seed": settings.seed,
        "cased": settings.cased,
        "vocabulary_sha256": sha256_of(settings.vocabulary) if settings.vocabulary else None,
    }


def begin(settings: RunSettings, engine: Engine, made_with: Mapping[str, Any]) -> tuple[int, int]:
    """Give the engine what it begins with; returns the steps of the run that are made, and the updates among them skipped."""
    newest = checkpoint.newest(settings.out)
    step = skipped = 0
    if newest and not settings.resume:
        raise UsageError(f"{newest}: is there from a run before; leave --no-resume out to go on with it, or name another --out")
    if newest:
        found = checkpoint.read(newest)
        if difference := next(_differences(found.made_with, made_with), None):
            name, then, now = difference
            raise UsageError(
                f"{newest}: was made with {name} {then}, now it is {now}; go on with the same settings, or name another --out "
                f"and take the weights by --init {settings.out}"
            )
        engine.restore(found.state)
        step, skipped = found.step, found.skipped
    elif settings.init:
        engine.restore(read_initial_weights(settings.init, settings.model))
    _check_ranks(engine, step, made_with)
    if engine.is_first:
        checkpoint.clear_leftovers(settings.out)
        _write_model_files(settings)
        if newest:
            say(f"{newest}: going on behind step {step:,}" + (", not with what --init names" if settings.init else ""))
    return step, skipped


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
