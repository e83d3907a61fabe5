"""What both command lines are parsed with: whatever was typed wrong is one line, and a mistyped name is told the near one.

argparse prints its usage, many lines of it, before what is wrong, and knows nothing of near names; else it is as it was.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from bertprep.terminal import say

MOST = 10**12
MOST_AT_ONCE = 4096
"""The highest number of things (MOST), and of processes or connections at once: more are a slip of the finger."""
_NEGATIVE_NUMBER = re.compile(r"-\.?\d")


class Parser(argparse.ArgumentParser):
    """An `argparse.ArgumentParser` that refuses in one line: `PROGRAM: error: ...; COMMAND --help lists the options`."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **{"formatter_class": _HelpFormatter, "allow_abbrev": False, **settings})
        self._negative_number_matcher = _NEGATIVE_NUMBER  # values, as the numbers without an exponent that argparse knows

    def parse_known_args(  # type: ignore[override]  # of the two forms argparse has, the one that it calls itself
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse all of `args`: what is not known, which argparse would leave to its caller, is an error."""
        arguments = sys.argv[1:] if args is None else args
        self._check_names(arguments)
        found, left = super().parse_known_args(arguments, namespace)
        if left:
            self.error(f"{' '.join(left)}: not expected here")
        return found, left

    def error(self, message: str) -> NoReturn:
        """Print what is wrong as one line, and exit with status 2."""
        program = self.prog.removeprefix("python -m ").split()[0]
        message = " ".join(message.removeprefix("argument ").split())
        listed = "commands" if self._has_commands() else "options"
        say(f"{program}: error: {message}{'' if message[-1] == '?' else ';'} {self.prog} --help lists the {listed}")
        self.exit(2)

    def _check_names(self, arguments: Sequence[str]) -> None:
        """Refuse an option that is not there, before argparse misses the arguments that it takes for its values."""
        for argument in arguments:
            is_option = (
                argument[:1] == "-" and len(argument) > 1 and " " not in argument and not _NEGATIVE_NUMBER.match(argument)
            )
            if argument == "--" or (self._has_commands() and not is_option):  # what follows a command is the command's
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
    """The question whether something else was meant, if there is something near.

    >>> _near("--sead", ["--seed", "--seq", "--workers"]), _near("--xyz", ["--seed"])
    (', did you mean --seed?', '')
    """
    bare = {each.lstrip("-"): each for each in there}
    near = difflib.get_close_matches(name.lstrip("-"), bare, n=1)
    return f", did you mean {bare[near[0]]}?" if near else ""


def whole_number(text: str) -> int:
    """The type of an option that takes a whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError("must be a whole number") from None


def number(text: str) -> float:
    """The type of an option that takes any number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError("must be a number") from None


def how_many(text: str, most: int = MOST) -> int:
    """The type of an option that says how many."""
    found = whole_number(text)
    if not 1 <= found <= most:
        raise argparse.ArgumentTypeError(f"must be at least 1 and at most {most:,}")
    return found


def how_many_at_once(text: str) -> int:
    """The type of an option that says how many processes or connections."""
    return how_many(text, MOST_AT_ONCE)
