"""`bertprep download`: corpora, tasks, weights and vocabularies, into a workspace.

A download consists of parts, each a folder with its own listing, lock and files. All parts are listed before the first byte is
fetched, so an unknown name or too small a disk is reported at once. Existing files are checked by their checksums and not
fetched again; if nothing is missing, no request is made.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bertprep.commands import add_workdir
from bertprep.errors import UsageError
from bertprep.files.free_space import check_free_space, free_space
from bertprep.files.places import local_place, place
from bertprep.options import how_many_at_once, path_or_url
from bertprep.progress import Reporter
from bertprep.sources.catalogue import WIKIPEDIA_DATE
from bertprep.sources.corpora import language_of
from bertprep.sources.listing import (
    OWN_FILES,
    Listing,
    check_on_disk,
    check_source,
    has_size,
    load_listing,
    make_link,
    save_listing,
)
from bertprep.terminal import megabytes, tell, tell_table
from bertprep.workspace.layout import VOCABULARY, Workspace

if TYPE_CHECKING:
    from bertprep.sources.downloads import Download
    from bertprep.sources.hub import Hub


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names",
        nargs="+",
        metavar="NAME",
        help="wikipedia, bookcorpus, squad, glue, weights, vocab, or all; dataset OWNER/NAME: records that were pushed",
    )
    parser.add_argument("--language", default="en", metavar="CODE", help="language of the Wikipedia (default: %(default)s)")
    parser.add_argument("--date", default=WIKIPEDIA_DATE, metavar="DAY", help="day of the Wikipedia (default: %(default)s)")
    parser.add_argument("--from-dump", metavar="FILE|URL", help="use this pages-articles dump as the Wikipedia instead")
    parser.add_argument(
        "--from-files", type=path_or_url, metavar="DIR", help="use this folder of .txt books as BookCorpus instead"
    )
    parser.add_argument(
        "--model", action="append", default=[], metavar="ID", dest="models",
        help="model of the weights or vocab; may be repeated (default: the two BERT models, and the smaller one's vocabulary)",
    )  # fmt: skip
    parser.add_argument(
        "--connections", type=how_many_at_once, default=4, metavar="INT", help="files fetched at once (default: %(default)s)"
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be fetched, and write nothing")
    add_workdir(parser)


def run(options: argparse.Namespace) -> None:
    """Download, and print the contents of each folder and the command to run next."""
    downloads = download(
        options.names,
        workdir=options.workdir,
        language=options.language,
        date=options.date,
        from_dump=options.from_dump,
        from_files=options.from_files,
        models=options.models,
        connections=options.connections,
        dry_run=options.dry_run,
        progress=True,
    )
    if options.dry_run:
        tell_table(_plan_rows(downloads))
        tell(*_space_lines(downloads))
        return
    tell_table(_result_rows(downloads))
    tell(*(f"next: {command}" for command in _next_commands(downloads, options.workdir)))


@dataclass(frozen=True)
class Downloaded:
    """One folder of a download: its listing, and how many bytes are still to be fetched or made from it."""

    name: str
    folder: Path
    listing: Listing
    files: int
    size_bytes: int
    missing_bytes: int
    unmade_bytes: int = 0

    @property
    def needed_bytes(self) -> int:
        return self.missing_bytes + self.unmade_bytes


def download(
    names: Sequence[str],
    *,
    workdir: Path | str = "data",
    language: str = "en",
    date: str = WIKIPEDIA_DATE,
    from_dump: Path | str | None = None,
    from_files: Path | str | None = None,
    models: Sequence[str] = (),
    connections: int = 4,
    dry_run: bool = False,
    progress: bool = False,
) -> list[Downloaded]:
    """Download `names` of `catalogue.NAMES`, or "all", into the workspace; correct files are kept.

    OWNER/NAME after "dataset" is a data set of records that `push` brought to the Hub; it goes to download/datasets/OWNER/NAME.

    `language` and `date` choose a Wikipedia, `from_dump` (a file or an http(s) address) or `from_files` (a folder) replace it
    or BookCorpus; `models` are those of "weights" and "vocab". With `dry_run` nothing is written. Raises `UsageError` for an
    impossible request, `BertprepError` if something cannot be fetched; the same call resumes.

        bertprep.download(["vocab"], workdir="data")
    """
    from bertprep.sources.downloads import Request, find_downloads
    from bertprep.sources.hub import Hub

    if connections < 1:
        raise UsageError(f"--connections {connections}: must be at least 1")
    request = Request(
        names=tuple(names),
        language=language,
        date=date,
        from_dump=None if from_dump is None else str(from_dump),
        from_files=None if from_files is None else local_place("--from-files", from_files),
        models=tuple(models),
    )
    check_on_disk(workspace := place(workdir))
    hub = Hub(reporter=Reporter(enabled=progress))
    wanted = find_downloads(request, Workspace(workspace))
    found = [_look_at(each, _kept_listing(each) or each.list_files(hub)) for each in wanted]
    if dry_run:
        return found
    check_free_space({each.folder: each.needed_bytes for each in found})
    return [
        _look_at(each, _provide(each, listed.listing, connections, hub)) for each, listed in zip(wanted, found, strict=True)
    ]


def _kept_listing(wanted: Download) -> Listing | None:
    """Return the listing in a folder if it is still valid; one without checksums is only while its files exist."""
    listing = load_listing(wanted.folder)
    if listing is None:
        return None
    check_source(listing, wanted.source, wanted.folder)
    return listing if wanted.fixed or not listing.missing(wanted.folder) else None


def _provide(wanted: Download, listing: Listing, connections: int, hub: Hub) -> Listing:
    """Bring one folder into the workspace; returns its listing, which a concurrent run may have written."""
    from bertprep.files.lock import locked
    from bertprep.sources.web import fetch_url

    folder = wanted.folder
    with locked(folder):
        kept = _kept_listing(wanted)
        if kept is None:
            save_listing(listing, folder)
            kept = listing
        for name, target in kept.links().items():
            make_link(folder / name, target)
        if "hub" in kept.source:
            hub.fetch(kept, folder, connections=connections, label=wanted.label)
        elif not kept.links() and kept.missing(folder):
            fetch_url(kept.files[0], folder / kept.files[0].name, reporter=hub.reporter)
        wanted.finish()
    return kept


def _look_at(wanted: Download, listing: Listing) -> Downloaded:
    links = listing.links()
    if OWN_FILES in links:
        sizes = [path.stat().st_size for path in links[OWN_FILES].rglob("*.txt")]
    else:
        sizes = [file.size_bytes or 0 for file in listing.files]
    missing = [] if links else listing.missing(wanted.folder)
    missing_bytes = sum(file.size_bytes or 0 for file in missing)
    unmade_bytes = wanted.makes_bytes(listing)
    return Downloaded(wanted.name, wanted.folder, listing, len(sizes), sum(sizes), missing_bytes, unmade_bytes)


def _result_rows(downloads: Sequence[Downloaded]) -> list[tuple[str, ...]]:
    """The table of a finished download, one row per folder."""
    from bertprep.sources.downloads import PARQUET

    rows: list[tuple[str, ...]] = [("name", "files", "MB", "folder")]
    for part in downloads:
        folder = part.folder.parent if part.folder.name == PARQUET else part.folder
        rows.append((part.name, f"{part.files:,}", megabytes(part.size_bytes), str(folder)))
    return rows


def _plan_rows(downloads: Sequence[Downloaded]) -> list[tuple[str, ...]]:
    """The table of a dry run, one row per file."""
    rows: list[tuple[str, ...]] = [("name", "file", "MB", "there")]
    for part in downloads:
        for file in part.listing.files:
            path = part.folder / file.name
            there = (file.size_bytes or 0) if has_size(path, file.size_bytes) else 0
            rows.append((part.name, str(path), megabytes(file.size_bytes), megabytes(there)))
        if not part.listing.files:
            rows.append((part.name, str(part.folder / OWN_FILES), megabytes(part.size_bytes), megabytes(part.size_bytes)))
    all_bytes, to_come = sum(part.size_bytes for part in downloads), sum(part.missing_bytes for part in downloads)
    return [*rows, ("all", "", megabytes(all_bytes), megabytes(all_bytes - to_come))]


def _space_lines(downloads: Sequence[Downloaded]) -> list[str]:
    """One line per disk: whether it has space for the rest of the download."""
    return [
        f"{megabytes(disk.needed_bytes)} MB are still to come, {megabytes(disk.free_bytes)} MB are free in {disk.folder}: "
        + ("enough" if disk.enough else "not enough")
        for disk in free_space({part.folder: part.needed_bytes for part in downloads})
    ]


def _next_commands(downloads: Sequence[Downloaded], workdir: Path) -> list[str]:
    """The command to run next: `shard` for text, `create` for a vocabulary, `validate` for records."""
    from bertprep.sources.downloads import DATASET

    names = {part.name for part in downloads}
    workspace = "" if workdir == Path("data") else f" --workdir {shlex.quote(str(workdir))}"
    corpora = "+".join(name for name in ("wikipedia", "bookcorpus") if name in names)
    language = next((found for part in downloads if (found := language_of(part.folder.name)) and found != "en"), None)
    in_language = f" --language {language}" if language else ""
    commands = [f"bertprep shard --corpus {corpora}{in_language}{workspace}"] if corpora else []
    if vocabulary := next((part.folder for part in downloads if part.name == "vocab"), None):
        commands.append(f"bertprep create --vocab {shlex.quote(str(vocabulary / VOCABULARY))}{workspace}")
    commands += [f"bertprep validate {shlex.quote(str(part.folder))}" for part in downloads if part.name == DATASET]
    return commands
