"""Runs whose records and results are in an object store: the numbers and bytes of a run on the disk, whatever dies or fails."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from bertprep.errors import BertprepError, UsageError
from bertprep.files.places import place
from bertprep.records.record_set import RecordSet
from tests.object_store import Fault, Store, store
from tests.records.test_arriving import fetched, upload, wait_until, write_manifest
from tests.records.test_record_set import write_folder
from tests.trainer.numpy_engine import SEED, SHARDS, Data, NumPyEngine, checkpoints, lasting, saved_steps
from trainer.batches import GlobalBatch, TrainingBatches
from trainer.loop import train
from trainer.model_config import ModelConfig
from trainer.pretrained import resolve_weights
from trainer.resume import (
    _differences,
    _with_known_fingerprints,
    _without_needless,
    add_fingerprints,
    check_resume,
    describe_run,
)
from trainer.schedule import Schedule
from trainer.settings import OptimizerSettings, Phase, RunSettings
from trainer.weights import find_weights

__all__ = ["store"]  # a fixture
STEPS, BATCH = 20, 8
RUN_AND_STAY = """
import sys
from bertprep.files.places import place
from tests.trainer.test_store_runs import NumPyEngine, settings_in, train

def stay(step):
    if step == int(sys.argv[3]):
        print("here", flush=True)
        sys.stdin.read()

engine = NumPyEngine()
engine.on_step = stay
train(settings_in(place(sys.argv[1]), place(sys.argv[2])), engine)
"""


def settings_in(data: Path, out: Path, **more: Any) -> RunSettings:
    """20 steps with evaluations, the best kept, and a checkpoint after each fourth."""
    schedule = Schedule(peak=0.5, steps=STEPS, warmup_steps=2)
    has_test = more.pop("has_test", True)
    return RunSettings(
        model=ModelConfig.preset("tiny", vocab_size=30522),
        phases=(Phase(data=(data,), seq=8, batch_size=BATCH, schedule=schedule, has_test=has_test),),
        optimizer=OptimizerSettings(name="adam"),
        out=out,
        seed=SEED,
        vocabulary=data / "vocab.txt" if has_test else None,
        **{"log_every": 1, "eval_every": 14, "save_every": 4, "keep": 2, "keep_best": has_test, **more},
    )


def run(settings: RunSettings, engine: NumPyEngine | None = None) -> bool:
    of_numpy: Any = engine or NumPyEngine()
    return train(settings, of_numpy)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Records with a manifest, and a vocabulary."""
    folder = tmp_path / "records"
    Data(folder)
    write_manifest(folder, {"training/part-0": SHARDS[0], "training/part-1": SHARDS[1], "test/part-0": 10})
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n")
    return folder


def write_many(folder: Path) -> list[int]:
    """A folder of 40 files of 3 records with their manifest; returns the files of the records in the order of the steps."""
    sizes = (3,) * 40
    write_folder(folder, sizes)
    write_manifest(folder, {f"training/part-{number}": size for number, size in enumerate(sizes)})
    with RecordSet([folder]) as records:
        batches = TrainingBatches(records, GlobalBatch(BATCH), seed=SEED)
        return [int(path.name[5:]) for step in range(STEPS) for path, _ in batches.places(step)]


def start(data: Path, out: Path, step: int) -> "subprocess.Popen[str]":
    """A run in a process of its own, which stays where it is before `step`, from 0."""
    return subprocess.Popen(
        [sys.executable, "-c", RUN_AND_STAY, str(data), str(out), str(step)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def kill(process: "subprocess.Popen[str]") -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_a_run_in_a_store_is_that_of_the_disk(store: Store, data: Path, tmp_path: Path) -> None:
    """Whatever the network does, and after a SIGKILL in a step and one while a checkpoint is written."""
    whole, out = tmp_path / "whole", store.place("models/a")
    assert run(settings_in(data, whole))
    there = upload(data, store)
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
    first = start(there, out, 10)
    assert first.stdout
    assert first.stdout.readline() == "here\n"
    kill(first)
    assert saved_steps(out) == [4, 8]
    writes = Fault("PUT", ".*checkpoint-000000016.*", act=threading.Event().wait)
    store.faults.append(writes)
    second = start(there, out, STEPS)
    wait_until(lambda: writes.times == 0, second)
    kill(second)
    assert saved_steps(out) == [8, 12]
    store.faults += [
        Fault("GET", ".*checkpoint-000000012.*", cut=True),
        Fault("POST", "", lose=True),  # which deletes
        Fault("POST", "", times=3, status=503, code="SlowDown"),
    ]
    assert run(settings_in(there, out))
    assert not [fault for fault in store.faults if fault.times]
    assert checkpoints(out) == checkpoints(whole)
    assert lasting(out) == lasting(whole)
    for name in ("bert_config.json", "vocab.txt"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()
    assert {path.name for path in out.iterdir()} == {path.name for path in whole.iterdir()}
    assert len(list((out / "tensorboard").iterdir())) == 3  # one of each start
    assert run(settings_in(there, out))  # it is finished
    for settings in (settings_in(there, out), settings_in(data, out)):  # wherever the same records are
        assert check_resume(settings, devices=1, precision="off") == STEPS


def test_a_run_that_begins_before_its_last_file_is_here_has_the_same_losses(
    store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One file is held back until the first step begins."""
    folder = tmp_path / "records"
    needed = write_many(folder)
    assert run(settings_in(folder, tmp_path / "whole", has_test=False))
    last = [*dict.fromkeys(needed)][-1]
    assert needed.index(last) > 4 * BATCH
    there = upload(folder, store)
    begun = threading.Event()
    store.faults.append(Fault("GET", f".*part-{last}", times=None, act=begun.wait))
    engine = NumPyEngine()
    engine.on_step = lambda _: begun.set()
    assert run(settings_in(there, store.place("out"), has_test=False), engine)
    assert checkpoints(store.place("out")) == checkpoints(tmp_path / "whole")
    assert lasting(store.place("out")) == lasting(tmp_path / "whole")
    asked = fetched(store)
    assert set(asked) == {*range(40)}
    first_step = {*needed[:BATCH]}
    assert (
        set(asked[: len(first_step) + 8 + 1]) > first_step
    )  # these first, but for the one that tells the shape and those under way
    assert capfd.readouterr().err.count("waiting for") == 1


def test_a_run_that_is_stopped_early_is_saved_without_waiting(store: Store, data: Path, tmp_path: Path) -> None:
    """Its fingerprint is that of records of all files: unknown, where one is not here, and no obstacle to resuming."""
    there, settings = upload(data, store), settings_in(data, tmp_path / "out")
    engine: Any = NumPyEngine()
    with RecordSet([data]) as records:
        known = describe_run(settings, [records], devices=1, precision="off")
    held = threading.Event()
    store.faults.append(Fault("GET", ".*training/part-1", times=None, act=held.wait))
    with RecordSet([there]) as records:
        begun = describe_run(settings, [records], devices=1, precision="off")
        assert begun["phases"][0]["records_sha256"] is None
        assert add_fingerprints(begun, [records], engine, waits=False) == begun
        assert fetched(store) == [0]
        held.set()
        assert add_fingerprints(begun, [records], engine, waits=True) == _without_needless(known)
    assert not list(_differences(begun, _with_known_fingerprints(known, begun)))


@pytest.mark.parametrize("where", ["reading", "saving"])
def test_a_signal_while_the_store_is_silent_leaves_a_checkpoint(
    where: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the run waits: for the next batch, or for the records whose fingerprint a checkpoint has."""
    folder, out = tmp_path / "records", tmp_path / "out"
    needed = write_many(folder)
    assert run(settings_in(folder, tmp_path / "whole", has_test=False))
    there = upload(folder, store)
    last = [*dict.fromkeys(needed)][-1]
    step = needed.index(last) // BATCH  # the first that cannot be taken
    told = 3 if where == "saving" else step - 2  # the step before whose end the signal comes
    settings = settings_in(there, out, has_test=False, save_every=4 if where == "saving" else STEPS)
    monkeypatch.setenv("BERTPREP_RETRY_SECONDS", "1000")  # silences of 30,000 s
    store.faults.append(Fault("GET", f".*part-{last}", times=None, stall=True))
    engine = NumPyEngine()

    def tell(step: int) -> None:
        if step == told:
            signal.raise_signal(signal.SIGTERM)

    engine.on_step = tell
    assert not run(settings, engine)
    assert saved_steps(out)[-1] == told + 2
    assert (where == "saving") == (saved_steps(out)[0] == 4)
    store.faults.clear()
    other = tmp_path / "other"  # as many records, others
    write_folder(other, (3,) * 40, seed=1)
    write_manifest(other, {f"training/part-{number}": 3 for number in range(40)})
    with pytest.raises(UsageError, match=r"was made with phases.0.files_sha256 "):
        run(settings_in(other, out, has_test=False))
    (other / "manifest.json").unlink()  # then nobody knows
    assert check_resume(settings_in(other, out, has_test=False), devices=1, precision="off") == told + 2
    assert run(settings)
    name = f"checkpoint-{STEPS:09d}.safetensors"
    assert checkpoints(out)[name] == checkpoints(tmp_path / "whole")[name]


def test_data_that_cannot_be_read_leave_the_last_step(store: Store, tmp_path: Path) -> None:
    needed = write_many(tmp_path / "records")
    last = [*dict.fromkeys(needed)][-1]
    step = needed.index(last) // BATCH  # the first that cannot be taken
    there, out = upload(tmp_path / "records", store), store.place("out")
    store.faults.append(Fault("GET", f".*part-{last}", times=None, status=503, code="SlowDown"))
    settings = settings_in(there, out, has_test=False)
    with pytest.raises(BertprepError, match=f"part-{last}: the store answers 503 .* step {step} is saved"):
        run(settings)
    assert saved_steps(out)[-1] == step > 0
    store.faults.clear()
    assert run(settings)


def test_a_store_that_stays_away_ends_the_run_and_it_resumes(store: Store, data: Path) -> None:
    there, out = upload(data, store), store.place("out")
    store.faults.append(Fault("PUT", ".*checkpoint-000000008.*", times=None, status=503, code="SlowDown"))
    settings = settings_in(there, out, has_test=False)
    with pytest.raises(BertprepError, match=r"checkpoint-000000008.* given up after 8 tries; the same command resumes"):
        run(settings)
    assert saved_steps(out) == [4]
    store.faults.clear()
    assert run(settings)
    assert saved_steps(out) == [16, 20]


def test_weights_are_found_at_urls(store: Store, data: Path, tmp_path: Path) -> None:
    out = store.place("out")
    run(settings_in(data, out, has_test=False))
    last = out / f"checkpoint-{STEPS:09d}.safetensors"
    assert find_weights(out) == find_weights(last) == resolve_weights(str(out), tmp_path) == last
    with pytest.raises(UsageError, match=r"s3://.*/nothing: does not exist"):
        find_weights(place(f"{store.url}/nothing"))
    store.request("PUT", "half/checkpoint-000000001.safetensors", last.read_bytes()[:100])
    with pytest.raises(BertprepError, match=r"checkpoint-000000001.* is damaged \(is not a whole safetensors file"):
        check_resume(settings_in(data, store.place("half")), devices=1, precision="off")
