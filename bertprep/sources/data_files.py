"""Which files of a repository on the Hub are a split of a data set: the rules of `datasets`, without it.

In this order:

    README.md, between its lines "---"   `configs`: for each configuration the files of its splits, as patterns
    the names                            data/train-00000-of-00002.parquet; else folders named after splits, else files
                                         (train, training; validation, valid, dev, val; test, ...); else all are train
    refs/convert/parquet                 CONFIG/SPLIT/0000.parquet, which the Hub makes of what it can read itself; for
                                         repositories with a loading script or with files that are not read here

`datasets` has no configurations without `configs`; here the folder CONFIG is then one. README.md is anybody's: of its YAML no
objects are constructed, only lists, mappings and texts up to `MOST_NODES`, and a pattern matches name by name, without
backtracking, up to `MOST_COMPARISONS`.
"""

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from pathlib import PurePosixPath
from typing import Any

from bertprep.errors import UsageError
from bertprep.sources.formatting import DUMP
from bertprep.sources.local import READER_OF
from bertprep.sources.streams import is_glob, suffixes
from bertprep.terminal import printable
from bertprep.untrusted import LONGEST_NAME, LONGEST_PATH, MOST_LEVELS
from bertprep.workspace.layout import TRAIN

CARD = "README.md"
CARDS = (CARD, ".huggingface.yaml")
"""Files that may have `configs`; the second is YAML as a whole, and prevails."""
CONVERTED = "refs/convert/parquet"
"""The revision of the Hub's own conversion."""
MOST_CARD_BYTES, MOST_NODES, MOST_COMPARISONS = 8 << 20, 300_000, 10_000_000
"""The most of a card that is read, and the most names that the patterns of a split are compared with, in some seconds."""
MANY = 12
"""The most names that an error lists."""
_SPLIT = re.compile(r"\w+(\.\w+)*")
_KEYWORDS = {
    TRAIN: ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_SHARDED = re.compile(r"data/([^/]*)-[0-9]{5}-of-[0-9]{5}[^/]*\.[^/]*")
_IN_FOLDERS = ("**/{}/**", "**/{}[-._ 0-9]*/**", "**/*[-._ 0-9]{}/**", "**/*[-._ 0-9]{}[-._ 0-9]*/**")
_IN_NAMES = ("**/{}[-._ 0-9]*", "**/*[-._ 0-9]{}[-._ 0-9]*")
_NO_DATA = {CARD, "config.json", "dataset_info.json", "dataset_infos.json", "dummy_data.zip", "dataset_dict.json"}
_PART = re.compile(r"partial-(.+)")
_NULLS = ("", "~", "null", "Null", "NULL")

Patterns = dict[str, list[str]]
"""The patterns of each split."""


@dataclass(frozen=True)
class Config:
    """A configuration: the patterns of its splits below a folder; without patterns the names decide."""

    patterns: Patterns | None = None
    folder: str = ""
    is_default: bool = False


@dataclass(frozen=True)
class Split:
    """The files of one split, and the configuration's name, which is the request's or the default's."""

    config: str
    is_default: bool
    paths: tuple[str, ...]
    is_partial: bool = False


def check_split(split: str) -> str:
    """The name of a split; raises `UsageError` for what cannot be one, such as a slice."""
    if not _SPLIT.fullmatch(split):
        raise UsageError(f"--split {split}: is not the name of a split, of letters, digits, '_' and '.', such as train")
    return split


def find_split(paths: Sequence[str], configs: Mapping[str, Config], config: str | None, split: str) -> Split | None:
    """The files of a split by README.md's `configs`, or else by their names; None if there are none that are read.

    Raises `UsageError` for a configuration or split that does not exist, with those that do, `ValueError` for wrong patterns.
    """
    if configs:
        name = _name_config(config, {name: found.is_default for name, found in configs.items()})
        chosen, is_default = configs[name], name == _default({name: found.is_default for name, found in configs.items()})
    else:
        name, is_default = config or "default", config in (None, "default")
        chosen = Config(folder="" if is_default else name)
    below = [path.removeprefix(f"{chosen.folder}/") for path in paths if _is_below(path, chosen.folder)]
    if not configs and not is_default and not below:
        folders = {path.partition("/")[0] for path in paths if "/" in path and _reader(path)}
        if not folders:
            return None
        raise UsageError(f"has no configuration {name}; {_there_are(name, folders)}")
    patterns = _by_names(below) if chosen.patterns is None else chosen.patterns
    if not any(map(_reader, below)) or not patterns:
        return None
    if split not in patterns:
        of_config = f" of its configuration {name}" if config or configs else ""
        raise UsageError(f"has no split {split}{of_config}; {_there_are(split, patterns)}")
    matching = resolve(below, patterns[split])
    if not matching:
        raise ValueError(f"the files of its split {split}, {patterns[split]!r:.200}, do not exist")
    found = _same_kind(matching)
    return (
        Split(name, is_default, tuple(f"{chosen.folder}/{path}" if chosen.folder else path for path in found))
        if found
        else None
    )


def find_converted(paths: Sequence[str], config: str | None, split: str) -> Split | None:
    """The same of the Hub's conversion; a partial one has only the first gigabytes of the split."""
    found: dict[str, dict[str, list[str]]] = {}
    for path in sorted(paths):
        match path.split("/"):
            case [of_config, of_split, file] if file.endswith(".parquet"):
                found.setdefault(of_config, {}).setdefault(of_split, []).append(path)
    if not found:
        return None
    name = _name_config(config, dict.fromkeys(found, False))
    is_default = name == _default(dict.fromkeys(found, False))
    splits = found[name]
    for of_split, files in splits.items():
        if of_split in (split, f"partial-{split}"):
            return Split(name, is_default, tuple(files), is_partial=of_split != split)
    names = {_PART.sub(r"\1", each) for each in splits}
    raise UsageError(f"has no split {split} of its configuration {name}; {_there_are(split, names)}")


def _default(configs: Mapping[str, bool]) -> str | None:
    """The default of the configurations, given whether each says that it is."""
    defaults = [name for name, says_so in configs.items() if len(configs) == 1 or name == "default" or says_so]
    return defaults[0] if len(defaults) == 1 else None


def _name_config(config: str | None, configs: Mapping[str, bool]) -> str:
    if config is None:
        if default := _default(configs):
            return default
        raise UsageError(f"has several configurations, so NAME:CONFIG must name one; {_there_are('', configs)}")
    if config not in configs:
        raise UsageError(f"has no configuration {config}; {_there_are(config, configs)}")
    return config


def _there_are(asked: str, names: Iterable[str]) -> str:
    """The names that exist, the nearest if there are many."""
    there = [printable(name) for name in names]
    if len(there) <= MANY:
        return f"there {'are' if len(there) > 1 else 'is'} {', '.join(sorted(there))}"
    return f"there are {len(there):,}, for instance {', '.join(difflib.get_close_matches(asked, there, n=MANY, cutoff=0))}"


def _reader(path: str) -> str | None:
    """How a data file is read; None for one that is not."""
    kind, _ = suffixes(path)
    reader = "text" if kind == ".txt" else READER_OF.get(kind)
    return None if reader == DUMP or PurePosixPath(path).name in _NO_DATA else reader


def _same_kind(paths: Sequence[str]) -> list[str]:
    """Of the files that are read those of the most frequent kind, or if two are equally frequent, Parquet."""
    kinds = Counter(reader for path in paths if (reader := _reader(path)))
    kind = max(kinds, key=lambda kind: (kinds[kind], kind == "parquet", kind), default=None)
    return [path for path in paths if kind and _reader(path) == kind]


def _is_below(path: str, folder: str) -> bool:
    return not folder or path.startswith(f"{folder}/")


def _by_names(paths: Sequence[str]) -> Patterns:
    """The patterns of the splits that the names of files and folders tell."""
    if sharded := {match[1] for path in paths if (match := _SHARDED.fullmatch(path)) and _SPLIT.fullmatch(match[1])}:
        number = "[0-9]" * 5
        return {split: [f"data/{split}-{number}-of-{number}*.*"] for split in sorted(sharded)}
    for forms in (_IN_FOLDERS, _IN_NAMES):
        by_split = {split: [form.format(word) for word in words for form in forms] for split, words in _KEYWORDS.items()}
        if found := {split: patterns for split, patterns in by_split.items() if resolve(paths, patterns)}:
            return found
    return {TRAIN: ["**"]} if resolve(paths, ["**"]) else {}


def resolve(paths: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """The paths that match `patterns`, in the patterns' order and sorted for each, each path once.

    Raises `ValueError` for a pattern that leaves the repository, or a path without wildcards that does not exist.

    >>> resolve(["b/1.txt", "a/2.txt", "a/.git/3.txt"], ["b/*", "**"])
    ['b/1.txt', 'a/2.txt']
    """
    there = set(paths)
    found: dict[str, None] = {}
    comparisons = 0

    def spend(more: int) -> None:
        nonlocal comparisons
        if (comparisons := comparisons + more) > MOST_COMPARISONS:
            raise ValueError(f"it has {len(patterns):,} patterns for {len(paths):,} files, more than are compared")

    for given in patterns:
        pattern = given.removeprefix("./")
        if "://" in pattern or pattern.startswith("/") or ".." in pattern.split("/") or len(pattern) > LONGEST_PATH:
            raise ValueError(f"{given!r:.200} is not the path of files in this repository")
        if not is_glob(pattern):
            if pattern not in there:
                raise ValueError(f"it names the file {given!r:.200}, which does not exist")
            found[pattern] = None
            continue
        of_pattern = [path for path in matching(paths, pattern, spend) if _is_meant(path, pattern)]
        found.update(dict.fromkeys(sorted(of_pattern)))
    return list(found)


def matching(paths: Iterable[str], pattern: str, spend: Callable[[int], object] = bool) -> list[str]:
    """The paths that match: `*` within a name, `**` any number of folders, or at the end all that is below.

    Each folder is compared once, since a repository has many files in few folders; `spend` is told how many names are compared.

    >>> [bool(matching(["a/b/c.txt"], pattern)) for pattern in ("**/c.*", "a/**/b/c.txt", "a/**", "a/*", "a/b/c.txt/**")]
    [True, True, True, False, False]
    """
    names = pattern.split("/")
    if any("**" in name and name != "**" for name in names):
        raise ValueError(f"{pattern!r:.200} has ** beside other characters, expected it as the whole name of a folder")
    parts = [_name_matcher(name) for at, name in enumerate(names) if name != "**" or names[at + 1 : at + 2] != ["**"]]
    known = {"": _skip(parts, {0})}

    def used_up_by(folder: str) -> frozenset[int]:
        if folder not in known:
            above, _, name = folder.rpartition("/")
            reached = used_up_by(above)
            spend(len(reached) + 1)
            known[folder] = _skip(parts, _step(parts, reached, name))
        return known[folder]

    found = []
    for path in paths:
        if len(path) > LONGEST_PATH:
            continue
        folder, _, name = path.rpartition("/")
        reached = used_up_by(folder)
        spend(len(reached) + 1)
        if len(parts) in _step(parts, reached, name):
            found.append(path)
    return found


_Matcher = Callable[[str], object] | None
"""Whether a name matches a part of a pattern; None for `**`."""


def _name_matcher(part: str) -> _Matcher:
    if part == "**":
        return None
    if not is_glob(part):
        return part.__eq__
    try:
        return re.compile(translate(part)).match
    except re.error as error:  # [z-a]
        raise ValueError(f"{part!r:.200} is not a pattern ({error})") from None


def _step(parts: Sequence[_Matcher], reached: Iterable[int], name: str) -> set[int]:
    """How many parts of a pattern may be used up after one more name; the last `**` needs at least one name."""
    after = set()
    for at in reached:
        if at == len(parts):
            continue
        if (matches := parts[at]) is None:
            after.add(at)
            if at == len(parts) - 1:
                after.add(at + 1)
        elif matches(name):
            after.add(at + 1)
    return after


def _skip(parts: Sequence[_Matcher], reached: set[int]) -> frozenset[int]:
    """The same if each `**`, of which no two are in a row, may also be no folder at all."""
    return frozenset(reached).union(at + 1 for at in reached if at < len(parts) - 1 and parts[at] is None)


def _is_meant(path: str, pattern: str) -> bool:
    """Whether a pattern that matches a path means it: not hidden files, nor folders of tools, unless it spells them out."""

    def hidden(parts: Iterable[str], start: str) -> int:
        return sum(part.startswith(start) for part in parts)

    of_path, of_pattern = path.split("/"), pattern.split("/")
    return (
        (of_path[-1] not in _NO_DATA or of_path[-1] == of_pattern[-1])
        and hidden(of_path, ".") == hidden(of_pattern, ".")
        and hidden(of_path[:-1], "__") == hidden(of_pattern[:-1], "__")
    )


def read_configs(card: bytes, *, is_yaml: bool = False) -> dict[str, Config]:
    r"""The `configs` of a README.md, or of a file that is YAML as a whole; raises `ValueError` for invalid ones.

    >>> read_configs(b"---\nconfigs:\n- {config_name: de, data_files: de/*.parquet}\n---\n# A data set")
    {'de': Config(patterns={'train': ['de/*.parquet']}, folder='', is_default=False)}
    """
    text = card.decode(errors="replace").removeprefix("\ufeff")
    if not is_yaml:
        first, *lines = text.splitlines() or [""]
        if first != "---" or "---" not in lines:
            return {}
        text = "\n".join(lines[: lines.index("---")])
    block = re.search(r"^configs:.*?(?=^[^\s#\-\]}]|\Z)", text, re.MULTILINE | re.DOTALL)  # the rest is long, and not asked for
    content = _load_yaml(block[0]).get("configs") if block else None
    if not content:
        return {}
    if not isinstance(content, list):
        raise ValueError("its configs are not a list")
    configs: dict[str, Config] = {}
    for number, given in enumerate(content, start=1):
        if not isinstance(given, dict) or not isinstance(name := given.get("config_name"), str) or not name:
            raise ValueError(f"number {number:,} of its configs has no config_name")
        if printable(name) != name or len(name) > LONGEST_NAME:
            raise ValueError(f"{name!r:.200} is not the name of a configuration")
        if name in configs:
            raise ValueError(f"it has the configuration {name!r:.200} twice")
        folder = given.get("data_dir") or ""
        if not isinstance(folder, str) or ".." in folder.split("/") or folder.startswith("/"):
            raise ValueError(f"the data_dir of {name!r:.200} is not a folder in this repository")
        files = given.get("data_files")
        configs[name] = Config(
            patterns=None if files is None or files == "" else _patterns(files, name),
            folder="/".join(part for part in folder.split("/") if part not in ("", ".")),
            is_default=given.get("default") in ("true", "True", "TRUE"),
        )
    return configs


def _patterns(files: Any, config: str) -> Patterns:
    """`data_files`, which is a pattern, a list of them, or a list of splits and their patterns."""
    if texts := _texts(files):
        return {TRAIN: texts}
    splits: Patterns = {}
    for each in files if isinstance(files, list) else [files]:
        split, path = (each.get("split"), each.get("path")) if isinstance(each, dict) else (None, None)
        texts = _texts(path)
        if not isinstance(split, str) or not _SPLIT.fullmatch(split) or not texts or split in splits:
            raise ValueError(f"data_files of {config!r:.200} are not patterns, or a list of splits and their path")
        splits[split] = texts
    return splits


def _texts(value: Any) -> list[str]:
    """A text or a list of texts; nothing for anything else."""
    texts = [value] if isinstance(value, str) else value
    return texts if isinstance(texts, list) and all(isinstance(text, str) and text for text in texts) else []


def _load_yaml(text: str) -> dict[str, Any]:
    """A mapping of YAML, with every scalar as its text; what is no mapping is an empty one.

    Made of the parser's events, so that `MOST_NODES` and `MOST_LEVELS` hold before anything is built: libyaml's own composer
    recurses without a limit, and PyYAML's takes a minute for a megabyte.
    """
    import yaml

    try:
        return _build(yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except yaml.YAMLError as error:
        why = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise ValueError(f"its configs are not YAML: {why:.200}") from None


def _build(events: Iterable[Any]) -> dict[str, Any]:
    """What the events of YAML tell; an alias counts as often as it is used, with all that it stands for."""
    import yaml

    root: list[Any] = []
    open_nodes: list[tuple[Any, list[Any], str | None, int]] = []  # (event, its values so far, anchor, values before it)
    anchors: dict[str, tuple[Any, int]] = {}
    count = 0
    for event in events:
        value, anchor, before = None, getattr(event, "anchor", None), count
        if isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event, [], anchor, before))
            count += 1
            if len(open_nodes) > MOST_LEVELS:
                raise ValueError("its configs are nested too deeply")
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            start, values, anchor, before = open_nodes.pop()
            value = values if isinstance(start, yaml.SequenceStartEvent) else _mapping(values)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchors:
                raise ValueError(f"its configs name {event.anchor!r:.200}, which is nothing before it")
            value, size = anchors[event.anchor]
            count, anchor = count + size, None
        elif isinstance(event, yaml.ScalarEvent):
            value = None if event.implicit[0] and event.value in _NULLS else event.value
            count += 1
        else:
            continue
        if count > MOST_NODES:
            raise ValueError(f"its configs have more than {MOST_NODES:,} values")
        if anchor is not None:
            anchors[anchor] = value, count - before
        (open_nodes[-1][1] if open_nodes else root).append(value)
    return root[0] if root and isinstance(root[0], dict) else {}


def _mapping(values: Sequence[Any]) -> dict[str, Any]:
    """Keys and values that alternate; a key that is no text is left out."""
    return {key: value for key, value in zip(values[::2], values[1::2], strict=True) if isinstance(key, str)}
