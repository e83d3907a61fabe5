"""Without any of the processor's special instructions the same files are made and read, only slower."""

import os
import subprocess
import sys
from pathlib import Path

from bertprep import records
from bertprep.commands.create import create
from tests.corpora import sums
from tests.golden import GOLDEN

READ = "import sys; from bertprep import records; print([records.open(path)[:].input_ids.sum() for path in sys.argv[1:]])"


def test_a_plain_processor_makes_and_reads_the_same_files(golden_corpus: Path, tmp_path: Path) -> None:
    formats = "tfrecord,ofrecord,arrow"
    create(inputs=[golden_corpus], output=tmp_path / "here", vocab=GOLDEN / "vocab.txt", formats=formats, workers=1)
    plain = {**os.environ, "BERTPREP_PORTABLE": "1"}
    command = [sys.executable, "-m", "bertprep", "create", "--input", str(golden_corpus), "--vocab", str(GOLDEN / "vocab.txt")]
    command += ["--format", formats, "--output", str(tmp_path / "plain")]
    subprocess.run(command, env=plain, check=True, capture_output=True)
    assert sums(tmp_path / "plain") == sums(tmp_path / "here")
    files = sorted(str(path) for path in (tmp_path / "here").rglob("*0000*"))
    shown = subprocess.run([sys.executable, "-c", READ, *files], env=plain, check=True, capture_output=True, text=True).stdout
    assert shown.strip() == str([records.open(path)[:].input_ids.sum() for path in files])


def test_a_plain_processor_computes_the_same() -> None:
    plain = {**os.environ, "BERTPREP_PORTABLE": "1"}
    tests = [str(Path(__file__).with_name(f"test_{name}.py")) for name in ("crc32c", "varints")]
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", *tests], env=plain, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
