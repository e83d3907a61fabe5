"""The heads of the tasks say what Hugging Face's say, on the same body, and learn as they do."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bertprep.records import ClassificationExamples, Examples, RegressionExamples, SquadEvalExamples, SquadExamples
from bertprep.tasks.glue import find_task, own_task
from bertprep.weights.hugging_face import hugging_face_name
from tests.golden import GOLDEN
from tests.trainer.golden_model import WEIGHTS, read_golden
from tests.trainer.small_runs import open_devices_once
from trainer.engines import Engine, open_engine
from trainer.settings import EngineSettings, OptimizerSettings
from trainer.tasks import Task
from trainer.tasks.classification import Classification
from trainer.tasks.squad import Squad
from trainer.weights import read_initial_weights

HEADS = json.loads((GOLDEN / "hugging_face_heads.json").read_bytes())
BODY = read_golden()
CONFIG, BATCH = BODY["config"], BODY["batch"]
TASKS: dict[str, Task] = {
    "squad": Squad("v1.1"),
    "classification": Classification(own_task("three", ("a", "b", "c"))),
    "regression": Classification(find_task("stsb")),
}
KINDS = list(TASKS)


def examples_of(kind: str, rows: Any = slice(None)) -> Examples:
    """The golden batch, or some of its rows, with the task's labels."""
    tokens = [BATCH[name][rows] for name in ("input_ids", "input_mask", "segment_ids")]
    labels = {name: np.array(values)[rows] for name, values in HEADS[kind]["labels"].items()}
    count = len(tokens[0])
    if kind == "squad":
        starts, ends = (labels[f"{which}_positions"].astype(np.int32) for which in ("start", "end"))
        return SquadExamples(np.arange(count, dtype=np.int32), *tokens, starts, ends, np.zeros(count, np.int32))
    if kind == "classification":
        return ClassificationExamples(*tokens, labels["labels"].astype(np.int32), np.ones(count, np.int32))
    return RegressionExamples(*tokens, labels["labels"].astype(np.float32), np.ones(count, np.int32))


def weights_of(kind: str) -> dict[str, Any]:
    """Hugging Face's weights by our names: the body of the pretraining golden, and the heads."""
    task = TASKS[kind]
    weights = dict(read_initial_weights(WEIGHTS, CONFIG, task))
    heads = {name: np.array(value, np.float32) for name, value in HEADS[kind]["heads"].items()}
    for name in task.variable_shapes(CONFIG):
        if hugging_face_name(name) in heads:
            weights[name] = heads[hugging_face_name(name)]
    assert list(weights) == list(task.variable_shapes(CONFIG))
    return weights


def build(kind: str, devices: int = 1, layers: int = CONFIG.num_hidden_layers) -> Engine:
    """An engine with the golden weights, or with those of its first layers."""
    from trainer.engines.tensorflow.engine import TensorFlowEngine

    engine: Any = TensorFlowEngine(EngineSettings(devices=devices), open_devices_once(devices))
    model = replace(CONFIG.without_dropout(), num_hidden_layers=layers)
    engine.build(model, OptimizerSettings(), seed=1, task=TASKS[kind])
    engine.restore({name: value for name, value in weights_of(kind).items() if name in TASKS[kind].variable_shapes(model)})
    opened: Engine = engine
    return opened


@pytest.mark.parametrize("kind", KINDS)
def test_the_variables_are_those_of_hugging_faces_class(kind: str) -> None:
    ours = {hugging_face_name(name): shape for name, shape in TASKS[kind].variable_shapes(CONFIG).items()}
    theirs = {name: tuple(shape) for name, shape in HEADS[kind]["shapes"].items()}
    kernels = {hugging_face_name(name) for name in TASKS[kind].variable_shapes(CONFIG) if name.endswith("kernel")}
    assert {name: shape[::-1] if name in kernels else shape for name, shape in ours.items()} == theirs


@pytest.mark.tensorflow
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_losses_of_20_steps_are_hugging_faces(kind: str) -> None:
    engine, golden = build(kind), HEADS[kind]
    outputs = engine.predict(examples_of(kind))
    assert outputs.keys() == golden["outputs"].keys()
    for name, value in golden["outputs"].items():
        np.testing.assert_allclose(outputs[name], value, rtol=0, atol=1e-5)
    found = engine.evaluate(examples_of(kind), np.ones(3, np.float32))
    assert found.loss == pytest.approx(golden["loss"], abs=2e-6)
    losses = [
        engine.train(examples_of(kind), step=step, learning_rate=rate, accumulation=1, stop=False)().sums.loss
        for step, rate in enumerate(HEADS["learning_rates"])
    ]
    np.testing.assert_allclose(losses, golden["losses"], rtol=2e-3, atol=2e-5)


@pytest.mark.tensorflow
@pytest.mark.parametrize("kind", KINDS)
def test_devices_and_micro_batches_are_one(kind: str) -> None:
    """Four devices of a row each, and four micro-batches, train as one of four; all rows come back in order.

    Four, as in other tests, whose strategy it is; and one layer, since each is traced for each device.
    """
    whole, cut, examples = build(kind, layers=1), build(kind, 4, layers=1), examples_of(kind, [0, 1, 2, 0])
    for name, rows in whole.predict(examples).items():
        np.testing.assert_allclose(cut.predict(examples)[name], rows, rtol=0, atol=1e-5)
    of = [
        [engine.train(examples, step=step, learning_rate=0.005, accumulation=parts, stop=False)() for step in range(4)]
        for engine, parts in ((whole, 1), (build(kind, layers=1), 4), (cut, 1))
    ]
    for results in of[1:]:
        assert [one.sums.loss for one in results] == pytest.approx([one.sums.loss for one in of[0]], rel=1e-4)
        assert [one.sums.metrics() for one in results[:1]] == [pytest.approx(of[0][0].sums.metrics(), rel=1e-4)]


@pytest.mark.tensorflow
def test_what_fills_up_a_batch_counts_for_nothing() -> None:
    engine, examples = build("classification"), examples_of("classification")
    examples.is_real_example[2] = 0  # type: ignore[attr-defined]
    found = engine.evaluate(examples, np.ones(3, np.float32))
    expected = engine.evaluate(examples_of("classification"), np.array([1, 1, 0], np.float32))
    assert found == expected
    assert found.sequences == 2


@pytest.mark.tensorflow
def test_windows_without_answers_are_predicted() -> None:
    engine, examples = build("squad"), examples_of("squad")
    unlabelled = SquadEvalExamples(*examples.arrays[:4])
    for name, rows in engine.predict(unlabelled).items():
        np.testing.assert_array_equal(rows, engine.predict(examples)[name])


@pytest.mark.tensorflow
def test_compiled_heads_say_the_same() -> None:
    compiled = open_engine(EngineSettings(engine="tensorflow", xla="on"))
    for kind in KINDS:
        compiled.build(CONFIG.without_dropout(), OptimizerSettings(), seed=1, task=TASKS[kind])
        compiled.restore(weights_of(kind))
        for name, value in HEADS[kind]["outputs"].items():
            np.testing.assert_allclose(compiled.predict(examples_of(kind))[name], value, rtol=0, atol=1e-5)
