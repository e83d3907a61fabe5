"""Scripts, container files and the citation refer only to things that exist."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from bertprep import __version__

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
SCRIPTS = (
    "scripts/test",
    "scripts/quickstart",
    "scripts/release",
    "examples/sentiment/run",
    "examples/end_to_end/run",
    "examples/tagging/run",
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def run(*command: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_prints_the_header_and_an_unknown_option_is_one_line(script: str) -> None:
    helped = run(ROOT / script, "--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert script in helped.stdout
    assert "set -euo" not in helped.stdout
    failed = run(ROOT / script, "--halp")
    assert (failed.returncode, failed.stdout, failed.stderr.count("\n")) == (2, "", 1)
    assert failed.stderr.startswith(f"{script}: error: --halp: unknown ")


def test_a_suite_without_its_environment_names_what_makes_it(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    for suite, environment, script in (
        ("checks", ".venv", "scripts/test"),
        ("3.12", ".venv-3.12", "scripts/test --python 3.12"),
    ):
        failed = run(tmp_path / "scripts" / "test", "--suite", suite)
        expected = f"--suite {suite}: needs {environment}, which is not there or not complete; run {script} first"
        assert (failed.returncode, failed.stderr) == (2, f"scripts/test: error: {expected}\n")


def test_the_example_of_transformers_says_which_environment_it_needs() -> None:
    """It is run by hand; docs/how-to/hugging-face.md says what was run where."""
    example = [sys.executable, ROOT / "examples" / "transformers_trainer.py"]
    assert (
        run(*example)
        .stderr.splitlines()[-1]
        .endswith("--torch-python: name the Python of an environment with torch, transformers, accelerate and datasets")
    )
    failed = run(*example, "--torch-python", "/bin/false", "--workdir", "/dev/null")
    assert failed.stderr.splitlines()[-1].startswith("transformers_trainer: error: exit status ")


def test_the_suites_name_tests_that_exist() -> None:
    script = (ROOT / "scripts/test").read_text(encoding="utf-8")
    arrays = re.findall(r"^(?:bytes|commands|engines)=\(.*?\)$", script, re.MULTILINE | re.DOTALL)
    assert len(arrays) == 3
    shown = 'printf "%s\\n" "${bytes[@]}" "${commands[@]}" "${engines[@]}"'
    names = run("bash", "-c", "\n".join([*arrays, shown])).stdout.split()
    assert [name for name in names if not (ROOT / name.removeprefix("--ignore=")).exists()] == []


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cuda"])
def test_dockerfiles_copy_what_exists_and_install_what_is_pinned(name: str) -> None:
    dockerfile = (ROOT / name).read_text(encoding="utf-8")
    copied = [path for line in re.findall(r"^COPY (.*) \S+$", dockerfile, re.MULTILINE) for path in line.split()]
    assert {"bertprep", "trainer", "constraints", "pyproject.toml"} <= set(copied)
    let_through = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert [path for path in copied if not (ROOT / path).exists() or f"!{path}" not in let_through] == []
    (extra,) = re.findall(r'"\.\[([\w-]+)\]"', dockerfile)
    (python,) = re.findall(r"^FROM python:([0-9.]+)-slim$", dockerfile, re.MULTILINE)
    assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]
    assert 'ENTRYPOINT ["bertprep"]' in dockerfile
    (constraints,) = set(re.findall(r"-c (\S+)", dockerfile))
    pins = [Requirement(line) for line in (ROOT / constraints).read_text().splitlines() if not line.startswith("#")]
    machine = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "platform_machine": "x86_64",
    }
    pinned = {pin.name for pin in pins if pin.marker is None or pin.marker.evaluate(machine)}
    wanted = [Requirement(each) for each in PROJECT["optional-dependencies"][extra]]
    chosen = [each for each in wanted if each.marker is None or each.marker.evaluate(machine)]
    assert {each.name for each in chosen} <= pinned
    assert extra == {"Dockerfile": "tensorflow", "Dockerfile.cuda": "torch"}[name]


def test_version_is_a_development_version_while_changes_are_unreleased() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (\S+) \((\S+)\)$", changelog, re.MULTILINE)
    name, date = versions[0]
    citation = dict(re.findall(r"^([a-z-]+): (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE))
    assert citation["version"] == __version__
    assert [version for version, _ in versions] == sorted((version for version, _ in versions), key=Version, reverse=True)
    if date == "unreleased":
        assert __version__ == f"{name}.dev0"
        assert "date-released" not in citation
    else:
        assert __version__ == name
        assert citation["date-released"] == date


def test_release_refuses_a_development_version(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    (tmp_path / "bertprep").mkdir()
    (tmp_path / "bertprep" / "version.py").write_text('__version__ = "1.0.0.dev0"\n')
    failed = run(tmp_path / "scripts" / "release")
    assert failed.returncode == 1
    assert failed.stderr == (
        "scripts/release: error: bertprep/version.py: has 1.0.0.dev0, expected the version of a release; "
        "CONTRIBUTING.md has the steps\n"
    )


def test_files_with_an_interpreter_can_be_run() -> None:
    tracked = run("git", "ls-files", "-z", "scripts", "examples", ".ci").stdout.split("\0")[:-1]
    files = tracked or [str(path.relative_to(ROOT)) for path in (ROOT / "scripts").iterdir() if path.is_file()]
    wrong = [name for name in files if os.access(ROOT / name, os.X_OK) != (ROOT / name).read_text().startswith("#!")]
    assert wrong == []


def test_workflows_run_scripts_that_exist() -> None:
    workflows = sorted((ROOT / ".github/workflows").glob("*.yml"))
    commands = [line for path in workflows for line in re.findall(r"run: (scripts/\S+)", path.read_text(encoding="utf-8"))]
    assert set(commands) == {"scripts/release", "scripts/test"}
    assert all(os.access(ROOT / command, os.X_OK) for command in commands)


def test_workflows_pin_their_actions_and_run_every_python_that_the_project_supports() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / ".github/workflows").glob("*.yml")}
    actions = [action for text in texts.values() for action in re.findall(r"uses: (.+)", text)]
    assert [action for action in actions if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[0-9.]+", action)] == []
    (matrix,) = re.findall(r"python: \[(.+)\]", texts["test.yml"])
    supported = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if "Python :: 3." in each]
    assert set(supported) <= set(re.findall(r'"([0-9.]+)"', matrix))


def test_programs_of_python_without_a_suffix_are_linted_and_type_checked() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    files = [path for path in (ROOT / "scripts").iterdir() if path.is_file() and not path.suffix]
    programs = {f"scripts/{path.name}" for path in files if "python" in path.read_text(encoding="utf-8").partition("\n")[0]}
    assert programs == set(tool["ruff"]["extend-include"])
    assert programs <= set(tool["mypy"]["files"])
