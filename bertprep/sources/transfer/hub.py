"""Lists a download from the Hub: the commit to which a revision now points, and its files.

The Hub's two routes are called here rather than through `HfApi`, whose requests have no read timeout and whose retries cannot
be configured: a listing should be as robust as the download that follows. The Hub gives the sha256 of large files and git's
sha1 of small ones, so each can be verified.
"""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from bertprep.errors import BertprepError
from bertprep.progress import SILENT, Reporter
from bertprep.sources.catalogue import KNOWN_SHA256, HubFiles
from bertprep.sources.data_files import MANY
from bertprep.sources.transfer.http import TRIES_TO_LIST, Patience, RefusedError, TroubleError, Web, absolute
from bertprep.sources.transfer.listing import Listing, RemoteFile
from bertprep.sources.transfer.partial import Checksums
from bertprep.untrusted import COUNT, LIST, OBJECT, SHA1, SHA256, TEXT, check_path, check_values, optional

MOST_PAGES, MOST_ENTRIES = 1_000, 100_000
"""Most pages of one repository's listing; the largest one used has some 1,000 files."""
_COMMIT = {"sha": SHA1}
_LARGE = {"oid": SHA256}
_ENTRY = {"type": TEXT, "path": TEXT, "size": COUNT, "oid": SHA1, "lfs": optional(OBJECT)}


@dataclass(frozen=True)
class Entry:
    """A file of a repository: large ones have a sha256, others git's sha1."""

    path: str
    size_bytes: int
    git_sha1: str
    sha256: str | None


def source_of(files: HubFiles) -> dict[str, Any]:
    """The `source` of a listing."""
    return {"hub": f"{files.kind}s/{files.repo}", "patterns": list(files.patterns), "revision": files.revision}


class Hub:
    """Lists each repository once, so that all downloads from it are of the same commit."""

    def __init__(self, web: Web, *, reporter: Reporter = SILENT) -> None:
        self._web, self.reporter = web, reporter
        self._trees: dict[tuple[str, str, str], tuple[str, list[Entry]]] = {}

    def list_files(self, wanted: HubFiles) -> Listing:
        """The `wanted` files at the commit to which the revision now points."""
        commit, tree = self.tree(wanted)
        entries = [entry for entry in tree if any(_matches(entry.path, pattern) for pattern in wanted.patterns)]
        if not entries:
            raise BertprepError(f"{page_of(wanted)}: has no file {' or '.join(wanted.patterns)}{_what_there_is(wanted, tree)}")
        return list_entries(wanted, commit, entries, source_of(wanted))

    def tree(self, wanted: HubFiles) -> tuple[str, list[Entry]]:
        """The commit to which the revision now points, and all of the repository's files at it, whatever the patterns."""
        key = (wanted.kind, wanted.repo, wanted.revision)
        if key not in self._trees:
            address = f"api/{wanted.kind}s/{wanted.repo}"
            try:
                answer, _ = self._json(f"{address}/revision/{quote(wanted.revision, safe='')}")
                commit = check_values(answer, _COMMIT, needed=("sha",))["sha"]
                self._trees[key] = commit, list(self._files(f"{address}/tree/{commit}?recursive=true"))
            except RefusedError as refusal:
                raise explain(wanted, refusal) from refusal
            except ValueError as error:
                raise _not_a_hub(address, error) from error
        return self._trees[key]

    def read(self, wanted: HubFiles, commit: str, entry: Entry, most_bytes: int) -> bytes:
        """The content of a small file, checked; raises `BertprepError` if it has more than `most_bytes`."""
        file = _remote_file(wanted, commit, entry, "content")
        if entry.size_bytes > most_bytes:
            raise BertprepError(
                f"{page_of(wanted)}: {entry.path} has {entry.size_bytes:,} bytes, expected at most {most_bytes:,}"
            )

        def ask() -> bytes:
            with self._web.get(file.url) as response:
                data = bytearray()
                for block in response.iter_raw():
                    data += block
                    if len(data) > entry.size_bytes:
                        break
            checksums = Checksums(file)
            checksums.update(data)
            if problem := checksums.problem(len(data)):
                raise TroubleError(f"it {problem}")
            return bytes(data)

        patience = Patience(absolute(file.url), tries=TRIES_TO_LIST, reporter=self.reporter)
        try:
            return patience.persist(ask)
        except RefusedError as refusal:
            raise explain_file(wanted, refusal) from refusal

    def _files(self, page: str) -> Iterator[Entry]:
        """The files of a listing from one page on; raises `ValueError` for an invalid or endless listing."""
        asked: set[str] = set()
        count = 0
        following: str | None = page
        while following:
            if following in asked or len(asked) == MOST_PAGES:
                raise ValueError(f"its listing has no end, page {len(asked) + 1:,} is {following}")
            asked.add(following)
            entries, following = self._json(following)
            if not LIST.holds(entries):
                raise ValueError(f"its listing is not a list but {type(entries).__name__}")
            count += len(entries)
            if count > MOST_ENTRIES:
                raise ValueError(f"its listing has more than {MOST_ENTRIES:,} files")
            checked = [check_values(entry, _ENTRY, needed=("type",)) for entry in entries]
            yield from (_entry(entry) for entry in checked if entry["type"] == "file")

    def _json(self, url: str) -> tuple[Any, str | None]:
        """The JSON at an address, and the address of the next page."""
        patience = Patience(absolute(url), tries=TRIES_TO_LIST, reporter=self.reporter)
        return patience.persist(lambda: self._web.get_json(url))


def _entry(content: dict[str, Any]) -> Entry:
    """One file of a repository; its path is checked only if the file is wanted."""
    entry = check_values(content, _ENTRY, needed=("path", "size", "oid"))
    large = entry.get("lfs")
    sha256 = check_values(large, _LARGE, needed=("oid",), place="lfs.")["oid"] if large else None
    return Entry(entry["path"], entry["size"], entry["oid"], sha256)


def _matches(path: str, pattern: str) -> bool:
    """Whether a path matches a pattern and its file name the pattern's last component; fnmatch's `*` crosses folders."""
    return fnmatchcase(path, pattern) and fnmatchcase(path.rpartition("/")[2], pattern.rpartition("/")[2])


def list_entries(wanted: HubFiles, commit: str, entries: Sequence[Entry], source: dict[str, Any]) -> Listing:
    """The listing of some files of a repository, which a later run will have asked for as `source`."""
    try:
        return Listing(source, commit, tuple(_remote_file(wanted, commit, entry) for entry in entries))
    except ValueError as error:
        raise BertprepError(f"{page_of(wanted)}: cannot be downloaded ({error}); choose another repository") from error


def _remote_file(wanted: HubFiles, commit: str, entry: Entry, name: str | None = None) -> RemoteFile:
    """A file to be fetched, under a name of our own where one is given."""
    path, sha256 = entry.path if name else check_path(entry.path), entry.sha256
    known = KNOWN_SHA256.get((wanted.repo, path))
    if known and sha256 not in (None, known):
        raise BertprepError(
            f"{page_of(wanted)}: {path} has sha256 {sha256}, expected {known}; it is not the published file, do not use it"
        )
    return RemoteFile(
        name=name or (path if wanted.keep_folders else path.rpartition("/")[2]),
        url=f"{_page(wanted)}/resolve/{commit}/{quote(path)}",
        size_bytes=entry.size_bytes,
        sha256=sha256 or known,
        git_sha1=None if sha256 else entry.git_sha1,  # of a large file git has only a pointer
    )


def _page(wanted: HubFiles) -> str:
    """The address of a repository, relative to the endpoint, which may differ from run to run."""
    return f"datasets/{wanted.repo}" if wanted.kind == "dataset" else wanted.repo


def page_of(wanted: HubFiles) -> str:
    """The address of a repository's page."""
    return absolute(_page(wanted))


def _what_there_is(wanted: HubFiles, tree: list[Entry]) -> str:
    """The configurations of a repository, which are its folders; the nearest by name if there are many."""
    folders = sorted({entry.path.split("/")[0] for entry in tree if "/" in entry.path})
    if "/" not in wanted.patterns[0] or not folders:
        return "; choose another repository"
    if len(folders) <= MANY:
        return f"; there are {', '.join(folders)}"
    asked = wanted.patterns[0].split("/")[0]
    near = difflib.get_close_matches(asked, folders, n=MANY, cutoff=0)
    return f"; there are {len(folders)} others, for instance {', '.join(near)}"


def explain(wanted: HubFiles, refusal: RefusedError) -> BertprepError:
    """What the Hub's refusal means for the user who asked for these files."""
    if refusal.code == "GatedRepo":
        token = (
            "the account of HF_TOKEN has no access yet; accept the conditions on that page with it, or wait until its owners "
            "have let it in"
            if refusal.status == HTTPStatus.FORBIDDEN
            else "accept its conditions on that page, and set HF_TOKEN to a token of the account that did"
        )
        return BertprepError(f"{page_of(wanted)}: is only for who has accepted its conditions; {token}")
    if refusal.code == "RevisionNotFound":
        return BertprepError(f"{page_of(wanted)}: has no revision {wanted.revision}")
    if refusal.code == "RepoNotFound" or refusal.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.NOT_FOUND):
        return BertprepError(
            f"{page_of(wanted)}: there is no such {wanted.kind}, or it is not public; check its name, or set HF_TOKEN to a "
            "token of an account that may read it"
        )
    return refusal


def explain_file(wanted: HubFiles, refusal: RefusedError) -> BertprepError:
    """The same for the refusal of one file, which may be only that file's."""
    return explain(wanted, refusal) if refusal.code in ("GatedRepo", "RepoNotFound") else refusal


def _not_a_hub(url: str, why: ValueError) -> BertprepError:
    return BertprepError(
        f"{absolute(url)}: does not answer as the Hub does; check HF_ENDPOINT, and whether a proxy interferes ({why})"
    )
