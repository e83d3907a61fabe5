"""The files, folders and URLs that `--input` accepts, each read according to its suffix.

    .txt and any other name   plain text: a blank line ends a document
    .jsonl .ndjson .json      JSON Lines: a field of each line is a document
    .csv .tsv                 a column of each row is a document; the first line names the columns
    .parquet .arrow           a column of each row is a document
    .xml .xml-p1p41242        a Wikimedia dump (pages-articles), or a part of one

each but Parquet and Arrow may also end in .gz, .bz2 or .zst. Of a folder, and of what matches a pattern such as
`texts/*.parquet` or `s3://bucket/**/*.jsonl`, the files with these suffixes are read.
"""

from collections.abc import Callable, Sequence
from glob import glob
from pathlib import Path
from typing import Any

from bertprep.errors import UsageError
from bertprep.files.places import local_copy, place
from bertprep.sources.dataset import find_saved
from bertprep.sources.formatting import DUMP, SourceFile
from bertprep.sources.readers import check_not_records
from bertprep.sources.streams import find_files, identify, is_glob, is_local, is_url, is_web, suffixes
from bertprep.text.documents import TextInput
from bertprep.workspace.layout import is_saved
from bertprep.workspace.manifest import sha256_of

READER_OF = {
    ".jsonl": "json lines", ".ndjson": "json lines", ".json": "json lines", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet",
    ".arrow": "arrow", ".xml": DUMP,
}  # fmt: skip
Fetched = Sequence[tuple[Path, dict[str, Any] | None]]
"""Files that were fetched, each with its identity if that is known without reading it."""
IN_FOLDERS = (".txt", *READER_OF)
"""Suffixes of the files of a folder that are read; a file given by name is read unless its suffix is in NO_TEXT."""
NO_TEXT = (".html", ".htm", ".pdf", ".doc", ".docx", ".epub", ".tar", ".tgz", ".zip", ".7z", ".xz", ".rar", ".npz")


def find_sources(
    locations: Sequence[str | Path], *, field: str, one_document: bool, fetch: Callable[[str], Fetched | None] | None = None
) -> list[TextInput | SourceFile]:
    """The source files that `locations` name, in their order; those of a folder or pattern are sorted by name (of a
    folder that save_to_disk of `datasets` wrote, in its order).

    With `one_document` each text file is one document. `fetch` downloads what it can, and returns None for anything else; other
    URLs are streamed. Raises `UsageError` for what does not exist.
    """
    sources: list[TextInput | SourceFile] = []
    for location in (str(place(each)) if isinstance(each, Path) else each for each in locations):
        if is_web(location) and is_glob(location):
            raise UsageError(f"--input {location}: a web server does not list its files; give the address of each")
        if fetch and (fetched := fetch(location)) is not None:
            sources += [source_at(str(path), field, one_document, identity) for path, identity in fetched]
        elif _may_be_saved(location) and is_saved(place(location)):
            sources += find_saved(place(location), None, field)
        else:
            sources += [source_at(each, field, one_document) for each in _find(location)]
    return sources


def _may_be_saved(location: str) -> bool:
    """Whether it may be the folder of a data set; a store is not asked about each file."""
    return is_local(location) and not (is_url(location) and (is_glob(location) or suffixes(location)[0]))


def _find(location: str) -> list[str]:
    """A file itself, the files in a folder, or those that match a pattern."""
    found: list[str] | None
    if is_url(location):
        found = find_files(location)
    elif (path := Path(location)).is_dir():
        found = [str(file) for file in sorted(path.rglob("*")) if file.is_file()]
    elif is_glob(location) and not path.exists():
        matching = glob(location, recursive=True)  # noqa: PTH207, Path.glob would find hidden files
        found = sorted(file for file in matching if Path(file).is_file())
    else:
        found = None
    if found is None:
        return [location]
    if not (read := [file for file in found if suffixes(file)[0] in IN_FOLDERS]):
        none = f"{'matches' if is_glob(location) else 'the folder has'} no file"
        kinds = "" if is_glob(location) and not found else f" that ends in {', '.join(IN_FOLDERS)} (or .gz, .bz2, .zst)"
        raise UsageError(f"--input {location}: {none}{kinds}")
    table = next((file for file in read if suffixes(file)[0] in (".parquet", ".arrow")), None)
    if table and is_local(location):  # before what lies beside records, as manifest.json, is taken for text
        check_not_records(table)
    return read


def source_at(location: str, field: str, one_document: bool, identity: dict[str, Any] | None = None) -> TextInput | SourceFile:
    """One file, read according to its suffix; `identity` is what is known to change with its content."""
    kind, compression = suffixes(location)
    if kind in NO_TEXT:
        raise UsageError(f"--input {location}: a {kind} file is not read; give text, JSON Lines, Parquet or a Wikimedia dump")
    reader = READER_OF.get(kind, "whole" if one_document else "text")
    if not is_local(location):
        return SourceFile(location, reader, identify(location), field)
    path = place(location)
    if not path.is_file():
        raise UsageError(
            f"--input {location}: {'is not a file' if path.exists() else 'does not exist'}; name files, folders or URLs"
        )
    if reader in ("text", "whole") and not compression:
        return TextInput(path, one_document=one_document)
    known = identity or {"name": path.name, "bytes": path.stat().st_size, "sha256": sha256_of(local_copy(path))}
    return SourceFile(location, reader, known, field)
