"""A run's reports are the same whether it was stopped or not, on a terminal or not; other ranks are silent."""

import io
import json
import resource
import struct
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bertprep.errors import BertprepError
from bertprep.records.records import BadRecordError
from bertprep.tasks.glue import TASKS
from tests.trainer.numpy_engine import read_entries
from trainer import log as run_log
from trainer.log import EventFile, RunLog, append, evaluation_line, log_line, training_line, truncate_log
from trainer.plot import COLORS, draw_losses, make_figure, read_log
from trainer.tasks.classification import Classification
from trainer.tasks.pretraining import Pretraining

METRICS: dict[str, Any] = {
    "loss": 6.125, "masked_lm_loss": 5.5, "masked_lm_accuracy": 0.18, "next_sentence_loss": 0.625,
    "next_sentence_accuracy": 0.61,
}  # fmt: skip
TRAINED: dict[str, Any] = {
    "step": 600, "epoch": 0.5, **METRICS, "learning_rate": 9.5e-5, "gradient_norm": 1.5, "loss_scale": 1.0, "skipped": 0,
    "sequences_per_second": 1234.0, "tokens_per_second": 157_952.0, "flops_per_second": 12.3e12, "seconds_left": 3725.0,
}  # fmt: skip
EVALUATED: dict[str, Any] = {"step": 600, "sequences": 9000, **METRICS}
ENTRIES: list[dict[str, Any]] = [
    {"kind": "run", "step": 0, "seed": 1},
    {"kind": "train", "step": 100, "loss": 8.0},
    {"kind": "train", "step": 200, "loss": 7.0},
    {"kind": "evaluation", "step": 200, "loss": 7.25},
    {"kind": "train", "step": 300, "loss": 6.5},
]


@pytest.fixture(autouse=True)
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """In place of pictures, the steps of the log that each would show."""
    pictures: list[list[int]] = []

    def draw(logs: dict[str, Path], picture: Path) -> None:
        assert (list(logs), picture.name) == ([picture.parent.name], "loss.png")
        pictures.append([entry["step"] for entry in read_entries(picture.parent)])

    monkeypatch.setattr(run_log, "draw_losses", draw)
    return pictures


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(map(log_line, ENTRIES)))
    return path


def open_log(out: Path, *, steps: int = 6000, first_step: int = 599, rank: int = 0) -> RunLog:
    return RunLog(out, Pretraining(), steps=steps, first_step=first_step, rank=rank)


def run(out: Path, *, first: int, last: int) -> None:
    """The log of a run of 1,000 steps that finishes these, and is stopped; an evaluation is at every 200."""
    with open_log(out, steps=1000, first_step=first) as log:
        for step in range(first + 100, last + 1, 100):
            log.train({**TRAINED, "step": step, "loss": 1000 / step})
            if step % 200 == 0:
                log.evaluation({**EVALUATED, "step": step})


def test_an_entry_is_written_as_json_at_once(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.note(seed=1, out=tmp_path)
        log.train({**TRAINED, "gradient_norm": float("inf")})
        log.evaluation(EVALUATED)
        log.bad_records("test", 600, [BadRecordError("...", index=3, row=0)])
        entries = read_entries(tmp_path)
    assert entries == [
        {"kind": "run", "step": 599, "seed": 1, "out": str(tmp_path)},
        {"kind": "train", **TRAINED, "gradient_norm": None},
        {"kind": "evaluation", **EVALUATED},
        {"kind": "bad_record", "step": 600, "split": "test", "what": "..."},
    ]


@pytest.mark.parametrize(("step", "kept"), [(0, 1), (199, 2), (200, 4), (1000, 5)])
def test_a_log_is_cut_after_a_step(step: int, kept: int, log: Path) -> None:
    with log.open("a") as file:
        file.write('{"kind": "train", "st')
    assert read_log(log) == ENTRIES
    truncate_log(log, step)
    assert log.read_bytes() == b"".join(map(log_line, ENTRIES[:kept]))


@pytest.mark.parametrize("line", ["loss 7.2", "[1, 2]", '{"kind": "train"}'])
def test_an_invalid_line_is_refused(line: str, log: Path) -> None:
    first, *others = log.read_text().splitlines(keepends=True)
    log.write_text(first + line + "\n" + "".join(others))
    with pytest.raises(BertprepError, match=rf"^{log}: line 2: .* remove the line or the file$"):
        read_log(log)


def test_other_files_and_those_that_cannot_be_written_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("my notes\non losses\n")
    with pytest.raises(BertprepError, match=r"log\.jsonl: line 1: .* or the file$"), open_log(tmp_path):
        pass
    assert (tmp_path / "log.jsonl").read_text() == "my notes\non losses\n"
    with pytest.raises(BertprepError, match=r"none\.jsonl: cannot be read: No such file"):
        read_log(tmp_path / "none.jsonl")
    with pytest.raises(BertprepError, match=r"log\.jsonl.*: cannot be written: "), open_log(tmp_path / "log.jsonl"):
        pass
    full = Path("/dev/full")
    with full.open("wb", buffering=0) as file, pytest.raises(BertprepError, match=r"^/dev/full: cannot be written: "):
        append(file, b"data")


def test_a_write_that_ends_early_goes_on_until_it_fails(tmp_path: Path) -> None:
    """At the limit of a file's size the first write has 10 of 16 bytes, and the next one is an error."""
    path, limits = tmp_path / "log.jsonl", resource.getrlimit(resource.RLIMIT_FSIZE)
    with path.open("wb", buffering=0) as file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))  # Python ignores the signal, and gets an error
        try:
            with pytest.raises(BertprepError, match=r"log\.jsonl: cannot be written: File too large"):
                append(file, b"0123456789abcdef")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"0123456789"


def test_losses_are_drawn_after_an_evaluation_and_at_the_end(tmp_path: Path, drawn: list[list[int]]) -> None:
    run(tmp_path / "out", first=0, last=300)
    assert drawn == [[100, 200, 200], [100, 200, 200, 300]]


def test_a_run_that_ends_with_an_evaluation_draws_its_losses_once(tmp_path: Path, drawn: list[list[int]]) -> None:
    run(tmp_path / "out", first=0, last=200)
    assert drawn == [[100, 200, 200]]


def test_a_failing_plot_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise BertprepError("no plot")

    monkeypatch.setattr(run_log, "draw_losses", fail)
    run(tmp_path, first=0, last=500)
    assert capsys.readouterr().err.count("no plot\n") == 1
    assert len(read_entries(tmp_path)) == 7


def test_without_a_terminal_there_are_only_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_log(tmp_path) as log:
        log.advance(sequences=32, tokens=4096)
        log.train(TRAINED)
        log.evaluation(EVALUATED)
    assert capsys.readouterr().err.splitlines() == [training_line(TRAINED, 6000), evaluation_line(Pretraining(), EVALUATED)]


def test_on_a_terminal_a_bar_and_complete_lines_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr("bertprep.progress._SECONDS_ON_TERMINAL", 0.0)
    with open_log(tmp_path) as log:
        log.advance(sequences=32, tokens=4096)
        assert "train: 600/6,000 steps" in terminal.getvalue()
        log.train(TRAINED)
    assert training_line(TRAINED, 6000) + "\n" in terminal.getvalue()


def test_other_ranks_print_and_log_only_bad_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], drawn: list[list[int]]
) -> None:
    """Which it knows when the run is resumed."""
    with open_log(tmp_path, rank=1) as log:
        log.note(seed=1)
        log.advance(sequences=32, tokens=4096)
        log.train(TRAINED)
        log.evaluation(EVALUATED)
        log.keep()
        assert (list(tmp_path.iterdir()), drawn) == ([], [])
        log.bad_records("training", 7, [BadRecordError("part-0: record 3: is bad", index=3, row=0)])
    assert [path.name for path in tmp_path.iterdir()] == ["log-1.jsonl"]
    assert capsys.readouterr().err == "step 7: skipped a bad record: part-0: record 3: is bad\n"
    for rank, first_step, known in ((0, 7, 0), (1, 7, 1), (1, 6, 0)):
        with open_log(tmp_path, rank=rank, first_step=first_step) as log:
            assert len(log.known_bad) == known


def test_the_line_of_training() -> None:
    expected = (
        "step 600/6,000: masked-LM loss 5.5, next-sentence loss 0.625, masked-LM accuracy 0.18, next-sentence accuracy 0.61, "
        "learning rate 9.50e-05, norm 1.5, 1,234.0 sequences/s, 157,952 tokens/s, 12.3 TFLOP/s, 1:02:05 left"
    )
    assert training_line(TRAINED, 6000) == expected
    in_fp16 = training_line({**TRAINED, "loss_scale": 2.0**14, "skipped": 3}, 6000)
    assert in_fp16 == expected.replace("norm 1.5, ", "norm 1.5, loss scale 2^14, 3 skipped, ")


def test_the_line_of_an_evaluation() -> None:
    line = evaluation_line(Pretraining(), EVALUATED)
    assert line.startswith("step 600: test split, 9,000 sequences: masked-LM loss 5.5, ")
    guessed = evaluation_line(Pretraining(), EVALUATED, {"masked_lm_loss": 6.571})
    assert guessed == line.replace("loss 5.5", "loss 5.5 (guessing by frequency 6.57)")
    of_task = evaluation_line(Classification(TASKS["mrpc"]), {"step": 9, "sequences": 408, "loss": 0.4, "accuracy": 0.8431})
    assert of_task == "step 9: dev split, 408 sequences: loss 0.4, accuracy 0.843"


def test_each_start_has_an_events_file_that_sorts_after_the_one_before(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="is in the extra dev")
    paths = []
    for first_step in (0, 600, 1200):
        with closing(EventFile(tmp_path, first_step=first_step)) as file:
            size = file.path.stat().st_size
            file.write(first_step + 1, {"loss": 1.0})
            assert file.path.stat().st_size > size > 0  # complete at once
        paths.append(file.path)
    assert sorted(tmp_path.iterdir()) == paths


@pytest.mark.tensorflow  # which TensorBoard's reader imports where it is installed
def test_tensorboard_reads_the_same_numbers(tmp_path: Path) -> None:
    """Of a resumed run those of its last start: the steps of the first one that were repeated are gone."""
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="is in the extra dev")
    for first_step, loss in ((599, 8.0), (600, 7.0)):
        with open_log(tmp_path, first_step=first_step) as log:
            if first_step == 599:
                log.train(TRAINED)
            log.train({**TRAINED, "step": 601, "loss": loss})
            log.evaluation({**EVALUATED, "step": 70_000, "loss": loss})
    read = accumulators.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in read.Scalars("training/loss")] == [(600, 6.125), (601, 7.0)]
    assert [(event.step, event.value) for event in read.Scalars("test/loss")] == [(70_000, 7.0)]
    first, second = read.Scalars("training/loss")
    assert second.wall_time >= first.wall_time > 1_700_000_000
    of_training = {tag: read.Scalars(tag)[0].value for tag in read.Tags()["scalars"] if tag.startswith("training/")}
    assert of_training == pytest.approx({f"training/{name}": TRAINED[name] for name in TRAINED if name != "step"})
    assert read.Scalars("test/masked_lm_loss")[0].value == 5.5


def test_without_the_package_of_tensorboard_there_is_no_events_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    run(tmp_path, first=0, last=200)
    assert [path.name for path in tmp_path.iterdir()] == ["log.jsonl"]
    assert [entry["step"] for entry in read_entries(tmp_path)] == [100, 200, 200]


Points = list[tuple[float, float]]


def trained(step: int, loss: float | None) -> dict[str, Any]:
    return {"kind": "train", "step": step, "masked_lm_loss": loss, "next_sentence_loss": 0.5}


def evaluated(step: int, loss: float) -> dict[str, Any]:
    metrics = {"masked_lm_accuracy": 0.25, "next_sentence_loss": 0.625, "next_sentence_accuracy": 0.75}
    return {"kind": "evaluation", "step": step, "masked_lm_loss": loss, **metrics}


RUN = [{"kind": "run", "step": 0}, trained(100, 8.0), trained(200, 7.0), evaluated(200, 7.25), trained(300, 6.5)]


def lines_of(run: list[dict[str, Any]], panel: int = 0) -> dict[str, Points]:
    """The points of each line of a panel but the thin ones: 0 is masked LM, 1 is next sentence."""
    lines = make_figure({"tiny": run}).axes[panel].get_lines()
    named = {str(line.get_label()): [(float(x), float(y)) for x, y in line.get_xydata()] for line in lines}
    return {name: points for name, points in named.items() if not name.startswith("_")}


def test_training_is_a_line_the_test_split_points() -> None:
    assert lines_of(RUN) == {
        "tiny: training": [(100, 8.0), (200, 7.0), (300, 6.5)],
        "tiny: test split": [(200, 7.25)],
    }
    below = {"tiny: training": [(100, 0.5), (200, 0.5), (300, 0.5)], "tiny: test split": [(200, 0.625)]}
    assert lines_of(RUN, panel=1) == below
    figure = make_figure({"tiny": RUN})
    labels = [[axes.get_ylabel(), axes.get_xlabel()] for axes in figure.axes]
    assert labels == [["masked-LM loss", ""], ["next-sentence loss", "steps"]]
    assert figure.get_suptitle().startswith("tiny: masked-LM loss 7.25, next-sentence loss 0.625, ")
    assert figure.get_suptitle().endswith(" after 200 steps")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(lines_of(RUN))
    several = make_figure({"adam": RUN, "lamb": RUN})
    assert [line.partition(":")[0] for line in several.get_suptitle().splitlines()] == ["adam", "lamb"]
    assert len({line.get_color() for line in several.axes[0].get_lines()}) == 4


def test_training_and_test_split_differ_in_grays() -> None:
    for light, dark in COLORS:
        red, green, blue = ([int(color[at : at + 2], 16) for color in (light, dark)] for at in (1, 3, 5))
        bright, dim = (0.299 * r + 0.587 * g + 0.114 * b for r, g, b in zip(red, green, blue, strict=True))
        assert bright - dim > 70


def test_losses_of_guessing_are_thin_lines_with_their_names() -> None:
    guessed = {"kind": "run", "step": 0, "guessing_by_frequency": {"masked_lm_loss": 6.571}}
    for run, named in (
        (RUN, [[], ["guessing, ln 2"]]),
        ([guessed, *RUN], [["guessing by frequency, 6.57"], ["guessing, ln 2"]]),
    ):
        figure = make_figure({"tiny": run})
        assert [[text.get_text() for text in axes.texts] for axes in figure.axes] == named


@pytest.mark.parametrize("value", [0.0, 0.69])
def test_a_run_of_one_entry_has_markers_and_an_axis_from_0(value: float) -> None:
    (panel,) = make_figure({"run": [{"kind": "train", "step": 53, "loss": value}]}).axes
    (line,) = panel.get_lines()
    assert line.get_marker() == "."
    bottom, top = panel.get_ylim()
    assert top - bottom >= 0.05
    assert -0.01 < bottom <= value < top


def test_all_text_is_inside_of_the_picture() -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    name = "tiny_wikicorpus_en_bookscorpus_ofrecord_seq_128_adam_1000000_steps_" * 3
    long = {"kind": "evaluation", "step": 9_000_000, **METRICS, "another_accuracy": 0.123}
    figure = make_figure({name: [trained(100, 8.0), long], f"{name}2": [trained(100, 8.0), long]})
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    for artist in (*figure.texts, *figure.legends):
        box = artist.get_window_extent(renderer)
        assert 0 <= box.x0 < box.x1 <= 1200
        assert 0 <= box.y0 < box.y1 <= 720


def test_a_scored_task_has_its_loss_and_its_first_metric() -> None:
    dev = {"kind": "evaluation", "step": 9, "sequences": 408, "loss": 0.25, "accuracy": 0.8, "f1": 0.9}
    above, below = make_figure({"mrpc": [{"kind": "train", "step": 9, "loss": 0.5, "accuracy": 0.75}, dev]}).axes
    assert (above.get_ylabel(), below.get_ylabel()) == ("loss", "accuracy")
    assert [float(line.get_ydata()[0]) for line in (*above.get_lines(), *below.get_lines())] == [0.5, 0.25, 0.75, 0.8]


def test_the_file_is_a_png_of_1200_by_720_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(entry) + "\n" for entry in RUN))
    assert read_log(log) == RUN
    draw_losses({"run": log}, tmp_path / "loss.png")
    png = (tmp_path / "loss.png").read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", png[16:24]) == (1200, 720)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.jsonl", "loss.png"]
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(BertprepError, match=r"^loss\.png .*matplotlib"):
        draw_losses({"run": log}, tmp_path / "loss.png")


def test_a_log_without_losses_cannot_be_drawn() -> None:
    with pytest.raises(BertprepError, match="the logs have no losses yet"):
        make_figure({"run": RUN[:1]})
