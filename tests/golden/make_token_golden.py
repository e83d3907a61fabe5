"""Write token shards of Megatron's own builder into tests/golden/token_shards, and what its reader finds in bertprep's.

    python tests/golden/make_token_golden.py MADE

uint16, int32 (.bin, .idx)   documents of several sentences by IndexedDatasetBuilder, one of them without any
whole_documents              the same documents as one sequence each, as preprocess_data writes without --split-sentences
multimodal                   with a mode for each sequence
made_by_megatron.json        the tokens of each document's sentences
read_by_megatron.json        of MADE/uint16 and MADE/int32, as IndexedDataset reads them: type, lengths, document indices, and
                             all tokens' sha256

Run by hand, in an environment with torch==2.13.0 numpy==2.5.5 megatron-core==0.19.2 (--no-deps). MADE/uint16 and
MADE/int32 come from `bertprep tokenize --input TEXT --vocab VOCAB --output MADE/...`: TEXT is the first 60,000 bytes of what
make_corpus.py prints, VOCAB is vocab.txt, and for int32 vocab.txt with 70,000 tokens more, unused1 to unused70000.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

SHARDS = Path(__file__).parent / "token_shards"


def write(made: Path) -> None:
    """Write all files."""
    import megatron.core
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder

    versions = {"megatron-core": megatron.core.__version__, "torch": torch.__version__, "numpy": np.__version__}
    rng = np.random.default_rng(7)
    documents = [[rng.integers(5, 2937, rng.integers(1, 12)).tolist() for _ in range(n)] for n in (3, 1, 0, 5, 2)]
    for name, dtype, is_whole, modes in (
        ("uint16", np.uint16, False, False), ("int32", np.int32, False, False), ("whole_documents", np.uint16, True, False),
        ("multimodal", np.uint16, False, True),
    ):  # fmt: skip
        builder = IndexedDatasetBuilder(str(SHARDS / f"{name}.bin"), dtype=dtype, multimodal=modes)
        for document in documents:
            for sentence in [[token for part in document for token in part]] if is_whole and document else document:
                builder.add_item(torch.tensor(sentence, dtype=torch.int64), *([1] if modes else []))
            builder.end_document()
        builder.finalize(str(SHARDS / f"{name}.idx"))
    (SHARDS / "made_by_megatron.json").write_text(json.dumps({"versions": versions, "documents": documents}) + "\n")
    read_by: dict[str, Any] = {"versions": versions}
    for name in ("uint16", "int32"):
        found = IndexedDataset(str(made / name / "corpus_training_00000"))
        sequences = [found[index] for index in range(len(found))]
        read_by[name] = {
            "dtype": np.dtype(found.index.dtype).name,
            "lengths": [len(sequence) for sequence in sequences],
            "document_indices": found.document_indices.tolist(),
            "first": sequences[0].tolist(),
            "tokens_sha256": hashlib.sha256(np.concatenate(sequences).astype("<i8").tobytes()).hexdigest(),
        }
    (SHARDS / "read_by_megatron.json").write_text(json.dumps(read_by) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1], "uint16").is_dir():
        sys.exit(__doc__)
    write(Path(sys.argv[1]))
