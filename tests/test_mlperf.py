"""examples/mlperf.py on small made text: its records, its table, its training, and what is refused.

The real text and checkpoint are not here, so what is compared with the published numbers differs, and the exit status is 1.
"""

import argparse
import hashlib
import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bertprep
from bertprep.instances import load_vocabulary
from bertprep.options import read_options
from bertprep.terminal import printable
from examples import mlperf
from tests.golden import GOLDEN
from tests.trainer.test_data import opened
from trainer.cli import make_parser
from trainer.settings import OptimizerSettings
from trainer.tasks.pretraining import PretrainOptions

SCRIPT = Path(__file__).parents[1] / "examples" / "mlperf.py"
VOCABULARY = GOLDEN / "vocab.txt"
PARTS = ("part-00000-of-00003", "part-00001-of-00003", "part-00002-of-00003")


def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, SCRIPT, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})


def table(shown: str) -> dict[str, list[str]]:
    """The cells of each row after the first, by that."""
    rows = [re.split(r"\s{2,}", line) for line in shown.splitlines()]
    return {row[0]: row[1:] for row in rows if len(row) > 1}


@pytest.fixture(scope="module")
def text(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three parts of some documents each, and short documents enough for 10,000 records in eval.txt."""
    folder = tmp_path_factory.mktemp("results4")
    documents = golden_corpus.read_text(encoding="utf-8").strip("\n").split("\n\n")
    for number, name in enumerate(PARTS):
        (folder / name).write_text("\n\n".join(documents[number * 8 : number * 8 + 8]) + "\n", encoding="utf-8")
    sentences = [line for document in documents for line in document.split("\n") if len(line) < 200]
    rng = random.Random(0)
    (folder / "eval.txt").write_text(
        "\n\n".join("\n".join(rng.choices(sentences, k=2)) for _ in range(1010)) + "\n", encoding="utf-8"
    )
    return folder


@pytest.fixture(scope="module")
def made(text: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, "subprocess.CompletedProcess[str]"]:
    """(DIR, the finished process) of --data-only."""
    out = tmp_path_factory.mktemp("made") / "out"
    return out, run(text, "--vocab", VOCABULARY, "--out", out, "--data-only", "--workers", 2)


def test_records_are_made_compared_and_linked_for_trainers(made: Any) -> None:
    out, done = made
    assert done.returncode == 1
    rows = table(done.stdout)
    (path,) = (out / "eval_intermediate" / "tfrecord" / "training").iterdir()
    content, starts = path.read_bytes(), bertprep.records.open(path).offsets
    ratio = (len(starts) - 1) / 10_000
    assert ratio > 1
    numbers = [int(i * ratio) for i in range(10_000)]  # as MLPerf's script picks
    picked = b"".join(content[starts[number] : starts[number + 1]] for number in numbers)
    assert (out / "mlperf" / "test" / "eval_10k").read_bytes() == picked
    assert rows["bytes of eval_intermediate"] == ["843,343,183", f"{path.stat().st_size:,}", "NO"]
    assert rows["bytes of eval_10k"] == ["25,382,591", f"{len(picked):,}", "NO"]
    assert rows["bytes of part-00499-of-00500"] == ["898,392,312", "not made"]
    assert rows["md5 of vocab.txt"][0] == "64800d5d8528ce344256daf115d4965e"
    assert done.stderr.splitlines()[-1].startswith("mlperf: error: 4 of 7 numbers differ, the first is md5 of vocab.txt; docs/")
    data = opened(out / "mlperf")
    assert (data.records.seq, data.records.pred, data.test is not None, data.records.formats) == (512, 76, True, ["tfrecord"])
    assert data.vocabulary_size == len(load_vocabulary(VOCABULARY))
    assert sorted(path.name for path in (out / "mlperf" / "training").iterdir() if not path.name.startswith(".")) == list(PARTS)


def test_mlperfs_own_scripts_leave_the_same_records(golden_corpus: Path, tmp_path: Path) -> None:
    """Sizes and sha256 of all values that create_pretraining_data.py and pick_eval_samples.py leave (aa344c7f)."""
    asked = {"inputs": [golden_corpus], "output": tmp_path / "all", "vocab": VOCABULARY, "formats": "tfrecord", "workers": 1}
    bertprep.create(**vars(mlperf.SETTINGS), **asked)
    bertprep.convert(tmp_path / "all", tmp_path / "picked", to="tfrecord", pick=1160, workers=1)
    for name, records, size, sha256 in (
        ("all", 3323, 8_068_900, "4540c4ce4678b5cde0be42584591058f666313ee0822fb45d4a248de9758cec8"),
        ("picked", 1160, 2_820_155, "8998a74db390eb2f1147b4119e5b018f76086f86e52a69352a5c424ad71cf7d5"),
    ):
        (path,) = (tmp_path / name).rglob("*.tfrecord")
        examples = bertprep.records.open(path)[:]
        values = b"".join(array.astype("f4" if array.dtype.kind == "f" else "i4").tobytes() for array in examples.arrays)
        assert (len(examples), path.stat().st_size, hashlib.sha256(values).hexdigest()) == (records, size, sha256)


def test_published_sizes_are_equal_and_others_are_not(tmp_path: Path) -> None:
    sizes = {f"part-{number:05d}-of-00500": 784_437_058 for number in range(500)}
    sizes |= {"part-00000-of-00500": 514_241_279, "part-00499-of-00500": 898_392_312}
    sizes["part-00001-of-00500"] += 391_434_110_129 - sum(sizes.values())
    sizes |= {"eval_intermediate": 843_343_183, "eval_10k": 25_382_591}
    paths = {name: tmp_path / name for name in sizes}
    for name, path in paths.items():
        path.touch()
        os.truncate(path, sizes[name])  # a file of holes, that takes no space
    assert [row.is_equal for row in mlperf.compare_records(paths)] == [True] * 5
    os.truncate(paths["part-00007-of-00500"], 784_437_059)
    assert [row.what for row in mlperf.compare_records(paths) if not row.is_equal] == ["bytes of all 500 parts"]
    assert [row.is_equal for row in mlperf.compare_records({"eval_10k": paths["eval_10k"]})] == [None, True, None, None, None]


def test_the_training_command_has_mlperfs_settings(made: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of rcps_bert.json, bert_ref_256; without a GPU, or with other records, the command is printed."""
    out, _ = made
    given = argparse.Namespace(checkpoint=GOLDEN / "google_checkpoint", model="large", devices=2, batch_size=16, out=out)
    assert mlperf.train(given, out / "mlperf", can_converge=False) == []
    line, command = capsys.readouterr().out.splitlines()
    assert line == "not trained: parts are missing, or the checkpoint's accuracy differs; the command:"
    read = make_parser("pretrain").parse_args(shlex.split(command)[3:])
    assert read_options(OptimizerSettings, read) == OptimizerSettings(
        name="lamb", beta_1=0.9, beta_2=0.999, epsilon=1e-6, weight_decay=0.01, clip_norm=1.0
    )
    options = read_options(PretrainOptions, read)
    assert (options.steps, options.learning_rate, options.warmup_steps, options.schedule) == (13_700, 3.5e-4, 0, "google")
    assert (read.devices, options.batch_size, options.accumulation) == (2, 16, 8)
    assert (options.init, options.eval_every, options.eval_sequences) == (str(GOLDEN / "google_checkpoint"), 98, 0)


def test_the_first_evaluation_that_reaches_the_target_counts() -> None:
    compare = mlperf.compare_convergence
    log: list[dict[str, object]] = [{"kind": "run", "step": 0}]
    log += [{"kind": "evaluation", "step": 98 * n, "masked_lm_accuracy": 0.5 + n / 500} for n in range(150)]
    row = compare(log)
    assert (row.published, row.here, row.is_equal) == ("2,232,832 to 2,935,296", f"{98 * 110 * 256:,}", True)
    assert compare([{**entry, "step": int(str(entry["step"])) // 2} for entry in log]).is_equal is False
    assert compare(log[:50]).here == "not reached"


def test_mistakes_are_one_line(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    training = ["--vocab", VOCABULARY, "--out", tmp_path / "out"]
    for arguments, message in (
        (
            [tmp_path / "absent", *training, "--data-only"],
            f"{tmp_path}/absent: is not a folder; give the folder that has part-00000-of",
        ),
        ([text, *training, "--data-only", "--parts", "0,3"], "--parts 0,3: must be numbers of parts from 0 to 2, such as 0,2"),
        ([text, *training, "--part", "0"], "--part: unknown option, did you mean --parts?"),
        ([text, *training], "--checkpoint: is missing; name MLPerf's model.ckpt-28252, or give --data-only"),
        ([text, *training, "--checkpoint", "x", "--devices", "3"], "--devices 3, --batch-size 16: must divide the 256"),
    ):
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            sys.exit(mlperf.main())
        assert ended.value.code == 2
        assert capsys.readouterr().err.splitlines()[-1].startswith(f"mlperf: error: {printable(message)}")
