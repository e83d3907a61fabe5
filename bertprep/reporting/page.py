"""A report as one HTML page: a pure function of the outcome, so the same data gives the same bytes.

The page is self-contained: its content security policy forbids scripts, fonts and requests. It works on a phone, on paper, and
in light and dark schemes. docs/decisions/0016 explains why no template engine or plotting library is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bertprep.check.findings import ERROR, LEVELS, Finding
from bertprep.check.outcome import Outcome
from bertprep.config import RecordFormat
from bertprep.instances.vocabulary import Vocabulary
from bertprep.reporting import figures, tables
from bertprep.reporting.excerpts import Excerpt, show
from bertprep.reporting.markup import Child, Markup, count, counted, element, escape, join, percent
from bertprep.workspace.manifest import TOKEN_SHARDS

_STYLE = Path(__file__).with_name("style.css")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_MOST_LISTED = 20  # findings shown of one kind; the others are counted


def page(outcome: Outcome, excerpts: Sequence[Excerpt], vocabulary: Vocabulary | None) -> str:
    """The whole report on one data set; without a vocabulary tokens are shown by id."""
    title = f"{_name(outcome)}: BERT pretraining data"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("title", title),
        element("style", Markup("\n" + _STYLE.read_text(encoding="utf-8"))),
    )
    errors = [finding for finding in outcome.findings if finding.level == ERROR]
    sections = [
        _section("Errors", show_findings(errors)) if errors else None,
        _how_it_was_made(outcome),
        _section("How much there is", tables.counts_by_split(outcome)) if outcome.files else None,
        *(_statistics(outcome, vocabulary) if any(tally.records for tally in outcome.tallies.values()) else ()),
        _section("Sentences", element("div", figures.sentences(outcome.token_tallies), class_="figures"))
        if outcome.token_tallies
        else None,
        _section("Duplicates", _duplicates(outcome)) if outcome.kind != TOKEN_SHARDS else None,
        _examples(excerpts, vocabulary) if excerpts else None,
        _section("All findings", _all_findings(outcome)),
    ]
    body = element("body", element("main", _header(title, outcome), *sections))
    return "<!DOCTYPE html>\n" + element("html", head, "\n", body, lang="en") + "\n"


def _section(title: str, *content: Child) -> Markup:
    return join("\n", element("section", element("h2", title), *content))


def _name(outcome: Outcome) -> str:
    made_with = outcome.manifest.made_with if outcome.manifest else {}
    return str(made_with.get("corpus", outcome.folder.name))


def _header(title: str, outcome: Outcome) -> Markup:
    records = sum(file.records for file in outcome.files)
    kind = next((each.label for each in RecordFormat if each == outcome.kind), outcome.kind)
    facts = (
        f"{counted(records, 'document')} as tokens, a sequence for each sentence, in "
        f"{counted(len(outcome.files), 'token shard')}."
        if outcome.kind == TOKEN_SHARDS
        else f"{counted(records, 'record')} of {count(outcome.seq)} tokens, each with up to {count(outcome.pred)} of them to "
        f"predict and a label for the next sentence, in {counted(len(outcome.files), f'{kind} file')}."
    )
    looked = ""
    if outcome.sampled:
        looked_at = sum(tally.records for tally in outcome.tallies.values())
        looked = f" {counted(looked_at, 'record')} were checked, spread evenly over the files."
    level = "error" if outcome.errors else "warning" if outcome.findings else "good"
    return element(
        "header",
        element("h1", title),
        element("p", facts + looked),
        element("p", element("strong", verdict(outcome.findings), class_=f"verdict {level}")),
        element("p", element("code", str(outcome.folder)), class_="facts"),
    )


def _how_it_was_made(outcome: Outcome) -> Markup:
    if outcome.manifest is None:
        text = "There is no manifest.json beside the files, so their settings are unknown."
        if outcome.kind != TOKEN_SHARDS:
            text += " The expected values below are those of the defaults of BERT's generator."
        return _section("How it was made", element("p", text))
    return _section("How it was made", tables.provenance(outcome.manifest))


def _statistics(outcome: Outcome, vocabulary: Vocabulary | None) -> list[Markup]:
    expected, tallies = outcome.expected, outcome.tallies
    explained = element(
        "p",
        "The dashed line or the shaded range is the expectation. An interval misses it by chance once in a million times; one "
        "that does is among the findings.",
        class_="note",
    )
    masked_most = element(
        "p",
        "The tokens masked most. The drawing shows how often each is masked, with its interval, as a multiple of its expected "
        "count by its frequency in the text.",
        class_="note",
    )
    histograms = [
        figures.lengths(tallies),
        *([figures.segments(tallies)] if any(tally.has_pairs for tally in tallies.values()) else []),
        figures.predictions(tallies, expected),
        figures.positions(tallies, expected),
        figures.records_by_file(outcome.files) if outcome.files else None,
    ]
    return [
        _section("Masking and next sentences", explained, tables.fractions(outcome)),
        _section("Lengths and positions", element("div", *histograms, class_="figures")),
        *([_section("Masked tokens", masked_most, most)] if (most := tables.tokens(outcome, vocabulary)) else []),
    ]


def _duplicates(outcome: Outcome) -> Markup:
    if outcome.sampled:
        return element("p", "Duplicates were not checked, because that needs all records and this report covers a sample.")
    if not any(outcome.duplicates.values()):
        return element("p", "No record repeats another.")
    records = {split: tally.records for split, tally in outcome.tallies.items()}
    records["across"] = records.get("test", 0)
    lines = []
    for split, repeated in outcome.duplicates.items():
        what = "test records that are in training too" if split == "across" else f"{split} records that repeat another".strip()
        fraction = f" ({percent(repeated / records[split], 3)})" if records.get(split) else ""
        lines.append(element("li", f"{what}: {count(repeated)}{fraction}"))
    return element("ul", *lines)


def _examples(excerpts: Sequence[Excerpt], vocabulary: Vocabulary | None) -> Markup:
    key = element(
        "p",
        "The original tokens at predicted positions are restored and marked: ",
        element("mark", "shown as [MASK]"), ", ",
        element("mark", "unchanged", class_="kept"), ", ",
        element("mark", element("s", "shown"), " replaced by another token", class_="replaced"), ". ",
        element("span", "Segment A", class_="a"), " and ", element("span", "segment B", class_="b"),
        " have a colour each, and the pieces of a word are joined.",
        class_="note",
    )  # fmt: skip
    by_number = element("p", "No vocabulary is known, so each token is shown by its id, [MASK] included.", class_="note")
    return _section(
        "Examples", key, None if vocabulary else by_number, *(join("\n", show(excerpt, vocabulary)) for excerpt in excerpts)
    )


def _all_findings(outcome: Outcome) -> Markup:
    if outcome.findings:
        return show_findings(outcome.findings)
    return element("p", escape("None: every check of bertprep validate passed."))


def verdict(findings: Sequence[Finding]) -> str:
    """One line that sums up all findings.

    >>> verdict([])
    'Nothing was found wrong.'
    """
    if not findings:
        return "Nothing was found wrong."
    errors = sum(finding.level == ERROR for finding in findings)
    return f"{counted(errors, 'error')} and {counted(len(findings) - errors, 'warning')} were found."


def show_findings(findings: Sequence[Finding]) -> Markup:
    """All findings, grouped by level and code in their order."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in sorted(findings, key=lambda finding: LEVELS.index(finding.level)):
        groups.setdefault((finding.level, finding.code), []).append(finding)
    return join(*(_group(level, code, alike) for (level, code), alike in groups.items()))


def _group(level: str, code: str, findings: list[Finding]) -> Markup:
    items = [_item(finding) for finding in findings[:_MOST_LISTED]]
    if len(findings) > _MOST_LISTED:
        items.append(element("li", f"… and {count(len(findings) - _MOST_LISTED)} more; bertprep validate lists all"))
    heading = element("h3", element("span", level, class_=f"level {level}"), " ", element("code", code))
    return element("div", heading, element("ul", *items), class_="findings")


def _item(finding: Finding) -> Markup:
    where: list[Markup | str] = [element("code", finding.file)] if finding.file else ["the whole data set"]
    if finding.record is not None:
        where.append(f", record {count(finding.record)}")
    more = f" ({counted(finding.count, 'record')})" if finding.count > 1 else ""
    return element("li", *where, f": expected {finding.expected}, found {finding.found}{more}")
