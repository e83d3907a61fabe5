"""The model is Hugging Face's BERT with the operations of every framework, and each of these computes what NumPy does."""

import importlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bertprep.tasks.glue import find_task, own_task
from bertprep.weights.hugging_face import hugging_face_name
from tests.golden import GOLDEN
from tests.trainer.small_runs import WEIGHTS, build, loss_of, on_engines, on_engines_with, read_golden, train_step
from trainer.engines import dropout_keys, to_numpy
from trainer.model import Bert, Operations
from trainer.model_config import ModelConfig
from trainer.settings import ENGINES
from trainer.step import forward, loss_and_sums, sum_weights
from trainer.tasks.classification import Classification
from trainer.tasks.pretraining import Pretraining
from trainer.tasks.squad import Squad
from trainer.tasks.task import Task
from trainer.weights import read_weights

Array = NDArray[Any]
BODY, OF_TASKS = read_golden(), json.loads((GOLDEN / "hugging_face_heads.json").read_bytes())
CONFIG: ModelConfig = BODY["config"].without_dropout()
TASKS: dict[str, Task] = {
    "pretraining": Pretraining(),
    "squad": Squad("v1.1"),
    "classification": Classification(own_task("three", ("a", "b", "c"))),
    "regression": Classification(find_task("stsb")),
}
HEADS_OF_3 = replace(CONFIG, hidden_size=6, num_attention_heads=2)  # units
RNG = np.random.default_rng(5)
on_each_engine = on_engines(*ENGINES, "tensorflow-xla")
# XLA compiles the body and one head: every operation of the others is tested by itself.
of_each_task_on_each_engine = on_engines_with("kind", {**dict.fromkeys(ENGINES, TASKS), "tensorflow-xla": ["pretraining"]})


class NumPy(Operations):
    """The operations in float64 and in few words."""

    reshape, permute, tanh, maximum = map(staticmethod, (np.reshape, np.transpose, np.tanh, np.maximum))
    sum, argmax = staticmethod(np.sum), staticmethod(partial(np.argmax, axis=-1))

    def cast(self, x: Array, _: str) -> Array:
        return x.astype(float)

    def product(self, left: Array, right: Array) -> Array:
        return left @ right.swapaxes(-1, -2)

    def softmax(self, x: Array) -> Array:
        exponentials = np.exp(x - x.max(-1, keepdims=True))
        return exponentials / exponentials.sum(-1, keepdims=True)

    def look_up(self, table: Array, ids: Array) -> Array:
        return table[ids]

    look_up_small = look_up

    def gather_positions(self, x: Array, positions: Array) -> Array:
        by_sequence = x.reshape(len(positions), -1, x.shape[-1])
        return np.concatenate([rows[chosen] for rows, chosen in zip(by_sequence, positions, strict=True)])

    def gelu(self, x: Array) -> Array:
        return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))

    def layer_norm(self, x: Array, gamma: Array, beta: Array) -> Array:
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12) * gamma + beta

    def cross_entropy(self, labels: Array, logits: Array) -> Array:
        highest = logits.max(-1)
        return np.log(np.exp(logits - highest[:, None]).sum(-1)) + highest - logits[np.arange(len(labels)), labels]


class Fused(NumPy):
    """With fused attention, which takes the masks of packed rows too."""

    has_fused_attention = True

    def fused_attention(self, query: Array, key: Array, value: Array, masked_out: Array) -> Array:
        scores = np.einsum("nqhu,nkhu->nhqk", query, key) / math.sqrt(query.shape[-1])
        weights = self.softmax(scores + masked_out)
        return np.einsum("nhqk,nkhu->nqhu", weights, value)


@pytest.mark.parametrize("packed", [False, True])
def test_fused_attention_keeps_packed_sequences_apart(packed: bool) -> None:
    rng, sequences, seq = np.random.default_rng(1), 2, 6
    batch = {"input_mask": np.array([[1] * 6, [1] * 4 + [0] * 2])}
    if packed:
        batch = {
            "input_mask": np.ones((sequences, seq), int),
            "sequence_ids": np.array([[0, 0, 0, 1, 1, 2], [0, 1, 1, 1, 1, 1]]),
        }
    states = rng.normal(size=(3, sequences * seq, CONFIG.hidden_size))
    plain, fused = (Bert(ops, CONFIG, {}, batch).attend(*states) for ops in (NumPy(), Fused()))
    np.testing.assert_allclose(fused, plain, rtol=1e-6)


class Framework:
    """The operations of an engine, and functions of tensors run on arrays."""

    def __init__(self, name: str) -> None:
        self.name, _, compiled = name.partition("-")
        self.is_compiled = bool(compiled)
        self.engine = importlib.import_module(f"trainer.engines.{self.name}")
        self.module = importlib.import_module(self.name)
        of_dropout = {"powers": self.put(self.engine.powers_of_units())} if self.name == "oneflow" else {}
        self.ops = self.engine.Ops(**of_dropout)

    def put(self, array: Array, dtype: str = "") -> Any:
        tensor = (self.module.constant if self.name == "tensorflow" else self.module.tensor)(array)
        return self.cast(tensor, dtype) if dtype else tensor

    def cast(self, tensor: Any, dtype: str) -> Any:
        if self.name == "tensorflow":
            return self.module.cast(tensor, dtype)
        return tensor.to(getattr(self.module, dtype))

    def take(self, tensor: Any) -> Array:
        tensor = self.cast(tensor, "float32")
        return to_numpy(tensor)

    def run(
        self, function: Callable[..., Any], arrays: Sequence[Array], upstream: Any = 1.0, dtype: str = "float32"
    ) -> tuple[Array, list[Array], list[Array]]:
        """What a function returns, (value, others), and its arguments' gradients where that of the value is `upstream`."""
        tensors, above = [self.put(array, dtype) for array in arrays], self.put(np.asarray(upstream, np.float32), dtype)
        value, others, gradients = getattr(self, f"_{self.name}")(function, tensors, above)
        return self.take(value), [self.take(other) for other in others], [self.take(gradient) for gradient in gradients]

    def _tensorflow(self, function: Callable[..., Any], tensors: list[Any], upstream: Any) -> Any:
        def compute(*tensors: Any) -> Any:
            with self.module.GradientTape() as tape:
                tape.watch(tensors)
                value, others = function(*tensors)
            gradients = tape.gradient(value, tensors, output_gradients=upstream)
            return value, others, [self.module.convert_to_tensor(gradient) for gradient in gradients]

        return self.module.function(compute, autograph=False, jit_compile=self.is_compiled)(*tensors)

    def _oneflow(self, function: Callable[..., Any], tensors: list[Any], upstream: Any) -> Any:
        leaves = [tensor.requires_grad_() for tensor in tensors]
        value, others = function(*leaves)
        return value, others, self.module.autograd.grad(value, leaves, upstream)

    def _torch(self, function: Callable[..., Any], tensors: list[Any], upstream: Any) -> Any:
        leaves = [tensor.requires_grad_() for tensor in tensors]
        value, others = function(*leaves)
        gradients = self.module.autograd.grad(value, leaves, upstream, allow_unused=True)
        none_is_0 = zip(leaves, gradients, strict=True)
        return value, others, [leaf * 0 if gradient is None else gradient for leaf, gradient in none_is_0]

    def dropout_key(self, seed: int, step: int, shape: tuple[int, int]) -> Any:
        """The key of a pass with two dropout masks of this shape."""
        (key,) = dropout_keys(seed, step, range(1))
        if self.name != "oneflow":
            return self.put(key)
        rng = np.random.default_rng(key)
        return [self.put(self.engine.draw(rng, shape[0], 1)) for _ in range(2)]


framework = cache(Framework)


def features_of(kind: str) -> dict[str, Array]:
    """The golden batch with the labels of a task."""
    batch = {**BODY["batch"], "row_weights": np.ones(len(BODY["batch"]["input_ids"]), np.float32)}
    if kind != "pretraining":
        del batch["next_sentence_labels"], batch["masked_lm_ids"]
    dtype = np.float32 if kind == "regression" else np.int32
    labels = {} if kind == "pretraining" else OF_TASKS[kind]["labels"]
    return {**batch, **{name.replace("labels", "label_ids"): np.array(label, dtype) for name, label in labels.items()}}


@cache
def weights_of(kind: str) -> dict[str, Array]:
    """Hugging Face's weights: the same body for all tasks, and the task's head."""
    weights, _ = read_weights(WEIGHTS, CONFIG, TASKS[kind])
    task = TASKS[kind]
    names = {task.head_names.get(name) or hugging_face_name(name): name for name in task.variable_shapes(CONFIG)}
    heads = {} if kind == "pretraining" else OF_TASKS[kind]["heads"]
    own = {names[name]: np.array(value, np.float32) for name, value in heads.items()}
    return {name: {**weights, **own}[name] for name in names.values()}


def golden_of(kind: str) -> dict[str, Array]:
    """Hugging Face's logits of each output."""
    found = BODY if kind == "pretraining" else OF_TASKS[kind]["outputs"]
    names = [output.name for output in TASKS[kind].outputs]
    logits = {name: found["logits" if name == "label" else f"{name}_logits"] for name in names}
    return {name: np.array(rows).reshape(-1, np.shape(rows)[-1]) for name, rows in logits.items()}


def compute_loss(ops: Any, kind: str, put: Callable[[Array], Any], *weights: Any) -> tuple[Any, list[Any]]:
    """The loss of the golden batch; its sums, and the logits of each output."""
    batch = {name: put(rows) for name, rows in features_of(kind).items()}
    task = TASKS[kind]
    logits = forward(ops, CONFIG, task, dict(zip(weights_of(kind), weights, strict=True)), batch)
    loss, sums = loss_and_sums(ops, task, batch, logits, sum_weights(ops, task, batch))
    return loss, [*sums, *logits.values()]


@cache
def computed(engine: str, kind: str) -> tuple[Array, list[Array], dict[str, Array]]:
    """`compute_loss` with the gradients of all variables."""
    on, weights = framework(engine), weights_of(kind)
    loss, others, gradients = on.run(partial(compute_loss, on.ops, kind, on.put), list(weights.values()))
    return loss, others, dict(zip(weights, gradients, strict=True))


@of_each_task_on_each_engine
def test_outputs_and_losses_are_hugging_faces(engine: str, kind: str) -> None:
    golden, (loss, others, _) = golden_of(kind), computed(engine, kind)
    assert loss == pytest.approx(BODY["loss"] if kind == "pretraining" else OF_TASKS[kind]["loss"], abs=2e-6)
    for expected, found in zip(golden.values(), others[-len(golden) :], strict=True):
        assert expected.std() > 0.05  # so that 1e-5 is a bound
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@on_each_engine
def test_correct_predictions_and_weights_are_counted(engine: str) -> None:
    batch, golden = features_of("pretraining"), golden_of("pretraining")
    _, hits, weight, _, sentence_hits, sentences, *_ = computed(engine, "pretraining")[1]
    right = golden["masked_lm"].argmax(-1) == batch["masked_lm_ids"].ravel()
    assert (hits, weight) == ((right * batch["masked_lm_weights"].ravel()).sum(), 8)
    assert (sentence_hits, sentences) == ((golden["next_sentence"].argmax(-1) == batch["next_sentence_labels"]).sum(), 3)


@of_each_task_on_each_engine
def test_gradients_are_the_slopes_of_the_loss(engine: str, kind: str) -> None:
    """Moved along its gradient, every variable changes the loss, in float64, by that gradient's length."""
    exact = {name: value.astype(np.float64) for name, value in weights_of(kind).items()}
    for name, gradient in computed(engine, kind)[2].items():
        assert gradient.dtype == np.float32
        length = np.linalg.norm(gradient.astype(np.float64))
        step = 1e-5 * gradient / length
        plus, minus = (
            compute_loss(NumPy(), kind, np.asarray, *{**exact, name: moved}.values())[0]
            for moved in (exact[name] + step, exact[name] - step)
        )
        # Both are 0 but for rounding where softmax takes out again what a bias adds to all scores of a query
        assert (plus - minus) / 2e-5 == pytest.approx(length, rel=1e-4, abs=5e-6), name


def unpaired_batch() -> dict[str, Array]:
    """The golden batch without sentence pairs."""
    batch = {**features_of("pretraining"), "segment_ids": np.zeros_like(BODY["batch"]["segment_ids"])}
    del batch["next_sentence_labels"]
    return batch


def pack(batch: dict[str, Array], padding: int) -> dict[str, Array]:
    """The sequences of a batch as one row, and some padding, which is a sequence of its own."""
    lengths = batch["input_mask"].sum(1)
    is_token = batch["input_mask"] == 1
    row = {name: np.pad(batch[name][is_token], (0, padding))[None] for name in ("input_ids", "input_mask", "segment_ids")}
    all_lengths = [*lengths, padding]
    starts = np.cumsum([0, *lengths])[:-1]
    return {
        **row,
        "position_ids": np.concatenate([np.arange(length) for length in all_lengths])[None].astype(np.int32),
        "sequence_ids": np.repeat(np.arange(len(all_lengths)), all_lengths)[None].astype(np.int32),
        "masked_lm_positions": (batch["masked_lm_positions"] + starts[:, None]).reshape(1, -1).astype(np.int32),
        "masked_lm_ids": batch["masked_lm_ids"].reshape(1, -1),
        "masked_lm_weights": batch["masked_lm_weights"].reshape(1, -1),
        "row_weights": np.ones(1, np.float32),
    }


@on_engines("tensorflow", "torch")
def test_packed_rows_have_the_loss_and_the_gradients_of_their_sequences(engine: str) -> None:
    on, task = framework(engine), Pretraining(has_pairs=False)
    names = list(task.variable_shapes(CONFIG))
    weights = [weights_of("pretraining")[name] for name in names]

    def compute(arrays: dict[str, Array], *weights: Any) -> tuple[Any, list[Any]]:
        batch = {name: on.put(rows) for name, rows in arrays.items()}
        logits = forward(on.ops, CONFIG, task, dict(zip(names, weights, strict=True)), batch)
        return loss_and_sums(on.ops, task, batch, logits, sum_weights(on.ops, task, batch))[0], list(logits.values())

    batch = unpaired_batch()
    packed = pack(batch, padding=7)
    is_predicted = packed["masked_lm_weights"][0] == 1
    loss, (logits,), gradients = on.run(partial(compute, batch), weights)
    of_packed, (logits_of_packed,), gradients_of_packed = on.run(partial(compute, packed), weights)
    assert of_packed == pytest.approx(loss, abs=1e-6)
    np.testing.assert_allclose(logits_of_packed[is_predicted], logits[is_predicted], atol=1e-5)
    for name, expected, found in zip(names, gradients, gradients_of_packed, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6, err_msg=name)
    for needed in ("position_ids", "sequence_ids"):
        wrong = {**packed, needed: np.zeros_like(packed[needed])}
        assert abs(on.run(partial(compute, wrong), weights)[0] - loss) > 1e-3


@pytest.mark.tensorflow  # to whose losses the other engines are held
@pytest.mark.parametrize("kind", OF_TASKS.keys() & TASKS.keys())
def test_20_steps_are_hugging_faces(kind: str) -> None:
    task, batch = TASKS[kind], features_of(kind)
    engine = build("tensorflow", CONFIG, task=task)
    engine.restore(weights_of(kind))
    rates = OF_TASKS["learning_rates"]
    losses = [loss_of(train_step(engine, batch, step, learning_rate=rate), task) for step, rate in enumerate(rates)]
    np.testing.assert_allclose(losses, OF_TASKS[kind]["losses"], rtol=2e-3, atol=2e-5)


IDS = np.array([3, 0, 3, 6, 3])  # one that is used again, others that never are
MANY_IDS = np.arange(500) ** 2 % 7  # 0, 1, 2 and 4
PACKED_ROWS = [[1, 2, 2, 0], [1, 0, 0, 0]]  # sequence ids, 0 for padding
OPERATIONS: dict[str, tuple[Callable[..., Any], list[Array]]] = {  # functions of operations, a `put` of integers, and arrays
    "gelu": (lambda ops, _, x: ops.gelu(x), [np.linspace(-8, 8, 1001)]),
    "layer_norm": (lambda ops, _, *x: ops.layer_norm(*x), [2 + 3 * RNG.normal(size=(5, 64)), *RNG.normal(size=(2, 64))]),
    "look_up": (lambda ops, put, x: ops.look_up(x, put(IDS)), [RNG.normal(size=(7, 4))]),
    "look_up_small": (lambda ops, put, x: ops.look_up_small(x, put(IDS)), [RNG.normal(size=(7, 4))]),
    "gather_positions": (lambda ops, put, x: ops.gather_positions(x, put([[1, 0, 1], [3, 0, 0]])), [RNG.normal(size=(8, 4))]),
    "product": (lambda ops, _, *x: ops.product(*x), [RNG.normal(size=(2, 5, 8)), RNG.normal(size=(2, 3, 8))]),
    "add_bias": (lambda ops, _, *x: ops.add_bias(*x), [RNG.normal(size=(5, 8)), RNG.normal(size=8)]),
    "cross_entropy": (  # of logits whose exponentials overflow, too
        lambda ops, put, x: ops.cross_entropy(put([0, 2, 2, 6]), x),
        [RNG.normal(size=(4, 7)) * 5 + [[0], [200], [-200], [0]]],
    ),
    "attention": (
        lambda ops, put, *x: Bert(ops, HEADS_OF_3, {}, {"input_mask": put([[1, 1, 1, 0], [1, 0, 0, 0]])}).attend(*x),
        [*RNG.normal(size=(3, 8, 6))],
    ),
    "attention_in_packed_rows": (
        lambda ops, put, *x: Bert(
            ops,
            HEADS_OF_3,
            {},
            {"input_mask": put([[1, 1, 1, 0], [1, 0, 0, 0]]), "sequence_ids": put([[1, 2, 2, 0], [1, 0, 0, 0]])},
        ).attend(*x),
        [*RNG.normal(size=(3, 8, 6))],
    ),
    "look_up_many": (lambda ops, put, x: ops.look_up(x, put(MANY_IDS)), [RNG.normal(size=(7, 4))]),
}


@pytest.mark.parametrize("name", OPERATIONS)
@on_each_engine
def test_an_operation_and_its_gradients_are_numpys(engine: str, name: str) -> None:
    """The gradients are held to slopes, number by number."""
    on, (function, arrays) = framework(engine), OPERATIONS[name]
    arrays = [array.astype(np.float32) for array in arrays]
    exact, integers = [array.astype(np.float64) for array in arrays], partial(np.asarray, dtype=np.int32)
    expected = function(NumPy(), integers, *exact)
    upstream = RNG.normal(size=expected.shape).astype(np.float32)
    found, _, gradients = on.run(lambda *x: (function(on.ops, lambda each: on.put(integers(each)), *x), []), arrays, upstream)
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6 * np.abs(expected).max())
    for array, gradient in zip(exact, gradients, strict=True):
        slopes = np.zeros_like(array)
        for index, number in np.ndenumerate(array):
            for distance in (1e-5, -1e-5):
                array[index] = number + distance
                slopes[index] += (upstream * function(NumPy(), integers, *exact)).sum() / (2 * distance)
            array[index] = number
        np.testing.assert_allclose(gradient, slopes, rtol=2e-6, atol=2e-6 * np.abs(slopes).max())


def drop(
    engine: str, x: Array, *, rate: float = 0.1, step: int = 1, seed: int = 3, mask: int = 1, dtype: str = "float32"
) -> Any:
    """Dropout of x, and the gradient where that of the result is x."""
    on = framework(engine)
    key = on.dropout_key(seed, step, x.shape)
    if dtype == "bfloat16" and engine == "oneflow":  # which has no kernels for such gradients on CPUs
        return on.take(on.ops.dropout(on.put(x, dtype), rate, key, mask)), None
    value, _, (gradient,) = on.run(lambda x: (on.ops.dropout(x, rate, key, mask), []), [x], x, dtype)
    return value, gradient


@on_engines_with("rate", {"tensorflow": [0.1], "tensorflow-xla": [0.5], "oneflow": [0.1, 0.5], "torch": [0.1, 0.5]})
def test_dropout_drops_a_fraction_independently(engine: str, rate: float) -> None:
    ones = np.ones((1000, 768), np.float32)
    first, second = (drop(engine, ones, rate=rate, mask=mask)[0] == 0 for mask in (1, 2))
    for dropped in (first, second):
        assert dropped.mean() == pytest.approx(rate, abs=0.0025)
        assert dropped.mean(axis=0).std() == pytest.approx(math.sqrt(rate * (1 - rate) / 1000), rel=0.15)  # of a unit
        assert dropped.mean(axis=1).std() == pytest.approx(math.sqrt(rate * (1 - rate) / 768), rel=0.15)  # of a token
    for shift in (0, 1, 2, 3, 4, 8):  # a generator that counts must not give one mask a part of the other
        both = first.ravel()[shift:] & second.ravel()[: second.size - shift]
        assert both.mean() == pytest.approx(rate**2, abs=0.0025)
        if shift:
            assert (first[:, shift:] & first[:, :-shift]).mean() == pytest.approx(rate**2, abs=0.0025)


@on_each_engine
def test_a_dropout_mask_is_that_of_its_key_and_number(engine: str) -> None:
    ones = np.ones((500, 64), np.float32)
    first = drop(engine, ones)[0]
    np.testing.assert_array_equal(drop(engine, ones)[0], first)
    for other in ({"seed": 2}, {"step": 2}, {"mask": 2}):
        assert (drop(engine, ones, **other)[0] != first).mean() == pytest.approx(0.18, abs=0.015)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@on_each_engine
def test_dropout_rounds_values_and_gradients_once(engine: str, dtype: str) -> None:
    """1 / 0.9 is 1.1111; rounded to bfloat16 before the product it would be 1.1094, and all values 0.16 % too small."""
    x = rounded(np.linspace(0.5, 4, 128 * 64, dtype=np.float32).reshape(128, 64), dtype)
    factor = 2039 / (2039 - 204) if engine == "oneflow" else 1 / 0.9  # whose masks drop 204 numbers of 2039
    found, gradient = drop(engine, x, dtype=dtype)
    np.testing.assert_array_equal(found, np.where(found != 0, rounded(x * np.float32(factor), dtype), 0))
    if gradient is not None:
        np.testing.assert_array_equal(gradient, found)


def rounded(x: Array, dtype: str) -> Array:
    """The nearest numbers of a dtype, the even one of two; bfloat16, the upper half of float32, by hand."""
    if dtype != "bfloat16":
        return x.astype(dtype).astype(np.float32)
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
