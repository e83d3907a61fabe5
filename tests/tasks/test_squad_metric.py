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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both programs, the golden rows as the data and the predictions of each version, and probabilities of no answer."""
    folder = tmp_path_factory.mktemp("squad")
    for version in VERSIONS:
        (folder / f"evaluate-{version}.py").write_text(evaluation_program(version))
    golds = {str(index): row["golds"] for index, row in enumerate(ROWS)}
    for name, content in {
        "1.1": data_of("1.1", {name: texts for name, texts in golds.items() if texts}),
        "2.0": data_of("v2.0", golds),
        "empty": data_of("v2.0", {}),
        "two": data_of("v2.0", {"one": ["yes"], "two": ["no"]}),
        "answers": {str(index): row["prediction"] for index, row in enumerate(ROWS)},
        "answer": {"two": "No!", "three": "is not asked for"},
        "no_answer": {name: 7 * int(name) % 10 / 10 for name in golds},
        "few": {"0": "a", "1": "b"},
        "numbers": {"1": 2, "2": 0},
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def data_of(version: str, golds: dict[str, list[str]]) -> dict[str, Any]:
    """Return a data file with these gold answers by question, as far as the metric reads it."""
    questions = [{"id": name, "answers": [{"text": gold} for gold in of_one]} for name, of_one in golds.items()]
    return {"version": version, "data": [{"paragraphs": [{"qas": questions}]}]}


def run(folder: Path, version: str, *arguments: str) -> tuple[int, str, str]:
    """Return the status and the output of a program, run by a Python that sees nothing but its standard library."""
    command = [sys.executable, "-I", "-S", f"evaluate-v{version}.py", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


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
    status, output, errors = run(folder, "1.1", "1.1.json", "answers.json")
    assert (status, errors) == (0, "")
    wanted = WANTED["aggregate_v1_over_rows_with_golds"]
    assert json.loads(output) == pytest.approx(wanted, rel=1e-12)
    assert output == json.dumps(json.loads(output)) + "\n"
    scores = str(output.encode()).strip()  # NVIDIA's run_squad.py takes the numbers out like this
    assert float(scores.split(":")[1].split(",")[0]) == pytest.approx(wanted["exact_match"], rel=1e-12)
    assert float(scores.split(":")[2].split("}")[0]) == pytest.approx(wanted["f1"], rel=1e-12)
    assert run(folder, "1.1", "two.json", "answer.json") == (
        0,
        '{"exact_match": 50.0, "f1": 50.0}\n',
        "Evaluation expects v-1.1, but got dataset with v-v2.0\nUnanswered question one will receive score 0.\n",
    )


def test_the_program_of_v2_0_scores_all_and_each_kind(folder: Path) -> None:
    status, output, errors = run(folder, "2.0", "2.0.json", "answers.json", "-v")
    assert (status, errors) == (0, "")
    found = json.loads(output)
    assert output == json.dumps(found, indent=2) + "\n"
    options = ["--na-prob-file", "no_answer.json", "--na-prob-thresh", "0.4", "-o", "out.json"]
    assert run(folder, "2.0", "2.0.json", "answers.json", *options) == (0, "", "")
    curves = "pr_"  # which there are none of
    for scores, published in (
        (found, WANTED["aggregate_v2"]),
        (json.loads((folder / "out.json").read_text()), WANTED["aggregate_v2_with_probabilities"]),
    ):
        wanted = {name: value for name, value in published.items() if not name.startswith(curves)}
        assert scores == pytest.approx(wanted, rel=1e-12)
        assert list(scores) == list(wanted)


@pytest.mark.parametrize(
    ("version", "arguments", "message"),
    [
        ("1.1", "none.json answers.json", "none.json: cannot be read: No such file or directory"),
        ("1.1", "1.1.json evaluate-v1.1.py", "evaluate-v1.1.py: is not JSON ("),
        ("1.1", "answers.json answers.json", "answers.json: is not a SQuAD data file (KeyError: 'data')"),
        ("1.1", "2.0.json answers.json", "question 9 has no answer, but v1.1 has one for each"),
        ("1.1", "1.1.json numbers.json", "numbers.json: question 1: the answer is 2, expected str"),
        ("2.0", "empty.json answers.json", "the data file has no questions"),
        ("2.0", "2.0.json few.json", "62 of 64 questions have no prediction"),
        ("2.0", "2.0.json answers.json -n numbers.json", "62 of 64 questions have no probability"),
        ("2.0", "2.0.json answers.json -n few.json", "the probability is 'a', expected float"),
        ("2.0", "2.0.json answers.json -o none/out.json", "No such file or directory"),
    ],
)
def test_unscorable_input_is_one_line(folder: Path, version: str, arguments: str, message: str) -> None:
    status, _, errors = run(folder, version, *arguments.split())
    [line] = [line for line in errors.splitlines() if not line.startswith(("Evaluation expects", "Unanswered"))]
    assert status == 1
    assert line.startswith(f"evaluate-v{version}.py: error: ")
    assert message in line


def test_the_programs_need_only_python_3_6() -> None:
    for version in VERSIONS:
        tree = ast.parse(evaluation_program(version), feature_version=(3, 6))
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert imported <= set(sys.stdlib_module_names)
