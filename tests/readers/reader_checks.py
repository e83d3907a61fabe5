"""How to judge what a reader found: against the reference generator, and against what another reader found."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

import bertprep.records

GOLDEN_DIGESTS = {  # tests/golden/README.md: what Google's generator makes of this corpus
    128: "0ce3ce54abd086e1a0cf8f1831c81fde82ed73eddc3c052b4a6b8d60b21d9d6e",
    512: "196d979efbc8356062e2b621a31a14f17886f291a44c9ad2b146ca0204ed322f",
}
FEATURES = (  # in the order of the digest
    *("input_ids", "input_mask", "segment_ids", "masked_lm_positions", "masked_lm_ids", "masked_lm_weights"),
    "next_sentence_labels",
)

Values = Mapping[str, npt.NDArray[np.generic]]


@dataclass(frozen=True)
class Created:
    """The files of one `bertprep.create` with one shard, and what bertprep's own reader finds in them."""

    seq: int
    pred: int
    tfrecord: Path
    ofrecord: Path
    values: Values

    @property
    def widths(self) -> dict[str, int]:
        """How many numbers a record holds under each feature's name."""
        return {name: array.shape[1] if array.ndim == 2 else 1 for name, array in self.values.items()}

    def assert_golden(self, values: Values) -> None:
        """Values that any reader found are the reference generator's, to the last padding."""
        digest = hashlib.sha256()
        for i in range(len(values["next_sentence_labels"])):
            for name in FEATURES:
                digest.update(values[name][i].astype("<f4" if name == "masked_lm_weights" else "<i8").tobytes())
        assert digest.hexdigest() == GOLDEN_DIGESTS[self.seq]


def read_with_bertprep(path: Path) -> Values:
    """All values of a file by feature name."""
    reader = bertprep.records.open(path)
    examples = reader[0 : len(reader)]
    return {name: getattr(examples, name) for name in FEATURES}


def assert_equal(found: Values, expected: Values) -> None:
    """The same features with the same numbers, whatever integer type carries them."""
    assert set(found) == set(expected)
    for name in FEATURES:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
