"""Find the files that `--input` and `--dataset` name: files, folders, patterns, URLs, data sets.

A file that is named is read or refused; `kinds` recognizes what is in it. From a folder or pattern, files are read that are
named like text (`IN_FOLDERS`), or have no suffix and begin like it. Passed over are hidden files, files that only describe a
data set, and splits other than training.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from glob import glob
from os.path import commonpath
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from bertprep.errors import BertprepError, UsageError, quoted
from bertprep.files.checksums import BLAKE3
from bertprep.files.paths import as_path, checksum_of
from bertprep.sources.documents import MEMORY, WHOLE, Source
from bertprep.sources.fields import batch_texts, find_columns, row_text, show_names
from bertprep.sources.joined_rows import find_key, join_rows, no_column
from bertprep.sources.kinds import ARROW, PARQUET, READER_OF_SUFFIX, TEXT, find_reader, looks_binary, read_head, recognize
from bertprep.sources.readers import file_system, is_compressed, is_local, is_url, is_web, split_hops, suffixes
from bertprep.sources.word_columns import find_words, no_words
from bertprep.terminal import counted, warn
from bertprep.untrusted import check_name, parse_json, read_bounded
from bertprep.work.layout import DATASET_DICT, MANIFEST, STATE, TEST, TRAIN, VOCABULARY, is_saved

IN_FOLDERS = tuple(sorted(READER_OF_SUFFIX))
"""The suffixes of files that are read from a folder. A file that the user names may have any, and its content decides."""
Fetched = Sequence[tuple[Path, dict[str, Any] | None]]
"""Fetched files, each with its identity if that is known without reading the file."""
_PACKED = "or .gz, .bz2, .zst, .xz"
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
        found = _files_below(path)
    elif is_glob(location) and not path.exists():
        matching = glob(location, recursive=True)  # noqa: PTH207, Path.glob would find hidden files
        found = sorted(file for file in matching if Path(file).is_file())
    if found is None:
        return [location]
    chosen = choose_files(found, _fixed_part(location, found))
    if not chosen.files:
        none = f"{'matches' if is_glob(location) else 'the folder has'} no file"
        kinds = "" if is_glob(location) and not found else f" that ends in {', '.join(IN_FOLDERS)} ({_PACKED})"
        parent = Path(location).parent
        if not is_url(location) and not is_glob(str(parent)) and not parent.exists():
            kinds = f"; there is no folder {parent}"
        if chosen.passed_over:
            kinds += f"; {chosen.describe()}"
        raise UsageError(f"--input {location}: {none}{kinds}")
    if chosen.passed_over:
        warn(f"--input {location}: {chosen.describe()}")
    return chosen.files


def files_in(folder: Path) -> list[Path]:
    """Return the files that are read from a local folder, as `--input` would; none if there is no such folder."""
    return [Path(file) for file in choose_files(_files_below(folder), len(str(folder))).files]


def _files_below(folder: Path) -> list[str]:
    return [str(file) for file in sorted(folder.rglob("*")) if file.is_file()]


def _fixed_part(location: str, found: Sequence[str]) -> int:
    """Return how many characters of the names of found files the user has named: those of the folder, or before a wildcard."""
    named = location.rstrip("/") if not is_glob(location) else re.split(r"[*?\[]", location)[0].rpartition("/")[0]
    return len(named) if all(file.startswith(named) for file in found) else len(commonpath(found))


@dataclass(frozen=True)
class ChosenFiles:
    """The files of a folder or pattern that are read, and how many are passed over, by cause."""

    files: list[str]
    passed_over: Counter[str]

    def describe(self) -> str:
        causes = ", ".join(f"{count:,} {cause}" for cause, count in self.passed_over.items())
        read = f"{counted(len(self.files), 'file')} read, and " if self.files else ""
        return f"{read}passed over: {causes}; name a file by itself to read it"


def _begins_like_text(file: str) -> bool:
    """Return whether a file without a suffix, such as `wiki_00` and `part-00000`, is of a kind that is read."""
    if PurePosixPath(file).suffix:
        return False
    try:
        head = read_head(file)
    except (BertprepError, OSError):
        return False
    reader = recognize(head).reader
    return reader in (PARQUET, ARROW) or (bool(reader) and not looks_binary(head.data))


def choose_files(found: Sequence[str], folder: int = 0, *, is_text: Callable[[str], bool] = _begins_like_text) -> ChosenFiles:
    """Choose the files to read from those of a folder, whose name has `folder` characters, or of a pattern.

    Hidden files, and those that only describe data, are never read. `is_text` decides about files without a known suffix. Where
    files have the names of splits, only those of training are read.
    """
    passed_over: Counter[str] = Counter()
    text = []
    for file in _without_data_sets(found):
        inner = file[folder:].strip("/")
        if any(_HIDDEN.match(part) for part in inner.split("/")):
            passed_over["hidden"] += 1
        elif any(names.fullmatch(inner.rpartition("/")[2]) for names in (_DESCRIBES, _MAY_DESCRIBE)):
            passed_over["that describe data"] += 1
        elif suffixes(file)[0] in IN_FOLDERS or is_text(file):
            text.append(file)
        else:
            passed_over["of other kinds"] += 1
    if not text:  # metadata.csv may be all the text that there is
        text = [file for file in _without_data_sets(found) if _MAY_DESCRIBE.fullmatch(file.rpartition("/")[2])]
        passed_over["that describe data"] -= len(text)
        passed_over = +passed_over
    training, others = split_of_names([file[folder:] for file in text])
    if others:
        passed_over["of other splits than training"] += len(others)
    return ChosenFiles([text[index] for index in training], passed_over)


_HIDDEN = re.compile(r"\.|__|_(success|metadata|common_metadata|temporary|delta_log|committed|started)", re.IGNORECASE)
_DESCRIBES = re.compile(
    r"dataset_infos?\.json|dataset_dict\.json|listing\.json|state\.json|croissant\.json|config\.json|"
    r"(tokenizer|tokenizer_config|special_tokens_map|added_tokens|package|index)\.json|vocab\.(txt|json)|"
    r"(readme|licen[cs]e|notice|changelog|authors|citation|md5sums?|sha\d+sums?|checksums?|robots|requirements)(\.txt|\.md)?|"
    r".*-multistream-index\d*\.txt(-p\d+p\d+)?(\.bz2)?|.*\.(crc|md5|sha1|sha256)",
    re.IGNORECASE,
)
"""Names of files that describe a data set, a model or a dump, and are none of its text."""
_MAY_DESCRIBE = re.compile(r"(metadata|meta|info|schema)\.(csv|tsv|jsonl?)", re.IGNORECASE)
"""Names of files that describe the text next to them, if there is any."""


_SPLITS = {
    "train": TRAIN, "training": TRAIN, "test": TEST, "testing": TEST, "valid": TEST, "validation": TEST, "val": TEST,
    "dev": TEST, "eval": TEST, "evaluation": TEST, "heldout": TEST,
}  # fmt: skip
_SPLIT = re.compile(
    rf"(?<![^-_. ])({'|'.join(_SPLITS)})(?:[-_. ]?\d+)*(?:-of-\d+)?(?:-[\da-f]{{8,}})?(?![^-_. ])", re.IGNORECASE
)
"""The name of a split as a word of a name, with the numbers of a shard: that of `wiki.train-00001-of-00004`."""


def split_of_names(names: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return the indices of the files to train on and of those of other splits next to them.

    A file or folder is of another split if its name would be that of one of training, were `train` in place of the split. So
    `books-test` is one next to `books-train`, and `test` next to `train_1`, but not next to `training_day`.

    >>> split_of_names(["data/train-0.txt", "data/test-0.txt", "books/test.txt", "train_days.txt"])
    ([0, 2, 3], [1])
    """
    named = [_splits_in(name) for name in names]
    of_training = {rest for splits in named for rest, split in splits if split == TRAIN}
    others = {
        index for index, splits in enumerate(named) if any(split != TRAIN and rest in of_training for rest, split in splits)
    }
    return [index for index in range(len(names)) if index not in others], sorted(others)


def _splits_in(name: str) -> list[tuple[str, str]]:
    """Return each split in the names of a file and of its folders, after the path up to there without the split's name."""
    *folders, file = name.strip("/").split("/")
    stem = file[: len(file) - len("".join(suffixes(file)))]
    parts = [*folders, stem]
    found = []
    for depth, part in enumerate(parts):
        for match in _SPLIT.finditer(part):
            rest = f"{part[: match.start()]}/{part[match.end() :]}"  # a name has no slash of its own
            found.append(("/".join([*parts[:depth], rest]), _SPLITS[match[1].lower()]))
    return found


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


def check_given_once(locations: Iterable[str]) -> None:
    """Raise `UsageError` for a file that is given twice, even under two names."""
    files_of = Counter(str(as_path(each).resolve()) if is_local(each) else each for each in locations)
    if repeated := [file for file, count in files_of.items() if count > 1]:
        raise UsageError(f"--input {repeated[0]}: is given twice; give each text once")


def source_at(location: str, field: str, one_document: bool, identity: dict[str, Any] | None = None) -> Source:
    """Return the source for one file. `identity` has values that change with its content, if they are known."""
    if not is_local(location):
        system, name = file_system(location)
        with _explained(location):
            known = {"name": location, "bytes": system.info(name).get("size"), "key": system.ukey(name)}
            reader = find_reader(location)
        return Source(location, WHOLE if reader == TEXT and one_document else reader, known, field)
    path = as_path(location)
    if not path.is_file():
        raise UsageError(
            f"--input {location}: {'is not a file' if path.exists() else 'does not exist'}; name files, folders or URLs"
        )
    reader = find_reader(location)
    is_packed = is_compressed(location)
    if reader == TEXT and one_document:
        reader = WHOLE
    if reader in (TEXT, WHOLE) and not is_packed:
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
            f"{what}: has a transform, which would not be applied to its stored rows; store them changed, by map(), or give "
            "dataset.with_format(None) to read them as they are stored"
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
    known, is_stream = {"read": uuid.uuid4().hex}, not hasattr(rows, "num_rows")
    return [Source(what, MEMORY, known, field, read, is_stream, words=words, words_in_memory=read_words)]


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
