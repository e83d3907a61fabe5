"""The report in a browser: nothing overflows on a desktop, a phone or a small phone.

Wherever a Chromium is installed these tests run.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bertprep.check.findings import Finding
from bertprep.instances.vocabulary import Vocabulary
from bertprep.reporting.excerpts import Excerpt
from bertprep.reporting.page import page
from bertprep.workspace.manifest import Manifest
from tests.check.tallied import outcome_of, sound_examples

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
SECTIONS = 9

# Measures the page in a frame: how wide it is, and what reaches beyond the edge outside of boxes that scroll by themselves.
MEASURE = """<!DOCTYPE html><title>?</title>
<iframe src="page.html" style="width: {width}px; height: 1000px; border: 0"></iframe>
<script>
addEventListener("load", () => {{
  const page = document.querySelector("iframe").contentDocument;
  const reaches = (e) => e.getBoundingClientRect().right > {width} + 0.5 && getComputedStyle(e).clipPath === "none";
  const beyond = [...page.querySelectorAll("body *")].filter((e) => !e.closest(".scroll > *") && reaches(e));
  const names = beyond.map((e) => e.tagName + "." + e.getAttribute("class")).join(" ");
  const sections = page.querySelectorAll("h2").length;
  document.title = `${{sections}} sections, ${{page.documentElement.scrollWidth}} wide, beyond: [${{names}}]`;
}});
</script>"""


def hard_page() -> str:
    """Everything that can be long is."""
    words = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"a_very_long_token_{number}_" * 6 for number in range(55)))
    examples = sound_examples(200)
    settings = {"corpus": "books_" * 30, "seed": 12345, "text_sha256": "0123456789abcdef" * 4, "generator": "unbroken" * 20}
    finding = Finding("error", "bad-checksum", "training/" + "long_name_" * 20, 1234567, "3c1f2a4b" * 30, "3c1f2a4c" * 30)
    outcome = replace(
        outcome_of({"training": examples[:150], "test": examples[150:]}, vocabulary=len(words), files=30),
        folder=Path("/data") / ("settings_" * 25),
        manifest=Manifest("masked-LM records", settings, {}, {"bertprep": "0.1.0"}),
        findings=[finding],
        duplicates={"training": 3, "test": 0, "across": 1},
    )
    excerpts = [Excerpt("training/" + "long_name_" * 20, row, examples[row : row + 1]) for row in range(20)]
    return page(outcome, excerpts, Vocabulary(Path("vocab.txt"), words, "", pad=0, unk=1, cls=2, sep=3, mask=4))


def measure(folder: Path, width: int) -> str:
    """The title that the measuring page gives itself."""
    (folder / "page.html").write_text(hard_page(), encoding="utf-8")
    (folder / "frame.html").write_text(MEASURE.format(width=width), encoding="utf-8")
    command = [
        str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--allow-file-access-from-files", f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=10000",
        "--window-size=1400,1100", "--dump-dom", (folder / "frame.html").as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.partition("<title>")[2].partition("</title>")[0]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
@pytest.mark.parametrize("width", [1280, 390, 320])
def test_nothing_overflows(width: int, tmp_path: Path) -> None:
    assert measure(tmp_path, width) == f"{SECTIONS} sections, {width} wide, beyond: []"
