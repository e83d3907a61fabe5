"""Every finding has its advice, and docs/reference/findings.md has the same as the code."""

import re
from pathlib import Path

from bertprep.check import record_scan
from bertprep.check.advice import ADVICE, MEANINGS

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
