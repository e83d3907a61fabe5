"""What the parts of a network read and draw follows from the model's own functions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.trainer.small_runs import MODEL, TASKS
from trainer.model import Array, Bert
from trainer.parts import parts_of
from trainer.tasks.task import Task

SEQ = 7
INPUTS = ("input_mask", "input_ids", "segment_ids")
ATTENTION = MODEL.num_attention_heads * SEQ
OF_HEADS = {"pretraining": ["masked_lm_positions"], "unpaired": ["masked_lm_positions"]}


@pytest.mark.parametrize("name", TASKS)
def test_each_part_has_its_variables_features_and_masks(name: str) -> None:
    task = TASKS[name]
    embeddings, *layers, head = parts_of(MODEL, task, seq=SEQ)
    assert (embeddings.features, embeddings.mask_rows) == (INPUTS, (SEQ,))
    assert [(layer.features, layer.mask_rows) for layer in layers] == [(("input_mask",), (ATTENTION, SEQ, SEQ))] * 2
    assert list(head.features) == ["input_mask", *OF_HEADS.get(name, [])]
    assert head.mask_rows == ((1,) if name in ("classification", "regression") else ())
    read = {variable for part in (embeddings, *layers, head) for variable in part.variables}
    assert read == task.variable_shapes(MODEL).keys()
    for number, layer in enumerate(layers):
        assert all(variable.startswith(f"bert/encoder/layer_{number}/") for variable in layer.variables)


def test_without_dropout_there_is_no_mask() -> None:
    without = replace(MODEL, hidden_dropout_prob=0.0)
    assert [part.mask_rows for part in parts_of(without, TASKS["classification"], seq=SEQ)] == [
        (),
        (ATTENTION,),
        (ATTENTION,),
        (),
    ]


def test_a_dropout_that_the_model_gets_has_its_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    embed, head = Bert.embed, type(TASKS["squad"]).head

    def drop_twice(bert: Bert) -> Array:
        return bert.drop(embed(bert), 0.5)

    def drop_tokens(task: Task, bert: Bert, hidden: Array) -> dict[str, Array]:
        return head(task, bert, bert.drop(hidden, 0.5))

    monkeypatch.setattr(Bert, "embed", drop_twice)
    monkeypatch.setattr(type(TASKS["squad"]), "head", drop_tokens)
    parts_of.cache_clear()
    found = [part.mask_rows for part in parts_of(MODEL, TASKS["squad"], seq=SEQ)]
    parts_of.cache_clear()
    assert (found[0], found[-1]) == ((SEQ, SEQ), (SEQ,))
