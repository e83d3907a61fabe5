"""Both generators give the examples of Google's, record for record: tests/golden/README.md tells how those were made."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bertprep.config import InstanceSettings
from bertprep.instances import load_vocabulary
from tests.golden import GOLDEN
from tests.instances.examples import PlainExample, compiled_examples, golden_digest, reference_examples

SEQ128 = InstanceSettings()
RUNS = {
    "seq128": (SEQ128, 3283, "0ce3ce54abd086e1a0cf8f1831c81fde82ed73eddc3c052b4a6b8d60b21d9d6e"),
    "seq512": (InstanceSettings(seq=512, pred=80), 1673, "196d979efbc8356062e2b621a31a14f17886f291a44c9ad2b146ca0204ed322f"),
    "seq128_wwm": (
        InstanceSettings(dupe=2, whole_word=True),
        1305,
        "26415592ce51ba0dbd69496d51946cd91fc4fc057a0c8a1e3177b9ed2cbac60e",
    ),
    "seq128_cased": (
        InstanceSettings(dupe=2, cased=True),
        1256,
        "337fba5ead411ee5f29c26d1b0ebbfe8d1c36d168e42e099f9a1688ebd33c5b6",
    ),
    "seq64_p10": (
        InstanceSettings(seq=64, pred=10, dupe=1, masked_lm_prob=0.3, short_seq_prob=0.5),
        1127,
        "fe50dea660d6010f65bffffe52c255dfa8e464cb5fd163f0bc3a2064289c2bec",
    ),
    "onedoc": (InstanceSettings(dupe=3), 8, "b5d60412ad58d5477d84223abd2576463cf1e3ab19a22d98c59fedd80a08d547"),
}


@pytest.mark.parametrize("examples_of", [compiled_examples, reference_examples])
@pytest.mark.parametrize("name", RUNS)
def test_gives_the_golden_examples(
    name: str, examples_of: Callable[..., list[PlainExample]], golden_corpus: Path, tmp_path: Path
) -> None:
    settings, records, digest = RUNS[name]
    text = golden_corpus
    if name == "onedoc":
        text = tmp_path / "onedoc.txt"
        text.write_bytes(golden_corpus.read_bytes().partition(b"\n\n")[0] + b"\n\n")
    examples = examples_of(text, load_vocabulary(GOLDEN / "vocab.txt"), settings, seed=12345)
    assert len(examples) == records
    assert golden_digest(examples, settings) == digest
