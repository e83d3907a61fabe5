"""A Hub on 127.0.0.1: real HTTP with the Hub's routes, which counts requests and bytes, and fails on command.

    GET      /api/{datasets,models}/REPO/revision/REVISION
    GET      /api/{datasets,models}/REPO/tree/COMMIT[/FOLDER][?recursive=true]     in pages, as the Hub's long ones
    GET HEAD /[datasets/]REPO/resolve/REVISION/PATH                    large files by a redirect, if `store` is set
    GET HEAD /files/NAME                                               anything, as a plain web server
    GET HEAD PATH                                                      whatever `answers` has for what the path ends with
    POST PUT                                                           tests/hub_uploads.py

A commit is the sha1 of its files, so that a repository that changes moves on, and its earlier commits stay.
"""

import contextlib
import hashlib
import json
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants

from tests import hub_uploads

PIECE = 16 * 1024
ENTRIES_A_PAGE = 20
NOT_LET_IN = "hf_not_let_in"
"""The token of an account that has not accepted the conditions of what is gated."""


@dataclass
class Fault:
    """What goes wrong with a path, `times` times (None: always)."""

    times: int | None = 1
    status: int = 0
    cut_after: int | None = None
    stall_after: int | None = None
    replace_with: bytes | None = None
    no_length: bool = False
    method: str = ""  # of the requests that fail, any if empty
    lost: bool = False  # what was asked for is done, and the answer never comes
    content_range: str = ""


@dataclass
class Repository:
    """The commits of a repository, and what its revisions name."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    revisions: dict[str, str] = field(default_factory=dict)
    gated: bool = False


@dataclass(frozen=True)
class Answer:
    """What a server that means harm says: `body` is a whole one, or pieces of one without an end."""

    body: bytes | Iterable[bytes] = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: Message


class HubServer:
    """Use as a context manager; `repositories` is keyed by "datasets/REPO" or "models/REPO"."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.files: dict[str, bytes] = {}
        self.faults: dict[str, Fault] = {}
        self.answers: dict[str, Callable[[str], Answer]] = {}  # end of a path -> the answer to a query
        self.before: dict[
            str, Callable[[], object]
        ] = {}  # end of a path -> what somebody else does just before it is written to
        self.store = ""
        self.bytes_per_second = 0
        self.uploads = hub_uploads.Uploads()
        self.asked: list[Asked] = []
        self.sent: Counter[str] = Counter()
        self.lock = threading.Condition()
        self.closing = threading.Event()
        self.unstalled = threading.Event()  # as uploads that a fault stalls are cut
        owner = self

        class Handler(_Handler):
            hub = owner

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "HubServer":
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.closing.set()
        self.unstalled.set()
        self._server.shutdown()
        self._server.server_close()

    def put(self, repository: str, files: dict[str, bytes], *, revision: str = "main") -> str:
        """Make these the files of a revision; returns the commit."""
        there = self.repositories.setdefault(repository, Repository())
        commit = hashlib.sha1(b"".join(path.encode() + data for path, data in sorted(files.items()))).hexdigest()
        there.commits[commit] = files
        there.revisions[revision] = commit
        return commit

    def fail(self, path: str, times: int | None = 1, **fault: Any) -> None:
        """Let requests whose path ends with `path` fail."""
        self.faults[path] = Fault(times=times, **fault)

    def take_fault(self, path: str, method: str) -> Fault:
        """What is to go wrong now."""
        with self.lock:
            for end, fault in self.faults.items():
                if path.endswith(end) and fault.times != 0 and fault.method in ("", method):
                    if fault.times is not None:
                        self.faults[end] = replace(fault, times=fault.times - 1)
                    return fault
        return Fault()

    def asked_for(self, end: str) -> list[Asked]:
        """The requests whose path ends so."""
        return [asked for asked in self.asked if asked.path.endswith(end)]

    def sent_of(self, end: str) -> int:
        """The bytes of bodies sent for paths that end so."""
        return sum(count for path, count in self.sent.items() if path.endswith(end))

    def wait_until_sent(self, end: str, size_bytes: int) -> None:
        """Return as soon as that many bytes have been sent for paths that end so."""
        with self.lock:
            assert self.lock.wait_for(lambda: self.sent_of(end) >= size_bytes, timeout=600), f"{self.sent_of(end):,} bytes sent"

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Return as soon as something holds that comes with bytes sent or received."""
        with self.lock:
            assert self.lock.wait_for(is_so, timeout=600)

    def count(self, path: str, size_bytes: int) -> None:
        """Note bytes that were sent."""
        with self.lock:
            self.sent[path] += size_bytes
            self.lock.notify_all()


def _etag(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()}"'


def use_hub(monkeypatch: pytest.MonkeyPatch, url: str, folder: Path) -> None:
    """Let this process use the Hub at `url` with short waits, also those of the library, and nothing of this machine's own."""
    for variable in [name for name in os.environ if "proxy" in name.lower() or name.startswith("HF_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("BERTPREP_RETRY_SECONDS", "0.002")
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(folder / "token"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    for module in ("file_download", "utils._http"):
        monkeypatch.setattr(f"huggingface_hub.{module}.time.sleep", _hardly_sleep)


def _hardly_sleep(seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
    sleep(min(seconds, 0.002))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """A client that went away, as killed ones do, is not worth a word."""


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits 40 ms between its header and its body

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        path = urlsplit(self.path).path
        with self.hub.lock:
            self.hub.asked.append(Asked(self.command, path, self.headers))
        fault = self.hub.take_fault(path, self.command)
        length = int(self.headers.get("Content-Length", 0))
        body = hub_uploads.read_body(self.hub, path, self.rfile, length, fault)
        if body is None:
            self.close_connection = True
        elif fault.status:
            self._answer(fault.status, b"no")
        else:
            with self.hub.lock:
                for end in [end for end in self.hub.before if path.endswith(end)]:
                    self.hub.before.pop(end)()
                answer = hub_uploads.answer_to(self.hub, self.path, body, self._token())
                self.hub.lock.notify_all()
            if fault.lost:
                self.close_connection = True
            else:
                self._answer(answer.status, answer.body, answer.headers)

    def _token(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def do_GET(self) -> None:
        target = urlsplit(self.path)
        if target.path == "/api/agent-harnesses":  # which huggingface_hub asks for its User-Agent
            self._answer(404, b"no")
            return
        with self.hub.lock:
            self.hub.asked.append(Asked(self.command, target.path, self.headers))
        fault = self.hub.take_fault(target.path, self.command)
        answer = next((answer for end, answer in self.hub.answers.items() if target.path.endswith(end)), None)
        if answer:
            self._say(answer(target.query))
        elif fault.status:
            self._answer(fault.status, b"no")
        elif target.path == "/api/whoami-v2":
            who = hub_uploads.who_is(self.hub.uploads, self._token())
            self._answer(who.status, who.body, who.headers)
        elif match := re.fullmatch("/files/(.+)", target.path):
            if (name := unquote(match[1])) in self.hub.files:
                self._send_file(self.hub.files[name], fault)
            else:
                self._answer(404, b"no")
        elif match := re.fullmatch("/api/(datasets|models)/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+)(?:/(.+))?)?", target.path):
            what, revision = match[3] or "revision", unquote(match[4] or "main")
            self._tell(f"{match[1]}/{match[2]}", what, revision, target.query, unquote(match[5] or ""))
        elif match := re.fullmatch("/(?:(datasets)/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", target.path):
            self._resolve(f"{match[1] or 'models'}/{match[2]}", unquote(match[3]), unquote(match[4]), fault)
        else:
            self._answer(404, b"no such route")

    def _say(self, answer: Answer) -> None:
        if isinstance(answer.body, bytes) and "Content-Length" not in answer.headers:
            return self._answer(answer.status, answer.body, dict(answer.headers))
        self.close_connection = True
        self.send_response(answer.status)
        for key, value in answer.headers.items():
            self.send_header(key, value)
        self.end_headers()
        pieces = [answer.body] if isinstance(answer.body, bytes) else answer.body
        path = urlsplit(self.path).path
        with contextlib.suppress(OSError):  # the client went away
            for piece in pieces if self.command == "GET" else ():
                self.wfile.write(piece)
                self.hub.count(path, len(piece))
        return None

    def _tell(self, name: str, what: str, revision: str, query: str, folder: str) -> None:
        repository = self.hub.repositories.get(name)
        if repository is None or (
            name in self.hub.uploads.private and self._token() not in self.hub.uploads.accounts
        ):  # as the Hub answers who is not logged in
            return self._answer(401, b"Repository not found", {"X-Error-Code": "RepoNotFound"})
        commit = repository.revisions.get(revision, revision)
        if commit not in repository.commits:
            return self._answer(404, b"Invalid rev id", {"X-Error-Code": "RevisionNotFound"})
        if what == "revision":
            about = {"id": name, "sha": commit, "private": name in self.hub.uploads.private, "tags": [], "siblings": []}
            return self._answer(200, json.dumps(about).encode())
        below = f"{folder}/" if folder else ""
        entries = [entry for entry in _entries(repository.commits[commit]) if entry["path"].startswith(below)]
        if "recursive=true" not in query.lower():
            entries = [entry for entry in entries if "/" not in entry["path"].removeprefix(below)]
        if folder and not entries:
            return self._answer(404, b"no", {"X-Error-Code": "EntryNotFound"})
        first = int((re.search("cursor=([0-9]+)", query) or ["", "0"])[1])
        last = first + ENTRIES_A_PAGE
        following = f'<{self.hub.url}{urlsplit(self.path).path}?recursive=true&cursor={last}>; rel="next"'
        return self._answer(200, json.dumps(entries[first:last]).encode(), {"Link": following} if last < len(entries) else {})

    def _resolve(self, name: str, revision: str, path: str, fault: Fault) -> None:
        repository = self.hub.repositories.get(name)
        if repository is None:
            return self._answer(401, b"Repository not found", {"X-Error-Code": "RepoNotFound"})
        token = self._token()
        if repository.gated and token in ("", NOT_LET_IN):
            return self._answer(403 if token else 401, b"no", {"X-Error-Code": "GatedRepo"})
        commit = repository.revisions.get(revision, revision)
        files = repository.commits.get(commit, {})
        if path not in files:
            return self._answer(404, b"no", {"X-Error-Code": "EntryNotFound"})
        if self.hub.store and _is_large(path):
            known = {"X-Repo-Commit": commit, "X-Linked-Etag": _etag(files[path]), "X-Linked-Size": str(len(files[path]))}
            return self._answer(302, b"", {"Location": f"{self.hub.store}/files/{path.rpartition('/')[2]}", **known})
        return self._send_file(files[path], fault, commit)

    def _send_file(self, content: bytes, fault: Fault, commit: str = "") -> None:
        if fault.replace_with is not None:
            content = fault.replace_with
        etag = _etag(content)
        headers = {"ETag": etag, "Accept-Ranges": "bytes", **({"X-Repo-Commit": commit} if commit else {})}
        wanted = re.fullmatch("bytes=([0-9]+)-", self.headers.get("Range", ""))
        status, first = 200, 0
        if wanted and self.headers.get("If-Range", etag) == etag:
            first = int(wanted[1])
            if first >= len(content):
                self._answer(416, b"", {"Content-Range": f"bytes */{len(content)}"})
                return
            status = 206
            whole = f"bytes {first}-{len(content) - 1}/{len(content)}"
            headers["Content-Range"] = fault.content_range or whole
        body = content[first:]
        self.send_response(status)
        if not fault.no_length:
            headers["Content-Length"] = str(len(body))
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        self.close_connection = fault.no_length
        self.close_connection |= fault.cut_after is not None
        if self.command == "GET":
            self._send_body(body, fault)

    def _send_body(self, body: bytes, fault: Fault) -> None:
        path = urlsplit(self.path).path
        body = body[: fault.cut_after]
        with contextlib.suppress(OSError):  # the client went away
            for start in range(0, len(body), PIECE):
                self.wfile.write(body[start : start + PIECE])
                self.hub.count(path, len(body[start : start + PIECE]))
                if self.hub.bytes_per_second:
                    self.hub.closing.wait(PIECE / self.hub.bytes_per_second)
            return
        self.close_connection = True

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _is_large(path: str) -> bool:
    """Whether the Hub keeps a file apart from git."""
    return path.endswith((".parquet", ".safetensors"))


def _entries(files: dict[str, bytes]) -> Iterator[dict[str, Any]]:
    """What the tree route says of the files and their folders."""
    folders = {path[:at] for path in files for at, letter in enumerate(path) if letter == "/"}
    yield from ({"type": "directory", "oid": "0" * 40, "size": 0, "path": folder} for folder in sorted(folders))
    for path, data in sorted(files.items()):
        git_sha1 = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        entry: dict[str, Any] = {"type": "file", "oid": git_sha1, "size": len(data), "path": path}
        if _is_large(path):
            entry["oid"] = "1" * 40  # that of the pointer which git keeps
            entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
        yield entry
