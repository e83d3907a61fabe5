"""SQuAD's metric gives the published programs' numbers, imported and as the programs written beside the data."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bertprep.sources.task_files import evaluation_program
from bertprep.tasks import squad_metric
from bertprep.tasks.squad import VERSIONS
from tests.golden import GOLDEN

WANTED = json.loads((GOLDEN / "squad_metric.json").read_text())
ROWS: list[dict[str, Any]] = WANTED["rows"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Both programs, the golden rows as the data and the predictions of each version, and probabilities of no answer."""
    for version in VERSIONS:
        (tmp_path / f"evaluate-{version}.py").write_text(evaluation_program(version))
    rows = {str(number): row for number, row in enumerate(ROWS)}
    write_data(tmp_path / "1.1.json", "1.1", {name: row["golds"] for name, row in rows.items() if row["golds"]})
    write_data(tmp_path / "2.0.json", "v2.0", {name: row["golds"] for name, row in rows.items()})
    write(tmp_path / "answers.json", {name: row["prediction"] for name, row in rows.items()})
    write(tmp_path / "no_answer.json", {name: 7 * int(name) % 10 / 10 for name in rows})
    return tmp_path


def write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))


def write_data(path: Path, version: str, golds: dict[str, list[str]]) -> None:
    """A data file with these gold answers by question, as far as the metric reads it."""
    questions = [{"id": name, "answers": [{"text": gold} for gold in of_one]} for name, of_one in golds.items()]
    write(path, {"version": version, "data": [{"paragraphs": [{"qas": questions}]}]})


def run(folder: Path, *arguments: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """A program run by a Python that sees nothing but its standard library."""
    return subprocess.run([python, "-I", "-S", *arguments], cwd=folder, capture_output=True, text=True)


def test_every_answer_is_scored_as_published() -> None:
    for row in ROWS:
        prediction, golds = row["prediction"], row["golds"]
        assert squad_metric.normalize(prediction) == row["normalized"]
        if golds:
            found = squad_metric.evaluate_v1([("id", golds)], {"id": prediction})
            assert found == {"exact_match": 100 * row["v1_em"], "f1": 100 * row["v1_f1"]}, row
        evaluation = squad_metric.EvaluationV2([("id", golds)], {"id": prediction})
        assert (evaluation.exact["id"], evaluation.f1["id"]) == (row["v2_em"], row["v2_f1"]), row


def test_the_program_of_v1_1_prints_what_run_squad_parses(folder: Path) -> None:
    done = run(folder, "evaluate-v1.1.py", "1.1.json", "answers.json")
    assert (done.returncode, done.stderr) == (0, "")
    wanted = WANTED["aggregate_v1_over_rows_with_golds"]
    assert json.loads(done.stdout) == pytest.approx(wanted, rel=1e-12)
    assert done.stdout == json.dumps(json.loads(done.stdout)) + "\n"
    scores = str(done.stdout.encode()).strip()  # NVIDIA's run_squad.py takes the numbers out like this
    assert float(scores.split(":")[1].split(",")[0]) == pytest.approx(wanted["exact_match"], rel=1e-12)
    assert float(scores.split(":")[2].split("}")[0]) == pytest.approx(wanted["f1"], rel=1e-12)


def test_the_program_of_v1_1_counts_a_missing_answer_as_wrong(folder: Path) -> None:
    write_data(folder / "data.json", "v2.0", {"one": ["yes"], "two": ["no"]})
    write(folder / "answers.json", {"two": "No!", "three": "is not asked for"})
    done = run(folder, "evaluate-v1.1.py", "data.json", "answers.json")
    assert (done.returncode, done.stdout) == (0, '{"exact_match": 50.0, "f1": 50.0}\n')
    assert done.stderr.splitlines() == [
        "Evaluation expects v-1.1, but got dataset with v-v2.0",
        "Unanswered question one will receive score 0.",
    ]


def test_the_program_of_v2_0_prints_the_scores_of_all_and_of_each_kind(folder: Path) -> None:
    done = run(folder, "evaluate-v2.0.py", "2.0.json", "answers.json", "-v")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found == pytest.approx(WANTED["aggregate_v2"], rel=1e-12)
    assert list(found) == list(WANTED["aggregate_v2"])
    assert done.stdout == json.dumps(found, indent=2) + "\n"


def test_the_program_of_v2_0_takes_probabilities_and_writes_files(folder: Path) -> None:
    options = ["--na-prob-file", "no_answer.json", "--na-prob-thresh", "0.4", "-o", "out.json"]
    done = run(folder, "evaluate-v2.0.py", "2.0.json", "answers.json", *options)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    found = json.loads((folder / "out.json").read_text())
    published = WANTED["aggregate_v2_with_probabilities"]
    wanted = {name: value for name, value in published.items() if not name.startswith("pr_")}  # of curves, which there are none
    assert found == pytest.approx(wanted, rel=1e-12)
    assert list(found) == list(wanted)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["evaluate-v1.1.py", "none.json", "answers.json"], "none.json: cannot be read: No such file or directory"),
        (["evaluate-v1.1.py", "1.1.json", "evaluate-v1.1.py"], "evaluate-v1.1.py: is not JSON ("),
        (["evaluate-v1.1.py", "answers.json", "answers.json"], "answers.json: is not a data file of SQuAD (KeyError: 'data')"),
        (["evaluate-v1.1.py", "2.0.json", "answers.json"], "question 9 has no answer; v1.1 has one for each"),
        (["evaluate-v1.1.py", "1.1.json", "numbers.json"], "numbers.json: question 1: the answer is 2, expected str"),
        (["evaluate-v2.0.py", "empty.json", "answers.json"], "the data file holds no question"),
        (["evaluate-v2.0.py", "2.0.json", "few.json"], "62 of 64 questions have no prediction"),
        (["evaluate-v2.0.py", "2.0.json", "answers.json", "-n", "numbers.json"], "62 of 64 questions have no probability"),
        (["evaluate-v2.0.py", "2.0.json", "answers.json", "-n", "few.json"], "the probability is 'a', expected float"),
        (["evaluate-v2.0.py", "2.0.json", "answers.json", "-o", "none/out.json"], "No such file or directory"),
    ],
)
def test_unscorable_input_is_one_line(folder: Path, arguments: list[str], says: str) -> None:
    write(folder / "few.json", {"0": "a", "1": "b"})
    write(folder / "numbers.json", {"1": 2, "2": 0})
    write_data(folder / "empty.json", "v2.0", {})
    done = run(folder, *arguments)
    assert done.returncode == 1
    [line] = [line for line in done.stderr.splitlines() if not line.startswith(("Evaluation expects", "Unanswered"))]
    assert line.startswith(f"{arguments[0]}: error: ")
    assert says in line


def test_the_programs_need_only_python_3_6() -> None:
    for version in VERSIONS:
        tree = ast.parse(evaluation_program(version), feature_version=(3, 6))
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert imported <= set(sys.stdlib_module_names)
