"""Folders and patterns at any URL, and patterns that no shell has expanded, are the files that they would be on disk."""

from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import fsspec
import pytest

from bertprep.errors import UsageError
from bertprep.sources.inputs import IN_FOLDERS, find_sources
from tests.small_hub import parquet

CONTENTS = {
    "b.parquet": parquet([{"text": "b"}]),
    "a.jsonl": b'{"text": "a"}\n',
    "deep/er/c.jsonl": b'{"text": "c"}\n',
    "deep/[1].jsonl": b'{"text": "1"}\n',
    "README.md": b"not text to train on",
    "empty/model.bin": b"\0",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The same files on disk, which is the working directory, and in memory."""
    memory = fsspec.filesystem("memory")
    for name, content in CONTENTS.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        memory.pipe(f"/texts/{name}", content)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    memory.rm("/texts", recursive=True)


def texts(*locations: str) -> list[str]:
    sources = find_sources(locations, field="text", one_document=False)
    return [text for source in sources for text in source.documents()]


@pytest.mark.parametrize("place", ["memory://texts", "memory:///texts", "file://{}", "{}", "."])
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", ["a", "b", "1", "c"]),
        ("/", ["a", "b", "1", "c"]),
        ("/deep", ["1", "c"]),
        ("/*", ["a", "b"]),
        ("/*.jsonl", ["a"]),
        ("/[ab].*", ["a", "b"]),
        ("/*/*/?.jsonl", ["c"]),
        ("/**/*.jsonl", ["a", "1", "c"]),
        ("/deep/[1].jsonl", ["1"]),
        ("/a.jsonl", ["a"]),
    ],
)
def test_folders_and_patterns_are_their_files_by_name(pattern: str, expected: list[str], place: str, folder: Path) -> None:
    assert texts(place.format(folder) + pattern) == expected


def test_several_places_keep_their_order(folder: Path) -> None:
    assert texts("memory://texts/*.parquet", "a.jsonl", f"file://{folder}/deep") == ["b", "a", "1", "c"]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("place", ["memory://texts", "."])
@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("/*.txt", "matches no file"),
        ("/none/*", "matches no file"),
        ("/*.md", f"matches no file that ends in {', '.join(IN_FOLDERS)} (or .gz, .bz2, .zst)"),
        ("/empty", f"the folder has no file that ends in {', '.join(IN_FOLDERS)} (or .gz, .bz2, .zst)"),
    ],
)
def test_nothing_found_is_one_line(pattern: str, message: str, place: str) -> None:
    with pytest.raises(UsageError) as raised:
        texts(place + pattern)
    if (place, pattern) == (".", "/none/*"):
        message += "; there is no folder none"
    assert str(raised.value) == f"--input {place}{pattern}: {message}"


def test_archives_are_folders_too(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in "xy":
            archive.writestr(f"in/{name}.jsonl", f'{{"text": "{name}"}}')
    assert texts(f"zip://in/*.jsonl::file://{tmp_path}/a.zip") == ["x", "y"]
    assert texts(f"zip://in/y.jsonl::file://{tmp_path}/a.zip") == ["y"]


def test_a_cache_keeps_its_place_before_the_files(folder: Path) -> None:
    assert texts(f"simplecache::file://{folder}/*.jsonl") == ["a"]


def test_a_url_without_a_file_is_one_line() -> None:
    with pytest.raises(UsageError, match=r"^--input memory://nowhere/x: does not exist$"):
        texts("memory://nowhere/x")
