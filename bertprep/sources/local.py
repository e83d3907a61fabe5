"""The files, folders and URLs that `--input` accepts, each read according to its suffix.

    .txt and any other name   plain text: a blank line ends a document
    .jsonl .ndjson .json      JSON Lines: a field of each line is a document
    .csv .tsv                 a column of each row is a document; the first line names the columns
    .parquet .arrow           a column of each row is a document
    .xml .xml-p1p41242        a Wikimedia dump (pages-articles), or a part of one

each but Parquet and Arrow may also end in .gz, .bz2 or .zst.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bertprep.errors import UsageError
from bertprep.sources.dataset import find_saved, is_saved
from bertprep.sources.formatting import DUMP, SourceFile
from bertprep.sources.streams import identify, is_url, is_web, suffixes
from bertprep.text.documents import TextInput
from bertprep.workspace.manifest import sha256_of

READER_OF = {
    ".jsonl": "json lines", ".ndjson": "json lines", ".json": "json lines", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet",
    ".arrow": "arrow", ".xml": DUMP,
}  # fmt: skip
IN_FOLDERS = (".txt", *READER_OF)
"""Suffixes of the files of a folder that are read; a file given by name is read unless its suffix is in NO_TEXT."""
NO_TEXT = (".html", ".htm", ".pdf", ".doc", ".docx", ".epub", ".tar", ".tgz", ".zip", ".7z", ".xz", ".rar", ".npz")


def find_sources(
    locations: Sequence[str | Path], *, field: str, one_document: bool, fetch: Callable[[str], Path] | None = None
) -> list[TextInput | SourceFile]:
    """The source files that `locations` name, in their order; those of a folder are sorted by name, of one that save_to_disk of
    `datasets` wrote in its order.

    With `one_document` each text file is one document. `fetch` downloads from http(s) addresses; other URLs are streamed.
    Raises `UsageError` for what does not exist.
    """
    local = (str(fetch(str(location)) if fetch and is_web(str(location)) else location) for location in locations)
    return [source for location in local for source in _find(location, field, one_document)]


def _find(location: str, field: str, one_document: bool) -> Iterator[TextInput | SourceFile]:
    if is_url(location):
        yield _source(location, field, one_document)
        return
    path = Path(location)
    if not path.is_dir():
        yield _source(location, field, one_document)
        return
    if is_saved(path):
        yield from find_saved(path, None, field)
        return
    files = sorted(file for file in path.rglob("*") if suffixes(file.name)[0] in IN_FOLDERS and file.is_file())
    if not files:
        raise UsageError(
            f"--input {location}: the folder has no file that ends in {', '.join(IN_FOLDERS)} (or .gz, .bz2, .zst)"
        )
    for file in files:
        yield _source(str(file), field, one_document)


def _source(location: str, field: str, one_document: bool) -> TextInput | SourceFile:
    kind, compression = suffixes(location)
    if kind in NO_TEXT:
        raise UsageError(f"--input {location}: a {kind} file is not read; give text, JSON Lines, CSV, Parquet, Arrow or a dump")
    reader = READER_OF.get(kind, "whole" if one_document else "text")
    if is_url(location):
        return SourceFile(location, reader, identify(location), field)
    path = Path(location)
    if not path.is_file():
        raise UsageError(
            f"--input {location}: {'is not a file' if path.exists() else 'does not exist'}; name files, folders or URLs"
        )
    if reader in ("text", "whole") and not compression:
        return TextInput(path, one_document=one_document)
    identity = {"name": path.name, "bytes": path.stat().st_size, "sha256": sha256_of(path)}
    return SourceFile(location, reader, identity, field)
