"""The parser of both command lines: argparse, with one-line errors that suggest what was meant.

An unknown option is reported before any other error, with the nearest option of the command or a hint: what replaces an
option of another program's script.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from bertprep.errors import UsageError
from bertprep.terminal import counted, listed, near, nearest, print_results

_OPTION = re.compile(r"--[a-z][a-z0-9-]*")


class Parser(argparse.ArgumentParser):
    """An `argparse.ArgumentParser` that raises `UsageError` and has rare options, which only --help-all lists.

    `hints` maps options of other programs' scripts to the rest of an error message, such as "is --seq here". A parser shows a
    hint only if it has all options that the hint names.
    """

    def __init__(self, *arguments: Any, hints: Mapping[str, str] | None = None, **settings: Any) -> None:
        own = {"formatter_class": _HelpFormatter, "allow_abbrev": False, "add_help": False, "exit_on_error": False}
        super().__init__(*arguments, **{**own, **settings})
        self._hints = hints or {}
        self._example = ""
        self.commands: Mapping[str, Parser] = {}
        self.add_argument("-h", "--help", action="help", help="show this help")
        self.add_argument("--help-all", action=_HelpAll, nargs=0, help=argparse.SUPPRESS)

    def set_example(self, example: str) -> None:
        """Set the example that --help shows below the usage."""
        self._example = example

    def add_subparsers(self, **settings: Any) -> Any:
        """Prepare for commands, which are in `commands` once they are added."""
        action = super().add_subparsers(**settings)
        self.commands = action.choices
        return action

    def parse_known_args(  # type: ignore[override]  # argparse has overloads; it calls this one itself
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse all of `args`; unlike in argparse, leftover arguments are an error."""
        given = sys.argv[1:] if args is None else list(args)
        self._check_names(given)
        try:
            found, left = super().parse_known_args(given, namespace)
        except argparse.ArgumentError as error:
            name = (error.argument_name or "").partition("/")[0]  # without its other spellings
            self.error(f"{name}: {error.message}" if name else error.message)
        if left:
            self._refuse_left(left, given)
        return found, left

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError` with a message, in one line, that ends with how to get help."""
        things = "commands" if self.commands else "options"
        advice = f"{self.prog} --help{'-all' if self._count_rare() else ''} lists the {things}"
        line = " ".join(message.split())
        raise UsageError(f"{line}{'' if line.endswith('?') else ';'} {advice}")

    def _check_names(self, given: Sequence[str]) -> None:
        """Raise `UsageError` for the first unknown option, flag with a value, or unknown command."""
        for argument in given:
            if argument == "--":
                return  # the rest are values
            if self.commands and argument[:1] != "-":
                self._check_command(argument)
                return  # the rest belong to the command
            if argument.startswith("--"):
                self._check_option(argument)

    def _check_command(self, name: str) -> None:
        if name not in self.commands:
            choices = f"; choose one of {', '.join(self.commands)}"
            self.error(f"{name}: unknown command{near(name, self.commands) or choices}")

    def _check_option(self, argument: str) -> None:
        name, equals, _ = argument.partition("=")
        action = self.options().get(name)
        if action is None:
            self._refuse_unknown(name)
        if equals and action.nargs == 0:
            _refuse_value(name)

    def _refuse_unknown(self, name: str) -> NoReturn:
        options, hyphenated = self.options(), name.replace("_", "-")
        hint = self._hints.get(hyphenated)
        if hint and all(named in options for named in _OPTION.findall(hint)):
            raise UsageError(f"{name}: {hint}")
        found = nearest(hyphenated, options)
        meant = f", did you mean {options[found].option_strings[0]}?" if found else ""
        self.error(f"{name}: unknown option{meant}")

    def _refuse_left(self, left: Sequence[str], given: Sequence[str]) -> NoReturn:
        """Raise `UsageError` for arguments that are left over: an option with one hyphen, or values."""
        if left[0].startswith("-") and "--" not in given:
            self._refuse_unknown(left[0])
        *_, before, value = ["", "", *given[: given.index(left[0])]]
        options = self.options()
        if value in options and options[value].nargs == 0:
            _refuse_value(value)
        likely = ""
        if before in options and _takes_commas(options[before]):
            likely = f", did you mean {before} {','.join([value, *left])}?"
        elif "--input" in options:
            likely = f", did you mean --input {left[0]}?"
        elif taken := self._usages():
            likely = f"; {self.prog} takes {'one ' if len(taken) == 1 else ''}{' and '.join(taken)}"
        self.error(f"{listed(left)}: not expected here{likely}")

    def print_help(self, file: Any = None) -> None:  # noqa: ARG002 - the help always goes to standard output
        """Print the help like the results of a command."""
        print_results(*self.format_help().splitlines())

    def format_help(self) -> str:
        """Return the help, with a short usage, the example, and how many rare options there are."""
        if self.usage is None:
            taken = ["COMMAND"] if self.commands else self._usages()
            example = f"\n\nexample: {self._example}" if self._example else ""
            self.usage = " ".join(["%(prog)s", *taken, "[OPTIONS]"]) + example
        if self._count_rare() and self.epilog is None:
            self.epilog = f"{self.prog} --help-all lists {counted(self._count_rare(), 'more option')}."
        return super().format_help()

    def show_rare(self) -> None:
        for action in self._actions:
            action.help = getattr(action, "rare_help", action.help)
        self.epilog = ""

    def options(self) -> dict[str, argparse.Action]:
        """Return the options by name, in all spellings."""
        return {name: action for action in self._actions for name in action.option_strings}

    def _usages(self) -> list[str]:
        return [_usage(action) for action in self._actions if not action.option_strings]

    def _count_rare(self) -> int:
        return sum(hasattr(action, "rare_help") for action in self._actions)


def _refuse_value(flag: str) -> NoReturn:
    raise UsageError(f"{flag}: is a flag, which takes no value; give it alone, or leave it out")


class Once(argparse.Action):
    """Stores a value and rejects a second one; the option must not have a default in the parser."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if hasattr(namespace, self.dest):
            given = [getattr(namespace, self.dest), values]
            items = [item for each in given for item in (each if isinstance(each, list | tuple) else [each])]
            if _takes_commas(self) or isinstance(values, list):
                together = (" " if isinstance(values, list) else ",").join(map(str, items))
                parser.error(f"{option_string}: is given twice; give all at once: {option_string} {together}")
            parser.error(f"{option_string}: is given twice, {given[0]} and {given[1]}; give one")
        setattr(namespace, self.dest, values)


def _takes_commas(action: argparse.Action | None) -> bool:
    """Return whether an option takes several values with commas between them."""
    return getattr(action, "takes_commas", False)


class ShowVersion(argparse.Action):
    """Prints `const` like the results of a command; argparse's own action ignores a disk that is full."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        print_results(str(self.const))
        parser.exit()


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
