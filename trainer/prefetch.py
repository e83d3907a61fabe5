"""Batches read ahead by a thread into arrays that are made once and written again and again.

Reading is compiled and leaves Python's lock alone, so that it costs the training step nothing as long as a core is free. New
arrays for each batch would cost a third more: the system must clear their memory.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType

from bertprep.errors import BertprepError
from bertprep.records import Examples

ReadStep = Callable[[Examples, int], None]
"""read_step(room, step) fills the arrays with the batch of a step."""


class ReadyBatches(Iterator[Examples]):
    """The batches of steps `first` to stop - 1 in order, or without end where `stop` is None; `ready` of them lie ready.

    The arrays of a batch hold until the next one is asked for (or the `held`-th after it): then they are written again. What
    must live longer, as where a framework takes arrays without copying or copies them later, is to be copied or `held`.
    An error in reading comes out where its batch would have; batches before it come first. Use as a context manager:
    leaving it, by an error too, ends the thread.
    """

    def __init__(
        self, read_step: ReadStep, make_room: Callable[[], Examples], first: int, stop: int | None, *, ready: int, held: int
    ) -> None:
        self._read_step = read_step
        self._steps: Iterable[int] = itertools.count(first) if stop is None else range(first, stop)
        self._free: queue.SimpleQueue[Examples] = queue.SimpleQueue()
        self._filled: queue.SimpleQueue[Examples | BaseException] = queue.SimpleQueue()
        self._given: deque[Examples] = deque()
        self._held = held
        self._is_closed = False
        for _ in range(ready + held):
            self._free.put(make_room())
        self._thread = threading.Thread(target=self._fill, name="batches", daemon=True)
        self._thread.start()

    def __enter__(self) -> ReadyBatches:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the thread, behind the batch that it is at."""
        self._is_closed = True
        while self._given:
            self._free.put(self._given.popleft())
        self._free.put(Examples.empty(0, seq=0, pred=0))  # wakes it where it waits for room
        self._thread.join()

    def __next__(self) -> Examples:
        if self._is_closed:
            raise ValueError("batches were asked for behind the end of their block")
        while len(self._given) >= self._held:
            self._free.put(self._given.popleft())
        batch = self._filled.get()
        if isinstance(batch, BaseException):
            self._filled.put(batch)  # for whoever asks again
            raise batch
        self._given.append(batch)
        return batch

    def _fill(self) -> None:
        try:
            for step in self._steps:
                room = self._free.get()
                if self._is_closed:
                    return
                self._read_step(room, step)
                self._filled.put(room)
            self._filled.put(StopIteration())
        except BaseException as error:
            self._filled.put(error)


class Lookahead(Iterator[Examples]):
    """Batches, each given when the `ahead` after it have been read, so that a fault is known so many steps before its own.

    `fault` is the error at which reading ended; the batches before it are given still. They hold as long as those of
    `ReadyBatches`, counted from when they were read: `ahead` must be allowed for in `held`.
    """

    def __init__(self, batches: Iterator[Examples], ahead: int) -> None:
        self.fault: BertprepError | None = None
        self._batches = batches
        self._coming: deque[Examples] = deque()
        for _ in range(ahead):
            self._read()

    def __next__(self) -> Examples:
        self._read()
        if not self._coming:
            raise StopIteration
        return self._coming.popleft()

    def _read(self) -> None:
        if self.fault is not None:
            return
        try:
            self._coming.append(next(self._batches))
        except StopIteration:
            pass
        except BertprepError as error:
            # Its frames hold the engine in a cycle, and OneFlow's processes must give up their graphs at the same moment
            self.fault = error.with_traceback(None)
