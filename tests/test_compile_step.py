"""scripts/compile_step tells in a line what it cannot compile for; what it says of an H100 needs JAX's CUDA plugin."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "compile_step"


@pytest.mark.jax
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "huge"], "error: --model huge: unknown; choose one of tiny"),
        (["--on", "v5e:2x2"], "--on v5e:2x2: needs libtpu"),
        (["--batch-size", "0"], "error: numbers begin at 1"),
    ],
)
def test_what_it_cannot_do_is_a_line(arguments: list[str], said: str) -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True)
    assert done.returncode in (1, 2)
    assert said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
