"""A tour of README.md: all of its commands, in its order and in one folder, as whoever reads it from top to bottom runs them.

The Hub and the bucket are servers on 127.0.0.1, and runs are of a few steps. `TOUR` has what is run for each command.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub_server import Account, HubServer
from tests.instances.small_tokenizers import content_of
from tests.object_store import Store, store
from tests.small_hub import MODEL, SENTENCES, fill
from tests.test_docs import blocks

__all__ = ["store"]  # a fixture

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
COMMAND = r"(?:(?:bertprep|pip|python|source) |scripts/|examples/)[^`\n]+"
TOKEN = "hf_of_me"

# Each command of the README, in its order: what is run in its place, where {} is the command itself, or why it is not run.
TOUR = {
    "pip install .": "# needs the network",
    "pip install '.[tensorflow]'": "# needs the network",
    "scripts/quickstart": "MORE='--steps 4 --warmup-steps 1 --eval-every 2 --eval-sequences 64' {}",
    "bertprep create --seq 128 --pred 20": "{}",
    "bertprep inspect data/ofrecord/*_128_*/sample/training/part-0 --records 1": "{}",
    "python -m trainer --format ofrecord --steps 800 --batch-size 32 --lr 3e-3 --bias-correction --no-dropout":
        "{} --steps 3 --batch-size 4 --eval-sequences 64",
    "bertprep shard --input books/*.txt --corpus books --one-document-per-file": "{}",
    "bertprep create --corpus books --seq 512 --pred 80": "{}",
    "bertprep create --corpus books --pairs none": "{}",
    "scripts/prepare_wiki_books": "SHARDS=2 {}",
    "bertprep validate data": "{}",
    "bertprep convert SRC DST": "bertprep convert data/tfrecord/*_pred_20_*/sample converted",
    "bertprep tokenize --tokenizer answerdotai/ModernBERT-base --input books/*.txt --one-document-per-file --output tokens":
        "{}",
    "python -m trainer --format ofrecord": "{} --steps 2 --batch-size 4 --eval-sequences 64",
    "bertprep task squad --version 1.1": "bertprep download squad weights --model $MODEL; {} --vocab $MODEL",
    "python -m trainer squad --init google-bert/bert-base-uncased":
        "python -m trainer squad --init $MODEL --batch-size 2 --epochs 1",
    "bertprep create --workdir s3://bucket/data --part slurm":
        "where='--workdir '$BUCKET/data; bertprep shard $where --input books --corpus books; bertprep create $where --part 0/1",
    "bertprep push FOLDER OWNER/RECORDS": "bertprep push converted me/records",
    "scripts/docs": "# runs in test_docs.py",
    "scripts/test": "# runs this test",
}  # fmt: skip
AGAIN = ("bertprep validate data", "bertprep inspect data/ofrecord/*_128_*/sample/training/part-0 --records 1")
"""What must go on working when there are models and records of every kind."""


def commands() -> Iterator[str]:
    """The README's commands: of its terminal, in its blocks that have no language, and in the text between."""
    for index, part in enumerate(README.read_text(encoding="utf-8").split("```")):
        if index % 2 == 0:
            yield from re.findall(f"`({COMMAND})`", part)
        elif part.startswith("\n"):
            yield from re.findall(rf"^{COMMAND}$", re.sub(r" +# ", "\n", part), re.MULTILINE)
        elif part.startswith("console\n"):
            yield from re.findall(r"^\$ (.+)$", part, re.MULTILINE)


def test_the_tour_has_all_commands() -> None:
    assert list(commands()) == list(TOUR)


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer() as server:
        fill(server)
        server.put("models/answerdotai/ModernBERT-base", {"tokenizer.json": content_of("byte_bpe").encode()})
        server.uploads.accounts[TOKEN] = Account("me")
        yield server


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone as far as the commands see it, with text of one's own; instead of installing, `.venv` has this Python."""
    folder = tmp_path / "clone"
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    with (folder / "scripts/environment.sh").open("a") as file:
        file.write("make_environment() { :; }\n")
    programs = folder / ".venv/bin"
    programs.mkdir(parents=True)
    for name, arguments in (("bertprep", '-m bertprep "$@"'), ("python", '"$@" $MORE')):
        (programs / name).write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" {arguments}\n')
        (programs / name).chmod(0o755)
    (folder / "books").mkdir()
    for number in range(40):
        (folder / "books" / f"letter_{number}.txt").write_text(f"Letter {number}.\n{SENTENCES[number % 4]}")
    return folder


@pytest.mark.tensorflow
def test_every_command_and_the_python_lines_run(clone: Path, hub: HubServer, store: Store) -> None:
    environment = {
        **{name: value for name, value in os.environ.items() if "proxy" not in name.lower() and not name.startswith("HF_")},
        "PATH": f"{clone}/.venv/bin:{os.environ['PATH']}", "MORE": "", "MODEL": MODEL, "BUCKET": store.url,
        "HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HOME": f"{clone}/hf", "HF_HUB_DISABLE_XET": "1",
    }  # fmt: skip

    def run(*command: str) -> None:
        done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout}{done.stderr}"

    for command in (*TOUR, *AGAIN):
        run("bash", "-c", TOUR[command].replace("{}", command))
        if command == "scripts/quickstart":  # its model is the one that the small Hub has
            run("python", "-m", "trainer", "export", "data/models/quickstart", "released")
            hub.put(f"models/{MODEL}", {path.name: path.read_bytes() for path in (clone / "released").iterdir()})
    for lines in blocks(README, "python"):
        run("python", "-c", lines)
