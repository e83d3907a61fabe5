"""Reads batches ahead in a thread, into arrays that are allocated once and reused.

Reading is compiled and releases the GIL, so it costs the training step nothing as long as a core is free. New arrays for each
batch would cost a third more, because the system must clear their memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from types import TracebackType

from bertprep.errors import BertprepError
from bertprep.records import Examples

READY = 2
"""Batches read ahead while the trainer processes one."""


class ReadyBatches(Iterator[Examples]):
    """The batches of steps `first` to stop - 1 in order, or endlessly if `stop` is None.

    `read_step(arrays, step)` fills arrays from `make_arrays`. A batch's arrays are valid until the next one, or the `held`-th
    after it, is requested, and are then overwritten. If a framework uses arrays without copying them or copies them later, copy
    them or raise `held`. An error in reading is raised at its batch's turn, and on every later request. Use as a context
    manager: leaving it, also by an exception, ends the thread; in the block `giving_up()` a read under way ends soon.
    """

    def __init__(
        self,
        read_step: Callable[[Examples, int], None],
        make_arrays: Callable[[], Examples],
        first: int,
        stop: int | None,
        *,
        held: int = 1,
        giving_up: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._read_step, self._held, self._giving_up = read_step, held, giving_up
        self._steps = count(first) if stop is None else iter(range(first, stop))
        self._coming: deque[tuple[Examples, Future[None]]] = deque()
        self._given: deque[Examples] = deque()
        self._has_failed = False
        self._thread = ThreadPoolExecutor(1, "batches")
        for _ in range(READY + held):
            self._read_next(make_arrays())

    def __enter__(self) -> ReadyBatches:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        with self._giving_up():
            self._thread.shutdown(cancel_futures=True)

    def __next__(self) -> Examples:
        while len(self._given) >= self._held:
            self._read_next(self._given.popleft())
        if not self._coming:
            raise StopIteration
        arrays, reading = self._coming[0]
        reading.result()
        self._coming.popleft()
        self._given.append(arrays)
        return arrays

    def _read_next(self, arrays: Examples) -> None:
        if (step := next(self._steps, None)) is not None:
            self._coming.append((arrays, self._thread.submit(self._read, arrays, step)))

    def _read(self, arrays: Examples, step: int) -> None:
        if self._has_failed:  # nobody will request this batch
            return
        try:
            self._read_step(arrays, step)
        except BaseException:
            self._has_failed = True
            raise


class Lookahead(Iterator[Examples]):
    """Batches, each returned after the next `ahead` have been read, so that a fault is known that many steps in advance.

    `fault` is the error at which reading ended; the batches before it are still returned. They are valid as long as those of
    `ReadyBatches`, counted from when they were read, so `held` must include `ahead`.
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
            # its frames hold the engine in a cycle, and OneFlow's processes must release their graphs at the same moment
            self.fault = error.with_traceback(None)
