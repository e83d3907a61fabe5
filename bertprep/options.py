"""Settings dataclasses: one line makes a field an option of the shell, a keyword in Python and a rule for manifests.

    @dataclass(frozen=True, kw_only=True)
    class Training(Settings):
        seed: int = option(12345, "random seed", least=0)
        sizes: tuple[int, ...] = option((), "sizes, one for each phase", metavar="N[,N...]", separator=",", also=("--sz",))

    add_options(parser, Training)                      # --seed INT, --sizes N[,N...]
    settings = read_options(Training, parser.parse_args())
    command_line(settings)                             # ["--seed", "7"], which parses to the same settings

The type and the limits of a field are a `Rule`, which checks values from a shell, from Python and from JSON.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
import types
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, replace
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
class Field:
    """A field of settings: what its value must be, and what a shell and --help say of it.

    `help` gets "(default: ...)" unless it contains that.
    """

    help: str
    rule: Rule
    name: str = ""
    """The option, such as --seed; by default from the keyword. Of positional arguments it is what --help calls them."""
    also: tuple[str, ...] = ()
    """Other spellings, which --help does not list."""
    metavar: str | None = None
    const: Any = None
    """The value of the option where it is given without one."""
    separator: str = ""
    """Between the values of a list in one argument; without it each value is an argument."""
    repeated: bool = False
    """Whether a list has an option for each value."""
    positional: bool = False
    once: bool = False
    """Whether a second value is an error; elsewhere it replaces the first."""
    rare: bool = False
    """Whether only --help-all lists it."""
    shell: bool = False
    """Whether it is an option alone, which Python does not have."""
    python: bool = False
    """Whether it is a keyword of Python alone."""
    # These belong to the class of settings, and are known as soon as it is: see `fields_of`.
    keyword: str = ""
    default: Any = None  # `MISSING` where it has none
    group: str = ""

    @property
    def kind(self) -> type:
        return self.rule.kinds[0]

    @property
    def flag(self) -> str:
        """The option that is given: of a flag that is on by default, the one that turns it off."""
        return self.name if self.default is not True else "--no-" + self.name.removeprefix("--")

    @property
    def dest(self) -> str:
        """The attribute of a parsed command line."""
        return self.keyword if self.positional else self.name.removeprefix("--").replace("-", "_")

    @property
    def full_help(self) -> str:
        """The help with the default."""
        has_default = self.default is not MISSING and self.default not in (None, ()) and self.kind is not bool
        return f"{self.help} (default: {shown(self.default)})" if has_default and "(default" not in self.help else self.help

    def read(self, given: Any) -> Any:
        """Return a value as the rule has it; one value, or a text with separators, will do for a list.

        Raises `UsageError`, which names the option.
        """
        value = given
        if self.rule.many and isinstance(given, str) and self.separator:
            value = [each.strip() for each in given.split(self.separator)]
        elif self.rule.many and isinstance(given, str | Path):
            value = (given,)
        try:
            return self.rule.read(value)
        except (TypeError, ValueError) as error:
            wrong = self._at_fault(value)
            if isinstance(error, TypeError):
                why = f"{wrong!r}: must be {error}, found {type(wrong).__name__}"
            elif str(error).startswith("one of"):
                why = f"{shown(wrong)}: unknown; choose {error}"
            else:
                why = f"{shown(wrong)}: must be {error}"
            raise UsageError(f"{self.name} {why}") from None

    def parse(self, text: str) -> Any:
        """Return the value of an argument, whose limits are checked when the settings are made."""
        kind = self.kind if self.kind in (int, float) else str
        try:
            return tuple(map(kind, text.split(self.separator))) if self.separator else kind(text)
        except ValueError:
            raise UsageError(f"{self.name} {text}: must be {self.rule.in_words}") from None

    def arguments(self, value: Any) -> list[str]:
        """Return the arguments of a command line that give this value."""
        if self.kind is bool:
            return [self.flag]
        if self.rule.many and not self.separator:
            return [self.name, *map(shown, value)]
        text = self.separator.join(map(shown, value)) if self.rule.many else shown(value)
        return [f"{self.name}={text}"] if text.startswith("-") else [self.name, text]

    def _at_fault(self, value: Any) -> Any:
        one = replace(self.rule, many=False, optional=False)
        is_list = self.rule.many and isinstance(value, tuple | list)
        return next((each for each in value if not one.holds(each)), value) if is_list else value


def option(default: Any, help: str, **more: Any) -> Any:  # noqa: A002 - argparse's name
    """Return a field of a settings dataclass; `more` are limits of `Rule` and attributes of `Field`."""
    return dataclasses.field(default=default, metadata=described(help, **more))


def described(help: str, **more: Any) -> dict[str, Field]:  # noqa: A002 - argparse's name
    """Return the metadata for a field that `dataclasses.field` makes: one without default or `kw_only`."""
    limits = {name: more.pop(name) for name in Rule.__dataclass_fields__ if name in more}
    return {_FIELD: Field(help=help, rule=Rule(**limits), **more)}


_FIELD = "bertprep"
"""The key of a `Field` in the metadata of a field of a dataclass."""
_RESOLVED = "_resolved_fields"
"""The attribute of a class that keeps what `fields_of` returns."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A dataclass whose fields are checked when it is built; `group` is their heading in --help."""

    group: ClassVar[str] = OPTIONS

    def __post_init__(self) -> None:
        check_options(self)


def fields_of(settings: Any) -> tuple[Field, ...]:
    """Return the fields of a settings dataclass that `option` made, with the rules of their types, resolved once per class."""
    resolved: tuple[Field, ...] | None = vars(settings).get(_RESOLVED)
    if resolved is None:
        hints, own = typing.get_type_hints(settings), dataclasses.fields(settings)
        resolved = tuple(_resolve(settings, each, hints[each.name]) for each in own if _FIELD in each.metadata)
        setattr(settings, _RESOLVED, resolved)
    return resolved


def _resolve(settings: type, found: dataclasses.Field[Any], hint: Any) -> Field:
    described: Field = found.metadata[_FIELD]
    owner = next(base for base in settings.__mro__ if found.name in vars(base).get("__annotations__", ()))
    if described.positional:
        name = described.metavar or found.name.upper()
    else:
        name = described.name or "--" + found.name.replace("_", "-")
    return replace(
        described,
        name=name,
        keyword=found.name,
        default=found.default,
        group=described.group or getattr(owner, "group", OPTIONS),
        rule=replace(_of_type(described.rule, hint), optional=found.default is None),
    )


def _of_type(rule: Rule, hint: Any) -> Rule:
    inner = [kind for kind in _members(hint) if kind is not types.NoneType]
    lists = [kind for kind in inner if typing.get_origin(kind) in (tuple, Sequence)]
    kinds = _members(typing.get_args(lists[0])[0]) if lists else inner
    if any(kind is Any for kind in kinds):
        kinds = [object]
    words = rule.words
    if Path in kinds:  # which `check` makes of a text
        words, kinds = words or "a path", [Path, str]
    return replace(rule, kinds=tuple(kinds), many=bool(lists), words=words)


def _members(hint: Any) -> list[Any]:
    return list(typing.get_args(hint)) if typing.get_origin(hint) in (types.UnionType, typing.Union) else [hint]


def rules_of(settings: type) -> dict[str, Rule]:
    """Return the rules of a settings dataclass by keyword, for the same values in JSON."""
    return {each.keyword: each.rule for each in fields_of(settings)}


def check_options(settings: Any) -> None:
    """Check the fields of a new settings dataclass, and convert them to their annotated types.

    Integral values become int, other numbers float, lists tuples. Raises `UsageError` with the option's name.
    """
    for each in fields_of(type(settings)):
        object.__setattr__(settings, each.keyword, each.read(getattr(settings, each.keyword)))


def narrowed(settings: type[AnySettings], request: Any) -> AnySettings:
    """Return the settings of one dataclass out of an instance of a subclass."""
    return settings(**{each.name: getattr(request, each.name) for each in dataclasses.fields(settings)})  # type: ignore[arg-type]


def add_options(parser: Any, settings: type, *, without: Collection[str] = ()) -> None:
    """Add an option for each field of a settings dataclass, except those in `without`; a `Parser` adds group headings."""
    groups: dict[str, Any] = {}
    for each in sorted(fields_of(settings), key=lambda each: GROUPS.index(each.group)):
        if each.python or each.keyword in without:
            continue
        into = parser
        if isinstance(parser, argparse.ArgumentParser) and each.group != OPTIONS and not each.positional:
            into = groups.get(each.group) or groups.setdefault(each.group, parser.add_argument_group(each.group))
        _add_option(into, each)


def _add_option(parser: Any, each: Field) -> None:
    text = each.full_help.replace("%", "%%")
    settings: dict[str, Any] = {"default": each.default, "help": text}
    names = (each.flag, *each.also)
    if each.kind is bool:
        settings["action"] = "store_false" if each.default else "store_true"
    else:
        choices = f"{{{','.join(each.rule.allowed)}}}" if each.rule.allowed else None
        settings |= {"type": each.parse, "metavar": each.metavar or choices or _METAVARS.get(each.kind, "NAME")}
        if each.once:
            settings["action"] = _Once
        if each.repeated:
            settings["action"] = "append"
        elif each.rule.many and not each.separator:
            settings["nargs"] = "*" if each.positional and each.default is not MISSING else "+"
        elif each.const is not None:
            settings |= {"nargs": "?", "const": each.const}
        elif each.positional and each.default is not MISSING:
            settings["nargs"] = "?"
    if each.positional:
        names, settings["default"] = (each.dest,), None if each.default is MISSING else each.default
    else:
        settings["dest"] = each.dest
    if each.repeated:
        settings["default"] = None  # to which argparse would append
    action = parser.add_argument(*names, **settings)
    if each.rare:
        action.rare_help, action.help = text, argparse.SUPPRESS


def read_options(settings: type[AnySettings], namespace: argparse.Namespace, **more: Any) -> AnySettings:
    """Return the settings of a parsed command line; `more` are other fields."""
    given = {each.keyword: getattr(namespace, each.dest, None) for each in fields_of(settings)}
    return settings(**{name: value for name, value in given.items() if value is not None}, **more)


def command_line(*settings: Any) -> list[str]:
    """Return the arguments that give these settings; defaults are left out."""
    given = [(each, getattr(one, each.keyword)) for one in settings for each in fields_of(type(one))]
    return [argument for each, value in given if value != each.default for argument in each.arguments(value)]


def shown(value: Any) -> str:
    """Return a value as on a command line.

    >>> shown((0.5, 1e-06)), shown(True)
    ('0.5,1e-06', 'True')
    """
    if isinstance(value, tuple):
        return ",".join(map(shown, value))
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
