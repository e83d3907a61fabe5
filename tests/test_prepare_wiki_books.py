"""The whole pipeline, from nothing to the records of both phases, as a user runs it, against a small Hub."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bertprep
from bertprep.work.manifest import read_manifest
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


def prepare(environment: dict[str, str], data: Path, *arguments: str) -> None:
    command = ["bash", str(SCRIPT), *arguments, "--workdir", str(data)]
    run = subprocess.run(command, env=environment, cwd=data.parent, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def assert_prepared(data: Path, corpus: str, *, documents: int) -> None:
    """There are the text of a corpus and the records of both phases in both formats."""
    text = read_manifest(data / "sharded" / corpus)
    assert text is not None
    assert sum(facts["documents"] for facts in text.files.values()) == documents
    for record_format in ("tfrecord", "ofrecord"):
        for seq, pred in ((128, 20), (512, 80)):
            (folder,) = (data / record_format).glob(f"*_seq_len_{seq}_max_pred_{pred}_*_shard_2_*/{corpus}")
            made = read_manifest(folder)
            assert made is not None
            assert len(made.files) == len(text.files)
            with bertprep.records.open(folder / next(iter(made.files))) as file:
                assert (file.seq, file.pred) == (seq, pred)


def test_one_command_leads_from_nothing_to_both_phases(environment: dict[str, str], tmp_path: Path) -> None:
    """Without BookCorpus, and then with it; the same command again needs no network and changes nothing."""
    data = tmp_path / "data"
    prepare(environment, data, "wiki_only")
    assert_prepared(data, "wikicorpus_en", documents=30)
    prepare(environment, data)
    assert_prepared(data, "books_wiki_en_corpus", documents=32)
    before = sums(data)
    prepare({**environment, "HF_HUB_OFFLINE": "1"}, data)
    assert sums(data) == before
