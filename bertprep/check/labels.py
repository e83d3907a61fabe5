"""Name data sets and their settings in words that a person recognizes, for the page and the tables of `validate`.

A name has the format, the corpus or task, and the length of the records. Equal names are extended by the settings in which the
data sets differ, or else by their folders.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bertprep.check.outcome import Outcome
from bertprep.config import GLUE, NER, RECORD_FORMATS, SQUAD, UNPAIRED
from bertprep.terminal import counted, listed
from bertprep.work.manifest import TEXT_SHARDS, TOKEN_SHARDS
from bertprep.work.settings import show_setting

_TASK_TITLES = {SQUAD: "SQuAD", GLUE: "GLUE", NER: "NER"}
_FORMATS = {TEXT_SHARDS: "Text shards", TOKEN_SHARDS: "Token shards", **{str(each): each.label for each in RECORD_FORMATS}}
_MAX_VALUE = 200  # the maximum length of a setting
_MAX_DETAILS = 100  # settings that are folded away
_PACKAGES = {"python": "Python", "numpy": "NumPy"}


def name_outcomes(outcomes: Sequence[Outcome]) -> list[str]:
    """Return a name for each data set, no two alike."""
    names = [_plain_name(outcome) for outcome in outcomes]
    for name in [name for name, times in Counter(names).items() if times > 1]:
        alike = [index for index, each in enumerate(names) if each == name]
        suffixes = _differences([outcomes[index] for index in alike])
        for index, suffix in zip(alike, suffixes, strict=True):
            names[index] = f"{name} ({suffix})"
    return names


def _plain_name(outcome: Outcome) -> str:
    made_with = outcome.manifest.made_with if outcome.manifest else {}
    of_task = made_with.get("name") or made_with.get("version") or ""
    what = made_with.get("corpus") or outcome.folder.absolute().name
    if made_with.get("task") in _TASK_TITLES:
        what = f"{_TASK_TITLES[made_with['task']]} {of_task}".rstrip()
    name = f"{_FORMATS.get(outcome.kind, outcome.kind)}: {what}"
    return f"{name}, {outcome.seq:,} tokens" if outcome.seq else name


def _differences(outcomes: Sequence[Outcome]) -> list[str]:
    """Return for each data set of one name the settings in which they differ, or the folders if settings do not suffice."""
    settings = [dict(show_settings(outcome)) for outcome in outcomes]
    names = dict.fromkeys(name for each in settings for name in each)
    differing = [name for name in names if len({each.get(name) for each in settings}) > 1 and name != "Vocabulary"][:3]
    suffixes = [", ".join(f"{name.lower()} {each.get(name, 'unknown')}" for name in differing) for each in settings]
    if differing and len(set(suffixes)) == len(suffixes):
        return suffixes
    folders = [outcome.folder.as_posix() for outcome in outcomes]
    if len(set(folders)) == len(folders):
        return folders
    return [f"{folder}, {number}" for number, folder in enumerate(folders, 1)]


def show_settings(outcome: Outcome) -> list[tuple[str, str]]:
    """Return the settings that determine the records, each with its value in words; none without a manifest."""
    made_with = outcome.manifest.made_with if outcome.manifest else {}
    settings = []
    for key, (name, value_of) in _SETTINGS.items():
        if key in made_with and (value := value_of(made_with)):
            settings.append((name, _shortened(value)))
    return settings


def show_details(outcome: Outcome) -> list[tuple[str, str]]:
    """Return the other entries of the manifest: generator, checksums, inputs, versions."""
    if not outcome.manifest:
        return []
    made_with, versions = outcome.manifest.made_with, outcome.manifest.versions
    rest = {key: value for key, value in made_with.items() if key not in _SETTINGS and key not in _PARTS}
    details = [*_flatten("", rest)]
    if isinstance(vocabulary := made_with.get("vocabulary"), dict):
        details += [("vocabulary sha256", str(vocabulary["sha256"]))] if "sha256" in vocabulary else []
    if isinstance(tokenizer := made_with.get("tokenizer"), dict):
        details += _flatten("tokenizer", tokenizer)
    details += [(f"version of {_PACKAGES.get(name, name)}", str(version)) for name, version in versions.items()]
    shown = [(name, _shortened(value)) for name, value in details[:_MAX_DETAILS]]
    return [*shown, ("more", counted(len(details) - _MAX_DETAILS, "setting"))] if len(details) > _MAX_DETAILS else shown


def _flatten(prefix: str, value: Any) -> list[tuple[str, str]]:
    """Return the values in nested settings, each with its path, such as "converted to format"."""
    if isinstance(value, Mapping):
        return [row for key, each in value.items() for row in _flatten(f"{prefix} {key}".strip().replace("_", " "), each)]
    if isinstance(value, list) and any(isinstance(each, (dict, list)) for each in value):
        return [row for number, each in enumerate(value[:_MAX_DETAILS], 1) for row in _flatten(f"{prefix} {number}", each)]
    if isinstance(value, list):
        return [(prefix, listed([str(each) for each in value]))]
    if isinstance(value, bool):
        return [(prefix, "yes" if value else "no")]
    return [(prefix, show_setting(value))]


def _shortened(value: str) -> str:
    return value if len(value) <= _MAX_VALUE else f"{value[:_MAX_VALUE]}..."


def _percent(value: float) -> str:
    return f"{value:.3%}".rstrip("%").rstrip("0").rstrip(".") + "%"


def _seed(made_with: Mapping[str, Any]) -> str:
    return f"{made_with['seed']}, {'the same for' if made_with.get('one_seed') else 'plus its number for'} each shard"


def _vocabulary(made_with: Mapping[str, Any]) -> str:
    vocabulary = made_with["vocabulary"]
    return f"{vocabulary['tokens']:,} tokens" if isinstance(vocabulary, dict) and "tokens" in vocabulary else ""


def _tokenizer(made_with: Mapping[str, Any]) -> str:
    tokenizer = made_with["tokenizer"]
    if not isinstance(tokenizer, dict):
        return "BERT's WordPiece"
    return f"{tokenizer['name']}, {tokenizer['model']}, {tokenizer['width']:,} tokens"


def _pairs(made_with: Mapping[str, Any]) -> str:
    return "none, full sentences" if made_with["pairs"] == UNPAIRED else "with next-sentence label"


def _shards(made_with: Mapping[str, Any]) -> str:
    return f"{made_with['shards']} for training, {made_with['test_shards']} for testing" if "test_shards" in made_with else ""


_SETTINGS: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], str]]] = {
    "task": ("Task", lambda of: _TASK_TITLES.get(of["task"], str(of["task"]))),
    "version": ("Version", lambda of: str(of["version"])),
    "name": ("Name", lambda of: str(of["name"])),
    "corpus": ("Corpus", lambda of: str(of["corpus"])),
    "labels": ("Labels", lambda of: listed([str(each) for each in of["labels"]]) if isinstance(of["labels"], list) else ""),
    "seq": ("Sequence length", lambda of: f"{of['seq']:,} tokens"),
    "pred": ("Predictions in a record", lambda of: f"at most {of['pred']:,}"),
    "masked_lm_prob": ("Masked tokens", lambda of: _percent(of["masked_lm_prob"])),
    "whole_word": ("What is masked", lambda of: "whole words" if of["whole_word"] else "tokens"),
    "pairs": ("Sentence pairs", _pairs),
    "dupe": ("Each document is used", lambda of: counted(of["dupe"], "time")),
    "short_seq_prob": ("Shorter target length", lambda of: f"for {_percent(of['short_seq_prob'])} of the documents"),
    "cased": ("Case", lambda of: "kept" if of["cased"] else "lower-cased"),
    "seed": ("Random seed", _seed),
    "doc_stride": ("Step between windows", lambda of: f"{of['doc_stride']:,} tokens"),
    "max_query": ("Longest question", lambda of: f"{of['max_query']:,} tokens"),
    "vocabulary": ("Vocabulary", _vocabulary),
    "tokenizer": ("Tokenizer", _tokenizer),
    "language": ("Language", lambda of: str(of["language"]) if of["language"] else ""),
    "splitter": ("Sentences", lambda of: "one a line" if of["splitter"] == "lines" else f"found by {of['splitter']}"),
    "keep_duplicates": ("Repeated documents", lambda of: "kept" if of["keep_duplicates"] else "left out"),
    "shards": ("Shards", _shards),
    "test_fraction": ("Held out for testing", lambda of: _percent(of["test_fraction"])),
}
_PARTS = ("one_seed", "test_shards")  # settings that the texts of other settings include


def made_alike(first: Outcome, second: Outcome) -> bool:
    """Return whether two data sets of different formats have the same records, judging by their settings and counts."""
    if first.manifest is None or second.manifest is None or first.kind == second.kind or not (first.seq and second.seq):
        return False
    if first.sampled or _identity(first) != _identity(second) or first.counts.keys() != second.counts.keys():
        return False
    return all(_counted(first, split) == _counted(second, split) for split in first.counts)


def _identity(outcome: Outcome) -> tuple[str, dict[str, int]]:
    """Return the settings without those of a conversion, and the number of records of each split."""
    made_with = outcome.manifest.made_with if outcome.manifest else {}
    settings = {key: value for key, value in made_with.items() if not key.startswith("converted_")}
    records: Counter[str] = Counter()
    for file in outcome.files:
        records[file.split] += file.records
    return json.dumps(settings, sort_keys=True), dict(records)


def _counted(outcome: Outcome, split: str) -> list[bytes]:
    counts = outcome.counts[split]
    return [each.tobytes() for each in (counts.lengths, counts.lengths_of_a, counts.positions, counts.labels, counts.tokens)]
