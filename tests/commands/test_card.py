"""The card of a data set: it says what is known, and what comes from a manifest cannot break the page."""

import hashlib

import pytest

from bertprep.commands.card import PushedSet, card
from bertprep.records.examples import ClassificationExamples, PretrainingExamples, Shape
from bertprep.work.manifest import RECORDS, TASK_RECORDS, Manifest

FACTS = {"bytes": 5, "sha256": hashlib.sha256(b"bytes").hexdigest(), "examples": 12_345}


def pushed(manifest: Manifest, shape: Shape, corpus: str = "mine", licence: str | None = None) -> PushedSet:
    shapes = {name.partition("/")[0]: shape for name in manifest.files}
    return PushedSet("me/it", "https://hub.example/datasets/me/it", corpus, manifest, shapes, False, licence)


def pretraining(corpus: str, licence: str | None = None) -> str:
    files = {"train/a_training_00000.parquet": FACTS, "test/a_test_00000.parquet": FACTS}
    manifest = Manifest(RECORDS, {"seq": 128, "pred": 20, "corpus": corpus}, files, {"bertprep": "1.0"})
    return card(pushed(manifest, Shape(PretrainingExamples, 128, 20), corpus, licence)).decode()


@pytest.mark.parametrize(
    ("corpus", "licence", "says"),
    [
        ("wikicorpus_de", None, "license:\n- cc-by-sa-4.0\n- gfdl\n"),
        ("wikicorpus_de", None, "language:\n- de\n"),
        ("books_wiki_en_corpus", None, "license: unknown\n"),
        ("sample", None, "license: other\n"),
        ("mine", None, "license: unknown\n"),
        ("mine", "cc0-1.0", "license: cc0-1.0\n"),
        ("mine", None, "24,690 records in 2 Parquet files"),
    ],
)
def test_what_the_card_says(corpus: str, licence: str | None, says: str) -> None:
    assert says in pretraining(corpus, licence)


def test_labels_of_a_stranger_do_not_break_the_page() -> None:
    labels = ["a|b", "c\n---\nlicense: mit", "no"]
    made_with = {"task": "glue", "name": "own", "seq": 16, "labels": labels, "inputs": []}
    manifest = Manifest(TASK_RECORDS, made_with, {"train/a.parquet": FACTS}, {})
    text = card(pushed(manifest, Shape(ClassificationExamples, 16, 0))).decode()
    head, page = text.removeprefix("---\n").split("\n---\n\n", 1)
    assert "0: a\\|b, 1: c --- license: mit, 2: no" in page
    assert "\nlicense: unknown" in f"\n{head}"
    assert "\nlicense: mit" not in f"\n{head}"
