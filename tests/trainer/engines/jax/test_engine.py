"""A global batch gives the same step however it is cut over devices and micro-batches, in every precision."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from bertprep.errors import BertprepError, UsageError
from tests.trainer import small_runs
from tests.trainer.small_runs import BATCH, SEED, free_ports, make_batch
from trainer import engines
from trainer.engines import check_engine, open_engine
from trainer.metrics import StepResult
from trainer.schedule import Schedule
from trainer.settings import EngineSettings, OptimizerSettings
from trainer.weights import initial_values

pytestmark = pytest.mark.jax
STEPS = 6
MODEL = replace(small_runs.MODEL, num_hidden_layers=1)
SCHEDULE = Schedule(peak=0.01, steps=STEPS + 1, warmup_steps=3)


def make_engine(devices: int = 1, **settings: Any) -> Any:
    """An engine at its first step; of the same settings the same one again, since each compiles its steps."""
    engine = make_engine_once(devices, **settings)
    engine.restart()
    engine.restore(initial_values(MODEL, SEED))
    return engine


@cache
def make_engine_once(devices: int, *, dropout: bool = False, **settings: Any) -> Any:
    engine = open_engine(EngineSettings(engine="jax", devices=devices, **settings))
    engine.build(MODEL if dropout else MODEL.without_dropout(), OptimizerSettings(name="lamb"), seed=SEED)
    return engine


def step(engine: Any, number: int, accumulation: int = 1) -> StepResult:
    rate = SCHEDULE.learning_rate(number + 1)
    result: StepResult = engine.train(
        make_batch(number), step=number, learning_rate=rate, accumulation=accumulation, stop=False
    )()
    return result


def test_a_run_is_the_same_however_it_is_cut() -> None:
    """With LAMB, whose norms are of moments that are cut over the devices, and with activations that are computed again."""
    cuts = {"whole": (make_engine(), 1), "accumulated": (make_engine(), 4)}
    cuts["4 devices"] = (make_engine(4, checkpoint_activations=True), 2)
    runs = {}
    for name, (engine, accumulation) in cuts.items():
        engine.restart()
        engine.restore(initial_values(MODEL, SEED))
        runs[name] = [step(engine, number, accumulation) for number in range(STEPS)]
        assert engine.state()["updates"] == STEPS
    whole = runs.pop("whole")
    assert whole[-1].sums.loss != pytest.approx(whole[0].sums.loss, abs=0.01)  # something is learnt
    for name, cut in runs.items():
        for one, of_whole in zip(cut, whole, strict=True):
            assert one.sums.loss == pytest.approx(of_whole.sums.loss, abs=1e-5), name
            assert one.gradient_norm == pytest.approx(of_whole.gradient_norm, rel=1e-4), name


def test_moments_are_cut_over_the_devices_and_variables_are_not() -> None:
    phase = make_engine(4, checkpoint_activations=True)._phase
    name = "bert/encoder/layer_0/intermediate/dense/kernel"
    assert [shard.data.shape for shard in phase.slots[name].v.addressable_shards] == [(8, 64)] * 4
    assert phase.variables[name].is_fully_replicated


def test_no_step_scatters() -> None:
    """Nor draws bits by an operation that writes them out: what a scatter costs on a GPU is told in fused_ops.py."""
    engine = make_engine(4, dropout=True, checkpoint_activations=True)
    lowered = engine.lower(make_batch(0), 2).as_text()
    assert lowered.count("stablehlo.dot_general") > 20
    assert not {"stablehlo.scatter", "stablehlo.rng_bit_generator"} & set(re.findall(r"stablehlo\.\w+", lowered))


def test_dropout_is_that_of_a_part_wherever_and_how_often_it_is_computed() -> None:
    one, four = make_engine(dropout=True), make_engine(4, dropout=True, checkpoint_activations=True)
    losses = [[step(one, number, 4).sums.loss, step(four, number).sums.loss] for number in (0, 3)]
    np.testing.assert_allclose(*zip(*losses, strict=True), rtol=0, atol=1e-5)
    assert losses[0][0] != pytest.approx(step(make_engine(), 0).sums.loss, abs=1e-4)


def test_an_overflow_skips_the_step_on_every_device() -> None:
    engine = make_engine(4, amp="fp16")
    exact = step(make_engine(), 0).sums.loss
    assert step(engine, 0, 2).sums.loss == pytest.approx(exact, abs=0.01)
    engine.restore({"loss_scale": np.float32(2.0**100)})
    before = engine.state()
    skipped = step(engine, 1, 2)
    assert (skipped.is_finite, skipped.loss_scale) == (False, 2.0**100)
    for name, value in engine.state().items():
        expected = {"loss_scale": 2.0**99, "good_steps": 0}.get(name, before[name])
        np.testing.assert_array_equal(value, expected, err_msg=name)
    engine.restore({"loss_scale": np.float32(2.0**15)})
    assert step(engine, 2, 2).is_finite
    assert engine.state()["updates"] == 2


def test_a_state_that_is_taken_over_goes_on_to_the_bit() -> None:
    """Nor does a step write into what was given to it, or was taken out: JAX shares memory with NumPy where it can."""
    engine = make_engine(dropout=True)
    step(engine, 0, 4)
    kept = engine.state()
    copies = {name: value.copy() for name, value in kept.items()}
    results, end = [step(engine, number, 4) for number in (1, 2)], engine.state()
    engine.restart()
    engine.restore(kept)
    assert [step(engine, number, 4) for number in (1, 2)] == results
    for name, value in engine.state().items():
        np.testing.assert_array_equal(value, end[name], err_msg=name)
        np.testing.assert_array_equal(kept[name], copies[name], err_msg=name)


def test_rows_of_weight_0_count_for_nothing_in_an_evaluation() -> None:
    batch = make_batch(0)
    weights = np.arange(BATCH) < BATCH - 4
    batch.masked_lm_weights[~weights] = 0
    batch.input_mask[~weights] = 0
    found = make_engine(4, dropout=True).evaluate(batch, weights.astype(np.float32))
    assert found.sequences == BATCH - 4
    assert found.masked_lm_weight_sum == batch.masked_lm_weights.sum()
    batch.input_ids[~weights] = 1
    batch.next_sentence_labels[~weights] ^= 1
    np.testing.assert_allclose(make_engine().evaluate(batch, weights.astype(np.float32)), found, rtol=1e-6)


def test_what_any_rank_says_comes_back() -> None:
    engine = make_engine(4, checkpoint_activations=True)
    assert engine.train(make_batch(0), step=0, learning_rate=0.0, accumulation=2, stop=True)().is_stop_wanted
    engine.restore({"bert/pooler/dense/bias": np.full(MODEL.hidden_size, np.nan, np.float32)})
    assert not step(engine, 0, 2).is_finite
    assert engine.gather(2**31 + 5) == [2**31 + 5]


def test_masks_with_gaps_are_refused_where_only_lengths_are_given() -> None:
    engine, batch = make_engine(), make_batch(0)
    batch.input_mask[3, 1] = 0
    engine._model = engine._model._replace(fused_attention=True)
    with pytest.raises(BertprepError, match="row 3 of a batch: its input_mask has a 1 after a 0"):
        engine.evaluate(batch, np.ones(BATCH, np.float32))
    engine._model = engine._model._replace(fused_attention=False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stages": 2}, "--stages 2: only OneFlow's engine has pipelines"),
        ({"eager": True}, "--eager: JAX compiles every step"),
        ({"xla": "off"}, "--xla off: JAX compiles every step with XLA"),
    ],
)
def test_what_jax_has_not_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_engine(EngineSettings(engine="jax", **settings), MODEL)


def test_more_devices_than_there_are() -> None:
    with pytest.raises(UsageError, match="--devices 64: this host has 4 devices"):
        open_engine(EngineSettings(engine="jax", devices=64))


def test_a_process_under_slurm_has_all_devices_of_its_host() -> None:
    """As of docs/multi_gpu.md's command, of one task per host: JAX on its own would take it for one task per GPU."""
    code = f"""
from trainer.engines import open_engine
from trainer.settings import EngineSettings
open_engine(EngineSettings(engine="jax", hosts=("127.0.0.1:{free_ports(1)[0]}",), host_rank=0))
import jax
print(jax.config.values["jax_cuda_visible_devices"])
"""
    task = {"JOB_ID": "5", "STEP_NODELIST": "node0", "NTASKS": "2", "PROCID": "0", "LOCALID": "0", "STEP_NUM_NODES": "2"}
    environment = {**os.environ, **{f"SLURM_{name}": value for name, value in task.items()}}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (0, "all\n"), done.stderr


def test_what_does_not_fit_is_a_line() -> None:
    import jax.numpy as jnp

    with pytest.raises(BertprepError, match="CPU: out of memory; give a smaller --batch-size"), make_engine()._explained():
        jnp.zeros(1 << 45)


@pytest.mark.parametrize(
    ("worker", "index", "message"),
    [("a:1", 1, "TF_CONFIG: .* there are 1 workers, counted from 0"), ("a", 0, "TF_CONFIG: 'a' is not HOST:PORT")],
)
def test_a_tf_config_that_names_no_process(worker: str, index: int, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": [worker]}, "task": {"type": "worker", "index": index}}))
    with pytest.raises(UsageError, match=message):
        open_engine(EngineSettings(engine="jax"))


def test_a_cpu_beside_an_accelerator_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(engines, "_may_have_gpus", lambda: True)
    open_engine(EngineSettings(engine="jax"))
    assert "JAX takes the CPU, though there may be a GPU or TPU; " in capsys.readouterr().err


def test_the_engine_trains_where_only_a_framework_is_installed() -> None:
    """As on a machine for benchmarks: neither kernels nor what reads and shows records can be imported."""
    code = """
import sys
for name in "numba llvmlite rich pyarrow obstore huggingface_hub httpx2 tokenizers yaml scipy tensorflow".split():
    sys.modules[name] = None
from tests.trainer.engines.jax import test_engine as here
print(here.make_engine().evaluate(here.make_batch(0), here.np.ones(here.BATCH, here.np.float32)).loss)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 0, done.stderr
    expected = make_engine().evaluate(make_batch(0), np.ones(BATCH, np.float32)).loss
    assert float(done.stdout) == pytest.approx(expected, abs=1e-6)
