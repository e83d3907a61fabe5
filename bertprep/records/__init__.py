"""Record files of all formats by the same names: `Instances` to bytes, bytes to `Examples`.

`open` finds the format and the kind of the records itself:

    with records.open("part-0") as file:
        for examples in file.blocks(256):
            ...
"""

from bertprep.records.examples import (
    FEATURES,
    KINDS,
    ClassificationExamples,
    Examples,
    PretrainingExamples,
    RegressionExamples,
    SquadEvalExamples,
    SquadExamples,
)
from bertprep.records.reader import RecordFile
from bertprep.records.writer import RecordEncoder, WrittenFile, write_records

open = RecordFile  # noqa: A001 - for `records.open(path)`

__all__ = [
    "FEATURES",
    "KINDS",
    "ClassificationExamples",
    "Examples",
    "PretrainingExamples",
    "RecordEncoder",
    "RecordFile",
    "RegressionExamples",
    "SquadEvalExamples",
    "SquadExamples",
    "WrittenFile",
    "open",
    "write_records",
]
