"""The devices that a run has, as one mesh with a single axis: the GPUs or TPUs of all hosts, or logical devices of a CPU.

JAX fixes its devices when it is first used, so this comes before anything else is asked of it.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from bertprep.errors import BertprepError, UsageError
from bertprep.kernels.trusted_cache import trusted_folder
from bertprep.progress import say
from bertprep.terminal import INTERRUPTED
from trainer.engines import may_have_accelerators, quiet
from trainer.engines.execution import Execution, Processor, choose_execution, this_cpu
from trainer.engines.hosts import find_process
from trainer.settings import EngineSettings

_PATIENCE = 300  # seconds for all processes to come
_QUIET = 5.0  # seconds of that without a word
DATA = "data"
"""The mesh's axis, over which batches are split."""
_LIKE_AN_A100 = (8, 0)  # every TPU has bf16, and its GPUs' rule suits it
_CUDNN_CAPABILITY = (8, 0)  # of GPUs that cuDNN's fused attention runs on
REPEATABLE = {"xla_gpu_deterministic_ops": True, "xla_gpu_enable_triton_gemm": False}
"""For the same bits in every run: sums in one order, and no kernel taken for its speed that day; cuBLAS chooses well."""


@dataclass(frozen=True)
class Devices:
    """What all processes compute on, and this one's place among them."""

    mesh: Mesh
    local: tuple[Any, ...]  # this process's devices
    rank: int
    world_size: int
    kind: str  # for people: "NVIDIA H100 80GB HBM3", or "CPU"
    is_accelerator: bool
    execution: Execution  # what the settings ask for, or what suits the devices
    options: Mapping[str, bool]  # of the compiler
    attention_fault: str  # why cuDNN's fused attention does not run here, or nothing where it does


def open_devices(settings: EngineSettings) -> Devices:
    """All GPUs of this host or one CPU, unless the settings say otherwise; waits for the other hosts, where there are any."""
    rank, hosts = find_process(settings)
    if settings.devices is not None:
        _make_logical_cpus(settings.devices)
    if hosts:
        _join(rank, hosts)
    try:
        with quiet():
            found = jax.local_devices()
    except RuntimeError as error:
        raise BertprepError(f"JAX finds no device that it can use: {str(error).splitlines()[0]}") from error
    is_accelerator = found[0].platform != "cpu"
    if not is_accelerator and may_have_accelerators():
        advice = "python -c 'import jax; jax.devices()' tells why"
        say(f"JAX takes the CPU, though there may be a GPU or TPU; GPUs need the extra jax-cuda; {advice}")
    if (found[0].process_index, jax.process_count()) != (rank, max(1, len(hosts))):
        raise UsageError(
            f"--hosts, --host-rank: this is host {rank} of {max(1, len(hosts))} by them, and of its TPU slice host "
            f"{found[0].process_index} of {jax.process_count()}; give all of the slice's, in its order"
        )
    count = settings.devices or (len(found) if is_accelerator else 1)
    if count > len(found):
        raise UsageError(f"--devices {settings.devices}: this host has {len(found)} {'GPUs' if is_accelerator else 'devices'}")
    by_process = [[each for each in jax.devices() if each.process_index == process] for process in range(max(1, len(hosts)))]
    if len({len(own[:count]) for own in by_process}) > 1:
        raise UsageError(f"hosts of {', '.join(str(len(own)) for own in by_process)} devices; --devices takes as many of each")
    processors = [_processor(device) for device in found[:count]]
    options = REPEATABLE if found[0].platform == "gpu" and settings.deterministic == "on" else {}
    _keep_compiled(processors[0])  # the next line's step too
    fault = _find_attention_fault(found[0], processors[0], options)
    fused = "cuDNN's, fused, where it has no dropout (--attention-dropout 0)"
    attention = f"XLA's: cuDNN does not compute it here: {fault}" if fault else fused
    return Devices(
        mesh=Mesh(np.array([device for own in by_process for device in own[:count]]), (DATA,)),
        local=tuple(found[:count]),
        rank=rank,
        world_size=max(1, len(hosts)),
        kind=processors[0].name if is_accelerator else "CPU",
        is_accelerator=is_accelerator,
        execution=replace(choose_execution(settings, processors), attention=attention if is_accelerator else ""),
        options=options,
        attention_fault=fault,
    )


def _make_logical_cpus(count: int) -> None:
    """This many devices that are all the one processor, where there is nothing else: what multi-device runs are tested on."""
    if count > 1 and "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        with suppress(RuntimeError):  # where JAX was in use before, it has as many as it has
            jax.config.update("jax_num_cpu_devices", count)


def _join(rank: int, hosts: tuple[str, ...]) -> None:
    """Meet the other processes at the first one's address; signals are heeded meanwhile, as JAX alone would not."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    failures: list[RuntimeError] = []

    def meet() -> None:
        try:
            # JAX would abort when its own time is up; under Slurm or MPI it would take one GPU for each process
            jax.distributed.initialize(
                hosts[0], len(hosts), rank, cluster_detection_method="deactivate", initialization_timeout=2 * _PATIENCE
            )
        except RuntimeError as error:
            failures.append(error)

    thread = threading.Thread(target=meet, daemon=True)
    thread.start()
    given_up = time.monotonic() + _PATIENCE
    try:
        thread.join(_QUIET)
        if thread.is_alive():
            say(f"process {rank} of {len(hosts)}: waiting for the others, up to {_PATIENCE} s")
        while thread.is_alive() and time.monotonic() < given_up:
            thread.join(0.2)
    except BaseException as error:
        leave_alone(error.code if isinstance(error, SystemExit) else INTERRUPTED)
        raise
    if failures or thread.is_alive():
        leave_alone()
        why = str(failures[0]).splitlines()[0] if failures else f"after {_PATIENCE} s"
        raise BertprepError(
            f"process {rank} of {len(hosts)}: does not meet the others at {hosts[0]} ({why}); "
            "start all of them with the same --hosts"
        )


def leave_alone(status: Any = BertprepError.exit_status) -> None:
    """Let this process end without waiting for others, gone or in the midst of a step: JAX would do so a while, and abort."""

    def leave() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

    atexit.register(leave)  # which comes before what was registered earlier


def _processor(device: Any) -> Processor:
    if device.platform == "cpu":
        return this_cpu()
    if device.platform == "tpu":
        return Processor(device.device_kind, _LIKE_AN_A100, is_gpu=True)
    numbers = str(getattr(device, "compute_capability", "")).split(".")
    is_known = len(numbers) == 2 and all(number.isdecimal() for number in numbers)  # AMD's has letters
    return Processor(device.device_kind, (int(numbers[0]), int(numbers[1])) if is_known else None, is_gpu=True)


def _find_attention_fault(device: Any, processor: Processor, options: Mapping[str, bool]) -> str:
    """Why cuDNN does not compute attention on a device; it is asked by a small one, forward and backward."""
    if device.platform != "gpu" or (processor.capability or (0, 0)) < _CUDNN_CAPABILITY:
        return "it is for NVIDIA's GPUs of compute capability 8.0 or higher"

    def attend(values: Any, lengths: Any) -> Any:
        return jax.nn.dot_product_attention(values, values, values, key_value_seq_lengths=lengths, implementation="cudnn").sum(
            dtype=jnp.float32
        )

    try:
        with quiet(), jax.default_device(device):
            small = jnp.ones((1, 64, 1, 64), jnp.bfloat16), jnp.full(1, 64, jnp.int32)
            jax.jit(jax.grad(attend), compiler_options=dict(options))(*small).block_until_ready()
    except Exception as error:  # of many kinds, from cuDNN, XLA and JAX; without it a run is only slower
        return (str(error).splitlines() or [repr(error)])[0][:200]
    return ""


def _keep_compiled(processor: Processor) -> None:
    """Keep what is compiled in the user's cache, so that the next run's first step comes at once.

    A folder for each kind of processor: code for one may not run on another that shares the home folder. Only the user may
    have written there, as for the compiled kernels.
    """
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):  # which JAX has read
        return
    kind = hashlib.sha256(f"{processor.name} {sorted(processor.features)}".encode()).hexdigest()[:16]
    folder = trusted_folder(f"jax-{kind}")
    if folder is not None:
        jax.config.update("jax_compilation_cache_dir", str(folder))
