"""The documents match the code: examples are run, layouts decoded, links resolved."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bertprep import cli
from bertprep.config import InstanceSettings
from bertprep.instances.unicode_table import __file__ as unicode_table
from bertprep.records import FEATURES
from bertprep.work.layout import settings_name
from trainer import cli as trainer_cli

ROOT = Path(__file__).parents[1]
FORMATS = ROOT / "docs" / "formats.md"
REPRODUCIBILITY = ROOT / "docs" / "reproducibility.md"
DOCUMENTS = [*sorted(ROOT.glob("docs/**/*.md")), *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"))]


def blocks(document: Path, language: str) -> list[str]:
    """The fenced blocks of a language in a document."""
    return re.findall(rf"^```{language}\n(.*?)^```$", document.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def run(script: str, folder: Path) -> str:
    """Run lines of shell as a reader would; `bertprep` is this checkout."""
    program = (
        f'set -e\nbertprep() {{ "{sys.executable}" -m bertprep "$@"; }}\npython() {{ "{sys.executable}" "$@"; }}\n{script}'
    )
    done = subprocess.run(
        ["bash", "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the commands of the worked example were run."""
    folder = tmp_path_factory.mktemp("example")
    run(blocks(FORMATS, "sh")[0], folder)
    return folder


def test_the_dump_of_a_record_has_the_bytes_of_the_files(example: Path) -> None:
    (dump,) = (block.splitlines() for block in blocks(FORMATS, "text") if block.startswith("   0  "))
    tfrecord = (example / "out/tfrecord/training/corpus_training_00000.tfrecord").read_bytes()
    ofrecord = (example / "out/ofrecord/training/part-0").read_bytes()
    for line in (line for line in dump if not line.startswith("  .. ")):  # offset, at most 16 bytes, and what they mean
        found = bytes.fromhex(line[6:53])
        assert found == tfrecord[int(line[:4]) :][: len(found)]
    assert (206).to_bytes(8, "little") == ofrecord[:8]
    differing = [(ours, theirs) for ours, theirs in zip(tfrecord[15:221], ofrecord[8:], strict=True) if ours != theirs]
    assert differing == [(0x1A, 0x22)] * 6


def test_the_manifest_matches_the_example(example: Path) -> None:
    def without_versions(text: str) -> dict[str, Any]:
        manifest: dict[str, Any] = json.loads(text)
        return {**manifest, "versions": sorted(manifest["versions"])}

    written = (example / "out/tfrecord/manifest.json").read_text()
    assert without_versions(blocks(FORMATS, "json")[0]) == without_versions(written)


def test_the_table_of_features_is_in_the_order_of_writing() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", FORMATS.read_text(encoding="utf-8"), re.MULTILINE)
    assert tuple(rows[: len(FEATURES)]) == FEATURES


def test_the_folder_name_matches_the_settings() -> None:
    name = settings_name(InstanceSettings(), shards=1472, test_fraction=0.1)
    assert name in FORMATS.read_text(encoding="utf-8")


def test_the_checksum_commands_find_damage(example: Path, tmp_path: Path) -> None:
    command = blocks(REPRODUCIBILITY, "sh")[0]
    shutil.copytree(example / "out" / "ofrecord", tmp_path / "records")
    assert run(command, tmp_path / "records") == "training/part-0: OK\n"
    path = tmp_path / "records/training/part-0"
    corrupt = bytearray(path.read_bytes())
    corrupt[30] ^= 1
    path.write_bytes(corrupt)
    with pytest.raises(AssertionError, match="did NOT match"):
        run(command, tmp_path / "records")


def test_the_unicode_version_matches_the_table() -> None:
    import numpy as np

    with np.load(Path(unicode_table).with_name("unicode_table.npz")) as table:
        version = str(table["version"]).removesuffix(".0")
    assert f"Unicode {version}" in REPRODUCIBILITY.read_text(encoding="utf-8")


def test_commands_have_options_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    """Of each command with options; README's are run by test_readme.py."""
    helped: dict[tuple[str, ...], set[str]] = {}
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8").replace("\\\n", "")
        for program, rest in re.findall(r"(?:^|[^\w/.-])(bertprep|python -m trainer) ([a-z-][^`#&|\n]*)", text):
            words = rest.split()
            options = {re.sub(r"[^\w-].*", "", word) for word in words if word.startswith("--")} - {"--help", "--help-all"}
            if program != "bertprep":
                words = trainer_cli.with_command(words)
            command = (program, *words[: 2 if words[0] == "task" else 1])
            if options and command not in helped:
                main = cli.main if program == "bertprep" else trainer_cli.main
                with pytest.raises(SystemExit):
                    main([*command[1:], "--help-all"])
                helped[command] = set(re.findall(r"--[a-z0-9-]+", capsys.readouterr().out))
            assert options <= helped.get(command, set()), f"{document}: {rest}"


def anchors(document: Path) -> set[str]:
    """The headings of a document, as links name them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_resolve() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)\s]+)[^)]*\)", document.read_text(encoding="utf-8")):
            name, _, anchor = target.partition("#")
            path = document.parent / name if name else document
            if "://" not in target:
                assert path.exists(), f"{document}: {target}"
                assert not anchor or anchor in anchors(path), f"{document}: {target}"
