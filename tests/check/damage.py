"""Small sound record files, ways to damage them, and what must hold of any bytes whatever when they are read and validated.

Half of the damage falls anywhere in a file; the other half inside messages whose frames and checksums are made right for it,
so that what decodes messages and judges records is reached too. A case is decided by its number alone.
"""

from __future__ import annotations

import gzip
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import bertprep
from bertprep import records
from bertprep.check.validate import validate
from bertprep.config import InstanceSettings
from bertprep.errors import BertprepError
from bertprep.instances import Vocabulary, load_vocabulary
from bertprep.records.examples import Examples
from tests.check.faulty import Spoiled, frame, split_frames
from tests.golden import GOLDEN
from tests.records.handmade import Dialect, message

SETTINGS = InstanceSettings(seq=24, pred=4)
RECORDS = 6
_EDGE_BYTES = (0, 1, 8, 10, 18, 0x7F, 0x80, 0xFF)


@dataclass(frozen=True)
class Target:
    """A sound file: its bytes, and its records as rows of bytes, by which they are known again."""

    name: str
    record_format: str
    content: bytes
    rows: frozenset[bytes]

    @property
    def is_compressed(self) -> bool:
        return self.content[:2] == b"\x1f\x8b"


@dataclass(frozen=True)
class Damaged:
    """A damaged file; `has_checksums` where they tell of the damage, not of what replaced the data."""

    target: Target
    content: bytes
    has_checksums: bool


def rows_of(examples: Examples) -> list[bytes]:
    """Each record as the bytes of all its values."""
    return [b"".join(array[i].tobytes() for array in examples.arrays) for i in range(len(examples))]


def make_targets(corpus: Path, folder: Path) -> list[Target]:
    """Both formats as bertprep writes them, and TFRecord as other tools may: other names and order, unpacked, gzip."""
    made = bertprep.create(settings=SETTINGS, inputs=[corpus], output=folder, vocab=GOLDEN / "vocab.txt", workers=1)
    targets = []
    for record_format, manifest in made.manifests.items():
        data = Spoiled(made.folders[record_format], record_format)
        (name,) = manifest.files
        with records.open(data.folder / name) as file:
            rows = frozenset(rows_of(file[:RECORDS]))
        content = b"".join(data.frames(name)[:RECORDS])
        dialect = Dialect(record_format, packed=None, any_order=True, new_names=True, extras=True)
        rng = random.Random(0)
        others = [frame(message(v, dialect, rng), record_format) for v in data.values(name)[:RECORDS]]
        targets.append(Target(record_format, record_format, content, rows))
        targets.append(Target(f"{record_format} of another tool", record_format, b"".join(others), rows))
        if record_format == "tfrecord":
            targets.append(Target("gzip", record_format, gzip.compress(content, mtime=0), rows))
    return targets


def damage_case(targets: list[Target], seed: int | str) -> Damaged:
    """The damaged file of a case, always the same one."""
    rng = random.Random(seed)
    target = rng.choice(targets)
    chance = rng.random()
    if chance < 0.02:
        return Damaged(target, rng.randbytes(rng.randrange(400)), has_checksums=True)
    if chance < 0.5 or target.is_compressed:
        return Damaged(target, damage(target.content, rng), has_checksums=target.record_format == "tfrecord")
    frames = split_frames(target.content, target.record_format)
    start, stop = (12, -4) if target.record_format == "tfrecord" else (8, None)
    for number in rng.sample(range(len(frames)), rng.choice((1, 1, 1, 2))):
        frames[number] = frame(damage(frames[number][start:stop], rng), target.record_format)
    return Damaged(target, b"".join(frames), has_checksums=False)


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
    """Reads and validates files, and says what must not be."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "part-00000"
        self._vocab = GOLDEN / "vocab.txt"
        self._vocabulary: Vocabulary = load_vocabulary(self._vocab)

    def examine(self, damaged: Damaged) -> str | None:
        """None if all is as it must be; an exception other than `BertprepError` passes through."""
        self._path.unlink(missing_ok=True)  # a new file: mapped ones must not change
        self._path.write_bytes(damaged.content)
        examples = self._read()
        (outcome,) = validate([self._path], vocab=self._vocab, workers=1)
        if examples is None:
            return None if outcome.errors else "the reader refuses it, the validator finds no error"
        if not len(examples):
            return "read, but without any record"
        if any(array.dtype == np.int32 and (array < 0).any() for array in examples.arrays):
            return "read with a negative number"
        if damaged.has_checksums and not damaged.target.rows.issuperset(rows_of(examples)):
            return "read with other values in spite of its checksums"
        if not outcome.errors and not self._is_in_range(examples):
            return "without an error, but with values out of range"
        return None

    def _read(self) -> Examples | None:
        try:
            with records.open(self._path) as file:
                return file[:]
        except BertprepError as error:
            if "\n" in str(error):
                raise AssertionError(f"more than one line: {error}") from error
            return None

    def _is_in_range(self, examples: Examples) -> bool:
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
