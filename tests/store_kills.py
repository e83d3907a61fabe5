"""A workspace in a store, made by processes that are killed, while a second client looks at everything that is there.

The second client asks the store itself after each request that may have changed something, before its answer: whatever has a
final name must have the bytes that a run on a disk leaves there. tests/commands/test_object_store.py has the moments that CI
kills at; tests/test_stress.py kills at random ones.
"""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote
from xml.etree import ElementTree

from tests.golden import GOLDEN
from tests.object_store import Fault, Store

_ALL = (
    "import json, sys; from bertprep.cli import main\n"
    "sys.exit(next((status for status in map(main, json.loads(sys.argv[1])) if status), 0))"
)


def commands(texts: Sequence[Path], workdir: str, workers: int) -> list[list[str]]:
    """What makes text shards, records of two formats, of these converted ones, and token shards."""
    more = ["--workers", str(workers)]
    home = ["--workdir", workdir, "--corpus", "mine", *more]
    settings = ["--seq=64", "--pred=10", "--dupe=1", "--format=tfrecord,arrow", "--vocab", str(GOLDEN / "vocab.txt")]
    folder = f"{workdir}/tfrecord/lower_case_1_seq_len_64_max_pred_10_masked_lm_prob_0.15_random_seed_12345_dupe_factor_1"
    return [
        ["shard", "--input", *map(str, texts), "--shards", "3", *home],
        ["create", *settings, *home],
        ["convert", f"{folder}_shard_3_test_split_10/mine", f"{workdir}/converted", "--to", "ofrecord", "--shards", "2", *more],
        ["tokenize", "--vocab", str(GOLDEN / "vocab.txt"), *home],
    ]


class Run:
    """The commands in a process group of their own."""

    def __init__(self, commands: list[list[str]]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _ALL, json.dumps(commands)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self, seconds: float | None = None) -> tuple[int, str]:
        """The exit status, and what was said; raises `subprocess.TimeoutExpired`."""
        _, said = self._process.communicate(timeout=seconds)
        return self._process.returncode, said


class Watcher:
    """The second client; `wrong` is what it has seen under a final name that must not be there."""

    def __init__(self, store: Store, expected: dict[str, str]) -> None:
        self.wrong: list[str] = []
        self.looks = 0
        self._store, self._expected = store, expected
        self._seen: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def look(self) -> None:
        """List everything, and read what is new."""
        with self._lock:
            try:
                self._look()
            except Exception as error:
                self.wrong.append(repr(error))

    def _look(self) -> None:
        self.looks += 1
        for name, version in self._list():
            if (name, version) in self._seen or "/.ledger/" in name or "/.map/" in name:
                continue
            status, content = self._store.ask("GET", quote(name))
            sha256 = hashlib.sha256(content).hexdigest()
            if status != 200 or self._expected.get(name) != sha256:
                self.wrong.append(f"{name}: {status}, {len(content)} bytes")
            self._seen.add((name, version))

    def _list(self) -> Iterator[tuple[str, str]]:
        token = ""
        while True:
            status, page = self._store.ask("GET", f"?list-type=2&encoding-type=url{token}")
            assert status == 200, page
            root = ElementTree.fromstring(re.sub(rb' xmlns="[^"]*"', b"", page))
            for each in root.findall("Contents"):
                yield unquote(each.findtext("Key", "")), each.findtext("ETag", "")
            if root.findtext("IsTruncated") != "true":
                return
            token = f"&continuation-token={quote(root.findtext('NextContinuationToken', ''))}"


@contextmanager
def watch(store: Store, expected: dict[str, str]) -> Iterator[Watcher]:
    """A second client that looks while anything changes; raises `AssertionError` for what it has seen."""
    watcher = Watcher(store, expected)
    store.changed = watcher.look
    try:
        yield watcher
    finally:
        store.changed = bool
    assert not watcher.wrong, watcher.wrong


def make_killed_at(store: Store, moments: Sequence[Fault], commands: list[list[str]]) -> None:
    """Run the commands, killed at each of these moments in turn, and then once more."""
    for moment in moments:
        begun = threading.Event()
        run = Run(commands)

        def kill(run: Run = run, begun: threading.Event = begun) -> None:
            begun.set()
            run.kill()

        moment.act = kill
        store.faults.append(moment)
        status, said = run.wait()
        assert begun.is_set(), f"ended with {status} before {moment}: {said}"
        assert status == -signal.SIGKILL
        store.faults.remove(moment)
    status, said = Run(commands).wait()
    assert status == 0, said
