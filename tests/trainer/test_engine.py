"""Every engine is as `trainer.engines.Engine` describes it: equal steps however a batch is split, exact resume, same losses."""

import json
from dataclasses import replace
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertprep.errors import BertprepError, UsageError
from bertprep.weights.safetensors import read_safetensors, write_safetensors
from tests.golden import GOLDEN
from tests.trainer import small_runs
from tests.trainer.small_runs import (
    BATCH,
    SEQ,
    TASKS,
    build,
    loss_of,
    make_batch,
    make_task_batch,
    on_each_engine,
    on_engines,
    on_engines_with,
    train_step,
)
from trainer.batches import features
from trainer.engines import Engine, State, StepResult
from trainer.model_config import ModelConfig
from trainer.optimizers import GROWTH_STEPS, Schedule
from trainer.settings import ENGINES, EngineSettings
from trainer.tasks.pretraining import Pretraining

MODEL = replace(small_runs.MODEL, num_hidden_layers=1)  # TensorFlow compiles a dozen graphs of it
LOSSES, RESUMED = GOLDEN / "losses_tasks.json", GOLDEN / "checkpoints.json"
LOSS_STEPS = 20
SCHEDULE = Schedule(peak=0.003, steps=LOSS_STEPS + 1, warmup_steps=3)
TOKENS = 97
TINY = replace(
    small_runs.MODEL.without_dropout(), vocab_size=TOKENS, hidden_size=16, intermediate_size=32, max_position_embeddings=SEQ
)  # fmt: skip
with_half_precision = on_engines("tensorflow", "torch")


@cache
def build_once(engine: str, model: ModelConfig = MODEL, **settings: Any) -> tuple[Engine, State]:
    built = build(engine, model, optimizer="lamb", **settings)
    return built, built.state()


def first_step(engine: str, *, dropout: bool = False, model: ModelConfig = MODEL, **settings: Any) -> Engine:
    """An engine with LAMB at its first step; for equal settings the same one, since compiling takes seconds."""
    built, state = build_once(engine, model if dropout else model.without_dropout(), **settings)
    built.restore(state)
    return built


def steps_of(engine: Engine, accumulation: int, steps: range = range(4)) -> list[StepResult]:
    return [train_step(engine, make_batch(number), number, accumulation=accumulation) for number in steps]


def half_steps(engine: str, amp: str) -> tuple[Engine, int]:
    """An engine at its first step, of fp16 on two devices where it has them, and the micro-batches on each that make four."""
    devices = 2 if amp == "fp16" and engine != "torch" else 1
    return first_step(engine, amp=amp, devices=devices), 4 // devices


def assert_equal_runs(one: list[StepResult], other: list[StepResult]) -> None:
    np.testing.assert_allclose([loss_of(each) for each in one], [loss_of(each) for each in other], rtol=0, atol=1e-5)
    np.testing.assert_allclose([each.gradient_norm for each in one], [each.gradient_norm for each in other], rtol=1e-4)
    assert abs(loss_of(one[-1]) - loss_of(one[0])) > 0.001


def assert_equal_states(found: State, expected: State, changed: dict[str, Any] | None = None) -> None:
    for name, value in found.items():
        np.testing.assert_array_equal(value, (changed or {}).get(name, expected[name]), err_msg=name)


@on_each_engine
def test_micro_batches_add_up_to_their_batch(engine: str) -> None:
    """They have different numbers of masked tokens: a mean of their means would be another loss."""
    complete = steps_of(first_step(engine), 1)
    built = first_step(engine)
    assert_equal_runs(complete, steps_of(built, 4))
    assert built.state()["updates"] == 4


@on_engines("tensorflow", "torch")
def test_several_devices_compute_what_one_does(engine: str) -> None:
    """A micro-batch has the same dropout masks on whichever device it is; rows of evaluations keep their order."""
    one, two = first_step(engine, dropout=True), first_step(engine, dropout=True, devices=2)
    assert (one.devices, two.devices, two.device_name) == (1, 2, "2 x CPU")
    results = steps_of(one, 4)
    assert_equal_runs(results, steps_of(two, 2))
    undropped = first_step(engine)
    assert loss_of(results[0]) != pytest.approx(loss_of(steps_of(undropped, 4, range(1))[0]), abs=1e-4)
    undropped, two = first_step(engine), first_step(engine, dropout=True, devices=2)
    np.testing.assert_allclose(two.evaluate(weighted(range(5))), undropped.evaluate(weighted(range(5))), rtol=1e-6)
    unlabelled = {name: rows for name, rows in features(make_batch(0)).items() if name not in ("masked_lm_ids", "row_weights")}
    found = two.predict(unlabelled)
    for name, rows in undropped.predict(unlabelled).items():
        np.testing.assert_allclose(found[name], rows, rtol=0, atol=1e-5)


@on_each_engine
def test_a_restored_state_continues_bit_exact(engine: str) -> None:
    built = first_step(engine, dropout=True)
    steps_of(built, 4, range(1))
    kept = built.state()
    copies = {name: value.copy() for name, value in kept.items()}
    results, last = steps_of(built, 4, range(1, 3)), built.state()
    built.restore(kept)
    assert str(steps_of(built, 4, range(1, 3))) == str(results)
    assert_equal_states(built.state(), last)
    assert_equal_states(kept, copies)  # an engine may share memory with NumPy
    changed = {(name := "bert/pooler/dense/bias"): copies[name] + 1}
    built.restore(changed)
    assert_equal_states(built.state(), last, changed)


@pytest.mark.parametrize(("amp", "tolerance"), [("fp16", 0.01), ("bf16", 0.1)])
@with_half_precision
def test_half_precision_trains_alike(engine: str, amp: str, tolerance: float) -> None:
    exact, (half, accumulation) = first_step(engine), half_steps(engine, amp)
    assert half.precision == amp
    for expected, found in zip(steps_of(exact, 4), steps_of(half, accumulation), strict=True):
        assert loss_of(found) == pytest.approx(loss_of(expected), abs=tolerance)
    assert all(value.dtype == np.float32 for value in half.state().values())


@with_half_precision
def test_gradients_are_clipped_without_the_loss_scale(engine: str) -> None:
    """The first moment is a tenth of them, at a norm of at most 1; a model of zeros has a norm below that."""
    for is_clipped in (True, False):
        built, accumulation = half_steps(engine, "fp16")
        if not is_clipped:
            built.restore({name: np.zeros_like(value) for name, value in built.state().items() if value.ndim})
        [first] = steps_of(built, accumulation, range(1))
        assert (first.gradient_norm > 1) == is_clipped
        moments = np.concatenate([value.ravel() for name, value in built.state().items() if name.endswith("/adam_m")])
        assert np.linalg.norm(moments) == pytest.approx(0.1 * min(first.gradient_norm, 1.0), rel=1e-3)


@with_half_precision
def test_an_overflow_halves_the_loss_scale_and_skips_the_update(engine: str) -> None:
    built, accumulation = half_steps(engine, "fp16")
    [first] = steps_of(built, accumulation, range(1))
    assert first.loss_scale == 2.0**15
    built.restore({"loss_scale": np.float32(2.0**100)})
    before, [skipped] = built.state(), steps_of(built, accumulation, range(1, 2))
    assert (skipped.is_finite, skipped.loss_scale) == (False, 2.0**100)
    assert_equal_states(built.state(), before, {"loss_scale": 2.0**99, "good_steps": 0})
    built.restore({"loss_scale": np.float32(2.0**15), "good_steps": np.float32(GROWTH_STEPS - 1)})
    assert steps_of(built, accumulation, range(2, 3))[0].is_finite
    assert [float(built.state()[name]) for name in ("updates", "loss_scale", "good_steps")] == [2, 2.0**16, 0]


@on_each_engine
def test_a_nan_and_a_stop_are_reported(engine: str) -> None:
    built, batch = first_step(engine), make_batch(0)
    good = train_step(built, batch, 0)
    assert (good.is_finite, good.is_stop_wanted) == (True, False)
    built.restore({"bert/pooler/dense/bias": np.full(MODEL.hidden_size, np.nan, np.float32)})
    bad = train_step(built, batch, 0, stop=True)
    assert (bad.is_finite, bad.is_stop_wanted, bad.loss_scale) == (False, True, 1.0)
    assert built.gather(2**31 - 5) == [2**31 - 5]


def weighted(rows: Any, *, other: bool = False) -> dict[str, Any]:
    """A batch in which these rows alone count, the others with other tokens and labels."""
    batch, counts = features(make_batch(0)), np.isin(np.arange(BATCH), rows)
    batch["row_weights"] = counts.astype(np.float32)
    batch["masked_lm_weights"] = batch["masked_lm_weights"] * counts[:, None]
    if other:
        batch["input_ids"] = np.where(counts[:, None], batch["input_ids"], 1).astype(np.int32)
        batch["next_sentence_labels"] = batch["next_sentence_labels"] ^ ~counts
    return batch


@on_each_engine
def test_rows_of_weight_0_count_for_nothing(engine: str) -> None:
    """Nor does dropout in evaluations, whose sums are those of their parts; a step without any row makes no update."""
    built = first_step(engine, dropout=True)
    complete, first, second = (built.evaluate(weighted(rows)) for rows in (range(BATCH), range(3), range(3, BATCH)))
    assert (complete.shape, complete.dtype, first[1, 2]) == ((2, 3), np.float64, 3)
    np.testing.assert_allclose(first + second, complete, rtol=1e-6)
    np.testing.assert_allclose(built.evaluate(weighted(range(3), other=True)), first, rtol=1e-6)
    one = train_step(built, weighted(range(5)), 0, accumulation=4)
    first_step(engine, dropout=True)
    other = train_step(built, weighted(range(5), other=True), 0, accumulation=4)
    np.testing.assert_allclose(other.sums, one.sums, rtol=1e-6)
    assert other.gradient_norm == pytest.approx(one.gradient_norm, rel=1e-6)
    before = built.state()
    none = train_step(built, weighted(()), 1, accumulation=4)
    assert (none.sums.any(), none.gradient_norm, none.is_finite) == (False, 0, True)
    for name, value in built.state().items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)


@pytest.mark.torch
def test_pytorchs_adam_skips_overflows_and_batches_without_rows() -> None:
    exact, half = (build("torch", MODEL.without_dropout(), amp=amp) for amp in ("off", "fp16"))
    for built in (exact, half):
        before = built.state()
        train_step(built, weighted(()), 0)
        assert_equal_states(built.state(), before, {"good_steps": float(built is half)})
        assert train_step(built, make_batch(0), 0).is_finite
        assert built.state()["updates"] == 1
    half.restore({"loss_scale": np.float32(2.0**100)})
    before = half.state()
    assert not train_step(half, make_batch(1), 1).is_finite
    assert_equal_states(half.state(), before, {"loss_scale": 2.0**99, "good_steps": 0})


def losses_and_outputs(engine_name: str, task_name: str) -> dict[str, Any]:
    """Outputs of the seed's weights, and the losses of 20 steps from there without dropout.

    Outputs after them would not do: those of SQuAD may all be shifted by a number that no loss depends on.
    """
    task = TASKS[task_name]
    engine = build(engine_name, small_runs.MODEL.without_dropout(), task=task)
    outputs, losses = {}, []
    if not isinstance(task, Pretraining):
        outputs = engine.predict(features(make_task_batch(task, LOSS_STEPS, sequences=4)))
    for number in range(LOSS_STEPS):
        rate = SCHEDULE.learning_rate(number + 1)
        losses.append(
            loss_of(train_step(engine, make_task_batch(task, number), number, learning_rate=rate, accumulation=2), task)
        )
    return {"losses": losses, "outputs": {name: rows.tolist() for name, rows in outputs.items()}}


@pytest.mark.tensorflow
def test_several_hosts_of_several_cpus_are_refused_by_tensorflow() -> None:
    from trainer.engines.tensorflow import _make_logical_cpus

    with pytest.raises(UsageError, match=r"^--devices 2: several hosts without GPUs can have one device each"):
        _make_logical_cpus(EngineSettings(engine="tensorflow", devices=2), 2)


# PyTorch, which compiles nothing, has all tasks, and each of them has at least one other engine.
@on_engines_with(
    "task",
    {
        "torch": TASKS,
        "tensorflow": ["pretraining", "unpaired", "squad", "classification"],
        "oneflow": ["pretraining", "regression"],
    },
)
def test_losses_and_outputs_are_tensorflows(engine: str, task: str) -> None:
    expected, found = json.loads(LOSSES.read_bytes())[task], losses_and_outputs(engine, task)
    assert np.ptp(expected["losses"]) > 0.05
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=0, atol=1e-5)
    assert found["outputs"].keys() == expected["outputs"].keys()
    for name, rows in found["outputs"].items():
        np.testing.assert_allclose(rows, expected["outputs"][name], rtol=0, atol=1e-5)


def checkpoint_of(engine: str) -> Path:
    """A checkpoint after three steps."""
    return GOLDEN / f"checkpoint_{engine}.safetensors"


def train_tiny(engine: Engine, first: int) -> list[float]:
    """The losses of three steps on the few tokens of the tiny model."""
    return [loss_of(train_step(engine, tiny_batch(number), number)) for number in range(first, first + 3)]


def tiny_batch(step: int) -> dict[str, Any]:
    batch = features(make_batch(step))
    return {name: array % TOKENS if name.endswith("_ids") else array for name, array in batch.items()}


def resume_tiny(engine: Engine) -> dict[str, Any]:
    """An engine's sums of a batch after the checkpoint, and the losses of further steps."""
    return {"evaluation": engine.evaluate(tiny_batch(99)).ravel().tolist(), "losses": train_tiny(engine, 3)}


@pytest.mark.parametrize("written_by", ENGINES)
@on_each_engine
def test_a_checkpoint_of_any_engine_is_resumed_by_this_one(engine: str, written_by: str) -> None:
    """Each has the same names and shapes; the sums are the same, and the steps from there on."""
    built, state = first_step(engine, model=TINY), read_safetensors(checkpoint_of(written_by))
    variables = Pretraining().variable_shapes(TINY)
    moments = {f"{name}/adam_{slot}": shape for name, shape in variables.items() for slot in "mv"}
    counts: dict[str, Any] = {"updates": (), "loss_scale": (), "good_steps": ()}
    assert {name: value.shape for name, value in state.items()} == {**variables, **moments, **counts}
    assert state["updates"] == 3
    built.restore(state)
    assert_equal_states(built.state(), state)
    expected, found = json.loads(RESUMED.read_bytes())[written_by], resume_tiny(built)
    np.testing.assert_allclose(found["evaluation"], expected["evaluation"], rtol=1e-5)
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=0, atol=1e-5)


@pytest.mark.tensorflow
def test_xla_computes_the_same() -> None:
    plain, compiled = first_step("tensorflow"), first_step("tensorflow", xla="on")
    assert_equal_runs(steps_of(compiled, 4, range(3)), steps_of(plain, 4, range(3)))
    batch = features(make_batch(9))
    np.testing.assert_allclose(compiled.evaluate(batch), plain.evaluate(batch), rtol=1e-4)
    for name, rows in compiled.predict(batch).items():
        np.testing.assert_allclose(rows, plain.predict(batch)[name], rtol=0, atol=1e-4)


@pytest.mark.tensorflow
def test_a_step_has_the_same_bits_each_time() -> None:
    """In a size at which TensorFlow's threads have something to share."""
    engine = build("tensorflow", ModelConfig.preset("tiny", vocab_size=MODEL.vocab_size))
    first, seen = engine.state(), set()
    batch = make_batch(0, sequences=32, seq=128, pred=20)
    for _ in range(8):
        engine.restore(first)
        norm = train_step(engine, batch, 0).gradient_norm
        moments = [value.tobytes() for name, value in sorted(engine.state().items()) if name.endswith("adam_m")]
        seen.add((norm, sha256(b"".join(moments)).hexdigest()))
    assert len(seen) == 1


@pytest.mark.tensorflow
def test_all_devices_hold_the_same_bits() -> None:
    engine: Any = first_step("tensorflow", dropout=True, devices=2)
    steps_of(engine, 2, range(2))
    one, other = ({name: variable.numpy() for name, variable in replica.items()} for replica in engine._replicas)
    assert_equal_states(one, other)


@on_engines("tensorflow", "torch")
def test_what_does_not_fit_is_a_line(engine: str) -> None:
    built: Any = first_step(engine)
    framework = import_module(engine)
    with pytest.raises(BertprepError, match="CPU: out of memory; give a smaller --batch-size"), built.errors_in_a_line():
        framework.zeros(1 << 45)


def write_golden() -> None:
    """Write the losses of all tasks on TensorFlow; for tests/golden/make_loss_golden.py."""
    found = {name: losses_and_outputs("tensorflow", name) for name in TASKS}
    LOSSES.write_text(json.dumps({"engine": "tensorflow", **found}) + "\n")


def write_golden_checkpoint(engine: str) -> None:
    """Write an engine's checkpoint, and what follows from it; for tests/golden/make_loss_golden.py."""
    built = first_step(engine, model=TINY)
    train_tiny(built, 0)
    write_safetensors(checkpoint_of(engine), dict(built.state()), {})
    results = json.loads(RESUMED.read_bytes()) if RESUMED.exists() else {}
    results[engine] = {**resume_tiny(built), "versions": dict(built.versions)}
    RESUMED.write_text(json.dumps(results, indent=1) + "\n")
