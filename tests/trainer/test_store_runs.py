"""Runs whose records and results are in an object store: the numbers and bytes of a run on the disk, whatever dies or fails."""

import json
import multiprocessing
import threading
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bertprep.errors import BertprepError, UsageError
from bertprep.files.paths import as_path
from tests.object_store import Fault, Store, store
from tests.records.test_store_records import upload, write_manifest
from tests.trainer.numpy_engine import BATCH, SEED, SHARDS, RecordFolder, assert_same_run, kill, run, saved_steps
from trainer.tasks.pretraining import PretrainOptions
from trainer.weights import find_weights, resolve_weights

__all__ = ["store"]  # a fixture
STEPS = 20


def options_in(data: Path, out: Path, **more: Any) -> PretrainOptions:
    """20 steps with evaluations, the best kept, and a checkpoint after each fourth."""
    every = {"log_every": 1, "eval_every": 14, "save_every": 4, "keep": 2, "keep_best": True, **more}
    return PretrainOptions(
        data=(data,), out=out, model="tiny", batch_size=BATCH, steps=STEPS, warmup_steps=2, learning_rate=0.5,
        seed=SEED, **every,
    )  # fmt: skip


def write_vocabulary_and_manifest(folder: Path, sizes: dict[str, int]) -> None:
    """Write the vocabulary and the manifest of records, which has the checksum of the text of each file."""
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(30517))]) + "\n")
    write_manifest(folder, sizes)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    for number, entry in enumerate(manifest["files"].values()):
        entry["text"] = {"bytes": 1000, "crc32c": f"{number:08x}"}
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "records"
    RecordFolder(folder)
    write_vocabulary_and_manifest(folder, {"training/part-0": SHARDS[0], "training/part-1": SHARDS[1], "test/part-0": 10})
    return folder


@pytest.mark.slow
def test_a_run_in_a_store_is_that_of_the_disk(store: Store, data: Path, tmp_path: Path) -> None:
    """Whatever the network does, and after a SIGKILL in a step and one while a checkpoint is written."""
    on_disk, out = tmp_path / "on_disk", store.path("models/a")
    assert run(options_in(data, on_disk))
    options = options_in(upload(data, store), out)
    store.faults += [
        Fault("GET", ".*part-0", cut_after=100),
        Fault("GET", ".*part-1", times=3, status=503, code="SlowDown"),
        Fault("GET", ".*part-1", times=2, cut=True),
        Fault("HEAD", times=2, status=500),
        Fault("PUT", ".*checkpoint.*", times=7, status=503, code="SlowDown"),  # away for two minutes
        Fault("PUT", ".*checkpoint.*", lose=True),
        Fault("PUT", ".*log.jsonl", times=2, cut=True),
        Fault("PUT", ".*log.jsonl", lose=True),
    ]
    kill(options, step=11, method="spawn")
    assert saved_steps(out) == [4, 8]
    is_saving = threading.Event()

    store.faults.append(Fault("PUT", ".*checkpoint-000000016.*", times=None, act=is_saving.set, stall=True))
    process = multiprocessing.get_context("spawn").Process(target=run, args=(options,))
    process.start()
    assert is_saving.wait(600)
    process.kill()
    process.join()
    store.faults.pop()
    assert saved_steps(out) == [12, 14]  # an evaluation begins with a checkpoint
    store.faults += [
        Fault("GET", ".*checkpoint-000000014.*", cut=True),
        Fault("POST", "", lose=True),  # which deletes
        Fault("POST", "", times=3, status=503, code="SlowDown"),
    ]
    assert run(options)
    assert not [fault for fault in store.faults if fault.times]
    assert_same_run(out, on_disk)
    for name in ("bert_config.json", "vocab.txt"):
        assert (out / name).read_bytes() == (on_disk / name).read_bytes()
    assert {path.name for path in out.iterdir()} == {path.name for path in on_disk.iterdir() if path.name != ".lock"}
    if find_spec("tensorboard"):
        assert len(list((out / "tensorboard").iterdir())) == 3  # one of each start
    for folder in (options.data[0], data):  # it is finished, wherever the same records are
        before = len(store.asked)
        assert run(replace(options, data=(folder,)))
        assert not [asked for asked in store.asked[before:] if asked.startswith("PUT")]


@pytest.mark.slow
def test_a_store_that_fails_for_good_ends_the_run_saved_and_it_resumes(store: Store, data: Path) -> None:
    options = options_in(upload(data, store), store.path("out"), keep_best=False)
    store.faults[:] = [Fault("PUT", ".*checkpoint-000000016.*", times=None, status=503, code="SlowDown")]
    with pytest.raises(BertprepError, match=r"checkpoint-000000016.* retries are exhausted; the same command"):
        run(options)
    assert saved_steps(store.path("out"))[-1] < 16
    store.faults.clear()
    assert run(options)
    assert saved_steps(store.path("out")) == [16, 20]


def test_weights_are_found_at_urls(store: Store, data: Path, tmp_path: Path) -> None:
    out = store.path("out")
    assert run(options_in(data, out))
    last = out / f"checkpoint-{STEPS:09d}.safetensors"
    assert find_weights(out) == find_weights(last) == resolve_weights(str(out), tmp_path) == last
    with pytest.raises(UsageError, match=r"s3://.*/nothing: does not exist"):
        find_weights(as_path(f"{store.url}/nothing"))
    store.request("PUT", "half/checkpoint-000000001.safetensors", last.read_bytes()[:100])
    with pytest.raises(BertprepError, match=r"checkpoint-000000001\.safetensors"):
        run(options_in(data, store.path("half")))
