"""Find the files that `--input` and `--dataset` name: files, folders, patterns, URLs, data sets. The suffix decides the reader.

    .txt and any other name   plain text: a blank line ends a document
    .jsonl .ndjson .json      JSON Lines: a field of each line is a document
    .csv .tsv                 a column of each row is a document; the first line names the columns
    .parquet .arrow           a column of each row is a document
    .xml .xml-p1p41242        a Wikimedia dump (pages-articles), or a part of one; one with another name is known by its start

All but Parquet and Arrow may also end in .gz, .bz2 or .zst. Folders and patterns select files with these suffixes.
"""

from __future__ import annotations

import codecs
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from glob import glob
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bertprep.errors import BertprepError, UsageError, quoted
from bertprep.files.checksums import BLAKE3
from bertprep.files.paths import as_path, checksum_of
from bertprep.sources.documents import DUMP, MEMORY, READER_OF_SUFFIX, TEXT, WHOLE, Source
from bertprep.sources.fields import batch_texts, find_columns, row_text, show_names
from bertprep.sources.joined_rows import find_key, join_rows, no_column
from bertprep.sources.readers import file_system, is_local, is_url, is_web, open_stream, split_hops, suffixes
from bertprep.sources.word_columns import find_words, no_words
from bertprep.untrusted import check_name, parse_json, read_bounded
from bertprep.work.layout import DATASET_DICT, MANIFEST, STATE, TRAIN, VOCABULARY, is_saved

IN_FOLDERS = (".txt", *READER_OF_SUFFIX)
"""The suffixes of files that are read from a folder. A file that the user names may have any, and `reader_of` decides."""
NO_TEXT = (".html", ".htm", ".pdf", ".doc", ".docx", ".epub", ".tar", ".tgz", ".zip", ".7z", ".xz", ".rar", ".npz")
Fetched = Sequence[tuple[Path, dict[str, Any] | None]]
"""Fetched files, each with its identity if that is known without reading the file."""
_HEAD_BYTES = 1_000  # of a file that its name says is plain text
_ROWS = 256  # rows of a data set in memory that are read at a time


def is_glob(location: str) -> bool:
    """Return whether a path or URL has wildcards; in a web address only `*` counts."""
    return "*" in urlsplit(location).path if is_web(location) else any(sign in location for sign in "*?[")


def find_sources(
    locations: Sequence[str | Path], *, field: str, one_document: bool, fetch: Callable[[str], Fetched | None] | None = None
) -> list[Source]:
    """Return the source files in the order of `locations`; those of a folder or pattern are sorted by name.

    With `one_document` each text file is one document. `fetch` downloads a location, or returns None to have it streamed.
    """
    sources: list[Source] = []
    for location in (str(as_path(each)) if isinstance(each, Path) else each for each in locations):
        if is_web(location) and is_glob(location):
            raise UsageError(f"--input {location}: a web server does not list its files; give the address of each file")
        if fetch and (fetched := fetch(location)) is not None:
            sources += [source_at(str(path), field, one_document, identity) for path, identity in fetched]
        elif _may_be_saved(location) and is_saved(as_path(location)):
            sources += find_saved(as_path(location), None, field)
        else:
            sources += [source_at(each, field, one_document) for each in _find(location)]
    check_given_once(source.location for source in sources)
    return sources


def _may_be_saved(location: str) -> bool:
    return is_local(location) and not (is_url(location) and (is_glob(location) or suffixes(location)[0]))


def _find(location: str) -> list[str]:
    found: list[str] | None = None
    if is_local(location) and is_url(location):
        found = _find_objects(location)
    elif is_url(location):
        found = _find_urls(location)
    elif (path := Path(location)).is_dir():
        found = [str(file) for file in sorted(path.rglob("*")) if file.is_file()]
    elif is_glob(location) and not path.exists():
        matching = glob(location, recursive=True)  # noqa: PTH207, Path.glob would find hidden files
        found = sorted(file for file in matching if Path(file).is_file())
    if found is None:
        return [location]
    if not (read := [file for file in _without_data_sets(found) if suffixes(file)[0] in IN_FOLDERS]):
        none = f"{'matches' if is_glob(location) else 'the folder has'} no file"
        kinds = "" if is_glob(location) and not found else f" that ends in {', '.join(IN_FOLDERS)} (or .gz, .bz2, .zst)"
        parent = Path(location).parent
        if not is_url(location) and not is_glob(str(parent)) and not parent.exists():
            kinds = f"; there is no folder {parent}"
        raise UsageError(f"--input {location}: {none}{kinds}")
    return read


def _without_data_sets(files: Sequence[str]) -> list[str]:
    """Return the files without manifests and the vocabularies next to them, since output may be below the folder of its text.

    Parquet or Arrow files of such output stay: their reader refuses them with its own message.
    """
    manifests = {file for file in files if f"/{file}".endswith(f"/{MANIFEST}")}
    vocabularies = {f"{manifest.removesuffix(MANIFEST)}{VOCABULARY}" for manifest in manifests}
    return [file for file in files if file not in manifests | vocabularies]


def _find_urls(location: str) -> list[str] | None:
    system, path = file_system(location)
    with _explained(location):
        if is_glob(path) and not system.exists(path):
            found = [name for name, info in system.glob(path, detail=True).items() if info["type"] == "file"]
        elif system.isdir(path):
            found = system.find(path)
        else:
            return None
    before, hop, after = split_hops(location)
    start = hop.rstrip("/").removesuffix(path)  # has the host, which the found names lack
    return [f"{before}{start}{name}{after}" for name in sorted(found)]


def _find_objects(location: str) -> list[str] | None:
    names = location.split("/")
    first = next((index for index, name in enumerate(names) if is_glob(name)), len(names))
    folder = as_path("/".join(names[:first]))
    if first == len(names) and (folder.is_file() or not folder.is_dir()):
        return None
    return sorted(str(path) for path in folder.glob("/".join(names[first:]) or "**/*") if path.is_file())


@contextmanager
def _explained(location: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise UsageError(f"--input {location}: does not exist") from None
    except Exception as error:  # each file system raises errors of its own
        raise BertprepError(f"{location}: cannot be reached: {quoted(str(error))}") from error


def reader_of(location: str) -> str:
    """Return the reader of a file, decided by its name alone; TEXT if no other reader has the suffix.

    Raises `UsageError` for a suffix that no reader can read, and for a manifest, which has no text.
    """
    kind, _ = suffixes(location)
    if kind in NO_TEXT:
        raise UsageError(f"--input {location}: a {kind} file is not read; give text, JSON Lines, Parquet or a Wikimedia dump")
    if Path(location).name == MANIFEST:
        raise UsageError(
            f"--input {location}: is a manifest, which lists files and has no text; give the files that it lists, or, if it "
            "contains documents of yours, rename it"
        )
    return READER_OF_SUFFIX.get(kind, TEXT)


def is_dump(location: str) -> bool:
    """Return whether a file is a Wikimedia dump by its name or its first bytes."""
    reader = READER_OF_SUFFIX.get(suffixes(location)[0], TEXT)
    return reader == DUMP or (reader == TEXT and _begins_dump(_read_head(location)))


def _read_head(location: str) -> bytes:
    """Return the first bytes of a file after white space, in lower case; none if it cannot be read."""
    with suppress(BertprepError, OSError), open_stream(location) as file:
        return file.read(_HEAD_BYTES).removeprefix(codecs.BOM_UTF8).lstrip().lower()
    return b""


def _begins_dump(head: bytes) -> bool:
    return head.startswith(b"<mediawiki") or (head.startswith(b"<?xml") and b"<mediawiki" in head)


def _reader_by_content(location: str, reader: str) -> str:
    """Return DUMP for what would be read as plain text and begins like a Wikimedia dump.

    Raises `BertprepError` for other XML and for HTML, whose tags would become sentences.
    """
    head = _read_head(location)
    if _begins_dump(head):
        return DUMP
    if head.startswith((b"<?xml", b"<html", b"<!doctype html")):
        found = "XML" if head.startswith(b"<?xml") else "HTML"
        raise BertprepError(f"{location}: begins like {found}, expected text; give the text without its tags, or a dump")
    return reader


def check_given_once(locations: Iterable[str]) -> None:
    """Raise `UsageError` for a file that is given twice, even under two names."""
    files_of = Counter(str(as_path(each).resolve()) if is_local(each) else each for each in locations)
    if repeated := [file for file, count in files_of.items() if count > 1]:
        raise UsageError(f"--input {repeated[0]}: is given twice; give each text once")


def source_at(location: str, field: str, one_document: bool, identity: dict[str, Any] | None = None) -> Source:
    """Return the source for one file. `identity` has values that change with its content, if they are known."""
    reader = reader_of(location)
    if reader == TEXT and one_document:
        reader = WHOLE
    if not is_local(location):
        system, name = file_system(location)
        with _explained(location):
            known = {"name": location, "bytes": system.info(name).get("size"), "key": system.ukey(name)}
        return Source(location, reader, known, field)
    path = as_path(location)
    if not path.is_file():
        raise UsageError(
            f"--input {location}: {'is not a file' if path.exists() else 'does not exist'}; name files, folders or URLs"
        )
    if reader in (TEXT, WHOLE):
        reader = _reader_by_content(location, reader)
    if reader in (TEXT, WHOLE) and not suffixes(location)[1]:
        return Source(location, reader, {})  # workers hash it
    known = identity or {"name": path.name, "bytes": path.stat().st_size, BLAKE3: checksum_of(path)}
    return Source(location, reader, known, field)


def find_saved(folder: Path, split: str | None, field: str) -> list[Source]:
    """Return the Arrow files of a folder that save_to_disk wrote, in their order. If it has splits, take `split`, else train.

    Raises `UsageError` for any other folder or a missing split, `BertprepError` for an incomplete folder.
    """
    what = f"--dataset {folder}"
    if not is_saved(folder):
        raise UsageError(
            f"{what}: has no {STATE} or {DATASET_DICT}, so save_to_disk did not write it; --input reads other folders"
        )
    if (folder / DATASET_DICT).is_file():
        [splits] = _read_json(folder / DATASET_DICT, lambda content: [[check_name(name) for name in content["splits"]]])
        folder /= _choose_split(what, splits, split)
        split = None
    names, has, indices = _read_json(
        folder / STATE,
        lambda state: (
            [check_name(each["filename"]) for each in state["_data_files"]],
            state.get("_split"),
            state.get("_indices_files") or state.get("_indices_data_files"),
        ),
    )
    _check_only_split(what, has, split)
    if indices:
        raise UsageError(
            f"{folder}: stores the order of its rows apart from them; save it again in that order: "
            "load_from_disk(...).flatten_indices().save_to_disk(...)"
        )
    if not names:
        raise BertprepError(f"{folder / STATE}: lists no files; save the data set again")
    if absent := [name for name in names if not (folder / name).is_file()]:
        raise BertprepError(f"{folder / absent[0]}: is missing, but {STATE} lists it; copy or save the data set again")
    return [source_at(str(folder / name), field, one_document=False) for name in names]


def _choose_split(what: str, splits: list[str], split: str | None) -> str:
    if (chosen := split or TRAIN) not in splits:
        raise UsageError(f"{what}: has no split {chosen!r}; it has {show_names(splits)}; name one with --split")
    return chosen


def _check_only_split(what: str, has: object, split: str | None) -> None:
    if split not in (None, has if has is None else str(has)):
        raise UsageError(f"{what}: is a Dataset, which has no splits, and not a DatasetDict; leave --split out")


def _read_json(path: Path, pick: Callable[[Any], Sequence[Any]]) -> Sequence[Any]:
    try:
        return pick(parse_json(read_bounded(path)))
    except FileNotFoundError:
        raise BertprepError(f"{path}: is missing; copy or save the data set again") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"
        raise BertprepError(f"{path}: was not written by save_to_disk ({why}); copy or save the data set again") from error


def from_memory(
    dataset: object, split: str | None, field: str, words: str | None = None, join: str | None = None
) -> list[Source]:
    """Return the text of a Dataset, DatasetDict, IterableDataset, IterableDatasetDict or pyarrow.Table.

    `words` is the column with the words of each text, and `join` the one whose value is the same in all rows of a document,
    if there are any. The calling process reads the data set, on each run.
    Raises `UsageError` for any other type, and for a missing field or split.
    """
    kinds = {f"{each.__module__.partition('.')[0]}.{each.__name__}" for each in type(dataset).__mro__}
    what, rows = "dataset", dataset
    if kinds & {"datasets.DatasetDict", "datasets.IterableDatasetDict"} and isinstance(dataset, dict):
        chosen = _choose_split(what, [str(name) for name in dataset], split)
        what, rows = f"{what}[{chosen!r}]", dataset[chosen]
    elif kinds & {"datasets.Dataset", "datasets.IterableDataset", "pyarrow.Table"}:
        _check_only_split(what, getattr(dataset, "split", None), split)
    else:
        raise UsageError(
            f"dataset: has type {type(dataset).__module__}.{type(dataset).__name__}, expected the name of a data set, a "
            "folder, or a Dataset, DatasetDict, IterableDataset or pyarrow.Table"
        )
    if getattr(rows, "num_rows", None) == 0:
        raise UsageError(f"{what}: has no rows; was everything filtered out?")
    form = getattr(rows, "format", None)
    if isinstance(form, dict) and form.get("type") == "custom":
        raise UsageError(
            f"{what}: has a transform, which would not be applied to its stored rows; store them changed, by map()"
        )
    features = getattr(rows, "features", None)
    schema = features.arrow_schema if features is not None else getattr(rows, "schema", None)
    names = None if schema is None else find_columns(schema, field, what)
    read: Callable[[], Iterable[str]] = partial(_texts_in_memory, rows, names, what, field)
    if join is not None:
        columns = None if schema is None else find_key(schema, join, what)
        read_key = partial(_column_in_memory, rows, columns, what, join, no_column)
        read = partial(_joined_in_memory, read, read_key, what)
    read_words: Callable[[], Iterable[Any]] = tuple
    if words is not None:
        columns = None if schema is None else find_words(schema, words, what)
        read_words = partial(_column_in_memory, rows, columns, what, words, no_words)
    return [Source(what, MEMORY, {"read": uuid.uuid4().hex}, field, read, words=words, words_in_memory=read_words)]


def _texts_in_memory(rows: Any, names: list[str] | None, what: str, field: str) -> Iterator[str]:
    if names is None:
        for index, row in enumerate(rows.with_format(None)):
            yield row_text(row, field, f"{what}: row {index:,}")
        return
    yield from batch_texts(_batches_in_memory(rows, names), names, field, what)


def _joined_in_memory(texts: Callable[[], Iterable[str]], keys: Callable[[], Iterable[Any]], what: str) -> Iterator[str]:
    return join_rows(texts(), keys(), what)


def _column_in_memory(
    rows: Any, names: list[str] | None, what: str, column: str, lacks: Callable[[str, str, Iterable[str]], UsageError]
) -> Iterator[Any]:
    """Yield the values of a column; `lacks` makes the error for a row that has none."""
    if names is None:
        for index, row in enumerate(rows.with_format(None)):
            if column not in row:
                raise lacks(f"{what}: row {index:,}: has no column", column, row)
            yield row[column]
        return
    for batch in _batches_in_memory(rows, names):
        yield from batch.column(0).to_pylist()


def _batches_in_memory(rows: Any, names: list[str]) -> Iterator[Any]:
    """Yield the columns `names` in batches of up to `_ROWS` rows."""
    if hasattr(rows, "to_batches"):
        batches: Iterator[Any] = iter(rows.select(names).to_batches(max_chunksize=_ROWS))
    else:
        batches = rows.select_columns(names).with_format("arrow").iter(_ROWS)
    return batches
