"""The parser of both command lines: argparse, with one-line errors that suggest what was meant.

argparse detects errors. `Parser.error` explains those caused by a name: a misspelled option, an option of an earlier version
or of another tool, or a flag with a value.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NoReturn

from bertprep.errors import UsageError
from bertprep.terminal import counted, listed, near, nearest, print_message, print_results

_NEGATIVE_NUMBER = re.compile(r"-\.?\d")


class Parser(argparse.ArgumentParser):
    """An `argparse.ArgumentParser` that raises `UsageError` and has rare options, which only --help-all lists.

    `former` maps options of earlier versions and of other tools to the rest of a message about what to use instead.
    """

    def __init__(self, *arguments: Any, former: Mapping[str, str] | None = None, **settings: Any) -> None:
        super().__init__(
            *arguments, **{"formatter_class": _HelpFormatter, "allow_abbrev": False, "add_help": False, **settings}
        )
        self._former = former or {}
        self._given: Sequence[str] = ()
        self._example = ""
        self._negative_number_matcher = _NEGATIVE_NUMBER  # argparse's own pattern lacks exponents
        self._positionals.title = "arguments"
        self.add_argument("-h", "--help", action="help", help="show this help")
        self.add_argument("--help-all", action=_HelpAll, nargs=0, help=argparse.SUPPRESS)

    def set_example(self, example: str) -> None:
        """Set the example that --help shows below the usage."""
        self._example = example

    def parse_known_args(  # type: ignore[override]  # argparse has overloads; it calls this one itself
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse all of `args`; unlike in argparse, leftover arguments are an error."""
        self._given = sys.argv[1:] if args is None else list(args)
        found, left = super().parse_known_args(self._given, namespace)
        if left:
            self.error(f"{listed(left)}: not expected here{self._explain_left(left)}")
        return found, left

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError` about a wrong name on the command line or, if there is none, with the message of argparse.

        A command line of another tool may have many wrong names. All of them are reported: the last one is raised, the others
        are printed before it.
        """
        message = re.sub(r"^(-[^ /:]*)/[^ :]*", r"\1", " ".join(message.removeprefix("argument ").split()))
        *others, last = [*self._wrong_names()] or [self._advised(message)]
        program = self.prog.removeprefix("python -m ").split()[0]
        for other in others:
            print_message(f"{program}: error: {other}")
        raise UsageError(last)

    def _explain_left(self, left: Sequence[str]) -> str:
        """Return the rest of the message about extra arguments: a likely option, or the arguments that the command takes."""
        at = list(self._given).index(left[0])
        option, value = ["", "", *self._given[:at]][-2:]
        if _takes_commas(self._option_string_actions.get(option)):
            return f", did you mean {option} {','.join([value, *left])}?"
        if "--input" in self._option_string_actions:
            return f", did you mean --input {left[0]}?"
        taken = [_usage(each) for each in self._get_positional_actions()]
        return f"; {self.prog} takes {'one ' if len(taken) == 1 else ''}{' and '.join(taken)}" if taken else ""

    def _wrong_names(self) -> Iterator[str]:
        known = self._option_string_actions
        for argument, following in zip_longest(self._given, self._given[1:], fillvalue=""):
            is_option = argument[:1] == "-" and len(argument) > 1 and " " not in argument
            is_option = is_option and not _NEGATIVE_NUMBER.match(argument)
            if argument == "--" or (self._has_commands() and not is_option):
                return  # the rest are values, or belong to the command
            name, equals, value = argument.partition("=")
            if is_option and name not in known:
                yield self._explain_unknown(name, value)
            elif is_option and known[name].nargs == 0 and (equals or following.lower() in ("true", "false")):
                named = argument if value.lower() in ("true", "false") else name
                yield f"{named}: is a flag, which takes no value; give it alone, or leave it out"

    def _explain_unknown(self, name: str, value: str) -> str:
        hyphenated, known = name.replace("_", "-"), self._option_string_actions
        named = f"{name}={value}" if value.lower() in ("true", "false") else name
        if replaced := self._former.get(f"{hyphenated}={value.lower()}") or self._former.get(hyphenated):
            return f"{named}: {replaced}"
        found = nearest(hyphenated, known)
        meant = f", did you mean {_name(known[found])}?" if found else ""
        return self._advised(f"{named}: unknown option{meant}")

    def _advised(self, message: str) -> str:
        things = "commands" if self._has_commands() else "options"
        advice = f"{self.prog} --help{'-all' if self._count_rare() else ''} lists the {things}"
        return f"{message}{'' if message[-1] == '?' else ';'} {advice}"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = f"choose one of {', '.join(map(str, action.choices))}"
        if isinstance(action, argparse._SubParsersAction):
            self.error(f"{value}: unknown command{near(value, action.choices.keys()) or '; ' + choices}")
        self.error(f"{_name(action)} {value}: unknown; {choices}")

    def _print_message(self, message: str, file: Any = None) -> None:  # noqa: ARG002 - only for help and version
        print_results(*message.splitlines())

    def format_help(self) -> str:
        if self.usage is None:
            taken = ["COMMAND"] if self._has_commands() else [_usage(each) for each in self._get_positional_actions()]
            self.usage = " ".join(["%(prog)s", *taken, "[OPTIONS]"]) + (
                f"\n\nexample: {self._example}" if self._example else ""
            )
        if self._count_rare() and self.epilog is None:
            self.epilog = f"{self.prog} --help-all lists {counted(self._count_rare(), 'more option')}."
        return super().format_help()

    def show_rare(self) -> None:
        for action in self._actions:
            action.help = getattr(action, "rare_help", action.help)
        self.epilog = ""

    def _has_commands(self) -> bool:
        return any(isinstance(action, argparse._SubParsersAction) for action in self._actions)

    def _count_rare(self) -> int:
        return sum(hasattr(action, "rare_help") for action in self._actions)


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
