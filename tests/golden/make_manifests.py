"""Write `manifests/*.json`: a manifest of each kind, as bertprep writes it in the format of today.

    .venv/bin/python -m tests.golden.make_manifests

Later versions must read those of format 1, so this is run again only if there is another format, into a folder of its own.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import bertprep
from bertprep.work.layout import MANIFEST
from tests.corpora import deal
from tests.golden import GOLDEN
from tests.instances.small_tokenizers import write_tokenizer

_VOCABULARY = GOLDEN / "vocab.txt"
_SMALL = 12_000  # bytes of the golden corpus


def make_each_kind(folder: Path) -> dict[str, Path]:
    """Make a data set of each kind in a folder; return the folders that have the manifests."""
    with (folder / "corpus.txt").open("wb") as file:
        subprocess.run([sys.executable, GOLDEN / "make_corpus.py", _VOCABULARY], stdout=file, check=True)
    (folder / "small.txt").write_bytes((folder / "corpus.txt").read_bytes()[:_SMALL].rpartition(b"\n\n")[0] + b"\n\n")
    texts = deal(folder / "small.txt", folder / "text", 2)
    data = folder / "data"
    for split in ("train", "dev"):
        questions = data / "download/squad/v1.1" / f"{split}-v1.1.json"
        questions.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(GOLDEN / "finetune/squad_v1.json", questions)
    shutil.copytree(GOLDEN / "finetune/glue/MRPC", data / "download/MRPC")
    of_corpus = {"workdir": data, "corpus": "books", "vocab": _VOCABULARY, "workers": 1}
    sharded = bertprep.shard(inputs=texts, workdir=data, corpus="books", shards=2, test_fraction=0.2, workers=1)
    records = bertprep.create(dupe=1, formats="tfrecord", **of_corpus)
    tokens = bertprep.tokenize(**of_corpus)
    documents = bertprep.tokenize(
        tokenizer=write_tokenizer(folder, "byte_bpe"), inputs=texts, output=folder / "documents", workers=1
    )
    return {
        "text_shards": sharded.folder,
        "records": records.folder,
        "records_of_given_shards": bertprep.create(
            inputs=[texts[0]], output=folder / "given", vocab=_VOCABULARY, dupe=1, formats="ofrecord", workers=1
        ).folder,
        "converted": bertprep.convert(records.folder, folder / "converted", to="ofrecord", shards=3, workers=1).folder,
        "token_shards": tokens.folder,
        "token_documents": documents.folder,
        "mds": bertprep.convert(documents.folder, folder / "mds", to="mds", seq=128, workers=1).folder,
        "squad": bertprep.create_squad(workdir=data, vocab=_VOCABULARY, formats="tfrecord", workers=1).folder,
        "glue": bertprep.create_glue("mrpc", workdir=data, vocab=_VOCABULARY, formats="tfrecord", workers=1).folder,
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, made in make_each_kind(Path(folder)).items():
            content = json.loads((made / MANIFEST).read_bytes())
            (GOLDEN / "manifests" / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
