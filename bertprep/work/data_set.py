"""A data set: files of one kind below one folder, each in a split or in none, with their manifest.

A split has a name, from its folder or file (`validation/x.tfrecord`, `train-00000-of-00002.parquet`), and a role, training or
test, from `SPLIT_NAMES`. If several splits have the role of a test split, `test` is used, else the first by name; the others
are left out unless the user names them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path

from bertprep.config import RecordFormat
from bertprep.errors import BertprepError, UsageError
from bertprep.files.paths import sizes_of
from bertprep.untrusted import CORPUS
from bertprep.work.layout import (
    DEV,
    MANIFEST,
    SPLIT_NAMES,
    SPLITS,
    TEST,
    TRAIN,
    TRAINING,
    WORDS,
    TokenFile,
    by_number,
    split_order,
)
from bertprep.work.manifest import TOKEN_SHARDS, Manifest
from bertprep.work.recognize import sniff_format

_SPLIT_FILE = re.compile(rf"({'|'.join(SPLIT_NAMES)})(-\d+-of-\d+(-[0-9a-f]+)?)?\.(arrow|parquet)")
_CORPUS_FILE = re.compile(rf"(.+)_({'|'.join(SPLITS)})_\d+\.(tfrecord|arrow|parquet).*")


@dataclass(frozen=True)
class DataSet:
    """The files of one data set: `files` maps their names, relative to the folder, to splits, training first.

    `manifest` uses the same names. It is None if there is none, or if it is unusable, which `problem` explains. `notes` are
    lines about skipped files.
    """

    folder: Path
    content: str  # RECORDS of any kind, TEXT_SHARDS, MDS, or TOKEN_SHARDS, whose files are only the .bin
    files: dict[str, str]
    manifest: Manifest | None = None
    problem: BertprepError | None = None
    is_unfinished: bool = False  # a run that makes it was stopped, or is at work
    vocabulary: Path | None = None
    is_whole: bool = True  # False if the user named a split or files of it
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()  # files of further test splits, such as validation/

    @property
    def is_empty(self) -> bool:
        """Whether the run that makes it has not finished a file yet."""
        return self.is_unfinished and not self.files and self.manifest is None

    @cached_property
    def has_documents(self) -> bool:
        """Whether these are token shards of whole documents; without a manifest, a .words file shows that."""
        if self.content != TOKEN_SHARDS:
            return False
        if self.manifest:
            return self.manifest.tokenizer is not None
        return bool(sizes_of(self.folder, [Path(name).with_suffix(f".{WORDS}").as_posix() for name in self.files]))

    @property
    def split_names(self) -> list[str]:
        """The names of the splits, from their folders or files, including those that are left out."""
        return list(dict.fromkeys(filter(None, map(own_split, (*self.files, *self.left_out)))))

    def named(self, split: str) -> list[Path]:
        """Return the files of a split, given by name; `train` and `training` are the same. Without splits, all are `train`."""
        names = self.split_names
        if split in (TRAIN, TRAINING) and (not names or not self.is_whole):
            return [self.folder / name for name in self.files]
        own = find_split(split, names)
        if own is None:
            raise UsageError(f"{self.folder}: has no split {split}; it has {', '.join(names or [TRAIN])}")
        return [self.folder / name for name in (*self.files, *self.left_out) if own_split(name) == own]

    @property
    def splits(self) -> list[str]:
        """The roles of the splits that have files, training first; "" for files in no split."""
        return sorted(set(self.files.values()), key=split_order)

    @property
    def format(self) -> RecordFormat | None:
        """The format of the first file that has one, or None."""
        return next((sniff_format(self.folder / name) for name in self.files), None)

    @property
    def modified_ns(self) -> int:
        """When it was finished, or, without a manifest, when its folder last changed."""
        manifest = self.folder / MANIFEST
        return (manifest if manifest.is_file() else self.folder).stat().st_mtime_ns

    @property
    def corpus(self) -> str:
        """The name of the corpus, from the manifest or the names of the files, else "corpus"."""
        if self.manifest and "corpus" in self.manifest.made_with:
            return str(self.manifest.made_with["corpus"])
        matched = _CORPUS_FILE.fullmatch(Path(next(iter(self.files))).name)
        return matched[1] if matched and CORPUS.holds(matched[1]) else "corpus"

    def paths(self, split: str) -> list[Path]:
        """Return the files of a split, given by role; `train` and `training` are the same. Without splits, all are training."""
        split = TRAINING if split == TRAIN else split
        has_no_splits = not self.is_whole or self.splits == [""]
        return [self.folder / name for name, of in self.files.items() if (TRAINING if has_no_splits else of) == split]

    @property
    def second_tests(self) -> list[str]:
        """The names of the splits that are left out."""
        return list(dict.fromkeys(map(own_split, self.left_out)))

    def second_test(self, split: str) -> DataSet:
        """Return one of the splits that are left out, as the test split of a data set of its own."""
        files = {name: TEST for name in self.left_out if own_split(name) == split}
        return replace(self, files=files, left_out=(), is_whole=False)

    def without_second_tests(self) -> DataSet:
        """Return the data set with only one test split. The others are left out, with a note for each."""
        tests = sorted({own_split(name) for name, split in self.files.items() if split == TEST})
        if len(tests) < 2:
            return self
        kept = TEST if TEST in tests else tests[0]
        seconds = {own: [name for name in self.files if own_split(name) == own] for own in tests if own != kept}
        notes = [
            f"{self.folder / (own if '/' in names[0] else names[0])}: left out, as {kept} is the test split; name it to read it"
            for own, names in seconds.items()
        ]
        left_out = tuple(chain.from_iterable(seconds.values()))
        files = {name: split for name, split in self.files.items() if split != TEST or own_split(name) == kept}
        return replace(self, files=files, left_out=left_out, notes=(*self.notes, *notes))

    def by_itself(self) -> DataSet:
        """Return the split or the files that the user named as a data set without splits and without a manifest."""
        folder = (self.folder / next(iter(self.files))).parent
        return replace(self, folder=folder, files={Path(name).name: "" for name in self.files}, manifest=None)


def find_split(split: str, names: Iterable[str]) -> str | None:
    """Return the one of `names` that is the split, or a synonym of it; None if there is none.

    >>> [find_split(split, ["training", "dev"]) for split in ("train", "test", "validation")]
    ['training', 'dev', None]
    """
    others = {TRAIN: TRAINING, TRAINING: TRAIN, TEST: DEV}  # a task is evaluated on its dev/
    there = set(names)
    return next((name for name in (split, others.get(split, split)) if name in there), None)


def own_split(name: str) -> str:
    """Return the name of the split that a file's folder or own name gives; "" if neither does.

    >>> [own_split(name) for name in ("eval/part-0", "train-00000-of-00002.parquet", "old/part-0", "part-0")]
    ['eval', 'train', '', '']
    """
    folder, slash, _ = name.partition("/")
    if slash:
        return folder if folder in SPLIT_NAMES else ""
    matched = _SPLIT_FILE.fullmatch(name)
    return matched[1] if matched else ""


def split_of(name: str) -> str:
    """Return the role of a file's split: training, test, or another split of a fine-tuning task; "" for none.

    >>> [split_of(name) for name in ("eval/part-0", "train-00000-of-00002.parquet", "part-0")]
    ['test', 'training', '']
    """
    return SPLIT_NAMES.get(own_split(name), "")


def in_order(names: Iterable[str]) -> dict[str, str]:
    """Return name -> split for the files, training first, and within a split by number."""
    splits = {name: split_of(name) for name in names}
    return dict(sorted(splits.items(), key=lambda item: (split_order(item[1]), by_number(item[0]))))


def shards_of_split(names: Iterable[str], split: str) -> list[str]:
    """Return the files of a split by number. Their names are those of the folder in which they were made.

    >>> shards_of_split(["training/books_training_00001.txt", "test/x.txt", "training/books_training_00000.txt"], "training")
    ['training/books_training_00000.txt', 'training/books_training_00001.txt']
    """
    return [name for name, of in in_order(names).items() if of == split]


def token_bins(names: Iterable[str]) -> list[str]:
    """Return the .bin of each token shard among these files."""
    return [name for name in names if name.endswith(f".{TokenFile.BIN}")]


def note_skipped(files: Sequence[Path], why: str) -> tuple[str, ...]:
    """Return a line about skipped files, if there are any."""
    if not files:
        return ()
    if len(files) == 1:
        return (f"{files[0]}: is {why}; skipped",)
    return (f"{files[0]} and {len(files) - 1:,} more: are {why}; skipped",)
