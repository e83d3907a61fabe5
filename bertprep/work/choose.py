"""Find the one complete data set that a path stands for, for the trainer, `convert` and readers.

Other tools' folders may hold several; then one is chosen by a rule that a note states, or an error lists them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bertprep.config import RECORD_FORMATS
from bertprep.errors import BertprepError, UsageError
from bertprep.files.paths import sizes_of
from bertprep.work.data_set import DataSet, in_order, note_skipped, split_of, token_bins
from bertprep.work.find import find_data_sets
from bertprep.work.layout import MANIFEST, TOKENS, TRAINING
from bertprep.work.ledger import what_finishes
from bertprep.work.manifest import MDS, RECORDS, TOKEN_SHARDS, Manifest

_FORMATS = (*RECORD_FORMATS, TOKENS)


def find_records(path: Path, prefer: Sequence[str] = ()) -> DataSet:
    """Return the one finished, complete data set of records in a file or folder.

    Of several formats the first in `prefer` is taken. Raises `UsageError` for none or several, `BertprepError` for a corrupt
    manifest, a missing file or an unfinished run.
    """
    sets = find_data_sets([path])
    found = [each for each in sets if each.content == RECORDS]
    if not found:
        raise UsageError(f"{path}: holds {_describe(sets[0])}")
    return _complete(path, *_choose(path, found, prefer))


def _describe(data_set: DataSet) -> str:
    """Describe a data set that is not records, and name the command that reads it."""
    if data_set.has_documents:
        return (
            f"{TOKEN_SHARDS} of whole documents, expected records; bertprep.TokenDataset and the trainer read these as they "
            "are, and bertprep convert --to mds --seq N makes MDS of them"
        )
    if data_set.content == MDS:
        return f"{MDS}, expected records; mosaicml-streaming reads it"
    return f"{data_set.content}, expected records; bertprep create makes records of {data_set.content}"


def find_token_shards(paths: Sequence[Path], *, any_tokenizer: bool = False) -> DataSet:
    """Return as `find_records` does the token shards that paths name: `files` are their .bin, by split.

    Those of documents, made with --tokenizer, are refused unless `any_tokenizer`.
    """
    sets = find_data_sets(paths)
    found = [each for each in sets if each.content == TOKEN_SHARDS]
    if not found:
        raise UsageError(
            f"{paths[0]}: holds {sets[0].content}, expected token shards; bertprep tokenize makes them of text shards"
        )
    if len(paths) > 1 and len(found) < len(sets):
        other = next(each for each in sets if each.content != TOKEN_SHARDS)
        raise UsageError(
            f"{other.folder / next(iter(other.files), '')}: is not a token shard; name token shards or text, not both"
        )
    if len(paths) > 1 and len(found) > 1:
        raise UsageError(f"{paths[1]}: is not in the same folder as {paths[0]}; name the token shards of one folder")
    chosen = _complete(paths[0], *_choose(paths[0], found, ()))
    if chosen.manifest and chosen.manifest.tokenizer and not any_tokenizer:
        raise UsageError(
            f"{chosen.folder}: holds whole documents, made with --tokenizer, expected token shards of sentences; "
            "bertprep.TokenDataset reads these, and bertprep tokenize without --tokenizer makes the others"
        )
    return chosen


def find_training_records(path: Path, prefer: Sequence[str] = ()) -> DataSet:
    """As `find_records`; the folder of a training split stands for its whole data set, test split included."""
    found = find_records(path, prefer)
    return found if path.is_file() or found.is_whole or found.splits != [TRAINING] else find_records(found.folder)


def find_training_tokens(path: Path) -> DataSet:
    """Return as `find_training_records` does the data set of token shards."""
    found = find_token_shards([path], any_tokenizer=True)
    is_all = path.is_file() or found.is_whole or found.splits != [TRAINING]
    return found if is_all else find_token_shards([found.folder], any_tokenizer=True)


def _choose(path: Path, found: Sequence[DataSet], prefer: Sequence[str]) -> tuple[DataSet, tuple[str, ...]]:
    """Return the data set that a path stands for, and a note where that is not plain; raises `UsageError` for several.

    It is the folder's own, else that of a format, which `--output DIR` puts in DIR/FORMAT, else the only one below.
    """
    own = [each for each in found if each.folder == path or not each.is_whole]
    formats = {each.folder.name: each for each in found if each.folder.parent == path and each.folder.name in _FORMATS}
    preferred = [formats[name] for name in prefer if name in formats]
    candidates = own or preferred[:1] or list(formats.values()) or list(found)
    chosen = candidates[0]
    if len(candidates) > 1 and formats:
        names = [name for name in _FORMATS if name in formats]
        listed = " and ".join(f"{name}/" for name in names)
        raise UsageError(f"{path}: holds {listed}; name one, such as {path / names[0]}")
    if len(candidates) > 1:
        raise UsageError(f"{path}: holds {len(found):,} data sets; name one, such as {chosen.folder}")
    others = [each for each in found if each is not chosen and each not in formats.values()]
    if others:
        return chosen, (f"{chosen.folder}: using it alone, without the data sets below {path}, such as {others[0].folder}",)
    if own or formats:
        return chosen, ()
    return chosen, (f"{path}: using the records in {chosen.folder}",)


def _complete(path: Path, chosen: DataSet, notes: tuple[str, ...]) -> DataSet:
    """Return the files of a data set that are to be read; raises `BertprepError` where one is missing.

    They are those that the manifest lists; without a manifest those in a split, if any is. A single file is read as it is.
    """
    if chosen.problem:
        raise chosen.problem
    files = chosen.files
    if not path.is_file():
        if chosen.is_unfinished:
            raise BertprepError(f"{chosen.folder}: is not finished; {what_finishes(chosen.folder)}")
        if chosen.manifest:
            listed = _check_listed(chosen, chosen.manifest)
            extra = [chosen.folder / name for name in files if name not in chosen.manifest.files]
            notes += note_skipped(extra, f"in no {MANIFEST}")
            files = in_order(token_bins(listed) if chosen.content == TOKEN_SHARDS else listed)
    if any(files.values()):
        notes += note_skipped([chosen.folder / name for name, split in files.items() if not split], "in no split")
        files = {name: split for name, split in files.items() if split}
    return replace(chosen, files=files, notes=(*chosen.notes, *notes))


def _check_listed(chosen: DataSet, manifest: Manifest) -> list[str]:
    """Return the files that the manifest lists, of the chosen splits; raises `BertprepError` where one is missing."""
    listed = [name for name in manifest.files if chosen.is_whole or split_of(name) in chosen.splits]
    there = sizes_of(chosen.folder, listed)
    for name in in_order(listed):
        if name not in there:
            raise BertprepError(
                f"{chosen.folder / name}: is missing, {chosen.folder / MANIFEST} lists it; make the folder again"
            )
    return listed
