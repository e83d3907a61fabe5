"""Settings dataclasses as command-line options, and back."""

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertprep.config import Dialect, InstanceSettings, ShardSettings
from bertprep.errors import UsageError
from bertprep.options import Parser, add_options, check_options, command_line, option, path_or_url, read_options


class Precision(Enum):
    OFF = "off"
    BF16 = "bf16"


def batch_size(text: str) -> int | str:
    return text if text == "largest" else int(text)


@dataclass(frozen=True, kw_only=True)
class Settings:
    steps: int | None = option(None, "updates, 100 % of them", least=1)
    micro_batches: tuple[int, ...] = option((), "micro-batches", separator=",", also=("--grad-acc-steps",), metavar="N[,N...]")
    data: tuple[Path, ...] = option((), "folders", metavar="DIR")
    out: Path | None = option(None, "folder", metavar="DIR")
    beta_2: float = option(0.999, "decay", name="--beta2", above=0, below=1)
    xla: str = option("auto", "compile", choices=("auto", "on", "off"), const="on", metavar="on|off")
    precision: Precision = option(Precision.OFF, "of matrix products")
    batch_size: int | str = option(32, "sequences, or the most that fit", parse=batch_size)
    dropout: bool = option(True, "train without dropout")
    eager: bool = option(False, "no graph")
    version: str = "not an option"

    def __post_init__(self) -> None:
        check_options(self)


def parse(arguments: list[str], **how: Any) -> Any:
    parser = Parser(prog="test")
    add_options(parser, Settings, **how)
    return read_options(Settings, parser.parse_args(arguments))


def test_no_arguments_are_the_defaults():
    assert parse([]) == Settings()


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        ("--steps 10", Settings(steps=10)),
        ("--micro-batches 1,2", Settings(micro_batches=(1, 2))),
        ("--grad-acc-steps 3", Settings(micro_batches=(3,))),
        ("--data a b", Settings(data=(Path("a"), Path("b")))),
        ("--out a/b", Settings(out=Path("a/b"))),
        ("--beta2 0.95", Settings(beta_2=0.95)),
        ("--xla", Settings(xla="on")),
        ("--xla off", Settings(xla="off")),
        ("--precision bf16", Settings(precision=Precision.BF16)),
        ("--batch-size largest", Settings(batch_size="largest")),
        ("--batch-size 8", Settings(batch_size=8)),
        ("--no-dropout --eager", Settings(dropout=False, eager=True)),
    ],
)
def test_arguments_give_settings_and_settings_give_arguments(arguments: str, settings: Settings):
    assert parse(arguments.split()) == settings
    assert parse(command_line(settings)) == settings


def test_what_has_its_default_is_no_argument():
    assert command_line(Settings(), Dialect()) == []
    assert command_line(InstanceSettings(short_seq_prob=0.5), Dialect(compress="gzip")) == [
        "--short-seq-prob", "0.5", "--compress", "gzip",
    ]  # fmt: skip


def test_a_value_that_begins_with_a_dash_is_not_an_option():
    assert command_line(Settings(out=Path("-a"))) == ["--out=-a"]
    assert parse(["--out=-a"]).out == Path("-a")


@given(st.floats(0, 1, exclude_min=True, exclude_max=True), st.integers(1), st.booleans())
def test_every_number_survives_the_command_line(beta: float, steps: int, eager: bool):
    settings = Settings(beta_2=beta, steps=steps, eager=eager)
    assert parse(command_line(settings)) == settings


def test_fields_that_are_left_out_have_their_defaults():
    assert parse([], without={"steps", "out"}) == Settings()
    with pytest.raises(SystemExit):
        parse(["--steps", "10"], without={"steps"})


def test_help_says_defaults_and_choices(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        parse(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "--steps INT updates, 100 % of them --micro" in shown
    assert re.search(
        r"--micro-batches( N\[,N\.\.\.\])?, --grad-acc-steps N\[,N\.\.\.\] micro-batches", shown
    )  # once since 3.13
    assert "--beta2 FLOAT decay (default: 0.999)" in shown
    assert "--xla [on|off]" in shown
    assert "--precision {off,bf16} of matrix products (default: off)" in shown
    assert "version" not in shown


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"steps": 0}, "--steps 0: must be at least 1"),
        ({"steps": "7"}, "--steps '7': must be a whole number, found str"),
        ({"steps": True}, "--steps True: must be a whole number, found bool"),
        ({"micro_batches": (1, 0.5)}, "--micro-batches 0.5: must be a whole number, found float"),
        ({"beta_2": 1}, "--beta2 1: must be above 0 and below 1"),
        ({"beta_2": float("nan")}, "--beta2 nan: must be above 0 and below 1"),
        ({"xla": "maybe"}, "--xla maybe: unknown; choose one of auto, on, off"),
        ({"precision": "fp8"}, "--precision fp8: unknown; choose one of off, bf16"),
        ({"out": 3}, "--out 3: must be a path, found int"),
    ],
)
def test_values_are_checked_where_settings_are_made(values: dict[str, Any], message: str):
    with pytest.raises(UsageError) as caught:
        Settings(**values)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "meant"), [("s3//b/x", "s3"), ("S3:/b/x", "S3"), ("gs:/b", "gs"), ("az//c/x", "az"), ("file:/x", "file")]
)
def test_what_is_nearly_a_url_is_no_local_path(text: str, meant: str):
    with pytest.raises(UsageError, match=rf"^{text}: is not a URL, expected {meant}://\.\.\.; give a local path"):
        path_or_url(text)
    assert [path_or_url(each) for each in ("./s3//b", "s3/x", "files//x")] == [Path("s3/b"), Path("s3/x"), Path("files/x")]


def test_values_get_the_annotated_types():
    settings = Settings(steps=np.int64(3), data=["a"], out="b", precision="bf16", beta_2=np.float32(0.5))  # type: ignore[arg-type]
    assert settings == Settings(steps=3, data=(Path("a"),), out=Path("b"), precision=Precision.BF16, beta_2=0.5)
    assert type(settings.steps) is int


@pytest.mark.parametrize(
    "settings", [InstanceSettings(seq=512, pred=80, one_seed=True), ShardSettings(shards=3, language="de")]
)
def test_the_settings_of_the_commands_survive(settings: Any):
    parser = Parser(prog="test")
    add_options(parser, type(settings))
    assert read_options(type(settings), parser.parse_args(command_line(settings))) == settings
