"""The findings of the validator as lists: by kind, errors first, with as many places of each as one would read."""

from __future__ import annotations

from collections.abc import Sequence

from bertprep.check.findings import ERROR, LEVELS, Finding
from bertprep.reporting.amounts import count, counted
from bertprep.reporting.markup import Markup, element, join

MOST_PLACES = 20
"""Of one kind of finding; the others are counted."""


def verdict(findings: Sequence[Finding]) -> str:
    """One line on all of them.

    >>> verdict([])
    'Nothing was found wrong.'
    """
    if not findings:
        return "Nothing was found wrong."
    errors = sum(finding.level == ERROR for finding in findings)
    return f"{counted(errors, 'error')} and {counted(len(findings) - errors, 'warning')} were found."


def show_findings(findings: Sequence[Finding]) -> Markup:
    """All findings, grouped by level and code in the order in which they come."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in sorted(findings, key=lambda finding: LEVELS.index(finding.level)):
        groups.setdefault((finding.level, finding.code), []).append(finding)
    return join(*(_group(level, code, alike) for (level, code), alike in groups.items()))


def _group(level: str, code: str, findings: list[Finding]) -> Markup:
    places = [_place(finding) for finding in findings[:MOST_PLACES]]
    if len(findings) > MOST_PLACES:
        places.append(element("li", f"… and {count(len(findings) - MOST_PLACES)} more; bertprep validate lists all"))
    heading = element("h3", element("span", level, class_=f"level {level}"), " ", element("code", code))
    return element("div", heading, element("ul", *places), class_="findings")


def _place(finding: Finding) -> Markup:
    where: list[Markup | str] = [element("code", finding.file)] if finding.file else ["the whole data set"]
    if finding.record is not None:
        where.append(f", record {count(finding.record)}")
    more = f" ({counted(finding.count, 'record')})" if finding.count > 1 else ""
    return element("li", *where, f": expected {finding.expected}, found {finding.found}{more}")
