"""The tables of a report: how the data was made, how much there is, its shares, and what is masked most."""

from __future__ import annotations

from typing import Any

import numpy as np

from bertprep.check.example_text import token_text
from bertprep.check.outcome import Outcome
from bertprep.instances.vocabulary import Vocabulary
from bertprep.reporting.amounts import count, megabytes, nice_step, percent
from bertprep.reporting.expectations import Expected, interval
from bertprep.reporting.markup import Child, Markup, element, table
from bertprep.reporting.shares import Share, shares_of
from bertprep.reporting.strips import Interval, draw_strip, scale_around
from bertprep.reporting.totals import together
from bertprep.workspace.manifest import Manifest

_TOKENS_SHOWN = 20
_MILLIONS = 10_000_000  # from here on counts are shown in millions
_LONG_SUM = 20  # characters; sums are shown by their first 8, which tell them apart


def provenance(manifest: Manifest) -> Markup:
    """The settings of a manifest, and the versions that it was made with, as pairs of a name and a value."""
    pairs = [*_flat(manifest.made_with), *((f"version of {name}", version) for name, version in manifest.versions.items())]
    texts = [facts["text"] for facts in manifest.files.values() if "text" in facts]
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
    """A value of a manifest as one would say it.

    >>> _plain(True), _plain(8000), _plain("ad748cb7cbe4ab16987b9facbe414932")
    ('yes', '8,000', 'ad748cb7…')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    text = str(value)
    return f"{text[:8]}…" if len(text) > _LONG_SUM and all(c in "0123456789abcdef" for c in text) else text


def counts_by_split(outcome: Outcome) -> Markup:
    """Files, records, documents, tokens, padding and size; a column for each split, and one for all."""
    splits = list(dict.fromkeys(file.split for file in outcome.files))
    columns: list[str | None] = [*splits] if len(splits) == 1 else [*splits, None]  # None is all together
    facts_of = outcome.manifest.files if outcome.manifest else {}
    documents = {name: int(facts["documents"]) for name, facts in facts_of.items() if "documents" in facts}
    is_known = all(file.name in documents for file in outcome.files)
    files = [[file for file in outcome.files if split is None or file.split == split] for split in columns]
    tallies = [[tally for name, tally in outcome.tallies.items() if split is None or name == split] for split in columns]
    tokens = [sum(tally.text_tokens for tally in some) for some in tallies]
    places = [sum(tally.records * (len(tally.lengths) - 1) for tally in some) for some in tallies]
    rows = [_counts("files", [len(some) for some in files])]
    rows.append(_counts("records", [sum(file.records for file in some) for some in files]))
    if is_known:
        rows.append(_counts("documents", [sum(documents[file.name] for file in some) for some in files]))
    rows.append(_counts("tokens", tokens))
    rows.append(["padding", *(percent(1 - text / room) if room else "" for text, room in zip(tokens, places, strict=True))])
    rows.append(["size", *(megabytes(sum(file.size_bytes for file in some)) for some in files)])
    looked_at = sum(tally.records for tally in outcome.tallies.values())
    caption = f"Tokens and padding are those of the {count(looked_at)} records looked at." if outcome.sampled else ""
    return table(["", *("all" if split is None else split or "records" for split in columns)], rows, caption)


def _counts(name: str, numbers: list[int]) -> list[Child]:
    """A row of counts; in millions where whole numbers would be too long to be compared."""
    if max(numbers) < _MILLIONS:
        return [name, *(f"{number:,}" for number in numbers)]
    return [f"{name}, millions", *(f"{number / 1e6:,.2f}" for number in numbers)]


def shares(outcome: Outcome, expected: Expected) -> Markup:
    """Each share by split, with its interval drawn against what is expected."""
    splits = list(outcome.tallies)
    head = element(
        "tr",
        element("th", "share", scope="col"),
        element("th", "expected", scope="col"),
        *(element("th", split or "found", scope="col", class_=f"number {_kind(at)}") for at, split in enumerate(splits)),
        element("th", "found (dots, 95\u00a0% intervals) against expected", scope="col"),
    )
    rows = [_share_row(share, splits) for share in shares_of(outcome.tallies, expected)]
    return element("table", element("thead", head), element("tbody", *rows), class_="shares")


def _kind(number: int) -> str:
    return "first" if number == 0 else "second"


def _share_row(share: Share, splits: list[str]) -> Markup:
    found: list[Interval] = []
    cells: list[Markup] = []
    for at, split in enumerate(splits):
        hits, of = share.parts[split]
        if not of:
            cells.append(element("td", "none", class_="number"))
            continue
        found.append((hits / of, *interval(hits, of)))
        half = (found[-1][2] - found[-1][1]) / 2
        text = element("span", percent(hits / of, 2), element("small", f" ± {half * 100:.2f}"))
        cells.append(element("td", text, class_=f"number {_kind(at)}", data_label=split or "found"))
    scale = scale_around((share.low, share.high if share.high < 1 else share.low), found)
    if share.high >= 1:  # no upper end: the range goes to the end of the axis
        scale = (
            (min(share.low, *(row[1] for row in found)) - 0.02, max(row[2] for row in found) + 0.05) if found else (0.0, 1.0)
        )
    description = f"{share.name}: expected {share.expected}; found {', '.join(percent(row[0], 2) for row in found)}"
    strip = draw_strip(found, low=share.low, high=min(share.high, scale[1]), scale=scale, description=description)
    digits = 1 if scale[1] - scale[0] >= 0.01 else 2
    ends = element("span", *(element("small", percent(end, digits)) for end in scale), class_="ends")
    return element(
        "tr",
        element("th", share.name, " ", element("small", share.of), scope="row"),
        element("td", share.expected, class_="expected-text", data_label="expected"),
        *cells,
        element("td", strip, ends, class_="drawing"),
    )


def tokens(outcome: Outcome, vocabulary: Vocabulary | None) -> Markup | None:
    """The tokens masked most, with their share of the text; they should be masked as often as they stand there.

    Without a vocabulary the validator counts no tokens, and there is nothing to show.
    """
    everything = together(outcome.tallies.values())
    labels, text = everything.labels, everything.tokens
    most = [int(token) for token in np.argsort(-labels, kind="stable")[:_TOKENS_SHOWN] if labels[token] and text[token]]
    if not most:
        return None
    ratios: list[Interval] = []
    for token in most:
        in_text = text[token] / text.sum()
        low, high = interval(int(labels[token]), int(labels.sum()))
        ratios.append((float(labels[token] / labels.sum() / in_text), low / in_text, high / in_text))
    reach = nice_step(max(max(row[2] - 1, 1 - row[1]) for row in ratios), 1)
    rows = []
    for token, ratio in zip(most, ratios, strict=True):
        name = token_text(token, vocabulary)
        strip = draw_strip([ratio], low=1, high=1, scale=(1 - reach, 1 + reach), description=f"{ratio[0]:.3f} times")
        rows.append(
            element(
                "tr",
                element("th", element("bdi", name), scope="row"),
                element("td", percent(text[token] / text.sum(), 2), class_="number"),
                element("td", percent(labels[token] / labels.sum(), 2), class_="number"),
                element("td", strip),
            )
        )
    axis = element("span", *(element("small", f"{1 + side * reach:.4g}") for side in (-1, 0, 1)), class_="ends")
    head = element(
        "tr",
        element("th", "token", scope="col"),
        element("th", "in text", scope="col", class_="number"),
        element("th", "masked", scope="col", class_="number"),
        element("th", axis, scope="col"),
    )
    return element("table", element("thead", head), element("tbody", *rows), class_="tokens")
