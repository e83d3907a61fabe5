"""`evaluate`: what is scored and written; test_refusals.py has what does not go together."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bertprep.errors import BertprepError
from bertprep.records import Examples, MaskedExamples
from bertprep.records.records import BadRecordError, Records
from bertprep.records.write import write_examples
from bertprep.tasks.glue import TASKS, own_task
from bertprep.weights.hugging_face import save_weights
from bertprep.work.layout import VOCABULARY
from tests.records.columns import column_examples
from tests.trainer.numpy_engine import RecordFolder, make_ranks, refuse, run_command, run_command_on
from tests.trainer.small_data import SEQ, TOKENS, make_task, save_checkpoint, write_data
from tests.trainer.small_runs import MODEL
from trainer.cli import main
from trainer.evaluate import EVALUATED
from trainer.model_config import ModelConfig
from trainer.tasks.classification import Classification, ClassificationScorer
from trainer.tasks.pretraining import Pretraining
from trainer.tasks.squad import Squad
from trainer.weights import initial_values

MOOD = Classification(own_task("mood", ("neg", "pos")))


def evaluate(init: Path, data: Path, out: Path, *more: str, **engine: Any) -> int:
    return run_command("evaluate", init, "--data", data, "--out", out, *more, **engine)


def answer_pos(input_ids: Any, _: int) -> dict[str, Any]:
    return {"label": np.tile(np.array([0, 1], np.float32), (len(input_ids), 1))}


def answer_position_14(input_ids: Any, _: int) -> dict[str, Any]:
    """The context begins before it, and ends after it; tokens next to it are the next likely."""
    distance = np.abs(np.arange(input_ids.shape[1]) - 14)
    logits = np.tile(-distance.astype(np.float32), (len(input_ids), 1))
    return {"start": logits, "end": logits}


def test_every_split_of_a_task_is_predicted(tasks: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_checkpoint(tmp_path / "run", MOOD)
    assert evaluate(tmp_path / "run", tasks["mood"], tmp_path / "written", outputs=answer_pos) == 0
    assert (tmp_path / "written" / "dev" / "predictions.tsv").read_text().count("\n") == 22
    found = (tmp_path / "written" / "submission" / "predictions.tsv").read_text()
    assert found == "index\tprediction\n0\tpos\n1\tpos\n2\tpos\n"
    printed = capsys.readouterr().out
    assert "dev, 21 sequences: loss 0." in printed
    assert "submission, 3 sequences: predictions only" in printed


def test_a_wrong_vocabulary_next_to_records_is_passed_over_with_another_or_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    right = (write_data(Path("a")) / VOCABULARY).rename("right.txt").read_text()
    (Path("a") / VOCABULARY).write_text("\n".join(reversed(TOKENS)))
    model = ModelConfig.preset("tiny", vocab_size=len(TOKENS))
    Path("model.json").write_text(model.to_json())
    train = "--data a --model model.json --out m --steps 3 --batch-size 8 --engine tensorflow"
    assert run_command(*train.split(), "--vocab", "right.txt") == 0
    *_, last = capsys.readouterr().err.splitlines()
    printed = re.search(r"next: python -m trainer (evaluate m --data a --vocab right.txt), or ", last)
    assert printed, last
    save_checkpoint(Path("m"), Pretraining(), step=4, config=model)  # the engine of these tests has no variables to save
    assert run_command(*printed[1].split()) == 0
    for line in (train, "evaluate m --data a"):
        status, error = refuse(line)
        assert (status, error.rpartition("; ")[2]) == (
            1, "copy the right one over it, or run the command that made the data again, which writes it"
        )  # fmt: skip
    (Path("a") / VOCABULARY).write_text(right)
    assert run_command("evaluate", "m", "--data", "a") == 0


def test_what_only_fills_a_batch_is_not_submitted(tasks: dict[str, Path], tmp_path: Path) -> None:
    with Records([tasks["mood"]], "test") as records:
        block: Any = records.kind.empty(len(records), seq=records.seq, pred=0)
        records.gather_into(block, np.arange(len(records)))
    block.is_real_example[5:] = 0
    (tmp_path / "submission").mkdir()
    write_examples([block], {"tfrecord": tmp_path / "submission" / "part.tfrecord"})
    with Records([tmp_path], "submission") as records:
        scorer = ClassificationScorer(replace(TASKS["mrpc"], labels=("neg", "pos")), records, "submission")
        scored = scorer.score({"label": np.eye(2, dtype=np.float32)[[0] * 21]}, tmp_path)
    assert scored == {}
    assert (tmp_path / "MRPC.tsv").read_text().splitlines()[-1] == "4\tneg"


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_the_length_of_answers_and_lists_can_be_chosen(version: str, tasks: dict[str, Path], tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "run", Squad(f"v{version}"))
    found = []
    for more in ([], ["--n-best-size", "2", "--max-answer-length", "1"]):
        assert evaluate(tmp_path / "run", tasks[version], tmp_path / "written", *more, outputs=answer_position_14) == 0
        found.append(json.loads((tmp_path / "written" / "nbest_predictions.json").read_bytes()))
    default, chosen = found
    assert max(len(entries) for entries in default.values()) > 3
    assert max(len(entries) for entries in chosen.values()) <= 3
    assert {len(entry["text"].split()) for entries in chosen.values() for entry in entries} <= {0, 1}
    if version == "2.0":
        run, out = tmp_path / "run", tmp_path / "of_threshold"
        for threshold, are_blank in (("-1000", True), ("0", False)):
            assert evaluate(run, tasks[version], out, f"--null-threshold={threshold}", outputs=answer_position_14) == 0
            predictions = json.loads((out / "predictions.json").read_bytes()).values()
            assert {text == "" for text in predictions} == {are_blank}
        names = [EVALUATED, "nbest_predictions.json", "null_odds.json", "predictions.json"]
        assert sorted(path.name for path in out.iterdir()) == names


def test_labels_may_differ_in_case_and_a_model_of_mnli_is_for_ax(tasks: dict[str, Path], tmp_path: Path) -> None:
    for names in (["Neg", "Pos"], ["LABEL_0", "LABEL_1"]):  # transformers' names, which mean nothing
        save_weights(tmp_path / "model.safetensors", initial_values(MODEL, seed=1, task=MOOD))
        labels = {str(index): name for index, name in enumerate(names)}
        (tmp_path / "config.json").write_text(json.dumps({**json.loads(MODEL.to_json()), "id2label": labels}))
        assert evaluate(tmp_path, tasks["mood"], tmp_path / "written", outputs=answer_pos) == 0
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "diagnostic.tsv").write_text("index\tsentence1\tsentence2\n0\tred cat\tbig dog\n")
    ax = make_task("glue", tmp_path / "files", tmp_path, seq=SEQ, name="ax")
    save_checkpoint(tmp_path / "mnli", Classification(TASKS["mnli"]))
    assert evaluate(tmp_path / "mnli", ax, tmp_path / "written", outputs=lambda ids, _: {"label": np.eye(len(ids), 3)}) == 0
    assert (tmp_path / "written" / "AX.tsv").read_text().startswith("index\tprediction\n0\t")


def test_missing_packages_for_metrics_are_reported_first(
    tasks: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertprep.tasks.glue_metrics.find_spec", lambda _: None)
    save_checkpoint(tmp_path / "run", MOOD)
    status, error = refuse(f"evaluate --init {tmp_path}/run --data {tasks['mood']}")
    assert (status, error.startswith("metrics need scipy")) == (1, True)


def test_all_ranks_stop_where_the_first_cannot_write(
    tasks: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other rank would wait in the next split for ever: here until the barrier of the ranks is broken."""
    out = tmp_path / "written"
    out.mkdir()
    (out / "dev").write_text("in the way")
    save_checkpoint(tmp_path / "run", MOOD)
    words = ["evaluate", "--init", tmp_path / "run", "--data", tasks["mood"], "--out", out, "--batch-size", 4]
    assert run_command_on(make_ranks(2, outputs=answer_pos), *words) == [1, 1]
    first, other = sorted(line for line in capsys.readouterr().err.splitlines() if "error: " in line)
    assert str(out / "dev") in first
    assert "another process could not evaluate this split" in other


def test_records_that_cannot_be_read_have_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those before them would give one, of a part of the split."""
    data, gather = RecordFolder(tmp_path / "data"), Records.gather_good

    def gather_until_8(records: Records, examples: Examples, indices: NDArray[np.int64]) -> list[BadRecordError]:
        if indices.max() >= 8:
            raise BertprepError("part-0: the disk does not answer")
        return gather(records, examples, indices)

    monkeypatch.setattr(Records, "gather_good", gather_until_8)
    save_checkpoint(tmp_path / "run", Pretraining(), config=ModelConfig.preset("tiny", vocab_size=30522))
    assert run_command("evaluate", "--init", tmp_path / "run", "--data", data.folder, "--batch-size", 4) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "part-0: the disk does not answer" in printed.err


def test_a_bad_record_is_an_error_and_there_is_no_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = RecordFolder(tmp_path / "data")
    data.corrupt(4, "test")
    save_checkpoint(tmp_path / "run", Pretraining(), config=ModelConfig.preset("tiny", vocab_size=30522))
    assert run_command("evaluate", "--init", tmp_path / "run", "--data", data.folder) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"{data.folder}/test/part-0: record 4: " in printed.err


def test_records_without_pairs_are_for_a_model_without_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data" / "test").mkdir(parents=True)
    write_examples([column_examples(MaskedExamples, 3, seq=8)], {"tfrecord": tmp_path / "data" / "test" / "part-0"})
    save_checkpoint(tmp_path / "run", Pretraining(has_pairs=False), config=ModelConfig.preset("tiny", vocab_size=30522))
    assert run_command("evaluate", "--init", tmp_path / "run", "--data", tmp_path / "data") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("test, 3 sequences: loss ")
    assert "next_sentence" not in printed


@pytest.mark.tensorflow
def test_pretraining_records_give_both_losses(workdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data,) = workdir.glob("tfrecord/*/golden")
    save_weights(tmp_path / "model.safetensors", initial_values(MODEL, seed=1, task=Pretraining()))
    (tmp_path / "config.json").write_text(MODEL.to_json())
    assert main(["evaluate", "--init", str(tmp_path), "--data", str(data), "--sequences", "10", "--batch-size", "4"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("test, 10 sequences: loss 8.")  # about the log of the size of the vocabulary, and of 2
    assert "masked_lm_accuracy" in printed
    assert "next_sentence_loss 0.6" in printed


def test_predictions_replace_those_of_an_evaluation_alone(tasks: dict[str, Path], tmp_path: Path) -> None:
    """In a folder that was named; test_refusals.py has files of other tools."""
    save_checkpoint(tmp_path / "run", MOOD)
    for outputs in (answer_pos, lambda ids, _: {"label": np.zeros((len(ids), 2), np.float32)}):
        assert evaluate(tmp_path / "run", tasks["mood"], tmp_path / "written", outputs=outputs) == 0
    assert "pos" not in (tmp_path / "written" / "submission" / "predictions.tsv").read_text()
    (tmp_path / "written" / EVALUATED).unlink()
    arguments = ["evaluate", "--init", str(tmp_path / "run"), "--data", str(tasks["mood"]), "--out", str(tmp_path / "written")]
    status, error = refuse(shlex.join(arguments))
    assert (status, "predictions.tsv: exists, and this option did not write it" in error) == (2, True)
