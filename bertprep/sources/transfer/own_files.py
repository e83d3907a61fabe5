"""The user's own files or addresses, instead of a download from the Hub.

A dump file or a folder of text is linked, not copied: it may be large, and it is the user's. A file at an http or https address
is downloaded to the workspace before it is read, with the same resuming and retries as any download. It is listed with the
server's size and ETag; no checksum is known, so only the formats' own checks apply.
"""

import contextlib
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx2

from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import explain_write_error, temporary_name
from bertprep.files.lock import locked
from bertprep.files.places import local_place
from bertprep.progress import SILENT, Reporter, say
from bertprep.sources.streams import is_web
from bertprep.sources.transfer.fetch import fetch, validator_of
from bertprep.sources.transfer.http import TRIES_TO_LIST, Patience, RefusedError, Web
from bertprep.sources.transfer.listing import OWN_FILES, Listing, RemoteFile, check_on_disk, load_listing, missing, save_listing
from bertprep.terminal import printable
from bertprep.untrusted import check_name
from bertprep.workspace.layout import Workspace


def list_url(url: str, web: Web, *, reporter: Reporter = SILENT) -> Listing:
    """The one file at `url`, as it is now."""
    name = name_in_url(url)

    def ask() -> httpx2.Headers:
        with web.get(url, method="HEAD") as response:
            return response.headers

    def ask_by_get() -> httpx2.Headers:
        with web.get(url) as response:  # closed before its body is read
            return response.headers

    patience = Patience(url, tries=TRIES_TO_LIST, reporter=reporter)
    try:
        headers = patience.persist(ask)
    except RefusedError as refusal:
        if refusal.status not in (403, 405, 501):
            raise
        headers = patience.persist(ask_by_get)  # some servers lack HEAD, signed addresses forbid it
    length = headers.get("Content-Length", "")
    etag = validator_of(headers)
    size_bytes = int(length) if re.fullmatch("[0-9]{1,18}", length) else None
    file = RemoteFile(name, url, size_bytes, etag=etag)
    return Listing({"dump": url}, etag or "", (file,))


def fetch_web_file(url: str, workspace: Workspace, *, reporter: Reporter) -> Path:
    """The file at `url`, downloaded to a separate folder.

    An existing file is fetched again if the server says that it has changed; if the server cannot be reached, it is used with a
    message.
    """
    name_in_url(url)
    folder = workspace.download("web") / hashlib.sha256(url.encode()).hexdigest()[:16]
    with locked(folder):
        kept = load_listing(folder)
        whole = kept is not None and not missing(kept, folder)
        try:
            with Web() as web:
                listing = list_url(url, web, reporter=reporter)
        except BertprepError as error:
            if kept is None or not whole:
                raise
            say(f"{error}; using the file that was fetched before")
            return folder / kept.files[0].name
        path = folder / listing.files[0].name
        if listing != kept:
            check_on_disk(folder)
            path.unlink(missing_ok=True)
            save_listing(listing, folder)
        if listing != kept or not whole:
            fetch(listing, folder, connections=1, reporter=reporter, label=path.name)
    return path


def name_in_url(url: str) -> str:
    """The name of the file that an address ends with.

    >>> name_in_url("https://dumps.wikimedia.org/enwiki/latest/enwiki-latest-pages-articles.xml.bz2?again=1")
    'enwiki-latest-pages-articles.xml.bz2'
    """
    if printable(url) != url:
        raise UsageError(f"{url}: is not an address; give that of one file")
    try:
        return check_name(unquote(urlsplit(url).path.rpartition("/")[2], errors="strict"))
    except ValueError as error:
        raise UsageError(f"{url}: does not end with a file's name ({error}); give the address of one file") from error


def list_dump(dump: Path) -> Listing:
    """A dump file that the user has."""
    path = local_place("--from-dump", dump).absolute()
    if not path.is_file():
        raise UsageError(f"--from-dump {dump}: is not a file; give a pages-articles dump, or the http(s) address of one")
    try:
        return Listing({"dump": str(path)}, "", (RemoteFile(path.name, path.as_uri(), path.stat().st_size),))
    except ValueError as error:
        raise UsageError(f"--from-dump {dump}: cannot be taken under its name ({error}); give it another") from error


def list_folder(folder: Path) -> Listing:
    """A folder of text files that the user has, one book a file."""
    path = folder.absolute()
    if not path.is_dir():
        raise UsageError(f"--from-files {folder}: is not a folder; give one with a .txt file for each book")
    if not any(path.rglob("*.txt")):
        raise UsageError(f"--from-files {folder}: holds no .txt file; give a folder with one for each book")
    try:
        return Listing({"files": str(path)}, "", ())
    except ValueError as error:
        raise UsageError(f"--from-files {folder}: cannot be taken under its name ({error}); give it another") from error


def links_of(listing: Listing) -> Mapping[str, Path]:
    """Files that are linked rather than fetched: names in the download's folder and their targets."""
    if "files" in listing.source:
        return {OWN_FILES: Path(listing.source["files"])}
    if "dump" in listing.source and not is_web(listing.source["dump"]):
        return {listing.files[0].name: Path(listing.source["dump"])}
    return {}


def own_place(listing: Listing) -> Path | None:
    """The user's own file or folder that a download links to, if it does."""
    return next(iter(links_of(listing).values()), None)


def make_link(link: Path, target: Path) -> None:
    """Make `link` point to `target`, atomically."""
    if link.is_symlink() and link.readlink() == target:
        return
    temporary = temporary_name(link)
    try:
        temporary.symlink_to(target)
        temporary.replace(link)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise explain_write_error(link, error) from error
