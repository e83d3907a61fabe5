"""One writer at a time: the second is refused, or waits."""

import os
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bertprep.errors import BertprepError
from bertprep.files import lock
from bertprep.files.lock import hold, is_held, locked


def test_who_comes_second_is_refused_or_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(lock, "print_message", lines.put)
    order = []

    def wait() -> None:
        with locked(tmp_path, wait=True):
            order.append("second")

    second = threading.Thread(target=wait, daemon=True)
    with locked(tmp_path):
        with pytest.raises(BertprepError, match="another run is writing here; wait for it, or stop it first"), locked(tmp_path):
            pass
        second.start()
        assert lines.get(timeout=600) == f"{tmp_path}: another run is writing here; waiting for it"
        order.append("first")
    second.join(600)
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


def test_a_held_file_is_told_from_others(tmp_path: Path) -> None:
    (path := tmp_path / "settings.json").write_text("{}")
    assert not is_held(path)
    first, second = hold(path), hold(path)  # as parts of one folder do
    assert first is not None
    assert second is not None
    os.close(first)
    assert is_held(path)
    os.close(second)
    assert not is_held(path)
    assert not is_held(tmp_path / "missing")
    assert hold(tmp_path / "missing") is None


def test_many_that_ask_at_once_are_not_taken_for_a_holder(tmp_path: Path) -> None:
    """Asking takes the lock for a moment, which others that ask at that moment must not see."""
    (path := tmp_path / "settings.json").write_text("{}")
    with ThreadPoolExecutor(8) as threads:
        assert not any(threads.map(is_held, [path] * 4_000))
