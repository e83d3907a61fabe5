"""Each check of records of fine-tuning tasks: sound data passes it, and a planted fault is named with its file and record."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertprep import create_squad
from bertprep.check import record_scan
from bertprep.check.finding import Finding
from bertprep.cli import main
from bertprep.commands.validate import validate
from bertprep.files.paths import checksum_of
from bertprep.records import (
    ClassificationExamples,
    Examples,
    RegressionExamples,
    SquadEvalExamples,
    SquadExamples,
)
from bertprep.records.write import write_examples
from bertprep.work.layout import MANIFEST
from bertprep.work.manifest import RECORDS, Manifest, read_manifest
from tests.golden import GOLDEN
from tests.records.task_records import CLS, FIRST_WORD, LABELS, TASK_KINDS, TOKENS, task_examples

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{number}" for number in range(FIRST_WORD, TOKENS))]
SIZES = (20, 12)
by_title = pytest.mark.parametrize("kind", TASK_KINDS, ids=[kind.title for kind in TASK_KINDS])


def write_set(folder: Path, *files: Examples, made_with: dict[str, Any] | None = None) -> Path:
    """A data set with these training files, a vocabulary and a manifest that agrees with them."""
    (folder / "training").mkdir(parents=True)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    entries = {}
    for number, examples in enumerate(files):
        path = folder / "training" / f"part-{number}"
        write_examples([examples], {"ofrecord": path})
        entries[f"training/{path.name}"] = {
            "examples": len(examples),
            "bytes": path.stat().st_size,
            "blake3": checksum_of(path),
        }
    if made_with is not None:
        vocabulary = {"tokens": TOKENS, "sha256": checksum_of(folder / "vocab.txt", "sha256")}
        manifest = Manifest(RECORDS, {"seq": 16, "pred": 1, "vocabulary": vocabulary, **made_with}, entries)
        (folder / MANIFEST).write_text(json.dumps(manifest.as_json()))
        assert read_manifest(folder)
    return folder


def parts(kind: type[Examples]) -> list[Examples]:
    return [task_examples(kind, size, seed=number, first=sum(SIZES[:number])) for number, size in enumerate(SIZES)]


def findings_of(folder: Path) -> list[Finding]:
    return [finding for outcome in validate([folder], workers=1) for finding in outcome.findings]


@by_title
def test_sound_data_has_no_findings(tmp_path: Path, kind: type[Examples], capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_set(tmp_path / "set", *parts(kind))
    assert findings_of(folder) == []
    assert main(["validate", str(folder)]) == 0
    assert "ofrecord 16" in capsys.readouterr().out


def plant(name: str, row: int, column: int | None, value: int) -> Callable[[Any], None]:
    def change(examples: Any) -> None:
        getattr(examples, name)[row if column is None else (row, column)] = value

    return change


def at_length(name: str, row: int, offset: int, value: int) -> Callable[[Any], None]:
    """The value at the end of a record's text."""

    def change(examples: Any) -> None:
        length = int(examples.input_mask[row].sum())
        getattr(examples, name)[row, length + offset] = value

    return change


def swap_answer(examples: Any) -> None:
    row = int(np.argmax(examples.end_positions > examples.start_positions))
    examples.start_positions[row], examples.end_positions[row] = examples.end_positions[row], examples.start_positions[row]


def shorten(examples: Any) -> None:
    """Row 3 becomes [CLS] A [SEP] without a [SEP] at the end."""
    length = int(examples.input_mask[3].sum())
    examples.input_ids[3, 1:length] = FIRST_WORD
    examples.segment_ids[3] = 0


EVERY: list[tuple[Callable[[Any], None], str, str]] = [
    (plant("input_mask", 3, 2, 0), "padding", "input_mask 1 for the text, then 0 to the end"),
    (plant("input_ids", 3, 2, 0), "padding", "no [PAD] within the"),
    (plant("input_ids", 3, 0, FIRST_WORD), "no-cls", f"[CLS], token {CLS}, at position 0"),
    (plant("input_ids", 3, 1, CLS), "no-cls", "[CLS] at position 0 only"),
    (plant("segment_ids", 3, 0, 1), "segments", "segment_ids 0 to the first [SEP], then 1"),
    (plant("input_ids", 3, 1, TOKENS), "id-range", f"tokens below {TOKENS}, the size of the vocabulary"),
    (shorten, "separators", "[SEP]"),
    (at_length("input_ids", 3, -1, FIRST_WORD), "separators", "[SEP]"),
]
SQUAD: list[tuple[Callable[[Any], None], str, str]] = [
    (plant("end_positions", 4, None, 15), "answer-positions", "start to end within the context, or both 0"),
    (plant("start_positions", 4, None, 1), "answer-positions", "start to end within the context, or both 0"),
    (swap_answer, "answer-positions", "start to end within the context, or both 0"),
    (plant("is_impossible", 4, None, 1), "impossible", "positions 0 where is_impossible is 1"),
    (plant("is_impossible", 0, None, 2), "impossible", "is_impossible 0 or 1"),
    (plant("unique_ids", 4, None, 7), "unique-ids", "unique_ids that count up, 1000000004 here"),
]
CASES: list[Any] = [(SquadExamples, *case) for case in (*EVERY, *SQUAD)]
CASES += [
    (SquadEvalExamples, plant("unique_ids", 4, None, 7), "unique-ids", "unique_ids that count up, 1000000004 here"),
    (ClassificationExamples, *EVERY[0]),
    (ClassificationExamples, plant("is_real_example", 4, None, 2), "label-range", "is_real_example 0 or 1"),
    (ClassificationExamples, plant("label_ids", 4, None, LABELS), "label-range", "label_ids below 3, the number of labels"),
    (RegressionExamples, plant("label_ids", 4, None, np.nan), "label-range", "a finite label of 0 or more"),  # type: ignore[arg-type]
    (RegressionExamples, plant("label_ids", 4, None, -1), "label-range", "a finite label of 0 or more"),
]


def test_faults_are_counted_over_all_blocks_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_scan, "BLOCK", 4)
    examples = task_examples(ClassificationExamples, 20)
    examples.label_ids[[2, 9, 17, 18]] = LABELS
    examples.input_ids[[5, 11], 0] = FIRST_WORD
    folder = write_set(tmp_path / "set", examples, made_with={"labels": ["a", "b", "c"]})
    found = {finding.code: (finding.record, finding.count) for finding in findings_of(folder)}
    assert found == {"label-range": (2, 4), "no-cls": (5, 2)}


@pytest.mark.parametrize(("kind", "change", "code", "expected"), CASES)
def test_a_planted_fault_is_found(
    tmp_path: Path, kind: type[Examples], change: Callable[[Any], None], code: str, expected: str
) -> None:
    first, second = parts(kind)
    change(first)
    names = [f"label{number}" for number in range(LABELS)] if kind is ClassificationExamples else []
    folder = write_set(tmp_path / "set", first, second, made_with={"labels": names})
    found = [finding for finding in findings_of(folder) if finding.code == code and expected in finding.expected]
    assert len(found) == 1
    assert (found[0].level, found[0].file) == ("error", "training/part-0")
    assert found[0].record in (0, 1, 2, 3, 4)


@pytest.mark.parametrize(("version", "expected"), [("1.1", ["is_impossible 0, as in all of SQuAD 1.1"]), ("2.0", [])])
def test_an_impossible_question_of_squad_1_is_found(version: str, expected: list[str], tmp_path: Path) -> None:
    folder = write_set(tmp_path / "set", *parts(SquadExamples), made_with={"task": "squad", "version": version})
    assert [finding.expected for finding in findings_of(folder) if finding.code == "impossible"] == 2 * expected


def test_questions_that_were_changed_are_found(tmp_path: Path) -> None:
    source = tmp_path / "dev-v1.1.json"
    shutil.copyfile(GOLDEN / "finetune" / "squad_v1.json", source)
    out = tmp_path / "set"
    create_squad(inputs=[source], vocab=GOLDEN / "vocab.txt", output=out, formats="tfrecord")
    assert findings_of(out) == []
    (out / "tfrecord/dev.json").write_text(source.read_text().replace("answer", "Answer", 1))
    assert [(finding.code, finding.file) for finding in findings_of(out)] == [("file-changed", "dev.json")]
    (out / "tfrecord/dev.json").unlink()
    assert [(finding.code, finding.file) for finding in findings_of(out)] == [("file-missing", "dev.json")]


def test_windows_of_a_split_are_numbered_through(tmp_path: Path) -> None:
    first, second = parts(SquadExamples)
    (found,) = findings_of(write_set(tmp_path / "a", first, first))
    assert (found.code, found.file, found.expected) == ("unique-ids", "training/part-1", "unique_ids from 1000000020 on")
    (found,) = findings_of(write_set(tmp_path / "b", second))
    assert (found.code, found.found) == ("unique-ids", "1000000020")
    assert findings_of(write_set(tmp_path / "c", second, first)) == []


def test_files_of_another_kind_or_shape_are_found(tmp_path: Path) -> None:
    squad, other, longer = (
        task_examples(kind, 4, seq=seq, first=first)
        for kind, seq, first in ((SquadExamples, 16, 0), (ClassificationExamples, 16, 0), (SquadExamples, 32, 4))
    )
    for name, second, found in (
        ("a", other, "classification records of 16 tokens"),
        ("b", longer, "SQuAD records of 32 tokens"),
    ):
        (finding,) = (each for each in findings_of(write_set(tmp_path / name, squad, second)) if each.code == "mixed-shape")
        assert (finding.file, finding.found) == ("training/part-1", found)
