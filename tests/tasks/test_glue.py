"""GLUE's files and one's own, in cases that a person can check by eye."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from bertprep.config import GlueSettings
from bertprep.errors import BertprepError, UsageError
from bertprep.instances import Tokenizer, load_vocabulary
from bertprep.instances.vocabulary import SPECIAL_TOKENS
from bertprep.records.examples import ClassificationExamples
from bertprep.tasks import records
from bertprep.tasks.glue import TASKS, UNLABELLED, GlueTask, find_task, own_task
from bertprep.tasks.glue_features import make_examples, truncated_sizes
from bertprep.tasks.glue_files import find_labels, label_ids, read_file
from bertprep.tasks.records import glue_source
from bertprep.work.layout import SUBMISSION, TRAINING

WORDS = [*SPECIAL_TOKENS[1:], "the", "cat", "sat", "a", "dog", "cafe", "Cafe", "Café", "##s", '"', "北", "京", "[PAD]"]
REVIEWS = own_task("reviews", ["bad", "good"])


def examples_of(
    content: str | bytes,
    tmp_path: Path,
    *,
    task: GlueTask = REVIEWS,
    split: str = TRAINING,
    name: str = "train.tsv",
    seq: int = 12,
    cased: bool = False,
) -> list[tuple[str, int | float]]:
    """(tokens without padding, with | where segment 1 begins; label) of each example of a file with this content."""
    path, vocab = tmp_path / name, tmp_path / "vocab.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    vocab.write_text("\n".join(WORDS), encoding="utf-8")
    vocabulary = load_vocabulary(vocab)
    file = read_file(path, split, task)
    examples = make_examples(file.rows, label_ids(file, task), Tokenizer(vocabulary, lower=not cased), vocabulary, seq=seq)
    shown = []
    for ids, mask, segments, label, real in zip(*examples.arrays, strict=True):
        size = int(mask.sum())
        assert real == 1
        assert mask.tolist() == [1] * size + [0] * (seq - size)
        assert set(ids[size:].tolist()) <= {vocabulary.pad}
        assert not segments[size:].any()
        first = int((segments == 0)[:size].sum())
        assert segments[:size].tolist() == [0] * first + [1] * (size - first)
        words = [vocabulary.tokens[number] for number in ids[:size]]
        shown.append((" ".join(words[:first] + ["|"] * (first < size) + words[first:]), label.item()))
    return shown


def refusal(content: str | bytes, tmp_path: Path, **more: object) -> str:
    with pytest.raises(BertprepError) as caught:
        examples_of(content, tmp_path, **more)  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    return message.removeprefix(f"{tmp_path}/")


ONE = "[CLS] the cat sat [SEP]"
TWO = "[CLS] the cat [SEP] | a dog [SEP]"
CASES = {
    "a text and a label by name": ("text\tlabel\nthe cat sat\tgood\n", ONE, 1),
    "two texts": ("sentence1\tsentence2\tlabel\nthe cat\ta dog\tgood\n", TWO, 1),
    "a byte order mark": ("\ufefftext\tlabel\nthe cat sat\tgood\n", ONE, 1),
    "CRLF": ("text\tlabel\r\nthe cat sat\tgood\r\n", ONE, 1),
    "a lone CR joins": ("text\tlabel\nthe c\rat sat\tgood\n", ONE, 1),
    "a quote that is never closed": ('text\tlabel\nthe "cat\tgood\n', '[CLS] the " cat [SEP]', 1),
    "an empty text_b is none": ("sentence1\tsentence2\tlabel\nthe cat sat\t\tgood\n", ONE, 1),
    "nor has a text_b without tokens": ("sentence1\tsentence2\tlabel\nthe cat sat\t \u200b\tgood\n", ONE, 1),
    "an empty text_a stays": ("sentence1\tsentence2\tlabel\n\ta dog\tgood\n", "[CLS] [SEP] | a dog [SEP]", 1),
    "accents go in lower case": ("text\tlabel\nCAFÉ cafe\u0301s\tgood\n", "[CLS] cafe cafe ##s [SEP]", 1),
    "NBSP and U+2028 end no line": ("text\tlabel\nthe\u00a0cat\u2028sat\tgood\n", ONE, 1),
    "a vertical tab vanishes": ("text\tlabel\nthe c\vat sat\tgood\n", ONE, 1),
    "[MASK] in a text is no mask": ("text\tlabel\n[MASK] the\tgood\n", "[CLS] [UNK] [UNK] [UNK] the [SEP]", 1),
}


@pytest.mark.parametrize("case", CASES)
def test_one_s_own_tsv(case: str, tmp_path: Path) -> None:
    content, tokens, label = CASES[case]
    assert examples_of(content, tmp_path) == [(tokens, label)]


def test_one_s_own_json_lines(tmp_path: Path) -> None:
    content = [{"id": 3, "sentence1": "the\ncat\r\n", "sentence2": "a\tdog", "label": 1}]
    text = "".join(json.dumps(row) + "\n" for row in content)
    assert examples_of(text, tmp_path, task=own_task("own", ["0", "1"]), name="x.jsonl") == [(TWO, 1)]


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


def test_the_columns_are_where_trainers_take_them() -> None:
    # of the processors in run_classifier.py and in NVIDIA's and Hugging Face's copies of GLUE's: labelled files and others
    expected = {
        "cola": ((3, None, 1, False), (1, None)), "sst2": ((0, None, -1, True), (1, None)), "mrpc": ((3, 4, 0, True), (3, 4)),
        "qqp": ((3, 4, -1, True), (1, 2)), "stsb": ((7, 8, -1, True), (7, 8)), "mnli": ((8, 9, -1, True), (8, 9)),
        **dict.fromkeys(("qnli", "rte", "wnli", "ax"), ((1, 2, -1, True), (1, 2))),
    }  # fmt: skip
    for task in TASKS.values():
        labelled, unlabelled = expected[task.name]
        for split in task.files:
            columns = task.columns(split)
            found = (columns.text_a, columns.text_b, columns.label, columns.has_header)
            assert found == (labelled if split not in UNLABELLED else (*unlabelled, None, True))


def test_test_files_have_no_labels(tmp_path: Path) -> None:
    assert examples_of("index\tsentence\n0\tthe cat sat\n", tmp_path, task=find_task("cola"), split=SUBMISSION) == [(ONE, 0)]
    assert examples_of("text\nthe cat sat\n", tmp_path, split=SUBMISSION) == [(ONE, 0)]
    assert examples_of("text\tlabel\nthe cat sat\t?\n", tmp_path, split=SUBMISSION) == [(ONE, 0)]  # not read


MISTAKES = {
    "a column too few": ("text\tlabel\nthe cat\tgood\nthe dog\n", "line 3: has 1 column, expected 2 or more"),
    "a blank line": ("text\tlabel\nthe cat\tgood\n\n", "line 3: is blank, expected 2 or more columns"),
    "an unknown label": (
        "text\tlabel\nthe cat\tgood\nthe dog\tugly\n",
        "line 3: the label is 'ugly', expected one of bad, good",
    ),
    "an empty label": ("text\tlabel\nthe cat\t\n", "line 2: the label is '', expected one of bad, good"),
    "no text": (
        "words\tlabel\nthe cat\tgood\n",
        "line 1: names no column text_a or sentence1 or text or sentence for the text",
    ),
    "no label": ("text\tclass\nthe cat\tgood\n", "line 1: names no column label; it has: text, class"),
    "no header": ("the cat\tgood\n", "line 1: names no column text_a"),
    "two columns for a text": ("text\tsentence\tlabel\na\tb\tgood\n", "line 1: has the columns text and sentence"),
    "NUL": ("text\tlabel\nthe cat\tgood\nthe\0\tgood\n", "line 3: has a NUL"),
    "not UTF-8": (b"text\tlabel\nthe cat\tgood\ncaf\xe9\tgood\n", "line 3: byte 0xe9 is not UTF-8"),
    "an empty file": ("", "is empty; expected one example a line"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_in_tsv_is_one_line(case: str, tmp_path: Path) -> None:
    content, expected = MISTAKES[case]
    assert expected in refusal(content, tmp_path)


JSON_MISTAKES = {
    "not JSON": ('{"text": "a", "label": "bad"}\n{"text": \n', "line 2: is not JSON"),
    "a text that is a number": ('{"text": "a", "label": "bad"}\n{"text": 5, "label": "bad"}\n', "line 2: has no text 'text'"),
    "a label that is true": ('{"text": "a", "label": true}\n', "line 1: has no text 'label'"),
    "half a surrogate pair": ('{"text": "\\ud800", "label": "bad"}\n', "line 1: 'text' has half of a surrogate pair"),
    "NUL": ('{"text": "\\u0000", "label": "bad"}\n', "line 1: 'text' has a NUL"),
}


@pytest.mark.parametrize("case", JSON_MISTAKES)
def test_a_mistake_in_json_lines_is_one_line(case: str, tmp_path: Path) -> None:
    content, expected = JSON_MISTAKES[case]
    assert expected in refusal(content, tmp_path, name="train.jsonl")


def test_a_published_file_without_its_header_would_lose_an_example(tmp_path: Path) -> None:
    message = refusal("1\t5\t6\tthe cat\ta dog\n", tmp_path, task=find_task("mrpc"))
    assert "line 1: is an example, expected the header Quality\\t#1 ID" in message


def test_cola_has_no_header(tmp_path: Path) -> None:
    message = refusal("source\tlabel\tstar\tsentence\nx\t1\t\tthe cat\n", tmp_path, task=find_task("cola"))
    assert "line 1: is a header, and this file of GLUE's has none" in message


@pytest.mark.parametrize("score", ["5.1", "-1", "nan", "inf", "high", ""])
def test_scores_are_checked(score: str, tmp_path: Path) -> None:
    line = f"0\tg\tf\ty\t1\ts\ts\tthe cat\ta dog\t{score}\n"
    header = "\t".join(find_task("stsb").files[TRAINING].columns)
    message = refusal(f"{header}\n{line}", tmp_path, task=find_task("stsb"))
    assert f"line 2: the score is {score!r}, expected a number from 0 to 5" in message


@pytest.mark.parametrize("labels", [["a"], ["a", "a"], ["a", ""]])
def test_labels_must_differ(labels: list[str]) -> None:
    with pytest.raises(UsageError, match="must be two or more different names"):
        own_task("own", labels)


def test_labels_are_found_in_the_training_file(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    path.write_text("text\tlabel\na\t10\nb\t2\nc\t10\nd\t1\n")
    assert find_labels(read_file(path, TRAINING, REVIEWS)) == ("1", "2", "10")


@pytest.mark.parametrize(("name", "line"), [("train.tsv", "b\t\n"), ("train.jsonl", '{"text": "b", "label": ""}\n')])
def test_an_empty_label_of_a_training_file_is_named_with_its_line(name: str, line: str, tmp_path: Path) -> None:
    path = tmp_path / name
    first = "text\tlabel\n" if name.endswith(".tsv") else '{"text": "a", "label": "pos"}\n'
    path.write_text(first + line)
    with pytest.raises(BertprepError, match=rf"{name}: line 2: its label is empty, expected a name; fill it in"):
        find_labels(read_file(path, TRAINING, REVIEWS))


def test_record_files_hold_so_many_lines_the_header_included(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "EXAMPLES_PER_FILE", 3)
    path, vocab = tmp_path / "train.tsv", tmp_path / "vocab.txt"
    path.write_text("text\tlabel\n" + "a\tgood\n" * 3 + "dog\tbad\n" * 3)
    vocab.write_text("\n".join(WORDS), encoding="utf-8")
    file = read_file(path, TRAINING, REVIEWS)
    source = glue_source({TRAINING: file}, REVIEWS, load_vocabulary(vocab), GlueSettings(seq=8))
    split = source.splits[TRAINING]
    assert (split.bounds, split.files, source.counts) == ([0, 2, 5, 6], 3, {"training_examples": 6})
    for bounds, labels in (((0, 2), [1, 1]), ((2, 5), [1, 0, 0]), ((5, 6), [0])):
        examples = split.make(*bounds)
        assert isinstance(examples, ClassificationExamples)
        assert examples.label_ids.tolist() == labels
