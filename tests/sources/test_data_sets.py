"""Data sets of the `datasets` library, in folders, files and memory, give the shards of the same text in a plain file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bertprep
from bertprep.errors import BertprepError, UsageError
from bertprep.sources import documents as source_documents
from bertprep.sources import fields, plain_text, readers
from bertprep.sources.inputs import find_saved, from_memory
from bertprep.sources.readers import read_arrow, read_json_lines, read_parquet, read_table
from bertprep.text import shards as text_shards
from tests.corpora import sums

Make = Callable[..., Any]
PARAGRAPHS = [[f"Der Satz \u201e{n}\u201c, hier. And one more.", f"Paragraph two, {n}."][: n % 3] for n in range(60)]
ROWS = {
    "text": ["\r\n\n ".join(each) or None for each in PARAGRAPHS],
    "id": list(range(60)),
    "lines": PARAGRAPHS,
    "nested": [{"en": "\n".join(each), "parts": [{"n": n, "s": line} for line in each]} for n, each in enumerate(PARAGRAPHS)],
    "text.de": ["\n\n".join(each) for each in PARAGRAPHS],
}
FIELDS = ("text", "lines", "nested.en", "nested.parts.s", "text.de")


@pytest.fixture(scope="module")
def made() -> datasets.Dataset:
    datasets.disable_progress_bars()
    return datasets.Dataset.from_dict(ROWS)


def shards(workdir: Path, inputs: tuple[Path, ...] = (), **options: Any) -> dict[str, str]:
    """The sums of the text shards alone."""
    options.setdefault("shards", 3)
    bertprep.shard(inputs, workdir=workdir, corpus="mine", **{"workers": 1, **options})
    return {name: total for name, total in sums(workdir / "sharded").items() if name.endswith(".txt")}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("text")
    (root / "a.txt").write_text("".join("\n".join(each) + "\n\n" for each in PARAGRAPHS))
    found = shards(root / "work", (root / "a.txt",))
    assert len(found) > 2
    return found


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("packing", ["saved", "several files", "dictionary of splits", "arrow", "parquet", "json", "memory"])
def test_every_way_gives_the_shards_of_the_text(
    packing: str, field: str, made: datasets.Dataset, expected: dict[str, str], tmp_path: Path
) -> None:
    place = tmp_path / "set"
    given: Any = {"dataset": place}
    if packing == "saved":
        made.save_to_disk(place)
    elif packing == "several files":
        made.save_to_disk(place, num_shards=11)
        given = {"inputs": (place,)}
    elif packing == "dictionary of splits":
        datasets.DatasetDict(test=made.select(range(3)), train=made).save_to_disk(place)
    elif packing == "arrow":
        place = tmp_path / "set.arrow"
        table = made.data.table.cast(pa.schema([*list(made.data.schema)[:-1], pa.field("text.de", pa.string_view())]))
        with pa.ipc.new_file(place, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table, max_chunksize=17)
        given = {"inputs": (place,)}
    elif packing == "parquet":
        place = tmp_path / "set.parquet"
        made.to_parquet(place, batch_size=7)
        assert pq.ParquetFile(place).num_row_groups > 5
        given = {"inputs": (place,)}
    elif packing == "json":
        place = tmp_path / "set.jsonl.gz"
        made.to_json(place, compression="gzip")
        given = {"inputs": (place,)}
    else:
        given = {"dataset": made}
    assert shards(tmp_path / "work", field=field, **given) == expected


@pytest.mark.parametrize("field", FIELDS)
def test_streams_are_read_once(field: str, made: datasets.Dataset, expected: dict[str, str], tmp_path: Path) -> None:
    read = []

    def generate() -> Any:
        for row in made:
            read.append(row["id"])
            yield row

    streams = datasets.IterableDatasetDict(train=datasets.IterableDataset.from_generator(generate))
    assert shards(tmp_path, dataset=streams, field=field) == expected
    assert read == list(range(60))
    assert shards(tmp_path, dataset=made.to_iterable_dataset(num_shards=4), field=field) == expected


NUMBERED = pa.dictionary(pa.int8(), pa.string())
TYPES = [
    *(pa.large_string(), pa.string_view(), NUMBERED, pa.list_(pa.string()), pa.list_(pa.string(), 2), pa.list_(NUMBERED)),
    *(pa.large_list(pa.string_view()), pa.list_(pa.list_(pa.string(), 2))),
]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_every_type_that_holds_text(kind: pa.DataType) -> None:
    rows: list[Any] = ["One.", None, "A longer one, of more than twelve bytes.", ""]
    for _ in range(str(kind).count("list")):
        rows = [None if each is None else [each, None] for each in rows]
    column = pa.array(rows, kind)
    texts = list(fields.column_texts([column, column.slice(0, 0), column.slice(1, 2)], "a", "a", "here"))
    assert [text.strip() for text in texts] == ["One.", "", "A longer one, of more than twelve bytes.", "", "", texts[2]]


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_clean_what_one_process_reads(
    workers: int, made: datasets.Dataset, expected: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_documents, "BATCH_TEXT_BYTES", 300)
    monkeypatch.setattr(text_shards, "PIECE_BYTES", 300)
    cut = datasets.IterableDataset.from_generator(lambda: iter([*made.select(range(30)), {"text": 5}]))
    with pytest.raises(BertprepError, match=r"^dataset: row 30: field 'text': expected text, found int 5"):
        shards(tmp_path, dataset=cut, workers=workers)
    assert not list((tmp_path / "sharded").rglob("*.arrow"))
    assert shards(tmp_path, dataset=made, workers=workers) == expected


TABLE = (
    '\ufefftext,id,"a ""b"""\r\n'
    '"Two\nlines, and a ""quote"".",1,x\r\n'
    "\r\n"
    "   \r\n"
    'in "the" middle,2,\r\n'
    '"closed"and more,3,\r\n'
    "NA,4,\r\n"
    '"",5,\r\n'
    " None ,6,\r\n"
    '"\r\n\r\nafter blank lines",7,x\r\n'
    "short row\r\n"
    f"{'long ' * 40_000},8,x\r\n"
    "the last"
)


@pytest.mark.parametrize(("name", "separator"), [("a.csv", ","), ("a.tsv", "\t")])
def test_tables_are_read_as_datasets_reads_them(name: str, separator: str, tmp_path: Path) -> None:
    content = TABLE.replace(",", separator)
    (tmp_path / name).write_text(content, newline="")
    table = datasets.load_dataset(
        "csv", data_files=str(tmp_path / name), sep=separator, cache_dir=tmp_path / "c", split="train"
    )
    texts = [text or "" for text in table["text"]]
    ours = list(read_table(str(tmp_path / name), "text", separator))
    assert [text for text in ours if text not in ("", "NA")] == [text for text in texts if text]
    assert (len(ours), ours.count(""), ours.count("NA")) == (10, 1, 1)  # a document may be the word NA


COLUMNS = "'text', 'id', 'lines', 'nested', 'text.de'"


@pytest.mark.parametrize("way", ["arrow", "parquet", "json", "memory", "table", "stream", "stream without features"])
def test_a_field_without_text_is_named_with_those_that_have_it(way: str, made: datasets.Dataset, tmp_path: Path) -> None:
    path = str(tmp_path / "a")

    def read(field: str) -> Any:
        if way == "parquet":
            made.to_parquet(path)
            return list(read_parquet(path, field))
        if way == "json":
            made.select([2]).to_json(path)
            return list(read_json_lines(path, field))
        if way == "arrow":
            made.save_to_disk(path)
            (source,) = find_saved(Path(path), None, field)
            return list(read_arrow(source.location, field))
        streams = {"memory": made, "table": made.data.table, "stream": made.to_iterable_dataset()}
        stream = streams.get(way) or datasets.IterableDataset.from_generator(lambda: iter(made.select([2])))
        (source,) = from_memory(stream, None, field)
        return list(source.texts())

    by_row = way in ("json", "stream without features")
    assert len(read("nested.parts.s")) in (1, 60)
    for field in ("body", "nested.fr", "text.en", "id.text", "", "."):
        with pytest.raises(UsageError, match=f"has no (field|column) '{field}', but |column 'id' is of type int64"):
            read(field)
    for field, found in ("nested.parts.n", "int "), ("nested.parts", "dict "), ("nested", "dict "):
        with pytest.raises(BertprepError, match=rf"(row|line) \d+: field '{field}': expected text, found {found}") as error:
            read(field)
        assert "'nested.en'" in str(error.value)
    with pytest.raises(BertprepError, match=r"(column 'id' is of type int64, |field 'id': )expected text"):
        read("id")
    if not by_row:
        with pytest.raises(UsageError, match=f"has no column 'body', but {COLUMNS}; name the one with the text by --field"):
            read("body")


def test_splits(made: datasets.Dataset, tmp_path: Path) -> None:
    splits = datasets.DatasetDict({"test": made.select([1]), "validation": made.select([2, 4, 5])})
    splits.save_to_disk(tmp_path / "set")
    made.save_to_disk(tmp_path / "plain")
    (source,) = find_saved(tmp_path / "set", "validation", "id")
    assert source.location == str(tmp_path / "set/validation/data-00000-of-00001.arrow")
    for given in (tmp_path / "set", splits):
        for split in (None, "dev"):
            with pytest.raises(UsageError, match=f"has no split '{split or 'train'}', but 'test', 'validation'; name one by"):
                bertprep.shard(dataset=given, split=split, workdir=tmp_path / "work")
    for given in (tmp_path / "plain", made):
        with pytest.raises(UsageError, match="has no splits, it is a Dataset and no DatasetDict; leave --split out"):
            bertprep.shard(dataset=given, split="test", workdir=tmp_path / "work")
    with pytest.raises(UsageError, match=r"has no state\.json or dataset_dict\.json"):
        find_saved(tmp_path, None, "text")
    with pytest.raises(UsageError, match=r"dataset: is of type builtins\.list, expected the name of a data set, a folder, or"):
        from_memory(["A text."], None, "text")
    with pytest.raises(UsageError, match=r"dataset\['test'\]: has no rows; was everything filtered out\?"):
        from_memory(datasets.DatasetDict(test=made.filter(lambda _: False)), "test", "text")
    assert not (tmp_path / "work").exists()


BROKEN_STATES = {
    "no JSON": ("{", "is not as save_to_disk writes it .*; copy or save the data set again"),
    "a list": ("[]", "is not as save_to_disk writes it .*list indices must be"),
    "no files": ('{"_data_files": []}', "lists no files"),
    "not names": ('{"_data_files": [5]}', "is not as save_to_disk writes it .*not subscriptable"),
    "up": ('{"_data_files": [{"filename": "../a.arrow"}]}', r'"\.\./a\.arrow" is not the name of a file'),
    "absolute": ('{"_data_files": [{"filename": "/dev/zero"}]}', "is not the name of a file"),
    "absent": ('{"_data_files": [{"filename": "a.arrow"}]}', r"a\.arrow: is missing, but state\.json lists it"),
    "huge": (" " * ((64 << 20) + 1), "it has 67,108,865 bytes, expected at most"),
    "indices": ('{"_data_files": [], "_indices_files": [{"filename": "b.arrow"}]}', r"save it again: .*flatten_indices\(\)"),
}


@pytest.mark.parametrize("name", BROKEN_STATES)
def test_a_folder_that_is_damaged_or_hostile_is_refused(name: str, tmp_path: Path) -> None:
    content, message = BROKEN_STATES[name]
    (tmp_path / "state.json").write_text(content)
    with pytest.raises(BertprepError, match=f"{tmp_path}.*{message}") as error:
        find_saved(tmp_path, None, "text")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("make", [pa.ipc.new_stream, pa.ipc.new_file])
def test_a_cut_arrow_file_is_refused_wherever_it_is_cut(make: Make, tmp_path: Path) -> None:
    table = pa.table({"text": ["One.", "Two."]})
    path = tmp_path / "a.arrow"
    with make(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=1)
    whole = path.read_bytes()
    assert list(read_arrow(str(path), "text")) == ["One.", "Two."]
    for content in (*(whole[:size] for size in range(0, len(whole), 4)), whole + b"\0"):
        path.write_bytes(content)
        with pytest.raises(
            BertprepError, match=rf"^{path}: cannot be read as Arrow: .+; is it whole\? write or fetch it again$"
        ):
            list(read_arrow(str(path), "text"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"id,text\n1,One.\n2,Two,and more.\n", "line 3: expected 2 cells as in the first line, found 3; put text with"),
        (b'id,text\n1,"One.\nStill."\n2\n', "line 4: expected 2 cells as in the first line, found 1; put text with"),
        (b'id,text\n1,One.\n2,"Two.\n3,Three.\n', "line 3: has a quote that no other one closes; is the file whole?"),
        (b"id,text\n1,One.\n2,T\0wo.\n", "line 3: has a zero byte, which text has not"),
        (b"id,text\n1,One.\n2,T\xffwo.\n", "line 3: expected UTF-8, found 0xff"),
        (b"id,text\n1,One.\r2,Two.\n", "line 2: cannot be read as a table: new-line character seen in unquoted field"),
        (b"id,body\n1,One.\n", "has no column 'text', but 'id', 'body'; name the one with the text by --field"),
        (b"", "has no column 'text', but none; name the one"),
        (b'id,text\n1,"' + 300 * b"word\n" + b'"\n', "line 2: cannot be read as a table: field larger than field limit"),
        (b'id,text\n1,"' + 300 * b"word " + b'"\n', "line 2: it is longer than 1,000 bytes"),
    ],
)
def test_a_table_that_cannot_be_read_is_named_by_its_line(
    content: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in plain_text, readers:
        monkeypatch.setattr(module, "MAX_DOCUMENT_BYTES", 1000)
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(BertprepError) as error:
        list(read_table(str(path), "text", ","))
    assert str(error.value).startswith(f"{path}: {message}")
    assert "\n" not in str(error.value)
