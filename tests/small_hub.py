"""A small version of the Hub for every name of `bertprep download`: the same repositories, paths, columns, kinds of files."""

import hashlib
import io
import json
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load_file, save

from bertprep.tasks.glue import TASKS
from tests.golden import GOLDEN
from tests.hub_server import HubServer

MODEL = "somebody/small-bert"
RELEASED = "google-bert/bert-large-uncased"
BERT = {
    "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 32,
    "initializer_range": 0.02, "intermediate_size": 64, "max_position_embeddings": 512, "num_attention_heads": 2,
    "num_hidden_layers": 2, "type_vocab_size": 2, "vocab_size": 9,
}  # fmt: skip
SENTENCES = (
    "The lighthouse keeper lit the lamp at dusk. Ships passed all night, and none came near the rocks.",
    "Bread is made of flour, water and salt. Some bakers add a little honey.",
    "In spring the river floods the meadow. The herons come back, one by one.",
    "She wound the clock, closed the shutters and went up. It struck nine.",
)


def noise(size_bytes: int, seed: str) -> bytes:
    """Return bytes that do not repeat, the same for the same seed."""
    return hashlib.shake_256(seed.encode()).digest(size_bytes)


def fill(hub: HubServer) -> None:
    """Put every repository on the hub that a download may ask for."""
    for repository, revision, files in _all_repositories():
        hub.put(repository, dict(files), revision=revision)


@cache
def _all_repositories() -> list[tuple[str, str, dict[str, bytes]]]:
    """(repository, revision, files), made once: there are some fifty Parquet files."""
    return [
        ("datasets/wikimedia/wikipedia", "main", wikipedia_files()),
        ("datasets/bookcorpus/bookcorpus", "main", {"bookcorpus.py": b"raise SystemExit\n"}),
        ("datasets/bookcorpus/bookcorpus", "refs/convert/parquet", bookcorpus_files()),
        ("datasets/rajpurkar/squad", "main", squad_files(has_impossible=False)),
        ("datasets/rajpurkar/squad_v2", "main", squad_files(has_impossible=True)),
        ("datasets/nyu-mll/glue", "main", glue_files()),
        (f"models/{MODEL}", "main", model_files()),
        (f"models/{RELEASED}", "main", release_files()),
    ]


def wikipedia_files() -> dict[str, bytes]:
    """Return three files of English, one each of two other languages."""
    files = {"README.md": b"# Wikipedia\n"}
    for language, count in (("en", 3), ("de", 1), ("simple", 1)):
        for number in range(count):
            rows = [_article(language, number * 10 + index) for index in range(10)]
            files[f"20231101.{language}/train-{number:05d}-of-{count:05d}.parquet"] = parquet(rows)
    return files


def _article(language: str, number: int) -> dict[str, str]:
    title = f"Article {number}"
    text = "\n\n".join(f"{sentence} This is number {number}." for sentence in SENTENCES)
    text += "\n\nReferences \n\nExternal links \n A link\n\nCategory:Things"
    return {"id": str(number), "url": f"https://{language}.wikipedia.org/wiki/{title}", "title": title, "text": text}


def bookcorpus_files() -> dict[str, bytes]:
    """Return two files of sentences, tokenized and in lower case, with no sign of where a book ends."""
    lines = [sentence.lower().replace(".", " .").replace(",", " ,") for sentence in SENTENCES]
    return {
        f"plain_text/train/{number:04d}.parquet": parquet(
            [{"text": f"{line} {number} {index}"} for index in range(50) for line in lines]
        )
        for number in range(2)
    }


ANSWERS = pa.struct([("text", pa.list_(pa.string())), ("answer_start", pa.list_(pa.int32()))])
SQUAD = pa.schema([*((name, pa.string()) for name in ("id", "title", "context", "question")), ("answers", ANSWERS)])


def squad_files(*, has_impossible: bool) -> dict[str, bytes]:
    rows: list[dict[str, Any]] = [
        {
            "id": f"q{index}", "title": "Things", "context": sentence, "question": "What comes first?",
            "answers": {"text": [sentence.split()[0]], "answer_start": [0]},
        }
        for index, sentence in enumerate(SENTENCES)
    ]  # fmt: skip
    if has_impossible:
        rows[1]["answers"] = {"text": [], "answer_start": []}
    folder = "squad_v2" if has_impossible else "plain_text"
    return {f"{folder}/{split}-00000-of-00001.parquet": parquet(rows, SQUAD) for split in ("train", "validation")}


def glue_files() -> dict[str, bytes]:
    """Return two rows for each split of each task."""
    files = {}
    for task in TASKS.values():
        for file in task.files.values():
            label = -1 if file.split.startswith("test") else 0 if task.words else 2.5
            rows = [(*[sentence] * len(task.hub_texts), label, index) for index, sentence in enumerate(SENTENCES[:2])]
            path = f"{task.name}/{file.split}-00000-of-00001.parquet"
            files[path] = glue_parquet(task.hub_texts, list(task.words), rows)
    return files


def glue_parquet(texts: Sequence[str], labels: Sequence[str], rows: Iterable[Any], *, described: bool = True) -> bytes:
    """Return a file of rows (texts..., label, idx) as the Hub has it: labels by their names, or scores."""
    description = {"info": {"features": {"label": {"names": labels, "_type": "ClassLabel"}}}}
    kind = pa.int64() if labels else pa.float32()
    schema = pa.schema(
        [*((text, pa.string()) for text in texts), ("label", kind), ("idx", pa.int32())],
        {"huggingface": json.dumps(description)} if labels and described else None,
    )
    return parquet([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def model_files(**config: Any) -> dict[str, bytes]:
    """Return a model with a made-up vocabulary, and the copies of its weights that are not wanted."""
    return {
        "config.json": json.dumps({"architectures": ["BertForMaskedLM"], "model_type": "bert", **BERT, **config}).encode(),
        "vocab.txt": b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nlamp\n##s\n.\n",
        "tokenizer.json": b"{}",
        "tokenizer_config.json": b'{"do_lower_case": true}',
        "model.safetensors": noise(300_000, "weights"),
        "pytorch_model.bin": noise(1000, "not wanted"),
        "onnx/model.onnx": noise(1000, "not wanted"),
    }


def release_files() -> dict[str, bytes]:
    """Return a model as google-bert has its own: old names in the safetensors, and the decoder's matrix once more."""
    golden = json.loads((GOLDEN / "hugging_face.json").read_bytes())
    weights = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in load_file(GOLDEN / "hugging_face.safetensors").items()
    }
    weights["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"]
    sizes = {name: value for name, value in golden["config"].items() if name in BERT}
    return {**model_files(**sizes), "model.safetensors": save(weights, {"format": "pt"})}


def parquet(rows: list[dict[str, Any]], schema: pa.Schema | None = None) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema), file)
    return file.getvalue()
