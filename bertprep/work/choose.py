"""Find the one complete data set that a path stands for, for the trainer, `convert` and readers.

A folder may contain several. Then one is chosen by a rule, and a note says which, or an error says which there are.
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
from bertprep.work.manifest import MDS, RECORDS, TOKEN_SHARDS, Manifest
from bertprep.work.resume import what_finishes

_FORMATS = (*RECORD_FORMATS, TOKENS)


def find_records(path: Path, prefer: Sequence[str] = ()) -> DataSet:
    """Return the one finished, complete data set of records in a file or folder.

    If a folder has several formats, the first that `prefer` names is taken. Raises `UsageError` if there is no data set or more
    than one, `BertprepError` for a corrupt manifest, a missing file or an unfinished folder.
    """
    sets = find_data_sets([path])
    found = [each for each in sets if each.content == RECORDS]
    if not found:
        raise UsageError(f"{path}: has {_describe(sets[0])}")
    return _complete(path, *_choose(path, found, prefer))


def _describe(data_set: DataSet) -> str:
    """Return, for an error, the kind of a data set that has no records, and what can read it."""
    if data_set.has_documents:
        return (
            f"{TOKEN_SHARDS} of whole documents, expected records; bertprep.TokenDataset and the trainer read these as they "
            "are, and bertprep convert --to mds --seq N converts them to MDS"
        )
    if data_set.content == MDS:
        return f"{MDS}, expected records; mosaicml-streaming reads it"
    return f"{data_set.content}, expected records; make records from them with bertprep create"


def find_token_shards(paths: Sequence[Path], *, any_tokenizer: bool = False) -> DataSet:
    """Return the token shards that paths name, with the rules of `find_records`; `files` are their .bin files.

    Token shards of whole documents, made with --tokenizer, are refused unless `any_tokenizer`.
    """
    sets = find_data_sets(paths)
    found = [each for each in sets if each.content == TOKEN_SHARDS]
    if not found:
        raise UsageError(
            f"{paths[0]}: has {sets[0].content}, expected token shards; bertprep tokenize makes them from text shards"
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
            f"{chosen.folder}: has token shards of whole documents, made with --tokenizer, expected those of sentences; make "
            "them with bertprep tokenize without --tokenizer, or read these with bertprep.TokenDataset"
        )
    return chosen


def find_training_records(path: Path, prefer: Sequence[str] = ()) -> DataSet:
    """Return a data set as `find_records` does. The folder of a training split stands for the data set with its test split."""
    found = find_records(path, prefer)
    return found if path.is_file() or found.is_whole or found.splits != [TRAINING] else find_records(found.folder)


def find_training_tokens(path: Path) -> DataSet:
    """Return a data set of token shards, with the rules of `find_training_records`."""
    found = find_token_shards([path], any_tokenizer=True)
    is_all = path.is_file() or found.is_whole or found.splits != [TRAINING]
    return found if is_all else find_token_shards([found.folder], any_tokenizer=True)


def _choose(path: Path, found: Sequence[DataSet], prefer: Sequence[str]) -> tuple[DataSet, tuple[str, ...]]:
    """Return the data set that a path stands for, and a note if the choice is not obvious.

    It is the folder's own, else the one in DIR/FORMAT, where `--output DIR` puts it, else the only one below. Raises
    `UsageError` if several are equal.
    """
    own = [each for each in found if each.folder == path or not each.is_whole]
    formats = {each.folder.name: each for each in found if each.folder.parent == path and each.folder.name in _FORMATS}
    preferred = [formats[name] for name in prefer if name in formats]
    candidates = own or preferred[:1] or list(formats.values()) or list(found)
    chosen = candidates[0]
    if len(candidates) > 1 and formats:
        names = [name for name in _FORMATS if name in formats]
        listed = " and ".join(f"{name}/" for name in names)
        raise UsageError(f"{path}: has several formats, {listed}; name one, such as {path / names[0]}")
    if len(candidates) > 1:
        raise UsageError(f"{path}: has {len(found):,} data sets; name one, such as {chosen.folder}")
    others = [each for each in found if each is not chosen and each not in formats.values()]
    if others:
        return chosen, (
            f"{chosen.folder}: only this data set is used, not the others below {path}, such as {others[0].folder}",
        )
    if own or formats:
        return chosen, ()
    return chosen, (f"{path}: using the records in {chosen.folder}",)


def _complete(path: Path, chosen: DataSet, notes: tuple[str, ...]) -> DataSet:
    """Return a data set with only the files to read: those that its manifest lists, or else those in a split, if there is one.

    A file that is named itself is read as it is. Raises `BertprepError` if a listed file is missing.
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
    """Return the files of the chosen splits that the manifest lists. Raises `BertprepError` if one is missing."""
    listed = [name for name in manifest.files if chosen.is_whole or split_of(name) in chosen.splits]
    there = sizes_of(chosen.folder, listed)
    for name in in_order(listed):
        if name not in there:
            raise BertprepError(
                f"{chosen.folder / name}: is missing, but {chosen.folder / MANIFEST} lists it; make the folder again"
            )
    return listed
