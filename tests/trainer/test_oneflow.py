"""OneFlow's processes: who they are, which layers their stages have, and that any layout of them makes the same steps.

As a program it makes these steps in each layout on the processes that there are, and the first writes the results to a file.
"""

import json
import math
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from subprocess import Popen
from typing import Any

import numpy as np
import pytest

from bertprep.errors import UsageError
from tests.trainer.numpy_engine import SEED as RECORD_SEED
from tests.trainer.numpy_engine import RecordFolder, saved_steps
from tests.trainer.small_runs import (
    BATCH,
    MODEL,
    TASKS,
    build,
    command,
    finish,
    free_ports,
    loss_of,
    losses,
    make_batch,
    make_task_batch,
    start,
    train_step,
    training_log,
)
from trainer.batches import GlobalBatch, features
from trainer.engines import Execution
from trainer.engines.oneflow_pipeline import Process, arrange, cut, read_process
from trainer.model import COMPUTE_DTYPES, WORDS
from trainer.model_config import ModelConfig
from trainer.settings import OptimizerSettings
from trainer.tasks.pretraining import Pretraining

TASK = Pretraining()
BASE = ModelConfig.preset("base")  # embeddings of 24 million parameters, layers of 7 million
FOUR = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
RATES = [0.01 / 3, 0.02 / 3, 0.01, 0.005]
BAD_ROW = 3  # has a weight of 0 in every batch


def test_layers_are_split_evenly_unless_embeddings_outweigh_them() -> None:
    """Counted with the embeddings, which the first stage has, and the head, which the last has."""

    def parts(config: ModelConfig, stages: int) -> list[int]:
        return [len(stage.parts) for stage in cut(config, stages, TASK)]

    few_words = ModelConfig.preset("base", vocab_size=100)
    assert [parts(few_words, stages) for stages in (1, 3, 12)] == [[14], [5, 4, 5], [2, *[1] * 10, 2]]
    assert [parts(BASE, stages) for stages in (2, 4)] == [[7, 7], [2, 5, 5, 2]]


def test_no_other_split_has_a_smaller_largest_stage() -> None:
    """By trying all splits of 12 layers in three."""
    shapes = TASK.variable_shapes(BASE)

    def parameters(stages: int) -> list[int]:
        return [sum(math.prod(shapes[name]) for name in stage.variables) for stage in cut(BASE, stages, TASK)]

    first, layer, *_, last = parameters(12)
    largest = [
        max(first + (before - 1) * layer, between * layer, last + (12 - before - between - 1) * layer)
        for before in range(1, 11)
        for between in range(1, 12 - before)
    ]
    assert max(parameters(3)) == min(largest)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("stages", [1, 2, 5, 12])
def test_every_variable_is_in_one_stage_and_word_embeddings_are_with_their_head_too(stages: int, task: str) -> None:
    found = [name for stage in cut(BASE, stages, TASKS[task]) for name in stage.variables]
    twice = [WORDS] if stages > 1 and isinstance(TASKS[task], Pretraining) else []
    assert sorted(found) == sorted([*TASKS[task].variable_shapes(BASE), *twice])


@pytest.mark.parametrize(
    ("hosts", "per_host", "stages", "strategy", "pipelines"),
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
def test_the_ranks_of_pipelines(hosts: int, per_host: int, stages: int, strategy: str, pipelines: list[list[int]]) -> None:
    assert arrange(hosts=hosts, per_host=per_host, stages=stages, strategy=strategy) == pipelines


def test_an_order_of_ranks_that_oneflow_would_change_is_refused() -> None:
    with pytest.raises(UsageError, match="ranks 2, 5, 1 in this order"):
        arrange(hosts=3, per_host=2, stages=2, strategy="inter_first")


@pytest.mark.parametrize(
    "change", [{"WORLD_SIZE": ""}, {"MASTER_PORT": ""}, {"RANK": "one"}, {"RANK": "4"}, {"LOCAL_RANK": "2"}, {"RANK": "-2"}]
)
def test_an_environment_that_is_not_the_launchers(change: dict[str, str]) -> None:
    assert (read_process({}), read_process(FOUR)) == (Process(), Process(rank=1, world_size=4, local_rank=1))
    with pytest.raises(UsageError, match=r"RANK, WORLD_SIZE, .*: expected the values that python -m oneflow.distr"):
        read_process({**FOUR, **change})


@pytest.mark.oneflow
def test_a_dropout_mask_is_that_of_its_polynomial() -> None:
    """By hand, in integers: kept where (a + b j + c j**2 + d j**3) mod 2039 is at least 204, the first above 0.1."""
    import oneflow as flow

    from trainer.engines.oneflow import Ops, draw, powers_of_units

    numbers = draw(np.random.default_rng(1), 300, 1)
    a, b, c, d = (column[:, None] for column in numbers.astype(np.int64).T)
    j, ops = np.arange(768), Ops(powers=flow.tensor(powers_of_units()))
    dropped = ops.dropout(flow.ones(300, 768), 0.1, [flow.tensor(numbers)], 1)
    np.testing.assert_array_equal(dropped.numpy() != 0, (a + b * j + c * j**2 + d * j**3) % 2039 >= 204)


@pytest.mark.oneflow
def test_the_sum_of_a_large_variable_is_not_lost_in_rounding() -> None:
    """Added up one by one, 23 million squares of 0.02 stop growing at 8192 of 9376."""
    import oneflow as flow

    from trainer.engines.oneflow import Ops

    values = flow.ones(30522, 768) * 0.02
    assert float(Ops().sum(values * values)) == pytest.approx(30522 * 768 * 0.02**2, rel=1e-5)


@pytest.mark.oneflow
def test_a_scaled_loss_makes_the_same_update_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32, since OneFlow has no half precision on CPUs."""
    monkeypatch.setitem(COMPUTE_DTYPES, "fp16", "float32")
    engine, batch = build("oneflow"), make_batch(0)
    states = {}
    for precision in ("off", "fp16"):
        engine.execution = Execution(precision)
        engine.build(MODEL, OptimizerSettings(), seed=1, task=TASK)
        result = train_step(engine, batch, 0, accumulation=2)
        states[precision] = {**engine.state(), "norm": np.float32(result.gradient_norm)}
    assert (result.loss_scale, states["off"].pop("loss_scale"), states["off"].pop("good_steps")) == (2.0**15, 1, 0)
    for name, value in states["off"].items():
        np.testing.assert_allclose(states["fp16"][name], value, rtol=0, atol=1e-5, err_msg=name)
    engine.restore({"loss_scale": np.float32(2.0**120)})
    before, skipped = engine.state(), train_step(engine, batch, 1, accumulation=2)
    assert (skipped.is_finite, skipped.loss_scale) == (False, 2.0**120)
    for name, value in engine.state().items():
        np.testing.assert_array_equal(value, {"loss_scale": 2.0**119, "good_steps": 0}.get(name, before[name]), err_msg=name)


@pytest.mark.oneflow
def test_a_state_is_not_changed_by_the_next_step() -> None:
    """On a CPU a tensor and its array could share memory."""
    engine = build("oneflow")
    before = engine.state()
    copies = {name: value.copy() for name, value in before.items()}
    train_step(engine, make_batch(0), 0, accumulation=1)
    assert (engine.state()[WORDS] != copies[WORDS]).any()
    for name, value in copies.items():
        np.testing.assert_array_equal(before[name], value, err_msg=name)


def train(
    *, task: str = "pretraining", layers: int = 2, dropout: bool = False, accumulation: int = 1, optimizer: str = "adam",
    **settings: Any,
) -> dict[str, Any]:  # fmt: skip
    """The steps from the seed's weights, an evaluation after them, and the size of all that a checkpoint would hold."""
    of, model = TASKS[task], replace(MODEL, num_hidden_layers=layers)
    model = model if dropout else model.without_dropout()
    engine: Any = build("oneflow", model, optimizer=optimizer, task=of, **settings)
    assert engine.gather(2**31 - 5) == [2**31 - 5] * engine.processes
    rows = GlobalBatch(BATCH, engine.data_world_size, engine.data_rank).positions(step=0)

    def batch_of(step: int) -> dict[str, Any]:
        row_weights = (np.arange(BATCH) != BAD_ROW).astype(np.float32)
        batch = features(make_task_batch(of, step), row_weights)
        return {name: array[rows] for name, array in batch.items()}

    results = [
        train_step(engine, batch_of(step), step, learning_rate=rate, accumulation=accumulation, stop=engine.is_first)
        for step, rate in enumerate(RATES)
    ]
    assert all(result.is_stop_wanted for result in results)  # the first process alone wanted it
    evaluation = engine.evaluate(batch_of(99))
    outputs = {} if isinstance(of, Pretraining) else engine.predict(batch_of(99))
    kept = {name: rows.copy() for name, rows in outputs.items()}
    for name, rows in engine.predict(batch_of(98)).items() if outputs else ():
        assert (rows != outputs[name]).any()  # and has not overwritten them
        np.testing.assert_array_equal(outputs[name], kept[name])
    state = engine.state()
    assert all(value.dtype == np.float32 for value in state.values())
    assert not engine.is_first or set(of.variable_shapes(model)) < state.keys()
    return {
        "losses": [loss_of(result, of) for result in results],
        "norms": [result.gradient_norm for result in results],
        "evaluation": evaluation.tolist(),
        "outputs": {name: rows.tolist() for name, rows in outputs.items()},
        "sizes": {name: float(np.sqrt(np.square(value, dtype=np.float64).sum())) for name, value in state.items()},
        "recomputes": any("Checkpointing" in str(graph._full_graph_proto) for graph in engine._graphs.values()),
        "is_first": engine.is_first,
    }


@cache
def alone(**options: Any) -> dict[str, Any]:
    """The results of one process."""
    return train(**options)


def assert_equal(found: dict[str, Any], expected: dict[str, Any], layout: object) -> None:
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=0, atol=1e-5, err_msg=str(layout))
    np.testing.assert_allclose(found["norms"], expected["norms"], rtol=1e-4, err_msg=str(layout))
    np.testing.assert_allclose(found["evaluation"], expected["evaluation"], rtol=1e-5, err_msg=str(layout))
    assert found["outputs"].keys() == expected["outputs"].keys(), layout
    for name, rows in found["outputs"].items():
        np.testing.assert_allclose(rows, expected["outputs"][name], rtol=0, atol=1e-4, err_msg=str(layout))
    assert found["sizes"].keys() == expected["sizes"].keys(), layout
    for name, size in found["sizes"].items():
        assert size == pytest.approx(expected["sizes"][name], rel=1e-3, abs=1e-5), (layout, name)


@pytest.mark.oneflow
def test_activations_that_are_recomputed_have_the_same_dropout() -> None:
    options = {"dropout": True, "accumulation": 4}
    kept, recomputed = alone(**options), alone(**options, checkpoint_activations=True)
    assert (kept["recomputes"], recomputed["recomputes"]) == (False, True)
    assert_equal(recomputed, kept, options)
    assert kept["losses"][0] != pytest.approx(alone(optimizer="lamb")["losses"][0], abs=1e-4)
    assert kept["sizes"]["updates"] == len(RATES)


LAYOUTS: list[tuple[dict[str, Any], dict[str, Any]]] = [  # of four processes, and one process that has the same batch
    (
        {"task": "classification", "layers": 1, "dropout": True},
        {"task": "classification", "layers": 1, "dropout": True, "accumulation": 4},
    ),
    (
        {"stages": 2, "strategy": "inter_first", "accumulation": 2, "dropout": True, "optimizer": "lamb"},
        {"accumulation": 4, "dropout": True, "optimizer": "lamb"},
    ),
    ({"stages": 4, "layers": 4, "checkpoint_activations": True}, {"layers": 4}),  # with stages between the ends
]


@pytest.mark.oneflow
def test_processes_compute_what_one_does(tmp_path: Path) -> None:
    """Two hosts are two launchers on this one. Each layout has an engine of its own, in the same processes."""
    results = tmp_path / "results.json"
    finish(*launch([__file__, str(results)], 4, tmp_path / "logs", hosts=2))
    for (layout, options), found in zip(LAYOUTS, json.loads(results.read_bytes()), strict=True):
        assert_equal(found, alone(**options), layout)


def launch(program: Sequence[str], processes: int, logs: Path, *, hosts: int = 1) -> list[Popen[str]]:
    """Start a program, as [FILE, ...] or ["-m", MODULE, ...], in so many processes; several hosts are one launcher each."""
    (port,) = free_ports(1)
    launcher = [sys.executable, "-m", "oneflow.distributed.launch", "--logdir", str(logs), "--nnodes", str(hosts)]
    options = ["--nproc_per_node", str(processes // hosts), "--master_addr", "127.0.0.1", "--master_port", str(port)]
    return [start([*launcher, *options, "--node_rank", str(host), *program]) for host in range(hosts)]


@pytest.mark.oneflow
def test_a_pipeline_that_is_killed_resumes_to_the_same_bytes(workdir: Path, tmp_path: Path) -> None:
    uninterrupted, killed = tmp_path / "uninterrupted", tmp_path / "killed"
    options = [
        "--engine",
        "oneflow",
        "--nums-split",
        "2",
        "--batch-size",
        "8",
        "--grad-acc-steps",
        "2",
        "--save-every",
        "4",
        "--keep",
        "9",
    ]

    def run(out: Path) -> list[Popen[str]]:
        return launch(command(workdir, out, *options, "--steps", "14")[1:], 2, tmp_path / "logs")

    printed = finish(*run(uninterrupted))
    assert re.search("devices +2 x CPU in pipelines of 2, 2 processes\n", printed)
    killed.mkdir()  # with what a kill in step 7 leaves
    shutil.copy(uninterrupted / "checkpoint-000000004.safetensors", killed)
    log = (uninterrupted / "log.jsonl").read_bytes()
    (killed / "log.jsonl").write_bytes(log[: log.index(b'"step": 7') + 20])
    assert finish(*run(killed)).count("resuming after step") == 1  # one process reports
    assert losses(training_log(killed)) == losses(training_log(uninterrupted))
    last = "checkpoint-000000014.safetensors"
    assert (killed / last).read_bytes() == (uninterrupted / last).read_bytes()


@pytest.mark.oneflow
def test_a_bad_record_ends_all_processes_with_the_step_before_it_saved(tmp_path: Path) -> None:
    """The launcher kills the others as soon as one has ended."""
    data, out = RecordFolder(tmp_path / "data", "ofrecord"), tmp_path / "out"
    data.corrupt(index := data.first_read_at(4)[0])
    (data.folder / "model.json").write_text(replace(MODEL, vocab_size=30522, num_hidden_layers=1).to_json())
    words = f"-m trainer --engine oneflow --data {data.folder} --model {data.folder}/model.json --out {out} --steps 10"
    [run] = launch([*words.split(), "--batch-size", "4", "--seed", str(RECORD_SEED)], 2, tmp_path / "logs")
    printed = finish(run, status=1)
    assert f"trainer: error: {data.name(index)}" in printed
    assert saved_steps(out) == [3]


if __name__ == "__main__":
    done = [train(**layout) for layout, _ in LAYOUTS]
    if all(results["is_first"] for results in done):
        Path(sys.argv[1]).write_text(json.dumps(done))
