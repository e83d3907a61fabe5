"""Choose engine, devices and precision, as far as that is possible without loading a framework, which takes seconds.

Only `open_engine` loads a framework, so wrong options are reported at once.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertprep.errors import BertprepError, UsageError
from bertprep.untrusted import parse_json
from trainer.engines import Engine, Execution, Processor
from trainer.engines import oneflow_pipeline as pipeline
from trainer.settings import AUTO, ENGINES, EngineSettings


def choose_execution(settings: EngineSettings, processors: Sequence[Processor]) -> Execution:
    """Return precision and XLA as requested, or the fastest that all processors support.

    The defaults are XLA on GPUs with TensorFlow, bf16 on GPUs since Ampere, fp16 since Volta, and float32 on CPUs and OneFlow.
    """
    worst = min(processors, key=lambda each: each.capability or (0, 0))
    is_oneflow = settings.engine == "oneflow"
    xla = settings.xla == "on"
    if settings.xla == AUTO and settings.engine == "tensorflow":
        xla = worst.is_gpu
    if settings.amp != AUTO:
        return Execution(settings.amp, xla)
    if not worst.is_gpu:
        return Execution("off", xla)
    if is_oneflow:
        return Execution("off", xla, "half precision is untested on GPUs; try it with --amp fp16")
    if worst.capability is None:
        return Execution("off", xla, f"the capability of {worst.name} is unknown; give --amp bf16 or fp16 if it supports one")
    if worst.capability < (7, 0):
        return Execution("off", xla, f"{worst.name} has no faster precision")
    return Execution("bf16" if worst.capability >= (8, 0) else "fp16", xla, "--amp off for float32")


def check_gpus(settings: EngineSettings, gpus: int) -> None:
    """Raise `UsageError` if a host has GPUs, but fewer than `--devices`."""
    if gpus and (settings.devices or 0) > gpus:
        raise UsageError(f"--devices {settings.devices}: this host has {gpus} GPUs; leave --devices out to use all of them")


_LAUNCHER = "python -m oneflow.distributed.launch --nproc_per_node N -m trainer"
_ONLY_ONEFLOW = ((1,), "only OneFlow has pipelines")
_ACCEPTED: dict[str, dict[str, tuple[tuple[Any, ...], str]]] = {  # the values of options that an engine supports, and why
    "tensorflow": {
        "stages": _ONLY_ONEFLOW,
        "checkpoint_activations": ((False,), "TensorFlow's engine keeps all activations"),
    },
    "oneflow": {
        "xla": ((AUTO, "off"), "OneFlow compiles no step with XLA"),
        "deterministic": (("on",), "OneFlow does not have this option"),
        "hosts": (((),), f"OneFlow's launcher knows the processes: {_LAUNCHER}"),
        "devices": ((None, 1), f"OneFlow has one device per process: {_LAUNCHER}"),
    },
    "torch": {
        "stages": _ONLY_ONEFLOW,
        "xla": ((AUTO, "off"), "PyTorch compiles no step with XLA"),
    },
}
PACKED = ("torch", "tensorflow")
"""The engines that support packed rows; the first one installed is preferred."""


_WORLD_SIZE = "WORLD_SIZE"  # set by torchrun, accelerate and deepspeed, each with RANK
_NUMBERS_OF_TASKS = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
"""Variables of srun and mpirun. They may be of a job whose tasks are runs of their own, so they only explain a collision."""


def check_engine(settings: EngineSettings, *, packed: bool = False) -> None:
    """Raise `UsageError` if the framework is missing, or does not support an option, packed rows or the launcher."""
    if settings.engine != "oneflow" and "RANK" in os.environ and (advice := _advice_on_tasks([_WORLD_SIZE], settings)):
        raise UsageError(f"a launcher such as torchrun started {advice}")
    if packed and settings.engine not in PACKED:
        raise UsageError(
            f"--engine {settings.engine}: does not support packed rows; use --engine {' or '.join(PACKED)}, or train without "
            "--pack, and on token shards of documents with --no-packed"
        )
    for name, (accepted, why) in _ACCEPTED.get(settings.engine, {}).items():
        if getattr(settings, name) not in accepted:
            raise UsageError(f"--{name.replace('_', '-')}: {why}; leave it out, or use another --engine")
    if importlib.util.find_spec(settings.engine) is None:
        raise _not_installed(settings.engine, f"{settings.engine} is not installed here")


def explain_collision(error: BertprepError, settings: EngineSettings) -> BertprepError:
    """Return the error for a folder in which another run is writing, which may be a task of the same srun or mpirun."""
    advice = "" if settings.engine == "oneflow" else _advice_on_tasks(_NUMBERS_OF_TASKS, settings)
    return BertprepError(f"{error}; srun or mpirun started {advice}") if advice else error


def _advice_on_tasks(variables: Sequence[str], settings: EngineSettings) -> str:
    """Return how to start the trainer if a launcher has started more processes than there are hosts, else ""."""
    tasks = max((int(text) for name in variables if (text := os.environ.get(name, "")).isdecimal()), default=1)
    if tasks <= max(1, len(settings.hosts)):
        return ""
    local = os.environ.get("LOCAL_WORLD_SIZE", tasks)
    return (
        f"{tasks} processes of this command, but the trainer starts those of a host's devices itself: start it once, by python "
        f"-m trainer ... --devices {local}, or once on each host with --hosts HOST0:PORT,HOST1:PORT and --host-rank"
    )


def choose_engine(settings: EngineSettings, *, packed: bool = False) -> tuple[EngineSettings, str]:
    """Return the settings with an engine that suits the machine and packed rows, and the reason. No framework is loaded.

    Without `--hosts`, the hosts are those of TF_CONFIG, if it is set.
    """
    if settings.engine != "oneflow" and not settings.hosts and (text := os.environ.get("TF_CONFIG")):
        settings = _with_hosts_of(text, settings)
    if settings.engine != AUTO:
        return settings, ""
    installed = [name for name in ENGINES if importlib.util.find_spec(name)]
    if not installed:
        return replace(settings, engine=ENGINES[0]), ""  # none is installed; `check_engine` reports it
    if len(installed) == 1:
        return replace(settings, engine=installed[0]), "the only one installed"
    if packed and (takes_packed := [name for name in PACKED if name in installed]):
        return replace(settings, engine=takes_packed[0]), "it supports packed rows"
    has_gpu = "torch" in installed and _may_have_gpu_of_torch()
    name = "torch" if has_gpu else installed[0]
    why = f"--engine {' or '.join(other for other in installed if other != name)} is installed too"
    if "torch" in installed:
        why = f"there is {'a' if has_gpu else 'no'} GPU that PyTorch could use; {why}"
    return replace(settings, engine=name), why


def _may_have_gpu_of_torch() -> bool:
    """Return whether this machine may have a GPU that the installed PyTorch can use; its builds for CPUs are named +cpu."""
    is_for_cpus = importlib.metadata.version("torch").endswith("+cpu")
    return sys.platform == "linux" and may_have_accelerator() and not is_for_cpus


def _with_hosts_of(tf_config: str, settings: EngineSettings) -> EngineSettings:
    try:
        config = parse_json(tf_config.encode())
        [(kind, workers)] = config["cluster"].items()
        if not kind == config["task"]["type"] == "worker":
            raise ValueError(f"{kind}, {config['task']['type']}")
        return replace(settings, hosts=tuple(map(str, workers)), host_rank=int(config["task"]["index"]))
    except UsageError as error:
        raise UsageError(f"TF_CONFIG: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        expected = "a cluster of workers alone, and the index of a task among them"
        raise UsageError(f"TF_CONFIG: expected {expected}, found {tf_config} ({error!r}); or use --hosts") from error


def may_have_accelerator() -> bool:
    """Return False if there is certainly no accelerator, since no driver has a device file, or all GPUs are hidden."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    drivers = ("nvidia[0-9]*", "nvidiactl", "dxg", "kfd")
    return sys.platform != "linux" or any(any(Path("/dev").glob(driver)) for driver in drivers)


def known_devices(settings: EngineSettings) -> tuple[int | None, bool | None]:
    """Return the number of devices of all processes and whether they are accelerators; None if only the framework can tell."""
    may_have = may_have_accelerator()
    if settings.engine == "oneflow":
        processes = pipeline.read_process(os.environ).world_size
        return processes // settings.stages, None if may_have else False
    if may_have:
        return None, None
    return (settings.devices or 1) * max(1, len(settings.hosts)), False


def is_first_process(settings: EngineSettings) -> bool:
    """Return whether this process logs and writes, according to its settings and its launcher."""
    if settings.engine == "oneflow":
        return pipeline.read_process(os.environ).rank == 0
    return not settings.host_rank


def open_engine(settings: EngineSettings) -> Engine:
    """Return the engine that the settings name, on this machine's devices. Loading its framework takes seconds."""
    try:
        module = importlib.import_module(f"trainer.engines.{settings.engine}")
    except ImportError as error:
        what = f"{error.name} is not installed here" if isinstance(error, ModuleNotFoundError) else str(error)
        raise _not_installed(settings.engine, what) from error
    engine: Engine = module.open_engine(settings)
    return engine


def _not_installed(engine: str, what: str) -> UsageError:
    return UsageError(f"--engine {engine}: {what}; pip install 'bertprep[{engine}]' (see docs/how-to/pretraining.md)")
