"""Data sets of records as `bertprep push` lays them out in a repository of the Hub, and `bertprep download dataset` finds them.

manifest.json                            with the names of below; every record file's sha256 and size
train/CORPUS_training_00000.parquet      a folder for each split
vocab.txt  tokenizer.json  tokenizer_config.json
dev.json                                 of SQuAD: the questions of dev/
README.md  croissant.json                for people and programs
"""

from __future__ import annotations

import json
from pathlib import Path

from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import atomic_file
from bertprep.instances.tokenizer_files import TOKENIZER_FILES
from bertprep.sources.catalogue import HubFiles, is_repository
from bertprep.sources.data_files import CARD
from bertprep.sources.transfer.hub import Entry, Hub, list_entries, page_of, source_of
from bertprep.sources.transfer.listing import Listing, RemoteFile
from bertprep.untrusted import MOST_BYTES, parse_json, read_bounded
from bertprep.workspace.layout import MANIFEST, QUESTIONS, VOCABULARY
from bertprep.workspace.manifest import RECORD_KINDS, Manifest, check_manifest

CROISSANT = "croissant.json"
BESIDE = (VOCABULARY, QUESTIONS, *TOKENIZER_FILES, CARD, CROISSANT)
"""What lies beside the manifest and the folders of the splits."""
PUSHED = "pushed.json"
"""The manifest of a download until it is complete: a folder with a manifest is a finished one."""


def check_dataset_name(name: str) -> str:
    """Return OWNER/NAME; raises `UsageError` for what cannot be one on the Hub."""
    if not is_repository(name):
        raise UsageError(
            f"{name}: is not the name of a data set on the Hub; give OWNER/NAME, each of letters, digits, '_', '-' and '.', "
            "such as you/wikipedia-bert-128"
        )
    return name


def manifest_bytes(manifest: Manifest) -> bytes:
    """A manifest as bertprep writes it."""
    return (json.dumps(manifest.as_json(), indent=1) + "\n").encode()


def manifest_in(data: bytes) -> Manifest:
    """The manifest of records in a file of the Hub; raises `ValueError` for anything else."""
    content = check_manifest(parse_json(data))
    if content["kind"] not in RECORD_KINDS:
        raise ValueError(f"it is of {content['kind']}, expected records")
    return Manifest(content["kind"], content["made_with"], content["files"], content["versions"], content.get("counts", {}))


def list_pushed(wanted: HubFiles, hub: Hub) -> Listing:
    """The files of a pushed data set: what its manifest lists, and what lies beside it.

    Raises `BertprepError` for a repository that `bertprep push` did not make, or whose files are not those of its manifest.
    """
    commit, tree = hub.tree(wanted)
    entries = {entry.path: entry for entry in tree}
    advice = f"it is no push of bertprep; bertprep shard --dataset {wanted.repo} takes text of it"
    if MANIFEST not in entries:
        raise BertprepError(f"{page_of(wanted)}: has no {MANIFEST}, so {advice}")
    try:
        manifest = manifest_in(hub.read(wanted, commit, entries[MANIFEST], MOST_BYTES))
    except ValueError as error:
        raise BertprepError(f"{page_of(wanted)}: its {MANIFEST} is not one of bertprep's ({error}); {advice}") from error
    for name, facts in manifest.files.items():
        if problem := _problem(entries.get(name), facts):
            raise BertprepError(f"{page_of(wanted)}: {name} {problem}, by its {MANIFEST}; ask its owner to push it again")
    names = [*manifest.files, *(name for name in BESIDE if name in entries)]
    listing = list_entries(wanted, commit, [entries[name] for name in names], source_of(wanted))
    try:
        return Listing(listing.source, listing.revision, (*listing.files, _as_pushed(wanted, commit, entries[MANIFEST])))
    except ValueError as error:
        raise BertprepError(f"{page_of(wanted)}: its {MANIFEST} is not one of a push ({error}); {advice}") from error


def _problem(entry: Entry | None, facts: dict[str, object]) -> str | None:
    if entry is None:
        return "is missing"
    if entry.size_bytes != facts["bytes"]:
        return f"has {entry.size_bytes:,} bytes, expected {facts['bytes']:,}"
    return None if entry.sha256 in (None, facts["sha256"]) else f"has sha256 {entry.sha256}, expected {facts['sha256']}"


def _as_pushed(wanted: HubFiles, commit: str, entry: Entry) -> RemoteFile:
    url = f"datasets/{wanted.repo}/resolve/{commit}/{MANIFEST}"
    return RemoteFile(PUSHED, url, entry.size_bytes, entry.sha256, None if entry.sha256 else entry.git_sha1)


def finish_pushed(folder: Path) -> None:
    """Give a complete download its manifest, with which it counts as finished."""
    data = read_bounded(folder / PUSHED)
    if (folder / MANIFEST).is_file() and read_bounded(folder / MANIFEST) == data:
        return
    with atomic_file(folder / MANIFEST) as file:
        file.write(data)
