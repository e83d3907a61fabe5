"""Settings dataclasses as command-line options, and back."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertprep.commands.function import function_of
from bertprep.config import InstanceSettings, ShardSettings, Variant
from bertprep.errors import UsageError
from bertprep.files.paths import path_arg
from bertprep.options import (
    Settings,
    add_options,
    command_line,
    described,
    fields_of,
    narrowed,
    option,
    read_options,
    rules_of,
)
from bertprep.parser import Parser
from bertprep.rules import Rule


class Precision(Enum):
    OFF = "off"
    BF16 = "bf16"


@dataclass(frozen=True, kw_only=True)
class Run(Settings):
    steps: int | None = option(None, "updates, 100 % of them", least=1)
    micro_batches: tuple[int, ...] = option((), "micro-batches", separator=",", also=("--grad-acc-steps",), metavar="N[,N...]")
    data: tuple[Path, ...] = option((), "folders", metavar="DIR", check=path_arg)
    out: Path | None = option(None, "folder", metavar="DIR", check=path_arg, rare=True)
    beta_2: float = option(0.999, "decay", name="--beta2", above=0, below=1)
    xla: str = option("auto", "compile", choices=("auto", "on", "off"), const="on", metavar="on|off")
    precision: Precision = option(Precision.OFF, "of matrix products")
    dropout: bool = option(True, "train without dropout")
    eager: bool = option(False, "no graph")
    version: str = "not an option"


def parse(arguments: list[str], **how: Any) -> Any:
    parser = Parser(prog="test")
    add_options(parser, Run, **how)
    return read_options(Run, parser.parse_args(arguments))


def test_no_arguments_are_the_defaults():
    assert parse([]) == Run()


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        ("--steps 10", Run(steps=10)),
        ("--micro-batches 1,2", Run(micro_batches=(1, 2))),
        ("--grad-acc-steps 3", Run(micro_batches=(3,))),
        ("--data a b", Run(data=(Path("a"), Path("b")))),
        ("--out a/b", Run(out=Path("a/b"))),
        ("--beta2 0.95", Run(beta_2=0.95)),
        ("--grad_acc_steps=3", Run(micro_batches=(3,))),
        ("--xla", Run(xla="on")),
        ("--xla off", Run(xla="off")),
        ("--precision bf16", Run(precision=Precision.BF16)),
        ("--no-dropout --eager", Run(dropout=False, eager=True)),
    ],
)
def test_arguments_give_settings_and_settings_give_arguments(arguments: str, settings: Run):
    assert parse(arguments.split()) == settings
    assert parse(command_line(settings)) == settings


def test_what_has_its_default_is_no_argument():
    assert command_line(Run(), Variant()) == []
    assert command_line(InstanceSettings(short_seq_prob=0.5), Variant(compress="gzip")) == [
        "--short-seq-prob", "0.5", "--compress", "gzip",
    ]  # fmt: skip


def test_a_value_that_begins_with_a_dash_is_not_an_option():
    assert command_line(Run(out=Path("-a"))) == ["--out=-a"]
    assert parse(["--out=-a"]).out == Path("-a")


@given(st.floats(0, 1, exclude_min=True, exclude_max=True), st.integers(1), st.booleans())
def test_every_number_survives_the_command_line(beta: float, steps: int, eager: bool):
    settings = Run(beta_2=beta, steps=steps, eager=eager)
    assert parse(command_line(settings)) == settings


def test_fields_that_are_left_out_have_their_defaults():
    assert parse([], without={"steps", "out"}) == Run()
    with pytest.raises(UsageError, match=r"^--steps: unknown option"):
        parse(["--steps", "10"], without={"steps"})


def test_help_says_defaults_and_choices(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        parse(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "--steps INT updates, 100 % of them --micro" in shown
    assert "--micro-batches N[,N...] micro-batches --" in shown
    assert "--out" not in shown
    assert shown.endswith("test --help-all lists 1 more option.")
    assert "--beta2 FLOAT decay (default: 0.999)" in shown
    assert "--xla [on|off]" in shown
    assert "--precision {off,bf16} of matrix products (default: off)" in shown
    assert "version" not in shown
    with pytest.raises(SystemExit, match=r"^0$"):
        parse(["--help-all"])
    assert "--out DIR folder" in " ".join(capsys.readouterr().out.split())


@dataclass(frozen=True, kw_only=True)
class Request(Settings):
    group = "how"
    source: Path | str = field(kw_only=False, metadata=described("what", metavar="SRC", check=path_arg, positional=True))
    names: Sequence[str] | str = option((), "names", name="--name", separator=",")
    models: Sequence[str] = option((), "models", repeated=True)


def test_a_request_is_positional_in_both_and_takes_one_for_a_list(capsys: pytest.CaptureFixture[str]):
    parser = Parser(prog="test", hints={"--model": "is --models here", "--size": "is --sizes here"})
    add_options(parser, Request)
    found = read_options(Request, parser.parse_args(["a", "--name", "x,y", "--models", "b", "--models", "c"]))
    assert (
        found == Request("a", names="x,y", models=["b", "c"]) == Request(source=Path("a"), names=("x", "y"), models=("b", "c"))
    )
    assert narrowed(Request, found) == found
    with pytest.raises(UsageError, match=r"^--model: is --models here$"):
        parser.parse_args(["a", "--model", "b"])
    with pytest.raises(UsageError, match=r"^--size: unknown option; "):  # there is no --sizes here
        parser.parse_args(["a", "--size", "b"])
    with pytest.raises(SystemExit):
        parser.parse_args(["--help"])
    shown = capsys.readouterr().out
    assert shown.startswith("usage: test SRC [OPTIONS]")
    assert shown.count("\nhow:\n") == 1  # the options of a group share its heading


@dataclass(frozen=True, kw_only=True)
class Answer(Settings):
    page: str | None = option(None, "a page for people", shell=True)
    quiet: bool = option(False, "no progress", python=True)


def test_a_field_may_be_of_the_shell_or_of_python_alone():
    def answer(request: Answer) -> Answer:
        return request

    parser = Parser(prog="test")
    add_options(parser, Answer)
    assert read_options(Answer, parser.parse_args(["--page", "a"]), quiet=True) == Answer(page="a", quiet=True)
    with pytest.raises(UsageError, match=r"^--quiet: unknown option"):
        parser.parse_args(["--quiet"])
    function = function_of(Answer, answer)
    assert function(quiet=True) == Answer(quiet=True)
    with pytest.raises(TypeError, match=r"^answer\(\) got an unexpected keyword argument 'page'$"):
        function(page="a")


def test_what_follows_two_hyphens_are_values():
    parser = Parser(prog="test")
    add_options(parser, Request)
    assert read_options(Request, parser.parse_args(["--", "-a"])).source == Path("-a")
    with pytest.raises(UsageError, match=r"^-b: not expected here; test takes one SRC; test --help lists the options$"):
        parser.parse_args(["--", "-a", "-b"])


def test_fields_that_are_passed_replace_those_of_the_command_line():
    parser = Parser(prog="test")
    add_options(parser, Run)
    namespace = parser.parse_args(["--steps", "7", "--eager"])
    assert read_options(Run, namespace, steps=3, version="new") == Run(steps=3, eager=True, version="new")


def test_the_fields_of_a_class_are_resolved_once():
    assert fields_of(Answer) is fields_of(Answer)
    assert [each.keyword for each in fields_of(Answer)] == ["page", "quiet"]
    assert [each.keyword for each in fields_of(Settings)] == []


def test_the_rules_of_fields_check_json_too():
    rules = rules_of(InstanceSettings)
    assert all(
        rules[name].holds(value) for name, value in {"seq": 128, "masked_lm_prob": 1, "cased": True, "seed": 2**70}.items()
    )
    assert not any(
        rules[name].holds(value) for name, value in {"seq": 128.0, "dupe": True, "cased": 1, "pairs": "some"}.items()
    )
    assert rules_of(ShardSettings)["language"].holds(None)
    assert not rules["seq"].holds(None)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"steps": 0}, "--steps 0: must be at least 1"),
        ({"steps": "7"}, "--steps '7': must be a whole number, found str"),
        ({"steps": True}, "--steps True: must be a whole number, found bool"),
        ({"micro_batches": (1, 0.5)}, "--micro-batches 0.5: must be a whole number, found float"),
        ({"beta_2": 0}, "--beta2 0: must be above 0 and below 1"),
        ({"beta_2": 1}, "--beta2 1: must be above 0 and below 1"),
        ({"beta_2": float("nan")}, "--beta2 nan: must be above 0 and below 1"),
        ({"xla": "maybe"}, "--xla maybe: unknown; choose one of auto, on, off"),
        ({"precision": "fp8"}, "--precision fp8: unknown; choose one of off, bf16"),
        ({"out": 3}, "--out 3: must be a path, found int"),
    ],
)
def test_values_are_checked_where_settings_are_made(values: dict[str, Any], message: str):
    with pytest.raises(UsageError) as caught:
        Run(**values)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "meant"), [("s3//b/x", "s3"), ("S3:/b/x", "S3"), ("gs:/b", "gs"), ("az//c/x", "az"), ("file:/x", "file")]
)
def test_what_is_nearly_a_url_is_no_local_path(text: str, meant: str):
    with pytest.raises(UsageError, match=rf"^{text}: is not a URL, expected {meant}://\.\.\.; if it is a local path"):
        path_arg(text)
    assert [path_arg(each) for each in ("./s3//b", "s3/x", "files//x")] == [Path("s3/b"), Path("s3/x"), Path("files/x")]


@pytest.mark.parametrize(
    ("limit", "below", "at", "above"),
    [("least", False, True, True), ("above", False, False, True), ("most", True, True, False), ("below", True, False, False)],
)
def test_a_bound_belongs_to_the_range_or_not(limit: str, below: bool, at: bool, above: bool):
    for kind in (int, float):
        rule = Rule(kinds=(kind,), **{limit: 3})
        assert [rule.holds(kind(value)) for value in (2, 3, 4)] == [below, at, above]


def test_values_get_the_annotated_types():
    settings = Run(steps=np.int64(3), data=["a"], out="b", precision="bf16", beta_2=np.float32(0.5))  # type: ignore[arg-type]
    assert settings == Run(steps=3, data=(Path("a"),), out=Path("b"), precision=Precision.BF16, beta_2=0.5)
    assert (type(settings.steps), type(settings.beta_2)) == (int, float)
    assert ShardSettings(shards=None, language=None).shards is None


@pytest.mark.parametrize(
    ("settings", "name", "value", "expected"),
    [
        *((InstanceSettings, "seq", value, "a whole number") for value in (8.0, True, "128", None, [8], np.float32(8))),
        *((InstanceSettings, "masked_lm_prob", value, "a number") for value in ("0.15", True, None, 10**400, 1j)),
        *((InstanceSettings, "cased", value, "True or False") for value in (1, None, "yes")),
        *((ShardSettings, name, value, "text") for name, value in (("splitter", None), ("splitter", 7), ("language", b"de"))),
    ],
)
def test_a_value_of_another_type_is_usage(settings: type, name: str, value: Any, expected: str) -> None:
    with pytest.raises(UsageError, match=f"^--{name.replace('_', '-')} .*: must be {expected}, found {type(value).__name__}$"):
        settings(**{name: value})


def test_a_manifest_has_every_setting_that_has_an_effect() -> None:
    names = {field.name for field in fields(InstanceSettings)}
    assert InstanceSettings().made_with.keys() == names
    assert InstanceSettings(pairs="none").made_with.keys() == names - {"short_seq_prob"}
