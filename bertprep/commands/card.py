"""Write the card of a pushed data set, `README.md`, from the template `card.md.j2`, the manifest and counts alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertprep.config import NER, SQUAD
from bertprep.kernels.numbers import NOT_PREDICTED
from bertprep.records.columns import COLUMNS
from bertprep.records.examples import MaskedExamples, PretrainingExamples, Shape
from bertprep.sources.corpora import BOOKS, language_of, parts_of
from bertprep.sources.sample import SAMPLE
from bertprep.terminal import near, warn
from bertprep.work.layout import DEV, DEV_MISMATCHED, SPLIT_NAMES, SUBMISSION, SUBMISSION_MISMATCHED, TRAINING, split_order
from bertprep.work.manifest import RECORDS, Manifest

UNKNOWN = "unknown"
HUB_SPLITS = {
    DEV: "validation", DEV_MISMATCHED: "validation_mismatched", SUBMISSION: "test", SUBMISSION_MISMATCHED: "test_mismatched",
}  # fmt: skip
"""The names on the Hub of splits whose folders have other names; the Hub's own data sets of these tasks have the same names."""

LICENCES = (
    "afl-3.0", "agpl-3.0", "apache-2.0", "artistic-2.0", "bsd", "bsd-2-clause", "bsd-3-clause", "c-uda", "cc", "cc-by-2.0",
    "cc-by-2.5", "cc-by-3.0", "cc-by-4.0", "cc-by-nc-2.0", "cc-by-nc-3.0", "cc-by-nc-4.0", "cc-by-nc-nd-3.0", "cc-by-nc-nd-4.0",
    "cc-by-nc-sa-2.0", "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0", "cc-by-nd-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cc0-1.0",
    "cdla-permissive-1.0", "cdla-permissive-2.0", "cdla-sharing-1.0", "etalab-2.0", "gfdl", "gpl", "gpl-2.0", "gpl-3.0", "lgpl",
    "lgpl-2.1", "lgpl-3.0", "mit", "mpl-2.0", "odbl", "odc-by", "openrail", "other", "pddl", UNKNOWN, "unlicense",
)  # fmt: skip
"""The Hub's ids of licences that texts often have. huggingface_hub has no list of them, and the Hub has more."""
_PUBLIC_DOMAIN = "public-domain"
_TASKS = {RECORDS: "fill-mask", SQUAD: "question-answering", NER: "token-classification"}
_TEXT = "text-classification"
_MEANINGS = {
    "input_ids": "token ids: [CLS] A [SEP] B [SEP], then padding",
    "token_type_ids": "0 for A, 1 for B",
    "attention_mask": "1 for tokens, 0 for padding",
    "labels": f"the original id of a token to predict, {NOT_PREDICTED} elsewhere",
    "next_sentence_label": "0: B follows A in its document; 1: B is from another document",
    "unique_ids": "the number of the window",
    "start_positions": "first token of the answer",
    "end_positions": "last token of the answer",
    "is_impossible": "1 if the window has no answer",
    "is_real_example": "1, or 0 for an example that only fills a batch",
}
_UNPAIRED_MEANINGS = {
    "input_ids": "token ids: [CLS], full sentences with [SEP] between documents, [SEP], then padding",
    "token_type_ids": "always 0",
}


@dataclass(frozen=True)
class PushedSet:
    """A data set on the Hub: `manifest` lists the files by their names there, and `shapes` has the shape of each split."""

    name: str  # OWNER/NAME
    url: str
    corpus: str
    manifest: Manifest
    shapes: Mapping[str, Shape]
    cased: bool
    licence: str | None = None  # named by the user

    @property
    def splits(self) -> list[str]:
        return sorted(self.shapes, key=lambda folder: split_order(SPLIT_NAMES.get(folder, "")))

    def files(self, split: str) -> dict[str, dict[str, Any]]:
        return {name: entry for name, entry in self.manifest.files.items() if name.startswith(f"{split}/")}

    def total(self, split: str, key: str) -> int:
        return sum(entry.get(key, 0) for entry in self.files(split).values())

    @property
    def shape(self) -> Shape:
        return self.shapes[self.splits[0]]

    @property
    def title(self) -> str:
        return f"{self.corpus}: BERT {self.shape.kind.title} records of {self.shape.seq} tokens"


def name_on_hub(name: str) -> str:
    """Return the name of a record file in a repository, FOLDER OF THE SPLIT/FILE.

    >>> name_on_hub("training/mine_training_00000.parquet"), name_on_hub("dev/a.parquet"), name_on_hub("b.parquet")
    ('train/mine_training_00000.parquet', 'dev/a.parquet', 'train/b.parquet')
    """
    folder, _, file = name.rpartition("/")
    return f"{'train' if folder in ('', TRAINING) else folder}/{file}"


def card(pushed: PushedSet) -> bytes:
    """Return the contents of README.md, in UTF-8."""
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
        settings={name: json.dumps(made_with[name]) for name in made_with if name not in hidden},
        licence=_licence_text(pushed),
        folder=f"data/download/datasets/{pushed.name}",
        task="" if pushed.manifest.kind == RECORDS else f" {made_with.get('task', '')}",
    )
    return text.encode()


def _metadata(pushed: PushedSet) -> dict[str, Any]:
    made_with, corpus = pushed.manifest.made_with, pushed.corpus
    licences = licences_of(corpus, pushed.licence)
    named = {"license": "other", "license_name": _PUBLIC_DOMAIN, "license_link": "https://en.wikipedia.org/wiki/Public_domain"}
    is_english = corpus in (SAMPLE, BOOKS) or pushed.manifest.kind != RECORDS
    language = language_of(corpus) or ("en" if is_english else None)
    task = _TASKS.get(pushed.manifest.kind) or _TASKS.get(made_with.get("task", ""), _TEXT)
    tags = ["bert", "bertprep", "masked-language-modeling", "next-sentence-prediction"]
    groups: dict[Shape, list[str]] = {}
    for split in pushed.splits:
        groups.setdefault(pushed.shapes[split]._replace(pred=0), []).append(split)
    names = ["default", *(shape.kind.title.lower().replace(" ", "_") for shape in list(groups)[1:])]
    return {
        "pretty_name": pushed.title,
        **(named if licences == [_PUBLIC_DOMAIN] else {"license": licences[0] if len(licences) == 1 else licences}),
        **({"language": [language]} if language else {}),
        "task_categories": [task],
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


def warn_of_licence(given: str | None) -> None:
    """Warn if a licence that the user named is not one of the usual ones: the Hub may not know it."""
    from huggingface_hub import constants

    if given is not None and given not in LICENCES:
        meant = near(given, [licence for licence in LICENCES if licence.startswith(given)] or LICENCES)
        page = f"{constants.ENDPOINT}/docs/hub/repositories-licenses"
        warn(f"--license {given}: is not one of the usual ids of licences{meant or ','} see {page}")


def licences_of(corpus: str, given: str | None = None) -> list[str]:
    """Return the given licence, or the Hub's names for the licences of a known corpus.

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


def _summary(pushed: PushedSet) -> str:
    tokens = pushed.manifest.vocabulary.get("tokens")
    of = f" of {tokens:,} tokens" if tokens else ""
    kind = "upper case and accents are kept" if pushed.cased else "text is lower-cased"
    version = pushed.manifest.versions.get("bertprep", "")
    records = sum(pushed.total(split, "examples") for split in pushed.splits)
    return (
        f"{records:,} records in {len(pushed.manifest.files):,} Parquet files, made for BERT by bertprep {version}. Each "
        f"record has {pushed.shape.seq} tokens of a WordPiece vocabulary{of} (`vocab.txt`; {kind})."
    )


def _split_rows(pushed: PushedSet) -> list[list[str]]:
    has_documents = all("documents" in entry for entry in pushed.manifest.files.values())
    keys = {"records": "examples", **({"documents": "documents"} if has_documents else {})}
    rows = [["split", "files", *keys, "MB"]]
    for split in pushed.splits:
        counts = [len(pushed.files(split)), *(pushed.total(split, key) for key in keys.values())]
        rows.append([HUB_SPLITS.get(split, split), *(f"{n:,}" for n in counts), f"{pushed.total(split, 'bytes') / 1e6:,.1f}"])
    return rows


def _column_rows(pushed: PushedSet) -> list[list[str]]:
    rows = [["column", "type", "meaning"]]
    kind = pushed.shape.kind
    meanings = _MEANINGS | _UNPAIRED_MEANINGS if kind is MaskedExamples else _MEANINGS
    for column in COLUMNS[kind]:
        size = f"[{pushed.shape.seq}]" if column.width == "seq" else ""
        meaning = meanings[column.name]
        if column.name == "labels" and not issubclass(kind, MaskedExamples):
            labels = pushed.manifest.made_with.get("labels", ())
            meaning = ", ".join(f"{i}: {label}" for i, label in enumerate(labels)) or "the score"
        rows.append([f"`{column.name}`", f"{np.dtype(column.dtype).name}{size}", meaning])
    return rows


def _licence_text(pushed: PushedSet) -> str:
    licences = licences_of(pushed.corpus, pushed.licence)
    if licences == [UNKNOWN]:
        return "The licence of the text is not known. Check it before you share the records or models trained on them."
    if licences == [_PUBLIC_DOMAIN]:
        return "The text is in the public domain."
    also = " Keep the attribution and the licence when you share it." if "gfdl" in licences else ""
    return f"The text is under {' and '.join(licences)}; the records contain nothing else.{also}"
