"""Settings dataclasses as command-line options, both ways, and the parser that both command lines use.

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        seed: int = option(12345, "random seed", least=0)
        sizes: tuple[int, ...] = option((), "sizes, one for each phase", metavar="N[,N...]", separator=",", also=("--sz",))

        def __post_init__(self) -> None:
            check_options(self)

    add_options(parser, Settings)                      # --seed INT, --sizes/--sz N[,N...]
    settings = read_options(Settings, parser.parse_args())
    command_line(settings)                             # ["--seed", "7"], which parses to the same settings

A field is written once; the option takes its type, default and range. Fields without `option` are not on the command line.
`Parser` is argparse, except that a mistake is one line, which suggests the name that was probably meant.
"""

from __future__ import annotations

import argparse
import math
import operator
import re
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from bertprep.errors import UsageError
from bertprep.files.places import ObjectPath, place
from bertprep.terminal import say

Settings = TypeVar("Settings")
_IN_WORDS: dict[type, str] = {int: "a whole number", float: "a number", bool: "True or False", str: "text", Path: "a path"}


@dataclass(frozen=True, kw_only=True)
class _Option:
    help: str
    name: str = ""  # if it differs from the field's
    also: tuple[str, ...] = ()
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    parse: Callable[[str], Any] | None = None
    const: Any = None
    separator: str | None = None
    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    urls: bool = False

    def range_in_words(self) -> str:
        bounds = {"at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        return " and ".join(f"{words} {bound:,}" for words, bound in bounds.items() if bound is not None)

    def is_in_range(self, value: float) -> bool:
        return (
            math.isfinite(value)
            and (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )


def option(default: Any, help: str, **more: Any) -> Any:  # noqa: A002 - argparse's name
    """A field of a settings dataclass that is also a command-line option.

    `help` gets "(default: ...)" unless it contains that. Optional: `name`, if it differs from the field's, such as "--beta1";
    `also`, other spellings; `metavar`; `choices`, for a str; `least`, `above`, `most`, `below`, the range of a number; `parse`,
    a function of the argument's text; `const`, the value of an option given without one; `separator` of a tuple's values in one
    argument (without it, each value is an argument); `urls`, for a path that may be in an object store.

    A bool is a flag: --NAME, or --no-NAME if the default is True. The choices of an `Enum` are its values.
    """
    return field(default=default, metadata={"option": _Option(help=help, **more)})


@dataclass(frozen=True)
class _Field:
    """A field that is an option: its name and types in Python, and the description for the command line."""

    name: str
    default: Any
    kinds: tuple[type, ...]  # without None; for a tuple the types of its values
    is_tuple: bool
    option: _Option

    @property
    def spelling(self) -> str:
        return self.option.name or "--" + self.name.replace("_", "-")

    @property
    def choices(self) -> tuple[str, ...]:
        kind = self.kinds[0]
        return tuple(str(member.value) for member in kind) if issubclass(kind, Enum) else self.option.choices

    @property
    def flag(self) -> str:
        return self.spelling if self.default is not True else "--no-" + self.spelling.removeprefix("--")

    @property
    def dest(self) -> str:
        return self.spelling.removeprefix("--").replace("-", "_")


def _fields(settings: Any) -> Iterator[_Field]:
    """The fields of a settings dataclass, or of an instance, that are options."""
    hints = typing.get_type_hints(settings if isinstance(settings, type) else type(settings))
    for each in fields(settings):
        if (described := each.metadata.get("option")) is None:
            continue
        hint = hints[each.name]
        is_tuple = typing.get_origin(hint) is tuple
        inner = typing.get_args(hint)[0] if is_tuple else hint
        kinds = typing.get_args(inner) if isinstance(inner, types.UnionType) else (inner,)
        yield _Field(each.name, each.default, tuple(kind for kind in kinds if kind is not types.NoneType), is_tuple, described)


def add_options(parser: Any, settings: type, *, without: Collection[str] = (), only_given: bool = False) -> None:
    """Add an option for each option field of a settings dataclass, except those in `without`.

    `parser` is an `argparse.ArgumentParser` or one of its groups. With `only_given` the parsed command line has only the
    options that were given; `read_options` takes it too.
    """
    for each in _fields(settings):
        described, kind = each.option, each.kinds[0]
        if each.name in without:
            continue
        names = (each.flag, *described.also)
        text = described.help.replace("%", "%%")
        if kind is bool:
            action = "store_false" if each.default else "store_true"
            parser.add_argument(
                *names, action=action, dest=each.dest, help=text, default=argparse.SUPPRESS if only_given else each.default
            )
            continue
        if each.default not in (None, ()) and "(default" not in text:
            text += f" (default: {_shown(each.default)})"
        parse = described.parse or _PARSE.get(kind, str)
        metavar = described.metavar or (None if each.choices else _METAVARS[kind])
        more: dict[str, Any] = {}
        if each.is_tuple and described.separator:
            parse = _parse_separated(parse, described.separator)
        elif each.is_tuple:
            more["nargs"] = "+"
        elif described.const is not None:
            more.update(nargs="?", const=described.const)
        parser.add_argument(
            *names,
            dest=each.dest,
            type=parse,
            default=argparse.SUPPRESS if only_given else each.default,
            help=text,
            choices=each.choices or None,
            metavar=metavar,
            **more,
        )


def read_options(settings: type[Settings], namespace: argparse.Namespace, **more: Any) -> Settings:
    """The settings given by a parsed command line; `more` are fields that are not options, or not of this command."""
    found = {each.name: getattr(namespace, each.dest) for each in _fields(settings) if hasattr(namespace, each.dest)}
    return settings(**{**found, **more})


def command_line(*settings: Any) -> list[str]:
    """The arguments that give these settings; defaults are left out."""
    arguments: list[str] = []
    for one in settings:
        for each in _fields(one):
            value = getattr(one, each.name)
            if value == each.default:
                continue
            if each.kinds[0] is bool:
                arguments.append(each.flag)
            elif each.is_tuple and not each.option.separator:
                arguments += [each.spelling, *map(_shown, value)]
            else:
                shown = (each.option.separator or "").join(map(_shown, value)) if each.is_tuple else _shown(value)
                arguments += [f"{each.spelling}={shown}"] if shown.startswith("-") else [each.spelling, shown]
    return arguments


def check_options(settings: Any) -> None:
    """Check the option fields of a new settings dataclass, and convert them to their annotated types.

    Integral values (NumPy's too) become int, other numbers float, str becomes Path, lists become tuples; a bool, a text or a
    fraction is not a whole number. Raises `UsageError` with the option's name for a value of another type, not among the
    choices, or out of range.
    """
    for each in _fields(settings):
        value = getattr(settings, each.name)
        if value is None and each.default is None:
            continue
        checked = tuple(_checked(each, one) for one in value) if each.is_tuple else _checked(each, value)
        object.__setattr__(settings, each.name, checked)


def _checked(each: _Field, given: Any) -> Any:
    value, described = _converted(each, given), each.option
    if described.choices and value not in described.choices:
        raise _unknown(each, given)
    if isinstance(value, ObjectPath) and not described.urls:
        raise UsageError(f"{each.spelling} {value}: must be a path of this machine")
    if isinstance(value, (int, float)) and (words := described.range_in_words()) and not described.is_in_range(value):
        raise UsageError(f"{each.spelling} {_shown(value)}: must be {words}")
    return value


def _converted(each: _Field, given: Any) -> Any:
    for kind in each.kinds:
        try:
            return _as_kind(given, kind)
        except (TypeError, ValueError, OverflowError):
            continue
    if issubclass(each.kinds[0], Enum):
        raise _unknown(each, given)
    words = " or ".join(_IN_WORDS.get(kind, kind.__name__) for kind in each.kinds)
    raise UsageError(f"{each.spelling} {given!r}: must be {words}, found {type(given).__name__}")


def _unknown(each: _Field, given: Any) -> UsageError:
    return UsageError(f"{each.spelling} {given}: unknown; choose one of {', '.join(each.choices)}")


def _as_kind(value: Any, kind: type) -> Any:
    """The value converted to this type; raises if that is impossible or loses information."""
    if kind is int and not isinstance(value, bool):
        return operator.index(value)
    if kind is float and not isinstance(value, (bool, str, bytes)):
        return float(value)
    if issubclass(kind, Enum):
        return kind(value)
    if kind is Path and isinstance(value, str):
        return place(value)
    if not (isinstance(value, Path) if kind is Path else type(value) is kind):
        raise TypeError
    return value


def _shown(value: Any) -> str:
    """A value as a user would type it: 0.1, 1e-06, 32768."""
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value)


def _parse_separated(parse: Callable[[str], Any], separator: str) -> Callable[[str], Any]:
    return lambda text: tuple(parse(item) for item in text.split(separator))


MOST = 10**12
MOST_AT_ONCE = 4096
"""The highest accepted count (MOST), and number of processes or connections; anything above is a typing mistake."""
_NEGATIVE_NUMBER = re.compile(r"-\.?\d")


class Parser(argparse.ArgumentParser):
    """An `argparse.ArgumentParser` whose errors are one line: `PROGRAM: error: ...; COMMAND --help lists the options`."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **{"formatter_class": _HelpFormatter, "allow_abbrev": False, **settings})
        self._negative_number_matcher = _NEGATIVE_NUMBER  # values; argparse recognizes only numbers without an exponent

    def parse_known_args(  # type: ignore[override]  # argparse has two forms; this is the one it calls itself
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse all of `args`; leftover arguments, which argparse would return, are an error."""
        arguments = sys.argv[1:] if args is None else args
        self._check_names(arguments)
        found, left = super().parse_known_args(arguments, namespace)
        if left:
            self.error(f"{' '.join(left)}: not expected here")
        return found, left

    def error(self, message: str) -> NoReturn:
        """Print the error as one line, and exit with status 2."""
        program = self.prog.removeprefix("python -m ").split()[0]
        message = " ".join(message.removeprefix("argument ").split())
        listed = "commands" if self._has_commands() else "options"
        say(f"{program}: error: {message}{'' if message[-1] == '?' else ';'} {self.prog} --help lists the {listed}")
        self.exit(2)

    def _check_names(self, arguments: Sequence[str]) -> None:
        """Reject unknown options first: argparse would complain about the arguments that it takes for their values."""
        for argument in arguments:
            is_option = (
                argument[:1] == "-" and len(argument) > 1 and " " not in argument and not _NEGATIVE_NUMBER.match(argument)
            )
            if argument == "--" or (self._has_commands() and not is_option):  # the rest belongs to the command
                return
            if is_option and (name := argument.partition("=")[0]) not in self._option_string_actions:
                self.error(f"{name}: unknown option{_near(name, self._option_string_actions)}")

    def _has_commands(self) -> bool:
        return any(isinstance(action, argparse._SubParsersAction) for action in self._actions)

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            self.error(f"{_name(action)} {arg_string}: {error.message}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = f"choose one of {', '.join(map(str, action.choices))}"
        if isinstance(action, argparse._SubParsersAction):
            self.error(f"{value}: unknown command{_near(value, action.choices) or '; ' + choices}")
        self.error(f"{_name(action)} {value}: unknown; {choices}")


class _HelpFormatter(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32)


def _name(action: argparse.Action) -> str:
    return "/".join(action.option_strings) or str(action.metavar or action.dest)


def _near(name: str, there: Iterable[str]) -> str:
    """A suggestion of a similar name, if there is one.

    >>> _near("--sead", ["--seed", "--seq", "--workers"]), _near("--xyz", ["--seed"])
    (', did you mean --seed?', '')
    """
    import difflib  # as slow to load as argparse

    bare = {each.lstrip("-"): each for each in there}
    near = difflib.get_close_matches(name.lstrip("-"), bare, n=1)
    return f", did you mean {bare[near[0]]}?" if near else ""


def whole_number(text: str) -> int:
    """The type of an option for a whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError("must be a whole number") from None


def number(text: str) -> float:
    """The type of an option for any number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError("must be a number") from None


_MISTYPED_URL = re.compile(r"(s3|gs|az)(//|:/)(?!/)|file:/(?!/)", re.IGNORECASE)


def path_or_url(text: str) -> Path:
    """The type of an option for a path, which may be in an object store; what is nearly a URL is no local path.

    >>> path_or_url("s3//bucket/x")
    Traceback (most recent call last):
    bertprep.errors.UsageError: s3//bucket/x: is not a URL, expected s3://...; give a local path of that name as an absolute one
    """
    if matched := _MISTYPED_URL.match(text):
        scheme = re.split("[:/]", matched[0])[0]
        raise UsageError(f"{text}: is not a URL, expected {scheme}://...; give a local path of that name as an absolute one")
    return place(text)


def existing_path(text: str) -> Path:
    """The type of an option for a file or folder to read."""
    path = path_or_url(text)
    if not path.exists():
        raise argparse.ArgumentTypeError("does not exist")
    return path


def how_many(text: str, most: int = MOST) -> int:
    """The type of an option for a count."""
    found = whole_number(text)
    if not 1 <= found <= most:
        raise argparse.ArgumentTypeError(f"must be at least 1 and at most {most:,}")
    return found


def how_many_at_once(text: str) -> int:
    """The type of an option for a number of processes or connections."""
    return how_many(text, MOST_AT_ONCE)


_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?) ?([KMGT]?)(I?)B?", re.IGNORECASE)


def size_in_bytes(text: str) -> int:
    """The type of an option for a size.

    >>> size_in_bytes("200GB"), size_in_bytes("1.5 TB"), size_in_bytes("4096"), size_in_bytes("1gib")
    (200000000000, 1500000000000, 4096, 1073741824)
    """
    if not (matched := _SIZE.fullmatch(text.strip())):
        raise argparse.ArgumentTypeError("must be a size, such as 200GB or 1.5TB")
    return int(float(matched[1]) * (1024 if matched[3] else 1000) ** " KMGT".index(matched[2].upper() or " "))


_PARSE: dict[type, Callable[[str], Any]] = {int: whole_number, float: number, Path: path_or_url}
_METAVARS: dict[type, str] = {int: "INT", float: "FLOAT", Path: "PATH", str: "NAME"}
