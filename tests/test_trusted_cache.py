"""Compiled code is run only if nobody but this user and root can have put it there."""

import os
import re
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bertprep.errors import BertprepWarning
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

    with ThreadPoolExecutor(4) as threads:
        found = [threads.submit(cached, "kernels-4567.o", compile_slowly) for _ in range(4)]
        assert started.wait(600)
        finish.set()
    assert [each.result() for each in found] == [CODE] * 4
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
    plant: Callable[[Path], None], is_replaced: bool, warning: str, cache: Path, spare: Path
) -> None:
    plant(cache)
    with warnings.catch_warnings(record=True) as found:
        assert cached(NAME, anew) == b"compiled anew"
        assert cached(NAME, lambda: b"not needed") == b"compiled anew"
    kept = spare / f"bertprep-{os.geteuid()}" / "kernels"
    assert kept.exists() != is_replaced
    lines = [str(each.message) for each in found]
    assert all(warning in line and line.endswith(f"keeps its compiled code in {kept} instead") for line in lines)
    assert bool(lines) == bool(warning)


def test_where_nothing_can_be_trusted_nothing_is_kept(cache: Path, spare: Path) -> None:
    planted = spare / f"bertprep-{os.geteuid()}" / "kernels"
    planted.mkdir(parents=True)
    for folder in (cache, planted):
        folder.chmod(0o777)
    with pytest.warns(BertprepWarning, match="bertprep cannot keep its compiled code, so every run compiles it again$"):
        assert cached(NAME, anew) == b"compiled anew"
    assert not list(planted.iterdir())


def test_without_a_home_it_is_kept_among_temporary_files(spare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BERTPREP_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "expanduser", _has_no_home)
    place = spare / f"bertprep-{os.geteuid()}" / "kernels"
    line = f"HOME is not set, so there is no home folder; bertprep keeps its compiled code in {place} instead"
    with pytest.warns(BertprepWarning, match=re.escape(line)):
        assert cached(NAME, lambda: CODE) == CODE
    with pytest.warns(BertprepWarning, match=re.escape(line)):
        assert cached(NAME, anew) == CODE


def _has_no_home(_: Path) -> Path:
    raise RuntimeError("Could not determine home directory.")
