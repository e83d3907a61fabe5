"""GLUE's files and one's own, in cases that a person can check by eye."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from bertprep.config import GlueSettings
from bertprep.errors import BertprepError, UsageError
from bertprep.instances import Tokenizer, Vocabulary, load_vocabulary
from bertprep.instances.vocabulary import SPECIAL_TOKENS
from bertprep.records.examples import ClassificationExamples
from bertprep.tasks import records
from bertprep.tasks.glue import TASKS, GlueTask, find_task, own_task
from bertprep.tasks.glue_features import make_examples, truncated_sizes
from bertprep.tasks.glue_files import find_labels, label_ids, read_file
from bertprep.tasks.records import glue_source
from bertprep.work.layout import SUBMISSION, TRAINING

WORDS = [*SPECIAL_TOKENS[1:], "the", "cat", "sat", "a", "dog", "cafe", "Cafe", "Café", "##s", '"', "北", "京", "[PAD]"]
REVIEWS = own_task("reviews", ["bad", "good"])


def vocabulary_in(folder: Path) -> Vocabulary:
    (path := folder / "vocab.txt").write_text("\n".join(WORDS), encoding="utf-8")
    return load_vocabulary(path)


def examples_of(
    content: str | bytes, tmp_path: Path, *, task: GlueTask = REVIEWS, split: str = TRAINING, name: str = "train.tsv"
) -> list[tuple[str, int | float]]:
    """Return (tokens without padding, with | where segment 1 begins; label) of each example of a file with this content."""
    path, vocabulary, seq = tmp_path / name, vocabulary_in(tmp_path), 12
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    file = read_file(path, split, task)
    examples = make_examples(file.rows, label_ids(file, task), Tokenizer(vocabulary, lower=True), vocabulary, seq=seq)
    shown = []
    for ids, mask, segments, label, _ in zip(*examples.arrays, strict=True):
        size, first = int(mask.sum()), int((segments < mask).sum())
        words = [vocabulary.tokens[token] for token in ids[:size]]
        shown.append((" ".join(words[:first] + ["|"] * (first < size) + words[first:]), label.item()))
    return shown


ONE = "[CLS] the cat sat [SEP]"
TWO = "[CLS] the cat [SEP] | a dog [SEP]"
CASES = {
    "a text and a label by name": ("text\tlabel\nthe cat sat\tgood\n", ONE),
    "two texts": ("sentence1\tsentence2\tlabel\nthe cat\ta dog\tgood\n", TWO),
    "a byte order mark": ("\ufefftext\tlabel\nthe cat sat\tgood\n", ONE),
    "CRLF": ("text\tlabel\r\nthe cat sat\tgood\r\n", ONE),
    "a lone CR joins": ("text\tlabel\nthe c\rat sat\tgood\n", ONE),
    "a quote that is never closed": ('text\tlabel\nthe "cat\tgood\n', '[CLS] the " cat [SEP]'),
    "an empty text_b is none": ("sentence1\tsentence2\tlabel\nthe cat sat\t\tgood\n", ONE),
    "nor has a text_b without tokens": ("sentence1\tsentence2\tlabel\nthe cat sat\t \u200b\tgood\n", ONE),
    "an empty text_a stays": ("sentence1\tsentence2\tlabel\n\ta dog\tgood\n", "[CLS] [SEP] | a dog [SEP]"),
    "accents go in lower case": ("text\tlabel\nCAFÉ cafe\u0301s\tgood\n", "[CLS] cafe cafe ##s [SEP]"),
    "NBSP and U+2028 end no line": ("text\tlabel\nthe\u00a0cat\u2028sat\tgood\n", ONE),
    "a vertical tab vanishes": ("text\tlabel\nthe c\vat sat\tgood\n", ONE),
    "[MASK] in a text is no mask": ("text\tlabel\n[MASK] the\tgood\n", "[CLS] [UNK] [UNK] [UNK] the [SEP]"),
    "JSON": ('{"id": 3, "sentence1": "the\\ncat\\r\\n", "sentence2": "a\\tdog", "label": "good"}\n', TWO),
}


@pytest.mark.parametrize("case", CASES)
def test_files_of_ones_own(case: str, tmp_path: Path) -> None:
    content, tokens = CASES[case]
    assert examples_of(content, tmp_path, name="x.jsonl" if case == "JSON" else "x.tsv") == [(tokens, 1)]


def test_a_label_in_json_may_be_a_number(tmp_path: Path) -> None:
    content = '{"text": "the cat sat", "label": 1}\n'
    assert examples_of(content, tmp_path, task=own_task("own", ["0", "1"]), name="x.jsonl") == [(ONE, 1)]


def test_truncation_is_google_s_loop() -> None:
    sizes = np.array(list(product(range(14), range(1, 14))))
    for seq in range(8, 16):
        expected = []
        for size_a, size_b in sizes.tolist():
            a, b = ["a"] * size_a, ["b"] * size_b
            while len(a) + len(b) > seq - 3:
                (a if len(a) > len(b) else b).pop()
            expected.append((len(a), len(b)))
        found = truncated_sizes(sizes[:, 0], sizes[:, 1], seq)
        assert list(zip(*map(np.ndarray.tolist, found), strict=True)) == expected


def test_test_files_have_no_labels(tmp_path: Path) -> None:
    assert examples_of("index\tsentence\n0\tthe cat sat\n", tmp_path, task=find_task("cola"), split=SUBMISSION) == [(ONE, 0)]
    assert examples_of("text\nthe cat sat\n", tmp_path, split=SUBMISSION) == [(ONE, 0)]
    assert examples_of("text\tlabel\nthe cat sat\t?\n", tmp_path, split=SUBMISSION) == [(ONE, 0)]  # not read


STSB = "\t".join(find_task("stsb").files[TRAINING].columns)
MISTAKES: list[tuple[str, str | bytes, str]] = [
    ("tsv", "text\tlabel\nthe cat\tgood\nthe dog\n", "line 3: has 1 column, expected 2 or more"),
    ("tsv", "text\tlabel\nthe cat\tgood\n\n", "line 3: is blank, expected 2 or more columns"),
    ("tsv", "text\tlabel\nthe cat\tgood\nthe dog\tugly\n", "line 3: the label is 'ugly', expected one of bad, good"),
    ("tsv", "text\tlabel\nthe cat\t\n", "line 2: the label is '', expected one of bad, good"),
    ("tsv", "words\tlabel\nthe cat\tgood\n", "line 1: has no column text_a or sentence1 or text or sentence or premise for"),
    ("tsv", "text\tclass\nthe cat\tgood\n", "line 1: has no column label or labels or gold_label or score; its columns are"),
    ("tsv", "text\tsentence\tlabel\na\tb\tgood\n", "line 1: has the columns text and sentence"),
    ("tsv", "text\tlabel\nthe cat\tgood\nthe\0\tgood\n", "line 3: has a NUL"),
    ("tsv", b"text\tlabel\nthe cat\tgood\ncaf\xe9\tgood\n", "line 3: expected UTF-8, found 0xe9"),
    ("tsv", "", "is empty; expected one example per line"),
    ("jsonl", '{"text": "a", "label": "bad"}\n{"text": \n', "line 2: is not JSON"),
    ("jsonl", '{"text": "a", "label": "bad"}\n{"text": 5, "label": "bad"}\n', "line 2: 'text' is 5, expected a string"),
    ("jsonl", '{"text": "a", "label": true}\n', "line 1: the label is 'true', expected one of bad, good"),
    ("jsonl", '{"text": "\\ud800", "label": "bad"}\n', "line 1: 'text' has half of a surrogate pair"),
    ("jsonl", '{"text": "\\u0000", "label": "bad"}\n', "line 1: 'text' has a NUL"),
    ("mrpc", "1\t5\t6\tthe cat\ta dog\n", "line 1: is an example, expected the header Quality\\t#1 ID"),
    ("cola", "source\tlabel\tstar\tsentence\nx\t1\t\tthe cat\n", "line 1: is a header, but this GLUE file has none"),
    *(
        ("stsb", f"{STSB}\n0\tg\tf\ty\t1\ts\ts\tthe cat\ta dog\t{score}\n", f"line 2: the score is {score!r}, expected a num")
        for score in ("5.1", "-1", "nan", "inf", "high", "")
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "content", "message"), MISTAKES)
def test_a_mistake_is_one_line(kind: str, content: str | bytes, message: str, tmp_path: Path) -> None:
    task = find_task(kind) if kind in TASKS else REVIEWS
    name = f"train.{'tsv' if kind in TASKS else kind}"
    with pytest.raises(BertprepError) as caught:
        examples_of(content, tmp_path, task=task, name=name)
    assert str(caught.value).startswith(f"{tmp_path}/{name}: {message}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("labels", [["a"], ["a", "a"], ["a", ""]])
def test_labels_must_differ(labels: list[str]) -> None:
    with pytest.raises(UsageError, match="expected two or more different names"):
        own_task("own", labels)


def test_labels_are_found_in_the_training_file(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    path.write_text("text\tlabel\na\t10\nb\t2\nc\t10\nd\t1\n")
    assert find_labels(read_file(path, TRAINING, REVIEWS)) == ("1", "2", "10")
    path.write_text("text\tlabel\nb\t\n")
    with pytest.raises(BertprepError, match=r"train\.tsv: has 0 labels, expected 2 to 1,000; check the file"):
        find_labels(read_file(path, TRAINING, REVIEWS))


def test_record_files_hold_so_many_lines_the_header_included(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "EXAMPLES_PER_FILE", 3)
    path = tmp_path / "train.tsv"
    path.write_text("text\tlabel\n" + "a\tgood\n" * 3 + "dog\tbad\n" * 3)
    file = read_file(path, TRAINING, REVIEWS)
    source = glue_source({TRAINING: file}, REVIEWS, vocabulary_in(tmp_path), GlueSettings(seq=8))
    split = source.splits[TRAINING]
    assert (split.bounds, split.files, source.counts) == ([0, 2, 5, 6], 3, {"training_examples": 6})
    for bounds, labels in (((0, 2), [1, 1]), ((2, 5), [1, 0, 0]), ((5, 6), [0])):
        examples = split.make(*bounds)
        assert isinstance(examples, ClassificationExamples)
        assert examples.label_ids.tolist() == labels
