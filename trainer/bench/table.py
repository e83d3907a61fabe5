"""The field's table of throughput: rows stored in OUT/bench.json by measured settings, and shown in OUT/bench.md.

A repeated measurement replaces its older row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file
from bertprep.untrusted import parse_json, read_bounded

ROWS, TABLE = "bench.json", "bench.md"
_SUBJECT = (
    "engine", "device", "processes", "execution", "model", "vocab_size", "optimizer", "precision", "xla", "batch_size",
    "accumulation", "seq", "pred", "data",
)  # fmt: skip


Row = Mapping[str, Any]
"""The settings measured, the result and the command, under the names that `measure` gives them."""


def _subject(row: Row) -> tuple[object, ...]:
    """The key of a row: the settings measured, without the date and the number of steps."""
    return tuple(row[name] for name in _SUBJECT)


def keep_row(out: Path, row: Row) -> list[Row]:
    """Add a row, or replace an older one of the same subject, and rewrite the table; returns all rows."""
    by_subject = {_subject(each): each for each in [*read_rows(out), row]}
    rows = list(by_subject.values())
    for name, text in ((ROWS, json.dumps(rows, indent=1) + "\n"), (TABLE, to_markdown(rows))):
        with atomic_file(out / name) as file:
            file.write(text.encode())
    return rows


def read_rows(out: Path) -> list[Row]:
    """The rows in a folder, none if there is no file; raises `BertprepError` if the file is something else."""
    path = out / ROWS
    try:
        rows: list[Row] = parse_json(read_bounded(path))
        to_markdown(rows), set(map(_subject, rows))  # checks that each value is present and of its type
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise BertprepError(
            f"{path}: expected the rows that this command keeps, found something else ({error}); "
            "name another --out, or remove the file"
        ) from error
    return rows


_COLUMNS: dict[str, Callable[[Row], str]] = {
    "engine": lambda row: row["engine"],
    "devices": lambda row: row["device"],
    "model": lambda row: row["model"],
    "optimizer": lambda row: row["optimizer"],
    "precision": lambda row: row["precision"],
    "XLA": lambda row: "on" if row["xla"] else "off",
    "batch": lambda row: f"{row['batch_size']:,}",
    "accumulated": lambda row: f"{row['accumulation']:,}",
    "seq": lambda row: f"{row['seq']}",
    "sequences/s": lambda row: f"{row['sequences_per_second']:,.1f}",
    "from - to": lambda row: " - ".join(f"{of(row['sequences_per_second_of_repeats']):,.1f}" for of in (min, max)),
    "tokens/s": lambda row: f"{row['tokens_per_second']:,.0f}",
    "model TFLOP/s": lambda row: f"{row['flops_per_second'] / 1e12:,.3f}",
    "MFU": lambda row: f"{row['mfu']:.1%}" if row.get("mfu") is not None else "-",  # older rows have none
    "peak memory": lambda row: f"{row['peak_memory_bytes'] / 2**30:,.2f} GiB" if row.get("peak_memory_bytes") else "-",
    "ms a step": lambda row: f"{row['milliseconds_per_step']:,.1f}",
    "CPU s a step": lambda row: f"{row['cpu_seconds_per_step']:,.3f}",
}


def to_markdown(rows: Sequence[Row]) -> str:
    """The rows as a table, followed by the settings of each."""
    lines = [["", *_COLUMNS], ["---"] * (1 + len(_COLUMNS))]
    lines += [[str(number), *(show(row) for show in _COLUMNS.values())] for number, row in enumerate(rows, 1)]
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    return table + "\n" + "".join(f"{number}. {_describe(row)}\n" for number, row in enumerate(rows, 1))


def _describe(row: Row) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
    repeats = len(row["sequences_per_second_of_repeats"])
    execution = f"; {row['execution']}" if row["execution"] else ""
    return (
        f"`{row['command']}`: {row['date']}, {row['processor']}; {versions}; median of {repeats} times {row['timed_steps']} "
        f"steps, {row['skipped_steps']} skipped before each; batches {row['data']}{execution}"
    )
