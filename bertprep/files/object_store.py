"""Reads, lists, writes and deletes objects in S3, Google Cloud Storage, Azure and compatible stores.

An upload is atomic, and stores the object's BLAKE3 in its metadata. It is made on the condition that no such object exists; if
one with the same checksum exists, the upload counts as done. Some stores ignore the condition, and multipart uploads (above
1 GiB) have none: there the last of several simultaneous writers wins. obstore retries requests, and takes addresses and
credentials from the environment.
"""

from __future__ import annotations

import errno
import os
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import PurePosixPath
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, cast

from bertprep.errors import BertprepError, UsageError, quoted
from bertprep.files.checksums import BLAKE3, digest, new_hash
from bertprep.files.object_url import ObjectUrl
from bertprep.patience import MAX_WAIT, TRIES, first_wait_seconds, silence_seconds, wait_seconds
from bertprep.terminal import print_message

BLOCK_BYTES = 16 << 20
"""Number of bytes that one request reads from a large object."""
ONE_PUT_BYTES = 1 << 30
"""Size of the largest object that is uploaded in one conditional request; larger ones are uploaded in parts."""
_PART_BYTES, _PARTS_AT_ONCE = 64 << 20, 4
_LISTED_AT_ONCE = 200  # names in a batch of a listing
_SLOWEST_BYTES_PER_SECOND = 1_000_000
_PROVIDERS = {
    "s3": (
        "S3Store", "AWS_ALLOW_HTTP",
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, as `aws configure export-credentials --format env` prints them",
    ),
    "gs": (
        "GCSStore", "GOOGLE_ALLOW_HTTP",
        "GOOGLE_APPLICATION_CREDENTIALS to the file that contains them, or run `gcloud auth application-default login`",
    ),
    "az": ("AzureStore", "AZURE_ALLOW_HTTP", "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"),
}  # fmt: skip
_WITHOUT_CREDENTIALS = (
    "Missing AccessKeyId", "Missing SecretAccessKey", "Account must be specified",
    "169.254.169.254", "metadata.google.internal", "/latest/api/token",
)  # fmt: skip
"""Parts of errors that mean missing credentials: obstore names what is missing, or the address where only machines in a cloud
get credentials."""

_TRIES = 3
"""Calls of obstore, which makes its own retries in each."""
_PASSING = ("408", "409", "425", "429")
_RETRIES = re.compile(r" in [\d.]+\w+(, after .*?retry_timeout: [\d.]+\w+)? +- ")
_CAUSE = re.compile(r'message: "([^"]+)"|"(dns error)"')
_IN_ERRORS = {"status": r"status code: (\d{3})", "code": r"<Code>(\w+)</Code>", "message": r"<Message>([^<]+)"}

Result = TypeVar("Result")
_stores: dict[tuple[Any, ...], Any] = {}


@dataclass(frozen=True, slots=True)
class Status:
    """The metadata of an object; or, with `is_folder`, of a name below which there are objects."""

    size_bytes: int = 0
    modified_ns: int = 0
    etag: str | None = None
    blake3: str | None = None  # given by the writer of the object; listings do not contain it
    is_folder: bool = False

    @property
    def version(self) -> str:
        return self.etag.removeprefix("W/").strip('"') if self.etag else str(self.modified_ns)


def in_use() -> bool:
    """Return whether this process has used a store; then a fork of it cannot, since obstore's threads do not survive one."""
    return bool(_stores)


def forget() -> None:
    """Drop all clients, so that the next request reads addresses and credentials from the environment again."""
    _stores.clear()


def look(path: ObjectUrl) -> Status:
    """Return the status of an object; raises `FileNotFoundError` if it does not exist."""

    def head(store: Any, key: str) -> Any:
        try:
            return store.get(key, options={"head": True})
        except Exception as error:
            if re.search(r"status code: 40[03]", str(error)):  # a response to HEAD has no body; one to GET gives the reason
                store.get(key)
            raise

    result = _call(path, head)
    return _status(result.meta, result.attributes.get(BLAKE3))


def is_folder(path: ObjectUrl) -> bool:
    """Return whether there are objects below this name."""

    async def has_any(store: Any, key: str) -> bool:
        async for each in _objects(path, store, key):
            if _below(key, each["path"]):
                return True
        return False

    return not path.key or _call(path, lambda store, key: _run(has_any(store, key)))


def inside(path: ObjectUrl) -> dict[str, Status]:
    """Return the objects and folders that are directly in a folder, by name.

    This lists all objects below the folder, because some stores never end a listing of a single level, and obstore requests
    pages until they do.
    """

    async def names(store: Any, key: str) -> dict[str, Status]:
        objects, folders = {}, {}
        async for each in _objects(path, store, key):
            if _below(key, each["path"]):
                name, slash, _ = each["path"][len(key) + 1 if key else 0 :].partition("/")
                if slash:
                    folders[name] = Status(is_folder=True)
                else:
                    objects[name] = _status(each)
        for name in [name for name, status in objects.items() if not status.size_bytes and name not in folders]:
            if not await _exists(store, f"{key}/{name}" if key else name):
                del objects[name]
        return {**objects, **folders}

    return _call(path, lambda store, key: _run(names(store, key)))


def tree(path: ObjectUrl) -> dict[str, Status]:
    """Return all objects below a folder by relative name, without the empty objects that mark folders.

    A request lists at most 1,000 objects.
    """

    async def below(store: Any, key: str) -> dict[str, Status]:
        start = len(key) + 1 if key else 0
        objects = _objects(path, store, key)
        return {each["path"][start:]: _status(each) async for each in objects if _below(key, each["path"])}

    found = _call(path, lambda store, key: _run(below(store, key)))
    folders = {str(above) for name in found for above in PurePosixPath(name).parents}
    return {name: status for name, status in found.items() if status.size_bytes or name not in folders}


def _run(listing: Coroutine[Any, Any, Result]) -> Result:
    """Run a listing to its end, in a separate thread if this one already has an event loop, for example in a notebook."""
    import asyncio  # takes 20 ms, which commands for local files need not pay
    from concurrent.futures import ThreadPoolExecutor

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(listing)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, listing).result()


async def _objects(path: ObjectUrl, store: Any, key: str) -> AsyncIterator[Any]:
    """Yield the metadata of all objects whose names begin with `key`; raise `BertprepError` if the listing does not end.

    A listing that yields nothing for too long is cancelled, because obstore requests more pages as long as they are empty.
    """
    import asyncio

    listing = store.list(key or None, chunk_size=_LISTED_AT_ONCE)
    seen: set[int] = set()
    names = name_bytes = 0
    while True:
        try:
            found = await asyncio.wait_for(anext(listing), _silence_of_listing())
        except StopAsyncIteration:
            return
        except asyncio.TimeoutError:  # before Python 3.11 this is not the built-in TimeoutError
            raise _endless(path, "responds, but lists nothing") from None
        for each in found:
            yield each
        seen.update(hash(each["path"]) for each in found)
        names += len(found)
        name_bytes += sum(len(each["path"]) for each in found)
        if names > 2 * (len(seen) + _LISTED_AT_ONCE):
            raise _endless(path, "lists the same names again and again")
        from bertprep.untrusted import MAX_LISTED, MAX_LISTED_BYTES  # imported here, since most commands list no store

        if names > MAX_LISTED or name_bytes > MAX_LISTED_BYTES:
            raise _endless(path, f"lists more than {MAX_LISTED:,} names, or more than {MAX_LISTED_BYTES >> 20} MiB of names")


def _silence_of_listing() -> float:
    """Return the seconds after which a listing without a name counts as endless: the time of all retries of a request."""
    return TRIES * silence_seconds()


def _endless(path: ObjectUrl, why: str) -> BertprepError:
    """Return the error for a listing that does not end, or is too large."""
    return BertprepError(f"{path}: the store {why}; name a folder with fewer objects, or check the address of the store")


async def _exists(store: Any, key: str) -> bool:
    """Return whether an object has exactly this name.

    Web consoles mark an empty folder by an object named `folder/`, which obstore lists as `folder`.
    """
    try:
        await store.head_async(key)
    except FileNotFoundError:
        return False
    return True


def read(path: ObjectUrl, most_bytes: int | None = None) -> tuple[Status, bytes | None]:
    """Return the status of an object, and its bytes unless there are more than `most_bytes`, in one request."""
    most = BLOCK_BYTES if most_bytes is None else most_bytes

    def get(store: Any, key: str) -> tuple[Status, bytes | None]:
        result = store.get(key)
        status = _status(result.meta, result.attributes.get(BLAKE3))
        return status, bytes(result.bytes()) if status.size_bytes <= most else None

    return _call(path, get)


def read_head(path: ObjectUrl, size_bytes: int) -> bytes:
    """Return the first `size_bytes` bytes of an object, or all of it if it has fewer."""
    try:
        return read_range(path, 0, size_bytes)
    except BertprepError:  # stores refuse a range of an empty object, each with another error
        if not look(path).size_bytes:
            return b""
        raise


def read_range(path: ObjectUrl, start: int, size_bytes: int, status: Status | None = None) -> bytes:
    """Return `size_bytes` bytes of an object from byte `start` on, or fewer at its end.

    With `status`, raises `BertprepError` if the object has changed since that status was read.
    """
    from obstore.exceptions import PreconditionError

    options: dict[str, Any] = {"range": (start, start + size_bytes)}
    if status and status.etag:
        options["if_match"] = status.etag

    def get(store: Any, key: str) -> tuple[Status, bytes]:
        result = store.get(key, options=options)
        return _status(result.meta), bytes(result.bytes())

    try:
        now, data = _call(path, get)
    except FileNotFoundError as error:
        raise lost(path) if status else error from error
    except PreconditionError:
        now, data = Status(), b""
    if status and (now.version != status.version or now.size_bytes != status.size_bytes):  # some stores do not check if_match
        raise BertprepError(
            f"{path}: was replaced while it was read; make sure that nothing else writes there, and run the command again"
        )
    return data


def download(path: ObjectUrl, status: Status, file: Any = None, *, algorithm: str = BLAKE3) -> str:
    """Read the object with this status in blocks, write them to `file` if it is given, and return the checksum."""
    if status.is_folder:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    hashed = new_hash(algorithm)
    for start in range(0, status.size_bytes, BLOCK_BYTES):
        block = read_range(path, start, min(BLOCK_BYTES, status.size_bytes - start), status)
        hashed.update(block)
        if file is not None:
            file.write(block)
    return str(hashed.hexdigest())


def lost(path: ObjectUrl) -> BertprepError:
    """Return the error for an object that the store listed but no longer has."""
    return BertprepError(
        f"{path}: the store listed it, but no longer has it; make sure that nothing removes objects there, and run the command "
        "again"
    )


def put(path: ObjectUrl, data: Any, blake3: str | None = None, *, replace: bool = False) -> bool:
    """Upload an object from a buffer; return False if it already exists with these bytes.

    If it exists with other bytes, raise `AnotherObjectError`, or replace it if `replace` is set.
    """
    from obstore.exceptions import AlreadyExistsError

    view = memoryview(data).cast("B")
    blake3 = blake3 or digest(view)
    if not replace and (there := _blake3_there(path)):
        return _compare(path, there, blake3)
    is_large = len(view) > ONE_PUT_BYTES

    def write(mode: str, store: Any, key: str) -> None:
        more = {"use_multipart": is_large, "chunk_size": _PART_BYTES, "max_concurrency": _PARTS_AT_ONCE}
        store.put(key, view, attributes={BLAKE3: blake3}, mode=mode, **more)

    mode = "overwrite" if replace or is_large else "create"
    for tried in range(1, TRIES + 1):
        try:
            _call(path, partial(write, mode), put_bytes=len(view), tries=1)
            return True
        except AlreadyExistsError:
            if there := _blake3_there(path):
                return _compare(path, there, blake3)
            time.sleep(wait_seconds(tried))  # the store may have refused both of two simultaneous writers
        except _NotSupportedError:
            if mode == "overwrite":
                raise
            mode = "overwrite"
        except _NoAnswerError:
            if _blake3_there(path) == blake3:  # the upload succeeded, and only the response was lost
                return True
            if tried >= _TRIES:
                raise
            print_message(f"{path}: the store does not respond; retrying")
    raise BertprepError(f"{path}: others write and remove it again and again; make sure that nothing else writes there")


def _blake3_there(path: ObjectUrl) -> str | None:
    try:
        status = look(path)
        if status.blake3 and re.fullmatch("[0-9a-f]{64}", status.blake3):
            return status.blake3
        return download(path, status)
    except FileNotFoundError:
        return None


def _compare(path: ObjectUrl, there: str, blake3: str) -> bool:
    if there == blake3:
        return False
    raise AnotherObjectError(
        f"{path}: already exists with blake3 {there[:16]}..., but this run made it with {blake3[:16]}...; the two runs differ "
        "in their text, settings or versions: choose another name, or remove the object and run the command again"
    )


def delete(path: ObjectUrl) -> None:
    """Remove an object; raises `FileNotFoundError` if the store reports that it did not exist."""
    _call(path, lambda store, key: store.delete(key))


def delete_all(folder: ObjectUrl, names: Collection[str]) -> None:
    """Remove these objects from a folder; S3 removes up to 1,000 in one request."""
    keys = [(folder / name).key for name in names]
    try:
        if keys:
            _call(folder, lambda store, _: store.delete(keys))
    except FileNotFoundError:  # the store stopped at an object that did not exist, so others may be left
        for name in names:
            with suppress(FileNotFoundError):
                delete(folder / name)


class AnotherObjectError(BertprepError):
    """An object of this name already exists with other bytes."""


class _NoAnswerError(BertprepError):
    """The store still failed, or could not be reached, after all retries."""


class _NotSupportedError(BertprepError):
    """The store does not support a request, such as an upload on the condition that the object does not exist."""


def _below(key: str, path: str) -> bool:
    return path not in (key, "") and path.startswith(f"{key}/" if key else "")


def _status(meta: Any, blake3: str | None = None) -> Status:
    return Status(meta["size"], int(meta["last_modified"].timestamp() * 1e9), meta["e_tag"], blake3)


def _store(path: ObjectUrl, put_bytes: int) -> Any:
    process, is_large = os.getpid(), put_bytes > BLOCK_BYTES
    name = (process, path.scheme, path.bucket, is_large)
    if name not in _stores:
        if any(of_process != process for of_process, *_ in _stores):
            raise BertprepError(
                f"{path}: this process was forked from one that had used a store, and the store's client does not survive a "
                'fork; start such processes with spawn, for example by DataLoader(multiprocessing_context="spawn")'
            )
        try:
            import obstore.store
        except ImportError as error:
            raise UsageError(f"{path}: URLs of stores need obstore; install it with pip install 'bertprep[cloud]'") from error
        kind, allow_http, _ = _PROVIDERS[path.scheme]
        unit, silence = first_wait_seconds(), silence_seconds()
        answer = silence + (ONE_PUT_BYTES / _SLOWEST_BYTES_PER_SECOND if is_large else 0)
        backoff = {"init_backoff": timedelta(seconds=unit), "max_backoff": timedelta(seconds=MAX_WAIT * unit), "base": 2}
        client = {
            "allow_http": os.environ.get(allow_http, "").lower() in ("1", "true", "yes"),
            "connect_timeout": timedelta(seconds=min(silence, 5.0)),
            "read_timeout": timedelta(seconds=answer),
            "timeout": timedelta(seconds=max(answer, 20 * silence)),
        }
        retries = {"max_retries": TRIES - 2, "backoff": backoff, "retry_timeout": timedelta(seconds=TRIES * silence)}
        try:
            _stores[name] = getattr(obstore.store, kind)(path.bucket, client_options=client, retry_config=retries)
        except Exception as error:  # for example, missing credentials
            raise _explained(path, error) from error
    return _stores[name]


def _call(path: ObjectUrl, action: Callable[[Any, str], Result], *, put_bytes: int = 0, tries: int = _TRIES) -> Result:
    """Call `action` with the bucket's client and the object's key, retry where obstore does not, and return the result.

    Raises `FileNotFoundError`, obstore's errors for conditions that failed, or `BertprepError` for anything else.
    """
    for tried in range(1, tries + 1):
        try:
            return _interruptibly(path, partial(action, _store(path, put_bytes), path.key))
        except _NoAnswerError:
            if tried == tries:
                raise
            print_message(f"{path}: the store does not respond; retrying")
    raise AssertionError


def take(queue: SimpleQueue[Result]) -> Result:
    while True:
        with suppress(Empty):
            return queue.get(timeout=1)


def _interruptibly(path: ObjectUrl, action: Callable[[], Result]) -> Result:
    """Return the result of an action, and let Ctrl-C in the main thread interrupt it at once."""
    outcome: SimpleQueue[tuple[Result | None, Exception | None]] = SimpleQueue()

    def act() -> None:
        try:
            outcome.put((action(), None))
        except Exception as error:
            outcome.put((None, error))

    if threading.current_thread() is threading.main_thread():
        threading.Thread(target=act, daemon=True).start()
    else:
        act()
    result, error = take(outcome)
    if isinstance(error, BertprepError):
        raise error
    if error is not None:
        raise _explained(path, error) from error
    return cast(Result, result)


def _explained(path: ObjectUrl, error: Exception) -> Exception:
    text, _, details = str(error).partition("\nDebug source:")
    found = {key: match[1] for key, pattern in _IN_ERRORS.items() if (match := re.search(pattern, text))}
    status, code = found.get("status", ""), found.get("code", "")
    if status:
        answer, why = f"the store responds {status} {quoted(code)}", found.get("message")
    else:
        cause = _CAUSE.search(details)
        answer, why = quoted(_RETRIES.sub(": ", text)), cause and (cause[1] or cause[2])
    if why:
        answer = f"{answer} ({quoted(why)})"
    _, allow_http, variables = _PROVIDERS[path.scheme]
    if code in ("NoSuchBucket", "ContainerNotFound", "InvalidBucketName"):
        bucket = f"{path.scheme}://{path.bucket}"
        return BertprepError(f"{bucket}: there is no such bucket; create it, or check its name and the store's address")
    if "uploadId=" in text:  # completing a multipart upload failed, or aborting it after a failure that is not reported
        return _NoAnswerError(f"{path}: the multipart upload failed ({answer}); the same command resumes")
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "there is no such object", str(path))
    if type(error).__name__ in ("AlreadyExistsError", "PreconditionError", "NotModifiedError"):
        return error
    if type(error).__name__ == "NotSupportedError" or "not implemented" in text or status == "501":
        return _NotSupportedError(
            f"{path}: {answer}; the store does not support the request; check that {path.scheme}:// is the right kind of store"
        )
    if any(sign in text for sign in _WITHOUT_CREDENTIALS):
        return BertprepError(f"{path}: no credentials were found for it; set {variables}")
    if "invalid path" in text:
        return BertprepError(
            f"{path}: contains an object whose name is not a valid path; rename that object, or name a folder below this one"
        )
    is_refused = status.startswith(("3", "4")) and status not in _PASSING and code != "RequestTimeout"
    if is_refused or "builder error" in text or "redirect" in text:
        return BertprepError(
            f"{path}: {answer}; check the URL, the credentials in the environment (they may have expired), their permissions, "
            f"the region (AWS_REGION), the address (https unless {allow_http}=true) and this machine's clock"
        )
    return _NoAnswerError(f"{path}: {answer}; retries are exhausted; the same command resumes")
