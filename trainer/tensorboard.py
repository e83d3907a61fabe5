"""The scalars of a run as TensorBoard reads them: an events file, written here because the loop knows no framework.

The file is TFRecord frames, each of one Event, a protobuf message:

    1  double      wall_time, seconds since 1970
    2  int64       step
    3  string      file_version: "brain.Event:2", in the first event alone
    5  Summary     1  repeated Value: 1 string tag, 2 float simple_value
    7  SessionLog  1  status: 1 is START

A START at step n makes TensorBoard forget what files before this one say of step n and of all after it. Each file begins with
one, so that a killed run, which goes on from its last checkpoint, shows the steps after that once.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np

from bertprep.files.atomic import explain_write_error
from bertprep.protobuf import fixed, integer, message
from bertprep.records.formats import masked_checksum

_VERSION = b"brain.Event:2"
_START = 1


class EventFile:
    """An events file of its own for a run that has finished `first_step` steps; what is written can be read at once."""

    def __init__(self, folder: Path, *, first_step: int) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.path = folder / _name_of_new(folder)
            self._file = self.path.open("xb", buffering=0)
        except OSError as error:
            raise explain_write_error(folder, error) from error
        self._append(message(3, _VERSION))
        self._append(integer(2, first_step + 1) + message(7, integer(1, _START)))

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Enter the values of some scalars, by tag, after `step` steps."""
        values = (message(1, message(1, tag.encode()) + fixed(2, struct.pack("<f", value))) for tag, value in scalars.items())
        self._append(integer(2, step) + message(5, b"".join(values)))

    def _append(self, fields: bytes) -> None:
        append(self._file, frame(fixed(1, struct.pack("<d", time.time())) + fields))

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> EventFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def append(file: BinaryIO, data: bytes) -> None:
    """Write all of `data` to an unbuffered file; raises `BertprepError` where the system refuses."""
    rest = memoryview(data)
    try:
        while rest:  # a write may take a part only, as the last bytes of a full disk
            rest = rest[file.write(rest) :]
    except OSError as error:
        raise explain_write_error(Path(file.name), error) from error


def frame(data: bytes) -> bytes:
    """A TFRecord: length, checksum of the length, data, checksum of the data."""
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _checksum(data: bytes) -> bytes:
    return struct.pack("<I", masked_checksum(np.frombuffer(data, np.uint8)))


def _name_of_new(folder: Path) -> str:
    """TensorBoard reads files in the order of their names: the time goes first, and none has that of another."""
    seconds = int(time.time())
    while any(folder.glob(f"events.out.tfevents.{seconds:010d}.*")):
        seconds += 1
    return f"events.out.tfevents.{seconds:010d}.{socket.gethostname()}.{os.getpid()}"
