"""A malicious Hub or impostor: each response is refused in one line, and no file is touched."""

import gzip
import json
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from bertprep.cli import main
from bertprep.errors import BertprepError
from bertprep.sources.transfer.listing import load_listing
from bertprep.untrusted import MOST_BYTES
from tests.hostile import BAD_NAMES, HALF_A_PAIR, NESTED, contents, refused
from tests.hub_server import Answer, HubServer
from tests.small_hub import MODEL, model_files

REVISION, COMMIT = f"/api/models/{MODEL}/revision/main", "0" * 40
TREE = f"/api/models/{MODEL}/tree/{COMMIT}"
MOST_PAGES = 12
FILE: dict[str, Any] = {"type": "file", "path": "vocab.txt", "size": 5, "oid": "0" * 40}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    monkeypatch.setenv("BERTPREP_RETRY_SECONDS", "0.001")
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(variable, raising=False)
    with HubServer() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        server.put(f"models/{MODEL}", model_files())
        yield server


@pytest.fixture
def refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The one line with which a download is refused; what it leaves is the folder of its lock at most."""
    (tmp_path / "mine").write_bytes(b"mine")

    def refuses(*names: str, workdir: str = "work") -> str:
        before = contents(tmp_path)
        line = refused(capsys, "download", *names, "--workdir", tmp_path / workdir)
        assert contents(tmp_path) == before
        return line

    return refuses


def says(content: object, **headers: str) -> Callable[[str], Answer]:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return lambda _: Answer(body, headers)


def listing(*changes: dict[str, object]) -> Callable[[str], Answer]:
    """A page of a repository's files: the vocabulary, changed so."""
    return says([{**FILE, **change} for change in changes])


NO_JSON = [
    b"",
    b"<html>log in first</html>",
    b"null",
    b"7",
    b'"a"',
    b"true",
    b"[[]]",
    b"[null]",
    b'["a"]',
    b"{}",
    NESTED,
    b"\xff",
]


@pytest.mark.parametrize(
    "body", [*NO_JSON, b'{"sha": 7}', b'{"sha": "../../x"}', b'{"sha": null}', b'{"sha": "' + b"0" * 4000 + b'"}']
)
def test_invalid_revisions(body: bytes, hub: HubServer, refuses: Callable[..., str]) -> None:
    hub.answers[REVISION] = says(body)
    assert "does not answer as the Hub does; check HF_ENDPOINT" in refuses("vocab", "--model", MODEL)


@pytest.mark.parametrize("body", NO_JSON)
def test_invalid_listings(body: bytes, hub: HubServer, refuses: Callable[..., str]) -> None:
    hub.answers |= {REVISION: says({"sha": COMMIT}), TREE: says(body)}
    assert "does not answer as the Hub does; check HF_ENDPOINT" in refuses("vocab", "--model", MODEL)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("size", value) for value in (-1, 1.5, 10**30, "5", None, True, [])),
        *(("oid", value) for value in ("zz", 7, None, "0" * 39, {})),
        *(("path", value) for value in (7, None, [], HALF_A_PAIR)),
        *(("type", value) for value in (7, None, [])),
        *(("lfs", value) for value in ("x", [1], {"oid": "zz"}, {"oid": None}, {"size": 1}, 7)),
    ],
)
def test_invalid_files_of_a_listing(key: str, value: object, hub: HubServer, refuses: Callable[..., str]) -> None:
    hub.answers |= {REVISION: says({"sha": COMMIT}), TREE: listing({key: value})}
    assert f"{key}" in refuses("vocab", "--model", MODEL)


@pytest.mark.parametrize("name", [name for name in BAD_NAMES if not name.endswith((HALF_A_PAIR, "/")) and name])
def test_escaping_and_reserved_names_are_refused(name: str, hub: HubServer, refuses: Callable[..., str]) -> None:
    path = f"20231101.en/{name}.parquet" if "." not in name else f"20231101.en/{name}/x.parquet"
    hub.answers |= {"/revision/main": says({"sha": COMMIT}), f"/tree/{COMMIT}": listing({"path": path})}
    assert "cannot be downloaded (" in refuses("wikipedia")


def test_a_file_with_a_reserved_name_is_refused(hub: HubServer, tmp_path: Path) -> None:
    """`tokenizer*.json` once took this one, whose names the next run joined to the folder."""
    evil = {"schema": 1, "source": {}, "revision": "", "files": [{"name": str(tmp_path / "mine"), "url": "x"}]}
    hub.put(f"models/{MODEL}", {**model_files(), "tokenizer/listing.json": json.dumps(evil).encode()})
    for _ in range(2):
        assert main(["download", "weights", "--model", MODEL, "--workdir", str(tmp_path)]) == 0
    kept = load_listing(tmp_path / "download" / "weights" / MODEL)
    assert kept
    assert {file.name for file in kept.files} == set(model_files()) - {"pytorch_model.bin", "onnx/model.onnx"}
    assert not (tmp_path / "mine").exists()


def test_two_files_of_one_name_are_refused(hub: HubServer, refuses: Callable[..., str]) -> None:
    paths = ("m.safetensors", "tokenizer.json", "tokenizer/tokenizer.json")
    hub.answers |= {REVISION: says({"sha": COMMIT}), TREE: listing(*({"path": path} for path in paths))}
    assert "two files have the same name" in refuses("weights", "--model", MODEL)


def test_a_page_that_names_itself_as_the_next_is_asked_once(hub: HubServer, refuses: Callable[..., str]) -> None:
    page = f'<{hub.url}{TREE}?again=1>; rel="next"'
    hub.answers |= {REVISION: says({"sha": COMMIT}), TREE: says([FILE], Link=page)}
    assert "its listing has no end" in refuses("vocab", "--model", MODEL)
    assert len(hub.asked_for(TREE)) == 2


def test_endless_pages_are_limited(hub: HubServer, refuses: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertprep.sources.transfer.hub.MOST_PAGES", MOST_PAGES)

    def following(query: str) -> Answer:
        number = int(query.rpartition("=")[2]) if "page" in query else 0
        return Answer(b"[]", {"Link": f'<{TREE}?page={number + 1}>; rel="next"'})

    hub.answers |= {REVISION: says({"sha": COMMIT}), TREE: following}
    assert "its listing has no end" in refuses("vocab", "--model", MODEL)
    assert len(hub.asked_for(TREE)) == MOST_PAGES


@pytest.mark.parametrize("address", ["file:///etc/passwd", "ftp://127.0.0.1/a", "gopher://x", "http://[", "data:,[]"])
def test_the_next_page_must_be_http(address: str, hub: HubServer, refuses: Callable[..., str]) -> None:
    hub.answers |= {REVISION: says({"sha": COMMIT}), TREE: says([FILE], Link=f'<{address}>; rel="next"')}
    refuses("vocab", "--model", MODEL)


@pytest.mark.parametrize(
    "address", ["file:///etc/passwd", "ftp://127.0.0.1/a", "http://[", "//", "/" + REVISION, "http://127.0.0.1:1/"]
)
def test_redirects_must_be_http_and_end(address: str, hub: HubServer, refuses: Callable[..., str]) -> None:
    hub.answers[REVISION] = lambda _: Answer(b"", {"Location": address}, 302)
    refuses("vocab", "--model", MODEL)


def test_an_endless_response_is_abandoned(hub: HubServer, refuses: Callable[..., str]) -> None:
    hub.answers[REVISION] = lambda _: Answer(repeat(b" " * (1 << 20)))
    assert f"more than {MOST_BYTES:,} bytes" in refuses("vocab", "--model", MODEL)
    assert hub.sent_of(REVISION) < MOST_BYTES + (16 << 20)  # what the sockets hold


def test_a_compressed_response_is_not_decompressed(hub: HubServer, refuses: Callable[..., str]) -> None:
    bomb = gzip.compress(b" " * (1 << 24), 1)
    hub.answers[REVISION] = says(bomb, **{"Content-Encoding": "gzip"})
    assert "does not answer as the Hub does" in refuses("vocab", "--model", MODEL)


@pytest.mark.parametrize("length", ["1000000", "-1", "x", "9" * 5000, "1e400", str(10**30)])
@pytest.mark.parametrize("of", [REVISION, f"/resolve/{COMMIT}/vocab.txt"])
def test_a_false_length_is_one_line(
    of: str, length: str, hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.answers |= {REVISION: says({"sha": COMMIT}), TREE: listing({})}
    hub.answers = {of: says(b"{}", **{"Content-Length": length}), **hub.answers}
    refused(capsys, "download", "vocab", "--model", MODEL, "--workdir", tmp_path)
    assert not (tmp_path / "download" / "vocab" / MODEL / "vocab.txt").exists()


@pytest.mark.parametrize("text", ["9" * 5000, "Mon, 01 Jan 0001 00:00:00 -0000", "-1", "\x1b", "nan"])
def test_an_invalid_wait_is_one_line(text: str, hub: HubServer, refuses: Callable[..., str]) -> None:
    hub.answers[REVISION] = lambda _: Answer(b"", {"Retry-After": text}, 503)
    assert "given up" in refuses("vocab", "--model", MODEL)


@pytest.mark.parametrize(
    "end",
    ["listing.json", "a.tmp", "%6cisting.json", ".lock", "manifest.json", "a%00b", "a%2fb", "%2e%2e", "%2e%2e%2fmine", "a%0ab",
     "a%1b", "%ff%fe", "a%e2%80%aeb", "x" * 300, "", "a/", "?a=b", "x.xml.part"],
)  # fmt: skip
def test_an_address_must_end_with_a_name(
    end: str, hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], refuses: Callable[..., str]
) -> None:
    assert "does not end with a file's name" in refuses("wikipedia", "--from-dump", f"{hub.url}/files/{end}")
    refused(capsys, "shard", "--input", f"{hub.url}/files/{end}", "--workdir", tmp_path / "work")
    assert not hub.asked


@pytest.mark.parametrize(
    "address", ["http://x\udcff/a.xml", "http://x/\udcff/a.xml", "http://x/\x1b/a.xml", "http://x\n/a.xml"]
)
def test_an_address_must_be_printable(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], refuses: Callable[..., str]
) -> None:
    assert "is not an address" in refuses("wikipedia", "--from-dump", address)
    assert "is not an address" in refused(capsys, "shard", "--input", address, "--workdir", tmp_path / "work")


@pytest.mark.parametrize("length", ["9" * 5000, str(10**30), "-5", "٣", "x"])
def test_a_dump_of_an_impossible_size(length: str, hub: HubServer, refuses: Callable[..., str]) -> None:
    hub.answers["/files/a.xml"] = says(b"", **{"Content-Length": length})
    refuses("wikipedia", "--from-dump", f"{hub.url}/files/a.xml")


LISTING: dict[str, Any] = {
    "schema": 1,
    "source": {"hub": f"models/{MODEL}", "patterns": ["vocab.txt"], "revision": "main"},
    "revision": COMMIT,
    "files": [{"name": "vocab.txt", "url": "http://127.0.0.1:1/x", "size_bytes": 5}],
}
LISTINGS = {
    **{f"name {name[:30]!r}": {**LISTING, "files": [{"name": name, "url": "x"}]} for name in BAD_NAMES},
    **{
        f"{key} {value!r}": {**LISTING, "files": [{**LISTING["files"][0], key: value}]}
        for key, values in {
            "name": (None, 7, []),
            "url": (None, 7, {}),
            "size_bytes": ("5", -1, 1.5, True, 10**30),
            "sha256": ("zz", 7, "A" * 64),
            "git_sha1": ("zz", 7),
            "etag": (7, []),
        }.items()
        for value in values
    },
    **{f"a file {value!r}": {**LISTING, "files": [value]} for value in (None, 7, "a", [], {}, {"name": "a"})},
    **{f"files {value!r}": {**LISTING, "files": value} for value in (None, 7, "a", {}, [])},
    **{
        f"source {value!r}": {**LISTING, "source": value}
        for value in (None, 7, "a", [], {}, {"hub": 7}, {"dump": None}, {"files": 7})
    },
    "patterns": {**LISTING, "source": {**LISTING["source"], "patterns": "vocab.txt"}},
    "two of a name": {**LISTING, "files": LISTING["files"] * 2},
    "schema 99": {**LISTING, "schema": 99},
    "no schema": {key: value for key, value in LISTING.items() if key != "schema"},
    "revision": {**LISTING, "revision": 7},
    "a list": [],
    "null": None,
    "nested": NESTED,
    "HTML": b"<html>",
    "zeros": b"\0" * 100,
}


@pytest.mark.parametrize("content", LISTINGS.values(), ids=LISTINGS)
def test_an_invalid_listing_is_one_line(content: object, tmp_path: Path) -> None:
    (tmp_path / "listing.json").write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    with pytest.raises(BertprepError, match=r"\A[^\n]*listing.json: is not a listing of bertprep \([^\n]{1,300}\Z"):
        load_listing(tmp_path)


@pytest.mark.parametrize("name", ["/mine", "../../../../../mine"])
def test_the_names_of_a_listing_are_not_followed(name: str, tmp_path: Path, refuses: Callable[..., str]) -> None:
    path = tmp_path / "work" / "download" / "vocab" / MODEL / "listing.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({**LISTING, "files": [{**LISTING["files"][0], "name": name}]}))
    assert f"{path}: is not a listing of bertprep (" in refuses("vocab", "--model", MODEL)


def test_a_listing_with_unknown_keys_is_read(tmp_path: Path) -> None:
    files = [{**LISTING["files"][0], "later": [1]}]
    (tmp_path / "listing.json").write_text(json.dumps({**LISTING, "files": files, "later": {}}))
    read = load_listing(tmp_path)
    assert read
    assert read.files[0].name == "vocab.txt"


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("name", ["vocab.txt.part", ".lock"])
def test_a_download_does_not_write_through_links(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_bytes(b"mine")
    link = tmp_path / "work" / "download" / "vocab" / MODEL / name
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "mine")
    refused(capsys, "download", "vocab", "--model", MODEL, "--workdir", tmp_path / "work")
    assert (tmp_path / "mine").read_bytes() == b"mine"


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("name", ["vocab.txt.part.json.tmp", "listing.json.tmp"])
def test_a_download_ignores_links_named_like_unfinished_files(name: str, tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"mine")
    folder = tmp_path / "work" / "download" / "vocab" / MODEL
    folder.mkdir(parents=True)
    (folder / name).symlink_to(tmp_path / "mine")
    assert main(["download", "vocab", "--model", MODEL, "--workdir", str(tmp_path / "work")]) == 0
    assert (folder / "vocab.txt").is_file()
    assert (tmp_path / "mine").read_bytes() == b"mine"


CONFIGS = {
    "nested": NESTED,
    "NaN": b'{"hidden_size": NaN}',
    "a list": b"[]",
    "text": b'"a"',
    "no model": b"<html>",
    "kind": b'{"model_type": []}',
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_an_invalid_configuration_is_one_line(
    config: bytes, hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.put(f"models/{MODEL}", {**model_files(), "config.json": config})
    line = refused(capsys, "download", "weights", "--model", MODEL, "--workdir", tmp_path)
    assert "config.json: is not the configuration of a model (" in line
