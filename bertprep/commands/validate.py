"""Is this data right? Every file, every record, and the whole, for each data set that lies under some paths.

Records are checked by `record_sets`, text by `text_checks`; docs/validation.md says of each finding what it means and how it is
judged. One bad file or record never stops the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bertprep import kernels, pool
from bertprep.check.findings import ERROR
from bertprep.check.manifest_checks import check_manifest
from bertprep.check.outcome import FileFacts, Outcome
from bertprep.check.record_sets import validate_records
from bertprep.check.text_checks import check_text_shards
from bertprep.errors import UsageError
from bertprep.instances import load_vocabulary
from bertprep.progress import Progress, Reporter
from bertprep.records.data_sets import DataSet, find_data_sets
from bertprep.workspace.manifest_schema import TEXT_SHARDS


def validate(
    paths: Iterable[Path | str],
    *,
    vocab: Path | str | None = None,
    masked_lm_prob: float | None = None,
    sample: int | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> list[Outcome]:
    """Check all data sets that lie under `paths`: workspaces, folders of records, or record files.

    `vocab` is taken instead of the vocab.txt beside the records; `masked_lm_prob` is for records without a manifest (default
    0.15). With `sample`, only that many records of each file are looked at, and what needs all of them is left out. Findings,
    also of files that cannot be read, are in the outcomes; raises `UsageError` where a path holds no data, and `BertprepError`
    where `vocab` is no vocabulary.

        errors = sum(outcome.errors for outcome in bertprep.validate(["data"]))
    """
    reporter = Reporter(enabled=progress)
    if masked_lm_prob is not None and not 0 < masked_lm_prob <= 1:
        raise UsageError(f"--masked-lm-prob {masked_lm_prob}: must be above 0 and at most 1")
    if sample is not None and sample < 1:
        raise UsageError(f"--sample {sample}: must be at least 1")
    data_sets = find_data_sets(paths)
    for note in (note for data_set in data_sets for note in data_set.notes):
        reporter.say(note)
    vocabulary = load_vocabulary(Path(vocab)) if vocab is not None else None
    workers = workers or pool.default_workers()
    kernels.load()  # before workers are forked, so that they share it
    with reporter.progress("validate", sum(len(s.files) for s in data_sets), "files") as shown:
        return [
            _validate_text(data_set, workers=workers, sample=sample, shown=shown)
            if data_set.kind == TEXT_SHARDS
            else validate_records(
                data_set, vocabulary, masked_lm_prob=masked_lm_prob, sample=sample, workers=workers, shown=shown
            )
            for data_set in data_sets
        ]


def _validate_text(data_set: DataSet, *, workers: int, sample: int | None, shown: Progress) -> Outcome:
    """Text shards, against their manifest and as text; with `sample` only what the manifest says of them."""
    folder, manifest = data_set.folder, data_set.manifest
    findings = check_manifest(data_set)
    if sample is None:
        findings += check_text_shards(folder, manifest, workers)
    facts = manifest.files if manifest else {}
    files = [
        FileFacts(name, split, facts.get(name, {}).get("documents", 0), (folder / name).stat().st_size)
        for name, split in data_set.files.items()
        if (folder / name).is_file()
    ]
    shown.advance(len(data_set.files), MB=sum(file.size_bytes for file in files) / 1e6)
    return Outcome(
        folder=folder,
        kind=TEXT_SHARDS,
        manifest=manifest,
        vocabulary=None,
        sampled=sample is not None,
        files=files,
        findings=sorted(findings, key=lambda finding: finding.level != ERROR),
    )
