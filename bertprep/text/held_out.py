"""Chooses the documents of a test split by the hash of their text, like `shard`, for token shards that keep a document's lines.

A document has the hash of its sentences as a text shard has them, and `text.ranges` says from which hash on documents are held
out. So a document is in the same split as in text shards made of the same text with the same settings, whatever the order of
the inputs. One pass over the texts, in as many processes as there are workers, writes two files for each group of texts:

    .keys   the first 64 bits of the hash of each document, in order; 0 for a document without a letter or digit
    .rows   those of a run of `shard` (`text.runs`): hash, size and number of copies of each distinct document

They are removed once the token shards are finished. The choice takes a byte of memory for each document.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.config import SPLITTERS, ShardSettings
from bertprep.files.atomic import atomic_file, remove_folder
from bertprep.files.checksums import BLAKE3, digest
from bertprep.progress import Reporter
from bertprep.sources.documents import SPLITTERS as OF_READERS
from bertprep.sources.noted import SourcesGoneError
from bertprep.terminal import warn
from bertprep.text.cleaning import write_lines
from bertprep.text.ranges import hold_out
from bertprep.text.runs import corrupt_run, hash_document
from bertprep.text.shards import identify
from bertprep.text.tokenize_documents import DocumentShard, DocumentShards, SourceText
from bertprep.text.wrapping import Counts
from bertprep.work.layout import HASHED, SPLITS, TEST, TRAINING
from bertprep.work.ledger import Entry, Ledger
from bertprep.work.manifest import MAPPED_TEXT, TOKEN_SHARDS, Manifest, is_in_place, read_manifest, versions_of
from bertprep.work.parts import Finish, Part
from bertprep.work.resume import without_prepared
from bertprep.work.run import Job, Maker, Task
from bertprep.work.settings import check_same, make_header, read_header

_KEYS, _ROWS = ".keys", ".rows"
_NO_WORD = 0
"""The key of a document without a letter or digit, which text shards do not have."""
_COUNTS = ("shards", "test_shards")
_AT_ONCE_BITS = 22  # about so many documents, as a power of two, are compared with each other at a time
_TEST_SHARD_BYTES = 64_000_000  # a token shard of the test split is made of so much text of several groups
_LEFT_OUT, _FOR_TRAINING, _FOR_TEST = range(3)

Keys = NDArray[np.uint64]
Choices = NDArray[np.uint8]


def find_split(folder: Path, made_with: dict[str, Any], advice: str) -> Manifest | None:
    """Return the manifest of finished token shards whose numbers a pass over the text would give, or None.

    Raises `BertprepError` if the folder was made with other text or settings.
    """
    manifest = read_manifest(folder)
    found = make_header(manifest.kind, manifest.made_with) if manifest else read_header(folder)
    if found is None:
        return None
    counts = {name: found["made_with"].get(name) for name in _COUNTS}
    check_same(folder, found, make_header(TOKEN_SHARDS, {**made_with, **counts}), advice)
    return manifest if manifest and is_in_place(folder, manifest.files) else None


def with_finished_shards(documents: DocumentShards, manifest: Manifest) -> DocumentShards:
    """Return the documents with the shards that a manifest lists, all of which are finished."""
    counts = {name: manifest.made_with[name] for name in _COUNTS}
    texts = [text for shard in documents.shards for text in shard.texts]
    shards = [
        DocumentShard(split, number, texts)
        for split, count in zip(SPLITS, counts.values(), strict=True)
        for number in range(count)
    ]
    return _with_shards(documents, shards, [*counts.values()])


def _with_shards(documents: DocumentShards, shards: Sequence[DocumentShard], counts: Sequence[int]) -> DocumentShards:
    made_from = {**documents.made_from, **dict(zip(_COUNTS, counts, strict=True))}
    return replace(documents, shards=shards, made_from=made_from, is_split_by_hash=True)


@dataclass(frozen=True)
class HeldOut:
    """How documents are assigned to splits: by the hash of their text and the settings of text shards.

    `of_shards` has the numbers of documents in the training and test split of the text shards of a corpus. Then documents that
    text shards do not have are left out: duplicates, those without a letter or digit, and training documents that the test
    text has too. If it is None, all documents are kept.
    """

    settings: ShardSettings
    of_shards: tuple[int, int] | None = None

    @classmethod
    def of_corpus(cls, made: Manifest) -> HeldOut:
        """Return the rule by which the text shards were made that a manifest lists.

        Raises `SourcesGoneError` if an early version made them, whose manifest does not say it.
        """
        names = ("shards", "test_fraction", "splitter", "language", "keep_duplicates")
        if missing := next((name for name in ("inputs", *names) if name not in made.made_with), None):
            raise SourcesGoneError(f"their manifest lacks {missing}")
        if made.made_with["splitter"] not in SPLITTERS:
            raise SourcesGoneError(f"another version of bertprep made them, with the splitter {made.made_with['splitter']}")
        documents = [
            sum(entry["documents"] for name, entry in made.files.items() if name.startswith(f"{split}/")) for split in SPLITS
        ]
        return cls(ShardSettings(**{name: made.made_with[name] for name in names}), (documents[0], documents[1]))

    @property
    def made_with(self) -> dict[str, Any]:
        """Return the settings that decide which documents are in which split, for a manifest."""
        settings = {
            "splitter": self.settings.splitter,
            "language": self.settings.language or "en",
            "test_fraction": self.settings.test_fraction,
        }
        return settings if self.of_shards is None else {**settings, "keep_duplicates": self.settings.keep_duplicates}

    def split(
        self, documents: DocumentShards, folder: Path, *, part: Part | Finish | None, workers: int, reporter: Reporter
    ) -> DocumentShards:
        """Return the documents in shards of both splits; `folder` is that of the token shards."""
        hashed = self._hash(documents, folder, part, workers, reporter)
        low = None
        if self.settings.test_fraction:
            rows = {path: entry for path, entry in hashed.items() if path.suffix == _ROWS}
            with without_prepared(folder, folder / HASHED):
                low = hold_out([*rows], sum(entry["documents"] for entry in rows.values()), self.settings).test[0][0]
        choices = self._choose(documents.shards, [path for path in hashed if path.suffix == _KEYS], low)
        if self.of_shards is not None:
            _warn_of_other_splits(documents.corpus, choices, self.of_shards)
        shards = _in_splits(documents.shards, choices)
        counts = [sum(shard.split == split for shard in shards) for split in SPLITS]
        return _with_shards(documents, shards, counts)

    def _hash(
        self, documents: DocumentShards, folder: Path, part: Part | Finish | None, workers: int, reporter: Reporter
    ) -> dict[Path, Entry]:
        """Make the files of keys and of rows of each shard, even those that other parts have not made yet, in order."""
        versions = versions_of()
        maker = _HashDocuments(
            label=f"hash {documents.corpus}", splitter=self.settings.splitter, language=self.settings.language or "en"
        )
        tasks = []
        for shard in documents.shards:
            texts = [identify(text.source, {text.source.location: text.file} if text.file else {}) for text in shard.texts]
            content = json.dumps([texts, maker.splitter, maker.language, {**versions, "python": ""}])
            name = f"{shard.split}_{shard.number:05}_{hashlib.sha256(content.encode()).hexdigest()[:24]}"
            tasks.append(Task(shard.name, {end: name + end for end in (_KEYS, _ROWS)}, shard.texts))
        names = [name for task in tasks for name in task.files.values()]
        at = folder / HASHED
        if (finished := read_manifest(at)) and finished.files.keys() != set(names):
            remove_folder(at)  # it was made from other inputs
        ledger = Ledger(folder=at, kind=MAPPED_TEXT, made_with={"rules": 1}, versions=versions)
        job = Job(maker, dict.fromkeys((_KEYS, _ROWS), ledger), tasks, is_step=True)
        made = job.run(part, workers, reporter)
        if not made.is_complete:
            reporter.message(
                f"{maker.label}: every part needs the hashes of all documents, so part {part} also makes what the other parts "
                "have not made yet"
            )
            made = job.run(None, workers, reporter)
        return {at / name: made.manifest.files[name] for name in names}

    def _choose(self, shards: Sequence[DocumentShard], paths: Sequence[Path], low: int | None) -> list[Choices]:
        """Return for each shard what becomes of its documents; those whose hash is at least `low` are held out."""
        choices = []
        for shard, path in zip(shards, paths, strict=True):
            keys = _read_keys(path)
            of_shard = np.full(len(keys), _FOR_TEST if shard.split == TEST else _FOR_TRAINING, np.uint8)
            if low is not None:
                of_shard[keys >= np.uint64(low)] = _FOR_TEST
            if self.of_shards is not None:
                of_shard[keys == _NO_WORD] = _LEFT_OUT
            choices.append(of_shard)
        if self.of_shards is not None:
            _leave_out_repeated(choices, paths, keeps_duplicates=self.settings.keep_duplicates)
        return choices


def _leave_out_repeated(choices: Sequence[Choices], paths: Sequence[Path], *, keeps_duplicates: bool) -> None:
    """Leave training documents out that the test split has too and, unless duplicates are kept, all but the first copy.

    Only documents whose hashes begin with the same bits are in memory at the same time.
    """
    bits = max(0, sum(map(len, choices)).bit_length() - _AT_ONCE_BITS)
    for first_bits in range(1 << bits):
        found, where = [], []
        for index, (of_shard, path) in enumerate(zip(choices, paths, strict=True)):
            keys = _read_keys(path)
            begins = keys >> np.uint64(32) >> np.uint64(32 - bits)
            inside = np.flatnonzero((begins == first_bits) & (of_shard != _LEFT_OUT))
            found.append(keys[inside])
            where.append(np.stack([np.full(len(inside), index), inside, of_shard[inside]], axis=1))
        keys, places = np.concatenate(found), np.concatenate(where)
        is_test = places[:, 2] == _FOR_TEST
        is_left_out = ~is_test & np.isin(keys, keys[is_test])
        if not keeps_duplicates:
            for of_split in (is_test, ~is_test):
                _, first = np.unique(keys[of_split], return_index=True)
                is_repeated = np.ones(np.count_nonzero(of_split), np.bool_)
                is_repeated[first] = False
                is_left_out[of_split] |= is_repeated
        for index, of_shard in enumerate(choices):
            of_shard[places[is_left_out & (places[:, 0] == index), 1]] = _LEFT_OUT


def _in_splits(shards: Sequence[DocumentShard], choices: Sequence[Choices]) -> list[DocumentShard]:
    """Return a training shard for each shard that has training documents, and test shards of about `_TEST_SHARD_BYTES`."""
    training: list[DocumentShard] = []
    groups: list[list[tuple[DocumentShard, NDArray[np.bool_]]]] = []
    filled = 0.0
    for shard, of_shard in zip(shards, choices, strict=True):
        if (chosen := of_shard == _FOR_TRAINING).any():
            training.append(replace(shard, split=TRAINING, number=len(training), chosen=chosen))
        if (chosen := of_shard == _FOR_TEST).any():
            if not groups or filled >= _TEST_SHARD_BYTES:
                groups.append([])
                filled = 0.0
            groups[-1].append((shard, chosen))
            filled += shard.size_bytes * float(chosen.mean())
    test = []
    for number, group in enumerate(groups):
        texts = [text for shard, _ in group for text in shard.texts]
        test.append(DocumentShard(TEST, number, texts, np.concatenate([chosen for _, chosen in group])))
    return [*training, *test]


def _warn_of_other_splits(corpus: str, choices: Sequence[Choices], expected: tuple[int, int]) -> None:
    """Warn if the splits do not have as many documents as those of the text shards."""
    training, test = (sum(int(np.count_nonzero(each == of)) for each in choices) for of in (_FOR_TRAINING, _FOR_TEST))
    if (training, test) != expected:
        warn(
            f"{corpus}: {training:,} documents are for training and {test:,} for testing, but the text shards have "
            f"{expected[0]:,} and {expected[1]:,}, since another version made them; documents may be in another split there, "
            "so make the text shards again with bertprep shard"
        )


def _read_keys(path: Path) -> Keys:
    try:
        return np.frombuffer(path.read_bytes(), "<u8").astype(np.uint64, copy=False)
    except (OSError, ValueError) as error:
        raise corrupt_run(path, error) from error


@dataclass(frozen=True, kw_only=True)
class _HashDocuments(Maker):
    """Writes the keys and the rows of the documents of some texts."""

    label: str
    splitter: str
    language: str
    things = "groups of files"

    def make(self, argument: Sequence[SourceText], paths: Mapping[str, Path]) -> dict[str, Entry]:
        found_keys, found_sizes = array("Q"), array("Q")
        for text in argument:
            splitter = OF_READERS.get(text.source.reader, self.splitter)
            for document in text.unchanged_documents():
                key, size = _identify_document(document, splitter, self.language)
                found_keys.append(key)
                found_sizes.append(size)
        keys, sizes = (np.array(found, "<u8") for found in (found_keys, found_sizes))
        distinct, first, copies = np.unique(keys[keys != _NO_WORD], return_index=True, return_counts=True)
        rows = np.stack([distinct, sizes[keys != _NO_WORD][first], copies.astype("<u8")], axis=1)
        counts = {_KEYS: len(keys), _ROWS: len(rows)}
        contents = {_KEYS: keys.tobytes(), _ROWS: rows.astype("<u8").tobytes()}
        entries = {}
        for end, path in paths.items():
            with atomic_file(path) as file:
                file.write(contents[end])
            entries[end] = {"documents": counts[end], "bytes": len(contents[end]), BLAKE3: digest(contents[end])}
        return entries

    def amounts(self, entries: Sequence[Entry]) -> dict[str, float]:
        return {"documents": max(entry["documents"] for entry in entries)}


def _identify_document(document: str, splitter: str, language: str) -> tuple[int, int]:
    """Return the key of a document, and its size in a text shard in bytes; (0, 0) if it has no letter or digit."""
    written: list[bytes] = []
    write_lines([document], splitter, language, Counts(), written.append)
    if not written:
        return _NO_WORD, 0
    lines = b"".join(written)
    return int.from_bytes(hash_document(lines[:-2])[:8], "big"), len(lines)  # without the blank line at the end
