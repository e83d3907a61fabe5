"""OneFlow reads what was converted to OFRecord with the reference generator's values, dealt over parts or not."""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import bertprep
from tests.readers.reader_checks import FEATURES, Created, Values, assert_equal
from tests.readers.test_oneflow_reads import read_with_oneflow

pytestmark = pytest.mark.oneflow
PARTS = 3


@pytest.fixture(scope="module")
def flow() -> ModuleType:
    import oneflow

    return oneflow  # type: ignore[no-any-return]


def test_oneflow_reads_a_converted_file(flow: Any, created: Created, tmp_path: Path) -> None:
    bertprep.convert(created.tfrecord, tmp_path / "part-00000")
    records = len(created.values["next_sentence_labels"])
    created.assert_golden(read_with_oneflow(flow, tmp_path, records, created.widths))


def test_oneflow_reads_dealt_parts(flow: Any, created: Created, tmp_path: Path) -> None:
    bertprep.convert(created.tfrecord, tmp_path / "dealt", shards=PARTS, workers=1)
    parts: list[Values] = []
    for number in range(PARTS):
        (tmp_path / str(number)).mkdir()
        part = (tmp_path / "dealt" / f"part-{number:05d}").rename(tmp_path / str(number) / "part-00000")
        parts.append(read_with_oneflow(flow, part.parent, len(bertprep.records.open(part)), created.widths))
    assert_equal({name: np.concatenate([part[name] for part in parts]) for name in FEATURES}, created.values)
