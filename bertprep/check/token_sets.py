"""One data set of token shards: each against its manifest, its two files against each other, its tokens against the vocabulary.

A shard is read whole, in parallel, 4 bytes a token and 8 a sentence; what is counted is a few arrays.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bertprep import pool
from bertprep.check.findings import ERROR, WARNING, Finding
from bertprep.check.manifest_checks import check_content
from bertprep.check.outcome import FileFacts, Outcome, TokenTally
from bertprep.check.record_sets import check_surroundings
from bertprep.errors import BertprepError
from bertprep.files.places import sizes_of
from bertprep.instances import Vocabulary
from bertprep.progress import Progress
from bertprep.records.data_sets import DataSet
from bertprep.records.token_shards import check_tokens, has_sentences, read_token_shard, token_files
from bertprep.workspace.layout import MANIFEST


@dataclass(frozen=True)
class _ShardTask:
    """A worker's task, the two files of a shard, by name; `facts` are their entries in the manifest."""

    folder: Path
    names: list[str]  # of .bin and .idx
    vocabulary: Vocabulary | None
    facts: dict[str, dict[str, Any]]
    compares_checksums: bool


def validate_tokens(
    data_set: DataSet, vocabulary: Vocabulary | None, *, sample: int | None, workers: int, shown: Progress
) -> Outcome:
    """Check token shards; `vocabulary` is used instead of the one beside them. With `sample` checksums are not compared."""
    folder = data_set.folder
    pairs = {name: [str(path) for path in token_files(Path(name)).values()] for name in data_set.files}
    there = sizes_of(folder, [name for names in pairs.values() for name in names])
    files = {name: split for of, split in data_set.files.items() for name in pairs[of] if name in there}
    vocabulary, findings = check_surroundings(replace(data_set, files=files), vocabulary)
    facts = data_set.manifest.files if data_set.manifest else {}
    missing = {finding.file for finding in findings if finding.code == "file-missing"}
    tasks = [
        (
            str(folder / name),
            _ShardTask(folder, names, vocabulary, {each: facts[each] for each in names if each in facts}, sample is None),
        )
        for name, names in pairs.items()
        if not missing & set(names)
    ]
    checked: dict[str, tuple[TokenTally | None, list[Finding]]] = {}
    with closing(pool.run(_check, tasks, workers=workers)) as results:
        for _, (name, tally, found) in results:
            shown.advance(MB=sum(there.get(each, 0) for each in pairs[name]) / 1e6)
            checked[name] = tally, found
    outcome = Outcome(
        folder=folder,
        kind=data_set.kind,
        manifest=data_set.manifest,
        vocabulary=vocabulary.path if vocabulary else None,
        sampled=sample is not None,
    )
    for name, split in data_set.files.items():
        tally, found = checked.get(name, (None, []))
        findings += found
        if tally:
            outcome.token_tallies[split] = outcome.token_tallies.get(split, TokenTally()) + tally
        size_bytes = sum(there.get(each, 0) for each in pairs[name])
        outcome.files.append(FileFacts(name, split, tally.documents if tally else 0, size_bytes))
    outcome.findings = sorted(findings, key=lambda finding: finding.level != ERROR)
    return outcome


def _check(task: _ShardTask) -> tuple[str, TokenTally | None, list[Finding]]:
    """(name of the .bin, what it holds unless it cannot be read, findings)."""
    name, path = task.names[0], task.folder / task.names[0]
    findings = [
        finding
        for each, facts in (task.facts.items() if task.compares_checksums else ())
        for finding in check_content(task.folder / each, each, facts)
    ]
    try:
        shard = read_token_shard(path)
    except BertprepError as error:
        found = str(error).removeprefix(f"{task.folder}/")
        findings.append(Finding(ERROR, "token-shard", name, None, "a .bin and an .idx that fit each other", found))
        return name, None, findings
    lengths = np.minimum(np.diff(shard.sentence_starts), TokenTally.LONGEST)
    counts = np.bincount(lengths, minlength=TokenTally.LONGEST + 1)
    tally = TokenTally(shard.documents, shard.sentences, len(shard.tokens), counts)
    facts = task.facts.get(name, {})
    for what in ("documents", "sentences", "tokens"):
        if (count := getattr(tally, what)) != facts.get(what, count):
            expected = f"{facts[what]:,} {what}, as {MANIFEST} says"
            findings.append(Finding(ERROR, "manifest", name, None, expected, f"{count:,}"))
    if task.vocabulary:
        tally = replace(tally, unknown=int(np.count_nonzero(shard.tokens == task.vocabulary.unk)))
        try:
            check_tokens(path, shard.tokens, task.vocabulary)
        except BertprepError as error:
            found = str(error).removeprefix(f"{path}: ")
            findings.append(Finding(ERROR, "id-range", name, None, "tokens that text gives", found))
    if not facts and not has_sentences(shard):
        found = f"one in each of its {shard.documents:,} documents; only create --pairs none takes them"
        findings.append(Finding(WARNING, "no-sentences", name, None, "a sequence for each sentence", found))
    return name, tally, findings
