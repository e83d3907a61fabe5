"""A file is there whole or not at all, also when the disk is full."""

from pathlib import Path

import pytest

from bertprep.atomic import RESERVED_BYTES, atomic_file, remove_leftovers
from bertprep.errors import BertprepError


def test_the_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    with atomic_file(path) as file:
        file.write(b"first ")
        assert not path.exists()
        file.write(memoryview(b"second"))
        assert file.size_bytes == 12
    assert path.read_bytes() == b"first second"
    assert list(path.parent.iterdir()) == [path]


def test_room_reserved_ahead_is_given_back(tmp_path: Path) -> None:
    block = bytes(range(256)) * 4096
    blocks = RESERVED_BYTES // len(block) + 2
    with atomic_file(tmp_path / "file") as file:
        for _ in range(blocks):
            file.write(block)
    assert (tmp_path / "file").read_bytes() == block * blocks
    assert (tmp_path / "file").stat().st_blocks * 512 < len(block) * blocks + (1 << 20)


def test_an_exception_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write_and_fail() -> None:
        with atomic_file(path) as file:
            file.write(b"new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_and_fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
def test_a_full_disk_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "file"
    (tmp_path / "file.tmp").symlink_to("/dev/full")
    with pytest.raises(BertprepError) as raised, atomic_file(path) as file:
        file.write(b"data")
    assert str(raised.value).startswith(f"{path}: cannot be written: No space left on device; ")
    assert "make room and run the same command again" in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"in the way")
    with pytest.raises(BertprepError, match=r"file/below: cannot be written: "), atomic_file(tmp_path / "file" / "below"):
        pass


def test_leftovers_of_killed_runs_are_removed(tmp_path: Path) -> None:
    kept = tmp_path / "a" / "file"
    kept.parent.mkdir()
    kept.touch()
    (tmp_path / "a" / "file.tmp").touch()
    (tmp_path / "other.tmp").touch()
    remove_leftovers(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [kept]
