"""URLs as paths: what they name, and that objects come complete and once, whatever the store and the network do."""

from __future__ import annotations

import asyncio
import hashlib
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from io import BufferedReader
from itertools import count
from pathlib import Path
from urllib.parse import quote

import pytest

from bertprep import patience, untrusted
from bertprep.errors import BertprepError, UsageError
from bertprep.files import object_store
from bertprep.files.atomic import atomic_file, atomic_folder, temporary_folder
from bertprep.files.checksums import digest
from bertprep.files.lock import locked
from bertprep.files.object_cache import local_copy, open_local
from bertprep.files.object_store import put
from bertprep.files.paths import ObjectPath, as_path, checksum_of, open_at, open_head, open_plain, remove_all, sizes_of
from bertprep.untrusted import read_bounded
from tests.object_store import Fault, Store, store

__all__ = ["store"]  # a fixture


def write(path: Path, data: bytes, *, replace: bool = False) -> None:
    with atomic_file(path, replace=replace) as file:
        file.write(data)


# --- names


def test_a_url_is_a_path() -> None:
    folder = as_path("s3://bucket/data/sharded")
    path = folder / "mine" / "part-0.tfrecord.gz"
    assert str(path) == f"{path}" == path.as_posix() == "s3://bucket/data/sharded/mine/part-0.tfrecord.gz"
    assert (path.name, path.suffixes, path.stem) == ("part-0.tfrecord.gz", [".tfrecord", ".gz"], "part-0.tfrecord")
    assert path.with_name("b") == as_path("s3://bucket/data/sharded/mine/b") != as_path("s3://other/data/sharded/mine/b")
    assert path.parent.parent == folder
    assert [str(above) for above in path.parents][-2:] == ["s3://bucket/data", "s3://bucket"]
    assert as_path("s3://bucket").parent == as_path("s3://bucket/")
    assert type(path.relative_to(folder)) is type(Path("mine/part-0.tfrecord.gz"))
    assert path.relative_to(folder) == Path("mine/part-0.tfrecord.gz")
    assert path.is_relative_to(folder)
    assert path.absolute() is path.resolve() is path
    assert {path, pickle.loads(pickle.dumps(path)), deepcopy(path)} == {path}
    assert min([as_path("gs://b/2"), as_path("gs://b/1")]).name == "1"
    assert as_path(Path("s3://bucket/x")) == as_path("S3://bucket/x") == as_path("s3://bucket//x/")


def test_a_local_path_is_a_plain_path(tmp_path: Path) -> None:
    for text in ("data", "/tmp/x", "a:b/c", "./s3:", "~/x"):
        assert type(as_path(text)) is type(Path(text))
        assert as_path(text) == Path(text)
    assert as_path(tmp_path) is tmp_path
    assert as_path("file:///tmp/my%20text.txt") == as_path("file://localhost/tmp/my%20text.txt") == Path("/tmp/my text.txt")


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("http://host/x", "unknown kind of URL; expected s3://, gs://, az://, file:// or a local path"),
        ("s3://", "no valid bucket name"),
        ("s3:///key", "no valid bucket name"),
        ("s3://../x", "no valid bucket name"),
        ("s3://user:password@host/x", "no valid bucket name"),
        ("s3://bucket/a/../../b", '".."'),
        ("s3://bucket/x?versionId=1", "a query"),
        ("s3://bucket/x#y", "a query or a fragment"),
        ("s3://bucket/\x1b[2J", "control characters"),
        ("s3://bucket/" + "k" * 1025, "longer than"),
        ("file://host/x", "not the URL of a file on this machine"),
        ("file:///x%00y", "not the URL of a file"),
        ("file://[x", "is not a URL"),
    ],
)
def test_a_url_is_checked_at_the_door(url: str, line: str) -> None:
    with pytest.raises(UsageError, match=line) as error:
        as_path(url)
    assert str(error.value).isprintable()


def test_all_that_is_opened_is_a_plain_file_and_errors_of_reading_name_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo", Path("/dev/zero")):
        for open_it in (open_plain, open_local, open_at, open_head):
            with pytest.raises(OSError, match="it is not a plain file") as raised:
                open_it(path)
            assert raised.value.filename == path
    uses: list[Callable[[BufferedReader], object]] = [
        BufferedReader.read,
        BufferedReader.readline,
        lambda file: file.read(1),
        lambda file: file.readinto(bytearray(1 << 20)),
    ]
    for use in uses:
        with open_plain(Path("/proc/self/mem")) as file, pytest.raises(OSError, match="Input/output error") as raised:
            use(file)
        assert str(raised.value.filename) == "/proc/self/mem"


def test_an_object_is_never_taken_for_a_local_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = as_path("s3://bucket/x")
    for use in (os.fspath, open, os.stat, lambda path: path.touch(), lambda path: path.rename("y"), bytes):
        with pytest.raises(TypeError, match="not a file on this machine"):
            use(path)
    with pytest.raises(ValueError, match="atomic_file"):
        path.write_text("x")
    for joined in (path / "../y", path / "/etc/passwd", path / "a\nb"):
        with pytest.raises(BertprepError):
            joined.exists()
    with pytest.raises(BertprepError, match="a store cannot create"), atomic_folder(path):
        pass
    assert not any(tmp_path.iterdir())


def test_names_that_no_path_has(store: Store) -> None:
    for name in ("f/a.txt", "f/marked/b.txt"):
        store.request("PUT", name, b"data")
    for marker in ("f/", "f/marked/", "%2Flead", "empty%2F", "_SUCCESS"):
        store.request("PUT", marker)
    folder = store.path("f")
    assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == ["a.txt", "b.txt"]
    assert sorted((path.name, path.is_dir()) for path in folder.iterdir()) == [("a.txt", False), ("marked", True)]
    assert sorted(path.name for path in store.path().iterdir()) == ["_SUCCESS", "f"]
    for number, name in enumerate(("a//b", "%2E%2E/b", "a%1B%5B31m", "./b")):
        store.request("PUT", f"odd{number}/{name}", b"data")
        with pytest.raises(BertprepError, match=r"contains an object whose name is not a valid path") as error:
            list(store.path(f"odd{number}").rglob("*"))
        assert str(error.value).isprintable()


# --- what is written and read


@pytest.mark.parametrize("kind", ["disk", "s3"])
def test_disks_and_stores_are_written_read_listed_and_removed_alike(kind: str, store: Store, tmp_path: Path) -> None:
    folder = {"disk": tmp_path / "data", "s3": store.path("data")}[kind] / "sharded"
    names = ["a.txt", "training/b 1.txt", "training/b 2.txt", "training/ü#%25.txt", ".hidden/c.txt"]
    for name in names:
        write(folder / name, name.encode())
    write(folder / "empty", b"")
    assert (folder / "training" / "ü#%25.txt").read_text(encoding="utf-8") == "training/ü#%25.txt"
    assert (folder / "empty").read_bytes() == b""
    inside = {path.name: path for path in folder.iterdir()}
    assert sorted(inside) == [".hidden", "a.txt", "empty", "training"]
    asked = len(store.asked)
    assert (inside["training"].is_dir(), inside["training"].is_file()) == (True, False)
    assert (inside["a.txt"].is_dir(), inside["a.txt"].is_file(), inside["a.txt"].stat().st_size) == (False, True, 5)
    assert len(store.asked) == asked  # the listing said it
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.txt")) == sorted(names)
    assert [path.name for path in sorted(folder.glob("*/b*"))] == ["b 1.txt", "b 2.txt"]
    assert [path.name for path in folder.glob("[!.]*.txt")] == ["a.txt"]
    assert not list((folder / "nothing").rglob("*"))
    with pytest.raises(FileNotFoundError):
        list((folder / "nothing").iterdir())
    assert sizes_of(folder, [*names, "missing"]) == {name: len(name.encode()) for name in names}
    assert (folder.is_dir(), folder.exists(), folder.is_file(), folder.is_symlink()) == (True, True, False, False)
    assert ((folder / "a").exists(), (folder / "a").is_dir(), folder.parent.is_dir()) == (False, False, True)
    assert (folder / "a.txt").stat().st_mtime_ns > 0
    remove_all(folder, ["empty", "none", "training/b 1.txt"])
    remove_all(folder, [])
    (folder / "a.txt").unlink()
    (folder / "a.txt").unlink(missing_ok=True)
    assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == ["b 2.txt", "c.txt", "ü#%25.txt"]
    for use in (Path.read_bytes, local_copy if kind != "disk" else Path.stat):
        with pytest.raises(FileNotFoundError):
            use(folder / "a.txt")


@pytest.mark.parametrize("conditions", ["kept", "ignored", "refused"])
def test_an_object_is_written_once(conditions: str, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    if conditions == "refused":
        store.faults.append(Fault("PUT", times=3, status=501, code="NotImplemented"))
    elif conditions == "ignored":
        store.withheld.add("if-none-match")
    first, other = (digest(data)[:16] for data in (b"first", b"other"))
    for path in (store.path("x"), store.path("y")):
        assert put(path, b"first")
        assert not put(path, b"first")
        with pytest.raises(BertprepError, match=f"already exists with blake3 {first}.* made it with {other}"):
            write(path, b"other")
        assert path.read_bytes() == b"first"
    assert store.count("PUT", "y") == 1
    write(store.path("x"), b"other", replace=True)
    assert store.path("x").read_bytes() == b"other"
    store.request("PUT", "foreign", b"by another tool, without a checksum")
    assert not put(store.path("foreign"), b"by another tool, without a checksum")
    with pytest.raises(BertprepError, match="already exists"):
        put(store.path("foreign"), b"else")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("other", [b"mine", b"another"])
def test_of_two_who_write_an_object_at_once_the_first_wins(other: bytes, store: Store) -> None:
    store.faults.append(Fault("PUT", "x", act=lambda: store.request("PUT", "x", other)))
    if other == b"mine":
        assert not put(store.path("x"), b"mine")
    else:
        with pytest.raises(BertprepError, match="already exists"):
            put(store.path("x"), b"mine")
    assert store.path("x").read_bytes() == other


def test_all_of_a_list_are_removed_where_some_are_gone(store: Store) -> None:
    """Stores without a request for many objects say which one there is not, and end there."""
    for name in "abc":
        write(store.path(f"x/{name}"), b"data")
    refused = {"status": 404, "code": "NoSuchKey"}
    store.faults += [Fault("POST", **refused), Fault("POST", skip=1, **refused)]  # for all of them, and then for the second
    remove_all(store.path("x"), ["a", "b", "c"])
    assert [path.name for path in store.path("x").iterdir()] == ["b"]  # which the store says is gone


def test_the_beginning_of_an_empty_object_is_empty(store: Store) -> None:
    """Stores refuse a range of it."""
    write(store.path("x"), b"")
    with open_head(store.path("x")) as file:
        assert file.read() == b""


def test_a_failed_write_leaves_nothing(store: Store) -> None:
    def write_and_fail() -> None:
        with atomic_file(store.path("x")) as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_and_fail()
    assert not any("PUT" in asked for asked in store.asked)


def test_a_large_object_goes_up_in_parts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "ONE_PUT_BYTES", 6 << 20)
    monkeypatch.setattr(object_store, "_PART_BYTES", 5 << 20)
    data = os.urandom(1 << 20) * 11
    write(store.path("x"), data)
    assert store.count("POST", "x") == 2  # begun and completed
    assert checksum_of(store.path("x"), "sha256") == hashlib.sha256(data).hexdigest()
    write(store.path("x"), data)
    with pytest.raises(BertprepError, match="already exists"):
        write(store.path("x"), data + b"1")
    write(store.path("x"), data + b"1", replace=True)
    assert store.path("x").stat().st_size == len(data) + 1


def test_a_copy_is_downloaded_once_and_again_when_the_object_changes(store: Store, tmp_path: Path) -> None:
    path = store.path("x.tar.gz")
    put(path, b"first")
    kept = local_copy(path)
    assert kept.read_bytes() == b"first"
    assert kept.name.endswith(".tar.gz")
    assert local_copy(path) == kept
    assert store.count("GET") == 1
    kept.write_bytes(b"cut")  # a disk that lost some of it
    assert local_copy(path).read_bytes() == b"first"
    write(path, b"other", replace=True)
    assert local_copy(path).read_bytes() == b"other"
    assert local_copy(path) != kept
    put(store.path("empty"), b"")
    assert local_copy(store.path("empty")).read_bytes() == b""
    assert local_copy(tmp_path) is tmp_path


def test_a_copy_that_is_used_stays_however_old_it_is(store: Store) -> None:
    for name in ("used", "unused", "new"):
        put(store.path(name), name.encode())
    copies = {name: local_copy(store.path(name)) for name in ("used", "unused")}
    for copy in copies.values():
        os.utime(copy, (copy.stat().st_mtime - 8 * 86400,) * 2)
    assert local_copy(store.path("used")) == copies["used"]
    local_copy(store.path("new"))  # which removes what was unused for a week
    assert [copy.exists() for copy in copies.values()] == [True, False]


def test_an_object_that_changes_or_vanishes_while_it_is_read_is_one_line(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store.path("folder/x"), b"data")
    (listed,) = store.path("folder").iterdir()
    listed.with_name("x").unlink()
    for read in (Path.read_bytes, local_copy):
        with pytest.raises(BertprepError, match="the store listed it, but no longer has it"):
            read(listed)
    monkeypatch.setattr(object_store, "BLOCK_BYTES", 4)
    put(store.path("y"), b"first bytes")
    file = open_at(store.path("y"), 2)
    assert file.read(4) == b"rst "
    assert store.count("GET", "y") == 1  # only what is read is downloaded
    assert open_at(store.path("y"), 6).read() == b"bytes"
    write(store.path("y"), b"other bytes", replace=True)
    with pytest.raises(BertprepError, match="was replaced while it was read"):
        file.read(4)


def test_a_checksum_is_of_the_bytes_and_not_of_what_their_writer_says(store: Store) -> None:
    lie = digest(b"other")
    assert store.request("PUT", "x", b"corrupt", {"x-amz-meta-blake3": lie}) == 200
    assert checksum_of(store.path("x"), "sha256") == hashlib.sha256(b"corrupt").hexdigest()
    assert read_bounded(store.path("x")) == b"corrupt"
    with pytest.raises(ValueError, match="expected at most 3"):
        read_bounded(store.path("x"), 3)


def test_a_store_has_no_locks_and_its_temporary_folders_are_local(store: Store) -> None:
    with locked(store.path("data")), locked(store.path("data")):
        pass
    with temporary_folder(store.path("data/x")) as folder:
        assert folder.is_dir()
        assert not isinstance(folder, ObjectPath)
    assert not folder.exists()
    assert not store.asked


# --- trouble


DATA = os.urandom(300_000)


def write_small(store: Store) -> None:
    put(store.path("new"), b"data")
    assert store.path("new").read_bytes() == b"data"


def write_large(store: Store) -> None:
    write(store.path("new"), DATA[:2000])
    assert store.path("new").read_bytes() == DATA[:2000]


def read_all(store: Store) -> None:
    assert local_copy(store.path("x")).read_bytes() == DATA


def list_all(store: Store) -> None:
    """Thirteen objects, in pages of five."""
    for paths in (store.path("folder").iterdir(), store.path("folder").rglob("*"), store.path().rglob("[01]*")):
        assert sorted(path.name for path in paths) == [f"{number:02d}" for number in range(13)]


def remove_some(store: Store) -> None:
    remove_all(store.path("folder"), ["00", "none", "01"])
    assert not store.path("folder/00").exists()


SLOW = {"status": 503, "code": "SlowDown"}
TROUBLE: list[tuple[Callable[[Store], None], Fault]] = [
    (write_small, Fault("PUT", times=5, **SLOW)),
    (write_small, Fault("PUT", times=2, status=409, code="ConditionalRequestConflict")),
    (write_small, Fault("PUT", times=2, status=400, code="RequestTimeout")),
    (write_small, Fault("PUT", times=3, cut=True)),
    (write_small, Fault("PUT", times=4, lose=True)),
    (write_small, Fault("PUT", stall=True)),
    (write_large, Fault("POST", lose=True, times=4)),  # to its beginning
    (write_large, Fault("POST", skip=1, lose=True)),  # to its end
    (write_large, Fault("POST", skip=1, times=4, **SLOW)),
    (write_large, Fault("PUT", lose=True, times=4)),
    (write_large, Fault("PUT", cut=True, times=4)),
    (read_all, Fault("GET", times=4, **SLOW)),
    (read_all, Fault("GET", times=3, cut=True)),
    (read_all, Fault("GET", times=3, cut_after=1000)),
    (read_all, Fault("GET", stall=True)),
    (read_all, Fault("HEAD", times=3, status=500)),
    (read_all, Fault("HEAD", times=3, cut=True)),
    (list_all, Fault("GET", "", skip=1, times=4, **SLOW)),
    (list_all, Fault("GET", "", skip=2, cut_after=50)),
    (remove_some, Fault("POST", lose=True)),
]


@pytest.mark.parametrize(("use", "fault"), TROUBLE)
def test_trouble_is_outlasted(
    use: Callable[[Store], None], fault: Fault, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "MIN_SILENCE_SECONDS", 2.0)
    monkeypatch.setattr(object_store, "BLOCK_BYTES", 1 << 16)
    if use is write_large:
        monkeypatch.setattr(object_store, "ONE_PUT_BYTES", 1000)
    for name, data in [("x", DATA), *((f"folder/{number:02d}", b"data") for number in range(13))]:
        assert store.request("PUT", name, data) == 200
    store.faults.append(fault := Fault(**vars(fault)))
    use(store)
    assert fault.times == 0


def test_retries_are_exhausted_and_no_password_is_printed(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.address.replace("://", "://me:se@cret@"))
    object_store.forget()
    for fault, line in (
        (Fault("GET", times=None, status=503, code="SlowDown"), "the store responds 503 SlowDown .*"),
        (Fault("GET", times=None, cut=True), f".* {store.address}/.*: HTTP error: .*"),
    ):
        store.faults[:] = [fault]
        with pytest.raises(BertprepError, match=f"x: {line}; retries are exhausted") as error:
            store.path("x").read_bytes()
        printed = capsys.readouterr().err
        assert "the store does not respond; retrying" in printed
        assert "cret" not in printed + str(error.value)


@pytest.mark.parametrize(
    ("status", "code", "line"),
    [
        (403, "AccessDenied", "the store responds 403 AccessDenied .*credentials"),
        (400, "ExpiredToken", "the store responds 400 ExpiredToken .* may have expired"),
        (301, "PermanentRedirect", "AWS_REGION"),
        (400, "AuthorizationHeaderMalformed", "AWS_REGION"),
        (404, "NoSuchBucket", "there is no such bucket"),
    ],
)
def test_a_refusal_is_one_line_and_is_not_retried(status: int, code: str, line: str, store: Store) -> None:
    for method, use in (
        ("GET", Path.read_bytes),
        ("GET", lambda path: path.is_dir()),
        ("PUT", lambda path: put(path, b"data")),
        ("HEAD", Path.exists),  # whose answer has no code
    ):
        store.faults[:] = [Fault(each, times=None, status=status, code=code) for each in (method, "GET")]
        store.asked.clear()
        with pytest.raises(BertprepError, match=line) as error:
            use(store.path("x"))
        assert "\n" not in str(error.value)
        assert store.count(method) == 1


def listing(keys: Iterable[str]) -> bytes:
    """A page of a listing that another one follows."""
    rest = "<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>a</ETag><Size>1</Size>"
    contents = "".join(f"<Contents><Key>{key}</Key>{rest}</Contents>" for key in keys)
    more = "<IsTruncated>true</IsTruncated><NextContinuationToken>next</NextContinuationToken>"
    return f"<ListBucketResult>{more}{contents}</ListBucketResult>".encode()


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (
            lambda number: [f"d/{number}/{index}" for index in range(1000)],
            "lists more than 10,000 names, or more than 1 MiB of names",
        ),
        (lambda number: [f"d/{number}{'x' * 900}/{index}" for index in range(100)], "lists more than .* 1 MiB of names"),
        (lambda _: [f"d/{index}" for index in range(1000)], "lists the same names again and again"),
        (lambda _: [], "responds, but lists nothing"),
    ],
    ids=["new names", "long names", "the same names", "nothing"],
)
def test_a_listing_without_end_is_one_line(
    page: Callable[[int], list[str]], why: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untrusted, "MAX_LISTED", 10_000)
    monkeypatch.setattr(untrusted, "MAX_LISTED_BYTES", 1 << 20)
    monkeypatch.setattr(object_store, "_silence_of_listing", lambda: 1.0)
    pages = count()
    store.faults.append(Fault("GET", times=None, body=lambda _: listing(page(next(pages)))))
    folder = store.path("d")
    for use in (lambda: list(folder.iterdir()), lambda: list(folder.rglob("*")), lambda: store.path("other").is_dir()):
        with pytest.raises(BertprepError, match=f"^{store.url}/(d|other): the store {why}; name a folder with fewer"):
            use()


def test_a_store_is_listed_where_an_event_loop_runs(store: Store) -> None:
    put(store.path("d/x"), b"data")

    async def of_a_notebook() -> list[str]:
        return [path.name for path in store.path("d").iterdir()]

    assert asyncio.run(of_a_notebook()) == ["x"]


def test_no_credential_that_a_store_echoes_is_printed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    token = f"FwoGZXIvYXdzEB+/{'x' * 400}=="
    monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    object_store.forget()

    def echo(headers: Mapping[str, str]) -> bytes:
        assert token in headers.values()
        said = " ".join([*headers.values(), quote(token, safe=""), "Bearer ya29.abcdefgh", "the end"])
        return f"<Error><Code>Wrong</Code><Message>{said}</Message></Error>".encode()

    store.faults.append(Fault("GET", times=None, status=400, body=echo))
    with pytest.raises(BertprepError, match=r"responds 400 Wrong .*\*\*\*") as error:
        store.path("x").read_bytes()
    assert not re.search("FwoGZ|xxxx|ya29", str(error.value))


def test_missing_credentials_and_addresses_are_one_line(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BertprepError, match="s3://no-such-bucket: there is no such bucket"):
        put(as_path("s3://no-such-bucket/x"), b"data")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "false")
    object_store.forget()
    with pytest.raises(BertprepError, match="unless AWS_ALLOW_HTTP=true"):
        put(store.path("x"), b"data")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", store.address)
    store.faults += [Fault(method, "latest/.*", times=None, status=404) for method in ("PUT", "GET")]
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
        object_store.forget()
        with pytest.raises(BertprepError, match="no credentials were found for it; set AWS_ACCESS_KEY_ID"):
            put(store.path("x"), b"data")
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(BertprepError, match="AZURE_STORAGE_ACCOUNT_NAME"):
        as_path("az://container/x").exists()


# --- processes


@pytest.mark.parametrize(("use", "method"), [("path.read_bytes()", "GET"), ("fetch({path: None})", "HEAD")])
def test_ctrl_c_ends_a_wait_for_a_silent_store(use: str, method: str, store: Store) -> None:
    put(store.path("x"), b"data")
    ready = threading.Event()
    store.faults += [Fault(each, times=None, act=ready.set, stall=True) for each in ("GET", method)]
    program = "from bertprep.files.object_cache import fetch; from bertprep.files.paths import as_path; "
    program += f"path = as_path('{store.path('x')}'); {use}"
    patient = {**os.environ, "BERTPREP_RETRY_SECONDS": "100"}
    child = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, env=patient)
    assert ready.wait(600)
    child.send_signal(signal.SIGINT)
    _, printed = child.communicate(timeout=600)  # an answer may take 3000 s
    assert printed.strip().endswith(b"KeyboardInterrupt")


def test_obstore_is_loaded_for_urls_alone_and_named_where_it_is_missing() -> None:
    program = (
        "import sys, bertprep.cli, bertprep.pool\n"
        "from bertprep.errors import UsageError; from bertprep.files import atomic, paths\n"
        "paths.as_path('x').exists()\nassert 'obstore' not in sys.modules\nsys.modules['obstore'] = None\n"
        "try: paths.as_path('s3://bucket/x').exists()\nexcept UsageError as error: print(error)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'bertprep[cloud]'" in found.stdout


def test_a_fork_of_a_process_that_used_a_store_says_so_and_does_not_hang(store: Store) -> None:
    put(store.path("x"), b"data")
    reading, writing = os.pipe()
    if not (child := os.fork()):
        try:
            store.path("x").read_bytes()
        except BertprepError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as printed:
        assert b"was forked from one that had used a store" in printed.read()


def test_a_script_without_a_guard_is_not_run_again_by_its_workers(store: Store, tmp_path: Path) -> None:
    put(store.path("x"), b"data")
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\nfrom bertprep import pool\nfrom bertprep.files.paths import as_path\n"
        f"path = as_path('{store.path('x')}')\nprint(path.exists())\n"
        "print(sorted(pool.run(Path.read_bytes, [('1', path), ('2', path)], workers=2)))\n"
    )
    found = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert found.stdout.split("\n") == ["True", "[('1', b'data'), ('2', b'data')]", ""]
