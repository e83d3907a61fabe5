"""List, download and upload repositories of the Hub through huggingface_hub.

Cache, mirror, token and offline mode work as in huggingface_hub. Three things are added: server errors are retried, a file gets
its name only after its checksum is verified, and a listing is bounded. A killed download keeps its finished files.
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from http import HTTPStatus
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote, unquote

import httpx2
from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    RepoFile,
    constants,
    get_session,
    get_token,
    hf_hub_download,
)
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # type: ignore[attr-defined]  # in its __all__
from huggingface_hub.utils.tqdm import tqdm

from bertprep.errors import BertprepError, quoted
from bertprep.files.atomic import explain_write_error, sync_folder, temporary_folder
from bertprep.files.free_space import check_free_space
from bertprep.patience import silence_seconds
from bertprep.progress import SILENT, Reporter, print_message
from bertprep.sources.catalogue import KNOWN_SHA256, HubFiles
from bertprep.sources.listing import Listing, RemoteFile, check_on_disk, git_sha1
from bertprep.sources.web import TRIES_TO_LIST, RequestError, retry
from bertprep.untrusted import MAX_LISTED_BYTES, MAX_PAGES, check_path, parse_json
from bertprep.version import __version__

MAX_FILES = 100_000
"""The limit on the files of a repository; the largest of the catalogue has some 1,000."""
_SHOWN_NAMES = 12
_CONNECTIONS = 4  # files that are fetched at once
_SECONDS_TO_STOP = 2.0
_TIMEOUT_FACTOR = 10  # the Hub takes longer to answer a commit of a thousand files than a download


class _StoppedError(BertprepError):
    """The transfer of a file ended because another file failed or the user stopped the run."""


class Hub:
    """The repositories of the Hub. Each is listed once, so that all downloads of a run come from the same commit."""

    def __init__(self, *, reporter: Reporter = SILENT) -> None:
        self.reporter = reporter
        self.api = HfApi(library_name="bertprep", library_version=__version__)
        self._trees: dict[tuple[str, str, str], tuple[str, dict[str, RepoFile]]] = {}

    def tree(self, wanted: HubFiles) -> tuple[str, dict[str, RepoFile]]:
        """Return the commit to which the revision points now, and all files of the repository by path."""
        key = (wanted.kind, wanted.repo, wanted.revision)
        if key not in self._trees:

            def ask() -> tuple[str, dict[str, RepoFile]]:
                info = self.api.repo_info(
                    wanted.repo, repo_type=wanted.kind, revision=wanted.revision, timeout=silence_seconds()
                )
                return str(info.sha), _by_path(wanted, str(info.sha))

            self._trees[key] = retry(page_of(wanted), ask, tries=TRIES_TO_LIST, reporter=self.reporter)
        return self._trees[key]

    def forget(self, wanted: HubFiles) -> None:
        self._trees.pop((wanted.kind, wanted.repo, wanted.revision), None)

    def list_files(self, wanted: HubFiles) -> Listing:
        """Return the listing of the `wanted` files at the commit to which their revision points now."""
        commit, tree = self.tree(wanted)
        paths = [path for path in tree if any(_matches(path, pattern) for pattern in wanted.patterns)]
        if not paths:
            raise BertprepError(f"{page_of(wanted)}: has no file {' or '.join(wanted.patterns)}{_what_there_is(wanted, tree)}")
        return list_paths(wanted, commit, [tree[path] for path in paths], source_of(wanted))

    def fetch(self, listing: Listing, folder: Path) -> None:
        """Fetch and verify the files of `listing`; correct ones in `folder` are kept. The caller holds the folder's lock."""
        check_on_disk(folder)
        check_free_space({folder: sum(file.size_bytes or 0 for file in listing.missing(folder))})
        wanted = [file for file in listing.files if not _is_right(file, folder / file.name)]
        stop = threading.Event()
        is_hidden = not self.reporter.enabled

        class Bar(tqdm):
            """Shows the bytes of one file, and ends its transfer once another file failed or the user stopped the run."""

            def __init__(self, *arguments: Any, **options: Any) -> None:
                super().__init__(*arguments, **{**options, "disable": is_hidden or options.get("disable")})  # type: ignore[no-untyped-call]

            def update(self, n: float | None = 1) -> bool | None:
                if stop.is_set():
                    raise _StoppedError(f"{folder}: the download was stopped")
                return bool(super().update(n))

        with temporary_folder(folder / "unfinished") as staging:
            pool = ThreadPoolExecutor(_CONNECTIONS)
            futures = [pool.submit(self._fetch_file, listing, file, folder, staging, Bar) for file in wanted]
            try:
                for future in as_completed(futures):
                    future.result()
            finally:
                stop.set()
                pool.shutdown(wait=False, cancel_futures=True)  # each bar stops its transfer
                wait(futures, timeout=_SECONDS_TO_STOP)

    def _fetch_file(self, listing: Listing, file: RemoteFile, folder: Path, staging: Path, bar: type[Any]) -> None:
        kind, _, repo = listing.source["hub"].partition("/")
        path, name = folder / file.name, unquote(file.url.partition(f"/resolve/{listing.revision}/")[2])
        problem: str | None = ""
        for attempt in ("first", "second"):
            download = partial(
                hf_hub_download, repo, name, repo_type=kind.removesuffix("s"), revision=listing.revision,
                local_dir=staging / attempt, force_download=attempt == "second", tqdm_class=bar,
            )  # fmt: skip
            try:
                received = Path(retry(f"{constants.ENDPOINT}/{file.url}", download, reporter=self.reporter))
                if (problem := file.problem_of(received)) is None:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    received.replace(path)
                    sync_folder(path.parent)
                    return
            except OSError as error:
                if error.errno is None:  # a library raised it, not the operating system
                    raise BertprepError(f"{path}: cannot be fetched ({quoted(str(error))}); run the command again") from error
                raise explain_write_error(path, error) from error
        raise RequestError(
            f"{path}: {constants.ENDPOINT}/{file.url} {problem}, also after a second download: the file has changed at its "
            f"source, or is altered on the way; try another network, or remove {folder} and download again"
        )

    def read(self, wanted: HubFiles, path: str, most_bytes: int) -> bytes:
        commit, tree = self.tree(wanted)
        if tree[path].size > most_bytes:
            raise BertprepError(f"{page_of(wanted)}: {path} has {tree[path].size:,} bytes, expected at most {most_bytes:,}")
        file = remote_file(wanted, commit, tree[path], "content")
        with TemporaryDirectory() as folder:
            self.fetch(Listing(source_of(wanted), commit, (file,)), Path(folder))
            return (Path(folder) / "content").read_bytes()


def _is_right(file: RemoteFile, path: Path) -> bool:
    if not path.is_file() or (problem := file.problem_of(path)) is None:
        return path.is_file()
    print_message(f"{path}: {problem}; fetching it again")
    path.unlink()
    return False


@contextmanager
def open_hub(*, reporter: Reporter = SILENT) -> Iterator[Hub]:
    """Yield a Hub; while it is open, the client of huggingface_hub has a timeout.

    By default it has none, so that a push to a server that does not answer would wait forever.
    """
    try:
        client = get_session()
    except (httpx2.InvalidURL, ValueError, OSError) as error:
        raise BertprepError(
            f"the environment's proxy or certificates cannot be used ({quoted(str(error))}); check HTTP_PROXY, HTTPS_PROXY, "
            "ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR"
        ) from error
    has_timeout = client.timeout != httpx2.Timeout(None)
    if not has_timeout:
        client.timeout = silence_seconds(_TIMEOUT_FACTOR)
    try:
        yield Hub(reporter=reporter)
    finally:
        if not has_timeout:
            client.timeout = None


def _by_path(wanted: HubFiles, commit: str) -> dict[str, RepoFile]:
    files: dict[str, RepoFile] = {}
    for entry in chain.from_iterable(_pages(wanted, commit)):
        if entry.get("type") != "file":
            continue
        try:
            file = RepoFile(**entry)  # type: ignore[no-untyped-call]
        except (AttributeError, LookupError, TypeError) as error:
            raise ValueError(f"its listing has a file without {quoted(str(error))}") from error
        if file.path in files or len(files) == MAX_FILES:
            raise ValueError(f"its listing has {file.path!r} twice, or more than {MAX_FILES:,} files")
        files[file.path] = file
    return files


def _pages(wanted: HubFiles, commit: str) -> Iterator[list[dict[str, Any]]]:
    """Yield the pages of a commit's file tree. Raises `ValueError` for too many pages or too many bytes.

    `HfApi.list_repo_tree` has no such limits: it reads a page of any length, follows empty pages without yielding anything,
    and sends the token to any host that has the next page.
    """
    url = f"{constants.ENDPOINT}/api/{wanted.kind}s/{wanted.repo}/tree/{quote(commit, safe='')}?recursive=true"
    size_bytes = 0
    for _ in range(MAX_PAGES):
        token = None if url.startswith(f"{constants.ENDPOINT}/") else False  # None is the user's
        headers = build_hf_headers(token=token, library_name="bertprep", library_version=__version__)
        page = bytearray()
        with get_session().stream("GET", url, headers=headers, timeout=silence_seconds(_TIMEOUT_FACTOR)) as response:
            hf_raise_for_status(response)
            for block in response.iter_bytes():
                page += block
                size_bytes += len(block)
                if size_bytes > MAX_LISTED_BYTES:
                    raise ValueError(f"its listing has more than {MAX_LISTED_BYTES >> 20} MiB")
        entries = parse_json(bytes(page))
        if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
            raise ValueError("its listing is not a list of files")
        yield entries
        url = response.links.get("next", {}).get("url", "")
        if not url:
            return
    raise ValueError(f"its listing has more than {MAX_PAGES:,} pages")


def source_of(files: HubFiles) -> dict[str, Any]:
    """Return the `source` that a listing of these files records."""
    return {"hub": f"{files.kind}s/{files.repo}", "patterns": list(files.patterns), "revision": files.revision}


def list_paths(wanted: HubFiles, commit: str, entries: Sequence[RepoFile], source: dict[str, Any]) -> Listing:
    """Return the listing of some files of a repository; `source` is the request that it records."""
    try:
        return Listing(source, commit, tuple(remote_file(wanted, commit, entry) for entry in entries))
    except ValueError as error:
        raise BertprepError(f"{page_of(wanted)}: cannot be downloaded ({error}); choose another repository") from error


def remote_file(wanted: HubFiles, commit: str, entry: RepoFile, name: str | None = None) -> RemoteFile:
    """Return a file to fetch, stored as `name` if given. Raises `ValueError` for a path that leads out of the folder."""
    path = entry.path if name else check_path(entry.path)
    sha256 = entry.lfs.sha256 if entry.lfs else None
    known = KNOWN_SHA256.get((wanted.repo, path))
    if known and sha256 not in (None, known):
        raise BertprepError(
            f"{page_of(wanted)}: {path} has sha256 {sha256}, expected {known}; it is not the published file; do not use it"
        )
    page = f"datasets/{wanted.repo}" if wanted.kind == "dataset" else wanted.repo
    return RemoteFile(
        name=name or (path if wanted.keep_folders else path.rpartition("/")[2]),
        url=f"{page}/resolve/{commit}/{quote(path)}",
        size_bytes=entry.size,
        sha256=sha256 or known,
        git_sha1=None if sha256 else entry.blob_id,  # git has only a pointer to a large file
    )


def page_of(wanted: HubFiles) -> str:
    return f"{constants.ENDPOINT}/{'datasets/' if wanted.kind == 'dataset' else ''}{wanted.repo}"


def _matches(path: str, pattern: str) -> bool:
    return fnmatchcase(path, pattern) and fnmatchcase(path.rpartition("/")[2], pattern.rpartition("/")[2])


def _what_there_is(wanted: HubFiles, tree: dict[str, RepoFile]) -> str:
    """Return the end of an error message: the folders (configurations) of a repository with the most similar names."""
    folders = sorted({path.split("/")[0] for path in tree if "/" in path})
    if "/" not in wanted.patterns[0] or not folders:
        return "; choose another repository"
    near = difflib.get_close_matches(wanted.patterns[0].split("/")[0], folders, n=_SHOWN_NAMES, cutoff=0)
    which = "its folders are" if len(near) == len(folders) else f"of its {len(folders):,} folders, the nearest are"
    return f"; {which} {', '.join(sorted(near))}"


@dataclass(frozen=True)
class Published:
    """The commit that holds the files of a push, and the paths that it changed and deleted."""

    commit: str
    changed: Sequence[str]
    deleted: Sequence[str]


def check_token(hub: Hub, page: str) -> None:
    """Raise `BertprepError` if there is no token, if the Hub does not know it, or if it has no write access."""
    if get_token() is None:
        raise RequestError(f"{page}: a push needs a token; run hf auth login, or set HF_TOKEN to a token with write access")
    try:
        account = retry(f"{constants.ENDPOINT}/api/whoami-v2", hub.api.whoami, tries=TRIES_TO_LIST, reporter=hub.reporter)
    except RequestError as error:
        if error.status != HTTPStatus.UNAUTHORIZED:
            raise
        raise RequestError(
            f"{page}: {constants.ENDPOINT} does not know the token of HF_TOKEN or hf auth login; create one with write access "
            f"at {constants.ENDPOINT}/settings/tokens",
            status=error.status,
        ) from error
    if account.get("auth", {}).get("accessToken", {}).get("role") == "read":
        raise BertprepError(
            f"{page}: the token of {account.get('name')} has read access only; create one with write access at "
            f"{constants.ENDPOINT}/settings/tokens, and set HF_TOKEN to it or run hf auth login"
        )


def publish(
    hub: Hub,
    wanted: HubFiles,
    contents: Mapping[str, Path | bytes],
    removable: Callable[[Mapping[str, RepoFile]], Iterable[str]],
    message: str,
    *,
    dry_run: bool = False,
) -> Published:
    """Upload `contents` and remove the `removable` files in one commit, or in none if nothing changes.

    `removable` is called with the repository's current files, and may raise. With `dry_run` the Hub is only read: the result
    is the current commit, with the changes that would be made.
    """
    additions = {
        path: CommitOperationAdd(path, content) for path, content in contents.items()
    }  # kept across retries: each remembers whether it was uploaded
    done: dict[str, list[str]] = {"changed": [], "deleted": []}  # by an earlier attempt, whose answer may have been lost

    def attempt() -> Published:
        hub.forget(wanted)
        commit, tree = hub.tree(wanted)
        changed = [path for path, addition in additions.items() if not _holds(tree.get(path), addition)]
        deleted = [path for path in removable(tree) if path in tree and path not in contents]
        if dry_run:
            return Published(commit, changed, deleted)
        if not changed and not deleted:
            return Published(commit, **done)
        done.update(changed=changed, deleted=deleted)
        info = hub.api.create_commit(
            wanted.repo,
            [*(additions[path] for path in changed), *map(CommitOperationDelete, deleted)],
            commit_message=message,
            repo_type=wanted.kind,
            parent_commit=commit,
        )
        return Published(info.oid, changed, deleted)

    return retry(page_of(wanted), attempt, reporter=hub.reporter)


def _holds(entry: RepoFile | None, addition: CommitOperationAdd) -> bool:
    info, content = addition.upload_info, addition.path_or_fileobj
    if entry is None or entry.size != info.size:
        return False
    if entry.lfs:
        return bool(entry.lfs.sha256 == info.sha256.hex())
    return bool(entry.blob_id == git_sha1(content if isinstance(content, bytes) else Path(str(content))))
