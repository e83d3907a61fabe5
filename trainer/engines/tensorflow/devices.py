"""The devices that a run has, as a strategy of TensorFlow's: one, all GPUs of a host, or those of several hosts.

TensorFlow fixes its devices when it is first used, so this comes before anything else is asked of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from bertprep.errors import BertprepError, UsageError
from trainer.engines.execution import Execution, Processor, choose_execution, this_cpu
from trainer.engines.hosts import find_process
from trainer.settings import EngineSettings


@dataclass(frozen=True)
class Devices:
    """What this process computes on, and its rank among the processes of the run."""

    strategy: Any
    names: tuple[str, ...]  # of this process's devices
    rank: int
    world_size: int
    kind: str  # for people: "NVIDIA H100 80GB HBM3", or "CPU"
    has_gpu: bool
    execution: Execution  # what the settings ask for, or what suits the devices


def open_devices(settings: EngineSettings) -> Devices:
    """All GPUs of this host or one CPU, unless the settings say otherwise; waits for the other hosts, where there are any."""
    if settings.deterministic == "on":
        tf.config.experimental.enable_op_determinism()  # without it GPUs add up embedding gradients in any order
    rank, world_size = _join(settings)
    gpus = _choose_gpus(settings)
    if world_size > 1:
        if not gpus and (settings.devices or 1) > 1:
            raise UsageError(
                f"--devices {settings.devices}: several hosts without GPUs have one device each; start more processes"
            )
        strategy: Any = tf.distribute.MultiWorkerMirroredStrategy(communication_options=_communication(has_gpus=bool(gpus)))
        names = [f"GPU:{number}" for number in range(len(gpus))] or ["CPU:0"]
    else:
        names = [f"GPU:{number}" for number in range(len(gpus))] or _make_logical_cpus(settings.devices or 1)
        strategy = tf.distribute.MirroredStrategy(names) if len(names) > 1 else tf.distribute.get_strategy()
    processors = [_processor(gpu) for gpu in gpus] or [this_cpu()]
    fault = find_xla_fault(names[0]) if gpus and settings.xla == "auto" else ""
    execution = choose_execution(settings, processors, xla_fault=fault)
    return Devices(strategy, tuple(names), rank, world_size, processors[0].name if gpus else "CPU", bool(gpus), execution)


def _processor(gpu: Any) -> Processor:
    details = tf.config.experimental.get_device_details(gpu)
    return Processor(details.get("device_name", "GPU"), details.get("compute_capability"), is_gpu=True)


def find_xla_fault(device: str, probe: Callable[[Any], Any] = tf.math.erf) -> str:
    """Why XLA does not compile a function for a device, or nothing where it does; for GPUs it needs CUDA's files."""
    try:
        with tf.device(device):
            tf.function(probe, jit_compile=True, autograph=False)(tf.ones(2)).numpy()
    except (tf.errors.OpError, RuntimeError) as error:
        return str(error).splitlines()[0][:200]
    return ""


def _join(settings: EngineSettings) -> tuple[int, int]:
    """This process's rank and the number of all; TensorFlow reads --hosts from TF_CONFIG."""
    if settings.hosts:
        cluster = {"cluster": {"worker": list(settings.hosts)}, "task": {"type": "worker", "index": settings.host_rank}}
        os.environ["TF_CONFIG"] = json.dumps(cluster)
    rank, hosts = find_process(settings)
    return rank, max(1, len(hosts))


def _communication(*, has_gpus: bool) -> Any:
    """NCCL where there are GPUs: by default TensorFlow sums over hosts by rings of its own, through the CPU."""
    kinds = tf.distribute.experimental.CommunicationImplementation
    return tf.distribute.experimental.CommunicationOptions(implementation=kinds.NCCL if has_gpus else kinds.RING)


def _choose_gpus(settings: EngineSettings) -> list[Any]:
    gpus: list[Any] = tf.config.list_physical_devices("GPU")
    if gpus and (settings.devices or 0) > len(gpus):
        raise UsageError(f"--devices {settings.devices}: this host has {len(gpus)} GPUs")
    gpus = gpus[: settings.devices]
    try:
        if gpus:
            tf.config.set_visible_devices(gpus, "GPU")
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
    except RuntimeError as error:
        raise BertprepError(f"TensorFlow was in use before its devices were chosen: {error}") from error
    return gpus


def _make_logical_cpus(count: int) -> list[str]:
    """This many devices that are all the one processor: what multi-device runs are tested on."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    have = tf.config.get_logical_device_configuration(cpu)
    if count > 1 and (have is None or len(have) < count):
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    return [f"CPU:{number}" for number in range(count)]
