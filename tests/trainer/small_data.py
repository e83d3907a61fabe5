"""Small data sets on disk: of one shard byte by byte, and as `bertprep` makes them of the golden corpus and for each task."""

import json
import os
import random
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import bertprep
from bertprep.instances import load_vocabulary
from bertprep.weights.safetensors import read_metadata, read_safetensors, write_safetensors
from bertprep.work.layout import MANIFEST, VOCABULARY, Workspace, record_file_name
from bertprep.work.manifest import RECORDS, Manifest
from tests.records.handmade import Variant, file_of, random_record
from tests.trainer import small_runs
from tests.trainer.small_runs import MODEL
from trainer import checkpoint
from trainer.data import Data, ExampleSettings, open_data
from trainer.model_config import ModelConfig
from trainer.tasks.pretraining import Pretraining, PretrainOptions
from trainer.tasks.task import Task
from trainer.weights import Weights, initial_values

TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "e")
SEQ = 24
_WORDS = ["red", "blue", "green", "cat", "dog", "sun", "moon", "tree", "big", "small"]


def write_data(
    folder: Path,
    *,
    seq: int = 8,
    pred: int = 2,
    records: int = 20,
    record_format: str = "tfrecord",
    tokens: tuple[str, ...] | None = TOKENS,
    cased: bool = False,
    has_manifest: bool = True,
    has_test: bool = True,
    corpus: str = "corpus",
) -> Path:
    """Records as bertprep leaves them, or another tool (without a manifest, or tokens); returns the folder."""
    rng = random.Random(0)
    made_with: dict[str, Any] = {"seq": seq, "pred": pred, "cased": cased, "corpus": corpus}
    files: dict[str, dict[str, Any]] = {}
    for split, count in (("training", records), ("test", 3)) if has_test else (("training", records),):
        path = folder / split / record_file_name(record_format, "corpus", split, 0)
        path.parent.mkdir(parents=True)
        shard = [random_record(rng, seq, pred, most=9) for _ in range(count)]
        path.write_bytes(file_of(*shard, variant=Variant(record_format)))
        files[f"{split}/{path.name}"] = {"bytes": path.stat().st_size, "blake3": "0" * 64, "examples": count}
    if tokens:
        (folder / VOCABULARY).write_text("\n".join(tokens) + "\n")
        made_with["vocabulary"] = {"tokens": len(tokens), "sha256": load_vocabulary(folder / VOCABULARY).sha256}
    if has_manifest:
        (folder / MANIFEST).write_text(json.dumps(Manifest(RECORDS, made_with, files).as_json()))
    return folder


def write_in_workspace(workdir: Path, name: str, *, time: int, record_format: str = "tfrecord", **more: Any) -> Path:
    """Records of a workspace, finished at a time."""
    folder = write_data(Workspace(workdir).records(record_format, name, "corpus"), record_format=record_format, **more)
    os.utime(folder / MANIFEST, (time, time))
    return folder


def opened(*folders: Path, **options: Any) -> Data:
    """The data that pretraining would read; its files are closed again."""
    with ExitStack() as files:
        return open_data(PretrainOptions(data=folders, **options), ExampleSettings(), files)


def save_checkpoint(
    folder: Path, task: Task | None = None, *, step: int = 1, seed: int = 1, config: ModelConfig = MODEL, **settings: Any
) -> Weights:
    """Save a checkpoint of a task, pretraining if None, as a run does, with moments; returns its weights."""
    task = task or Pretraining()
    weights = initial_values(config, seed, task)
    moments = {f"{name}/adam_{slot}": np.full_like(value, 7) for name, value in weights.items() for slot in "mv"}
    counts = {name: np.array(7, np.float32) for name in ("updates", "loss_scale", "good_steps")}
    header = {
        "model": asdict(config),
        "schedule": {"steps": step},
        "examples": {"on_the_fly": False},
        **task.metadata(),
        **settings,
    }
    checkpoint.save(folder, checkpoint.RunState(header, step), {**weights, **moments, **counts}, keep=3)
    return weights


def set_format(path: Path, number: object, **changes: Any) -> None:
    """Give a checkpoint another number of its format, or none; and other values in its header."""
    header = {**json.loads(read_metadata(path)["bertprep"]), "format": number, **changes}
    if number is None:
        del header["format"]
    write_safetensors(path, read_safetensors(path), {"bertprep": json.dumps(header)})


def make_records(corpus: Path, workdir: Path) -> None:
    """Write both formats of the golden corpus, with a test split, in a workspace."""
    for words in (
        f"shard --input {corpus} --splitter lines --shards 2",
        f"create --seq {small_runs.SEQ} --pred {small_runs.PRED} --vocab {small_runs.VOCABULARY}",
    ):
        command = [sys.executable, "-m", "bertprep", *words.split(), "--workdir", str(workdir), "--corpus", "golden"]
        subprocess.run(command, check=True, capture_output=True)


def make_moods(workdir: Path) -> Path:
    """Make records of sentences with "good" or "bad", 64 to train, 21 as dev set, 3 without labels; returns their folder."""
    folder = workdir / "mood files"
    folder.mkdir(parents=True)
    rng = random.Random(1)
    for split, count in (("train", 64), ("dev", 21)):
        rows = [(rng.choice(("good", "bad")), _words(rng)) for _ in range(count)]
        lines = [f"{word} {rest}\t{'pos' if word == 'good' else 'neg'}\n" for word, rest in rows]
        (folder / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(lines))
    (folder / "test.tsv").write_text("sentence\ngood red cat\nbad blue dog\ngood sun\n")
    return make_task("glue", folder, workdir, seq=SEQ, name="mood")


def make_squad(workdir: Path, version: str = "1.1") -> Path:
    """Make questions where somebody lives, 24 to train, 9 as dev set; in 2.0 one in four more has no answer."""
    rng = random.Random(2)
    folder = workdir / f"squad {version} files"
    folder.mkdir(parents=True)
    for split, count in (("train", 24), ("dev", 9)):
        paragraphs = [_paragraph(rng, f"{split}{index}", version, index % 4 == 0) for index in range(count)]
        content = {"version": version, "data": [{"title": "places", "paragraphs": paragraphs}]}
        (folder / f"{split}-v{version}.json").write_text(json.dumps(content))
    return make_task("squad", folder, workdir, seq=2 * SEQ, doc_stride=16, max_query=12, version=version)


def make_task(task: str, inputs: Path, workdir: Path, **more: Any) -> Path:
    """Make the records of a task of a folder of files; returns their folder."""
    more = {"workdir": workdir, "vocab": small_runs.VOCABULARY, "workers": 1, "formats": "tfrecord", **more}
    create = bertprep.create_squad if task == "squad" else bertprep.create_glue
    return create(inputs=[inputs], **more).folders["tfrecord"]


def _paragraph(rng: random.Random, name: str, version: str, has_impossible: bool) -> dict[str, object]:
    city = f"Paris{rng.randrange(100)}"
    context = f"The {rng.choice(_WORDS)} lives in {city} . {_words(rng)}"
    answer = {"text": city, "answer_start": context.index(city)}
    questions: list[dict[str, object]] = [{"id": name, "question": "Where does it live ?", "answers": [answer]}]
    if version == "2.0":
        questions[0]["is_impossible"] = False
        if has_impossible:
            questions.append({"id": f"{name} not", "question": "Why ?", "answers": [], "is_impossible": True})
    return {"context": context, "qas": questions}


def _words(rng: random.Random) -> str:
    return " ".join(rng.choice(_WORDS) for _ in range(8))
