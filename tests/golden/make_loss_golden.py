"""Write the golden results that engines are tested against and that no single environment can make.

    .venv/bin/python -m tests.golden.make_loss_golden tensorflow    # and torch; .venv-oneflow/bin/python with oneflow

losses_tiny.json                  the first 20 losses of a tiny BERT on TensorFlow, with Adam and with LAMB
losses_tasks.json                 the same of every task, and the outputs of fine-tuning tasks before them, on TensorFlow
checkpoint_ENGINE.safetensors     a checkpoint of the engine, from which the others resume
checkpoints.json                  the losses of each engine after resuming from its own
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.golden import GOLDEN

ENGINES = ("tensorflow", "oneflow", "torch")


def write_losses() -> None:
    """Write losses_tiny.json."""
    from tests.trainer.small_data import make_records
    from tests.trainer.small_runs import losses, train_here

    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "corpus.txt")
        with corpus.open("wb") as file:
            subprocess.run([sys.executable, GOLDEN / "make_corpus.py", GOLDEN / "vocab.txt"], stdout=file, check=True)
        make_records(corpus, Path(folder))
        golden: dict[str, Any] = {
            "about": "first losses of tests/trainer/small_runs.py on TensorFlow, written by tests/golden/make_loss_golden.py"
        }
        for optimizer, learning_rate in (("adam", 0.003), ("lamb", 0.01)):
            out = Path(folder, optimizer)
            options = ["--engine", "tensorflow", "--no-dropout", "--steps", "20", "--optimizer", optimizer]
            trained = train_here(Path(folder), out, *options, "--lr", str(learning_rate))
            golden[optimizer] = {"lr": learning_rate, "losses": losses(trained)}
            (note, *_) = map(json.loads, (out / "log.jsonl").read_text().splitlines())
            golden["versions"] = note["versions"]
    (GOLDEN / "losses_tiny.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in ENGINES:
        sys.exit(__doc__)
    from tests.trainer.test_engine import write_golden, write_golden_checkpoint

    if sys.argv[1] == "tensorflow":
        write_losses()
        write_golden()
    write_golden_checkpoint(sys.argv[1])
