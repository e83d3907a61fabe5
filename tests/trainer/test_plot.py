"""The plot shows the logs: training, test split, the unigram loss, phases, one run or several."""

import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from bertprep.errors import BertprepError
from trainer.plot import draw_losses, make_figure


def train(step: int, loss: float | None, *, phase: int = 1) -> dict[str, Any]:
    return {"kind": "train", "step": step, "phase": phase, "masked_lm_loss": loss, "next_sentence_loss": 0.5}


def evaluation(step: int, loss: float, *, phase: int = 1, unigram_loss: float | None = 6.0) -> dict[str, Any]:
    return {
        "kind": "evaluation",
        "step": step,
        "phase": phase,
        "masked_lm_loss": loss,
        "masked_lm_accuracy": 0.25,
        "next_sentence_loss": 0.625,
        "next_sentence_accuracy": 0.75,
        "unigram_loss": unigram_loss,
    }


def write_log(path: Path, entries: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    entries = [{"kind": "run", "step": 0}, train(100, 8.0), train(200, 7.0), evaluation(200, 7.25), train(300, 6.5)]
    return write_log(tmp_path / "log.jsonl", entries)


def lines_of(logs: dict[str, Path], panel: int = 0) -> dict[str, list[tuple[float, float]]]:
    """The points of each line of a panel that has a name: 0 is masked LM, 1 is next sentence."""
    lines = make_figure(logs).axes[panel].get_lines()
    named = {str(line.get_label()): [(float(x), float(y)) for x, y in line.get_xydata()] for line in lines}
    return {name: points for name, points in named.items() if not name.startswith("_")}


def test_training_is_a_line_the_test_split_points_and_the_unigram_loss_reaches_from_the_start(log: Path) -> None:
    assert lines_of({"run": log}) == {
        "training": [(100, 8.0), (200, 7.0), (300, 6.5)],
        "test split": [(200, 7.25)],
        "test split, by the training labels' frequencies": [(100, 6.0), (200, 6.0)],
    }
    assert lines_of({"run": log}, panel=1) == {
        "training": [(100, 0.5), (200, 0.5), (300, 0.5)],
        "test split": [(200, 0.625)],
    }


def test_the_picture_says_what_it_shows_and_how_it_ended(log: Path) -> None:
    figure = make_figure({"tiny": log})
    above, below = figure.axes
    assert (above.get_ylabel(), below.get_ylabel()) == ("masked-LM loss (nats)", "next-sentence loss (nats)")
    assert below.get_xlabel() == "steps"
    title = "tiny: test split after 200 steps: masked-LM loss 7.25 (accuracy 0.25), next sentence 0.62 (0.75)"
    assert figure.get_suptitle() == title
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["training", "test split", "test split, by the training labels' frequencies"]


def test_many_entries_have_a_moving_mean_in_each_phase_and_a_line_where_one_ends(tmp_path: Path) -> None:
    first = [train(step, 5.0 + (-1) ** step) for step in range(1, 101)]
    second = [train(step, 9.0, phase=2) for step in range(101, 151)]
    log = write_log(tmp_path / "log.jsonl", [*first, *second])
    as_logged, mean, mean_of_second, end_of_phase = (
        [(float(x), float(y)) for x, y in line.get_xydata()] for line in make_figure({"run": log}).axes[0].get_lines()
    )
    assert as_logged == [(entry["step"], entry["masked_lm_loss"]) for entry in [*first, *second]]
    assert mean[49] == (50, pytest.approx(5.2))  # 48 to 52: 6 4 6 4 6
    assert mean[-1] == (100, 6)
    assert mean_of_second == [(step, 9) for step in range(101, 151)]
    assert [x for x, _ in end_of_phase] == [100, 100]


def test_several_runs_are_told_apart(log: Path, tmp_path: Path) -> None:
    other = write_log(tmp_path / "other.jsonl", [train(100, 7.5), evaluation(100, 7.0, unigram_loss=None)])
    figure = make_figure({"adam": log, "lamb": other})
    colours = {line.get_label(): line.get_color() for line in figure.axes[0].get_lines()}
    assert list(colours)[:4] == ["adam, training", "adam, test split", "lamb, training", "lamb, test split"]
    assert colours["adam, training"] == colours["adam, test split"]
    assert colours["lamb, training"] == colours["lamb, test split"] != colours["adam, training"]
    assert [line.partition(" after")[0] for line in figure.get_suptitle().splitlines()] == [
        "adam: test split",
        "lamb: test split",
    ]


def test_a_loss_that_is_nan_is_left_out(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.jsonl", [train(1, 8.0), train(2, None)])
    assert lines_of({"run": log})["training"] == [(1, 8.0)]


def test_the_file_is_a_png_of_1200_by_720_pixels(log: Path, tmp_path: Path) -> None:
    draw_losses({"run": log}, tmp_path / "loss.png")
    png = (tmp_path / "loss.png").read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", png[16:24]) == (1200, 720)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.jsonl", "loss.png"]


def test_without_matplotlib_one_line_says_so(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(BertprepError, match=r"^loss\.png is not drawn: matplotlib is not installed$"):
        draw_losses({"run": log}, tmp_path / "loss.png")


def test_a_log_without_losses_cannot_be_drawn(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.jsonl", [{"kind": "run", "step": 0}])
    with pytest.raises(BertprepError, match=r"log\.jsonl: holds no losses yet"):
        make_figure({"run": log})
