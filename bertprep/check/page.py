"""What `validate` found as one HTML page: how the data was made, how much there is, whether it is right, and examples.

`page.html.j2` is the page, for screens of any size, light or dark, and for paper; it loads nothing. jinja2 escapes all data;
control characters are shown as escapes. Charts are matplotlib's, which the extra `report` installs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from importlib.util import find_spec
from itertools import groupby
from operator import add
from pathlib import Path
from typing import Any

import numpy as np

from bertprep import records
from bertprep.check import charts
from bertprep.check.charts import percent
from bertprep.check.expectations import MOST_LABELS, SHOWN, fraction_interval
from bertprep.check.outcome import LEVELS, Expected, FileFacts, Outcome, Range, RecordCounts, TokenCounts
from bertprep.check.show import describe, example_words, text_length, token_text
from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import atomic_file
from bertprep.instances.vocabulary import Vocabulary, load_vocabulary
from bertprep.records.examples import Examples
from bertprep.terminal import counted, megabytes, printable
from bertprep.workspace.manifest import TEXT_SHARDS, TOKEN_SHARDS, Manifest

EXAMPLES = 20
MAX_TOKENS = 512
"""Tokens shown of one example; the rest are only counted."""
_TOKENS_SHOWN = 20


def write_page(outcomes: Sequence[Outcome], vocab: Path | None, path: Path) -> None:
    """Write the page of some data sets; `vocab` names tokens instead of the vocabulary beside the records."""
    views = []
    for outcome in outcomes:
        vocabulary_path = vocab or outcome.vocabulary
        vocabulary = load_vocabulary(vocabulary_path) if vocabulary_path else None
        drawn = draw_examples(outcome.folder, outcome.files, EXAMPLES) if outcome.counts else []
        views.append(view(outcome, drawn, vocabulary))
    with atomic_file(path, replace=True) as file:
        file.write(render(views).encode())


def render(views: Sequence[dict[str, Any]]) -> str:
    """Return the page of some data sets."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=lambda value: value if hasattr(value, "__html__") else printable(str(value)),
    )  # fmt: skip
    return environment.get_template("page.html.j2").render(sets=views)


def view(outcome: Outcome, drawn: Sequence[Example], vocabulary: Vocabulary | None) -> dict[str, Any]:
    """Return what the page shows of one data set."""
    manifest, tallies = outcome.manifest, outcome.counts
    has_records = any(tally.records for tally in tallies.values())
    levels = [finding.level for finding in outcome.findings]
    ordered = sorted(outcome.findings, key=lambda finding: (LEVELS.index(finding.level), finding.code))
    return {
        "outcome": outcome,
        "name": manifest.made_with.get("corpus", outcome.folder.name) if manifest else outcome.folder.name,
        "summary": _summary(outcome),
        "verdict": f"{counted(outcome.errors, 'error')} and {counted(len(levels) - outcome.errors, 'warning')} were found."
        if levels else "Nothing was found wrong.",
        "level": min(levels, key=LEVELS.index) if levels else "good",
        "findings": [(key, list(some)) for key, some in groupby(ordered, key=lambda finding: (finding.level, finding.code))],
        "settings": _settings(manifest) if manifest else None,
        "counts": _counts(outcome),
        "fractions": _fractions(outcome) if has_records else [],
        "charts": charts.charts_of(outcome),
        "tokens": _masked_tokens(outcome, vocabulary) if has_records else [],
        "duplicates": _duplicates(outcome),
        "examples": [_show(each, vocabulary) for each in drawn],
        "has_vocabulary": vocabulary is not None,
    }  # fmt: skip


def _summary(outcome: Outcome) -> str:
    items, files = sum(file.records for file in outcome.files), len(outcome.files)
    if outcome.kind in (TEXT_SHARDS, TOKEN_SHARDS):
        return f"{counted(items, 'document')} in {files:,} {outcome.kind}."
    kind = {"tfrecord": "TFRecord", "ofrecord": "OFRecord"}.get(outcome.kind, outcome.kind.capitalize())
    checked = sum(tally.records for tally in outcome.counts.values())
    sampled = f" {counted(checked, 'record')} were checked, spread evenly over the files." if outcome.sampled else ""
    masked = f", each with up to {outcome.pred:,} of them to predict" if outcome.pred else ""
    return f"{counted(items, 'record')} of {outcome.seq:,} tokens{masked}, in {counted(files, f'{kind} file')}.{sampled}"


def _settings(manifest: Manifest) -> list[tuple[str, str]]:
    """Return the settings and versions of a manifest as pairs of a name and a value."""
    texts = [entry["text"]["bytes"] for name, entry in manifest.files.items() if "text" in entry and not name.endswith(".idx")]
    pairs = [("text", f"{megabytes(sum(texts))} MB in {len(texts):,} shards")] if texts else []
    pairs += _flat(manifest.made_with)
    return pairs + [(f"version of {name}", version) for name, version in manifest.versions.items()]


def _flat(settings: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    pairs = []
    for name, value in settings.items():
        if isinstance(value, dict):
            pairs += _flat(value, f"{prefix}{name} ")
        elif isinstance(value, bool):
            pairs.append((prefix + name, "yes" if value else "no"))
        else:
            pairs.append((prefix + name, str(value)))
    return [(name.replace("_", " "), value) for name, value in pairs]


def _counts(outcome: Outcome) -> list[list[str]]:
    """Return the rows of a table of files, records, documents, tokens, padding and size: a column a split, and one for all."""
    splits = list(dict.fromkeys(file.split for file in outcome.files))
    columns = [[split] for split in splits] + ([splits] if len(splits) > 1 else [])
    files = [[file for file in outcome.files if file.split in some] for some in columns]
    rows = [["", *(split or outcome.kind for split in splits), *(["all"] if len(splits) > 1 else [])]]

    def add_row(name: str, numbers: Sequence[int]) -> None:
        if any(numbers):
            rows.append([name, *(f"{number:,}" for number in numbers)])

    add_row("files", [len(some) for some in files])
    if outcome.token_counts:
        known = outcome.token_counts
        tallies = [sum((known[split] for split in some if split in known), TokenCounts()) for some in columns]
        for name in ("documents", "sentences", "tokens", "unknown"):
            add_row(name, [getattr(tally, name) for tally in tallies])
    else:
        add_row(
            "documents" if outcome.kind == TEXT_SHARDS else "records", [sum(file.records for file in some) for some in files]
        )
        entries = outcome.manifest.files if outcome.manifest else {}
        if all("documents" in entries.get(file.name, {}) for file in outcome.files) and outcome.kind != TEXT_SHARDS:
            add_row("documents", [sum(entries[file.name]["documents"] for file in some) for some in files])
        found = [[outcome.counts[split] for split in some if split in outcome.counts] for some in columns]
        tokens = [sum(tally.text_tokens for tally in some) for some in found]
        capacity = [sum(tally.records * (len(tally.lengths) - 1) for tally in some) for some in found]
        add_row("tokens", tokens)
        if all(capacity):
            rows.append(["padding", *(percent(1 - text / most) for text, most in zip(tokens, capacity, strict=True))])
    rows.append(["size, MB", *(megabytes(sum(file.size_bytes for file in some)) for some in files)])
    return rows


@dataclass(frozen=True)
class Fraction:
    """A fraction of a split; `tests` is how many divide its false-alarm probability among them, 0 if it is not random."""

    name: str
    of: str
    part: Callable[[RecordCounts], tuple[int, int]]  # (hits, of how many)
    expected: Callable[[Expected], Range]
    tests: int = 1

    def interval(self, tally: RecordCounts, expected: Expected) -> Range:
        """Return the fractions that could have given the found one; some are in the expected range unless that is a finding."""
        hits, of = self.part(tally)
        return fraction_interval(hits, of, tests=self.tests, streams=expected.streams) if self.tests else (hits / of, hits / of)


def _shown(kind: int) -> Callable[[RecordCounts], tuple[int, int]]:
    return lambda tally: (int(tally.shown[kind]), int(tally.shown.sum()))


def _random_next(tally: RecordCounts) -> tuple[int, int]:
    return int(tally.next_sentence[1]), int(tally.next_sentence.sum())


FRACTIONS = (
    Fraction("shown as [MASK]", "of the predictions", _shown(0), lambda e: e.shown[0], len(SHOWN)),
    Fraction("left as it was", "of the predictions", _shown(1), lambda e: e.shown[1], len(SHOWN)),
    Fraction("another token", "of the predictions", _shown(2), lambda e: e.shown[2], len(SHOWN)),
    Fraction("B is random", "of the records", _random_next, lambda e: e.random_next),
    Fraction("shorter than seq", "of the records", lambda t: (t.records - int(t.lengths[-1]), t.records), lambda e: e.short),
)


def _fractions(outcome: Outcome) -> list[dict[str, Any]]:
    """Return each fraction by split, with its interval and the expected range, and where these are on a drawn axis."""
    rows = []
    for fraction in FRACTIONS:
        found = {split: fraction.part(tally) for split, tally in outcome.counts.items() if fraction.part(tally)[1]}
        if not found:  # records without pairs have no B
            continue
        intervals = {split: fraction.interval(outcome.counts[split], outcome.expected[split]) for split in found}
        ranges = [fraction.expected(outcome.expected[split]) for split in found]
        low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
        ends = [end for interval in intervals.values() for end in interval]
        is_any = (low, high) == (0.0, 1.0)  # then only the intervals must be visible
        axis = _axis(ends if is_any else [low, high, *ends])
        rows.append(
            {
                "name": fraction.name,
                "of": fraction.of,
                "expected": "any" if is_any else percent(low, 2) if low == high else f"{percent(low)} to {percent(high)}",
                "found": [
                    percent(hits / of, 2) + (f" ± {(end - start) * 50:.2f}" if fraction.tests else "")
                    for (hits, of), (start, end) in zip(found.values(), intervals.values(), strict=True)
                ],
                "range": [_place(low, axis), _place(high, axis)],
                "strips": [
                    [_place(end, axis) for end in (intervals[split][0], hits / of, intervals[split][1])]
                    for split, (hits, of) in found.items()
                ],
            }
        )
    return rows


def _axis(values: Sequence[float]) -> Range:
    margin = 0.08 * (max(values) - min(values)) or 1e-6
    return min(values) - margin, max(values) + margin


def _place(value: float, axis: Range) -> float:
    """Return a position on an axis in percent."""
    return round(100 * min(max((value - axis[0]) / (axis[1] - axis[0]), 0.0), 1.0), 1)


def _masked_tokens(outcome: Outcome, vocabulary: Vocabulary | None) -> list[dict[str, Any]]:
    """Return the tokens masked most: their fractions of the text and of the labels, and these as a multiple of the expected.

    Without a vocabulary the validator counts no tokens. With whole words there is no expectation.
    """
    total = reduce(add, outcome.counts.values())
    labels, text, draws = total.labels, total.tokens, int(total.labels.sum())
    most = [int(token) for token in np.argsort(-labels, kind="stable")[:_TOKENS_SHOWN] if labels[token] and text[token]]
    rows: list[dict[str, Any]] = [
        {
            "token": token_text(token, vocabulary),
            "in_text": percent(text[token] / text.sum(), 2),
            "masked": percent(labels[token] / draws, 2),
        }
        for token in most
    ]
    expected = [of_split.labels for of_split in outcome.expected.values() if of_split.labels is not None]
    if expected and rows:
        streams = max(of_split.streams for of_split in outcome.expected.values())
        wanted = np.sum(expected, axis=0)
        ratios = []
        for token in most:
            low, high = fraction_interval(int(labels[token]), draws, tests=MOST_LABELS, streams=streams)
            ratios.append([each / wanted[token] for each in (low * draws, labels[token], high * draws)])
        axis = _axis([1.0, *np.ravel(ratios).tolist()])
        for row, ratio in zip(rows, ratios, strict=True):
            row |= {"times": f"{ratio[1]:.3f}", "strip": [_place(end, axis) for end in ratio], "one": _place(1.0, axis)}
    return rows


def check_installed() -> None:
    """Raise `UsageError` where matplotlib is missing, with which the page is made."""
    if find_spec("matplotlib") is None:
        raise UsageError("--html: the page needs matplotlib: pip install '.[report]' in a clone")


def _duplicates(outcome: Outcome) -> list[str]:
    """Return a line for each split with repeated records, and one for test records that are in training too."""
    known = {split: tally.records for split, tally in outcome.counts.items()}
    known["across"] = known.get("test", 0)
    lines = []
    for split, repeated in outcome.duplicates.items():
        what = "test records that are in training too" if split == "across" else f"{split} records that repeat another".strip()
        share = f" ({percent(repeated / known[split], 3)})" if known.get(split) else ""
        lines.append(f"{what}: {repeated:,}{share}")
    return lines if any(outcome.duplicates.values()) else []


@dataclass(frozen=True)
class Example:
    """One record, with its file and its index in it."""

    file: str
    record: int
    examples: Examples  # of one record


def draw_examples(folder: Path, files: Sequence[FileFacts], number: int) -> list[Example]:
    """Return records spread evenly over all files; unreadable ones are skipped, since a finding reports them."""
    drawn: list[Example] = []
    for name, chosen in groupby(choose(files, number), key=lambda pair: pair[0]):
        try:
            with records.open(folder / name) as file:
                drawn += [
                    Example(name, record, file[np.array([record], np.int64)]) for _, record in chosen if record < len(file)
                ]
        except BertprepError:
            continue
    return drawn


def choose(files: Sequence[FileFacts], number: int) -> list[tuple[str, int]]:
    """Return (file, record) of `number` records spread evenly over all; the same on every run.

    >>> choose([FileFacts("a", "", 100, 0), FileFacts("b", "", 50, 0)], 3)
    [('a', 25), ('a', 75), ('b', 25)]
    """
    ends = np.cumsum([file.records for file in files], dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    number = min(number, total)
    chosen = [(2 * index + 1) * total // (2 * number) for index in range(number)]
    at = np.searchsorted(ends, chosen, side="right")
    return [
        (files[index].name, record - int(ends[index]) + files[index].records)
        for index, record in zip(at.tolist(), chosen, strict=True)
    ]


def _show(example: Example, vocabulary: Vocabulary | None) -> dict[str, Any]:
    words = example_words(example.examples, 0, vocabulary, most=MAX_TOKENS)
    return {
        "example": example,
        "about": describe(example.examples, 0),
        "segments": [(name, list(some)) for name, some in groupby(words, key=lambda word: "b" if word[0].segment else "a")],
        "more": max(0, text_length(example.examples, 0) - MAX_TOKENS),
    }
