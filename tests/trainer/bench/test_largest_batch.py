"""The largest batch that fits is found, whatever the limit, and a try that dies does no harm."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bertprep.errors import BertprepError, UsageError
from bertprep.options import read_options
from tests.trainer.bench.test_table import ROW
from trainer.bench.run import BenchSettings, bench_arguments, find_largest, fits
from trainer.bench.table import keep_row
from trainer.cli import make_parser
from trainer.settings import EngineSettings


def settings_of(*arguments: str) -> tuple[BenchSettings, EngineSettings]:
    options = make_parser("bench").parse_args(["bench", *arguments])
    return read_options(BenchSettings, options), read_options(EngineSettings, options)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 7, 8, 15, 16, 23, 24, 100, 513, 1000])
def test_the_largest_batch_is_the_largest(limit: int) -> None:
    tried: list[int] = []
    largest = find_largest(lambda size: tried.append(size) or size <= limit)  # type: ignore[func-returns-value]
    assert largest == (limit if limit < 8 else limit // 8 * 8)
    assert len(tried) == len(set(tried)) <= 16


def test_no_batch_that_fits_is_an_error() -> None:
    with pytest.raises(BertprepError, match="not even a batch of 1 sequence fits"):
        find_largest(lambda _: False)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Another Python in place of this one, which is to do what a few lines of shell say; they know $size and $out."""

    def put(lines: str) -> None:
        path = tmp_path / "python"
        reading = "while [ $# -gt 0 ]; do case $1 in --batch-size) size=$2 ;; --out) out=$2 ;; esac; shift; done"
        path.write_text(f"#!/bin/sh\n{reading}\n{lines}\n")
        path.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(path))

    return put


def measured(folder: Path, *, has_accelerator: bool) -> str:
    """Lines of shell that leave what a bench that went through leaves."""
    keep_row(folder, {**ROW, "has_accelerator": has_accelerator})
    return f"cp '{folder}'/bench.json $out"


def test_a_try_that_dies_does_no_harm(
    stand_in: Callable[[str], None], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    success = measured(tmp_path / "kept", has_accelerator=True)
    stand_in(f"[ $size -le 20 ] || {{ echo out of memory >&2; kill -KILL $$; }}\n{success}")
    assert find_largest(lambda size: fits(*settings_of("--model", "tiny"), size)) == 16
    assert capfd.readouterr().err.splitlines() == [
        "a batch of 8: fits",
        "a batch of 16: fits",
        "a batch of 32: does not fit (out of memory)",
        "a batch of 24: does not fit (out of memory)",
    ]


def test_a_try_that_is_refused_is_refused(stand_in: Callable[[str], None]) -> None:
    stand_in("echo 'trainer: error: --devices 9: this host has 8 GPUs' >&2; exit 2")
    with pytest.raises(UsageError, match=r"^--devices 9: this host has 8 GPUs$"):
        fits(*settings_of("--model", "tiny"), 8)


def test_without_an_accelerator_there_is_no_largest(stand_in: Callable[[str], None], tmp_path: Path) -> None:
    stand_in(measured(tmp_path / "kept", has_accelerator=False))
    with pytest.raises(UsageError, match=r"--batch-size largest: there is no accelerator here"):
        fits(*settings_of("--model", "tiny"), 8)


def test_the_arguments_ask_for_the_same_again() -> None:
    asked = settings_of("--model", "mini", "--data", "one", "a second", "--xla", "--amp", "fp16", "--devices", "2")
    arguments = bench_arguments(*asked)
    assert arguments[0] == "bench"
    assert settings_of(*arguments[1:]) == asked
    assert asked[0].data == (Path("one"), Path("a second"))
