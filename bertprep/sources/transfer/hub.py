"""Which files a download from the Hub consists of: the commit that a revision names now, and the files of that commit.

The Hub's two routes are read here rather than through `HfApi`, whose requests have no read timeout and whose retries
cannot be set: a listing is to be as patient as the download that follows. The Hub tells of large files the sha256 and of
small ones git's sha1, so that each can be checked.
"""

import difflib
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from bertprep.errors import BertprepError
from bertprep.sources.catalogue import KNOWN_SHA256, HubFiles
from bertprep.sources.transfer.http import TRIES_TO_LIST, Patience, RefusedError, Web, absolute
from bertprep.sources.transfer.listing import Listing, RemoteFile

MANY = 12
"""More configurations than this are not all told in an error."""


def source_of(files: HubFiles) -> dict[str, Any]:
    """What a listing says of where it comes from."""
    return {"hub": f"{files.kind}s/{files.repo}", "patterns": list(files.patterns), "revision": files.revision}


class Hub:
    """Lists repositories; what one was found to hold is remembered, so that all its downloads are of one commit."""

    def __init__(self, web: Web, *, progress: bool = False) -> None:
        self._web, self.progress = web, progress
        self._trees: dict[tuple[str, str, str], tuple[str, list[dict[str, Any]]]] = {}

    def list_files(self, wanted: HubFiles) -> Listing:
        """The files that are `wanted`, at the commit that the revision names now."""
        commit, tree = self._tree(wanted)
        entries = [
            entry
            for entry in tree
            if entry["type"] == "file" and any(fnmatchcase(entry["path"], pattern) for pattern in wanted.patterns)
        ]
        if not entries:
            raise BertprepError(f"{_name(wanted)}: has no file {' or '.join(wanted.patterns)}{_what_there_is(wanted, tree)}")
        files = tuple(_remote_file(wanted, commit, entry) for entry in entries)
        if len({file.name for file in files}) < len(files):
            raise BertprepError(f"{_name(wanted)}: has files of the same name in several folders, which one folder cannot hold")
        return Listing(source_of(wanted), commit, files)

    def _tree(self, wanted: HubFiles) -> tuple[str, list[dict[str, Any]]]:
        key = (wanted.kind, wanted.repo, wanted.revision)
        if key not in self._trees:
            address = f"api/{wanted.kind}s/{wanted.repo}"
            try:
                commit = self._json(f"{address}/revision/{quote(wanted.revision, safe='')}")[0]["sha"]
                tree: list[dict[str, Any]] = []
                page: str | None = f"{address}/tree/{commit}?recursive=true"
                while page:
                    entries, page = self._json(page)
                    tree += entries
            except RefusedError as refusal:
                raise _explain(wanted, refusal) from refusal
            except (KeyError, TypeError) as error:
                raise _not_a_hub(address) from error
            self._trees[key] = commit, tree
        return self._trees[key]

    def _json(self, url: str) -> tuple[Any, str | None]:
        """What stands at an address, and the address of the next page."""

        def request() -> tuple[Any, str | None]:
            with self._web.get(url) as response:
                response.read()
                return response.json(), response.links.get("next", {}).get("url")

        try:
            return Patience(absolute(url), tries=TRIES_TO_LIST, progress=self.progress).persist(request)
        except ValueError as error:
            raise _not_a_hub(url) from error


def _remote_file(wanted: HubFiles, commit: str, entry: dict[str, Any]) -> RemoteFile:
    path: str = entry["path"]
    sha256 = (entry.get("lfs") or {}).get("oid")
    known = KNOWN_SHA256.get((wanted.repo, path))
    if known and sha256 not in (None, known):
        raise BertprepError(
            f"{_name(wanted)}: {path} has sha256 {sha256}, expected {known}; it is not the published file, do not use it"
        )
    return RemoteFile(
        name=PurePosixPath(path).name,
        url=f"{_page(wanted)}/resolve/{commit}/{quote(path)}",
        size_bytes=entry["size"],
        sha256=sha256 or known,
        git_sha1=None if sha256 else entry["oid"],  # of a large file, git knows only a pointer to it
    )


def _page(wanted: HubFiles) -> str:
    """The address of a repository on whatever endpoint is set, which may be another one tomorrow."""
    return f"datasets/{wanted.repo}" if wanted.kind == "dataset" else wanted.repo


def _name(wanted: HubFiles) -> str:
    return absolute(_page(wanted))


def _what_there_is(wanted: HubFiles, tree: list[dict[str, Any]]) -> str:
    """The configurations that a repository does have: its folders, the nearest by name where there are many."""
    folders = sorted({entry["path"].split("/")[0] for entry in tree if "/" in entry["path"]})
    if "/" not in wanted.patterns[0] or not folders:
        return "; choose another repository"
    if len(folders) <= MANY:
        return f"; there are {', '.join(folders)}"
    asked = wanted.patterns[0].split("/")[0]
    near = difflib.get_close_matches(asked, folders, n=MANY, cutoff=0)
    return f"; there are {len(folders)} others, for instance {', '.join(near)}"


def _explain(wanted: HubFiles, refusal: RefusedError) -> BertprepError:
    if refusal.code == "RevisionNotFound":
        return BertprepError(f"{_name(wanted)}: has no revision {wanted.revision}")
    if refusal.code == "RepoNotFound" or refusal.status in (401, 404):
        return BertprepError(
            f"{_name(wanted)}: there is no such {wanted.kind}, or it is not public; check its name, or set HF_TOKEN to a "
            "token of an account that may read it"
        )
    return refusal


def _not_a_hub(url: str) -> BertprepError:
    return BertprepError(
        f"{absolute(url)}: answers something else than the Hub does; check HF_ENDPOINT, and whether a proxy interferes"
    )
