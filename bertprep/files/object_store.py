"""Objects of S3, Google Cloud Storage, Azure and compatible stores: read, listed, and written once.

A store has no rename and no lock, but a write is whole or not there, and "only if there is none" is a condition that it checks
itself. So a file is one such write, with its sha256 in the object's metadata: the second writer of a file learns that it is
there, compares the sums, and equal ones are success, also for its own write whose answer was lost. Some stores refuse the
condition or ignore it, which the first small write finds out: there an object is looked for before it is written, and of two
writers in the same moment the last wins.

Requests are retried with patience, as downloads are: a store that is busy or fails (500, 503 SlowDown, 429), a connection that
is cut or silent. Addresses and credentials are those that obstore takes from the environment (AWS_ACCESS_KEY_ID,
AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME ...). obstore is imported when a URL is used.
"""

from __future__ import annotations

import errno
import hashlib
import os
import random
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import PurePosixPath
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar, cast

from bertprep.errors import BertprepError, UsageError, quoted
from bertprep.patience import PASSING, TRIES, first_wait_seconds, silence_seconds, wait_seconds

if TYPE_CHECKING:
    from bertprep.files.places import ObjectPath

SHA256 = "sha256"
"""The name of the sum in an object's metadata."""
BLOCK_BYTES = 16 << 20
"""What one request reads of a large object."""
ONE_PUT_BYTES = 1 << 30
"""The largest object that is written in one request, whose condition the store checks; larger ones go up in parts."""
_PART_BYTES, _PARTS_AT_ONCE = 64 << 20, 4
MOST_OBJECTS = 2_000_000
"""The most objects below a folder, whose listing takes about a gigabyte."""
_FOLDER_SILENCES, _TREE_SILENCES = 4, 20
"""What all pages of a listing may take, 2 and 10 minutes: obstore follows them without end, and keeps those of a folder."""
_MOST_TO_TRY_BYTES = 1 << 20  # of what is sent twice to see what a store does

_SLOWEST_BYTES_PER_SECOND = 1_000_000
_PASSING = PASSING | {409}  # of two conditional writes in the same moment
_PASSING_CODES = ("RequestTimeout",)  # which S3 gives the status 400
_OF_PROVIDER = {
    "s3": (
        "S3Store", "AWS_ALLOW_HTTP",
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, as `aws configure export-credentials --format env` prints them",
    ),
    "gs": (
        "GCSStore", "GOOGLE_ALLOW_HTTP",
        "GOOGLE_APPLICATION_CREDENTIALS to a file of them, or run `gcloud auth application-default login`",
    ),
    "az": ("AzureStore", "AZURE_ALLOW_HTTP", "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"),
}  # fmt: skip
_WITHOUT_CREDENTIALS = (
    "Missing AccessKeyId", "Missing SecretAccessKey", "Account must be specified",
    "169.254.169.254", "metadata.google.internal", "/latest/api/token",
)  # fmt: skip
"""In errors: what is missing, and where machines of a cloud ask for credentials; elsewhere nobody answers there."""
MEMORY = "memory"
SCHEMES = (*_OF_PROVIDER, MEMORY)

Result = TypeVar("Result")
_stores: dict[tuple[Any, ...], Any] = {}
_memory: dict[str, Any] = {}
_checks_conditions: dict[tuple[str, str], bool] = {}
"""Of buckets: whether the store was seen to check "only if there is none"."""
_without_conditions: set[tuple[str, str]] = set()
"""Of stores that refuse a request with that condition."""
_chance = random.Random()


@dataclass(frozen=True)
class Status:
    """What a store tells of an object, or that a name is that of a folder."""

    size_bytes: int = 0
    modified_ns: int = 0
    etag: str | None = None
    sha256: str | None = None  # as its writer says; a listing does not tell it
    is_folder: bool = False

    @property
    def version(self) -> str:
        """The same of a listing and of the object itself, as long as the object is."""
        return self.etag.removeprefix("W/").strip('"') if self.etag else str(self.modified_ns)


def in_use() -> bool:
    """Whether this process has used a store; a fork of it cannot use one, since obstore's threads do not survive it."""
    return bool(_stores)


def is_in_memory() -> bool:
    """Whether this process has a store in its memory, which other processes cannot use."""
    return bool(_memory)


def forget() -> None:
    """Drop the clients, with their addresses and credentials."""
    for known in (_stores, _memory, _checks_conditions, _without_conditions):
        known.clear()


def look(path: ObjectPath) -> Status:
    """The status of an object; raises `FileNotFoundError`."""

    def ask(store: Any, key: str) -> Any:
        try:
            return store.get(key, options={"head": True})
        except Exception as error:
            if re.search(r"status code: 40[03]", str(error)):  # an answer to HEAD has no body, and so no reason
                store.get(key)
            raise

    result = _call(path, ask)
    return _status(result.meta, result.attributes.get(SHA256))


def is_folder(path: ObjectPath) -> bool:
    """Whether there are objects below this name."""

    def first(store: Any, key: str) -> bool:
        return not key or any(any(_below(key, each["path"]) for each in page) for page in store.list(key))

    return _call(path, first, seconds=silence_seconds(_FOLDER_SILENCES))


def inside(path: ObjectPath) -> dict[str, Status]:
    """The names in a folder: objects, and folders of them."""
    found = _call(path, lambda store, key: store.list_with_delimiter(key or None), seconds=silence_seconds(_FOLDER_SILENCES))
    objects = {each["path"].rpartition("/")[2]: _status(each) for each in found["objects"] if _below(path.key, each["path"])}
    folders = {each.rpartition("/")[2]: Status(is_folder=True) for each in found["common_prefixes"] if _below(path.key, each)}
    return {**objects, **folders}


def tree(path: ObjectPath) -> dict[str, Status]:
    """All objects below a folder, by their names relative to it: a request for each thousand.

    An empty one that has the name of a folder marks it, as consoles do, and is left out.
    """

    def everything(store: Any, key: str) -> dict[str, Status]:
        start = len(key) + 1 if key else 0
        pages: Iterator[list[Any]] = store.list(key or None)
        there: dict[str, Status] = {}
        for each in (each for page in pages for each in page if _below(key, each["path"])):
            if each["path"][start:] in there or len(there) == MOST_OBJECTS:
                raise _endless(path, f"object {len(there) + 1:,} is {each['path'][:200]}")
            there[each["path"][start:]] = _status(each)
        return there

    found = _call(path, everything, seconds=silence_seconds(_TREE_SILENCES))
    folders = {str(above) for name in found for above in PurePosixPath(name).parents}
    return {name: status for name, status in found.items() if status.size_bytes or name not in folders}


def read(path: ObjectPath, most_bytes: int | None = None) -> tuple[Status, bytes | None]:
    """The status of an object, and its bytes if there are at most so many, by default those of a block: one request."""
    most = BLOCK_BYTES if most_bytes is None else most_bytes

    def get(store: Any, key: str) -> tuple[Status, bytes | None]:
        result = store.get(key)
        status = _status(result.meta, result.attributes.get(SHA256))
        return status, bytes(result.bytes()) if status.size_bytes <= most else None

    return _call(path, get)


def read_head(path: ObjectPath, size_bytes: int) -> bytes:
    """The first bytes of an object, at most so many."""
    try:
        return _call(path, lambda store, key: bytes(store.get(key, options={"range": (0, size_bytes)}).bytes()))
    except BertprepError:  # stores refuse a range of an empty object, each in its own way
        if not look(path).size_bytes:
            return b""
        raise


def read_range(path: ObjectPath, start: int, size_bytes: int) -> bytes:
    """So many bytes of an object from byte `start` on, fewer where it ends; raises `FileNotFoundError`."""
    options = {"range": (start, start + size_bytes)}
    return _call(path, lambda store, key: bytes(store.get(key, options=options).bytes()))


def blocks(path: ObjectPath, status: Status) -> Iterator[bytes]:
    """The bytes of the object that has this status, a request for each block.

    Raises `BertprepError` if it is replaced meanwhile.
    """
    from obstore.exceptions import PreconditionError

    for start in range(0, status.size_bytes, BLOCK_BYTES):
        end = min(start + BLOCK_BYTES, status.size_bytes)
        options = {"range": (start, end), **({"if_match": status.etag} if status.etag else {})}

        def get(store: Any, key: str, options: dict[str, Any] = options) -> tuple[Status, bytes]:
            result = store.get(key, options=options)
            return _status(result.meta), bytes(result.bytes())

        try:
            now, block = _call(path, get)
        except PreconditionError:
            now, block = Status(), b""
        if len(block) != end - start or now.version != status.version:  # some stores do not check if_match
            raise BertprepError(f"{path}: was replaced while it was read; see that nothing else writes there, and run it again")
        yield block


def put(path: ObjectPath, data: Any, sha256: str | None = None, *, replace: bool = False) -> bool:
    """Write an object whole, from a buffer; returns whether it is new.

    False is for one that is there already with these bytes; another one raises `BertprepError`, or with `replace` is replaced.
    `sha256` is that of the bytes, where the caller knows it.
    """
    from obstore.exceptions import AlreadyExistsError

    view = memoryview(data).cast("B")
    sha256 = sha256 or hashlib.sha256(view).hexdigest()
    seconds = silence_seconds() + len(view) / _SLOWEST_BYTES_PER_SECOND
    is_large = len(view) > ONE_PUT_BYTES
    attributes = {SHA256: sha256}

    def write(store: Any, key: str, mode: str) -> None:
        more = {"use_multipart": is_large, "chunk_size": _PART_BYTES, "max_concurrency": _PARTS_AT_ONCE}
        store.put(key, view, attributes=attributes, mode=mode, **more)

    bucket = (path.scheme, path.bucket)
    lost = None
    for tried in range(1, TRIES + 1):
        unsure = is_large or not _checks_conditions.get(bucket)
        if unsure and not replace and (there := _sum_there(path)):
            return _compare(path, there, sha256)
        mode = "overwrite" if replace or is_large or bucket in _without_conditions else "create"
        try:
            _call(path, partial(write, mode=mode), put_seconds=seconds)
            if is_large and (now := _sum_there(path)) != sha256:
                raise _replaced_meanwhile(path, now, sha256)
            if mode == "create" and bucket not in _checks_conditions and len(view) <= _MOST_TO_TRY_BYTES:
                _try_condition(path, partial(write, mode=mode))
            return True
        except AlreadyExistsError:
            _checks_conditions[bucket] = True
            if there := _sum_there(path):
                return _compare(path, there, sha256)
        except _NoConditionError:
            if mode != "create":
                raise
            _without_conditions.add(bucket)
        except _LostUploadError as error:
            if _sum_there(path) == sha256:  # only the last answer was lost
                return True
            lost = error
            time.sleep(wait_seconds(tried))
    raise lost or BertprepError(f"{path}: is written and removed by others again and again; see that nothing else writes there")


def version_of(path: ObjectPath) -> dict[str, Any]:
    """What `replace` needs to know of an object that it is to replace; raises `FileNotFoundError`."""
    meta = _call(path, lambda store, key: store.head(key))
    return {name: meta[name] for name in ("e_tag", "version") if meta.get(name)}


def replace(path: ObjectPath, data: bytes, version: dict[str, Any]) -> bool:
    """Replace a small object if it is still of this version, where the store can tell; returns whether it was.

    False also where only the answer was lost: look again.
    """
    from obstore.exceptions import NotFoundError, PreconditionError

    if not version or (path.scheme, path.bucket) in _without_conditions:
        return put(path, data, replace=True)
    attributes = {SHA256: hashlib.sha256(data).hexdigest()}
    try:
        _call(path, lambda store, key: store.put(key, data, attributes=attributes, mode=version, use_multipart=False))
    except (PreconditionError, NotFoundError, FileNotFoundError):
        return False
    except _NoConditionError:
        return put(path, data, replace=True)
    return True


def _try_condition(path: ObjectPath, write: Callable[[Any, str], None]) -> None:
    """Find out with an object just written whether the store checks "only if there is none": some do not, and say nothing."""
    from obstore.exceptions import AlreadyExistsError

    bucket = (path.scheme, path.bucket)
    try:
        _call(path, write)
        _checks_conditions[bucket] = False
    except AlreadyExistsError:
        _checks_conditions[bucket] = True


def _sum_there(path: ObjectPath) -> str | None:
    """The sha256 of the object that is there, from its metadata or else its bytes; None if there is none."""
    try:
        status = look(path)
        if status.sha256 and re.fullmatch("[0-9a-f]{64}", status.sha256):
            return status.sha256
        return sha256_of_bytes(path, status)
    except FileNotFoundError:
        return None


def sha256_of_bytes(path: ObjectPath, status: Status | None = None) -> str:
    """The sha256 of the bytes that the store gives now, whatever its metadata says."""
    digest = hashlib.sha256()
    for block in blocks(path, status or look(path)):
        digest.update(block)
    return digest.hexdigest()


def _compare(path: ObjectPath, there: str, sha256: str) -> bool:
    if there == sha256:
        return False
    raise AnotherObjectError(
        path,
        there,
        sha256,
        f"{path}: is there already with sha256 {there[:16]}..., this run made it with {sha256[:16]}...; two runs differ in "
        "their text, settings or versions: choose another name, or remove the object and run the command again",
    )


def _replaced_meanwhile(path: ObjectPath, now: str | None, sha256: str) -> BertprepError:
    if now is None:
        return BertprepError(f"{path}: was removed as soon as it was written; see that nothing else writes there")
    return AnotherObjectError(
        path,
        now,
        sha256,
        f"{path}: has sha256 {now[:16]}..., this run wrote it with {sha256[:16]}... a moment before: another run writes "
        "other bytes there; name another folder for one of the two, remove the object and run the command again",
    )


def delete(path: ObjectPath) -> None:
    """Remove an object; raises `FileNotFoundError` where the store says that there was none."""
    _call(path, lambda store, key: store.delete(key))


def delete_all(folder: ObjectPath, names: Collection[str]) -> None:
    """Remove those of these objects of a folder that are there: of S3 a request for each thousand."""
    keys = [(folder / name).key for name in names]
    try:
        if keys:
            _call(folder, lambda store, _: store.delete(keys))
    except FileNotFoundError:  # of stores that tell it, some are left
        for name in names:
            (folder / name).unlink(missing_ok=True)


class AnotherObjectError(BertprepError):
    """An object of that name is there, with the sha256 `there`; the bytes that were to be written have another."""

    def __init__(self, path: ObjectPath, there: str, sha256: str, message: str) -> None:
        super().__init__(path, there, sha256, message)
        self.path, self.there, self.sha256 = path, there, sha256

    def __str__(self) -> str:
        return str(self.args[-1])


class _LostUploadError(BertprepError):
    """A multipart upload has failed, and so has its removal, or it was gone: why it failed is not told."""


class _NoConditionError(BertprepError):
    """The store cannot do what it is asked, such as "only if there is none"."""


def _endless(path: ObjectPath, why: str) -> BertprepError:
    return BertprepError(
        f"{path}: its listing has no end ({why}); check the store's address, and whether a proxy interferes, or name a folder "
        "of fewer objects"
    )


def _below(key: str, path: str) -> bool:
    """Whether an object lies below the folder; a folder's own empty object, which consoles make, does not."""
    return path not in (key, "") and path.startswith(f"{key}/" if key else "")


def _status(meta: Any, sha256: str | None = None) -> Status:
    return Status(meta["size"], int(meta["last_modified"].timestamp() * 1e9), meta["e_tag"], sha256)


def _store(path: ObjectPath, put_seconds: float) -> Any:
    """The client for a bucket; a write, whose answer comes only after its last byte, has one that waits for so long."""
    seconds = float(1 << max(int(put_seconds) - 1, 0).bit_length()) if put_seconds else 0.0
    process = os.getpid()
    name = (process, path.scheme, path.bucket, seconds)
    if name not in _stores:
        if any(of_process != process for of_process, *_ in _stores):
            raise BertprepError(
                f"{path}: this process is a fork of one that has used a store, whose client does not survive it; start such "
                'processes anew, as DataLoader(multiprocessing_context="spawn") does'
            )
        try:
            import obstore.store
        except ImportError as error:
            raise UsageError(f"{path}: URLs of stores need obstore: pip install '.[cloud]' in a clone") from error
        if path.scheme == MEMORY:
            _stores[name] = _memory.setdefault(path.bucket, obstore.store.MemoryStore())
            return _stores[name]
        kind, allow_http, *_ = _OF_PROVIDER[path.scheme]
        unit, silence = first_wait_seconds(), silence_seconds()
        backoff = {"init_backoff": timedelta(seconds=unit / 10), "max_backoff": timedelta(seconds=5 * unit), "base": 2}
        _stores[name] = getattr(obstore.store, kind)(
            path.bucket,
            client_options={
                "allow_http": os.environ.get(allow_http, "").lower() in ("1", "true", "yes"),
                "connect_timeout": timedelta(seconds=min(silence, 5.0)),
                "read_timeout": timedelta(seconds=seconds or silence),
                "timeout": timedelta(seconds=seconds or 20 * silence),
            },
            # not after a silence, which is said
            retry_config={"max_retries": 2, "backoff": backoff, "retry_timeout": timedelta(seconds=(seconds or silence) / 2)},
        )
    return _stores[name]


def _call(
    path: ObjectPath,
    action: Callable[[Any, str], Result],
    *,
    put_seconds: float = 0.0,
    seconds: float | None = None,
) -> Result:
    """The result of an action on the bucket's client and the object's key, retried while the trouble may pass.

    An action of many requests, a listing, may take so many `seconds` in all.

    Raises `FileNotFoundError`, obstore's errors about conditions, and for everything else `BertprepError`.
    """
    from bertprep.progress import say

    for tried in range(1, TRIES + 1):
        try:
            return _interruptibly(partial(action, _store(path, put_seconds), path.key), seconds)
        except BertprepError:
            raise
        except Empty:
            raise _endless(path, f"it was not all there after {seconds:.0f} s") from None
        except Exception as error:
            trouble = _Trouble(path, error)
            if not trouble.passes or tried == trouble.tries:
                raise trouble.explained(tried) from error
            wait = wait_seconds(tried) * _chance.uniform(0.5, 1.5)  # a thousand tasks must not ask in the same moment again
            say(f"{path}: {trouble.why}; trying again in {wait:.0f} s (try {tried + 1} of {trouble.tries})")
            time.sleep(wait)
    raise AssertionError


def _interruptibly(action: Callable[[], Result], seconds: float | None = None) -> Result:
    """Return the result of an action, or raise `Empty` after so many `seconds`, or what a signal raises in the main thread.

    obstore itself would sit out its own time limit first.
    """
    if seconds is None and threading.current_thread() is not threading.main_thread():
        return action()
    outcome: SimpleQueue[tuple[bool, Any]] = SimpleQueue()

    def act() -> None:
        try:
            outcome.put((True, action()))
        except BaseException as error:
            outcome.put((False, error))

    threading.Thread(target=act, daemon=True).start()
    is_good, result = outcome.get(timeout=seconds)
    if not is_good:
        raise result
    return cast(Result, result)


class _Trouble:
    """An error of obstore: whether it may pass, and in one line what it is and what to do."""

    def __init__(self, path: ObjectPath, error: Exception) -> None:
        self._path, self._error = path, error
        text = str(error).partition("\nDebug source:")[0]
        status = re.search(r"status code: (\d{3})", text)
        code = re.search(r"<Code>(\w+)</Code>", text)
        said = re.search(r"<Message>([^<]*)", text)
        self._text, self._status, self._code = text, int(status[1]) if status else 0, code[1] if code else ""
        is_generic = type(error).__name__ == "GenericError"
        self._is_removal = "performing DELETE" in text and "uploadId=" in text
        is_final = self._is_removal or "builder error" in text or "redirect" in text or self._has_no_credentials
        self.passes = is_generic and (
            not is_final
            and (self._status in _PASSING or self._code in _PASSING_CODES if self._status else "HTTP error" in text)
        )
        self.tries = TRIES
        if self.passes and '"dns error"' in str(error):
            self.tries = 2 if "Temporary failure" in str(error) else 1
        if self._status:
            answer = " ".join(filter(None, (quoted(self._code), f"({quoted(said[1])})" if said and said[1] else "")))
            self.why = " ".join(f"the store answers {self._status} {answer}".split())
        else:
            self.why = self._of_network(str(error)) if self.passes else quoted(text)

    def _of_network(self, whole: str) -> str:
        """What broke, from the causes that obstore lists after its message."""
        address = re.search(r"performing \w+ (https?://[^/\s]+)", whole)
        where = address[1] if address else f"{self._path.scheme}://{self._path.bucket}"
        cause = re.search(r'message: "([^"]+)"|"(dns error)"', whole)
        why = next(filter(None, cause.groups()), "") if cause else "timed out" if "TimedOut" in whole else ""
        if why == "dns error":
            return f"the name of {where} cannot be resolved; this machine may have no network"
        broke = f"{where} cannot be reached" if "kind: Connect" in whole else f"the connection to {where} broke"
        return f"{broke} ({why})" if why else broke

    @property
    def _has_no_credentials(self) -> bool:
        return any(sign in self._text for sign in _WITHOUT_CREDENTIALS)

    def explained(self, tried: int) -> Exception:
        path, error, name = self._path, self._error, type(self._error).__name__
        bucket = f"{path.scheme}://{path.bucket}"
        _, allow_http, variables = _OF_PROVIDER.get(path.scheme, ("", "", ""))
        if self._code in ("NoSuchBucket", "ContainerNotFound") or (self._code == "InvalidBucketName"):
            return BertprepError(f"{bucket}: there is no such bucket; make it, or check the name and the store's address")
        if self._is_removal:
            return _LostUploadError(f"{path}: its upload in parts has failed ({self.why}); the same command resumes")
        if isinstance(error, FileNotFoundError):
            return FileNotFoundError(errno.ENOENT, "there is no such object", str(path))
        if name in ("AlreadyExistsError", "PreconditionError", "NotModifiedError"):
            return error
        if name == "NotSupportedError" or "not implemented" in self._text or self._status == 501:
            return _NoConditionError(f"{path}: {self.why}; the store cannot do what it is asked; is it one of this kind?")
        if self._has_no_credentials:
            return BertprepError(f"{path}: there are no credentials for it; set {variables}")
        if "redirect" in self._text or self._code in ("PermanentRedirect", "AuthorizationHeaderMalformed"):
            return BertprepError(f"{bucket}: is in another region than {_region()}; set AWS_REGION to that of the bucket")
        if "Expired" in self._code or self._code in ("InvalidToken", "TokenRefreshRequired"):
            return BertprepError(f"{path}: {self.why}; the credentials have expired: renew them, and the same command resumes")
        if self._code == "RequestTimeTooSkewed":
            return BertprepError(f"{path}: {self.why}; this machine's clock is wrong: set it, and the same command resumes")
        if "invalid path" in self._text:
            found = re.search(r'[Pp]ath "([^"]*)"', self._text)
            of = f" ({ascii(found[1])[:200]})" if found else ""
            return BertprepError(
                f"{path}: has an object below it whose name no path can be{of}; rename or remove that, or name a folder inside"
            )
        if name in ("PermissionDeniedError", "UnauthenticatedError") or self._status in (401, 403):
            return BertprepError(
                f"{path}: is not permitted, {self.why}; check the credentials in the environment, and what they may do there"
            )
        if "builder error" in self._text:
            return BertprepError(
                f"{path}: the store's address is not an https one; set {allow_http}=true if it is meant to be http"
            )
        if tried > 1:
            return BertprepError(f"{path}: {self.why}; given up after {tried} tries; the same command resumes")
        return BertprepError(f"{path}: {self.why}; check the URL, the store's address and its credentials in the environment")


def _region() -> str:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
