"""Reads and writes record files; all formats have the same functions.

`open` detects the format and the kind of the records:

    with records.open("part-0") as file:
        record, some = file[0], file[[3, 1]]
        for examples in file.blocks(256):
            ...

`Records(["data/...", "more"])` is the records of several folders as one sequence, which is read in the same ways.
`RecordDataset` gives the records of folders to PyTorch; it is imported on first use. `write_examples` writes files.
"""

from typing import TYPE_CHECKING, Any

from bertprep.kernels.numbers import FEATURES
from bertprep.records.examples import (
    KINDS,
    ClassificationExamples,
    Examples,
    MaskedExamples,
    PretrainingExamples,
    RegressionExamples,
    SquadEvalExamples,
    SquadExamples,
    TokenClassificationExamples,
)
from bertprep.records.records import BadRecordError, Records
from bertprep.records.write import WrittenFile, write_examples

if TYPE_CHECKING:
    from bertprep.records.record_dataset import RecordDataset as RecordDataset

open = Records.open  # noqa: A001 - for `records.open(path)`

__all__ = [
    "FEATURES",
    "KINDS",
    "BadRecordError",
    "ClassificationExamples",
    "Examples",
    "MaskedExamples",
    "PretrainingExamples",
    "RecordDataset",
    "Records",
    "RegressionExamples",
    "SquadEvalExamples",
    "SquadExamples",
    "TokenClassificationExamples",
    "WrittenFile",
    "open",
    "write_examples",
]


def __getattr__(name: str) -> Any:
    if name == "RecordDataset":
        from bertprep.records.record_dataset import RecordDataset

        return RecordDataset
    raise AttributeError(f"module 'bertprep.records' has no attribute {name!r}")
