"""`python -m trainer pretrain`: the settings of a run from what is asked for; what was not asked for is chosen, and said."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bertprep.config import RECORD_FORMATS, InstanceSettings
from bertprep.errors import UsageError
from bertprep.files.places import place
from bertprep.options import add_options, check_options, option, read_options
from bertprep.records.data_sets import DataSet
from bertprep.workspace.layout import TOKENS
from trainer.data import (
    DEFAULT_SEQ,
    Data,
    check_fits_model,
    check_same_kind,
    check_same_vocabulary,
    find_data,
    find_tokens,
    holds_tokens,
    load_model,
    name_data,
    name_tokens,
)
from trainer.engines import Engine, Machine, choose_engine
from trainer.model_config import PRESETS
from trainer.phases import RECORDS, Entry, PhaseOptions, check_learning, make_phases, read_phases
from trainer.settings import (
    EngineSettings,
    LiveSettings,
    OptimizerSettings,
    Phase,
    RunSettings,
    add_example_options,
    read_live_settings,
    refuse_example_options,
)
from trainer.start import describe_engine, describe_model, describe_phase, start
from trainer.tasks.pretraining import MASKED_LM, pretraining_on
from trainer.weights import find_weights


@dataclass(frozen=True, kw_only=True)
class PretrainOptions:
    """What is asked of a run beside its phases and the settings of its parts."""

    format: str | None = option(
        None, "record format, or tokens, of which examples are made as they are read (default: that of the newest records)",
        choices=(*RECORD_FORMATS, TOKENS),
    )  # fmt: skip
    workdir: Path = option(Path("data"), "workspace", metavar="DIR", urls=True)
    vocab: Path | None = option(None, "vocabulary (default: the vocab.txt beside the records)", metavar="FILE", urls=True)
    model: str | None = option(
        None, f"{', '.join(PRESETS)}, or a bert_config.json (default: base with an accelerator, else tiny)", metavar="NAME|FILE"
    )
    dropout: bool = option(True, "train without dropout, to compare runs (default: with dropout)")
    attention_dropout: float | None = option(
        None, "dropout rate of attention weights, and 0 the way to fused attention on GPUs (default: the model's)",
        metavar="FLOAT", least=0, below=1,
    )  # fmt: skip
    out: Path | None = option(
        None, "checkpoints, log and plot; a run that is there is resumed (default: in WORKDIR/models, named by what it trains)",
        metavar="DIR", urls=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_options(self)


_OF_PHASES = ("seq", "pred")
_GROUPS: tuple[tuple[str, str | None, type], ...] = (
    ("data and steps", "With --phases, options of N[,N...] take one value for all phases, or one for each.", PhaseOptions),
    ("workspace and model", None, PretrainOptions),
    ("optimizer", None, OptimizerSettings),
    ("devices", None, EngineSettings),
    ("run", None, RunSettings),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of pretrain, in groups."""
    for title, description, settings in _GROUPS:
        add_options(parser.add_argument_group(title, description), settings)
    add_example_options(parser, without=_OF_PHASES)


class _Request:
    """What the command line asks for, with the data that it names; what depends on the devices is open."""

    def __init__(self, namespace: argparse.Namespace) -> None:
        """Raises `UsageError` where the options are wrong, do not go together, or name what is not there."""
        self._namespace = namespace
        self.options = read_options(PretrainOptions, namespace)
        self.engine = choose_engine(read_options(EngineSettings, namespace))
        self._phases = read_options(PhaseOptions, namespace)
        self._optimizer = read_options(OptimizerSettings, namespace)
        if namespace.init is not None:
            try:
                find_weights(namespace.init)
            except UsageError as error:
                raise UsageError(f"--init {error}") from error
        self._entries = read_phases(self._phases)
        self.data = _find_data(self._entries, self.options, namespace)
        if of_records := next((data for data in self.data if data.live is None), None):
            refuse_example_options(
                namespace, of_records.folders[0], also=["pred"] * any("pred" in phase for phase in self._entries)
            )

    def settings_on(self, machine: Engine | Machine) -> RunSettings:
        """The whole run on this machine; of one device, and no accelerator, where these are unknown."""
        devices, options = machine.devices or 1, self.options
        name = options.model if options.model is not None else "base" if machine.has_accelerator else "tiny"
        model = load_model(name, self.data, advice="name the file with --vocab, or a bert_config.json with --model")
        if options.attention_dropout is not None:
            model = replace(model, attention_probs_dropout_prob=options.attention_dropout)
        for data in self.data:
            check_fits_model(data, model, name)
        phases = make_phases(self._entries, self.data, self._phases, devices=devices, optimizer=self._optimizer.name)
        settings = read_options(
            RunSettings,
            self._namespace,
            model=model if options.dropout else model.without_dropout(),
            phases=phases,
            task=pretraining_on(self.data[0].kind),
            optimizer=self._optimizer,
            out=options.out or _default_out(options.workdir, name, phases, self._optimizer.name),
            vocabulary=next((each.vocabulary for each in self.data if each.vocabulary is not None), None),
            cased=next((each.cased for each in self.data if each.cased is not None), None),
        )
        check_learning(phases, self.data, devices=devices)
        return settings

    def needs_engine(self, machine: Machine) -> bool:
        return machine.devices is None or (machine.has_accelerator is None and self.options.model is None)

    def describe(self, settings: RunSettings, machine: Engine | Machine) -> list[tuple[str, str]]:
        """What will be done, as names and texts; how it is executed is the engine's to say."""
        rows = [("model", self._describe_model(settings, has_accelerator=bool(machine.has_accelerator)))]
        if settings.task == MASKED_LM:
            rows.append(("task", "masked LM alone, without a next-sentence head and pooler: the data have no sentence pairs"))
        for number, (phase, data) in enumerate(zip(settings.phases, self.data, strict=True), 1):
            prefix = f"phase {number} " if len(self.data) > 1 else ""
            rows += [(prefix + name, text) for name, text in describe_phase(phase, data, machine.devices or 1)]
        return [
            *rows,
            ("optimizer", settings.optimizer.describe()),
            ("engine", describe_engine(self.engine)),
            ("out", str(settings.out)),
        ]

    def _describe_model(self, settings: RunSettings, *, has_accelerator: bool) -> str:
        name = self.options.model or ("base" if has_accelerator else "tiny (there is no accelerator; --model takes another)")
        return describe_model(name, settings.model, settings.task)


def run(namespace: argparse.Namespace) -> int:
    """Check, open the engine, train; returns the exit status."""
    return start(_Request(namespace))


def _find_data(phases: Sequence[Entry], options: PretrainOptions, namespace: argparse.Namespace) -> list[Data]:
    """The records or token shards of each phase, which go together."""
    data: list[Data] = []
    for phase in phases:
        live = partial(_live_settings, phase, options, namespace)
        if "data" in phase:
            is_tokens = options.format == TOKENS or (options.format is None and holds_tokens(phase["data"][0]))
            data.append(
                name_tokens(phase["data"], live)
                if is_tokens
                else name_data(phase["data"], phase.get("seq"), options.format, vocabulary=options.vocab)
            )
            continue
        if options.format == TOKENS:
            data.append(find_tokens(options.workdir, live))
            continue
        # `create` makes formats in one go, so which is newer says nothing: all phases have that of the first
        record_format = options.format or next((each.format for each in data if each.format in RECORD_FORMATS), None)
        data.append(find_data(options.workdir, phase.get("seq", DEFAULT_SEQ), record_format, vocabulary=options.vocab))
    check_same_vocabulary(data)
    check_same_kind(data)
    return data


def _live_settings(phase: Entry, options: PretrainOptions, namespace: argparse.Namespace, tokens: DataSet) -> LiveSettings:
    """How the examples of a phase are made of token shards."""
    if namespace.shuffle == RECORDS:
        raise UsageError(
            f"--shuffle {RECORDS}: {tokens.folder} holds token shards, of which some are in memory at a time; leave it out, "
            "and give --shuffle-shards a higher number for a wider shuffle"
        )
    shape = {"seq": phase.get("seq", DEFAULT_SEQ), "pred": phase.get("pred", InstanceSettings.pred)}
    return read_live_settings(namespace, tokens, options.vocab, **shape)


def _default_out(workdir: Path, model: str, phases: Sequence[Phase], optimizer: str) -> Path:
    """WORKDIR/models/tiny_seq_128_adam_3454_steps; with phases .../tiny_seq_128_512_adam_3454_steps.

    A run for trying things is shorter than the one that is meant, so the steps keep them apart.
    """
    if model not in PRESETS:
        path = place(model).resolve()
        model = path.parent.name if path.stem in ("bert_config", "config") else path.stem
    lengths, steps = "_".join(str(phase.seq) for phase in phases), sum(phase.steps for phase in phases)
    return workdir / "models" / f"{model}_seq_{lengths}_{optimizer}_{steps}_steps"
