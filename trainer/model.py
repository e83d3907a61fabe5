"""BERT and its heads, once for every framework: functions of operations, weights by name, and a batch.

    embed     word + segment + position embeddings -> LayerNorm                          (sequences * seq, hidden)
    layer     attention -> dense -> + input -> LayerNorm -> dense -> GELU -> dense -> + -> LayerNorm
    pool      first token -> dense -> tanh                                               (sequences, hidden)
    HEADS     logits of each output of a task: masked_lm and next_sentence; start and end; label
    TARGETS   the labels of each output, and its weight in the loss

Weights have the names of Google's checkpoints. Dense products run in the compute precision, everything else in float32. GELU is
exact. The masked-LM head runs at the masked positions only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from trainer.model_config import ModelConfig

Array: TypeAlias = Any
"""A tensor of the framework that runs the model."""
Arrays: TypeAlias = Mapping[str, Array]
Operation: TypeAlias = Callable[..., Any]
WORDS = "bert/embeddings/word_embeddings"
MASKED_OUT = -10_000.0
"""Added to an attention score so that its weight becomes 0; the same number as in Google's and NVIDIA's."""
COMPUTE_DTYPES = {"off": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""What dense products run in, by the name of the precision."""


class Operations:
    """A framework's operations, from which model, losses and optimizer are composed; along the last axis."""

    has_fused_attention = False
    cast: Operation  # x, name of a dtype
    reshape: Operation  # x, shape
    permute: Operation  # x, axes
    where: Operation  # condition, x, y
    maximum: Operation  # x, least
    is_finite: Operation
    is_not_zero: Operation  # of a number, for `where`
    sqrt: Operation
    sign: Operation
    expm1: Operation
    tanh: Operation
    gelu: Operation  # exact, by the error function
    softmax: Operation
    argmax: Operation
    sum: Operation  # of all elements
    stack: Operation  # numbers -> an array of them
    square_sum: Operation  # of all elements
    product: Operation  # (..., n, in), (..., m, in) -> float32 (..., n, m)
    look_up: Operation  # (vocabulary, hidden), (n,) -> (n, hidden)
    look_up_small: Operation  # of a table with few rows
    gather_positions: Operation  # (n * seq, hidden), (n, pred) -> (n * pred, hidden)
    layer_norm: Operation  # x, gamma, beta; computed in float32, in the precision of x
    dropout: Operation  # x, dropout rate, key, number of the mask
    cross_entropy: Operation  # labels (n,), logits (n, classes) -> (n,), in nats
    fused_attention: Operation  # query, key and value (sequences, seq, heads, units), mask (sequences, seq)

    def __init__(self, precision: str = "off") -> None:
        self.precision, self._dtype = precision, COMPUTE_DTYPES[precision]

    def compute(self, x: Array) -> Array:
        return self.cast(x, self._dtype)

    def float32(self, x: Array) -> Array:
        return self.cast(x, "float32")

    def add_bias(self, x: Array, bias: Array) -> Array:
        return x + bias

    def dense(self, x: Array, kernel: Array, bias: Array) -> Array:
        """(rows, in), (in, out), (out,) -> (rows, out)."""
        return self.add_bias(x @ self.compute(kernel), self.compute(bias))

    def project(self, x: Array, kernels: Sequence[Array], biases: Sequence[Array]) -> Sequence[Array]:
        """Several dense layers of one input."""
        return [self.dense(x, kernel, bias) for kernel, bias in zip(kernels, biases, strict=True)]

    def recompute(self, layer: Operation) -> Operation:
        """Keep only the inputs of a layer for its gradients, where activations are checkpointed."""
        return layer


class Bert:
    """The network with its weights, on a batch; dropout masks follow from a key and their numbers."""

    def __init__(self, ops: Operations, config: ModelConfig, weights: Arrays, batch: Arrays, key: Any = None) -> None:
        self.ops, self.config, self.weights, self.batch, self.key = ops, config, weights, batch, key
        self.sequences, self.seq = batch["input_mask"].shape
        self.masks = 0  # of dropout, drawn so far

    def dense(self, name: str, x: Array) -> Array:
        return self.ops.dense(x, self.weights[f"{name}/kernel"], self.weights[f"{name}/bias"])

    def norm(self, name: str, x: Array) -> Array:
        return self.ops.layer_norm(x, self.weights[f"{name}/LayerNorm/gamma"], self.weights[f"{name}/LayerNorm/beta"])

    def drop(self, x: Array, dropout_rate: float) -> Array:
        if self.key is None or dropout_rate == 0:
            return x
        self.masks += 1
        return self.ops.dropout(x, dropout_rate, self.key, self.masks)

    def logits(self, name: str, x: Array) -> Array:
        """float32 logits of a small head, whose weights are (out, in)."""
        product = self.ops.product(self.ops.float32(x), self.weights[f"{name}_weights"])
        return self.ops.add_bias(product, self.weights[f"{name}_bias"])

    def embed(self) -> Array:
        """(sequences * seq, hidden): what each token is, its segment and its position, added up."""
        ops, config, part = self.ops, self.config, "bert/embeddings"
        ids, segments = (ops.reshape(self.batch[name], (-1,)) for name in ("input_ids", "segment_ids"))
        x = ops.look_up(self.weights[WORDS], ids)
        x = x + ops.look_up_small(self.weights[f"{part}/token_type_embeddings"], segments)
        positions = self.weights[f"{part}/position_embeddings"]
        if "position_ids" in self.batch:
            x = x + ops.look_up(positions, ops.reshape(self.batch["position_ids"], (-1,)))
        else:
            x = ops.reshape(x, (self.sequences, self.seq, config.hidden_size)) + positions[: self.seq]
        x = self.norm(part, ops.reshape(x, (-1, config.hidden_size)))
        return ops.compute(self.drop(x, config.hidden_dropout_prob))

    def masked_out(self) -> Array:
        """What is added to scores so that no token attends to padding or, in packed rows, to another sequence.

        (sequences, 1, 1, seq); of packed rows (sequences, 1, seq, seq), where padding is a sequence of its own.
        """
        ops = self.ops
        if "sequence_ids" not in self.batch:
            seen = ops.reshape(self.batch["input_mask"], (self.sequences, 1, 1, self.seq))
        else:
            ids = self.batch["sequence_ids"]
            own, others = (ops.reshape(ids, (self.sequences, 1, *shape)) for shape in ((self.seq, 1), (1, self.seq)))
            seen = own == others
        return (1 - ops.float32(seen)) * MASKED_OUT

    def attend(self, query: Array, key: Array, value: Array) -> Array:
        """Return (sequences * seq, hidden): for each token the values of all tokens, weighted by query and keys."""
        ops, config = self.ops, self.config
        dropout_rate = config.attention_probs_dropout_prob
        by_head = self.sequences, self.seq, config.num_attention_heads, config.head_size
        is_packed = "sequence_ids" in self.batch
        if ops.has_fused_attention and not is_packed and (self.key is None or dropout_rate == 0):
            heads = (ops.reshape(x, by_head) for x in (query, key, value))
            context = ops.fused_attention(*heads, self.batch["input_mask"])
        else:
            scaled = query * (1 / math.sqrt(config.head_size))
            query, key, value = (ops.permute(ops.reshape(x, by_head), (0, 2, 1, 3)) for x in (scaled, key, value))
            weights = ops.compute(ops.softmax(ops.product(query, key) + self.masked_out()))  # (sequences, heads, seq, seq)
            context = ops.permute(self.drop(weights, dropout_rate) @ value, (0, 2, 1, 3))
        return ops.reshape(context, (-1, config.hidden_size))

    def layer(self, x: Array, number: int) -> Array:
        """(sequences * seq, hidden): each token attends to the others, then passes the feed-forward part by itself."""
        name, dropout_rate = f"bert/encoder/layer_{number}", self.config.hidden_dropout_prob
        parts = [f"{name}/attention/self/{part}" for part in ("query", "key", "value")]
        kernels, biases = ([self.weights[f"{part}/{kind}"] for part in parts] for kind in ("kernel", "bias"))
        context = self.attend(*self.ops.project(x, kernels, biases))
        output = self.drop(self.dense(f"{name}/attention/output/dense", context), dropout_rate)
        x = self.norm(f"{name}/attention/output", x + output)
        inner = self.ops.gelu(self.dense(f"{name}/intermediate/dense", x))
        output = self.drop(self.dense(f"{name}/output/dense", inner), dropout_rate)
        return self.norm(f"{name}/output", x + output)

    def encode(self) -> Array:
        """The last layer's output for every token, (sequences * seq, hidden)."""
        x = self.embed()
        for number in range(self.config.num_hidden_layers):
            x = self.ops.recompute(partial(self.layer, number=number))(x)
        return x

    def pool(self, hidden: Array) -> Array:
        """(sequences, hidden): each sequence as a whole, by its first token."""
        first = self.ops.reshape(hidden, (self.sequences, self.seq, self.config.hidden_size))[:, 0]
        return self.ops.tanh(self.dense("bert/pooler/dense", first))


def pretraining(bert: Bert, hidden: Array) -> dict[str, Array]:
    """Return (sequences * pred, vocabulary) logits of masked tokens and (sequences, 2) of next sentences, unless MLM only."""
    ops, weights, name = bert.ops, bert.weights, "cls/predictions/transform"
    masked = ops.gather_positions(hidden, bert.batch["masked_lm_positions"])
    masked = bert.norm(name, ops.gelu(bert.dense(f"{name}/dense", masked)))
    product = ops.product(masked, ops.compute(weights[WORDS]))
    logits = {"masked_lm": ops.add_bias(product, weights["cls/predictions/output_bias"])}
    if "next_sentence_labels" in bert.batch:
        logits["next_sentence"] = bert.logits("cls/seq_relationship/output", bert.pool(hidden))
    return logits


def squad(bert: Bert, hidden: Array) -> dict[str, Array]:
    """Return (sequences, seq) logits of each token to be an answer's first, and its last; padding has them too, like
    Google's.
    """
    both = bert.ops.reshape(bert.logits("cls/squad/output", hidden), (bert.sequences, bert.seq, 2))
    return {"start": both[:, :, 0], "end": both[:, :, 1]}


def classification(bert: Bert, hidden: Array) -> dict[str, Array]:
    """(sequences, labels) logits, or the (sequences, 1) prediction of a regression."""
    return {"label": bert.logits("output", bert.drop(bert.pool(hidden), bert.config.hidden_dropout_prob))}


HEADS = {"pretraining": pretraining, "squad": squad, "classification": classification}


class Target(NamedTuple):
    """The features that an output is compared with and weighted by, and its share of the loss."""

    labels: str
    weights: str
    share: float


TARGETS = {
    "masked_lm": Target("masked_lm_ids", "masked_lm_weights", 1.0),
    "next_sentence": Target("next_sentence_labels", "row_weights", 1.0),
    "start": Target("start_positions", "row_weights", 0.5),
    "end": Target("end_positions", "row_weights", 0.5),
    "label": Target("label_ids", "row_weights", 1.0),
}


def forward(
    ops: Operations, config: ModelConfig, task: str, weights: Arrays, batch: Arrays, key: Any = None
) -> dict[str, Array]:
    """Logits of each output of a task, with dropout where there is a key."""
    bert = Bert(ops, config, weights, batch, key)
    return HEADS[task](bert, bert.encode())
