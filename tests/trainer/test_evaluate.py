"""`evaluate`: what is scored and written, and which weights and records are refused, in one line, before the engine starts."""

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertprep import create_task
from bertprep.config import GlueSettings
from bertprep.errors import BertprepError
from bertprep.records.convert import write_examples
from bertprep.records.data_sets import find_records
from bertprep.records.examples import SquadEvalExamples
from bertprep.tasks.glue import TASKS, own_task
from bertprep.weights.hugging_face import save_weights
from tests.trainer.numpy_engine import NumPyEngine, Ranks
from tests.trainer.small_runs import MODEL, VOCABULARY
from tests.trainer.task_data import SEQ, make_moods, make_squad
from trainer import checkpoint
from trainer.checkpoint import RunState
from trainer.cli import main
from trainer.tasks import Task
from trainer.tasks.classification import Classification
from trainer.tasks.registry import check_task_of_weights, task_of_records
from trainer.tasks.squad import Squad
from trainer.weights import initial_values

MOOD = Classification(own_task("mood", ("neg", "pos")))


class Reader(NumPyEngine):
    """Has no weights; `says` gives the outputs."""

    updates = 0

    def restore(self, state: dict[str, Any]) -> None:
        self.weights = state


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    make_moods(folder)
    (folder / "mood files" / "test.tsv").write_text("sentence\ngood red cat\nbad blue dog\ngood sun\n")
    for version in ("1.1", "2.0"):
        make_squad(folder, version)
    return folder


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Reader:
    made = Reader()
    monkeypatch.setattr("trainer.evaluate.check_installed", lambda _: None)
    monkeypatch.setattr("trainer.evaluate.open_engine", lambda _: made)
    return made


def folder_of(workdir: Path, name: str) -> Path:
    (found,) = workdir.glob(f"tfrecord/*/{name}")
    return found


def save(folder: Path, task: Task) -> Path:
    """A checkpoint of a run for the task."""
    made_with = {**task.made_with(), "model": json.loads(MODEL.to_json())}
    folder.mkdir()
    shutil.copy(VOCABULARY, folder / "vocab.txt")
    return checkpoint.save(folder, RunState(made_with, step=1), initial_values(MODEL, seed=1, task=task), keep=1)


def evaluate(init: Path, data: Path, out: Path, *more: str) -> int:
    return main(["evaluate", "--init", str(init), "--data", str(data), "--out", str(out), *more])


def refusal(init: Path, data: Path, out: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    """What is said where an evaluation is refused, which is one line."""
    capsys.readouterr()
    assert evaluate(init, data, out, *more) in (1, 2)
    (said,) = capsys.readouterr().err.strip().splitlines()
    return said


def says_pos(input_ids: Any, _: int) -> dict[str, Any]:
    return {"logits": np.tile(np.array([0, 1], np.float32), (len(input_ids), 1))}


def says_position_14(input_ids: Any, _: int) -> dict[str, Any]:
    """The context begins before it, and ends after it; tokens next to it are the next likely."""
    distance = np.abs(np.arange(input_ids.shape[1]) - 14)
    logits = np.tile(-distance.astype(np.float32), (len(input_ids), 1))
    return {"start_logits": logits, "end_logits": logits}


def test_a_test_file_of_ones_own_is_predicted(workdir: Path, tmp_path: Path, engine: Reader) -> None:
    created = create_task(
        "glue", name="mood", inputs=[workdir / "mood files"], vocab=VOCABULARY, settings=GlueSettings(seq=SEQ),
        workdir=tmp_path, workers=1, formats="tfrecord",
    )  # fmt: skip
    engine.says = says_pos
    assert evaluate(save(tmp_path / "run", MOOD), created.folders["tfrecord"], tmp_path / "said") == 0
    assert (tmp_path / "said" / "dev" / "predictions.tsv").read_text().count("\n") == 22
    found = (tmp_path / "said" / "submission" / "predictions.tsv").read_text()
    assert found == "index\tprediction\n0\tpos\n1\tpos\n2\tpos\n"


def test_what_only_fills_a_batch_is_not_submitted(workdir: Path, tmp_path: Path) -> None:
    data = folder_of(workdir, "glue_mood")
    task = Classification(replace(TASKS["mrpc"], labels=("neg", "pos")))
    with task.open_records([data], "test", MODEL) as records:
        block = records.kind.empty(len(records), seq=records.seq, pred=0)
        records.gather_into(block, np.arange(len(records)))
    assert hasattr(block, "is_real_example")
    block.is_real_example[5:] = 0
    (tmp_path / "submission").mkdir()
    write_examples([block], tmp_path / "submission" / "part.tfrecord", "tfrecord")
    with task.open_records([tmp_path], "submission", MODEL) as records:
        scored = task.scorer(tmp_path, records, "submission").score({"logits": np.eye(2, dtype=np.float32)[[0] * 21]}, tmp_path)
    assert (scored.metrics, scored.files) == ({}, (tmp_path / "MRPC.tsv",))
    assert scored.files[0].read_text().splitlines()[-1] == "4\tneg"


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_the_length_of_answers_and_lists_can_be_chosen(version: str, workdir: Path, tmp_path: Path, engine: Reader) -> None:
    engine.says = says_position_14
    file = save(tmp_path / "run", Squad(f"v{version}"))
    data, out = folder_of(workdir, f"squad_v{version}"), tmp_path / "said"
    found = []
    for more in ([], ["--n-best-size", "2", "--max-answer-length", "1"]):
        assert evaluate(file, data, out, *more) == 0
        found.append(json.loads((out / "nbest_predictions.json").read_bytes()))
    default, chosen = found
    assert max(len(entries) for entries in default.values()) > 3
    assert max(len(entries) for entries in chosen.values()) <= 3
    assert {len(entry["text"].split()) for entries in chosen.values() for entry in entries} <= {0, 1}


def test_answers_are_decoded_once(workdir: Path, tmp_path: Path, engine: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainer.tasks import squad

    calls: list[object] = []
    decode = squad.predict_answers
    monkeypatch.setattr(squad, "predict_answers", lambda *given, **options: (calls.append(1), decode(*given, **options))[1])
    engine.says = says_position_14
    assert evaluate(save(tmp_path / "run", Squad()), folder_of(workdir, "squad_v1.1"), tmp_path / "said") == 0
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("trained", "data", "message"),
    [
        (
            Classification(TASKS["cola"]),
            "glue_mood",
            "was trained for cola, labels 0, 1, the records in {d} are of mood",
        ),
        (
            Classification(own_task("mood", ("pos", "neg"))),
            "glue_mood",
            "trained for mood, labels pos, neg, the records in",
        ),
        (Squad("v2.0"), "squad_v1.1", "was trained for SQuAD v2.0, the records in {d} are of SQuAD v1.1; name weights and"),
        (MOOD, "squad_v1.1", "was trained for mood, labels neg, pos, the records in {d} are of SQuAD v1.1"),
    ],
)
@pytest.mark.usefixtures("engine")
def test_weights_of_another_task_are_refused(
    trained: Task, data: str, message: str, workdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(workdir, data)
    said = refusal(save(tmp_path / "run", trained), folder, tmp_path / "said", capsys)
    assert message.format(d=folder) in said


def test_a_model_of_mnli_is_for_ax(tmp_path: Path) -> None:
    check_task_of_weights(save(tmp_path / "run", Classification(TASKS["mnli"])), Classification(TASKS["ax"]), tmp_path)


@pytest.mark.usefixtures("engine")
def test_weights_of_another_vocabulary_are_refused(workdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = save(tmp_path / "run", MOOD)
    lines = VOCABULARY.read_text().splitlines()
    (file.parent / "vocab.txt").write_text("\n".join([*lines[:-2], lines[-1], lines[-2]]) + "\n")
    said = refusal(file, folder_of(workdir, "glue_mood"), tmp_path / "said", capsys)
    assert f"{file.parent / 'vocab.txt'}: has sha256" in said


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["pos", "neg"], "its labels are pos, neg, those of the records in"),
        (["POS", "NEG"], "its labels are POS, NEG, those of the records in"),
        (["Neg", "Pos"], ""),
        (["LABEL_0", "LABEL_1"], ""),
        ([3, 4], "does not say what its labels are: id2label.0"),
    ],
)
def test_labels_of_hugging_face_in_another_order_are_refused(
    names: list[Any], message: str, workdir: Path, tmp_path: Path, engine: Reader, capsys: pytest.CaptureFixture[str]
) -> None:
    save_weights(tmp_path / "model.safetensors", initial_values(MODEL, seed=1, task=MOOD))
    labels = {str(number): name for number, name in enumerate(names)}
    (tmp_path / "config.json").write_text(json.dumps({**json.loads(MODEL.to_json()), "id2label": labels}))
    engine.says = says_pos
    data = folder_of(workdir, "glue_mood")
    if message:
        assert message in refusal(tmp_path, data, tmp_path / "said", capsys)
    else:
        assert evaluate(tmp_path, data, tmp_path / "said") == 0


@pytest.mark.usefixtures("engine")
def test_records_longer_than_the_model_are_refused(workdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = tmp_path / "short.json"
    short.write_text(replace(MODEL, max_position_embeddings=16).to_json())
    file, data = save(tmp_path / "run", Squad()), folder_of(workdir, "squad_v1.1")
    said = refusal(file, data, tmp_path / "said", capsys, "--model", str(short))
    assert f"has records of {2 * SEQ} tokens, the model {short} has max_position_embeddings 16" in said


def test_missing_packages_for_metrics_are_told_first(
    workdir: Path, tmp_path: Path, engine: Reader, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bertprep.tasks.glue_metrics.find_spec", lambda _: None)
    said = refusal(save(tmp_path / "run", MOOD), folder_of(workdir, "glue_mood"), tmp_path / "said", capsys)
    assert "metrics need scipy, which is not installed" in said
    assert "predict" not in engine.events


def other_answers(folder: Path) -> None:
    path = folder / "dev.json"
    path.write_text(path.read_text().replace('"text": "Paris', '"text": "paris'))


def other_length(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace(f'"seq": {2 * SEQ}', f'"seq": {2 * SEQ - 1}'))


def other_order(folder: Path) -> None:
    (path,) = (folder / "dev").iterdir()
    with Squad().open_records([folder], "test", MODEL) as records:
        block = SquadEvalExamples.empty(len(records), seq=records.seq)
        records.gather_into(block, np.arange(len(records))[::-1].copy())
    write_examples([block], path, "tfrecord")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (other_answers, "dev.json: has sha256 "),
        (other_length, f"windows of {2 * SEQ - 1} tokens, the records of the dev split are "),
        (other_order, "record 0: has unique_id 10000000"),
    ],
)
@pytest.mark.usefixtures("engine")
def test_questions_must_be_those_of_the_records(
    spoil: Callable[[Path], None],
    message: str,
    workdir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = tmp_path / "squad_v1.1"
    shutil.copytree(folder_of(workdir, "squad_v1.1"), data)
    spoil(data)
    assert message in refusal(save(tmp_path / "run", Squad()), data, tmp_path / "said", capsys)


@pytest.mark.usefixtures("engine")
def test_records_of_a_task_without_a_manifest_are_not_called_pretraining(
    workdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "squad"
    shutil.copytree(folder_of(workdir, "squad_v1.1"), data, ignore=shutil.ignore_patterns("manifest.json"))
    said = refusal(save(tmp_path / "run", Squad()), data, tmp_path / "said", capsys)
    assert f"{data}: has SQuAD records without a manifest.json that names their task; make them by bertprep create" in said


def test_all_ranks_stop_where_the_first_cannot_write(workdir: Path, tmp_path: Path) -> None:
    """The other rank would wait in the next split for ever: here until the barrier of the ranks is broken."""
    from trainer.evaluate import EvaluateOptions, _Evaluation, _Part

    data, out = folder_of(workdir, "glue_mood"), tmp_path / "said"
    out.mkdir()
    (out / "dev").write_text("in the way")
    task, ranks = task_of_records(find_records(data)), Ranks(2)
    options = EvaluateOptions(init="x", data=data, batch_size=4)

    def run(rank: int) -> BaseException | None:
        engine: Any = Reader(ranks, rank)
        engine.build(task=task)
        engine.says = says_pos
        with task.open_records([data], "test", MODEL) as records:
            part = _Part("test", records, task.scorer(data, records))
            try:
                _Evaluation(engine, task, options, out).of_part(part)
            except Exception as error:
                return error
        return None

    with ThreadPoolExecutor(2) as pool:
        first, other = pool.map(run, range(2))
    assert str(out / "dev") in str(first)
    assert isinstance(other, BertprepError)
    assert "the first process could not score it" in str(other)
