"""The functions of `bertprep` in Python: their signatures, their documentation and their errors."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bertprep
from bertprep.check.finding import WARNING, Finding
from bertprep.commands.create import Create
from bertprep.commands.download import Downloaded
from bertprep.commands.function import function_of
from bertprep.commands.push import Pushed
from bertprep.options import fields_of
from bertprep.sources.listing import Listing, RemoteFile
from tests.golden import GOLDEN

FUNCTIONS = (
    "convert", "create", "create_glue", "create_ner", "create_squad",
    "download", "forecast", "load_dataset", "push", "shard", "tokenize",
    "train_vocabulary", "validate",
)  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_its_own_name_and_says_what_it_returns(name: str) -> None:
    function = getattr(bertprep, name)
    assert (function.__name__, function.__qualname__) == (name, name)
    assert inspect.signature(function).return_annotation not in (None, "None", inspect.Signature.empty)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "load_dataset"])
def test_the_documentation_has_a_line_for_every_keyword(name: str) -> None:
    function = getattr(bertprep, name)
    described = re.findall(r"^    (\w+): \S", function.__doc__, re.MULTILINE)
    assert sorted(described) == sorted(inspect.signature(function).parameters)


def test_a_keyword_has_the_default_and_the_type_of_its_field() -> None:
    found = inspect.signature(bertprep.create).parameters
    assert (found["seq"].default, found["seq"].annotation) == (Create.seq, int)
    assert found["part"].annotation == str | None
    assert found["seq"].kind == inspect.Parameter.KEYWORD_ONLY
    assert [*inspect.signature(bertprep.convert).parameters][:2] == ["source", "target"]
    assert "\n    seq: sequence length in tokens, with [CLS] and each [SEP] (max_seq_length) (default: 128)\n" in (
        bertprep.create.__doc__ or ""
    )
    assert [*found] == [*inspect.signature(bertprep.forecast).parameters]


def test_the_documentation_names_keywords_and_not_options() -> None:
    assert "treat each line of `inputs` as a sentence" in (bertprep.create.__doc__ or "")


def test_keywords_have_the_headings_of_help() -> None:
    headings = re.findall(r"^([A-Z][a-z ]+):\n    (\w+):", bertprep.create.__doc__ or "", re.MULTILINE)
    assert headings == [("What is made", "any_case"), ("Where", "workdir"), ("How", "progress")]


def test_a_wrong_call_names_the_function() -> None:
    with pytest.raises(TypeError, match=r"^convert\(\) missing a required argument: 'target'$"):
        bertprep.convert("a")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^create\(\) got too many positional arguments$"):
        bertprep.create(128)  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"^create_glue\(\) got an unexpected keyword argument 'sequ', did you mean seq\?$"):
        bertprep.create_glue("mrpc", sequ=3)  # type: ignore[call-arg]


def test_what_the_shell_alone_has_is_no_keyword() -> None:
    of_shell = {each.keyword for each in fields_of(Create) if each.shell}
    assert not of_shell & {*inspect.signature(function_of(Create, Create.create)).parameters}


def test_the_public_names_are_listed() -> None:
    names = [name for name in dir(bertprep) if name != "__version__"]
    assert sorted(names) == sorted(bertprep.__all__)
    assert {*FUNCTIONS, "records", "BertprepError", "InstanceSettings", "TokenDataset"} <= {*names}
    assert all(getattr(bertprep, name) for name in names)


CALLS = """
from collections.abc import Callable
from pathlib import Path

import bertprep

reveal_type(bertprep.validate(["data"])[0].ok)
reveal_type(bertprep.train_vocabulary(size=100))
reveal_type(bertprep.recipe("bert").phase(1).seq)
reveal_type(bertprep.create(seq=512, workdir=Path("data")).seconds)
bertprep.create(seqq=512)
bertprep.create(seq="512")
bertprep.convert("a")
bertprep.convert("a", "b", shards=2)
bertprep.create_glue("mrpc", labels=["0", "1"])
"""


def test_mypy_sees_the_types(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="is in the extra dev")
    program = tmp_path / "calls.py"
    program.write_text(CALLS, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--no-pretty", str(program)]
    checked = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    lines = [line.split(": ", 1)[1] for line in checked.stdout.splitlines()]
    assert re.findall(r'type is "(?:\w+\.)*(\w+)"', checked.stdout) == ["bool", "Path", "int", "float"]
    errors = [line.rpartition("  [")[2].rstrip("]") for line in lines if line.startswith("error: ")]
    assert errors == ["call-arg", "arg-type", "call-arg"]


def lines_on_screen(text: str) -> int:
    """How many lines of 80 columns a text takes."""
    return sum(max(-(-len(line) // 80), 1) for line in text.split("\n"))


def test_results_fit_a_screen(golden_corpus: Path, tmp_path: Path) -> None:
    made = bertprep.create(
        inputs=[golden_corpus], output=tmp_path, vocab=GOLDEN / "vocab.txt", lines_are_sentences=True, workers=1
    )
    outcomes = bertprep.validate([tmp_path])
    for outcome in outcomes:
        assert str(outcome).splitlines()[-1].startswith("no errors, ")
        outcome.findings.append(Finding("file-changed", "training/part-0", "10 bytes", "9 bytes", level=WARNING))
        outcome.findings += [Finding("file-changed", f"training/part-{number}", "10 bytes", "9 bytes") for number in range(40)]
        *findings, more, title, heading, row, masks, shares, verdict = str(outcome).splitlines()
        assert title == f"{outcome.title}: 40 errors, {outcome.warnings} warning{'s' if outcome.warnings > 1 else ''}"
        assert (heading.split()[:3], row.split()[:2]) == (["split", "files", "records"], ["training", "1"])
        assert masks == "  split     [MASK]    kept  random token  next: random  cut off  truncated"
        assert (shares.count("%"), max(map(len, (heading, row, masks, shares))) < 80) == (6, True)
        assert [finding.partition(":")[0] for finding in findings] == ["error"] * 5
        assert more == f"... and {len(outcome.findings) - 5} more findings: .findings has all"
        assert verdict.startswith("40 errors, ")
        assert repr(outcome) == str(outcome)
    pushed = Pushed("me/data", "https://hub/me/data", "1f2e", {"a": {}}, ["a"] * 1000, [], {}, "")
    assert repr(pushed) == "<Pushed https://hub/me/data at 1f2e: 1 file, 1,000 changed, 0 deleted>"
    listing = Listing({"name": "squad"}, "1f2e", tuple(RemoteFile(f"train-{number}", "https://x", 1) for number in range(1000)))
    results = [made, made.manifest, pushed, Downloaded("squad", tmp_path, listing, 1000, 1000, 0), *outcomes]
    for result in results:
        assert lines_on_screen(str(result)) <= 24
        assert lines_on_screen(repr(result)) <= 24
    assert lines_on_screen(repr(outcomes[0].files[0])) <= 24
