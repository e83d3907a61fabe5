"""Scripts, container files and the citation refer only to things that exist."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
SCRIPTS = ("scripts/test", "scripts/quickstart", "scripts/release", "examples/sentiment/run", "examples/end_to_end/run")
DOCKERFILES = ("Dockerfile", "Dockerfile.cuda")


def run(script: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([ROOT / script, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_prints_the_header(script: str, option: str) -> None:
    done = run(script, option)
    assert (done.returncode, done.stderr) == (0, "")
    assert script in done.stdout
    assert "set -euo" not in done.stdout


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_unknown_option_is_one_line(script: str) -> None:
    done = run(script, "--halp")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{script}: error: --halp: unknown ")
    assert done.stderr.count("\n") == 1


def test_the_example_of_transformers_says_which_environment_it_needs() -> None:
    """All of it needs PyTorch, which the tests do without; docs/hugging_face.md says what was run where."""
    script = str(ROOT / "examples" / "transformers_trainer.py")
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith(
        "--torch-python: name the Python of an environment with torch, transformers, accelerate and datasets\n"
    )
    failed = subprocess.run(
        [sys.executable, script, "--torch-python", "/bin/false", "--workdir", "/dev/null"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1].startswith("transformers_trainer: error: exit status ")


@pytest.mark.parametrize("arguments", [["--suite", "none"], ["--suite"], ["--python", "2.7"], ["--python"]])
def test_unknown_suites_and_pythons_are_refused(arguments: list[str]) -> None:
    assert run("scripts/test", *arguments).returncode == 2


def test_the_suites_name_tests_that_exist() -> None:
    script = (ROOT / "scripts/test").read_text(encoding="utf-8")
    arrays = re.findall(r"^(?:bytes|commands|engines)=\(.*?\)$", script, re.MULTILINE | re.DOTALL)
    assert len(arrays) == 3
    shown = 'printf "%s\\n" "${bytes[@]}" "${commands[@]}" "${engines[@]}"'
    names = subprocess.check_output(["bash", "-c", "\n".join([*arrays, shown])], cwd=ROOT, text=True).split()
    assert [name for name in names if not (ROOT / name.removeprefix("--ignore=")).exists()] == []


@pytest.mark.parametrize("name", DOCKERFILES)
def test_paths_in_dockerfiles_exist(name: str) -> None:
    dockerfile = (ROOT / name).read_text(encoding="utf-8")
    copied = [path for line in re.findall(r"^COPY (.*) \S+$", dockerfile, re.MULTILINE) for path in line.split()]
    assert {"bertprep", "trainer", "constraints", "pyproject.toml"} <= set(copied)
    assert [path for path in copied if not (ROOT / path).exists()] == []
    let_through = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert [path for path in copied if f"!{path}" not in let_through] == []
    for constraints in re.findall(r"-c (\S+)", dockerfile):
        assert (ROOT / constraints).is_file()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (extra,) = re.findall(r'"\.\[([\w-]+)\]"', dockerfile)
    assert extra in project["optional-dependencies"]
    (python,) = re.findall(r"^FROM python:([0-9.]+)-slim$", dockerfile, re.MULTILINE)
    assert f"Programming Language :: Python :: {python}" in project["classifiers"]


def test_the_image_for_gpus_has_a_pinned_jax_on_cuda_13() -> None:
    dockerfile = (ROOT / "Dockerfile.cuda").read_text(encoding="utf-8")
    (python,) = re.findall(r"^FROM python:([0-9.]+)-slim$", dockerfile, re.MULTILINE)
    environment = {"python_version": python}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [Requirement(each) for each in project["optional-dependencies"]["jax-cuda"]]
    extras = {each.name: each.extras for each in wanted if each.marker is None or each.marker.evaluate(environment)}
    assert extras["jax"] == {"cuda13"}
    pins = [Requirement(line) for line in (ROOT / "constraints/main.txt").read_text().splitlines() if line.startswith("jax")]
    assert {each.name for each in pins if each.marker is None or each.marker.evaluate(environment)} == {"jax", "jaxlib"}


def test_the_citation_is_of_the_newest_release() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    (newest, *_) = re.findall(r"^## (\S+) \((\S+)\)$", changelog, re.MULTILINE)
    citation = dict(re.findall(r"^([a-z-]+): (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE))
    assert (citation["version"], citation["date-released"]) == newest


@pytest.mark.parametrize(
    "script", [path.name for path in sorted((ROOT / "scripts").iterdir()) if path.is_file() and path.suffix != ".py"]
)
def test_scripts_can_be_run(script: str) -> None:
    path = ROOT / "scripts" / script
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    assert os.access(path, os.X_OK) == first.startswith("#!")
