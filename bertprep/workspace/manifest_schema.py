"""What manifests and journals must say, kind by kind: the rules that their known values keep to, and which must be there.

A manifest may come from anywhere. Once it is through here, the names in it are places in its folder and its numbers can be
calculated with; whoever holds one need not ask again. What these rules do not know is kept as it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bertprep.config import SPLITTERS
from bertprep.untrusted import (
    CORPUS,
    COUNT,
    FLAG,
    LIST,
    OBJECT,
    POSITIVE,
    SEED,
    SHA256,
    SHARE,
    TEXT,
    Rule,
    check_path,
    check_values,
    one_of,
    optional,
)

SCHEMA = 1
CLEANED_TEXT, TEXT_SHARDS, RECORDS = "cleaned text", "text shards", "masked-LM records"


@dataclass(frozen=True)
class Kind:
    """The rules for `made_with` and for the facts of each file, and what of both must be there."""

    made_with: Mapping[str, Rule]
    needed: tuple[str, ...]
    facts: Mapping[str, Rule]
    needed_facts: tuple[str, ...]


_LENGTH = Rule("a number of tokens, 1 to 1,048,576", lambda value: type(value) is int and 1 <= value <= 1 << 20)
_FILE = {"bytes": COUNT, "sha256": SHA256, "documents": COUNT}
_CUT = {"shards": POSITIVE, "test_shards": COUNT, "test_fraction": SHARE}
KINDS = {
    CLEANED_TEXT: Kind(
        made_with={"rules": COUNT},
        needed=("rules",),
        facts={**_FILE, "source": COUNT, "empty": COUNT, "made_of": OBJECT, "splitter": one_of(*SPLITTERS)},
        needed_facts=("bytes", "sha256", "documents", "source", "empty", "made_of"),
    ),
    TEXT_SHARDS: Kind(
        made_with={**_CUT, "inputs": LIST, "splitter": TEXT, "language": optional(TEXT), "keep_duplicates": FLAG},
        needed=("shards", "test_shards", "test_fraction"),
        facts={**_FILE, "sentences": COUNT, "words": COUNT},
        needed_facts=("bytes", "sha256", "documents", "sentences", "words"),
    ),
    RECORDS: Kind(
        made_with={
            **_CUT, "seq": _LENGTH, "pred": _LENGTH, "dupe": POSITIVE, "masked_lm_prob": SHARE, "short_seq_prob": SHARE,
            "seed": SEED, "one_seed": FLAG, "whole_word": FLAG, "cased": FLAG, "corpus": CORPUS, "text_sha256": SHA256,
            "vocabulary": OBJECT, "converted_to": OBJECT, "converted_from": OBJECT,
        },
        needed=("seq", "pred"),
        facts={**_FILE, "examples": COUNT, "seed": SEED, "text": OBJECT},
        needed_facts=("bytes", "sha256", "examples"),
    ),
}  # fmt: skip
_VOCABULARY = {"tokens": POSITIVE, "sha256": SHA256}
_TEXT = {"bytes": COUNT, "crc32c": TEXT}


def check_header(content: object) -> Kind:
    """What a manifest and the first line of a journal begin with; returns the rules of its kind, or raises `ValueError`."""
    rules = {"schema": COUNT, "kind": TEXT, "made_with": OBJECT}
    header = check_values(content, rules, needed=tuple(rules))
    if header["schema"] > SCHEMA:
        raise ValueError(f"it has schema {header['schema']}, expected {SCHEMA}: a newer bertprep made it, which reads it")
    check_values(header, {"schema": POSITIVE, "kind": one_of(*KINDS)})
    kind = KINDS[header["kind"]]
    made_with = check_values(header["made_with"], kind.made_with, needed=kind.needed, place="made_with.")
    check_values(made_with.get("vocabulary", {}), _VOCABULARY, place="made_with.vocabulary.")
    return kind


def check_entry(name: object, facts: object, kind: Kind) -> None:
    """A file, its name relative to the folder, and what is known of it; raises `ValueError`."""
    place = f"files.{check_path(name)}."
    checked = check_values(facts, kind.facts, needed=kind.needed_facts, place=place)
    if "text" in checked:
        check_values(checked["text"], _TEXT, needed=tuple(_TEXT), place=f"{place}text.")


def check_manifest(content: object) -> dict[str, Any]:
    """The content of a whole manifest; raises `ValueError` for what is none, or could not be relied on."""
    kind = check_header(content)
    rules = {"files": OBJECT, "versions": OBJECT, "counts": OBJECT}
    manifest = check_values(content, rules, needed=("files", "versions"))
    files, made_with = manifest["files"], manifest["made_with"]
    for name, facts in files.items():
        check_entry(name, facts, kind)
    check_values(manifest["versions"], dict.fromkeys(manifest["versions"], TEXT), place="versions.")
    check_values(manifest.get("counts", {}), dict.fromkeys(manifest.get("counts", {}), COUNT), place="counts.")
    if kind is KINDS[TEXT_SHARDS] and (shards := made_with["shards"] + made_with["test_shards"]) != len(files):
        raise ValueError(f"files are {len(files):,}, expected the {shards:,} shards of made_with")
    return manifest
