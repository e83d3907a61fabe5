"""Stops a run on SIGTERM or Ctrl-C after finishing the step and writing a checkpoint."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def exit_on_sigterm(status: int) -> Iterator[None]:
    """Outside a step SIGTERM raises `SystemExit`, so that locks are released; an inner `StopSignal` takes over."""

    def leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - what signal handlers are given
        os.write(2, b"SIGTERM: stopped while no step was under way\n")
        raise SystemExit(status)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class StopSignal:
    """Whether a signal to stop has arrived during the block; a second Ctrl-C stops at once."""

    def __init__(self) -> None:
        self.has_come = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignal:
        self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - what signal handlers are given
        if self.has_come and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.has_come = True
        # not print: the signal may have interrupted one, which is not reentrant
        os.write(2, f"{signal.Signals(number).name}: stopping after this step, with a checkpoint\n".encode())
