"""Without any of the processor's special instructions the same files are made and read, only slower."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

TESTS = (
    "tests/kernels/test_crc32c.py",
    "tests/kernels/test_text.py",
    "tests/instances/test_golden.py",
    "tests/kernels/test_packing.py",
    "tests/records/test_formats.py::test_protobuf_is_written_as_it_is_by_hand",
    "tests/records/test_formats.py::test_protobuf_holds_any_values",
    "tests/records/test_bad_files.py::test_packed_numbers_are_those_of_the_definition",
)


def test_a_plain_processor_computes_the_same(pytestconfig: pytest.Config) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-k", "not reference_examples", *TESTS]
    root = pytestconfig.rootpath
    plain = {**os.environ, "BERTPREP_PORTABLE": "1"}
    done = subprocess.run(command, env=plain, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
