"""The documents match the code: examples are run or type-checked, commands parsed, layouts decoded, links resolved."""

import ast
import json
import os
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertprep
from bertprep import cli
from bertprep.config import InstanceSettings, RecordFormat, SquadSettings, VocabularySettings
from bertprep.instances.unicode_table import __file__ as unicode_table
from bertprep.records import FEATURES
from bertprep.work.layout import (
    TOKENS,
    Workspace,
    record_file_name,
    settings_name,
    split_folder,
    task_settings_name,
    text_shard,
    token_shard_name,
    tokens_name,
)
from tests.golden import GOLDEN
from trainer import cli as trainer_cli

ROOT = Path(__file__).parents[1]
ARCHITECTURE = ROOT / "docs" / "contribute" / "architecture.md"
FORMATS = ROOT / "docs" / "reference" / "formats.md"
FINETUNING = ROOT / "docs" / "how-to" / "fine-tuning.md"
REPRODUCIBILITY = ROOT / "docs" / "understand" / "reproducibility.md"
DOCUMENTS = [*sorted(ROOT.glob("docs/**/*.md")), *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"))]
READERS_OWN = {
    "encoders.md": """
import bertprep
wikipedia = code = bertprep.TokenDataset("tokens")
stream = wikipedia.stream(64)
step = gradient_accumulation = 1
""",
    "frameworks.md": "# mypy: allow-subclassing-any",
    "fine-tuning.md": """
from numpy import float32
from numpy.typing import NDArray
from bertprep.records.examples import Examples
def model(batch: Examples) -> tuple[NDArray[float32], NDArray[float32]]: raise NotImplementedError
""",
}
"""What the examples of a page take from their reader's program."""
PROGRAMS = {
    "bertprep", "python", "python3", "python3.10", "python3.11", "pip", "pytest", "pre-commit", "source", "ray", "hf", "srun",
    "sbatch", "torchrun",
    "od", "printf", "diff", "echo", "eval", "aws", "scontrol", "sed", "paste", "docker",
}  # fmt: skip
"""What begins a command in the documents, other than a path that exists or a file of an environment."""

VARIABLES = {"$hosts": "node0:12345,node1:12345", "$SLURM_PROCID": "1"}
"""What the variables of commands stand for."""


def parts(document: Path) -> tuple[list[tuple[str, str]], str]:
    """The fenced blocks of a document with their languages, and the text around them."""
    split = re.split(r"^```(.*)\n", document.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return list(zip(split[1::4], split[2::4], strict=True)), "\n".join(split[::4])


def blocks(document: Path, language: str) -> list[str]:
    """The fenced blocks of a language in a document."""
    return [block for name, block in parts(document)[0] if name == language]


def shell_blocks(document: Path) -> Iterator[str]:
    """The blocks of commands in a document: fenced ones, what a console shows after $, and lines indented by four spaces."""
    fenced, prose = parts(document)
    for language, block in fenced:
        if language in ("sh", "bash") or (language == "" and not is_tree(block)):
            yield block
        elif language == "console":
            yield "".join(f"{line[2:]}\n" for line in block.splitlines() if line.startswith("$ "))
    for block in re.findall(r"(?<=\n\n)((?:    .*\n(?:\n(?=    ))?)+)", prose):
        yield re.sub("^    ", "", block, flags=re.MULTILINE)


def is_tree(block: str) -> bool:
    """Whether a block shows folders and files."""
    return re.match(r"\w+/", block) is not None and not block.startswith("scripts/")


def simple_commands(line: str) -> Iterator[list[str]]:
    """The words of each command of a line of shell; redirections end a command, too."""
    words: list[str] = []
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    for word in [*lexer, ";"]:
        if not set(word) <= set("();<>|&"):
            words.append(word)
        elif words:
            yield words
            words = []


def programs_in(line: str) -> Iterator[list[str]]:
    """The words of each call of bertprep or the trainer in a line of shell, without what starts it, such as srun."""
    for words in simple_commands(line):
        if words[:2] == ["docker", "build"]:
            continue
        for index, word in enumerate(words):
            if word == "bertprep" or words[index - 1 : index + 1] == ["-m", "trainer"]:
                yield words[index:]
                break
            if re.match(r"(bertprep|python -m trainer) ", word):  # a command in quotes, as for bash -c
                yield from programs_in(word)


def run(script: str, folder: Path) -> str:
    """Run lines of shell as a reader would; `bertprep` is this checkout."""
    program = (
        f'set -e\nbertprep() {{ "{sys.executable}" -m bertprep "$@"; }}\npython() {{ "{sys.executable}" "$@"; }}\n{script}'
    )
    done = subprocess.run(
        ["bash", "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the commands of the worked example were run."""
    folder = tmp_path_factory.mktemp("example")
    run(blocks(FORMATS, "sh")[0], folder)
    return folder


def test_the_dump_of_a_record_has_the_bytes_of_the_files(example: Path) -> None:
    (dump,) = (block.splitlines() for block in blocks(FORMATS, "text") if block.startswith("   0  "))
    tfrecord = (example / "out/tfrecord/training/corpus_training_00000.tfrecord").read_bytes()
    ofrecord = (example / "out/ofrecord/training/part-0").read_bytes()
    for line in (line for line in dump if not line.startswith("  .. ")):  # offset, at most 16 bytes, and what they mean
        found = bytes.fromhex(line[6:53])
        assert found == tfrecord[int(line[:4]) :][: len(found)]
    assert (206).to_bytes(8, "little") == ofrecord[:8]
    differing = [(ours, theirs) for ours, theirs in zip(tfrecord[15:221], ofrecord[8:], strict=True) if ours != theirs]
    assert differing == [(0x1A, 0x22)] * 6


def test_the_manifest_matches_the_example(example: Path) -> None:
    def without_versions(text: str) -> dict[str, Any]:
        manifest: dict[str, Any] = json.loads(text)
        return {**manifest, "versions": sorted(manifest["versions"])}

    written = (example / "out/tfrecord/manifest.json").read_text()
    assert without_versions(blocks(FORMATS, "json")[0]) == without_versions(written)


def test_the_table_of_features_is_in_the_order_of_writing() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", FORMATS.read_text(encoding="utf-8"), re.MULTILINE)
    assert tuple(rows[: len(FEATURES)]) == FEATURES


def test_the_folder_name_matches_the_settings() -> None:
    name = settings_name(InstanceSettings(), shards=1472, test_fraction=0.1)
    assert name in FORMATS.read_text(encoding="utf-8")


def test_the_checksum_commands_find_damage(example: Path, tmp_path: Path) -> None:
    command = blocks(REPRODUCIBILITY, "sh")[0]
    shutil.copytree(example / "out" / "ofrecord", tmp_path / "records")
    assert run(command, tmp_path / "records") == "training/part-0 OK\n"
    path = tmp_path / "records/training/part-0"
    corrupt = bytearray(path.read_bytes())
    corrupt[30] ^= 1
    path.write_bytes(corrupt)
    assert run(command, tmp_path / "records") == "training/part-0 FAILED\n"


def test_the_unicode_version_matches_the_table() -> None:
    import numpy as np

    with np.load(Path(unicode_table).with_name("unicode_table.npz")) as table:
        version = str(table["version"]).removesuffix(".0")
    assert f"Unicode {version}" in REPRODUCIBILITY.read_text(encoding="utf-8")


def test_commands_have_options_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    """Of each command with options; README's are run by test_readme.py."""
    helped: dict[tuple[str, ...], set[str]] = {}
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8").replace("\\\n", "")
        for program, rest in re.findall(r"(?:^|[^\w/.-])(bertprep|python -m trainer) ([a-z-][^`#&|\n]*)", text):
            words = rest.split()
            if program == "bertprep" and words[0] == "train":
                program, words = "python -m trainer", words[1:]
            options = {re.sub(r"[^\w-].*", "", word) for word in words if word.startswith("--")} - {
                "--help",
                "--help-all",
                "--version",
            }
            if program != "bertprep":
                words = trainer_cli.with_command(words)
            command = (program, *words[: 2 if words[0] == "task" else 1])
            if options and command not in helped:
                main = cli.main if program == "bertprep" else trainer_cli.main
                with pytest.raises(SystemExit):
                    main([*command[1:], "--help-all"])
                helped[command] = set(re.findall(r"--[a-z0-9-]+", capsys.readouterr().out))
            assert options <= helped.get(command, set()), f"{document}: {rest}"


def parse(words: list[str]) -> None:
    """Have the program's own parser take the words; raises `SystemExit` or `BertprepError` for what it does not know."""
    if words[:2] == ["bertprep", "train"]:
        words = ["trainer", *words[2:]]
    given = [VARIABLES.get(word, "2" if word == "N" else word) for word in words[1:] if word not in ("...", "--help-all")]
    if given == ["--version"]:
        return
    if words[0] == "trainer":
        given = trainer_cli.with_command(given)
        trainer_cli.make_parser(given[0]).parse_args(given)
    else:
        cli.make_command_parser(given).parse_args(given)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_shell_blocks_are_whole_and_their_commands_parse(document: Path) -> None:
    for block in shell_blocks(document):
        checked = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True, check=False)
        assert checked.stderr == "", block
        joined = re.sub(r"(?s)<<'?(\w+)'?.*?\n\1\n", "", re.sub(r"(?s)-c '.*?'", "-c ''", block)).replace("\\\n", " ")
        for line in filter(None, (re.sub(r"(^| +)#.*", "", line) for line in joined.splitlines())):
            assert line == line.lstrip(), f"is indented further than its block: {line}"
            program = re.sub(r"^(\w+=(\$\(|\S* ))+", "", line).split()[0]
            assert program in PROGRAMS or program.startswith(".venv") or (ROOT / program).exists(), f"is no command: {line}"
            for words in programs_in(line):
                parse(words)


def test_trees_have_a_path_in_each_line() -> None:
    trees = [
        block for document in DOCUMENTS for language in ("", "text") for block in blocks(document, language) if is_tree(block)
    ]
    assert len(trees) >= 4
    for lines in ([line for line in tree.splitlines() if line] for tree in trees):
        roots = {line.partition("/")[0] for line in lines if re.match(r"\w+/", line)}
        for line in lines:
            words = line.split()
            assert line.startswith("  ") or "/" in words[0], f"begins with no path: {line}"
            joined = [word for word in words[1:] if word.partition("/")[0] in roots and "/" in word]
            assert joined == [], f"has two lines in one: {line}"


def test_tables_have_a_header_and_rows_of_as_many_cells() -> None:
    for document in DOCUMENTS:
        for table in re.findall(r"(?:^\|.*\n)+", parts(document)[1], re.MULTILINE):
            header, rule, *rows = (re.sub(r"`[^`]*`|\\\|", "", line).count("|") for line in table.splitlines())
            assert "|---" in table.splitlines()[1], f"{document}: has no header: {table}"
            assert {header, rule, *rows} == {header}, f"{document}: has rows of other cells: {table}"


def test_paragraphs_do_not_go_on_from_a_block() -> None:
    for document in DOCUMENTS:
        wrong = re.findall(r"(?<=\n\n)(?!bertprep )[a-z].*", parts(document)[1])
        assert wrong == [], f"{document}: begin without a subject"


def expand(path: str) -> set[str]:
    """The paths that a path with braces stands for.

    >>> sorted(expand("a/{b,c/{d,e}}"))
    ['a/b', 'a/c/d', 'a/c/e']
    """
    innermost = re.search(r"\{([^{}]*)\}", path)
    if innermost is None:
        return {path}
    parts = innermost[1].split(",")
    return set().union(*(expand(path[: innermost.start()] + part + path[innermost.end() :]) for part in parts))


def test_the_tree_of_the_workspace_has_the_paths_of_the_layout() -> None:
    (tree,) = (block for block in blocks(FORMATS, "text") if block.startswith("data/"))
    shown = set().union(*(expand(line.split("  ")[0]) for line in tree.splitlines()))
    workspace = Workspace(Path("data"))
    expected = {
        workspace.sharded("CORPUS") / "manifest.json",
        workspace.sharded("CORPUS") / text_shard("training", "CORPUS", 0),
        workspace.vocabulary("CORPUS", VocabularySettings(), "1f2e3d4c"),
    }
    for settings, ends in (("SETTINGS", ("bin", "idx")), ("TOKENIZER_1f2e3d4c", ("bin", "idx", "words"))):
        folder = workspace.tokens(settings, "CORPUS") / "training"
        expected |= {folder / token_shard_name("training", "CORPUS", 0, end) for end in ends}
    for record_format in RecordFormat:
        folder = workspace.records(record_format, "SETTINGS", "CORPUS")
        expected.add(
            folder / split_folder(record_format, "training") / record_file_name(record_format, "CORPUS", "training", 0)
        )
    assert sorted(path.as_posix() for path in expected if path.as_posix() not in shown) == []
    assert TOKENS in {path.split("/")[1] for path in shown}
    text = FORMATS.read_text(encoding="utf-8")
    assert tokens_name(cased=False, vocabulary="1f2e3d4c", shards=1472, test_fraction=0.1) in text
    assert task_settings_name(SquadSettings()) in text


def test_python_examples_have_the_names_attributes_and_keywords_of_the_code(tmp_path: Path) -> None:
    """The blocks of a page are one program, of strict types, with what its reader has."""
    pytest.importorskip("mypy", reason="is in the extra dev")
    for document in DOCUMENTS:
        if found := blocks(document, "python"):
            program = "\n".join([READERS_OWN.get(document.name, ""), *found])
            (tmp_path / f"{document.stem.lower()}_page.py").write_text(program, encoding="utf-8")
    # In the root and without options, so that the cache of scripts/test --suite checks serves.
    command = [sys.executable, "-m", "mypy", *sorted(tmp_path.iterdir())]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.torch
def test_imports_of_python_examples_are_there() -> None:
    lines = {
        ast.unparse(node)
        for document in DOCUMENTS
        for block in blocks(document, "python")
        for node in ast.walk(ast.parse(block))
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    assert "from transformers import BertConfig, BertForPreTraining, Trainer, TrainingArguments" in lines
    subprocess.run([sys.executable, "-c", "\n".join(sorted(lines))], cwd=ROOT, check=True, capture_output=True)


def test_the_example_from_logits_to_scores_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(GOLDEN / "finetune" / "squad_v2.json", tmp_path / "dev-v2.0.json")
    shutil.copy(GOLDEN / "vocab.txt", tmp_path)
    (tmp_path / "output").mkdir()
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)

    def model(batch: Any) -> Any:
        return generator.standard_normal((2, *batch.input_ids.shape), np.float32)

    (example,) = blocks(FINETUNING, "python")
    exec(compile(example, str(FINETUNING), "exec"), {"model": model})
    assert "'exact'" in capsys.readouterr().out
    written = sorted(path.name for path in (tmp_path / "output").iterdir())
    assert written == ["nbest_predictions.json", "null_odds.json", "predictions.json"]


def test_names_of_bertprep_in_the_text_exist() -> None:
    for document in DOCUMENTS[:-2]:  # the changelog also names what is gone
        for name in re.findall(r"`(bertprep(?:\.\w+)+)(?![\w/])", parts(document)[1]):
            if not name.endswith(".example"):
                pkgutil.resolve_name(name)


def test_the_files_and_names_of_the_architecture_exist() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    files = [path for span in re.findall(r"`([\w/{},]+\.py)`", text) for path in expand(span)]
    assert len(files) > 60
    assert [path for path in files if "NAME" not in path and not find_module(path)] == []
    named = re.findall(r"`([\w/]+\.py)`(?:: | \()`(\w+)`", text)  # a function of a file
    named += [(f"{module}.py", name) for module, name in re.findall(r"`([a-z_/]+)\.(_?[A-Z]\w+)`", text)]
    assert len(named) > 8
    assert [pair for pair in named if not re.search(rf"^ *(def |class )?{pair[1]}\b", find_module(pair[0]), re.MULTILINE)] == []


def find_module(path: str) -> str:
    """The text of a file that the page names from one of the packages, or "" if there is none."""
    found = [
        ROOT / folder / path for folder in (".", "bertprep", "trainer", "bertprep/kernels") if (ROOT / folder / path).is_file()
    ]
    return "\n".join(each.read_text(encoding="utf-8") for each in found)


def test_the_site_lists_every_page() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r"([\w/-]+\.md)$", navigation, re.MULTILINE)
    assert sorted(listed) == sorted(path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md"))


def test_the_page_of_python_has_every_public_name() -> None:
    page = (ROOT / "docs/reference/python.md").read_text(encoding="utf-8")
    shown = re.findall(r"^::: bertprep\.(\w+)$", page, re.MULTILINE)
    assert sorted(shown) == sorted(set(dir(bertprep)) - {"__version__"})


@pytest.mark.parametrize("program", ["commands", "trainer"])
def test_the_reference_of_commands_has_every_option(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("griffe", reason="is in the extra docs")
    from docs.hooks import describe_commands

    page = "\n".join(describe_commands(program))
    main, command = (cli.main, ["create"]) if program == "commands" else (trainer_cli.main, ["squad"])
    with pytest.raises(SystemExit):
        main([*command, "--help-all"])
    options = set(re.findall(r"^  (--[a-z0-9-]+)", capsys.readouterr().out, re.MULTILINE)) - {"--help-all"}
    assert len(options) > 20
    assert options <= set(re.findall(r"<code[^>]*>(--[a-z0-9-]+)", page))


@pytest.mark.slow
def test_a_link_that_leads_nowhere_ends_the_build_of_the_site(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="is in the extra docs")
    for name in ("docs", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    for name in ("bertprep", "trainer"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    with (tmp_path / "docs/start/install.md").open("a", encoding="utf-8") as page:
        page.write("\n[nowhere](first-data.md#nowhere)\n")
    done = subprocess.run([tmp_path / "scripts/docs"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    warnings = [line for line in done.stderr.splitlines() if "WARNING" in line]
    assert len(warnings) == 1
    assert warnings[0].endswith("does not contain an anchor '#nowhere'.")


def anchors(document: Path) -> set[str]:
    """The headings of a document, as links name them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_resolve() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)\s]+)[^)]*\)", document.read_text(encoding="utf-8")):
            name, _, anchor = target.partition("#")
            path = document.parent / name if name else document
            if "://" not in target:
                assert path.exists(), f"{document}: {target}"
                assert not anchor or anchor in anchors(path), f"{document}: {target}"
