"""examples/end_to_end/run --quick: every step from the sample corpus to answers, with too few updates to learn anything."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch  # which starts in the fewest CPU seconds; tests/test_readme.py trains without --engine
SCRIPT = Path(__file__).parents[2] / "examples" / "end_to_end" / "run"


def test_every_step_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [SCRIPT, "--quick", tmp_path, "--", "--engine", "torch"],
        env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for step in ("1. Records", "2. Pretraining", "3. Records", "4. Fine-tuning", "5. Questions", "Done"):
        assert f"== {step}" in done.stdout
    assert len(list(tmp_path.glob("?frecord/*/*/manifest.json"))) == 8  # two phases and two tasks, in two formats
    questions = [
        question["id"]
        for article in json.loads((tmp_path / "tasks/squad/dev-v1.1.json").read_bytes())["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    answers = json.loads((tmp_path / "models/squad/answers/predictions.json").read_bytes())
    assert sorted(answers) == sorted(questions)
    assert done.stdout.count("  question  ") == 3
    for model in ("pretrained/phase-1", "pretrained/phase-2", "squad", "century"):
        log = [json.loads(line) for line in (tmp_path / "models" / model / "log.jsonl").read_text().splitlines()]
        assert any(entry["kind"] == "evaluation" for entry in log)
        assert (tmp_path / "models" / model / "loss.png").stat().st_size > 1000
