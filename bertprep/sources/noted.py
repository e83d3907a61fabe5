"""Notes from which files the text shards of a corpus were made, so that `tokenize --corpus` can read their lines again.

The note is a file of the workspace, WORKDIR/.sources/CORPUS.json, apart from the shards and their manifest, because equal text
has equal manifests wherever it is. The note is a hint: its readers compare the files with the identities in the manifest.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bertprep.errors import BertprepError
from bertprep.files.atomic import write_if_different
from bertprep.files.checksums import BLAKE3, SHA256
from bertprep.files.paths import as_path, checksum_of
from bertprep.sources.documents import READERS, Source
from bertprep.sources.readers import is_local, is_url
from bertprep.untrusted import COUNT, LIST, OBJECT, TEXT, check_values, one_of, parse_json, read_bounded
from bertprep.work.format import FORMAT
from bertprep.work.layout import SPLITS, Workspace

_NOTE = {"format": COUNT, "sources": LIST}
_RULES = {
    "location": TEXT, "reader": one_of(*READERS), "identity": OBJECT, "field": TEXT, "split": one_of(*SPLITS),
    "joined_by": replace(TEXT, optional=True),
}  # fmt: skip


class SourcesGoneError(BertprepError):
    """The files from which text shards were made cannot be read again; the message says why."""


def note_sources(workspace: Workspace, corpus: str, sources: Sequence[Source]) -> None:
    """Note the files of a corpus, unless some of its text is only in memory, in a dump or at the URL of another server."""
    if any(source.is_stream or not is_local(source.location) for source in sources):
        return
    noted = [
        {
            "location": source.location if is_url(source.location) else str(Path(source.location).absolute()),
            "reader": source.reader,
            "identity": source.identity,
            "field": source.field,
            "split": source.split,
            "joined_by": source.joined_by,
        }
        for source in sources
    ]
    note = {"format": FORMAT, "sources": noted}
    write_if_different(workspace.sources(corpus), (json.dumps(note, indent=1) + "\n").encode())


def noted_sources(workspace: Workspace, corpus: str) -> list[Source]:
    """Return the files that were noted for a corpus; none if there is no valid note of this format."""
    try:
        note = check_values(parse_json(read_bounded(workspace.sources(corpus))), _NOTE, needed=tuple(_NOTE))
        noted = note["sources"] if note["format"] == FORMAT else []
        return [Source(**check_values(each, _RULES, needed=tuple(_RULES))) for each in noted]
    except (OSError, ValueError, TypeError):
        return []


def is_unchanged(source: Source) -> bool:
    """Return whether a noted file exists and has the checksum of its identity; plain text is compared when it is hashed."""
    path = as_path(source.location)
    if not path.is_file():
        return False
    listed = [(name, source.identity[name]) for name in (BLAKE3, SHA256) if name in source.identity]
    return all(checksum_of(path, name) == digits for name, digits in listed)
