"""The files of records that come from a store: fetched in the order in which their records are needed, while others are read.

A manifest tells how many records each file has, with its size and sha256, so the length of a set and the order of its records
are known before any file is here. Threads fetch a few files at a time into the cache of objects (`files.places`), check their
sums and find where their records begin; a batch waits for its own files alone, which come before all others. The network, the
sums, the disk and the walk over the records run without the interpreter's lock, so steps go on meanwhile.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bertprep.errors import BertprepError, GivenUpError
from bertprep.files.places import ObjectPath, cache_folder, copy_name, local_copy, name_about
from bertprep.files.reservations import Reservation, size_in_words
from bertprep.progress import say
from bertprep.records.record_index import INDEX, RecordIndex, index_records

_AT_ONCE = 8
"""Files that are fetched at a time: a stream of a store is slower than most networks."""
_LOOK_AGAIN_SECONDS = 0.1  # at whether those who wait are told to stop


@dataclass(frozen=True)
class ComingFile:
    """A file in a store, with what its manifest says of it, where there is one; `path` knows what the listing said."""

    path: ObjectPath
    size_bytes: int
    records: int | None = None
    sha256: str | None = None

    @property
    def kept_index(self) -> Path:
        """Where its own index is kept, among the copies."""
        return cache_folder() / self.index_name

    @property
    def index_name(self) -> str:
        """What that is called."""
        return name_about(self.path.with_name(f"{INDEX}.{self.path.name}"))


class Arriving:
    """The files of a set by number, each fetched once, in the background; any thread may ask."""

    def __init__(self, what: str, files: Mapping[int, ComingFile]) -> None:
        """Raises `UsageError`, which calls them `what`, where they do not fit into the cache together."""
        self._what, self._files = what, files
        self._here: set[int] = set()
        self._failed: dict[int, Exception] = {}
        self._queue: deque[int] = deque()
        self._under_way: set[int] = set()
        self._threads: list[threading.Thread] = []
        self._working = 0  # of the threads
        self._changed = threading.Condition()
        self._given_up = threading.Event()
        self._giving_up = 0  # blocks of `giving_up`
        self._is_told: Callable[[], bool] = lambda: False
        self._is_said = False
        copies = {copy_name(file.path): file.size_bytes for file in files.values()}
        indexes = {file.index_name: 8 * file.records for file in files.values() if file.records is not None}
        self._reservation = Reservation(what, {**copies, **indexes})

    def expect(self, order: Iterable[int]) -> None:
        """Fetch all files, in this order as far as it goes."""
        with self._changed:
            known = {*self._here, *self._under_way}
            self._queue = deque(
                number for number in dict.fromkeys((*order, *self._files)) if number in self._files and number not in known
            )
            self._start()

    def wait(self, numbers: Collection[int], *, is_said: bool = True) -> None:
        """Return when these files are here; raises what kept one of them away, and `GivenUpError` where they are given up.

        With `is_said` the first wait for one that is not in the cache is told.
        """
        with self._changed:
            wanted = [number for number in numbers if number in self._files and number not in self._here]
            if not wanted:
                return
            if is_said and not self._is_said:
                self._say(wanted)
            for number in wanted:
                self._failed.pop(number, None)
            is_wanted = set(wanted)
            expected = [number for number in self._queue if number in is_wanted]  # in the order in which they come
            others = [number for number in wanted if number not in self._under_way]
            self._queue = deque(dict.fromkeys((*expected, *others, *self._queue)))
            self._start()
            while any(number not in self._here for number in wanted):
                for failed in (number for number in wanted if number in self._failed):
                    raise self._failed[failed]
                if self._giving_up or self._given_up.is_set() or self._is_told():
                    raise GivenUpError(f"{self._what}: was given up while its files were waited for")
                self._changed.wait(_LOOK_AGAIN_SECONDS)

    def give_up_when(self, is_told: Callable[[], bool]) -> None:
        """Let nobody wait any more once `is_told` says so; what is under way goes on."""
        self._is_told = is_told

    @contextmanager
    def giving_up(self) -> Iterator[None]:
        """Let nobody wait within the block."""
        with self._changed:
            self._giving_up += 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._giving_up -= 1

    def are_here(self, numbers: Iterable[int]) -> bool:
        """Whether nobody need wait for these files."""
        return all(number in self._here or number not in self._files for number in numbers)

    def index(self, number: int) -> RecordIndex:
        """Where the records of a file that is here begin, and what they are."""
        return self._find(self._files[number])

    def close(self) -> None:
        """Stop fetching at once, whatever the store does, and let the copies go; whoever waits again begins again."""
        with self._changed:
            self._given_up.set()
            self._queue.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        with self._changed:
            self._threads.clear()
            self._queue.clear()
            self._given_up = threading.Event()
        self._reservation.release()

    def _say(self, wanted: Sequence[int]) -> None:
        """Tell that files are waited for, where any of them is not in the cache."""
        copies = {path.name for path in cache_folder().iterdir()}
        here = {number for number, file in self._files.items() if copy_name(file.path) in copies}
        if missing := len(set(wanted) - here):
            self._is_said = True
            size, all_bytes = (sum(self._files[number].size_bytes for number in numbers) for numbers in (here, self._files))
            say(
                f"{self._what}: waiting for {missing:,} {'file' if missing == 1 else 'files'} of the next records; "
                f"{len(here):,} of {len(self._files):,} are here, {size_in_words(size)} of {size_in_words(all_bytes)}"
            )

    def _start(self) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        while not self._given_up.is_set() and self._working < min(_AT_ONCE, len(self._queue) + len(self._under_way)):
            self._working += 1
            self._threads.append(threading.Thread(target=self._fetch_all, name="fetching", daemon=True))
            self._threads[-1].start()

    def _fetch_all(self) -> None:
        while True:
            with self._changed:
                if not self._queue or self._given_up.is_set():
                    self._working -= 1
                    return
                self._under_way.add(number := self._queue.popleft())
            failed: Exception | None = None
            try:
                file = self._files[number]
                local_copy(file.path, file.sha256, given_up=self._given_up)
                if file.records is not None:
                    self._find(file)
            except GivenUpError:
                failed = GivenUpError(f"{file.path}: was given up while it was fetched")
            except Exception as error:  # of whatever kind: it is raised where the file is waited for
                failed = error
            with self._changed:
                self._under_way.discard(number)
                if failed:
                    self._failed[number] = failed
                else:
                    self._here.add(number)
                self._changed.notify_all()

    def _find(self, file: ComingFile) -> RecordIndex:
        index = index_records([file.path], file.kept_index)
        if file.records not in (None, index.files[0].records):
            raise BertprepError(
                f"{file.path}: has {index.files[0].records:,} records, expected {file.records:,} by its manifest; make it again"
            )
        return index
