"""The root of a data set: the folder of its manifest and vocabulary, above its splits, since trainers read all files of a
split.

Folders of bertprep 0.2 (one root for all formats, with --output) and 0.1.0 (both among the records) are read too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from bertprep.config import RECORD_FORMATS
from bertprep.files.places import real_path
from bertprep.untrusted import parse_json, read_bounded
from bertprep.work import ledger
from bertprep.work.layout import LISTING, MANIFEST, SPLIT_NAMES, VOCABULARY
from bertprep.work.manifest import Manifest, read_manifest


@dataclass(frozen=True)
class Root:
    """The folder of a manifest, and the prefix of some records' names in it, where it lists several formats."""

    folder: Path
    prefix: str = ""

    @cached_property
    def manifest(self) -> Manifest | None:
        """The manifest's part about these records; raises `BertprepError` for an invalid one."""
        return self.part_of(read_manifest(self.folder))

    def part_of(self, manifest: Manifest | None) -> Manifest | None:
        """Return the manifest of these records alone, by names in their folder; None if it lists none of them."""
        if manifest is None or not manifest.files:
            return manifest
        others = tuple(f"{name}/" for name in formats_in(manifest)) if not self.prefix else ()
        names = (name for name in manifest.files if name.startswith(self.prefix) and not name.startswith(others))
        files = {name.removeprefix(self.prefix): manifest.files[name] for name in names}
        return replace(manifest, files=files) if files else None

    @property
    def is_unfinished(self) -> bool:
        """Whether a run or a download that makes the folder was stopped, or is working."""
        is_downloaded = (self.folder / LISTING).exists()  # its manifest comes when it is complete
        return ledger.is_unfinished(self.folder) or (is_downloaded and not (self.folder / MANIFEST).exists())


def find_root(folder: Path) -> Root:
    """Return the root of the records in `folder`: that folder, or the one above a format's folder that lists them."""
    if not (ledger.is_begun(folder) or (folder / MANIFEST).exists()):
        for path in (folder, real_path(folder)):
            if path.name in RECORD_FORMATS and _lists(path.parent, f"{path.name}/"):
                return Root(path.parent, f"{path.name}/")
    return Root(folder)


def find_vocabulary(folder: Path) -> Path | None:
    """Return the vocabulary of the records: next to their manifest, among them, or above."""
    absolute = folder.absolute()
    above = [absolute, *absolute.parents][: 3 if absolute.name in SPLIT_NAMES else 2]
    paths = (each / VOCABULARY for each in (find_root(folder).folder, *above))
    return next((path for path in paths if path.is_file()), None)


def formats_in(manifest: Manifest | None) -> list[str]:
    """Return the formats that have a folder next to a manifest."""
    files = manifest.files if manifest else ()
    return [name for name in RECORD_FORMATS if any(file.startswith(f"{name}/") for file in files)]


def _lists(folder: Path, prefix: str) -> bool:
    """Return whether `folder` has a manifest with such files, an unfinished or an unreadable one."""
    if ledger.is_begun(folder):
        return True
    try:
        content = parse_json(read_bounded(folder / MANIFEST))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        return True
    files = content.get("files") if isinstance(content, dict) and "made_with" in content else None
    return isinstance(files, dict) and any(name.startswith(prefix) for name in files)
