"""The model computes what Hugging Face's does, in parts as in one, compiled or not, in every precision."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.trainer.golden_model import WEIGHTS, read_golden
from trainer.engines import dropout_keys
from trainer.model_config import ModelConfig
from trainer.weights import read_initial_weights

pytestmark = pytest.mark.tensorflow
GOLDEN = read_golden()
CONFIG: ModelConfig = GOLDEN["config"]
BATCH: dict[str, Any] = GOLDEN["batch"]
SEQUENCES = len(BATCH["input_ids"])


def dropout_key(seed: int, step: int, part: int = 0) -> Any:
    (key,) = dropout_keys(seed, step, range(part, part + 1))
    return key


@cache
def make_variables() -> dict[str, Any]:
    """Hugging Face's weights as variables."""
    import tensorflow as tf

    return {name: tf.Variable(value) for name, value in read_initial_weights(WEIGHTS, CONFIG).items()}


@cache
def make_step(*, compiled: bool = False, compute_dtype: str = "float32") -> Any:
    """A function of a part of the golden batch: its share of the whole's loss, the gradients of that, and the sums."""
    import tensorflow as tf

    from trainer.engines.tensorflow import pretraining
    from trainer.engines.tensorflow.model import Encoder, gradients_of_variables, prepare_weights

    variables = make_variables()

    @tf.function(jit_compile=compiled)
    def step(batch, key):  # type: ignore[no-untyped-def]
        weights = prepare_weights(CONFIG, variables, compute_dtype)
        with tf.GradientTape() as tape:
            tape.watch(weights)
            sums = pretraining.sums(Encoder(CONFIG, weights, key), batch)
            loss = pretraining.loss(sums, pretraining.totals(BATCH))
        gradients = {name: tf.cast(gradient, tf.float32) for name, gradient in tape.gradient(loss, weights).items()}
        gradients = gradients_of_variables(CONFIG, gradients)
        return loss, [gradients[name] for name in variables], sums

    return step


def tensors(batch: dict[str, Any]) -> dict[str, Any]:
    import tensorflow as tf

    return {name: tf.constant(value) for name, value in batch.items()}


def loss_and_gradients(batch: dict[str, Any] = BATCH, key: Any = None, **options: Any) -> tuple[float, dict[str, Any]]:
    """The share of a part of the golden batch in the loss of the whole, and the gradients of that by name."""
    import tensorflow as tf

    loss, gradients, _ = make_step(**options)(tensors(batch), None if key is None else tf.constant(key))
    assert all(isinstance(gradient, tf.Tensor) for gradient in gradients), "a gradient is missing or not dense"
    return float(loss), {name: value.numpy() for name, value in zip(make_variables(), gradients, strict=True)}


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "xla"])
def test_logits_are_hugging_faces(compiled: bool) -> None:
    import tensorflow as tf

    from trainer.engines.tensorflow import pretraining
    from trainer.engines.tensorflow.model import Encoder, prepare_weights

    def run(batch):  # type: ignore[no-untyped-def]
        return pretraining.logits(Encoder(CONFIG, prepare_weights(CONFIG, make_variables())), batch)

    logits = tf.function(run, jit_compile=compiled)(tensors(BATCH))
    expected = np.array(GOLDEN["masked_lm_logits"]).reshape(-1, CONFIG.vocab_size)
    assert expected.std() > 0.5  # so that 1e-5 says something
    np.testing.assert_allclose(logits.masked_lm.numpy(), expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(logits.next_sentence.numpy(), GOLDEN["next_sentence_logits"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "xla"])
def test_the_loss_is_hugging_faces(compiled: bool) -> None:
    loss, _, sums = make_step(compiled=compiled)(tensors(BATCH), None)
    assert float(loss) == pytest.approx(GOLDEN["loss"], abs=2e-6)
    assert float(sums.masked_lm_weight_sum) == 8
    assert float(sums.sequences) == SEQUENCES
    guesses = np.argmax(GOLDEN["masked_lm_logits"], axis=-1)
    assert float(sums.masked_lm_correct_sum) == ((guesses == BATCH["masked_lm_ids"]) * BATCH["masked_lm_weights"]).sum()
    guesses = np.argmax(GOLDEN["next_sentence_logits"], axis=-1)
    assert float(sums.next_sentence_correct_sum) == (guesses == BATCH["next_sentence_labels"]).sum()


def test_parts_of_a_batch_add_up_to_it() -> None:
    """The parts have 4, 3 and 1 masked tokens: a mean of their means would be another loss."""
    loss, gradients = loss_and_gradients()
    parts = [loss_and_gradients({name: value[i : i + 1] for name, value in BATCH.items()}) for i in range(SEQUENCES)]
    assert sum(part[0] for part in parts) == pytest.approx(loss, abs=1e-6)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(sum(part[1][name] for part in parts), gradient, rtol=0, atol=1e-6)


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    """Moved along its gradient, every variable changes the loss as the gradient says; the embeddings by both their uses."""
    _, gradients = loss_and_gradients()
    for name, gradient in gradients.items():
        if name.endswith("key/bias"):  # adds the same to all scores of a query, which softmax takes out again
            assert abs(gradient).max() < 1e-6
            continue
        variable, norm = make_variables()[name], np.linalg.norm(gradient)
        value, losses = variable.numpy(), []
        for distance in (0.01, -0.01):
            variable.assign(value + distance * gradient / norm)
            losses.append(loss_and_gradients()[0])
        variable.assign(value)
        assert (losses[0] - losses[1]) / 0.02 == pytest.approx(norm, rel=0.01, abs=2e-4), name


@pytest.mark.parametrize(("compute_dtype", "tolerance"), [("bfloat16", 0.1), ("float16", 0.01)])
def test_half_the_precision(compute_dtype: str, tolerance: float) -> None:
    exact, exact_gradients = loss_and_gradients()
    loss, gradients = loss_and_gradients(compute_dtype=compute_dtype)
    assert loss == pytest.approx(exact, abs=tolerance)
    assert loss != exact
    for name, gradient in gradients.items():
        assert gradient.dtype == "float32"
        assert abs(gradient - exact_gradients[name]).max() < tolerance, name


def test_dropout_is_that_of_seed_step_and_part() -> None:
    first, gradients = loss_and_gradients(key=dropout_key(1, 7))
    again, same_gradients = loss_and_gradients(key=dropout_key(1, 7))
    assert again == first
    for name, gradient in gradients.items():
        np.testing.assert_array_equal(gradient, same_gradients[name])
    others = [loss_and_gradients(key=dropout_key(*key))[0] for key in ((2, 7), (1, 8), (1, 7, 1))]
    assert len({first, *others, loss_and_gradients()[0]}) == 5


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_dropout_drops_that_fraction_and_keeps_the_mean(dtype: str) -> None:
    import tensorflow as tf

    from trainer.engines.tensorflow.model import Encoder, prepare_weights

    encoder = Encoder(CONFIG, prepare_weights(CONFIG, make_variables()), tf.constant(dropout_key(3, 1)))
    draws = [tf.cast(encoder.dropout(tf.ones((1000, 1000), dtype), 0.1), "float32").numpy() for _ in range(2)]
    for values in draws:
        assert (values == 0).mean() == pytest.approx(0.1, abs=0.0015)  # 5 deviations; bfloat16's own numbers would give 0.1016
        assert values.max() == pytest.approx(1 / 0.9, rel=0.005)
    assert ((draws[0] == 0) & (draws[1] == 0)).mean() == pytest.approx(0.01, abs=0.0005)


def test_names_of_variables_are_those_of_googles_checkpoints() -> None:
    names = list(make_variables())
    assert names[:4] == [
        "bert/embeddings/word_embeddings",
        "bert/embeddings/token_type_embeddings",
        "bert/embeddings/position_embeddings",
        "bert/embeddings/LayerNorm/gamma",
    ]
    assert names[-3:] == [
        "cls/predictions/output_bias",
        "cls/seq_relationship/output_weights",
        "cls/seq_relationship/output_bias",
    ]
