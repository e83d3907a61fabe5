"""A run's reports are the same whether it was stopped or not, on a terminal or not; other ranks are silent."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bertprep.errors import BertprepError
from trainer import log as run_log
from trainer.log import RunLog, evaluation_line, training_line
from trainer.tasks import evaluated_split
from trainer.tasks.pretraining import PRETRAINING
from trainer.tasks.squad import Squad

TRAINED: dict[str, Any] = {
    "step": 600,
    "phase": 1,
    "epoch": 0.5,
    "loss": 6.125,
    "masked_lm_loss": 5.5,
    "masked_lm_accuracy": 0.18,
    "next_sentence_loss": 0.625,
    "next_sentence_accuracy": 0.61,
    "learning_rate": 9.5e-5,
    "gradient_norm": 1.5,
    "loss_scale": 1.0,
    "skipped": 0,
    "sequences_per_second": 1234.0,
    "tokens_per_second": 157_952.0,
    "flops_per_second": 12.3e12,
    "seconds_left": 3725.0,
}
EVALUATED: dict[str, Any] = {
    "step": 600,
    "phase": 1,
    "sequences": 9000,
    "loss": 6.07,
    "masked_lm_loss": 5.41,
    "masked_lm_accuracy": 0.18,
    "next_sentence_loss": 0.66,
    "next_sentence_accuracy": 0.61,
    "unigram_loss": 6.02,
}


@pytest.fixture(autouse=True)
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """In place of pictures, the steps of the log that each would show."""
    pictures: list[list[int]] = []

    def draw(logs: dict[str, Path], picture: Path) -> None:
        assert (list(logs), picture.name) == ([picture.parent.name], "loss.png")
        pictures.append([entry["step"] for entry in read_entries(picture.parent)])

    monkeypatch.setattr(run_log, "draw_losses", draw)
    return pictures


def read_entries(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def run(out: Path, *, first: int, last: int) -> None:
    """The log of a run of 1,000 steps that finishes these, and is stopped; an evaluation is at every 200."""
    with RunLog(out, PRETRAINING, steps=1000, first_step=first) as log:
        for step in range(first + 100, last + 1, 100):
            log.trained({**TRAINED, "step": step, "loss": 1000 / step})
            if step % 200 == 0:
                log.evaluated({**EVALUATED, "step": step})


def test_an_entry_is_written_as_json_immediately(tmp_path: Path) -> None:
    with RunLog(tmp_path, PRETRAINING, steps=6000, first_step=0) as log:
        log.note(seed=1, out=tmp_path)
        log.trained(TRAINED)
        log.evaluated(EVALUATED)
        settings, trained, evaluated = read_entries(tmp_path)
    assert settings == {"kind": "run", "step": 0, "seed": 1, "out": str(tmp_path)}
    assert trained.pop("kind") == "train"
    assert list(trained.items()) == list(TRAINED.items())
    assert evaluated.pop("kind") == "evaluation"
    assert list(evaluated.items()) == list(EVALUATED.items())


def test_an_infinite_gradient_norm_is_null(tmp_path: Path) -> None:
    with RunLog(tmp_path, PRETRAINING, steps=6000, first_step=0) as log:
        log.trained({**TRAINED, "gradient_norm": float("inf")})
    assert read_entries(tmp_path)[0]["gradient_norm"] is None


def test_a_resumed_run_has_the_log_of_one_that_was_never_stopped(tmp_path: Path) -> None:
    run(tmp_path / "whole", first=0, last=1000)
    run(tmp_path / "stopped", first=0, last=500)
    with (tmp_path / "stopped/log.jsonl").open("a") as file:
        file.write('{"kind": "train", "st')  # torn off by a kill
    run(tmp_path / "stopped", first=300, last=1000)  # from the checkpoint of step 300
    assert (tmp_path / "stopped/log.jsonl").read_bytes() == (tmp_path / "whole/log.jsonl").read_bytes()


def test_a_run_from_the_start_keeps_nothing_of_the_one_before(tmp_path: Path) -> None:
    run(tmp_path, first=0, last=300)
    run(tmp_path, first=0, last=100)
    assert [entry["step"] for entry in read_entries(tmp_path)] == [100]


def test_losses_are_drawn_after_an_evaluation_and_at_the_end_if_something_is_new(
    tmp_path: Path, drawn: list[list[int]]
) -> None:
    run(tmp_path / "ends with an evaluation", first=0, last=200)
    assert drawn == [[100, 200, 200]]
    run(tmp_path / "ends between", first=0, last=300)
    assert drawn[1:] == [[100, 200, 200], [100, 200, 200, 300]]
    run(tmp_path / "does nothing", first=0, last=0)
    assert len(drawn) == 3


def test_a_failing_plot_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise BertprepError("loss.png is not drawn: matplotlib is not installed")

    monkeypatch.setattr(run_log, "draw_losses", fail)
    run(tmp_path, first=0, last=500)
    assert capsys.readouterr().err.count("loss.png is not drawn: matplotlib is not installed\n") == 1
    assert len(read_entries(tmp_path)) == 7


def test_without_a_terminal_there_are_only_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunLog(tmp_path, PRETRAINING, steps=6000, first_step=599) as log:
        log.note(seed=1)
        log.advanced(sequences=32, tokens=4096)
        log.trained(TRAINED)
        log.evaluated(EVALUATED)
    assert capsys.readouterr().err.splitlines() == [
        training_line(PRETRAINING, TRAINED, 6000),
        evaluation_line(PRETRAINING, EVALUATED),
    ]


def test_on_a_terminal_lines_are_complete_above_a_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with RunLog(tmp_path, PRETRAINING, steps=6000, first_step=599) as log:
        assert "599/6000" in sys.stderr.getvalue()  # type: ignore[attr-defined]
        log.advanced(sequences=32, tokens=4096)
        log.trained(TRAINED)
        shown = sys.stderr.getvalue()  # type: ignore[attr-defined]
    _, before, after = shown.partition(training_line(PRETRAINING, TRAINED, 6000) + "\n")
    assert before
    assert "600/6000" in after


def test_other_ranks_write_and_print_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], drawn: list[list[int]]
) -> None:
    with RunLog(tmp_path / "out", PRETRAINING, steps=6000, first_step=0, is_shown=False) as log:
        log.note(seed=1)
        log.advanced(sequences=32, tokens=4096)
        log.trained(TRAINED)
        log.evaluated(EVALUATED)
    assert (list(tmp_path.iterdir()), capsys.readouterr().err, drawn) == ([], "", [])


def test_a_log_of_something_else_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("my notes\n")
    with (
        pytest.raises(BertprepError, match=r"log\.jsonl: line 1: expected an entry"),
        RunLog(tmp_path, PRETRAINING, steps=10, first_step=0),
    ):
        pass
    assert (tmp_path / "log.jsonl").read_text() == "my notes\n"


def test_a_folder_that_cannot_be_created_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with (
        pytest.raises(BertprepError, match=r"out.*: cannot be written: "),
        RunLog(tmp_path / "out", PRETRAINING, steps=10, first_step=0),
    ):
        pass


@pytest.mark.tensorflow
def test_tensorboard_has_the_same_numbers(tmp_path: Path) -> None:
    import tensorflow as tf

    with RunLog(tmp_path, PRETRAINING, steps=6000, first_step=0) as log:
        log.trained(TRAINED)
        log.evaluated({**EVALUATED, "unigram_loss": None})
    (path,) = (tmp_path / "tensorboard").iterdir()
    _, _, trained, evaluated = tf.compat.v1.train.summary_iterator(str(path))
    of_training = {value.tag: value.simple_value for value in trained.summary.value}
    assert (trained.step, of_training["training/masked_lm_loss"], of_training["training/tokens_per_second"]) == (
        600,
        5.5,
        157952,
    )
    assert set(of_training) == {f"training/{name}" for name in TRAINED if name != "step"}
    of_test = {value.tag: value.simple_value for value in evaluated.summary.value}
    assert of_test["test/masked_lm_loss"] == pytest.approx(5.41)
    assert "test/unigram_loss" not in of_test


def test_the_line_of_training() -> None:
    expected = (
        "step 600/6,000: loss 6.12 (masked LM 5.50, next sentence 0.62), accuracy 0.18/0.61, rate 9.50e-05, norm 1.5, "
        "1.23k sequences/s, 158k tokens/s, 12.3 TFLOP/s, 1:02:05 left"
    )
    assert training_line(PRETRAINING, TRAINED, 6000) == expected
    in_fp16 = training_line(PRETRAINING, {**TRAINED, "loss_scale": 2.0**14, "skipped": 3}, 6000)
    assert in_fp16 == expected.replace("norm 1.5, ", "norm 1.5, scale 2^14, 3 skipped, ")


def test_no_line_of_training_is_wider_than_a_wide_terminal() -> None:
    longest = dict(
        TRAINED,
        step=999_900,
        loss=11.123,
        loss_scale=2.0**24,
        skipped=1234,
        sequences_per_second=12_345.0,
        tokens_per_second=1_580_190.0,
        flops_per_second=1.234e15,
        seconds_left=36 * 86_400.0,
    )
    assert len(training_line(PRETRAINING, longest, 1_000_000)) < 210


def test_tasks_with_a_score_are_evaluated_on_their_dev_set() -> None:
    assert [evaluated_split(task) for task in (PRETRAINING, Squad("1.1"))] == ["test", "dev"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "(accuracy 0.18; by unigram frequencies 6.02)"),
        ({"unigram_loss": None}, "(accuracy 0.18)"),
    ],
)
def test_the_line_of_an_evaluation(change: dict[str, Any], expected: str) -> None:
    assert evaluation_line(PRETRAINING, {**EVALUATED, **change}) == (
        f"step 600: test split, 9,000 sequences: masked-LM loss 5.41 {expected}, next sentence 0.66 (0.61)"
    )
