"""A file at an address: resumed at its byte, retried, never mixed with another version; one clear line for a failure."""

import errno
import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bertprep.commands.shard import shard
from bertprep.errors import BertprepError
from bertprep.patience import TRIES
from bertprep.sources.listing import RemoteFile
from bertprep.sources.web import RequestError, fetch_url, list_url, retry
from tests.hub_server import HubServer
from tests.small_hub import noise

SIZE = 300_000
CONTENT = noise(SIZE, "file")
ETAG = f'"{hashlib.sha256(CONTENT).hexdigest()}"'


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    monkeypatch.setenv("BERTPREP_RETRY_SECONDS", "0.002")
    with HubServer() as server:
        server.files["a.txt"] = CONTENT
        yield server


def listed(server: HubServer) -> RemoteFile:
    return RemoteFile("a.txt", f"{server.url}/files/a.txt", SIZE, etag=ETAG)


def fetch(file: RemoteFile, folder: Path) -> bytes:
    fetch_url(file, folder / "a.txt")
    assert [path.name for path in folder.iterdir()] == ["a.txt"]
    return (folder / "a.txt").read_bytes()


def complaint(file: RemoteFile, folder: Path) -> str:
    with pytest.raises(BertprepError) as raised:
        fetch_url(file, folder / "a.txt")
    assert "\n" not in str(raised.value)
    assert not (folder / "a.txt").exists()
    return str(raised.value)


@pytest.mark.parametrize(
    "fault",
    [
        *({"times": 3, "status": status} for status in (408, 429, 500, 502, 503, 504)),
        {"times": 2 * TRIES, "cut_after": 15_000},  # progress resets the count of tries
    ],
)
def test_a_failing_server_is_tried_again(fault: dict[str, Any], server: HubServer, tmp_path: Path) -> None:
    server.fail("a.txt", **fault)
    assert list_url(f"{server.url}/files/a.txt").files == (listed(server),)
    assert fetch(listed(server), tmp_path) == CONTENT


def test_a_cut_connection_and_a_stopped_run_resume_at_their_byte(server: HubServer, tmp_path: Path) -> None:
    server.fail("a.txt", cut_after=100_000)
    assert fetch(listed(server), tmp_path) == CONTENT
    (tmp_path / "a.txt").unlink()
    server.fail("a.txt", cut_after=50_000)
    server.fail("/a.txt", times=None, status=500)
    assert f"retries exhausted after {TRIES} tries" in complaint(listed(server), tmp_path)
    server.faults.clear()
    assert fetch(listed(server), tmp_path) == CONTENT
    ranges = [asked.headers["Range"] for asked in server.asked]
    assert ranges == [None, "bytes=100000-", None, *["bytes=50000-"] * TRIES]


def _add(left: Any, right: Any) -> Any:
    return left + right


@pytest.mark.parametrize(
    ("action", "error"),
    [
        (lambda: _add(1, "a"), TypeError),
        (lambda: {}["key"], KeyError),
        (lambda: next(_raise(RuntimeError("a bug"))), RuntimeError),
        (lambda: Path("/nowhere").read_bytes(), FileNotFoundError),
        (lambda: next(_raise(OSError(errno.ENOSPC, "no space left"))), OSError),
    ],
)
def test_a_bug_and_the_disk_are_not_taken_for_the_network(action: Any, error: type[Exception]) -> None:
    tried = []
    with pytest.raises(error) as raised:
        retry("https://host/x", lambda: [tried.append(1), action()], tries=3)
    assert type(raised.value) is not RequestError
    assert len(tried) == 1


@pytest.mark.parametrize(
    "error", [ConnectionResetError(errno.ECONNRESET, "reset by peer"), OSError(errno.ENETUNREACH, "unreachable")]
)
def test_what_the_system_says_of_a_connection_is_the_networks(error: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that a file cannot be written, though its number is in errno as well."""
    monkeypatch.setenv("BERTPREP_RETRY_SECONDS", "0.002")
    with pytest.raises(RequestError, match=r"^https://host/x: the transfer failed \(.*\); retries exhausted after 2 tries"):
        retry("https://host/x", lambda: next(_raise(error)), tries=2)


def _raise(error: Exception) -> Iterator[None]:
    yield from ()
    raise error


def test_versions_are_not_mixed(server: HubServer, tmp_path: Path) -> None:
    server.fail("a.txt", cut_after=100_000)
    server.fail("/a.txt", replace_with=noise(SIZE, "new"))
    assert "has changed since it was listed" in complaint(listed(server), tmp_path)
    server.faults.clear()
    server.files["a.txt"] = noise(SIZE + 5, "newer")
    [file] = list_url(f"{server.url}/files/a.txt").files
    assert fetch(file, tmp_path) == noise(SIZE + 5, "newer")


def test_another_range_than_the_one_requested_is_refused(server: HubServer, tmp_path: Path) -> None:
    server.fail("a.txt", content_range=f"bytes 7-{SIZE - 1}/{SIZE}", cut_after=SIZE // 2, times=None)
    assert "sent another range" in complaint(listed(server), tmp_path)


def test_the_size_need_not_be_known(server: HubServer, tmp_path: Path) -> None:
    server.fail("a.txt", times=None, no_length=True)
    [file] = list_url(f"{server.url}/files/a.txt").files
    assert file.size_bytes is None
    assert fetch(file, tmp_path) == CONTENT


def test_links_are_not_written_through(server: HubServer, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / f"a.txt.{hashlib.sha256(ETAG.encode()).hexdigest()[:16]}.part").symlink_to(tmp_path / "mine")
    assert "Too many levels of symbolic links" in complaint(listed(server), tmp_path)
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize(("status", "advice"), [(401, "set HF_TOKEN"), (404, "check its name"), (407, "proxy"), (410, "later")])
def test_a_permanent_failure_is_reported_at_once(status: int, advice: str, server: HubServer, tmp_path: Path) -> None:
    server.fail("a.txt", times=None, status=status)
    assert advice in complaint(listed(server), tmp_path)
    assert len(server.asked) == 1


@pytest.mark.parametrize("url", ["gopher://x/a", "http://", "http://[::1/a", "http://x/../..", "http://x/\x1b", "http://x/a/"])
def test_an_address_that_is_none_is_one_line(url: str) -> None:
    with pytest.raises(BertprepError, match=r"give |check the address"):
        list_url(url)


def test_an_address_given_as_input_is_fetched_again_when_it_changes(server: HubServer, tmp_path: Path) -> None:
    address = f"{server.url}/files/text.txt.gz"

    def text_of(corpus: str, content: bytes | None = None) -> str:
        if content:
            server.files["text.txt.gz"] = gzip.compress(content)
        shard([address], shards=1, test_fraction=0, workdir=tmp_path, corpus=corpus)
        return (tmp_path / f"sharded/{corpus}/training/{corpus}_training_00000.txt").read_text()

    assert text_of("first", b"One sentence. Another.\n\nA second document.\n") == (
        "One sentence.\nAnother.\n\nA second document.\n\n"
    )
    assert text_of("changed", b"Other text.\n") == "Other text.\n\n"
    server.fail("text.txt.gz", times=None, status=404)  # what was fetched is used
    assert text_of("changed") == text_of("offline") == "Other text.\n\n"
