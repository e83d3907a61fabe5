"""Makes a dataset repository of the Hub hold given files, in one commit, over an unreliable network.

A push is an attempt that is repeated until the Hub holds what it should: list what is there and ask whether that may be
replaced, send what differs, commit on top of what was listed. Large files go to the Hub's store before the commit, each once:
the Hub says which it has, so a push that was cut off or killed sends only the rest, and a commit whose answer was lost is seen
in the listing. Nobody sees half a data set.

The sending is left to huggingface_hub, which knows the Hub's stores (Xet; LFS with HF_HUB_DISABLE_XET=1). Its requests have no
timeout and give up soon, so `_request` adds both.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar

import httpx2
from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationCopy,
    CommitOperationDelete,
    HfApi,
    constants,
    get_session,
    get_token,
)
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import logging
from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

from bertprep import __version__
from bertprep.errors import BertprepError
from bertprep.patience import PASSING, silence_seconds
from bertprep.progress import SILENT, Progress, Reporter
from bertprep.sources.catalogue import HubFiles
from bertprep.sources.transfer.http import (
    Patience,
    RefusedError,
    TroubleError,
    Web,
    absolute,
    explain_failure,
    retry_after_seconds,
)
from bertprep.sources.transfer.hub import Entry, Hub, page_of
from bertprep.terminal import printable

DATASET = "dataset"
MAKES_ITSELF = frozenset({".gitattributes"})
"""Files that the Hub puts into a new repository."""
_BATCH_FILES, _BATCH_BYTES = 16, 1 << 30  # sent between two lines of progress
_TIMES_SILENCE = 10  # the Hub thinks for longer about a commit of a thousand files than about a download
_LONGEST_REASON = 300
_ONLY_FATAL = 50  # of Python's logging

CommitOperation = CommitOperationAdd | CommitOperationCopy | CommitOperationDelete
Result = TypeVar("Result")


@dataclass(frozen=True)
class Content:
    """What a file of a repository is to hold: a file of this machine, or bytes."""

    source: Path | bytes
    size_bytes: int
    sha256: str

    @classmethod
    def of_bytes(cls, data: bytes) -> Content:
        return cls(data, len(data), hashlib.sha256(data).hexdigest())

    def is_in(self, entry: Entry) -> bool:
        """Whether a file of the Hub holds this."""
        if entry.size_bytes != self.size_bytes:
            return False
        return entry.sha256 == self.sha256 if entry.sha256 else entry.git_sha1 == self._git_sha1()

    def _git_sha1(self) -> str:
        digest = hashlib.sha1(b"blob %d\0" % self.size_bytes, usedforsecurity=False)
        if isinstance(self.source, bytes):
            digest.update(self.source)
        else:
            with self.source.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
        return digest.hexdigest()


@dataclass(frozen=True)
class State:
    """A repository at one commit."""

    commit: str
    entries: Mapping[str, Entry]


@dataclass(frozen=True)
class Published:
    """What a push has done: the commit that holds the files, and the paths that it changed and deleted."""

    commit: str
    changed: Sequence[str]
    deleted: Sequence[str]


class DatasetRepository:
    """One dataset repository that is written to, with the token of the environment or of `hf auth login`.

    Raises `BertprepError` where there is no token, or one that cannot write.
    """

    def __init__(self, name: str, web: Web, *, reporter: Reporter = SILENT) -> None:
        self.name, self._web, self._reporter = name, web, reporter
        self.files = HubFiles(name)
        self.url = page_of(self.files)
        if constants.is_offline_mode():
            raise BertprepError(f"{self.url}: is to be written to, and HF_HUB_OFFLINE forbids any request; unset it")
        token = get_token()
        if token is None:
            raise BertprepError(
                f"{self.url}: a push needs a token; run hf auth login, or set HF_TOKEN to a token that may write"
            )
        self._api = HfApi(token=token, library_name="bertprep", library_version=__version__)
        with _our_way():
            account = self._patiently(absolute("api/whoami-v2"), lambda: self._api.whoami())
        self._user = str(account.get("name", "?"))
        if _role(account) == "read":
            raise BertprepError(
                f"{self.url}: the token of {self._user} may only read; make one that may write at "
                f"{absolute('settings/tokens')}, and set HF_TOKEN to it or run hf auth login"
            )

    def look(self) -> State | None:
        """What the repository now holds; None if there is none of that name that this token may see."""
        try:
            commit, entries = Hub(self._web, reporter=self._reporter).tree(self.files)
        except BertprepError as error:
            cause = error.__cause__
            if isinstance(cause, RefusedError) and cause.code != "RevisionNotFound" and cause.status in (401, 404):
                return None
            raise
        return State(commit, {entry.path: entry for entry in entries})

    def read(self, state: State, path: str, most_bytes: int) -> bytes | None:
        """The content of a small file of the repository, None if it has no such file."""
        entry = state.entries.get(path)
        return (
            None if entry is None else Hub(self._web, reporter=self._reporter).read(self.files, state.commit, entry, most_bytes)
        )

    def is_private(self) -> bool:
        with _our_way():
            info = self._patiently(self.url, lambda: self._api.repo_info(self.name, repo_type=DATASET))
        return bool(info.private)

    def create(self, *, private: bool) -> None:
        """Make the repository, which is empty then; one that exists by now is left as it is."""
        with _our_way():
            self._patiently(
                self.url,
                lambda: self._api.create_repo(self.name, repo_type=DATASET, private=private or None, exist_ok=True),
            )

    def publish(
        self, contents: Mapping[str, Content], removable: Callable[[State], Iterable[str]], *, message: str
    ) -> Published:
        """Make `contents` files of the repository, and remove what else is `removable`, in one commit; others stay.

        `removable` is called with each state that a commit would replace, and raises for one that must not be. Nothing is sent
        that is there, and where nothing differs there is no commit. The same call resumes.
        """
        deletions: set[str] = set()  # by a commit whose answer may be lost
        additions: dict[str, CommitOperationAdd] = {}  # kept, since each knows whether it was sent

        def attempt() -> Published:
            state = self.look()
            if state is None:
                raise TroubleError("the new repository is not there yet")
            there = state.entries
            changed = [path for path, content in contents.items() if path not in there or not content.is_in(there[path])]
            deleted = [path for path in removable(state) if path in there and path not in contents]
            if not changed and not deleted:
                return Published(state.commit, sorted(additions), sorted(deletions))
            for path in changed:
                if path not in additions:
                    additions[path] = _addition(path, contents[path])
            with self._reporter.progress("push", len(changed), "files") as shown:
                self._send(changed, additions, contents, shown)
            operations: list[CommitOperation] = [additions[path] for path in changed]
            operations += [CommitOperationDelete(path) for path in deleted]
            deletions.update(deleted)
            commit = _request(
                self.url,
                self._user,
                lambda: self._api.create_commit(
                    self.name, operations, commit_message=message, repo_type=DATASET, parent_commit=state.commit
                ),
            )
            return Published(commit.oid, changed, deleted)

        with _our_way():
            return self._patiently(self.url, attempt)

    def _send(
        self,
        paths: Sequence[str],
        additions: Mapping[str, CommitOperationAdd],
        contents: Mapping[str, Content],
        shown: Progress,
    ) -> None:
        """Send the files that the Hub keeps apart from git; small ones come with the commit."""
        for batch in _batches(paths, contents):
            operations = [additions[path] for path in batch]
            self._patience(self.url).persist(lambda operations=operations: self._preupload(operations))  # type: ignore[misc]
            shown.advance(len(batch), MB=sum(contents[path].size_bytes for path in batch) / 1e6)

    def _preupload(self, operations: list[CommitOperationAdd]) -> None:
        """Send some files, in another thread, since huggingface_hub would not let go of them at Ctrl-C."""
        pool = ThreadPoolExecutor(1)
        try:
            pool.submit(
                _request,
                self.url,
                self._user,
                lambda: self._api.preupload_lfs_files(self.name, operations, repo_type=DATASET, free_memory=False),
            ).result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _patiently(self, what: str, action: Callable[[], Result]) -> Result:
        return self._patience(what).persist(lambda: _request(what, getattr(self, "_user", ""), action))

    def _patience(self, what: str) -> Patience:
        return Patience(what, reporter=self._reporter, kept="what was sent is kept")


def _role(account: object) -> str | None:
    """The role of the token: read, write or fineGrained; None where the Hub does not tell."""
    for key in ("auth", "accessToken", "role"):
        account = account.get(key) if isinstance(account, dict) else None
    return account if isinstance(account, str) else None


def _addition(path: str, content: Content) -> CommitOperationAdd:
    operation = CommitOperationAdd(path, content.source)
    operation.upload_info.sha256 = bytes.fromhex(content.sha256)  # else the file would be read once more
    return operation


def _batches(paths: Sequence[str], contents: Mapping[str, Content]) -> Iterator[list[str]]:
    batch: list[str] = []
    for path in paths:
        size = sum(contents[each].size_bytes for each in batch)
        if batch and (len(batch) == _BATCH_FILES or size + contents[path].size_bytes > _BATCH_BYTES):
            yield batch
            batch = []
        batch.append(path)
    if batch:
        yield batch


@contextmanager
def _our_way() -> Iterator[None]:
    """huggingface_hub with a timeout, and without its own bars and lines; what matters of these is in our errors."""
    bars, verbosity, timeout = not are_progress_bars_disabled(), logging.get_verbosity(), get_session().timeout
    disable_progress_bars()
    logging.set_verbosity(_ONLY_FATAL)
    try:
        yield
    finally:
        get_session().timeout = timeout
        logging.set_verbosity(verbosity)
        if bars:
            enable_progress_bars()


def _request(what: str, user: str, action: Callable[[], Result]) -> Result:
    """The result of a call of huggingface_hub; its errors as ours, transient ones as `TroubleError`."""
    get_session().timeout = silence_seconds(_TIMES_SILENCE)
    try:
        return action()
    except (httpx2.HTTPError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise _explain(what, user, error) from error


def _explain(what: str, user: str, error: Exception) -> Exception:
    """What to raise for an error of huggingface_hub, which may wrap one of the network."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, HfHubHTTPError) and cause.response is not None:
            return _explain_answer(what, user, cause)
        if isinstance(cause, httpx2.TransportError):
            return explain_failure(what, cause)
        if isinstance(cause, OSError) and cause.filename is not None:
            return cause
        cause = cause.__cause__
    reason = _one_line(str(error)) or type(error).__name__
    if isinstance(error, RuntimeError):  # of Xet, which has no types for them
        return TroubleError(f"it could not be sent ({reason})")
    return BertprepError(f"{what}: cannot be written to ({reason}); check HF_ENDPOINT, and whether a proxy interferes")


def _explain_answer(what: str, user: str, error: HfHubHTTPError) -> Exception:
    response = error.response
    status = response.status_code
    answer = f"the Hub answers {status} {response.reason_phrase}".rstrip()
    said = f" ({_one_line(error.server_message)})" if error.server_message else ""
    is_from_store = not str(response.request.url).startswith(absolute(""))
    if status in PASSING or (status == HTTPStatus.FORBIDDEN and is_from_store):  # its addresses are signed for a time
        return TroubleError(answer, retry_after_seconds(response.headers.get("Retry-After", "")))
    if status in (HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED):
        return TroubleError("it has changed meanwhile")
    if status == HTTPStatus.UNAUTHORIZED:
        return BertprepError(
            f"{what}: the Hub does not know the token{said}; run hf auth login, or set HF_TOKEN to a valid one"
        )
    if status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
        return BertprepError(
            f"{what}: the token of {user} may not write there{said}; give a name of your own, such as "
            f"{user}/{what.rpartition('/')[2]}, or a token of an account that may"
        )
    return BertprepError(f"{what}: {answer}{said}")


def _one_line(text: str) -> str:
    return printable(" ".join(text.split())[:_LONGEST_REASON])


def today() -> str:
    """The day in UTC, as 2026-01-31."""
    return time.strftime("%Y-%m-%d", time.gmtime())


def own_paths(state: State) -> list[str]:
    """What a repository holds that somebody put there."""
    return [path for path in state.entries if path not in MAKES_ITSELF]
