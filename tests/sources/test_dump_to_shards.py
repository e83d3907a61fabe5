"""A real dump becomes text shards: the excerpt of English Wikipedia in gensim's wheel, 106 articles and 100 redirects."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from bertprep.commands.shard import shard
from bertprep.sources import documents
from bertprep.text import shards as text_shards
from tests.corpora import sums

EXCERPT = "test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
MARKUP = re.compile(r"\{\{|\}\}|\[\[|\]\]|\{\||\|\}|<ref|&nbsp;|&lt;|__[A-Z]+__|^#REDIRECT|^==", re.MULTILINE)


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    spec = importlib.util.find_spec("gensim")  # its data alone; nothing of it is imported
    assert spec is not None
    assert spec.submodule_search_locations is not None
    path = tmp_path / "enwiki-pages-articles.xml.bz2"
    path.symlink_to(Path(spec.submodule_search_locations[0]) / EXCERPT)
    return path


def test_the_articles_of_a_dump_become_shards_without_markup(dump: Path, tmp_path: Path) -> None:
    manifest = shard([dump], shards=4, workdir=tmp_path / "data", corpus="wiki", workers=2)
    documents = sum(facts["documents"] for facts in manifest.files.values())
    assert documents + manifest.counts["dropped_empty"] == 106
    assert documents > 100
    text = "".join(path.read_text() for path in (tmp_path / "data/sharded/wiki").rglob("*.txt"))
    assert not MARKUP.search(text)
    assert "Anarchism is a political philosophy that advocates self-governed societies" in text
    assert sum(facts["words"] for facts in manifest.files.values()) > 400_000


def test_the_bytes_do_not_depend_on_workers_or_on_where_a_run_was_stopped(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "BATCH_TEXT_BYTES", 500_000)
    monkeypatch.setattr(text_shards, "PIECE_BYTES", 500_000)
    found = []
    for workers in (1, 3):
        shard([dump], shards=4, workdir=tmp_path / str(workers), corpus="wiki", workers=workers)
        found.append(sums(tmp_path / str(workers)))
    assert found[0] == found[1]

    make, made = text_shards._Sort.make, []

    def stop_after_three(self: Any, argument: Any, paths: Any) -> Any:
        made.append(paths)
        if len(made) == 4:
            raise KeyboardInterrupt
        return make(self, argument, paths)

    monkeypatch.setattr(text_shards._Sort, "make", stop_after_three)
    with pytest.raises(KeyboardInterrupt):
        shard([dump], shards=4, workdir=tmp_path / "stopped", corpus="wiki", workers=1)
    shard([dump], shards=4, workdir=tmp_path / "stopped", corpus="wiki", workers=1)
    assert sums(tmp_path / "stopped") == found[0]
    names = [str(paths["runs"]) for paths in made]
    assert len(names) == len(set(names)) + 1 > 5  # what was finished was not made again
