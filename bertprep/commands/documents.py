"""Find the documents that a request names by --input or --dataset, and check that plain text has blocks of document size.

`find_sources_of` finds the documents from which the text shards of a corpus were made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertprep.commands.request import DocumentRequest
from bertprep.errors import BertprepError, UsageError
from bertprep.files.paths import as_path, is_object
from bertprep.work.layout import TEST, Workspace
from bertprep.work.ledger import is_started

if TYPE_CHECKING:
    from bertprep.sources.documents import Source
    from bertprep.sources.inputs import Fetched
    from bertprep.sources.plain_text import TextFile


def find_given(request: DocumentRequest, words: str | None = None) -> Sequence[Source]:
    """Return the sources that --input or --dataset names, then those of --test-input; files at URLs are downloaded first.

    `words` is the column with the words of each text, if there is one.
    """
    training = _find_files(request, request.inputs) if request.dataset is None else _find_data_set(request, words)
    try:
        test = _find_files(request, request.test_inputs)
    except UsageError as error:
        raise UsageError(str(error).replace("--input", "--test-input", 1)) from error
    sources = [*training, *(replace(source, split=TEST) for source in test)]
    if request.join is not None:
        if words is not None:
            raise UsageError(f"--join {request.join} and --words {words}: give only one of the two")
        sources = [_joined(source, request.join) for source in sources]
    if words is None:
        return sources
    from bertprep.sources.word_columns import check_has_columns

    for source in sources:
        check_has_columns(source, words)
    return [replace(source, words=words) for source in sources]


def _joined(source: Source, column: str) -> Source:
    from bertprep.sources.documents import MEMORY
    from bertprep.sources.joined_rows import check_has_columns

    if source.reader != MEMORY:  # of which `from_memory` reads the column
        check_has_columns(source.location, source.reader, column)
    return replace(source, joined_by=column)


def _find_files(request: DocumentRequest, locations: Sequence[Path | str]) -> list[Source]:
    from bertprep.sources.inputs import find_sources

    fetch = partial(_fetch, request=request)
    return find_sources(locations, field=request.field, one_document=request.one_document_per_file, fetch=fetch)


def check_documents(
    request: DocumentRequest,
    sources: Sequence[Source],
    folder: Path,
    language: str = "en",
    *,
    makes_pairs: bool = True,
    by_lines: bool = False,
) -> None:
    """Raise `BertprepError` if the blocks of plain text look like paragraphs, before anything is written to `folder`.

    Warns of HTML, and of Gutenberg's licence. A request that resumes an earlier run is not checked. Blocks are not checked with
    --one-document-per-block, nor `by_lines`, where each line is a sentence.
    """
    from bertprep.text.blocks import check_blocks
    from bertprep.text.markup import warn_of_markup

    if is_started(folder):
        return
    if not (request.one_document_per_block or by_lines):
        check_blocks(sources, language, makes_pairs=makes_pairs)
    warn_of_markup(sources)


def find_downloaded(workspace: Workspace, corpus: str) -> list[Source]:
    """Return the sources of the sample corpus or of a downloaded one; none for any other corpus."""
    from bertprep.sources.corpora import parts_of
    from bertprep.sources.documents import Source
    from bertprep.sources.downloaded import downloaded_sources
    from bertprep.sources.kinds import TEXT
    from bertprep.sources.sample import SAMPLE, write_sample

    if corpus == SAMPLE:
        return [Source(str(write_sample(workspace)), TEXT, {})]
    return [source for part in parts_of(corpus) for source in downloaded_sources(workspace, part)]


def find_sources_of(
    request: DocumentRequest, corpus: str, made_with: Mapping[str, Any], workers: int
) -> tuple[Sequence[Source], Mapping[str, TextFile]]:
    """Return the files from which text shards were made, sorted like the manifest's inputs, and those that were hashed.

    Raises `SourcesGoneError` if they cannot be read, or are not those that `made_with` of the manifest lists.
    """
    from bertprep.sources.corpora import parts_of
    from bertprep.sources.noted import SourcesGoneError, is_unchanged, noted_sources
    from bertprep.sources.sample import SAMPLE
    from bertprep.text.shards import hash_files, identify

    advice = "to keep line breaks, give the text with --input or --dataset"
    if corpus == SAMPLE or parts_of(corpus):
        try:
            sources = find_downloaded(request.workspace, corpus)
        except BertprepError as error:
            raise SourcesGoneError(str(error)) from error
    else:
        sources = noted_sources(request.workspace, corpus)
        if changed := next((source for source in sources if not is_unchanged(source)), None):
            raise SourcesGoneError(f"{changed.location} was changed or is not there any more; put it back, or {advice}")
    if not sources:
        raise SourcesGoneError(f"from which files they were made is not known here; {advice}")
    if stream := next((source for source in sources if source.is_stream), None):
        raise SourcesGoneError(f"the dump {stream.location} is only read by bertprep shard")
    files = hash_files(sources, corpus, workers, request.reporter)
    named = sorted(((identify(source, files), source) for source in sources), key=lambda each: _as_text(each[0]))
    listed = [*made_with["inputs"], *made_with.get("test_inputs", ())]
    if [identity for identity, _ in named] != sorted(listed, key=_as_text):
        raise SourcesGoneError(f"{sources[0].location}, or another file from which they were made, was changed; {advice}")
    return [source for _, source in named], files


def _as_text(identity: Mapping[str, Any]) -> str:
    return json.dumps(identity, sort_keys=True)


def _fetch(location: str, request: DocumentRequest) -> Fetched | None:
    from bertprep.sources.readers import is_web

    if is_web(location):
        from bertprep.sources.web import fetch_web_file

        return [(fetch_web_file(location, request.workspace, reporter=request.reporter), None)]
    if location.startswith("hf://"):
        from bertprep.sources.hub_text import fetch_address, is_hub_address

        if is_hub_address(location):
            return fetch_address(location, request.workspace, reporter=request.reporter)
    return None


def _find_data_set(request: DocumentRequest, words: str | None) -> list[Source]:
    from bertprep.sources.inputs import find_saved, from_memory, source_at

    dataset, split, field = request.dataset, request.split, request.field
    if not isinstance(dataset, str | Path):
        return [*from_memory(dataset, split, field, words, request.join)]
    if (folder := as_path(dataset)).is_dir():
        return [*find_saved(folder, split, field)]
    if is_object(folder):
        raise UsageError(f"--dataset {folder}: does not exist; name a folder that save_to_disk of datasets wrote")
    from bertprep.sources.catalogue import WIKIPEDIA
    from bertprep.sources.documents import WIKIPEDIA as EXTRACTION
    from bertprep.sources.hub_text import fetch_split

    files = fetch_split(str(dataset), split, request.workspace, reporter=request.reporter)
    sources = [source_at(str(path), field, request.one_document_per_file, identity) for path, identity in files]
    is_wikipedia = str(dataset).partition(":")[0] == WIKIPEDIA
    return [replace(source, reader=EXTRACTION) if is_wikipedia else source for source in sources]
