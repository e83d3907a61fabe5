"""OneFlow reads what was converted to OFRecord with the reference generator's values, dealt over parts or not."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import bertprep
from tests.readers.reader_checks import Created
from tests.readers.test_oneflow_reads import read_with_oneflow

pytestmark = pytest.mark.oneflow
PARTS = 11  # so that the last is part-10, which is after part-2


@pytest.fixture(scope="module")
def flow() -> ModuleType:
    import oneflow

    return oneflow  # type: ignore[no-any-return]


def test_oneflow_reads_a_converted_file(flow: Any, created: Created, tmp_path: Path) -> None:
    bertprep.convert(created.tfrecord, tmp_path / "part-0")
    records = len(created.values["next_sentence_labels"])
    created.assert_golden(read_with_oneflow(flow, tmp_path, records, created.widths))


def test_oneflow_reads_dealt_parts(flow: Any, created: Created, tmp_path: Path) -> None:
    bertprep.convert(created.tfrecord, tmp_path / "dealt", shards=PARTS, workers=1)
    records = len(created.values["next_sentence_labels"])
    created.assert_golden(read_with_oneflow(flow, tmp_path / "dealt" / "ofrecord", records, created.widths, PARTS))
