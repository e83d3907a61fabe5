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

from tests.hub_server import HubServer
from tests.hub_uploads import Account
from tests.object_store import Store, store
from tests.small_hub import MODEL, SENTENCES, fill, parquet
from tests.test_docs import blocks

__all__ = ["store"]  # a fixture

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
COMMAND = r"(?:(?:bertprep|pip|python|source) |scripts/|examples/)[^`\n]+"
TOKEN = "hf_of_me"

# Each command of the README, in its order: what is run in its place, where {} is the command itself, or why it is not run.
TOUR = {
    "scripts/quickstart": "MORE='--steps 4 --warmup-steps 1 --eval-every 2 --eval-sequences 64' {}",
    "scripts/test": "# runs this test",
    "source .venv/bin/activate": "# the folder is on PATH already",
    "pip install .": "# needs the network",
    "bertprep create --seq 128 --pred 20": "{}",
    # Make data
    "scripts/prepare_wiki_books": "SHARDS=2 {}",
    "bertprep download vocab wikipedia bookcorpus": "{} --model $MODEL",
    "bertprep shard --shards 1472": "bertprep shard --shards 2",
    "bertprep create --vocab bert-base-uncased --seq 512 --pred 80": "bertprep create --vocab $MODEL --seq 512 --pred 80",
    "bertprep create --pairs none --masked-lm-prob 0.3 --pred 38": "{}",
    "bertprep shard --input books/*.txt --corpus books": "{}",
    "bertprep create --input shards/*.txt --output records": "{}",
    "bertprep tokenize --corpus books --vocab bert-base-uncased": "bertprep tokenize --corpus books --vocab $MODEL",
    "bertprep create --dry-run --corpus books --seq 512 --pred 80": "{}",
    # On a cluster, in a bucket
    "pip install '.[cloud,ray]'": "# needs the network",
    "bertprep shard --workdir s3://bucket/data": "bertprep shard --workdir $BUCKET/data --input books --corpus books",
    "bertprep create --workdir s3://bucket/data --part slurm": "bertprep create --workdir $BUCKET/data --part 0/1",
    "bertprep shard --input TEXT --executor ray":
        "bertprep shard --input books  # on Ray: test_ray_pool.py",
    # Check it
    "bertprep validate data": "{}",
    "bertprep inspect data/ofrecord/.../part-0": "bertprep inspect data/ofrecord/*_pred_20_*/sample/training/part-0",
    "bertprep validate --html page.html": "{}",
    "bertprep convert SRC DST": "bertprep convert data/tfrecord/*_pred_20_*/sample converted",
    # Train
    "pip install '.[tensorflow]'": "# needs the network",
    "python -m trainer --format ofrecord": "{} --steps 2 --batch-size 4 --eval-sequences 64",
    "python -m trainer --model base --optimizer lamb --batch-size 64 --accumulate 16 --lr 2e-3 --steps 20000":
        "{} --model tiny --batch-size 2 --accumulate 2 --steps 2 --eval-sequences 64",
    "python -m trainer --format tokens": "{} --steps 2 --batch-size 4 --eval-sequences 64",
    "python -m trainer export data/models/RUN DIR": "python -m trainer export data/models/quickstart exported",
    # Fine-tune and score
    "bertprep download squad glue weights": "{} --model $MODEL",
    "pip install '.[finetune]'": "# needs the network",
    "bertprep task squad --version 1.1": "{} --vocab $MODEL",
    "python -m trainer squad --init google-bert/bert-base-uncased":
        "python -m trainer squad --init $MODEL --batch-size 2 --epochs 1",
    "bertprep task glue mrpc": "{} --vocab $MODEL",
    "python -m trainer glue --name mrpc --init google-bert/bert-base-uncased":
        "python -m trainer glue --name mrpc --init $MODEL --batch-size 1 --epochs 1",
    "python -m trainer evaluate --init WEIGHTS --data RECORDS":
        "python -m trainer evaluate --init data/models/quickstart --data converted --sequences 64",
    "examples/end_to_end/run": "# tests/trainer/test_end_to_end.py runs it",
    "examples/sentiment/run": "# needs real weights; tests/trainer/test_minilm.py has them",
    # Hugging Face
    "bertprep shard --dataset OWNER/NAME": "bertprep shard --dataset somebody/poems",
    "bertprep create --corpus NAME --format arrow": "bertprep create --corpus poems --format arrow",
    "bertprep push data/arrow/.../NAME OWNER/RECORDS": "bertprep push data/arrow/*/poems me/records",
    "bertprep download dataset OWNER/RECORDS": "bertprep download dataset me/records",
}  # fmt: skip
AGAIN = ("bertprep validate data", "bertprep inspect data/ofrecord/.../part-0")
"""What must go on working when there are models and records of every kind."""


def commands() -> Iterator[str]:
    """The README's commands: in its blocks that have no language, in their comments, and in the text between."""
    for index, part in enumerate(README.read_text(encoding="utf-8").split("```")):
        if index % 2 == 0:
            yield from re.findall(f"`({COMMAND})`", part)
        elif part.startswith("\n"):
            yield from re.findall(rf"\b{COMMAND}$", re.sub(r" +# ", "\n", part), re.MULTILINE)


def test_the_tour_has_all_commands() -> None:
    assert list(commands()) == list(TOUR)


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer() as server:
        fill(server)
        server.put("datasets/somebody/poems", {"train.parquet": parquet([{"text": sentence} for sentence in SENTENCES * 3])})
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
    for name in ("books", "shards"):
        (folder / name).mkdir()
        (folder / name / "one.txt").write_text(
            "\n\n".join(f"Letter {number}.\n{SENTENCES[number % 4]}" for number in range(40))
        )
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
