"""What is wrong with token shards of documents is found where it is, and nothing else; they are shown as text."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertprep
from bertprep.cli import main
from bertprep.commands.validate import validate
from bertprep.errors import BertprepError, UsageError
from bertprep.text import tokenize_documents
from bertprep.tokens.documents import open_token_documents
from bertprep.tokens.mds import MdsMaker
from bertprep.tokens.shard import parse_index
from bertprep.work.choose import find_records
from bertprep.work.resume import what_finishes
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


def give_first_tokens_to_second(path: Path) -> None:
    """Leave the first document of an .idx without a token; the second has them too."""
    _, lengths, _ = parse_index(path, path.read_bytes())
    changed = lengths.copy()
    changed[:2] = 0, lengths[:2].sum()
    starts = np.cumsum(changed, dtype=np.int64) - changed
    put(path, 34, changed.astype("<i4").tobytes() + (2 * starts).astype("<i8").tobytes())  # ids have 2 bytes


FAULTS: dict[str, tuple[str, Callable[[Path], object], list[str]]] = {
    "beyond the tokenizer": (".bin", lambda path: put(path, 0, b"\xff\xff"), ["file-changed", "id-range"]),
    "a special token": (".bin", lambda path: put(path, 0, b"\2\0"), ["file-changed", "special-token"]),
    "no word at the start": (".words", lambda path: put(path, 0, b"\0"), ["file-changed", "word-starts"]),
    "a cut file": (".bin", lambda path: path.write_bytes(path.read_bytes()[:-1]), ["file-changed", "token-shard"]),
    "a hostile index": (".idx", lambda path: put(path, 34, b"\xff" * 4), ["file-changed", "token-shard"]),
    "an empty document": (".idx", give_first_tokens_to_second, ["empty-document", "file-changed", "manifest"]),
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


def test_documents_that_do_not_begin_a_word_are_counted(tokens: Path) -> None:
    path = tokens / f"{NAME}.words"
    path.write_bytes(bytes(path.stat().st_size))
    [outcome] = validate([tokens], workers=1)
    [(record, count)] = [(finding.record, finding.count) for finding in outcome.findings if finding.code == "word-starts"]
    assert (record, count) == (0, 3)


def test_the_size_of_a_token_shard_is_that_of_its_files(tokens: Path) -> None:
    [outcome] = validate([tokens], workers=1)
    assert outcome.files[0].size_bytes == sum((tokens / f"{NAME}.{end}").stat().st_size for end in ("bin", "idx", "words"))


def test_an_unfinished_set_has_that_finding_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenize_documents, "_TASK_BYTES", 1)
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(TEXT)
    tokenizer = write_tokenizer(tmp_path, "byte_bpe")
    bertprep.tokenize(tokenizer=tokenizer, inputs=[tmp_path / "*.txt"], output=tmp_path / "out", part="0/2")
    assert codes(tmp_path / "out") == [("manifest", ".ledger")]


def test_an_unfinished_run_of_tokenize_names_tokenize(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenize_documents, "_TASK_BYTES", 1)
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(TEXT)
    shards = iter("a")
    make = MdsMaker.make

    def make_one(*arguments: Any) -> Any:
        if next(shards, None) is None:
            raise BertprepError("stopped")
        return make(*arguments)

    monkeypatch.setattr(MdsMaker, "make", make_one)
    tokenizer = write_tokenizer(tmp_path, "byte_bpe")
    with pytest.raises(BertprepError, match="stopped"):
        bertprep.tokenize(tokenizer=tokenizer, inputs=[tmp_path / "*.txt"], output=tmp_path / "out", format="mds", seq=16)
    command = "run the bertprep tokenize command that began it again, which resumes it"
    assert what_finishes(tmp_path / "out/mds") == command
    assert codes(tmp_path / "out/mds") == [("manifest", ".ledger")]


def test_where_records_are_expected_the_takers_of_others_are_named(tokens: Path, rows: Path) -> None:
    for folder, message in (
        (tokens, "of whole documents, expected records; bertprep.TokenDataset"),
        (rows, "has MDS, expected"),
    ):
        with pytest.raises(UsageError, match=message):
            find_records(folder)


def test_mds_is_passed_over_with_the_line_that_checks_it(
    tokens: Path, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = (
        f"{rows}: is MDS, which bertprep writes but does not read; to check its hashes, use mosaicml-streaming: "
        f'StreamingDataset(local="{rows}/train", validate_hash="sha1")'
    )
    with pytest.warns(UserWarning, match=re.escape(line)):
        assert [outcome.folder for outcome in validate([tmp_path], workers=1)] == [tokens]
    assert main(["validate", str(rows)]) == 2
    assert capsys.readouterr().err.strip().endswith(line)
    shard = rows / "train/shard.00000.mds"
    assert main(["inspect", str(shard)]) == 2
    assert f"{shard}: is MDS, which bertprep writes but does not read; " in capsys.readouterr().err


def test_documents_twice_and_in_both_splits_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenize_documents, "_TASK_BYTES", 1)  # a shard of each file
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    paths[0].write_text("The first one\n\nAnother\n\nThe first one\n")
    paths[1].write_text("Of the test split\n\nAnother\n")
    made = bertprep.tokenize(tokenizer=write_tokenizer(tmp_path, "wordpiece"), inputs=paths, output=tmp_path / "out")
    folder, manifest = made.folder, made.folder / "manifest.json"
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
    assert "--tokenizer" in outcome.findings[0].advice
    assert outcome.token_counts[""].unknown > 10


def test_the_table_counts_documents_and_tokens(tokens: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(tokens), "--json", str(tmp_path / "v.json")]) == 0
    assert "tokens, token shards" in capsys.readouterr().out
    (of_tokens,) = json.loads((tmp_path / "v.json").read_text())["data_sets"]
    found = of_tokens["splits"][""]
    assert not any(found["documents_by_sentences"])  # which are not known
    assert (found["documents"], found["tokens"]) == (3, sum(count_of(tokens, document) for document in range(3)))


def test_documents_are_shown_as_text(tokens: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*arguments: str) -> list[str]:
        assert main(["inspect", *arguments]) == 0
        return capsys.readouterr().out.splitlines()

    path = str(tokens / f"{NAME}.bin")
    lines = shown(path, "--records", "1")
    assert lines[0] == f"{path}: 3 documents"
    assert lines[2].startswith("document 0: ")
    assert lines[3:] == ["The first one.", "Of two lines."]
    assert shown(path, "--record", "2")[2] == f"document 2: {count_of(tokens, 2)} tokens"
    (tokens / "tokenizer.json").unlink()
    assert re.fullmatch(r"(#\d+ ?)+", shown(path, "--records", "1")[3])


def count_of(tokens: Path, document: int) -> int:
    starts = open_token_documents(tokens).shards[0].starts
    return int(np.diff(starts)[document])
