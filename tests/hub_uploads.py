"""The routes of a Hub by which a repository is written: what huggingface_hub asks for a push, with LFS rather than Xet.

    GET  /api/whoami-v2                                    who has the token of the request
    POST /api/repos/create                                 an empty repository, with the file that the Hub puts there
    POST /api/validate-yaml
    POST /api/datasets/REPO/preupload/REVISION             which files are kept apart from git
    POST /datasets/REPO.git/info/lfs/objects/batch         where to send those that the store lacks
    PUT  /lfs/SHA256                                       a file
    POST /datasets/REPO.git/info/lfs/verify
    POST /api/datasets/REPO/commit/REVISION

Only a token of `Uploads.accounts` may write, and only below its own names.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from tests.hub_server import Fault, HubServer

NEW = {".gitattributes": b"*.parquet filter=lfs diff=lfs merge=lfs -text\n"}
PIECE = 16 * 1024


@dataclass(frozen=True)
class Account:
    """Who has a token, and what it allows."""

    name: str
    role: str = "write"
    owners: tuple[str, ...] = ()


@dataclass
class Uploads:
    """What was written to a Hub."""

    accounts: dict[str, Account] = field(default_factory=dict)
    stored: dict[str, bytes] = field(default_factory=dict)  # by sha256
    private: set[str] = field(default_factory=set)
    received: Counter[str] = field(default_factory=Counter)  # bytes of bodies by path
    commits: list[dict[str, Any]] = field(default_factory=list)  # the operations of each


class Answer:
    """What a request is answered with."""

    def __init__(self, status: int, content: Any = b"", **headers: str) -> None:
        self.status = status
        self.body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def read_body(hub: HubServer, path: str, rfile: Any, length: int, fault: Fault) -> bytes | None:
    """The body of a request, noted as it comes; None where the connection is to be cut or was."""
    body = bytearray()
    while len(body) < length:
        piece = rfile.read(min(PIECE, length - len(body)))
        body += piece
        with hub.lock:
            hub.uploads.received[path] += len(piece)
            hub.lock.notify_all()
        if not piece or (fault.cut_after is not None and len(body) >= fault.cut_after):
            return None
        if fault.stall_after is not None and len(body) >= fault.stall_after:
            hub.unstalled.wait()
            return None
    return bytes(body)


def answer_to(hub: HubServer, path: str, body: bytes, token: str) -> Answer:
    """What the Hub answers to a request that writes."""
    uploads, plain = hub.uploads, urlsplit(path).path
    if match := re.fullmatch("/lfs/([0-9a-f]{64})", plain):  # the store's addresses are signed: no token
        if hashlib.sha256(body).hexdigest() != match[1]:
            return Answer(400, b"the content is another")
        uploads.stored[match[1]] = body
        return Answer(200, {})
    account = uploads.accounts.get(token)
    if account is None:
        return Answer(401, {"error": "Invalid user token."}, X_Error_Message="Invalid credentials in Authorization header")
    asked = json.loads(body) if body and not plain.rpartition("/")[0].endswith("/commit") else {}
    if plain == "/api/repos/create":
        return _create(hub, account, asked)
    if plain == "/api/validate-yaml":
        return Answer(200, {"errors": [], "warnings": []})
    if match := re.fullmatch("/api/datasets/([^/]+/[^/]+)/(preupload|commit)/([^/]+)", plain):
        name, revision = f"datasets/{match[1]}", unquote(match[3])
    elif match := re.fullmatch("/datasets/([^/]+/[^/]+)[.]git/info/lfs/(objects/batch|verify)", plain):
        name, revision = f"datasets/{match[1]}", "main"
    else:
        return Answer(404, b"no such route")
    if name not in hub.repositories:
        return Answer(404, b"Repository not found", X_Error_Code="RepoNotFound")
    if not _may_write(account, match[1]):
        return Answer(403, {"error": "Forbidden"}, X_Error_Message="you are not allowed to write here")
    if match[2] == "preupload":
        return _preupload(hub, name, revision, asked)
    if match[2] == "objects/batch":
        return _batch(hub, name, asked)
    if match[2] == "verify":
        stored = uploads.stored.get(asked["oid"])
        return Answer(200 if stored is not None and len(stored) == asked["size"] else 404)
    return _commit(hub, name, revision, [json.loads(line) for line in body.splitlines()])


def who_is(uploads: Uploads, token: str) -> Answer:
    account = uploads.accounts.get(token)
    if account is None:
        return Answer(401, {"error": "Invalid user token."}, X_Error_Message="Invalid credentials in Authorization header")
    access = {"displayName": "a token", "role": account.role}
    orgs = [{"name": owner} for owner in account.owners]
    return Answer(200, {"type": "user", "name": account.name, "orgs": orgs, "auth": {"accessToken": access}})


def _may_write(account: Account, repository: str) -> bool:
    return account.role == "write" and repository.partition("/")[0] in (account.name, *account.owners)


def _create(hub: HubServer, account: Account, asked: dict[str, Any]) -> Answer:
    repository = f"{asked['organization'] or account.name}/{asked['name']}"
    if not _may_write(account, repository):
        return Answer(403, {"error": f"You don't have the rights to create a dataset under {asked['organization']}"})
    if (name := f"datasets/{repository}") in hub.repositories:
        return Answer(409, {"error": "You already created this dataset repo", "url": f"{hub.url}/{name}"})
    if asked.get("visibility") == "private" or asked.get("private"):
        hub.uploads.private.add(name)
    hub.put(name, dict(NEW))
    return Answer(200, {"url": f"{hub.url}/{name}", "name": repository, "id": "1"})


def _preupload(hub: HubServer, name: str, revision: str, asked: dict[str, Any]) -> Answer:
    there = hub.repositories[name]
    files = there.commits[there.revisions[revision]]
    found = []
    for each in asked["files"]:
        is_large = each["path"].endswith(".parquet")
        known = files.get(each["path"])
        oid = None
        if known is not None:
            git = hashlib.sha1(b"blob %d\0" % len(known) + known).hexdigest()
            oid = hashlib.sha256(known).hexdigest() if is_large else git
        found.append({"path": each["path"], "uploadMode": "lfs" if is_large else "regular", "shouldIgnore": False, "oid": oid})
    return Answer(200, {"files": found})


def _batch(hub: HubServer, name: str, asked: dict[str, Any]) -> Answer:
    objects = []
    for each in asked["objects"]:
        known = {"oid": each["oid"], "size": each["size"]}
        href = f"{hub.url}/lfs/{each['oid']}"
        verify = {"href": f"{hub.url}/{name}.git/info/lfs/verify"}
        is_there = each["oid"] in hub.uploads.stored
        objects.append(known if is_there else {**known, "actions": {"upload": {"href": href}, "verify": verify}})
    return Answer(200, {"transfer": "basic", "objects": objects})


def _commit(hub: HubServer, name: str, revision: str, lines: list[dict[str, Any]]) -> Answer:
    there = hub.repositories[name]
    head = there.revisions[revision]
    files = dict(there.commits[head])
    (header, *operations) = lines
    if header["value"].get("parentCommit", head) != head:
        return Answer(412, {"error": "A commit has happened since. Please refresh and try again."})
    for operation in operations:
        key, value = operation["key"], operation["value"]
        if key == "file":
            files[value["path"]] = base64.b64decode(value["content"])
        elif key == "lfsFile":
            if value["oid"] not in hub.uploads.stored:
                return Answer(400, {"error": f"{value['path']} is not in the store"})
            files[value["path"]] = hub.uploads.stored[value["oid"]]
        elif key == "deletedFile":
            del files[value["path"]]
        else:
            return Answer(400, {"error": f"unknown operation {key}"})
    commit = hub.put(name, files, revision=revision)
    hub.uploads.commits.append({f"{each['key']} {each['value']['path']}": each["value"] for each in operations})
    return Answer(200, {"commitUrl": f"{hub.url}/{name}/commit/{commit}", "commitOid": commit, "pullRequestUrl": None})
