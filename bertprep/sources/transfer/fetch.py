"""Downloads the files of a listing, several at once, over an unreliable network.

Each file resumes after a cut connection or a killed process; at most the bytes in flight are sent twice. An existing file is
kept if its checksum is right, else fetched again. A file whose bytes differ from the listing is fetched once more from the
start, and never gets its final name.
"""

import re
import threading
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from http import HTTPStatus
from pathlib import Path

import httpx2

from bertprep.errors import BertprepError
from bertprep.files.free_space import check_free_space
from bertprep.progress import SILENT, Reporter, say
from bertprep.sources.transfer.http import Patience, TroubleError, Web, absolute
from bertprep.sources.transfer.listing import Listing, RemoteFile, check_on_disk, missing
from bertprep.sources.transfer.partial import PartialFile, partial_bytes, problem_of
from bertprep.sources.transfer.progress import TransferProgress

FETCHES = 2
"""Attempts at one file from the start if its bytes are wrong."""

SECONDS_TO_STOP = 2.0
WORTH_A_LINE_BYTES = 1_000_000_000
"""Checking that many bytes takes seconds, so it is announced."""


class _WrongBytesError(Exception):
    """The server's file is not the one in the listing."""


class _StoppedError(Exception):
    """Another file failed, or the user stopped the run."""


def fetch(
    listing: Listing, folder: Path, *, connections: int = 4, reporter: Reporter = SILENT, label: str = "download"
) -> None:
    """Download every file of `listing` to `folder`, verified; the caller holds the folder's lock (`locked`).

    Raises `BertprepError` if a file cannot be downloaded; received bytes are kept for the next call.
    """
    check_on_disk(folder)
    check_free_space({folder: missing_bytes(listing, folder)})
    there_bytes = sum(path.stat().st_size for file in listing.files if (path := folder / file.name).is_file())
    if reporter.enabled and there_bytes >= WORTH_A_LINE_BYTES:
        say(f"{label}: checking the {there_bytes / 1e6:,.0f} MB that are there")
    with TransferProgress(label, listing.files, enabled=reporter.enabled) as shown, Web(connections) as web:
        transfer = _Transfer(web, shown, reporter)
        pool = ThreadPoolExecutor(connections)
        futures = [pool.submit(transfer.provide, file, folder / file.name) for file in listing.files]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:  # one failed file ends the run, as Ctrl-C does; the other threads notice when their next bytes arrive
            transfer.stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            wait([future for future in futures if future.running()], timeout=SECONDS_TO_STOP)
    errors = [error for future in futures if future.done() and not future.cancelled() and (error := future.exception())]
    if errors:
        raise next((error for error in errors if not isinstance(error, _StoppedError)), errors[0])


def missing_bytes(listing: Listing, folder: Path) -> int:
    """The bytes still to be downloaded, as far as sizes are known."""
    return sum((file.size_bytes or 0) - partial_bytes(folder / file.name, file) for file in missing(listing, folder))


class _Transfer:
    """The shared state of the threads of one `fetch`, and their work on a file."""

    def __init__(self, web: Web, shown: TransferProgress, reporter: Reporter) -> None:
        self._web, self._shown, self._reporter = web, shown, reporter
        self.stop = threading.Event()

    def provide(self, file: RemoteFile, path: Path) -> None:
        """Keep a correct file, fetch any other."""
        if path.is_file():
            problem = problem_of(path, file)
            if problem is None:
                self._shown.finish(file, path.stat().st_size)
                return
            say(f"{path}: {problem}; it is fetched again")
            path.unlink()
        for _ in range(FETCHES):
            with PartialFile(path, file) as partial:
                problem = self._receive(file, partial)
                if problem is None:
                    partial.commit()
                    self._shown.finish(file, partial.size_bytes)
                    return
                partial.discard()
        raise BertprepError(
            f"{path}: {absolute(file.url)} {problem}; downloaded again from the start it was wrong once more, so the source "
            f"has changed or something on the way alters it; try another network, or remove {path.parent} and download again"
        )

    def _receive(self, file: RemoteFile, partial: PartialFile) -> str | None:
        """Receive all bytes, over as many connections as needed; returns the fault in them, or None."""
        patience = Patience(str(partial.path), stop=self.stop, reporter=self._reporter)
        patience.note_progress(partial.size_bytes)
        self._shown.begin(file, partial.size_bytes)
        while partial.size_bytes != file.size_bytes:
            try:
                self._receive_some(file, partial, patience)
                break
            except TroubleError as trouble:
                if partial.size_bytes != file.size_bytes:
                    patience.wait(trouble)
                    self._check_stop()
            except _WrongBytesError as wrong:
                return str(wrong)
        return partial.problem()

    def _receive_some(self, file: RemoteFile, partial: PartialFile, patience: Patience) -> None:
        """Receive over one connection; returns when the file is complete, raises `TroubleError` if another try is needed."""
        first = partial.size_bytes
        headers = {"Range": f"bytes={first}-"} if first else {}
        if first and file.etag:
            headers["If-Range"] = file.etag
        with self._web.get(file.url, headers, expect={HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE}) as response:
            _check_answer(response, file, first)
            if first and response.status_code != HTTPStatus.PARTIAL_CONTENT:
                partial.restart()  # the server does not support ranges, or the file has changed
            for data in response.iter_raw():
                partial.append(data)
                patience.note_progress(partial.size_bytes)
                self._shown.reach(file, partial.size_bytes)
                self._check_stop()
                if file.size_bytes is not None and partial.size_bytes > file.size_bytes:
                    raise _WrongBytesError(f"has more than the {file.size_bytes:,} bytes expected")
        if file.size_bytes is not None and partial.size_bytes < file.size_bytes:
            raise TroubleError(f"the answer ended after {partial.size_bytes:,} of {file.size_bytes:,} bytes")

    def _check_stop(self) -> None:
        if self.stop.is_set():
            raise _StoppedError


def validator_of(headers: httpx2.Headers) -> str | None:
    """The identity of a version of a file: a strong ETag, or the date of its last change."""
    etag = headers.get("ETag", "")
    return etag if etag.startswith('"') else headers.get("Last-Modified")


def _check_answer(response: httpx2.Response, file: RemoteFile, first: int) -> None:
    """Raise if a response cannot be the bytes of the wanted file from `first` on."""
    if file.etag and (found := validator_of(response.headers)) != file.etag:
        raise _WrongBytesError(f"has changed since it was listed (it is {found}, expected {file.etag})")
    if response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        raise _WrongBytesError(f"has no bytes from {first:,} on, expected {file.size_bytes or 'more'}")
    if response.status_code == HTTPStatus.PARTIAL_CONTENT:
        text = response.headers.get("Content-Range", "")
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", text)
        sizes = {"*", *([] if file.size_bytes is None else [str(file.size_bytes)])}
        if not match or int(match[1]) != first or (file.size_bytes is not None and match[2] not in sizes):
            raise _WrongBytesError(f"answers with the range {text!r}, expected one from byte {first:,} of {file.size_bytes}")
