"""SQuAD's JSON and GLUE's TSV are the published files again, made of the Hub's rows; a wrong row is named with its file."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertprep.errors import BertprepError, UsageError
from bertprep.sources.task_files import write_glue, write_squad
from bertprep.tasks.glue import find_task
from bertprep.tasks.glue_files import read_file
from tests.small_hub import SQUAD, glue_parquet, parquet

# Written by hand in the form of the published files: keys in their order, ASCII only, no line break at the end.
PUBLISHED = {
    "v1.1": (
        r'{"data": [{"title": "Caf\u00e9", "paragraphs": [{"context": "Un caf\u00e9 \ud83d\ude00 co\u00fbte \"deux\" euros.'
        r'\nOui.", "qas": [{"answers": [{"answer_start": 3, "text": "caf\u00e9"}, {"answer_start": 16, "text": "\"deux\" euros"'
        r'}], "question": "Quoi\t?", "id": "a1"}, {"answers": [{"answer_start": 30, "text": "Oui"}], "question": "Vrai ?", '
        r'"id": "a2"}]}]}, {"title": "Tea", "paragraphs": [{"context": "Tea is hot.", "qas": [{"answers": [{"answer_start": 0, '
        r'"text": "Tea"}], "question": "What is hot?", "id": "b1"}]}, {"context": " Tea is old.", "qas": [{"answers": '
        r'[{"answer_start": 8, "text": "old"}], "question": "How is tea?", "id": "b2"}]}]}], "version": "1.1"}'
    ),
    "v2.0": (
        r'{"version": "v2.0", "data": [{"title": "Beyonc\u00e9", "paragraphs": [{"qas": [{"question": "When?", "id": "c1", '
        r'"answers": [{"text": "1990s", "answer_start": 12}], "is_impossible": false}, {"question": "Who else?", "id": "c2", '
        r'"answers": [], "is_impossible": true}], "context": "In the late 1990s."}]}]}'
    ),
}


def rows_of(published: str) -> list[dict[str, Any]]:
    """Return the rows that the Hub has for a published file."""
    return [
        row(
            question["id"], article["title"], paragraph["context"], question["question"],
            **{key: [answer[key] for answer in question["answers"]] for key in ("text", "answer_start")},
        )
        for article in json.loads(published)["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]  # fmt: skip


def row(identifier: str, title: str, context: str, question: str = "?", **answers: Any) -> dict[str, Any]:
    found = {"text": [], "answer_start": [], **answers}
    return {"id": identifier, "title": title, "context": context, "question": question, "answers": found}


def squad(folder: Path, rows: list[dict[str, Any]], *more: dict[str, Any]) -> Path:
    """Write a folder as it is on the Hub, with `more` rows in a second file for training; returns the first."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in ("validation-00000-of-00001", rows), ("train-00001-of-00002", more), ("train-00000-of-00002", rows):
        if content:
            path = folder / f"{name}.parquet"
            path.write_bytes(parquet([*content], SQUAD))
    return path


@pytest.mark.parametrize("version", PUBLISHED)
def test_squad_is_the_published_file_again(version: str, tmp_path: Path) -> None:
    squad(tmp_path / "parquet/plain_text", rows_of(PUBLISHED[version]))
    names = [f"dev-{version}.json", f"evaluate-{version}.py", f"train-{version}.json"]
    for spoil in (None, *names):  # a second run keeps correct files and repairs others
        if spoil:
            (tmp_path / version / spoil).write_text("something else")
        before = {path: path.stat().st_mtime_ns for path in tmp_path.glob(f"{version}/*") if path.name != spoil}
        write_squad(tmp_path / "parquet", tmp_path / version, version)
        assert sorted(path.name for path in (tmp_path / version).iterdir()) == names
        assert before.items() <= {path: path.stat().st_mtime_ns for path in tmp_path.glob(f"{version}/*")}.items()
        for name in (names[0], names[2]):
            assert (tmp_path / version / name).read_text(encoding="ascii") == PUBLISHED[version]
    with pytest.raises(UsageError, match=r"SQuAD has no version '1\.1'; choose v1\.1 or v2\.0"):
        write_squad(tmp_path / "parquet", tmp_path, "1.1")


def test_a_title_or_context_that_comes_again_joins_its_group_and_titles_share_none(tmp_path: Path) -> None:
    rows = [row("1", "A", "One."), row("2", "B", "One."), row("3", "A", "Two.")]
    squad(tmp_path / "parquet", rows, row("4", "A", "One."), row("5", "B", "One."))
    write_squad(tmp_path / "parquet", tmp_path, "v2.0")
    groups = [
        (article["title"], paragraph["context"], [qa["id"] for qa in paragraph["qas"]])
        for article in json.loads((tmp_path / "train-v2.0.json").read_text())["data"]
        for paragraph in article["paragraphs"]
    ]
    assert groups == [("A", "One.", ["1", "4"]), ("A", "Two.", ["3"]), ("B", "One.", ["2", "5"])]


@pytest.mark.parametrize(
    ("wrong", "version", "message"),
    [
        (row("x", "T", "Some."), "v1.1", "question 'x' has no answer, but v1.1 has one for each; is this v2.0?"),
        (row("x", "T", "Some.", text=[""], answer_start=[0]), "v2.0", "its answer '' is not at character 0 of the context"),
        (row("x", "T", "Some.", text=["o"], answer_start=[-4]), "v2.0", "its answer 'o' is not at character -4"),
        # 5 is where "é" ends in bytes; as characters it is one position too far
        (row("x", "T", "Café au lait", text=["au"], answer_start=[6]), "v1.1", "its answer 'au' is not at character 6"),
        (row("x", "T", "t", text=["t"]), "v1.1", "the answers to question 'x' are not lists of one length"),
        (row("x", "T", "t") | {"answers": None}, "v2.0", "column answers is NoneType, expected dict"),
    ],
)
def test_a_wrong_row_of_squad_is_named_with_its_file(wrong: dict[str, Any], version: str, message: str, tmp_path: Path) -> None:
    right = row("ok", "T", "Some text.", text=["text"], answer_start=[5])
    train = squad(tmp_path / "parquet", [right] * 300 + [wrong])  # in the second batch
    with pytest.raises(BertprepError) as error:
        write_squad(tmp_path / "parquet", tmp_path / "out", version)
    assert str(error.value).startswith(f"{train}: row 300 (from 0): ")
    assert message in str(error.value)
    assert not (tmp_path / "out").exists()


PAIR = "sentence1,sentence2"
PARSES = "sentence1_binary_parse,sentence2_binary_parse,sentence1_parse,sentence2_parse"
NLI_PAIR = f"index,promptID,pairID,genre,{PARSES},{PAIR}"
NLI_DEV = f"{NLI_PAIR},label1,label2,label3,label4,label5,gold_label"
STSB = "index,genre,filename,year,old_index,source1,source2,sentence1,sentence2"
Files = dict[str, tuple[str, str]]  # split on the Hub -> file, columns


def three(labelled: str, unlabelled: str) -> Files:
    return {"train": ("train", labelled), "validation": ("dev", labelled), "test": ("test", unlabelled)}


# The Hub's columns of texts, those of the files, their column of the label, its names on the Hub (none: a score) and there
GLUE: dict[str, tuple[str, str, str, str, str, Files]] = {
    "cola": ("sentence", "sentence", "label", "unacceptable,acceptable", "0,1",
             three("source,label,star,sentence", "index,sentence")),
    "sst2": ("sentence", "sentence", "label", "negative,positive", "0,1", three("sentence,label", "index,sentence")),
    "mrpc": (PAIR, "#1 String,#2 String", "Quality", "not_equivalent,equivalent", "0,1",
             three("Quality,#1 ID,#2 ID,#1 String,#2 String", "index,#1 ID,#2 ID,#1 String,#2 String")),
    "qqp": ("question1,question2", "question1,question2", "is_duplicate", "not_duplicate,duplicate", "0,1",
            three("id,qid1,qid2,question1,question2,is_duplicate", "id,question1,question2")),
    "stsb": (PAIR, PAIR, "score", "", "0.056,3.769", three(f"{STSB},score", STSB)),
    "mnli": ("premise,hypothesis", PAIR, "gold_label", "entailment,neutral,contradiction", "entailment,neutral", {
        "train": ("train", f"{NLI_PAIR},label1,gold_label"),
        "validation_matched": ("dev_matched", NLI_DEV), "validation_mismatched": ("dev_mismatched", NLI_DEV),
        "test_matched": ("test_matched", NLI_PAIR), "test_mismatched": ("test_mismatched", NLI_PAIR),
    }),
    "qnli": ("question,sentence", "question,sentence", "label", "entailment,not_entailment", "entailment,not_entailment",
             three("index,question,sentence,label", "index,question,sentence")),
    "rte": (PAIR, PAIR, "label", "entailment,not_entailment", "entailment,not_entailment",
            three(f"index,{PAIR},label", f"index,{PAIR}")),
    "wnli": (PAIR, PAIR, "label", "not_entailment,entailment", "0,1", three(f"index,{PAIR},label", f"index,{PAIR}")),
    "ax": ("premise,hypothesis", PAIR, "label", "entailment,neutral,contradiction", "", {
        "test": ("diagnostic", f"index,{PAIR}"),
    }),
}  # fmt: skip


def glue(folder: Path, split: str, columns: str, names: str, rows: list[Any] | None = None, *, described: bool = True) -> Path:
    """Write the file of a split, with rows of (texts..., label, idx); test splits are labelled -1, as on the Hub."""
    texts, labels = columns.split(","), names.split(",") if names else []
    if rows is None:
        scores = (-1, -1) if "test" in split else (0, 1) if labels else (0.056, 3.769)
        rows = [(*("A0", "B0")[: len(texts)], scores[0], 0), (*("A1", "B1")[: len(texts)], scores[1], 7)]
    path = folder / f"{split}-00000-of-00001.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(glue_parquet(texts, labels, rows, described=described))
    return path


@pytest.mark.parametrize("described", [False, True])
@pytest.mark.parametrize("task", GLUE)
def test_the_files_of_a_task_have_every_column_and_blanks_for_what_the_hub_lacks(
    task: str, described: bool, tmp_path: Path
) -> None:
    hub_texts, texts, label, names, words, files = GLUE[task]
    expected = {}
    for split, (name, columns) in files.items():
        glue(tmp_path / "parquet", split, hub_texts, names, described=described)
        lines = [columns.split(",")] if (task, split) not in (("cola", "train"), ("cola", "validation")) else []
        for index, text_a, text_b, word in zip("07", ("A0", "A1"), ("B0", "B1"), words.split(",") * 2, strict=False):
            cells = {"index": index, "id": index, label: word, **dict(zip(texts.split(","), (text_a, text_b), strict=False))}
            lines.append([cells.get(column, "") for column in columns.split(",")])
        expected[f"{name}.tsv"] = "".join("\t".join(line) + "\n" for line in lines)
    write_glue(find_task(task), tmp_path / "parquet", tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.glob("*.tsv")} == expected
    for split, file in find_task(task).files.items():  # the first text is read where it was written
        rows = read_file(tmp_path / file.name, split, find_task(task)).rows
        assert [row[:2] for row in rows] == [(b"A0", b"B0"), (b"A1", b"B1")] if "," in texts else [(b"A0", b""), (b"A1", b"")]
        assert [row[2].decode() for row in rows] == (words.split(",") if "test" not in file.split else ["", ""])


RTE = GLUE["rte"][3]


def test_line_breaks_become_spaces_and_labels_are_taken_by_the_names_in_the_file(tmp_path: Path) -> None:
    unclean = 'He said "tab\there", \'and\r\nlines\n\rend\0 \\t ünï “x” 漢字 😀 \u2028\x85 '
    clean = 'He said "tab here", \'and lines  end  \\t ünï “x” 漢字 😀 \u2028\x85 '
    for split in ("validation", "test"):
        glue(tmp_path / "parquet", split, PAIR, RTE)
    glue(tmp_path / "parquet", "train", PAIR, "not_entailment,entailment", [(unclean, '"', 0, 3), ("", "b", 1, 4)])
    write_glue(find_task("rte"), tmp_path / "parquet", tmp_path)
    found = (tmp_path / "train.tsv").read_bytes().decode().split("\n")[1:]
    assert found == [f'3\t{clean}\t"\tnot_entailment', "4\t\tb\tentailment", ""]


@pytest.mark.parametrize(
    ("rows", "names", "columns", "message"),
    [
        ([("a", "b", 2, 1)], RTE, PAIR, "row 0 (from 0): the label is 2, expected 0 to 1; download the"),
        ([("a", "b", None, 1)], RTE, PAIR, "row 0 (from 0): column label is NoneType, expected int"),
        ([("a", "b", -1.0, 1)], "", PAIR, "row 0 (from 0): the score is -1.0, expected 0 to 5; download the file again"),
        ([("a", "b", float("nan"), 1)], "", PAIR, "row 0 (from 0): the score is nan, expected 0 to 5; download the file again"),
        (None, "entailment,neutral,contradiction", PAIR, "has the labels entailment, neutral, contradiction, expected entail"),
        (None, RTE, "premise,hypothesis", "has no column sentence1, sentence2, found 'premise', 'hyp"),
        ([], RTE, PAIR, "has no rows; download the file again"),
    ],
)
def test_a_wrong_file_of_glue_is_one_line(rows: list[Any], names: str, columns: str, message: str, tmp_path: Path) -> None:
    task = find_task("rte" if names else "stsb")
    train = glue(tmp_path / "parquet", "train", columns, names, rows)
    with pytest.raises(BertprepError) as error:
        write_glue(task, tmp_path / "parquet", tmp_path / "out")
    assert str(error.value).startswith(f"{train}: {message}")
    train.write_bytes(b"PAR1, and then something else entirely PAR1")
    with pytest.raises(BertprepError, match=f"^{train}: cannot be read as Parquet: "):
        write_glue(task, tmp_path / "parquet", tmp_path / "out")
    train.unlink()
    with pytest.raises(
        BertprepError, match=r"parquet: has no file train-\*\.parquet in it or in its folders; download it again"
    ):
        write_glue(task, tmp_path / "parquet", tmp_path / "out")
    assert not (tmp_path / "out").exists()
