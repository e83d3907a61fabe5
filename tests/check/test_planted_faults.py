"""Faults planted one at a time in valid data: each gives its code, in its file and record, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import bertprep
from bertprep.check.finding import Finding
from bertprep.commands.validate import validate
from bertprep.config import InstanceSettings, ShardSettings
from bertprep.work.layout import MANIFEST, VOCABULARY
from tests.check import edits, plants
from tests.check.edits import SEP, THE, TOKENS, put
from tests.check.faulty import Spoiled
from tests.check.plants import in_all, in_record, in_second_file, in_short_record
from tests.golden import GOLDEN
from tests.records.handmade import frame

FORMATS = ("tfrecord", "ofrecord")  # checks but those of frames see values, whatever they were read from
FIRST = "the first training file"
SOMEWHERE = -1  # a record whose number depends on how many there are


@dataclass(frozen=True)
class Fault:
    """How to plant it, and the finding it must give; `also` are errors that cannot but come with it."""

    name: str
    plant: plants.Plant
    code: str
    level: str = "error"
    file: str = FIRST
    record: int | None = plants.RECORD
    formats: tuple[str, ...] = ("ofrecord",)
    also: tuple[str, ...] = ()
    signed: bool = True  # the manifest agrees with the spoiled files
    seq: int = 128  # of the data set: `sound` has four; the shorter, the more often a sentence takes a random B


def whole(name: str, plant: plants.Plant, code: str, file: str = "training", **others: Any) -> Fault:
    """A fault of a file or a split, not of one record."""
    return Fault(name, plant, code, file=file, record=None, **others)


TFRECORD = ("tfrecord",)
BREAKS_OFF = ("manifest",)  # the manifest has another number of records than a file that breaks off
ENDS_EARLY = ("separators", "segments", "mask-outside", "mask-on-special", "prediction-count")
SECOND, TEST_FILE = "the second training file", "the test file"
FILES = [
    Fault("bit of a length", plants.flip(0), "bad-checksum", formats=TFRECORD, also=BREAKS_OFF),
    Fault("bit of the data", plants.flip(100), "bad-checksum", formats=TFRECORD),
    Fault("cut file", plants.cut_file, "truncated", record=SOMEWHERE, formats=FORMATS),
    Fault("empty file", plants.whole_file(b""), "empty-file", record=None, formats=FORMATS),
    Fault("text for records", plants.whole_file(b"Text. " * 9), "unreadable", record=None, also=BREAKS_OFF, formats=FORMATS),
    Fault("a byte appended", plants.append_to_file(b"\n"), "trailing-bytes", record=SOMEWHERE, formats=FORMATS),
    Fault(
        "empty records appended",
        plants.append_to_file(frame(b"", "ofrecord") * 66_000),
        "bad-message",
        record=SOMEWHERE,
        also=("feature-missing", *BREAKS_OFF),
    ),
    Fault("zeros appended", plants.append_to_file(bytes(4096)), "trailing-bytes", record=SOMEWHERE, formats=TFRECORD),
]
MESSAGES = [
    Fault("garbage in a sound frame", plants.with_message(b"\x0a\xff\xff"), "bad-message", formats=FORMATS),
    Fault("a feature missing", in_record(lambda values: values.pop("segment_ids")), "feature-missing"),
    Fault("integers as floats", plants.write_as_floats, "feature-type"),
    Fault("one record longer", in_record(edits.longer), "feature-shape"),
    Fault("a file of longer records", in_second_file(edits.longer), "mixed-shape", file=SECOND, record=0),
    Fault("negative token", in_record(put("input_ids", 5, -7)), "id-range"),
]
TEXTS = [
    Fault("no [CLS]", in_record(put("input_ids", 0, THE)), "no-cls"),
    Fault("three [SEP]", in_record(edits.put_in_text(SEP)), "separators"),
    Fault("last [SEP] lost", in_record(put("input_ids", edits.last_position, THE)), "separators"),
    Fault("segments exchanged", in_record(edits.exchange_segments), "segments", also=("mask-on-special",)),
    Fault("token in the padding", in_short_record(put("input_ids", -1, THE)), "padding"),
    Fault("segment in the padding", in_short_record(put("segment_ids", -1, 1)), "padding"),
    Fault("mask with a hole", in_record(put("input_mask", 10, 0)), "padding", also=ENDS_EARLY),
    Fault("token beyond the vocabulary", in_record(edits.put_in_text(len(TOKENS))), "id-range"),
]
PREDICTIONS = [
    Fault("label beyond the vocabulary", in_record(put("masked_lm_ids", 2, len(TOKENS))), "id-range"),
    Fault("out of order", in_record(edits.swap_predictions), "mask-order"),
    Fault("in the padding", in_short_record(put("masked_lm_positions", edits.last, 127)), "mask-outside"),
    Fault("on [SEP]", in_record(edits.move_mask(edits.last, edits.last_position)), "mask-on-special"),
    Fault("weights 1 0 1", in_record(put("masked_lm_weights", 1, 0.0)), "weights", also=("prediction-count",)),
    Fault("a label after the last", in_short_record(put("masked_lm_ids", -1, THE)), "weights"),
    Fault("one too few", in_record(edits.drop_prediction), "prediction-count"),
    Fault("one too many", in_record(edits.add_prediction), "prediction-count"),
    Fault("[MASK] that is none", in_record(edits.put_in_text(edits.MASK)), "mask-without-label", level="warning"),
    Fault("next-sentence label 2", in_record(put("next_sentence_labels", 0, 2)), "next-sentence-label"),
]
TOO_FEW = ("prediction-count", "label-frequencies")  # half of a short text has too few positions
OTHER_TOKENS = ("replacement-shares", "label-beside-mask")  # what was kept no longer is; "the" is beside "the"
OTHER_TEXT = ("replacement-shares", "label-frequencies", "position-shares", "word-pieces")
TWICE = ("duplicate-records", "random-tokens")  # draws that are there twice are too much alike
NOT_NEXT = ("next-sentence-text",)  # a random B that continues its A
WARNING: dict[str, Any] = {"level": "warning"}
THE_WHOLE = [
    whole("all [MASK]", plants.redraw(1.0, 0.0), "replacement-shares"),
    whole("first half only", in_all(edits.mask_first_half), "position-shares", also=TOO_FEW),
    whole("all labels the", in_all(edits.predict_the), "label-frequencies", also=OTHER_TOKENS),
    whole("labels of a file one off", in_second_file(edits.shift_labels), "label-beside-mask", SECOND, also=OTHER_TEXT),
    whole("random tokens of one half", in_all(edits.halve_random), "random-tokens"),
    whole("random tokens of a file of one half", in_second_file(edits.halve_random), "random-tokens", SECOND),
    whole("no B follows its A", in_all(edits.no_next_sentence), "next-sentence-share", also=NOT_NEXT),
    whole("labels inverted", in_all(edits.invert_next), "next-sentence-share", also=NOT_NEXT, seq=32),
    whole("labels of 5 % swapped", plants.swap_labels(0.05), "next-sentence-text"),
    whole("labels of a file all 0", in_second_file(edits.label_next(0)), "next-sentence-share", SECOND),
    whole("labels of a file all 1", in_second_file(edits.label_next(1)), "next-sentence-share", SECOND, also=NOT_NEXT, seq=32),
    whole("a file twice", plants.repeat_file, "identical-files", SECOND, also=TWICE),
    whole("records by length", plants.sort_by_length, "record-order", **WARNING),
    whole("records by text", plants.sort_by_text, "record-order", **WARNING),
    whole("B is A", in_all(edits.copy_a_to_b), "next-sentence-text", also=("duplicate-records",)),
    whole("as many test records", plants.halve_training, "split-sizes", "test", **WARNING),
    whole("more test records", plants.shrink_training, "split-sizes", "test", also=("manifest",), **WARNING),
    Fault("a file under other masks", plants.repeat_texts, "repeated-texts", file=SECOND, record=SOMEWHERE),
    Fault("test texts in training", plants.copy_test_texts, "test-text-in-training", file=TEST_FILE, record=SOMEWHERE),
    Fault("A reversed", in_all(edits.reverse_a), "word-pieces", record=SOMEWHERE),
    Fault("tokens shuffled", in_all(edits.renumber(edits.SHUFFLED_NUMBERS)), "word-pieces", record=SOMEWHERE),
    Fault("records twice", plants.repeat_records, "duplicate-records", file=SECOND, record=SOMEWHERE),
    Fault("test records in training", plants.copy_test_to_training, "test-in-training", file=TEST_FILE, record=0),
]
THE_MANIFEST = [
    whole("lacks a file", plants.in_manifest(dict.pop), "file-extra", FIRST, **WARNING),
    whole("file removed", plants.remove_file, "file-missing", FIRST),
    whole("file changed", plants.swap_records, "file-changed", FIRST, signed=False),
    whole("one record less", plants.in_manifest(plants.count_one_less), "manifest", FIRST, signed=False),
    whole("another vocabulary", plants.other_vocabulary, "manifest", VOCABULARY),
    whole("is not there, nor is a file", plants.leave_a_gap, "file-missing", SECOND, signed=False),
    whole("is none", plants.spoil_manifest, "manifest", MANIFEST, signed=False),
]
WITHOUT_PAIRS = [
    Fault("unpaired, last [SEP] lost", in_record(put("input_ids", edits.last_position, THE)), "separators", seq=64),
    Fault("unpaired, [SEP] after [CLS]", in_record(edits.begin_with_sep), "separators", seq=64),
    Fault("unpaired, segment 1", in_record(put("segment_ids", 9, 1)), "segments", seq=64, also=("mask-on-special",)),
    whole("unpaired, first half only", in_all(edits.mask_first_half), "position-shares", also=TOO_FEW, seq=64),
    Fault("unpaired, the manifest says pairs", plants.say_pairs, "mixed-shape", record=0, seq=64, formats=TFRECORD),
]
WHOLE_WORDS = [
    Fault("a word of one piece left out", plants.take_back(False), "prediction-count", record=SOMEWHERE, seq=96),
    Fault("a word masked in part", plants.take_back(True), "whole-words", record=SOMEWHERE, seq=96),
]
FAULTS = WHOLE_WORDS + WITHOUT_PAIRS + FILES + MESSAGES + TEXTS + PREDICTIONS + THE_WHOLE + THE_MANIFEST


@pytest.fixture(scope="module")
def sound(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Path]:
    """Sound data sets of both formats, two training files and a test file: by length, 64 without pairs, 96 of whole words."""
    workdir = tmp_path_factory.mktemp("sound")
    settings = ShardSettings(shards=2, splitter="lines", test_fraction=0.3)
    bertprep.shard([golden_corpus], **vars(settings), workdir=workdir, corpus="golden", workers=1)
    folders = {}
    for of in (
        InstanceSettings(),
        InstanceSettings(seq=32, pred=5),
        InstanceSettings(seq=64, pred=10, pairs="none"),
        InstanceSettings(seq=96, pred=15, whole_word=True),
    ):
        created = bertprep.create(**vars(of), vocab=GOLDEN / "vocab.txt", workdir=workdir, corpus="golden", workers=1)
        folders |= {(name, of.seq): folder for name, folder in created.folders.items()}
    return folders


def findings_of(folder: Path) -> list[Finding]:
    (outcome,) = validate([folder], workers=1)
    return outcome.findings


def test_words_are_not_judged_without_the_vocabulary_that_says_where_they_begin(
    sound: dict[tuple[str, int], Path], tmp_path: Path
) -> None:
    data = Spoiled.copy(sound["tfrecord", 96], tmp_path / "golden", "tfrecord")
    (data.folder / VOCABULARY).unlink()
    found = [(finding.code, finding.file) for finding in findings_of(data.folder) if finding.code != "cut-off"]
    assert found == [("vocabulary", VOCABULARY)]


@pytest.mark.parametrize(
    ("fault", "record_format"), [pytest.param(f, name, id=f"{f.name}, {name}") for f in FAULTS for name in f.formats]
)
def test_each_fault_is_found(sound: dict[tuple[str, int], Path], fault: Fault, record_format: str, tmp_path: Path) -> None:
    data = Spoiled.copy(sound[record_format, fault.seq], tmp_path / "golden", record_format)
    training = data.files("training")
    files = {FIRST: training[0], SECOND: training[1], TEST_FILE: data.files("test")[0]}
    fault.plant(data)
    if fault.signed:
        data.sign()
    findings = findings_of(data.folder)
    said = "\n".join(map(str, findings))
    found = [f for f in findings if (f.level, f.code, f.file) == (fault.level, fault.code, files.get(fault.file, fault.file))]
    assert found, said
    assert fault.record in (found[0].record, SOMEWHERE), said
    may_come = {fault.code, *fault.also}
    assert {f.code for f in findings if f.level == "error"} <= may_come, said
