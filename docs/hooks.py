"""What the site takes from the code when it is built, and how links that leave docs/ are shown.

`mkdocs.yml` loads this file twice: as hooks of mkdocs, whose functions have the names of its events, and as an extension of
griffe, which reads docstrings. `<!-- options of the commands -->` and `<!-- options of the trainer -->` in a page become the
reference of all commands, from the parsers that the programs have themselves.
"""

from __future__ import annotations

import argparse
import html
import posixpath
import re
from collections.abc import Callable, Iterator
from typing import Any

from griffe import Extension, Function, Object

from bertprep import cli
from bertprep.parser import Parser
from trainer import cli as trainer_cli

_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)\s]*)\)")
_COMMANDS = re.compile(r"<!-- options of the (commands|trainer) -->")
_DEFAULT = re.compile(r" *\(default: (.*)\)$", re.DOTALL)
_HEADINGS = re.compile(r"^(What is made|Where|How|Options):$", re.MULTILINE)
_PAGE = re.compile(r"docs/([a-z-]+/[a-z-]+)\.md")
_TRAIN = "train"


class Keywords(Extension):
    """Shows the keywords of functions that are made of requests as tables, with defaults as a reader would write them."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Make the headings of a docstring those of parameters, and leave out defaults that the signature has."""
        if obj.docstring:
            obj.docstring.value = _HEADINGS.sub(r"Args: \1", obj.docstring.value)

    def on_function_instance(self, *, func: Function, **_: Any) -> None:
        """Write paths and formats as text, and name each default once."""
        for each in func.parameters:
            if each.default and (found := re.findall(r"PosixPath\('(.*)'\)|<[^>]*: '(\w+)'>", each.default)):
                text = ",".join(first or second for first, second in found)
                each.default = repr(text)
            if func.docstring and each.default not in (None, "None"):
                text = rf"(?ms)(^    {each.name}: (?:(?!^    \w).)*?)\s+\(default:\s[^)]*\)"
                func.docstring.value = re.sub(text, r"\1", func.docstring.value)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return a page with the commands that it asks for, and with paths in place of links to files outside of docs/."""
    folder = posixpath.dirname(page.file.src_uri)
    markdown = _COMMANDS.sub(lambda found: "\n".join(describe_commands(found[1])), markdown)
    return _LINK.sub(lambda found: _show_path(folder, *found.groups()) or found[0], markdown)


def on_page_content(content: str, *, page: Any, **_: Any) -> str:
    """Return the HTML of a page, in which pages that docstrings name are links."""
    if page.file.src_uri != "reference/python.md":
        return content
    return _PAGE.sub(r'<a href="../../\1/">\1</a>', content)


def _show_path(folder: str, text: str, target: str) -> str:
    """Return what stands for a link to a file of the repository, or nothing for a link inside docs/."""
    path = posixpath.normpath(posixpath.join("docs", folder, target.partition("#")[0]))
    if path.startswith("docs/"):
        return ""
    return f"`{path}`" if path.endswith(" ".join(text.split()).strip("`")) else f"{text} (`{path}`)"


def describe_commands(program: str) -> Iterator[str]:
    """Yield the lines of Markdown that describe all commands: of bertprep ("commands"), or of the "trainer"."""
    if program == "commands":
        for command, summary in cli.COMMANDS.items():
            if command != _TRAIN:
                yield from _describe(cli.make_command_parser([command]).commands[command], summary, 2)
    else:
        for command, summary in trainer_cli.COMMANDS.items():
            yield from _describe(trainer_cli.make_parser(command).commands[command], summary, 2)


def _describe(parser: Parser, summary: str, level: int) -> Iterator[str]:
    yield from (
        "",
        f"{'#' * level} `{parser.prog.replace('python -m trainer', 'bertprep train')}`",
        "",
        html.escape(summary),
        "",
    )
    if parser.commands:
        for below in parser.commands.values():
            yield from _describe(below, below.description or "", level + 1)
        return
    parser.format_help()  # which makes the line of usage
    parser.show_rare()
    usage = str(parser.usage).replace("%(prog)s", parser.prog).replace("python -m trainer", "bertprep train")
    yield from ("```text", usage, "```", "")
    name = parser._get_formatter()._format_action_invocation
    for group in parser._action_groups:
        actions = [each for each in group._group_actions if each.help != argparse.SUPPRESS and each.dest != "help"]
        if actions:
            yield from ("<table>", *_rows(str(group.title), actions, name, parser.prog), "</table>", "")


def _rows(title: str, actions: list[argparse.Action], name: Callable[[argparse.Action], str], prog: str) -> Iterator[str]:
    """Yield the rows of the options of a group, each with an anchor such as create--seq."""
    yield f"<thead><tr><th>{title}</th><th>meaning</th><th>default</th></tr></thead>"
    for action in actions:
        text, default = str(action.help), ""
        if found := _DEFAULT.search(text):
            text, default = text[: found.start()], found[1]
        option = action.option_strings[0] if action.option_strings else action.dest
        anchor = "-".join([*prog.split()[1 if prog.startswith("bertprep") else 3 :], option.lstrip("-")])
        cells = (
            f'<code id="{html.escape(anchor)}">{html.escape(name(action))}</code>',
            html.escape(text),
            html.escape(default),
        )
        yield f"<tr>{''.join(f'<td>{each}</td>' for each in cells)}</tr>"
