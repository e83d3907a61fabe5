"""Run the complete job, examples/end_to_end/run, in an empty folder, and write its results to docs/start/first-model.md.

The table has the results from the trainer's logs, next to the score of a guess. The job takes 3 to 10 minutes of CPU time.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

from benchmarks.harness import describe_machine, used
from benchmarks.pages import ROOT, rewrite
from trainer.log import LOG
from trainer.metrics import describe_metrics
from trainer.plot import read_log

_PACKAGES = {"tensorflow": "tensorflow-cpu", "torch": "torch"}
_GUESS = re.compile(r"^dev: .* scores ([0-9.]+)\), .* half of each century$", re.MULTILINE)


def main() -> None:
    """Run the job and rewrite the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workdir", type=Path, metavar="DIR", help="a new folder, which is kept (default: a temporary one)")
    parser.add_argument(
        "--quick", action="store_true", help="print the table of a job that learns nothing, and rewrite no page"
    )
    parser.add_argument(
        "--engine",
        default="tensorflow",
        choices=_PACKAGES,
        help="of the trainer; another one rewrites no page (default: %(default)s)",
    )
    options = parser.parse_args()
    if options.workdir and options.workdir.exists():
        parser.error(f"--workdir {options.workdir}: exists, and CPU time is that of a whole job; name a new folder")
    with tempfile.TemporaryDirectory() as folder:
        workdir = (options.workdir or Path(folder)).resolve()
        printed = run_job(workdir, options.engine, is_quick=options.quick)
        lines = tabulate(workdir, printed)
    minutes = f"{used() / 60:.0f} minutes of CPU time. {describe_machine(_PACKAGES[options.engine])}."
    table = "\n".join([*lines, "", textwrap.fill(minutes, 124)])
    print(table)
    if not options.quick and options.engine == "tensorflow":
        rewrite(ROOT / "docs/start/first-model.md", "example", table)


def run_job(workdir: Path, engine: str, *, is_quick: bool) -> str:
    """Run the job with this Python, show what it prints, and return it."""
    command = [
        str(ROOT / "examples/end_to_end/run"),
        *(["--quick"] if is_quick else []),
        str(workdir),
        "--",
        "--engine",
        engine,
    ]
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    lines: list[str] = []
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as job:
        for line in job.stdout or ():
            print(line, end="", flush=True)
            lines.append(line)
    if job.returncode:
        raise SystemExit(f"examples/end_to_end/run: exit status {job.returncode}")
    return "".join(lines)


def tabulate(workdir: Path, printed: str) -> list[str]:
    """Return the rows of the table: the last evaluation of pretraining and the best one of each task, next to a guess."""
    found = _GUESS.search(printed)
    if found is None:
        raise SystemExit("examples/end_to_end/run: did not print the score of a guess; run it again in a new folder")
    phases = [_evaluations(workdir / "models/pretrained" / phase)[-1] for phase in ("phase-1", "phase-2")]
    steps = sum(phase["step"] for phase in phases)
    answers = max(_evaluations(workdir / "models/squad"), key=lambda entry: entry["f1"])
    centuries = max(_evaluations(workdir / "models/century"), key=lambda entry: entry["accuracy"])
    return [
        "| step | result on the test split | a guess | at full size |",
        "|---|---|---|---|",
        "| records of both phases | `validate` finds no error | | `scripts/prepare_wiki_books` |",
        f"| pretraining, {steps} steps | {_describe(phases[-1], 'masked_lm_loss')} | | `scripts/pretrain_lamb` |",
        f"| answering questions | {_describe(answers, 'exact_match', 'f1')} | exact match {found[1]} | `scripts/run_squad` |",
        f"| dating sentences, by century | {_describe(centuries, 'accuracy')} | accuracy 0.5 | `scripts/run_glue MRPC` |",
    ]


def _describe(entry: dict[str, Any], *names: str) -> str:
    return describe_metrics({name: entry[name] for name in names}).replace("f1", "F1")


def _evaluations(run: Path) -> list[dict[str, Any]]:
    return [entry for entry in read_log(run / LOG) if entry["kind"] == "evaluation"]
