"""The files that other tools read in these tests: made by bertprep from the golden corpus, as one shard."""

from pathlib import Path

import pytest

import bertprep
from tests.readers.reader_checks import Created, read_with_bertprep

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.fixture(scope="session", params=[(128, 20), (512, 80)], ids=["128/20", "512/80"])
def created(request: pytest.FixtureRequest, golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Created:
    seq, pred = request.param
    folder = tmp_path_factory.mktemp("created")
    bertprep.create(
        inputs=[golden_corpus],
        output=folder,
        vocab=GOLDEN / "vocab.txt",
        seq=seq,
        pred=pred,
        formats=("tfrecord", "ofrecord"),
        workers=1,
    )
    (tfrecord,) = (folder / "tfrecord/training").glob("*_00000.tfrecord")
    return Created(seq, pred, tfrecord, folder / "ofrecord/training/part-0", read_with_bertprep(tfrecord))
