"""docs/contribute/architecture.md names every file; it and add.md name only files, classes and functions that there are."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/contribute/architecture.md").read_text(encoding="utf-8")
ADD = (ROOT / "docs/contribute/add.md").read_text(encoding="utf-8")
LISTING = PAGE.split("\n```\n")[1]
TEXT = PAGE.partition("\n```\n")[0] + ADD
PACKAGES = ("bertprep", "trainer")
FOLDERS = ("trainer/", "tests/", "docs/", "scripts/", "pyproject.toml")
# `path`, or `path`: `name`, `name`
NAMED = re.compile(r"`([\w./]+\.(?:py|md|toml)|scripts/\w+)`((?:(?:: |, (?:and )?)`[A-Za-z_][\w.]*`(?!:))*)")


def path_of(name: str) -> Path:
    return ROOT / name if name.startswith(FOLDERS) else ROOT / "bertprep" / name


def named() -> list[tuple[str, str]]:
    """The (file, name) pairs of the page's text; the name is empty where the file alone is named."""
    found = []
    for path, names in NAMED.findall(TEXT):
        if "NAME" not in path:
            found += [(path, name) for name in re.findall(r"`([\w.]+)`", names) if not name.endswith((".py", ".md"))] or [
                (path, "")
            ]
    return found


def names_in(path: Path) -> set[str]:
    """What a module defines: functions, classes and constants, and those of its classes as Class.name."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        found |= defined_by(node)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for inner in node.body for name in defined_by(inner)}
    return found


def defined_by(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}


@pytest.mark.parametrize(("file", "name"), sorted(set(named())))
def test_what_the_page_names_exists(file: str, name: str) -> None:
    assert path_of(file).exists()
    assert not name or name in names_in(path_of(file))


def test_the_page_names_enough_to_be_checked() -> None:
    assert len({name for _, name in named() if name}) > 60
    rows = re.findall(r"^\| (an? [^|:]+?)(?: of `validate`)?(?:: [\w ]+)? \|", ADD.partition("## All places")[2], re.MULTILINE)
    wanted = {"a command", "a kind of text file", "a finding", "a setting that decides bytes", "a record format"}
    wanted |= {"an optimizer", "an engine", "a fine-tuning task", "an encoder recipe"}
    assert wanted <= set(rows)


def test_the_listing_has_every_file_once() -> None:
    listed, folder = [], ""
    for line in LISTING.splitlines():
        if line and not line.startswith(" "):
            folder = line.split()[0]
        elif line:
            listed += [f"{folder}{name}" for name in re.findall(r"\b(\w+\.py)\b", line)]
    there = [
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if path.name != "__init__.py"
    ]
    assert sorted(listed) == sorted(there)
