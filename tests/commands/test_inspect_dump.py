"""Pages of a dump are shown with the prose that is made of them, and with what was removed."""

from pathlib import Path

import pytest

from bertprep.cli import main
from bertprep.commands.inspect_dump import show_pages
from tests.sources.test_dump import HEAD, page

SOURCE = "Der '''Hund''' ist {{groß}} alt."
PAGES = [page("Hund", f"{SOURCE}\n== Lebensweise ==\n* Ein Hund"), page("Katze", "Die Katze schläft.")]


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "pages"  # known by its first bytes
    path.write_text(f"{HEAD}{page('A', '{{Begriffsklärung}}')}{''.join(PAGES)}</mediawiki>")
    return path


def test_source_and_prose_follow_each_other(dump: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(dump), "--records", "1"]) == 0
    assert capfd.readouterr().out.split("\n") == [
        "",
        "page 0: Hund: headings 1, templates without a rule in paragraphs 1, list items that are no sentences 1",
        "--- wikitext", SOURCE, "== Lebensweise ==", "* Ein Hund",
        "--- text", "Der Hund ist alt.",
        "",
        "templates without a rule in paragraphs: {{groß}} 1",
        "",
    ]  # fmt: skip
    assert main(["inspect", str(dump), "--record", "1"]) == 0
    assert "page 1: Katze: nothing was removed\n" in capfd.readouterr().out
    assert main(["inspect", str(dump), "--record", "2"]) == 2
    assert "--record 2: " in (said := capfd.readouterr().err)
    assert "has 2 articles; choose one of 0 to 1" in said


def test_they_are_side_by_side_on_a_wide_terminal(dump: Path, capfd: pytest.CaptureFixture[str]) -> None:
    show_pages(dump, 0, 1, 121)
    shown = capfd.readouterr().out.split("\n")[2:6]
    rows = [("wikitext", "text"), ("", ""), (SOURCE, "Der Hund ist alt."), ("== Lebensweise ==", "")]
    assert shown == [f"{left:<59} | {right}".rstrip() for left, right in rows]
