"""docs/how-to/migrate.md and the hints agree: each flag of its tables is understood, or an error names the page's option."""

import re
from pathlib import Path

import pytest

from bertprep import cli
from bertprep.errors import UsageError

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "migrate.md"
COMMANDS = {
    "From Google's create_pretraining_data.py": ("create",),
    "From NVIDIA's bertPrep.py": ("shard", "create"),
    "From LDDL": ("shard", "create"),
    "From a datasets script": ("tokenize",),
}
"""The sections of the page about bertprep's commands, with the commands that rows are about if they name none."""
OPTION = re.compile(r"--[a-z]+[a-z0-9_-]*")


def rows_of_page() -> list[tuple[str, str, str]]:
    """(command, flag, what the page names instead) for each flag in the first column of a table."""
    rows = []
    for section in PAGE.read_text(encoding="utf-8").split("\n## "):
        title, _, text = section.partition("\n")
        for cells in re.findall(r"^\| (.*?) \| (.*) \|$", text, re.MULTILINE) if title in COMMANDS else ():
            named = re.search(rf"`(?:bertprep )?({'|'.join(cli.COMMANDS)})\b", cells[1])
            commands = (named[1],) if named else COMMANDS[title]
            rows += [(command, flag, cells[1]) for command in commands for flag in OPTION.findall(cells[0])]
    return rows


def answer(command: str, flag: str) -> str:
    """What a command says about a flag: the option that it is another spelling of, or an error."""
    parser = cli.make_command_parser([command])
    found = parser.commands[command].options().get(flag)
    if found is not None:
        return f"{flag}: is {found.option_strings[0]}"
    with pytest.raises(UsageError) as caught:
        parser.parse_args([command, flag])
    return str(caught.value)


@pytest.mark.parametrize(("command", "flag", "instead"), rows_of_page())
def test_each_flag_of_the_page_is_understood_or_explained(command: str, flag: str, instead: str) -> None:
    name, _, words = answer(command, flag).partition(": ")
    assert name == flag
    assert "unknown option" not in words
    own = cli.make_command_parser([command]).commands[command].options().keys()
    named, on_page = ({*OPTION.findall(text)} & own for text in (words, instead))
    assert {*OPTION.findall(words)} <= own
    assert named & on_page or not on_page, (words, instead)


def test_the_page_has_flags_of_every_section() -> None:
    assert len(rows_of_page()) > 40
    assert {command for command, *_ in rows_of_page()} == {"convert", "create", "shard", "tokenize"}


def test_every_hint_is_shown_by_some_command() -> None:
    options = {
        name: {*cli.make_command_parser([name]).commands[name].options()} for name in cli.COMMANDS.keys() - {"train", "task"}
    }
    tasks = cli.make_command_parser(["task"]).commands["task"].commands
    options |= {f"task {name}": {*parser.options()} for name, parser in tasks.items()}
    for flag, hint in cli.HINTS.items():
        shown = [name for name, own in options.items() if flag not in own and {*OPTION.findall(hint)} <= own]
        assert shown, f"{flag}: no command can show the hint"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("task squad --train_file a", "--train_file: is --input here"),
        ("task squad --version_2_with_negative", "--version_2_with_negative: is --version 2.0 here; the default is 1.1"),
        ("task glue --data_dir=a", "--data_dir: is --input here"),
        ("create --nodo_lower_case", "--nodo_lower_case: is --cased here"),
        ("shard --n-processes 4", "--n-processes: is --workers here"),
    ],
)
def test_flags_of_scripts_in_either_spelling(line: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        cli.make_command_parser(line.split()).parse_args(line.split())
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("command", "flag"),
    [("validate", "--output_dir"), ("download", "--max_seq_len"), ("inspect", "--do_lower_case"), ("push", "--gzip_compress")],
)
def test_no_hint_names_an_option_that_the_command_lacks(command: str, flag: str) -> None:
    assert answer(command, flag).startswith(f"{flag}: unknown option")
