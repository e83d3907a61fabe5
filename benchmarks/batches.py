"""How fast records become shuffled batches, next to tf.data, `datasets` and a collator that masks as it reads.

The data is the sample corpus, read from the page cache; checksums are verified. tf.data shuffles among 10,000 records at a
time, ours among all.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

import bertprep
from benchmarks.harness import BERTPREP, Bench, Row, measure
from bertprep.config import InstanceSettings
from bertprep.records.records import Records
from bertprep.tokens.documents import open_token_documents
from bertprep.tokens.order import permute
from bertprep.work.choose import find_records
from trainer.batches import GlobalBatch, TrainingBatches

PHASES = {"128/20": InstanceSettings(dupe=20), "512/80": InstanceSettings(seq=512, pred=80, dupe=20)}
BATCH, RECORDS_A_RUN, SHUFFLED, RECORDS_OF_DATASETS = 256, 400_000, 100_000_000, 50_000
ROWS = 64
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
_EPOCH = """
import sys
from bertprep import InstanceSettings, LiveExamples
with LiveExamples(sys.argv[1], settings=InstanceSettings(dupe=5)) as live:
    for _ in live.batches(256, stop=int(sys.argv[2])):
        pass
"""


def _train(batches: TrainingBatches, first: int, stop: int) -> None:
    with batches.from_step(first, stop) as ready:
        for _ in ready:
            pass


def _consume(make: Callable[[], Iterator[Any]]) -> None:
    for _ in make():
        pass


def batches(bench: Bench) -> None:
    """The trainer's shuffled batches, their index and order, and tf.data."""
    steps = bench.scaled(RECORDS_A_RUN) // BATCH + 1

    def rows_of(opened: ExitStack, name: str, folder: Path, sizes: tuple[int, ...] = (BATCH,)) -> list[Row]:
        records = opened.enter_context(Records([folder], vocab_size=30_522))  # checked, like the trainer's
        rows = []
        for size in sizes:
            of_size = TrainingBatches(records, GlobalBatch(size), seed=1)
            count = max(1, steps * BATCH // size)
            rows.append(Row(f"{name}: batches of {size:,}", count * size, partial(_train, of_size, 0, count)))
        return rows

    for phase, settings in PHASES.items():
        made = bertprep.create(**vars(replace(settings, dupe=bench.scaled(20))), workdir=bench.folder / "data").folders
        for name, folder in made.items():
            compare_indexing(bench, f"{phase} {name}", folder)
            with ExitStack() as opened:
                sizes = (BATCH, 32, 4096) if (phase, name) == ("128/20", "tfrecord") else (BATCH,)
                for row in rows_of(opened, f"{phase} {name}", folder, sizes):
                    bench.compare("records", [row])
        with ExitStack() as opened:
            ours, *_ = rows_of(opened, f"{phase} tfrecord", made["tfrecord"])
            bench.compare("records", [ours, of_tensorflow(f"{phase} tfrecord", made["tfrecord"], settings, steps // 8 + 1)])
        if phase == "128/20":
            many, shards = bench.folder / "many", bench.scaled(1024)
            measure([*BERTPREP, "convert", made["tfrecord"], many, "--to", "tfrecord", "--shards", shards])
            compare_indexing(bench, f"{phase} in {shards:,} shards", many)
            with ExitStack() as opened:
                bench.compare("records", rows_of(opened, f"{phase} in {shards:,} shards", many))
    compare_orders(bench)


def compare_indexing(bench: Bench, name: str, folder: Path) -> None:
    """Print what indexing a folder costs, and what loading its index from the cache."""
    before = set(folder.iterdir())
    with Records([folder]) as records:
        count = len(records)
    indexes = set(folder.iterdir()) - before

    def index() -> None:
        Records([folder]).close()

    def forget() -> None:
        for path in indexes:
            path.unlink()

    bench.compare("records", [Row(f"{name}: index, built", count, index, forget)])
    bench.compare("records", [Row(f"{name}: index, cached", count, index)])


def of_tensorflow(name: str, folder: Path, settings: InstanceSettings, steps: int) -> Row:
    """The row of tf.data, the fastest way it has: many records parsed in one call."""
    import tensorflow as tf

    features = {name: tf.io.FixedLenFeature([settings.seq], tf.int64) for name in ("input_ids", "input_mask", "segment_ids")}
    features |= {name: tf.io.FixedLenFeature([settings.pred], tf.int64) for name in ("masked_lm_positions", "masked_lm_ids")}
    features["masked_lm_weights"] = tf.io.FixedLenFeature([settings.pred], tf.float32)
    features["next_sentence_labels"] = tf.io.FixedLenFeature([1], tf.int64)
    dataset = tf.data.TFRecordDataset([str(path) for path in find_records(folder).paths("training")])
    dataset = dataset.shuffle(10_000).repeat().batch(BATCH)
    dataset = dataset.map(lambda serialized: tf.io.parse_example(serialized, features)).prefetch(2).take(steps)
    return Row(f"{name}: tf.data of TensorFlow {tf.__version__}", steps * BATCH, partial(_consume, lambda: iter(dataset)))


def compare_orders(bench: Bench) -> None:
    """Print what an epoch's order costs, computed where it is needed, and as an array before the first step."""
    size = bench.scaled(SHUFFLED)
    positions = np.arange(4096)  # as many as are computed at once
    computed = [
        Row("an order computed, 4,096 at a time", 4096 * 200, lambda: [
            permute(positions + step * 4096, SHUFFLED, seed=1, epoch=0) for step in range(200)
        ]),
        Row(f"an array of {size:,}", size, lambda: np.random.default_rng(1).permutation(size)),
    ]  # fmt: skip
    bench.compare("records", computed)


def datasets(bench: Bench) -> None:
    """RecordDataset and `datasets`, rows and columns."""
    import datasets as library

    library.disable_progress_bars()
    for phase, settings in PHASES.items():
        settings = replace(settings, dupe=bench.scaled(20))
        made = bertprep.create(**vars(settings), workdir=bench.folder / "data", formats=("tfrecord", "arrow")).folders
        rows = bertprep.RecordDataset(made["arrow"])
        count = min(len(rows), bench.scaled(RECORDS_OF_DATASETS))

        def make(rows: bertprep.RecordDataset = rows, count: int = count) -> Iterator[dict[str, Any]]:
            for row in islice(iter(rows), count):
                yield {name: values.tolist() for name, values in row.items()}

        own = library.Dataset.from_generator(make, cache_dir=str(bench.folder / "cache"))
        own.save_to_disk(str(bench.folder / phase.replace("/", "-")))
        rng = np.random.default_rng(1)
        order = [rng.integers(0, count, BATCH).tolist() for _ in range(count // BATCH)]
        read = {
            "datasets, its own files": library.load_from_disk(str(bench.folder / phase.replace("/", "-"))).with_format("numpy"),
            "datasets, our arrow": bertprep.load_dataset(made["arrow"], "train").with_format("numpy"),
            "RecordDataset, arrow": rows,
            "RecordDataset, tfrecord": bertprep.RecordDataset(made["tfrecord"]),
        }

        def read_rows(data: Any, order: list[list[int]] = order) -> None:
            for indices in order:
                for _ in data.__getitems__(indices):
                    pass

        def read_columns(data: Any, order: list[list[int]] = order) -> None:
            for indices in order:
                data[indices]

        for form, work in (("rows", read_rows), ("columns", read_columns)):
            bench.compare("records", [
                Row(f"{phase} {name}: {form}", len(order) * BATCH, partial(work, data)) for name, data in read.items()
            ])  # fmt: skip


def live(bench: Bench) -> None:
    """on-the-fly examples, records in the same order, and a collator."""
    for phase, settings in PHASES.items():
        settings = replace(settings, dupe=5)
        folder = bertprep.create(**vars(settings), workdir=bench.folder / "data", formats="tfrecord").folders["tfrecord"]
        tokens = bertprep.tokenize(workdir=bench.folder / "data", vocab=folder / "vocab.txt").folders["tokens"]
        with (
            bertprep.LiveExamples(tokens, settings=settings, shuffle_shards=2) as examples,
            Records([folder], vocab_size=30_522) as records,
        ):
            epoch = len(examples) // BATCH
            steps, first = min(4 * epoch - 2, bench.scaled(4 * epoch)), epoch + 1  # in epochs 1 to 4, of two groups each
            of_records = TrainingBatches(records, GlobalBatch(BATCH), seed=12345, shuffle_shards=2)
            of_live = TrainingBatches(examples, GlobalBatch(BATCH), seed=12345)

            def count(tokens: Path = tokens, settings: InstanceSettings = settings) -> None:
                with bertprep.LiveExamples(tokens, settings=settings) as fresh:
                    len(fresh)

            bench.compare("examples", [Row(f"{phase}: an epoch counted, by all cores", len(examples), count)])
            stop, read = first + steps, steps * BATCH
            bench.compare("examples", [
                Row(f"{phase}: LiveExamples.batches({BATCH})", read,
                    partial(_consume, partial(examples.batches, BATCH, first=first, stop=stop))),
                Row(f"{phase}: read ahead by the trainer", read, partial(_train, of_live, first, stop)),
                Row(f"{phase}: TFRecord in the same order", read, partial(_train, of_records, first, stop)),
            ])  # fmt: skip
        if bench.options.torch_python:
            collate(bench, phase, folder)
    compare_memory(bench, tokens)


def collate(bench: Bench, phase: str, folder: Path) -> None:
    """Print what transformers' collator costs over the same token ids, without sentence pairs."""
    import datasets as library

    ids = bench.folder / "ids" / phase.replace("/", "-")
    rows = (row["input_ids"][row["attention_mask"] > 0].tolist() for row in bertprep.RecordDataset(folder))
    library.Dataset.from_dict({"input_ids": list(islice(rows, RECORDS_OF_DATASETS))}).save_to_disk(str(ids))
    command = [bench.options.torch_python, "-c", _COLLATOR, str(ids), str(folder / "vocab.txt"), str(BATCH), "20"]
    for _ in range(bench.options.runs):
        seconds = float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()[-1])
        print(f"| {phase}: DataCollatorForLanguageModeling | {1 / seconds:,.0f} | {seconds * 1e9:,.0f} |", flush=True)


def encoders(bench: Bench) -> None:
    """Rows for encoders, packed and masked as they are read, and `datasets` with transformers' collator."""
    settings = InstanceSettings(dupe=1)
    folder = bertprep.create(**vars(settings), workdir=bench.folder / "data", formats="tfrecord").folders["tfrecord"]
    tokens = bertprep.tokenize(workdir=bench.folder / "data", vocab=folder / "vocab.txt").folders["tokens"]
    steps = bench.scaled(1000)
    for seq in (512, 1024):
        given: dict[str, dict[str, Any]] = {"tokens": {}, "whole words": {"whole_word": True}, "spans": {"span": 10}}
        rows = [
            Row(f"{seq}: TokenDataset, {name} masked", steps * ROWS,
                partial(_consume, partial(bertprep.TokenDataset(tokens, seq=seq, **more).batches, ROWS, stop=steps)))
            for name, more in given.items()
        ]  # fmt: skip
        if find_spec("transformers") and find_spec("torch"):
            rows += of_transformers(bench, seq, tokens, folder / "vocab.txt", steps // 50 + 1)
        bench.compare("rows", rows)


def of_transformers(bench: Bench, seq: int, tokens: Path, vocab: Path, steps: int) -> list[Row]:
    """The rows of run_mlm.py's pipeline: a map joins documents and cuts blocks, which are masked as they are read."""
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
    read.save_to_disk(str(bench.folder / f"documents_{seq}"))
    read = library.load_from_disk(str(bench.folder / f"documents_{seq}"))

    def cut(batch: dict[str, list[list[int]]]) -> dict[str, list[list[int]]]:
        joined = list(chain.from_iterable(batch["input_ids"]))
        return {"input_ids": [joined[at : at + seq] for at in range(0, len(joined) // seq * seq, seq)]}

    blocks = read.map(cut, batched=True)
    collate = transformers.DataCollatorForLanguageModeling(transformers.BertTokenizerFast(str(vocab)), mlm_probability=0.3)
    order = np.random.default_rng(1).integers(0, len(blocks), (steps, ROWS))

    def collate_all() -> None:
        for indices in order.tolist():
            collate(blocks.__getitems__(indices))

    return [
        Row(f"{seq}: `datasets`, DataCollatorForLanguageModeling", steps * ROWS, collate_all),
        Row(f"{seq}: the map before it", len(blocks), partial(read.map, cut, batched=True)),
    ]


def compare_memory(bench: Bench, tokens: Path) -> None:
    """Print the memory of a process that reads on-the-fly examples of few and of many token shards of one size."""
    shard = sorted((tokens / "training").glob("*.bin"))[0]
    rows = []
    for shards in (10, 100, 1000):
        many = bench.folder / f"{shards}_shards"
        many.mkdir()
        (many / "vocab.txt").write_bytes((tokens / "vocab.txt").read_bytes())
        for index in range(shards):
            for path in (shard, shard.with_suffix(".idx")):
                (many / f"c_training_{index:05d}{path.suffix}").hardlink_to(path)
        steps = bench.scaled(2 * RECORDS_A_RUN) // BATCH + 1
        rows.append(Row(f"{shards:,} token shards", steps * BATCH, [sys.executable, "-c", _EPOCH, many, steps]))
    bench.compare("examples", rows)
