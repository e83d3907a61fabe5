"""What is wrong with token shards of documents and with MDS is found where it is, and nothing else; they are shown as text."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import bertprep
from bertprep.cli import main
from bertprep.commands import document_job
from bertprep.commands.validate import validate
from bertprep.errors import UsageError
from bertprep.records.data_sets import find_records
from bertprep.records.mds import MdsFile
from bertprep.records.token_documents import open_token_documents
from tests.golden import GOLDEN
from tests.instances.small_tokenizers import write_tokenizer

TEXT = "The first one.\nOf two lines.\n\nAnother, and it doesn't end\n\nlast one\n"
NAME = "corpus_training_00000"


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text(TEXT)
    made = bertprep.tokenize(
        tokenizer=write_tokenizer(tmp_path, "byte_bpe"), inputs=[tmp_path / "a.txt"], output=tmp_path / "out"
    )
    return made.folders["tokens"]


@pytest.fixture
def rows(tokens: Path, tmp_path: Path) -> Path:
    bertprep.convert(tokens, tmp_path / "rows", to="mds", seq=16, workers=1)
    return tmp_path / "rows"


def codes(folder: Path) -> list[tuple[str, str]]:
    [outcome] = validate([folder], workers=1)
    return sorted((finding.code, finding.file) for finding in outcome.findings)


def put(path: Path, at: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(data)] = data
    path.write_bytes(content)


def begin(path: Path) -> int:
    """Where the ids of the first row begin in an MDS shard."""
    return path.read_bytes().index(MdsFile(path).tokens(0, "input_ids").tobytes())


FAULTS: dict[str, tuple[str, Callable[[Path], object], list[str]]] = {
    "beyond the tokenizer": (".bin", lambda path: put(path, 0, b"\xff\xff"), ["file-changed", "id-range"]),
    "a special token": (".bin", lambda path: put(path, 0, b"\2\0"), ["file-changed", "special-token"]),
    "no word at the start": (".words", lambda path: put(path, 0, b"\0"), ["file-changed", "word-starts"]),
    "a cut file": (".bin", lambda path: path.write_bytes(path.read_bytes()[:-1]), ["file-changed", "token-shard"]),
    "a hostile index": (".idx", lambda path: put(path, 34, b"\xff" * 4), ["file-changed", "token-shard"]),
    "without words": (".words", lambda path: path.unlink(), ["file-missing"]),
    "another tokenizer": ("tokenizer.json", lambda path: path.write_text("{}"), ["manifest"]),
    "no tokenizer": ("tokenizer.json", lambda path: path.unlink(), ["vocabulary"]),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_faults_of_documents_are_found(name: str, tokens: Path) -> None:
    end, plant, expected = FAULTS[name]
    assert codes(tokens) == []
    plant(tokens / (NAME + end if end.startswith(".") else end))
    assert [code for code, _ in codes(tokens)] == expected


def test_an_unfinished_set_has_that_finding_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_job, "_TASK_BYTES", 1)
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(TEXT)
    tokenizer = write_tokenizer(tmp_path, "byte_bpe")
    bertprep.tokenize(tokenizer=tokenizer, inputs=[tmp_path / "*.txt"], output=tmp_path / "out", part="0/2")
    assert codes(tmp_path / "out") == [("manifest", ".ledger")]


def test_where_records_are_expected_the_takers_of_others_are_named(tokens: Path, rows: Path) -> None:
    for folder, message in (
        (tokens, "of whole documents, expected records; bertprep.TokenDataset"),
        (rows, "holds MDS, expected"),
    ):
        with pytest.raises(UsageError, match=message):
            find_records(folder)


SHARD = "shard.00000.mds"
SEQ = re.compile(r'"seq": \d+')
FAULTS_OF_ROWS: dict[str, tuple[str, Callable[[Path], object], list[str]]] = {
    "beyond the tokenizer": (SHARD, lambda path: put(path, begin(path) + 2, b"\xff\xff"), ["file-changed", "id-range", "mds"]),
    "no [CLS]": (SHARD, lambda path: put(path, begin(path), b"\7\0"), ["file-changed", "mds", "row-ends"]),
    "a special token": (SHARD, lambda path: put(path, begin(path) + 2, b"\2\0"), ["file-changed", "mds", "special-token"]),
    "a cut file": (SHARD, lambda path: path.write_bytes(path.read_bytes()[:-1]), ["file-changed", "mds"]),
    "no index": ("index.json", lambda path: path.unlink(), ["mds", "mds"]),
    "longer rows": ("../manifest.json", lambda path: path.write_text(SEQ.sub('"seq": 4', path.read_text())), ["row-length"]),
    "a shard in no index": ("index.json", lambda path: path.write_text('{"shards": [], "version": 2}'), ["mds"]),
    "other columns": ("index.json", lambda path: path.write_text(path.read_text().replace("uint16", "int32")), ["mds"]),
    "a hostile index": ("index.json", lambda path: path.write_text('{"shards": [7]}'), ["mds", "mds"]),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS_OF_ROWS)
def test_faults_of_rows_are_found(name: str, rows: Path) -> None:
    file, plant, expected = FAULTS_OF_ROWS[name]
    assert codes(rows) == []
    plant(rows / "train" / file)
    assert [code for code, _ in codes(rows)] == expected


def test_mds_of_other_writers_is_checked_by_its_index(tmp_path: Path) -> None:
    assert codes(GOLDEN / "mds/uint16") == []
    folder = tmp_path / "uint16"
    folder.mkdir()
    for path in (GOLDEN / "mds/uint16").iterdir():
        if path.name != "shard.00001.mds":
            (folder / path.name).write_bytes(path.read_bytes())
    assert codes(folder) == [("file-missing", "shard.00001.mds")]
    assert codes(folder / "shard.00000.mds") == []


def test_documents_twice_and_in_both_splits_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_job, "_TASK_BYTES", 1)  # a shard of each file
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    paths[0].write_text("The first one\n\nAnother\n\nThe first one\n")
    paths[1].write_text("Of the test split\n\nAnother\n")
    made = bertprep.tokenize(tokenizer=write_tokenizer(tmp_path, "wordpiece"), inputs=paths, output=tmp_path / "out")
    folder, manifest = made.folders["tokens"], tmp_path / "out/manifest.json"
    content = json.loads(manifest.read_text())
    for number, split in enumerate(("training", "test")):  # as a corpus has them
        (folder / split).mkdir()
        for path in folder.glob(f"*_0000{number}.*"):
            path.rename(folder / split / path.name)
            content["files"][f"{split}/{path.name}"] = content["files"].pop(path.name)
    manifest.write_text(json.dumps(content))
    [outcome] = validate([folder], workers=2)
    found = [(each.code, each.level, each.file.partition("/")[0], each.record) for each in outcome.findings]
    assert found == [("document-in-both-splits", "error", "test", 1), ("document-twice", "warning", "training", 2)]


def test_many_unknown_tokens_are_a_warning(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    folder = tmp_path / "out"
    bertprep.tokenize(tokenizer=write_tokenizer(tmp_path, "characters"), inputs=[tmp_path / "a.txt"], output=folder)
    [outcome] = validate([folder], workers=1)
    assert [(finding.code, finding.level) for finding in outcome.findings] == [("unknown-tokens", "warning")]
    assert outcome.token_counts[""].unknown > 10


def test_the_table_counts_documents_rows_and_tokens(tokens: Path, rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = rows.parent / "v.json"
    assert main(["validate", str(tokens), str(rows), "--json", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "out, token shards" in printed
    assert "rows, MDS" in printed
    of_tokens, of_rows = json.loads(path.read_text())["data_sets"]
    assert of_tokens["splits"][""]["documents"] == 3
    assert (
        of_rows["splits"]["training"]["tokens"]
        == of_tokens["splits"][""]["tokens"] + 2 * of_rows["splits"]["training"]["documents"]
    )


def test_documents_and_rows_are_shown_as_text(tokens: Path, rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*arguments: str) -> list[str]:
        assert main(["inspect", *arguments]) == 0
        return capsys.readouterr().out.splitlines()

    path = str(tokens / f"{NAME}.bin")
    lines = shown(path, "--records", "1")
    assert lines[0] == f"{path}: 3 documents"
    assert lines[2].startswith("document 0: ")
    assert lines[3:] == ["The first one.", "Of two lines."]
    assert shown(path, "--search", "last")[1:4:2] == [
        '1 of 3 documents have "last"',
        f"document 2: {count_of(tokens, 2)} tokens",
    ]
    assert shown(path, "--search", "las")[1] == '0 of 3 documents have "las"'
    row = shown(str(rows / "train/shard.00000.mds"), "--records", "1")
    assert row[2] == "row 0: 16 tokens"
    assert row[3].startswith("[CLS]The first")
    assert shown(str(GOLDEN / "mds/int32/shard.00000.mds"), "--records", "1")[3] == "#2 #10 #3"


def count_of(tokens: Path, document: int) -> int:
    starts = open_token_documents(tokens).shards[0].starts
    return int(np.diff(starts)[document])
