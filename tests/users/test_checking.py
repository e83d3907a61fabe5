"""Token shards that people bring from other tools: Megatron-LM, NeMo, fairseq and their merge scripts."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

import numpy as np
import pytest

import bertprep
from bertprep.cli import main
from tests.golden import GOLDEN
from tests.instances.small_tokenizers import write_tokenizer

VOCABULARY = GOLDEN / "vocab.txt"
SENTENCES = [[200, 201, 202], [203, 204], [205, 206, 207, 208], [209, 210]]
DOCUMENTS = [0, 2, 4]


def write_megatron(
    folder: Path,
    sentences: list[list[int]],
    documents: list[int],
    *,
    code: int = 4,
    lengths: list[int] | None = None,
    pointers: list[int] | None = None,
) -> Path:
    """Write x.bin and x.idx as Megatron's MMapIndexedDatasetBuilder does; `lengths` and `pointers` may be wrong."""
    dtype = np.dtype({4: "<i4", 8: "<u2", 5: "<i8", 7: "<f8"}[code])
    folder.mkdir(exist_ok=True)
    (folder / "x.bin").write_bytes(np.concatenate(sentences).astype(dtype).tobytes())
    lengths = lengths or [len(each) for each in sentences]
    pointers = pointers or [dtype.itemsize * sum(lengths[:at]) for at in range(len(lengths))]
    (folder / "x.idx").write_bytes(
        struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, code, len(lengths), len(documents))
        + np.array(lengths, "<i4").tobytes() + np.array(pointers, "<i8").tobytes() + np.array(documents, "<i8").tobytes()
    )  # fmt: skip
    return folder


def validated(folder: Path, capsys: pytest.CaptureFixture[str], vocabulary: Path = VOCABULARY) -> tuple[int, str]:
    status = main(["validate", str(folder), "--vocab", str(vocabulary)])
    printed = capsys.readouterr()
    return status, printed.out + printed.err


@pytest.mark.parametrize("code", [4, 5, 8])
def test_shards_as_megatron_writes_them_are_right(code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = validated(write_megatron(tmp_path / "set", SENTENCES, DOCUMENTS, code=code), capsys)
    assert status == 0
    assert "no errors" in said


def test_merged_shards_whose_document_index_was_not_extended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = validated(write_megatron(tmp_path / "set", SENTENCES, [0, 2]), capsys)
    assert status == 1
    assert "token-shard" in said
    assert "document indices must ascend from 0 to 4" in said


def test_merged_shards_whose_pointers_overflowed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = validated(write_megatron(tmp_path / "set", SENTENCES, DOCUMENTS, pointers=[0, 12, -(2**31), 36]), capsys)
    assert status == 1
    assert "sequence 2" in said


def test_shards_whose_lengths_do_not_count_the_end_of_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sentences = [[*each, 103] if at % 2 else each for at, each in enumerate(SENTENCES)]
    lengths = [len(each) for each in SENTENCES]
    status, said = validated(write_megatron(tmp_path / "set", sentences, DOCUMENTS, lengths=lengths), capsys)
    assert status == 1
    assert "x.bin: has 52 bytes, expected 44" in said


def test_ids_of_a_large_vocabulary_that_were_cut_to_two_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokens = VOCABULARY.read_text(encoding="utf-8").split("\n")[:-1]
    large = tmp_path / "vocab.txt"
    large.write_text("\n".join([*tokens, *(f"word{number}" for number in range(120_000 - len(tokens)))]) + "\n")
    folder = write_megatron(tmp_path / "set", SENTENCES, DOCUMENTS, code=8)
    status, said = validated(folder, capsys, large)
    assert status == 0
    assert "warning: id-range: " in said
    assert "uint16" in said
    assert "id-range" not in validated(write_megatron(folder, SENTENCES, DOCUMENTS), capsys, large)[1]


def test_ids_that_are_floats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = validated(write_megatron(tmp_path / "set", SENTENCES, DOCUMENTS, code=7), capsys)
    assert status == 1
    assert "ids of type 7" in said


def test_an_index_of_the_lazy_kind_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_megatron(tmp_path / "set", SENTENCES, DOCUMENTS)
    (folder / "x.idx").write_bytes(b"TNTIDX\0\0" + struct.pack("<QQQ", 1, 4, 4) + bytes(64))
    status, said = validated(folder, capsys)
    assert status != 0
    assert "--dataset-impl mmap" in said


def test_a_copy_of_a_shard_that_the_manifest_does_not_list(tmp_path: Path, golden_corpus: Path) -> None:
    made = bertprep.tokenize(inputs=[golden_corpus], vocab=VOCABULARY, output=tmp_path / "out", workers=1)
    [path] = made.folder.rglob("*.bin")
    for end in (".bin", ".idx"):
        path.with_name(f"again{end}").write_bytes(path.with_suffix(end).read_bytes())
    [outcome] = bertprep.validate([made.folder], workers=1)
    found = {(finding.level, finding.code) for finding in outcome.findings}
    assert found >= {("error", "identical-files"), ("warning", "file-extra")}


@pytest.mark.parametrize("end", [".bin", ".idx", ".words", "tokenizer.json", "vocab.txt"])
@pytest.mark.parametrize("command", ["validate", "convert"])
def test_files_of_a_terabyte_are_refused_at_a_look_at_their_size(
    end: str, command: str, golden_corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    how = {"vocab": VOCABULARY} if end == "vocab.txt" else {"tokenizer": write_tokenizer(tmp_path, "byte_bpe")}
    made = bertprep.tokenize(inputs=[golden_corpus], output=tmp_path / "out", workers=1, **how)  # type: ignore[arg-type]
    paths = [*made.folder.rglob("*.bin"), *made.folder.rglob("*.idx")]
    if not end.startswith("."):
        path = made.folder / end
    elif end == ".words":
        [path] = made.folder.rglob("*.words")
    else:
        [path] = [each for each in paths if each.suffix == end]
    os.truncate(path, 1 << 40)
    more = [str(tmp_path / "rows"), "--to", "mds", "--seq", "16"] if command == "convert" else []
    assert main([command, str(made.folder), *more]) in (1, 2)
    printed = capsys.readouterr()
    assert re.search(r"1,099,511,627,776|more than 67,108,864 bytes", printed.out + printed.err)
