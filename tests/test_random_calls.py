"""No public call ends the process, whatever its arguments: random ones in a process of its own; --seed draws others.

tests/test_stress.py makes four times as many.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import bertprep
from bertprep.config import RecordFormat
from bertprep.records import KINDS, write_examples
from tests.golden import GOLDEN
from tests.tokens.test_dataset import write_set

CALLS = 2_000


def make_data(folder: Path, texts: list[Path]) -> None:
    """Write small files of all that the calls read."""
    (folder / "records").mkdir(parents=True)
    for kind in KINDS:
        for name in RecordFormat:
            block = kind.empty(300, seq=16, pred=2)
            for array in block.arrays:
                array[...] = 0
            write_examples([block], {name: folder / "records" / f"{KINDS.index(kind)}.{name}"})
    write_set(folder / "tokens")
    bertprep.tokenize(inputs=texts, output=folder / "sentences", vocab=GOLDEN / "vocab.txt", workers=1)
    shutil.copytree(folder, folder / "copies")


def make_calls(corpus: Path, folder: Path, seed: int, count: int) -> None:
    """Make random calls in a process of their own; one that ends it fails the test, which names the call."""
    make_data(folder, [corpus])
    command = [sys.executable, "-m", "tests.random_calls", str(folder), str(seed), str(count)]
    environment = {**os.environ, "MALLOC_ARENA_MAX": "1"}  # each arena of a thread would count as 64 MB
    root = Path(__file__).parent.parent
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, cwd=root, env=environment, check=False)
    status = f"by {signal.Signals(-done.returncode).name}" if done.returncode < 0 else f"with exit status {done.returncode}"
    assert done.returncode == 0, f"ended {status} in {folder.with_suffix('.call').read_text()}{done.stderr[-3000:]}"


@pytest.mark.slow
def test_no_call_ends_the_process(golden_corpus: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    make_calls(golden_corpus, tmp_path / "data", request.config.getoption("--seed"), CALLS)
