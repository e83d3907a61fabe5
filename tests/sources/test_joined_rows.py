"""Rows that are sentences of a document become one document, by a column that is the same in all of them."""

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset

import bertprep
from bertprep.errors import UsageError

ROWS = [(1, "I came."), (1, "I saw."), (1, "I won."), (2, "He left."), (2, "She stayed."), (1, "They met again.")]
DOCUMENTS = {"I came.\nI saw.\nI won.", "He left.\nShe stayed.", "They met again."}


def write_rows(folder: Path, kind: str) -> Path:
    path = folder / f"rows.{kind}"
    table = {"doc_id": [key for key, _ in ROWS], "text": [text for _, text in ROWS]}
    if kind == "jsonl":
        path.write_text("".join(json.dumps({"doc_id": key, "text": text}) + "\n" for key, text in ROWS), encoding="utf-8")
    elif kind in ("csv", "tsv"):
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter="," if kind == "csv" else "\t").writerows([("doc_id", "text"), *ROWS])
    elif kind == "parquet":
        pq.write_table(pa.table(table), path, row_group_size=2)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, pa.table(table).schema) as writer:
            writer.write_table(pa.table(table), max_chunksize=2)
    return path


def documents_of(folder: Path) -> set[str]:
    text = "".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.txt"))
    return set(text.removesuffix("\n\n").split("\n\n"))


SETTINGS = {"join": "doc_id", "shards": 1, "test_fraction": 0, "workers": 1}


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv", "parquet", "arrow"])
def test_rows_of_a_file_are_joined(kind: str, tmp_path: Path) -> None:
    made = bertprep.shard([write_rows(tmp_path, kind)], workdir=tmp_path / "data", **SETTINGS)
    assert documents_of(made.folder) == DOCUMENTS


def test_rows_in_memory_are_joined(tmp_path: Path) -> None:
    rows = Dataset.from_dict({"doc_id": [key for key, _ in ROWS], "text": [text for _, text in ROWS]})
    for number, dataset in enumerate((rows, rows.to_iterable_dataset())):
        made = bertprep.shard(dataset=dataset, workdir=tmp_path / str(number), **SETTINGS)
        assert documents_of(made.folder) == DOCUMENTS


def test_a_column_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    for kind in ("jsonl", "csv", "parquet"):
        path = write_rows(tmp_path, kind)
        with pytest.raises(UsageError, match=r"rows\.\w+.*: has no (column|field) 'page', found 'doc_id', 'text'"):
            bertprep.shard([path], workdir=tmp_path / "data", **{**SETTINGS, "join": "page"})
    (tmp_path / "a.txt").write_text("I came.\n", encoding="utf-8")
    with pytest.raises(
        UsageError, match=r"--join doc_id: .*a\.txt has no columns; give JSON Lines, CSV, TSV, Parquet or Arrow"
    ):
        bertprep.shard([tmp_path / "a.txt"], workdir=tmp_path / "data", **SETTINGS)
    with pytest.raises(UsageError, match=r"--join doc_id: needs --input or --dataset"):
        bertprep.shard(corpus="sample", workdir=tmp_path / "data", join="doc_id")
