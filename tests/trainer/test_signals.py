"""A signal to stop is recorded once; a second Ctrl-C stops at once; outside the block nothing changes."""

import io
import signal
import sys
from contextlib import suppress
from typing import Any

import pytest

from trainer.signals import StopSignal


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_recorded_and_the_block_continues(number: signal.Signals, capfd: pytest.CaptureFixture[str]) -> None:
    with StopSignal() as stop:
        assert not stop.has_come
        signal.raise_signal(number)
        assert stop.has_come
    assert capfd.readouterr().err == f"{number.name}: stopping after this step, with a checkpoint\n"


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_ctrl_c_after_a_signal_stops_at_once(first: signal.Signals) -> None:
    with StopSignal() as stop:
        signal.raise_signal(first)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert stop.has_come


def test_a_second_sigterm_changes_nothing() -> None:
    with StopSignal() as stop:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert stop.has_come


def test_outside_the_block_signals_have_their_old_handlers() -> None:
    def handlers() -> list[object]:
        return [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    before = handlers()
    with StopSignal():
        within = handlers()
    assert handlers() == before
    assert not set(within) & set(before)
    with suppress(ValueError), StopSignal():
        raise ValueError("an error in the block")
    assert handlers() == before


class Interrupting(io.RawIOBase):
    """A file whose first write is interrupted by SIGTERM."""

    is_new = True

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self.is_new:
            self.is_new = False
            signal.raise_signal(signal.SIGTERM)
        return len(data)


def test_a_signal_during_a_print_is_not_an_error(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Which a second print from the signal's handler would be."""
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BufferedWriter(Interrupting()), line_buffering=True))
    with StopSignal() as stop:
        print("a line of the log", file=sys.stderr)
        assert stop.has_come
    assert "SIGTERM: stopping after this step" in capfd.readouterr().err
