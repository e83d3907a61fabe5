"""A global batch gives the same step however it is cut over devices and micro-batches, in every precision."""

from collections import Counter
from dataclasses import replace
from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from bertprep.errors import UsageError
from tests.trainer import small_runs
from tests.trainer.small_runs import BATCH, SEED, make_batch, open_devices_once
from trainer import engines
from trainer.batches import features
from trainer.engines import LossScale, open_engine
from trainer.engines.execution import choose_execution, this_cpu
from trainer.metrics import StepResult
from trainer.model_config import ModelConfig
from trainer.schedule import Schedule
from trainer.settings import EngineSettings, OptimizerSettings
from trainer.weights import initial_values

pytestmark = pytest.mark.tensorflow
STEPS = 10
MODEL = replace(small_runs.MODEL, num_hidden_layers=1)  # there are some thirty graphs of it below
CUTS = {"1 device": (1, 1), "4 devices": (4, 1), "accumulation by 4": (1, 4), "4 devices, accumulation by 2": (4, 2)}
# Tracing a step for four devices takes some 15 s, and the last cut covers what the second one does.
FEWER_CUTS = {name: cut for name, cut in CUTS.items() if name != "4 devices"}
SCHEDULE = Schedule(peak=0.01, steps=STEPS + 1, warmup_steps=3)


def make_engine(devices: int, **settings: Any) -> Any:
    """An engine at its first step; of the same settings the same one again, since to make one takes seconds."""
    engine = make_engine_once(devices, **settings)
    engine.restart()
    engine.restore(initial_values(MODEL, SEED))
    return engine


@cache
def make_engine_once(devices: int, *, optimizer: str = "adam", dropout: bool = False, **settings: Any) -> Any:
    from trainer.engines.tensorflow.engine import TensorFlowEngine

    asked = EngineSettings(devices=devices, **settings)
    engine: Any = TensorFlowEngine(asked, open_devices_once(devices))
    engine.execution = choose_execution(asked, [this_cpu()])
    engine.build(MODEL if dropout else MODEL.without_dropout(), OptimizerSettings(name=optimizer), seed=SEED)
    return engine


def step(engine: Any, number: int, accumulation: int) -> StepResult:
    learning_rate = SCHEDULE.learning_rate(number + 1)
    result: StepResult = engine.train(
        make_batch(number), step=number, learning_rate=learning_rate, accumulation=accumulation, stop=False
    )()
    return result


def assert_replicas_equal(engine: Any) -> None:
    """All devices hold the same bits."""
    for replica in engine._replicas[1:]:
        for name, variable in replica.all_variables.items():
            np.testing.assert_array_equal(variable.numpy(), engine._replicas[0].all_variables[name].numpy(), err_msg=name)


@pytest.mark.parametrize(("optimizer", "cuts"), [("adam", CUTS), ("lamb", FEWER_CUTS)], ids=["adam", "lamb"])
def test_a_run_is_the_same_however_it_is_cut(optimizer: str, cuts: dict[str, tuple[int, int]]) -> None:
    losses, norms, states = {}, {}, {}
    for name, (devices, accumulation) in cuts.items():
        engine = make_engine(devices, optimizer=optimizer)
        results = [step(engine, number, accumulation) for number in range(STEPS)]
        losses[name] = [result.sums.loss for result in results]
        norms[name] = [result.gradient_norm for result in results]
        states[name] = engine.state()
        assert_replicas_equal(engine)
    whole = losses.pop("1 device")
    assert whole[-1] != pytest.approx(whole[0], abs=0.01)  # something is learnt
    for name, cut in losses.items():
        np.testing.assert_allclose(cut, whole, rtol=0, atol=1e-5, err_msg=name)
        np.testing.assert_allclose(norms[name], norms["1 device"], rtol=1e-4, err_msg=name)
        assert states[name]["updates"] == STEPS


def test_dropout_is_that_of_a_part_wherever_it_is_computed() -> None:
    losses = {}
    for name in ("1 device", "4 devices", "accumulation by 4"):
        engine = make_engine(CUTS[name][0], dropout=True)
        losses[name] = [step(engine, number, CUTS[name][1]).sums.loss for number in range(3)]
    np.testing.assert_allclose(losses["accumulation by 4"], losses["4 devices"], rtol=0, atol=1e-5)
    assert losses["1 device"][0] != pytest.approx(losses["4 devices"][0], abs=1e-4)


@pytest.mark.parametrize("cut", FEWER_CUTS.values(), ids=FEWER_CUTS)
def test_an_overflow_skips_the_step_on_every_device(cut: tuple[int, int]) -> None:
    engine = make_engine(cut[0], amp="fp16")
    step(engine, 0, cut[1])
    engine.restore({"loss_scale": np.float32(2.0**100)})
    before = engine.state()
    skipped = step(engine, 1, cut[1])
    assert (skipped.is_finite, skipped.loss_scale) == (False, 2.0**100)
    after = engine.state()
    for name, value in before.items():
        expected = {"loss_scale": 2.0**99, "good_steps": 0}.get(name, value)
        np.testing.assert_array_equal(after[name], expected, err_msg=name)
    engine.restore({"loss_scale": np.float32(2.0**15)})
    assert step(engine, 2, cut[1]).is_finite
    assert engine.state()["updates"] == 2
    assert_replicas_equal(engine)


def test_the_loss_scale_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    monkeypatch.setattr(engines, "GROWTH_STEPS", 3)
    now, seen = LossScale(tf.constant(8.0), tf.constant(0.0)), []
    for is_finite in [True, True, True, True, False, False, False, False, False, True, True, True]:
        now = now.after(tf.constant(is_finite), tf.where)
        seen.append((float(now.scale), int(now.good_steps)))
    assert seen == [
        (8, 1), (8, 2), (16, 0), (16, 1),  # three in a row double it
        (8, 0), (4, 0), (2, 0), (1, 0), (1, 0),  # each overflow halves it, down to 1
        (1, 1), (1, 2), (2, 0),
    ]  # fmt: skip


def test_the_scale_grows_after_a_thousand_steps_as_nvidias() -> None:
    assert engines.GROWTH_STEPS == 1000


@pytest.mark.parametrize(("amp", "tolerance"), [("fp16", 0.01), ("bf16", 0.1)])
def test_half_the_precision_trains_alike(amp: str, tolerance: float) -> None:
    exact, half = make_engine(1), make_engine(1, amp=amp)
    for number in range(STEPS):
        losses = [step(engine, number, 1).sums.loss for engine in (exact, half)]
        assert losses[1] == pytest.approx(losses[0], abs=tolerance)
    assert all(value.dtype == np.float32 for value in half.state().values())


def test_xla_computes_the_same() -> None:
    plain, compiled = make_engine(1), make_engine(1, xla="on")
    for number in range(3):
        losses = [step(engine, number, 2).sums.loss for engine in (plain, compiled)]
        assert losses[1] == pytest.approx(losses[0], abs=1e-5)


def test_what_xla_does_not_compile_is_found_out() -> None:
    import tensorflow as tf

    from trainer.engines.tensorflow.devices import find_xla_fault

    open_devices_once(1)
    assert find_xla_fault("CPU:0") == ""
    assert "unsupported operations" in find_xla_fault("CPU:0", tf.strings.as_string)


@pytest.mark.parametrize(
    ("settings", "computing", "assigned"),
    [({}, 15, 3), ({"optimizer": "lamb"}, 27, 3), ({"amp": "fp16"}, 18, 3)],
    ids=["adam", "lamb", "fp16"],
)
def test_an_update_has_no_more_operations_than_it_needs(settings: dict[str, str], computing: int, assigned: int) -> None:
    """Each is a kernel to be launched on a GPU, for each of some 200 variables, where the step is not compiled."""
    engine = make_engine(1, **settings)
    [replica], variables = engine._replicas, len(engine._replicas[0].variables)
    gradients = {name: tf_zeros(weight.shape) for name, weight in replica.prepare().items()}
    traced = tf_function(replica.update).get_concrete_function(gradients, tf_zeros(()), tf_zeros(()))
    counts = Counter(operation.type for operation in traced.graph.get_operations())
    once = 20 + 2 * MODEL.num_hidden_layers  # the norm, the loss scale; cutting query, key and value apart
    passed_on = {"Const", "Placeholder", "ReadVariableOp", "Identity", "NoOp", "AssignVariableOp", "AssignAddVariableOp"}
    assert sum(count for kind, count in counts.items() if kind not in passed_on) <= computing * variables + once
    assert counts["AssignVariableOp"] <= assigned * variables + 3
    assert counts["IsFinite"] <= 2


def tf_function(function: Any) -> Any:
    import tensorflow as tf

    return tf.function(function, autograph=False)


def tf_zeros(shape: Any) -> Any:
    import tensorflow as tf

    return tf.zeros(shape)


def test_accumulation_prepares_weights_once() -> None:
    """Neither are variables read nor query, key and value joined in the loop over micro-batches."""
    engine = make_engine(1, amp="bf16")
    batch = engine._spread({**features(make_batch(0)), "dropout_key": np.zeros((2, 2), np.int32)}, 2)
    graph = engine._train.get_concrete_function(batch, tf_zeros(()), tf_zeros(())).graph.as_graph_def()
    [loop] = [node for node in graph.node if node.op in ("While", "StatelessWhile")]
    functions = {function.signature.name: function for function in graph.library.function}
    in_loop, names = [], [loop.attr["body"].func.name]
    while names:
        function = functions[names.pop()]
        in_loop += list(function.node_def)
        names += [value.func.name for node in function.node_def for value in node.attr.values() if value.HasField("func")]
    assert "MatMul" in {node.op for node in in_loop}
    joined = [node.name for node in in_loop if node.op == "ConcatV2"]
    assert joined == []
    variables = [node.name for node in in_loop if node.op == "ReadVariableOp"]
    assert variables == []


def test_a_state_that_is_taken_over_goes_on_to_the_bit() -> None:
    first = make_engine(1, optimizer="lamb", dropout=True, amp="fp16")
    for number in range(2):
        step(first, number, 2)
    kept = first.state()
    results, end = [step(first, number, 2) for number in (2, 3)], first.state()
    second = make_engine(1, optimizer="lamb", dropout=True, amp="fp16")
    second.restore(kept)
    assert [step(second, number, 2) for number in (2, 3)] == results
    for name, value in second.state().items():
        np.testing.assert_array_equal(value, end[name], err_msg=name)


def test_a_step_has_the_same_bits_each_time() -> None:
    """In a size at which TensorFlow's threads have something to share out."""
    from trainer.engines.tensorflow.engine import TensorFlowEngine

    model = ModelConfig.preset("tiny", vocab_size=MODEL.vocab_size)
    engine: Any = TensorFlowEngine(EngineSettings(), open_devices_once(1))
    engine.build(model, OptimizerSettings(), seed=SEED)
    examples, seen = make_batch(0, sequences=32, seq=128, pred=20), set()
    for _ in range(30):
        engine.restart()
        norm = engine.train(examples, step=0, learning_rate=0.0, accumulation=1, stop=False)().gradient_norm
        moments = [value.tobytes() for name, value in sorted(engine.state().items()) if name.endswith("adam_m")]
        seen.add((norm, sha256(b"".join(moments)).hexdigest()))
    assert len(seen) == 1


def test_a_phase_begins_with_the_weights_alone() -> None:
    engine = make_engine(1, amp="fp16")
    step(engine, 0, 1)
    before = engine.state()
    engine.restart()
    after = engine.state()
    assert (after["updates"], after["loss_scale"], after["good_steps"]) == (0, 2.0**15, 0)
    for name, value in before.items():
        if "/" in name:
            np.testing.assert_array_equal(after[name], np.zeros_like(value) if "adam_" in name else value, err_msg=name)


def test_rows_of_weight_0_count_for_nothing_in_an_evaluation() -> None:
    engine = make_engine(4, dropout=True)
    batch = make_batch(0)
    weights = np.arange(BATCH) < BATCH - 3
    batch.masked_lm_weights[~weights] = 0
    found = engine.evaluate(batch, weights.astype(np.float32))
    assert found.sequences == BATCH - 3
    assert found.masked_lm_weight_sum == batch.masked_lm_weights.sum()
    alone = make_engine(1).evaluate(batch[: BATCH - 3], np.ones(BATCH - 3, np.float32))
    np.testing.assert_allclose(found, alone, rtol=1e-6)


def test_a_loss_that_is_no_number_shows() -> None:
    engine = make_engine(1)
    engine.restore({"bert/pooler/dense/bias": np.full(MODEL.hidden_size, np.nan, np.float32)})
    assert not step(engine, 0, 1).is_finite


def test_what_any_rank_says_of_stopping_comes_back() -> None:
    engine = make_engine(4)
    assert engine.train(make_batch(0), step=0, learning_rate=0.0, accumulation=1, stop=True)().is_stop_wanted
    assert engine.gather(2**31 + 5) == [2**31 + 5]


def test_a_cluster_that_is_not_of_workers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"chief": ["a:1"]}}')
    with pytest.raises(UsageError, match="TF_CONFIG: expected a cluster of workers"):
        open_engine(EngineSettings())
