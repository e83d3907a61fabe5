"""What a user calls to make text shards: of files of their own, of what was downloaded, or of the sample corpus."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from bertprep import pool
from bertprep.config import ShardSettings
from bertprep.errors import BertprepError, UsageError
from bertprep.progress import Reporter, say
from bertprep.sources.corpora import BOOKS, GIVEN, language_of, name_corpus, parts_of
from bertprep.sources.formatting import DUMP, OWN_TEXT, FormattedText, SourceFile, find_formatted, format_corpus
from bertprep.sources.local import find_sources
from bertprep.sources.sample import SAMPLE, write_sample
from bertprep.sources.transfer.listing import OWN_FILES, Listing, load_listing, missing
from bertprep.sources.transfer.own_files import fetch_web_file, own_place
from bertprep.text.documents import TextInput
from bertprep.text.shards import shard_corpus
from bertprep.workspace.layout import LISTING, Workspace
from bertprep.workspace.manifest import Manifest, read_manifest, sha256_of


def shard(
    inputs: Sequence[Path | str] = (),
    settings: ShardSettings | None = None,
    *,
    field: str = "text",
    one_document: bool = False,
    workdir: Path | str = "data",
    corpus: str | None = None,
    workers: int | None = None,
    verify: bool = False,
    progress: bool = False,
) -> Manifest:
    """Make the text shards of `corpus`: of `inputs`, else of what was downloaded, else of the sample corpus.

    `inputs` are files, folders and URLs of text, JSON Lines, Parquet or Wikimedia dumps (`sources.local`), `field` the key or
    column that holds their text; with `one_document` each text file is one. Text that is not plain is cleaned and written to
    the workspace first. What is there is not made again: a file that has its size, or with `verify` its sha256.

    Raises `UsageError` for a request that cannot be met, `BertprepError` for data that is not whole.
    """
    reporter = Reporter(enabled=progress)
    workspace = Workspace(Path(workdir))
    settings = settings or ShardSettings()
    workers = workers or pool.default_workers()
    asked = corpus
    corpus = name_corpus(GIVEN if inputs and corpus is None else corpus, workspace, settings.language)
    settings = replace(settings, language=settings.language or language_of(corpus))
    about = OWN_TEXT if inputs and parts_of(corpus) else None
    if about or is_own_text(read_manifest(workspace.sharded(corpus))):
        check_not_downloaded(workspace, corpus)
    if reporter.enabled and asked is None and not inputs:
        say(f"shard: taking {corpus} (--corpus takes another, --input your own text)")
    if inputs:
        fetch = partial(fetch_web_file, workspace=workspace, reporter=reporter)
        sources = find_sources(inputs, field=field, one_document=one_document, fetch=fetch)
        texts = [format_corpus(workspace, corpus, sources, about=about, workers=workers, verify=verify, reporter=reporter)]
    elif corpus == SAMPLE:
        texts = [FormattedText([TextInput(write_sample(workspace))], empty=0)]
    elif parts := parts_of(corpus):
        texts = [_downloaded_text(workspace, part, workers=workers, verify=verify, reporter=reporter) for part in parts]
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
        verify=verify,
        reporter=reporter,
        already_empty=sum(text.empty for text in texts),
        about=about,
    )


def is_own_text(manifest: Manifest | None) -> bool:
    """Whether text shards are of the user's own text though their name is that of a download."""
    return manifest is not None and manifest.made_with.items() >= OWN_TEXT.items()


def check_not_downloaded(workspace: Workspace, corpus: str) -> None:
    """Raise `UsageError` where the workspace has the download after which text of the user's own is named."""
    if all((workspace.download(part) / LISTING).exists() or find_formatted(workspace, part) for part in parts_of(corpus)):
        raise UsageError(
            f"--corpus {corpus}: is a download in {workspace.root}, so text of your own cannot have that name there; "
            "name another workspace (--workdir), or give the text another name: bertprep shard --input FILES --corpus NAME"
        )


def check_downloaded(workspace: Workspace, part: str) -> Listing | None:
    """What a download consists of, all of which is there; None where only the cleaned text of it is left.

    Raises `BertprepError` where the download is not whole, `UsageError` where there is none and no text of it either.
    """
    folder = workspace.download(part)
    command = "bertprep download " + ("bookcorpus" if part == BOOKS else f"wikipedia --language {part.partition('_')[2]}")
    listing = load_listing(folder)
    if listing is None:
        if find_formatted(workspace, part):
            return None
        raise UsageError(f"--corpus {part}: is not in {folder}; {command} brings it")
    if (own := own_place(listing)) and not own.exists():
        raise BertprepError(f"{own}: is no longer there; {folder} is a link to it, which {command} --from-... made")
    if absent := missing(listing, folder):
        raise BertprepError(
            f"{folder / absent[0].name}: is missing or not whole, one of {len(absent):,} such files of {len(listing.files):,}; "
            f"{command} continues the download"
        )
    return listing


def _downloaded_text(workspace: Workspace, part: str, *, workers: int, verify: bool, reporter: Reporter) -> FormattedText:
    """The cleaned text of a download, made now where it was not; raises as `check_downloaded` does."""
    listing = check_downloaded(workspace, part)
    if listing is None and (text := find_formatted(workspace, part)):
        return text
    sources = list(_sources(listing, workspace.download(part))) if listing else []
    return format_corpus(workspace, part, sources, workers=workers, verify=verify, reporter=reporter)


def _sources(listing: Listing, folder: Path) -> Iterator[TextInput | SourceFile]:
    if OWN_FILES in listing.source:
        yield from find_sources([folder / OWN_FILES], field="text", one_document=True)
        return
    reader = "dump" if DUMP in listing.source else "bookcorpus" if folder.name == BOOKS else "wikipedia"
    for file in listing.files:
        path = folder / file.name
        identity = {"name": file.name, "bytes": path.stat().st_size, "sha256": file.sha256 or sha256_of(path)}
        yield SourceFile(str(path), reader, identity)
