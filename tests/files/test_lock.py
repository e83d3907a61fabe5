"""One writer at a time: the second is refused, or waits and uses the first one's result."""

import queue
import threading
from pathlib import Path
from typing import Any

import pytest

from bertprep.errors import BertprepError
from bertprep.files import lock
from bertprep.files.lock import locked
from bertprep.workspace.journal import Journal
from bertprep.workspace.manifest import read_manifest

MADE_WITH = {"rules": 1}
FACTS = {"bytes": 4, "sha256": "0" * 64, "documents": 1, "source": 0, "empty": 0, "made_of": {}}


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> "queue.Queue[str]":
    """What the waiting run says."""
    lines: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(lock, "say", lines.put)
    return lines


def start(work: Any) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_who_comes_second_is_refused_or_waits(said: "queue.Queue[str]", tmp_path: Path) -> None:
    order = []

    def wait() -> None:
        with locked(tmp_path, wait=True):
            order.append("second")

    with locked(tmp_path):
        with pytest.raises(BertprepError, match="another run is writing here; wait for it, or stop it first"), locked(tmp_path):
            pass
        second = start(wait)
        assert said.get(timeout=60) == f"{tmp_path}: another run is writing here; waiting for it"
        order.append("first")
    second.join(60)
    assert order == ["first", "second"]
    assert not list(tmp_path.iterdir())


def test_locks_of_two_names_are_two(tmp_path: Path) -> None:
    with locked(tmp_path, ".a.lock"), locked(tmp_path, ".b.lock"):
        assert len(list(tmp_path.iterdir())) == 2


def test_a_lock_is_no_way_to_another_file(tmp_path: Path) -> None:
    (tmp_path / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BertprepError, match=r"\.lock: cannot be written: "), locked(tmp_path):
        pass
    assert not (tmp_path / "elsewhere").exists()


def make(folder: Path, made: list[str], *, wait: bool) -> None:
    with Journal(folder, "sorted text", MADE_WITH, wait=wait) as journal:
        if journal.found:
            made.append("found")
            return
        (folder / "shard").write_text("text")
        journal.add("shard", FACTS)
        made.append("made")
        journal.finish(["shard"], {})


def test_a_run_that_waited_finds_what_the_other_has_made(said: "queue.Queue[str]", tmp_path: Path) -> None:
    made: list[str] = []
    with Journal(tmp_path, "sorted text", MADE_WITH) as journal:
        second = start(lambda: make(tmp_path, made, wait=True))
        said.get(timeout=60)
        (tmp_path / "shard").write_text("text")
        journal.add("shard", FACTS)
        journal.finish(["shard"], {})
        made.append("finished")
    second.join(60)
    assert made == ["finished", "found"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manifest.json", "shard"]


def test_a_run_that_waited_does_what_the_other_has_not(said: "queue.Queue[str]", tmp_path: Path) -> None:
    made: list[str] = []
    with Journal(tmp_path, "sorted text", MADE_WITH):
        second = start(lambda: make(tmp_path, made, wait=True))
        said.get(timeout=60)
    second.join(60)
    assert made == ["made"]
    assert (manifest := read_manifest(tmp_path))
    assert manifest.files == {"shard": FACTS}


def test_the_journal_of_a_run_that_waited_is_the_one_that_others_see(said: "queue.Queue[str]", tmp_path: Path) -> None:
    """The file that the second run has opened is no longer there when the lock on it is free."""
    opened = []

    def second() -> None:
        with Journal(tmp_path, "sorted text", MADE_WITH, wait=True) as journal:
            opened.append(journal)
            with (
                pytest.raises(BertprepError, match="another run is writing here"),
                Journal(tmp_path, "sorted text", MADE_WITH),
            ):
                pass

    with Journal(tmp_path, "sorted text", MADE_WITH) as first:
        waiting = start(second)
        said.get(timeout=60)
        first.finish([], {})
    waiting.join(60)
    assert len(opened) == 1


def test_more_can_be_made_where_all_was_there(tmp_path: Path) -> None:
    make(tmp_path, [], wait=False)
    with Journal(tmp_path, "sorted text", MADE_WITH) as journal:
        assert journal.found
        (tmp_path / "more").write_text("text")
        journal.add("more", FACTS)
    with Journal(tmp_path, "sorted text", MADE_WITH) as journal:
        assert journal.done == {"shard": FACTS, "more": FACTS}
