"""Settings dataclasses: one line defines a field as a command-line option, a keyword in Python and a rule for manifests.

    @dataclass(frozen=True, kw_only=True)
    class Training(Settings):
        seed: int = option(12345, "random seed", least=0)
        sizes: tuple[int, ...] = option((), "sizes, one for each phase", metavar="N[,N...]", separator=",", also=("--sz",))

    add_options(parser, Training)                      # --seed INT, --sizes N[,N...]
    settings = read_options(Training, parser.parse_args())
    command_line(settings)                             # ["--seed", "7"], which gives the same settings

The type and limits of a field are a `Rule`, which checks values from a command line, from Python and from JSON.
"""

from __future__ import annotations

import argparse
import dataclasses
import types
import typing
from collections.abc import Collection, Sequence
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from bertprep.errors import UsageError
from bertprep.parser import Once
from bertprep.rules import Rule, WrongValueError, shown

AnySettings = TypeVar("AnySettings")

MAX_NUMBER = 10**12
MAX_AT_ONCE = 4096
"""The limits for counts (`MAX_NUMBER`) and for processes; a higher number is probably a typing mistake."""
_METAVARS: dict[type, str] = {int: "INT", float: "FLOAT", Path: "PATH"}
GROUPS = OPTIONS, MADE, WHERE, HOW = "options", "what is made", "where", "how"
"""The headings of options in --help. Options under "what is made" decide the bytes of files; the others do not."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """A field of settings: the rule for its value, its option on the command line and its text in --help.

    "(default: ...)" is appended to `help` unless it already contains that.
    """

    help: str
    rule: Rule
    name: str = ""
    """The option, such as --seed; by default it is derived from the keyword. For a positional argument, its name in --help."""
    also: tuple[str, ...] = ()
    """Other spellings, which --help does not list."""
    metavar: str | None = None
    const: Any = None
    """The value if the option is given without one."""
    separator: str = ""
    """The text between the values of a list in one argument; if empty, each value is an argument."""
    repeated: bool = False
    """Whether the option is given once for each value of a list."""
    positional: bool = False
    once: bool = False
    """Whether giving the option twice is an error; otherwise the second value replaces the first."""
    rare: bool = False
    """Whether only --help-all lists it."""
    shell: bool = False
    """Whether it is only an option, not a keyword in Python."""
    python: bool = False
    """Whether it is only a keyword in Python, not an option."""
    # `fields_of` sets the following attributes from the class of settings.
    keyword: str = ""
    annotation: Any = None
    default: Any = None  # `MISSING` if there is none
    group: str = ""

    @property
    def kind(self) -> type:
        return self.rule.kinds[0]

    @property
    def flag(self) -> str:
        """The option on a command line; for a flag that is on by default, the option that turns it off."""
        return self.name if self.default is not True else "--no-" + self.name.removeprefix("--")

    @property
    def dest(self) -> str:
        """The name of the field's attribute in a parsed command line."""
        return self.keyword if self.positional else self.name.removeprefix("--").replace("-", "_")

    @property
    def full_help(self) -> str:
        """The help text with the default value."""
        has_default = self.default is not MISSING and self.default not in (None, ()) and self.kind is not bool
        return f"{self.help} (default: {shown(self.default)})" if has_default and "(default" not in self.help else self.help

    def read(self, given: Any) -> Any:
        """Return a value checked and converted by the rule. A list may also be given as a single value or a separated text.

        Raises `UsageError` with the name of the option.
        """
        value = given
        if self.rule.many and isinstance(given, str) and self.separator:
            value = [each.strip() for each in given.split(self.separator)]
        elif self.rule.many and isinstance(given, str | Path):
            value = (given,)
        try:
            return self.rule.read(value)
        except WrongValueError as error:
            raise UsageError(f"{self.name} {error.complaint}") from None

    def parse(self, text: str) -> Any:
        """Return the value of an argument by its type; limits are checked when the settings are built."""
        kind = self.kind if self.kind in (int, float) else str
        try:
            return tuple(map(kind, text.split(self.separator))) if self.separator else kind(text)
        except ValueError:
            raise UsageError(f"{self.name} {text}: must be {self.rule.in_words}") from None

    def arguments(self, value: Any) -> list[str]:
        """Return the command-line arguments for this value."""
        if self.kind is bool:
            return [self.flag]
        if self.rule.many and not self.separator:
            return [self.name, *map(shown, value)]
        text = self.separator.join(map(shown, value)) if self.rule.many else shown(value)
        return [f"{self.name}={text}"] if text.startswith("-") else [self.name, text]


def option(default: Any, help: str, **more: Any) -> Any:  # noqa: A002 - argparse's name
    """Return a field for a settings dataclass; `more` are attributes of `Rule` and `Field`."""
    return dataclasses.field(default=default, metadata=described(help, **more))


def described(help: str, **more: Any) -> dict[str, Field]:  # noqa: A002 - argparse's name
    """Return the metadata for `dataclasses.field`, for fields that `option` cannot make: without default, or `kw_only`."""
    limits = {name: more.pop(name) for name in Rule.__dataclass_fields__ if name in more}
    return {_FIELD: Field(help=help, rule=Rule(**limits), **more)}


_FIELD = "bertprep"
"""The key under which the metadata of a dataclass field has its `Field`."""
_RESOLVED = "_resolved_fields"
"""The attribute in which a class caches the result of `fields_of`."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A dataclass whose fields are checked and converted when it is built; `group` is their heading in --help.

    Integral numbers become int, other numbers float, and lists tuples. Raises `UsageError` with the name of the option.
    """

    group: ClassVar[str] = OPTIONS

    def __post_init__(self) -> None:
        for each in fields_of(type(self)):
            object.__setattr__(self, each.keyword, each.read(getattr(self, each.keyword)))


def fields_of(settings: Any) -> tuple[Field, ...]:
    """Return the fields of a settings dataclass that `option` made, with rules for their types; cached for each class."""
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
        annotation=hint,
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
    if Path in kinds:  # `check` turns text into a path
        words, kinds = words or "a path", [Path, str]
    return replace(rule, kinds=tuple(kinds), many=bool(lists), words=words)


def _members(hint: Any) -> list[Any]:
    return list(typing.get_args(hint)) if typing.get_origin(hint) in (types.UnionType, typing.Union) else [hint]


def rules_of(settings: type) -> dict[str, Rule]:
    """Return the rules of a settings dataclass by keyword, to check the same values in JSON."""
    return {each.keyword: each.rule for each in fields_of(settings)}


def narrowed(settings: type[AnySettings], request: Any) -> AnySettings:
    """Return an instance of a settings class with the values of a request that has all of its fields."""
    return settings(**{each.name: getattr(request, each.name) for each in dataclasses.fields(settings)})  # type: ignore[arg-type]


def add_options(parser: Any, settings: type, *, without: Collection[str] = ()) -> None:
    """Add an option for each field of a settings dataclass, except those in `without`, under the headings of their groups."""
    groups: dict[str, Any] = {}
    for each in sorted(fields_of(settings), key=lambda each: GROUPS.index(each.group)):
        if each.python or each.keyword in without:
            continue
        into = parser
        if isinstance(parser, argparse.ArgumentParser) and each.group != OPTIONS and not each.positional:
            into = groups.get(each.group) or groups.setdefault(each.group, parser.add_argument_group(each.group))
        _add_option(into, each)


def _add_option(parser: Any, each: Field) -> None:
    """Add an option without a default, so the namespace only has values that were given; the settings have the defaults."""
    text = each.full_help.replace("%", "%%")
    settings: dict[str, Any] = {"help": text, "default": argparse.SUPPRESS}
    if each.kind is bool:
        settings["action"] = "store_false" if each.default else "store_true"
    else:
        choices = f"{{{','.join(each.rule.allowed)}}}" if each.rule.allowed else None
        settings |= {"type": each.parse, "metavar": each.metavar or choices or _METAVARS.get(each.kind, "NAME")}
        if each.once or (each.rule.many and not each.positional):
            settings["action"] = Once
        if each.repeated:
            settings["action"] = "append"
        elif each.rule.many and not each.separator:
            settings["nargs"] = "*" if each.positional and each.default is not MISSING else "+"
        elif each.const is not None:
            settings |= {"nargs": "?", "const": each.const}
        elif each.positional and each.default is not MISSING:
            settings |= {"nargs": "?", "default": None}  # argparse would parse SUPPRESS like a value, since it is a string
    if each.positional:
        names = [each.dest]
    else:
        settings["dest"] = each.dest
        hyphenated = [each.flag, *each.also]
        names = list(dict.fromkeys([*hyphenated, *("--" + name[2:].replace("-", "_") for name in hyphenated)]))
    action = parser.add_argument(*names, **settings)
    action.takes_commas = each.separator == "," or "[," in (each.metavar or "")
    if each.rare:
        action.rare_help, action.help = text, argparse.SUPPRESS


def read_options(settings: type[AnySettings], namespace: argparse.Namespace, **more: Any) -> AnySettings:
    """Return the settings from a parsed command line; `more` overrides some of them, or sets other fields."""
    values = {each.keyword: getattr(namespace, each.dest, None) for each in fields_of(settings)}
    given = {keyword: value for keyword, value in values.items() if value is not None}
    return settings(**{**given, **more})


def command_line(*settings: Any) -> list[str]:
    """Return the command-line arguments that give these settings, without defaults."""
    given = [(each, getattr(one, each.keyword)) for one in settings for each in fields_of(type(one))]
    return [argument for each, value in given if value != each.default for argument in each.arguments(value)]
