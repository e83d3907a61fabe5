"""Turns faults in record files into messages of one line: the file, the record, what was expected and found, and what to do.

Kernels return numbers for faults (`bertprep.kernels.numbers`), and only this module knows the words for them.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertprep.config import RecordFormat
from bertprep.errors import BertprepError
from bertprep.kernels import numbers as n
from bertprep.records.columns import COLUMNS, IN_LABELS, LABELS
from bertprep.records.examples import Examples, Feature, MaskedExamples, PretrainingExamples, Values

_MESSAGES = {RecordFormat.TFRECORD: "tf.train.Example", RecordFormat.OFRECORD: "OFRecord"}
_LISTS = {  # by the number of the field in the format's Feature message
    RecordFormat.TFRECORD: ("no list", "a bytes_list", "a float_list", "an int64_list"),
    RecordFormat.OFRECORD: ("no list", "a bytes_list", "a float_list", "a double_list", "an int32_list", "an int64_list"),
}
_FITTING = {RecordFormat.TFRECORD: "int64_list", RecordFormat.OFRECORD: "int32_list or int64_list"}
_FITTING_FLOATS = {RecordFormat.TFRECORD: "float_list", RecordFormat.OFRECORD: "float_list or double_list"}
_ADVICE: dict[Values, str] = {
    "token": "train with the vocabulary that the data was made with",
    "class": "train the task that the data was made for",
}
_FRAME_WORDS = {
    n.TRUNCATED: "its length says that {expected:,} more bytes follow, found {found:,}; the file is truncated or corrupt",
    n.LEFT_OVER: "found {found} bytes for it, expected {expected} or more; the file was truncated or appended to",
    n.LENGTH_CHECKSUM: "the checksum of its length is {found:08x}, expected {expected:08x}; the file is corrupt",
    n.DATA_CHECKSUM: "the checksum of its data is {found:08x}, expected {expected:08x}; the file is corrupt",
    n.MALFORMED: "it is not a valid {message} message; the file is corrupt, or has no such records",
}


def explain(
    path: Path,
    record_format: RecordFormat,
    fault: int,
    record: int,
    problem: NDArray[np.int64],
    kind: type[Examples] = PretrainingExamples,
) -> BertprepError:
    """Return the error for a fault in `record`, which should be of this kind; `problem` is the kernel's notes on the fault."""
    found, expected = int(problem[n.FOUND]), int(problem[n.EXPECTED])
    return BertprepError(
        f"{path}: record {record}: {_words(record_format, fault, kind, int(problem[n.FEATURE]), found, expected)}"
    )


def _words(record_format: RecordFormat, fault: int, kind: type[Examples], number: int, found: int, expected: int) -> str:
    if fault == n.TRUNCATED and expected < 0:
        return "its length is impossibly large; the file is corrupt; remove it and make it again"
    if fault in _FRAME_WORDS:
        words = _FRAME_WORDS[fault].format(found=found, expected=expected, message=_MESSAGES.get(record_format))
        return f"{words}; remove it and make it again"
    name = n.KNOWN_FEATURES[number]
    if record_format.is_columnar:
        column = next(column for column in COLUMNS[kind] if column.feature in (name, IN_LABELS.get(name)))
        what = f"column {column.name}"
        if fault == n.WRONG_COUNT:
            return f"{what} predicts {found:,} tokens, expected at most {expected:,}; make the file again"
    else:
        what = f"feature {name}"
    title = f"BERT {kind.title}" if kind is PretrainingExamples else kind.title
    advice = f"give a file of {title} records"
    if fault == n.MISSING:
        return f"feature {name} is missing; {advice}"
    if fault == n.TWICE:
        return f"feature {name} occurs more than once; make the file again"
    feature = kind.feature(name)
    if fault == n.WRONG_TYPE:
        lists = _LISTS[record_format][found] if found < len(_LISTS[record_format]) else "an unknown list"
        fitting = (_FITTING_FLOATS if feature.dtype == np.float32 else _FITTING)[record_format]
        return f"feature {name} is {lists}, expected {fitting}; {advice}"
    if fault == n.WRONG_COUNT:
        return f"feature {name} has {found:,} values, expected {_expected(feature, found, expected)}; make the file again"
    if fault == n.BEYOND_MODEL:
        return _beyond_model(what, feature, found, expected)
    also = (
        ", or -100 where nothing is predicted" if what == f"column {LABELS.name}" and issubclass(kind, MaskedExamples) else ""
    )
    return f"{what} has the value {found:,}, expected 0 to {expected:,}{also}; make the file again"


def _beyond_model(what: str, feature: Feature, found: int, expected: int) -> str:
    if feature.dtype == np.float32:
        value = np.array(found, np.uint32).view(np.float32)
        allowed = "0 to 1" if feature.values == "weight" else "a finite number"
        return f"{what} has the value {value!s}, expected {allowed}; make the file again"
    advice = _ADVICE.get(feature.values, "make the file again")
    return f"{what} has the value {found:,}, expected 0 to {expected:,}; {advice}"


def _expected(feature: Feature, found: int, expected: int) -> str:
    """Return the expected number of values, and why: record 0's input_ids and masked_lm_positions set it for all records."""
    if feature.width == "one":
        return f"{expected}"
    measure = "input_ids" if feature.width == "seq" else "masked_lm_positions"
    if found == 0 and measure == feature.name and expected == 1:
        return "1 or more"
    return f"{expected:,} like {measure} in record 0"
