"""Data sets and hf:// addresses as input: the files that `datasets` reads, fetched once like any download, and then offline."""

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest
from huggingface_hub import constants

from bertprep import shard
from bertprep.errors import BertprepError, BertprepWarning
from bertprep.progress import SILENT
from bertprep.sources.hub_text import CONVERTED, fetch_split
from bertprep.sources.inputs import source_at
from bertprep.work.layout import Workspace
from tests.hub_server import NOT_LET_IN, Account, HubServer, use_hub
from tests.small_hub import SENTENCES, bookcorpus_files, parquet, wikipedia_files

WIKIPEDIA = "datasets/wikimedia/wikipedia"
GERMAN = "20231101.de/train-00000-of-00001.parquet"
CARD = b"""---
configs:
- config_name: small
  data_files: [{split: train, path: data/*.parquet}, {split: test, path: test.parquet}]
- config_name: other
  data_files: other/*
---
"""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    with HubServer() as server:
        use_hub(monkeypatch, server.url, tmp_path / "hf")
        server.put(WIKIPEDIA, wikipedia_files())
        files = {"data/1.parquet": texts(1), "data/2.parquet": texts(2), "test.parquet": texts(3, 1)}
        server.put("datasets/some/texts", {"README.md": CARD, **files, "other/a.parquet": texts(4)})
        yield server


def texts(number: int, count: int = 4) -> bytes:
    return parquet([{"text": f"{sentence} {number} {row}."} for row in range(count) for sentence in SENTENCES])


def sharded(workdir: Path, *inputs: str, corpus: str | None = None, **options: Any) -> tuple[str, int]:
    """Return the name of the corpus that a call makes, and its documents."""
    manifest = shard(inputs, shards=1, test_fraction=0, workdir=workdir, corpus=corpus, **options).manifest
    [(name, entry)] = manifest.files.items()
    return name.removeprefix("training/").removesuffix("_training_00000.txt"), entry["documents"]


def complaint(workdir: Path, *inputs: str, **options: Any) -> str:
    """Return the one line with which a call fails."""
    with pytest.raises(BertprepError) as raised:
        sharded(workdir, *inputs, **options)
    text = str(raised.value)
    assert "\n" not in text
    return text


def test_a_split_is_fetched_once_and_then_read_offline(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sharded(tmp_path, dataset="some/texts:small") == ("texts_small", 32)
    assert sharded(tmp_path, dataset="some/texts:small", split="test") == ("texts_small_test", 4)
    assert sharded(tmp_path, dataset="wikimedia/wikipedia:20231101.de") == ("wikipedia_20231101.de", 10)
    text = (tmp_path / "sharded/wikipedia_20231101.de/training/wikipedia_20231101.de_training_00000.txt").read_text()
    assert "This is number 3." in text
    assert "External links" not in text  # it is cleaned like the download
    folder = tmp_path / "download/datasets/some/texts/small-train"
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*.*")) == [
        "data/1.parquet", "data/2.parquet", "listing.json",
    ]  # fmt: skip
    hub.put("datasets/some/texts", {"README.md": b"moved on"})
    hub.asked.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert sharded(tmp_path, dataset="some/texts:small", corpus="again") == ("again", 32)
    assert not hub.asked


def files(*paths: str) -> dict[str, bytes]:
    """Return files with their own names as text."""
    line = '{{"text": "{}"}}\n'.format
    return {path: parquet([{"text": path}]) if path.endswith(".parquet") else line(path).encode() for path in paths}


# Files of a repository, and the splits that are requested of it: configuration, split, and what `datasets` is told besides
LAYOUTS: dict[str, tuple[dict[str, bytes], list[tuple[str | None, str, dict[str, Any]]]]] = {
    "card/patterns": (
        {"README.md": CARD, **files("data/b.parquet", "data/a.parquet", "data/c/d.parquet", "test.parquet", "other/x.parquet")},
        [("small", "train", {"name": "small"}), ("small", "test", {"name": "small"}), ("other", "train", {"name": "other"})],
    ),
    "names/sharded": (
        files("data/train-00001-of-00002.parquet", "data/train-00000-of-00002.parquet", "data/dev-00000-of-00001.parquet"),
        [(None, "train", {}), (None, "dev", {})],
    ),
    "names/folders": (
        files("train/b.jsonl", "train/a.jsonl", "valid/x.jsonl"),
        [(None, "train", {}), (None, "validation", {})],
    ),
    "names/none": (files("b.parquet", "x/a.parquet"), [(None, "train", {})]),
    "names/configs": (
        files("de/train-00000-of-00001.parquet", "en/train-00000-of-00001.parquet"),
        [("de", "train", {"data_dir": "de"}), (None, "train", {})],
    ),
    "some/script": (
        {"script.py": b"raise SystemExit", **files("data/other.jsonl")},
        [
            (None, "train", {"data_dir": "plain_text", "revision": CONVERTED}),
            ("plain_text", "test", {"data_dir": "plain_text", "revision": CONVERTED}),
        ],
    ),
}
CONVERSION = files("plain_text/train/0000.parquet", "plain_text/train/0001.parquet", "plain_text/test/0000.parquet")
LOAD = """
import json, os, sys
import datasets
datasets.config.USE_PARQUET_EXPORT = False  # asks another server for sizes, which are not needed
datasets.disable_progress_bars()
texts = []
for number, (repository, options) in enumerate(json.load(sys.stdin)):
    options = {"cache_dir": f"{sys.argv[1]}/{number}", **options}
    texts.append([row["text"] for row in datasets.load_dataset(repository, streaming=True, **options)])
print(json.dumps(texts), flush=True)
os._exit(0)  # Arrow's threads may abort an interpreter that ends by itself
"""


@pytest.mark.slow
def test_the_same_rows_as_datasets_in_the_same_order(hub: HubServer, tmp_path: Path) -> None:
    for name, (content, _) in LAYOUTS.items():
        hub.put(f"datasets/{name}", {"README.md": b"# Texts", **content})
    hub.put("datasets/some/script", CONVERSION, revision=CONVERTED)
    requests = [(name, *split) for name, (_, splits) in LAYOUTS.items() for split in splits]
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1"}
    given = json.dumps([(name, {"split": split, **options}) for name, _, split, options in requests])
    command = [sys.executable, "-c", LOAD, tmp_path / "cache"]
    done = subprocess.run(command, input=given, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for (name, config, split, _), expected in zip(requests, json.loads(done.stdout), strict=True):
        named = f"{name}:{config}" if config else name
        found = fetch_split(named, split, Workspace(tmp_path / "work"), reporter=SILENT)
        sources = [source_at(str(path), "text", one_document=False, identity=identity) for path, identity in found]
        ours = [text for source in sources for text in source.documents()]
        assert (named, split, ours) == (named, split, expected)


def test_the_settings_of_datasets_stay_as_they_were(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.put("datasets/some/books", bookcorpus_files())
    monkeypatch.setattr(datasets.config, "HF_ENDPOINT", "https://mirror.example")
    assert sharded(tmp_path, dataset="some/books") == ("books", 400)
    assert (datasets.config.HF_ENDPOINT, datasets.config.USE_PARQUET_EXPORT) == ("https://mirror.example", True)


def test_the_conversion_is_read_where_the_repository_has_a_script(hub: HubServer, tmp_path: Path) -> None:
    hub.put("datasets/some/books", {"books.py": b"raise SystemExit\n"})
    assert "scripts are no longer supported" in complaint(tmp_path, dataset="some/books")
    hub.put("datasets/some/books", bookcorpus_files(), revision=CONVERTED)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "datasets/some/books", BertprepWarning)
        assert sharded(tmp_path, dataset="some/books") == ("books", 400)
    partly = {path.replace("/train/", "/partial-train/"): content for path, content in bookcorpus_files().items()}
    hub.put("datasets/some/books", partly, revision=CONVERTED)
    with pytest.warns(BertprepWarning, match="datasets/some/books: the Hub converted only the first few GB of split train"):
        assert sharded(tmp_path / "other", dataset="some/books:plain_text") == ("books_plain_text", 400)


OUTSIDE = b"---\nconfigs:\n- {config_name: x, data_files: 'hf://datasets/some/one/a.parquet'}\n---\n"
BROKEN = b"---\nconfigs: [{config_name: 5, data_files: {}}]\n---\n"
REFUSED: list[tuple[str, str | None, dict[str, bytes], str]] = [
    ("some/texts", None, {}, "'small', 'other'"),
    ("some/texts:big", None, {}, "BuilderConfig 'big' not found. Available: ['small', 'other']"),
    ("some/texts:small", "dev", {}, "has no split dev; it has train, test"),
    ("some/none", None, {}, "it does not exist, or your token has no access to it"),
    (
        "some/sounds",
        None,
        files("train/a.wav", "train/b.wav"),
        "--dataset some/sounds: its format is audiofolder, expected one of arrow, csv, json",
    ),
    ("some/outside", None, {"README.md": OUTSIDE}, "Data files don't belong to some/outside"),
    ("some/broken", None, {"README.md": BROKEN, "a.parquet": b""}, "--dataset some/broken: "),
]
WRONG: list[tuple[str, str | None, dict[str, bytes], str]] = [
    ("x", None, {}, "--dataset x: is neither a folder nor the name of a data set"),
    ("a/b:", None, {}, "--dataset a/b:: is neither"),
    ("../up", None, {}, "is neither a folder"),
    ("some/texts", "train[:10%]", {}, "--split train[:10%]: a split's name has only letters, digits"),
]


@pytest.mark.parametrize(("name", "split", "content", "message"), [*REFUSED, *WRONG])
def test_what_is_not_there_is_one_line_and_writes_nothing(
    name: str, split: str | None, content: dict[str, bytes], message: str, hub: HubServer, tmp_path: Path
) -> None:
    hub.put("datasets/some/one", {"a.parquet": texts(1)})
    if content:
        hub.put(f"datasets/{name}", content)
    assert message in complaint(tmp_path, dataset=name, split=split)
    assert not list(tmp_path.rglob("listing.json"))
    assert bool(hub.asked) == ((name, split, content, message) in REFUSED)


def test_gated_and_private_data_sets_say_what_to_do(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repositories["datasets/some/texts"].gated = True
    address = "hf://datasets/some/texts/test.parquet"
    assert "have accepted its conditions; accept them on that page" in complaint(tmp_path, address)
    monkeypatch.setenv("HF_TOKEN", NOT_LET_IN)
    assert "wait if the owners must approve" in complaint(tmp_path, address)
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    assert sharded(tmp_path, address)[1] == 4
    hub.uploads.private.add(WIKIPEDIA)
    assert "your token has no access to it" in complaint(tmp_path, dataset="wikimedia/wikipedia:20231101.de")
    hub.uploads.accounts["hf_mine"] = Account("me")
    assert sharded(tmp_path, dataset="wikimedia/wikipedia:20231101.de")[1] == 10


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("datasets/some/texts/test.parquet", 4),
        ("datasets/some/texts/data", 32),
        ("datasets/some/texts@main/data/*.parquet", 32),
        ("datasets/some/texts/**/[12].parquet", 32),
        (f"datasets/some/texts@{CONVERTED}", 16),
        ("some/model/text.jsonl", 1),
    ],
)
def test_an_address_of_the_hub_is_a_file_a_folder_or_a_pattern(path: str, count: int, hub: HubServer, tmp_path: Path) -> None:
    hub.put("datasets/some/texts", {"x/0000.parquet": texts(5)}, revision=CONVERTED)
    hub.put("models/some/model", {"text.jsonl": b'{"text": "A text."}'})
    assert sharded(tmp_path, f"hf://{path}") == ("corpus", count)
    hub.asked.clear()
    assert sharded(tmp_path, f"hf://{path}", corpus="again")[1] == count
    assert not hub.asked
