"""Compiled code is run only if nobody but this user and root can have put it there."""

import os
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bertprep.trusted_cache import cached

NAME, CODE = "kernels-0123.o", b"machine code"
SOMEBODY_ELSE = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others, or become another")


@pytest.fixture
def spare(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The OS's folder for temporary files: where the cache is if the usual one cannot be used."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.fixture
def cache(tmp_path: Path, spare: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that this user has filled."""
    monkeypatch.setenv("BERTPREP_CACHE", str(tmp_path / "cache"))
    assert cached(NAME, lambda: CODE) == CODE
    assert not list(spare.iterdir())
    return tmp_path / "cache" / "kernels"


def anew() -> bytes:
    return b"compiled anew"


def link_file(cache: Path) -> None:
    (cache / NAME).rename(cache / "code")
    (cache / NAME).symlink_to("code")


def link_folder(cache: Path) -> None:
    cache.rename(cache.with_name("elsewhere"))
    cache.symlink_to("elsewhere")
    os.chown(cache, SOMEBODY_ELSE, SOMEBODY_ELSE, follow_symlinks=False)


def replace_by_a_pipe(cache: Path) -> None:
    (cache / NAME).unlink()
    os.mkfifo(cache / NAME)


def test_what_was_kept_is_read_also_behind_a_link_of_ones_own(cache: Path) -> None:
    assert cached(NAME, anew) == CODE
    assert [path.name for path in cache.iterdir()] == [NAME]
    cache.parent.rename(cache.parent.with_name("elsewhere"))
    cache.parent.symlink_to("elsewhere")
    assert cached(NAME, anew) == CODE


@pytest.mark.usefixtures("cache")
def test_of_many_one_compiles() -> None:
    compiled: list[bytes] = []
    started, finish = threading.Event(), threading.Event()

    def compile_slowly() -> bytes:
        compiled.append(CODE)
        started.set()
        assert finish.wait(600)
        return CODE

    threads = [threading.Thread(target=cached, args=("kernels-4567.o", compile_slowly)) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert started.wait(600)
    finish.set()
    for thread in threads:
        thread.join()
    assert len(compiled) == 1


@pytest.mark.parametrize(
    ("plant", "is_replaced", "warning"),
    [
        pytest.param(lambda cache: (cache / NAME).write_bytes(b"0" * 64 + b"\n" + CODE), True, "", id="checksum"),
        pytest.param(lambda cache: (cache / NAME).chmod(0o664), True, "", id="file"),
        pytest.param(link_file, True, "", id="link to a file"),
        pytest.param(replace_by_a_pipe, True, "", id="pipe"),
        pytest.param(lambda cache: os.chown(cache / NAME, SOMEBODY_ELSE, 0), True, "", id="file of another", marks=as_root),
        pytest.param(lambda cache: cache.chmod(0o770), False, "belongs to another user, or others can write", id="folder"),
        pytest.param(lambda cache: os.chown(cache, SOMEBODY_ELSE, 0), False, "another", id="of another", marks=as_root),
        pytest.param(lambda cache: os.chown(cache.parent, SOMEBODY_ELSE, 0), False, "another", id="above", marks=as_root),
        pytest.param(link_folder, False, "belongs to another", id="link of another", marks=as_root),
    ],
)  # fmt: skip
def test_what_others_can_have_planted_is_not_run(
    plant: Callable[[Path], None], is_replaced: bool, warning: str, cache: Path, spare: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(cache)
    assert cached(NAME, anew) == b"compiled anew"
    assert cached(NAME, lambda: b"not needed") == b"compiled anew"
    kept = spare / f"bertprep-{os.geteuid()}" / "kernels"
    assert kept.exists() != is_replaced
    printed = capsys.readouterr().err.splitlines()
    assert all(warning in line and line.endswith(f"kept in {kept}") for line in printed)
    assert bool(printed) == bool(warning)


def test_where_nothing_can_be_trusted_nothing_is_kept(cache: Path, spare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planted = spare / f"bertprep-{os.geteuid()}" / "kernels"
    planted.mkdir(parents=True)
    for folder in (cache, planted):
        folder.chmod(0o777)
    assert cached(NAME, anew) == b"compiled anew"
    assert capsys.readouterr().err.endswith("its compiled code is kept nowhere, so every run compiles it\n")
    assert not list(planted.iterdir())


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
    printed = like_tmp / "printed"
    process = os.fork()
    if process == 0:
        status = 1
        try:
            os.setgid(SOMEBODY_ELSE)
            os.setuid(SOMEBODY_ELSE)
            os.dup2(os.open(printed, os.O_WRONLY | os.O_CREAT), 2)
            monkeypatch.setattr("sys.stderr", os.fdopen(2, "w", closefd=False))
            cached(NAME, lambda: CODE)
            status = int(cached(NAME, anew) != CODE)
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        os._exit(status)
    _, status = os.waitpid(process, 0)
    place = like_tmp / f"bertprep-{SOMEBODY_ELSE}" / "kernels"
    line = f"bertprep: there is no home folder, HOME is not set; its compiled code is kept in {place}\n"
    assert printed.read_text() == 2 * line
    assert status == 0
