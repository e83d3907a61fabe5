#!/usr/bin/env python3
"""Train Hugging Face's BertForPreTraining with its Trainer on records that bertprep made.

    .venv/bin/python examples/transformers_trainer.py --torch-python PYTHON [--workdir DIR] [--steps 50] [--check]

PYTHON is the Python of an environment with torch, transformers, accelerate and datasets; it needs no bertprep. The records are
made from the sample corpus as an Arrow folder, which `load_from_disk` maps into memory. The model has 2 layers of 128 units.
Trainer has its defaults: no collator, no columns removed or renamed by hand. The loss of every tenth step is printed.

--check needs TensorFlow in bertprep's environment. There bertprep's trainer makes one update on 32 records and exports the
weights. With these weights, on the same records and without dropout, the loss of Trainer's first step must equal the loss of
bertprep's second step to 1e-4.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

LEARNING_RATE, BATCH, LOG_EVERY = 1e-3, 32, 10
TINY = {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 512}
TOLERANCE = 1e-4


def train(records: str, steps: int, weights: str | None) -> list[float]:
    """Train the model with transformers and return its losses; runs in the other environment."""
    import datasets
    from transformers import BertConfig, BertForPreTraining, Trainer, TrainingArguments, set_seed

    set_seed(1)
    dataset = datasets.load_from_disk(records)["train"]
    if weights:
        model = BertForPreTraining.from_pretrained(weights, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    else:
        tokens = len(Path(records, "vocab.txt").read_text(encoding="utf-8").splitlines())
        model = BertForPreTraining(BertConfig(vocab_size=tokens, **TINY))
    with tempfile.TemporaryDirectory() as out:
        arguments = TrainingArguments(
            out, max_steps=steps, per_device_train_batch_size=BATCH, learning_rate=LEARNING_RATE,
            logging_steps=min(steps, LOG_EVERY), save_strategy="no", report_to="none", disable_tqdm=True,
        )  # fmt: skip
        trainer = Trainer(model, arguments, train_dataset=dataset)
        trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def train_apart(torch_python: str, records: Path, steps: int, weights: Path | None = None) -> list[float]:
    """Run `train` in a process of the other environment, and return its losses."""
    given = json.dumps([str(records), steps, str(weights) if weights else None])
    losses: list[float] = json.loads(run([torch_python, __file__, "--train", given]).splitlines()[-1])
    return losses


def check(options: argparse.Namespace, records: Path) -> None:
    """Compare the losses of both trainers on the same records with the same weights."""
    with tempfile.TemporaryDirectory() as folder:
        picked, model, exported = (Path(folder, name) for name in ("records", "model", "exported"))
        python("bertprep", "convert", records, picked, "--to", "arrow", "--pick", BATCH)
        settings = ["--model", "tiny", "--no-dropout", "--amp", "off", "--batch-size", BATCH, "--lr", LEARNING_RATE]
        logged = ["--steps", 3, "--log-every", 1, "--save-every", 1, "--keep", 3, "--eval-every", 0, "--eval-sequences", 1]
        python("trainer", "--data", picked, *settings, *logged, "--out", model)
        python("trainer", "export", model / "checkpoint-000000001.safetensors", exported)
        entries = [json.loads(line) for line in (model / "log.jsonl").read_text().splitlines()]
        ours = next(entry["loss"] for entry in entries if entry["kind"] == "train" and entry["step"] == 2)
        theirs = train_apart(options.torch_python, picked, 1, exported)[0]
    print(f"same weights, same {BATCH} records: bertprep's loss {ours:.6f}, transformers' {theirs:.6f}")
    if abs(ours - theirs) > TOLERANCE:
        raise SystemExit(f"they differ by {abs(ours - theirs):.1e}, expected at most {TOLERANCE:.0e}")


def python(*arguments: object) -> str:
    """Run a module in this environment and return its output."""
    return run([sys.executable, "-m", *arguments])


def run(command: list[object]) -> str:
    """Run a command and return its output; the example ends if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"transformers_trainer: error: exit status {done.returncode} of {shlex.join(words)}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python", metavar="PYTHON")
    parser.add_argument("--workdir", type=Path, default=Path("data"), metavar="DIR", help="(default: %(default)s)")
    parser.add_argument("--steps", type=int, default=50, help="(default: %(default)s)")
    parser.add_argument("--check", action="store_true", help="compare its first loss with that of bertprep's trainer")
    parser.add_argument("--train", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        print(json.dumps(train(*options.train)))
        return
    if not options.torch_python:
        parser.error("--torch-python: name the Python of an environment with torch, transformers, accelerate and datasets")
    workdir = options.workdir.resolve()
    python("bertprep", "create", "--corpus", "sample", "--format", "arrow", "--workdir", workdir)
    records = max((workdir / "arrow").glob("*_seq_len_128_*/sample"), key=lambda folder: folder.stat().st_mtime)
    losses = train_apart(options.torch_python, records, options.steps)
    for number, loss in enumerate(losses, 1):
        print(f"step {number * min(LOG_EVERY, options.steps):3}: loss {loss:.4f}")
    if options.check:
        check(options, records)


if __name__ == "__main__":
    main()
