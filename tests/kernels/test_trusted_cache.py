"""Compiled code is run only if nobody but this user and root can have put it there."""

import fcntl
import os
import re
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bertprep.kernels.trusted_cache import KernelCache

NAME, CODE = "kernels-0123.o", b"machine code"
SOMEBODY_ELSE = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others, or become another")


@pytest.fixture
def spare(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's folder for temporary files: where the cache is if the usual one cannot be used."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.fixture
def cache(tmp_path: Path, spare: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that this user has filled."""
    monkeypatch.setenv("BERTPREP_CACHE", str(tmp_path / "cache"))
    KernelCache().keep(NAME, CODE)
    assert not list(spare.iterdir())
    return tmp_path / "cache"


def link_folder(cache: Path) -> None:
    cache.rename(cache.with_name("elsewhere"))
    cache.symlink_to("elsewhere")


def link_folder_of_another(cache: Path) -> None:
    link_folder(cache)
    os.chown(cache, SOMEBODY_ELSE, SOMEBODY_ELSE, follow_symlinks=False)


def link_file(cache: Path) -> None:
    (cache / NAME).rename(cache / "code")
    (cache / NAME).symlink_to("code")


def replace_by_a_pipe(cache: Path) -> None:
    (cache / NAME).unlink()
    os.mkfifo(cache / NAME)


def test_what_was_kept_is_read(cache: Path) -> None:
    assert KernelCache().read(NAME) == CODE
    assert KernelCache().read("kernels-4567.o") is None
    assert [path.name for path in cache.iterdir()] == [NAME]


def test_of_many_processes_one_fills_the_cache(cache: Path) -> None:
    def is_free() -> bool:
        opened = os.open(cache, os.O_RDONLY)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(opened)
        return True

    with KernelCache().alone():
        assert not is_free()
    assert is_free()
    assert [path.name for path in cache.iterdir()] == [NAME]


def test_a_cache_behind_a_link_of_ones_own_is_read(cache: Path) -> None:
    link_folder(cache)
    assert KernelCache().read(NAME) == CODE


@pytest.mark.parametrize("content", [b"", b"no checksum", CODE, b"0" * 64 + b"\n" + CODE])
def test_what_is_not_whole_is_compiled_anew_without_a_word(
    content: bytes, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (cache / NAME).write_bytes(content)
    kept = KernelCache()
    assert kept.read(NAME) is None
    kept.keep(NAME, b"compiled anew")
    assert KernelCache().read(NAME) == b"compiled anew"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("plant", "trouble", "stays"),
    [
        pytest.param(lambda cache: cache.chmod(0o777), "cache: can be written by others", False, id="folder"),
        pytest.param(lambda cache: cache.chmod(0o1777), "cache: can be written by others", False, id="folder like /tmp"),
        pytest.param(lambda cache: cache.parent.chmod(0o757), r"\S+: can be written by others", False, id="folder above"),
        pytest.param(lambda cache: (cache / NAME).chmod(0o664), f"cache/{NAME}: could .* by others", True, id="file"),
        pytest.param(link_file, "cache: Too many levels of symbolic links", True, id="link to a file"),
        pytest.param(
            lambda cache: os.chown(cache, SOMEBODY_ELSE, 0), "cache: belongs to another user, number 54321", False,
            id="folder of another", marks=as_root,
        ),
        pytest.param(
            lambda cache: os.chown(cache / NAME, SOMEBODY_ELSE, 0), f"cache/{NAME}: belongs to another .*54321", True,
            id="file of another", marks=as_root,
        ),
        pytest.param(link_folder_of_another, "cache: belongs to another .*54321", False, id="link of another", marks=as_root),
        pytest.param(replace_by_a_pipe, f"cache/{NAME}: could have been written by others", None, id="pipe"),
    ],
)  # fmt: skip
def test_what_others_can_have_planted_is_not_run(
    plant: Callable[[Path], None],
    trouble: str,
    stays: bool | None,
    cache: Path,
    spare: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plant(cache)
    kept = KernelCache()
    assert kept.read(NAME) is None
    kept.keep(NAME, b"compiled anew")
    place = cache if stays else spare / f"bertprep-{os.geteuid()}"
    said = capsys.readouterr().err
    assert re.fullmatch(rf"bertprep: \S*{trouble}; its compiled kernels are kept in {place}\n", said)
    assert KernelCache().read(NAME) == b"compiled anew"
    assert capsys.readouterr().err == ""


def test_where_nothing_can_be_trusted_nothing_is_kept(cache: Path, spare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache.chmod(0o777)
    planted = spare / f"bertprep-{os.geteuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    (cache / NAME).rename(planted / NAME)
    kept = KernelCache()
    assert kept.read(NAME) is None
    kept.keep(NAME, CODE)
    said = capsys.readouterr().err
    assert said == (
        f"bertprep: {cache}: can be written by others; its compiled kernels are kept nowhere, so every run compiles them\n"
    )
    assert not list(cache.iterdir())


def test_a_full_disk_leaves_nothing_behind(cache: Path, spare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def fill(descriptor: int) -> None:
        os.dup2(os.open("/dev/full", os.O_WRONLY), descriptor)
        os.write(descriptor, b"the last bytes")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fill)
    KernelCache().keep("kernels-4567.o", CODE)
    assert [path.name for path in cache.iterdir()] == [NAME]
    assert [path.name for path in spare.rglob("*")] == [f"bertprep-{os.geteuid()}"]


@pytest.fixture
def like_tmp() -> Iterator[Path]:
    """A folder that every user may write to, and reach."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder)


@as_root
def test_a_user_that_the_system_does_not_know_and_that_has_no_home(like_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BERTPREP_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(like_tmp))
    said = like_tmp / "said"
    process = os.fork()
    if process == 0:
        status = 1
        try:
            os.setgid(SOMEBODY_ELSE)
            os.setuid(SOMEBODY_ELSE)
            os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT), 2)
            monkeypatch.setattr("sys.stderr", os.fdopen(2, "w", closefd=False))
            KernelCache().keep(NAME, CODE)
            status = int(KernelCache().read(NAME) != CODE)
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        os._exit(status)
    _, status = os.waitpid(process, 0)
    place = like_tmp / f"bertprep-{SOMEBODY_ELSE}"
    assert said.read_text() == (
        f"bertprep: there is no home folder, HOME is not set; its compiled kernels are kept in {place}\n"
    )
    assert status == 0
    assert place.stat().st_mode & 0o777 == 0o755
