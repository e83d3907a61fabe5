"""Compare the losses of two engines that train the same weights on the same records, in one plot and one table.

Each engine trains in an environment of its own, `.venv` and `.venv-oneflow` as scripts/test makes them (or those named with
--python ENGINE=PATH). First weights and batches follow from the seed, so they are the same; there is no dropout, which each
framework draws in its own way. Written are OUT/ENGINE (the runs), OUT/losses.png and OUT/losses.md.

    small     a BERT of 2 layers, 500 steps of 16 sequences: minutes on a CPU
    report    what reports in the field show: BERT base on 8 GPUs, 32 sequences each, Adam, float32, a learning rate of 1e-4
              for the global batch after 10,000 of 1,000,000 steps of warmup, the loss of every 100th step
"""

import argparse
import os
import shlex
import subprocess
from pathlib import Path

from bertprep.files.outputs import begins_with, write_output
from trainer.log import LOG
from trainer.plot import draw_losses, read_log

ROOT = Path(__file__).resolve().parents[1]
NAMES = {"tensorflow": "TensorFlow", "torch": "PyTorch", "oneflow": "OneFlow"}
ENVIRONMENTS = {"tensorflow": ".venv", "torch": ".venv", "oneflow": ".venv-oneflow"}
PRESETS = {
    "small": {"model": "tiny", "batch-size": 16, "steps": 500, "lr": 1e-4, "warmup-steps": 50, "log-every": 1},
    "report": {"model": "base", "batch-size": 32, "steps": 1_000_000, "lr": 1e-4, "warmup-steps": 10_000, "log-every": 100},
}
DEVICES = {"small": 1, "report": 8}
COMMON = {"format": "ofrecord", "seq": 128, "optimizer": "adam", "eval-every": 0, "eval-sequences": 2000, "keep": 1}


def main() -> None:
    """Train with each engine and compare the losses."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default="tensorflow,oneflow", metavar="NAMES", help="(default: %(default)s)")
    parser.add_argument("--preset", default="small", choices=PRESETS, help="(default: %(default)s)")
    parser.add_argument("--steps", type=int, metavar="N", help="in place of the preset's; its warmup stays")
    parser.add_argument("--workdir", type=Path, default=Path("data"), metavar="DIR", help="workspace (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("data/losses"), metavar="DIR", help="(default: %(default)s)")
    parser.add_argument("--python", action="append", default=[], metavar="ENGINE=PATH", help="of an engine's environment")
    options = parser.parse_args()
    engines = options.engines.split(",")
    pythons = dict(each.split("=", 1) for each in options.python)
    settings = COMMON | PRESETS[options.preset] | {"workdir": options.workdir}
    if options.steps:
        settings["steps"] = options.steps
    for engine in engines:
        python = pythons.get(engine, str(ROOT / ENVIRONMENTS[engine] / "bin" / "python"))
        if not Path(python).exists():
            parser.error(f"{engine}: no environment {python}; scripts/test makes it")
        command = launch(python, engine, DEVICES[options.preset], settings | {"out": options.out / engine})
        print(f"{NAMES[engine]}: {shlex.join(command)}", flush=True)
        if status := subprocess.run(command, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}).returncode:
            raise SystemExit(status)  # the trainer has said why
    logs = {NAMES[engine]: options.out / engine / LOG for engine in engines}
    draw_losses(logs, options.out / "losses.png")
    table = compare(logs)
    write_output(options.out / "losses.md", table.encode(), begins_with(b"| step | "), "--out")
    print(table, end="")


def launch(python: str, engine: str, devices: int, settings: dict[str, object]) -> list[str]:
    """Return the command of one run. On several devices, OneFlow's launcher starts a process for each."""
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    trainer = ["-m", "trainer", "--engine", engine, "--no-dropout", *words]
    if devices == 1:
        return [python, *trainer]
    if engine == "oneflow":
        return [python, "-m", "oneflow.distributed.launch", "--nproc_per_node", str(devices), *trainer]
    return [python, *trainer, "--devices", str(devices)]


def compare(logs: dict[str, Path]) -> str:
    """Return a table of all losses at some steps, and the largest difference between two engines at any step."""
    runs = {
        name: {entry["step"]: entry["loss"] for entry in read_log(path) if entry["kind"] == "train"}
        for name, path in logs.items()
    }
    steps = sorted(set.intersection(*(set(run) for run in runs.values())))
    spread = {step: max(run[step] for run in runs.values()) - min(run[step] for run in runs.values()) for step in steps}
    worst = max(steps, key=lambda step: spread[step])
    shown = sorted({1, *(steps[len(steps) * part // 10 - 1] for part in range(1, 11)), worst} & set(steps))
    lines = [f"| step | {' | '.join(runs)} | difference |", "|---" * (len(runs) + 2) + "|"]
    for step in shown:
        losses = " | ".join(f"{run[step]:.6f}" for run in runs.values())
        lines += [f"| {step:,} | {losses} | {spread[step]:.1e} |"]
    return "\n".join(lines) + f"\n\nThe largest difference in {len(steps):,} steps is {spread[worst]:.1e}, at step {worst:,}.\n"
