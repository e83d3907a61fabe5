"""Fetch files from web addresses; retry and explain failed requests of all kinds.

A file is received as `NAME.VERSION.part`, where VERSION is a hash of the server's ETag or date. If that is unchanged, an
interrupted transfer resumes where it stopped. There is no checksum, so only the size is checked. Proxies and certificates come
from the environment.
"""

import errno
import hashlib
import os
import re
import socket
import ssl
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

import httpx2
from huggingface_hub import constants
from huggingface_hub.errors import FileMetadataError, GatedRepoError, OfflineModeIsEnabled

from bertprep.errors import BertprepError, UsageError, quoted
from bertprep.files.atomic import explain_write_error, sync_folder
from bertprep.files.lock import locked
from bertprep.patience import PASSING, TRIES, silence_seconds, wait_seconds
from bertprep.progress import SILENT, Progress, Reporter
from bertprep.sources.listing import Listing, RemoteFile, check_on_disk, load_listing, save_listing
from bertprep.terminal import printable, warn
from bertprep.untrusted import check_name
from bertprep.version import __version__
from bertprep.work.layout import Workspace

TRIES_TO_LIST = 6
"""The tries of a listing: few, so that a server that cannot be reached is reported after 31 s."""
PART = ".part"
_MAX_RETRY_AFTER_SECONDS = 300
_OURS = __name__.partition(".")[0]
_NETWORK_PACKAGES = ("httpx2", "httpcore2", "huggingface_hub", "hf_xet", "datasets", "fsspec")
_NETWORK_ERRORS = (ConnectionError, TimeoutError, socket.gaierror, ssl.SSLError)
_NETWORK_ERRNOS = (errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH)
Result = TypeVar("Result")


class RequestError(BertprepError):
    """A failed request. `is_transient` means that another try may succeed."""

    def __init__(self, message: str, *, status: int = 0, is_transient: bool = False, retry_after_seconds: int = 0) -> None:
        super().__init__(message)
        self.status, self.is_transient, self.retry_after_seconds = status, is_transient, retry_after_seconds


def retry(
    what: str,
    action: Callable[[], Result],
    *,
    tries: int = TRIES,
    reached: Callable[[], int] = lambda: 0,
    reporter: Reporter = SILENT,
) -> Result:
    """Return the result of `action`, which is repeated with growing waits after transient failures.

    It fails after `tries` failures in a row without progress, which is a growing value of `reached`. Raises `RequestError`, one
    line that begins with `what`.
    """
    tried, best = 0, reached()
    while True:
        try:
            return action()
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError, LookupError, TypeError, RuntimeError) as error:
            if not _is_of_network(error):  # a disk error, whose file the caller knows, or a bug
                raise
            failure = explain(what, error)
            tried = 1 if reached() > best else tried + 1
            best = max(best, reached())
            if not failure.is_transient:
                raise failure from error
            if tried >= tries:
                raise RequestError(f"{failure}; retries exhausted after {tries} tries; the same command resumes") from error
        seconds = max(wait_seconds(tried), failure.retry_after_seconds)
        reporter.message(f"{failure}; trying again in {seconds:.0f} s (try {tried + 1} of {tries})")
        time.sleep(seconds)


def _is_of_network(error: Exception) -> bool:
    """Return whether the error comes from the network: a network library raised it, or an answer could not be read."""
    if isinstance(error, httpx2.HTTPError | httpx2.InvalidURL):
        return True
    if isinstance(error, ValueError):  # a library or bertprep could not read an answer
        return True
    if isinstance(error, OSError) and error.errno:
        is_of_file = error.filename is not None or isinstance(error, BrokenPipeError)
        return not is_of_file and (isinstance(error, _NETWORK_ERRORS) or error.errno in _NETWORK_ERRNOS)
    raised_in = ""  # the innermost of these packages in the trace, since they call each other
    for frame, _ in traceback.walk_tb(error.__traceback__):
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package in (_OURS, *_NETWORK_PACKAGES):
            raised_in = package
    return raised_in in _NETWORK_PACKAGES


def explain(what: str, error: BaseException) -> RequestError:
    """Return the one-line error for a failed request, from the first known cause in its chain."""
    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(cause)
    for cause in causes:
        if isinstance(cause, OfflineModeIsEnabled):
            return RequestError(f"{what}: must be fetched, but HF_HUB_OFFLINE forbids any request; unset it")
        if isinstance(cause, FileMetadataError):
            break
        if isinstance(cause, httpx2.HTTPError) and isinstance(response := getattr(cause, "response", None), httpx2.Response):
            return _explain_answer(what, cause, response)
        if isinstance(cause, httpx2.TransportError):
            return _explain_transport(what, cause, causes)
    reason = printable(quoted(str(error))) or type(error).__name__
    if isinstance(error, httpx2.HTTPError | httpx2.InvalidURL | FileMetadataError | ValueError | LookupError | TypeError):
        return RequestError(f"{what}: does not answer as expected ({reason}); check the address, HF_ENDPOINT and the proxy")
    return RequestError(f"{what}: the transfer failed ({reason})", is_transient=True)  # a wrong size, or an error from Xet


def _explain_answer(what: str, error: httpx2.HTTPError, response: httpx2.Response) -> RequestError:
    status, said = response.status_code, getattr(error, "server_message", None)
    answer = f"{what}: the server answers {status} {quoted(response.reason_phrase)}".rstrip()
    if said:
        answer += f" ({printable(quoted(said))})"
    is_from_store = what.startswith(constants.ENDPOINT) and not str(response.request.url).startswith(constants.ENDPOINT)
    has_expired = status == 403 and bool(response.history or is_from_store)  # redirects are signed for a limited time
    if status in PASSING or has_expired:
        after = response.headers.get("Retry-After", "").strip()
        seconds = min(int(after), _MAX_RETRY_AFTER_SECONDS) if re.fullmatch("[0-9]{1,9}", after) else 0
        return RequestError(answer, is_transient=True, retry_after_seconds=seconds)
    if status in (409, 412):
        return RequestError(f"{what}: has changed in the meantime", is_transient=True)
    if isinstance(error, GatedRepoError):
        answer = (
            f"{what}: is only for accounts that have accepted its conditions; accept them on that page, wait if the owners "
            "must approve, and set HF_TOKEN to a token of your account"
        )
    elif status in (401, 403, 404):
        answer += (
            "; it does not exist, or your token has no access to it; check its name, or set HF_TOKEN to the token of an "
            "account that has access (hf auth login)"
        )
    else:
        answer += "; check the address and the proxy, or try again later"
    return RequestError(answer, status=status)


def _explain_transport(what: str, error: httpx2.TransportError, causes: Sequence[BaseException]) -> RequestError:
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError | httpx2.UnsupportedProtocol) or (
            isinstance(cause, socket.gaierror) and cause.errno != socket.EAI_AGAIN
        ):
            reason = printable(quoted(str(cause)))
            advice = "check the address (http or https), the network and the proxy; SSL_CERT_FILE names the proxy's certificate"
            return RequestError(f"{what}: cannot be fetched ({reason}); {advice}")
    return RequestError(f"{what}: no answer ({printable(quoted(str(error))) or type(error).__name__})", is_transient=True)


def name_in_url(url: str) -> str:
    """Return the name of the file that an address ends with.

    >>> name_in_url("https://dumps.wikimedia.org/enwiki/latest/enwiki-latest-pages-articles.xml.bz2?again=1")
    'enwiki-latest-pages-articles.xml.bz2'
    """
    if printable(url) != url:
        raise UsageError(f"{url}: is not a web address; give the address of one file")
    try:
        return check_name(unquote(urlsplit(url).path.rpartition("/")[2], errors="strict"))
    except ValueError as error:
        raise UsageError(f"{url}: does not end with a file's name ({error}); give the address of one file") from error


def list_url(url: str, *, reporter: Reporter = SILENT) -> Listing:
    """Return the listing of the one file at `url`. It sends a GET, since not all servers answer HEAD."""
    name = name_in_url(url)

    def ask() -> httpx2.Headers:
        with _get(url, {}) as response:
            return response.headers

    headers = retry(url, ask, tries=TRIES_TO_LIST, reporter=reporter)
    length = headers.get("Content-Length", "")
    size_bytes = int(length) if re.fullmatch("[0-9]{1,18}", length) else None
    version = _version_in(headers)
    return Listing({"dump": url}, version or "", (RemoteFile(name, url, size_bytes, etag=version),))


def fetch_web_file(url: str, workspace: Workspace, *, reporter: Reporter) -> Path:
    """Return the file at `url`, in a folder of its own in the workspace. It is fetched again if the server reports a change."""
    name_in_url(url)
    folder = workspace.download("web") / hashlib.sha256(url.encode()).hexdigest()[:16]
    check_on_disk(folder)
    with locked(folder):
        kept = load_listing(folder)
        is_there = kept is not None and not kept.missing(folder)
        try:
            listing = list_url(url, reporter=reporter)
        except BertprepError as error:
            if kept is None or not is_there:
                raise
            warn(f"{error}; using the file that was fetched earlier")
            return folder / kept.files[0].name
        path = folder / listing.files[0].name
        if listing != kept:
            path.unlink(missing_ok=True)
            save_listing(listing, folder)
        if listing != kept or not is_there:
            fetch_url(listing.files[0], path, reporter=reporter)
    return path


def fetch_url(file: RemoteFile, path: Path, *, reporter: Reporter = SILENT) -> None:
    """Fetch a file to `path`, continuing where an earlier run stopped. The caller holds the folder's lock."""
    part = _part_of(file, path)
    for other in path.parent.glob(f"*{PART}"):
        if other != part or not file.etag:
            other.unlink()

    def reached() -> int:
        return part.stat().st_size if part.exists() else 0

    try:
        with reporter.progress(path.name, 1, "files") as shown:
            while reached() != file.size_bytes:
                retry(file.url, lambda: _receive(file, part, reached(), shown), reached=reached, reporter=reporter)
                if file.size_bytes is None:
                    break
                if reached() > file.size_bytes:
                    part.unlink()
                    raise BertprepError(f"{file.url}: has more bytes than the expected {file.size_bytes:,}; download it again")
            shown.advance()
        part.touch()  # an empty file has none yet
        part.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise explain_write_error(path, error) from error


def _receive(file: RemoteFile, part: Path, start: int, shown: Progress) -> None:
    headers = {"Range": f"bytes={start}-", "If-Range": file.etag} if start and file.etag else {}
    with _get(file.url, headers) as response:
        if file.etag and (found := _version_in(response.headers)) != file.etag:
            raise RequestError(
                f"{file.url}: has changed since it was listed (its version is {quoted(str(found))}, expected {file.etag}); run "
                "the command again, or remove what was fetched so far"
            )
        is_rest = response.status_code == 206
        if is_rest and not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            raise RequestError(f"{file.url}: sent another range than the requested one from byte {start:,} on")
        if response.status_code == 416:
            raise RequestError(f"{file.url}: has no byte {start:,}, so it is not the file that was listed; download it again")
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (os.O_APPEND if is_rest else os.O_TRUNC)
        with open(part, "wb", opener=lambda path, _: os.open(path, flags, 0o666)) as out:
            for block in response.iter_raw():
                out.write(block)
                out.flush()  # so that a kill loses nothing that has arrived
                shown.advance(0, MB=len(block) / 1e6)


@contextmanager
def _get(url: str, headers: Mapping[str, str]) -> Iterator[httpx2.Response]:
    if constants.is_offline_mode():
        raise OfflineModeIsEnabled(url)
    own = {
        "User-Agent": f"bertprep/{__version__}",
        "Accept-Encoding": "identity",
    }  # so that sizes and ranges are those of the file
    with (
        httpx2.Client(timeout=silence_seconds(), follow_redirects=True, headers=own) as client,
        client.stream("GET", url, headers=headers) as response,
    ):
        if response.status_code != 416:
            response.raise_for_status()
        yield response


def _version_in(headers: httpx2.Headers) -> str | None:
    etag: str = headers.get("ETag", "")
    return etag if etag.startswith('"') else headers.get("Last-Modified")


def _part_of(file: RemoteFile, path: Path) -> Path:
    version = hashlib.sha256((file.etag or "").encode()).hexdigest()[:16]
    return path.with_name(f"{path.name}.{version}{PART}")
