"""Packed windows are kept for all runs of a user: rows are the same, and what is not as it was written is made again."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bertprep import PairDataset, TokenDataset
from bertprep.errors import BertprepError
from bertprep.files import kept_arrays
from bertprep.tokens import kept_windows, packing
from bertprep.tokens.documents import open_token_documents
from bertprep.tokens.packing import Windows
from bertprep.tokens.pairs import PairWindows
from bertprep.tokens.shard import TokenShard
from tests.tokens.test_dataset import write_set
from tests.tokens.test_pairs import sentences as sentences

SEQ = 64
Columns = dict[str, NDArray[Any]]


@pytest.fixture
def kept_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of kept windows, in which those of a small set are too."""
    monkeypatch.setenv("BERTPREP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(packing, "WINDOW_TOKENS", 700)
    monkeypatch.setattr(packing, "MIN_WINDOWS", 2)
    return tmp_path / "cache" / "windows"


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    return write_set(tmp_path / "set")


def forbid_packing(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Windows, PairWindows):
        monkeypatch.setattr(kind, "_pack", lambda *_: pytest.fail("a window was packed again"))


def unkept_rows(make: Callable[[], TokenDataset], monkeypatch: pytest.MonkeyPatch) -> Columns:
    """Return the rows of a data set whose windows are packed as they are needed."""
    with monkeypatch.context() as patched:
        patched.setattr(packing, "MIN_WINDOWS", 1 << 30)
        return rows_of(make())


def rows_of(dataset: TokenDataset) -> Columns:
    """Return all rows of the first epoch in its order."""
    return dataset.rows(np.arange(len(dataset)))


def assert_equal(found: Columns, expected: Columns) -> None:
    assert found.keys() == expected.keys()
    for name, column in found.items():
        np.testing.assert_array_equal(column, expected[name])


@pytest.mark.parametrize(
    "settings",
    [{}, {"packed": False}, {"packed": False, "by_length": True}, {"whole_word": True}, {"min_document_tokens": 30}],
)
def test_rows_of_kept_windows_are_those_that_were_packed(
    kept_folder: Path, tokens: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = unkept_rows(lambda: TokenDataset(tokens, seq=SEQ, **settings), monkeypatch)
    assert_equal(rows_of(TokenDataset(tokens, seq=SEQ, **settings)), expected)
    forbid_packing(monkeypatch)
    monkeypatch.setattr(TokenShard, "index", property(lambda _: pytest.fail("an index was read again")))
    if not settings.get("min_document_tokens"):
        again = TokenDataset(tokens, seq=SEQ, **settings)
        assert_equal(rows_of(again), expected)
        order = np.random.default_rng(0).permutation(len(again))
        assert_equal(again.rows(order), {name: column[order] for name, column in expected.items()})
    assert len(list(kept_folder.glob("*.bin"))) == 1


@pytest.mark.parametrize("pairs", ["order", "segments"])
def test_pairs_are_kept_too(kept_folder: Path, sentences: Path, pairs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = unkept_rows(lambda: PairDataset(sentences, pairs=pairs, seq=48), monkeypatch)
    len(PairDataset(sentences, pairs=pairs, seq=48))
    forbid_packing(monkeypatch)
    assert_equal(PairDataset(sentences, pairs=pairs, seq=48)[:], expected)
    assert len(list(kept_folder.glob("*.bin"))) == 1


@pytest.mark.parametrize("where", [0, 40, 1000, -1, -30, -200])
@pytest.mark.parametrize("damage", ["flipped", "truncated"])
def test_a_corrupt_file_is_made_again(
    kept_folder: Path, tokens: Path, where: int, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = unkept_rows(lambda: TokenDataset(tokens, seq=SEQ), monkeypatch)
    len(TokenDataset(tokens, seq=SEQ))
    [kept] = kept_folder.glob("*.bin")
    written = kept.read_bytes()
    changed = bytearray(written)
    changed[where] ^= 0x40
    kept.unlink()  # and not written over, since a run may have mapped it
    kept.write_bytes(changed if damage == "flipped" else written[:where])
    kept.chmod(0o600)
    assert_equal(TokenDataset(tokens, seq=SEQ)[:], expected)
    assert_equal(TokenDataset(tokens, seq=SEQ)[:], expected)
    [kept] = kept_folder.glob("*.bin")
    assert kept.read_bytes() == written


@pytest.mark.parametrize("of_pairs", [False, True])
@pytest.mark.parametrize("number", ["row_starts", "begins", "sizes"])
def test_forged_windows_are_packed_again(
    kept_folder: Path, tokens: Path, sentences: Path, number: str, of_pairs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make() -> TokenDataset:
        return PairDataset(sentences, seq=SEQ) if of_pairs else TokenDataset(tokens, seq=SEQ)

    expected = unkept_rows(make, monkeypatch)
    windows = len(make()._counts)
    [kept] = kept_folder.glob("*.bin")
    numbers = np.fromfile(kept, np.uint32)
    table = numbers[-1 - 4 * windows : -1].reshape(windows, 4)
    rows, sequences, count, _ = table[0].tolist()
    at = {"row_starts": 1, "begins": rows + 1, "sizes": rows + 1 + sequences}[number]
    numbers[at] = 4_000_000_000
    table[0, 3] = kept_windows._checksum(numbers[:count])
    numbers[-1] = kept_windows._checksum(table)
    kept.unlink()
    kept.write_bytes(numbers.tobytes())
    kept.chmod(0o600)
    assert_equal(make()[:], expected)


def test_a_file_that_others_could_write_is_not_used(kept_folder: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = unkept_rows(lambda: TokenDataset(tokens, seq=SEQ), monkeypatch)
    len(TokenDataset(tokens, seq=SEQ))
    [kept] = kept_folder.glob("*.bin")
    kept.chmod(0o666)
    assert_equal(TokenDataset(tokens, seq=SEQ)[:], expected)
    assert kept.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("end", ["bin", "lock"])
def test_a_fifo_in_the_cache_does_not_hang(kept_folder: Path, tokens: Path, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = unkept_rows(lambda: TokenDataset(tokens, seq=SEQ), monkeypatch)
    len(TokenDataset(tokens, seq=SEQ))
    [kept] = kept_folder.glob("*.bin")
    kept.unlink()
    kept.with_suffix(".lock").unlink()
    os.mkfifo(kept.with_suffix(f".{end}"))
    assert_equal(TokenDataset(tokens, seq=SEQ)[:], expected)


def test_windows_of_files_that_were_replaced_are_packed_again(
    kept_folder: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    len(TokenDataset(tokens, seq=SEQ))
    [kept] = kept_folder.glob("*.bin")
    newer = kept.stat().st_mtime + 1
    os.utime(tokens / "x_training_00001.idx", (newer, newer))
    packed: list[int] = []
    pack = Windows._pack
    monkeypatch.setattr(Windows, "_pack", lambda self, *given: packed.append(given[0]) or pack(self, *given))
    windows = len(TokenDataset(tokens, seq=SEQ)._counts)
    assert sorted(packed) == list(range(windows))


@pytest.mark.usefixtures("kept_folder")
def test_files_replaced_while_they_are_read_are_an_error(tokens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_arrays, "_SHARE_OF_FREE", 0.0)  # so each window is packed when it is needed
    dataset = TokenDataset(tokens, seq=SEQ)
    dataset._counts[0] += 1
    with pytest.raises(
        BertprepError, match=r"window 0 has (\d+) rows, and had \d+ when they were counted.*folder windows in bertprep's"
    ):
        dataset[:]


def test_where_space_is_short_counts_alone_are_kept(kept_folder: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = unkept_rows(lambda: TokenDataset(tokens, seq=SEQ), monkeypatch)
    monkeypatch.setattr(kept_arrays, "_SHARE_OF_FREE", 1e-15)
    counts = TokenDataset(tokens, seq=SEQ)._counts
    [kept] = kept_folder.glob("*.bin")
    assert kept.stat().st_size == 16 * len(counts) + 4
    dataset = TokenDataset(tokens, seq=SEQ)
    with monkeypatch.context() as patched:
        forbid_packing(patched)
        np.testing.assert_array_equal(dataset._counts, counts)
    assert_equal(dataset[:], expected)


def test_where_nothing_can_be_kept_rows_are_the_same(kept_folder: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = unkept_rows(lambda: TokenDataset(tokens, seq=SEQ), monkeypatch)
    kept_folder.mkdir(parents=True, mode=0o700)

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(kept_arrays, "_create", fail)
        dataset = TokenDataset(tokens, seq=SEQ)
        counts = dataset._counts
    assert [path.suffix for path in kept_folder.iterdir()] == [".lock"]
    assert counts.sum() == len(expected["input_ids"])
    assert_equal(dataset[:], expected)


def _read(folder: Path, start: Any, found: Any) -> None:
    start.wait()
    found.put(TokenDataset(folder, seq=SEQ)[:]["labels"].tolist())


def test_processes_that_start_at_once_keep_one_file(kept_folder: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = unkept_rows(lambda: TokenDataset(tokens, seq=SEQ), monkeypatch)["labels"].tolist()
    context = multiprocessing.get_context("fork")
    start, found = context.Event(), context.Queue()
    processes = [context.Process(target=_read, args=(tokens, start, found)) for _ in range(4)]
    for process in processes:
        process.start()
    start.set()
    assert [found.get(timeout=100) for _ in processes] == [expected] * 4
    for process in processes:
        process.join()
    assert len(list(kept_folder.glob("*.bin"))) == 1
    assert not list(kept_folder.glob("*.tmp"))


@pytest.mark.usefixtures("kept_folder")
def test_threads_read_at_random_while_another_closes(tokens: Path) -> None:
    dataset = TokenDataset(tokens, seq=SEQ)
    expected = dataset[:]["labels"]

    def read(seed: int) -> bool:
        indices = np.random.default_rng(seed).integers(0, len(dataset), 20)
        if seed % 3 == 0:
            dataset.close()
        return np.array_equal(dataset[indices]["labels"], expected[indices])

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(read, range(30)))


def test_windows_of_other_documents_and_pairs_are_not_taken(kept_folder: Path, tokens: Path) -> None:
    every = len(TokenDataset(tokens, seq=SEQ))
    assert len(TokenDataset(tokens, seq=SEQ, min_document_tokens=30)) < every
    len(TokenDataset(tokens, seq=SEQ + 1))
    len(TokenDataset(tokens, seq=SEQ, packed=False))
    len(TokenDataset(write_set(tokens.parent / "more", shards=4), seq=SEQ))
    assert len(list(kept_folder.glob("*.bin"))) == 5
    documents = open_token_documents(tokens)
    of_pairs = [
        PairWindows(documents, seq=SEQ, pairs="order", short_seq_prob=short, seed=seed)._key
        for short, seed in ((0.1, 1), (0.2, 1), (0.1, 2))
    ]
    assert len(set(of_pairs)) == 3


def test_a_kept_file_goes_two_months_after_its_last_use(kept_folder: Path, tokens: Path) -> None:
    len(TokenDataset(tokens, seq=SEQ))
    old = 0.0
    for path in kept_folder.iterdir():
        os.utime(path, (old, old))
    len(TokenDataset(tokens, seq=SEQ + 1))
    assert len(list(kept_folder.glob("*.bin"))) == 1
