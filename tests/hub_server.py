"""A Hub on 127.0.0.1: real HTTP with the Hub's routes, which counts requests and bytes, and fails on command.

    GET      /api/{datasets,models}/REPO/revision/REVISION
    GET      /api/{datasets,models}/REPO/tree/COMMIT[/FOLDER][?recursive=true]     in pages, as the Hub's long ones
    GET HEAD /[datasets/]REPO/resolve/REVISION/PATH       large files by a redirect, if `store` is set
    GET HEAD /files/NAME                                  anything, as a plain web server
    GET HEAD PATH                                         whatever `answers` has for the end of the path

and those by which huggingface_hub pushes, with LFS rather than Xet; only a token of `uploads.accounts` may write, and only
below its own names:

    GET  /api/whoami-v2                                   who has the token of the request
    POST /api/repos/create                                an empty repository, with the file that the Hub puts there
    POST /api/validate-yaml
    POST /api/datasets/REPO/preupload/REVISION            which files are kept apart from git
    POST /datasets/REPO.git/info/lfs/objects/batch        where to send those that the store lacks
    PUT  /lfs/SHA256                                      a file
    POST /datasets/REPO.git/info/lfs/verify
    POST /api/datasets/REPO/commit/REVISION

A commit is the sha1 of its files, so that a repository that changes moves on, and its earlier commits stay.
"""

import base64
import hashlib
import json
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants

PIECE = 16 * 1024
ENTRIES_A_PAGE = 20
NOT_LET_IN = "hf_not_let_in"
"""The token of an account that has not accepted the conditions of what is gated."""
NEW = {".gitattributes": b"*.parquet filter=lfs diff=lfs merge=lfs -text\n"}


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
    lost: bool = False  # the request is carried out, and the answer never comes
    content_range: str = ""


@dataclass
class Repository:
    """The commits of a repository, and the one that each revision names."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    revisions: dict[str, str] = field(default_factory=dict)
    gated: bool = False


@dataclass(frozen=True)
class Account:
    """Who has a token, and what it allows."""

    name: str
    role: str = "write"


@dataclass
class Uploads:
    """What was written to a Hub."""

    accounts: dict[str, Account] = field(default_factory=dict)
    stored: dict[str, bytes] = field(default_factory=dict)  # by sha256
    private: set[str] = field(default_factory=set)
    received: Counter[str] = field(default_factory=Counter)  # bytes of bodies by path
    commits: list[dict[str, Any]] = field(default_factory=list)  # the operations of each


@dataclass(frozen=True)
class Answer:
    """An answer to a request; that of a file has an ETag, and may be a range."""

    body: bytes = b"no"
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 200
    is_file: bool = False


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
        self.before: dict[str, Callable[[], object]] = {}  # end of a path -> what is done just before it is written to
        self.store = ""
        self.bytes_per_second = 0
        self.uploads = Uploads()
        self.asked: list[Asked] = []
        self.sent: Counter[str] = Counter()
        self.lock = threading.Condition()
        self.closing = threading.Event()
        self.unstalled = threading.Event()  # cuts the uploads that a fault stalls
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
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
        with self.lock:
            for end, fault in self.faults.items():
                if path.endswith(end) and fault.times != 0 and fault.method in ("", method):
                    if fault.times is not None:
                        self.faults[end] = replace(fault, times=fault.times - 1)
                    return fault
        return Fault()

    def asked_for(self, end: str) -> list[Asked]:
        """Return the requests whose path ends so."""
        return [asked for asked in self.asked if asked.path.endswith(end)]

    def sent_of(self, end: str) -> int:
        """Return the bytes of bodies sent for paths that end so."""
        return sum(count for path, count in self.sent.items() if path.endswith(end))

    def wait_until_sent(self, end: str, size_bytes: int) -> None:
        """Return as soon as that many bytes have been sent for paths that end so."""
        self.wait_until(lambda: self.sent_of(end) >= size_bytes)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Return as soon as something holds that comes with bytes sent or received."""
        with self.lock:
            assert self.lock.wait_for(is_so, timeout=600)

    def count(self, counter: Counter[str], path: str, size_bytes: int) -> None:
        with self.lock:
            counter[path] += size_bytes
            self.lock.notify_all()

    # --- routes: the groups of a path to an answer

    def answer(self, method: str, path: str, query: str, body: bytes, token: str) -> Answer:
        if method in ("GET", "HEAD") and (made := [make for end, make in self.answers.items() if path.endswith(end)]):
            return made[0](query)
        if match := re.fullmatch("/files/(.+)", path):
            content = self.files.get(unquote(match[1]))
            return Answer(status=404) if content is None else Answer(content, is_file=True)
        if match := re.fullmatch("/(?:(datasets)/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            return self._resolve(f"{match[1] or 'models'}/{match[2]}", unquote(match[3]), unquote(match[4]), token)
        if method in ("GET", "HEAD") and (
            match := re.fullmatch("/api/(datasets|models)/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+)(?:/(.+))?)?", path)
        ):
            name, revision, folder = f"{match[1]}/{match[2]}", unquote(match[4] or "main"), unquote(match[5] or "")
            return self._list(name, match[3] or "revision", revision, folder, path, query, token)
        if match := re.fullmatch("/lfs/([0-9a-f]{64})", path):  # the store's addresses are signed: no token
            is_right = hashlib.sha256(body).hexdigest() == match[1]
            self.uploads.stored |= {match[1]: body} if is_right else {}
            return Answer(b"{}", status=200 if is_right else 400)
        if (account := self.uploads.accounts.get(token)) is None:
            return _as_json({"error": "Invalid user token."}, 401, "Message", "Invalid credentials in Authorization header")
        if path == "/api/whoami-v2":
            access = {"displayName": "a token", "role": account.role}
            return _as_json({"type": "user", "name": account.name, "orgs": [], "auth": {"accessToken": access}})
        if path == "/api/validate-yaml":
            return _as_json({"errors": [], "warnings": []})
        if path == "/api/repos/create":
            return self._create(account, json.loads(body))
        match = re.fullmatch("/api/datasets/([^/]+/[^/]+)/(preupload|commit)/([^/]+)", path) or re.fullmatch(
            "/datasets/([^/]+/[^/]+)[.]git/info/lfs/(objects/batch|verify)(main)?", path
        )
        if match is None:
            return Answer(b"no such route", status=404)
        if (name := f"datasets/{match[1]}") not in self.repositories:
            return Answer(b"Repository not found", {"X-Error-Code": "RepoNotFound"}, 404)
        if not _may_write(account, match[1]):
            return _as_json({"error": "Forbidden"}, 403, "Message", "you are not allowed to write here")
        if match[2] == "commit":
            return self._commit(name, unquote(match[3]), *map(json.loads, body.splitlines()))
        asked = json.loads(body)
        if match[2] == "preupload":
            return self._preupload(self.repositories[name], unquote(match[3]), asked)
        if match[2] == "verify":
            stored = self.uploads.stored.get(asked["oid"])
            return Answer(status=200 if stored is not None and len(stored) == asked["size"] else 404)
        verify = {"href": f"{self.url}/{name}.git/info/lfs/verify"}
        objects = [
            {"oid": each["oid"], "size": each["size"]}
            if each["oid"] in self.uploads.stored
            else {**each, "actions": {"upload": {"href": f"{self.url}/lfs/{each['oid']}"}, "verify": verify}}
            for each in asked["objects"]
        ]
        return _as_json({"transfer": "basic", "objects": objects})

    def _list(self, name: str, what: str, revision: str, folder: str, path: str, query: str, token: str) -> Answer:
        repository = self.repositories.get(name)
        if repository is None or (name in self.uploads.private and token not in self.uploads.accounts):
            return Answer(b"Repository not found", {"X-Error-Code": "RepoNotFound"}, 401)  # as to all who are not logged in
        commit = repository.revisions.get(revision, revision)
        if commit not in repository.commits:
            return Answer(b"Invalid rev id", {"X-Error-Code": "RevisionNotFound"}, 404)
        if what == "revision":
            private = name in self.uploads.private
            return _as_json({"id": name, "sha": commit, "private": private, "tags": [], "siblings": []})
        below = f"{folder}/" if folder else ""
        entries = [entry for entry in _entries(repository.commits[commit]) if entry["path"].startswith(below)]
        if "recursive=true" not in query.lower():
            entries = [entry for entry in entries if "/" not in entry["path"].removeprefix(below)]
        if folder and not entries:
            return Answer(b"no", {"X-Error-Code": "EntryNotFound"}, 404)
        first = int((re.search("cursor=([0-9]+)", query) or ["", "0"])[1])
        last = first + ENTRIES_A_PAGE
        following = f'<{self.url}{path}?recursive=true&cursor={last}>; rel="next"'
        return Answer(json.dumps(entries[first:last]).encode(), {"Link": following} if last < len(entries) else {})

    def _resolve(self, name: str, revision: str, path: str, token: str) -> Answer:
        if (repository := self.repositories.get(name)) is None:
            return Answer(b"Repository not found", {"X-Error-Code": "RepoNotFound"}, 401)
        if repository.gated and token in ("", NOT_LET_IN):
            return Answer(b"no", {"X-Error-Code": "GatedRepo"}, 403 if token else 401)
        commit = repository.revisions.get(revision, revision)
        content = repository.commits.get(commit, {}).get(path)
        if content is None:
            return Answer(b"no", {"X-Error-Code": "EntryNotFound"}, 404)
        headers = {"X-Repo-Commit": commit}
        if self.store and _is_large(path):
            headers |= {"X-Linked-Etag": _etag(content), "X-Linked-Size": str(len(content))}
            return Answer(b"", {"Location": f"{self.store}/files/{path.rpartition('/')[2]}", **headers}, 302)
        return Answer(content, headers, is_file=True)

    def _create(self, account: Account, asked: dict[str, Any]) -> Answer:
        repository = f"{asked['organization'] or account.name}/{asked['name']}"
        if not _may_write(account, repository):
            return _as_json({"error": f"You don't have the rights to create a dataset under {asked['organization']}"}, 403)
        if (name := f"datasets/{repository}") in self.repositories:
            return _as_json({"error": "You already created this dataset repo", "url": f"{self.url}/{name}"}, 409)
        if asked.get("visibility") == "private" or asked.get("private"):
            self.uploads.private.add(name)
        self.put(name, dict(NEW))
        return _as_json({"url": f"{self.url}/{name}", "name": repository, "id": "1"})

    def _preupload(self, there: Repository, revision: str, asked: dict[str, Any]) -> Answer:
        known = {entry["path"]: entry for entry in _entries(there.commits[there.revisions[revision]])}
        found = []
        for path in (each["path"] for each in asked["files"]):
            entry = known.get(path, {"oid": None})
            oid = entry.get("lfs", entry)["oid"]
            mode = "lfs" if _is_large(path) else "regular"
            found.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        return _as_json({"files": found})

    def _commit(self, name: str, revision: str, header: dict[str, Any], *operations: dict[str, Any]) -> Answer:
        there = self.repositories[name]
        head = there.revisions[revision]
        if header["value"].get("parentCommit", head) != head:
            return _as_json({"error": "A commit has happened since. Please refresh and try again."}, 412)
        files = dict(there.commits[head])
        for operation in operations:
            key, value = operation["key"], operation["value"]
            if key == "deletedFile":
                del files[value["path"]]
            else:
                is_large = key == "lfsFile"
                files[value["path"]] = self.uploads.stored[value["oid"]] if is_large else base64.b64decode(value["content"])
        commit = self.put(name, files, revision=revision)
        self.uploads.commits.append({f"{each['key']} {each['value']['path']}": each["value"] for each in operations})
        return _as_json({"commitUrl": f"{self.url}/{name}/commit/{commit}", "commitOid": commit, "pullRequestUrl": None})


def _as_json(content: dict[str, Any], status: int = 200, error: str = "", message: str = "") -> Answer:
    return Answer(json.dumps(content).encode(), {f"X-Error-{error}": message} if error else {}, status)


def _may_write(account: Account, repository: str) -> bool:
    return account.role == "write" and repository.partition("/")[0] == account.name


def _etag(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()}"'


def _is_large(path: str) -> bool:
    """Whether the Hub keeps a file apart from git."""
    return path.endswith((".parquet", ".safetensors"))


def _entries(files: dict[str, bytes]) -> Iterator[dict[str, Any]]:
    """Yield what the tree route has for the files and their folders."""
    folders = {path[:at] for path in files for at, letter in enumerate(path) if letter == "/"}
    yield from ({"type": "directory", "oid": "0" * 40, "size": 0, "path": folder} for folder in sorted(folders))
    for path, data in sorted(files.items()):
        git_sha1 = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        entry: dict[str, Any] = {"type": "file", "oid": git_sha1, "size": len(data), "path": path}
        if _is_large(path):
            entry["oid"] = "1" * 40  # that of the pointer which git keeps
            entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
        yield entry


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

    def _serve(self) -> None:
        target = urlsplit(self.path)
        if target.path == "/api/agent-harnesses":  # which huggingface_hub asks for its User-Agent
            return self._send(Answer(status=404), Fault(), "")
        with self.hub.lock:
            self.hub.asked.append(Asked(self.command, target.path, self.headers))
        fault = self.hub.take_fault(target.path, self.command)
        if (body := self._read_body(target.path, fault)) is None:
            self.close_connection = True
            return None
        if fault.status:
            return self._send(Answer(status=fault.status), fault, target.path)
        with self.hub.lock:
            for end in [end for end in self.hub.before if self.command != "GET" and target.path.endswith(end)]:
                self.hub.before.pop(end)()
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            answer = self.hub.answer(self.command, target.path, target.query, body, token)
            self.hub.lock.notify_all()
        if fault.lost:
            self.close_connection = True
            return None
        return self._send(answer, fault, target.path)

    do_GET = do_HEAD = do_PUT = do_POST = _serve  # noqa: N815

    def _read_body(self, path: str, fault: Fault) -> bytes | None:
        """Return the body of a request, counted as it comes; None where the connection was cut, or is to be."""
        body, length = bytearray(), int(self.headers.get("Content-Length", 0))
        while len(body) < length:
            piece = self.rfile.read(min(PIECE, length - len(body)))
            body += piece
            self.hub.count(self.hub.uploads.received, path, len(piece))
            if not piece or (fault.cut_after is not None and len(body) >= fault.cut_after):
                return None
            if fault.stall_after is not None and len(body) >= fault.stall_after:
                self.hub.unstalled.wait()
                return None
        return bytes(body)

    def _send(self, answer: Answer, fault: Fault, path: str) -> None:
        body, headers, status = answer.body, dict(answer.headers), answer.status
        if answer.is_file:
            body = body if fault.replace_with is None else fault.replace_with
            headers |= {"ETag": _etag(body), "Accept-Ranges": "bytes"}
            wanted = re.fullmatch("bytes=([0-9]+)-", self.headers.get("Range", ""))
            if wanted and self.headers.get("If-Range", headers["ETag"]) == headers["ETag"]:
                first, size = int(wanted[1]), len(body)
                if first >= size:
                    return self._send(Answer(b"", {"Content-Range": f"bytes */{size}"}, 416), Fault(), path)
                status, body = 206, body[first:]
                headers["Content-Range"] = fault.content_range or f"bytes {first}-{size - 1}/{size}"
        self.close_connection = fault.no_length or fault.cut_after is not None
        if not fault.no_length:
            headers["Content-Length"] = str(len(body))
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        body = b"" if self.command == "HEAD" else body[: fault.cut_after]
        try:
            for start in range(0, len(body), PIECE):
                piece = body[start : start + PIECE]
                self.wfile.write(piece)
                self.hub.count(self.hub.sent, path, len(piece))
                if self.hub.bytes_per_second:
                    self.hub.closing.wait(len(piece) / self.hub.bytes_per_second)
        except OSError:  # the client went away
            self.close_connection = True
        return None
