"""What a user calls to make text shards: of files of their own, of what was downloaded, or of the sample corpus."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from bertprep import pool
from bertprep.config import ShardSettings
from bertprep.errors import BertprepError, UsageError
from bertprep.layout import Workspace
from bertprep.manifest import Manifest, sha256_of
from bertprep.progress import say
from bertprep.sources.corpora import BOOKS, GIVEN, language_of, name_corpus, parts_of
from bertprep.sources.formatting import DUMP, FormattedText, SourceFile, find_formatted, format_corpus
from bertprep.sources.local import find_sources
from bertprep.sources.sample import SAMPLE, write_sample
from bertprep.sources.transfer.listing import OWN_FILES, Listing, load_listing, missing
from bertprep.sources.transfer.own_files import own_place
from bertprep.sources.transfer.web_files import fetch_web_file
from bertprep.text.documents import TextInput
from bertprep.text.shards import shard_corpus


def shard(
    inputs: Sequence[Path | str] = (),
    settings: ShardSettings | None = None,
    *,
    field: str = "text",
    one_document: bool = False,
    workdir: Path | str = "data",
    corpus: str | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> Manifest:
    """Make the text shards of `corpus`: of `inputs`, else of what was downloaded, else of the sample corpus.

    `inputs` are files, folders and URLs of text, JSON Lines, Parquet or Wikimedia dumps (`sources.local`), `field` the key or
    column that holds their text; with `one_document` each text file is one. Text that is not plain is cleaned and written to
    the workspace first. Raises `UsageError` for a request that cannot be met, `BertprepError` for data that is not whole.
    """
    workspace = Workspace(Path(workdir))
    settings = settings or ShardSettings()
    workers = workers or pool.default_workers()
    asked = corpus
    corpus = name_corpus(GIVEN if inputs and corpus is None else corpus, workspace, settings.language)
    settings = replace(settings, language=settings.language or language_of(corpus))
    if inputs and parts_of(corpus):
        raise UsageError(f"--corpus {asked}: is the name of a download; give the text of --input a name of its own")
    if progress and asked is None and not inputs:
        say(f"shard: taking {corpus} (--corpus takes another, --input your own text)")
    if inputs:
        fetch = partial(fetch_web_file, workspace=workspace, progress=progress)
        sources = find_sources(inputs, field=field, one_document=one_document, fetch=fetch)
        texts = [format_corpus(workspace, corpus, sources, workers=workers, progress=progress)]
    elif corpus == SAMPLE:
        texts = [FormattedText([TextInput(write_sample(workspace))], empty=0)]
    elif parts := parts_of(corpus):
        texts = [_downloaded_text(workspace, part, workers=workers, progress=progress) for part in parts]
    else:
        raise UsageError(
            f"--corpus {corpus}: has no text shards in {workspace.sharded(corpus)}; "
            f"make them first: bertprep shard --input FILES --corpus {corpus}"
        )
    return shard_corpus(
        workspace,
        corpus,
        [given for text in texts for given in text.inputs],
        settings,
        workers=workers,
        progress=progress,
        already_empty=sum(text.empty for text in texts),
    )


def _downloaded_text(workspace: Workspace, part: str, *, workers: int, progress: bool) -> FormattedText:
    """The cleaned text of a download, made now where it was not.

    Raises `BertprepError` where the download is not whole, `UsageError` where there is none and no text of it either.
    """
    folder = workspace.download(part)
    command = "bertprep download " + ("bookcorpus" if part == BOOKS else f"wikipedia --language {part.partition('_')[2]}")
    listing = load_listing(folder)
    if listing is None:
        if text := find_formatted(workspace, part):
            return text
        raise UsageError(f"--corpus {part}: is not in {folder}; {command} brings it")
    if (own := own_place(listing)) and not own.exists():
        raise BertprepError(f"{own}: is no longer there; {folder} is a link to it, which {command} --from-... made")
    if absent := missing(listing, folder):
        raise BertprepError(
            f"{folder / absent[0].name}: is missing or not whole, one of {len(absent):,} such files of {len(listing.files):,}; "
            f"{command} continues the download"
        )
    return format_corpus(workspace, part, list(_sources(listing, folder)), workers=workers, progress=progress)


def _sources(listing: Listing, folder: Path) -> Iterator[TextInput | SourceFile]:
    if OWN_FILES in listing.source:
        yield from find_sources([folder / OWN_FILES], field="text", one_document=True)
        return
    reader = "dump" if DUMP in listing.source else "bookcorpus" if folder.name == BOOKS else "wikipedia"
    for file in listing.files:
        path = folder / file.name
        identity = {"name": file.name, "bytes": path.stat().st_size, "sha256": file.sha256 or sha256_of(path)}
        yield SourceFile(str(path), reader, identity)
