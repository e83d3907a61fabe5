"""The model on OneFlow computes what Hugging Face's does, in parts as in one, and graphs give the gradients of eager passes."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.trainer.golden_model import WEIGHTS, read_golden
from trainer.model_config import ModelConfig
from trainer.settings import EngineSettings
from trainer.tasks.pretraining import PRETRAINING
from trainer.weights import read_initial_weights

pytestmark = pytest.mark.oneflow
GOLDEN = read_golden()
CONFIG: ModelConfig = GOLDEN["config"].without_dropout()
SEQUENCES = len(GOLDEN["batch"]["input_ids"])
BATCH: dict[str, Any] = {**GOLDEN["batch"], "row_weights": np.ones(SEQUENCES, np.float32)}
WEIGHT = BATCH["masked_lm_weights"].sum()


@cache
def place(**settings: Any) -> tuple[Any, Any]:
    """Hugging Face's weights in a model, and its passes."""
    import oneflow as flow

    from trainer.engines.oneflow import pretraining
    from trainer.engines.oneflow.devices import open_devices
    from trainer.engines.oneflow.model import place_model
    from trainer.engines.oneflow.passes import Passes

    chosen = EngineSettings(engine="oneflow", **settings)
    devices = open_devices(chosen)
    weights = read_initial_weights(WEIGHTS, CONFIG)
    placed = place_model(CONFIG, weights, devices, PRETRAINING, pretraining, compute_dtype=flow.float32, is_global=False)
    return placed, Passes(placed, devices, chosen)


def sums_and_gradients(batch: dict[str, Any] = BATCH, **settings: Any) -> tuple[Any, dict[str, Any]]:
    """The sums of a part of the golden batch, and the gradients of what it adds to the loss of the whole."""
    import oneflow as flow

    placed, passes = place(**settings)
    loss_weights = flow.tensor(np.array([1 / WEIGHT, 1 / SEQUENCES], np.float32))
    sums, gradients = passes.gradients(batch, [], loss_weights, 1)
    assert list(gradients) == list(placed.own)
    return sums.numpy(), {name: gradient.numpy() for name, gradient in gradients.items()}


def test_logits_are_hugging_faces() -> None:
    import oneflow as flow

    parts = place(eager=True)[0].bert.parts
    batch = {name: flow.tensor(value) for name, value in BATCH.items()}
    hidden = parts[0](batch["input_ids"], batch["segment_ids"])
    for layer in parts[1:-1]:
        hidden = layer(hidden, batch["input_mask"])
    masked_lm = parts[-1].masked_lm(hidden, batch["masked_lm_positions"])
    next_sentence = parts[-1].next_sentence(hidden, len(BATCH["input_ids"]))
    expected = np.array(GOLDEN["masked_lm_logits"]).reshape(-1, CONFIG.vocab_size)
    assert expected.std() > 0.5  # so that 1e-5 says something
    np.testing.assert_allclose(masked_lm.numpy(), expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(next_sentence.numpy(), GOLDEN["next_sentence_logits"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("eager", [False, True], ids=["graph", "eager"])
def test_loss_and_hits_are_hugging_faces(eager: bool) -> None:
    masked_lm, hits, next_sentence, sentence_hits = place(eager=eager)[1].sums(BATCH).numpy()
    assert masked_lm / WEIGHT + next_sentence / SEQUENCES == pytest.approx(GOLDEN["loss"], abs=2e-6)
    guesses = np.argmax(GOLDEN["masked_lm_logits"], axis=-1)
    assert hits == ((guesses == BATCH["masked_lm_ids"]) * BATCH["masked_lm_weights"]).sum()
    guesses = np.argmax(GOLDEN["next_sentence_logits"], axis=-1)
    assert sentence_hits == (guesses == BATCH["next_sentence_labels"]).sum()


@pytest.mark.parametrize("settings", [{}, {"checkpoint_activations": True}], ids=["graph", "checkpoints"])
def test_a_graph_has_the_gradients_of_an_eager_pass(settings: dict[str, Any]) -> None:
    sums, gradients = sums_and_gradients(eager=True)
    of_graph, graph_gradients = sums_and_gradients(**settings)
    np.testing.assert_allclose(of_graph, sums, rtol=1e-6)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(graph_gradients[name], gradient, rtol=0, atol=1e-6, err_msg=name)


def test_activations_are_computed_again_where_asked() -> None:
    for asked in (False, True):
        sums_and_gradients(checkpoint_activations=asked)
        (graph,) = (made for key, made in place(checkpoint_activations=asked)[1]._graphs.items() if key[0])
        assert ("Checkpointing" in str(graph._full_graph_proto)) == asked


def test_parts_of_a_batch_add_up_to_it() -> None:
    """The parts have 4, 3 and 1 masked tokens: a mean of their means would be another loss."""
    sums, gradients = sums_and_gradients()
    parts = [sums_and_gradients({name: value[i : i + 1] for name, value in BATCH.items()}) for i in range(SEQUENCES)]
    np.testing.assert_allclose(sum(part[0] for part in parts), sums, rtol=1e-6)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(sum(part[1][name] for part in parts), gradient, rtol=0, atol=1e-6, err_msg=name)


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    """Moved along its gradient, every variable changes the loss as the gradient says; the embeddings by both their uses."""
    import oneflow as flow

    placed, passes = place()

    def loss() -> float:
        sums = passes.sums(BATCH).numpy()
        return float(sums[0] / WEIGHT + sums[2] / SEQUENCES)

    for name, gradient in sums_and_gradients()[1].items():
        if name.endswith("key/bias"):  # adds the same to all scores of a query, which softmax takes out again
            assert abs(gradient).max() < 1e-6
            continue
        variable, norm = placed.own[name], np.linalg.norm(gradient)
        value, losses = variable.numpy().copy(), []
        for distance in (0.01, -0.01):
            variable.copy_(flow.tensor(value + distance * gradient / norm))
            losses.append(loss())
        variable.copy_(flow.tensor(value))
        assert (losses[0] - losses[1]) / 0.02 == pytest.approx(norm, rel=0.01, abs=2e-4), name
