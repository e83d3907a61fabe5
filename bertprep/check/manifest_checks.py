"""Does a folder hold what its manifest says: every file, of its size, sum and number of records, and no other?

Sums are the one check that OFRecord files have against changed bytes. They are taken by the workers, at about the speed of
the processor's sha256; what is compared with what is here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bertprep.check.findings import ERROR, WARNING, Finding
from bertprep.records.data_sets import DataSet
from bertprep.workspace.layout import MANIFEST
from bertprep.workspace.manifest import JOURNAL_SUFFIX, Manifest, sha256_of, sha256_of_vocabulary

_NUMBERED = re.compile(r"(.*?)(\d+)(-of-\d+\D*|\D*)")  # the last number of a name, but not the total number of files


def check_manifest(data_set: DataSet) -> list[Finding]:
    """A manifest that cannot be read, and a run that has not finished."""
    home = data_set.home
    name = str(home.folder.absolute() / MANIFEST) if home.prefix else MANIFEST  # relative to the records where it is with them
    if data_set.problem:
        found = str(data_set.problem).removeprefix(f"{home.folder / MANIFEST}: ")
        return [Finding(ERROR, "manifest", name, None, "a manifest of bertprep", found)]
    if data_set.is_unfinished:
        expected, found = "a finished run", "one that was stopped; the same command resumes it"
        return [Finding(WARNING, "manifest", name + JOURNAL_SUFFIX, None, expected, found)]
    return []


def check_names(manifest: Manifest, there: Iterable[str]) -> list[Finding]:
    """Files that the manifest names and that are missing, and files it does not name."""
    found = set(there)
    missing = [
        Finding(ERROR, "file-missing", name, None, f"a file of {facts['bytes']:,} bytes, as {MANIFEST} says", "none")
        for name, facts in manifest.files.items()
        if name not in found
    ]
    extra = [
        Finding(WARNING, "file-extra", name, None, f"only files that {MANIFEST} names", "one that trainers would read too")
        for name in sorted(found - set(manifest.files))
    ]
    return missing + extra


def check_content(path: Path, name: str, facts: dict[str, Any]) -> list[Finding]:
    """Whether a file has the size and the sum that the manifest says; reads it whole where the size is right."""
    try:
        size_bytes = path.stat().st_size
        sha256 = sha256_of(path) if size_bytes == facts["bytes"] else ""
    except OSError:  # that it cannot be read is a finding of its own
        return []
    if size_bytes != facts["bytes"]:
        return [Finding(ERROR, "file-changed", name, None, f"{facts['bytes']:,} bytes, as {MANIFEST} says", f"{size_bytes:,}")]
    if sha256 != facts["sha256"]:
        expected = f"sha256 {facts['sha256'][:16]}..., as {MANIFEST} says"
        return [Finding(ERROR, "file-changed", name, None, expected, f"{sha256[:16]}...")]
    return []


def check_records_number(name: str, records: int, facts: dict[str, Any]) -> list[Finding]:
    """Whether a file has as many records as the manifest says."""
    if records == facts.get("examples", records):
        return []
    return [Finding(ERROR, "manifest", name, None, f"{facts['examples']:,} records, as {MANIFEST} says", f"{records:,}")]


def check_vocabulary(manifest: Manifest, vocabulary: Path, sha256: str) -> list[Finding]:
    """Whether records were made with the vocabulary that they are read with."""
    made_with = sha256_of_vocabulary(manifest)
    if made_with is None or made_with == sha256:
        return []
    expected = f"the vocabulary that the records were made with, sha256 {made_with[:16]}..., as {MANIFEST} says"
    return [Finding(ERROR, "manifest", str(vocabulary), None, expected, f"{sha256[:16]}...")]


def find_gaps(data_set: DataSet) -> list[Finding]:
    """Numbers that are missing in the names of files, such as part-0, part-2 or x-00003-of-00010, and are not on the disk.

    A manifest says better which files there must be. A sequence starts at 0 or 1 and has at least half of its numbers, so that
    names with a year or a length are none; one that tells how many files there are must have all.
    """
    sequences: dict[tuple[str, str], list[str]] = {}
    for name in data_set.files if data_set.manifest is None else ():
        if numbered := _NUMBERED.fullmatch(name):
            before, number, after = numbered.groups()
            sequences.setdefault((before, after), []).append(number)
    findings = []
    for (before, after), written in sequences.items():
        numbers, total = set(map(int, written)), re.match(r"-of-(\d+)", after)
        first, end = (0, int(total[1])) if total else (min(numbers), max(numbers) + 1)
        if first > 1 or (not total and end - first > 2 * len(numbers)):
            continue
        width = max((len(number) for number in written if number.startswith("0")), default=0)
        names = (f"{before}{number:0{width}}{after}" for number in range(first, end) if number not in numbers)
        if missing := next((name for name in names if not os.path.lexists(data_set.folder / name)), None):
            found = f"{sum(first <= number < end for number in numbers):,} of them"
            findings.append(Finding(ERROR, "file-missing", missing, None, f"the files {first} to {end - 1}", found))
    return findings
