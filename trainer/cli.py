"""The command line of the trainer: parse, and call one command; `commands` has what each does.

Pretraining is what the trainer is for, so that `python -m trainer --format ofrecord` is `python -m trainer pretrain ...`.
Nothing that is imported here loads TensorFlow, which takes seconds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bertprep import __version__
from bertprep.errors import BertprepError, explain_system_error
from bertprep.options import Parser, number, whole_number
from bertprep.terminal import INTERRUPTED, say
from trainer.bench.largest_batch import LARGEST
from trainer.commands import bench_command, export_command, pretrain_command
from trainer.engines import ENGINES
from trainer.model_config import PRESETS
from trainer.optimizer import OptimizerSettings
from trainer.settings import EngineSettings, RunSettings

PRETRAIN = "pretrain"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0, 1 for data or machine, 2 for usage, 3 for stopped, 130 for Ctrl-C."""
    options = _parser().parse_args(with_command(sys.argv[1:] if arguments is None else arguments))
    try:
        return options.command(options) or 0
    except BertprepError as error:
        say(f"trainer: error: {error}")
        return error.exit_status
    except KeyboardInterrupt:
        goes_on = "; the same command continues from the newest checkpoint" if options.command is pretrain_command else ""
        say(f"trainer: stopped{goes_on}")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        return 0
    except OSError as error:
        if (explained := explain_system_error(error)) is None:
            raise
        say(f"trainer: error: {explained}")
        return explained.exit_status


def with_command(arguments: Sequence[str]) -> list[str]:
    """The arguments with their command: options alone, or nothing, are pretrain's.

    >>> with_command(["--steps", "10"])
    ['pretrain', '--steps', '10']
    """
    is_named = bool(arguments) and (arguments[0] in ("-h", "--help", "--version") or not arguments[0].startswith("-"))
    return list(arguments) if is_named else [PRETRAIN, *arguments]


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m trainer",
        description="Pretrain BERT on TFRecord or OFRecord files. Options without a command are those of pretrain.",
    )
    parser.add_argument("--version", action="version", version=f"bertprep {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    pretrain = _command(commands, PRETRAIN, pretrain_command, "train a model on records; goes on where it was stopped")
    for add in (_add_data, _add_model, _add_steps, _add_devices, _add_run):
        add(pretrain)

    export = _command(commands, "export", export_command, "a trained model -> what transformers or Google's scripts load")
    export.add_argument(
        "--to", default="transformers", metavar="NAME", help="what is to load it: transformers or google (default: %(default)s)"
    )
    export.add_argument("source", type=Path, metavar="CHECKPOINT", help="a checkpoint, or the folder of a run (needed)")
    export.add_argument("target", type=Path, metavar="DIR", help="the folder to be made (needed)")

    _add_bench(_command(commands, "bench", bench_command, "how many sequences a second: skip steps, time steps, repeat"))
    return parser


def _command(
    commands: Any, name: str, function: Callable[[argparse.Namespace], int | None], summary: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=summary)
    parser.set_defaults(command=function)
    return parser


def _add_data(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("data")
    group.add_argument("--format", metavar="NAME", help="ofrecord or tfrecord (default: that of the newest records)")
    group.add_argument(
        "--data", nargs="+", type=Path, default=[], metavar="DIR",
        help="folders of records, with training/ and test/ below; several are mixed (default: the newest of the workspace)",
    )  # fmt: skip
    group.add_argument("--workdir", type=Path, default=Path("data"), metavar="DIR", help="workspace (default: %(default)s)")
    group.add_argument(
        "--seq", type=whole_number, metavar="INT", help="length of a sequence in tokens (default: 128, or that of --data)"
    )
    group.add_argument("--vocab", type=Path, metavar="FILE", help="vocabulary (default: the vocab.txt beside the records)")


def _add_model(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model and optimizer")
    group.add_argument(
        "--model", metavar="NAME|FILE",
        help=f"{', '.join(PRESETS)}, or a bert_config.json (default: base with an accelerator, else tiny)",
    )  # fmt: skip
    group.add_argument(
        "--init", type=Path, metavar="PATH",
        help="begin with the weights of a checkpoint, a model.safetensors or Google's bert_model.ckpt, or of a folder with "
        "one of them (default: with random ones)",
    )  # fmt: skip
    group.add_argument("--no-dropout", dest="dropout", action="store_false", help="to compare runs (default: dropout)")
    group.add_argument("--optimizer", default="adam", metavar="NAME", help="adam or lamb (default: %(default)s)")
    group.add_argument(
        "--bias-correction", action="store_true", help="in adam, as AdamW has it; lamb always has it (default: off)"
    )
    defaults = OptimizerSettings()
    for option, name, text in (
        ("--weight-decay", "weight_decay", "times the learning rate, of all but biases and LayerNorm"),
        ("--beta1", "beta_1", "decay of the mean of gradients"),
        ("--beta2", "beta_2", "decay of the mean of their squares"),
        ("--epsilon", "epsilon", "beside the root of these, outside of it"),
        ("--clip-norm", "clip_norm", "highest norm of the gradients of a global batch"),
    ):
        group.add_argument(
            option, dest=name, type=number, default=getattr(defaults, name), metavar="FLOAT",
            help=f"{text} (default: %(default)g)",
        )  # fmt: skip
    group.add_argument(
        "--schedule", metavar="NAME",
        help="google or nvidia: how the learning rate decays (default: google with adam, nvidia with lamb)",
    )  # fmt: skip


def _add_steps(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "steps", "With --phases, those that take N[,N...] may have one value for all phases, or one for each."
    )
    group.add_argument(
        "--steps", type=whole_number, metavar="INT",
        help="updates of the run (default: one pass over the training records, of the first phase where there are several)",
    )  # fmt: skip
    group.add_argument(
        "--phases", metavar="SEQ:SHARE,...|FILE",
        help="parts of the run with data of their own: shares of the steps, as 128:0.9,512:0.1, or steps, as 128:900,512:100, "
        'or a .json file: a list of {"data", "seq", "steps" or "share", "batch_size", "accumulate", "lr", "warmup_steps"} '
        "(default: one)",
    )  # fmt: skip
    group.add_argument(
        "--batch-size", type=_whole_numbers, default=(), metavar="N[,N...]",
        help="sequences of a device in a micro-batch (default: 32)",
    )  # fmt: skip
    group.add_argument(
        "--accumulate", "--grad-acc-steps", type=_whole_numbers, default=(), metavar="N[,N...]",
        help="micro-batches in a step (default: 1)",
    )  # fmt: skip
    group.add_argument(
        "--lr", type=_numbers, default=(), metavar="N[,N...]",
        help="highest learning rate, for the global batch whatever its size (default: 1e-4 with adam, 2e-3 with lamb)",
    )  # fmt: skip
    group.add_argument(
        "--warmup-steps", type=_whole_numbers, default=(), metavar="N[,N...]",
        help="updates in which the learning rate rises (default: a tenth of the steps)",
    )  # fmt: skip


def _add_devices(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("devices")
    _add_engine(group)
    group.add_argument(
        "--loss-scale", type=number, default=EngineSettings.loss_scale, metavar="FLOAT",
        help="the first, with fp16: a power of two (default: %(default)g)",
    )  # fmt: skip
    group.add_argument(
        "--hosts",
        metavar="HOST:PORT,...",
        help="all processes of the run, the same in each (default: TF_CONFIG's, or this alone)",
    )
    group.add_argument(
        "--host-rank", type=whole_number, metavar="INT", help="place of this process among them, from 0 (needed with --hosts)"
    )


def _add_engine(group: Any) -> None:
    """What bench takes as well."""
    group.add_argument(
        "--engine", default=EngineSettings.engine, metavar="NAME", help=f"{', '.join(ENGINES)} (default: %(default)s)"
    )
    group.add_argument(
        "--devices", type=whole_number, metavar="INT",
        help="GPUs of this host, or logical devices of its CPU where it has none (default: all GPUs, or one CPU)",
    )  # fmt: skip
    group.add_argument(
        "--amp", default=EngineSettings.amp, metavar="NAME",
        help="off, fp16 or bf16: mixed precision (default: auto, the fastest that GPUs have, off on CPUs)",
    )  # fmt: skip
    group.add_argument(
        "--xla", nargs="?", const="on", default=EngineSettings.xla, metavar="on|off",
        help="tensorflow: compile the step with XLA; on where it says no more (default: auto, on for GPUs, off on CPUs)",
    )  # fmt: skip
    group.add_argument(
        "--deterministic", default=EngineSettings.deterministic, metavar="on|off",
        help="tensorflow: off lets GPUs add in any order, so that no two runs have the same last digits (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--stages", "--nums-split", type=whole_number, default=EngineSettings.stages, metavar="INT",
        help="oneflow: cut the layers over so many processes, which are one pipeline (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--strategy", default=EngineSettings.strategy, metavar="NAME",
        help="oneflow: intra_first keeps a pipeline within a host, inter_first lays it across hosts (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--checkpoint-activations", action="store_true",
        help="oneflow: compute activations twice and keep fewer of them (default: off)",
    )  # fmt: skip
    group.add_argument("--eager", action="store_true", help="oneflow: no compiled graph (default: off)")


def _add_run(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("run")
    group.add_argument(
        "--out", type=Path, metavar="DIR",
        help="checkpoints, log and plot; a run that is there is continued (default: in WORKDIR/models, by what it trains)",
    )  # fmt: skip
    group.add_argument(
        "--no-resume", dest="resume", action="store_false",
        help="refuse an --out that holds a run (default: continue the run)",
    )  # fmt: skip
    group.add_argument(
        "--lengthen", action="store_true",
        help="continue a run that was begun with fewer --steps, though its learning rates so far were those of the shorter "
        "run (default: only while they were the same)",
    )  # fmt: skip
    group.add_argument(
        "--keep-best", action="store_true",
        help="keep the checkpoint of the lowest loss on the test split as well, as checkpoint-best.safetensors (default: off)",
    )  # fmt: skip
    for name, unit in (
        ("log_every", "steps between lines of the log"),
        ("eval_every", "steps between evaluations on the test split; 0: at the end of a phase only"),
        ("eval_sequences", "sequences of an evaluation, the first of the test split; 0: all"),
        ("save_every", "steps between checkpoints"),
        ("keep", "checkpoints kept, the newest"),
        ("skip_bad_records", "damaged records, or with ids beyond the model's, to go on without; more end the run, saved"),
        ("seed", "of the first weights, dropout and the order of the records"),
    ):
        group.add_argument(
            f"--{name.replace('_', '-')}", type=whole_number, default=getattr(RunSettings, name), metavar="INT",
            help=f"{unit} (default: %(default)s)",
        )  # fmt: skip


def _add_bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", metavar="NAME|FILE", default="base", help="as in pretrain (default: %(default)s)")
    parser.add_argument(
        "--seq", type=whole_number, default=128, metavar="INT", help="tokens in a sequence (default: %(default)s)"
    )
    parser.add_argument(
        "--pred", type=whole_number, default=20, metavar="INT", help="predictions in a sequence (default: %(default)s)"
    )
    parser.add_argument(
        "--data", nargs="+", type=Path, default=[], metavar="DIR", help="folders of records (default: made up in memory)"
    )
    parser.add_argument(
        "--batch-size", type=_batch_size, default=32, metavar="INT|largest",
        help="sequences of a device in a micro-batch, or the most that fit (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--accumulate", type=whole_number, default=1, metavar="INT", help="micro-batches in a step (default: %(default)s)"
    )
    parser.add_argument("--optimizer", default="adam", metavar="NAME", help="adam or lamb (default: %(default)s)")
    _add_engine(parser)
    parser.add_argument(
        "--steps", type=whole_number, default=100, metavar="INT", help="steps that are timed (default: %(default)s)"
    )
    parser.add_argument(
        "--skip", type=whole_number, default=20, metavar="INT", help="steps before these (default: %(default)s)"
    )
    parser.add_argument(
        "--repeats", type=whole_number, default=3, metavar="INT", help="times it is done, for the median (default: %(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("data/bench"), metavar="DIR", help="where the table goes (default: %(default)s)"
    )


def _batch_size(text: str) -> int | str:
    return text if text == LARGEST else whole_number(text)


def _whole_numbers(text: str) -> tuple[int, ...]:
    return tuple(map(whole_number, text.split(",")))


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(map(number, text.split(",")))
