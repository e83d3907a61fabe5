"""Data sets of the `datasets` library, in folders, files and memory, give the documents of the same text in a plain file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pytest

import bertprep
from bertprep.errors import BertprepError, UsageError
from bertprep.sources import documents as source_documents
from bertprep.sources import fields
from bertprep.sources.documents import Source
from bertprep.sources.inputs import find_saved, find_sources, from_memory
from bertprep.sources.readers import read_arrow, read_table
from bertprep.text import shards as text_shards
from tests.corpora import clean_document, sums

PARAGRAPHS = [[f"Der Satz \u201e{n}\u201c, hier. And one more.", f"Paragraph two, {n}."][: n % 3] for n in range(60)]
DOCUMENTS = ["\n".join(each) for each in PARAGRAPHS if each]
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


def save_as_arrow(made: datasets.Dataset, path: Path) -> None:
    """Write views of text, compressed, some rows a batch."""
    table = made.data.table.cast(pa.schema([*list(made.data.schema)[:-1], pa.field("text.de", pa.string_view())]))
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table, max_chunksize=17)


FILES: dict[str, Callable[[datasets.Dataset, Path], object]] = {
    "saved": lambda made, path: made.save_to_disk(path),
    "several-files": lambda made, path: made.save_to_disk(path, num_shards=11),
    "set.arrow": save_as_arrow,
    "set.parquet": lambda made, path: made.to_parquet(path, batch_size=7),
    "set.jsonl.gz": lambda made, path: made.to_json(path, compression="gzip"),
}
OBJECTS: dict[str, Callable[[datasets.Dataset], object]] = {
    "memory": lambda made: made,
    "table": lambda made: made.data.table,
    "stream": lambda made: made.to_iterable_dataset(num_shards=4),
    "stream without features": lambda made: datasets.IterableDatasetDict(
        train=datasets.IterableDataset.from_generator(lambda: iter(made))
    ),
}


def sources_of(packing: str, made: datasets.Dataset, folder: Path) -> Callable[[str], list[Source]]:
    """Write a data set, and return a function that finds a field of it."""
    if packing in OBJECTS:
        return lambda field: from_memory(OBJECTS[packing](made), None, field)
    FILES[packing](made, folder / packing)
    return lambda field: find_sources([folder / packing], field=field, one_document=False)


def texts_of(sources: list[Source]) -> list[str]:
    return [text for source in sources for text in (source.texts() if source.is_stream else source.documents())]


@pytest.mark.parametrize("packing", [*FILES, *OBJECTS])
def test_every_way_gives_the_same_documents_or_names_the_fields(packing: str, made: datasets.Dataset, tmp_path: Path) -> None:
    find = sources_of(packing, made, tmp_path)
    for field in FIELDS:
        texts = texts_of(find(field))
        assert len(texts) == 60
        assert [document for text in texts if (document := clean_document(text))] == DOCUMENTS
    for field in ("body", "nested.fr", "text.en", "id.text", "", "."):
        with pytest.raises(UsageError, match=f"has no (field|column) '{field}', found '|column 'id' has type int64"):
            texts_of(find(field))
    for field, found in ("nested.parts.n", "int "), ("nested.parts", "dict "), ("nested", "dict "):
        with pytest.raises(BertprepError, match=rf"(row|line) \d+: field '{field}': expected text, found {found}.*'nested.en'"):
            texts_of(find(field))
    with pytest.raises(BertprepError, match=r"(column 'id' has type int64, |field 'id': )expected text"):
        texts_of(find("id"))


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
    batches = [pa.table({"a": each}) for each in (column, column.slice(0, 0), column.slice(1, 2))]
    texts = list(fields.batch_texts(batches, ["a"], "a", "here"))
    assert [text.strip() for text in texts] == ["One.", "", "A longer one, of more than twelve bytes.", "", "", texts[2]]


@pytest.mark.parametrize("workers", [1, 3])
def test_the_shards_of_a_stream_are_those_of_a_file_and_it_is_read_once(
    workers: int, made: datasets.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_documents, "BATCH_TEXT_BYTES", 300)
    monkeypatch.setattr(text_shards, "PIECE_BYTES", 300)
    read: list[int] = []

    def shards(name: str, generate: Any = None, *inputs: Path) -> dict[str, str]:
        stream = generate and datasets.IterableDataset.from_generator(generate)
        where = {"corpus": "mine", "workdir": tmp_path / name}
        bertprep.shard(inputs, dataset=stream, one_document_per_block=True, shards=3, workers=workers, **where)
        return {path: total for path, total in sums(tmp_path / name / "sharded").items() if path.endswith(".txt")}

    def rows() -> Any:
        for row in made:
            read.append(row["id"])
            yield row

    (tmp_path / "a.txt").write_text("\n\n".join(DOCUMENTS))
    with pytest.raises(BertprepError, match=r"^dataset: row 30: field 'text': expected text, found int 5"):
        shards("stream", lambda: iter([*made.select(range(30)), {"text": 5}]))
    assert not list((tmp_path / "stream" / "sharded").rglob("*.arrow"))
    assert shards("stream", rows) == shards("file", None, tmp_path / "a.txt")
    assert read == list(range(60))


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


def test_tables_are_read_as_datasets_reads_them(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(TABLE, newline="")
    table = datasets.load_dataset("csv", data_files=str(tmp_path / "a.csv"), cache_dir=tmp_path / "c", split="train")
    ours = list(read_table(str(tmp_path / "a.csv"), "text", ","))
    assert [text for text in ours if text not in ("", "NA")] == [text for text in table["text"] if text]
    assert (len(ours), ours.count(""), ours.count("NA")) == (10, 1, 1)  # a document may be the word NA


def test_hub_text(made: datasets.Dataset, tmp_path: Path) -> None:
    splits = datasets.DatasetDict({"test": made.select([1]), "validation": made.select([2, 4, 5])})
    splits.save_to_disk(tmp_path / "set")
    made.save_to_disk(tmp_path / "plain")
    (source,) = find_saved(tmp_path / "set", "validation", "id")
    assert source.location == str(tmp_path / "set/validation/data-00000-of-00001.arrow")
    for given in (tmp_path / "set", splits):
        for split in (None, "dev"):
            with pytest.raises(UsageError, match=f"has no split '{split or 'train'}'; it has 'test', 'validation'; name one"):
                bertprep.shard(dataset=given, split=split, workdir=tmp_path / "work")
    for given in (tmp_path / "plain", made):
        with pytest.raises(UsageError, match="is a Dataset, which has no splits, and not a DatasetDict; leave --split out"):
            bertprep.shard(dataset=given, split="test", workdir=tmp_path / "work")
    with pytest.raises(UsageError, match=r"has no state\.json or dataset_dict\.json"):
        find_saved(tmp_path, None, "text")
    with pytest.raises(UsageError, match=r"dataset: has type builtins\.list, expected the name of a data set, a folder, or"):
        from_memory(["A text."], None, "text")
    with pytest.raises(UsageError, match=r"dataset\['test'\]: has no rows; was everything filtered out\?"):
        from_memory(datasets.DatasetDict(test=made.filter(lambda _: False)), "test", "text")
    assert not (tmp_path / "work").exists()


BROKEN_STATES = {
    "{": "was not written by save_to_disk .*; copy or save the data set again",
    "[]": "was not written by save_to_disk .*list indices must be",
    '{"_data_files": []}': "lists no files",
    '{"_data_files": [5]}': "was not written by save_to_disk .*not subscriptable",
    '{"_data_files": [{"filename": "../a.arrow"}]}': r'"\.\./a\.arrow" is not the name of a file',
    '{"_data_files": [{"filename": "/dev/zero"}]}': "is not the name of a file",
    '{"_data_files": [{"filename": "a.arrow"}]}': r"a\.arrow: is missing, but state\.json lists it",
    '{"_data_files": [], "_indices_files": [{"filename": "b.arrow"}]}': r"save it again in that order: .*flatten_indices\(\)",
}


@pytest.mark.parametrize("content", BROKEN_STATES)
def test_a_folder_that_is_corrupt_or_untrusted_is_one_line(content: str, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(content)
    with pytest.raises(BertprepError, match=f"{tmp_path}.*{BROKEN_STATES[content]}") as error:
        find_saved(tmp_path, None, "text")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("make", [pa.ipc.new_stream, pa.ipc.new_file])
def test_a_truncated_arrow_file_is_refused_wherever_it_is_cut(make: Callable[..., Any], tmp_path: Path) -> None:
    table, path = pa.table({"text": ["One.", "Two."]}), tmp_path / "a.arrow"
    with make(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=1)
    content = path.read_bytes()
    for broken in (*(content[:size] for size in range(0, len(content), 4)), content + b"\0"):
        path.write_bytes(broken)
        with pytest.raises(
            BertprepError, match=rf"^{path}: cannot be read as Arrow: .+; it may be incomplete: write or download it again$"
        ):
            list(read_arrow(str(path), "text"))
