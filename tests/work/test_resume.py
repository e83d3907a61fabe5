"""The command that an error or a finding names finishes the folder, run as it is printed."""

import shlex
import signal
from pathlib import Path
from typing import Any

import pytest

import bertprep
from bertprep.work.layout import LEDGER
from bertprep.work.ledger import Ledger, is_unfinished
from bertprep.work.manifest import MDS, RECORDS
from bertprep.work.resume import what_finishes
from bertprep.work.run import FAIL_AFTER
from bertprep.work.settings import SETTINGS_FILE
from tests.golden import GOLDEN
from tests.runs import start

VERSIONS = {"bertprep": "1"}
NAMES = ["training/part-0", "training/part-1"]


def ledger_of(folder: Path, kind: str = RECORDS, command: str = "", **made_with: Any) -> Ledger:
    return Ledger(folder=folder, kind=kind, made_with={"seq": 128, **made_with}, versions=VERSIONS, command=command)


def test_a_command_whose_input_is_not_recorded_is_named_without_options(tmp_path: Path) -> None:
    tokenizer = {"name": "a", "sha256": "0" * 64, "model": "BPE", "width": 9, "special": [], "words": "a"}
    made_with = {"column": "c", "tokenizer": {**tokenizer, **dict.fromkeys(("cls", "sep", "pad", "mask", "unk"))}}
    for number, (command, expected) in enumerate({"tokenize": "tokenize", "": "convert"}.items()):
        folder = tmp_path / str(number)
        ledger = ledger_of(folder, MDS, command, **made_with)
        ledger.open(["train/a.mds"])
        ledger.close(["train/a.mds"])
        assert what_finishes(folder) == f"run the bertprep {expected} command that began it again, which resumes it"


@pytest.mark.parametrize("content", [None, b"corrupt"])
def test_a_folder_whose_ledger_names_no_command(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / LEDGER).mkdir()
        (tmp_path / LEDGER / SETTINGS_FILE).write_bytes(content)
    assert what_finishes(tmp_path) == "run the command that makes it again, which resumes it"


def test_a_folder_that_a_living_process_makes_is_not_to_be_resumed(tmp_path: Path) -> None:
    runs = [ledger_of(tmp_path), ledger_of(tmp_path)]
    for run in runs:
        run.open(NAMES)
    assert what_finishes(tmp_path) == "a process is making it now; wait until it has finished"
    runs[0].close(NAMES)  # as one of two parts
    assert what_finishes(tmp_path) == "a process is making it now; wait until it has finished"
    runs[1].close(NAMES)
    assert what_finishes(tmp_path) == "run the bertprep create command that began it again, which resumes it"


@pytest.fixture(scope="module")
def workspace(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace, whose name a shell must quote, with text shards of two corpora."""
    folder = tmp_path_factory.mktemp("resume") / "my data"
    for corpus in ("books", "news"):
        bertprep.shard(golden_corpus, corpus=corpus, workdir=folder, shards=2, workers=1)
    return folder


def stop_and_finish(command: str, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Kill a command after its first file, run what finishes it as in a shell, and return that."""
    monkeypatch.setenv(FAIL_AFTER, "1 SIGKILL")
    [(status, _)] = start(workspace.parent, [shlex.split(command)])
    assert status == -signal.SIGKILL
    monkeypatch.delenv(FAIL_AFTER)
    monkeypatch.chdir(workspace.parent)
    unfinished = [path.parent for path in Path(workspace.name).rglob(LEDGER)]
    [finishing] = {what_finishes(folder) for folder in unfinished}
    before, _, found = finishing.partition("finish it with: bertprep ")
    assert before == ""
    [(status, output)] = start(workspace.parent, [shlex.split(found)])
    assert status == 0, output
    assert not any(map(is_unfinished, unfinished))
    return shlex.split(found)


@pytest.mark.parametrize(
    "options",
    [
        "create --corpus books --dupe 2",
        "create --corpus news --seq 64 --pred 10 --whole-word --format tfrecord --compress gzip",
        "create --corpus news --pairs none --seed 1 --one-seed --format ofrecord,arrow",
        "tokenize --corpus books",
    ],
)
def test_the_command_with_all_its_options(options: str, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workspace / "vocab").mkdir(exist_ok=True)
    (workspace / "vocab/mine.txt").write_bytes((GOLDEN / "vocab.txt").read_bytes())
    command = f"{options} --vocab 'my data/vocab/mine.txt' --workdir 'my data'"
    found = stop_and_finish(f"{command} --workers 1", workspace, monkeypatch)
    assert sorted(found) == sorted(shlex.split(command))


def test_a_vocabulary_that_was_trained_for_the_corpus_needs_no_option(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bertprep.train_vocabulary(corpus="books", workdir=workspace, size=300, workers=1)
    command = "create --corpus books --dupe 3 --workdir 'my data'"
    assert stop_and_finish(f"{command} --workers 1", workspace, monkeypatch) == shlex.split(command)


def test_a_vocabulary_that_is_elsewhere_is_not_guessed(workspace: Path) -> None:
    vocabulary = workspace.parent / "elsewhere.txt"
    vocabulary.write_text((GOLDEN / "vocab.txt").read_text() + "zzz\n")
    part = {"part": "0/2", "workers": 1, "formats": "tfrecord"}
    made = bertprep.create(corpus="books", workdir=workspace, vocab=vocabulary, dupe=4, **part)
    assert what_finishes(made.folder) == "run the bertprep create command that began it again, which resumes it"
