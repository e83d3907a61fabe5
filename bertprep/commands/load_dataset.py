"""Load records as data sets of Hugging Face's `datasets`.

Arrow folders are opened in place. Other records are converted once, atomically, into the cache of `datasets`, under a checksum
of their names, sizes and modification times.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bertprep.config import RecordFormat
from bertprep.errors import BertprepError, UsageError, first_line
from bertprep.files.atomic import atomic_folder
from bertprep.files.lock import locked
from bertprep.files.paths import as_path, is_object
from bertprep.records.convert import Conversion, conversion_job
from bertprep.records.dataset_info import identify_files, import_datasets
from bertprep.records.identify import identify_all
from bertprep.work.choose import find_records
from bertprep.work.data_set import DataSet, find_split
from bertprep.work.layout import MANIFEST, SPLIT_NAMES, STATE, TRAIN, TRAINING, find_vocabulary, is_saved

if TYPE_CHECKING:
    import datasets

_CACHE = "bertprep"


def load_dataset(
    data: Path | str, split: str | None = None, cache_dir: Path | str | None = None
) -> datasets.DatasetDict | datasets.Dataset:
    """Return the records of a folder or file in any format as a DatasetDict, or as a Dataset if it is one split.

        dataset = bertprep.load_dataset("data/arrow/.../wikipedia", split="train")
        Trainer(model, train_dataset=dataset).train()

    Arrow folders are opened in place. Other records, and those at URLs, are converted first and kept in `cache_dir` (default:
    `datasets.config.HF_DATASETS_CACHE`). Raises `UsageError` if `datasets` is not installed or there is no such split, and
    `BertprepError` for corrupt records.
    """
    library = import_datasets()
    path = as_path(data)
    found = find_records(path)
    if found.is_whole and found.format == RecordFormat.ARROW and not is_object(path) and is_saved(found.folder):
        loaded = _load(found.folder)
        if split is None:
            return loaded
        splits = loaded if isinstance(loaded, library.DatasetDict) else {str(loaded.split or TRAIN): loaded}
        if name := find_split(split, splits):
            return splits[name]
        raise UsageError(f"{data}: has no split {split}; it has {', '.join(splits)}")
    if split is not None:
        found.named(split)  # raises if there is no such split
    cache = Path(cache_dir or library.config.HF_DATASETS_CACHE) / _CACHE
    if split in found.second_tests:
        return _load(_convert(path, found.second_test(split), cache))
    loaded = _load(_convert(path, found, cache))
    if not isinstance(loaded, library.DatasetDict):
        return loaded
    if split is not None:
        return next(dataset for name, dataset in loaded.items() if SPLIT_NAMES[name] == SPLIT_NAMES[split])
    own = {SPLIT_NAMES[name]: name for name in found.split_names if name not in (TRAINING, *found.second_tests)}
    splits = {
        own.get(SPLIT_NAMES[name], name): dataset for name, dataset in loaded.items()
    }  # names of the source, not of convert
    others = {name: _load(_convert(path, found.second_test(name), cache)) for name in found.second_tests}
    return library.DatasetDict({**splits, **others})


def _load(folder: Path) -> datasets.DatasetDict | datasets.Dataset:
    try:
        return import_datasets().load_from_disk(str(folder))
    except Exception as error:  # datasets raises errors of many kinds for corrupt JSON or Arrow files
        raise BertprepError(f"{folder}: datasets cannot open it: {first_line(error)}; make the folder again") from error


def _convert(path: Path, found: DataSet, cache: Path) -> Path:
    name = _fingerprint(found)
    kept = cache / name
    with locked(cache, f"{name}.lock", wait=True):
        if not kept.is_dir():
            with atomic_folder(kept) as unfinished:
                data_set = found if found.is_whole else found.by_itself()
                conversion = Conversion(RecordFormat.ARROW, shards=1 if path.is_file() else None)
                conversion_job(data_set, identify_all(data_set), unfinished, conversion).run()
    has_splits = found.is_whole and found.splits != [""]
    return kept if has_splits else next(kept.glob(f"*/{STATE}")).parent


def _fingerprint(found: DataSet) -> str:
    paths = [found.folder / name for name in found.files]
    neighbours = [found.folder / MANIFEST, find_vocabulary(found.folder)]
    paths += [path for path in neighbours if path and path.is_file()]
    return identify_files(paths)
