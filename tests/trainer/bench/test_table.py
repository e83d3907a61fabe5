"""The table shows what was measured, with one row for repeated measurements."""

import json
from pathlib import Path

import pytest

from bertprep.errors import BertprepError
from trainer.bench.table import Row, keep_row, read_rows, to_markdown

ROW: Row = {
    "engine": "tensorflow",
    "device": "8 x A GPU",
    "devices": 8,
    "has_accelerator": True,
    "processor": "A CPU",
    "processes": 1,
    "execution": "",
    "model": "base",
    "vocab_size": 30522,
    "optimizer": "lamb",
    "precision": "fp16",
    "xla": True,
    "batch_size": 160,
    "accumulation": 2,
    "seq": 128,
    "pred": 20,
    "data": "synthetic",
    "skipped_steps": 20,
    "timed_steps": 100,
    "sequences_per_second": 4382.04,
    "sequences_per_second_of_repeats": [4382.04, 4300.0, 4400.5],
    "tokens_per_second": 560_901.1,
    "flops_per_second": 306.3e12,
    "mfu": 0.245,
    "peak_memory_bytes": 143 << 29,
    "milliseconds_per_step": 584.2,
    "cpu_seconds_per_step": 1.25,
    "date": "2026-01-31",
    "versions": {"tensorflow": "2.21.0", "python": "3.12.1"},
    "command": "python -m trainer bench --xla",
}


def test_the_table_as_a_person_reads_it() -> None:
    assert to_markdown([ROW]).splitlines() == [
        "|  | engine | devices | model | optimizer | precision | XLA | batch | accumulated | seq | sequences/s | from - to "
        "| tokens/s | model TFLOP/s | MFU | peak memory | ms a step | CPU s a step |",
        "| " + " | ".join(["---"] * 18) + " |",
        "| 1 | tensorflow | 8 x A GPU | base | lamb | fp16 | on | 160 | 2 | 128 | 4,382.0 | 4,300.0 - 4,400.5 | 560,901 "
        "| 306.300 | 24.5% | 71.50 GiB | 584.2 | 1.250 |",
        "",
        "1. `python -m trainer bench --xla`: 2026-01-31, A CPU; tensorflow 2.21.0, python 3.12.1; median of 3 times 100 steps, "
        "20 skipped before each; batches synthetic",
    ]


def test_rows_are_kept_and_measured_again(tmp_path: Path) -> None:
    keep_row(tmp_path, ROW)
    keep_row(tmp_path, {**ROW, "batch_size": 64})
    rows = keep_row(tmp_path, {**ROW, "sequences_per_second": 5000.0, "timed_steps": 7})
    assert [(row["batch_size"], row["sequences_per_second"]) for row in rows] == [(160, 5000.0), (64, 4382.04)]
    assert read_rows(tmp_path) == rows
    assert (tmp_path / "bench.md").read_text() == to_markdown(rows)


@pytest.mark.parametrize(
    "change", [{"pred": 80}, {"vocab_size": 8000}, {"device": "1 x A GPU"}, {"xla": False}, {"execution": "eager"}]
)
def test_what_is_something_else_has_a_row_of_its_own(change: dict[str, object], tmp_path: Path) -> None:
    keep_row(tmp_path, ROW)
    assert keep_row(tmp_path, {**ROW, **change}) == [ROW, {**ROW, **change}]


def test_a_folder_without_rows_has_none(tmp_path: Path) -> None:
    assert read_rows(tmp_path) == []


WITH_A_WORD_FOR_A_NUMBER = json.dumps([{**ROW, "tokens_per_second": "many"}])


@pytest.mark.parametrize("content", ["{", "5", '[{"engine": "tensorflow"}]', '{"row": 5}', WITH_A_WORD_FOR_A_NUMBER])
def test_results_of_something_else_are_left_alone(content: str, tmp_path: Path) -> None:
    (tmp_path / "bench.json").write_text(content)
    with pytest.raises(BertprepError, match=r"bench\.json: expected the rows that this command keeps, found something else"):
        keep_row(tmp_path, ROW)
    assert (tmp_path / "bench.json").read_text() == content
