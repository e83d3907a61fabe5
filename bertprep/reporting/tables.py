"""The tables of a report: how the data was made, how much there is, its masking and pairing, the tokens masked most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertprep.check.example_text import token_text
from bertprep.check.expectations import MOST_LABELS, SHOWN, fraction_interval
from bertprep.check.outcome import Expected, Outcome, Range, Tally, TokenTally
from bertprep.instances.vocabulary import Vocabulary
from bertprep.reporting.charts import Interval, draw_strip, scale_around
from bertprep.reporting.markup import Child, Markup, count, element, megabytes, nice_step, percent, table
from bertprep.workspace.manifest import Manifest

_TOKENS_SHOWN = 20
_MILLIONS = 10_000_000  # larger counts are shown in millions
_LONG_CHECKSUM = 20  # characters; of checksums the first 8 are shown


def provenance(manifest: Manifest) -> Markup:
    """The settings and versions of a manifest, as pairs of a name and a value."""
    pairs = [*_flat(manifest.made_with), *((f"version of {name}", version) for name, version in manifest.versions.items())]
    texts = [facts["text"] for name, facts in manifest.files.items() if "text" in facts and not name.endswith(".idx")]
    if texts:
        size = sum(text["bytes"] for text in texts)
        pairs.insert(0, ("text", f"{megabytes(size)} in {count(len(texts))} shards"))
    rows = [
        element("div", element("dt", name.replace("_", " ")), element("dd", str(value) if name == "seed" else _plain(value)))
        for name, value in pairs
    ]
    return element("dl", *rows)


def _flat(made_with: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for name, value in made_with.items():
        pairs += _flat(value, f"{prefix}{name} ") if isinstance(value, dict) else [(prefix + name, value)]
    return pairs


def _plain(value: object) -> str:
    """A value of a manifest in readable form.

    >>> _plain(True), _plain(8000), _plain("ad748cb7cbe4ab16987b9facbe414932")
    ('yes', '8,000', 'ad748cb7…')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    text = str(value)
    return f"{text[:8]}…" if len(text) > _LONG_CHECKSUM and all(c in "0123456789abcdef" for c in text) else text


def counts_by_split(outcome: Outcome) -> Markup:
    """Files, records, documents, tokens, padding and size; a column for each split and one for all."""
    splits = list(dict.fromkeys(file.split for file in outcome.files))
    columns: list[str | None] = [*splits] if len(splits) == 1 else [*splits, None]  # None: all splits together
    if outcome.token_tallies:
        return _counts_of_tokens(outcome, columns)
    facts_of = outcome.manifest.files if outcome.manifest else {}
    documents = {name: int(facts["documents"]) for name, facts in facts_of.items() if "documents" in facts}
    is_known = all(file.name in documents for file in outcome.files)
    files = [[file for file in outcome.files if split is None or file.split == split] for split in columns]
    tallies = [[tally for name, tally in outcome.tallies.items() if split is None or name == split] for split in columns]
    tokens = [sum(tally.text_tokens for tally in some) for some in tallies]
    capacity = [sum(tally.records * (len(tally.lengths) - 1) for tally in some) for some in tallies]
    rows = [_counts("files", [len(some) for some in files])]
    rows.append(_counts("records", [sum(file.records for file in some) for some in files]))
    if is_known:
        rows.append(_counts("documents", [sum(documents[file.name] for file in some) for some in files]))
    rows.append(_counts("tokens", tokens))
    rows.append(["padding", *(percent(1 - text / most) if most else "" for text, most in zip(tokens, capacity, strict=True))])
    rows.append(["size", *(megabytes(sum(file.size_bytes for file in some)) for some in files)])
    looked_at = sum(tally.records for tally in outcome.tallies.values())
    caption = f"Tokens and padding are those of the {count(looked_at)} records checked." if outcome.sampled else ""
    return table(["", *("all" if split is None else split or "records" for split in columns)], rows, caption)


def _counts_of_tokens(outcome: Outcome, columns: Sequence[str | None]) -> Markup:
    """The same for token shards: documents, sentences, tokens, those that the vocabulary does not know, and size."""
    files = [[file for file in outcome.files if split is None or file.split == split] for split in columns]
    tallies = [
        sum((tally for name, tally in outcome.token_tallies.items() if split in (None, name)), TokenTally())
        for split in columns
    ]
    rows = [_counts("shards", [len(some) for some in files])]
    rows += [_counts(name, [getattr(tally, name) for tally in tallies]) for name in ("documents", "sentences", "tokens")]
    if outcome.vocabulary:
        rows.append(["[UNK]", *(percent(tally.unknown / max(tally.tokens, 1), 3) for tally in tallies)])
    rows.append(["size", *(megabytes(sum(file.size_bytes for file in some)) for some in files)])
    return table(["", *("all" if split is None else split or "token shards" for split in columns)], rows, "")


def _counts(name: str, numbers: list[int]) -> list[Child]:
    """A row of counts; in millions if whole numbers would be too long to compare."""
    if max(numbers) < _MILLIONS:
        return [name, *(f"{number:,}" for number in numbers)]
    return [f"{name}, millions", *(f"{number / 1e6:,.2f}" for number in numbers)]


@dataclass(frozen=True)
class Fraction:
    """One fraction of a split; `tests` is how many divide its false-alarm probability among them, 0 if it is not random."""

    name: str
    of: str
    part: Callable[[Tally], tuple[int, int]]  # (hits, of how many)
    expected: Callable[[Expected], Range]
    tests: int = 1

    def interval(self, tally: Tally, expected: Expected) -> Range:
        """The fractions that could have given the found one; some are in the expected range unless that is a finding."""
        hits, of = self.part(tally)
        return fraction_interval(hits, of, tests=self.tests, streams=expected.streams) if self.tests else (hits / of, hits / of)


def _random_next(tally: Tally) -> tuple[int, int]:
    return int(tally.next_sentence[1]), int(tally.next_sentence.sum())


FRACTIONS = (
    Fraction("shown as [MASK]", "of the predictions", lambda t: _shown(t, 0), lambda e: e.shown[0], len(SHOWN)),
    Fraction("left as it was", "of the predictions", lambda t: _shown(t, 1), lambda e: e.shown[1], len(SHOWN)),
    Fraction("another token", "of the predictions", lambda t: _shown(t, 2), lambda e: e.shown[2], len(SHOWN)),
    Fraction("masked", "of the tokens of text", lambda t: (int(t.shown.sum()), t.text_tokens), lambda e: e.masked, 0),
    Fraction("B is random", "of the records", _random_next, lambda e: e.random_next),
    Fraction("shorter than seq", "of the records", lambda t: (t.records - int(t.lengths[-1]), t.records), lambda e: e.short),
)


def _shown(tally: Tally, kind: int) -> tuple[int, int]:
    return int(tally.shown[kind]), int(tally.shown.sum())


def fractions(outcome: Outcome) -> Markup:
    """Each fraction by split, with its interval drawn over the expected range."""
    splits = list(outcome.tallies)
    head = element(
        "tr",
        element("th", "fraction", scope="col"),
        element("th", "expected", scope="col"),
        *(element("th", split or "found", scope="col", class_=f"number {_kind(at)}") for at, split in enumerate(splits)),
        element("th", "found (dots, with intervals) against expected", scope="col"),
    )
    are_pairs = any(tally.has_pairs or not tally.records for tally in outcome.tallies.values())
    rows = [_fraction_row(each, outcome) for each in FRACTIONS if are_pairs or each.part is not _random_next]
    return element("table", element("thead", head), element("tbody", *rows), class_="fractions")


def _kind(number: int) -> str:
    return "first" if number == 0 else "second"


def _fraction_row(fraction: Fraction, outcome: Outcome) -> Markup:
    found: list[Interval] = []
    ranges: list[Range] = []
    cells: list[Markup] = []
    for at, (split, tally) in enumerate(outcome.tallies.items()):
        hits, of = fraction.part(tally)
        if not of:
            cells.append(element("td", "none", class_="number"))
            continue
        expected = outcome.expected[split]
        value, (low, high) = hits / of, fraction.interval(tally, expected)
        half = element("small", f" ± {(high - low) * 50:.2f}") if fraction.tests else None
        found.append((value, low, high))
        ranges.append(fraction.expected(expected))
        text = element("span", percent(value, 2), half)
        cells.append(element("td", text, class_=f"number {_kind(at)}", data_label=split or "found"))
    of_all = min((low for low, _ in ranges), default=0.0), max((high for _, high in ranges), default=1.0)
    words = _range_in_words(*of_all)
    scale = scale_around(of_all, found)
    description = f"{fraction.name}: expected {words}; found {', '.join(percent(row[0], 2) for row in found)}"
    digits = 1 if scale[1] - scale[0] >= 0.01 else 2
    return element(
        "tr",
        element("th", fraction.name, " ", element("small", fraction.of), scope="row"),
        element("td", words, class_="expected-text", data_label="expected"),
        *cells,
        element("td", draw_strip(found, ranges, scale=scale, description=description), _ends(scale, digits), class_="drawing"),
    )


def _ends(scale: Sequence[float], digits: int) -> Markup:
    return element("span", *(element("small", percent(end, digits)) for end in scale), class_="ends")


def _range_in_words(low: float, high: float) -> str:
    r"""A range of fractions in percent.

    >>> _range_in_words(0.8, 0.8), _range_in_words(0.5, 0.8123), _range_in_words(0.0, 0.25), _range_in_words(0.0, 1.0)
    ('80.00\xa0%', '50.0\xa0% to 81.2\xa0%', 'at most 25.0\xa0%', 'any')
    """
    if low == high:
        return percent(low, 2)
    if percent(low) != percent(0.0):
        return f"{percent(low)} to {percent(high)}"
    return "any" if percent(high) == percent(1.0) else f"at most {percent(high)}"


def tokens(outcome: Outcome, vocabulary: Vocabulary | None) -> Markup | None:
    """The tokens masked most: how often they are in the text and among the labels, against the expected counts.

    Without a vocabulary the validator counts no tokens, and the table is omitted. With whole words there is no drawing.
    """
    total = Tally.total(outcome.tallies.values())
    labels, text, draws = total.labels, total.tokens, int(total.labels.sum())
    most = [int(token) for token in np.argsort(-labels, kind="stable")[:_TOKENS_SHOWN] if labels[token] and text[token]]
    if not most:
        return None
    rows = [
        [
            element("th", element("bdi", token_text(token, vocabulary)), scope="row"),
            element("td", percent(text[token] / text.sum(), 2), class_="number"),
            element("td", percent(labels[token] / draws, 2), class_="number"),
        ]
        for token in most
    ]
    head = [
        element("th", "token", scope="col"),
        element("th", "in text", scope="col", class_="number"),
        element("th", "masked", scope="col", class_="number"),
    ]
    expected = [of_split.labels for of_split in outcome.expected.values() if of_split.labels is not None]
    if expected:
        streams = max(of_split.streams for of_split in outcome.expected.values())
        wanted = np.sum(expected, axis=0)
        ratios: list[Interval] = []
        for token in most:
            low, high = fraction_interval(int(labels[token]), draws, tests=MOST_LABELS, streams=streams)
            ratios.append((float(labels[token] / wanted[token]), *(end * draws / wanted[token] for end in (low, high))))
        reach = nice_step(max(max(row[2] - 1, 1 - row[1]) for row in ratios), 1)
        for row, ratio in zip(rows, ratios, strict=True):
            scale, words = (1 - reach, 1 + reach), f"{ratio[0]:.3f} times"
            row.append(element("td", draw_strip([ratio], [(1.0, 1.0)], scale=scale, description=words)))
        axis = (element("small", f"{1 + side * reach:.4g}") for side in (-1, 0, 1))
        head.append(element("th", element("span", *axis, class_="ends"), scope="col"))
    body = element("tbody", *(element("tr", *row) for row in rows))
    return element("table", element("thead", element("tr", *head)), body, class_="tokens")
