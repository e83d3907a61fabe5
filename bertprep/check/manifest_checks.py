"""Checks a folder against its manifest: every file with its size, checksum and number of records, and no others.

The checksum is the only protection of OFRecord files against changed bytes. Workers compute it, at the speed of the
processor's sha256.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bertprep.check.findings import ERROR, WARNING, Finding
from bertprep.config import SQUAD
from bertprep.records.data_sets import DataSet
from bertprep.workspace.layout import MANIFEST, QUESTIONS, RECEIPTS
from bertprep.workspace.manifest import JOURNAL_SUFFIX, Manifest, sha256_of, sha256_of_questions, sha256_of_vocabulary

_NUMBERED = re.compile(r"(.*?)(\d+)(-of-\d+\D*|\D*)")  # the last number in a name, but not the total number of files


def check_manifest(data_set: DataSet) -> list[Finding]:
    """Findings about a manifest that cannot be read and about an unfinished run."""
    home = data_set.home
    name = str(home.folder.absolute() / MANIFEST) if home.prefix else MANIFEST  # relative to the records if it is beside them
    if data_set.problem:
        found = str(data_set.problem).removeprefix(f"{home.folder / MANIFEST}: ")
        return [Finding(ERROR, "manifest", name, None, "a manifest of bertprep", found)]
    if data_set.is_unfinished:
        expected, found = "a finished run", "one that was stopped; the same command resumes it"
        notes = str(Path(name).parent / RECEIPTS) if (home.folder / RECEIPTS).is_dir() else name + JOURNAL_SUFFIX
        return [Finding(WARNING, "manifest", notes, None, expected, found)]
    return []


def check_names(manifest: Manifest, names: Iterable[str]) -> list[Finding]:
    """Findings about files that the manifest names but are missing, and files that it does not name."""
    found = set(names)
    missing = [
        Finding(ERROR, "file-missing", name, None, f"a file of {facts['bytes']:,} bytes, as {MANIFEST} says", "none")
        for name, facts in manifest.files.items()
        if name not in found
    ]
    extra = [
        Finding(WARNING, "file-extra", name, None, f"only files that {MANIFEST} names", "one that trainers read too")
        for name in sorted(found - set(manifest.files))
    ]
    return missing + extra


def check_content(path: Path, name: str, facts: dict[str, Any]) -> list[Finding]:
    """Findings about a file whose size or checksum differs from its entry; reads the whole file if the size is right."""
    try:
        size_bytes = path.stat().st_size
        sha256 = sha256_of(path) if size_bytes == facts["bytes"] else ""
    except OSError:  # an unreadable file is a separate finding
        return []
    if size_bytes != facts["bytes"]:
        return [Finding(ERROR, "file-changed", name, None, f"{facts['bytes']:,} bytes, as {MANIFEST} says", f"{size_bytes:,}")]
    if sha256 != facts["sha256"]:
        expected = f"sha256 {facts['sha256'][:16]}..., as {MANIFEST} says"
        return [Finding(ERROR, "file-changed", name, None, expected, f"{sha256[:16]}...")]
    return []


def check_records_number(name: str, records: int, facts: dict[str, Any]) -> list[Finding]:
    """A finding if a file has another number of records than the manifest says."""
    if records == facts.get("examples", records):
        return []
    return [Finding(ERROR, "manifest", name, None, f"{facts['examples']:,} records, as {MANIFEST} says", f"{records:,}")]


def check_vocabulary(manifest: Manifest, vocabulary: Path, sha256: str) -> list[Finding]:
    """A finding if records were made with another vocabulary."""
    made_with = sha256_of_vocabulary(manifest)
    if made_with is None or made_with == sha256:
        return []
    expected = f"the vocabulary the records were made with, sha256 {made_with[:16]}..., as {MANIFEST} says"
    return [Finding(ERROR, "manifest", str(vocabulary), None, expected, f"{sha256[:16]}...")]


def check_questions(manifest: Manifest, folder: Path) -> list[Finding]:
    """A finding if the questions beside SQuAD's records, which answers are made with, are missing or others."""
    made_with, path = sha256_of_questions(manifest), folder / QUESTIONS
    if manifest.made_with.get("task") != SQUAD or made_with is None:
        return []
    if not path.is_file():
        return [Finding(ERROR, "file-missing", QUESTIONS, None, "the questions of the dev split", "none")]
    if (found := sha256_of(path)) == made_with:
        return []
    return [
        Finding(ERROR, "file-changed", QUESTIONS, None, f"sha256 {made_with[:16]}..., as {MANIFEST} says", f"{found[:16]}...")
    ]


def find_gaps(data_set: DataSet) -> list[Finding]:
    """Findings about gaps in numbered file names, such as part-0, part-2 or x-00003-of-00010.

    Used without a manifest. A sequence starts at 0 or 1 and has at least half of its numbers, so names with a year or a length
    do not count as one; one that gives the total number of files must be complete.
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
        paths = ((name, data_set.folder / name) for name in names)
        if missing := next((name for name, path in paths if not (path.exists() or path.is_symlink())), None):
            found = f"{sum(first <= number < end for number in numbers):,} of them"
            findings.append(Finding(ERROR, "file-missing", missing, None, f"the files {first} to {end - 1}", found))
    return findings
