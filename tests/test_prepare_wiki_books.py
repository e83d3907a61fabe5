"""The commands that scripts/prepare_wiki_books runs; tests/test_readme.py runs them against a small Hub."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "prepare_wiki_books"


@pytest.mark.parametrize(("arguments", "corpus"), [((), "wikipedia+bookcorpus"), (("wiki_only",), "wikipedia")])
def test_shards_are_as_many_as_nvidias_scripts_look_for_and_records_of_both_phases(
    arguments: tuple[str, ...], corpus: str, tmp_path: Path
) -> None:
    command = tmp_path / "bin" / "bertprep"
    command.parent.mkdir()
    command.write_text('#!/bin/sh\necho "$@"\n')
    command.chmod(0o755)
    environment = {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}"}
    run = ["bash", str(SCRIPT), *arguments, "--workdir", "data"]
    shown = subprocess.run(run, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    (shard,) = [line for line in shown.splitlines() if line.startswith("shard ")]
    assert f" --corpus {corpus} " in shard
    assert " --shards 1472 --test-fraction 0.1 " in shard
    created = [line for line in shown.splitlines() if line.startswith("create ")]
    assert [line.split()[-4:] for line in created] == [
        ["--seq", seq, "--pred", pred] for seq, pred in (("128", "20"), ("512", "80"))
    ]
    assert all(f" --workdir {tmp_path}/data" in line for line in (shard, *created))
