"""The result of `validate` as one HTML page: findings, settings, sizes, charts and examples.

`page.html.j2` loads nothing; jinja2 escapes all data. matplotlib (extra `report`) draws the charts as inline SVG.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from importlib.util import find_spec
from itertools import groupby
from operator import add
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertprep import records
from bertprep.check.counts import Ints, RecordCounts, TokenCounts
from bertprep.check.expected import Fraction
from bertprep.check.finding import LEVELS
from bertprep.check.outcome import SPLIT_HEADER, CheckedFile, Outcome, verdict
from bertprep.check.show import describe, example_words, text_length
from bertprep.errors import BertprepError, UsageError
from bertprep.files.outputs import has_in_head, write_output
from bertprep.instances.vocabulary import Vocabulary, load_vocabulary
from bertprep.records.examples import Examples
from bertprep.terminal import printable
from bertprep.work.settings import show_setting

IS_PAGE = has_in_head(b'<meta name="generator" content="bertprep" />', b": BERT training data</title>")  # the title in 0.2
EXAMPLES = 20
MAX_TOKENS = 512
"""Tokens shown of one example; the rest are only counted."""
_MAX_COLUMNS = 70
_TALL = 3.0  # a column this many times as high as all others is cut off, so that those remain visible


def check_installed() -> None:
    """Raise `UsageError` where matplotlib is missing, with which the page is made."""
    if find_spec("matplotlib") is None:
        raise UsageError("--html: the page needs matplotlib: pip install 'bertprep[report]'")


def write_page(outcomes: Sequence[Outcome], vocab: Path | None, path: Path) -> None:
    """Write the page of some data sets; `vocab` replaces the vocabulary next to the records."""
    views = []
    for outcome in outcomes:
        vocabulary_path = vocab or outcome.vocabulary
        vocabulary = load_vocabulary(vocabulary_path) if vocabulary_path else None
        drawn = draw_examples(outcome.folder, outcome.files, EXAMPLES) if outcome.counts else []
        views.append(view(outcome, drawn, vocabulary))
    write_output(path, render(views).encode(), IS_PAGE, "--html")


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
    manifest, kind = outcome.manifest, outcome.kind
    ordered = sorted(outcome.findings, key=lambda finding: (LEVELS.index(finding.level), finding.code))
    if outcome.seq:
        kind = f"BERT training data, {kind} {outcome.seq}" + (f"/{outcome.pred}" if outcome.pred else "")
    return {
        "outcome": outcome,
        "name": manifest.made_with.get("corpus", outcome.folder.name) if manifest else outcome.folder.name,
        "kind": kind,
        "verdict": verdict([outcome]),
        "level": ordered[0].level if ordered else "good",
        "findings": [(key, list(some)) for key, some in groupby(ordered, key=lambda finding: (finding.level, finding.code))],
        "settings": {**{name: show_setting(made) for name, made in manifest.made_with.items()}, **manifest.versions}
        if manifest else None,
        "counts": [SPLIT_HEADER, *outcome.split_rows()],
        "fractions": _fraction_rows([expected.fractions for expected in outcome.expected.values()]),
        "charts": _charts_of(outcome),
        "examples": [_show(each, vocabulary) for each in drawn],
        "has_vocabulary": vocabulary is not None,
    }  # fmt: skip


def _fraction_rows(of_splits: Sequence[Sequence[Fraction]]) -> list[list[str]]:
    rows = []
    for found in zip(*of_splits, strict=True):
        low, high = min(each.expected[0] for each in found), max(each.expected[1] for each in found)
        ends = list(dict.fromkeys((f"{low:.2%}", f"{high:.2%}")))
        expected = "any" if (low, high) == (0.0, 1.0) else " to ".join(ends)
        shares = [f"{of.hits / max(of.draws, 1):.2%} ({of.interval[0]:.2%} to {of.interval[1]:.2%})" for of in found]
        rows.append([found[0].name, expected, *shares])
    return rows


@dataclass(frozen=True)
class Example:
    """One record, with its file and its index in it."""

    file: str
    record: int
    examples: Examples  # of one record


def draw_examples(folder: Path, files: Sequence[CheckedFile], number: int) -> list[Example]:
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


def choose(files: Sequence[CheckedFile], number: int) -> list[tuple[str, int]]:
    """Return (file, record) of `number` records spread evenly over all; the same on every run.

    >>> choose([CheckedFile("a", "", records=100), CheckedFile("empty", ""), CheckedFile("b", "", records=50)], 3)
    [('a', 25), ('a', 75), ('b', 25)]
    >>> choose([CheckedFile("a", "", records=2)], 20), choose([], 20)
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


class Chart(NamedTuple):
    """A drawing with its title and caption, which are also its text alternative."""

    title: str
    caption: str
    svg: str


def _charts_of(outcome: Outcome) -> list[Chart]:
    if outcome.token_counts:
        return [*_document_lengths(outcome.token_counts), *_sentence_lengths(outcome.token_counts)]
    if not any(counts.records for counts in outcome.counts.values()):
        return []
    splits, expected = outcome.counts, [*outcome.expected.values()]
    total, is_known = reduce(add, splits.values()), expected[0].is_known
    full = total.lengths[-1] / total.records
    caption = f"{full:.1%} of the records are full; {total.padding_share:.1%} of all tokens are padding."
    charts = [_histogram("Length", {split: of.lengths for split, of in splits.items()}, "tokens of text", caption)]
    if total.has_pairs:
        mean_a = _mean(total.lengths_of_a)
        caption = f"A has {mean_a:.1f} tokens on average, B {_mean(total.lengths) - mean_a - 3:.1f}, without [CLS] and [SEP]."
        charts.append(_histogram("Segment A", {split: of.lengths_of_a for split, of in splits.items()}, "tokens of A", caption))
    why = "follows from the length of each record" if is_known else "is at most what the length allows, with whole words"
    caption = f"{_mean(total.predictions):.2f} a record on average. The expected number {why}."
    wanted = reduce(add, [of.predictions for of in expected]) if is_known else None
    found = {split: of.predictions for split, of in splits.items()}
    charts.append(_histogram("Predictions", found, "predictions", caption, wanted))
    # the fraction of maskable tokens at each position that are predicted: flat if masking prefers no position
    caption = "If no position is preferred or avoided, all columns have the same height, but for chance. [CLS] is never masked."
    found = {split: of.positions for split, of in splits.items()}
    maskable = {split: _group(maskable_by_position(of))[0] for split, of in splits.items()}
    drawn = reduce(add, [of.positions for of in expected]) if is_known else None
    labels = ("position in the record", "masked of the tokens there")
    return [*charts, Chart("Position", caption, _draw(found, maskable, labels, drawn))]


def _document_lengths(of_splits: Mapping[str, TokenCounts]) -> Iterator[Chart]:
    total = reduce(add, of_splits.values())
    if total.documents_by_sentences.any():
        caption = (
            f"A document has {total.sentences / max(total.documents, 1):.1f} sentences on average; those of {TokenCounts.MANY} "
            "or more count as that many."
        )
        counts = {split: of.documents_by_sentences for split, of in of_splits.items()}
        yield _histogram("Documents", counts, "sentences", caption)


def _sentence_lengths(of_splits: Mapping[str, TokenCounts]) -> Iterator[Chart]:
    total = reduce(add, of_splits.values())
    if total.tokens:
        caption = (
            f"A sentence has {total.tokens / max(total.sentences, 1):.1f} tokens on average; those of {TokenCounts.LONGEST:,} "
            "or more count as that many."
        )
        yield _histogram("Sentences", {split: of.lengths for split, of in of_splits.items()}, "tokens", caption)


def _histogram(title: str, counts: Mapping[str, Ints], x_label: str, caption: str, wanted: Ints | None = None) -> Chart:
    totals = {split: of.sum() for split, of in counts.items()}
    return Chart(title, caption, _draw(counts, totals, (x_label, "fraction of all"), wanted))


def _group(counts: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Group counts by integer into columns of equal width; the last ends with the highest number. Return them and the edges.

    >>> _group(np.arange(1, 141))[0][:3].tolist(), _group(np.arange(3))[1].tolist()
    ([3.0, 7.0, 11.0], [-0.5, 0.5, 1.5, 2.5])
    """
    width = -(-len(counts) // _MAX_COLUMNS)
    columns = -(-len(counts) // width)
    padded = np.concatenate([np.zeros(columns * width - len(counts)), counts])
    edges = len(counts) - 0.5 - width * np.arange(columns, -1, -1, dtype=np.float64)
    return padded.reshape(columns, width).sum(axis=1), edges


def _draw(
    counts: Mapping[str, NDArray[Any]], of: Mapping[str, Any], labels: tuple[str, str], wanted: NDArray[Any] | None = None
) -> str:
    """Return an SVG: one split filled, others as outlines, the expected counts dashed."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    edges = next(_group(each)[1] for each in counts.values())
    series = {split: _group(each)[0] / np.maximum(of[split], 1) for split, each in counts.items()}
    figure = Figure(figsize=(4.2, 2.7), layout="constrained")
    axes = figure.add_subplot()
    for index, (name, values) in enumerate(series.items()):
        axes.stairs(values, edges, fill=index == 0, alpha=0.75 if index == 0 else 1.0, color=f"C{index}", label=name or "found")
    heights = np.sort(np.array([*series.values()]).max(axis=0))
    if wanted is not None:
        expected = _group(wanted)[0] / np.maximum(reduce(add, of.values()), 1)
        axes.stairs(expected, edges, linestyle="--", color="#000000", baseline=None, label="expected")
    if len(heights) > 1 and heights[-1] > _TALL * heights[-2] > 0:
        axes.set_ylim(0, 1.4 * heights[-2])
        axes.set_title(f"the tallest, {heights[-1]:.1%}, is cut off", fontsize="small")
    axes.set(xlabel=labels[0], ylabel=labels[1])
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")
    drawn = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "bertprep"}):
        figure.savefig(drawn, format="svg", transparent=True, metadata={"Date": None})
    svg = drawn.getvalue()
    return svg[svg.index("<svg") :].replace("#000000", "currentColor")


def _mean(counts: Ints) -> float:
    return float(counts @ np.arange(len(counts))) / max(int(counts.sum()), 1)


def maskable_by_position(counts: RecordCounts) -> Ints:
    """Return (seq,) records whose token at the position may be masked: text other than [CLS] and [SEP]."""
    seq = len(counts.positions)
    longer = counts.records - np.cumsum(counts.lengths)[:seq]  # (seq,): records with more than p tokens
    text = np.append(longer[1:], 0)  # the last token is a [SEP]
    text[0] = 0
    first_sep = np.zeros(seq, np.int64)
    first_sep[1:] = counts.lengths_of_a[: seq - 1]  # after [CLS] and A
    return np.maximum(text - first_sep, 0)
