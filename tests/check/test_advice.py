"""Every finding has its advice and a test, and docs/reference/findings.md has the same as the code."""

import ast
import re
from pathlib import Path

import pytest

from bertprep.check import record_scan
from bertprep.check.advice import ADVICE, EXPLAINED, MEANINGS

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs/reference/findings.md").read_text(encoding="utf-8")


def test_docs_have_the_advice_of_the_code() -> None:
    rows = re.findall(r"^\| (`.+`) \| (.+) \|$", DOCS.partition("\n## What to do\n")[2], re.MULTILINE)
    assert {code: advice for codes, advice in rows for code in re.findall(r"`([^`]+)`", codes)} == ADVICE


def test_docs_name_every_finding() -> None:
    findings = DOCS.partition("\n## What to do\n")[0]
    rows = re.findall(r"^\| (`.+?) \|", findings, re.MULTILINE)
    assert {code for codes in rows for code in re.findall(r"`([^`]+)`", codes)} == ADVICE.keys()


def test_every_code_of_the_sources_has_its_advice() -> None:
    sources = [*ROOT.glob("bertprep/check/*.py"), ROOT / "bertprep/commands/validate.py"]
    named = {
        code
        for path in sources
        for code in re.findall(r'(?:Finding|Rule|_Test|_Kind|\w\.add|self\._add)\(\s*"([a-z-]+)"', path.read_text("utf-8"))
    }
    described = {words[0] for words in record_scan._WORDS.values()}
    assert len(named) > 40
    assert named | described <= ADVICE.keys()
    assert MEANINGS.keys() == ADVICE.keys()


def test_every_finding_has_a_test() -> None:
    tests = [path.read_text("utf-8") for path in ROOT.glob("tests/**/*.py") if path != Path(__file__)]
    named = {code for text in tests for code in re.findall(r'"([a-z0-9-]+)"', text)}
    assert ADVICE.keys() - named == set()  # plant a fault that gives it: docs/contribute/add.md


def test_every_check_is_called() -> None:
    trees = {path: ast.parse(path.read_text("utf-8")) for path in ROOT.glob("bertprep/**/*.py")}
    checks = {
        node.name
        for path, tree in trees.items()
        if path.parent.name == "check"
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and re.match("_?(check|find|judge)_", node.name)
    }
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    used |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}  # as in folder.check_manifest
    assert len(checks) > 30
    assert checks - used == set()


@pytest.mark.parametrize("page", ["docs/reference/findings.md", "docs/how-to/validate.md"])
def test_findings_shown_in_docs_have_the_advice_of_the_code(page: str) -> None:
    shown = re.findall(
        r"^(?:error|warning): ([a-z-]+): (.+?)(?=\n(?:\S+: |```|\S+, ))", (ROOT / page).read_text("utf-8"), re.M | re.S
    )
    assert [code for code, _ in shown] == ["file-changed", "bad-checksum"]
    for code, words in shown:
        advice = ADVICE["file-changed"] if code == "file-changed" else EXPLAINED
        assert " ".join(words.split()).endswith(f"; {advice}")
