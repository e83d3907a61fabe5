"""The documents match the code: examples are run, layouts decoded, links resolved."""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bertprep.config import InstanceSettings
from bertprep.instances.unicode_table import __file__ as unicode_table
from bertprep.records import FEATURES
from bertprep.workspace.layout import settings_name

ROOT = Path(__file__).parents[1]
FORMATS = ROOT / "docs" / "formats.md"
DETERMINISM = ROOT / "docs" / "determinism.md"
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


class Annotated:
    """The bytes of a record, line by line with what they mean; knows protobuf only, and nothing of bertprep."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.lines: list[str] = []

    def take(self, size: int, meaning: str) -> bytes:
        """The next bytes, on lines of 16 of which the first has the meaning."""
        piece = self.data[self.at : self.at + size]
        assert len(piece) == size
        for start in range(0, size, 16):
            line = f"{self.at + start:4d}  {piece[start : start + 16].hex(' '):47s}  {meaning if start == 0 else ''}"
            self.lines.append(line.rstrip())
        self.at += size
        return piece

    def lengths(self, indent: int, *names: str) -> int:
        """For each name a tag of wire type 2 and a length, one in the other; returns the last length."""
        at = self.at
        sizes = []
        for _ in names:
            assert self.data[at] & 7 == 2
            size, width = self.data[at + 1], 2
            if size >= 0x80:
                size, width = (size & 0x7F) | self.data[at + 2] << 7, 3
            sizes.append(size)
            at += width
        meaning = ", ".join(f"{name} of {size}" for name, size in zip(names, sizes, strict=True))
        self.take(at - self.at, "  " * indent + meaning)
        return sizes[-1]

    def features(self, lists: dict[int, str], indent: int) -> None:
        """The seven map entries."""
        for _ in FEATURES:
            self.lengths(indent, "entry")
            name = self.data[self.at + 2 : self.at + 2 + self.data[self.at + 1]].decode()
            self.take(2 + len(name), f'{"  " * indent}  key of {len(name)}: "{name}"')
            kind = lists[self.data[self.at + 2] >> 3]
            size = self.lengths(indent + 1, "Feature", kind, "values")
            values = self.data[self.at : self.at + size]
            numbers = struct.unpack(f"<{size // 4}f", values) if kind == "float_list" else tuple(values)
            assert kind == "float_list" or max(values) < 0x80  # one byte each, as all numbers of the example are
            self.take(size, "  " * (indent + 2) + " ".join(f"{number:g}" for number in numbers))


def tfrecord_lines(data: bytes) -> list[str]:
    """A TFRecord file of one record."""
    dump = Annotated(data)
    dump.take(8, f"length of the data: {struct.unpack('<Q', data[:8])[0]}")
    dump.take(4, "masked CRC-32C of the length")
    dump.lengths(0, "features")
    dump.features({2: "float_list", 3: "int64_list"}, 1)
    dump.take(4, "masked CRC-32C of the data")
    assert dump.at == len(data)
    return dump.lines


def ofrecord_lines(data: bytes) -> list[str]:
    """An OFRecord file of one record."""
    dump = Annotated(data)
    dump.take(8, f"length of the data: {struct.unpack('<q', data[:8])[0]}")
    dump.features({2: "float_list", 4: "int32_list"}, 0)
    assert dump.at == len(data)
    return dump.lines


def dumps() -> list[list[str]]:
    """The annotated dumps of the document: those blocks that begin at offset 0."""
    return [block.splitlines() for block in blocks(FORMATS, "text") if block.startswith("   0  ")]


def test_the_tfrecord_dump_matches_the_file(example: Path) -> None:
    lines = tfrecord_lines((example / "out/tfrecord/training/corpus_training_00000.tfrecord").read_bytes())
    assert dumps()[0] == lines


def test_the_ofrecord_dump_matches_the_file(example: Path) -> None:
    lines = ofrecord_lines((example / "out/ofrecord/training/part-0").read_bytes())
    assert dumps()[1] == lines


def test_the_manifest_matches_the_example(example: Path) -> None:
    def without_versions(text: str) -> dict[str, Any]:
        manifest: dict[str, Any] = json.loads(text)
        return {**manifest, "versions": sorted(manifest["versions"])}

    written = (example / "out/manifest.json").read_text()
    assert without_versions(blocks(FORMATS, "json")[0]) == without_versions(written)


def test_the_table_of_features_is_in_the_order_of_writing() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", FORMATS.read_text(encoding="utf-8"), re.MULTILINE)
    assert tuple(rows[: len(FEATURES)]) == FEATURES


def test_the_folder_name_matches_the_settings() -> None:
    name = settings_name(InstanceSettings(), shards=1472, test_fraction=0.1)
    assert name in FORMATS.read_text(encoding="utf-8")


def test_the_checksum_commands_find_damage(example: Path, tmp_path: Path) -> None:
    command = blocks(DETERMINISM, "sh")[0]
    assert run(command, example / "out") == "ofrecord/training/part-0: OK\ntfrecord/corpus_training_00000.tfrecord: OK\n"
    shutil.copytree(example / "out", tmp_path / "out")
    path = tmp_path / "out/ofrecord/training/part-0"
    damaged = bytearray(path.read_bytes())
    damaged[30] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(AssertionError, match="did NOT match"):
        run(command, tmp_path / "out")


def test_the_unicode_version_matches_the_table() -> None:
    import numpy as np

    with np.load(Path(unicode_table).with_name("unicode_table.npz")) as table:
        version = str(table["version"]).removesuffix(".0")
    assert f"Unicode {version}" in DETERMINISM.read_text(encoding="utf-8")


def links() -> Iterator[tuple[Path, str]]:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text(encoding="utf-8")):
            if "://" not in target:
                yield document, target


@pytest.mark.parametrize(("document", "target"), list(links()), ids=lambda value: getattr(value, "name", value))
def test_links_resolve(document: Path, target: str) -> None:
    assert (document.parent / target).exists()
