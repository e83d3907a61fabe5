"""Valid data sets, copied and then corrupt: single records re-encoded, the rest of a file left byte for byte.

`Spoiled.sign` makes the manifest agree with the files again, so that a test sees the fault itself and not its shadow there.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertprep import records
from bertprep.files.crc32c import masked_checksum
from bertprep.files.paths import checksum_of
from bertprep.records import MaskedExamples, PretrainingExamples
from bertprep.records.write import write_examples
from bertprep.work.layout import MANIFEST
from tests.records.handmade import Number, Variant, message

Values = dict[str, list[Number]]
Change = Callable[[Values], object]
ALL = slice(None)


def frame(data: bytes, record_format: str) -> bytes:
    """A record with its frame, as in a file."""
    length = len(data).to_bytes(8, "little")
    if record_format == "ofrecord":
        return length + data
    checksums = [masked_checksum(np.frombuffer(part, np.uint8)).to_bytes(4, "little") for part in (length, data)]
    return length + checksums[0] + data + checksums[1]


def split_frames(content: bytes, record_format: str) -> list[bytes]:
    """The whole records of a file, each with its frame."""
    around = 8 if record_format == "ofrecord" else 16
    frames, at = [], 0
    while at + around <= len(content):
        end = at + around + int.from_bytes(content[at : at + 8], "little")
        if end > len(content) or end == at + around:  # cut off, or zeros
            break
        frames.append(content[at:end])
        at = end
    return frames


@dataclass(frozen=True)
class Spoiled:
    """A data set's folder, to be spoiled; files are named as in its manifest."""

    folder: Path
    record_format: str

    @classmethod
    def copy(cls, sound: Path, folder: Path, record_format: str) -> Spoiled:
        shutil.copytree(sound, folder)
        return cls(folder, record_format)

    def files(self, split: str) -> list[str]:
        return sorted(str(path.relative_to(self.folder)) for path in (self.folder / split).iterdir())

    @property
    def first(self) -> str:
        """The training file that faults are planted in."""
        return self.files("training")[0]

    def frames(self, name: str) -> list[bytes]:
        return split_frames((self.folder / name).read_bytes(), self.record_format)

    def values(self, name: str, chosen: slice = ALL) -> list[Values]:
        """Records of a file, as lists of numbers by feature."""
        with records.open(self.folder / name) as file:
            examples = file[chosen]
        columns = {each.name: getattr(examples, each.name).reshape(len(examples), -1).tolist() for each in examples.features}
        return [{feature: values[i] for feature, values in columns.items()} for i in range(len(examples))]

    def encode(self, values: Values) -> bytes:
        """One record, whatever its values."""
        return frame(message(values, Variant(self.record_format)), self.record_format)

    def encode_all(self, values: list[Values]) -> list[bytes]:
        """Records of one shape without negative numbers, as fast as bertprep writes them."""
        seq, pred = len(values[0]["input_ids"]), len(values[0]["masked_lm_ids"])
        kind = PretrainingExamples if "next_sentence_labels" in values[0] else MaskedExamples
        examples = kind.empty(len(values), seq=seq, pred=pred)
        for feature, array in zip(examples.features, examples.arrays, strict=True):
            array[...] = np.array([of_record[feature.name] for of_record in values]).reshape(array.shape)
        path = self.folder / ".encoded"
        write_examples([examples], {self.record_format: path})
        content = path.read_bytes()
        path.unlink()
        return split_frames(content, self.record_format)

    def write(self, name: str, frames: list[bytes], end: bytes = b"") -> None:
        (self.folder / name).write_bytes(b"".join(frames) + end)

    def change_record(self, number: int, change: Change, name: str | None = None) -> None:
        """Change the values of one record of a file."""
        name = name or self.first
        frames, (values,) = self.frames(name), self.values(name, slice(number, number + 1))
        change(values)
        frames[number] = self.encode(values)
        self.write(name, frames)

    def replace_data(self, number: int, change: Callable[[bytes], bytes]) -> None:
        """Change the message of one record of the first file, in a sound frame."""
        frames = self.frames(self.first)
        start, stop = (8, None) if self.record_format == "ofrecord" else (12, -4)
        frames[number] = frame(change(frames[number][start:stop]), self.record_format)
        self.write(self.first, frames)

    def change_all(self, change: Change, split: str = "training") -> None:
        """Change the values of all records of a split."""
        for name in self.files(split):
            self.change_file(name, change)

    def change_file(self, name: str, change: Change) -> None:
        changed = self.values(name)
        for values in changed:
            change(values)
        self.write(name, self.encode_all(changed))

    def flip(self, record: int, offset: int) -> None:
        """Flip a bit of a byte of a record of the first file, by its offset from the start of the frame, or from its end."""
        frames = self.frames(self.first)
        spoiled = bytearray(frames[record])
        spoiled[offset] ^= 1
        frames[record] = bytes(spoiled)
        self.write(self.first, frames)

    def find(self, wanted: Callable[[Values], bool]) -> int:
        """The first record of the first file that is so."""
        return next(i for i, values in enumerate(self.values(self.first)) if wanted(values))

    def change_manifest(self, change: Callable[[dict[str, Any]], object]) -> None:
        path = self.folder / MANIFEST
        content = json.loads(path.read_bytes())
        change(content)
        path.write_text(json.dumps(content, indent=1) + "\n")

    def sign(self) -> None:
        """Enter the files as they are now into the manifest."""

        def enter(content: dict[str, Any]) -> None:
            for name, entry in content["files"].items():
                path = self.folder / name
                if path.exists():
                    entry.update(bytes=path.stat().st_size, blake3=checksum_of(path), examples=len(self.frames(name)))

        self.change_manifest(enter)
