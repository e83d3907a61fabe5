"""Text shards: those of bertprep are clean, and every planted fault is found once, at its position."""

from pathlib import Path

import pytest

import bertprep
from bertprep.check.data_set import check_data_set
from bertprep.check.finding import Finding
from bertprep.commands.validate import validate
from bertprep.config import ShardSettings
from bertprep.progress import SILENT
from bertprep.work.data_set import DataSet
from bertprep.work.manifest import TEXT_SHARDS

A, B = "training/tiny_training_00000.txt", "training/tiny_training_00001.txt"
TEST = "test/tiny_test_00000.txt"
TEXTS = {A: "One.\nTwo.\n\nThree.\n\n", B: "Four.\nFive.\n\nSix.\n\n", TEST: "Seven.\nEight.\n\nNine.\n\n"}


def check(folder: Path, changes: dict[str, str | bytes]) -> list[Finding]:
    """The findings of valid shards with these changes, without a manifest."""
    texts = {**TEXTS, **changes}
    for name, content in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    data_set = DataSet(folder, TEXT_SHARDS, dict.fromkeys(texts, ""))
    shown = SILENT.progress("validate", 1)
    return check_data_set(data_set, None, workers=1, shown=shown).findings


def short(finding: Finding) -> tuple[str, str, str, int, int]:
    """What matters of it; line 0 is the whole file."""
    return finding.level, finding.code, finding.file, finding.record or 0, finding.count


def test_valid_shards_have_no_finding(tmp_path: Path) -> None:
    assert check(tmp_path, {}) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({B: TEXTS[B] + "One.\nTwo.\n\n"}, ("error", "document-twice", B, 6, 1)),
        ({A: TEXTS[A] * 3}, ("error", "document-twice", A, 6, 4)),
        ({TEST: TEXTS[TEST] + "Three.\n\n"}, ("error", "document-in-both-splits", TEST, 6, 1)),
        ({A: "One.\nTwo.\n\n\nThree.\n\n"}, ("error", "blank-sentence", A, 4, 1)),
        ({A: "\nOne.\nTwo.\n\nThree.\n\n"}, ("error", "blank-sentence", A, 1, 1)),
        ({A: "  \nOne.\nTwo.\n\nThree.\n\n"}, ("error", "blank-sentence", A, 1, 1)),
        ({A: "One.\n \t\nTwo.\n\u3000\u2003\nThree.\n\n"}, ("error", "blank-sentence", A, 2, 2)),
        ({A: "One.\n" + "ä" * 10_001 + "\n\n", B: "x" * 10_000 + "\n\n"}, ("warning", "long-sentence", A, 2, 1)),
        ({A: b"One.\nTw\xff.\n\n"}, ("error", "not-utf8", A, 2, 1)),
        ({A: b"One.\nTwo.\n\n\xe2\x80\n\n"}, ("error", "not-utf8", A, 4, 1)),
        ({A: ""}, ("error", "empty-file", A, 0, 1)),
        ({A: "One.\nTwo.\n\nThr"}, ("error", "truncated", A, 4, 1)),
        ({A: "One.\nTwo.\n\nThree.\n"}, ("error", "truncated", A, 4, 1)),
    ],
)
def test_each_fault_is_found(tmp_path: Path, changes: dict[str, str | bytes], expected: tuple[str, str, str, int, int]) -> None:
    (finding,) = check(tmp_path, changes)
    assert short(finding) == expected


def test_a_finding_names_position_and_fault(tmp_path: Path) -> None:
    (finding,) = check(tmp_path, {B: TEXTS[B] + "Three.\n\n"})
    assert (finding.expected, finding.found) == ("each document once", f"the document of {A}, line 4")
    (finding,) = check(tmp_path, {B: b"Six.\n\xff\n\nBy the way.\n\n"})
    assert finding.found == "0xff at byte 5 (invalid start byte)"
    (finding,) = check(tmp_path, {B: "Four.\n\u00a0\nSeven of nine.\n\n"})
    assert finding.found == r"white space alone, '\xa0'"


def test_each_file_with_repeated_documents_is_named(tmp_path: Path) -> None:
    names = [f"training/tiny_training_{n:05d}.txt" for n in range(5)]
    texts = {name: "\n" * (n == 4) + "Of all.\n\n" * 2 + f"Of {n}.\n\n" for n, name in enumerate(names)}
    found = [finding for finding in check(tmp_path, {A: texts[names[0]], **texts}) if finding.code == "document-twice"]
    assert [(finding.file, finding.record, finding.count) for finding in found] == [
        (name, line, count) for name, line, count in zip(names, (3, 1, 1, 1, 2), (1, 2, 2, 2, 2), strict=True)
    ]
    assert {finding.found for finding in found} == {f"the document of {A}, line 1"}


def test_shards_may_be_of_any_sizes(tmp_path: Path) -> None:
    assert check(tmp_path, {A: "".join(f"Document {i}.\n\n" for i in range(20))}) == []


@pytest.mark.parametrize("twice", [False, True])
def test_shards_of_bertprep_are_valid_and_requested_duplicates_are_warnings(
    twice: bool, golden_corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_bytes(golden_corpus.read_bytes() * (1 + twice))
    settings = ShardSettings(shards=3, keep_duplicates=twice)
    bertprep.shard([tmp_path / "text.txt"], **vars(settings), workdir=tmp_path, corpus="golden", workers=1)
    (outcome,) = validate([tmp_path / "sharded/golden"], workers=2)
    assert {(found.code, found.level) for found in outcome.findings} == ({("document-twice", "warning")} if twice else set())
