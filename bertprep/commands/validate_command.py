"""What `bertprep validate` shows: findings as lines, errors first, a table of what was looked at; and all of it as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertprep.check.expectations import SHOWN, share_interval
from bertprep.check.findings import ERROR, Finding
from bertprep.check.outcome import Outcome, Tally
from bertprep.files.atomic import atomic_file
from bertprep.workspace.layout import TEST

_HEADER = (
    "data set", "split", "files", "records", "tokens", "padding", "[MASK]", "kept", "random", "random next",
    "errors", "warnings",
)  # fmt: skip
_MOST_OF_A_CODE = 20  # lines for findings of one code in one data set; JSON has all


def finding_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """The findings of all data sets, errors first, each with the folder that its file lies in."""
    lines = []
    found = [(outcome, finding) for outcome in outcomes for finding in outcome.findings]
    shown: dict[tuple[Path, str], int] = {}
    for outcome, finding in sorted(found, key=lambda pair: pair[1].level != ERROR):
        key = (outcome.folder, finding.code)
        shown[key] = shown.get(key, 0) + 1
        if shown[key] <= _MOST_OF_A_CODE:
            lines.append(str(Finding(**{**finding.as_json(), "file": str(outcome.folder / finding.file)})))
    lines += [
        f"{folder}: {count - _MOST_OF_A_CODE:,} more findings {code}, which --json FILE has"
        for (folder, code), count in shown.items()
        if count > _MOST_OF_A_CODE
    ]
    return lines


def table_rows(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """A row for each split; the findings of a data set stand in its first."""
    rows: list[tuple[str, ...]] = [_HEADER]
    names = name_outcomes(outcomes)
    for outcome, name in zip(outcomes, names, strict=True):
        splits = sorted({facts.split for facts in outcome.files}, key=lambda split: (split == TEST, split)) or [""]
        for number, split in enumerate(splits):
            counts = _count_levels(outcome.findings) if number == 0 else ("", "")
            files = [facts for facts in outcome.files if facts.split == split]
            records = f"{sum(facts.records for facts in files):,}" if outcome.kind != "text shards" else ""
            shares = _shares_in_words(outcome.tallies[split]) if split in outcome.tallies else ("",) * 6
            rows.append((name, split, f"{len(files):,}", records, *shares, *counts))
    return rows


def name_outcomes(outcomes: Sequence[Outcome]) -> list[str]:
    """A short name for each data set; those that would have the same are numbered."""
    plain = [
        f"{outcome.folder.absolute().name}, {outcome.kind}{f' {outcome.seq}/{outcome.pred}' if outcome.seq else ''}"
        for outcome in outcomes
    ]
    return [name if plain.count(name) == 1 else f"{name} ({plain[:at].count(name) + 1})" for at, name in enumerate(plain)]


def folder_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """Where the data sets lie whose names had to be numbered."""
    names = name_outcomes(outcomes)
    return [f"{name}: {of.folder}" for name, of in zip(names, outcomes, strict=True) if name.endswith(")")]


def write_json(outcomes: Sequence[Outcome], path: Path) -> None:
    """All there is to know, as one JSON file."""
    content = {"data_sets": [outcome_as_json(outcome) for outcome in outcomes]}
    with atomic_file(path) as file:
        file.write((json.dumps(content, indent=1) + "\n").encode())


def outcome_as_json(outcome: Outcome) -> dict[str, Any]:
    """An outcome as plain values."""
    return {
        "folder": str(outcome.folder),
        "kind": outcome.kind,
        "seq": outcome.seq,
        "pred": outcome.pred,
        "vocabulary": str(outcome.vocabulary) if outcome.vocabulary else None,
        "sampled": outcome.sampled,
        "errors": outcome.errors,
        "findings": [finding.as_json() for finding in outcome.findings],
        "splits": {split: _tally_as_json(tally) for split, tally in outcome.tallies.items()},
        "duplicates": outcome.duplicates,
        "files": [vars(facts) for facts in outcome.files],
    }


def _tally_as_json(tally: Tally) -> dict[str, Any]:
    shown, predictions = tally.shown.tolist(), int(tally.shown.sum())
    seq = len(tally.lengths) - 1
    return {
        "records": tally.records,
        "tokens": tally.text_tokens,
        "padding_share": tally.padding_share,
        "predictions": predictions,
        "shown": {name: _share(count, predictions) for name, count in zip(SHOWN, shown, strict=True)},
        "random_next": _share(int(tally.next_sentence[1]), tally.records),
        "short": _share(tally.records - int(tally.lengths[seq]), tally.records),
        "masked": predictions / max(tally.text_tokens, 1),
        "lengths": np.trim_zeros(tally.lengths, "b").tolist(),
        "predictions_per_record": tally.predictions.tolist(),
        "positions": tally.positions.tolist(),
    }


def _share(count: int, of: int) -> dict[str, Any]:
    """With the interval in which the true share lies, but once in a million times."""
    return {"count": count, "share": count / max(of, 1), "interval": share_interval(count, of)}


def _shares_in_words(tally: Tally) -> tuple[str, ...]:
    predictions, records = max(int(tally.shown.sum()), 1), max(tally.records, 1)
    return (
        f"{tally.text_tokens:,}",
        f"{tally.padding_share:.1%}",
        *(f"{count / predictions:.2%}" for count in tally.shown.tolist()),
        f"{int(tally.next_sentence[1]) / records:.1%}",
    )


def _count_levels(findings: Sequence[Finding]) -> tuple[str, str]:
    errors = sum(finding.level == ERROR for finding in findings)
    return f"{errors:,}", f"{len(findings) - errors:,}"
