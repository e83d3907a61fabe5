"""SQuAD's published JSON is restored from the Hub's rows, character by character, and wrong rows are refused by name."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertprep.errors import BertprepError, UsageError
from bertprep.sources.task_files import write_squad

ANSWERS = pa.struct([("text", pa.list_(pa.string())), ("answer_start", pa.list_(pa.int32()))])
SCHEMA = pa.schema(
    [("id", pa.string()), ("title", pa.string()), ("context", pa.string()), ("question", pa.string()), ("answers", ANSWERS)]
)
METADATA = {"huggingface": json.dumps({"info": {"features": {"id": {"dtype": "string", "_type": "Value"}}}})}

# Written by hand in the form of the published files: keys in their order, ASCII only, no line break at the end.
PUBLISHED_V1 = (
    r'{"data": [{"title": "Caf\u00e9", "paragraphs": [{"context": "Un caf\u00e9 \ud83d\ude00 co\u00fbte \"deux\" euros.\nOui."'
    r', "qas": [{"answers": [{"answer_start": 3, "text": "caf\u00e9"}, {"answer_start": 16, "text": "\"deux\" euros"}], '
    r'"question": "Quoi\t?", "id": "a1"}, {"answers": [{"answer_start": 30, "text": "Oui"}], "question": "Vrai ?", '
    r'"id": "a2"}]}]}, {"title": "Tea", "paragraphs": [{"context": "Tea is hot.", "qas": [{"answers": [{"answer_start": 0, '
    r'"text": "Tea"}], "question": "What is hot?", "id": "b1"}]}, {"context": " Tea is old.", "qas": [{"answers": '
    r'[{"answer_start": 8, "text": "old"}], "question": "How is tea?", "id": "b2"}]}]}], "version": "1.1"}'
)
PUBLISHED_V2 = (
    r'{"version": "v2.0", "data": [{"title": "Beyonc\u00e9", "paragraphs": [{"qas": [{"question": "When?", "id": "c1", '
    r'"answers": [{"text": "1990s", "answer_start": 12}], "is_impossible": false}, {"question": "Who else?", "id": "c2", '
    r'"answers": [], "is_impossible": true}], "context": "In the late 1990s."}]}]}'
)


def rows_of(published: str) -> list[dict[str, Any]]:
    """The rows that the Hub has for a published file."""
    return [
        {
            "id": question["id"],
            "title": article["title"],
            "context": paragraph["context"],
            "question": question["question"],
            "answers": {
                "text": [answer["text"] for answer in question["answers"]],
                "answer_start": [answer["answer_start"] for answer in question["answers"]],
            },
        }
        for article in json.loads(published)["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]


def row(identifier: str, title: str, context: str, answer: str | None = None, start: int = 0) -> dict[str, Any]:
    answers = {"text": [], "answer_start": []} if answer is None else {"text": [answer], "answer_start": [start]}
    return {"id": identifier, "title": title, "context": context, "question": "?", "answers": answers}


def hub(folder: Path, train: list[dict[str, Any]], dev: list[dict[str, Any]] | None = None, **metadata: str) -> Path:
    """A folder as it is on the Hub, one file a split."""
    (folder / "plain_text").mkdir(parents=True, exist_ok=True)
    for split, rows in (("train", train), ("validation", train if dev is None else dev)):
        table = pa.Table.from_pylist(rows, SCHEMA.with_metadata(metadata or None))
        pq.write_table(table, folder / "plain_text" / f"{split}-00000-of-00001.parquet")
    return folder


def test_v1_1_is_the_published_file_again(tmp_path: Path) -> None:
    parquet = hub(tmp_path / "parquet", rows_of(PUBLISHED_V1), rows_of(PUBLISHED_V1)[:1], **METADATA)
    write_squad(parquet, tmp_path / "v1.1", "v1.1")

    assert (tmp_path / "v1.1" / "train-v1.1.json").read_text(encoding="ascii") == PUBLISHED_V1
    [article] = json.loads((tmp_path / "v1.1" / "dev-v1.1.json").read_text())["data"]
    assert [question["id"] for question in article["paragraphs"][0]["qas"]] == ["a1"]
    assert sorted(path.name for path in (tmp_path / "v1.1").iterdir()) == [
        "dev-v1.1.json", "evaluate-v1.1.py", "train-v1.1.json",
    ]  # fmt: skip


def test_v2_0_is_the_published_file_again_and_no_answer_is_impossible(tmp_path: Path) -> None:
    write_squad(hub(tmp_path / "parquet", rows_of(PUBLISHED_V2)), tmp_path, "v2.0")

    assert (tmp_path / "train-v2.0.json").read_text(encoding="ascii") == PUBLISHED_V2
    assert (tmp_path / "dev-v2.0.json").read_text(encoding="ascii") == PUBLISHED_V2


def test_the_files_are_read_as_google_s_run_squad_reads_them(tmp_path: Path) -> None:
    write_squad(hub(tmp_path / "parquet", rows_of(PUBLISHED_V2)), tmp_path, "v2.0")

    with (tmp_path / "train-v2.0.json").open() as file:
        entries = json.load(file)["data"]
    found = [
        (qa["id"], qa["is_impossible"], [paragraph["context"][a["answer_start"] :][: len(a["text"])] for a in qa["answers"]])
        for entry in entries
        for paragraph in entry["paragraphs"]
        for qa in paragraph["qas"]
    ]
    assert found == [("c1", False, ["1990s"]), ("c2", True, [])]


def test_a_title_or_context_that_comes_again_joins_its_group_and_titles_share_none(tmp_path: Path) -> None:
    rows = [row("1", "A", "One."), row("2", "B", "One."), row("3", "A", "Two."), row("4", "A", "One."), row("5", "B", "One.")]
    write_squad(hub(tmp_path / "parquet", rows), tmp_path, "v2.0")

    groups = [
        (article["title"], paragraph["context"], [qa["id"] for qa in paragraph["qas"]])
        for article in json.loads((tmp_path / "train-v2.0.json").read_text())["data"]
        for paragraph in article["paragraphs"]
    ]
    assert groups == [("A", "One.", ["1", "4"]), ("A", "Two.", ["3"]), ("B", "One.", ["2", "5"])]


def test_a_second_run_keeps_correct_files_and_repairs_others(tmp_path: Path) -> None:
    parquet = hub(tmp_path / "parquet", rows_of(PUBLISHED_V1))
    train, dev, program = tmp_path / "train-v1.1.json", tmp_path / "dev-v1.1.json", tmp_path / "evaluate-v1.1.py"
    write_squad(parquet, tmp_path, "v1.1")
    right = train.stat()
    source = program.read_text()
    program.write_text("print(100)\n")
    dev.write_text(PUBLISHED_V1.replace("Tea is hot", "Tea is hit"))  # same size

    write_squad(parquet, tmp_path, "v1.1")
    assert (train.stat().st_ino, train.stat().st_mtime_ns) == (right.st_ino, right.st_mtime_ns)
    assert dev.read_text() == PUBLISHED_V1
    assert program.read_text() == source

    train.unlink()
    write_squad(parquet, tmp_path, "v1.1")
    assert train.read_text() == PUBLISHED_V1


@pytest.mark.parametrize(
    ("wrong", "version", "says"),
    [
        (row("x", "T", "Some text."), "v1.1", "question 'x' has no answer, and v1.1 has one for each; is this v2.0?"),
        (row("x", "T", "Some text.", "", 0), "v2.0", "an answer to question 'x' is empty"),
        (
            row("x", "T", "Some text.", "text", 4),
            "v2.0",
            "expected the answer 'text' at character 4 of the context, found ' tex'",
        ),
        (
            row("x", "T", "Some text.", "text.", -5),
            "v1.1",
            "expected the answer 'text.' at character -5 of the context, found ''",
        ),
        # 5 is where "é" ends in bytes; as characters it is one place too far
        (row("x", "T", "Café au lait", "au", 6), "v1.1", "expected the answer 'au' at character 6 of the context, found 'u '"),
        (row("x", "T", "a\nb", "c", 1), "v1.1", r"expected the answer 'c' at character 1 of the context, found '\n'"),
        (
            row("x", "T", "t") | {"answers": {"text": ["t"], "answer_start": []}},
            "v1.1",
            "the answers to question 'x' are {'text': ['t'], 'answer_start': []}, expected two lists of one length",
        ),
        (row("x", "T", "t") | {"answers": None}, "v2.0", "column answers is NoneType, expected dict"),
        (row("x", "T", "t") | {"context": None}, "v2.0", "column context is NoneType, expected str"),
    ],
)
def test_a_wrong_row_is_named_with_its_file(tmp_path: Path, wrong: dict[str, Any], version: str, says: str) -> None:
    parquet = hub(tmp_path / "parquet", [row("ok", "T", "Some text.", "text", 5), wrong])
    with pytest.raises(BertprepError) as error:
        write_squad(parquet, tmp_path / "out", version)

    message = str(error.value)
    assert message.startswith(f"{parquet}/plain_text/train-00000-of-00001.parquet: row 1 (from 0): ")
    assert says in message
    assert "\n" not in message
    assert not (tmp_path / "out").exists()


def test_rows_are_counted_in_their_file_across_batches(tmp_path: Path) -> None:
    rows = [row(str(number), "T", "Some text.") for number in range(3000)]
    rows[2500] = row("2500", "T", "Some text.", "none", 0)
    with pytest.raises(BertprepError, match=r"row 2500 \(from 0\): question '2500'"):
        write_squad(hub(tmp_path / "parquet", rows), tmp_path, "v2.0")


def test_several_files_of_a_split_are_read_in_order_and_all_must_be_there(tmp_path: Path) -> None:
    parquet = hub(tmp_path / "parquet", [row("1", "T", "One.")])
    first = parquet / "plain_text" / "train-00000-of-00002.parquet"
    (parquet / "plain_text" / "train-00000-of-00001.parquet").rename(first)
    with pytest.raises(BertprepError, match=r"has 1 files train-\*\.parquet, expected the 2 of one download"):
        write_squad(parquet, tmp_path, "v2.0")

    second = pa.Table.from_pylist([row("2", "T", "One.")], SCHEMA)
    pq.write_table(second, parquet / "plain_text" / "train-00001-of-00002.parquet")
    write_squad(parquet, tmp_path, "v2.0")
    article = json.loads((tmp_path / "train-v2.0.json").read_text())["data"][0]
    assert [qa["id"] for qa in article["paragraphs"][0]["qas"]] == ["1", "2"]


def test_missing_broken_empty_and_foreign_files_are_one_line(tmp_path: Path) -> None:
    parquet = hub(tmp_path / "parquet", [row("1", "T", "One.")])
    train = parquet / "plain_text" / "train-00000-of-00001.parquet"

    def refused(version: str = "v2.0") -> str:
        with pytest.raises(BertprepError) as error:
            write_squad(parquet, tmp_path, version)
        assert "\n" not in str(error.value)
        return str(error.value)

    train.write_bytes(train.read_bytes()[:-100])
    assert refused().startswith(f"{train}: cannot be read as Parquet: ")
    train.write_bytes(b"")
    assert refused().startswith(f"{train}: cannot be read as Parquet: ")
    pq.write_table(pa.table({"sentence": ["a"], "idx": [0]}), train)
    assert f"{train}: has no column id, title, context, question, answers, found 'sentence', 'idx'; " in refused()
    pq.write_table(SCHEMA.empty_table(), train)
    assert refused() == f"{parquet}: train-*.parquet hold no question; download them again"
    train.unlink()
    assert refused() == f"{parquet}: has no file train-*.parquet, in it or below; download it again"
    with pytest.raises(UsageError, match=r"SQuAD has no version '1\.1'; choose v1\.1 or v2\.0"):
        write_squad(parquet, tmp_path, "1.1")


def test_damage_inside_a_file_is_found(tmp_path: Path) -> None:
    rows = [row(str(number), "T", f"Text number {number * 7919}.") for number in range(3000)]
    parquet = hub(tmp_path / "parquet", rows)
    train = parquet / "plain_text" / "train-00000-of-00001.parquet"
    content = bytearray(train.read_bytes())
    content[4:400] = bytes(396)  # headers of the first column's pages
    train.write_bytes(content)
    with pytest.raises(BertprepError, match="cannot be read as Parquet"):
        write_squad(parquet, tmp_path, "v2.0")
