"""An S3 store on 127.0.0.1, moto's server in a process of its own, and before it a proxy that fails on command.

Tests take the fixture `store` (`from tests.object_store import store`): an empty bucket, whose address and credentials are
in the environment, and with `store.faults` what goes wrong. All of a session's tests share the server.
"""

import atexit
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from bertprep.files import object_store, places

_BUCKETS = count(1)
_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive"}


@dataclass
class Fault:
    """What goes wrong with requests of a method for keys that match, `times` times (None: always).

    With a `status` the store is not asked and `code` is the answer's; with `cut` the connection ends without an answer, with
    `lose` after the store has done what was asked, with `cut_after` within the answer's body; with `stall` nothing comes.
    """

    method: str
    key: str = ".*"
    times: int | None = 1
    status: int = 0
    code: str = ""
    cut: bool = False
    lose: bool = False
    stall: bool = False
    cut_after: int | None = None


@dataclass
class Store:
    """A bucket and the proxy before it; `asked` has the method and the key of every request, as METHOD KEY."""

    address: str
    bucket: str
    faults: list[Fault] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}"

    def place(self, name: str = "") -> Path:
        return places.place(f"{self.url}/{name}")

    def count(self, method: str, key: str = ".*") -> int:
        return sum(bool(re.fullmatch(f"{method} (?:{key})", asked)) for asked in self.asked)

    def request(self, method: str, key: str, body: bytes = b"", headers: dict[str, str] | None = None) -> int:
        """Ask the store itself, past the proxy and past bertprep; returns the status."""
        connection = HTTPConnection(_server())
        try:
            signed = {"Authorization": "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request"}
            connection.request(method, f"/{self.bucket}/{key}".rstrip("/"), body, {**signed, **(headers or {})})
            response = connection.getresponse()
            response.read()
            return response.status
        finally:
            connection.close()

    def fault_for(self, method: str, key: str) -> Fault | None:
        with self.lock:
            self.asked.append(f"{method} {key}")
            for fault in self.faults:
                if fault.method == method and fault.times != 0 and re.fullmatch(fault.key, key):
                    fault.times = None if fault.times is None else fault.times - 1
                    return fault
        return None


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """An empty bucket; copies of its objects are kept in `tmp_path`."""
    with open_store(tmp_path, monkeypatch) as made:
        yield made


@contextmanager
def open_store(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """An empty bucket; copies of its objects are kept in a folder."""
    made = Store("", f"bucket-{next(_BUCKETS)}")
    assert made.request("PUT", "") == 200
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(made))
    server.daemon_threads = True
    made.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_ENDPOINT_URL": made.address,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "BERTPREP_RETRY_SECONDS": "0.001",
        places.CACHE: str(folder / "copies of objects"),
    }.items():
        monkeypatch.setenv(name, value)
    object_store.forget()
    yield made
    object_store.forget()
    made.ended.set()
    server.shutdown()
    thread.join()
    server.server_close()


@cache
def _server() -> str:
    """HOST:PORT of the session's S3 server."""
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"], stderr=subprocess.PIPE, text=True
    )
    atexit.register(process.kill)
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"http://(127\.0\.0\.1:\d+)", line):
            threading.Thread(target=process.stderr.read, daemon=True).start()  # it logs every request
            return found[1]
    raise RuntimeError("moto's server did not start")


def _handler(store: Store) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            url = urlsplit(self.path)
            fault = store.fault_for(self.command, unquote(url.path).removeprefix(f"/{store.bucket}").removeprefix("/"))
            if fault and fault.stall:
                store.ended.wait()
            if fault and (fault.cut or fault.stall):
                self.close_connection = True
                return
            if fault and fault.status:
                text = f"<Error><Code>{fault.code}</Code><Message>as the test asked</Message></Error>".encode()
                self._answer(fault.status, {"Content-Type": "application/xml"}, text)
                return
            connection = HTTPConnection(_server())
            try:
                connection.request(self.command, self.path, body, dict(self.headers))
                response = connection.getresponse()
                content = response.read()
            finally:
                connection.close()
            if fault and fault.lose:
                self.close_connection = True
                return
            headers = {name: value for name, value in response.getheaders() if name.lower() not in _HOP_BY_HOP}
            length = response.getheader("Content-Length") if self.command == "HEAD" else None
            self._answer(response.status, headers, content, length, cut_after=fault.cut_after if fault else None)

        def _answer(
            self, status: int, headers: dict[str, str], content: bytes, length: str | None = None, cut_after: int | None = None
        ) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", length or str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content[:cut_after])
            if cut_after is not None:
                self.close_connection = True

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _forward  # noqa: N815

        def log_message(self, *arguments: object) -> None:
            pass

    return Handler
