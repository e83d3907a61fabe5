"""A file is there whole or not at all, also when the disk is full."""

import mmap
from pathlib import Path

import pytest

from bertprep.atomic import atomic_file, remove_leftovers
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


@pytest.mark.parametrize("sizes", [[8192, 4096], [4096, 100], [100], [8192, 100, 8192, 1]])
def test_a_direct_file_takes_whole_pages_and_anything_else(sizes: list[int], tmp_path: Path) -> None:
    pages = mmap.mmap(-1, 1 << 14)
    pages[:] = bytes(range(256)) * 64
    with atomic_file(tmp_path / "file", direct=True) as file:
        for size in sizes:
            file.write(memoryview(pages)[:size])
    assert (tmp_path / "file").read_bytes() == b"".join(pages[:size] for size in sizes)


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
