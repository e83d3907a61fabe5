"""Random calls of the public names of `bertprep.records`, of the data sets, and of `convert` and `validate`.

    python -m tests.random_calls FOLDER SEED COUNT

Names and parameters are found by introspection. An argument is one that the parameter's name suggests, or any of a pool of
odd values; what a call returns is called in turn. `convert` and `validate` have copies of the data, which they may remove. An
exception is a right answer. The process must not end, hang, or take more memory than `MEMORY_BYTES`; FOLDER.call has the call
that it is in. Some calls are made at once by several threads. Those
get small numbers only: where a call has taken all memory, Python itself hangs in starting a thread.
"""

from __future__ import annotations

import contextlib
import faulthandler
import inspect
import itertools
import os
import random
import resource
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import bertprep
from bertprep import records
from bertprep.records import Examples

MEMORY_BYTES = 2 << 30
MAX_CALL_SECONDS = 300  # the first call of to_dataset imports what takes half a minute on a busy machine
FUNCTIONS = "RecordDataset", "TokenDataset", "Mixture", "LiveExamples", "PairDataset", "MaskSchedule", "replace_tokens"
CRASHES_OF_NUMPY = ("repeat",)  # multiplies its count with the number of records, and writes past the end where that overflows
JOBS = "convert", "validate"
FORMATS = "tfrecord", "ofrecord", "arrow", "parquet"
METHODS = "__getitem__", "__getitems__", "__len__", "__iter__", "__enter__", "__exit__", "__repr__", "__reduce__"
MAX_BYTES_HELD = 16 << 20  # of one result
RESULTS_HELD, LIFE = 40, 60  # results that are called in turn; calls after which an object is made again

NUMBERS = (
    0, 1, 2, 3, 7, 8, 16, 20, 64, 255, 300, -1, -2, -300, 2**31 - 1, 2**31, 2**32 + 5, 2**40, 2**62, 2**63, 2**64, -(2**31),
    -(2**63), 10**30, True, False, 0.5, 1.0, -1.0, 1e300, float("nan"), float("inf"),
)  # fmt: skip
SMALL_NUMBERS = tuple(number for number in NUMBERS if abs(number) <= 300)
DTYPES = "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "?", "U3", "O", ">i4", "c16", "M8[s]"
SHAPES = (), (0,), (1,), (3,), (8,), (0, 8), (3, 8), (4, 16), (3, 2), (1, 1, 1), (300,)


class Caller:
    """Draws calls from a seed; the files of `folder` are the data."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random, self.folder, self.numbers = random.Random(seed), folder, NUMBERS
        self.files = sorted(path for path in (folder / "records").iterdir() if not path.name.startswith("."))
        self.data = [folder / "tokens", folder / "sentences", folder / "records", folder, *self.files]
        self.copies = [folder / "copies" / path.relative_to(folder) for path in self.data]
        self.results: list[Any] = []
        self.made: dict[str, tuple[Any, int]] = {}
        self.makers: dict[str, Callable[[], Any]] = {
            "file": lambda: records.open(self.random.choice(self.files)),
            "block": self.make_block,
            "records": lambda: bertprep.RecordDataset(self.random.choice(self.files[:2])),
            "tokens": lambda: bertprep.TokenDataset(folder / "tokens", seq=16, packed=self.random.random() < 0.7),
            "mixture": self.make_mixture,
            "live": lambda: bertprep.LiveExamples(
                folder / "sentences", settings=bertprep.InstanceSettings(seq=16, pred=2, dupe=1)
            ),
        }
        self.functions = {f"records.{name}": value for name in records.__all__ if callable(value := getattr(records, name))}
        self.functions |= {name: getattr(bertprep, name) for name in FUNCTIONS if name in bertprep.__all__}
        self.jobs = {name: getattr(bertprep, name) for name in JOBS}

    def make_block(self) -> Examples:
        kind = self.random.choice(records.KINDS)
        return kind.empty(self.random.choice((0, 1, 4, 300)), seq=self.random.choice((8, 16)), pred=self.random.choice((1, 2)))

    def make_mixture(self) -> Any:
        sets = [
            (bertprep.TokenDataset(self.folder / "tokens", seq=16, seed=seed), weight) for seed, weight in ((1, 0.7), (2, 3))
        ]
        return bertprep.Mixture(sets)

    def subject(self) -> Any:
        """Return something to call methods of, made again every now and then, since most do not survive `close`."""
        if self.results and self.random.random() < 0.3:
            return self.random.choice(self.results)
        name = self.random.choice([*self.makers])
        value, calls = self.made.get(name, (None, LIFE))
        value, calls = (self.makers[name](), 0) if calls >= LIFE else (value, calls)
        self.made[name] = value, calls + 1
        return value

    def call(self) -> tuple[str, Callable[[], Any]]:
        """Return a call, and how it is written down."""
        chance = self.random.random()
        if chance < 0.01:
            return self.job()
        if chance < 0.12:
            name = self.random.choice([*self.functions])
            return self.with_arguments(name, self.functions[name])
        found = self.subject()
        what = f"{type(found).__name__}"
        if chance < 0.2 and isinstance(found, Examples):
            return self.change_of(found)
        names = [name for name in dir(type(found)) if not name.startswith("_") or name in METHODS]
        name = self.random.choice([name for name in names if name not in CRASHES_OF_NUMPY])
        attribute = inspect.getattr_static(type(found), name)
        if isinstance(attribute, property) or not callable(getattr(type(found), name, None)):
            return f"{what}.{name}", lambda: getattr(found, name)
        return self.with_arguments(f"{what}.{name}", getattr(found, name))

    def job(self) -> tuple[str, Callable[[], Any]]:
        name = self.random.choice(JOBS)
        data, self.data = self.data, self.copies
        try:
            return self.with_arguments(name, self.jobs[name])
        finally:
            self.data = data

    def with_arguments(self, name: str, function: Callable[..., Any]) -> tuple[str, Callable[[], Any]]:
        try:
            parameters = [*inspect.signature(function).parameters.values()]
        except (TypeError, ValueError):
            parameters = []
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for each in parameters:
            is_required = each.default is each.empty
            if each.kind == each.VAR_POSITIONAL:
                positional += [self.value(each.name) for _ in range(self.random.randrange(9))]
            elif each.kind == each.VAR_KEYWORD:
                named |= {self.random.choice(records.FEATURES): self.array() for _ in range(self.random.randrange(2))}
            elif each.kind == each.KEYWORD_ONLY:
                if self.random.random() < (0.95 if is_required else 0.2):
                    named[each.name] = self.value(each.name)
            elif is_required or self.random.random() < 0.5:
                positional.append(self.value(each.name))
            else:
                break
        if self.random.random() < 0.02:
            positional.append(self.odd_value())
        written = ", ".join([*map(short, positional), *(f"{key}={short(value)}" for key, value in named.items())])
        return f"{name}({written})", lambda: function(*positional, **named)

    def change_of(self, block: Examples) -> tuple[str, Callable[[], Any]]:
        """Return a change of a block's arrays: replaced, made read-only, or in another shape."""
        feature = self.random.choice(records.FEATURES)
        value = self.array()
        kind = self.random.randrange(3)
        if kind == 0:
            return f"setattr(block, {feature!r}, {short(value)})", lambda: setattr(block, feature, value)
        if kind == 1:
            flag = self.random.random() < 0.3
            return f"block.{feature}.setflags(write={flag})", lambda: getattr(block, feature).setflags(write=flag)
        shape = self.random.choice(SHAPES)

        def change() -> None:
            getattr(block, feature).shape = shape

        return f"block.{feature}.shape = {shape}", change

    def value(self, name: str) -> Any:
        """Return an argument: of the kind that a parameter of this name takes, in nine of ten cases."""
        if self.random.random() < 0.1:
            return self.odd_value()
        choose = self.random.choice
        if name in ("path", "data", "folder", "source"):
            return choose(self.data)
        if name == "target":
            return self.folder / "copies" / f"{choose('abc')}{self.random.randrange(30)}{choose(['', '.arrow', '.tfrecord'])}"
        if name == "paths" and self.data is self.copies:
            return self.random.sample(self.data, self.random.randrange(3))
        if name == "paths":
            formats = self.random.sample(FORMATS, self.random.randrange(1, 4))
            return {each: self.folder / "out" / f"{each}{self.random.randrange(2)}" for each in formats}
        if name == "to":
            return choose(FORMATS)
        if name == "compress":
            return choose(["none", "gzip"])
        if name == "executor":
            return "local"
        if name == "feature_names":
            return choose(["google", "tf2"])
        if name == "part":
            return choose(["0/2", "1/2", "finish", "2/1"])
        if name in ("column", "vocab"):
            return None
        if name in ("progress", "whole_word", "remove_damaged"):
            return choose([True, False])
        if name in ("workers", "shards", "pick", "sample"):
            return choose([1, 2, 3, choose(self.numbers)])
        if name in ("blocks", "arrays"):
            return choose([[self.some_block() for _ in range(self.random.randrange(3))], self.array()])
        if name in ("examples", "block"):
            return self.some_block()
        if name == "kind":
            return choose([*records.KINDS, None])
        if name == "sets":
            return [(self.subject(), choose(self.numbers)) for _ in range(self.random.randrange(3))]
        if name in ("records", "numbers", "rows", "row", "positions", "indices", "index"):
            return choose(
                [
                    self.array(),
                    self.array(),
                    choose(self.numbers),
                    range(*self.random.sample(range(-3, 300), 2)),
                    slice(3),
                    [0, 1],
                ]
            )
        if name in ("batch", "columns"):
            return choose(self.results) if self.results else {}
        if name == "split":
            return choose(["train", "test", "training", "validation", "", "x"])
        if name == "settings":
            return choose(
                [None, bertprep.InstanceSettings(seq=choose((16, 64)), pred=2, pairs=choose(("next-sentence", "none")))]
            )
        return choose(self.numbers)

    def some_block(self) -> Any:
        blocks = [each for each in self.results if isinstance(each, Examples)]
        return self.random.choice(blocks) if blocks and self.random.random() < 0.5 else self.make_block()

    def odd_value(self) -> Any:
        odd = (
            None,
            "",
            "x",
            "../up",
            b"\xff",
            [],
            {},
            (),
            [None],
            {"a": 1},
            object(),
            len,
            np.nan,
            range(10**9 if self.numbers is NUMBERS else 3),
            slice(None, None, -1),
        )
        return self.random.choice([*odd, self.array(), self.subject(), self.random.choice(self.numbers), *self.data[:1]])

    def array(self) -> Any:
        """Return an array of any type, shape and layout."""
        dtype, shape = self.random.choice(DTYPES), self.random.choice(SHAPES)
        if self.random.random() < 0.5:
            dtype = self.random.choice(("i4", "i8"))
        array = np.zeros(shape, dtype)
        with contextlib.suppress(Exception):  # most numbers do not fit most types
            array[...] = (
                self.random.choice(self.numbers) if self.random.random() < 0.5 else np.arange(array.size).reshape(shape)
            )
        layout = self.random.randrange(6)
        if layout == 0 and array.ndim:
            array = np.repeat(array, 2, -1)[..., ::2]
        elif layout == 1:
            array.flags.writeable = False
        elif layout == 2:
            array = array.T
        elif layout == 3 and array.dtype != object:
            array = np.frombuffer(bytes(1) + array.tobytes(), array.dtype, array.size, 1).reshape(shape)  # not aligned
        return array

    def take(self, result: Any) -> None:
        """Hold a result to call its methods in turn; of an iterator, what it yields first."""
        if isinstance(result, Iterator):
            self.results += filter(is_small, itertools.islice(result, 2))
        elif type(result).__module__.startswith("bertprep") and is_small(result):
            self.results.append(result)
        if len(self.results) > RESULTS_HELD:
            self.results = self.random.sample(self.results, RESULTS_HELD // 2)


def is_small(result: Any) -> bool:
    with contextlib.suppress(Exception):
        return not isinstance(result, Examples) or result.nbytes <= MAX_BYTES_HELD
    return True


def short(value: Any) -> str:
    """Return a value as a call shows it: arrays by type and shape."""
    if isinstance(value, np.ndarray):
        return f"array({value.dtype}, {value.shape}, {value.flat[0] if value.size else ''})"
    if isinstance(value, Sequence) and not isinstance(value, str | range):
        return f"[{', '.join(map(short, value[:5]))}]"
    return type(value).__name__ if isinstance(value, Examples) else repr(value)[:60]


def run(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Make calls at once, each in a thread, or one here; return what they return but for errors."""
    found: list[Any] = []
    all_started = threading.Barrier(len(calls))  # since threads cannot start while another has all memory

    def attempt(call: Callable[[], Any]) -> None:
        all_started.wait()
        with contextlib.suppress(Exception):
            result = call()
            found.append([*itertools.islice(result, 2)][-1] if isinstance(result, Iterator) else result)

    threads = [threading.Thread(target=attempt, args=(call,)) for call in calls[1:]]
    for thread in threads:
        thread.start()
    attempt(calls[0])
    for thread in threads:
        thread.join()
    return found


def main(folder: Path, seed: int, count: int) -> None:
    warnings.simplefilter("ignore")
    (folder / "out").mkdir(exist_ok=True)
    os.chdir(folder / "out")
    caller = Caller(folder, seed)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES,) * 2)
    faulthandler.enable()
    with folder.with_suffix(".call").open("wb", buffering=0) as log:
        for number in range(count):
            at_once = 1 if caller.random.random() < 0.97 else 3
            caller.numbers = NUMBERS if at_once == 1 else SMALL_NUMBERS
            try:
                calls = [caller.call() for _ in range(at_once)]
            except MemoryError:
                continue
            log.seek(0)
            log.truncate()
            log.write(
                f"seed {seed}, call {number}: {' and at once '.join(name for name, _ in calls)}\n".encode(errors="replace")
            )
            faulthandler.dump_traceback_later(MAX_CALL_SECONDS, exit=True)
            for result in run([call for _, call in calls]):
                caller.take(result)
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
