"""However a run is killed, repeated, dealt out or doubled, it ends with the bytes of one run, and nothing half made is seen."""

import itertools
import os
import random
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from bertprep.errors import BertprepError
from bertprep.files import object_store
from bertprep.work.layout import LEDGER, MANIFEST
from bertprep.work.ledger import is_unfinished
from bertprep.work.parts import FINISH, Part
from tests.object_store import Fault, Store, store
from tests.work import toy
from tests.work.toy import FORMATS, Request, forked, in_store, status_of, statuses, stop_at, tree, visible, write

__all__ = ["store"]  # a fixture

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks the process of the tests")

SYSTEM_CALLS = [(os, name) for name in ("replace", "link", "fsync", "unlink", "mkdir", "rmdir")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Request:
    """A request, and what one undisturbed run makes of it."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "vocab.txt").write_text("[PAD]\n")
    request = Request(folder / "reference", copies=(folder / "vocab.txt",))
    request()
    return request


@pytest.fixture
def request_here(made: Request, tmp_path: Path) -> Request:
    return replace(made, output=tmp_path / "out")


def same(request: Request, made: Request) -> bool:
    return tree(request.output) == tree(made.output)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_killed_before_and_after_every_step(made: Request, tmp_path: Path) -> None:
    (made := replace(made, output=tmp_path / "reference", count=2))()
    for step in itertools.count():
        request = replace(made, output=tmp_path / str(step))
        status = status_of(forked(request, lambda step=step: stop_at(step, die, SYSTEM_CALLS)))  # type: ignore[misc]
        assert status in (0, -signal.SIGKILL)
        assert visible(tree(request.output)).items() <= tree(made.output).items()
        if any((request.output / "plain").rglob("part-?")):
            assert is_unfinished(request.output / "plain") != (request.output / "plain" / MANIFEST).exists()
        replace(request, workers=1 + step % 3)()
        assert same(request, made), step
        shutil.rmtree(request.output)
        if status == 0:
            break


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets are in this process's memory."""
    buckets: dict[str, MemoryStore] = {}
    monkeypatch.setattr(object_store, "_store", lambda path, _: buckets.setdefault(path.bucket, MemoryStore()))


@pytest.mark.slow
@pytest.mark.usefixtures("memory")
def test_killed_at_every_request_to_a_store(made: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an exception that nothing catches."""
    (made := replace(made, output=tmp_path / "reference", count=3))()

    class Killed(BaseException):
        pass

    original = object_store._call
    for step in itertools.count(step=3):
        request, calls = in_store(made, f"s3://step{step}"), itertools.count()

        def call(*arguments: object, calls: Iterator[int] = calls, step: int = step, **more: object) -> object:
            at = next(calls)
            if 2 * at >= step:  # a killed process asks for nothing more
                raise Killed
            try:
                return original(*arguments, **more)  # type: ignore[arg-type]
            finally:
                if 2 * at + 1 == step:
                    raise Killed

        monkeypatch.setattr(object_store, "_call", call)
        try:
            request()
            is_killed = False
        except Killed:
            is_killed = True
        monkeypatch.setattr(object_store, "_call", original)
        assert visible(tree(request.output)).items() <= tree(made.output).items()
        request()
        assert same(request, made), step
        if not is_killed:
            break


@pytest.mark.parametrize("seed", range(3))
def test_parts_in_any_order_some_twice_or_at_once(seed: int, made: Request, request_here: Request) -> None:
    chosen = random.Random(seed)
    parts = [*range(5), *chosen.sample(range(5), 2)]
    chosen.shuffle(parts)
    for some in itertools.batched(parts, 1 + seed * 2) if sys.version_info >= (3, 12) else [parts]:
        assert set(statuses([replace(request_here, part=Part(each, 5)) for each in some])) == {0}
    assert same(request_here, made)  # whoever was last has closed the folders
    for again in (FINISH, Part(1, 3), None):
        assert replace(request_here, part=again)().made == 0
    assert same(request_here, made)


def test_a_part_says_what_is_missing_and_finishing_names_it(made: Request, request_here: Request) -> None:
    with pytest.raises(BertprepError, match=r"plain: 7 of 7 files are missing: training/part-0, .*; run the parts"):
        replace(request_here, part=FINISH)()
    assert not tree(request_here.output)
    result = replace(request_here, part=Part(1, 2))()
    assert (result.is_complete, result.made, result.kept, len(result.manifests["double"].files)) == (False, 3, 0, 3)
    again = replace(request_here, part=Part(1, 4))()  # numbers 1 and 5, which are made
    assert (again.made, again.kept) == (0, 2)
    assert is_unfinished(request_here.output / "plain")
    with pytest.raises(BertprepError, match=r"4 of 7 files are missing"):
        replace(request_here, part=FINISH)()
    assert request_here().made == 4  # a run without parts makes the rest
    assert same(request_here, made)


def test_several_runs_at_once_all_end_right(made: Request, request_here: Request) -> None:
    assert statuses([replace(request_here, workers=workers) for workers in (1, 2, 3)]) == [0, 0, 0]
    assert same(request_here, made)


def test_of_two_settings_at_once_one_is_refused(request_here: Request) -> None:
    for number in range(5):
        both = [replace(request_here, output=request_here.output / str(number), seq=seq) for seq in (128, 512)]
        ended = statuses(both)
        assert sorted(ended) == [0, 1]
        winner = both[ended.index(0)]
        assert f'"seq": {winner.seq}' in (winner.output / FORMATS[0] / MANIFEST).read_text()


def test_other_settings_are_refused_and_change_nothing(request_here: Request) -> None:
    for begun in (replace(request_here, part=Part(0, 2)), request_here):
        begun()
        before = tree(request_here.output)
        for part in (None, Part(1, 2), FINISH):
            with pytest.raises(BertprepError, match="was made with --seq 128, but this run has --seq 512; ") as refused:
                replace(request_here, seq=512, part=part)()
            is_of_others = part is not None and begun.part is not None  # whose files are not to be removed
            advice = "give this part the options and files of the other parts, or " if is_of_others else ""
            remove = "" if is_of_others else ", or remove this folder"
            assert str(refused.value).endswith(f"; {advice}choose another --output{remove}")
        assert tree(request_here.output) == before


def test_a_failed_run_that_made_nothing_binds_no_folder(request_here: Request) -> None:
    with pytest.raises(BertprepError, match="number 0: is broken"):
        replace(request_here, broken=0)()
    assert not tree(request_here.output)
    replace(request_here, seq=512)()
    with pytest.raises(BertprepError, match="this run has --seq 128"):
        replace(request_here, broken=0)()
    assert not list(request_here.output.rglob(LEDGER))


def test_after_a_failure_what_was_finished_is_kept(made: Request, request_here: Request) -> None:
    with pytest.raises(BertprepError, match="number 3: is broken"):
        replace(request_here, broken=3)()
    assert request_here().made == 4
    assert same(request_here, made)


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("where", ["disk", "memory"])
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("how", ["removed", "short"])
def test_what_is_gone_is_made_again(how: str, closed: bool, where: str, made: Request, request_here: Request) -> None:
    request = in_store(made, "s3://gone") if where == "memory" else request_here
    replace(request, part=None if closed else Part(0, 2))()
    path = request.output / "plain/training/part-2"
    path.unlink()
    if how == "short" and where == "disk":
        path.write_text("2")
    assert request().made == (1 if closed else 4)
    assert same(request, made)


def test_it_must_have_the_same_bytes_again(request_here: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    request_here()
    path = request_here.output / "plain/training/part-2"
    path.unlink()
    before = tree(request_here.output)
    monkeypatch.setattr(toy, "write", lambda path, _: write(path, "5"))
    with pytest.raises(
        BertprepError, match=r"part-2: has blake3 [0-9a-f]{16}\.\.\., but another run made it with blake3 [0-9a-f]{16}"
    ):
        request_here()
    monkeypatch.undo()
    assert visible(tree(request_here.output)) == before
    request_here()
    assert path.read_text() == "2\n"


def test_the_copy_next_to_the_manifest_is_restored(made: Request, request_here: Request) -> None:
    request_here()
    (request_here.output / "plain/vocab.txt").unlink()
    assert request_here().made == 0
    assert same(request_here, made)


@pytest.mark.parametrize("name", ["training/part-3", "vocab.txt"])
def test_a_users_own_file_is_never_replaced(name: str, request_here: Request) -> None:
    mine = request_here.output / "plain" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(BertprepError, match=rf"{name}: exists and is "):
        request_here()
    assert tree(request_here.output) == {f"plain/{name}": b"mine"}


def test_in_a_store_that_loses_answers(made: Request, store: Store) -> None:
    request = in_store(made, store.url)
    store.faults += [
        Fault("PUT", ".*part-1", lose=True),
        Fault("PUT", ".*part-2.json", lose=True),
        Fault("PUT", ".*manifest.json", lose=True),
        Fault("POST", lose=True),
    ]
    replace(request, part=Part(0, 2))()
    assert is_unfinished(request.output / "plain")
    replace(request, workers=2)()
    assert same(request, made)
    assert not any(fault.times for fault in store.faults)
    store.asked.clear()
    assert request().made == 0
    assert store.count("PUT") == store.count("DELETE") == store.count("POST") == 0
