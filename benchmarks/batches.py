"""Measure how fast records become shuffled batches, next to tf.data, `datasets` and collators that mask as they read.

The data is the sample corpus in records of 128 tokens with 20 predictions, read from the page cache with verified checksums.
tf.data shuffles among 10,000 records at a time, bertprep among all.
"""

import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

import bertprep
from benchmarks.harness import Bench, Row
from bertprep.config import InstanceSettings
from bertprep.records.records import Records
from bertprep.tokens.documents import open_token_documents
from bertprep.work.choose import find_records
from trainer.batches import GlobalBatch, TrainingBatches

SETTINGS = InstanceSettings(dupe=20)
BATCH, RECORDS_A_RUN, RECORDS_OF_DATASETS = 256, 400_000, 50_000
ROWS, SEQ = 64, 512
_COLLATOR = """
import sys, time
import datasets, numpy as np, torch, transformers
torch.set_num_threads(1)
folder, vocab, batch, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
data = datasets.load_from_disk(folder)
collate = transformers.DataCollatorForLanguageModeling(transformers.BertTokenizerFast(vocab), mlm_probability=0.15)
order = np.random.default_rng(1).integers(0, len(data), (steps + 3, batch))
for indices in order[:3]:
    collate(data.__getitems__(indices.tolist()))
started = time.process_time()
for indices in order[3:]:
    collate(data.__getitems__(indices.tolist()))
print((time.process_time() - started) / steps / batch)
"""


def _train(batches: TrainingBatches, first: int, stop: int) -> None:
    with batches.from_step(first, stop) as ready:
        for _ in ready:
            pass


def _consume(make: Callable[[], Iterable[Any]]) -> None:
    for _ in make():
        pass


def _make(bench: Bench, dupe: int, formats: tuple[str, ...] = ("tfrecord", "ofrecord")) -> dict[str, Path]:
    """Make records of the sample, and return the folder of each format."""
    settings = replace(SETTINGS, dupe=dupe)
    return bertprep.create(**vars(settings), workdir=bench.folder / "data", formats=formats).folders


def batches(bench: Bench) -> None:
    """The trainer's shuffled batches, and tf.data."""
    steps = bench.scaled(RECORDS_A_RUN) // BATCH + 1
    folders = _make(bench, bench.scaled(SETTINGS.dupe))
    rows = []
    for name, folder in folders.items():
        records = Records([folder], vocab_size=30_522)  # checked, like the trainer's
        of_trainer = TrainingBatches(records, GlobalBatch(BATCH), seed=1)
        rows.append(Row(f"{name}: the trainer's batches", steps * BATCH, partial(_train, of_trainer, 0, steps)))
    bench.compare("records", [*rows, of_tensorflow(folders["tfrecord"], steps // 8 + 1)])


def of_tensorflow(folder: Path, steps: int) -> Row:
    """Return the row of tf.data, used in its fastest way: many records are parsed in one call."""
    import tensorflow as tf

    features = {name: tf.io.FixedLenFeature([SETTINGS.seq], tf.int64) for name in ("input_ids", "input_mask", "segment_ids")}
    features |= {name: tf.io.FixedLenFeature([SETTINGS.pred], tf.int64) for name in ("masked_lm_positions", "masked_lm_ids")}
    features["masked_lm_weights"] = tf.io.FixedLenFeature([SETTINGS.pred], tf.float32)
    features["next_sentence_labels"] = tf.io.FixedLenFeature([1], tf.int64)
    dataset = tf.data.TFRecordDataset([str(path) for path in find_records(folder).paths("training")])
    dataset = dataset.shuffle(10_000).repeat().batch(BATCH)
    dataset = dataset.map(lambda serialized: tf.io.parse_example(serialized, features)).prefetch(2).take(steps)
    return Row(f"tfrecord: tf.data of TensorFlow {tf.__version__}", steps * BATCH, partial(_consume, lambda: iter(dataset)))


def datasets(bench: Bench) -> None:
    """RecordDataset and `datasets`, rows and columns."""
    import datasets as library

    library.disable_progress_bars()
    made = _make(bench, bench.scaled(SETTINGS.dupe), ("tfrecord", "arrow"))
    rows = bertprep.RecordDataset(made["arrow"])
    count = min(len(rows), bench.scaled(RECORDS_OF_DATASETS))

    def make() -> Iterator[dict[str, Any]]:
        for row in islice(iter(rows), count):
            yield {name: values.tolist() for name, values in row.items()}

    own = bench.folder / "own"
    library.Dataset.from_generator(make, cache_dir=str(bench.folder / "cache")).save_to_disk(str(own))
    rng = np.random.default_rng(1)
    order = [rng.integers(0, count, BATCH).tolist() for _ in range(count // BATCH)]
    read = {
        "datasets, its own files": library.load_from_disk(str(own)).with_format("numpy"),
        "datasets, our arrow": bertprep.load_dataset(made["arrow"], "train").with_format("numpy"),
        "RecordDataset, arrow": rows,
        "RecordDataset, tfrecord": bertprep.RecordDataset(made["tfrecord"]),
    }

    def read_rows(data: Any) -> None:
        for indices in order:
            for _ in data.__getitems__(indices):
                pass

    def read_columns(data: Any) -> None:
        for indices in order:
            data[indices]

    for form, work in (("rows", read_rows), ("columns", read_columns)):
        in_turns = [Row(f"{name}: {form}", len(order) * BATCH, partial(work, data)) for name, data in read.items()]
        bench.compare("records", in_turns)


def live(bench: Bench) -> None:
    """on-the-fly examples, records in the same order, and a collator."""
    settings = replace(SETTINGS, dupe=5)
    folder = _make(bench, settings.dupe, ("tfrecord",))["tfrecord"]
    tokens = bertprep.tokenize(workdir=bench.folder / "data", vocab=folder / "vocab.txt").folders["tokens"]
    with (
        bertprep.LiveExamples(tokens, settings=settings, shuffle_shards=2) as examples,
        Records([folder], vocab_size=30_522) as records,
    ):
        epoch = len(examples) // BATCH
        steps, first = min(4 * epoch - 2, bench.scaled(4 * epoch)), epoch + 1  # in epochs 1 to 4, each of two groups
        of_records = TrainingBatches(records, GlobalBatch(BATCH), seed=12345, shuffle_shards=2)
        of_live = TrainingBatches(examples, GlobalBatch(BATCH), seed=12345)
        stop, read = first + steps, steps * BATCH
        bench.compare("examples", [
            Row(f"LiveExamples.batches({BATCH})", read,
                partial(_consume, partial(examples.batches, BATCH, first=first, stop=stop))),
            Row("read ahead by the trainer", read, partial(_train, of_live, first, stop)),
            Row("TFRecord in the same order", read, partial(_train, of_records, first, stop)),
        ])  # fmt: skip
    if bench.options.torch_python:
        collate(bench, folder)


def collate(bench: Bench, folder: Path) -> None:
    """Print what transformers' collator costs over the same token ids, without sentence pairs."""
    import datasets as library

    ids = bench.folder / "ids"
    rows = (row["input_ids"][row["attention_mask"] > 0].tolist() for row in bertprep.RecordDataset(folder))
    library.Dataset.from_dict({"input_ids": list(islice(rows, RECORDS_OF_DATASETS))}).save_to_disk(str(ids))
    command = [bench.options.torch_python, "-c", _COLLATOR, str(ids), str(folder / "vocab.txt"), str(BATCH), "20"]
    for _ in range(bench.options.runs):
        seconds = float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()[-1])
        print(f"| DataCollatorForLanguageModeling | {1 / seconds:,.0f} | {seconds * 1e9:,.0f} |", flush=True)


def encoders(bench: Bench) -> None:
    """Rows for encoders, packed and masked as they are read, and `datasets` with transformers' collator."""
    folder = _make(bench, 1, ("tfrecord",))["tfrecord"]
    tokens = bertprep.tokenize(workdir=bench.folder / "data", vocab=folder / "vocab.txt").folders["tokens"]
    steps = bench.scaled(1000)
    given: dict[str, dict[str, Any]] = {"tokens": {}, "whole words": {"whole_word": True}, "spans": {"span": 10}}
    rows = []
    for name, more in given.items():
        data = bertprep.TokenDataset(tokens, seq=SEQ, **more)
        work = partial(_consume, partial(data.batches, ROWS, stop=steps))
        rows.append(Row(f"TokenDataset, {name} masked", steps * ROWS, work))
    if find_spec("transformers") and find_spec("torch"):
        rows += of_transformers(bench, tokens, folder / "vocab.txt", steps // 50 + 1)
    bench.compare("rows", rows)


def of_transformers(bench: Bench, tokens: Path, vocab: Path, steps: int) -> list[Row]:
    """Return the rows of run_mlm.py's pipeline: a map joins documents and cuts blocks, which are masked as they are read."""
    import datasets as library
    import torch
    import transformers

    torch.set_num_threads(1)
    library.disable_progress_bars()
    library.disable_caching()
    documents = [
        shard.tokens[start:end].tolist()
        for shard in open_token_documents(tokens).shards
        for start, end in pairwise(shard.starts)
    ]
    read = library.Dataset.from_dict({"input_ids": documents})
    read.save_to_disk(str(bench.folder / "documents"))
    read = library.load_from_disk(str(bench.folder / "documents"))

    def cut(batch: dict[str, list[list[int]]]) -> dict[str, list[list[int]]]:
        joined = list(chain.from_iterable(batch["input_ids"]))
        return {"input_ids": [joined[at : at + SEQ] for at in range(0, len(joined) // SEQ * SEQ, SEQ)]}

    blocks = read.map(cut, batched=True)
    collate = transformers.DataCollatorForLanguageModeling(transformers.BertTokenizerFast(str(vocab)), mlm_probability=0.3)
    order = np.random.default_rng(1).integers(0, len(blocks), (steps, ROWS))

    def collate_all() -> None:
        for indices in order.tolist():
            collate(blocks.__getitems__(indices))

    return [
        Row("`datasets`, DataCollatorForLanguageModeling", steps * ROWS, collate_all),
        Row("the map before it", len(blocks), partial(read.map, cut, batched=True)),
    ]
