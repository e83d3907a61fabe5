"""The documents of the corpora that `bertprep download` fetched, or linked with `--from-dump` or `--from-files`.

Incomplete downloads are refused with the command that resumes them.
"""

from __future__ import annotations

from collections.abc import Iterator

from bertprep.errors import BertprepError, UsageError
from bertprep.files.checksums import SHA256
from bertprep.files.paths import checksum_of
from bertprep.sources.corpora import BOOKS, printed_name
from bertprep.sources.documents import WIKIPEDIA, Source
from bertprep.sources.inputs import find_sources
from bertprep.sources.kinds import DUMP
from bertprep.sources.listing import OWN_FILES, Listing, load_listing
from bertprep.work.layout import Workspace


def check_downloaded(workspace: Workspace, part: str) -> Listing:
    """Return the listing of a download. Raises `UsageError` if there is none, `BertprepError` if it is incomplete."""
    folder = workspace.download(part)
    command = "bertprep download " + ("bookcorpus" if part == BOOKS else f"wikipedia --language {part.partition('_')[2]}")
    listing = load_listing(folder)
    if listing is None:
        raise UsageError(f"--corpus {printed_name(part)}: is not in {folder}; run {command} first")
    own = next(iter(listing.links().values()), None)
    if own and not own.exists():
        raise BertprepError(
            f"{own}: does not exist, but {folder} links to it; put it back, or remove {folder} and repeat {command} --from-..."
        )
    if absent := listing.missing(folder):
        raise BertprepError(
            f"{folder / absent[0].name}: is missing or incomplete ({len(absent):,} of {len(listing.files):,} files are); "
            f"run {command} to resume the download"
        )
    return listing


def downloaded_sources(workspace: Workspace, part: str) -> Iterator[Source]:
    """Yield the files of a download as sources."""
    listing, folder = check_downloaded(workspace, part), workspace.download(part)
    if OWN_FILES in listing.source:
        yield from find_sources([folder / OWN_FILES], field="text", one_document=True)
        return
    reader = DUMP if DUMP in listing.source else "bookcorpus" if folder.name == BOOKS else WIKIPEDIA
    for file in listing.files:
        path = folder / file.name
        identity = {"name": file.name, "bytes": path.stat().st_size, "sha256": file.sha256 or checksum_of(path, SHA256)}
        yield Source(str(path), reader, identity)
