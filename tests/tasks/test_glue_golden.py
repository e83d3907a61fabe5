"""Every row that Google's `run_classifier.py` made of the golden files, made by bertprep."""

import gzip
import json
from typing import Any

import numpy as np
import pytest

from bertprep.instances import Tokenizer, load_vocabulary
from bertprep.tasks.glue import UNLABELLED, find_task
from bertprep.tasks.glue_features import make_examples
from bertprep.tasks.glue_files import label_ids, read_file
from bertprep.work.layout import DEV, SUBMISSION, TRAINING
from tests.golden import GOLDEN

GLUE = GOLDEN / "finetune" / "glue"
SPLITS = {"train": TRAINING, "dev": DEV, "test": SUBMISSION}
ROWS: list[dict[str, Any]] = [
    json.loads(line) for line in gzip.decompress((GLUE / "features.jsonl.gz").read_bytes()).splitlines()
]
FILES = sorted({(row["task"], row["split"], row["max_seq_length"]) for row in ROWS if row["task"] != "padding"})


def test_all_tasks_splits_and_lengths_are_there() -> None:
    assert (len(ROWS), len(FILES)) == (122, 18)


@pytest.mark.parametrize(("name", "split", "seq"), FILES)
def test_examples_are_google_s(name: str, split: str, seq: int) -> None:
    task = find_task(name)
    file = read_file(GLUE / name / task.files[SPLITS[split]].name, SPLITS[split], task)
    vocabulary = load_vocabulary(GOLDEN / "vocab.txt")
    expected = [row for row in ROWS if (row["task"], row.get("split"), row["max_seq_length"]) == (name, split, seq)]

    labels = label_ids(file, task)
    examples = make_examples(file.rows, labels, Tokenizer(vocabulary, lower=True), vocabulary, seq=seq)

    assert [row[0].decode() for row in file.rows] == [row["text_a"] for row in expected]
    assert [row[1].decode() for row in file.rows] == [row["text_b"] or "" for row in expected]
    if file.split not in UNLABELLED:
        assert [task.labels[label] for label in labels] == [row["label"] for row in expected]
    names = ("input_ids", "input_mask", "segment_ids", "label_id", "is_real_example")
    for array, feature, wanted in zip(examples.arrays, examples.features, names, strict=True):
        assert array.dtype == feature.dtype
        np.testing.assert_array_equal(array, [row[wanted] for row in expected])
