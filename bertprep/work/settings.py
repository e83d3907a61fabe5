"""The settings that decide the files of a folder, and messages about a run whose settings differ from them.

While a folder is made they are in .ledger/settings.json, afterwards in manifest.json: format, kind and made_with, which are the
header, and versions. settings.json also has the command.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from bertprep.config import GlueSettings, InstanceSettings, ShardSettings, SquadSettings, Variant
from bertprep.errors import BertprepError
from bertprep.terminal import counted
from bertprep.untrusted import OBJECT, TEXT, check_values, one_of, parse_json, read_bounded
from bertprep.work.format import FORMAT, check_format
from bertprep.work.layout import LEDGER
from bertprep.work.manifest import (
    MAPPED_TEXT,
    MDS,
    RECORDS,
    TASK_RECORDS,
    TEXT_SHARDS,
    TOKEN_SHARDS,
    check_header,
)

SETTINGS_FILE = "settings.json"
_COMMANDS = {
    MAPPED_TEXT: "shard", TEXT_SHARDS: "shard", TOKEN_SHARDS: "tokenize", MDS: "convert", RECORDS: "create",
    TASK_RECORDS: "task",
}  # fmt: skip
_RULES = {"versions": OBJECT, "command": one_of(*_COMMANDS.values())}
_OPTIONS = {
    **{each.name: each.name for of in (InstanceSettings, Variant, SquadSettings, GlueSettings) for each in fields(of)},
    "corpus": "corpus", "version": "version", "labels": "labels", "vocabulary": "vocab", "column": "column",
    "dtype": "dtype", "eod": "append_eod", "converted_to.format": "to", "converted_to.shards": "shards",
    "converted_to.pick": "pick",
}  # fmt: skip
_OF_SHARD = {**{each.name: each.name for each in fields(ShardSettings)}, "inputs": "input"}
"""Field of `made_with` -> option, for text shards: only `shard` has an option for their number."""
_OF_INPUT = {"field": "field", "one_document": "one_document_per_file"}

_MISSING = object()  # since null is a value


def describe_difference(found: dict[str, Any], asked: dict[str, Any]) -> str:
    """Return a description of the first difference between two headers, as command line options if possible.

    >>> found, asked = ({"kind": "masked-LM records", "made_with": {"seq": seq}} for seq in (128, 512))
    >>> describe_difference(found, asked)
    'was made with --seq 128, but this run has --seq 512'
    >>> found, asked = ({"kind": "token shards", "made_with": {"shards": shards, "test_shards": 1}} for shards in (4, 8))
    >>> describe_difference(found, asked)
    'was made of 4 text shards, but this run has 8'
    """
    name, before, now = _first_difference("", found, asked)
    if before is None and now is None:
        return f"differs from this run in {name}: one has null, the other nothing"
    if name == "test_inputs" and None in (before, now):
        return (
            f"was made with{'out' if before is None else ''} --test-input, but this run has {'none' if now is None else 'one'}"
        )
    if name == "converted_to":
        return f"was {'not ' if before is None else ''}made by bertprep convert"
    if name == "shards" and isinstance(before, int) and isinstance(now, int) and asked["kind"] != TEXT_SHARDS:
        is_of_corpus = "test_shards" in asked["made_with"]
        what = "text shards" if is_of_corpus else "--input files"
        return f"was made of {before:,} {what}, but this run has {now:,}"
    if name == "eod":  # the id of the token that --append-eod adds
        before, now = before is not None, now is not None
    options = _OF_SHARD if asked["kind"] == TEXT_SHARDS else _OPTIONS
    if name.startswith("inputs["):
        options, name, before, now = _OF_INPUT, *_setting_of_input(name, before, now)
    if name in options:
        option = "--" + options[name].replace("_", "-")
        made, wanted = _with_value(option, before), _with_value(option, now)
        return f"was made {f'with {made}' if made else f'without {option}'}, but this run has {wanted or f'no {option}'}"
    setting = name.removeprefix("number of ").partition(".")[0].partition("[")[0]
    of = {"vocabulary": "another --vocab: ", "inputs": "another --input: ", "test_inputs": "another --test-input: "}.get(
        setting, ""
    )
    return f"was made with {of}{name} {show_setting(before)}, but this run has {show_setting(now)}"


def _with_value(option: str, value: Any) -> str:
    """Return an option with its value as on a command line, "" if it is not given."""
    if value is None or value is False:
        return ""
    return option if value is True else f"{option} {value}"


def _first_difference(name: str, found: Any, wanted: Any) -> tuple[str, Any, Any]:
    """Return the innermost name under which two values differ, and both values.

    >>> _first_difference("", {"made_with": {"inputs": [{"bytes": 5}]}}, {"made_with": {"inputs": [{"bytes": 6}]}})
    ('inputs[0].bytes', 5, 6)
    """
    if isinstance(found, dict) and isinstance(wanted, dict):
        keys = {**wanted, **found}
        differing = [key for key in keys if found.get(key, _MISSING) != wanted.get(key, _MISSING)]
        # these two change other settings too: --short-seq-prob and --test-fraction
        key = next((each for each in ("pairs", "test_inputs") if each in differing), differing[0])
        prefix = "" if name in ("", "made_with") else f"{name}."
        return _first_difference(prefix + key, found.get(key), wanted.get(key))
    if isinstance(found, list) and isinstance(wanted, list):
        if len(found) != len(wanted):
            return f"number of {name}", len(found), len(wanted)
        index = next(index for index, item in enumerate(found) if item != wanted[index])
        return _first_difference(f"{name}[{index}]", found[index], wanted[index])
    return name, found, wanted


def _setting_of_input(name: str, before: Any, now: Any) -> tuple[str, Any, Any]:
    """Return a difference between two inputs, under the name in `_OF_INPUT` if an option caused it, else unchanged.

    >>> _setting_of_input("inputs[3].reader", "whole", "text")
    ('one_document', True, False)
    """
    setting = name.rpartition("].")[2]
    if setting == "reader" and {before, now} == {"text", "whole"}:  # compressed text, whose entry has its reader
        return "one_document", before == "whole", now == "whole"
    return (setting if setting in _OF_INPUT else name), before, now


def show_setting(value: Any) -> str:
    text = "none" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def make_header(kind: str, made_with: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a run in the form that its manifest and its ledger record."""
    return {"format": FORMAT, "kind": kind, "made_with": json.loads(json.dumps(made_with))}


def check_same(folder: Path, found: dict[str, Any], asked: dict[str, Any], advice: str, *, is_part: bool = False) -> None:
    """Raise `BertprepError`, which names the first difference, if a folder's header is not that of the run.

    If the run `is_part` of a folder that other parts are making too, nobody is told to remove the folder.
    """
    if found != asked:
        if is_part:
            advice = _advise_part(found["made_with"], asked["made_with"], advice)
        else:
            advice += ", or remove this folder"
        raise BertprepError(f"{folder}: {describe_difference(found, asked)}; {advice}")


def _advise_part(others: dict[str, Any], own: dict[str, Any], advice: str) -> str:
    """Return what to do about a part whose text or options are not those of the other parts; `advice` is for other options.

    >>> _advise_part({"inputs": [{"bytes": 5}, {"bytes": 6}]}, {"inputs": [{"bytes": 5}]}, "choose another --corpus")
    'the other parts read 2 files; give this part the same files, and run it again'
    >>> _advise_part({"shards": 1}, {"shards": 3}, "choose another --output")  # of create --input
    'the other parts read 1 file; give this part the same files, and run it again'
    """
    read, given = _number_of_inputs(others), _number_of_inputs(own)
    if read and (read != given or others.get("inputs") != own.get("inputs")):
        files = "files with other content" if read == given else counted(read, "file")
        return f"the other parts read {files}; give this part the same files, and run it again"
    return f"give this part the options and files of the other parts, or {advice}"


def _number_of_inputs(made_with: dict[str, Any]) -> int:
    """Return the number of files of --input that a run reads, 0 if it reads the text shards of a corpus."""
    if "inputs" in made_with:
        return len(made_with["inputs"])
    return 0 if "test_shards" in made_with else int(made_with.get("shards", 0))


def command_for(header: dict[str, Any]) -> str:
    """Return the command that usually makes a folder with these settings."""
    return "convert" if "converted_to" in header["made_with"] else _COMMANDS[header["kind"]]


def read_settings(folder: Path) -> dict[str, Any] | None:
    """Return the checked settings of an unfinished folder: its header, versions and command. None for any other folder."""
    path = folder / LEDGER / SETTINGS_FILE
    try:
        content = parse_json(read_bounded(path))
        check_format(path, content, f"remove {folder}, and run the command again")
        settings = check_values(content, _RULES, needed=tuple(_RULES))
        check_header(settings)
        check_values(settings["versions"], dict.fromkeys(settings["versions"], TEXT), prefix="versions.")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise corrupt(path, error) from error
    return settings


def read_header(folder: Path) -> dict[str, Any] | None:
    """Return the header of an unfinished folder, checked, or None for any other folder."""
    settings = read_settings(folder)
    return settings and {name: settings[name] for name in ("format", "kind", "made_with")}


def corrupt(path: Path, error: Exception) -> BertprepError:
    """Return the error for a corrupt file of a ledger."""
    why = getattr(error, "strerror", None) or error
    return BertprepError(f"{path}: is corrupt ({why}); remove it, and run the command again")
