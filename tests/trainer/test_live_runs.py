"""Runs on token shards: as on records read in the same order, however they are cut, stopped and resumed."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bertprep
from bertprep import pool
from bertprep.config import InstanceSettings, RecordFormat
from bertprep.errors import UsageError
from bertprep.instances import load_vocabulary
from bertprep.records.live import LiveExamples
from bertprep.records.shard_counts import COUNTS
from bertprep.records.token_shards import TokenShard
from bertprep.workspace.layout import MANIFEST
from tests.corpora import deal
from tests.golden import GOLDEN
from tests.trainer.numpy_engine import (
    NumPyEngine,
    checkpoints,
    entries,
    lasting,
    run,
    settings_of,
    stopped_at,
    train_on_ranks,
)
from tests.trainer.test_evaluate import Reader
from trainer import checkpoint, start
from trainer.batches import GlobalBatch
from trainer.bench import run as bench
from trainer.checkpoint import RunState
from trainer.cli import main
from trainer.data import name_tokens
from trainer.loop import train
from trainer.model_config import ModelConfig
from trainer.schedule import Schedule
from trainer.settings import LiveSettings, Phase, RunSettings
from trainer.tasks.pretraining import MASKED_LM, PRETRAINING
from trainer.weights import initial_values

EXAMPLES = InstanceSettings(seq=32, pred=5, dupe=1, seed=3)
STEPS, BATCH = 40, 64


@pytest.fixture(scope="module")
def workdir(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Token shards in tokens/, and records of the same in tfrecord/ and ofrecord/, each with a test split."""
    folder = tmp_path_factory.mktemp("live")
    texts = deal(golden_corpus, folder / "texts", 4)
    vocab = GOLDEN / "vocab.txt"
    for split, inputs in (("training", texts[:3]), ("test", texts[3:])):
        bertprep.tokenize(inputs=inputs, output=folder / "tokens" / split, vocab=vocab, workers=1)
        (folder / "tokens" / split / MANIFEST).unlink()
        made = bertprep.create(settings=EXAMPLES, inputs=inputs, output=folder / split, vocab=vocab, workers=1)
        for name, records in made.folders.items():
            (folder / name).mkdir(exist_ok=True)
            records.rename(folder / name / split)
    return folder


def settings(workdir: Path, out: Path, name: str = "tokens", *, devices: int = 1, **more: Any) -> RunSettings:
    """A run of 40 steps of 64 examples, in three epochs."""
    live = LiveSettings(instances=EXAMPLES, vocabulary=GOLDEN / "vocab.txt", **more.pop("live", {}))
    phase = Phase(
        data=(workdir / name,),
        seq=EXAMPLES.seq,
        batch_size=BATCH // devices,
        schedule=Schedule(peak=0.5, steps=STEPS, warmup_steps=2),
        shuffle_shards=more.pop("shuffle_shards", 2),
        live=live if name == "tokens" else None,
        has_test=more.get("has_test", False),
    )
    data: Any = SimpleNamespace(folder=workdir / name)
    return replace(settings_of(data, out, **more), phases=(phase,), eval_sequences=100)


def test_losses_are_those_of_records_in_the_same_order(workdir: Path, tmp_path: Path) -> None:
    logs = {}
    for name in (RecordFormat.TFRECORD, RecordFormat.OFRECORD, "tokens"):
        assert run(settings(workdir, tmp_path / name, name, live={"repeat_epochs": True}, has_test=True))
        logs[name] = lasting(tmp_path / name)
    assert logs["tokens"] == logs["tfrecord"] == logs["ofrecord"]
    assert len(logs["tokens"]) == STEPS + 1
    assert logs["tokens"][-2]["epoch"] > 2
    assert run(settings(workdir, tmp_path / "anew", has_test=True))
    records = entries(tmp_path / "tokens", "run")[0]["phases"][0]["records"]
    of_epoch_0 = records // BATCH
    found, repeated = (entries(tmp_path / name, "train") for name in ("anew", "tokens"))
    assert [entry["loss"] for entry in found[:of_epoch_0]] == [entry["loss"] for entry in repeated[:of_epoch_0]]
    assert all(one["loss"] != other["loss"] for one, other in zip(found[of_epoch_0:], repeated[of_epoch_0:], strict=True))
    unigram, same = (entries(tmp_path / name, "evaluation")[0]["unigram_loss"] for name in ("anew", "tokens"))
    assert unigram == same


def test_a_run_stopped_in_each_epoch_ends_with_the_same_bytes(workdir: Path, tmp_path: Path) -> None:
    assert run(settings(workdir, tmp_path / "whole"))
    stopped = settings(workdir, tmp_path / "stopped")
    for number, step in enumerate((7, 14, 33)):
        engine: Any = NumPyEngine()
        with stopped_at(step, engine):
            assert not train(stopped, engine)
        if number == 1:  # what was counted is lost
            for table in (workdir / "tokens").glob(f"{COUNTS}*"):
                table.unlink()
    assert run(stopped)
    last = checkpoints(tmp_path / "whole").popitem()
    assert last == checkpoints(tmp_path / "stopped").popitem()
    assert lasting(tmp_path / "stopped") == lasting(tmp_path / "whole")


def test_ranks_together_train_as_one(workdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(settings(workdir, tmp_path / "one"))
    several = settings(workdir, tmp_path / "several", devices=4)
    assert train_on_ranks(several, 4, monkeypatch) == [True] * 4
    assert checkpoints(tmp_path / "several") == checkpoints(tmp_path / "one")


def test_other_settings_are_refused_on_resume(workdir: Path, tmp_path: Path) -> None:
    asked = settings(workdir, tmp_path / "out")
    [phase] = asked.phases
    engine: Any = NumPyEngine()
    with stopped_at(2, engine):
        assert not train(asked, engine)
    live = phase.live or pytest.fail("of token shards")
    others = [
        ({"live": replace(live, instances=replace(EXAMPLES, dupe=2))}, "examples.dupe 1, now it is 2"),
        ({"live": replace(live, repeat_epochs=True)}, "examples.repeat_epochs False, now it is True"),
        ({"shuffle_shards": 3}, "shuffle_shards 2, now it is 3"),
        ({"live": None, "data": (workdir / "tfrecord",)}, "examples {"),
    ]
    for change, says in others:
        with pytest.raises(UsageError, match=r"^[^\n]*: was made with phases\.0\.[^\n]*$") as refused:
            run(replace(asked, phases=(replace(phase, **change),)))  # type: ignore[arg-type]
        assert f"phases.0.{says}" in str(refused.value)


# --- evaluate and bench


def test_an_evaluation_is_that_of_records(
    workdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ModelConfig.preset("tiny", vocab_size=len(load_vocabulary(GOLDEN / "vocab.txt")))
    state = RunState({"model": json.loads(model.to_json())}, step=1)
    weights = checkpoint.save(tmp_path, state, initial_values(model, seed=1, task=PRETRAINING), keep=1)
    shutil.copy(GOLDEN / "vocab.txt", tmp_path)
    monkeypatch.setattr("trainer.evaluate.check_installed", lambda _: None)
    monkeypatch.setattr("trainer.evaluate.open_engine", lambda _: Reader())
    said = {}
    examples = ["--seq", "32", "--pred", "5", "--dupe", "1", "--data-seed", "3"]
    for name, options in (("tfrecord", []), ("tokens", examples)):
        for split in ("training", "test"):
            asked = ["evaluate", "--init", str(weights), "--data", str(workdir / name), "--split", split, *options]
            assert main(asked) == 0
            said[name, split] = capsys.readouterr().out
    for split in ("training", "test"):
        assert said["tokens", split] == said["tfrecord", split].replace("tfrecord", "tokens")
        assert f"{split}, " in said["tokens", split]
    for option in (["--seq", "32"], ["--dupe", "1"], ["--vocab", "vocab.txt"]):
        assert main(["evaluate", "--init", str(weights), "--data", str(workdir / "tfrecord"), *option]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{option[0]}: is for token shards, " in line


def test_bench_takes_the_batches_of_a_run(workdir: Path) -> None:
    tokens, vocab = workdir / "tokens", GOLDEN / "vocab.txt"
    asked = bench.BenchSettings(data=(tokens,), vocab=vocab, seq=32, pred=5, model="tiny", pairs="none")
    resolved, model, task = bench.resolve(asked)
    assert (model.vocab_size, task) == (len(load_vocabulary(vocab)), MASKED_LM)
    with (
        bench._open_batches(resolved, model, GlobalBatch(16)) as found,
        LiveExamples(tokens, settings=InstanceSettings(seq=32, pred=5, pairs="none"), vocab=vocab) as live,
    ):
        for batch, expected in zip(found, live.batches(16, stop=4), strict=False):
            for one, other in zip(batch.arrays, expected.arrays, strict=True):
                np.testing.assert_array_equal(one, other)
    for wrong in (replace(asked, data=(workdir / "tfrecord",)), replace(asked, data=(), vocab=None)):
        with pytest.raises(UsageError, match=r"^--(vocab|pairs): is for token shards; leave it out, or name some by --data$"):
            bench.resolve(wrong)


# --- the command line, before a framework is loaded


class Loaded(Exception):  # noqa: N818 - no error
    """The framework would be loaded now."""


@pytest.fixture
def tried(workdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command to where a framework would be loaded; gives the status, 0 there, and the lines."""

    def open_engine(_: Any) -> None:
        raise Loaded

    monkeypatch.setattr(start, "open_engine", open_engine)
    monkeypatch.setattr(start, "check_installed", lambda _: None)
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    monkeypatch.chdir(workdir)

    def run_command(*options: str) -> tuple[int, list[str]]:
        try:
            status = main(["--model", "tiny", "--out", str(tmp_path / "out"), *options])
        except Loaded:
            status = 0
        return status, capsys.readouterr().err.splitlines()

    return run_command


def test_what_will_be_read_is_said(tried: Any) -> None:
    options = ["--seq", "32", "--pred", "5", "--dupe", "1", "--data-seed", "3", "--vocab", str(GOLDEN / "vocab.txt")]
    status, lines = tried("--data", "tokens", "--steps", "10", *options)
    assert status == 0
    with LiveExamples("tokens", settings=EXAMPLES, vocab=GOLDEN / "vocab.txt") as live:
        count = len(live)
    (data,) = [line for line in lines if line.startswith("data ")]
    assert data.endswith(
        f"tokens: {count:,} training examples of 32/5, made of token shards as they are read; an epoch is 1 pass over the "
        "documents, each drawn anew"
    )


def test_the_training_split_stands_for_all(tried: Any) -> None:
    options = ["--seq", "32", "--pred", "5", "--dupe", "1", "--vocab", str(GOLDEN / "vocab.txt"), "--steps", "5"]
    data = []
    for name in ("tokens", "tokens/training"):
        status, lines = tried("--data", name, *options)
        assert status == 0
        data += [line for line in lines if line.startswith("data ")]
    assert data[0] == data[1]
    assert "no test split" not in data[0]


def test_all_cores_count_the_first_epoch(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once, read = threading.Barrier(3), TokenShard.read

    def read_at_once(*arguments: Any, **more: Any) -> Any:
        at_once.wait(60)
        return read(*arguments, **more)

    monkeypatch.setattr(pool, "default_workers", lambda: 3)
    monkeypatch.setattr(TokenShard, "read", read_at_once)
    live = LiveSettings(instances=replace(EXAMPLES, seed=99), vocabulary=GOLDEN / "vocab.txt")
    assert name_tokens([workdir / "tokens"], lambda _: live).records > 0


def test_each_phase_has_its_own_length(tried: Any, tmp_path: Path) -> None:
    phases = [{"data": ["tokens"], "seq": 32, "pred": 5, "steps": 3}, {"data": ["tokens"], "seq": 64, "pred": 10, "steps": 2}]
    (tmp_path / "phases.json").write_text(json.dumps(phases))
    status, lines = tried("--phases", str(tmp_path / "phases.json"), "--vocab", str(GOLDEN / "vocab.txt"), "--pairs", "none")
    assert status == 0
    assert [line.split(" made of")[0].split()[-1] for line in lines if " data  " in line] == ["32/5,", "64/10,"]
    assert any(line.startswith("task ") and "without a next-sentence head" in line for line in lines)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--format", "tokens"], "data: has no finished token shards; bertprep tokenize --workdir data makes them"),
        (["--data", "tokens", "--format", "tfrecord"], "tokens: holds token shards, expected records"),
        (["--data", "tfrecord", "--format", "tokens"], "tfrecord: holds masked-LM records, expected token shards"),
        (["--data", "tfrecord", "--dupe", "3"], "--dupe: is for token shards, tfrecord holds records, which are made already"),
        (["--data", "tfrecord", "--pred", "3"], "--pred: is for token shards, tfrecord holds records"),
        (["--data", "tfrecord", "--repeat-epochs"], "--repeat-epochs: is for token shards"),
        (["--data", "tokens", "--vocab", str(GOLDEN / "vocab.txt"), "--shuffle", "records"], "--shuffle records: tokens holds"),
        (
            ["--data", "tfrecord", "--shuffle", "records", "--shuffle-shards", "2"],
            "--shuffle-shards 2: is for --shuffle",
        ),
        (
            ["--data", "tfrecord", "--vocab", str(GOLDEN / "vocab.txt"), "--shuffle-shards", "2"],
            "--shuffle-shards 2: is for --shuffle shards and for token shards, tfrecord holds records",
        ),
        (["--data", "tokens", "--vocab", str(GOLDEN / "vocab.txt"), "--pred", "126"], "--pred 126: must be at least 1 and at"),
    ],
)
def test_what_does_not_go_together_is_refused(options: list[str], says: str, tried: Any) -> None:
    status, lines = tried(*options)
    assert status == 2
    assert lines[-1].removeprefix("trainer: error: ").startswith(says)
    assert len(lines) == 1
