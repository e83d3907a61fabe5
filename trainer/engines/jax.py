"""Train BERT on JAX: the operations of the model, the devices as one mesh, and a step that XLA compiles for all of them.

    each device    computes the gradients of its micro-batches, one after another, and adds them up
    all devices    sum gradients, losses and correct predictions; each keeps its shard of the gradients
    each device    clips by the norm of the sum, and updates its shard of moments and variables; all gather the variables

Variables are complete on every device; moments are sharded (ZeRO-1). Losses are divided by the totals of the global batch.
Sums are float32. The state is donated to the step, which overwrites it.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

# JAX reads these while it is loaded and finds its devices. XLA's warnings are for its developers. 90% of the GPU memory (JAX's
# default is 75%) is allocated at once, so that it does not fragment; the rest is for NCCL, cuBLAS and cuDNN.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.9")

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from bertprep.progress import print_message
from bertprep.trusted_cache import own_folder
from trainer.engines import Batch, Engine, Execution, Processor, State
from trainer.engines.choice import choose_execution
from trainer.engines.joining import JOIN_TIMEOUT, join
from trainer.model import Array, Arrays, Operation, Operations
from trainer.model_config import LAYER_NORM_EPSILON, ModelConfig
from trainer.optimizers import slots
from trainer.settings import EngineSettings, OptimizerSettings
from trainer.step import Step
from trainer.tasks.task import Task

DATA = "data"
"""The only axis of the mesh; batches are split along it."""
_REPLICATED, _ROWS, _MICRO_BATCHES = Spec(), Spec(DATA), Spec(None, DATA)
"""Shardings: complete on every device; (rows, ...) split over the devices; (micro-batches, rows, ...) split by rows."""
_DETERMINISTIC = {"xla_gpu_deterministic_ops": True, "xla_gpu_enable_triton_gemm": False}
"""Options that make runs on GPUs bit-exact: sums have a fixed order, and no kernel is chosen by timing."""
_AMPERE = (8, 0)  # the first GPUs with bf16 and with cuDNN's fused attention
_MAX_FUSED_HEAD = 128  # units of a head; cuDNN's attention needs a multiple of 8


@jax.checkpoint  # type: ignore[untyped-decorator]
def _gelu(x: Array) -> Array:
    exact = x.astype(jnp.float32)
    return (exact * (0.5 * jax.lax.erf(exact * math.sqrt(0.5)) + 0.5)).astype(x.dtype)


@jax.custom_gradient  # type: ignore[untyped-decorator]
def _layer_norm(x: Array, gamma: Array, beta: Array) -> tuple[Array, Callable[[Array], tuple[Array, Array, Array]]]:
    def mean(x: Array) -> Array:
        return x.mean(axis=-1, keepdims=True)

    def gradient(upstream: Array) -> tuple[Array, Array, Array]:
        # The barrier makes XLA keep only x and these two columns for the backward pass; without it XLA keeps float32 rows
        center_kept, scale_kept = jax.lax.optimization_barrier((center, scale))
        normal, upstream = (x.astype(jnp.float32) - center_kept) * scale_kept, upstream.astype(jnp.float32)
        towards = upstream * gamma
        common = mean(towards) + normal * mean(towards * normal)
        return ((towards - common) * scale_kept).astype(x.dtype), (upstream * normal).sum(axis=0), upstream.sum(axis=0)

    exact = x.astype(jnp.float32)
    center = mean(exact)
    scale = jax.lax.rsqrt(mean(jnp.square(exact - center)) + LAYER_NORM_EPSILON)
    return ((exact - center) * scale * gamma + beta).astype(x.dtype), gradient


@partial(jax.checkpoint, static_argnums=2)
def _dropout(x: Array, key: Array, dropout_rate: float) -> Array:
    bits = jnp.arange(x.size, dtype=jnp.uint32).reshape(x.shape)
    for part in key.astype(jnp.uint32):
        bits = _mix(bits ^ _mix(part))
    kept = bits >= jnp.uint32(round(dropout_rate * 2**32))
    return jnp.where(kept, x.astype(jnp.float32) * (1 / (1 - dropout_rate)), 0).astype(x.dtype)


def _mix(bits: Array) -> Array:
    """Apply the final steps of MurmurHash3, a permutation of 32-bit numbers in which each bit depends on all others."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        bits = (bits ^ (bits >> shift)) * jnp.uint32(factor)
    return bits ^ (bits >> 16)


@jax.custom_gradient  # type: ignore[untyped-decorator]
def _cross_entropy(labels: Array, logits: Array) -> tuple[Array, Callable[[Array], tuple[None, Array]]]:
    # Comparing instead of indexing: one pass over the logits finds both the label's logit and the sum
    is_label = labels[:, None] == jnp.arange(logits.shape[-1])
    total = jax.nn.logsumexp(logits, axis=-1)

    def gradient(upstream: Array) -> tuple[None, Array]:
        return None, (jnp.exp(logits - total[:, None]) - is_label) * upstream[:, None]

    return total - jnp.where(is_label, logits, 0).sum(axis=-1), gradient


def _sum_rows_by_id(ids: Array, rows: Array, size: int) -> Array:
    """Return the sum of the rows of each id, which are sorted and added up pairwise: (size, hidden)."""

    def add(left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
        return right[0], right[1] + jnp.where((left[0] == right[0])[:, None], left[1], 0)

    order, every_id = jnp.argsort(ids), jnp.arange(size)
    ordered = ids[order]
    _, sums = jax.lax.associative_scan(add, (ordered, rows[order]))
    last = jnp.searchsorted(ordered, every_id, side="right", method="scan_unrolled") - 1
    return jnp.where((ordered[last] == every_id)[:, None], sums[last], 0)


@jax.custom_gradient  # type: ignore[untyped-decorator]
def _look_up(table: Array, ids: Array) -> tuple[Array, Callable[[Array], tuple[Array, None]]]:
    return table[ids], lambda upstream: (_sum_rows_by_id(ids, upstream, len(table)), None)


@jax.custom_gradient  # type: ignore[untyped-decorator]
def _product(left: Array, right: Array) -> tuple[Array, Callable[[Array], Any]]:
    """Return the products of rows in float32. Gradients are computed in the precision of the operands."""
    multiply = partial(jnp.einsum, "...ni,...mi->...nm")

    def gradient(upstream: Array) -> Any:
        return jax.vjp(multiply, left, right)[1](upstream.astype(left.dtype))

    return multiply(left, right, preferred_element_type=jnp.float32), gradient


class Ops(Operations):
    """JAX's operations.

    GELU and dropout are recomputed in the backward pass, and the gradients of LayerNorm and cross-entropy are written by hand,
    which saves time and memory (docs/contribute/benchmarks.md). No operation scatters, since GPUs would add in any order, or
    sort first.
    """

    cast = staticmethod(jax.lax.convert_element_type)
    reshape = staticmethod(jnp.reshape)
    permute = staticmethod(jnp.transpose)
    where = staticmethod(jnp.where)
    maximum = staticmethod(jnp.maximum)
    is_finite = staticmethod(jnp.isfinite)
    is_not_zero = staticmethod(lambda x: x != 0)
    sqrt = staticmethod(jnp.sqrt)
    expm1 = staticmethod(jnp.expm1)
    tanh = staticmethod(jnp.tanh)
    gelu = staticmethod(_gelu)
    softmax = staticmethod(jax.nn.softmax)
    argmax = staticmethod(partial(jnp.argmax, axis=-1))
    sum = staticmethod(jnp.sum)
    stack = staticmethod(jnp.stack)
    square_sum = staticmethod(lambda x: jnp.square(x).sum())
    product = staticmethod(_product)
    look_up = staticmethod(_look_up)
    layer_norm = staticmethod(_layer_norm)
    cross_entropy = staticmethod(_cross_entropy)

    def __init__(self, precision: str = "off", *, has_fused_attention: bool = False, recompute: bool = False) -> None:
        super().__init__(precision)
        self.has_fused_attention, self._recompute = has_fused_attention, recompute

    def look_up_small(self, table: Array, ids: Array) -> Array:
        return jax.nn.one_hot(ids, len(table)) @ table

    def gather_positions(self, x: Array, positions: Array) -> Array:
        rows = x.reshape(len(positions), -1, x.shape[-1])  # (sequences, seq, hidden)
        is_position = jax.nn.one_hot(positions, rows.shape[1], dtype=x.dtype)
        return (is_position @ rows).reshape(-1, x.shape[-1])

    def dropout(self, x: Array, dropout_rate: float, key: Array, number: int) -> Array:
        """Drop elements by a hash of their index and the key, which is faster than drawing random bits."""
        return _dropout(x, key + jnp.array([0, number], key.dtype), dropout_rate)

    def fused_attention(self, query: Array, key: Array, value: Array, masked_out: Array) -> Array:
        lengths = jnp.maximum((masked_out[:, 0, 0] == 0).sum(axis=1, dtype=jnp.int32), 1)  # filler rows have no token
        return jax.nn.dot_product_attention(query, key, value, key_value_seq_lengths=lengths, implementation="cudnn")

    def recompute(self, layer: Operation) -> Operation:
        return jax.checkpoint(layer) if self._recompute else layer


class JaxEngine(Engine):
    """Steps of one model on a mesh of all processes' devices."""

    packages = (jax, jaxlib)
    failures = (jax.errors.JaxRuntimeError,)

    def __init__(self, settings: EngineSettings, mesh: Mesh, execution: Execution, *, rank: int = 0) -> None:
        self._mesh = mesh
        self._device = next(device for device in mesh.devices.flat if device.process_index == rank)
        processes = len({device.process_index for device in mesh.devices.flat})
        super().__init__(settings, _processor(self._device), execution, devices=mesh.size, rank=rank, processes=processes)

    def prepare(self, model: ModelConfig, optimizer: OptimizerSettings, *, seed: int, task: Task) -> None:
        super().prepare(model, optimizer, seed=seed, task=task)
        fits_cudnn = model.head_size % 8 == 0 and model.head_size <= _MAX_FUSED_HEAD
        ops = Ops(
            self.precision,
            has_fused_attention=fits_cudnn and self.precision != "off" and self.execution.has_fused_attention,
            recompute=self.settings.checkpoint_activations,
        )
        self._step = Step(ops, model, task, optimizer)
        self._state: dict[str, Array] = {}
        self._shards = {name: self._shard(shape) for name, shape in self.variables.items()}
        specs = {slot: shard for name, shard in self._shards.items() for slot in slots(optimizer, name)}
        self._placements = {name: NamedSharding(self._mesh, specs.get(name, _REPLICATED)) for name in self.shapes}
        compiled = partial(jax.jit, compiler_options=_compiler_options(self.settings, self._device))
        replicated = NamedSharding(self._mesh, _REPLICATED)
        self._train = compiled(self._train_on_all, donate_argnums=0, out_shardings=(self._placements, replicated))
        self._evaluate = compiled(
            self._on_each_device(self._sums_of_all, (_REPLICATED, _ROWS), _REPLICATED), out_shardings=replicated
        )
        self._predict = compiled(self._on_each_device(self._step.logits, (_REPLICATED, _ROWS), _ROWS), out_shardings=replicated)

    def lower(self, batch: Batch, accumulation: int) -> Any:
        """Return the step for global batches of this shape as a `jax.stages.Lowered`. Its devices need not exist here."""
        like, rows = jax.ShapeDtypeStruct, NamedSharding(self._mesh, _MICRO_BATCHES)
        parts = accumulation * self.devices
        arrays = {**batch, "dropout_key": np.zeros((parts, 2), np.int32), "stop": np.zeros(parts, np.float32)}
        state = {name: like(shape, np.float32, sharding=self._placements[name]) for name, shape in self.shapes.items()}
        shapes = {name: _micro_batches(array, accumulation) for name, array in arrays.items()}
        split = {name: like(array.shape, array.dtype, sharding=rows) for name, array in shapes.items()}
        return self._train.lower(state, split, np.float32(0.0))

    def start(self, batch: Batch, learning_rate: float, accumulation: int) -> Array:
        arrays = {name: _micro_batches(array, accumulation) for name, array in batch.items()}
        self._state, result = self._train(self._state, self._send(arrays, _MICRO_BATCHES), np.float32(learning_rate))
        return result

    def sums(self, batch: Batch) -> Array:
        return self._evaluate(self._trained(self._state), self._send(batch, _ROWS))

    def logits(self, batch: Batch) -> Any:
        return self._predict(self._trained(self._state), self._send(batch, _ROWS))

    def state(self) -> State:
        with self.errors_in_a_line():  # array by array, so that a device has at most one sharded array complete
            return {name: np.array(multihost_utils.process_allgather(self._state[name], tiled=True)) for name in self.shapes}

    def restore(self, state: State) -> None:
        with self.errors_in_a_line():
            given = {name: _put(state[name], self._placements[name]) for name in self.shapes if name in state}
            self._state = {**self._state, **given}

    def gather(self, number: int) -> list[int]:
        with self.errors_in_a_line():
            return [int(each) for each in np.ravel(multihost_utils.process_allgather(np.int32(number)))]

    def peak_memory(self) -> int | None:
        return (self._device.memory_stats() or {}).get("peak_bytes_in_use") if self.has_accelerator else None

    def _send(self, arrays: Batch, split: Any) -> dict[str, Array]:
        if self._step.ops.has_fused_attention:
            _check_masks(arrays["input_mask"])
        sharding = NamedSharding(self._mesh, split)
        return {name: jax.make_array_from_process_local_data(sharding, array) for name, array in arrays.items()}

    def _shard(self, shape: tuple[int, ...]) -> Any:
        """Return the sharding of a variable's moments: along the first axis that is divisible by the number of devices."""
        axes = [axis for axis, size in enumerate(shape) if self.devices > 1 and size % self.devices == 0]
        return Spec(*[None] * axes[0], DATA) if axes else _REPLICATED

    def _trained(self, state: Arrays) -> dict[str, Array]:
        return {name: state[name] for name in self.variables}

    def _on_each_device(self, function: Operation, inputs: Any, outputs: Any) -> Any:
        def compute(*arguments: Any) -> Any:
            # By default GPUs and TPUs round the inputs of float32 products to 10 or 7 bits
            with jax.default_matmul_precision("highest" if self.precision == "off" else "default"):
                return function(*arguments)

        # Not checked for values that all devices share (check_vma), since JAX 0.12 then refuses the gradient of erf
        return jax.shard_map(compute, mesh=self._mesh, in_specs=inputs, out_specs=outputs, check_vma=False)

    def _train_on_all(self, state: Arrays, batch: Arrays, learning_rate: Array) -> tuple[dict[str, Array], Array]:
        scale = jnp.float32(self.scaled(state["loss_scale"], len(batch["input_ids"])))
        inputs, outputs = (_REPLICATED, _MICRO_BATCHES, _REPLICATED), (self._shards, _REPLICATED, _REPLICATED)
        gradients, sums, stops = self._on_each_device(self._gradients, inputs, outputs)(self._trained(state), batch, scale)
        gradients = self._trained(gradients)  # in the order of the variables
        norm = self._step.norm(gradients, scale)
        after = {**state, **dict(self._step.changes(state, gradients, self._step.factor(norm, scale), learning_rate))}
        return after, jnp.concatenate([sums, jnp.stack([norm, state["loss_scale"], stops])])

    def _gradients(self, variables: Arrays, batch: Arrays, scale: Array) -> tuple[dict[str, Array], Array, Array]:
        """Return a device's shards of the summed gradients times `scale`, the summed results, and the requests to stop."""
        weight_sums = jax.lax.psum(self._step.weight_sums(batch), DATA)

        def loss(variables: Arrays, part: Arrays) -> tuple[Array, Array]:
            return self._step.micro_batch(variables, part, weight_sums, scale)

        def add(gradients: Arrays, part: Arrays) -> tuple[dict[str, Array], Array]:
            of_part, sums = jax.grad(loss, has_aux=True)(variables, part)
            return jax.tree.map(jnp.add, gradients, of_part), sums

        gradients, sums = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, variables), batch)
        gradients = jax.tree.map(_reduce, gradients, self._shards)
        return gradients, jax.lax.psum(sums.sum(axis=0), DATA), jax.lax.psum(batch["stop"][0, 0], DATA)

    def _sums_of_all(self, variables: Arrays, batch: Arrays) -> Array:
        return jax.lax.psum(self._step.sums(variables, batch), DATA)


def _reduce(gradient: Array, shard: Any) -> Array:
    """Return this device's shard of the sum over all devices, or the complete sum if moments are not sharded."""
    if DATA not in shard:
        return jax.lax.psum(gradient, DATA)
    return jax.lax.psum_scatter(gradient, DATA, scatter_dimension=shard.index(DATA), tiled=True)


def _micro_batches(array: NDArray[Any], accumulation: int) -> NDArray[Any]:
    """Split rows into (micro-batches, rows, ...)."""
    return array.reshape(accumulation, -1, *array.shape[1:])


def _put(value: NDArray[np.float32], placement: NamedSharding) -> Array:
    return jax.make_array_from_callback(np.shape(value), placement, lambda index: np.array(value[index], np.float32))


def _check_masks(masks: NDArray[np.int32]) -> None:
    if (with_gap := np.flatnonzero((masks[..., 1:] > masks[..., :-1]).any(axis=-1))).size:
        raise BertprepError(
            f"row {with_gap[0]} of a batch: its input_mask has a 1 after a 0, but fused attention needs all ones before the "
            "zeros; give --amp off, or write the records again with the padding at the end"
        )


def open_engine(settings: EngineSettings) -> JaxEngine:
    """Wait for the other hosts, and return the engine on this host's GPUs or TPUs, or CPU, or on `settings.devices` of them."""
    if (settings.devices or 1) > 1 and "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        with suppress(RuntimeError):  # raised if JAX is in use already, which keeps its devices
            jax.config.update("jax_num_cpu_devices", settings.devices)  # logical devices, used if there is only a CPU
    if settings.hosts:
        _join(settings.host_rank or 0, settings.hosts)
    _keep_compiled()
    by_process = _find_devices(settings)
    rank = jax.process_index()  # not --host-rank: the hosts of a TPU slice have their own ranks
    device, processors = by_process[rank][0], [_processor(each) for each in by_process[rank]]
    has_fused_attention = _has_fused_attention(device, processors[0], _compiler_options(settings, device))
    execution = choose_execution(settings, processors)._replace(has_fused_attention=has_fused_attention)
    return JaxEngine(settings, Mesh(np.concatenate(by_process), (DATA,)), execution, rank=rank)


def _keep_compiled() -> None:
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):  # JAX has already read it
        return
    features = ""  # machines that share a home folder may have different processors, which cannot run each other's code
    with suppress(OSError):
        features = "".join(re.findall(r"^(?:flags|Features)\s*:.*\n", Path("/proc/cpuinfo").read_text(), re.MULTILINE)[:1])
    if folder := own_folder(f"jax-{hashlib.sha256(features.encode()).hexdigest()[:16]}"):
        jax.config.update("jax_compilation_cache_dir", str(folder))


def _find_devices(settings: EngineSettings) -> list[list[Any]]:
    try:
        found = jax.devices()
    except RuntimeError as error:
        raise BertprepError(f"JAX finds no usable device: {str(error).splitlines()[0]}") from error
    by_process = [[device for device in found if device.process_index == each] for each in range(jax.process_count())]
    counts = [len(devices) for devices in by_process]
    count = settings.devices or (1 if found[0].platform == "cpu" else max(counts))
    if min(counts) < count:
        raise UsageError(
            f"--devices {count}: each host must have this many devices, but they have {', '.join(map(str, counts))}"
        )
    return [devices[:count] for devices in by_process]


def _join(rank: int, hosts: tuple[str, ...]) -> None:
    """Connect to the other processes of the run."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # Otherwise JAX would use one GPU per process under Slurm or MPI
    options = {"cluster_detection_method": "deactivate", "initialization_timeout": 2 * JOIN_TIMEOUT}
    join(partial(jax.distributed.initialize, hosts[0], len(hosts), rank, **options), rank, hosts)


def _processor(device: Any) -> Processor:
    if device.platform == "cpu":
        return Processor()
    if device.platform == "tpu":
        return Processor(device.device_kind, _AMPERE, is_gpu=True)  # every TPU has bf16
    found = re.fullmatch(r"(\d+)\.(\d+)", str(getattr(device, "compute_capability", "")))  # AMD's capability has letters
    return Processor(device.device_kind, (int(found[1]), int(found[2])) if found else None, is_gpu=True)


def _compiler_options(settings: EngineSettings, device: Any) -> dict[str, bool]:
    return _DETERMINISTIC if device.platform in ("gpu", "cuda") and settings.deterministic == "on" else {}


def _has_fused_attention(device: Any, processor: Processor, options: Mapping[str, bool]) -> bool:
    if device.platform != "gpu" or (processor.capability or (0, 0)) < _AMPERE:
        return False

    def attend(x: Array) -> Array:
        return Ops().fused_attention(x, x, x, jnp.zeros((1, 1, 1, 64))).sum(dtype=jnp.float32)

    try:
        with jax.default_device(device):
            probe = jax.jit(jax.grad(attend), compiler_options=dict(options))
            probe(jnp.ones((1, 64, 1, 64), jnp.bfloat16)).block_until_ready()
    except Exception as error:  # cuDNN, XLA and JAX raise many types
        why = (str(error).splitlines() or [repr(error)])[0]
        print_message(f"attention is not fused, since cuDNN cannot compute it on this machine: {why:.200}")
        return False
    return True
