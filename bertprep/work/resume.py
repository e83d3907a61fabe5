"""Says what to do about an unfinished folder: wait for the process that is making it, or run a command that finishes it.

The command is derived from the ledger, the names of the folders and the vocabularies of the workspace. What the user gave to
--input or --dataset is not recorded, and a vocabulary may be anywhere; then only the name of the command is known.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from bertprep.config import DEFAULT_FORMATS, RECORD_FORMATS, InstanceSettings, Variant
from bertprep.errors import BertprepError
from bertprep.files.atomic import remove_folder
from bertprep.files.checksums import SHA256
from bertprep.files.lock import LOCK, is_held
from bertprep.files.paths import checksum_of, is_object, real_path
from bertprep.options import command_line
from bertprep.work.format import FormatError
from bertprep.work.layout import LEDGER, LISTING, MAPPED, TOKENS, VOCABULARY, Workspace
from bertprep.work.ledger import is_started
from bertprep.work.manifest import RECORDS, TOKEN_SHARDS
from bertprep.work.settings import SETTINGS_FILE, read_settings

AnySettings = TypeVar("AnySettings", InstanceSettings, Variant)
WAIT = "a process is making it now; wait until it has finished"
_DEFAULT_WORKDIR = Path("data")
_LITTLE_BYTES = 24_000_000
"""The most prepared text that is made again in a few seconds."""


def what_finishes(folder: Path) -> str:
    """Return what to do about an unfinished folder: wait for the process that is making it, or run its command again."""
    if is_being_made(folder):
        return WAIT
    if (folder / MAPPED).exists():
        return _run_again("shard")
    if (folder / LISTING).exists():
        return _run_again("download")
    try:
        if settings := read_settings(folder):
            name = settings["command"]
            options = _options_of(folder, settings) if name in ("create", "tokenize") else None
            return _run_again(name) if options is None else f"finish it with: {shlex.join(['bertprep', name, *options])}"
    except FormatError:
        raise
    except BertprepError:  # a corrupt ledger
        pass
    return "run the command that makes it again, which resumes it"


def _run_again(name: str) -> str:
    return f"run the bertprep {name} command that began it again, which resumes it"


def is_being_made(folder: Path) -> bool:
    """Return whether a process on this machine, or on one that shares the locks of the file system, is making a folder."""
    if is_object(folder):
        return False
    steps = (folder / MAPPED).rglob(f"{LEDGER}/{SETTINGS_FILE}")
    return any(map(is_held, (folder / LEDGER / SETTINGS_FILE, folder / LOCK, *steps)))


@contextmanager
def without_prepared(folder: Path, prepared: Path) -> Iterator[None]:
    """If the block refuses the text of a folder, remove the files in `prepared` that were made of it on the way.

    So a refused command leaves nothing. Much prepared text stays for the command that corrects the request, and so does text
    that another process uses.
    """
    try:
        yield
    except BertprepError:
        is_here = real_path(prepared) == real_path(folder) / prepared.relative_to(folder)  # not behind a link
        size_bytes = sum(path.stat().st_size for path in prepared.rglob("*") if path.is_file())
        if is_here and size_bytes <= _LITTLE_BYTES and not is_being_made(folder):
            remove_folder(prepared)
            with suppress(OSError):  # it has other files
                prepared.parent.rmdir()
        raise


def _options_of(folder: Path, header: dict[str, Any]) -> list[str] | None:
    """Return the options that made a folder of a workspace from a corpus, without defaults; None if they are not known."""
    kind, made_with = header["kind"], header["made_with"]
    if len(folder.parents) < 3:  # such as ".", in which the user is
        folder = folder.absolute()
    known_formats = {RECORDS: RECORD_FORMATS, TOKEN_SHARDS: (TOKENS,)}.get(kind, ())
    is_of_corpus = "text_sha256" in made_with and folder.name == made_with.get("corpus") and len(folder.parents) >= 3
    if not is_of_corpus or folder.parents[1].name not in known_formats:
        return None
    workspace = Workspace(folder.parents[2])
    vocabulary = _vocabulary_option(workspace, made_with)
    if vocabulary is None:
        return None
    options = ["--corpus", folder.name]
    if kind == RECORDS:
        options += command_line(_settings_in(InstanceSettings, made_with), _settings_in(Variant, made_with))
        options += _format_option(workspace, folder)
    elif made_with["cased"]:
        options.append("--cased")
    options += vocabulary
    return options if workspace.root == _DEFAULT_WORKDIR else [*options, "--workdir", str(workspace.root)]


def _settings_in(settings: type[AnySettings], made_with: dict[str, Any]) -> AnySettings:
    names = {each.name for each in fields(settings)}
    return settings(**{name: value for name, value in made_with.items() if name in names})


def _format_option(workspace: Workspace, folder: Path) -> list[str]:
    """Return --format with all record formats that were begun with these settings; nothing if these are the default."""
    begun = [each for each in RECORD_FORMATS if is_started(workspace.records(each, folder.parent.name, folder.name))]
    return [] if set(begun) == set(DEFAULT_FORMATS) else ["--format", ",".join(begun)]


def _vocabulary_option(workspace: Workspace, made_with: dict[str, Any]) -> list[str] | None:
    """Return the --vocab for the vocabulary with the recorded checksum, nothing if it is the default; None if it is missing."""
    expected = made_with.get("vocabulary", {}).get("sha256")
    found = next((path for path in _vocabularies_of(workspace) if checksum_of(path, SHA256) == expected), None)
    if found is None:
        return None
    corpus, is_cased = made_with["corpus"], made_with.get("cased", False)
    of_corpus = [each.path for each in workspace.trained_vocabularies() if each.corpus == corpus and each.is_cased == is_cased]
    return [] if of_corpus == [found] else ["--vocab", str(found)]


def _vocabularies_of(workspace: Workspace) -> Iterator[Path]:
    yield from workspace.vocabularies()
    for kind in ("vocab", "weights"):
        yield from sorted(workspace.download(kind).rglob(VOCABULARY))
