"""Writes a run's numbers to log.jsonl and TensorBoard's event files, without a framework, because the loop has none.

    {"kind": "run", "train", "evaluation" or "bad_record", "step": steps finished, ...}    one a line of log.jsonl

A resumed run repeats the steps after its checkpoint: their entries are removed first, with an incomplete last line of a killed
run, so the log equals that of a run that was never stopped.

An events file is TFRecord frames, each of one Event, a protobuf message:

    1  double      wall_time, seconds since 1970
    2  int64       step
    3  string      file_version: "brain.Event:2", in the first event alone
    5  Summary     1  repeated Value: 1 string tag, 2 float simple_value
    7  SessionLog  1  status: 1 is START

A START at step n makes TensorBoard discard step n and all later ones from earlier files. Each file begins with one, so a
resumed run shows the steps after its checkpoint once.
"""

from __future__ import annotations

import json
import math
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file, explain_write_error
from bertprep.progress import say
from bertprep.protobuf import fixed, integer, message
from bertprep.records.formats import masked_checksum
from bertprep.untrusted import COUNT, TEXT, check_values, parse_json

_VERSION = b"brain.Event:2"
_START = 1
_ENTRY = {"kind": TEXT, "step": COUNT}


def append(file: BinaryIO, data: bytes) -> None:
    """Write all of `data` to an unbuffered file; raises `BertprepError` if that fails."""
    rest = memoryview(data)
    try:
        while rest:  # a write may be partial, for instance on a full disk
            rest = rest[file.write(rest) :]
    except OSError as error:
        raise explain_write_error(Path(file.name), error) from error


def log_line(entry: Mapping[str, Any]) -> bytes:
    """JSON, in which NaN and infinity, such as the gradient norm of a skipped step, become null."""
    finite = {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in entry.items()}
    return json.dumps(finite, default=str).encode() + b"\n"


def read_log(path: Path) -> list[dict[str, Any]]:
    """The entries of a log, without an incomplete last line of a killed run.

    An invalid line, left by a full disk or an editor, is reported and skipped; raises `BertprepError` if there is no valid one,
    since the file is then something else.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BertprepError(f"{path}: cannot be read: {error.strerror or error}") from error
    lines = content.split(b"\n")[:-1]
    entries = [(number, line, _read_entry(line)) for number, line in enumerate(lines, 1)]
    good = [entry for _, _, entry in entries if entry is not None]
    if lines and not good:
        raise BertprepError(
            f"{path}: line 1: expected an entry of a log, with a kind and a step, found {_shown(lines[0])}; remove it"
        )
    for number, line, entry in entries:
        if entry is None:
            say(f"{path}: line {number}: left out, it is no entry of a log: {_shown(line)}")
    return good


def _read_entry(line: bytes) -> dict[str, Any] | None:
    try:
        return check_values(parse_json(line), _ENTRY, needed=tuple(_ENTRY))
    except ValueError:
        return None


def _shown(line: bytes) -> str:
    return repr(line[:40].decode(errors="replace"))


def cut_log(path: Path, step: int) -> None:
    """Remove all entries of a log after `step`, and every incomplete line."""
    if not path.exists():
        return
    kept = b"".join(log_line(entry) for entry in read_log(path) if entry["step"] <= step)
    if kept != path.read_bytes():
        with atomic_file(path) as file:
            file.write(kept)


class EventFile:
    """A new events file for a run that has finished `first_step` steps; entries can be read at once."""

    def __init__(self, folder: Path, *, first_step: int) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.path = folder / _new_name(folder)
            self._file = self.path.open("xb", buffering=0)
        except OSError as error:
            raise explain_write_error(folder, error) from error
        self._append(message(3, _VERSION))
        self._append(integer(2, first_step + 1) + message(7, integer(1, _START)))

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Write scalars by tag for `step`."""
        values = (message(1, message(1, tag.encode()) + fixed(2, struct.pack("<f", value))) for tag, value in scalars.items())
        self._append(integer(2, step) + message(5, b"".join(values)))

    def _append(self, fields: bytes) -> None:
        append(self._file, frame(fixed(1, struct.pack("<d", time.time())) + fields))

    def __enter__(self) -> EventFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()


def frame(data: bytes) -> bytes:
    """A TFRecord: length, checksum of the length, data, checksum of the data."""
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _checksum(data: bytes) -> bytes:
    return struct.pack("<I", masked_checksum(np.frombuffer(data, np.uint8)))


def _new_name(folder: Path) -> str:
    """A unique file name that begins with the time, since TensorBoard reads files in the order of their names."""
    seconds = int(time.time())
    while any(folder.glob(f"events.out.tfevents.{seconds:010d}.*")):
        seconds += 1
    return f"events.out.tfevents.{seconds:010d}.{socket.gethostname()}.{os.getpid()}"
