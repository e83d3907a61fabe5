"""`bertprep download`: download corpora, tasks, weights and vocabularies into a workspace.

A download has one or more folders, each with its own listing, lock and files. All files are listed before the first byte is
fetched. Existing files are checked and kept; if nothing is missing, no request is made.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from bertprep.commands.function import function_of
from bertprep.commands.request import Where
from bertprep.files.free_space import check_free_space, free_space
from bertprep.files.paths import as_path, local_path
from bertprep.options import OPTIONS, described, option
from bertprep.sources.catalogue import DEFAULT_MODEL, WIKIPEDIA_DATE
from bertprep.sources.corpora import downloaded_corpus, language_of, printed_name
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
from bertprep.terminal import megabytes, print_results, print_table
from bertprep.work.layout import VOCABULARY, Workspace

if TYPE_CHECKING:
    from bertprep.progress import Reporter
    from bertprep.sources.downloads import Download as Wanted
    from bertprep.sources.hub import Hub


@dataclass(frozen=True)
class Downloaded:
    """One folder of a download: its listing, and the numbers of bytes still to be fetched or made."""

    name: str
    folder: Path
    listing: Listing = field(repr=False)
    files: int
    size_bytes: int
    missing_bytes: int
    unmade_bytes: int = 0

    @property
    def needed_bytes(self) -> int:
        return self.missing_bytes + self.unmade_bytes


@dataclass(frozen=True, kw_only=True)
class Download(Where):
    """The request of `download`: what to download into the workspace."""

    group: ClassVar[str] = OPTIONS
    names: Sequence[str] = field(
        kw_only=False,
        metadata=described(
            "wikipedia, bookcorpus, squad, glue, weights, vocab, or all; or dataset OWNER/NAME for records that were pushed",
            metavar="NAME",
            positional=True,
        ),
    )
    language: str | None = option(
        None, "language of the Wikipedia (default: that of --from-dump, else en)", metavar="CODE",
        pattern="[a-z]+(-[a-z]+)*", words="the code of a Wikipedia, such as en, de or zh-yue",
    )  # fmt: skip
    date: str = option(
        WIKIPEDIA_DATE, "day of the Wikipedia dump", metavar="DAY", pattern=r"\d{8}", words=f"a day such as {WIKIPEDIA_DATE}"
    )
    from_dump: Path | str | None = option(None, "use this pages-articles dump for Wikipedia", metavar="FILE|URL", check=str)
    from_files: Path | str | None = option(
        None, "use this folder of books for BookCorpus; each text file is one document", metavar="DIR", check=local_path
    )
    models: Sequence[str] = option(
        (), "model for weights or vocab; may be repeated (default: the two BERT models, and the smaller one's vocabulary)",
        name="--model", metavar="ID", repeated=True,
        pattern=r"(\w[\w.-]*/)?\w[\w.-]*", words=f"a model on the Hub, such as {DEFAULT_MODEL}",
    )  # fmt: skip
    dry_run: bool = option(False, "show what would be fetched, and write nothing")

    def download(self) -> list[Downloaded]:
        """Download corpora, tasks, weights or vocabularies into the workspace; correct files are kept.

        `names` are "wikipedia", "bookcorpus", "squad", "glue", "weights", "vocab" or "all", or "dataset" followed by the
        OWNER/NAME of a data set that `push` uploaded. `language` and `date` choose a Wikipedia. `from_dump`, a file or URL,
        replaces the Wikipedia, and `from_files`, a folder, replaces BookCorpus. `models` are the models for "weights" and
        "vocab". With `dry_run` nothing is written. After an interruption, the same call resumes.

            bertprep.download(["vocab"], workdir="data")
        """
        from bertprep.sources.downloads import Request, find_downloads
        from bertprep.sources.hub import open_hub

        request = Request(
            names=tuple(self.names),
            language=self.language,
            date=self.date,
            from_dump=None if self.from_dump is None else str(self.from_dump),
            from_files=None if self.from_files is None else as_path(self.from_files),
            models=tuple(self.models),
        )
        check_on_disk(self.workspace.root)
        with open_hub(reporter=self.reporter) as hub:
            return self._download(find_downloads(request, self.workspace), hub)

    def _download(self, wanted: Sequence[Wanted], hub: Hub) -> list[Downloaded]:
        found = [_look_at(each, _kept_listing(each) or each.list_files(hub)) for each in wanted]
        if self.dry_run:
            return found
        check_free_space({each.folder: each.needed_bytes for each in found})
        downloaded = [_look_at(each, _provide(each, listed.listing, hub)) for each, listed in zip(wanted, found, strict=True)]
        for each in downloaded:
            if (books := each.listing.links().get(OWN_FILES)) is not None:
                _report_books(self.reporter, books)
        return downloaded


REQUEST = Download
download = function_of(Download, Download.download)


def run(request: Download) -> None:
    """Download the requested files, and print the contents of each folder and the command to run next."""
    from bertprep.sources.downloads import PARQUET

    downloads = request.download()
    if request.dry_run:
        print_table(_plan_rows(downloads))
        for disk in free_space({part.folder: part.needed_bytes for part in downloads}):
            enough = "enough" if disk.enough else "not enough"
            needed, free = megabytes(disk.needed_bytes), megabytes(disk.free_bytes)
            print_results(f"{needed} MB still to download, {free} MB free in {disk.folder}: {enough}")
        return
    rows: list[tuple[str, ...]] = [("name", "files", "MB", "folder")]
    for part in downloads:
        folder = part.folder.parent if part.folder.name == PARQUET else part.folder
        rows.append((part.name, f"{part.files:,}", megabytes(part.size_bytes), str(folder)))
    print_table(rows)
    print_results(*(f"next: {command}" for command in _next_commands(downloads, request.workspace)))


def _kept_listing(wanted: Wanted) -> Listing | None:
    listing = load_listing(wanted.folder)
    if listing is None:
        return None
    check_source(listing, wanted.source, wanted.folder)
    return listing if wanted.fixed or not listing.missing(wanted.folder) else None


def _provide(wanted: Wanted, listing: Listing, hub: Hub) -> Listing:
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
            hub.fetch(kept, folder)
        elif not kept.links() and kept.missing(folder):
            fetch_url(kept.files[0], folder / kept.files[0].name, reporter=hub.reporter)
        wanted.finish()
    return kept


def _report_books(reporter: Reporter, folder: Path) -> None:
    from bertprep.sources.inputs import find_sources
    from bertprep.text.markup import warn_of_markup
    from bertprep.text.summary import report_books

    sources = find_sources([folder], field="text", one_document=True)
    report_books(reporter, folder, sources)
    warn_of_markup(sources)


def _look_at(wanted: Wanted, listing: Listing) -> Downloaded:
    from bertprep.sources.inputs import files_in

    links = listing.links()
    if OWN_FILES in links:
        sizes = [path.stat().st_size for path in files_in(links[OWN_FILES])]
    else:
        sizes = [file.size_bytes or 0 for file in listing.files]
    missing = [] if links else listing.missing(wanted.folder)
    missing_bytes = sum(file.size_bytes or 0 for file in missing)
    unmade_bytes = wanted.makes_bytes(listing)
    return Downloaded(wanted.name, wanted.folder, listing, len(sizes), sum(sizes), missing_bytes, unmade_bytes)


def _plan_rows(downloads: Sequence[Downloaded]) -> list[tuple[str, ...]]:
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


def _next_commands(downloads: Sequence[Downloaded], workspace: Workspace) -> list[str]:
    """Return the commands that use what was downloaded now, and text that was downloaded before."""
    from bertprep.sources.downloads import DATASET

    names = {part.name for part in downloads}
    workdir = "" if workspace.root == Path("data") else f" --workdir {shlex.quote(str(workspace.root))}"
    commands = []
    if names & {"wikipedia", "bookcorpus"}:
        language = next((found for part in downloads if (found := language_of(part.folder.name))), None)
        commands.append(f"bertprep shard --corpus {printed_name(downloaded_corpus(workspace, language))}{workdir}")
    if vocabulary := next((part.folder for part in downloads if part.name == "vocab"), None):
        commands.append(f"bertprep create --vocab {shlex.quote(str(vocabulary / VOCABULARY))}{workdir}")
    commands += [f"bertprep validate {shlex.quote(str(part.folder))}" for part in downloads if part.name == DATASET]
    return commands
