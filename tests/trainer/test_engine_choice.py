"""Which engine a run takes, with which processes, in which precision; all of it is known without a framework."""

import importlib
import importlib.metadata
import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertprep.errors import UsageError
from trainer.engines import Batch, Engine, Execution, Processor, dropout_keys
from trainer.engines.choice import (
    PACKED,
    check_engine,
    choose_engine,
    choose_execution,
    known_devices,
    open_engine,
)
from trainer.model_config import ModelConfig
from trainer.settings import EngineSettings, OptimizerSettings
from trainer.tasks.pretraining import Pretraining

H100 = Processor("NVIDIA H100", (9, 0), is_gpu=True)
A100 = Processor("NVIDIA A100", (8, 0), is_gpu=True)
T4 = Processor("Tesla T4", (7, 5), is_gpu=True)
P100 = Processor("Tesla P100", (6, 0), is_gpu=True)
UNKNOWN = Processor("Some GPU", is_gpu=True)
CPU = Processor()


@pytest.mark.parametrize(
    ("settings", "processors", "precision", "xla", "why"),
    [
        ({}, [H100], "bf16", True, "--amp off"),
        ({}, [A100], "bf16", True, "--amp off"),
        ({}, [H100, T4], "fp16", True, "--amp off"),
        ({}, [P100], "off", True, "Tesla P100"),
        ({}, [H100, UNKNOWN], "off", True, "capability of Some GPU"),
        ({"amp": "off", "xla": "off"}, [H100], "off", False, ""),
        ({"amp": "bf16", "xla": "on"}, [P100], "bf16", True, ""),
        ({}, [CPU], "off", False, ""),
        ({"amp": "fp16"}, [CPU], "fp16", False, ""),
        ({"engine": "oneflow"}, [CPU], "off", False, ""),
        ({"engine": "torch"}, [CPU], "off", False, ""),
        ({"engine": "torch"}, [H100], "bf16", False, "--amp off"),
        ({"engine": "oneflow"}, [H100], "off", False, "--amp fp16"),
    ],
)
def test_devices_get_the_fastest_precision_that_all_have(
    settings: dict[str, Any], processors: list[Processor], precision: str, xla: bool, why: str
) -> None:
    found = choose_execution(EngineSettings(**{"engine": "tensorflow", **settings}), processors)
    assert (found.precision, found.xla, bool(found.why)) == (precision, xla, bool(why))
    assert why in found.why
    assert found.why in found.describe()


@pytest.mark.parametrize(
    ("installed", "name", "why"),
    [
        ([], "tensorflow", ""),  # and so it is named where it is missing
        (["oneflow"], "oneflow", "only"),
        (["torch"], "torch", "only"),
        (["tensorflow", "torch"], "torch", "there is a GPU that PyTorch could use; --engine tensorflow is installed too"),
        (["tensorflow", "torch", "+cpu"], "tensorflow", "there is no GPU that PyTorch could use; --engine torch is installed"),
        (["tensorflow", "oneflow"], "tensorflow", "--engine oneflow is installed too"),
    ],
)
def test_the_engine_is_the_one_installed_or_the_one_that_suits(
    installed: list[str], name: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("trainer.engines.choice.may_have_accelerator", lambda: True)
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: package in installed or None)
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "2.13.0" + "+cpu" * ("+cpu" in installed))
    found, because = choose_engine(EngineSettings())
    assert (found.engine, bool(because)) == (name, bool(why))
    assert why in because
    takes_packed = [each for each in PACKED if each in installed]
    assert choose_engine(EngineSettings(), packed=True)[0].engine == (*takes_packed, name)[0]


def test_devices_are_those_of_all_hosts_or_unknown_without_the_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    two_hosts = EngineSettings(engine="torch", devices=4, hosts=("a:1", "b:1"), host_rank=0)
    monkeypatch.setattr("trainer.engines.choice.may_have_accelerator", lambda: False)
    assert known_devices(two_hosts) == (8, False)
    assert known_devices(EngineSettings(engine="torch")) == (1, False)
    monkeypatch.setattr("trainer.engines.choice.may_have_accelerator", lambda: True)
    assert known_devices(two_hosts) == (None, None)


@pytest.mark.parametrize(("devices", "name"), [(1, "NVIDIA A100"), (8, "8 x NVIDIA A100")])
def test_several_devices_are_counted_in_their_name(devices: int, name: str) -> None:
    assert KeyEngine(EngineSettings(engine="torch"), A100, Execution("bf16"), devices=devices).device_name == name


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"xla": "on"}, "--xla: PyTorch compiles no step with XLA"),
        ({"stages": 2}, "--stages: only OneFlow has pipelines"),
    ],
)
def test_what_pytorchs_engine_has_not_is_a_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}"):
        check_engine(EngineSettings(engine="torch", **settings))


def test_an_engine_by_name_needs_no_reason_and_a_missing_one_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    requested = EngineSettings(engine="torch")
    assert choose_engine(requested) == (requested, "")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert choose_engine(EngineSettings())[0].engine == "tensorflow"
    monkeypatch.setitem(sys.modules, "trainer.engines.torch", None)
    for function in (check_engine, open_engine):
        with pytest.raises(UsageError, match=r"--engine torch: .*not installed.*; pip install 'bertprep\[torch\]'"):
            function(requested)


def test_a_library_that_does_not_load_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "oneflow").mkdir()
    (tmp_path / "oneflow" / "__init__.py").write_text("raise ImportError('libcublas.so.11: cannot open it')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        UsageError, match=r"--engine oneflow: libcublas\.so\.11: cannot open it; pip install .* docs/how-to/pretraining.md"
    ):
        open_engine(EngineSettings(engine="oneflow"))


def tf_config(worker: str = "a:1", index: int = 0, kind: str = "worker", **cluster: list[str]) -> str:
    return json.dumps({"cluster": {"worker": [worker, "b:1"], **cluster}, "task": {"type": kind, "index": index}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (tf_config(chief=["c:1"]), "workers alone.*--hosts"),
        (tf_config(kind="evaluator"), "workers alone"),
        (tf_config(index=2), "--host-rank 2: there are 2 hosts"),
        (tf_config("a"), "'a' is not HOST:PORT"),
        ("{", "--hosts"),
    ],
)
def test_processes_are_those_of_hosts_or_tf_config(text: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = EngineSettings(engine="torch")
    monkeypatch.setenv("TF_CONFIG", tf_config(index=1))
    named = replace(given, hosts=("a:1", "b:1"), host_rank=1)
    assert choose_engine(given)[0] == named
    named = replace(given, hosts=("c:1", "d:1"), host_rank=0)
    assert choose_engine(named)[0] == named
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(UsageError, match=f"TF_CONFIG: .*{message}"):
        choose_engine(given)


def test_dropout_keys_are_those_of_each_micro_batch_on_any_rank() -> None:
    """The bits are pinned: a run must resume with the same masks, whatever the versions of the packages."""
    keys = dropout_keys(1, 8, range(4))
    assert keys.tolist()[:2] == [[1061303675, 1047225702], [508857249, 691098155]]
    np.testing.assert_array_equal(dropout_keys(1, 8, range(2, 4)), keys[2:])
    assert len({tuple(key) for key in (*keys, *dropout_keys(1, 9, range(4)), *dropout_keys(2, 8, range(4)))}) == 12


class KeyEngine(Engine):
    """An engine that does nothing but to note the dropout keys of a step."""

    packages = (np,)

    def start(self, batch: Batch, learning_rate: float, accumulation: int) -> Any:  # noqa: ARG002
        self.keys = batch["dropout_key"]
        return np.zeros(3 * len(self.task.outputs) + 3)


def test_a_step_has_the_dropout_of_the_runs_seed() -> None:
    """On the second of two processes, which has the third and the fourth micro-batch."""
    engine = KeyEngine(EngineSettings(engine="torch"), Processor(), Execution("off"), devices=2, rank=1, processes=2)
    for seed in (1, 2):
        engine.prepare(ModelConfig.preset("tiny"), OptimizerSettings(), seed=seed, task=Pretraining())
        engine.train({}, step=8, learning_rate=0.1, accumulation=2, stop=False)()
        np.testing.assert_array_equal(engine.keys, dropout_keys(seed, 8, range(2, 4)))
