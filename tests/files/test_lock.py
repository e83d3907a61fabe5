"""One writer at a time: the second is refused, or waits."""

import queue
import threading
from pathlib import Path

import pytest

from bertprep.errors import BertprepError
from bertprep.files import lock
from bertprep.files.lock import locked


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
