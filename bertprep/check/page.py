"""Write the result of `validate` as one HTML page: verdict, overview, and a section for each data set.

The page loads nothing and runs nothing, and jinja2 escapes all data. A section has findings, sizes, charts, frequent tokens,
masking, examples and settings, and takes at most 60 kB; with many data sets it has fewer examples.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep import records
from bertprep.check.advice import MEANINGS
from bertprep.check.charts import Chart, Columns, doubling_columns, draw, equal_columns
from bertprep.check.counts import Ints, RecordCounts, TokenCounts
from bertprep.check.expected import Fraction
from bertprep.check.finding import ERROR, LEVELS, WARNING, Finding
from bertprep.check.labels import made_alike, name_outcomes, show_details, show_settings
from bertprep.check.outcome import CheckedFile, Outcome, verdict
from bertprep.check.show import describe, example_words, text_length, token_text
from bertprep.errors import BertprepError
from bertprep.files.outputs import has_in_head, write_output
from bertprep.instances.vocabulary import Vocabulary, load_vocabulary
from bertprep.records.examples import Examples
from bertprep.terminal import counted, megabytes, printable
from bertprep.work.layout import split_order
from bertprep.work.manifest import RECORDS
from bertprep.work.truncation import LENGTHS

IS_PAGE = has_in_head(b'<meta name="generator" content="bertprep" />')
MAX_TOKENS = 512
"""The maximum number of tokens shown of an example; the rest are only counted."""
_EXAMPLES, _EXAMPLES_OF_ALL = 8, 120  # per data set, and in total; but at least two per data set
_FREQUENT = 20  # tokens

_MASKING = {
    "predictions shown as [MASK]": ("Masked tokens that show [MASK]", "80%"),
    "left as they were": ("Masked tokens that show themselves", "10%"),
    "as another token": ("Masked tokens that show a random token", "10%"),
    "B is random": ("Second segments from another document", "half of the records, or more where documents end"),
    "shorter than seq": ("Records that are not full", "the ends of documents, and those with a shorter target length"),
}
"""The name of each fraction in words, and its expected value."""


_OVERVIEW = {
    "splits": "splits", "documents": "documents", "records": "records", "tokens": "tokens", "padding": "padding",
    "unknown": "[UNK]",
}  # fmt: skip
"""The columns of the overview and their titles. Columns without any value are left out."""

_PARTS = (
    ("findings", "findings", "Findings"), ("sizes", "sizes", "Sizes"), ("lengths", "charts", "Lengths"),
    ("tokens", "frequent", "Frequent tokens"), ("masking", "fractions", "Masking"), ("examples", "examples", "Examples"),
    ("settings", "", "Settings"),
)  # fmt: skip
"""The parts of a section: the end of its id, the key whose value a view needs to show it, and its title in the contents."""


def write_page(outcomes: Sequence[Outcome], vocab: Path | None, path: Path) -> None:
    """Write the page of some data sets; `vocab` replaces the vocabulary next to the records."""
    number = max(2, min(_EXAMPLES, _EXAMPLES_OF_ALL // max(len(outcomes), 1)))
    views: list[dict[str, Any]] = []
    for outcome, name in zip(outcomes, name_outcomes(outcomes), strict=True):
        same = next((each for each in views if not each["same_as"] and made_alike(each["outcome"], outcome)), None)
        if same:
            views.append(view(outcome, [], None, name) | _shown_there(same, 1 + views.index(same)))
            continue
        vocabulary_path = vocab or outcome.vocabulary
        vocabulary = load_vocabulary(vocabulary_path) if vocabulary_path else None
        drawn = draw_examples(outcome.folder, outcome.files, number) if outcome.unit == "record" else []
        views.append(view(outcome, drawn, vocabulary, name))
    write_output(path, render(views).encode(), IS_PAGE, "--html")


def render(views: Sequence[dict[str, Any]]) -> str:
    """Return the page for the views of data sets."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=lambda value: value if hasattr(value, "__html__") else printable(str(value)),
    )  # fmt: skip
    outcomes = [view["outcome"] for view in views]
    found, checked = verdict(outcomes).split(": ", 1)
    level = next((level for level in LEVELS if any(view["level"] == level for view in views)), "good")
    columns = [(key, label) for key, label in _OVERVIEW.items() if any(view["overview"][key] for view in views)]
    page = {"sets": views, "columns": columns, "found": found[:1].upper() + found[1:], "checked": checked, "level": level}
    return environment.get_template("page.html.j2").render(page)


def view(outcome: Outcome, drawn: Sequence[Example], vocabulary: Vocabulary | None, name: str) -> dict[str, Any]:
    """Return the data of one data set that the page shows."""
    ordered = sorted(outcome.findings, key=lambda each: (LEVELS.index(each.level), each.code != "file-changed", each.code))
    tags = outcome.manifest.made_with.get("labels", ()) if outcome.manifest else ()
    shown: dict[str, Any] = {
        "outcome": outcome,
        "name": name,
        "same_as": None,
        "verdict": _findings_in_words(outcome),
        "level": ordered[0].level if ordered else "good",
        "overview": _overview(outcome),
        "findings": list(_grouped(ordered)),
        "sizes": _sizes(outcome),
        "charts": _charts_of(outcome),
        "frequent": _frequent_tokens(outcome, vocabulary) if outcome.counts else None,
        "fractions": _fraction_rows(outcome),
        "examples": [_show(each, vocabulary, tags) for each in drawn],
        "is_pretraining": bool(outcome.counts),
        "has_vocabulary": vocabulary is not None,
        "settings": show_settings(outcome),
        "details": show_details(outcome),
    }
    shown["parts"] = [(part, title) for part, key, title in _PARTS if key == "" or shown[key]]
    return shown


def _shown_there(same: dict[str, Any], number: int) -> dict[str, Any]:
    """Return replacements for the parts of a view with the same records as data set `number`, in another format."""
    return {"same_as": same["name"], "same_number": number, "charts": [], "frequent": None, "fractions": []}


def _findings_in_words(outcome: Outcome) -> str:
    found = [counted(number, level) for number, level in ((outcome.errors, ERROR), (outcome.warnings, WARNING)) if number]
    return ", ".join(found) or "no findings"


def _grouped(ordered: Sequence[Finding]) -> Iterator[dict[str, Any]]:
    for (level, code), some in groupby(ordered, key=lambda finding: (finding.level, finding.code)):
        alike = list(some)
        advice = list(dict.fromkeys(finding.advice for finding in alike))
        yield {"level": level, "code": code, "meaning": MEANINGS[code], "advice": advice, "alike": alike}


def _overview(outcome: Outcome) -> dict[str, str]:
    """Return the cells of a data set's row in the overview; unknown values are empty."""
    splits = sorted({file.split for file in outcome.files if file.split}, key=split_order)
    of_records, of_tokens = [*outcome.counts.values()], [*outcome.token_counts.values()]
    number = sum(file.records for file in outcome.files)
    tokens = sum(counts.text_tokens for counts in of_records) or sum(counts.tokens for counts in of_tokens)
    space = sum(counts.records * (len(counts.lengths) - 1) for counts in of_records)
    of_splits = [_documents(outcome, split) for split in splits or [""]]
    documents = number if outcome.unit == "document" else 0 if None in of_splits else sum(filter(None, of_splits))
    return {
        "splits": ", ".join(splits),
        "documents": f"{documents:,}" if documents else "",
        "records": f"{number:,}" if outcome.unit == "record" else "",
        "tokens": f"{tokens:,}" if tokens else "",
        "padding": f"{1 - tokens / space:.1%}" if space else "",
        "unknown": _unknown_share(outcome),
    }


def _unknown_share(outcome: Outcome) -> str:
    """Return the fraction of all tokens that are [UNK], or "" if it is unknown."""
    if not outcome.unknown:
        return ""
    tokens = {split: counts.text_tokens for split, counts in outcome.counts.items()}
    tokens |= {split: counts.tokens for split, counts in outcome.token_counts.items()}
    total = sum(tokens[split] for split in outcome.unknown)
    return f"{sum(share * tokens[split] for split, (share, _) in outcome.unknown.items()) / max(total, 1):.2%}"


def _documents(outcome: Outcome, split: str) -> int | None:
    """Return the number of documents that the records of a split were made from, according to the manifest."""
    if not outcome.manifest or outcome.manifest.kind != RECORDS:
        return None
    listed = [outcome.manifest.files.get(file.name, {}).get("documents") for file in outcome.files if file.split == split]
    known = [each for each in listed if isinstance(each, int)]
    return sum(known) if known and len(known) == len(listed) else None


def _sizes(outcome: Outcome) -> list[list[str]]:
    """Return a table of the splits, without columns that have no value; the first row has the titles."""
    if not outcome.files:
        return []
    header = [
        "",
        "files",
        "MB",
        "documents",
        "sentences",
        "records",
        "tokens",
        "mean length",
        "padding",
        "[UNK]",
        "cut off",
        "truncated",
    ]
    rows = []
    for split in sorted({file.split for file in outcome.files}, key=split_order):
        files = [file for file in outcome.files if file.split == split]
        number = sum(file.records for file in files)
        row = dict.fromkeys(header, "")
        row |= {"": split or "all", "files": f"{len(files):,}", "MB": megabytes(sum(file.size_bytes for file in files))}
        row["records" if outcome.unit == "record" else "documents"] = f"{number:,}"
        if documents := _documents(outcome, split):
            row["documents"] = f"{documents:,}"
        if split in outcome.unknown:
            row["[UNK]"] = f"{outcome.unknown[split][0]:.2%}"
        if counts := outcome.counts.get(split):
            row |= {"tokens": f"{counts.text_tokens:,}", "padding": f"{counts.padding_share:.1%}"}
            row["mean length"] = f"{counts.text_tokens / max(counts.records, 1):,.0f} of {len(counts.lengths) - 1:,}"
        if truncation := outcome.truncation(split):
            row |= {"cut off": f"{truncation.cut_off:.1%}", "truncated": f"{truncation.truncated:.1%}"}
        if shards := outcome.token_counts.get(split):
            row["sentences"] = f"{shards.sentences:,}" if shards.documents_by_sentences.any() else ""
            row["tokens"] = f"{shards.tokens:,}" if shards.tokens else ""
        rows.append(row)
    shown = [name for name in header if any(row[name] for row in rows)]
    return [shown, *([row[name] for name in shown] for row in rows)]


def _fraction_rows(outcome: Outcome) -> list[dict[str, Any]]:
    """Return a row for each fraction: its name, the expected value in words, and the share and range of each split."""
    rows = []
    for found in zip(*(expected.fractions for expected in outcome.expected.values()), strict=True):
        name, words = _MASKING.get(found[0].name, (found[0].name, ""))
        low, high = min(each.expected[0] for each in found), max(each.expected[1] for each in found)
        if found[0].name == "shorter than seq" and (low, high) != (0.0, 1.0):
            words = f"at most {high:.0%}: {words}"
        shares = [
            (f"{of.hits / max(of.draws, 1):.2%}", f"{of.interval[0]:.2%} to {of.interval[1]:.2%}", _is_expected(of))
            for of in found
        ]
        rows.append({"name": name, "expected": words, "shares": shares})
    return rows


def _is_expected(fraction: Fraction) -> bool:
    """Return whether the interval of the true fraction and the expected range meet."""
    return fraction.interval[0] <= fraction.expected[1] and fraction.expected[0] <= fraction.interval[1]


@dataclass(frozen=True)
class Example:
    """A record, with its file and its index in the file."""

    file: str
    record: int
    examples: Examples  # of one record


def draw_examples(folder: Path, files: Sequence[CheckedFile], number: int) -> list[Example]:
    """Return records spread evenly over all files. Unreadable ones are skipped, since findings report them."""
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
    """Return the file and index of `number` records spread evenly over all files, the same on every run.

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


def _show(example: Example, vocabulary: Vocabulary | None, tags: Sequence[str]) -> dict[str, Any]:
    words = example_words(example.examples, 0, vocabulary, most=MAX_TOKENS, tags=tags)
    return {
        "example": example,
        "about": describe(example.examples, 0),
        "segments": [(name, list(some)) for name, some in groupby(words, key=lambda word: "b" if word[0].segment else "a")],
        "more": max(0, text_length(example.examples, 0) - MAX_TOKENS),
    }


def _frequent_tokens(outcome: Outcome, vocabulary: Vocabulary | None) -> dict[str, Any] | None:
    """Return the most frequent tokens with their shares of the text and of masked tokens, and the number of unused tokens."""
    total = reduce(add, outcome.counts.values())
    if vocabulary is None or len(total.tokens) != len(vocabulary) or not total.tokens.any():
        return None
    of_text, of_labels = total.tokens / total.tokens.sum(), total.labels / max(int(total.labels.sum()), 1)
    most = np.argsort(-total.tokens, kind="stable")[:_FREQUENT]
    widest = float(max(of_text[most].max(), of_labels[most].max()))
    rows = [
        {
            "token": token_text(token, vocabulary),
            "text": f"{of_text[token]:.2%}",
            "masked": f"{of_labels[token]:.2%}",
            "text_width": f"{100 * of_text[token] / widest:.1f}",
            "masked_width": f"{100 * of_labels[token] / widest:.1f}",
        }
        for token in most.tolist()
        if total.tokens[token]
    ]
    unused = int(np.count_nonzero(total.tokens == 0)) - len({vocabulary.pad, vocabulary.cls, vocabulary.sep, vocabulary.mask})
    return {"rows": rows, "unused": f"{max(unused, 0):,}", "tokens": f"{len(vocabulary):,}"}


def _charts_of(outcome: Outcome) -> list[Chart]:
    if outcome.is_of_task:
        return []
    if outcome.token_counts:
        return [*_document_charts(outcome.token_counts), *_sentence_charts(outcome.token_counts)]
    splits = {split: counts for split, counts in outcome.counts.items() if counts.records}
    if not splits:
        return []
    total, expected = reduce(add, splits.values()), [outcome.expected[split] for split in splits]
    is_known = expected[0].is_known
    seq = len(total.lengths) - 1
    full = ", ".join(f"{of.lengths[-1] / of.records:.1%} {f'of {split}' if split else ''}" for split, of in splits.items())
    caption = f"Records of the full {seq:,} tokens: {full.strip()}. Padding is {total.padding_share:.1%} of all positions."
    columns = equal_columns(seq + 1, last_alone=True)
    charts = [_histogram("Length of records", {split: of.lengths for split, of in splits.items()}, columns, "tokens", caption)]
    if total.has_pairs:
        mean_a = _mean(total.lengths_of_a)
        caption = f"A has {mean_a:.1f} tokens on average, B {_mean(total.lengths) - mean_a - 3:.1f}, without [CLS] and [SEP]."
        found = {split: of.lengths_of_a for split, of in splits.items()}
        charts.append(_histogram("Length of segment A", found, equal_columns(seq + 1), "tokens", caption))
    why = "follows from the length of each record" if is_known else "is at most what the length allows, with whole words"
    caption = f"{_mean(total.predictions):.2f} masked tokens per record on average. The expected number {why}."
    wanted = reduce(add, [of.predictions for of in expected]) if is_known else None
    found = {split: of.predictions for split, of in splits.items()}
    columns = equal_columns(len(total.predictions), last_alone=True)
    charts.append(_histogram("Masked tokens of a record", found, columns, "masked tokens", caption, wanted))
    charts.append(_position_chart(splits, reduce(add, [of.positions for of in expected]) if is_known else None))
    return [*charts, *_text_charts(outcome, splits)]


def _text_charts(outcome: Outcome, splits: Collection[str]) -> Iterator[Chart]:
    """Yield a chart of the sentences that the records were made from, if the manifest has their lengths."""
    found = {split: truncation for split in splits if (truncation := outcome.truncation(split))}
    if found:
        total = reduce(add, found.values())
        caption = (
            f"{total.cut_off:.1%} of the text's tokens are in no record, because their sentence is longer than a record. "
            f"{total.truncated:.1%} of the tokens of all other pairs are removed so that pairs fit; other pairs have them."
        )
        columns = Columns(np.arange(len(LENGTHS) + 1), [*(f"to {end:,}" for end in LENGTHS), "more"])
        counts = {split: np.array(truncation.sentences) for split, truncation in found.items()}
        yield _histogram("Length of sentences", counts, columns, "tokens", caption)


def _position_chart(splits: Mapping[str, RecordCounts], drawn: NDArray[np.float64] | None) -> Chart:
    """Return a chart of the fraction of maskable tokens at each position that are masked, flat if none is preferred."""
    columns = equal_columns(len(next(iter(splits.values())).positions))
    maskable = {split: np.maximum(columns.group(maskable_by_position(of)), 1) for split, of in splits.items()}
    shares = {split: columns.group(of.positions) / maskable[split] for split, of in splits.items()}
    expected = None if drawn is None else columns.group(drawn) / reduce(add, maskable.values())
    svg, legend = draw(columns, shares, "position in the record", expected=expected)
    caption = "All bars are equally high, but for chance, if masking prefers no position. [CLS] and [SEP] are never masked."
    return Chart("Masking by position", "share of the tokens there", caption, svg, legend)


def _document_charts(of_splits: Mapping[str, TokenCounts]) -> Iterator[Chart]:
    total = reduce(add, of_splits.values())
    for of, unit, amount in (
        ("documents_by_sentences", "sentences", total.sentences),
        ("documents_by_tokens", "tokens", total.tokens),
    ):
        if getattr(total, of).any():
            mean = f"A document has {amount / max(total.documents, 1):,.1f} {unit} on average."
            caption = f"{mean} Each bar counts lengths from its own number to just below that of the next bar."
            counts = {split: getattr(each, of) for split, each in of_splits.items()}
            size = 1 + max(int(np.flatnonzero(getattr(total, of)).max()), 4)
            found = {split: each[:size] for split, each in counts.items()}
            yield _histogram("Length of documents", found, doubling_columns(size), unit, caption)


def _sentence_charts(of_splits: Mapping[str, TokenCounts]) -> Iterator[Chart]:
    total = reduce(add, of_splits.values())
    if total.tokens and total.documents_by_sentences.any():
        caption = (
            f"A sentence has {total.tokens / max(total.sentences, 1):.1f} tokens on average. The last bar is for "
            f"{TokenCounts.LONGEST:,} or more."
        )
        columns = equal_columns(TokenCounts.LONGEST + 1, last_alone=True)
        found = {split: of.lengths for split, of in of_splits.items()}
        yield _histogram("Length of sentences", found, columns, "tokens", caption)


def _histogram(
    title: str, counts: Mapping[str, Ints], columns: Columns, unit: str, caption: str, wanted: Ints | None = None
) -> Chart:
    totals = {split: max(int(of.sum()), 1) for split, of in counts.items()}
    shares = {split: columns.group(of) / totals[split] for split, of in counts.items()}
    expected = None if wanted is None else columns.group(wanted) / sum(totals.values())
    svg, legend = draw(columns, shares, unit, expected=expected)
    return Chart(title, f"share of the {_counted_in(title)}", caption, svg, legend)


def _counted_in(title: str) -> str:
    """Return the unit of a histogram with this title: documents, sentences or records."""
    return next((each for each in ("documents", "sentences") if each in title), "records")


def _mean(counts: Ints) -> float:
    return float(counts @ np.arange(len(counts))) / max(int(counts.sum()), 1)


def maskable_by_position(counts: RecordCounts) -> Ints:
    """Return the number of records whose token at each position may be masked, (seq,): text except [CLS] and [SEP]."""
    seq = len(counts.positions)
    longer = counts.records - np.cumsum(counts.lengths)[:seq]  # (seq,): records with more than p tokens
    text = np.append(longer[1:], 0)  # the last token is a [SEP]
    text[0] = 0
    first_sep = np.zeros(seq, np.int64)
    first_sep[1:] = counts.lengths_of_a[: seq - 1]  # after [CLS] and A
    return np.maximum(text - first_sep, 0)
