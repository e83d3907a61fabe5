"""What `validate` found as one HTML page: how the data was made, how much there is, whether it is right, and examples.

`page.html.j2` is the page, for screens of any size, light or dark, and for paper; it loads nothing. jinja2 escapes all data;
control characters are shown as escapes. `charts` draws the histograms by matplotlib, which the extra `report` installs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from importlib.util import find_spec
from itertools import groupby
from operator import add
from pathlib import Path
from typing import Any

import numpy as np

from bertprep import records
from bertprep.check.charts import charts_of, percent
from bertprep.check.outcome import LEVELS, FileFacts, Fraction, Outcome
from bertprep.check.show import describe, example_words, text_length, token_text
from bertprep.check.statistics import MAX_LABELS, fraction_interval
from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import atomic_file
from bertprep.instances.vocabulary import Vocabulary, load_vocabulary
from bertprep.records.examples import Examples
from bertprep.terminal import counted, megabytes, printable
from bertprep.work.manifest import TEXT_SHARDS, TOKEN_SHARDS, Manifest

EXAMPLES = 20
MAX_TOKENS = 512
"""Tokens shown of one example; the rest are only counted."""
_TOKENS_SHOWN = 20


def check_installed() -> None:
    """Raise `UsageError` where matplotlib is missing, with which the page is made."""
    if find_spec("matplotlib") is None:
        raise UsageError("--html: the page needs matplotlib: pip install '.[report]' in a clone")


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
    manifest, has_records = outcome.manifest, any(counts.records for counts in outcome.counts.values())
    fractions = [expected.fractions for expected in outcome.expected.values()]
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
        "fractions": [_row(found) for found in zip(*fractions, strict=True)] if has_records else [],
        "charts": charts_of(outcome),
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
    checked = sum(counts.records for counts in outcome.counts.values())
    sampled = f" {counted(checked, 'record')} were checked, spread evenly over the files." if outcome.sampled else ""
    masked = f", each with up to {outcome.pred:,} of them to predict" if outcome.pred else ""
    return f"{counted(items, 'record')} of {outcome.seq:,} tokens{masked}, in {counted(files, f'{kind} file')}.{sampled}"


def _settings(manifest: Manifest) -> list[tuple[str, str]]:
    """Return the settings and versions of a manifest as pairs of a name and a value."""
    texts = [entry["text"]["bytes"] for name, entry in manifest.files.items() if "text" in entry and not name.endswith(".idx")]
    pairs = [("text", f"{megabytes(sum(texts))} MB in {len(texts):,} shards")] if texts else []
    for name, value in manifest.made_with.items():
        for key, each in (value if isinstance(value, dict) else {"": value}).items():
            words = {"True": "yes", "False": "no"}.get(str(each), str(each))
            pairs.append((f"{name} {key}".strip().replace("_", " "), words))
    return pairs + [(f"version of {name}", version) for name, version in manifest.versions.items()]


def _counts(outcome: Outcome) -> list[list[str]]:
    """Return the rows of a table of files, records, documents, tokens, padding and size: a column a split, and one for all."""
    splits = list(dict.fromkeys(file.split for file in outcome.files))
    columns = [[split] for split in splits] + ([splits] if len(splits) > 1 else [])
    files = [[file for file in outcome.files if file.split in some] for some in columns]
    rows, capacity = {"files": [len(some) for some in files]}, [0]
    if outcome.token_counts:
        for name in ("documents", "sentences", "tokens", "unknown"):
            rows[name] = [sum(getattr(outcome.token_counts.get(of), name, 0) for of in some) for some in columns]
    else:
        items = "documents" if outcome.kind == TEXT_SHARDS else "records"
        rows[items] = [sum(file.records for file in some) for some in files]
        entries = outcome.manifest.files if outcome.manifest else {}
        if all("documents" in entries.get(file.name, {}) for file in outcome.files):
            rows["documents"] = [sum(entries[file.name]["documents"] for file in some) for some in files]
        found = [[outcome.counts[split] for split in some if split in outcome.counts] for some in columns]
        rows["tokens"] = [sum(counts.text_tokens for counts in some) for some in found]
        capacity = [sum(counts.records for counts in some) * outcome.seq for some in found]
    table = [["", *(split or outcome.kind for split in splits), *(["all"] if len(splits) > 1 else [])]]
    table += [[name, *(f"{number:,}" for number in numbers)] for name, numbers in rows.items() if any(numbers)]
    if capacity and all(capacity):
        table.append(["padding", *(percent(1 - text / most) for text, most in zip(rows["tokens"], capacity, strict=True))])
    return [*table, ["size, MB", *(megabytes(sum(file.size_bytes for file in some)) for some in files)]]


def _row(found: Sequence[Fraction]) -> dict[str, Any]:
    """Return a fraction by split, with its interval and the expected range, and where these are on an axis, in percent."""
    low, high = min(each.expected[0] for each in found), max(each.expected[1] for each in found)
    is_any = (low, high) == (0.0, 1.0)  # then only the intervals must be visible
    shares = [(each.interval[0], each.hits / max(each.draws, 1), each.interval[1]) for each in found]
    ends = np.ravel([*shares, *([] if is_any else [(low, low, high)])])
    start, size = ends.min(), 1.2 * (ends.max() - ends.min()) or 1e-6
    range_, *strips = np.clip((np.array([(low, low, high), *shares]) - start) / size + 0.08, 0.0, 1.0).round(3) * 100
    expected = percent(low, 2) if percent(low, 2) == percent(high, 2) else f"{percent(low)} to {percent(high)}"
    return {
        "name": found[0].name,
        "of": found[0].of,
        "expected": "any" if is_any else expected,
        "found": [f"{percent(share, 2)} ± {(end - start) * 50:.2f}" for start, share, end in shares],
        "range": [range_[0], range_[2]],
        "strips": strips,
    }


def _masked_tokens(outcome: Outcome, vocabulary: Vocabulary | None) -> list[dict[str, Any]]:
    """Return the tokens masked most; without a vocabulary none were counted, with whole words nothing is expected."""
    counts, expected = reduce(add, outcome.counts.values()), [*outcome.expected.values()]
    labels, draws, wanted = counts.labels, int(counts.labels.sum()), reduce(add, [of.labels for of in expected])
    rows = []
    for token in np.argsort(-labels, kind="stable")[:_TOKENS_SHOWN].tolist():
        if labels[token]:
            streams = max(of.streams for of in expected)
            interval = fraction_interval(int(labels[token]), draws, tests=MAX_LABELS, streams=streams)
            share = (wanted[token] / draws,) * 2 if expected[0].is_known else (0.0, 1.0)
            rows.append(_row([Fraction(token_text(token, vocabulary), "", int(labels[token]), draws, share, interval)]))
    return rows


def _duplicates(outcome: Outcome) -> list[str]:
    """Return a line for each split with repeated records, and one for test records that are in training too."""
    lines = []
    for split, repeated in outcome.duplicates.items():
        what = "test records that are in training too" if split == "across" else f"{split} records that repeat another".strip()
        counts = outcome.counts.get("test" if split == "across" else split)
        share = f" ({percent(repeated / counts.records, 3)})" if counts and counts.records else ""
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
                indices = [record for _, record in chosen if record < len(file)]
                drawn += [Example(name, record, file[np.array([record], np.int64)]) for record in indices]
        except BertprepError:
            continue
    return drawn


def choose(files: Sequence[FileFacts], number: int) -> list[tuple[str, int]]:
    """Return (file, record) of `number` records spread evenly over all; the same on every run.

    >>> choose([FileFacts("a", "", 100, 0), FileFacts("empty", "", 0, 0), FileFacts("b", "", 50, 0)], 3)
    [('a', 25), ('a', 75), ('b', 25)]
    >>> choose([FileFacts("a", "", 2, 0)], 20), choose([], 20)
    ([('a', 0), ('a', 1)], [])
    """
    ends = np.cumsum([0, *(file.records for file in files)], dtype=np.int64)
    total = int(ends[-1])
    chosen = (2 * np.arange(min(number, total)) + 1) * total // (2 * max(min(number, total), 1))
    at = np.searchsorted(ends, chosen, side="right") - 1
    return [(files[index].name, record) for index, record in zip(at.tolist(), (chosen - ends[at]).tolist(), strict=True)]


def _show(example: Example, vocabulary: Vocabulary | None) -> dict[str, Any]:
    words = example_words(example.examples, 0, vocabulary, most=MAX_TOKENS)
    return {
        "example": example,
        "about": describe(example.examples, 0),
        "segments": [(name, list(some)) for name, some in groupby(words, key=lambda word: "b" if word[0].segment else "a")],
        "more": max(0, text_length(example.examples, 0) - MAX_TOKENS),
    }
