"""Which layers go to which stage, and which ranks make up a pipeline: examples that can be checked by eye."""

import pytest

from bertprep.errors import UsageError
from trainer.engines.oneflow.stages import WORDS, check_order, cut, describe, place
from trainer.model_config import ModelConfig
from trainer.weights import variable_shapes

SMALL_WORDS = ModelConfig.preset("base", vocab_size=100)  # embeddings and heads weigh next to nothing
BASE = ModelConfig.preset("base")  # embeddings of 24 million parameters, layers of 7 million


def layers(config: ModelConfig, stages: int) -> list[list[int]]:
    return [list(stage.layers) for stage in cut(config, stages)]


def test_layers_are_dealt_evenly_where_they_are_all_there_is() -> None:
    assert layers(SMALL_WORDS, 1) == [list(range(12))]
    assert layers(SMALL_WORDS, 3) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert layers(SMALL_WORDS, 12) == [[number] for number in range(12)]


def test_ends_with_large_embeddings_have_fewer_layers() -> None:
    assert layers(BASE, 2) == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]
    assert layers(BASE, 4) == [[0], [1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [11]]


@pytest.mark.parametrize("stages", [1, 2, 3, 5, 12])
def test_every_variable_is_in_one_stage_and_word_embeddings_are_in_both_ends(stages: int) -> None:
    found = [name for stage in cut(BASE, stages) for name in stage.variables]
    twice = [WORDS] if stages > 1 else []
    assert sorted(found) == sorted([*variable_shapes(BASE), *twice])
    first, last = cut(BASE, stages)[0], cut(BASE, stages)[-1]
    assert {WORDS, "bert/embeddings/position_embeddings", "bert/embeddings/LayerNorm/beta"} <= set(first.variables)
    assert {WORDS, "bert/pooler/dense/kernel", "cls/predictions/output_bias"} <= set(last.variables)


def test_no_other_cut_has_a_smaller_largest_stage() -> None:
    """By trying all cuts of 12 layers in three."""
    first, layer, last = (stage.parameters for stage in (cut(BASE, 12)[0], cut(BASE, 12)[1], cut(BASE, 12)[-1]))
    largest = [
        max(first + (before - 1) * layer, between * layer, last + (12 - before - between - 1) * layer)
        for before in range(1, 11)
        for between in range(1, 12 - before)
    ]
    assert max(stage.parameters for stage in cut(BASE, 3)) == min(largest)


@pytest.mark.parametrize("stages", [13, 0])
def test_a_stage_has_whole_layers(stages: int) -> None:
    with pytest.raises(
        UsageError, match=f"--stages {stages}: the model has 12 layers, and a stage has whole ones; choose 1 to"
    ):
        cut(BASE, stages)


@pytest.mark.parametrize(
    ("hosts", "per_host", "stages", "strategy", "expected"),
    [
        (1, 4, 2, "intra_first", [[0, 1], [2, 3]]),
        (1, 4, 4, "inter_first", [[0, 1, 2, 3]]),
        (2, 2, 2, "intra_first", [[0, 1], [2, 3]]),
        (2, 2, 2, "inter_first", [[0, 2], [1, 3]]),
        (2, 2, 4, "inter_first", [[0, 2, 1, 3]]),
        (2, 2, 1, "inter_first", [[0], [1], [2], [3]]),
        (2, 4, 4, "intra_first", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (4, 2, 4, "inter_first", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        (4, 2, 2, "inter_first", [[0, 2], [1, 3], [4, 6], [5, 7]]),
    ],
)
def test_pipelines(hosts: int, per_host: int, stages: int, strategy: str, expected: list[list[int]]) -> None:
    pipelines = place(hosts=hosts, per_host=per_host, stages=stages, strategy=strategy)
    assert pipelines == expected
    check_order(pipelines, strategy)


def test_processes_must_be_a_multiple_of_stages() -> None:
    with pytest.raises(UsageError, match="--stages 3: must divide the number of processes, which is 4; start a multiple of 3"):
        place(hosts=2, per_host=2, stages=3, strategy="intra_first")


def test_an_order_of_ranks_that_oneflow_would_change_is_refused() -> None:
    pipelines = place(hosts=3, per_host=2, stages=2, strategy="inter_first")
    assert pipelines == [[0, 2], [3, 5], [4, 1]]
    with pytest.raises(UsageError, match="a stage would have ranks 2, 5, 1 in this order, which OneFlow cannot keep"):
        check_order(pipelines, "inter_first")


def test_the_plan_as_a_table() -> None:
    pipelines = place(hosts=2, per_host=4, stages=4, strategy="intra_first")
    assert describe(cut(BASE, 4), pipelines) == [
        "stage  layers         parameters  ranks",
        "0      embeddings, 0  30,925,056  0, 4",
        "1      1 - 5          35,439,360  1, 5",
        "2      6 - 10         35,439,360  2, 6",
        "3      11, heads      31,743,548  3, 7",
    ]
