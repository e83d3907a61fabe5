"""GLUE's TSV files: the published headers, each value at the trainers' column, and nothing that breaks a line."""

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertprep.errors import BertprepError, UsageError
from bertprep.sources.catalogue import GLUE
from bertprep.sources.task_files import write_glue
from bertprep.tasks.glue import TASKS

# The Hub's schema: text columns, names of the labels (none: a score), splits
HUB: dict[str, tuple[list[str], list[str], list[str]]] = {
    "CoLA": (["sentence"], ["unacceptable", "acceptable"], ["train", "validation", "test"]),
    "SST-2": (["sentence"], ["negative", "positive"], ["train", "validation", "test"]),
    "MRPC": (["sentence1", "sentence2"], ["not_equivalent", "equivalent"], ["train", "validation", "test"]),
    "QQP": (["question1", "question2"], ["not_duplicate", "duplicate"], ["train", "validation", "test"]),
    "STS-B": (["sentence1", "sentence2"], [], ["train", "validation", "test"]),
    "MNLI": (
        ["premise", "hypothesis"],
        ["entailment", "neutral", "contradiction"],
        ["train", "validation_matched", "validation_mismatched", "test_matched", "test_mismatched"],
    ),
    "QNLI": (["question", "sentence"], ["entailment", "not_entailment"], ["train", "validation", "test"]),
    "RTE": (["sentence1", "sentence2"], ["entailment", "not_entailment"], ["train", "validation", "test"]),
    "WNLI": (["sentence1", "sentence2"], ["not_entailment", "entailment"], ["train", "validation", "test"]),
    "diagnostic": (["premise", "hypothesis"], ["entailment", "neutral", "contradiction"], ["test"]),
}

# What the files hold for the rows of `hub` below; A and B are its texts, blank columns are blank
LABELLED = {
    "CoLA": ["\t0\t\tA0", "\t1\t\tA1"],
    "SST-2": ["sentence\tlabel", "A0\t0", "A1\t1"],
    "MRPC": ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "0\t\t\tA0\tB0", "1\t\t\tA1\tB1"],
    "QQP": ["id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "0\t\t\tA0\tB0\t0", "7\t\t\tA1\tB1\t1"],
    "STS-B": [
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
        "0\t\t\t\t\t\t\tA0\tB0\t3.800",
        "7\t\t\t\t\t\t\tA1\tB1\t5.000",
    ],
    "QNLI": ["index\tquestion\tsentence\tlabel", "0\tA0\tB0\tentailment", "7\tA1\tB1\tnot_entailment"],
    "RTE": ["index\tsentence1\tsentence2\tlabel", "0\tA0\tB0\tentailment", "7\tA1\tB1\tnot_entailment"],
    "WNLI": ["index\tsentence1\tsentence2\tlabel", "0\tA0\tB0\t0", "7\tA1\tB1\t1"],
}
UNLABELLED = {
    "CoLA": ["index\tsentence", "0\tA0", "7\tA1"],
    "SST-2": ["index\tsentence", "0\tA0", "7\tA1"],
    "MRPC": ["index\t#1 ID\t#2 ID\t#1 String\t#2 String", "0\t\t\tA0\tB0", "7\t\t\tA1\tB1"],
    "QQP": ["id\tquestion1\tquestion2", "0\tA0\tB0", "7\tA1\tB1"],
    "STS-B": [
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2",
        "0\t\t\t\t\t\t\tA0\tB0",
        "7\t\t\t\t\t\t\tA1\tB1",
    ],
    "QNLI": ["index\tquestion\tsentence", "0\tA0\tB0", "7\tA1\tB1"],
    "RTE": ["index\tsentence1\tsentence2", "0\tA0\tB0", "7\tA1\tB1"],
    "WNLI": ["index\tsentence1\tsentence2", "0\tA0\tB0", "7\tA1\tB1"],
}

# Columns that trainers take, (text_a, text_b, label), from train.tsv and from test.tsv (which has no label)
POSITIONS: dict[str, tuple[tuple[int, int | None, int], tuple[int, int | None]]] = {
    "CoLA": ((3, None, 1), (1, None)),
    "SST-2": ((0, None, 1), (1, None)),
    "MRPC": ((3, 4, 0), (3, 4)),
    "QQP": ((3, 4, 5), (1, 2)),
    "STS-B": ((7, 8, -1), (7, 8)),
    "MNLI": ((8, 9, -1), (8, 9)),
    "QNLI": ((1, 2, -1), (1, 2)),
    "RTE": ((1, 2, -1), (1, 2)),
    "WNLI": ((1, 2, -1), (1, 2)),
}


def write_split(path: Path, task: str, rows: list[tuple[Any, ...]], names: list[str] | None = None) -> None:
    """One Parquet file of a task, with rows of (texts..., label, idx); `names` makes the Hub's description of the label."""
    texts, labels, _ = HUB[task]
    schema = pa.schema(
        [(text, pa.string()) for text in texts] + [("label", pa.int64() if labels else pa.float32()), ("idx", pa.int32())],
        {"huggingface": json.dumps({"info": {"features": {"label": {"names": names, "_type": "ClassLabel"}}}})}
        if names
        else None,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema), path)


def hub(folder: Path, task: str, *, described: bool = False) -> Path:
    """All splits of a task, two rows each; test splits are labelled -1, as on the Hub."""
    texts, labels, splits = HUB[task]
    for split in splits:
        scores = (-1, -1) if "test" in split else (0, 1) if labels else (3.8, 5.0)
        rows = [(*("A0", "B0")[: len(texts)], scores[0], 0), (*("A1", "B1")[: len(texts)], scores[1], 7)]
        write_split(folder / f"{split}-00000-of-00001.parquet", task, rows, labels if described else None)
    return folder


def read_as_trainers_do(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.reader(file, delimiter="\t", quotechar=None))


def test_every_task_of_the_catalogue_can_be_written() -> None:
    assert [task.folder for task in TASKS.values()] == list(GLUE)


@pytest.mark.parametrize("described", [False, True])
@pytest.mark.parametrize("task", list(LABELLED))
def test_the_files_of_a_task(tmp_path: Path, task: str, described: bool) -> None:
    write_glue(task, hub(tmp_path / "parquet", task, described=described), tmp_path / task)

    content = {path.name: path.read_bytes().decode() for path in (tmp_path / task).iterdir()}
    labelled, unlabelled = ("".join(f"{line}\n" for line in lines) for lines in (LABELLED[task], UNLABELLED[task]))
    assert content == {"train.tsv": labelled, "dev.tsv": labelled, "test.tsv": unlabelled}


def test_the_five_files_of_mnli(tmp_path: Path) -> None:
    write_glue("MNLI", hub(tmp_path / "parquet", "MNLI", described=True), tmp_path)

    pair = (
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
        "sentence1_parse\tsentence2_parse\tsentence1\tsentence2"
    )
    dev = (
        f"{pair}\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label\n"
        "0\t\t\t\t\t\t\t\tA0\tB0\t\t\t\t\t\tentailment\n7\t\t\t\t\t\t\t\tA1\tB1\t\t\t\t\t\tneutral\n"
    )
    test = f"{pair}\n0\t\t\t\t\t\t\t\tA0\tB0\n7\t\t\t\t\t\t\t\tA1\tB1\n"
    assert {path.name: path.read_text() for path in tmp_path.glob("*.tsv")} == {
        "train.tsv": f"{pair}\tlabel1\tgold_label\n0\t\t\t\t\t\t\t\tA0\tB0\t\tentailment\n7\t\t\t\t\t\t\t\tA1\tB1\t\tneutral\n",
        "dev_matched.tsv": dev,
        "dev_mismatched.tsv": dev,
        "test_matched.tsv": test,
        "test_mismatched.tsv": test,
    }


def test_diagnostic_has_one_file(tmp_path: Path) -> None:
    write_glue("diagnostic", hub(tmp_path / "parquet", "diagnostic"), tmp_path / "diagnostic")
    files = list((tmp_path / "diagnostic").iterdir())
    assert [path.name for path in files] == ["diagnostic.tsv"]
    assert files[0].read_text() == "index\tsentence1\tsentence2\n0\tA0\tB0\n7\tA1\tB1\n"


@pytest.mark.parametrize("task", list(POSITIONS))
def test_trainers_find_texts_and_labels_at_their_positions(tmp_path: Path, task: str) -> None:
    write_glue(task, hub(tmp_path / "parquet", task), tmp_path)
    (a, b, label), (test_a, test_b) = POSITIONS[task]

    train = read_as_trainers_do(tmp_path / "train.tsv")[0 if task == "CoLA" else 1 :]
    assert [line[a] for line in train] == ["A0", "A1"]
    assert b is None or [line[b] for line in train] == ["B0", "B1"]
    assert [line[label] for line in train] == {
        "STS-B": ["3.800", "5.000"],
        "MNLI": ["entailment", "neutral"],
        "QNLI": ["entailment", "not_entailment"],
        "RTE": ["entailment", "not_entailment"],
    }.get(task, ["0", "1"])

    test = read_as_trainers_do(tmp_path / ("test_matched.tsv" if task == "MNLI" else "test.tsv"))[1:]
    assert [line[test_a] for line in test] == ["A0", "A1"]
    assert test_b is None or [line[test_b] for line in test] == ["B0", "B1"]


def test_line_breaks_become_spaces_and_the_rest_stays(tmp_path: Path) -> None:
    nasty = 'He said "tab\there", \'and\r\nlines\n\rend\0 \\t ünï “x” 漢字 😀 \u2028\x85 '
    parquet = hub(tmp_path / "parquet", "MRPC")
    write_split(parquet / "train-00000-of-00001.parquet", "MRPC", [(nasty, '"', 1, 0), ("", "b", 0, 1)])
    write_glue("MRPC", parquet, tmp_path)

    clean = 'He said "tab here", \'and lines  end  \\t ünï “x” 漢字 😀 \u2028\x85 '
    assert read_as_trainers_do(tmp_path / "train.tsv")[1:] == [["1", "", "", clean, '"'], ["0", "", "", "", "b"]]


def test_three_decimals_restore_the_published_score_from_float32(tmp_path: Path) -> None:
    parquet = hub(tmp_path / "parquet", "STS-B")
    scores = ["0.000", "0.056", "1.222", "2.615", "3.769", "4.999"]
    rows = [("a", "b", float(score), number) for number, score in enumerate(scores)]
    write_split(parquet / "train-00000-of-00001.parquet", "STS-B", rows)
    write_glue("STS-B", parquet, tmp_path)
    assert [line[-1] for line in read_as_trainers_do(tmp_path / "train.tsv")[1:]] == scores


def test_labels_are_taken_by_the_names_in_the_file(tmp_path: Path) -> None:
    parquet = hub(tmp_path / "parquet", "RTE")
    train = parquet / "train-00000-of-00001.parquet"
    write_split(train, "RTE", [("a", "b", 0, 0)], ["not_entailment", "entailment"])
    write_glue("RTE", parquet, tmp_path)
    assert read_as_trainers_do(tmp_path / "train.tsv")[1] == ["0", "a", "b", "not_entailment"]

    write_split(train, "RTE", [("a", "b", 0, 0)], ["entailment", "neutral", "contradiction"])
    with pytest.raises(BertprepError) as error:
        write_glue("RTE", parquet, tmp_path)
    assert str(error.value) == (
        f"{train}: has the labels entailment, neutral, contradiction, expected entailment, not_entailment; "
        "is it a file of this task?"
    )


@pytest.mark.parametrize("description", ["not JSON", "[]", '{"info": null}', '{"info": {"features": {"label": {}}}}'])
def test_a_description_without_names_counts_as_none(tmp_path: Path, description: str) -> None:
    parquet = hub(tmp_path / "parquet", "WNLI")
    train = parquet / "train-00000-of-00001.parquet"
    pq.write_table(pq.read_table(train).replace_schema_metadata({"huggingface": description}), train)
    write_glue("WNLI", parquet, tmp_path)
    assert (tmp_path / "train.tsv").read_text() == "index\tsentence1\tsentence2\tlabel\n0\tA0\tB0\t0\n7\tA1\tB1\t1\n"


@pytest.mark.parametrize(
    ("task", "row", "says"),
    [
        ("CoLA", ("a", -1, 1), "the label is -1, expected 0 to 1"),
        ("MNLI", ("a", "b", 3, 1), "the label is 3, expected 0 to 2"),
        ("STS-B", ("a", "b", -1.0, 1), "the score is -1.0, expected 0 to 5"),
        ("STS-B", ("a", "b", float("nan"), 1), "the score is nan, expected 0 to 5"),
        ("RTE", ("a", "b", None, 1), "column label is NoneType, expected int"),
        ("RTE", ("a", None, 1, 1), "column sentence2 is NoneType, expected str"),
    ],
)
def test_a_wrong_row_is_named_with_its_file(tmp_path: Path, task: str, row: tuple[Any, ...], says: str) -> None:
    parquet = hub(tmp_path / "parquet", task)
    train = parquet / "train-00000-of-00001.parquet"
    good = (*("a", "b")[: len(HUB[task][0])], 1, 0)
    write_split(train, task, [good, row])
    with pytest.raises(BertprepError) as error:
        write_glue(task, parquet, tmp_path / "out")
    assert str(error.value) == f"{train}: row 1 (from 0): {says}; download the file again"
    assert not (tmp_path / "out").exists()


def test_a_second_run_keeps_correct_files_and_repairs_others(tmp_path: Path) -> None:
    parquet = hub(tmp_path / "parquet", "SST-2")
    train, dev, test = (tmp_path / name for name in ("train.tsv", "dev.tsv", "test.tsv"))
    write_glue("SST-2", parquet, tmp_path)
    right = train.stat()
    dev.write_text(dev.read_text()[:-2])
    test.unlink()

    write_glue("SST-2", parquet, tmp_path)
    assert (train.stat().st_ino, train.stat().st_mtime_ns) == (right.st_ino, right.st_mtime_ns)
    assert dev.read_text() == "sentence\tlabel\nA0\t0\nA1\t1\n"
    assert test.read_text() == "index\tsentence\n0\tA0\n7\tA1\n"


def test_missing_broken_empty_and_foreign_splits_are_one_line(tmp_path: Path) -> None:
    parquet = hub(tmp_path / "parquet", "MNLI")
    dev = parquet / "validation_mismatched-00000-of-00001.parquet"

    def refused() -> str:
        with pytest.raises(BertprepError) as error:
            write_glue("MNLI", parquet, tmp_path)
        assert "\n" not in str(error.value)
        return str(error.value)

    dev.write_bytes(b"PAR1, and then something else entirely PAR1")
    assert refused().startswith(f"{dev}: cannot be read as Parquet: ")
    write_split(dev, "RTE", [("a", "b", 0, 0)])
    assert refused().startswith(f"{dev}: has no column premise, hypothesis, found 'sentence1', 'sentence2', 'label', 'idx'; ")
    write_split(dev, "MNLI", [])
    assert refused() == f"{parquet}: validation_mismatched-*.parquet hold no row; download them again"
    dev.unlink()
    assert refused() == f"{parquet}: has no file validation_mismatched-*.parquet, in it or below; download it again"
    with pytest.raises(UsageError, match="GLUE has no task 'mnli'; choose one of CoLA, SST-2, "):
        write_glue("mnli", parquet, tmp_path)
