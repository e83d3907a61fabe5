"""The card of a pushed data set, `README.md`: YAML that the Hub and `datasets` read, then what people ask about it.

`card.md.j2` is its text. It is made of manifests and of what was counted alone, so the same records give the same bytes.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from bertprep.check.outcome import RecordCounts
from bertprep.config import SQUAD, GlueSettings, InstanceSettings, ShardSettings, SquadSettings
from bertprep.kernels.numbers import NOT_PREDICTED
from bertprep.options import command_line
from bertprep.records.columns import COLUMNS
from bertprep.records.examples import Examples, MaskedExamples, PretrainingExamples, Shape
from bertprep.sources.corpora import BOOKS, language_of, parts_of
from bertprep.sources.sample import SAMPLE
from bertprep.workspace.layout import DEV, DEV_MISMATCHED, SPLIT_NAMES, SUBMISSION, SUBMISSION_MISMATCHED, TRAINING, split_order
from bertprep.workspace.manifest import RECORDS, Manifest, tokens_of_vocabulary

UNKNOWN = "unknown"
HUB_SPLITS = {
    DEV: "validation", DEV_MISMATCHED: "validation_mismatched", SUBMISSION: "test", SUBMISSION_MISMATCHED: "test_mismatched",
}  # fmt: skip
"""What `datasets` calls the split of a folder if not as the folder, as the Hub's own copies of the tasks do."""

_PUBLIC_DOMAIN = "public-domain"
_SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B", "1B<n<10B", "10B<n<100B")
_TASKS = {RECORDS: "fill-mask", SQUAD: "question-answering"}
_TEXT = "text-classification"
_MEANINGS = {
    "input_ids": "tokens, [CLS] A [SEP] B [SEP], then padding",
    "token_type_ids": "0 for A, 1 for B",
    "attention_mask": "1 for tokens, 0 for padding",
    "labels": f"the token that was masked there, {NOT_PREDICTED} elsewhere",
    "next_sentence_label": "0: B follows A in its document; 1: B is from another one",
    "unique_ids": "the number of the window",
    "start_positions": "first token of the answer",
    "end_positions": "last token of the answer",
    "is_impossible": "1 if the window has no answer",
    "is_real_example": "1; 0 for padding of a batch",
}
_UNPAIRED_MEANINGS = {
    "input_ids": "tokens, [CLS], full sentences with [SEP] between documents, [SEP], then padding",
    "token_type_ids": "0",
}


@dataclass(frozen=True)
class PushedSet:
    """A data set as it is on the Hub: `manifest` has the names there, `shapes` says what the records of each folder are.

    A folder is a split. `tallies` are of the records that were checked, none of them of a task's. `text` is the manifest of the
    text shards that they were made of, where those are still there.
    """

    name: str  # OWNER/NAME
    url: str
    corpus: str
    manifest: Manifest
    shapes: Mapping[str, Shape]
    cased: bool
    licence: str | None = None  # what the user says
    tallies: Sequence[RecordCounts] = ()
    text: Manifest | None = None

    @property
    def splits(self) -> list[str]:
        return sorted(self.shapes, key=lambda folder: split_order(SPLIT_NAMES.get(folder, "")))

    def files(self, split: str) -> dict[str, dict[str, Any]]:
        return {name: facts for name, facts in self.manifest.files.items() if name.startswith(f"{split}/")}

    def total(self, split: str, key: str) -> int:
        return sum(facts.get(key, 0) for facts in self.files(split).values())

    @property
    def records(self) -> int:
        return sum(self.total(split, "examples") for split in self.splits)

    @property
    def shape(self) -> Shape:
        return self.shapes[self.splits[0]]

    @property
    def title(self) -> str:
        return f"{self.corpus}: BERT {self.shape.kind.title} records of {self.shape.seq} tokens"


def meaning_of(column: str, kind: type[Examples]) -> str:
    """What a column holds, in a line."""
    return (_MEANINGS | _UNPAIRED_MEANINGS if kind is MaskedExamples else _MEANINGS)[column]


def name_on_hub(name: str) -> str:
    """The name of a record file in a repository: the folder of a split and its own.

    >>> name_on_hub("training/mine_training_00000.parquet"), name_on_hub("dev/a.parquet"), name_on_hub("b.parquet")
    ('train/mine_training_00000.parquet', 'dev/a.parquet', 'train/b.parquet')
    """
    folder, _, file = name.rpartition("/")
    return f"{'train' if folder in ('', TRAINING) else folder}/{file}"


def card(pushed: PushedSet) -> bytes:
    """Return README.md, in UTF-8."""
    from huggingface_hub import DatasetCardData
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    environment.filters["cell"] = lambda value: " ".join(str(value).split()).replace("|", "\\|")
    made_with = pushed.manifest.made_with
    hidden = ("converted_from", "inputs", "labels")
    text = environment.get_template("card.md.j2").render(
        pushed=pushed,
        metadata=DatasetCardData(**_metadata(pushed)).to_yaml(),
        summary=_summary(pushed),
        splits=_split_rows(pushed),
        columns=_column_rows(pushed),
        commands=making_commands(pushed.manifest, pushed.text),
        settings={name: json.dumps(made_with[name]) for name in made_with if name not in hidden},
        licence=_licence_text(pushed),
        folder=f"data/download/datasets/{pushed.name}",
        task="" if pushed.manifest.kind == RECORDS else f" {made_with.get('task', '')}",
    )
    return text.encode()


def _metadata(pushed: PushedSet) -> dict[str, Any]:
    """The YAML at the head of the card."""
    made_with = pushed.manifest.made_with
    licences = licences_of(pushed.corpus, pushed.licence)
    named = {"license": "other", "license_name": _PUBLIC_DOMAIN, "license_link": "https://en.wikipedia.org/wiki/Public_domain"}
    languages = _languages(pushed.corpus, pushed.manifest)
    task = _TASKS.get(pushed.manifest.kind) or _TASKS.get(made_with.get("task", ""), _TEXT)
    tags = ["bert", "bertprep", "masked-language-modeling", "next-sentence-prediction"]
    groups: dict[Shape, list[str]] = {}
    for split in pushed.splits:
        groups.setdefault(pushed.shapes[split]._replace(pred=0), []).append(split)
    names = ["default", *(shape.kind.title.lower().replace(" ", "_") for shape in list(groups)[1:])]
    return {
        "pretty_name": pushed.title,
        **(named if licences == [_PUBLIC_DOMAIN] else {"license": licences[0] if len(licences) == 1 else licences}),
        **({"language": languages} if languages else {}),
        "task_categories": [task],
        "size_categories": [_SIZES[min(len(str(pushed.records // 1000)) if pushed.records >= 1000 else 0, len(_SIZES) - 1)]],
        "tags": tags[: 4 if pushed.shape.kind is PretrainingExamples else 3 if pushed.shape.kind is MaskedExamples else 2],
        "configs": [
            {
                "config_name": name,
                **({"default": True} if name == "default" else {}),
                "data_files": [{"split": HUB_SPLITS.get(s, s), "path": f"{s}/*.parquet"} for s in splits],
            }
            for name, splits in zip(names, groups.values(), strict=True)
        ],
    }


def licences_of(corpus: str, given: str | None = None) -> list[str]:
    """The Hub's names for the licences of a corpus that bertprep knows, unless the user has named one.

    >>> licences_of("wikicorpus_en"), licences_of("books_wiki_en_corpus"), licences_of("mine", "cc0-1.0")
    (['cc-by-sa-4.0', 'gfdl'], ['unknown'], ['cc0-1.0'])
    """
    if given:
        return [given]
    parts = parts_of(corpus)
    if parts and BOOKS not in parts:
        return ["cc-by-sa-4.0", "gfdl"]
    if corpus.startswith("squad_"):
        return ["cc-by-sa-4.0"]
    return [_PUBLIC_DOMAIN] if corpus == SAMPLE else [UNKNOWN]


def _languages(corpus: str, manifest: Manifest) -> list[str]:
    if language := language_of(corpus):
        return [language]
    is_english = corpus in (SAMPLE, BOOKS) or manifest.kind != RECORDS
    return ["en"] if is_english else []


def _summary(pushed: PushedSet) -> str:
    tokens = tokens_of_vocabulary(pushed.manifest)
    of = f" of {tokens:,} tokens" if tokens else ""
    kind = "upper case and accents are kept" if pushed.cased else "text is lower-cased"
    lines = [
        f"{pushed.records:,} records in {len(pushed.manifest.files):,} Parquet files, made by bertprep"
        f" {pushed.manifest.versions.get('bertprep', '')} for BERT: tokens of a WordPiece vocabulary{of} (`vocab.txt`; {kind}),"
        f" {pushed.shape.seq} to a record."
    ]
    if pushed.tallies:
        everything = sum(pushed.tallies[1:], pushed.tallies[0])
        predictions = int(everything.shown.sum())
        whole = pushed.records * pushed.shape.seq
        text = round(whole * (1 - everything.padding_share))
        random_next = f"{int(everything.next_sentence[1]) / max(everything.records, 1):.1%} of the records"
        pairs = f", and in {random_next} the second segment is a random one" if everything.has_pairs else ""
        lines.append(
            f"About {text:,} tokens are text, {everything.padding_share:.1%} of all are padding; "
            f"{predictions / max(everything.text_tokens, 1):.1%} of the text is to be predicted{pairs} "
            f"(as found in {everything.records:,} records)."
        )
    return "\n".join(lines)


def _split_rows(pushed: PushedSet) -> list[list[str]]:
    documents = all("documents" in facts for facts in pushed.manifest.files.values())
    rows = [["split", "files", "records", *(["documents"] if documents else []), "MB"]]
    for split in pushed.splits:
        counts = [pushed.total(split, key) for key in ("examples", *(["documents"] if documents else []))]
        size = f"{pushed.total(split, 'bytes') / 1e6:,.1f}"
        rows.append([HUB_SPLITS.get(split, split), f"{len(pushed.files(split)):,}", *(f"{n:,}" for n in counts), size])
    return rows


def _column_rows(pushed: PushedSet) -> list[list[str]]:
    rows = [["column", "type", "meaning"]]
    is_task = not issubclass(pushed.shape.kind, MaskedExamples)
    for column in COLUMNS[pushed.shape.kind]:
        size = f"[{pushed.shape.seq}]" if column.width == "seq" else ""
        meaning = meaning_of(column.name, pushed.shape.kind)
        if column.name == "labels" and is_task:
            labels = pushed.manifest.made_with.get("labels", ())
            meaning = ", ".join(f"{i}: {label}" for i, label in enumerate(labels)) or "the score"
        rows.append([f"`{column.name}`", f"{np.dtype(column.dtype).name}{size}", meaning])
    return rows


def making_commands(manifest: Manifest, text_shards: Manifest | None = None) -> list[str]:
    """The commands that make the records of a manifest, where its text and its vocabulary are; none where it does not tell.

    How the text was split and assigned is known from the manifest of the text shards alone.
    """
    made_with = manifest.made_with
    if "generator" not in made_with:
        return []
    if manifest.kind != RECORDS:
        of_task = [f"--{key} {shlex.quote(str(made_with[key]))}" for key in ("task", "version", "name") if key in made_with]
        settings = SquadSettings if made_with["task"] == SQUAD else GlueSettings
        return [_command("create", *of_task, _options(settings, made_with))]
    corpus = str(made_with.get("corpus", ""))
    text = "" if parts_of(corpus) or corpus == SAMPLE else "--input TEXT"
    if "text_sha256" not in made_with:
        return [_command("create", text, f"--corpus {corpus}", _options(InstanceSettings, made_with))]
    known = text_shards.made_with if text_shards else {name: made_with.get(name) for name in ("shards", "test_fraction")}
    cut = {name: value for name, value in known.items() if (name, value) != ("language", language_of(corpus) or "en")}
    return [
        _command("shard", text, f"--corpus {corpus}", _options(ShardSettings, cut), vocabulary=""),
        _command("create", f"--corpus {corpus}", _options(InstanceSettings, made_with)),
    ]


def _options(settings: type[Any], made_with: Mapping[str, Any]) -> str:
    known = {each.name: made_with[each.name] for each in fields(settings) if made_with.get(each.name) is not None}
    return shlex.join(command_line(settings(**known)))


def _command(name: str, *arguments: str, vocabulary: str = "--vocab vocab.txt") -> str:
    return " ".join(filter(None, ["bertprep", name, *arguments, vocabulary]))


def _licence_text(pushed: PushedSet) -> str:
    licences = licences_of(pushed.corpus, pushed.licence)
    if licences == [UNKNOWN]:
        return "The licence of the text is not known. Find out before you pass on the records, or what is trained on them."
    if licences == [_PUBLIC_DOMAIN]:
        return "The text is in the public domain."
    also = " Keep the attribution and the licence when you pass it on." if "gfdl" in licences else ""
    return f"The text is under {' and '.join(licences)}; the records hold nothing else.{also}"
