"""Fine-tuning: defaults of each task, a score after each epoch, the best checkpoint, and predictions."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertprep.errors import BertprepError, UsageError
from bertprep.instances import load_vocabulary
from bertprep.tasks.glue import TASKS
from bertprep.weights.hugging_face import save_weights
from bertprep.work.choose import find_records
from tests.trainer.numpy_engine import NumPyEngine, at_step, make_ranks, plan, read_entries, run, run_command, run_ranks
from tests.trainer.small_data import make_moods, make_squad
from tests.trainer.small_runs import MODEL, VOCABULARY
from trainer.checkpoint import BEST, read_header
from trainer.cli import main
from trainer.tasks import task_of_checkpoint, task_of_records
from trainer.tasks.classification import Classification, GlueOptions
from trainer.tasks.pretraining import Pretraining
from trainer.tasks.squad import SquadOptions
from trainer.weights import initial_values

GOOD = load_vocabulary(VOCABULARY).tokens.index("good")
BATCH = 8


@pytest.mark.parametrize(
    ("line", "task", "numbers", "out"),
    [
        ("squad", "SQuAD v1.1", (12, 3e-5, 4, 0, 2), "squad_v1.1_small"),
        ("squad --version 2.0 --epochs 1", "SQuAD v2.0", (12, 3e-5, 2, 0, 3), "squad_v2.0_small"),
        ("glue --name mood", "mood, labels neg, pos", (32, 2e-5, 6, 0, 2), "glue_mood_small"),
        ("glue --name mood --batch-size 5 --epochs 2.5 --lr 1", "mood, labels neg, pos", (5, 1, 32, 3, 13), "glue_mood_small"),
    ],
)
def test_defaults_are_those_of_the_task(
    line: str, task: str, numbers: tuple[float, ...], out: str, tasks: dict[str, Path]
) -> None:
    found = plan(f"{line} --workdir {tasks['workdir']} --model {tasks['model']}")
    schedule = found.schedule
    assert (found.options.batch_size, schedule.peak, schedule.steps, schedule.warmup_steps, found.eval_every) == numbers
    assert (found.task.describe(), found.eval_sequences, found.keep_best) == (task, 0, True)
    assert found.out == tasks["workdir"] / "models" / out


def test_weights_are_named_by_the_id_of_their_download(tasks: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "download" / "weights" / "somebody" / "small-bert"
    folder.mkdir(parents=True)
    save_weights(folder / "model.safetensors", initial_values(MODEL, seed=1, task=Pretraining()))
    (folder / "config.json").write_text(MODEL.to_json())
    line = f"squad --data {tasks['1.1']} --workdir {tmp_path} --init somebody/small-bert"
    found, undropped = plan(line), plan(f"{line} --no-dropout")
    assert (found.init, found.model) == (folder / "model.safetensors", MODEL)
    assert (undropped.init, undropped.model) == (folder / "model.safetensors", MODEL.without_dropout())
    assert "no dropout" in undropped.plan()["model"]
    assert found.out == tmp_path / "models" / "squad_v1.1_small-bert"


@pytest.mark.parametrize("command", ["glue", "evaluate"])
def test_weights_without_a_vocabulary_get_a_warning(
    command: str, tasks: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "weights"
    folder.mkdir()
    save_weights(folder / "model.safetensors", initial_values(MODEL, seed=1, task=task_of_records(find_records(tasks["mood"]))))
    labels = {"id2label": {"0": "neg", "1": "pos"}}
    (folder / "config.json").write_text(json.dumps({**json.loads(MODEL.to_json()), **labels}))
    words = [command, "--init", folder, "--data", tasks["mood"], "--out", tmp_path / "out", "--engine", "tensorflow"]
    expected = f"{folder}: has no vocab.txt, so its vocabulary cannot be compared with that of {tasks['mood']}; "
    warnings = []
    for _ in range(2):
        assert run_command(*words, outputs=answer_mood(right_from=0)) == 0
        warnings.append([line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")])
        (folder / "vocab.txt").write_bytes(VOCABULARY.read_bytes())
        shutil.rmtree(tmp_path / "out")
    [[warning], second] = warnings
    assert warning.startswith(f"warning: --init {expected}" if command == "glue" else f"warning: {expected}")
    assert second == []


def test_the_task_of_records_and_of_checkpoints_is_the_same(tasks: dict[str, Path]) -> None:
    for name in ("2.0", "mood"):
        task = task_of_records(find_records(tasks[name]))
        assert task_of_checkpoint(json.loads(json.dumps(task.metadata()))) == task
    for known in (Classification(TASKS["mrpc"]), Pretraining(), Pretraining(has_pairs=False)):
        assert task_of_checkpoint(known.metadata()) == known
    with pytest.raises(BertprepError, match="'poetry'"):
        task_of_checkpoint({"task": {"name": "poetry"}})
    with pytest.raises(BertprepError, match="expected two or more different names"):
        task_of_checkpoint({"task": {"name": "classification", "of": "mood", "labels": ["one"]}})


def answer_mood(right_from: int) -> Callable[..., dict[str, Any]]:
    """A classifier that is right from so many updates on, and always wrong before."""

    def answer(input_ids: Any, updates: int) -> dict[str, Any]:
        is_good = (input_ids == GOOD).any(axis=1)
        is_pos = is_good if updates >= right_from else ~is_good
        return {"label": np.stack([~is_pos, is_pos], axis=1).astype(np.float32)}

    return answer


def mood_options(tasks: dict[str, Path], out: Path, **more: Any) -> GlueOptions:
    """Three epochs of 8 steps."""
    given = {"data": (tasks["mood"],), "batch_size": BATCH, "log_every": 1, "save_every": 5, "model": str(tasks["model"])}
    return GlueOptions(out=out, **{**given, **more})


def test_each_epoch_is_scored_and_the_best_is_kept(tasks: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run(mood_options(tasks, out), outputs=answer_mood(right_from=12))
    found = read_entries(out, "evaluation")
    assert [(entry["step"], entry["sequences"], entry["accuracy"]) for entry in found] == [(8, 21, 0), (16, 21, 1), (24, 21, 1)]
    assert found[0]["loss"] == pytest.approx(np.log(1 + np.e))  # of logits 1 and 0, the wrong way round
    assert found[1]["loss"] == pytest.approx(np.log(1 + np.e) - 1)
    header = read_header(out / BEST)
    assert (header["step"], header["test"]) == (16, {"metric": "accuracy", "sequences": 21, "value": 1.0})
    assert header["task"] == {"name": "classification", "of": "mood", "labels": ["neg", "pos"]}
    assert "accuracy" in read_entries(out, "train")[0]


def test_a_retry_is_told_to_name_another_folder_and_keeps_its_weights(tasks: dict[str, Path], tmp_path: Path) -> None:
    """The number of steps is named by the option that it follows from."""
    options = mood_options(tasks, tmp_path, epochs=1)
    run(options, outputs=answer_mood(right_from=0))
    advice = "resume with the same options, or name another --out"
    for more, expected in (
        ({"epochs": 4.0}, f"--epochs: steps 8 -> 32, warmup steps 0 -> 3; add --lengthen for .* run, or {advice}"),
        ({"epochs": None, "learning_rate": 1e-3}, f"--lr 2e-05 -> 0.001, steps 8 -> 24, warmup steps 0 -> 2; {advice}"),
        ({"epochs": None, "steps": 5, "warmup_steps": 1}, f"--steps 8 -> 5, --warmup-steps 0 -> 1; {advice}"),
    ):
        with pytest.raises(UsageError, match=rf"safetensors: was made with other options: {expected}$"):
            run(replace(options, **more))


def test_a_plan_of_few_steps_says_what_raises_low_scores(tasks: dict[str, Path]) -> None:
    line = f"glue --name mood --workdir {tasks['workdir']} --model {tasks['model']}"
    assert plan(line).plan()["steps"] == (
        "6; epochs: 3; these are few: if the scores stay low, give more --epochs and a larger --lr"
    )
    assert plan(f"{line} --steps 49").plan()["steps"].endswith("give more --steps and a larger --lr")
    assert plan(f"{line} --steps 50").plan()["steps"] == "50; epochs: 25"


def test_ranks_score_all_rows_together(tasks: dict[str, Path], tmp_path: Path) -> None:
    """21 sequences in batches of 8 over two ranks: the last batch of one rank has but one, of the other none."""
    options = mood_options(tasks, tmp_path / "run", batch_size=4)
    assert run_ranks(options, *make_ranks(2, outputs=answer_mood(12))) == [True, True]
    assert [entry["accuracy"] for entry in read_entries(tmp_path / "run", "evaluation")] == [0, 1, 1]


def corrupt_last_record(folder: Path) -> None:
    (path,) = (folder / "dev").iterdir()
    with path.open("r+b") as file:
        file.seek(-20, 2)
        file.write(b"\xff" * 16)


def test_a_score_takes_all_records(tasks: dict[str, Path], tmp_path: Path) -> None:
    """Though bad records may be skipped in training; this one becomes corrupt after the run has started."""
    folder = make_moods(tmp_path / "corrupt")
    options = mood_options(tasks, tmp_path / "run", data=(folder,), skip_bad_records=3)
    engine = NumPyEngine(outputs=answer_mood(0), on_step=at_step(7, lambda: corrupt_last_record(folder)))
    with pytest.raises(BertprepError, match=r"dev/.*: record 20: .*; step 8 is saved"):
        run(options, engine)
    engine = NumPyEngine()
    with pytest.raises(BertprepError, match=r"dev/.*: record 20: "):
        run(replace(options, out=tmp_path / "another"), engine)
    folder = make_squad(tmp_path / "without questions")
    (folder / "dev.json").unlink()
    with pytest.raises(BertprepError, match=r"squad_v1\.1: .*dev\.json"):
        run(SquadOptions(data=(folder,), out=tmp_path / "squad", model=str(tasks["model"])), engine)
    assert "start 1" not in engine.events  # what cannot be scored is found before the first step


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_squad_is_scored_by_its_answers(version: str, tasks: dict[str, Path], tmp_path: Path) -> None:
    """By a reader that knows that answers begin with "paris" and end before the full stop."""
    tokens = load_vocabulary(VOCABULARY).tokens
    stop, before, question = tokens.index("."), tokens.index("in"), tokens.index("why") if "why" in tokens else -1

    def answer(input_ids: Any, _: int) -> dict[str, Any]:
        start, end = np.full((2, *input_ids.shape), -5, np.float32)
        for row, ids in enumerate(input_ids):
            if question in ids:
                start[row, 0] = end[row, 0] = 5
            elif ids.any():  # else it only fills up the last batch
                start[row, int(np.flatnonzero(ids == before)[0]) + 1] = 5
                end[row, int(np.flatnonzero(ids == stop)[0]) - 1] = 5
        return {"start": start, "end": end}

    out = tmp_path / "run"
    options = SquadOptions(workdir=tasks["workdir"], version=version, out=out, model=str(tasks["model"]))
    assert run(options, outputs=answer)
    last = read_entries(out, "evaluation")[-1]
    assert (last["exact_match"], last["f1"], read_header(out / BEST)["test"]["value"]) == (100, 100, 100)
    assert ("threshold" in last) == (version == "2.0")
    if version == "2.0":
        assert [last[f"{kind}_{score}"] for kind in ("HasAns", "NoAns") for score in ("exact", "f1")] == [100, 100, 100, 100]


@pytest.mark.tensorflow
def test_a_classifier_from_a_run_to_an_export_and_back(tasks: dict[str, Path], tmp_path: Path) -> None:
    out, exported, again = (tmp_path / name for name in ("run", "transformers", "again"))
    words = ["glue", "--data", str(tasks["mood"]), "--batch-size", "8"]
    assert main([*words, "--model", str(tasks["model"]), "--out", str(out), "--epochs", "1", "--lr", "3e-3"]) == 0
    assert main(["export", str(out), str(exported)]) == 0
    assert main([*words, "--init", str(exported), "--out", str(again), "--steps", "2", "--lr", "1e-9"]) == 0
    found, last = (read_entries(folder, "evaluation")[-1]["loss"] for folder in (again, out))
    assert found == pytest.approx(last, abs=1e-5)  # with the head
