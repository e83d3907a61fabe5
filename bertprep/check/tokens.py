"""Checks token shards: the two files of each against each other, its tokens against the vocabulary.

A shard is read whole, in parallel, 4 bytes a token and 8 a sentence; what is counted is a few arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from bertprep.check.outcome import WARNING, Checks, FileFacts, FileReport, FileTask, Finding, Outcome, TokenCounts
from bertprep.errors import BertprepError
from bertprep.files.places import sizes_of
from bertprep.instances import Vocabulary
from bertprep.records.data_sets import DataSet
from bertprep.records.token_shards import check_tokens, has_sentences, read_token_shard, token_files


@dataclass
class TokenReport(FileReport):
    """With the counts of a shard that can be read."""

    counts: TokenCounts | None = None


class TokenShards(Checks[TokenReport]):
    """The checks of one data set; `check_file` runs in workers, the rest where their reports arrive."""

    def __init__(self, data_set: DataSet, vocabulary: Vocabulary | None) -> None:
        parts = {name: files_of_shard(name) for name in data_set.files}
        names = sizes_of(data_set.folder, [part for of_shard in parts.values() for part in of_shard])
        sizes = {name: sum(names.get(part, 0) for part in of_shard) for name, of_shard in parts.items()}
        super().__init__(data_set.files, partial(_check_shard, vocabulary), sizes=sizes, names=names)

    def judge(self, reports: Sequence[TokenReport], outcome: Outcome) -> list[Finding]:
        known = {report.facts.name: report.counts for report in reports if report.counts}
        outcome.files = []
        for name, split in self.files.items():
            counts = known.get(name, TokenCounts())
            if name in known:
                outcome.token_counts[split] = outcome.token_counts.get(split, TokenCounts()) + counts
            outcome.files.append(FileFacts(name, split, counts.documents, self.sizes[name]))
        return [finding for report in reports for finding in report.findings]


def files_of_shard(name: str) -> list[str]:
    """Return the .bin and the .idx of a shard."""
    return [path.as_posix() for path in token_files(Path(name)).values()]


def _check_shard(vocabulary: Vocabulary | None, task: FileTask) -> TokenReport:
    name, path = task.name, task.folder / task.name
    report = TokenReport(FileFacts(name, task.split, 0, task.size_bytes))
    try:
        shard = read_token_shard(path)
    except BertprepError as error:
        found = str(error).removeprefix(f"{task.folder}/")
        report.findings.append(Finding("token-shard", name, "a .bin and an .idx that fit each other", found))
        return report
    lengths = np.minimum(np.diff(shard.sentence_starts), TokenCounts.LONGEST)
    report.counts = TokenCounts(
        shard.documents, shard.sentences, len(shard.tokens), np.bincount(lengths, minlength=TokenCounts.LONGEST + 1)
    )
    report.totals = {"documents": shard.documents, "sentences": shard.sentences, "tokens": len(shard.tokens)}
    if vocabulary:
        report.counts.unknown = int(np.count_nonzero(shard.tokens == vocabulary.unk))
        try:
            check_tokens(path, shard.tokens, vocabulary)
        except BertprepError as error:
            report.findings.append(Finding("id-range", name, "tokens that text gives", str(error).removeprefix(f"{path}: ")))
    if not task.facts and not has_sentences(shard):
        found = f"one in each of its {shard.documents:,} documents; only create --pairs none takes them"
        report.findings.append(Finding("no-sentences", name, "a sequence for each sentence", found, level=WARNING))
    return report
