"""JAX's engine alone: what its compiled step consists of, the devices that it finds, and its errors."""

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertprep.errors import BertprepError, UsageError
from tests.trainer.small_runs import MODEL, free_ports, make_batch, train_step
from tests.trainer.test_engine import first_step
from trainer.batches import features
from trainer.engines.choice import open_engine
from trainer.model import Bert
from trainer.settings import EngineSettings

pytestmark = pytest.mark.jax


def test_moments_are_sharded_over_the_devices_and_variables_are_not() -> None:
    """Layers whose activations are computed again have the same dropout masks again."""
    four: Any = first_step("jax", dropout=True, devices=4, checkpoint_activations=True)
    one = first_step("jax", dropout=True)
    for number in range(3):
        results = [
            train_step(engine, make_batch(number), number, accumulation=count) for engine, count in ((four, 1), (one, 4))
        ]
        np.testing.assert_allclose(results[0].sums, results[1].sums, rtol=1e-5)
        assert results[0].gradient_norm == pytest.approx(results[1].gradient_norm, rel=1e-4)
    name = "bert/encoder/layer_0/intermediate/dense/kernel"
    assert [shard.data.shape for shard in four._state[f"{name}/adam_v"].addressable_shards] == [(8, 64)] * 4
    assert four._state[name].is_fully_replicated


@pytest.mark.parametrize(("amp", "dtype"), [("off", "f32"), ("bf16", "bf16"), ("fp16", "f16")])
def test_products_have_the_compute_precision_and_nothing_scatters(amp: str, dtype: str) -> None:
    """Those of gradients too; nor are random bits drawn by an operation that writes them to memory."""
    engine: Any = first_step("jax", dropout=True, model=MODEL, devices=4, amp=amp, checkpoint_activations=True)
    program = engine.lower(features(make_batch(0)), 2).as_text()
    operands = re.findall(r"stablehlo.dot_general .*: \(tensor<(?:\d+x)*(\w+)>, tensor<(?:\d+x)*(\w+)>\)", program)
    assert all(left == right for left, right in operands)
    assert len(operands) > 3 * 6 * MODEL.num_hidden_layers
    # Of segments, forward and backward, and of the two next-sentence logits, forward and twice backward
    assert sum(left == "f32" for left, _ in operands) == (len(operands) if dtype == "f32" else 5)
    # By default GPUs and TPUs would round the inputs of the float32 products
    precisions = re.findall(r"stablehlo.dot_general .*, precision = \[(\w+), (\w+)\]", program)
    assert precisions == [("HIGHEST" if amp == "off" else "DEFAULT",) * 2] * len(operands)
    assert not {"stablehlo.scatter", "stablehlo.rng_bit_generator"} & set(re.findall(r"stablehlo\.\w+", program))


def test_masks_with_gaps_are_refused_where_cudnn_is_given_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = first_step("jax", dropout=True)
    batch = features(make_batch(0))
    batch["input_mask"][3, 1] = 0
    monkeypatch.setattr(engine._step.ops, "has_fused_attention", True)
    for send in (engine.evaluate, lambda batch: train_step(engine, batch, 0, accumulation=4)):
        with pytest.raises(BertprepError, match="row 3 of a batch: its input_mask has a 1 after a 0"):
            send(batch)


def test_fused_attention_has_the_lengths_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA's implementation stands in for cuDNN's."""
    jax, engine = import_module("jax"), import_module("trainer.engines.jax")
    attend = jax.nn.dot_product_attention
    monkeypatch.setattr(jax.nn, "dot_product_attention", lambda *x, **given: attend(*x, **{**given, "implementation": "xla"}))
    batch = {"input_mask": np.array([[1] * 6, [1] * 4 + [0] * 2], np.int32)}
    states = np.random.default_rng(1).normal(size=(3, 12, MODEL.hidden_size)).astype(np.float32)
    plain, fused = (
        Bert(engine.Ops(has_fused_attention=is_fused), MODEL, {}, batch).attend(*states) for is_fused in (False, True)
    )
    np.testing.assert_allclose(fused, plain, rtol=1e-5, atol=1e-6)


def test_more_devices_than_there_are_is_an_error() -> None:
    """The first engine of a process decides how many devices its CPU has."""
    assert open_engine(EngineSettings(engine="jax", devices=4)).devices == 4
    with pytest.raises(UsageError, match=r"--devices 64: .* they have 4"):
        open_engine(EngineSettings(engine="jax", devices=64))


def run_python(code: str, **environment: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_process_under_slurm_has_all_devices_of_its_host() -> None:
    """As docs/how-to/pretraining.md says, one task for each host: JAX itself would take it for one task for each GPU."""
    code = f"""
from trainer.engines.choice import open_engine
from trainer.model import Bert
from trainer.settings import EngineSettings
open_engine(EngineSettings(engine="jax", hosts=("127.0.0.1:{free_ports(1)[0]}",), host_rank=0))
import jax
print(jax.config.values["jax_cuda_visible_devices"])
"""
    task = {"JOB_ID": "5", "STEP_NODELIST": "node0", "NTASKS": "2", "PROCID": "0", "LOCALID": "0", "STEP_NUM_NODES": "2"}
    assert run_python(code, **{f"SLURM_{name}": value for name, value in task.items()}) == "all\n"


def test_what_is_compiled_is_kept_for_the_next_run(tmp_path: Path) -> None:
    code = """
from trainer.engines.choice import open_engine
from trainer.model import Bert
from trainer.settings import EngineSettings
open_engine(EngineSettings(engine="jax"))
import jax
print(jax.config.values["jax_compilation_cache_dir"])
"""
    kept = Path(run_python(code, BERTPREP_CACHE=str(tmp_path), JAX_COMPILATION_CACHE_DIR="").strip())
    assert kept.parent == tmp_path
    assert kept.stat().st_mode & 0o077 == 0
    assert run_python(code, JAX_COMPILATION_CACHE_DIR=str(tmp_path / "own")) == f"{tmp_path / 'own'}\n"


def test_the_engine_trains_where_only_a_framework_is_installed() -> None:
    """As on a machine for benchmarks: neither kernels nor what reads and shows records can be imported."""
    code = """
import sys
for name in "numba llvmlite rich pyarrow obstore huggingface_hub httpx2 tokenizers yaml scipy tensorflow".split():
    sys.modules[name] = None
from tests.trainer.small_runs import build, make_batch, train_step
print(train_step(build("jax", optimizer="lamb"), make_batch(0), 0, accumulation=4).gradient_norm)
"""
    expected = train_step(first_step("jax", dropout=True, model=MODEL), make_batch(0), 0, accumulation=4)
    assert float(run_python(code)) == pytest.approx(expected.gradient_norm, rel=1e-6)
