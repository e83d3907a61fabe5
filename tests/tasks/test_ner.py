"""Tagged words of files to records, in cases that a person can check by eye."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import bertprep
from bertprep.config import GlueSettings
from bertprep.errors import BertprepError, BertprepWarning, UsageError
from bertprep.instances import Vocabulary, load_vocabulary
from bertprep.instances.vocabulary import SPECIAL_TOKENS
from bertprep.records import Records
from bertprep.records.columns import columns_of
from bertprep.records.examples import Feature, TokenClassificationExamples
from bertprep.tasks.ner import find_labels, make_examples, ner_records, read_tagged

WORDS = ["[PAD]", *SPECIAL_TOKENS[1:], "anna", "lives", "in", "par", "##is", ".", "the"]
CONLL = "-DOCSTART- -X- O O\n\nAnna NNP B-PER\nlives VBZ O\nin IN O\nParis NNP B-LOC\n. . O\n\nThe\tDT\tO\n"
SENTENCES = [(["Anna", "lives", "in", "Paris", "."], ["B-PER", "O", "O", "B-LOC", "O"]), (["The"], ["O"])]
LABELS = ("O", "B-LOC", "B-PER")


@pytest.fixture
def vocabulary(tmp_path: Path) -> Vocabulary:
    (path := tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return load_vocabulary(path)


def write(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def test_files_of_three_kinds_have_the_same_sentences(tmp_path: Path) -> None:
    import datasets

    lines = [json.dumps({"id": 3, "tokens": words, "ner_tags": tags}) for words, tags in SENTENCES]
    columns = {"tokens": [words for words, _ in SENTENCES], "ner_tags": [tags for _, tags in SENTENCES]}
    tags = datasets.List(datasets.ClassLabel(names=list(LABELS)))
    named = datasets.Features({"tokens": datasets.List(datasets.Value("string")), "ner_tags": tags})
    datasets.Dataset.from_dict(columns, features=named).to_parquet(tmp_path / "train.parquet")
    for path in (
        write(tmp_path / "train.conll", CONLL),
        write(tmp_path / "train.jsonl", "\n".join(lines)),
        write(tmp_path / "DEV.JSON", "\n\n".join(lines)),
        tmp_path / "train.parquet",
    ):
        assert read_tagged(path).sentences == SENTENCES
        assert find_labels(read_tagged(path)) == LABELS


@pytest.mark.parametrize("ends", ["", "\n", "\n\n", "\r\n"])
def test_a_last_sentence_needs_no_blank_line(ends: str, tmp_path: Path) -> None:
    assert read_tagged(write(tmp_path / "train.conll", CONLL.rstrip("\n") + ends)).sentences == SENTENCES


def test_columns_are_separated_by_spaces_and_tabs_alone(tmp_path: Path) -> None:
    """A number may have a no-break space, which `str.split` takes for a separator; a byte order mark is none of the text."""
    content = "\ufeff-DOCSTART- -X- O\n\n10\u00a0000 \t CD\tB-NUM\n\u00a0 SP O\n"
    assert read_tagged(write(tmp_path / "train.conll", content)).sentences == [(["10\u00a0000", "\u00a0"], ["B-NUM", "O"])]


def test_a_line_of_json_ends_where_its_line_feed_is(tmp_path: Path) -> None:
    """A string may have the line and paragraph separators of Unicode, at which `str.splitlines` splits too."""
    line = json.dumps({"tokens": ["a\u2028b", "c\x85d"], "ner_tags": ["O", "O"]}, ensure_ascii=False)
    assert read_tagged(write(tmp_path / "dev.jsonl", f"{line}\r\n")).sentences == [(["a\u2028b", "c\x85d"], ["O", "O"])]


@pytest.mark.parametrize(
    ("tags", "error"),
    [
        ([0, 2], r"row 1: has the tag 2, expected 0 to 1"),
    ],
)
def test_a_numbered_tag_without_a_name_is_one_line(tags: list[int], error: str, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    feature = {"feature": {"names": ["O", "B-PER"], "_type": "ClassLabel"}, "_type": "List"}
    metadata = {"huggingface": json.dumps({"info": {"features": {"ner_tags": feature}}})}
    table = pa.table({"tokens": [["Anna", "sleeps"]] * 2, "ner_tags": [[1, 0], tags]})
    path = tmp_path / "train.parquet"
    pq.write_table(table.replace_schema_metadata(metadata), path)
    with pytest.raises(BertprepError, match=f"^{path}: {error}"):
        read_tagged(path)


def test_labels_name_the_numbered_tags_of_json(tmp_path: Path) -> None:
    path = write(tmp_path / "train.jsonl", '{"tokens": ["Anna", "sleeps"], "ner_tags": [1, 0]}')
    assert read_tagged(path, ["O", "B-PER"]).sentences == [(["Anna", "sleeps"], ["B-PER", "O"])]


def test_columns_in_another_order_are_warned_of(tmp_path: Path, vocabulary: Vocabulary) -> None:
    path = write(tmp_path / "train.conll", "B-PER Anna\nO sleeps\n")
    [line] = ner_records({"training": path}, "x", (), vocabulary, GlueSettings(seq=16)).warnings
    assert line.startswith(
        "x: 2 of 2 labels are neither O nor like B-PER: Anna, sleeps; check that the word is in the first column"
    )
    assert line.endswith(
        "Anna is scored as I-Anna, while seqeval takes the first letter of any tag for its prefix, and so reads ORG as O"
    )
    path = write(tmp_path / "train.conll", "Anna B-PER\nsleeps O\n")
    assert not ner_records({"training": path}, "x", (), vocabulary, GlueSettings(seq=16)).warnings


@pytest.mark.parametrize("seq", [16, 8])
def test_the_first_piece_of_a_word_has_its_label(seq: int, vocabulary: Vocabulary) -> None:
    """What does not fit has none: the last two pieces are "." and, of the longer rows, none."""
    ids = {label: index for index, label in enumerate(LABELS)}
    examples = make_examples(SENTENCES, ids, vocabulary, GlueSettings(seq=seq))
    tokens = [vocabulary.tokens[identity] for identity in examples.input_ids[0].tolist()]
    assert tokens[:8] == ["[CLS]", "anna", "lives", "in", "par", "##is", ".", "[SEP]"]
    assert examples.label_ids[0, :8].tolist() == [0, 2, 0, 0, 1, 0, 0, 0]
    assert examples.label_weights[0, :8].tolist() == [0, 1, 1, 1, 1, 0, 1, 0]
    assert examples.input_mask.sum(axis=1).tolist() == [8, 3]
    assert (examples.label_weights[:, 8:] == 0).all()
    shorter = make_examples([(SENTENCES[0][0] * 2, SENTENCES[0][1] * 2)], ids, vocabulary, GlueSettings(seq=8))
    assert (shorter.label_weights.sum(), shorter.input_mask.sum()) == (5, 8)


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("train.conll", "Anna\n", "line 1: has one column"),
        (
            "train.conll",
            "Anna B-PER\nsleeps O VBZ\n",
            "line 2: has 3 columns, expected 2 as before; the tag is",
        ),
        ("train.conll", "-DOCSTART- O\n\n", "has no sentences"),
        ("train.jsonl", '{"tokens": ["a"], "ner_tags": [1]}', r"line 1: its tags are \[1\], expected a list of strings"),
        ("train.jsonl", '{"tokens": ["a"], "ner_tags": ["O", "O"]}', "line 1: has 1 words and 2 tags"),
        ("train.jsonl", '{"tokens": [], "ner_tags": []}', "line 1: has 0 words and 0 tags"),
        ("train.jsonl", '{"text": "a"}', "line 1: has the columns text, expected one of tokens, words"),
        ("train.jsonl", "[]", "has no sentences"),
        ("train.jsonl", "[1]", "object 0: is not a JSON object"),
        ("train.conll", "Anna O\n", "has 1 tag, expected 2 to 1,000"),
    ],
)
def test_a_wrong_file_is_one_line(name: str, content: str, error: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(BertprepError, match=f"^{path}: {error}"):
        find_labels(read_tagged(path))


def test_records_in_every_format_are_the_same(tmp_path: Path, vocabulary: Vocabulary) -> None:
    """Arrow's labels are transformers': -100 where a token has none."""
    import datasets

    write(tmp_path / "train.conll", CONLL)
    write(tmp_path / "dev.conll", "Paris B-LOC\n" + "the O\n" * 9)
    files = [tmp_path / "train.conll", tmp_path / "dev.conll"]
    given = {"vocab": vocabulary.path, "output": tmp_path / "out", "seq": 8, "workers": 1, "any_case": True}
    with pytest.warns(BertprepWarning, match="5 of 10 words get no label, since they do not fit in --seq 8"):
        made = bertprep.create_ner("places", inputs=files, formats="tfrecord,ofrecord,arrow,parquet", **given)
    expected: TokenClassificationExamples | None = None
    for name, folder in made.folders.items():
        with Records([folder]) as records:
            assert records.kind is TokenClassificationExamples
            block = TokenClassificationExamples.empty(2, seq=8)
            records.gather_into(block, np.arange(2))
        expected = block if expected is None else expected
        assert (block == expected).all(), name
    [path] = (made.folders["arrow"] / "train").glob("*.arrow")
    labels = datasets.Dataset.from_file(str(path))["labels"]
    assert labels[0] == [-100, 2, 0, 0, 1, -100, 0, -100]
    for report in bertprep.validate([made.folders["tfrecord"], made.folders["arrow"]]):
        assert [finding.code for finding in report.findings if finding.is_error] == []


def test_a_feature_without_a_column_is_an_error() -> None:
    """Else Arrow and Parquet files would lack it in silence."""

    class Weighted(TokenClassificationExamples):
        features = (*TokenClassificationExamples.features, Feature("importance", "one", "weight"))

    with pytest.raises(ValueError, match="Weighted: importance has no column, so Arrow and Parquet files would lack it"):
        columns_of(Weighted)


def test_a_tag_that_the_training_file_lacks_and_missing_names_are_one_line(tmp_path: Path, vocabulary: Vocabulary) -> None:
    files = [write(tmp_path / "train.conll", CONLL), write(tmp_path / "dev.conll", "Anna B-ORG\n")]
    given = {"vocab": vocabulary.path, "output": tmp_path / "out", "any_case": True}
    with pytest.raises(
        BertprepError, match=r"dev\.conll: sentence 1: the tag of 'Anna' is 'B-ORG', expected one of O, B-LOC, B-PER"
    ):
        bertprep.create_ner("places", inputs=files, **given)
    with pytest.raises(UsageError, match="places: its labels are unknown; give --labels"):
        bertprep.create_ner("places", inputs=files[1:], **given)
    with pytest.raises(UsageError, match="task ner: expected a name and files"):
        bertprep.create_ner("places")
