"""Small valid record files, ways to damage them, and the properties that reading and validating any bytes must have.

A third of the damage falls anywhere in a file; a third inside messages whose frames and checksums are made right for it; a
third are other numbers in sound messages: so that what reads frames, decodes messages and judges records is reached alike. A
case is decided by its name alone.
"""

from __future__ import annotations

import gzip
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import bertprep
from bertprep import records
from bertprep.check.data_set import check_data_set
from bertprep.config import InstanceSettings
from bertprep.errors import BertprepError
from bertprep.instances import Vocabulary, load_vocabulary
from bertprep.progress import SILENT
from bertprep.records.examples import PretrainingExamples
from bertprep.work.find import find_data_sets
from tests.check.faulty import Spoiled, Values, frame, split_frames
from tests.golden import GOLDEN
from tests.records.columns import with_types, write_arrow_file
from tests.records.handmade import Number, Variant, message

SETTINGS = InstanceSettings(seq=24, pred=4)
RECORDS = 6
_EDGE_NUMBERS = (0, 1, 2, 3, 4, 23, 24, 25, 2_936, 2_937, 65_536, 2**21, 2**31 - 1, 2**31, -1)
_EDGE_WEIGHTS = (0.0, 0.5, -0.0, -1.0, 1.0000001, 1e-45, float("inf"), float("nan"))
_EDGE_BYTES = (0, 1, 8, 10, 18, 0x7F, 0x80, 0xFF)


@dataclass(frozen=True)
class Target:
    """A sound file: its bytes, and its records as rows of bytes, by which they are known again."""

    name: str
    record_format: str
    content: bytes
    rows: frozenset[bytes]
    values: list[Values]
    variant: Variant

    @property
    def has_frames(self) -> bool:
        return self.name not in ("gzip", "arrow", "parquet", "Arrow of another tool")


@dataclass(frozen=True)
class Damaged:
    """A corrupt file; `has_checksums` where they tell of the damage, not of what replaced the data."""

    target: Target
    content: bytes
    has_checksums: bool


def rows_of(examples: PretrainingExamples) -> list[bytes]:
    """Each record as the bytes of all its values."""
    return [b"".join(array[i].tobytes() for array in examples.arrays) for i in range(len(examples))]


def make_targets(corpus: Path, folder: Path) -> list[Target]:
    """All formats as bertprep writes them, and as other tools may: other names and order, unpacked, gzip, other types."""
    made = bertprep.create(**vars(SETTINGS), inputs=[corpus], output=folder, vocab=GOLDEN / "vocab.txt", workers=1)
    targets = []
    for record_format, manifest in made.manifests.items():
        data = Spoiled(made.folders[record_format], record_format)
        (name,) = manifest.files
        with records.open(data.folder / name) as file:
            rows = frozenset(rows_of(file[:RECORDS]))
        content = b"".join(data.frames(name)[:RECORDS])
        ours, values = Variant(record_format), data.values(name)[:RECORDS]
        other = Variant(record_format, packed=None, any_order=True, new_names=True, extras=True)
        rng = random.Random(0)
        others = b"".join(frame(message(v, other, rng), record_format) for v in values)
        targets.append(Target(record_format, record_format, content, rows, values, ours))
        targets.append(Target(f"{record_format} of another tool", record_format, others, rows, values, other))
        if record_format == "tfrecord":
            targets.append(Target("gzip", record_format, gzip.compress(content, mtime=0), rows, values, ours))
            path = folder / "first"
            path.write_bytes(content)
            for name in ("arrow", "parquet"):
                bertprep.convert(path, folder / f"first.{name}", to=name)
                targets.append(Target(name, name, (folder / f"first.{name}").read_bytes(), rows, values, ours))
            table = pa.ipc.open_stream((folder / "first.arrow").read_bytes()).read_all()
            write_arrow_file(with_types(table, lambda _: pa.int64(), lambda kind, _: pa.list_(kind)), path)
            targets.append(Target("Arrow of another tool", "arrow", path.read_bytes(), rows, values, ours))
    return targets


def damage_case(targets: list[Target], seed: int | str) -> Damaged:
    """The corrupt file of a case, always the same one."""
    rng = random.Random(seed)
    target = rng.choice(targets)
    chance = rng.random()
    if chance < 0.02:
        return Damaged(target, rng.randbytes(rng.randrange(400)), has_checksums=True)
    if chance < 0.35 or not target.has_frames:
        return Damaged(target, damage(target.content, rng), has_checksums=target.record_format == "tfrecord")
    frames = split_frames(target.content, target.record_format)
    start, stop = (12, -4) if target.record_format == "tfrecord" else (8, None)
    for number in rng.sample(range(len(frames)), rng.choice((1, 1, 1, 2))):
        if chance < 0.67:
            data = damage(frames[number][start:stop], rng)
        else:
            data = message(change_values(target.values[number], rng), target.variant, rng)
        frames[number] = frame(data, target.record_format)
    return Damaged(target, b"".join(frames), has_checksums=False)


def change_values(values: Values, rng: random.Random) -> Values:
    """Up to four other numbers in a record, or one number more or less."""
    changed = {name: list(numbers) for name, numbers in values.items()}
    for _ in range(rng.choice((1, 1, 2, 4))):
        numbers = changed[rng.choice(list(changed))]
        place = rng.randrange(len(numbers) or 1)
        number: Number = rng.choice(_EDGE_NUMBERS) if rng.random() < 0.5 else rng.randrange(3000)
        kind = rng.random()
        if kind < 0.02:
            numbers.insert(place, number)
        elif kind < 0.04:
            del numbers[place : place + 1]
        else:
            numbers[place : place + 1] = [rng.choice(numbers) if kind < 0.3 and numbers else number]
    if rng.random() < 0.1 and changed["masked_lm_weights"]:
        changed["masked_lm_weights"][0] = rng.choice(_EDGE_WEIGHTS)
    return changed


def damage(content: bytes, rng: random.Random) -> bytes:
    """One to four changes, each of a bit, some bytes, or ranges that are cut, doubled, exchanged or put in."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        size = len(content)
        if not size:
            break
        start, end = sorted((rng.randrange(size), rng.randrange(size + 1)))
        if rng.random() < 0.7:  # most ranges are short
            end = min(end, start + rng.randrange(1, 24))
        kind = rng.randrange(8)
        if kind <= 1:
            content = content[:start] + bytes([content[start] ^ 1 << rng.randrange(8)]) + content[start + 1 :]
        elif kind == 2:
            content = content[:start] + bytes([rng.choice(_EDGE_BYTES)]) + content[start + 1 :]
        elif kind == 3:
            content = content[:start] + rng.randbytes(end - start) + content[end:]
        elif kind == 4:
            content = content[:start] + rng.randbytes(rng.randrange(1, 24)) + content[start:]
        elif kind == 5:
            content = content[:start] + content[end:]
        elif kind == 6:
            content = content[:end] + content[start:end] + content[end:]
        else:
            later = rng.randrange(end, size + 1)
            content = content[:start] + content[end:later] + content[start:end] + content[later:]
    return content


class Examiner:
    """Reads and validates files, and says what must not be; `was_refused` says whether the reader refused the last one."""

    was_refused = False

    def __init__(self, folder: Path) -> None:
        self._path = folder / "part-0"
        self._vocabulary: Vocabulary = load_vocabulary(GOLDEN / "vocab.txt")

    def examine(self, corrupt: Damaged) -> str | None:
        """None if all is as it must be; an exception other than `BertprepError` passes through."""
        self._path.unlink(missing_ok=True)  # a new file: mapped ones must not change
        self._path.write_bytes(corrupt.content)
        examples = self._read()
        self.was_refused = examples is None
        (data_set,) = find_data_sets([self._path])
        # as `validate` does, but for the vocabulary, which it reads each time
        outcome = check_data_set(
            data_set, self._vocabulary, masked_lm_prob=None, sample=None, workers=1, shown=SILENT.progress("validate", 1)
        )
        if examples is None:
            return None if outcome.errors else "the reader refuses it, the validator finds no error"
        if not len(examples):
            return "read, but without any record"
        if any(array.dtype == np.int32 and (array < 0).any() for array in examples.arrays):
            return "read with a negative number"
        if corrupt.has_checksums and not corrupt.target.rows.issuperset(rows_of(examples)):
            return "read with other values in spite of its checksums"
        if not outcome.errors and not self._is_in_range(examples):
            return "without an error, but with values out of range"
        return None

    def _read(self) -> PretrainingExamples | None:
        try:
            with records.open(self._path) as file:
                return file[:]
        except BertprepError as error:
            if "\n" in str(error):
                raise AssertionError(f"more than one line: {error}") from error
            return None

    def _is_in_range(self, examples: PretrainingExamples) -> bool:
        """Whether a model could be fed with it."""
        return bool(
            (examples.input_ids < len(self._vocabulary)).all()
            and (examples.masked_lm_ids < len(self._vocabulary)).all()
            and (examples.masked_lm_positions < examples.seq).all()
            and np.isin(examples.masked_lm_weights, (0, 1)).all()
            and (examples.input_mask <= 1).all()
            and (examples.segment_ids <= 1).all()
            and (examples.next_sentence_labels <= 1).all()
        )
