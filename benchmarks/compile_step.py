"""What XLA makes of a training step for GPUs or TPUs that are not here: its memory, its kernels, and a lower bound of its time.

--on h100 needs jax with its CUDA plugin, but no driver; --on with a slice of TPUs (v4:2x2x1, v5e:2x2, v5p:2x2x1, v6e:2x2)
needs libtpu. The batch size is that of one device in a micro-batch. Memory is what the compiler plans for: the state, which is
updated in place, and all else at its peak. With a GPU's figures comes a bound: each kernel reads its operands and writes its
results once at 85 % of the memory's speed, and products run at 700 TFLOP/s; kernels within loops (--accumulate) are not in it.
"""

import argparse
import math
import os
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bertprep.errors import BertprepError
from bertprep.files.outputs import begins_with, write_output
from trainer.batches import features
from trainer.bench import synthetic_records
from trainer.model_config import ModelConfig
from trainer.settings import EngineSettings, OptimizerSettings
from trainer.tasks import Pretraining

H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  shared_memory_per_block: 49152 shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448
  registers_per_core_limit: 65536 registers_per_block_limit: 65536 clock_rate_ghz: 1.98
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000 device_memory_size: 84929347584 l2_cache_size: 52428800
  cuda_compute_capability { major: 9 }
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
runtime_version { major: 12 minor: 9 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
"""NVIDIA's figures of an H100 SXM, as XLA takes them."""
BYTES_A_SECOND, FLOPS_A_SECOND = 0.85 * 3.35e12, 700e12
SIZES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4}
NO_KERNELS = {"parameter", "get-tuple-element", "bitcast", "tuple", "constant"}


def find_devices(name: str, count: int) -> list[Any]:
    """Devices to compile for."""
    import jax
    from jax.experimental import topologies

    try:
        if name == "h100":
            jax.config.update("jax_platforms", "")
            jax.devices()  # which finds the plugin
            return list(topologies.get_topology_desc(platform="cuda", target_config=H100, topology=f"1x1x{count}").devices)
        found = list(topologies.get_topology_desc(platform="tpu", topology_name=name).devices)
    except (RuntimeError, NotImplementedError, ValueError) as error:
        needed = "jax's CUDA plugin" if name == "h100" else "libtpu, and a slice such as v5e:2x2"
        sys.exit(f"--on {name}: needs {needed}, and this JAX says: {(str(error).splitlines() or [repr(error)])[0]}")
    if count > len(found):
        sys.exit(f"--devices {count}: {name} has {len(found)}")
    return found[:count]


def make_engine(options: argparse.Namespace) -> Any:
    """The engine on devices that are not here."""
    devices = find_devices(options.on, options.devices)  # before JAX is imported by the engine
    from jax.sharding import Mesh

    from trainer.engines import Execution
    from trainer.engines.jax import DATA, JaxEngine

    settings = EngineSettings(engine="jax", deterministic=options.deterministic, checkpoint_activations=options.remat)
    execution = Execution(options.amp, has_fused_attention=options.on == "h100")
    return JaxEngine(settings, Mesh(np.array(devices), (DATA,)), execution)


def bytes_of(shapes: str) -> int:
    """Of all arrays in a type such as (bf16[512,768]{1,0}, s8[64]{0}).

    >>> bytes_of("(bf16[512,768]{1,0}, s8[64]{0})")
    786496
    """
    arrays = re.findall(r"(\w+)\[([\d,]*)\]", shapes)
    return sum(SIZES.get(kind, 4) * math.prod(map(int, filter(None, sizes.split(",")))) for kind, sizes in arrays)


def kernels_of(program: str) -> list[tuple[str, float, float]]:
    """What each kernel of the main program does, the FLOPs of its product or 0, and the bytes that it reads and writes."""
    types: dict[str, str] = {}
    found: list[tuple[str, float, float]] = []
    for line in program[program.index("\nENTRY") :].splitlines()[2:]:
        match = re.match(r"\s+(?:ROOT )?%(\S+) = (.*?) ([\w-]+)\((.*?)\)(?:, |$)", line)
        if match is None:
            continue
        name, kind, operation, operands = match.groups()
        types[name] = kind
        if operation in NO_KERNELS:
            continue
        given = [types[operand] for operand in re.findall(r"%([\w.-]+)", operands)]
        flops = 0.0
        if "matmul" in line and (axis := re.search(r'"lhs_contracting_dimensions":\["(\d+)"', line)):
            left, result = (re.findall(r"\[([\d,]+)\]", each)[0].split(",") for each in (given[0], kind))
            flops = 2 * int(left[int(axis.group(1))]) * math.prod(map(int, result))
        described = re.search(r'op_name="[^"]*?([^/"]+)"', line)
        shown = f"{described.group(1) if described else operation} {re.sub('{[^}]*}', '', kind)[:60]}"
        found.append((shown, flops, bytes_of(kind) + sum(map(bytes_of, given))))
    return found


def main() -> None:
    """Compile a step and print what it takes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", default="h100")
    parser.add_argument("--model", default="base")
    for name, default in (("devices", 1), ("seq", 128), ("pred", 20), ("batch-size", 512), ("accumulate", 1), ("top", 12)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--amp", default="bf16", choices=("off", "fp16", "bf16"))
    parser.add_argument("--attention-dropout", type=float, default=0.0)
    parser.add_argument("--remat", action="store_true")
    parser.add_argument("--deterministic", default="on", choices=("on", "off"))
    parser.add_argument("--hlo", type=Path, help="a file for the optimized program")
    options = parser.parse_args()
    sizes = options.devices, options.seq, options.pred, options.batch_size, options.accumulate
    if min(sizes) < 1 or options.pred > options.seq:
        parser.error("numbers begin at 1, and a sequence has at most as many predictions as tokens")
    try:
        model = ModelConfig.preset(options.model, vocab_size=30522)
        layers = options.layers or model.num_hidden_layers
        model = replace(model, attention_probs_dropout_prob=options.attention_dropout, num_hidden_layers=layers)
    except BertprepError as error:
        parser.error(str(error))
    os.environ.update(JAX_SKIP_CUDA_CONSTRAINTS_CHECK="1", TPU_SKIP_MDS_QUERY="1", TF_CPP_MIN_LOG_LEVEL="2")
    engine = make_engine(options)
    engine.prepare(model, OptimizerSettings(bias_correction=True), seed=1, task=Pretraining())
    rows = options.batch_size * options.accumulate * engine.devices
    made = synthetic_records(np.random.default_rng(1), rows, seq=options.seq, pred=options.pred, vocab_size=30522)
    batch = features(made)
    # without it, kernels for products would be chosen by trying them on the device
    of_gpu = {"xla_gpu_enable_triton_gemm": False} if options.on == "h100" else None
    compiled = engine.lower(batch, options.accumulate).compile(compiler_options=of_gpu)
    program = compiled.as_text()
    if options.hlo:
        write_output(options.hlo, program.encode(), begins_with(b"HloModule "), "--hlo")
    memory = compiled.memory_analysis()
    state, peak = memory.argument_size_in_bytes, memory.argument_size_in_bytes + memory.temp_size_in_bytes
    print(f"{engine.device_name}: {state / 2**30:.2f} GiB of state and batch, {peak / 2**30:.2f} GiB at the peak, per device")
    operations = Counter(re.findall(r" (while|scatter|sort|all-reduce|all-gather|reduce-scatter)(?:-start)?\(", program))
    libraries = Counter(re.findall(r'custom_call_target="__(\S+?)"', program))
    print(", ".join(f"{count} {name}" for name, count in {**operations, **libraries}.items()))
    if options.on == "h100":
        show_kernels(kernels_of(program), options.top)


def show_kernels(kernels: list[tuple[str, float, float]], top: int) -> None:
    """Print the bound of a step, and the kernels with the largest part of it."""
    seconds: dict[str, float] = {}
    for name, flops, size in kernels:
        seconds[name] = seconds.get(name, 0.0) + max(flops / FLOPS_A_SECOND, size / BYTES_A_SECOND)
    counts = Counter(name for name, _, _ in kernels)
    total, of_products = sum(seconds.values()), sum(flops for _, flops, _ in kernels)
    print(f"{len(kernels):,} kernels, products of {of_products / 1e12:.2f} TFLOP, at least {1000 * total:.1f} ms a step")
    for name, each in sorted(seconds.items(), key=lambda item: -item[1])[:top]:
        print(f"{1000 * each:8.2f} ms {counts[name]:4} x {name}")
