"""Settings dataclasses as command-line options, both ways, and the parser that both command lines use.

    @dataclass(frozen=True, kw_only=True)
    class Training(Settings):
        seed: int = option(12345, "random seed", least=0)
        sizes: tuple[int, ...] = option((), "sizes, one for each phase", metavar="N[,N...]", separator=",", also=("--sz",))

    add_options(parser, Training)                      # --seed INT, --sizes N[,N...]
    settings = read_options(Training, parser.parse_args())
    command_line(settings)                             # ["--seed", "7"], which parses to the same settings

From a field follow the option, the keyword in Python, the check of both, and the check of a manifest (`rules_of`).
"""

from __future__ import annotations

import argparse
import re
import sys
import types
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import Enum
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeVar

from bertprep.errors import UsageError
from bertprep.rules import Rule
from bertprep.terminal import counted, listed, print_message, print_results

AnySettings = TypeVar("AnySettings")


GROUPS = OPTIONS, MADE, WHERE, HOW = "options", "what is made", "where", "how"
"""Headings of options in --help: those of what is made decide the bytes of files, the others do not."""


@dataclass(frozen=True, kw_only=True)
class _Option:
    help: str
    name: str = ""  # if it differs from the field's
    also: tuple[str, ...] = ()
    metavar: str | None = None
    const: Any = None
    separator: str | None = None
    repeated: bool = False
    positional: bool = False
    once: bool = False
    rare: bool = False


def option(default: Any, help: str, **more: Any) -> Any:  # noqa: A002 - argparse's name
    """Return a field of a settings dataclass that is also a command-line option.

    `help` gets "(default: ...)" unless it contains that. Limits are those of `Rule`. `name` is the option's if it differs;
    `also` are hidden spellings; `const` is its value without one; `separator` splits a list in one argument, `repeated` makes
    an option for each, otherwise each value is an argument; `positional` has no name; a second one of `once`, which elsewhere
    replaces the first, is an error; `rare` is shown by --help-all only.
    """
    return field(default=default, metadata=described(help, **more))


def described(help: str, **more: Any) -> dict[str, Any]:  # noqa: A002 - argparse's name
    """Return the metadata of a field that is an option, for `dataclasses.field`."""
    limits = {name: more.pop(name) for name in Rule.__dataclass_fields__ if name in more}
    return {"option": _Option(help=help, **more), "limits": limits}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A dataclass whose option fields are checked when it is built; `group` is their heading in --help."""

    group: ClassVar[str] = OPTIONS

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class _Field:
    """A field that is an option: its name and rule in Python, and the description for the command line."""

    name: str
    default: Any
    rule: Rule
    option: _Option
    group: str

    @property
    def kind(self) -> type:
        return self.rule.kinds[0]

    @property
    def spelling(self) -> str:
        if self.option.positional:
            return self.option.metavar or self.name.upper()
        return self.option.name or "--" + self.name.replace("_", "-")

    @property
    def flag(self) -> str:
        return self.spelling if self.default is not True else "--no-" + self.spelling.removeprefix("--")

    @property
    def dest(self) -> str:
        return self.name if self.option.positional else self.spelling.removeprefix("--").replace("-", "_")

    def read(self, given: Any) -> Any:
        """Return a value as the rule has it; one value, or a text with separators, will do for a list."""
        if given is None and self.default is None:
            return None
        value = given
        if self.rule.many and isinstance(given, str) and self.option.separator:
            value = [each.strip() for each in given.split(self.option.separator)]
        elif self.rule.many and isinstance(given, str | Path):
            value = (given,)
        try:
            return self.rule.read(value)
        except (TypeError, ValueError) as error:
            wrong = self._at_fault(value)
            if isinstance(error, TypeError):
                why = f"{wrong!r}: must be {error}, found {type(wrong).__name__}"
            elif str(error).startswith("one of"):
                why = f"{_shown(wrong)}: unknown; choose {error}"
            else:
                why = f"{_shown(wrong)}: must be {error}"
            raise UsageError(f"{self.spelling} {why}") from None

    def parse(self, text: str) -> Any:
        kind, separator = self.kind if self.kind in (int, float) else str, self.option.separator
        try:
            return tuple(map(kind, text.split(separator))) if separator else kind(text)
        except ValueError:
            raise UsageError(f"{self.spelling} {text}: must be {self.rule.in_words}") from None

    def _at_fault(self, value: Any) -> Any:
        one = replace(self.rule, many=False)
        is_list = self.rule.many and isinstance(value, tuple | list)
        return next((each for each in value if not one.holds(each)), value) if is_list else value


def _fields(settings: type) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(settings)
    found = []
    for each in fields(settings):
        if (described := each.metadata.get("option")) is not None:
            owner = next(base for base in settings.__mro__ if each.name in vars(base).get("__annotations__", ()))
            rule, group = _rule(hints[each.name], each.metadata["limits"]), getattr(owner, "group", Settings.group)
            found.append(_Field(each.name, each.default, rule, described, group))
    return tuple(found)


def _rule(hint: Any, limits: Mapping[str, Any]) -> Rule:
    inner = [kind for kind in _members(hint) if kind is not types.NoneType]
    lists = [kind for kind in inner if typing.get_origin(kind) in (tuple, Sequence)]
    kinds = _members(typing.get_args(lists[0])[0]) if lists else inner
    if any(kind is Any for kind in kinds):
        kinds = [object]
    if Path in kinds:  # which `check` makes of a text
        limits = {"words": "a path", **limits}
        kinds = [Path, str]
    return Rule(kinds=tuple(kinds), many=bool(lists), **limits)


def _members(hint: Any) -> list[Any]:
    return list(typing.get_args(hint)) if typing.get_origin(hint) in (types.UnionType, typing.Union) else [hint]


def rules_of(settings: type) -> dict[str, Rule]:
    """Return the rules of a settings dataclass by field, for the same values in JSON."""
    return {each.name: replace(each.rule, optional=each.default is None) for each in _fields(settings)}


def check_options(settings: Any) -> None:
    """Check the option fields of a new settings dataclass, and convert them to their annotated types.

    Integral values become int, other numbers float, lists tuples. Raises `UsageError` with the option's name.
    """
    for each in _fields(type(settings)):
        object.__setattr__(settings, each.name, each.read(getattr(settings, each.name)))


def narrowed(settings: type[AnySettings], request: Any) -> AnySettings:
    """Return the settings of one dataclass out of an instance of a subclass."""
    return settings(**{each.name: getattr(request, each.name) for each in fields(settings)})  # type: ignore[arg-type]


def add_options(parser: Any, settings: type, *, without: Collection[str] = ()) -> None:
    """Add an option for each option field of a settings dataclass, except those in `without`; a `Parser` adds group
    headings.
    """
    groups: dict[str, Any] = {}
    for each in sorted(_fields(settings), key=lambda each: GROUPS.index(each.group)):
        if each.name in without:
            continue
        into = parser
        if isinstance(parser, argparse.ArgumentParser) and each.group != Settings.group and not each.option.positional:
            into = groups.get(each.group) or groups.setdefault(each.group, parser.add_argument_group(each.group))
        _add_option(into, each)


def _add_option(parser: Any, each: _Field) -> None:
    described, kind = each.option, each.kind
    text = described.help.replace("%", "%%")
    has_default = each.default is not MISSING and each.default not in (None, ()) and kind is not bool
    if has_default and "(default" not in text:
        text += f" (default: {_shown(each.default)})"
    settings: dict[str, Any] = {"default": each.default, "help": text}
    names = (each.flag, *described.also)
    if kind is bool:
        settings["action"] = "store_false" if each.default else "store_true"
    else:
        choices = f"{{{','.join(each.rule.allowed)}}}" if each.rule.allowed else None
        settings |= {"type": each.parse, "metavar": described.metavar or choices or _METAVARS.get(kind, "NAME")}
        if described.once:
            settings["action"] = _Once
        if described.repeated:
            settings["action"] = "append"
        elif each.rule.many and not described.separator:
            settings["nargs"] = "*" if described.positional and each.default is not MISSING else "+"
        elif described.const is not None:
            settings |= {"nargs": "?", "const": described.const}
        elif described.positional and each.default is not MISSING:
            settings["nargs"] = "?"
    if described.positional:
        names, settings["default"] = (each.dest,), None if each.default is MISSING else each.default
    else:
        settings["dest"] = each.dest
    if described.repeated:
        settings["default"] = None  # to which argparse would append
    action = parser.add_argument(*names, **settings)
    if described.rare:
        action.rare_help, action.help = text, argparse.SUPPRESS


def read_options(settings: type[AnySettings], namespace: argparse.Namespace, **more: Any) -> AnySettings:
    """Return the settings of a parsed command line; `more` are other fields."""
    found = {each.name: getattr(namespace, each.dest) for each in _fields(settings) if hasattr(namespace, each.dest)}
    given = {each.name: found[each.name] for each in _fields(settings) if found.get(each.name) is not None}
    return settings(**{**given, **more})


def command_line(*settings: Any) -> list[str]:
    """Return the arguments that give these settings; defaults are left out."""
    arguments: list[str] = []
    for one in settings:
        for each in _fields(type(one)):
            value = getattr(one, each.name)
            if value == each.default:
                continue
            if each.kind is bool:
                arguments.append(each.flag)
            elif each.rule.many and not each.option.separator:
                arguments += [each.spelling, *map(_shown, value)]
            else:
                shown = (each.option.separator or "").join(map(_shown, value)) if each.rule.many else _shown(value)
                arguments += [f"{each.spelling}={shown}"] if shown.startswith("-") else [each.spelling, shown]
    return arguments


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_shown, value))
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value)


MAX_NUMBER = 10**12
MAX_AT_ONCE = 4096
"""The highest accepted count (MAX_NUMBER), and number of processes or connections; anything above is a typing mistake."""
_NEGATIVE_NUMBER = re.compile(r"-\.?\d")


class Parser(argparse.ArgumentParser):
    """An `argparse.ArgumentParser` whose errors are one line: `PROGRAM: error: ...; COMMAND --help lists the options`.

    Underscores in options are accepted. `former` maps options of earlier versions and other tools to their replacements.
    """

    def __init__(self, *arguments: Any, former: Mapping[str, str] | None = None, **settings: Any) -> None:
        super().__init__(
            *arguments, **{"formatter_class": _HelpFormatter, "allow_abbrev": False, "add_help": False, **settings}
        )
        self.former = former or {}
        self._negative_number_matcher = _NEGATIVE_NUMBER  # values; argparse recognizes only numbers without an exponent
        self._positionals.title = "arguments"
        self.add_argument("-h", "--help", action="help", help="show this help")
        self.add_argument("--help-all", action=_HelpAll, nargs=0, help=argparse.SUPPRESS)

    def parse_known_args(  # type: ignore[override]  # argparse has two forms; this is the one it calls itself
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse all of `args`; leftover arguments, which argparse would return, are an error."""
        arguments = [self._respelled(each) for each in (sys.argv[1:] if args is None else args)]
        self._check_names(arguments)
        found, left = super().parse_known_args(arguments, namespace)
        if left:
            meant = f", did you mean --input {left[0]}?" if "--input" in self._option_string_actions else ""
            self.error(f"{listed(left)}: not expected here{meant}")
        return found, left

    def error(self, message: str) -> NoReturn:
        message = re.sub(r"^(-[^ /:]*)/[^ :]*", r"\1", " ".join(message.removeprefix("argument ").split()))
        print_message(f"{self._program}: error: {self._advised(message)}")
        self.exit(2)

    def _print_message(self, message: str, file: Any = None) -> None:  # noqa: ARG002 - help, and the version
        print_results(*message.splitlines())

    def format_help(self) -> str:
        if self.usage is None:
            taken = ["COMMAND"] if self._has_commands() else [_usage(each) for each in self._get_positional_actions()]
            self.usage = " ".join(["%(prog)s", *taken, "[OPTIONS]"])
        if self._has_rare() and self.epilog is None:
            self.epilog = f"{self.prog} --help-all lists {counted(self._has_rare(), 'more option')}."
        return super().format_help()

    def show_rare(self) -> None:
        for action in self._actions:
            action.help = getattr(action, "rare_help", action.help)
        self.epilog = ""

    def _respelled(self, argument: str) -> str:
        name, equals, value = argument.partition("=")
        hyphenated = name.replace("_", "-")
        is_known = name.startswith("--") and hyphenated in self._option_string_actions
        return hyphenated + equals + value if is_known else argument

    def _check_names(self, arguments: Sequence[str]) -> None:
        wrong = []
        for argument, following in zip_longest(arguments, arguments[1:], fillvalue=""):
            is_option = (
                argument[:1] == "-" and len(argument) > 1 and " " not in argument and not _NEGATIVE_NUMBER.match(argument)
            )
            if argument == "--" or (self._has_commands() and not is_option):  # the rest belongs to the command
                break
            if not is_option:
                continue
            name, equals, value = argument.partition("=")
            shown = argument if value.lower() in ("true", "false") else name
            hyphenated, known = name.replace("_", "-"), self._option_string_actions
            if name in known:
                if known[name].nargs == 0 and (equals or following.lower() in ("true", "false")):
                    wrong.append(f"{shown}: is a flag, which takes no value; give it alone, or leave it out")
            elif now := self.former.get(f"{hyphenated}={value.lower()}") or self.former.get(hyphenated):
                wrong.append(f"{shown}: {now}")
            else:
                meant = near(hyphenated, {each: _name(action) for each, action in known.items()})
                wrong.append(self._advised(f"{shown}: unknown option{meant}"))
        for message in wrong[:-1]:
            print_message(f"{self._program}: error: {message}")
        if wrong:
            raise UsageError(wrong[-1])

    @property
    def _program(self) -> str:
        return self.prog.removeprefix("python -m ").split()[0]

    def _advised(self, message: str) -> str:
        listed = "commands" if self._has_commands() else "options"
        advice = f"{self.prog} --help{'-all' if self._has_rare() else ''} lists the {listed}"
        return f"{message}{'' if message[-1] == '?' else ';'} {advice}"

    def _has_commands(self) -> bool:
        return any(isinstance(action, argparse._SubParsersAction) for action in self._actions)

    def _has_rare(self) -> int:
        return sum(hasattr(action, "rare_help") for action in self._actions)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = f"choose one of {', '.join(map(str, action.choices))}"
        if isinstance(action, argparse._SubParsersAction):
            self.error(f"{value}: unknown command{near(value, action.choices.keys()) or '; ' + choices}")
        self.error(f"{_name(action)} {value}: unknown; {choices}")


class _Once(argparse.Action):
    """Refuses a second value; a name in the namespace that no option has says that there was one."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option_string: str | None = None) -> None:
        given = f"{self.dest} is given"
        if hasattr(namespace, given):
            parser.error(f"{option_string}: is given twice, {getattr(namespace, self.dest)} and {values}; give one")
        setattr(namespace, given, True)
        setattr(namespace, self.dest, values)


class _HelpAll(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        if isinstance(parser, Parser):
            parser.show_rare()
        parser.print_help()
        parser.exit()


class _HelpFormatter(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or "-h" in action.option_strings:
            return super()._format_action_invocation(action)
        return " ".join(
            [action.option_strings[0], self._format_args(action, "")] if action.nargs != 0 else action.option_strings[:1]
        )


def _usage(positional: argparse.Action) -> str:
    name = str(positional.metavar or positional.dest)
    return {"+": f"{name}...", "*": f"[{name}...]", "?": f"[{name}]"}.get(str(positional.nargs), name)


def _name(action: argparse.Action) -> str:
    return action.option_strings[0] if action.option_strings else str(action.metavar or action.dest)


def near(name: str, there: Iterable[str] | Mapping[str, str]) -> str:
    """Return a suggestion of a similar name, if there is one; of a mapping, its value.

    >>> near("--sead", ["--seed", "--seq", "--workers"]), near("--xyz", ["--seed"])
    (', did you mean --seed?', '')
    >>> near("--sequence-length", {"--seq": "--seq", "--max-seq-length": "--seq"})
    ', did you mean --seq?'
    """
    import difflib  # as slow to load as argparse

    bare = {each.lstrip("-"): there[each] if isinstance(there, Mapping) else each for each in there}
    found = difflib.get_close_matches(name.lstrip("-"), bare, n=1)
    return f", did you mean {bare[found[0]]}?" if found else ""


_METAVARS: dict[type, str] = {int: "INT", float: "FLOAT", Path: "PATH"}
