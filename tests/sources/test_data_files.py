"""The files of a split by the rules of `datasets`, which reads the same repositories from the same server beside us.

One difference is meant: a file that two patterns match is read once here, and twice by `datasets`.
"""

import gzip
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fsspec.utils import glob_translate
from huggingface_hub import constants

from bertprep.errors import UsageError
from bertprep.progress import SILENT
from bertprep.sources import data_files
from bertprep.sources.data_files import CONVERTED, Config, find_converted, find_split, matching, read_configs, resolve
from bertprep.sources.formatting import READERS, SourceFile
from bertprep.sources.local import source_at
from bertprep.sources.transfer.hub_data import fetch_split, files_of
from bertprep.workspace.layout import Workspace
from tests.hub_server import HubServer
from tests.small_hub import parquet


def rows(name: str) -> bytes:
    """A Parquet file of two rows that tell its name."""
    return parquet([{"text": f"{name} {number}"} for number in range(2)])


def lines(name: str) -> bytes:
    """The same as JSON Lines."""
    return "".join(json.dumps({"text": f"{name} {number}"}) + "\n" for number in range(2)).encode()


def files(*names: str) -> dict[str, bytes]:
    content = {name: (rows if name.endswith(".parquet") else lines)(name) for name in names}
    return {name: gzip.compress(data) if name.endswith(".gz") else data for name, data in content.items()}


BY_GLOBS = """---
language: [de, en]
dataset_info:
- config_name: de
  features: [{name: text, dtype: string}]
configs:
- config_name: de
  data_files:
  - {split: train, path: de/train-*}
  - {split: test, path: de/test-*}
- config_name: en
  default: true
  data_files:
  - split: train
    path:
    - en/b.parquet
    - "en/a-[12].parquet"
    - en/a-3*
license: mit
---
# Two languages
"""
BY_FOLDERS = (
    "---\nconfigs:\n- {config_name: first, data_dir: one}\n- {config_name: second, data_dir: two, data_files: '*.jsonl'}\n---\n"
)
ALL_OF_IT = '---\nconfigs:\n- config_name: default\n  data_files: "**/*.jsonl.gz"\n---\n'
# repository -> its files, and what is asked for: configuration, split and how to ask `datasets` for it
LAYOUTS: dict[str, tuple[dict[str, bytes], list[tuple[str | None, str, dict[str, Any]]]]] = {
    "card/globs": (
        {"README.md": BY_GLOBS.encode(), **files("de/train-0.parquet", "de/train-1.parquet", "de/test-0.parquet",
                                                 "en/a-1.parquet", "en/a-2.parquet", "en/a-3.parquet", "en/b.parquet")},
        [("de", "train", {"name": "de"}), ("de", "test", {"name": "de"}), (None, "train", {})],
    ),
    "card/folders": (
        {"README.md": BY_FOLDERS.encode(), **files("one/train.jsonl", "one/dev.jsonl", "two/x.jsonl", "two/y/z.jsonl")},
        [("first", "validation", {"name": "first"}), ("second", "train", {"name": "second"})],
    ),
    "card/all": (
        {"README.md": ALL_OF_IT.encode(), **files("a.jsonl.gz", "deep/er/b.jsonl.gz", "c.jsonl")},
        [(None, "train", {})],
    ),
    "card/beside": (
        {"README.md": b"---\nlicense: mit\n---\n", ".huggingface.yaml": ALL_OF_IT.replace("---\n", "").encode(),
         **files("a.jsonl.gz", "deep/er/b.jsonl.gz", "c.jsonl")},
        [(None, "train", {})],
    ),
    "names/sharded": (
        files("data/train-00000-of-00002.parquet", "data/train-00001-of-00002-1f2e.parquet", "train.parquet",
              "data/extra-00000-of-00001.parquet"),
        [(None, "train", {}), (None, "extra", {})],
    ),
    "names/folders": (
        files("a/train/1.parquet", "a/train/b/2.parquet", "train-x/3.parquet", "a/valid/1.parquet", "training.parquet"),
        [(None, "train", {}), (None, "validation", {})],
    ),
    "names/files": (
        files("train_0.jsonl", "train_1.jsonl", "x/my-train.jsonl", "eval.jsonl", "constrain.jsonl", ".git/train.jsonl",
              "__cache__/train.jsonl", "config.json"),
        [(None, "train", {}), (None, "test", {})],
    ),
    "names/none": (files("b.parquet", "x/a.parquet", "c.jsonl"), [(None, "train", {})]),
    "names/configs": (
        files("de/train-00000-of-00001.parquet", "en/train-00000-of-00001.parquet"),
        [("de", "train", {"data_dir": "de"}), (None, "train", {})],
    ),
}  # fmt: skip
CONVERSION = files("plain_text/train/0000.parquet", "plain_text/train/0001.parquet", "plain_text/test/0000.parquet")

LOAD = """
import json, sys
import datasets
datasets.config.USE_PARQUET_EXPORT = False  # asks another server for sizes, which are not needed
datasets.disable_progress_bars()
texts = []
for number, (repository, options) in enumerate(json.load(sys.stdin)):
    options = {"cache_dir": f"{sys.argv[1]}/{number}", **options}
    texts.append([row["text"] for row in datasets.load_dataset(repository, streaming=True, **options)])
print(json.dumps(texts))
"""


def test_the_same_rows_as_datasets_in_the_same_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str | None, str, dict[str, Any]]] = []
    with HubServer() as hub:
        for name, (content, splits) in LAYOUTS.items():
            hub.put(f"datasets/{name}", {"README.md": b"# Texts", **content})
            asked += [(name, *split) for split in splits]
        hub.put("datasets/some/script", {"script.py": b"raise SystemExit", "data/other.jsonl": lines("not this")})
        hub.put("datasets/some/script", CONVERSION, revision=CONVERTED)
        converted = {"data_dir": "plain_text", "revision": CONVERTED}
        asked += [("some/script", None, "train", converted), ("some/script", "plain_text", "test", converted)]
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
            "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1",
        }  # fmt: skip
        requests = json.dumps([(name, {"split": split, **options}) for name, _, split, options in asked])
        done = subprocess.run(
            [sys.executable, "-c", LOAD, tmp_path / "cache"], input=requests, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        for (name, config, split, _), expected in zip(asked, json.loads(done.stdout), strict=True):
            named = f"{name}:{config}" if config else name
            found = files_of(*fetch_split(named, split, Workspace(tmp_path / "work"), reporter=SILENT))
            sources = [source_at(str(path), "text", one_document=False, identity=identity) for path, identity in found]
            texts = [text for source in sources if isinstance(source, SourceFile) for text in READERS[source.reader](source)]
            assert (named, split, texts) == (named, split, expected)


def test_a_pattern_matches_what_it_matches_for_fsspec() -> None:
    draw = random.Random(1)
    names = ["a", "b", "ab", "train", "train-0", "x.train", ".a"]
    parts = ["a", "*", "**", "a*", "*b", "[ab]", "[!a]", "train[-._ 0-9]*", "*[-._ 0-9]train", "?"]
    outcomes = set()
    for _ in range(3000):
        path = "/".join(draw.choices(names, k=draw.randint(1, 4)))
        pattern = "/".join(draw.choices(parts, k=draw.randint(1, 4)))
        found = bool(matching([path], pattern))
        outcomes.add(found)
        assert found == bool(re.match(glob_translate(pattern), path)), (path, pattern)
    assert outcomes == {True, False}


def test_a_file_that_matches_twice_is_read_once() -> None:
    assert resolve(["train.train-1.txt"], ["**/train[-._ 0-9]*", "**/*[-._ 0-9]train[-._ 0-9]*"]) == ["train.train-1.txt"]


ALIASES = [f"&{chr(98 + at)} [{','.join(9 * ['*' + chr(97 + at)])}]" for at in range(12)]
NOT_FILES = "data_files of 'a' are not patterns, or a list of splits and their path"
HOSTILE = {
    "no YAML": ("configs: [", "its configs are not YAML: "),
    "a list of names": ("configs: [a, b]", "number 1 of its configs has no config_name"),
    "a text": ("configs: all", "its configs are not a list"),
    "no name": ("configs:\n- data_files: a", "number 1 of its configs has no config_name"),
    "a list for a name": ("configs:\n- {config_name: [a]}", "number 1 of its configs has no config_name"),
    "a name twice": ("configs:\n- {config_name: a}\n- {config_name: a}", "it has the configuration 'a' twice"),
    "a split without a path": ("configs:\n- {config_name: a, data_files: [{split: train}]}", NOT_FILES),
    "a mapping for a path": ("configs:\n- {config_name: a, data_files: [{split: train, path: {b: c}}]}", NOT_FILES),
    "a split twice": ("configs:\n- {config_name: a, data_files: [{split: b, path: c}, {split: b, path: d}]}", NOT_FILES),
    "a path for a split": ("configs:\n- {config_name: a, data_files: [{split: ../b, path: c}]}", NOT_FILES),
    "a folder elsewhere": ("configs:\n- {config_name: a, data_dir: ../b}", "the data_dir of 'a' is not a folder"),
    "an absolute folder": ("configs:\n- {config_name: a, data_dir: /etc}", "the data_dir of 'a' is not a folder"),
    "aliases of aliases": (f"configs: [&a [x,x,x,x], {', '.join(ALIASES)}]", "its configs have more than 300,000 values"),
    "no end": (f"configs: [{300_000 * 'x,'} }}", "its configs have more than 300,000 values"),
    "itself": ("configs: &a\n- *a", "its configs name 'a', which is nothing before it"),
    "depth": ("configs: " + "[" * 2_000, "its configs are nested too deeply"),
    "a tag": ("configs: !!python/object/apply:os.system [true]", "number 1 of its configs has no config_name"),
    "NUL": ("configs: \0", "its configs are not YAML"),
}


@pytest.mark.parametrize(("block", "message"), HOSTILE.values(), ids=HOSTILE)
def test_configs_that_are_none_are_one_line(block: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read_configs(f"---\n{block}\n---\n".encode())
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "card",
    [
        b"",
        b"# No metadata",
        b"---\nlicense: mit\n---\n",
        b"---\nconfigs:\n---\n",
        b"---\nconfigs: []",
        b"---\nconfigs:all\n---\n",
        b"\xff\xfe---\n",
    ],
)
def test_a_card_without_configs_has_none(card: bytes) -> None:
    assert read_configs(card) == {}


@pytest.mark.parametrize("null", ["", "~", "null"])
def test_null_is_null_only_where_it_is_no_text(null: str) -> None:
    block = f"configs:\n- {{config_name: a, data_files: {null}}}\n- {{config_name: 'null', data_files: 'null'}}"
    assert read_configs(f"---\n{block}\n---\n".encode()) == {"a": Config(), "null": Config({"train": ["null"]})}


def test_an_alias_is_what_it_stands_for() -> None:
    block = "configs:\n- &a {config_name: &b c, data_files: &d [x/*, *b]}\n- {config_name: e, data_files: *d, data_dir: *b}"
    assert read_configs(f"---\n{block}\n---\n".encode()) == {
        "c": Config({"train": ["x/*", "c"]}), "e": Config({"train": ["x/*", "c"]}, folder="c")
    }  # fmt: skip


PATHS = ["README.md", "a/1.parquet", "b/2.parquet"]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("../b/*", r"'../b/\*' is not the path of files in this repository"),
        ("/etc/passwd", "'/etc/passwd' is not the path of files"),
        ("https://example.com/a.parquet", "is not the path of files"),
        ("hf://datasets/a/b/c.parquet", "is not the path of files"),
        ("*" * 2000, "is not the path of files"),
        ("a**b/*", r"has \*\* beside other characters"),
        ("c.parquet", "it names the file 'c.parquet', which does not exist"),
        ("c/*", r"the files of its split train, \['c/\*'\], do not exist"),
    ],
)
def test_patterns_that_lead_nowhere_are_named(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_split(PATHS, {"default": Config({"train": [pattern]})}, None, "train")


def test_patterns_without_end_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "MOST_COMPARISONS", 5)
    with pytest.raises(ValueError, match="it has 2 patterns for 3 files, more than are compared"):
        resolve(PATHS, ["a/*", "b/*"])


def test_a_pattern_that_takes_long_elsewhere_does_not_here() -> None:
    assert not matching(["a" * 200], "*a" * 40 + "b")  # with backtracking, longer than the universe
    assert not matching(["/".join("a" * 60)], "/".join(["**"] * 30 + ["b"]))
    deep = [f"{number}/{'/'.join('a' * 400)}" for number in range(300)]
    with pytest.raises(ValueError, match="it has 1 patterns for 300 files, more than are compared"):
        resolve(deep, ["/".join(["**", "*"] * 200)])


def test_configurations_and_splits_that_do_not_exist_are_listed() -> None:
    two = {"a": Config({"train": ["a/*"]}), "b": Config({"train": ["b/*"], "test": ["b/*"]})}
    with pytest.raises(UsageError, match="has several configurations, so NAME:CONFIG must name one; there are a, b"):
        find_split(PATHS, two, None, "train")
    with pytest.raises(UsageError, match="has no configuration c; there are a, b"):
        find_split(PATHS, two, "c", "train")
    with pytest.raises(UsageError, match="has no split dev of its configuration b; there are test, train"):
        find_split(PATHS, two, "b", "dev")
    with pytest.raises(UsageError, match="has no split test; there is train"):
        find_split(PATHS, {}, None, "test")
    with pytest.raises(UsageError, match="has no configuration c; there are a, b"):
        find_split(PATHS, {}, "c", "train")
    many = {f"config{number}": Config() for number in range(200)}
    with pytest.raises(
        UsageError, match=r"has no configuration config_77; there are 200, for instance config77, (\w+, ){10}\w+$"
    ):
        find_split(PATHS, many, "config_77", "train")


def test_the_conversion_of_a_large_split_is_known_to_be_partial() -> None:
    paths = ["default/partial-train/0000.parquet", "default/test/0000.parquet", "index.duckdb"]
    found = find_converted(paths, None, "train")
    assert found
    assert (found.paths, found.is_partial) == (("default/partial-train/0000.parquet",), True)
    with pytest.raises(UsageError, match="has no split dev of its configuration default; there are test, train"):
        find_converted(paths, None, "dev")
    assert find_converted(["README.md"], None, "train") is None


def test_files_of_no_kind_that_is_read_are_none() -> None:
    assert find_split(["a.zip", "b.xml", "train/c.png"], {}, None, "train") is None
    assert find_split(["a.zip", "b.parquet"], {"default": Config({"train": ["a.zip"]})}, None, "train") is None
