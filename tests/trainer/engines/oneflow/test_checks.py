"""What OneFlow's engine is asked in vain is one line, before OneFlow is loaded and waits for other processes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bertprep.errors import UsageError
from tests.trainer.test_data import write_data
from trainer.engines import check_engine
from trainer.engines.oneflow import Process, read_process
from trainer.model_config import ModelConfig
from trainer.settings import EngineSettings

FOUR = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
TINY = ModelConfig.preset("tiny")  # of 2 layers


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stages": 3}, "--stages 3: the model has 2 layers"),
        ({"deterministic": "off"}, "--deterministic off: OneFlow has no such choice"),
        ({"xla": "on"}, "--xla: OneFlow has none; leave it out"),
        (
            {"hosts": ("a:1", "b:1"), "host_rank": 0},
            "--hosts: OneFlow learns of its processes from its launcher; start them with python -m on",
        ),
        ({"devices": 4}, "--devices 4: OneFlow has one device in a process; start 4 processes with python -m oneflow.distr"),
        ({"eager": True, "stages": 2}, "--eager --stages 2: a pipeline is a graph; leave --eager out"),
        ({"eager": True, "checkpoint_activations": True}, "--eager --checkpoint-activations: only a graph computes"),
    ],
)
def test_settings_that_cannot_be_met(settings: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in FOUR.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError) as error:
        check_engine(EngineSettings(engine="oneflow", **settings), TINY)
    assert str(error.value).startswith(message)


def test_processes_must_be_a_multiple_of_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**FOUR, "WORLD_SIZE": "3"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match="--stages 2: must divide the number of processes, which is 3; start a multiple of 2"):
        check_engine(EngineSettings(engine="oneflow", stages=2), TINY)
    monkeypatch.setenv("WORLD_SIZE", "4")
    check_engine(EngineSettings(engine="oneflow", stages=2), TINY)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stages": 0}, "--stages 0: must be at least 1"),
        ({"strategy": "sideways"}, "--strategy sideways: unknown; choose one of intra_first, inter_first"),
    ],
)
def test_settings_that_no_engine_has(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        EngineSettings(engine="oneflow", **settings)


@pytest.mark.parametrize(
    ("settings", "option"),
    [
        ({"stages": 2}, "--stages 2"),
        ({"eager": True}, "--eager"),
    ],
)
def test_what_only_oneflow_has_is_refused_with_tensorflow(settings: dict[str, Any], option: str) -> None:
    with pytest.raises(UsageError, match=f"{option}: only OneFlow's engine has it; take --engine oneflow, or leave it out"):
        check_engine(EngineSettings(engine="tensorflow", **settings), TINY)


def test_the_place_of_a_process() -> None:
    assert read_process({}) == Process(rank=0, world_size=1, local_rank=0)
    assert read_process(FOUR) == Process(rank=1, world_size=4, local_rank=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"WORLD_SIZE": ""}, "RANK is set in the environment, WORLD_SIZE is not; start processes with python -m oneflow.distr"),
        ({"MASTER_PORT": ""}, "RANK is set in the environment, MASTER_PORT is not"),
        ({"RANK": "one"}, "RANK, WORLD_SIZE, LOCAL_RANK: must be numbers in the environment"),
        ({"RANK": "4"}, "RANK 4, LOCAL_RANK 1: there are 4 processes"),
        ({"LOCAL_RANK": "2"}, "RANK 1, LOCAL_RANK 2: there are 4 processes"),
    ],
)
def test_an_environment_that_is_not_the_launchers(change: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_process({**FOUR, **change})


def run_trainer(data: Path, *options: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "trainer", "--data", str(data), "--engine", "oneflow", "--model", "tiny", *options]
    return subprocess.run(command, text=True, capture_output=True, timeout=60, env={**os.environ, **environment})


def test_an_impossible_layout_is_a_line_before_the_process_group_starts(tmp_path: Path) -> None:
    """There is nobody at the master's port: a process that tried would wait."""
    write_data(tmp_path / "a", records=128)
    ended = run_trainer(tmp_path / "a", "--stages", "3", "--out", str(tmp_path / "out"), **FOUR)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("trainer: error: --stages 3: the model has 2 layers")
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("alias", ["--stages", "--nums-split"])
def test_without_oneflow_its_installation_is_told(alias: str, tmp_path: Path) -> None:
    write_data(tmp_path / "a", records=128)
    (tmp_path / "hidden" / "oneflow").mkdir(parents=True)  # as where a library of it is missing
    (tmp_path / "hidden" / "oneflow" / "__init__.py").write_text("raise ImportError('libcublas.so.11: cannot open it')")
    paths = f"{tmp_path / 'hidden'}:{Path(__file__).parents[4]}"
    ended = run_trainer(tmp_path / "a", alias, "1", "--out", str(tmp_path / "out"), PYTHONPATH=paths)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1] == (
        "trainer: error: --engine oneflow: libcublas.so.11: cannot open it; pip install '.[oneflow]' in a clone, in an "
        "environment of Python 3.10, as docs/oneflow.md says"
    )
