"""OneFlow reads our OFRecords with the reference generator's values, and we read what OneFlow's users may have written."""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import bertprep
from tests.readers.reader_checks import FEATURES, Created, Values, assert_equal

pytestmark = pytest.mark.oneflow
BATCH = 100
PARTS = 11  # so that the last is part-10, which is after part-2


@pytest.fixture(scope="module")
def flow() -> ModuleType:
    import oneflow

    return oneflow  # type: ignore[no-any-return]


def read_with_oneflow(flow: Any, folder: Path, records: int, widths: dict[str, int], parts: int = 1) -> Values:
    """The first `records` records of a folder's files, by OneFlow's eager reader, which starts anew at the end.

    It looks for the names that it looks for unless told otherwise, as OneFlow's BERT trainers let it.
    """
    reader = flow.nn.OFRecordReader(
        str(folder),
        batch_size=BATCH,
        data_part_num=parts,
        random_shuffle=False,
        shuffle_after_epoch=False,
    )
    decoders = {
        name: flow.nn.OFRecordRawDecoder(name, (width,), flow.float32 if name == "masked_lm_weights" else flow.int32)
        for name, width in widths.items()
    }
    batches = []
    for _ in range(0, records, BATCH):
        batch = reader()
        batches.append({name: decode(batch).numpy() for name, decode in decoders.items()})
    values = {name: np.concatenate([batch[name] for batch in batches])[:records] for name in FEATURES}
    return {**values, "next_sentence_labels": values["next_sentence_labels"][:, 0]}


def test_oneflow_reads_what_create_and_convert_write(flow: Any, created: Created, tmp_path: Path) -> None:
    """It starts anew after the last record, so it counts as many records as we do."""
    records = len(created.values["next_sentence_labels"])
    values = read_with_oneflow(flow, created.ofrecord.parent, records + BATCH, created.widths)
    created.assert_golden({name: array[:records] for name, array in values.items()})
    assert_equal({name: array[records:] for name, array in values.items()}, {n: a[:BATCH] for n, a in created.values.items()})
    bertprep.convert(created.tfrecord, tmp_path / "several", shards=PARTS, workers=1)
    created.assert_golden(read_with_oneflow(flow, tmp_path / "several" / "training", records, created.widths, PARTS))
