"""Data sets of the `datasets` library: folders that save_to_disk wrote, and objects in memory, without importing it.

A folder's Arrow files are read as any others, in the order of its state.json. An object is read once and in order, in the
calling process, while workers clean the text: a Dataset through its Arrow table and its indices, so that a filtered or shuffled
one gives its own rows (without the functions of set_transform), and an IterableDataset row by row. Text of a Dataset is kept
while its fingerprint is the same, and that of a pyarrow.Table while its content is. An IterableDataset has no such name,
so its text is written anew each time.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertprep.errors import BertprepError, UsageError, first_line
from bertprep.sources.fields import column_texts, find_column, find_value, select, show_names, to_text
from bertprep.sources.formatting import MemorySource, SourceFile
from bertprep.text.documents import MOST_DOCUMENT_BYTES
from bertprep.untrusted import LIST, NAME, Rule, check_values, parse_json, read_bounded
from bertprep.workspace.layout import DATASET_DICT, STATE, TRAIN, is_saved
from bertprep.workspace.manifest import sha256_of

if TYPE_CHECKING:
    import pyarrow as pa

_FILES, _FILE = "_data_files", "filename"
_INDICES = ("_indices_files", "_indices_data_files")
_NAMES = Rule("a list of names", lambda value: LIST.holds(value) and all(map(NAME.holds, value)))
_ROWS, _COPIED_ROWS = 1000, 64  # read at a time


def find_saved(folder: Path, split: str | None, field: str) -> list[SourceFile]:
    """The Arrow files of a folder that save_to_disk wrote, in their order; without a `split` those of train.

    Raises `UsageError` if it is no such folder, or does not have the split; `BertprepError` if it is damaged.
    """
    if not is_saved(folder):
        raise UsageError(
            f"--dataset {folder}: has no {STATE} or {DATASET_DICT}, so save_to_disk did not write it; "
            "--input reads other folders"
        )
    if (folder / DATASET_DICT).is_file():
        content = _read_json(folder / DATASET_DICT, {"splits": _NAMES}, "splits")
        return _files(folder / choose_split(f"--dataset {folder}", content["splits"], split), field)
    check_only_split(f"--dataset {folder}", _read_json(folder / STATE, {}).get("_split"), split)
    return _files(folder, field)


def choose_split(what: str, splits: list[str], split: str | None) -> str:
    """The split of a data set that was asked for, or train; raises `UsageError` if it is not among `splits`."""
    if (chosen := split or TRAIN) not in splits:
        raise UsageError(f"{what}: has no split {chosen!r}, but {show_names(splits)}; name one by --split")
    return chosen


def check_only_split(what: str, has: object, split: str | None) -> None:
    """Raise `UsageError` if a split is asked for of a data set without splits, which may be known to be one."""
    if split not in (None, has if has is None else str(has)):
        raise UsageError(f"{what}: has no splits, it is a Dataset and no DatasetDict; leave --split out")


def _files(folder: Path, field: str) -> list[SourceFile]:
    state = _read_json(folder / STATE, {_FILES: LIST}, _FILES)
    if any(state.get(name) for name in _INDICES):
        raise UsageError(
            f"{folder}: holds rows and, apart from them, their order; save it again: "
            "load_from_disk(...).flatten_indices().save_to_disk(...)"
        )
    sources = []
    for number, given in enumerate(state[_FILES]):
        try:
            name = check_values(given, {_FILE: NAME}, needed=(_FILE,), place=f"{_FILES}.{number}.")[_FILE]
        except ValueError as error:
            raise _not_saved(folder / STATE, error) from error
        path = folder / name
        if not path.is_file():
            raise BertprepError(f"{path}: is missing, but {STATE} beside it lists it; copy or save the data set again")
        identity = {"name": name, "bytes": path.stat().st_size, "sha256": sha256_of(path)}
        sources.append(SourceFile(str(path), "arrow", identity, field))
    if not sources:
        raise BertprepError(f"{folder / STATE}: lists no files; save the data set again")
    return sources


def _read_json(path: Path, rules: Mapping[str, Rule], *needed: str) -> dict[str, Any]:
    try:
        return check_values(parse_json(read_bounded(path)), rules, needed=needed)
    except FileNotFoundError:
        raise BertprepError(f"{path}: is missing; copy or save the data set again") from None
    except ValueError as error:
        raise _not_saved(path, error) from error


def _not_saved(path: Path, error: ValueError) -> BertprepError:
    return BertprepError(f"{path}: is not as save_to_disk writes it: {error}; copy or save the data set again")


def from_memory(dataset: object, split: str | None, field: str) -> list[SourceFile]:
    """The text of a Dataset, DatasetDict, IterableDataset, IterableDatasetDict or pyarrow.Table.

    Raises `UsageError` for anything else, and for a field or split that is not there.
    """
    kinds = {f"{each.__module__.partition('.')[0]}.{each.__name__}" for each in type(dataset).__mro__}
    what = "dataset"
    if kinds & {"datasets.DatasetDict", "datasets.IterableDatasetDict"} and isinstance(dataset, dict):
        chosen = choose_split(what, [str(name) for name in dataset], split)
        return _from_rows(dataset[chosen], f"{what}[{chosen!r}]", field)
    if kinds & {"datasets.Dataset", "datasets.IterableDataset", "pyarrow.Table"}:
        check_only_split(what, getattr(dataset, "split", None), split)
        return _from_rows(dataset, what, field)
    raise UsageError(
        f"dataset: is of type {type(dataset).__module__}.{type(dataset).__name__}, expected the name of a data set, a "
        "folder, or a Dataset, DatasetDict, IterableDataset or pyarrow.Table"
    )


def _from_rows(rows: Any, what: str, field: str) -> list[SourceFile]:
    if getattr(rows, "num_rows", None) == 0:
        raise UsageError(f"{what}: has no rows; was everything filtered out?")
    if not hasattr(rows, "features"):
        path = find_column(rows.schema, field, what)
        read = partial(_texts, what, field, path, lambda: rows.column(path[0]).chunks)
        return [MemorySource(what, "memory", {"name": what, "sha256": _digest(read())}, field, read)]
    if hasattr(rows, "data"):
        path = find_column(rows.features.arrow_schema, field, what)
        read = partial(_texts, what, field, path, lambda: _columns(rows, path[0]))
        return [MemorySource(what, "memory", {"name": what, "fingerprint": str(rows._fingerprint)}, field, read)]
    name = None if rows.features is None else find_column(rows.features.arrow_schema, field, what)[0]
    read = partial(_streamed_texts, rows.with_format(None), name, what, field)
    return [MemorySource(what, "memory", {"name": what, "read": uuid.uuid4().hex}, field, read)]


def _columns(dataset: Any, name: str) -> Iterator[pa.Array]:
    """A column of a Dataset, in arrays of some rows; of one that has indices they are copies, slower in large arrays."""
    row_bytes = dataset.data.nbytes // max(1, dataset.data.num_rows)
    rows = max(1, min(_ROWS if dataset._indices is None else _COPIED_ROWS, MOST_DOCUMENT_BYTES // max(1, row_bytes)))
    for table in dataset.with_format("arrow", columns=[name]).iter(rows):
        yield from table.column(name).chunks


def _texts(what: str, field: str, path: list[str], columns: Any) -> Iterator[str]:
    import pyarrow as pa

    def checked() -> Iterator[pa.Array]:
        for column in columns():
            column.validate(full=True)  # it may be mapped from a file
            yield select(column, path[1:])

    try:
        yield from column_texts(checked(), field, what)
    except pa.ArrowException as error:
        raise BertprepError(f"{what}: column {field!r} cannot be read: {first_line(error)}") from error


def _streamed_texts(dataset: Any, name: str | None, what: str, field: str) -> Iterator[str]:
    for number, row in enumerate(dataset if name is None else _column_rows(dataset, name)):
        where = partial("{}: row {:,}".format, what, number)
        yield to_text(find_value(row, field, where), lambda where=where: f"{where()}: field {field!r}", row)  # type: ignore[misc]


def _column_rows(dataset: Any, name: str) -> Iterator[dict[str, Any]]:
    """The rows of an IterableDataset with one column only, several times as fast as all of each."""
    for batch in dataset.select_columns([name]).iter(_COPIED_ROWS):
        for value in batch[name]:
            yield {name: value}


def _digest(texts: Iterator[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode(errors="surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()
