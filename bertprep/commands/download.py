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
from bertprep.sources.transfer.listing import (
    OWN_FILES,
    Listing,
    check_on_disk,
    check_source,
    has_size,
    load_listing,
    missing,
    save_listing,
)
from bertprep.terminal import megabytes, tell, tell_table
from bertprep.workspace.layout import VOCABULARY, Workspace

if TYPE_CHECKING:
    from bertprep.sources.parts import Part
    from bertprep.sources.transfer.http import Web
    from bertprep.sources.transfer.hub import Hub


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
    from bertprep.sources.parts import Request, find_parts
    from bertprep.sources.transfer.http import Web
    from bertprep.sources.transfer.hub import Hub

    reporter = Reporter(enabled=progress)
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
    parts = find_parts(request, Workspace(workspace))
    with Web() as web:
        hub = Hub(web, reporter=reporter)
        found = [_look_at(part, _listing_of(part, hub, web)) for part in parts]
    if dry_run:
        return found
    check_free_space({part.folder: part.needed_bytes for part in found})
    return [
        _look_at(part, _provide(part, listed.listing, connections, reporter)) for part, listed in zip(parts, found, strict=True)
    ]


def _listing_of(part: Part, hub: Hub, web: Web) -> Listing:
    """The listing of a part: the one in its folder, or else what the source has now."""
    kept = _kept_listing(part)
    return part.list_files(hub, web) if kept is None else kept


def _kept_listing(part: Part) -> Listing | None:
    """The listing in the folder of a part if it is still valid; one without checksums is only while its files exist."""
    listing = load_listing(part.folder)
    if listing is None:
        return None
    check_source(listing, part.source, part.folder)
    return listing if part.fixed or not missing(listing, part.folder) else None


def _provide(part: Part, listing: Listing, connections: int, reporter: Reporter) -> Listing:
    """Bring one part into the workspace; returns its listing, which a concurrent run may have written."""
    from bertprep.files.lock import locked
    from bertprep.sources.transfer.fetch import fetch
    from bertprep.sources.transfer.own_files import links_of, make_link

    with locked(part.folder):
        kept = _kept_listing(part)
        if kept is None:
            save_listing(listing, part.folder)
            kept = listing
        if links := links_of(kept):
            for name, target in links.items():
                make_link(part.folder / name, target)
        else:
            fetch(kept, part.folder, connections=connections, reporter=reporter, label=part.label)
        part.finish()
    return kept


def _look_at(part: Part, listing: Listing) -> Downloaded:
    from bertprep.sources.transfer.fetch import missing_bytes
    from bertprep.sources.transfer.own_files import links_of

    links = links_of(listing)
    if OWN_FILES in links:
        sizes = [path.stat().st_size for path in links[OWN_FILES].rglob("*.txt")]
    else:
        sizes = [file.size_bytes or 0 for file in listing.files]
    to_come = 0 if links else missing_bytes(listing, part.folder)
    return Downloaded(part.name, part.folder, listing, len(sizes), sum(sizes), to_come, part.makes_bytes(listing))


def _result_rows(downloads: Sequence[Downloaded]) -> list[tuple[str, ...]]:
    """The table of a finished download, one row per folder."""
    from bertprep.sources.parts import PARQUET

    rows: list[tuple[str, ...]] = [("name", "files", "MB", "folder")]
    for part in downloads:
        folder = part.folder.parent if part.folder.name == PARQUET else part.folder
        rows.append((part.name, f"{part.files:,}", megabytes(part.size_bytes), str(folder)))
    return rows


def _plan_rows(downloads: Sequence[Downloaded]) -> list[tuple[str, ...]]:
    """The table of a dry run, one row per file."""
    from bertprep.sources.transfer.partial import partial_bytes

    rows: list[tuple[str, ...]] = [("name", "file", "MB", "there")]
    for part in downloads:
        for file in part.listing.files:
            path = part.folder / file.name
            there = file.size_bytes or 0 if has_size(path, file.size_bytes) else partial_bytes(path, file)
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
    from bertprep.sources.parts import DATASET

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
