#!/usr/bin/env python3
"""Reproduce MLPerf BERT from its text and its start checkpoint, with each published number next to the measured one.

    examples/mlperf.py TEXT --vocab vocab.txt --checkpoint model.ckpt-28252 --out DIR
    examples/mlperf.py TEXT --vocab vocab.txt --data-only --parts 0,499 --out DIR

TEXT is the folder of part-00000-of-00500, ..., part-00499-of-00500 and eval.txt. The records of eval.txt are made first, then
10,000 of them are picked, then those of all parts are made; sizes are compared, then the masked-LM accuracy of the checkpoint,
then with a GPU a training run to an accuracy of 0.72. Stopped? The same command resumes. The exit status is 1 where a number
differs. docs/understand/reproducibility.md has the sources of all numbers, and what differs from MLPerf's own trainer.
"""

import argparse
import hashlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import bertprep
from bertprep.config import RecordFormat
from bertprep.errors import BertprepError, UsageError
from bertprep.instances import load_vocabulary
from bertprep.parser import Parser
from bertprep.terminal import exit_status, print_message, print_results, print_table, run_program
from trainer.engines.choice import check_engine, choose_engine, known_devices
from trainer.log import LOG
from trainer.model_config import ModelConfig
from trainer.plot import read_log
from trainer.settings import EngineSettings
from trainer.tasks.pretraining import Pretraining
from trainer.weights import check_weights, find_weights

MD5 = {  # mlcommons/training, retired_benchmarks/bert (aa344c7f), README.md and dataset.md
    "vocab.txt": "64800d5d8528ce344256daf115d4965e",
    "eval.txt": "2a220f790517261547b1b45ed3ada07a",
    "part-00000-of-00500": "a64a7c31eff5cd38ae6d94f7a6229dab",
    "part-00001-of-00500": "549a9ed4f805257245bec936563abfd0",
    "part-00002-of-00500": "1a1366ddfc03aef9d41ce552ee247abf",
    "part-00497-of-00500": "66835aa75d4855f2e678e8f3d73812e9",
    "part-00498-of-00500": "e6d68a7632e9f4aa1a94128cce556dc9",
    "part-00499-of-00500": "b3b087ad24e3770d879a351664cebc5a",
}
SIZES = {  # bytes of TFRecord
    "eval_intermediate": 843_343_183,
    "eval_10k": 25_382_591,
    "part-00000-of-00500": 514_241_279,
    "part-00499-of-00500": 898_392_312,
    "all 500 parts": 391_434_110_129,
}
START_ACCURACY, CLOSE, TARGET_ACCURACY = 0.34085, 0.001, 0.72  # "very close to 0.34085"; what counts as close is ours
# mlcommons/logging, training_5.0.0/rcps_bert.json: the reference runs of batch size 256, evaluated every 25,088 sequences
BATCH, CONVERGED = 256, (2_232_832, 2_935_296)
TRAINING = {
    "--optimizer": "lamb", "--lr": "3.5e-4", "--steps": "13700", "--warmup-steps": "0", "--schedule": "google",
    "--beta1": "0.9", "--beta2": "0.999", "--epsilon": "1e-6", "--weight-decay": "0.01",
    "--eval-every": "98", "--eval-sequences": "0", "--save-every": "490",
}  # fmt: skip
SETTINGS = bertprep.InstanceSettings(seq=512, pred=76, dupe=10, one_seed=True)
PICKED = 10_000


class Row(NamedTuple):
    """A line of the table; `is_equal` is None if the value was not measured."""

    what: str
    published: str
    here: str = "not made"
    is_equal: bool | None = None


def show(rows: list[Row]) -> None:
    """Print a table of numbers."""
    equal = {True: "yes", False: "NO", None: ""}
    print_table([("what", "published", "here", "equal"), *((*row[:3], equal[row.is_equal]) for row in rows)])


def main() -> int:
    """Read the options and run all steps."""
    parser = Parser(prog="mlperf", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, metavar="TEXT", help="folder of part-00000-of-00500, ... and eval.txt")
    parser.add_argument("--vocab", type=Path, required=True, metavar="FILE", help="MLPerf's vocab.txt")
    parser.add_argument("--checkpoint", type=Path, metavar="PATH", help="MLPerf's tf1_ckpt/model.ckpt-28252")
    parser.add_argument("--model", default="large", metavar="FILE", help="a bert_config.json (default: large, as MLPerf's)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where everything goes; 393 GB for all parts")
    parser.add_argument("--data-only", action="store_true", help="make and compare the records alone: no checkpoint, no GPU")
    parser.add_argument("--parts", metavar="N,...", help="make these parts alone, such as 0,499 (default: all)")
    parser.add_argument("--workers", type=int, metavar="INT", help="worker processes (default: one per CPU)")
    parser.add_argument("--devices", type=int, default=1, metavar="INT", help="GPUs that train (default: 1)")
    parser.add_argument("--batch-size", type=int, default=16, metavar="INT", help="sequences of a GPU (default: 16)")
    return exit_status(lambda: reproduce(parser.parse_args()), "mlperf", interrupted="stopped; the same command resumes")


def reproduce(options: argparse.Namespace) -> None:
    """Run the requested steps and print the table. Raises an error if a number differs."""
    texts, evaluation_text = find_text(options.text, options.parts)
    if not options.data_only:
        check_training(options)
    rows = compare_texts({"vocab.txt": options.vocab, **{path.name: path for path in (evaluation_text, *texts)}})
    (evaluation,) = create(options, [evaluation_text], options.out / "eval_intermediate")
    target = options.out / "eval_10k"
    picked = bertprep.convert(
        options.out / "eval_intermediate", target, to=RecordFormat.TFRECORD, pick=PICKED, workers=options.workers, progress=True
    )
    records = {"eval_intermediate": evaluation, "eval_10k": target / next(iter(picked.manifest.files))}
    made = create(options, texts, options.out / ("parts" if options.parts is None else "some_parts"))
    parts = dict(zip((path.name for path in texts), made, strict=True))
    rows += compare_records(records | parts)
    show(rows)
    links = {f"training/{name}": path for name, path in parts.items()}
    links |= {"test/eval_10k": records["eval_10k"], "vocab.txt": target / "vocab.txt"}
    data = link_data_set(options.out / "mlperf", links)
    if not options.data_only:
        rows.append(start := evaluate(options, data))
        show([start])
        rows += train(options, data, can_converge=options.parts is None and bool(start.is_equal))
    if different := [row.what for row in rows if row.is_equal is False]:
        raise BertprepError(
            f"{len(different)} of {len(rows)} numbers differ, the first is {different[0]}; "
            "docs/understand/reproducibility.md says what that may mean"
        )


def find_text(folder: Path, chosen: str | None) -> tuple[list[Path], Path]:
    """Return the parts, all or only the chosen ones, and eval.txt. All of these files must exist."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: is not a folder; give the folder that has part-00000-of-00500, ... and eval.txt")
    counts = [int(found[1]) for path in folder.iterdir() if (found := re.fullmatch(r"part-\d{5}-of-(\d{5})", path.name))]
    count = max(counts, default=500)
    numbers = [str(number) for number in range(count)] if chosen is None else chosen.split(",")
    if not all(re.fullmatch("[0-9]{1,5}", number) and int(number) < count for number in numbers):
        raise UsageError(f"--parts {chosen}: must be numbers of parts from 0 to {count - 1}, such as 0,{count - 1}")
    parts = [folder / f"part-{number:05d}-of-{count:05d}" for number in sorted(set(map(int, numbers)))]
    for path in (*parts, folder / "eval.txt"):
        if not path.is_file():
            raise UsageError(f"{path}: does not exist; expected {parts[0].name} to {parts[-1].name} and eval.txt")
    return parts, folder / "eval.txt"


def check_training(options: argparse.Namespace) -> None:
    """Raise an error if training could not start because of the checkpoint, the batch or the engine, before hours of work."""
    if options.checkpoint is None:
        raise UsageError("--checkpoint: is missing; name MLPerf's model.ckpt-28252, or give --data-only")
    if options.devices * options.batch_size < 1 or BATCH % (options.devices * options.batch_size):
        raise UsageError(
            f"--devices {options.devices}, --batch-size {options.batch_size}: must divide the {BATCH} sequences of a step"
        )
    model = ModelConfig.load(options.model, vocab_size=len(load_vocabulary(options.vocab)))
    check_weights(options.checkpoint, model, Pretraining())
    check_engine(choose_engine(EngineSettings())[0])


def compare_texts(paths: dict[str, Path]) -> list[Row]:
    """Return the rows of the texts whose md5 is published."""
    rows = []
    for name in (name for name in paths if name in MD5):
        digest = hashlib.md5(usedforsecurity=False)
        with paths[name].open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
        rows.append(Row(f"md5 of {name}", MD5[name], digest.hexdigest(), digest.hexdigest() == MD5[name]))
    return rows


def create(options: argparse.Namespace, texts: list[Path], folder: Path) -> list[Path]:
    """Make the records of texts, and return the record file of each text."""
    created = bertprep.create(
        **vars(SETTINGS), formats="tfrecord", vocab=options.vocab, inputs=texts, output=folder, corpus="mlperf",
        workers=options.workers, progress=True,
    )  # fmt: skip
    return [created.folders["tfrecord"] / name for name in sorted(created.manifests["tfrecord"].files)]


def compare_records(paths: dict[str, Path]) -> list[Row]:
    """Return the rows of the sizes of record files, also of those that were not made, and of all parts together."""
    sizes = {name: path.stat().st_size for name, path in paths.items()}
    if len(parts := [name for name in sizes if name.startswith("part-")]) == 500:
        sizes["all 500 parts"] = sum(sizes[name] for name in parts)
    rows = []
    for name, published in SIZES.items():
        here = (f"{sizes[name]:,}", sizes[name] == published) if name in sizes else ("not made", None)
        rows.append(Row(f"bytes of {name}", f"{published:,}", *here))
    return rows


def link_data_set(folder: Path, wanted: dict[str, Path]) -> Path:
    """Make a folder of links, with MLPerf's file names and with the folders training/ and test/, and return it."""
    for path in folder.glob("*/*"):
        if path.is_symlink() and str(path.relative_to(folder)) not in wanted:
            path.unlink()
    for name, path in wanted.items():
        link = folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.relpath(path.resolve(), link.parent.resolve()))  # so that DIR can be moved
    return folder


def trainer_command(command: str, options: argparse.Namespace, data: Path) -> list[str]:
    """Return the words that both commands of the trainer share."""
    named = ["--init", str(find_weights(options.checkpoint)), "--data", str(data), "--model", options.model]
    return [sys.executable, "-m", "trainer", command, *named]


def evaluate(options: argparse.Namespace, data: Path) -> Row:
    """Return the masked-LM accuracy of the start checkpoint on the test split."""
    done = subprocess.run(trainer_command("evaluate", options, data), stdout=subprocess.PIPE, check=False, text=True)
    if done.returncode:
        raise SystemExit(done.returncode)  # the trainer has said why
    found = re.search(r"^test, 10,000 sequences: .*\bmasked_lm_accuracy ([-+.e\d]+)", done.stdout)
    if found is None:
        raise BertprepError(f"python -m trainer evaluate: expected the accuracy of 10,000 sequences, found {done.stdout!r}")
    is_close = abs(float(found[1]) - START_ACCURACY) < CLOSE
    return Row("masked-LM accuracy of the start checkpoint", f"{START_ACCURACY:.5f}", f"{float(found[1]):.5f}", is_close)


def train(options: argparse.Namespace, data: Path, *, can_converge: bool) -> list[Row]:
    """Train to MLPerf's target if there is a GPU and all earlier numbers are equal, else print the command."""
    accumulation = BATCH // (options.devices * options.batch_size)
    sizes = {"--devices": options.devices, "--batch-size": options.batch_size, "--accumulate": accumulation}
    command = trainer_command("pretrain", options, data)
    command += [str(word) for pair in {**TRAINING, **sizes, "--out": options.out / "model"}.items() for word in pair]
    if not can_converge or known_devices(choose_engine(EngineSettings())[0])[1] is False:
        why = "there is no GPU" if can_converge else "parts are missing, or the checkpoint's accuracy differs"
        print_results(f"not trained: {why}; the command:", shlex.join(command))
        return []
    print_message(shlex.join(command))
    if status := subprocess.run(command, check=False).returncode:
        raise SystemExit(status)
    rows = [compare_convergence(read_log(options.out / "model" / LOG))]
    show(rows)
    return rows


def compare_convergence(log: list[dict[str, Any]]) -> Row:
    """Return how many sequences were trained on before the first evaluation that reaches the target."""
    evaluations = (entry for entry in log if entry["kind"] == "evaluation")
    reached = [entry["step"] * BATCH for entry in evaluations if entry["masked_lm_accuracy"] >= TARGET_ACCURACY]
    least, most = CONVERGED
    here = (f"{reached[0]:,}", least <= reached[0] <= most) if reached else ("not reached", False)
    return Row(f"sequences to an accuracy of {TARGET_ACCURACY}", f"{least:,} to {most:,}", *here)


if __name__ == "__main__":
    sys.exit(run_program(main, "mlperf"))
