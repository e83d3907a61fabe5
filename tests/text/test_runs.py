"""Sorted documents on disk: every document is found again, once, in whatever ranges it is written and read."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from bertprep.text import runs
from bertprep.text.runs import HASHES, Sorter, hash_document, merge_runs, read_rows, read_windows, run_file


def write_run(path: Path, documents: list[bytes]) -> dict[str, int | str]:
    with run_file(path) as file:
        sorter = Sorter(file)
        for document in documents:
            sorter.add(document)
        sorter.flush()
    return file.entry()


def test_the_rows_of_a_file_are_those_of_its_documents(tmp_path: Path) -> None:
    """Which a process sorts one file after another."""
    for name, documents in (("a", [b"One.\n\n", b"Two.\n\n"]), ("b", [b"Three.\n\n"]), ("c", [])):
        with run_file(tmp_path / f"{name}.arrow") as file:
            sorter = Sorter(file)
            for document in documents:
                sorter.add(document)
            sorter.flush()
        (tmp_path / f"{name}.rows").write_bytes(sorter.rows())
        rows = read_rows(tmp_path / f"{name}.rows")
        assert sorted(rows[:, 0].tolist()) == sorted(
            int.from_bytes(hash_document(document.removesuffix(b"\n\n"))[:8], "big") for document in documents
        )
        assert sorted(rows[:, 1].tolist()) == sorted(map(len, documents))


@pytest.mark.parametrize("max_bits", [0, 2, 10])
def test_runs_are_merged_in_more_windows_than_the_usual_number_of_batches(
    max_bits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run has 1,024 batches at most, unless that is less than the number of windows: as of 8 GB of text."""
    for name, value in {"RUN_BYTES": 1000, "BATCH_BYTES": 100, "WINDOW_BYTES": 300, "_MAX_BITS": max_bits}.items():
        monkeypatch.setattr(runs, name, value)
    documents = [b"Document %d.\n\n" % number for number in range(200)]
    paths = [tmp_path / "a.arrow", tmp_path / "b.arrow"]
    entries = [write_run(path, some) for path, some in zip(paths, (documents[:120], documents[80:]), strict=True)]
    assert sum(int(entry["runs"]) for entry in entries) > 2
    text_bytes = sum(map(len, documents))
    merged = merge_runs(paths, text_bytes, tmp_path / "merged.arrow")
    assert (merged["runs"], merged["documents"], merged["text_bytes"]) == (1, 200, text_bytes)

    found, copies = Counter[bytes](), 0
    for low, high in pairwise([0, HASHES // 5, HASHES // 3, HASHES]):
        for _, _, window in read_windows([tmp_path / "merged.arrow"], text_bytes, low, high):
            found.update(text.as_py() for text in window.take(slice(None)))
            copies += int(window.copies.sum())
    assert found == Counter(documents)
    assert copies == 120 + 120
