"""Check a folder against its manifest and vocabulary: names, sizes and checksums, or gaps if there is no manifest."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertprep.check.finding import WARNING, Finding, file_that
from bertprep.check.outcome import Outcome
from bertprep.config import SQUAD
from bertprep.errors import BertprepError
from bertprep.files.atomic import explain_write_error
from bertprep.files.checksums import BLAKE3, SHA256, show_checksum
from bertprep.files.paths import checksum_of, is_object
from bertprep.instances import Vocabulary, load_vocabulary
from bertprep.untrusted import MAX_JSON_BYTES
from bertprep.work.data_set import DataSet
from bertprep.work.layout import LEDGER, MANIFEST, MAPPED, QUESTIONS, TOKENIZER, VOCABULARY
from bertprep.work.manifest import Manifest, sha256_of_questions, sha256_of_vocabulary
from bertprep.work.resume import what_finishes

_NUMBERED = re.compile(r"(.*?)(\d+)(-of-\d+\D*|\D*)")  # the last number in a name, but not the total number of files


def check_manifest(data_set: DataSet) -> list[Finding]:
    """Return a finding if the folder's manifest is not valid, or if the run that makes the folder has not finished."""
    folder = data_set.folder
    if data_set.problem:
        return [Finding("manifest", MANIFEST, "a manifest of bertprep", file_that(data_set.problem, folder / MANIFEST))]
    if data_set.is_unfinished:
        name = next((name for name in (LEDGER, MAPPED) if (folder / name).is_dir()), MANIFEST)
        return [Finding("manifest", name, "a finished run", "one that is not finished", advice=what_finishes(folder))]
    return []


def check_names(data_set: DataSet, manifest: Manifest, names: set[str]) -> list[Finding]:
    """Return findings about files in the manifest that are not among `names`, and about names that are not in the manifest."""
    findings = [
        Finding("file-missing", name, f"a file of {entry['bytes']:,} bytes, as {MANIFEST} lists", "none")
        for name, entry in manifest.files.items()
        if name not in names
    ]
    for name in sorted(names - set(manifest.files)):
        expected, found = f"only files that {MANIFEST} lists", "another file, which trainers would read too"
        findings.append(Finding("file-extra", name, expected, found, level=WARNING))
    made_with, path = sha256_of_questions(manifest), data_set.folder / QUESTIONS
    if manifest.made_with.get("task") != SQUAD or made_with is None:
        return findings
    if not path.is_file():
        return [*findings, Finding("file-missing", QUESTIONS, "the questions of the dev split", "none")]
    return findings + _check_digits(path, QUESTIONS, made_with, SHA256)


def check_content(path: Path, name: str, entry: dict[str, Any], known: str = "") -> list[Finding]:
    """Compare the size and BLAKE3 of a file with its entry in the manifest; `known` is the BLAKE3 if it was computed."""
    try:
        size_bytes = path.stat().st_size
    except (OSError, BertprepError):  # an unreadable file is a separate finding
        return []
    if size_bytes != entry["bytes"]:
        return [Finding("file-changed", name, f"{entry['bytes']:,} bytes, as {MANIFEST} lists", f"{size_bytes:,}")]
    return _check_digits(path, name, entry[BLAKE3], BLAKE3, known)


def _check_digits(path: Path, name: str, listed: str, algorithm: str, known: str = "") -> list[Finding]:
    try:
        found = known or checksum_of(path, algorithm)
    except (OSError, BertprepError):
        return []
    if found == listed:
        return []
    expected = f"{show_checksum(listed, algorithm)}, as {MANIFEST} lists"
    return [Finding("file-changed", name, expected, show_checksum(found, algorithm))]


def check_vocabulary(data_set: DataSet, vocabulary: Vocabulary | None) -> tuple[Vocabulary | None, list[Finding]]:
    """Return the given vocabulary, or the one next to the files, and findings if it is missing or not that of the manifest.

    A vocabulary that is not that of the manifest is not returned: all that it would be used for would be wrong.
    """
    if vocabulary is None and data_set.vocabulary is None:
        if data_set.is_unfinished:  # the run copies it there at its end, and `check_manifest` reports that it has not finished
            return None, []
        expected, found = f"a {VOCABULARY} next to the records, or --vocab FILE", "none, so what needs it is not checked"
        return None, [Finding("vocabulary", VOCABULARY, expected, found, level=WARNING)]
    made_with = sha256_of_vocabulary(data_set.manifest)
    own: Vocabulary | None = None
    findings: list[Finding] = []
    if data_set.vocabulary:
        own, findings = _load_own_vocabulary(data_set.vocabulary, data_set.folder, made_with)
    if vocabulary is None:
        return own, findings
    if made_with not in (None, vocabulary.sha256):
        advice = "name that one with --vocab, or leave --vocab out if it is next to the records"
        return None, [_other_vocabulary(vocabulary, data_set.folder, str(made_with), advice)]
    return vocabulary, [replace(finding, level=WARNING) for finding in findings]


def _load_own_vocabulary(path: Path, folder: Path, made_with: str | None) -> tuple[Vocabulary | None, list[Finding]]:
    try:
        vocabulary = load_vocabulary(path)
    except BertprepError as error:
        return None, [Finding("vocabulary", path.name, "a BERT vocabulary", file_that(error, path))]
    if made_with in (None, vocabulary.sha256):
        return vocabulary, []
    advice = "copy the right one over it, or run the command that made the records again, which writes it"
    return None, [_other_vocabulary(vocabulary, folder, str(made_with), advice)]


def _other_vocabulary(vocabulary: Vocabulary, folder: Path, made_with: str, advice: str) -> Finding:
    path, root = vocabulary.path.absolute(), folder.absolute()
    name = path.relative_to(root) if path.is_relative_to(root) else path
    expected = f"the vocabulary that the data were made with, sha256 {made_with[:16]}..., as {MANIFEST} lists"
    return Finding("manifest", str(name), expected, f"{vocabulary.sha256[:16]}...", advice=advice)


def check_tokenizer(data_set: DataSet) -> list[Finding]:
    """Return a finding if the tokenizer next to token shards of documents is missing, or not that of the manifest."""
    made_with = data_set.manifest.tokenizer if data_set.manifest else None
    if made_with is None:
        return []
    for name in (TOKENIZER, VOCABULARY):
        path = data_set.folder / name
        if path.is_file():
            expected = (
                f"the tokenizer that the tokens were made with, sha256 {made_with['sha256'][:16]}..., as {MANIFEST} lists"
            )
            size_bytes = path.stat().st_size
            if size_bytes > MAX_JSON_BYTES:
                return [Finding("manifest", name, expected, f"a file of {size_bytes:,} bytes, too many for a tokenizer")]
            found = checksum_of(path, SHA256)
            return [] if found == made_with["sha256"] else [Finding("manifest", name, expected, f"{found[:16]}...")]
    return [Finding("vocabulary", TOKENIZER, f"a {TOKENIZER} next to the files", "none", level=WARNING)]


def find_gaps(data_set: DataSet) -> list[Finding]:
    """Return findings about gaps in numbered file names without a manifest, such as part-0, part-2 or x-00003-of-00010.

    Names count as a sequence if it starts at 0 or 1 and has at least half of its numbers. A sequence with a total must be
    complete.
    """
    if data_set.manifest or data_set.is_unfinished:
        return []
    sequences: dict[tuple[str, str], dict[int, str]] = {}
    for name in data_set.files:
        if numbered := _NUMBERED.fullmatch(name):
            before, number, after = numbered.groups()
            sequences.setdefault((before, after), {})[int(number)] = number
    findings = []
    for (before, after), numbers in sequences.items():
        total = re.match(r"-of-(\d+)", after)
        first, end = (0, int(total[1])) if total else (min(numbers), max(numbers) + 1)
        if first > 1 or (not total and end - first > 2 * len(numbers)):
            continue
        width = max((len(number) for number in numbers.values() if number.startswith("0")), default=0)
        names = (f"{before}{number:0{width}}{after}" for number in range(first, end) if number not in numbers)
        if missing := next((name for name in names if not os.path.lexists(data_set.folder / name)), None):
            found = f"{sum(first <= number < end for number in numbers):,} of them"
            findings.append(Finding("file-missing", missing, f"the files {first} to {end - 1}", found))
    return findings


def remove_damaged(outcome: Outcome) -> list[str]:
    """Remove the files whose size or checksum differs from the manifest, and return their names.

    Then the findings about these files say that they were removed.
    """
    listed = outcome.manifest.files if outcome.manifest else {}
    removed = [finding.file for finding in outcome.findings if finding.code == "file-changed" and finding.file in listed]
    folder = outcome.folder
    for name in removed:
        path = folder / name
        if not is_object(path) and path.parent.resolve() != folder.resolve() / Path(name).parent:
            raise BertprepError(f"{path.parent}: is a link, and nothing is removed there; remove {path.name} there yourself")
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise explain_write_error(path, error) from error
    advice = "the file was removed; run the command that made it again"
    outcome.findings = [replace(finding, advice=advice) if finding.file in removed else finding for finding in outcome.findings]
    return removed
