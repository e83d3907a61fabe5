"""The Hub through huggingface_hub: repositories, files, commits.

Cache, mirror, token and offline mode are huggingface_hub's. Added here: retries of server errors, a checksum of every file
before it gets its name, and a token that only the endpoint receives. A killed download keeps its finished files.
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
    set_client_factory,
    utils,
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
"""Of one repository; the largest one used has some 1,000."""
_SHOWN_NAMES = 12
_OF_TRANSFER = ("content-encoding", "content-length", "transfer-encoding")  # headers of a body that is no longer so encoded
_SECONDS_TO_STOP = 2.0
_TIMEOUT_FACTOR = 10  # the Hub thinks for longer about a commit of a thousand files than about a download


class _StoppedError(BertprepError):
    """Another file failed, or the user stopped the run."""


class Hub:
    """Lists each repository once, so that all downloads of a run are of the same commit."""

    def __init__(self, *, reporter: Reporter = SILENT) -> None:
        self.reporter = reporter
        self.api = HfApi(library_name="bertprep", library_version=__version__)
        self._trees: dict[tuple[str, str, str], tuple[str, dict[str, RepoFile]]] = {}

    def tree(self, wanted: HubFiles) -> tuple[str, dict[str, RepoFile]]:
        """Return the commit to which the revision now points, and all of the repository's files by their paths."""
        key = (wanted.kind, wanted.repo, wanted.revision)
        if key not in self._trees:

            def ask() -> tuple[str, dict[str, RepoFile]]:
                info = self.api.repo_info(wanted.repo, repo_type=wanted.kind, revision=wanted.revision)
                return str(info.sha), _by_path(wanted, str(info.sha))

            self._trees[key] = retry(page_of(wanted), ask, tries=TRIES_TO_LIST, reporter=self.reporter)
        return self._trees[key]

    def forget(self, wanted: HubFiles) -> None:
        self._trees.pop((wanted.kind, wanted.repo, wanted.revision), None)

    def list_files(self, wanted: HubFiles) -> Listing:
        """Return the listing of the `wanted` files at the commit to which the revision now points."""
        commit, tree = self.tree(wanted)
        paths = [path for path in tree if any(_matches(path, pattern) for pattern in wanted.patterns)]
        if not paths:
            raise BertprepError(f"{page_of(wanted)}: has no file {' or '.join(wanted.patterns)}{_what_there_is(wanted, tree)}")
        return list_paths(wanted, commit, [tree[path] for path in paths], source_of(wanted))

    def fetch(self, listing: Listing, folder: Path, *, connections: int = 4) -> None:
        """Fetch every file of `listing` to `folder`, verified; existing correct ones are kept. The caller holds the folder's
        lock.
        """
        check_on_disk(folder)
        check_free_space({folder: sum(file.size_bytes or 0 for file in listing.missing(folder))})
        wanted = [file for file in listing.files if not _is_right(file, folder / file.name)]
        stop = threading.Event()
        is_hidden = not self.reporter.enabled

        class Bar(tqdm):
            """Shows the bytes of one file; ends the transfer once another file failed or the user stopped the run."""

            def __init__(self, *arguments: Any, **options: Any) -> None:
                super().__init__(*arguments, **{**options, "disable": is_hidden or options.get("disable")})  # type: ignore[no-untyped-call]

            def update(self, n: float | None = 1) -> bool | None:
                if stop.is_set():
                    raise _StoppedError(f"{folder}: the download was stopped")
                return bool(super().update(n))

        with temporary_folder(folder / "unfinished") as staging:
            pool = ThreadPoolExecutor(connections)
            futures = [pool.submit(self._fetch_file, listing, file, folder, staging, Bar) for file in wanted]
            try:
                for future in as_completed(futures):
                    future.result()
            finally:
                stop.set()
                pool.shutdown(wait=False, cancel_futures=True)  # the bars stop what is in flight
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
                raise explain_write_error(path, error) from error
        raise RequestError(
            f"{path}: {constants.ENDPOINT}/{file.url} {problem}, and again after a second download, so the source has "
            f"changed or something on the way alters it; try another network, or remove {folder} and download again"
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
    print_message(f"{path}: {problem}; it is fetched again")
    path.unlink()
    return False


_users_lock = threading.Lock()
_users: list[Hub] = []
"""The open Hubs of the process, whose threads share the one client of huggingface_hub."""
_before: list[Callable[[], httpx2.Client]] = []
"""What made that client before the first Hub was opened; empty while none is open."""


@contextmanager
def open_hub(*, reporter: Reporter = SILENT) -> Iterator[Hub]:
    """Yield the Hub, which huggingface_hub asks with a client that gives the token to the endpoint alone.

    The client that the process had is restored when the last open Hub is closed.
    """
    with _users_lock:
        if not _users:
            _before.append(_configure_client())
        _users.append(hub := Hub(reporter=reporter))
    try:
        yield hub
    finally:
        with _users_lock:
            _users.remove(hub)
            if not _users:
                set_client_factory(_before.pop())


def _configure_client() -> Callable[[], httpx2.Client]:
    """Set the client that withholds the token, and return what made the one before."""
    try:
        client = get_session()
    except (httpx2.InvalidURL, ValueError, OSError) as error:
        raise BertprepError(
            f"the environment's proxy or certificates cannot be used ({quoted(str(error))}); check HTTP_PROXY, HTTPS_PROXY, "
            "ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR"
        ) from error
    before = _factory_of(client)
    hooks, timeout = [*client.event_hooks["request"], _withhold_token], silence_seconds(_TIMEOUT_FACTOR)
    set_client_factory(lambda: httpx2.Client(event_hooks={"request": hooks}, follow_redirects=True, timeout=timeout))
    return before


def _factory_of(client: httpx2.Client) -> Callable[[], httpx2.Client]:
    """Return the factory of the process's client.

    huggingface_hub has a function to set it and none to return it, so it is read from a private name. A version without that
    name gets a factory of clients like this one: its hooks, headers, timeout and redirects are kept, while a transport of its
    own (proxies, certificates that are not in the environment) is lost until the caller sets the factory again.
    """
    factory: Callable[[], httpx2.Client] | None = getattr(getattr(utils, "_http", None), "_GLOBAL_CLIENT_FACTORY", None)
    return factory or partial(
        httpx2.Client,
        headers=client.headers,
        event_hooks=client.event_hooks,
        timeout=client.timeout,
        follow_redirects=client.follow_redirects,
        trust_env=client.trust_env,
    )


def _withhold_token(request: httpx2.Request) -> None:
    endpoint, url = httpx2.URL(constants.ENDPOINT), request.url
    is_ours = request.headers.get("Authorization") == f"Bearer {get_token()}"
    if is_ours and (url.scheme, url.host, url.port) != (endpoint.scheme, endpoint.host, endpoint.port):
        del request.headers["Authorization"]


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
    """Yield the pages of a commit's tree; raise `ValueError` for too many pages or too large a page.

    `HfApi.list_repo_tree` reads each to its end, however long it is, and shows nothing of empty pages.
    """
    url = f"{constants.ENDPOINT}/api/{wanted.kind}s/{wanted.repo}/tree/{quote(commit, safe='')}?recursive=true"
    size_bytes = 0
    for _ in range(MAX_PAGES):
        response = _get_bounded(url, MAX_LISTED_BYTES - size_bytes)
        size_bytes += len(response.content)
        entries = parse_json(response.content)
        if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
            raise ValueError("its listing is no list of files")
        yield entries
        url = response.links.get("next", {}).get("url", "")
        if not url:
            return
    raise ValueError(f"its listing has more than {MAX_PAGES:,} pages")


def _get_bounded(url: str, most_bytes: int) -> httpx2.Response:
    """Return an answer of the Hub, read completely; raise `ValueError` if it has more than so many bytes."""
    headers = build_hf_headers(library_name="bertprep", library_version=__version__)
    body = bytearray()
    with get_session().stream("GET", url, headers=headers) as response:
        for block in response.iter_bytes():
            body += block
            if len(body) > most_bytes:
                raise ValueError(f"its listing has more than {MAX_LISTED_BYTES >> 20} MiB")
    kept = {name: value for name, value in response.headers.items() if name not in _OF_TRANSFER}
    answer = httpx2.Response(response.status_code, headers=kept, content=bytes(body), request=response.request)
    answer.history = response.history
    hf_raise_for_status(answer)
    return answer


def source_of(files: HubFiles) -> dict[str, Any]:
    """Return the `source` of a listing."""
    return {"hub": f"{files.kind}s/{files.repo}", "patterns": list(files.patterns), "revision": files.revision}


def list_paths(wanted: HubFiles, commit: str, entries: Sequence[RepoFile], source: dict[str, Any]) -> Listing:
    """Return the listing of some files of a repository, requested as `source`."""
    try:
        return Listing(source, commit, tuple(remote_file(wanted, commit, entry) for entry in entries))
    except ValueError as error:
        raise BertprepError(f"{page_of(wanted)}: cannot be downloaded ({error}); choose another repository") from error


def remote_file(wanted: HubFiles, commit: str, entry: RepoFile, name: str | None = None) -> RemoteFile:
    """Return a file to be fetched, as `name` if given; raises `ValueError` for a path outside of the folder."""
    path = entry.path if name else check_path(entry.path)
    sha256 = entry.lfs.sha256 if entry.lfs else None
    known = KNOWN_SHA256.get((wanted.repo, path))
    if known and sha256 not in (None, known):
        raise BertprepError(
            f"{page_of(wanted)}: {path} has sha256 {sha256}, expected {known}; it is not the published file, do not use it"
        )
    page = f"datasets/{wanted.repo}" if wanted.kind == "dataset" else wanted.repo
    return RemoteFile(
        name=name or (path if wanted.keep_folders else path.rpartition("/")[2]),
        url=f"{page}/resolve/{commit}/{quote(path)}",
        size_bytes=entry.size,
        sha256=sha256 or known,
        git_sha1=None if sha256 else entry.blob_id,  # of a large file git has only a pointer
    )


def page_of(wanted: HubFiles) -> str:
    return f"{constants.ENDPOINT}/{'datasets/' if wanted.kind == 'dataset' else ''}{wanted.repo}"


def _matches(path: str, pattern: str) -> bool:
    return fnmatchcase(path, pattern) and fnmatchcase(path.rpartition("/")[2], pattern.rpartition("/")[2])


def _what_there_is(wanted: HubFiles, tree: dict[str, RepoFile]) -> str:
    """Return a repository's configurations (its folders) for an error, the nearest names first."""
    folders = sorted({path.split("/")[0] for path in tree if "/" in path})
    if "/" not in wanted.patterns[0] or not folders:
        return "; choose another repository"
    near = difflib.get_close_matches(wanted.patterns[0].split("/")[0], folders, n=_SHOWN_NAMES, cutoff=0)
    return f"; of {len(folders)} there are {', '.join(sorted(near))}"


@dataclass(frozen=True)
class Published:
    """The commit that holds the files of a push, and the paths that it changed and deleted."""

    commit: str
    changed: Sequence[str]
    deleted: Sequence[str]


def check_token(hub: Hub, page: str) -> None:
    """Raise `BertprepError` where there is no token, or one that may only read, before any work is done."""
    if get_token() is None:
        raise BertprepError(f"{page}: a push needs a token; run hf auth login, or set HF_TOKEN to a token that may write")
    account = retry(f"{constants.ENDPOINT}/api/whoami-v2", hub.api.whoami, reporter=hub.reporter)
    if account.get("auth", {}).get("accessToken", {}).get("role") == "read":
        raise BertprepError(
            f"{page}: the token of {account.get('name')} may only read; make one that may write at "
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
    """Upload `contents` of a data set and remove `removable` files, in one commit; without a difference there is none.

    `removable` is called with the files that the commit would replace, and may raise. With `dry_run` the Hub is only read:
    what would change is returned, with the commit that is there.
    """
    additions = {
        path: CommitOperationAdd(path, content) for path, content in contents.items()
    }  # kept over retries: each remembers whether it was uploaded
    done: dict[str, list[str]] = {"changed": [], "deleted": []}  # by a commit whose answer may have been lost

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
