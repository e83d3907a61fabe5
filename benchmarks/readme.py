"""Make the session in README.md, and with --google compare the costs of Google's generator and bertprep.

Both make the records of the sample corpus from one file of text, each in a new process; it is an error if their values differ.
--google names a clone of github.com/google-research/bert at eedf5716, whose create_pretraining_data.py runs on TensorFlow's
compatibility layer. The results go to docs/contribute/benchmarks.md, the chart to docs/images/speed.svg.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

import bertprep
from benchmarks.data import PHASES, creating, texts
from benchmarks.harness import Bench, Cost, Row, describe_machine, remove
from benchmarks.pages import ROOT, rewrite

CHART = "docs/images/speed.svg"
PROGRAMS = {"Google's script": "#9e9e9e", "bertprep": "#e8710a"}
# TensorFlow 2 runs scripts of version 1 under this name.
_GOOGLE = """
import runpy, sys, tensorflow.compat.v1 as tensorflow
sys.modules["tensorflow"] = tensorflow
sys.path.insert(0, sys.argv.pop(1))
runpy.run_path(sys.path[0] + "/create_pretraining_data.py", run_name="__main__")
"""
# Command -> the lines of its output to show; long lines are cut.
SESSION = {
    "bertprep create --seq 128 --pred 20": slice(0, 5),
    "bertprep inspect data/ofrecord/*_128_*/sample/training/part-0 --records 1": slice(-1, None),
    "python -m trainer --format ofrecord --steps 800 --batch-size 32 --lr 3e-3 --bias-correction --no-dropout": slice(-2, -1),
}
WIDTH = 104


def compare(bench: Bench) -> dict[str, tuple[int, list[Cost]]]:
    """Measure both programs in turns; return the records and the costs of each phase."""
    (text,), vocab = texts(bench)
    theirs = bench.folder / "google.tfrecord"
    measured = {}
    for phase, settings in PHASES.items():
        flags = {
            "input_file": text, "output_file": theirs, "vocab_file": vocab, "max_seq_length": settings.seq,
            "max_predictions_per_seq": settings.pred, "dupe_factor": settings.dupe, "random_seed": settings.seed,
        }  # fmt: skip
        google = [sys.executable, "-c", _GOOGLE, bench.options.google, *(f"--{name}={value}" for name, value in flags.items())]
        _, fresh = creating(bench, [text], vocab, settings, f"{phase}: bertprep", "tfrecord")
        count = int(fresh.count)
        row = Row(f"{phase}: Google's script", count, google, partial(remove, theirs))
        measured[phase] = count, bench.compare("records", [row, fresh])
        (ours,) = (bench.folder / "out").rglob("*.tfrecord")
        with bertprep.records.open(theirs) as one, bertprep.records.open(ours) as other:
            expected, found = one[:], other[:]
        if not all(np.array_equal(getattr(expected, name), getattr(found, name)) for name in bertprep.records.FEATURES):
            raise SystemExit(f"{phase}: the records of Google's script and of bertprep differ")
    return measured


def draw(measured: Mapping[str, tuple[int, list[Cost]]]) -> str:
    """Draw the seconds as bars, in colours that are readable on white and on black."""
    longest = max(cost.cpu for _, costs in measured.values() for cost in costs)
    bars: list[str] = []
    for phase, (_, costs) in measured.items():
        for (name, colour), cost in zip(PROGRAMS.items(), costs, strict=True):
            y = 40 + 30 * len(bars)
            bars.append(
                f'<text x="170" y="{y + 15}" text-anchor="end">{name}, {phase}</text>'
                f'<rect x="180" y="{y}" width="{max(1.0, 440 * cost.cpu / longest):.1f}" height="20" fill="{colour}"/>'
                f'<text x="{190 + 440 * cost.cpu / longest:.0f}" y="{y + 15}">{cost.cpu:.1f} s</text>'
            )
    title = '<text x="180" y="22" font-weight="bold">CPU seconds to make the same records</text>'
    style = 'font-family="sans-serif" font-size="13" fill="#808080"'
    size = f'width="700" height="{50 + 30 * len(bars)}"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>', title, *bars, "</svg>\n"])


def show(folder: Path) -> str:
    """Run the session in a folder and return the text that a terminal shows."""
    functions = f'bertprep() {{ "{sys.executable}" -m bertprep "$@"; }}\npython() {{ "{sys.executable}" "$@"; }}\n'
    lines: list[str] = []
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for command, shown in SESSION.items():
        run = subprocess.run(["bash", "-c", functions + command], cwd=folder, env=environment, capture_output=True, text=True)
        if run.returncode:
            raise SystemExit(f"{run.stderr}{command}: exit status {run.returncode}")
        printed = (run.stdout or run.stderr).rstrip().split("\n")[shown]
        lines += [f"$ {command}", *(line if len(line) <= WIDTH else f"{line[: WIDTH - 4]} ..." for line in printed)]
    return "\n".join(["```console", *lines, "```"])


def alternative(measured: Mapping[str, tuple[int, list[Cost]]]) -> str:
    """Return a description of the chart in words."""
    return "; ".join(
        f"{phase}: " + ", ".join(f"{name} {cost.cpu:.1f} s" for name, cost in zip(PROGRAMS, costs, strict=True))
        for phase, (_, costs) in measured.items()
    )


def main() -> None:
    """Measure and rewrite the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--google", type=Path, metavar="FOLDER", help="a clone of google-research/bert, to measure both")
    parser.add_argument("--runs", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--scale", type=float, default=1.0, help="how much of the 12 MB of text, as a factor (default: 1)")
    options = parser.parse_args()
    if options.google and not (options.google / "create_pretraining_data.py").exists():
        parser.error(f"{options.google}: has no create_pretraining_data.py; clone https://github.com/google-research/bert")
    options.text = options.vocab = None
    with tempfile.TemporaryDirectory() as folder:
        rewrite(ROOT / "README.md", "readme", show(Path(folder)))
    if options.google:
        with tempfile.TemporaryDirectory() as folder:
            write_speed(compare(Bench(Path(folder), options)))


def write_speed(measured: Mapping[str, tuple[int, list[Cost]]]) -> None:
    """Draw the chart, and write it and the table to the page of benchmarks."""
    (ROOT / CHART).write_text(draw(measured))
    rows = [
        f"![CPU seconds; {alternative(measured)}](../images/speed.svg)",
        "",
        "| records per CPU-second | records | Google's script | bertprep |",
        "|---|---:|---:|---:|",
    ]
    for phase, (count, costs) in measured.items():
        rows.append(f"| {phase} | {count:,} | " + " | ".join(f"{count / cost.cpu:,.0f}" for cost in costs) + " |")
    times = " and ".join(f"{costs[0].cpu / costs[1].cpu:.0f} times ({phase})" for phase, (_, costs) in measured.items())
    conditions = f"That is {times}. {describe_machine('tensorflow-cpu')}."
    rewrite(ROOT / "docs/contribute/benchmarks.md", "readme", "\n".join([*rows, "", textwrap.fill(conditions, 124)]))
