"""Which run resumes from a checkpoint: the same one, on the same data in whatever files, or a longer one that is requested."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import bertprep
from bertprep.config import DEFAULT_FORMATS, InstanceSettings, RecordFormat
from bertprep.files.lock import locked
from bertprep.records import MaskedExamples
from bertprep.records.write import write_examples
from bertprep.work.layout import MANIFEST
from tests.golden import GOLDEN
from tests.records.columns import column_examples
from tests.trainer.numpy_engine import RecordFolder, at_step, checkpoints, pattern_of, refuse, run_command, saved_steps, sigterm
from trainer.checkpoint import read_header
from trainer.cli import FINISHED, STOPPED

FORMATS = (*DEFAULT_FORMATS, RecordFormat.ARROW)
RUN = (
    "pretrain --engine tensorflow --data a --model a/model.json --out out --steps 10 --warmup-steps 4 --batch-size 8 "
    "--save-every 5"
)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordFolder:
    monkeypatch.chdir(tmp_path)
    return RecordFolder(Path("a"))


def pretrain(words: str = "", **engine: Any) -> int:
    """Start the run of these tests, changed by options, of which the last counts; other data come in place of its own."""
    line = RUN.replace("--data a", "") if words.startswith("--data") else RUN
    return run_command(*line.split(), *words.split(), **engine)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("--seed 1", "--seed 12345 -> 1"),
        ("--lr 1", "--lr 0.0001 -> 1.0;"),
        ("--beta1 0.8", "--beta1 0.9 -> 0.8"),
        ("--optimizer lamb", "--lr 0.0001 -> 0.002, --schedule | 1.0 -> 0.5, --optimizer adam -> lamb"),
        ("--schedule nvidia", "--schedule | False -> True"),
        ("--no-dropout", "--no-dropout | 0.1 -> 0.0"),
        ("--attention-dropout 0", "--attention-dropout 0.1 -> 0.0"),
        ("--model b/model.json", "--model: vocab_size 30522 -> 40000"),
        ("--data unpaired", "pretraining with sentence pairs | without"),
        ("--batch-size 4", "--batch-size | 8 -> 4"),
        ("--amp bf16", "--amp off -> bf16"),
        ("--shuffle-shards 8", "--shuffle-shards 0 -> 8"),
        ("--steps 20", "--steps 10 -> 20; add --lengthen"),
        ("--steps 8 --lengthen", "--steps 10 -> 8; resume with the same"),
        ("--steps 20 --lengthen --lr 1", "--lr 0.0001 -> 1.0 | ; resume with the same"),
    ],
)
def test_a_run_with_other_options_is_refused(words: str, parts: str, data: RecordFolder) -> None:
    other = RecordFolder(Path("b"))
    model = (data.folder / "model.json").read_text()
    (other.folder / "model.json").write_text(model.replace("30522", "40000"))
    Path("unpaired/training").mkdir(parents=True)
    write_examples([column_examples(MaskedExamples, 20, seq=8)], {"tfrecord": Path("unpaired/training/part-0")})
    assert pretrain(on_step=at_step(4, sigterm)) == STOPPED
    saved = checkpoints(Path("out"))
    line = RUN.replace("--data a", "") if words.startswith("--data") else RUN
    status, error = refuse(f"{line} {words}")
    assert status == 2
    assert re.match(f"out/checkpoint-000000005.safetensors: .*{pattern_of(parts)}", error), error
    assert checkpoints(Path("out")) == saved


@pytest.mark.usefixtures("data")
def test_a_folder_that_cannot_be_resumed_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain(on_step=at_step(4, sigterm)) == STOPPED
    assert "leave --no-resume out" in refuse(f"{RUN} --no-resume")[1]
    with locked(Path("out")):
        capsys.readouterr()
        assert pretrain() == 1
        assert "out: another run is writing here" in capsys.readouterr().err
    Path("out/checkpoint-000000005.safetensors").write_bytes(b"")
    assert refuse(RUN)[1].startswith("out/checkpoint-000000005.safetensors: ")


@pytest.mark.usefixtures("data")
def test_a_run_without_amp_resumes_in_the_precision_of_its_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain("--amp bf16", on_step=at_step(4, sigterm)) == STOPPED
    capsys.readouterr()
    assert pretrain() == FINISHED
    assert "bf16 (the checkpoint's)" in capsys.readouterr().err
    assert read_header(Path("out/checkpoint-000000010.safetensors"))["precision"] == "bf16"


@pytest.mark.usefixtures("data")
def test_a_finished_run_is_not_trained_and_a_corrupt_one_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain() == FINISHED
    capsys.readouterr()
    assert pretrain(on_open=lambda _: pytest.fail("a framework was loaded")) == FINISHED
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("out: is finished, with 10 steps; --init out")
    last = Path("out/checkpoint-000000010.safetensors")
    last.write_bytes(last.read_bytes()[:-1] + b"?")
    assert refuse(RUN)[1].startswith(f"{last}: ")


@pytest.fixture(scope="module")
def records(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of the same records, with their manifests, by format."""
    workdir = tmp_path_factory.mktemp("data")
    bertprep.shard([golden_corpus], shards=2, splitter="lines", workdir=workdir, corpus="golden", workers=1)
    settings, vocab = InstanceSettings(seq=32, pred=5, dupe=1), GOLDEN / "vocab.txt"
    made = bertprep.create(**vars(settings), workdir=workdir, corpus="golden", vocab=vocab, formats=FORMATS, workers=1)
    return {name: made.folders[name] for name in FORMATS}


@pytest.mark.parametrize("has_manifest", [True, False])
def test_records_resume_a_run_on_the_same_records_in_another_format(
    has_manifest: bool, records: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def on(name: str, out: str, **engine: Any) -> int:
        shutil.copytree(records[name], tmp_path / name, dirs_exist_ok=True)
        if not has_manifest:
            (tmp_path / name / MANIFEST).unlink()
        return pretrain(f"--data {tmp_path / name} --model tiny --out {tmp_path / out}", **engine)

    assert on("tfrecord", "uninterrupted") == FINISHED
    for name, stop_at in zip(FORMATS, (2, 4, 0), strict=True):
        status = on(name, "resumed", on_step=at_step(stop_at, sigterm))
        assert status == (STOPPED if stop_at else FINISHED), capsys.readouterr().err
    assert saved_steps(tmp_path / "resumed") == [3, 5, 10]
    last = "checkpoint-000000010.safetensors"
    resumed, uninterrupted = (read_header(tmp_path / out / last) for out in ("resumed", "uninterrupted"))
    assert {**resumed, "files": None} == {**uninterrupted, "files": None}  # the header has the sha256 of the arrays
