"""A file at an address: resumed at its byte, retried, never mixed with another version; one clear line for a failure."""

import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertprep.commands.shard import shard
from bertprep.config import ShardSettings
from bertprep.errors import BertprepError, UsageError
from bertprep.patience import TRIES
from bertprep.sources.listing import RemoteFile
from bertprep.sources.web import fetch_url, list_url, name_in_url
from tests.hub_server import HubServer
from tests.small_hub import noise

SIZE = 300_000
CONTENT = noise(SIZE, "file")
ETAG = f'"{hashlib.sha256(CONTENT).hexdigest()}"'


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    monkeypatch.setenv("BERTPREP_RETRY_SECONDS", "0.005")
    with HubServer() as server:
        server.files["a.txt"] = CONTENT
        yield server


def fetch(server: HubServer, folder: Path) -> bytes:
    [file] = list_url(f"{server.url}/files/a.txt").files
    fetch_url(file, folder / "a.txt")
    assert [path.name for path in folder.iterdir()] == ["a.txt"]
    return (folder / "a.txt").read_bytes()


def complaint(server: HubServer, folder: Path) -> str:
    with pytest.raises(BertprepError) as raised:
        fetch(server, folder)
    assert "\n" not in str(raised.value)
    assert not (folder / "a.txt").exists()
    return str(raised.value)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_failing_server_is_tried_again(status: int, server: HubServer, tmp_path: Path) -> None:
    server.fail("a.txt", times=3, status=status)
    assert fetch(server, tmp_path) == CONTENT


def test_a_cut_connection_and_a_killed_run_resume_at_their_byte(server: HubServer, tmp_path: Path) -> None:
    [file] = list_url(f"{server.url}/files/a.txt").files
    assert (file.size_bytes, file.etag) == (SIZE, ETAG)
    server.fail("a.txt", cut_after=100_000)
    server.asked.clear()
    fetch_url(file, tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_bytes() == CONTENT
    assert [asked.headers["Range"] for asked in server.asked] == [None, "bytes=100000-"]
    (tmp_path / "a.txt").unlink()
    server.fail("a.txt", times=None, cut_after=50_000)
    server.faults["a.txt"].cut_after = 50_000
    server.fail("a.txt", times=None, status=503)
    assert f"retries exhausted after {TRIES} tries" in failure(file, tmp_path)
    server.faults.clear()
    server.fail("a.txt", cut_after=50_000)
    server.fail("/a.txt", times=None, status=500)
    assert "retries exhausted" in failure(file, tmp_path)
    server.faults.clear()
    server.asked.clear()
    fetch_url(file, tmp_path / "a.txt")
    assert [asked.headers["Range"] for asked in server.asked] == ["bytes=50000-"]
    assert (tmp_path / "a.txt").read_bytes() == CONTENT


def failure(file: RemoteFile, folder: Path) -> str:
    with pytest.raises(BertprepError) as raised:
        fetch_url(file, folder / "a.txt")
    return str(raised.value)


def test_progress_resets_the_count_of_tries(server: HubServer, tmp_path: Path) -> None:
    server.fail("a.txt", times=2 * TRIES, cut_after=15_000)
    [file] = [RemoteFile("a.txt", f"{server.url}/files/a.txt", SIZE, etag=ETAG)]
    fetch_url(file, tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_bytes() == CONTENT


def test_versions_are_not_mixed(server: HubServer, tmp_path: Path) -> None:
    [file] = list_url(f"{server.url}/files/a.txt").files
    server.fail("a.txt", cut_after=100_000)
    server.fail("/a.txt", replace_with=noise(SIZE, "new"))
    assert "has changed since it was listed" in failure(file, tmp_path)
    server.faults.clear()
    server.files["a.txt"] = noise(SIZE + 5, "newer")
    assert fetch(server, tmp_path) == noise(SIZE + 5, "newer")


def test_another_range_than_the_one_requested_is_refused(server: HubServer, tmp_path: Path) -> None:
    server.fail("a.txt", content_range=f"bytes 7-{SIZE - 1}/{SIZE}", cut_after=SIZE // 2, times=None)
    [file] = [RemoteFile("a.txt", f"{server.url}/files/a.txt", SIZE, etag=ETAG)]
    assert "answers with another range" in failure(file, tmp_path)


def test_the_size_need_not_be_known(server: HubServer, tmp_path: Path) -> None:
    server.fail("a.txt", times=None, no_length=True)
    assert list_url(f"{server.url}/files/a.txt").files[0].size_bytes is None
    assert fetch(server, tmp_path) == CONTENT


def test_links_are_not_written_through(server: HubServer, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    [file] = list_url(f"{server.url}/files/a.txt").files
    (tmp_path / f"a.txt.{hashlib.sha256(ETAG.encode()).hexdigest()[:16]}.part").symlink_to(tmp_path / "mine")
    assert "Too many levels of symbolic links" in failure(file, tmp_path)
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize(("status", "advice"), [(401, "set HF_TOKEN"), (404, "check its name"), (407, "proxy"), (410, "later")])
def test_a_permanent_failure_is_reported_at_once(status: int, advice: str, server: HubServer, tmp_path: Path) -> None:
    server.fail("a.txt", times=None, status=status)
    assert advice in complaint(server, tmp_path)
    assert len(server.asked) == 1


@pytest.mark.parametrize("url", ["gopher://x/a", "http://", "http://[::1/a", "http://x/../..", "http://x/\x1b", "http://x/a/"])
def test_an_address_that_is_none_is_one_line(url: str) -> None:
    with pytest.raises(BertprepError, match=r"give |check the address"):
        list_url(url)


def test_an_address_given_as_input_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTPREP_RETRY_SECONDS", "0.01")
    settings = ShardSettings(shards=1, test_fraction=0)
    text = gzip.compress(b"One sentence. Another.\n\nA second document.\n")
    with HubServer() as server:
        server.files["text.txt.gz"] = text
        address = f"{server.url}/files/text.txt.gz"
        manifest = shard([address], **vars(settings), workdir=tmp_path)
        sent = server.sent_of("text.txt.gz")
        assert shard([address], **vars(settings), workdir=tmp_path) == manifest
        server.files["text.txt.gz"] = gzip.compress(b"Other text.\n")
        other = shard([address], **vars(settings), workdir=tmp_path, corpus="other")
        assert other.made_with["inputs"] != manifest.made_with["inputs"]
        server.files["text.txt.gz"] = text
        shard([address], **vars(settings), workdir=tmp_path, corpus="third")
        assert sent >= len(text)
    shard([address], **vars(settings), workdir=tmp_path)  # the server is gone, the file is here
    shards = tmp_path / "sharded/corpus/training/corpus_training_00000.txt"
    assert shards.read_text() == "One sentence.\nAnother.\n\nA second document.\n\n"
    with pytest.raises(UsageError, match="does not end with a file's name"):
        name_in_url("https://x/")
