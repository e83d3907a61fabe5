"""Read, check and write `manifest.json`, which lists the settings, sources, sizes and checksums of the files next to it.

It has no time and no machine name, so equal data has equal manifests. It is untrusted, so it is checked when read: names must
stay in the folder, and known values must have the right types. Unknown values are kept.
"""

import hashlib
import json
import platform
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bertprep.config import (
    GLUE,
    NER,
    SQUAD,
    SQUAD_VERSIONS,
    TASKS,
    InstanceSettings,
    RecordFormat,
    ShardSettings,
    SquadSettings,
    Variant,
)
from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file
from bertprep.files.checksums import BLAKE3
from bertprep.files.paths import sizes_of
from bertprep.options import rules_of
from bertprep.rules import Rule
from bertprep.untrusted import (
    BLAKE3_DIGITS,
    CORPUS,
    COUNT,
    FLAG,
    FRACTION,
    LIST,
    OBJECT,
    PLAIN_PATH,
    POSITIVE,
    SEED,
    SHA256_DIGITS,
    TEXT,
    TEXTS,
    check_path,
    check_values,
    hold_all,
    one_of,
    parse_json,
    read_bounded,
)
from bertprep.version import __version__
from bertprep.work.format import FORMAT, check_format
from bertprep.work.layout import DEV, MANIFEST, by_number
from bertprep.work.truncation import LARGEST_DOCUMENT, OVER_RULES, TRUNCATION, TRUNCATION_RULES

MAPPED_TEXT, TEXT_SHARDS, TOKEN_SHARDS, RECORDS, TASK_RECORDS, MDS = (
    "sorted text", "text shards", "token shards", "masked-LM records", "task records", "MDS",
)  # fmt: skip
RECORD_KINDS = (RECORDS, TASK_RECORDS)
UNCOVERED = "uncovered"
"""The key of a token shard's entry for the number of characters of its text that no token covers."""


@dataclass(frozen=True)
class Kind:
    """The rules for one kind of manifest: the keys of `made_with` and of a file's entry, and which of them are required."""

    made_with: Mapping[str, Rule]
    needed: tuple[str, ...]
    entry: Mapping[str, Rule]
    needed_in_entry: tuple[str, ...]


_FILE = {"bytes": COUNT, BLAKE3: BLAKE3_DIGITS, "documents": COUNT}
"""The keys that every file's entry may have. It needs the first two."""
_NEEDED = ("bytes", BLAKE3)
_CUT = {"shards": POSITIVE, "test_shards": COUNT, "test_fraction": FRACTION}
KINDS = {
    MAPPED_TEXT: Kind(
        made_with={},
        needed=(),
        entry={
            **_FILE, "empty": COUNT, "copies": COUNT, "text_bytes": COUNT, "runs": COUNT, "batches": COUNT,
            "content": BLAKE3_DIGITS, "changed": OBJECT,
        },
        needed_in_entry=(*_NEEDED, "documents"),
    ),
    TEXT_SHARDS: Kind(
        made_with={**rules_of(ShardSettings), **_CUT, "splitter": TEXT, "inputs": LIST, "test_inputs": LIST},  # of any version
        needed=("shards", "test_shards", "test_fraction"),
        entry={**_FILE, "crc32c": TEXT, "sentences": COUNT, "words": COUNT},
        needed_in_entry=(*_NEEDED, "crc32c", "documents", "sentences", "words"),
    ),
    TOKEN_SHARDS: Kind(
        made_with={
            **_CUT, "cased": FLAG, "corpus": CORPUS, "text_sha256": SHA256_DIGITS, "vocabulary": OBJECT, "eod": COUNT,
        },
        needed=(),  # `_OF_TOKENS`
        entry={**_FILE, "sentences": COUNT, "tokens": COUNT, "in_test": COUNT, UNCOVERED: COUNT, "text": OBJECT, **OVER_RULES},
        needed_in_entry=_NEEDED,
    ),
    MDS: Kind(
        made_with={"seq": POSITIVE, "column": TEXT, "tokenizer": OBJECT, "converted_from": OBJECT},
        needed=("seq", "column", "tokenizer"),
        entry={**_FILE, "samples": COUNT, "sha1": TEXT},
        needed_in_entry=(*_NEEDED, "samples", "sha1"),
    ),
    RECORDS: Kind(
        made_with={
            **_CUT, **rules_of(InstanceSettings), **rules_of(Variant), "corpus": CORPUS, "text_sha256": SHA256_DIGITS,
            "vocabulary": OBJECT, "converted_to": OBJECT, "converted_from": OBJECT,
        },
        needed=("seq",),  # records of a task that another tool wrote have no pred
        entry={**_FILE, "examples": COUNT, "seed": SEED, "text": OBJECT, TRUNCATION: OBJECT, LARGEST_DOCUMENT: COUNT},
        needed_in_entry=(*_NEEDED, "examples"),
    ),
    TASK_RECORDS: Kind(
        made_with={
            "task": one_of(*TASKS), "version": one_of(*SQUAD_VERSIONS), "name": CORPUS, "labels": TEXTS,
            **rules_of(SquadSettings), **rules_of(Variant), "corpus": CORPUS, "examples_per_file": POSITIVE,
            "inputs": LIST, "vocabulary": OBJECT, "converted_to": OBJECT, "converted_from": OBJECT,
        },
        needed=("task", "seq", "inputs"),
        entry={**_FILE, "examples": COUNT},
        needed_in_entry=(*_NEEDED, "examples"),
    ),
}  # fmt: skip
DECIDING = ("bertprep", "pyarrow", "tokenizers")
"""The packages whose other versions may write other bytes."""
_TOKEN = Rule(kinds=(int,), least=0, below=1 << 21)
_VOCABULARY = {"tokens": POSITIVE, "sha256": SHA256_DIGITS, "pad": _TOKEN}
_TEXT = {"bytes": COUNT, "crc32c": TEXT}
_ID, _IDS = replace(_TOKEN, optional=True), replace(_TOKEN, many=True)
_TOKENIZER = {
    "name": TEXT, "sha256": SHA256_DIGITS, "model": TEXT, "width": Rule(kinds=(int,), least=1, most=1 << 21),
    "cls": _ID, "sep": _ID, "pad": _ID, "mask": _ID, "unk": _ID, "special": _IDS, "words": TEXT,
}  # fmt: skip
_UNUSUAL = {"before": _IDS, "after": _IDS, "gaps": replace(_IDS, below=None, most=1 << 21)}
"""The keys that a tokenizer's entry has only if its template or its ids are unusual."""
_OF_TOKENS = ("cased", "vocabulary")
"""The required keys of `made_with` for token shards of sentences; those of documents have an object `tokenizer` instead."""
_OF_TASK = {SQUAD: ("version", "doc_stride", "max_query"), GLUE: ("name", "labels"), NER: ("name", "labels")}
"""Task -> the required keys of its `made_with`."""


@dataclass(frozen=True)
class Manifest:
    """The content of a manifest: the settings (`made_with`), the entry of each file by relative name, and other counts."""

    kind: str
    made_with: dict[str, Any]
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Manifest of {self.kind}: {len(self.files):,} files>"

    @property
    def vocabulary(self) -> dict[str, Any]:
        """The size, the sha256 and the id of [PAD] of the vocabulary, where they are known."""
        found: dict[str, Any] = self.made_with.get("vocabulary", {})
        return found

    @property
    def tokenizer(self) -> dict[str, Any] | None:
        """The description of the tokenizer of token shards of documents or of MDS; None for any other kind."""
        found = self.made_with.get("tokenizer")
        return found if self.kind in (TOKEN_SHARDS, MDS) and isinstance(found, dict) else None

    def as_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "kind": self.kind,
            "made_with": self.made_with,
            "versions": self.versions,
            **({"counts": self.counts} if self.counts else {}),
            "files": dict(sorted(self.files.items(), key=lambda item: by_number(item[0]))),
        }

    def as_bytes(self) -> bytes:
        return (json.dumps(self.as_json(), indent=1) + "\n").encode()


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a folder, or None if there is none (yet). Raises `BertprepError` if it is invalid."""
    path = folder / MANIFEST
    try:
        content = parse_json(read_bounded(path))
        check_format(path, content, "if another program wrote it, move it away; else remove the folder and make it again")
        return manifest_of(content)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BertprepError(
            f"{path}: is not a manifest of bertprep ({why}); restore the right one, or remove the folder and make it again"
        ) from error


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a folder. `Ledger.close` calls this once all files are finished."""
    with atomic_file(folder / MANIFEST, replace=True) as file:
        file.write(manifest.as_bytes())


def missing_files(folder: Path, files: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return those of the listed files that are missing or have another size."""
    sizes = sizes_of(folder, files)
    return [name for name, entry in files.items() if sizes.get(name) != entry["bytes"]]


def is_in_place(folder: Path, files: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether every listed file exists with the listed size."""
    return not missing_files(folder, files)


def sha256_of_questions(manifest: Manifest) -> str | None:
    """Return the sha256 of the questions in the dev split of a SQuAD data set; None if it has no dev split."""
    listed = manifest.made_with.get("inputs")
    listed = listed if isinstance(listed, list) else []
    inputs = [each for each in listed if isinstance(each, dict) and each.get("split") == DEV]
    found = inputs[0].get("sha256") if inputs else None
    return found if isinstance(found, str) else None


def sha256_of_vocabulary(manifest: Manifest | None) -> str | None:
    """Return the sha256 of the vocabulary with which the files were made; None if it is unknown."""
    sha256: str | None = manifest.vocabulary.get("sha256") if manifest else None
    return sha256


def sha256_of_text(sharded: Manifest) -> str:
    """Return one sha256 for the text of all shards, computed from the BLAKE3 of each."""
    return hashlib.sha256("".join(entry[BLAKE3] for _, entry in sorted(sharded.files.items())).encode()).hexdigest()


def packages_of(files: Collection[str]) -> list[str]:
    columnar = tuple(f".{each}" for each in RecordFormat if each.is_columnar)
    endings = {"pyarrow": columnar, "isal": (".gz",)}
    return ["llvmlite", "numpy", *(package for package, of in endings.items() if any(name.endswith(of) for name in files))]


def versions_of(*packages: str) -> dict[str, str]:
    versions = {"bertprep": __version__, "python": platform.python_version()}
    for package in packages:
        if package == "llvmlite":
            import llvmlite  # noqa: F401 - faster than reading its metadata
        version = getattr(sys.modules.get(package), "__version__", None)
        if version is None:
            import importlib.metadata  # takes 20 ms

            version = importlib.metadata.version(package)
        versions[package] = version
    return versions


def check_header(content: object) -> Kind:
    """Check the header of a manifest or ledger, and return the rules of its kind. Raises `ValueError` if it is invalid."""
    rules = {"kind": one_of(*KINDS), "made_with": OBJECT}
    header = check_values(content, rules, needed=tuple(rules))
    kind = KINDS[header["kind"]]
    made_with = check_values(header["made_with"], kind.made_with, needed=kind.needed, prefix="made_with.")
    check_values(made_with.get("vocabulary", {}), _VOCABULARY, prefix="made_with.vocabulary.")
    if header["kind"] in (TOKEN_SHARDS, MDS):
        _check_tokens(made_with)
    if kind is KINDS[TASK_RECORDS]:
        check_values(made_with, kind.made_with, needed=_OF_TASK[made_with["task"]], prefix="made_with.")
    return kind


def _check_tokens(made_with: dict[str, Any]) -> None:
    tokenizer = made_with.get("tokenizer")
    if not isinstance(tokenizer, dict):
        check_values(made_with, KINDS[TOKEN_SHARDS].made_with, needed=_OF_TOKENS, prefix="made_with.")
        return
    check_values(tokenizer, {**_TOKENIZER, **_UNUSUAL}, needed=tuple(_TOKENIZER), prefix="made_with.tokenizer.")
    ids = [tokenizer[name] for name, rule in _TOKENIZER.items() if rule is _ID and tokenizer[name] is not None]
    around, gaps = [*tokenizer.get("before", []), *tokenizer.get("after", [])], tokenizer.get("gaps", [])
    if len(gaps) % 2 or gaps != sorted(gaps) or (gaps and gaps[-1] > tokenizer["width"]):
        raise ValueError("made_with.tokenizer.gaps are not ranges of ids below its width")
    if (largest := max([*ids, *tokenizer["special"], *around], default=0)) >= tokenizer["width"]:
        raise ValueError(
            f"made_with.tokenizer has a special token {largest:,}, expected below its width, {tokenizer['width']:,}"
        )


def check_entry(name: object, entry: object, kind: Kind) -> None:
    """Check a file's name, relative to the folder, and its entry. Raises `ValueError` if one is invalid."""
    prefix = f"files.{check_path(name)}."
    checked = check_values(entry, kind.entry, needed=kind.needed_in_entry, prefix=prefix)
    if "text" in checked:
        check_values(checked["text"], _TEXT, needed=tuple(_TEXT), prefix=f"{prefix}text.")
    if TRUNCATION in checked:
        check_values(checked[TRUNCATION], TRUNCATION_RULES, needed=tuple(TRUNCATION_RULES), prefix=f"{prefix}{TRUNCATION}.")


def manifest_of(content: object) -> Manifest:
    """Check the content of a manifest, all but its format, and return it. Raises `ValueError` if it is invalid."""
    kind = check_header(content)
    rules = {"files": OBJECT, "versions": OBJECT, "counts": OBJECT}
    manifest = check_values(content, rules, needed=("files", "versions"))
    files, made_with = manifest["files"], manifest["made_with"]
    texts, truncations = (
        [entry[key] for entry in files.values() if isinstance(entry, dict) and key in entry] for key in ("text", TRUNCATION)
    )
    if not (
        all(map(PLAIN_PATH.fullmatch, files))
        and hold_all(files.values(), kind.entry, kind.needed_in_entry)
        and hold_all(texts, _TEXT, tuple(_TEXT))
        and hold_all(truncations, TRUNCATION_RULES, tuple(TRUNCATION_RULES))
    ):
        for name, entry in files.items():  # the slow check, which names the invalid entry
            check_entry(name, entry, kind)
    check_values(manifest["versions"], dict.fromkeys(manifest["versions"], TEXT), prefix="versions.")
    check_values(manifest.get("counts", {}), dict.fromkeys(manifest.get("counts", {}), COUNT), prefix="counts.")
    if kind is KINDS[TEXT_SHARDS] and (shards := made_with["shards"] + made_with["test_shards"]) != len(files):
        raise ValueError(f"it lists {len(files):,} files, expected the {shards:,} shards of made_with")
    return Manifest(manifest["kind"], made_with, files, manifest["versions"], manifest.get("counts", {}))
