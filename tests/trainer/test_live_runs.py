"""Runs on token shards: as on records read in the same order, however they are split, stopped and resumed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bertprep
from bertprep.config import InstanceSettings, RecordFormat
from bertprep.errors import UsageError
from bertprep.tokens.live import LiveExamples
from bertprep.work.layout import MANIFEST
from tests.corpora import deal
from tests.trainer.numpy_engine import (
    NumPyEngine,
    assert_same_run,
    at_step,
    lasting,
    pattern_of,
    plan,
    read_entries,
    refuse,
    run,
    sigterm,
)
from tests.trainer.small_runs import VOCABULARY
from trainer.checkpoint import find_checkpoints, task_of
from trainer.tasks.pretraining import Pretraining, PretrainOptions

EXAMPLES = InstanceSettings(seq=32, pred=5, dupe=1, seed=3)
GIVEN: dict[str, Any] = {"dupe": 1, "seed": 3}
REPEATED = {**GIVEN, "repeat_epochs": True}
STEPS, BATCH = 40, 64


@pytest.fixture(scope="module")
def workdir(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Token shards in tokens/, and records of the same in tfrecord/ and ofrecord/, each with a test split."""
    folder = tmp_path_factory.mktemp("live")
    texts = deal(golden_corpus, folder / "texts", 4)
    for split, inputs in (("training", texts[:3]), ("test", texts[3:])):
        tokens = bertprep.tokenize(inputs=inputs, output=folder / split, vocab=VOCABULARY, workers=1).folder
        (folder / "tokens").mkdir(exist_ok=True)
        tokens.rename(folder / "tokens" / split)
        (folder / "tokens" / split / MANIFEST).unlink()
        made = bertprep.create(**vars(EXAMPLES), inputs=inputs, output=folder / split, vocab=VOCABULARY, workers=1)
        for name, records in made.folders.items():
            (folder / name).mkdir(exist_ok=True)
            (records / "training").rename(folder / name / split)
    return folder


def options_on(workdir: Path, out: Path, name: str = "tokens", *, ranks: int = 1, **more: Any) -> PretrainOptions:
    """A run of 40 steps of 64 examples, in three epochs."""
    of_tokens: dict[str, Any] = {"seq": 32, "pred": 5} if name == "tokens" else {}
    given: dict[str, Any] = {"shuffle_shards": 2, "log_every": 1, "eval_every": 0, **of_tokens, **more}
    return PretrainOptions(
        data=(workdir / name,), out=out, model="tiny", vocab=VOCABULARY, batch_size=BATCH // ranks, steps=STEPS,
        learning_rate=0.5, warmup_steps=2, eval_sequences=1000, **given,
    )  # fmt: skip


def test_losses_are_those_of_records_in_the_same_order(
    workdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (RecordFormat.TFRECORD, RecordFormat.OFRECORD):
        assert run(options_on(workdir, tmp_path / name, name))
    assert run(options_on(workdir, tmp_path / "repeated"), given=REPEATED)
    logs = [lasting(tmp_path / name) for name in ("repeated", "tfrecord", "ofrecord")]
    evaluations = [log.pop() for log in logs]  # of all test examples, on the fly in another order
    assert logs[0] == logs[1] == logs[2]
    assert evaluations[1] == evaluations[2]
    assert evaluations[0] == {name: pytest.approx(value, abs=1e-6) for name, value in evaluations[1].items()}
    assert len(logs[0]) == STEPS
    assert logs[0][-1]["epoch"] > 2
    capsys.readouterr()
    assert run(options_on(workdir, tmp_path / "tokens"), given=GIVEN)
    with LiveExamples(workdir / "tokens", settings=EXAMPLES, vocab=VOCABULARY) as live:
        count = len(live)
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("data ")]
    assert re.search(
        pattern_of(f"tokens: {count:,} on-the-fly examples of 32/5 an epoch, dupe 1, re-sampled in each epoch"), line
    )
    resampled, repeated = (
        [entry["loss"] for entry in read_entries(tmp_path / name, "train")] for name in ("tokens", "repeated")
    )
    of_epoch_0 = count // BATCH
    assert resampled[:of_epoch_0] == repeated[:of_epoch_0]
    assert all(one != other for one, other in zip(resampled[of_epoch_0:], repeated[of_epoch_0:], strict=True))


def test_a_run_stopped_in_each_epoch_ends_with_the_same_bytes(workdir: Path, tmp_path: Path) -> None:
    assert run(options_on(workdir, tmp_path / "uninterrupted"), given=GIVEN)
    stopped = options_on(workdir, tmp_path / "stopped")
    for step in (7, 14, 33):
        assert not run(stopped, NumPyEngine(on_step=at_step(step, sigterm)), given=GIVEN)
    assert run(stopped, given=GIVEN)
    assert_same_run(tmp_path / "stopped", tmp_path / "uninterrupted")


def test_other_examples_are_refused_on_resume(workdir: Path, tmp_path: Path) -> None:
    options = options_on(workdir, tmp_path / "out")
    assert not run(options, NumPyEngine(on_step=at_step(2, sigterm)), given=GIVEN)
    others: list[tuple[PretrainOptions, dict[str, Any], str]] = [
        (options, {**GIVEN, "dupe": 2}, "--dupe 1 -> 2"),
        (options, {**GIVEN, "seed": 4}, "--data-seed 3 -> 4"),
        (options, REPEATED, "--repeat-epochs False -> True"),
        (replace(options, shuffle_shards=3), GIVEN, "--shuffle-shards 2 -> 3"),
        (options_on(workdir, tmp_path / "out", "tfrecord"), {}, "--format tokens True -> False"),
    ]
    for other, given, expected in others:
        with pytest.raises(UsageError, match=rf"^.*{pattern_of(expected)}[^\n]*$"):
            run(other, given=given)


def test_the_training_split_stands_for_all(workdir: Path) -> None:
    options = f"--seq 32 --pred 5 --dupe 1 --vocab {VOCABULARY} --steps 5 --model tiny"
    complete, of_training = (plan(f"--data {workdir / name} {options}") for name in ("tokens", "tokens/training"))
    assert complete.data.folders == of_training.data.folders
    assert complete.data.test is not None
    assert of_training.data.test is not None


def test_runs_of_any_seed_evaluate_the_same_examples(workdir: Path) -> None:
    line = f"--data {workdir / 'tokens'} --seq 32 --pred 5 --dupe 1 --vocab {VOCABULARY} --steps 5 --model tiny"
    firsts = []
    for seed in (1, 2):
        of_seed = plan(f"{line} --seed {seed}")
        records, test = of_seed.data.records, of_seed.data.test
        assert isinstance(records, LiveExamples)
        assert isinstance(test, LiveExamples)
        firsts.append((test.row_ids(range(100)).rows.tolist(), records.row_ids(range(100)).rows.tolist()))
    assert firsts[0][0] == firsts[1][0]
    assert firsts[0][1] != firsts[1][1]


def test_a_run_without_sentence_pairs_has_no_next_sentences(workdir: Path, tmp_path: Path) -> None:
    assert run(options_on(workdir, tmp_path, eval_every=20), given={**GIVEN, "pairs": "none"})
    entries = read_entries(tmp_path)
    assert {entry["kind"] for entry in entries} == {"run", "train", "evaluation"}
    assert not any(name.startswith("next_sentence") for entry in entries for name in entry)
    assert task_of(find_checkpoints(tmp_path)[-1]) == Pretraining(has_pairs=False)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("--format tokens", "data: | token shards | bertprep tokenize --workdir data"),
        ("--data tokens --format tfrecord", "tokens: | token shards | records"),
        ("--data tfrecord --format tokens", "tfrecord: | records | token shards"),
        ("--data tfrecord --dupe 3", "--dupe: | token shards | tfrecord"),
        ("--data tokens --vocab {vocab} --pred 126", "--pred 126: | at least 1"),
    ],
)
def test_what_does_not_go_together_is_refused(words: str, parts: str, workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workdir)
    status, error = refuse(f"--model tiny {words.format(vocab=VOCABULARY)}")
    assert status == 2
    assert re.match(pattern_of(parts), error), error
