"""Forecasts against the records and bytes then made; times are compared by scripts/benchmark_plan."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import bertprep
from bertprep.cli import main
from bertprep.commands.create import Created, create
from bertprep.commands.plan import plan, published_phases, space_lines
from bertprep.commands.shard import shard
from bertprep.errors import BertprepError, UsageError
from bertprep.planning.measure import MadePiece, Measured, count_tokens, forecast
from bertprep.planning.pieces import Piece, choose_pieces, cut_documents
from bertprep.planning.training import TrainingRecords, TrainingUse, read_training_records
from bertprep.records.make import TextShard
from tests.corpora import deal, sums
from tests.golden import GOLDEN

VOCABULARY = GOLDEN / "vocab.txt"


def total(created: Created, record_format: str, fact: str, split: str = "") -> int:
    """The sum of a fact over the manifest of one format."""
    files = created.manifests[record_format].files
    return sum(int(facts[fact]) for name, facts in files.items() if name.startswith(split))


def test_a_small_corpus_is_measured_whole_so_that_its_numbers_are_exact(golden_corpus: Path, tmp_path: Path) -> None:
    inputs = deal(golden_corpus, tmp_path / "text", 3)
    settings = bertprep.InstanceSettings(dupe=2, seq=64, pred=10)
    planned = bertprep.plan(inputs=inputs, output=tmp_path / "out", vocab=VOCABULARY, settings=settings, workers=2)
    created = create(inputs=inputs, output=tmp_path / "out", vocab=VOCABULARY, settings=settings, workers=1)
    assert (planned.training_records, planned.test_records) == (total(created, "tfrecord", "examples"), 0)
    assert planned.size_bytes == {name: total(created, name, "bytes") for name in ("tfrecord", "ofrecord")}
    assert planned.measured_bytes == planned.text_bytes == sum(path.stat().st_size for path in inputs)
    assert planned.fits


def test_gzip_is_measured_too(golden_corpus: Path, tmp_path: Path) -> None:
    asked: dict[str, Any] = {
        "inputs": deal(golden_corpus, tmp_path / "text", 2), "output": tmp_path / "out", "vocab": VOCABULARY, "workers": 1,
        "formats": "tfrecord", "dialect": bertprep.Dialect(feature_names="tf2", compress="gzip"),
    }  # fmt: skip
    planned = bertprep.plan(**asked)
    assert planned.size_bytes == {"tfrecord": total(create(**asked), "tfrecord", "bytes")}
    assert [room.needed_bytes for room in bertprep.plan(**asked).rooms] == [0]


class Sample(NamedTuple):
    """The sample corpus in shards, and what was made of it."""

    workdir: Path
    created: Created


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    workdir = tmp_path_factory.mktemp("sample")
    shard(workdir=workdir, workers=1)
    return Sample(workdir, create(workdir=workdir, vocab=VOCABULARY, formats="tfrecord", workers=1))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_piece_of_text_predicts_all_records_and_bytes_within_a_tenth(sample: Sample, workers: int, tmp_path: Path) -> None:
    workdir = tmp_path / "data"
    shutil.copytree(sample.workdir / "sharded", workdir / "sharded")
    before = sums(workdir)
    planned = plan(workdir=workdir, vocab=VOCABULARY, formats="tfrecord", workers=workers, measured_bytes=2_000_000)
    assert planned.measured_bytes < 0.2 * planned.text_bytes
    for split, records in (("training", planned.training_records), ("test", planned.test_records)):
        assert records == pytest.approx(total(sample.created, "tfrecord", "examples", split), rel=0.1)
    assert planned.size_bytes == {"tfrecord": pytest.approx(total(sample.created, "tfrecord", "bytes"), rel=0.1)}
    assert planned.padding_share == pytest.approx(padding_of(sample.created.folders["tfrecord"]), abs=0.02)
    assert sums(workdir) == before


def padding_of(folder: Path) -> float:
    counts = [count_tokens(path, 1 << 40) for path in folder.rglob("*.tfrecord")]
    records, tokens = map(sum, zip(*counts, strict=True))
    return 1 - tokens / (records * 128)


def test_existing_records_need_no_more_space(sample: Sample) -> None:
    planned = plan(workdir=sample.workdir, vocab=VOCABULARY, formats="tfrecord", workers=1)
    assert [room.needed_bytes for room in planned.rooms] == [0]


def test_too_small_a_disk_is_reported(golden_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1_000))
    planned = plan(inputs=[golden_corpus], output=tmp_path, vocab=VOCABULARY, workers=1)
    assert not planned.fits
    assert "NOT ENOUGH" in space_lines([planned])[0]


def test_invalid_text_is_reported_as_by_create(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.txt"
    wrong.write_bytes(b"One sentence.\nAnother \xff one.\n\n")
    messages = []
    for function in (plan, create):
        with pytest.raises(BertprepError) as error:
            function(inputs=[wrong], output=tmp_path / "out", vocab=VOCABULARY, workers=1)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def test_pieces_are_whole_documents_from_all_over_a_large_shard(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"document {number:06d}\nits second line\n\n" for number in range(50_000)))
    size = text.stat().st_size
    one = TextShard(text, 0, {"tfrecord": "made"})
    pieces = choose_pieces([one], [size], tmp_path, workers=1, dupe=5, budget_bytes=size - 1)
    assert len({piece.path for piece in pieces}) == 8
    numbers = []
    for piece in pieces:
        documents = piece.path.read_text().split("\n\n")[:-1]
        assert all(len(document.split("\n")) == 2 for document in documents)
        numbers += [int(document[9:15]) for document in documents]
    assert len(set(numbers)) == len(numbers)
    assert min(np.histogram(numbers, bins=8, range=(0, 50_000))[0].tolist()) > 0.9 * len(numbers) / 8


def test_a_document_larger_than_a_piece_is_cut_at_a_line(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("One of very many lines.\n" * 100_000)
    piece = cut_documents(text, 0, text.stat().st_size, 400_000)
    assert 390_000 < len(piece) <= 400_008
    assert set(piece.split(b"\n")) == {b"One of very many lines.", b""}


def run_of(sizes: list[int], *, cpu: float, wall: float, peak_bytes: int) -> Measured:
    """A measurement of pieces of these sizes."""
    pieces = [Piece(TextShard(Path("text"), 0, {}), Path("text"), size, True) for size in sizes]
    return Measured([MadePiece(piece, 1, {}, 1, 1, 0, peak_bytes) for piece in pieces], cpu, wall, peak_bytes)


def test_times_scale_by_text_and_the_busiest_worker_and_memory_by_the_largest_shard() -> None:
    """Starting takes 3 s of CPU and 2 s; a byte takes a millisecond of CPU, two of a worker's time, and 5 bytes of memory."""
    start = run_of([10, 10], cpu=3 + 0.02, wall=2 + 0.02, peak_bytes=1000 + 50)
    measured = run_of([100] * 4, cpu=3 + 0.4, wall=2 + 0.4, peak_bytes=1000 + 500)
    expected = forecast([1000, 1000, 500], start, measured, workers=2)
    assert expected.cpu_seconds == pytest.approx(3 + 2.5)
    assert expected.wall_seconds == pytest.approx(2 + 1.5 * 2)  # one worker makes the first and the third
    assert expected.peak_bytes == 1000 + 5000


def test_all_settings_reach_the_measurement(golden_corpus: Path, tmp_path: Path) -> None:
    asked: dict[str, Any] = {
        "inputs": deal(golden_corpus, tmp_path / "text", 2), "output": tmp_path / "out", "vocab": VOCABULARY, "workers": 1,
        "formats": "tfrecord",
        "settings": bertprep.InstanceSettings(short_seq_prob=0.9, whole_word=True, one_seed=True, seed=7, masked_lm_prob=0.3),
    }  # fmt: skip
    planned = bertprep.plan(**asked)
    created = create(**asked)
    assert planned.training_records == total(created, "tfrecord", "examples")
    assert planned.size_bytes == {"tfrecord": total(created, "tfrecord", "bytes")}


def test_a_run_over_records() -> None:
    use = TrainingUse(TrainingRecords(records=1000, seq=128, pred=20, dupe=5, padding_share=0.25), steps=100, global_batch=40)
    assert (use.sequences, use.epochs_over_records, use.epochs_over_text) == (4000, 4.0, 20.0)
    assert (use.tokens, use.text_tokens) == (512_000, 384_000)


def test_each_tenth_of_the_steps_has_equally_many_sequences() -> None:
    assert published_phases(7_820, (65_536, 32_768)) == [(7_038, 65_536), (1_564, 32_768)]
    assert published_phases(100, (256,)) == [(90, 256), (10, 256)]


def without_manifest(folder: Path, to: Path) -> Path:
    shutil.copytree(folder / "training", to)
    return to


@pytest.mark.parametrize(
    ("find", "dupe"),
    [
        pytest.param(lambda folder, _: folder, 5, id="the folder"),
        pytest.param(lambda folder, _: folder / "training", 5, id="training in it"),
        pytest.param(lambda folder, temporary: without_manifest(folder, temporary / "other"), None, id="of another tool"),
    ],
)
def test_training_records_are_found_and_counted(
    find: Callable[[Path, Path], Path], dupe: int | None, sample: Sample, tmp_path: Path
) -> None:
    found = read_training_records(find(sample.created.folders["tfrecord"], tmp_path))
    assert (found.records, found.dupe) == (total(sample.created, "tfrecord", "examples", "training"), dupe)
    assert (found.seq, found.pred) == (128, 20)
    assert found.padding_share == pytest.approx(padding_of(sample.created.folders["tfrecord"]), abs=0.02)


def test_the_command_shows_both_phases_and_writes_them(
    golden_corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["plan", "--input", golden_corpus, "--output", tmp_path / "out", "--vocab", VOCABULARY, "--phases"]
    assert main([*map(str, command), "--workers", "1", "--json", str(tmp_path / "plan.json")]) == 0
    shown = capsys.readouterr().out
    assert "128/20" in shown
    assert "512/80" in shown
    plans: list[dict[str, Any]] = json.loads((tmp_path / "plan.json").read_text())["plans"]
    assert [one["training"]["steps"] for one in plans] == [7_038, 1_564]
    assert not (tmp_path / "out").exists()


def test_the_command_shows_what_a_run_makes_of_records(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    folder = sample.created.folders["tfrecord"]
    assert main(["plan", "--records", str(folder), "--steps", "1000", "--global-batch", "256"]) == 0
    assert "256,000" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "5"], "--steps and --global-batch go together"),
        (["--global-batch", "5", "6", "--steps", "7"], "expected one number without --phases, found 2"),
        (["--phases", "--steps", "9"], "--steps 9: leaves a phase without a step"),
        (["--records", "nowhere"], "needs a training run"),
        (["--records", "nowhere", "--phases"], "expected two folders with --phases"),
        (["--records", "nowhere", "--steps", "5", "--global-batch", "6"], "nowhere: is not a folder"),
        (["--output", "out"], "--output goes with --input"),
        (["--input", "nowhere.txt"], "--input nowhere.txt: does not exist"),
    ],
)
def test_an_impossible_request_is_reported(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["plan", *arguments]) == UsageError.exit_status
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
