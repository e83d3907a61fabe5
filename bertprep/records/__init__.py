"""Record files of all formats by the same names: `Instances` to bytes, bytes to `Examples`.

`open` finds the format and the kind of the records itself:

    with records.open("part-0") as file:
        for examples in file.blocks(256):
            ...

`RecordDataset` has the records of whole folders for PyTorch; it is imported on first use.
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
)
from bertprep.records.reader import RecordFile
from bertprep.records.write import WrittenFile, write_examples

if TYPE_CHECKING:
    from bertprep.records.record_dataset import RecordDataset as RecordDataset

open = RecordFile  # noqa: A001 - for `records.open(path)`

__all__ = [
    "FEATURES",
    "KINDS",
    "ClassificationExamples",
    "Examples",
    "MaskedExamples",
    "PretrainingExamples",
    "RecordDataset",
    "RecordFile",
    "RegressionExamples",
    "SquadEvalExamples",
    "SquadExamples",
    "WrittenFile",
    "open",
    "write_examples",
]


def __getattr__(name: str) -> Any:
    if name == "RecordDataset":
        from bertprep.records.record_dataset import RecordDataset

        return RecordDataset
    raise AttributeError(f"module 'bertprep.records' has no attribute {name!r}")
