"""SQuAD's JSON and GLUE's TSV are the published files again, made of the Hub's rows; a wrong row is named with its file."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertprep.errors import BertprepError, UsageError
from bertprep.sources.task_files import write_glue, write_squad
from bertprep.tasks.glue import find_task

ANSWERS = pa.struct([("text", pa.list_(pa.string())), ("answer_start", pa.list_(pa.int32()))])
SCHEMA = pa.schema(
    [("id", pa.string()), ("title", pa.string()), ("context", pa.string()), ("question", pa.string()), ("answers", ANSWERS)]
)
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
    """The rows that the Hub has for a published file."""
    return [
        row(question["id"], article["title"], paragraph["context"], question["question"])
        | {"answers": {key: [answer[key] for answer in question["answers"]] for key in ("text", "answer_start")}}
        for article in json.loads(published)["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]


def row(identifier: str, title: str, context: str, question: str = "?", **answers: Any) -> dict[str, Any]:
    found = {"text": [], "answer_start": [], **answers}
    return {"id": identifier, "title": title, "context": context, "question": question, "answers": found}


def squad(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """A folder as it is on the Hub; returns the file of training."""
    (folder / "plain_text").mkdir(parents=True, exist_ok=True)
    for split in ("validation", "train"):
        path = folder / "plain_text" / f"{split}-00000-of-00001.parquet"
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path)
    return path


@pytest.mark.parametrize("version", PUBLISHED)
def test_squad_is_the_published_file_again(version: str, tmp_path: Path) -> None:
    squad(tmp_path / "parquet", rows_of(PUBLISHED[version]))
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
    rows = [row("1", "A", "One."), row("2", "B", "One."), row("3", "A", "Two."), row("4", "A", "One."), row("5", "B", "One.")]
    train = squad(tmp_path / "parquet", rows[:3])
    pq.write_table(pa.Table.from_pylist(rows[3:], SCHEMA), train.with_name("train-00001-of-00002.parquet"))
    write_squad(tmp_path / "parquet", tmp_path, "v2.0")
    groups = [
        (article["title"], paragraph["context"], [qa["id"] for qa in paragraph["qas"]])
        for article in json.loads((tmp_path / "train-v2.0.json").read_text())["data"]
        for paragraph in article["paragraphs"]
    ]
    assert groups == [("A", "One.", ["1", "4"]), ("A", "Two.", ["3"]), ("B", "One.", ["2", "5"])]


@pytest.mark.parametrize(
    ("wrong", "version", "says"),
    [
        (row("x", "T", "Some."), "v1.1", "question 'x' has no answer, and v1.1 has one for each; is this v2.0?"),
        (row("x", "T", "Some.", text=[""], answer_start=[0]), "v2.0", "its answer '' is not at character 0 of the context"),
        (row("x", "T", "Some.", text=["o"], answer_start=[-4]), "v2.0", "its answer 'o' is not at character -4"),
        # 5 is where "é" ends in bytes; as characters it is one place too far
        (row("x", "T", "Café au lait", text=["au"], answer_start=[6]), "v1.1", "its answer 'au' is not at character 6"),
        (row("x", "T", "t", text=["t"]), "v1.1", "the answers to question 'x' are not lists of one length"),
        (row("x", "T", "t") | {"answers": None}, "v2.0", "column answers is NoneType, expected dict"),
        (row("x", "T", "t") | {"context": None}, "v2.0", "column context is NoneType, expected str"),
    ],
)
def test_a_wrong_row_of_squad_is_named_with_its_file(wrong: dict[str, Any], version: str, says: str, tmp_path: Path) -> None:
    right = row("ok", "T", "Some text.", text=["text"], answer_start=[5])
    train = squad(tmp_path / "parquet", [right] * 300 + [wrong])  # in the second batch
    with pytest.raises(BertprepError) as error:
        write_squad(tmp_path / "parquet", tmp_path / "out", version)
    assert str(error.value).startswith(f"{train}: row 300 (from 0): ")
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


# The Hub's columns of texts and names of labels (none: a score), and the lines of train.tsv, dev.tsv and of test.tsv
GLUE: dict[str, tuple[str, str, list[str], list[str]]] = {
    "cola": ("sentence", "unacceptable acceptable", ["\t0\t\tA0", "\t1\t\tA1"], ["index\tsentence", "0\tA0", "7\tA1"]),
    "sst2": (
        "sentence", "negative positive", ["sentence\tlabel", "A0\t0", "A1\t1"], ["index\tsentence", "0\tA0", "7\tA1"],
    ),
    "mrpc": (
        "sentence1 sentence2", "not_equivalent equivalent",
        ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "0\t\t\tA0\tB0", "1\t\t\tA1\tB1"],
        ["index\t#1 ID\t#2 ID\t#1 String\t#2 String", "0\t\t\tA0\tB0", "7\t\t\tA1\tB1"],
    ),
    "qqp": (
        "question1 question2", "not_duplicate duplicate",
        ["id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "0\t\t\tA0\tB0\t0", "7\t\t\tA1\tB1\t1"],
        ["id\tquestion1\tquestion2", "0\tA0\tB0", "7\tA1\tB1"],
    ),
    "stsb": (
        "sentence1 sentence2", "",
        [
            "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
            "0\t\t\t\t\t\t\tA0\tB0\t0.056", "7\t\t\t\t\t\t\tA1\tB1\t3.769",
        ],
        [
            "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2",
            "0\t\t\t\t\t\t\tA0\tB0", "7\t\t\t\t\t\t\tA1\tB1",
        ],
    ),
    "qnli": (
        "question sentence", "entailment not_entailment",
        ["index\tquestion\tsentence\tlabel", "0\tA0\tB0\tentailment", "7\tA1\tB1\tnot_entailment"],
        ["index\tquestion\tsentence", "0\tA0\tB0", "7\tA1\tB1"],
    ),
    "rte": (
        "sentence1 sentence2", "entailment not_entailment",
        ["index\tsentence1\tsentence2\tlabel", "0\tA0\tB0\tentailment", "7\tA1\tB1\tnot_entailment"],
        ["index\tsentence1\tsentence2", "0\tA0\tB0", "7\tA1\tB1"],
    ),
    "wnli": (
        "sentence1 sentence2", "not_entailment entailment",
        ["index\tsentence1\tsentence2\tlabel", "0\tA0\tB0\t0", "7\tA1\tB1\t1"],
        ["index\tsentence1\tsentence2", "0\tA0\tB0", "7\tA1\tB1"],
    ),
}  # fmt: skip
NLI = ("premise hypothesis", "entailment neutral contradiction")


def glue(folder: Path, split: str, columns: str, names: str, rows: list[Any] | None = None, *, described: bool = True) -> Path:
    """One Parquet file of a task, with rows of (texts..., label, idx); test splits are labelled -1, as on the Hub."""
    texts, labels = columns.split(), names.split()
    described_as = {"info": {"features": {"label": {"names": labels, "_type": "ClassLabel"}}}}
    schema = pa.schema(
        [(text, pa.string()) for text in texts] + [("label", pa.int64() if labels else pa.float32()), ("idx", pa.int32())],
        {"huggingface": json.dumps(described_as)} if labels and described else None,
    )
    if rows is None:
        scores = (-1, -1) if "test" in split else (0, 1) if labels else (0.056, 3.769)
        rows = [(*("A0", "B0")[: len(texts)], scores[0], 0), (*("A1", "B1")[: len(texts)], scores[1], 7)]
    path = folder / f"{split}-00000-of-00001.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema), path)
    return path


def lines(*found: str) -> str:
    return "".join(f"{line}\n" for line in found)


@pytest.mark.parametrize("described", [False, True])
@pytest.mark.parametrize("task", GLUE)
def test_the_files_of_a_task(task: str, described: bool, tmp_path: Path) -> None:
    columns, names, labelled, unlabelled = GLUE[task]
    for split in ("train", "validation", "test"):
        glue(tmp_path / "parquet", split, columns, names, described=described)
    write_glue(find_task(task), tmp_path / "parquet", tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.glob("*.tsv")} == {
        "train.tsv": lines(*labelled), "dev.tsv": lines(*labelled), "test.tsv": lines(*unlabelled),
    }  # fmt: skip


def test_the_files_of_mnli_and_the_diagnostic_set(tmp_path: Path) -> None:
    for split in ("train", "validation_matched", "validation_mismatched", "test_matched", "test_mismatched"):
        glue(tmp_path / "parquet", split, *NLI)
    write_glue(find_task("mnli"), tmp_path / "parquet", tmp_path)
    pair = (
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
        "sentence1_parse\tsentence2_parse\tsentence1\tsentence2"
    )
    rows = ["0\t\t\t\t\t\t\t\tA0\tB0", "7\t\t\t\t\t\t\t\tA1\tB1"]
    train = lines(f"{pair}\tlabel1\tgold_label", f"{rows[0]}\t\tentailment", f"{rows[1]}\t\tneutral")
    dev = lines(
        f"{pair}\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label",
        f"{rows[0]}\t\t\t\t\t\tentailment", f"{rows[1]}\t\t\t\t\t\tneutral",
    )  # fmt: skip
    test = lines(pair, *rows)
    assert {path.name: path.read_text() for path in tmp_path.glob("*.tsv")} == {
        "train.tsv": train, "dev_matched.tsv": dev, "dev_mismatched.tsv": dev,
        "test_matched.tsv": test, "test_mismatched.tsv": test,
    }  # fmt: skip
    glue(tmp_path / "ax", "test", *NLI)
    write_glue(find_task("ax"), tmp_path / "ax", tmp_path / "diagnostic")
    [path] = (tmp_path / "diagnostic").iterdir()
    assert (path.name, path.read_text()) == ("diagnostic.tsv", lines("index\tsentence1\tsentence2", "0\tA0\tB0", "7\tA1\tB1"))


def rte(folder: Path, rows: list[Any] | None, names: str = "entailment not_entailment", columns: str = "") -> Path:
    """The splits of RTE with these rows for training; returns their file."""
    for split in ("validation", "test"):
        glue(folder, split, "sentence1 sentence2", "entailment not_entailment")
    return glue(folder, "train", columns or "sentence1 sentence2", names, rows)


def test_line_breaks_become_spaces_and_labels_are_taken_by_the_names_in_the_file(tmp_path: Path) -> None:
    nasty = 'He said "tab\there", \'and\r\nlines\n\rend\0 \\t ünï “x” 漢字 😀 \u2028\x85 '
    clean = 'He said "tab here", \'and lines  end  \\t ünï “x” 漢字 😀 \u2028\x85 '
    rte(tmp_path / "parquet", [(nasty, '"', 0, 3), ("", "b", 1, 4)], "not_entailment entailment")
    write_glue(find_task("rte"), tmp_path / "parquet", tmp_path)
    found = (tmp_path / "train.tsv").read_bytes().decode().split("\n")[1:]
    assert found == [f'3\t{clean}\t"\tnot_entailment', "4\t\tb\tentailment", ""]


@pytest.mark.parametrize(
    ("rows", "names", "columns", "says"),
    [
        ([("a", "b", 2, 1)], "entailment not_entailment", "", "row 0 (from 0): the label is 2, expected 0 to 1; download the"),
        ([("a", "b", None, 1)], "entailment not_entailment", "", "row 0 (from 0): column label is NoneType, expected int"),
        (None, "entailment neutral contradiction", "", "has the labels entailment, neutral, contradiction, expected entail"),
        (None, "entailment not_entailment", "premise hypothesis", "has no column sentence1, sentence2, found 'premise', 'hyp"),
        ([], "entailment not_entailment", "", "holds no row; download the file again"),
    ],
)
def test_a_wrong_file_of_glue_is_one_line(rows: list[Any], names: str, columns: str, says: str, tmp_path: Path) -> None:
    train = rte(tmp_path / "parquet", rows, names, columns)
    with pytest.raises(BertprepError) as error:
        write_glue(find_task("rte"), tmp_path / "parquet", tmp_path / "out")
    assert str(error.value).startswith(f"{train}: {says}")
    assert not (tmp_path / "out").exists()
    train.write_bytes(b"PAR1, and then something else entirely PAR1")
    with pytest.raises(BertprepError, match=f"^{train}: cannot be read as Parquet: "):
        write_glue(find_task("rte"), tmp_path / "parquet", tmp_path)
    train.unlink()
    with pytest.raises(BertprepError, match=r"parquet: has no file train-\*\.parquet, in it or below; download it again"):
        write_glue(find_task("rte"), tmp_path / "parquet", tmp_path)


@pytest.mark.parametrize("score", [-1.0, float("nan")])
def test_a_score_is_from_0_to_5(score: float, tmp_path: Path) -> None:
    glue(tmp_path, "train", "sentence1 sentence2", "", [("a", "b", score, 0)])
    with pytest.raises(BertprepError, match=f"the score is {score}, expected 0 to 5; download the file again"):
        write_glue(find_task("stsb"), tmp_path, tmp_path / "out")
