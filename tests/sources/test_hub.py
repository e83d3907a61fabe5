"""The Hub: right files or one clear line, whatever the network or a hostile listing does; the token for one host."""

import hashlib
import json
import resource
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import huggingface_hub
import pytest

from bertprep import download, patience
from bertprep.errors import BertprepError, UsageError
from bertprep.files.lock import locked
from bertprep.sources import catalogue, hub
from bertprep.sources import hub as hub_module
from bertprep.sources.catalogue import DEFAULT_MODEL, HubFiles
from bertprep.sources.hub import check_token, open_hub
from bertprep.sources.listing import Listing, RemoteFile, git_sha1, load_listing
from tests.hostile import BAD_NAMES, HALF_A_PAIR
from tests.hub_server import Answer, HubServer, use_hub
from tests.small_hub import MODEL, fill, noise

FILES = HubFiles("some/set", ("*.parquet",), keep_folders=True)
NAME = "train.parquet"
CONTENT = noise(200_000, "train")
ENTRY = {"type": "file", "oid": "0" * 40, "size": 1, "path": "a.parquet"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    with HubServer() as server:
        use_hub(monkeypatch, server.url, tmp_path)
        server.put("datasets/some/set", {NAME: CONTENT, "README.md": b"# A set"})
        yield server


def fetch(folder: Path, files: HubFiles = FILES) -> Listing:
    with open_hub() as hub, locked(folder):
        listing = hub.list_files(files)
        hub.fetch(listing, folder)
    assert not listing.missing(folder)
    assert {path.name for path in folder.iterdir()} <= {*(file.name.partition("/")[0] for file in listing.files), ".lock"}
    return listing


def complaint(folder: Path, files: HubFiles = FILES) -> str:
    with pytest.raises(BertprepError) as raised:
        fetch(folder, files)
    assert "\n" not in str(raised.value)
    assert not [path for path in folder.rglob("*") if path.is_file()]
    return str(raised.value)


@pytest.mark.parametrize(("method", "status"), [("HEAD", 503), ("GET", 429), ("GET", 500)])
def test_a_failing_server_is_tried_again(method: str, status: int, server: HubServer, tmp_path: Path) -> None:
    server.fail(NAME, times=2, status=status, method=method)
    server.fail("revision/main", times=2, status=status)
    fetch(tmp_path / "x")
    assert (tmp_path / "x" / NAME).read_bytes() == CONTENT


def test_a_cut_body_is_continued_and_wrong_bytes_of_the_right_size_are_fetched_once_more(
    server: HubServer, tmp_path: Path
) -> None:
    server.fail(NAME, times=3, cut_after=50_000, method="GET")
    fetch(tmp_path / "x")
    assert server.sent_of(NAME) < 2 * len(CONTENT)
    server.fail(NAME, replace_with=bytes(len(CONTENT)), method="GET")
    fetch(tmp_path / "y")
    assert (tmp_path / "x" / NAME).read_bytes() == (tmp_path / "y" / NAME).read_bytes() == CONTENT
    server.fail(NAME, times=None, replace_with=bytes(len(CONTENT)))
    assert ", also after a second download" in complaint(tmp_path / "z")
    server.fail(NAME, times=None, status=500, method="GET")
    assert "retries exhausted after 8 tries; the same command resumes" in complaint(tmp_path / "z")


def test_one_failed_file_ends_the_run_and_keeps_finished_ones(server: HubServer, tmp_path: Path) -> None:
    server.put("datasets/some/set", {f"{number}.parquet": noise(1000, str(number)) for number in range(5)})
    server.fail("4.parquet", times=None, status=404)
    folder = tmp_path / "x"
    with pytest.raises(BertprepError, match=r"4\.parquet"):
        fetch(folder)
    assert {path.name for path in folder.iterdir()} <= {f"{number}.parquet" for number in range(4)}


@pytest.mark.usefixtures("server")
def test_the_client_of_the_process_is_as_before_afterwards() -> None:
    """Also where two have the Hub open at once, whichever is done first."""
    client = huggingface_hub.get_session()
    unlimited = client.timeout
    first, second = open_hub(), open_hub()
    first.__enter__()
    assert client.timeout != unlimited
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert huggingface_hub.get_session() is client
    assert client.timeout == unlimited
    client.timeout = 7
    with open_hub():
        assert client.timeout.read == 7
    assert client.timeout.read == 7
    huggingface_hub.close_session()


@pytest.mark.parametrize("route", ["revision/main", "tree"])
def test_a_silent_server_is_one_line(route: str, server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "MIN_SILENCE_SECONDS", 0.1)
    end = route if route != "tree" else answer_tree(server)
    server.answers[end] = lambda _: Answer(b"late") if server.unstalled.wait() else Answer()
    assert "no answer (timed out); retries exhausted after 6 tries" in complaint(tmp_path / "x")
    server.unstalled.set()


def test_too_small_a_disk_is_reported_before_the_start(server: HubServer, tmp_path: Path) -> None:
    file = RemoteFile("a", "datasets/some/set/resolve/x/a", 1 << 60, "0" * 64)
    with open_hub() as hub, pytest.raises(BertprepError, match="MB are still to be written, but only"):
        hub.fetch(Listing({"hub": "datasets/some/set"}, "x", (file,)), tmp_path)
    assert not server.asked


@pytest.mark.usefixtures("server")
def test_a_disk_that_fills_up_is_one_line(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))  # Python ignores the signal, and gets an error
    try:
        text = complaint(tmp_path / "x")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert f"{tmp_path}/x/{NAME}: cannot be written: File too large" in text


@pytest.mark.usefixtures("server")
def test_an_error_of_a_library_is_not_called_a_write_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class FailingBar(hub_module.tqdm):
        def update(self, n: float | None = 1) -> bool | None:
            raise OSError(f"the bar is broken at {n and 'some'} bytes")

    monkeypatch.setattr(hub_module, "tqdm", FailingBar)
    text = complaint(tmp_path / "x")
    assert text == f"{tmp_path}/x/{NAME}: cannot be fetched (the bar is broken at some bytes); run the command again"


def test_what_does_not_exist_is_named_with_what_does(server: HubServer, tmp_path: Path) -> None:
    fill(server)
    text = complaint(tmp_path / "x", catalogue.wikipedia("xx", "20231101"))
    assert text.endswith("has no file 20231101.xx/*.parquet; its folders are 20231101.de, 20231101.en, 20231101.simple")
    text = complaint(tmp_path / "x", replace(catalogue.wikipedia("xx", "20231101"), patterns=("none.txt",)))
    assert text.endswith("has no file none.txt; choose another repository")
    text = complaint(tmp_path / "x", HubFiles("some/none"))
    assert text.startswith(f"{server.url}/datasets/some/none: the server answers 401 Unauthorized")
    assert "the server answers 404" in complaint(tmp_path / "x", HubFiles("some/set", revision="other"))


@pytest.mark.parametrize("size_bytes", [0, 1, 1 << 20, (1 << 20) + 1, 3_000_000])
def test_a_checksum_of_git_is_of_all_bytes(size_bytes: int, tmp_path: Path) -> None:
    content = noise(size_bytes, "blob")
    (path := tmp_path / "blob").write_bytes(content)
    expected = hashlib.sha1(b"blob %d\0" % size_bytes + content).hexdigest()
    assert git_sha1(path) == git_sha1(content) == expected


@pytest.mark.usefixtures("server")
def test_a_known_file_with_another_checksum_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(hub.KNOWN_SHA256, ("some/set", NAME), "0" * 64)
    assert "it is not the published file; do not use it" in complaint(tmp_path / "x")
    assert (DEFAULT_MODEL, "vocab.txt") in hub.KNOWN_SHA256


def answer_tree(server: HubServer, *entries: object, following: str = "", status: int = 200, **headers: str) -> str:
    """Let the listing of the set have these entries, or what stands in for them; returns its path."""
    tree = f"/api/datasets/some/set/tree/{server.repositories['datasets/some/set'].revisions['main']}"
    body = json.dumps(entries).encode()
    server.answers[tree] = lambda _: Answer(body, {"Link": f'<{following}>; rel="next"'} if following else headers, status)
    return tree


@pytest.mark.parametrize("body", [b"<html>log in first</html>", b"{}", b"[5]", b"[" * 100_000, b'{"sha": 5', b"\xff"])
@pytest.mark.parametrize("route", ["revision/main", "tree"])
def test_an_answer_that_is_not_the_hubs_is_one_line(body: bytes, route: str, server: HubServer, tmp_path: Path) -> None:
    end = route if route != "tree" else answer_tree(server)
    server.answers[end] = lambda _: Answer(body)
    complaint(tmp_path / "x")


@pytest.mark.parametrize("address", ["file:///etc/passwd", "ftp://127.0.0.1/a", "http://[", "data:,[]"])
def test_other_pages_and_redirects_must_be_http(address: str, server: HubServer, tmp_path: Path) -> None:
    answer_tree(server, following=address)
    complaint(tmp_path / "x")
    answer_tree(server, status=302, Location=address)
    complaint(tmp_path / "x")


@pytest.mark.parametrize("name", [name for name in BAD_NAMES if not name.endswith((HALF_A_PAIR, "/")) and name])
def test_names_that_lead_out_or_are_reserved_are_refused(name: str, server: HubServer, tmp_path: Path) -> None:
    server.put("datasets/some/set", {name: b"x"})
    assert "cannot be downloaded" in complaint(tmp_path / "x", replace(FILES, patterns=("*",)))


def test_two_files_of_one_name_are_refused(server: HubServer, tmp_path: Path) -> None:
    server.put("datasets/some/set", {"a/x.parquet": b"x", "b/x.parquet": b"y"})
    assert "two files have the same name" in complaint(tmp_path / "x", replace(FILES, keep_folders=False))


def test_a_listing_without_end_is_refused(server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "MAX_FILES", 50)
    tree = answer_tree(server, ENTRY)
    answer_tree(server, ENTRY, following=server.url + tree)
    assert "twice" in complaint(tmp_path / "x")
    names = count()

    def another(_: str) -> Answer:
        content = json.dumps([{**ENTRY, "path": f"{next(names)}.parquet"}]).encode()
        return Answer(content, {"Link": f'<{server.url}{tree}>; rel="next"'})

    server.answers[tree] = another
    assert "more than 50 files" in complaint(tmp_path / "x")
    monkeypatch.setattr(hub, "MAX_PAGES", 20)
    answer_tree(server, following=server.url + tree)
    assert "its listing has more than 20 pages" in complaint(tmp_path / "x")
    monkeypatch.setattr(hub, "MAX_LISTED_BYTES", 1 << 20)
    answer_tree(server, *([{"type": "directory", "path": "x" * 100}] * 1000), following=server.url + tree)
    assert "its listing has more than 1 MiB" in complaint(tmp_path / "x")


@pytest.fixture
def stranger(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """Another host, which must not get the token that the server gets with each request."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with HubServer() as stranger:
        yield stranger
        assert stranger.asked
        assert not any("Authorization" in asked.headers for asked in stranger.asked)
    assert server.asked
    assert all(asked.headers["Authorization"] == "Bearer hf_secret" for asked in server.asked)


def test_the_token_does_not_follow_a_redirected_file(stranger: HubServer, server: HubServer, tmp_path: Path) -> None:
    stranger.files[NAME] = CONTENT
    server.store = stranger.url
    fetch(tmp_path / "x")
    assert [asked.path for asked in stranger.asked] == [f"/files/{NAME}"]


@pytest.mark.parametrize("route", ["revision/main", "tree", "whoami-v2"])
def test_the_token_does_not_follow_a_redirected_answer(
    route: str, stranger: HubServer, server: HubServer, tmp_path: Path
) -> None:
    end = route if route != "tree" else answer_tree(server)
    server.answers[end] = lambda _: Answer(b"", {"Location": f"{stranger.url}/other"}, 302)
    stranger.answers["/other"] = lambda _: Answer(b"{}")
    if route == "whoami-v2":
        with open_hub() as hub:
            check_token(hub, "page")
    else:
        complaint(tmp_path / "x")
    assert [asked.path for asked in stranger.asked] == ["/other"]


def test_the_token_does_not_go_where_the_next_page_is(stranger: HubServer, server: HubServer, tmp_path: Path) -> None:
    stranger.answers["/more"] = lambda _: Answer(json.dumps([{**ENTRY, "path": "other.md"}]).encode())
    answer_tree(server, {**ENTRY, "path": "x.md"}, following=f"{stranger.url}/more")
    complaint(tmp_path / "x")
    assert [asked.path for asked in stranger.asked] == ["/more"]


LISTING = {"format": 1, "source": {"dump": "/x"}, "revision": "", "files": [{"name": "x", "url": "x"}]}
LISTINGS: dict[str, dict[str, object]] = {
    "no files": {"files": []},
    "a name that leads out": {"files": [{"name": "../x", "url": "x"}]},
    "an impossible size": {"files": [{"name": "x", "url": "x", "size_bytes": -1}]},
}


@pytest.mark.parametrize("fault", LISTINGS)
def test_an_invalid_listing_is_one_line(fault: str, tmp_path: Path) -> None:
    (tmp_path / "listing.json").write_text(json.dumps(LISTING | LISTINGS[fault]))
    with pytest.raises(BertprepError, match=r"listing\.json: is not a listing of bertprep .*; remove it and download again"):
        load_listing(tmp_path)


def test_a_listing_that_somebody_made_leads_nowhere_else(server: HubServer, tmp_path: Path) -> None:
    """Its addresses name another host: the files are fetched from the endpoint or not at all."""
    fill(server)
    folder = tmp_path / "download" / "vocab" / MODEL
    folder.mkdir(parents=True)
    with HubServer() as stranger:
        source = {"hub": f"models/{MODEL}", "patterns": ["vocab.txt"], "revision": "main"}
        file = {"name": "vocab.txt", "url": f"{stranger.url}/vocab.txt"}
        (folder / "listing.json").write_text(json.dumps(LISTING | {"source": source, "revision": "0" * 40, "files": [file]}))
        with pytest.raises(BertprepError):
            download(["vocab"], models=[MODEL], workdir=tmp_path)
        assert not stranger.asked


def test_downloads_do_not_go_to_a_store() -> None:
    with pytest.raises(UsageError, match="downloads cannot go to an object store"):
        download(["vocab"], workdir="s3://bucket/x")
