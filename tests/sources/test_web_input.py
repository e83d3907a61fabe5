"""An address given as input is fetched once, like any download, and then read as a file."""

import gzip
from pathlib import Path

import pytest

from bertprep.commands.shard import shard
from bertprep.config import ShardSettings
from bertprep.errors import BertprepError
from tests.hub_server import HubServer

TEXT = gzip.compress(b"One sentence. Another.\n\nA second document.\n")


def test_a_web_address_is_fetched_once_and_sharded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTPREP_RETRY_SECONDS", "0.01")
    with HubServer() as server:
        server.files["text.txt.gz"] = TEXT
        server.fail("text.txt.gz", status=503)
        address = f"{server.url}/files/text.txt.gz"
        manifest = shard([address], ShardSettings(shards=1, test_fraction=0), workdir=tmp_path)
        assert shard([address], ShardSettings(shards=1, test_fraction=0), workdir=tmp_path) == manifest
        assert [asked.method for asked in server.asked_for("text.txt.gz")].count("GET") == 1
        server.files["text.txt.gz"] = gzip.compress(b"Other text.\n")
        other = shard([address], ShardSettings(shards=1, test_fraction=0), workdir=tmp_path, corpus="other")
        assert other.made_with["inputs"] != manifest.made_with["inputs"]
        server.files["text.txt.gz"] = TEXT
        shard([address], ShardSettings(shards=1, test_fraction=0), workdir=tmp_path, corpus="third")
    shard([address], ShardSettings(shards=1, test_fraction=0), workdir=tmp_path)  # the server is gone, the file is here
    shards = tmp_path / "sharded/corpus/training/corpus_training_00000.txt"
    assert shards.read_text() == "One sentence.\nAnother.\n\nA second document.\n\n"


def test_an_address_without_a_file_is_named(tmp_path: Path) -> None:
    with HubServer() as server, pytest.raises(BertprepError, match=r"/files/none\.txt: the server answers 404 Not Found"):
        shard([f"{server.url}/files/none.txt"], workdir=tmp_path)
