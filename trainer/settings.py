"""The settings of a run: frozen, checked when built, and what a checkpoint says it was made with.

A field made by `option` is an option of the command line as well, with its default, its range and its help.
"""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from bertprep.config import InstanceSettings
from bertprep.errors import UsageError
from bertprep.files.places import is_object
from bertprep.options import add_options, check_options, option, read_options, size_in_bytes
from bertprep.progress import Reporter
from bertprep.records.data_sets import DataSet, load_vocabulary_of
from bertprep.records.live import LiveExamples, is_cased
from trainer.model_config import ModelConfig
from trainer.schedule import Schedule
from trainer.tasks import Task
from trainer.tasks.pretraining import PRETRAINING

ENGINES = ("tensorflow", "jax", "oneflow")
AUTO = "auto"
OPTIMIZERS = ("adam", "lamb")
PRECISIONS = ("off", "fp16", "bf16")
SWITCHES = ("on", "off")
STRATEGIES = ("intra_first", "inter_first")
MOST = 1 << 20
"""Sequences of a micro-batch, and micro-batches of a step; more are a slip of the finger."""
_NOT_DECAYED = re.compile("LayerNorm|layer_norm|bias")


def check_hosts(given: str, hosts: Sequence[str]) -> None:
    """Raise `UsageError` for a process of a run that is not HOST:PORT; `given` says where it comes from."""
    for host in hosts:
        name, _, port = host.rpartition(":")
        if not name or not port.isdecimal():
            raise UsageError(f"{given}: {host!r} is not HOST:PORT, such as node0:12345")


def check_folder(option: str, folder: Path) -> None:
    """Raise `UsageError` where a folder that is to be made or written to cannot be one."""
    if is_object(folder):  # where anything may be a folder
        return
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
    if not there.is_dir():
        raise UsageError(f"{option} {folder}: {there} is not a folder; name another path")


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """What runs the steps, and on what."""

    engine: str = option(
        AUTO, "framework that runs the steps (default: the one installed; of several jax with a GPU or TPU, else tensorflow)",
        choices=(AUTO, *ENGINES),
    )  # fmt: skip
    devices: int | None = option(
        None, "GPUs of this host, or logical devices of its CPU where it has none (default: all GPUs, or one CPU)", least=1
    )
    amp: str = option(
        AUTO, "mixed precision (default: auto, the fastest that the GPUs support, off on CPUs)", choices=(AUTO, *PRECISIONS)
    )
    loss_scale: float = option(
        2.0**15, "initial loss scale of --amp fp16, a power of two; it is adapted during training", metavar="FLOAT", least=1
    )
    xla: str = option(
        AUTO, "tensorflow: compile each step with XLA; --xla alone is --xla on (default: auto, on for GPUs, off for CPUs)",
        choices=(AUTO, *SWITCHES), const="on",
    )  # fmt: skip
    deterministic: str = option(
        "on", "not oneflow: off lets GPUs sum in any order, so the last digits may differ between runs", choices=SWITCHES
    )
    stages: int = option(
        1, "oneflow: cut the layers into this many pipeline stages, a process each", also=("--nums-split",), least=1
    )
    strategy: str = option(
        "intra_first", "oneflow: keep a pipeline within a host (intra_first) or lay it across hosts (inter_first)",
        choices=STRATEGIES,
    )  # fmt: skip
    checkpoint_activations: bool = option(
        False, "jax, oneflow: keep only the inputs of each layer and recompute the rest in the backward pass (default: off)",
        also=("--remat",),
    )  # fmt: skip
    eager: bool = option(False, "oneflow: run without a compiled graph (default: off)")
    hosts: tuple[str, ...] = option(
        (), "all processes of the run, the same in each (default: those of TF_CONFIG, or this one alone)",
        metavar="HOST:PORT,...", separator=",",
    )  # fmt: skip
    host_rank: int | None = option(None, "rank of this process among the hosts, from 0 (needed with --hosts)", least=0)
    why_engine: str = ""  # where none was asked for

    def __post_init__(self) -> None:
        check_options(self)
        check_hosts(f"--hosts {','.join(self.hosts)}", self.hosts)
        if self.hosts and self.host_rank is None:
            raise UsageError(f"--hosts {','.join(self.hosts)}: needs --host-rank, the rank of this process among them, from 0")
        if self.host_rank is not None and not self.hosts:
            raise UsageError(f"--host-rank {self.host_rank}: needs --hosts, which names all processes")
        if self.host_rank is not None and self.host_rank >= len(self.hosts):
            raise UsageError(f"--host-rank {self.host_rank}: there are {len(self.hosts)} hosts, counted from 0")
        if self.loss_scale != EngineSettings.loss_scale and self.amp != "fp16":
            raise UsageError(f"--loss-scale {self.loss_scale:g}: applies to --amp fp16 alone, not to {self.amp}")
        if not math.log2(self.loss_scale).is_integer():
            raise UsageError(f"--loss-scale {self.loss_scale:g}: must be a power of two")


@dataclass(frozen=True, kw_only=True)
class OptimizerSettings:
    """What does not change from update to update; the defaults are constants in the originals.

    The mathematics is each engine's own, since it runs on a framework's tensors; tests hold each to the same traces.
    """

    name: str = option("adam", "optimizer", name="--optimizer", choices=OPTIMIZERS)
    bias_correction: bool = option(
        False, "adam: correct the moments for starting at 0, as AdamW does; lamb always does (default: off)"
    )
    weight_decay: float = option(0.01, "decoupled weight decay, of all variables but biases and LayerNorm", least=0)
    beta_1: float = option(0.9, "decay of the running mean of the gradients", name="--beta1", above=0, below=1)
    beta_2: float = option(0.999, "decay of the running mean of their squares", name="--beta2", above=0, below=1)
    epsilon: float = option(1e-6, "added to the root of that second mean, to divide by", above=0)
    clip_norm: float = option(1.0, "gradients of a global batch are scaled down to at most this norm", above=0)

    def __post_init__(self) -> None:
        check_options(self)

    def describe(self) -> str:
        """The name, and whatever is not as in the originals."""
        named = self.name + (" with bias correction" if self.bias_correction else "")
        numbers = [each for each in fields(self) if isinstance(each.default, float)]
        changed = [each.name for each in numbers if getattr(self, each.name) != each.default]
        return ", ".join(
            [named, *(f"{name.replace('beta_', 'beta').replace('_', ' ')} {getattr(self, name):g}" for name in changed)]
        )


def is_decayed(name: str) -> bool:
    """Whether weight decay applies to the variable of this name.

    >>> is_decayed("bert/pooler/dense/kernel"), is_decayed("cls/predictions/output_bias")
    (True, False)
    """
    return _NOT_DECAYED.search(name) is None


@dataclass(frozen=True, kw_only=True)
class LiveSettings:
    """How the examples of a phase are made of its token shards."""

    instances: InstanceSettings
    vocabulary: Path
    repeat_epochs: bool = False

    def open(self, data: Sequence[Path], split: str, *, seed: int, shuffle_shards: int) -> LiveExamples:
        """The examples of a split; `seed` is that of their order."""
        return LiveExamples(
            data, split, settings=self.instances, vocab=self.vocabulary, seed=seed, shuffle_shards=shuffle_shards,
            repeat_epochs=self.repeat_epochs, reporter=Reporter(),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ExampleOptions:
    """What is asked of the examples of token shards beside create's settings."""

    data_seed: int = option(
        InstanceSettings.seed, "random seed of the examples, create's --seed; that of the run is --seed", least=0
    )
    repeat_epochs: bool = option(False, "make the same examples in every epoch, as records are (default: draw them anew)")

    def __post_init__(self) -> None:
        check_options(self)


_OF_CREATE_ALONE = ("seed", "cased")


def add_example_options(parser: argparse.ArgumentParser, *, without: Collection[str] = ()) -> None:
    """A group of options for the examples of token shards, without those that come from elsewhere."""
    group = parser.add_argument_group("examples of token shards", "Settings of create, for token shards alone.")
    add_options(group, InstanceSettings, without=(*_OF_CREATE_ALONE, *without), only_given=True)
    add_options(group, ExampleOptions, without=without, only_given=True)


def read_live_settings(namespace: argparse.Namespace, tokens: DataSet, vocabulary: Path | None, **more: Any) -> LiveSettings:
    """How examples are made of token shards, by the options that were given and `more` of create's settings."""
    asked = read_options(ExampleOptions, namespace)
    instances = read_options(InstanceSettings, namespace, **{**more, "seed": asked.data_seed, "cased": is_cased(tokens)})
    loaded = load_vocabulary_of(tokens, vocabulary)
    return LiveSettings(instances=instances, vocabulary=loaded.path, repeat_epochs=asked.repeat_epochs)


def refuse_example_options(namespace: argparse.Namespace, records: Path, *, also: Sequence[str] = ()) -> None:
    """Raise `UsageError` where settings of examples are given for records, which have theirs; `also` are more such names."""
    kinds = fields(InstanceSettings), fields(ExampleOptions)
    names = [each.name for kind in kinds for each in kind if each.name not in (*_OF_CREATE_ALONE, "seq", "pred")]
    if given := [*also, *(name for name in names if hasattr(namespace, name))]:
        raise UsageError(
            f"--{given[0].replace('_', '-')}: is for token shards, {records} holds records, which are made already; leave it "
            "out, or name token shards"
        )


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Part of a run on data of one shape; the next phase keeps the weights and starts everything else afresh."""

    data: tuple[Path, ...]  # folders of records, each weighted by its size
    seq: int
    schedule: Schedule  # which has the phase's steps
    batch_size: int = 32  # sequences of a device in a micro-batch
    accumulation: int = 1  # micro-batches of a step
    has_test: bool = True  # all of the folders hold a test split
    shuffle_shards: int = 0  # whose records are permuted together; 0: all records
    live: LiveSettings | None = None  # for folders of token shards

    def __post_init__(self) -> None:
        if not (1 <= self.batch_size <= MOST and 1 <= self.accumulation <= MOST):
            asked = f"--batch-size {self.batch_size}, --accumulate {self.accumulation}"
            raise UsageError(f"{asked}: must be at least 1 and at most {MOST}")

    @property
    def steps(self) -> int:
        return self.schedule.steps

    def describe_reading(self) -> dict[str, Any]:
        """What a checkpoint says of how records are made and ordered; nothing where all are permuted together."""
        reading: dict[str, Any] = {"shuffle_shards": self.shuffle_shards} if self.shuffle_shards else {}
        if self.live:
            reading["examples"] = {**asdict(self.live.instances), "repeat_epochs": self.live.repeat_epochs}
        return reading


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """What a run does; with the engine's settings and the number of devices, all that its numbers depend on."""

    model: ModelConfig
    phases: tuple[Phase, ...]
    optimizer: OptimizerSettings
    out: Path
    task: Task = PRETRAINING
    vocabulary: Path | None = None  # the vocab.txt of the records, which is kept with the model
    cased: bool | None = None  # whether it has upper case, where the records' manifest says
    init: Path | None = option(
        None, "start from the weights of a checkpoint, a model.safetensors or Google's bert_model.ckpt, or of a folder with "
        "one of them (default: random weights)",
        metavar="PATH", urls=True,
    )  # fmt: skip
    resume: bool = option(True, "refuse an --out that holds a run (default: resume that run)")
    lengthen: bool = option(
        False, "resume a run that was started with fewer --steps, although its learning rates so far were those of the shorter "
        "run (default: only while they were the same)",
    )  # fmt: skip
    cache_size: int | None = option(
        None, "how much of records at URLs is kept on this machine at a time, as 200GB or 1.5TB; they must fit (default: "
        "$BERTPREP_OBJECT_CACHE_GB, or 20GB)",
        metavar="SIZE", parse=size_in_bytes, least=0,
    )  # fmt: skip
    seed: int = option(12345, "random seed of the initial weights, of dropout and of the order of the records", least=0)
    log_every: int = option(100, "steps between lines of the log", least=1)
    eval_every: int = option(1000, "steps between evaluations on the test split; 0: at the end of a phase only", least=0)
    eval_sequences: int = option(10_000, "sequences of an evaluation, the first of the test split; 0: all", least=0)
    save_every: int = option(1000, "steps between checkpoints", least=1)
    keep: int = option(3, "checkpoints that are kept, the newest", least=1)
    keep_best: bool = option(
        False, "also keep the checkpoint of the lowest loss on the test split, as checkpoint-best.safetensors (default: off)"
    )
    skip_bad_records: int = option(
        0, "damaged records, or records with ids beyond the model's, that may be skipped; one more stops the run, with a "
        "checkpoint",
        least=0,
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_options(self)
        check_folder("--out", self.out)
        if not self.phases:
            raise UsageError("a run without phases; name at least one, such as --phases 128:0.9,512:0.1")
        if self.keep_best and not all(phase.has_test for phase in self.phases):
            raise UsageError("--keep-best: the records have no test split to tell which is best; leave it out")

    @property
    def steps(self) -> int:
        """Of all phases."""
        return sum(phase.steps for phase in self.phases)

    def phase_of(self, step: int) -> tuple[int, int]:
        """The number of the phase that makes step number `step` of the run, and the step's number in it, all from 0."""
        for number, phase in enumerate(self.phases):
            if step < phase.steps:
                return number, step
            step -= phase.steps
        raise IndexError(f"the run has {self.steps} steps")
