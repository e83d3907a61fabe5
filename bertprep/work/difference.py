"""How two runs differ, as command line options."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from bertprep.config import GlueSettings, InstanceSettings, ShardSettings, SquadSettings, Variant
from bertprep.errors import BertprepError
from bertprep.work.manifest import MDS, RECORDS, SCHEMA, TASK_RECORDS, TEXT_SHARDS, TOKEN_SHARDS


def _options_of(*settings: type) -> dict[str, str]:
    return {field.name: "--" + field.name.replace("_", "-") for each in settings for field in fields(each)}


_CONVERT_OPTIONS = {
    **_options_of(Variant),
    **{f"converted_to.{name}": option for name, option in (("format", "--to"), ("shards", "--shards"), ("pick", "--pick"))},
}
_OPTIONS = {
    TEXT_SHARDS: {**_options_of(ShardSettings), "inputs": "--input"},
    TOKEN_SHARDS: {"cased": "--cased", "corpus": "--corpus", "vocabulary": "--vocab"},
    MDS: {"seq": "--seq", "column": "--column"},
    RECORDS: {**_options_of(InstanceSettings, Variant), "corpus": "--corpus", "vocabulary": "--vocab"},
    TASK_RECORDS: {
        **_options_of(SquadSettings, GlueSettings, Variant),
        "task": "task",
        "version": "--version",
        "name": "name",
        "labels": "--labels",
        "inputs": "--input",
        "vocabulary": "--vocab",
    },
}
"""The option for each field of `made_with`, by kind; `convert` has some of its own."""


def describe_difference(found: dict[str, Any], asked: dict[str, Any]) -> str:
    """Return the first difference of two headers, as command line options if possible.

    >>> found, asked = ({"kind": RECORDS, "made_with": {"seq": seq}} for seq in (128, 512))
    >>> describe_difference(found, asked)
    'was made with --seq 128, this run has --seq 512'
    """
    name, before, now = _first_difference("", found, asked)
    if name == "converted_to":
        return f"was {'not ' if before is None else ''}made by bertprep convert"
    options = _CONVERT_OPTIONS if "converted_to" in asked["made_with"] else _OPTIONS.get(asked["kind"], {})
    option = options.get(name)
    if option is None:
        setting = name.removeprefix("number of ").partition(".")[0].partition("[")[0]
        values = f"{name} {_shown(before)}, this run has {_shown(now)}"
        return f"was made with another {options[setting]}: {values}" if setting in options else f"was made with {values}"
    made, wanted = (_with_option(option, value) for value in (before, now))
    return f"was made {made or f'without {option}'}, this run has {wanted.removeprefix('with ') or f'no {option}'}"


def _with_option(option: str, value: Any) -> str:
    """Return an option and its value; "" if it was not given."""
    if value is None or value is False:
        return ""
    return f"with {option}" if value is True else f"with {option} {value}"


def _first_difference(name: str, found: Any, wanted: Any) -> tuple[str, Any, Any]:
    """Return the innermost name under which two values differ, and both values.

    >>> _first_difference("", {"made_with": {"inputs": [{"bytes": 5}]}}, {"made_with": {"inputs": [{"bytes": 6}]}})
    ('inputs[0].bytes', 5, 6)
    """
    if isinstance(found, dict) and isinstance(wanted, dict):
        differing = [key for key in {**wanted, **found} if found.get(key) != wanted.get(key)]
        key = "pairs" if "pairs" in differing else differing[0]  # without them there is no --short-seq-prob either
        prefix = "" if name in ("", "made_with") else f"{name}."
        return _first_difference(prefix + key, found.get(key), wanted.get(key))
    if isinstance(found, list) and isinstance(wanted, list):
        if len(found) != len(wanted):
            return f"number of {name}", len(found), len(wanted)
        index = next(index for index, item in enumerate(found) if item != wanted[index])
        return _first_difference(f"{name}[{index}]", found[index], wanted[index])
    return name, found, wanted


def _shown(value: Any) -> str:
    """Return a setting in an error: as JSON, a long one cut."""
    text = "none" if value is None else json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def make_header(kind: str, made_with: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a run, as its manifest and its ledger have them."""
    return {"schema": SCHEMA, "kind": kind, "made_with": json.loads(json.dumps(made_with))}


def check_same(folder: Path, found: dict[str, Any], asked: dict[str, Any], advice: str) -> None:
    """Raise `BertprepError` if the header found in a folder is not the run's, naming the first difference."""
    if found != asked:
        raise BertprepError(f"{folder}: {describe_difference(found, asked)}; {advice}, or remove this folder")
