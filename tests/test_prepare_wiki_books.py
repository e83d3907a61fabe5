"""The whole pipeline, from nothing to the records of both phases, as a user runs it, against a small Hub."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bertprep
from bertprep.workspace.manifest import read_manifest
from tests.corpora import sums
from tests.hub_server import HubServer
from tests.small_hub import MODEL, fill

SCRIPT = Path(__file__).parent.parent / "scripts" / "prepare_wiki_books"


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """That of a machine on which `bertprep` is installed and the Hub is a small one."""
    command = tmp_path / "bin" / "bertprep"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m bertprep "$@"\n')
    command.chmod(0o755)
    with HubServer() as hub:
        fill(hub)
        yield {
            **{name: value for name, value in os.environ.items() if "proxy" not in name.lower() and not name.startswith("HF_")},
            "PATH": f"{command.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(SCRIPT.parent.parent),
            "HF_ENDPOINT": hub.url,
            "MODEL": MODEL,
            "SHARDS": "2",
        }


def test_the_shards_are_as_many_as_nvidias_scripts_look_for(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "bin" / "bertprep").write_text('#!/bin/sh\necho "$@"\n')
    del environment["SHARDS"]
    shown = subprocess.run(["bash", str(SCRIPT)], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    (command,) = [line for line in shown.stdout.splitlines() if line.startswith("shard ")]
    assert " --corpus wikipedia+bookcorpus " in command
    assert " --shards 1472 --test-fraction 0.1 " in command


@pytest.mark.parametrize(("arguments", "corpus"), [([], "books_wiki_en_corpus"), (["wiki_only"], "wikicorpus_en")])
def test_one_command_leads_from_nothing_to_both_phases(
    arguments: list[str], corpus: str, environment: dict[str, str], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    command = ["bash", str(SCRIPT), *arguments, "--workdir", str(data)]
    run = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert (data / "download" / "bookscorpus").exists() == (not arguments)
    text = read_manifest(data / "sharded" / corpus)
    assert text is not None
    assert text.made_with["shards"] == 2
    assert text.counts == {"dropped_empty": 0, "dropped_duplicates": 0}
    assert sum(facts["documents"] for facts in text.files.values()) == (30 if arguments else 32)
    for record_format in ("tfrecord", "ofrecord"):
        for seq, pred in ((128, 20), (512, 80)):
            (manifest,) = (data / record_format).glob(f"*_seq_len_{seq}_max_pred_{pred}_*_shard_2_*/{corpus}/manifest.json")
            made = read_manifest(manifest.parent)
            assert made is not None
            assert len(made.files) == len(text.files)
            for name, facts in made.files.items():
                with bertprep.records.open(manifest.parent / name) as file:
                    assert (len(file), file.seq, file.pred) == (facts["examples"], seq, pred)

    before = sums(data)
    again = subprocess.run(command, env={**environment, "HF_HUB_OFFLINE": "1"}, cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert sums(data) == before
