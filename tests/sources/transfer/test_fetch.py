"""Fetching over a network that fails in every known way: the right bytes, or one clear line and no partial result."""

import hashlib
import subprocess
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import pytest

from bertprep.errors import BertprepError
from bertprep.files.lock import locked
from bertprep.patience import TRIES
from bertprep.progress import Reporter
from bertprep.sources.transfer import fetch as fetch_module
from bertprep.sources.transfer import progress as transfer_progress
from bertprep.sources.transfer.fetch import fetch
from bertprep.sources.transfer.http import Web, retry_after_seconds
from bertprep.sources.transfer.listing import Listing, RemoteFile
from bertprep.sources.transfer.own_files import list_url
from tests.hub_server import HubServer
from tests.small_hub import noise

SIZE = 400_000
CONTENT = noise(SIZE, "content")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTPREP_RETRY_SECONDS", "0.005")
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer() as server:
        server.files["a.bin"] = CONTENT
        yield server


def listing_of(hub: HubServer, **contents: bytes) -> Listing:
    """A listing with the sums of these contents, or of what the server has."""
    contents = contents or hub.files
    files = (
        RemoteFile(name, f"{hub.url}/files/{name}", len(data), sha256=hashlib.sha256(data).hexdigest())
        for name, data in contents.items()
    )
    return Listing({"dump": "test"}, "", tuple(files))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def complaint(listing: Listing, folder: Path) -> str:
    with pytest.raises(BertprepError) as raised:
        fetch(listing, folder)
    text = str(raised.value)
    assert "\n" not in text
    return text


def test_several_files_come_at_once(hub: HubServer, tmp_path: Path) -> None:
    hub.files = {f"{number}.bin": noise(50_000, str(number)) for number in range(7)}
    fetch(listing_of(hub), tmp_path, connections=3)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == hub.files
    assert hub.sent.total() == 7 * 50_000


def test_an_empty_file_needs_no_request(hub: HubServer, tmp_path: Path) -> None:
    hub.files["a.bin"] = b""
    fetch(listing_of(hub), tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == b""
    assert not hub.asked


def test_a_cut_connection_resumes_at_its_offset(hub: HubServer, tmp_path: Path) -> None:
    hub.fail("a.bin", times=3, cut_after=100_000)
    fetch(listing_of(hub), tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert [asked.headers["Range"] for asked in hub.asked] == [
        None, "bytes=100000-", "bytes=200000-", "bytes=300000-",
    ]  # fmt: skip
    assert hub.sent.total() == SIZE


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_failing_server_is_retried(status: int, hub: HubServer, tmp_path: Path) -> None:
    hub.fail("a.bin", status=status)
    fetch(listing_of(hub), tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_a_stalled_connection_is_abandoned(hub: HubServer, tmp_path: Path) -> None:
    hub.fail("a.bin", stall_after=30_000)
    fetch(listing_of(hub), tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert hub.sent.total() == SIZE


def test_retry_after_is_obeyed(hub: HubServer, tmp_path: Path) -> None:
    hub.fail("a.bin", status=429, retry_after="1")
    started = time.monotonic()
    fetch(listing_of(hub), tmp_path)
    assert 1 <= time.monotonic() - started < 5


def test_retry_after_may_be_a_date_and_is_limited(hub: HubServer, tmp_path: Path) -> None:
    assert 50 < (retry_after_seconds(formatdate(time.time() + 60, usegmt=True)) or 0) <= 60
    assert retry_after_seconds("soon") is None
    hub.fail("a.bin", status=503, retry_after="86400")
    started = time.monotonic()
    fetch(listing_of(hub), tmp_path)
    assert time.monotonic() - started < 10  # 300 waits of 0.005 s


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"status": 503}, "the server answers 503 Service Unavailable"),
        ({"status": 429}, "the server answers 429 Too Many Requests"),
        ({"cut_after": 0}, "the connection to 127.0.0.1:"),
    ],
)
def test_endless_trouble_is_one_line_and_the_next_run_resumes(
    fault: dict[str, int], why: str, hub: HubServer, tmp_path: Path
) -> None:
    hub.fail("a.bin", cut_after=250_000)
    hub.fail("/a.bin", times=None, **fault)
    text = complaint(listing_of(hub), tmp_path)
    assert text.startswith(f"{tmp_path}/a.bin: {why}")
    assert text.endswith("tries without progress; received bytes are kept, the same command resumes")
    assert names(tmp_path) == {"a.bin.part", "a.bin.part.json"}
    assert len(hub.asked) == TRIES
    hub.faults.clear()
    fetch(listing_of(hub), tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert names(tmp_path) == {"a.bin"}
    assert hub.sent.total() == SIZE


def test_progress_resets_the_count_of_tries(hub: HubServer, tmp_path: Path) -> None:
    hub.fail("a.bin", times=3 * TRIES, cut_after=SIZE // (4 * TRIES))
    fetch(listing_of(hub), tmp_path)
    assert hub.sent.total() == SIZE


def test_alternating_progress_and_loss_ends(hub: HubServer, tmp_path: Path) -> None:
    hub.fail("a.bin", times=None, cut_after=100_000, ignore_range=True)
    assert "given up after" in complaint(listing_of(hub), tmp_path)


def test_a_server_without_ranges_sends_files_again(hub: HubServer, tmp_path: Path) -> None:
    hub.fail("a.bin", cut_after=100_000)
    hub.fail("/a.bin", ignore_range=True)
    fetch(listing_of(hub), tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert hub.sent.total() == SIZE + 100_000


@pytest.mark.parametrize("length", [SIZE - 1000, SIZE + 1000])
def test_one_wrong_length_is_recovered(length: int, hub: HubServer, tmp_path: Path) -> None:
    hub.fail("a.bin", length=length)
    fetch(listing_of(hub), tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_bytes_from_another_offset_are_not_accepted(hub: HubServer, tmp_path: Path) -> None:
    hub.fail("a.bin", cut_after=100_000)
    hub.fail("/a.bin", content_range=f"bytes 0-{SIZE - 1}/{SIZE}")
    fetch(listing_of(hub), tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert [asked.headers["Range"] for asked in hub.asked] == [None, "bytes=100000-", None]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (noise(SIZE, "other"), f"has sha256 {hashlib.sha256(noise(SIZE, 'other')).hexdigest()}, expected"),
        (CONTENT[:-1], "has no bytes from 399,999 on, expected 400000"),
        (CONTENT + b"x", "has more than the 400,000 bytes expected"),
    ],
)
def test_wrong_bytes_are_fetched_twice_and_never_get_the_name(content: bytes, why: str, hub: HubServer, tmp_path: Path) -> None:
    hub.fail("a.bin", times=None, replace_with=content)
    text = complaint(listing_of(hub), tmp_path)
    assert text.startswith(f"{tmp_path}/a.bin: {hub.url}/files/a.bin {why}")
    assert names(tmp_path) == set()
    assert len([asked for asked in hub.asked if not asked.headers["Range"]]) == 2
    assert hub.sent.total() == 2 * len(content)


def test_wrong_bytes_once_are_recovered(hub: HubServer, tmp_path: Path) -> None:
    hub.fail("a.bin", replace_with=noise(SIZE, "other"))
    fetch(listing_of(hub), tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert len(hub.asked) == 2


def test_git_checksums_are_verified_too(hub: HubServer, tmp_path: Path) -> None:
    sha1 = hashlib.sha1(b"blob %d\0" % SIZE + CONTENT).hexdigest()
    for expected, right in ((sha1, True), ("0" * 40, False)):
        file = RemoteFile("a.bin", f"{hub.url}/files/a.bin", SIZE, git_sha1=expected)
        if right:
            fetch(Listing({"dump": "test"}, "", (file,)), tmp_path / "right")
        else:
            listing = Listing({"dump": "test"}, "", (file,))
            assert f"has git's sha1 {sha1}, expected {expected}" in complaint(listing, tmp_path / "wrong")


@pytest.mark.parametrize("damage", [CONTENT[:-1], b"x" + CONTENT[1:], b""])
def test_a_damaged_file_is_repaired(damage: bytes, hub: HubServer, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(damage)
    fetch(listing_of(hub), tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_a_correct_file_needs_no_request(hub: HubServer, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(CONTENT)
    made = (tmp_path / "a.bin").stat().st_mtime_ns
    fetch(listing_of(hub), tmp_path)
    assert not hub.asked
    assert (tmp_path / "a.bin").stat().st_mtime_ns == made


def test_a_part_of_other_content_is_not_resumed(hub: HubServer, tmp_path: Path) -> None:
    hub.fail("a.bin", cut_after=100_000)
    hub.fail("/a.bin", times=TRIES - 1, status=503)
    complaint(listing_of(hub), tmp_path)
    hub.files["a.bin"] = noise(SIZE, "new")
    hub.asked.clear()
    fetch(listing_of(hub), tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == noise(SIZE, "new")
    assert [asked.headers["Range"] for asked in hub.asked] == [None]


def test_a_damaged_part_costs_one_more_fetch(hub: HubServer, tmp_path: Path) -> None:
    hub.fail("a.bin", cut_after=100_000)
    hub.fail("/a.bin", times=TRIES - 1, status=503)
    complaint(listing_of(hub), tmp_path)
    with (tmp_path / "a.bin.part").open("r+b") as part:
        part.write(b"damaged")
    fetch(listing_of(hub), tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_a_file_without_checksums_is_resumed_only_if_the_server_has_the_same(hub: HubServer, tmp_path: Path) -> None:
    def listed() -> Listing:
        with Web() as web:
            return list_url(f"{hub.url}/files/a.bin", web)

    before = listed()
    assert before.files[0].size_bytes == SIZE
    hub.fail("a.bin", cut_after=100_000)
    hub.fail("/a.bin", times=TRIES - 1, status=503)
    complaint(before, tmp_path)
    hub.asked.clear()
    fetch(before, tmp_path)  # the same file: the rest of it is asked for, if it is still the same
    assert [(asked.headers["Range"], asked.headers["If-Range"]) for asked in hub.asked] == [
        ("bytes=100000-", before.files[0].etag)
    ]
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    hub.files["a.bin"] = noise(SIZE, "new")
    assert "has changed since it was listed" in complaint(before, tmp_path / "elsewhere")
    fetch(listed(), tmp_path / "elsewhere")
    assert (tmp_path / "elsewhere" / "a.bin").read_bytes() == noise(SIZE, "new")


def test_a_server_need_not_tell_the_size(hub: HubServer, tmp_path: Path) -> None:
    hub.fail("a.bin", times=None, no_length=True)
    with Web() as web:
        listing = list_url(f"{hub.url}/files/a.bin", web)
    assert listing.files[0].size_bytes is None
    fetch(listing, tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert len(hub.asked) == 2
    fetch(listing, tmp_path)
    assert len(hub.asked) == 2


def test_a_server_need_not_know_head(hub: HubServer) -> None:
    hub.fail("a.bin", status=405)
    with Web() as web:
        assert list_url(f"{hub.url}/files/a.bin", web).files[0].size_bytes == SIZE
    assert [asked.method for asked in hub.asked] == ["HEAD", "GET"]


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (401, "set HF_TOKEN"),
        (403, "set HF_TOKEN"),
        (404, "check the address"),
        (407, "HTTPS_PROXY"),
        (418, "check the address"),
    ],
)
def test_a_permanent_failure_is_reported_at_once(status: int, advice: str, hub: HubServer, tmp_path: Path) -> None:
    hub.fail("a.bin", times=None, status=status)
    text = complaint(listing_of(hub), tmp_path)
    assert f"the server answers {status}" in text
    assert advice in text
    assert len(hub.asked) == 1


@pytest.mark.parametrize("url", ["gopher://x/a", "http://", "http://[::1/a"])
def test_an_invalid_address_is_reported(url: str, tmp_path: Path) -> None:
    text = complaint(Listing({"dump": "test"}, "", (RemoteFile("a", url, 5),)), tmp_path)
    assert "cannot be fetched" in text


def test_one_failed_file_ends_the_run_and_keeps_received_bytes(hub: HubServer, tmp_path: Path) -> None:
    hub.files["b.bin"] = noise(SIZE, "b")
    hub.bytes_per_second = 1_000_000
    listing = listing_of(hub)
    hub.fail("a.bin", status=404)
    assert "404" in complaint(listing, tmp_path)
    assert not (tmp_path / "b.bin").exists()
    fetch(listing, tmp_path)
    assert names(tmp_path) == {"a.bin", "b.bin"}


def test_a_folder_locked_by_another_run_is_refused(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(BertprepError, match="another run is writing here"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass
    assert names(tmp_path) == set()


def test_too_small_a_disk_is_reported_before_the_start(hub: HubServer, tmp_path: Path) -> None:
    listing = Listing({"dump": "test"}, "", (RemoteFile("huge", f"{hub.url}/files/huge", 10**18, sha256="0" * 64),))
    text = complaint(listing, tmp_path)
    assert text.startswith(f"{tmp_path}: 1,000,000,000,000 MB are still to come and ")
    assert not hub.asked


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own with 300 KB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("may not mount a file system here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_disk_that_fills_up_is_one_line(hub: HubServer, small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_module, "check_free_space", lambda _: None)  # as if another program filled the disk meanwhile
    text = complaint(listing_of(hub), small_disk)
    assert text.startswith(f"{small_disk}/a.bin: cannot be written: No space left on device; 0 MB are free in {small_disk}")
    assert names(small_disk) == {"a.bin.part", "a.bin.part.json"}
    subprocess.run(["mount", "-o", "remount,size=2m", small_disk], check=True)
    fetch(listing_of(hub), small_disk)
    assert (small_disk / "a.bin").read_bytes() == CONTENT
    assert any(asked.headers["Range"] for asked in hub.asked)


def test_progress_is_plain_lines_without_a_terminal(
    hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer_progress, "SECONDS_BETWEEN_LINES", 0)
    hub.fail("a.bin", status=503)
    fetch(listing_of(hub), tmp_path, reporter=Reporter(), label="books")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"{tmp_path}/a.bin: the server answers 503 Service Unavailable; trying again in 0 s (try 2 of {TRIES})"
    assert lines[1].startswith("books: 0/1 files, 0 of 0 MB, ")
    assert lines[-1].startswith("books: a.bin, 0.4 MB in ")
