"""Compiled code is loaded once, whichever thread is the first to need it, and compiled again where its source changed."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bertprep import kernels
from bertprep.kernels import build

LOAD_AT_ONCE = """
import threading
import numpy as np
from bertprep import kernels

def pack_often():
    for _ in range(50):
        kernels.load().pack(np.full(9, 7, np.int32), np.arange(9), 9, 100, *made())

def made():
    return np.zeros(2, np.uint64), np.empty(101, np.int32), np.empty(9, np.int32), np.empty(9, np.int32)

threads = [threading.Thread(target=pack_often) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_code_that_a_thread_runs_stays_in_memory() -> None:
    subprocess.run([sys.executable, "-c", LOAD_AT_ONCE], check=True)


def test_code_is_compiled_again_where_any_source_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = Path(shutil.copytree(Path(kernels.__file__).parent, tmp_path / "kernels"))
    names = []

    def name_code(name: str, _: object) -> bytes:
        names.append(name)
        raise InterruptedError

    monkeypatch.setattr(kernels, "__file__", str(sources / "__init__.py"))
    monkeypatch.setattr(kernels, "cached", name_code)
    others = sorted(path for path in sources.glob("*.py") if path.name != "__init__.py")
    for changed in (None, *others):
        if changed:
            changed.write_bytes(changed.read_bytes() + b"# another\n")
        with pytest.raises(InterruptedError):
            kernels.load.__wrapped__()
    assert len(set(names)) == len(others) + 1


def test_ctrl_c_takes_effect_once_the_compiler_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which could swallow it."""
    steps = []

    def compile_kernels(_: object) -> bytes:
        signal.raise_signal(signal.SIGINT)
        steps.append("compiled")
        return b""

    monkeypatch.setattr(build, "compile_kernels", compile_kernels)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        kernels._compile()
    assert steps == ["compiled"]
    assert signal.getsignal(signal.SIGINT) is handler
