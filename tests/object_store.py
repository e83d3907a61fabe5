"""An S3 store on 127.0.0.1, moto's server in a process of its own, and before it a proxy that fails on command.

Tests take the fixture `store` (`from tests.object_store import store`): an empty bucket, whose address and credentials are
in the environment, and with `store.faults` what goes wrong. All of a session's tests share the server. Listings come in pages
of a few objects.
"""

import atexit
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import cache
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from bertprep.files import object_cache, object_store, paths

_BUCKETS = count(1)
_USER = "anybody"
_PAGE = 5  # objects
_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive"}


@dataclass
class Fault:
    """What goes wrong with requests of a method for keys that match, `times` times (None: always) after the first `skip`.

    With a `status` the store is not asked and `code` is the answer's; with `cut` the connection ends without an answer, with
    `lose` after the store has done what was asked, with `cut_after` within the answer's body; with `stall` nothing comes; with
    `flip` a bit of the byte there is another in the answer. `act` is called before the store is asked, or with `lose` after.
    `body` makes the answer of the request's headers; the store is not asked.
    """

    method: str
    key: str = ".*"
    times: int | None = 1
    skip: int = 0
    status: int = 0
    code: str = ""
    cut: bool = False
    lose: bool = False
    stall: bool = False
    act: Callable[[], object] | None = None
    cut_after: int | None = None
    flip: int | None = None
    body: Callable[[Mapping[str, str]], bytes] | None = None


@dataclass
class Store:
    """A bucket and the proxy before it; `asked` has the method and the key of every request, as METHOD KEY.

    `withheld` are headers that do not reach the store; `changed` is called after each request that may have changed something.
    """

    address: str
    bucket: str
    faults: list[Fault] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    withheld: set[str] = field(default_factory=set)
    changed: Callable[[], object] = bool
    ended: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}"

    def path(self, name: str = "") -> Path:
        return paths.as_path(f"{self.url}/{name}")

    def count(self, method: str, key: str = ".*") -> int:
        return sum(bool(re.fullmatch(f"{method} (?:{key})", asked)) for asked in self.asked)

    def request(self, method: str, key: str, body: bytes = b"", headers: dict[str, str] | None = None) -> int:
        """Request something of the store itself, past the proxy and past bertprep; returns the status."""
        return self.ask(method, key, body, headers)[0]

    def ask(self, method: str, key: str, body: bytes = b"", headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        """Request the same; returns the status and the answer's body."""
        signed = {"Authorization": f"AWS {_USER}:unsigned", "Date": formatdate(usegmt=True), **(headers or {})}
        response, content = _ask(method, f"/{self.bucket}/{key}".rstrip("/"), body, signed)
        return response.status, content

    def fault_for(self, method: str, key: str) -> Fault:
        with self.lock:
            self.asked.append(f"{method} {key}")
            for fault in self.faults:
                if fault.method == method and fault.times != 0 and re.fullmatch(fault.key, key):
                    if fault.skip:
                        fault.skip -= 1
                        continue
                    fault.times = None if fault.times is None else fault.times - 1
                    return fault
        return Fault(method)


def _ask(method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection(_server())
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """An empty bucket; copies of its objects are kept in `tmp_path`."""
    with serve(tmp_path, monkeypatch.setenv) as made:
        yield made


@contextmanager
def serve(folder: Path, set_variable: Callable[[str, str], object]) -> Iterator[Store]:
    """The same without pytest."""
    made = Store("", f"bucket-{os.getpid()}-{next(_BUCKETS)}")
    assert made.request("PUT", "") == 200
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"store": made}))
    server.daemon_threads = True
    made.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    for name, value in {
        "AWS_ACCESS_KEY_ID": _USER,
        "AWS_SECRET_ACCESS_KEY": _USER,
        "AWS_ENDPOINT_URL": made.address,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "BERTPREP_RETRY_SECONDS": "0.001",
        object_cache.CACHE: str(folder / "copies of objects"),
    }.items():
        set_variable(name, value)
    object_store.forget()
    try:
        yield made
    finally:
        object_store.forget()
        made.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()


@cache
def _server() -> str:
    """HOST:PORT of the session's S3 server."""
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    atexit.register(process.kill)
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"http://(127\.0\.0\.1:\d+)", line):
            threading.Thread(target=process.stderr.read, daemon=True).start()  # it logs every request
            return found[1]
    raise RuntimeError("moto's server did not start")


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # connections; one that finds no place takes a second or more

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # of a killed client
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    store: Store
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits 40 ms between its header and its body

    def _forward(self) -> None:
        store, size = self.store, int(self.headers.get("Content-Length") or 0)
        body, url = self.rfile.read(size), urlsplit(self.path)
        if len(body) < size:  # the client is gone
            self.close_connection = True
            return
        fault = store.fault_for(self.command, unquote(url.path).removeprefix(f"/{store.bucket}").removeprefix("/"))
        if fault.act and not fault.lose:
            fault.act()
        if fault.stall:
            store.ended.wait()
        if fault.cut or fault.stall:
            self.close_connection = True
            return
        if fault.body:
            self._answer(fault.status or 200, {"Content-Type": "application/xml"}, fault.body(dict(self.headers)))
            return
        if fault.status:
            text = f"<Error><Code>{fault.code}</Code><Message>as the test asked</Message></Error>".encode()
            self._answer(fault.status, {"Content-Type": "application/xml"}, text)
            return
        address = f"{self.path}&max-keys={_PAGE}" if "list-type=2" in url.query else self.path
        headers = {name: value for name, value in self.headers.items() if name.lower() not in store.withheld}
        response, content = _ask(self.command, address, body, headers)
        if self.command in ("PUT", "POST", "DELETE"):
            store.changed()
        if fault.lose:
            if fault.act:
                fault.act()
            self.close_connection = True
            return
        if fault.flip is not None:
            content = content[: fault.flip] + bytes([content[fault.flip] ^ 1]) + content[fault.flip + 1 :]
        headers = {name: value for name, value in response.getheaders() if name.lower() not in _HOP_BY_HOP}
        if self.command == "HEAD" and (length := response.getheader("Content-Length")):
            headers["Content-Length"] = length
        self._answer(response.status, headers, content, cut_after=fault.cut_after)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _forward  # noqa: N815

    def _answer(self, status: int, headers: dict[str, str], content: bytes, cut_after: int | None = None) -> None:
        self.send_response_only(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[:cut_after])
        if cut_after is not None:
            self.close_connection = True

    def log_message(self, *arguments: object) -> None:
        pass
