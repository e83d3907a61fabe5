"""Does a folder hold what its manifest says: every file with its size, checksum and number of records, and no other?

The checksum is the only protection of OFRecord files against changed bytes. Workers compute it, at the speed of the
processor's sha256.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bertprep.check.findings import ERROR, WARNING, Finding
from bertprep.workspace.layout import MANIFEST
from bertprep.workspace.manifest import Manifest, sha256_of, sha256_of_vocabulary


def check_names(manifest: Manifest, names: Iterable[str]) -> list[Finding]:
    """Files that the manifest names but are missing, and files that it does not name."""
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
    """Whether a file has the size and the checksum of its entry; reads it whole if the size is right."""
    try:
        size_bytes = path.stat().st_size
        sha256 = sha256_of(path) if size_bytes == facts["bytes"] else ""
    except OSError:  # an unreadable file is a finding of its own
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
    """Whether records were made with this vocabulary."""
    made_with = sha256_of_vocabulary(manifest)
    if made_with is None or made_with == sha256:
        return []
    expected = f"the vocabulary the records were made with, sha256 {made_with[:16]}..., as {MANIFEST} says"
    return [Finding(ERROR, "manifest", str(vocabulary), None, expected, f"{sha256[:16]}...")]
