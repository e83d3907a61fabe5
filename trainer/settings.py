"""The options of training: engine, optimizer and run, as frozen dataclasses that are checked when built.

A field made by `option` is an option of the command line as well, with its default, its range and its help.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from bertprep.config import RECORD_FORMATS
from bertprep.errors import UsageError
from bertprep.files.paths import is_object, path_arg
from bertprep.options import Settings, command_line, option
from bertprep.tokens.live import DEFAULT_GROUP
from trainer.model_config import PRESETS

ENGINES = ("tensorflow", "torch", "oneflow")
_OTHER_NAMES = {"pytorch": "torch", "tf": "tensorflow"}
"""Common names of engines, and the names that are used here."""
AUTO = "auto"
PRECISIONS = ("off", "fp16", "bf16")
SWITCHES = ("on", "off")
STRATEGIES = ("intra_first", "inter_first")


OPTIMIZERS = {"adam": 1e-4, "lamb": 2e-3}
"""The optimizers by name, with their default learning rates; their formulas are in `trainer.optimizers`."""


@dataclass(frozen=True, kw_only=True)
class EngineSettings(Settings):
    """The framework, devices and precision that run the steps."""

    engine: str = option(
        AUTO,
        "framework (default: the one installed; if several are, torch with a GPU, else tensorflow)",
        choices=(AUTO, *ENGINES),
    )
    devices: int | None = option(
        None, "GPUs of this host, or logical devices of its CPU if it has no GPU (default: all GPUs, or one CPU)", least=1
    )
    amp: str = option(
        AUTO, "mixed precision (default: auto, the fastest that the GPUs support, off on CPUs)", choices=(AUTO, *PRECISIONS)
    )
    xla: str = option(
        AUTO, "tensorflow: compile each step with XLA (default: auto, on for GPUs)", choices=(AUTO, *SWITCHES), const="on"
    )
    deterministic: str = option(
        "on", "not oneflow: off lets GPUs sum in any order, so the last digits may differ between runs", choices=SWITCHES
    )
    stages: int = option(1, "oneflow: split the layers into this many pipeline stages", also=("--nums-split",), least=1)
    strategy: str = option(
        "intra_first", "oneflow: place each pipeline within a host, or across hosts with inter_first", choices=STRATEGIES
    )
    checkpoint_activations: bool = option(
        False, "not tensorflow: recompute each layer in the backward pass, to save memory (default: off)", also=("--remat",)
    )
    hosts: tuple[str, ...] = option(
        (),
        "addresses of all processes, the same list for each (default: from TF_CONFIG, or this process alone)",
        metavar="HOST:PORT,...",
        separator=",",
    )
    host_rank: int | None = option(None, "rank of this process among the hosts, from 0 (required with --hosts)", least=0)

    def __post_init__(self) -> None:
        if name := _OTHER_NAMES.get(self.engine.lower()):
            raise UsageError(f"--engine {self.engine}: is called {name} here; give --engine {name}")
        super().__post_init__()
        for host in self.hosts:
            name, _, port = host.rpartition(":")
            if not name or not port.isdecimal():
                raise UsageError(f"--hosts {','.join(self.hosts)}: {host!r} is not HOST:PORT, such as node0:12345")
        if bool(self.hosts) != (self.host_rank is not None):
            raise UsageError(
                "--hosts lists all processes, and --host-rank is the index of this one, from 0; give both or neither"
            )
        if self.host_rank is not None and self.host_rank >= len(self.hosts):
            raise UsageError(f"--host-rank {self.host_rank}: there are {len(self.hosts)} hosts, counted from 0")


@dataclass(frozen=True, kw_only=True)
class OptimizerSettings(Settings):
    """The settings of the optimizer. Their defaults are constants in Google's and NVIDIA's BERT."""

    name: str = option("adam", "optimizer", name="--optimizer", choices=tuple(OPTIMIZERS))
    bias_correction: bool = option(
        False, "adam: correct the moments for starting at 0, as AdamW does; lamb always does (default: off)"
    )
    weight_decay: float = option(0.01, "decoupled weight decay of all variables except biases and LayerNorm", least=0)
    beta_1: float = option(0.9, "decay of the running mean of the gradients", name="--beta1", above=0, below=1)
    beta_2: float = option(0.999, "decay of the running mean of squared gradients", name="--beta2", above=0, below=1)
    epsilon: float = option(1e-6, "added to the root of the mean of squares, which divides the mean of the gradients", above=0)
    clip_norm: float = option(1.0, "maximum norm of a global batch's gradients; larger ones are scaled down to it", above=0)

    def describe(self) -> str:
        """Return the optimizer's name, and the options that differ from their defaults, as on the command line."""
        return " ".join([self.name, *command_line(replace(self, name=OptimizerSettings.name))])


SCHEDULES = ("google", "nvidia")
MAX_BATCH = 1 << 20
"""The most sequences in a micro-batch, and the most micro-batches in a step; more is a typo."""
MAX_EPOCHS = 100_000
MAX_SEQ = 1 << 20
MAX_STEPS = 10**10
"""With a global batch of a million, the index of an example is still far below 2**64."""
BATCH_SIZE = "sequences per device in a micro-batch"


class Wanted(NamedTuple):
    """The data sets that a run needs: their kind, a setting in their manifests, its value, and the command that makes them."""

    kind: str
    setting: str  # empty: any data set of the kind
    value: Any
    make: str


@dataclass(frozen=True, kw_only=True)
class RunOptions(Settings):
    """Options of a training run, except those of engine and optimizer. Each command has a subclass with its own defaults."""

    data: tuple[Path, ...] = option(
        (),
        "folders of records; several are mixed, token shards also by weights such as wiki=0.7 code=0.3 (default: the newest "
        "in the workspace)",
        metavar="DIR[=WEIGHT]",
        check=path_arg,
    )
    workdir: Path = option(Path("data"), "workspace", metavar="DIR", check=path_arg)
    format: str | None = option(None, "record format (default: that of the newest records)", choices=RECORD_FORMATS)
    init: str | None = option(
        None, "weights to start from: a file, a folder with one, or the ID of a download (default: random)", metavar="PATH|ID"
    )
    model: str | None = option(
        None, f"{', '.join(PRESETS)}, or a bert_config.json (default: base with an accelerator, else tiny)", metavar="NAME|FILE"
    )
    dropout: bool = option(True, "train without dropout, to compare runs (default: with dropout)")
    attention_dropout: float | None = option(
        None, "dropout of attention weights; 0 allows fused attention (default: the model's)", metavar="FLOAT", least=0, below=1
    )
    out: Path | None = option(
        None, "checkpoints, log and plot; a run there is resumed (default: WORKDIR/models/NAME)", metavar="DIR", check=path_arg
    )
    steps: int | None = option(None, "number of updates (default: as many as the epochs have)", least=1, most=MAX_STEPS)
    epochs: float | None = option(None, "passes over the training records (default: 1)", above=0, most=MAX_EPOCHS)
    batch_size: int = option(32, BATCH_SIZE, least=1, most=MAX_BATCH)
    accumulation: int = option(
        1, "micro-batches in a step", name="--accumulate", also=("--grad-acc-steps",), least=1, most=MAX_BATCH
    )
    learning_rate: float | None = option(
        None, "peak learning rate, for a global batch of any size (default: 1e-4 with adam, 2e-3 with lamb)",
        name="--lr", above=0,
    )  # fmt: skip
    warmup_steps: int | None = option(None, "number of warmup steps (default: the fraction of --warmup)", least=0)
    warmup: float = option(0.1, "fraction of the steps in which the learning rate rises", least=0, most=1)
    schedule: str | None = option(
        None, "how the learning rate decays (default: google; pretraining with lamb: nvidia)", choices=SCHEDULES
    )
    shuffle_shards: int | None = option(
        None, f"shards whose records are shuffled together (default: all; for token shards {DEFAULT_GROUP})", least=1
    )
    seed: int = option(12345, "random seed of the initial weights, dropout, and the order of the records", least=0)
    log_every: int | None = option(
        None, "steps between lines of the log (default: 100; fewer in runs below 4,000 steps)", least=1
    )
    eval_every: int = option(1000, "steps between evaluations on the test split; 0: at the end only", least=0)
    eval_sequences: int = option(10_000, "sequences per evaluation, from the start of the test split; 0: all", least=0)
    save_every: int = option(1000, "steps between checkpoints", least=1)
    keep: int = option(3, "how many of the newest checkpoints to keep", least=1)
    keep_best: bool = option(False, "also keep the checkpoint of the lowest test loss (default: off)")
    resume: bool = option(True, "refuse an --out that contains a run (default: resume that run)")
    lengthen: bool = option(False, "resume with more --steps and the learning rates of the longer run (default: refuse)")
    skip_bad_records: int = option(0, "bad records that a process may skip; one more stops the run, with a checkpoint", least=0)
    default_epochs: ClassVar[float] = 1.0

    @property
    def wanted(self) -> Wanted:
        """The data sets of the workspace that the run may use if --data is not given."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        super().__post_init__()
        if None not in (self.epochs, self.steps):
            raise UsageError(f"--epochs {self.epochs:g}: cannot be combined with --steps {self.steps}; leave one of them out")
        if self.out is not None:
            check_folder("--out", self.out)


def check_folder(named: str, folder: Path) -> None:
    """Raise `UsageError` if an output folder cannot be made or is not a folder."""
    if is_object(folder):  # any name may be a folder there
        return
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
    if not there.is_dir():
        raise UsageError(f"{named} {folder}: {there} is not a folder; name another path")
