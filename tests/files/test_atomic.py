"""A file exists complete or not at all, also if the disk is full."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file, atomic_folder, explain_write_error, remove_leftovers, temporary_folder


def test_the_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    with atomic_file(path) as file:
        file.write(b"first ")
        assert not path.exists()
        file.write(memoryview(b"second"))
        assert file.size_bytes == 12
    assert path.read_bytes() == b"first second"
    assert list(path.parent.iterdir()) == [path]


def test_all_is_written_where_the_system_takes_a_part_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux writes at most 2 GB in one call, and less if a signal comes."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    with atomic_file(tmp_path / "file") as file:
        file.write(b"several parts of a file")
    assert (tmp_path / "file").read_bytes() == b"several parts of a file"
    assert file.size_bytes == len(b"several parts of a file")


@pytest.mark.parametrize(("mode", "expected"), [({}, 0o640), ({"mode": 0o600}, 0o600)])
def test_who_may_read_a_file(mode: dict[str, int], expected: int, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with atomic_file(tmp_path / "file", **mode) as file:
            file.write(b"mine")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == expected


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


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "MB are free in {folder}; free some space and run the same command again"),
        (errno.EDQUOT, "MB are free in {folder}; free some space and run the same command again"),
        (errno.EFBIG, "the size of files is limited (ulimit -f); raise the limit and run the same command again"),
        (errno.EMFILE, "raise the limit on open files (ulimit -n), or use fewer --workers"),
        (errno.ENFILE, "raise the limit on open files (ulimit -n), or use fewer --workers"),
        (errno.EACCES, "fix the cause and run the same command again"),
    ],
)
def test_a_write_that_fails_says_what_to_do(number: int, advice: str, tmp_path: Path) -> None:
    path, error = tmp_path / "new" / "file", OSError(number, os.strerror(number))
    message = str(explain_write_error(path, error))
    assert message.startswith(f"{path}: cannot be written: {error.strerror}; ")
    assert message.endswith(advice.format(folder=tmp_path))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
def test_a_full_disk_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def write_and_fill_the_disk() -> None:
        with atomic_file(path) as file:
            os.dup2(os.open("/dev/full", os.O_WRONLY), file._descriptor)
            file.write(b"data")

    with pytest.raises(BertprepError) as raised:
        write_and_fill_the_disk()
    assert str(raised.value).startswith(f"{path}: cannot be written: No space left on device; ")
    assert "free some space and run the same command again" in str(raised.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("make", "below", "line"),
    [
        (Path.touch, "below", r"file/below: cannot be written: \S*file is a file, expected a folder"),
        (lambda path: path.symlink_to("nowhere"), "a/b",
         r"file/a/b: cannot be written: \S*file is a link to nowhere, which does not exist; create that folder"),
        (os.mkfifo, "", "file: cannot be written: it is a device or a pipe, expected a file; name another"),
        (os.mkdir, "", "file: cannot be written: it is a folder, expected a file; name another"),
    ],
    ids=["a file", "a link", "a pipe", "a folder"],
)  # fmt: skip
def test_what_is_in_the_way_is_named_and_left(make: Callable[[Path], object], below: str, line: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    make(path)
    before = path.lstat()
    with pytest.raises(BertprepError, match=line), atomic_file(path / below) as file:
        file.write(b"data")
    assert os.path.samestat(path.lstat(), before)


def test_two_writers_of_one_file_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with atomic_file(path) as first:
        first.write(b"first, ")
        with atomic_file(path) as second:
            second.write(b"second")
        assert path.read_bytes() == b"second"
        first.write(b"and last")
    assert path.read_bytes() == b"first, and last"
    assert list(tmp_path.iterdir()) == [path]


def test_no_link_that_was_planted_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "mine"
    mine.write_bytes(b"dear to me")
    names = iter([b"\x11\x11\x11\x11", b"\x22\x22\x22\x22"])
    monkeypatch.setattr(os, "urandom", lambda _: next(names))  # somebody guessed the name
    for planted in ("file.tmp", "other.11111111.tmp"):
        (tmp_path / planted).symlink_to(mine)
    with atomic_file(tmp_path / "file") as file:
        file.write(b"new")
    with atomic_file(tmp_path / "other") as file:
        file.write(b"new")
    assert mine.read_bytes() == b"dear to me"
    assert (tmp_path / "file").read_bytes() == (tmp_path / "other").read_bytes() == b"new"
    assert not (tmp_path / "file").is_symlink()


def test_leftovers_of_killed_runs_are_removed_and_files_of_living_ones_are_not(tmp_path: Path) -> None:
    program = "import os, sys, signal; from pathlib import Path; from bertprep.files.atomic import AtomicFile;"
    program += "AtomicFile(Path(sys.argv[1])).write(b'half'); os.kill(os.getpid(), signal.SIGKILL)"
    path = tmp_path / "file"
    assert subprocess.run([sys.executable, "-c", program, str(path)], check=False).returncode == -signal.SIGKILL
    for name in ("other.00000000.tmp", "notes.tmp"):
        (tmp_path / name).touch()
    assert len(list(tmp_path.glob("file.*.tmp"))) == 1
    with atomic_file(path) as file:
        file.write(b"of one that lives")
        [unfinished] = tmp_path.glob("file.*.tmp")  # the next writer of a file clears what a killed one left of it
        remove_leftovers(tmp_path.parent)
        assert sorted(tmp_path.iterdir()) == sorted([unfinished, tmp_path / "notes.tmp"])
    assert path.read_bytes() == b"of one that lives"


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "made"
    leftover = tmp_path / "made.1f2e3d4c.tmp"
    leftover.mkdir()
    (leftover / "half").touch()

    def make_and_fail() -> None:
        with atomic_folder(target) as made:
            (made / "b").touch()
            raise ZeroDivisionError

    with atomic_folder(target) as first:
        (first / "a").touch()
        assert not target.exists()
        with pytest.raises(ZeroDivisionError):
            make_and_fail()
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*")] == [Path("made"), Path("made/a")]
    with pytest.raises(BertprepError, match="made: cannot be written: Directory not empty"), atomic_folder(target) as third:
        (third / "b").touch()
    assert [path.name for path in target.iterdir()] == ["a"]


def test_a_temporary_folder_of_a_killed_run_is_removed_by_the_next(tmp_path: Path) -> None:
    left = tmp_path / "measure.0123abcd.tmp"
    left.mkdir()
    (left / "records").write_text("unfinished")
    with temporary_folder(tmp_path / "measure") as folder, temporary_folder(tmp_path / "measure") as another:
        (folder / "file").write_text("text")
        assert sorted(tmp_path.iterdir()) == sorted([folder, another])  # that of a run at work stays
    assert not list(tmp_path.iterdir())
