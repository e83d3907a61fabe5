"""Ends a test that hangs: it fails with its name and the stacks of all threads, and the next one runs.

A signal interrupts what waits: for a pipe, a lock, a process, a server. Where the interpreter does not return to its loop, in
compiled code, a second limit prints the stacks, in which the test's name is, and ends the whole run. Both are far above what
any test takes on a busy machine; $BERTPREP_TEST_SECONDS sets another one.
"""

import faulthandler
import os
import signal
from collections.abc import Generator

import pytest

SECONDS = float(os.environ.get("BERTPREP_TEST_SECONDS", "600"))
STRESS = 6
"""Times that for stress tests, which are long."""
_REPEAT_SECONDS = 10  # where what a test calls swallows the exception
_stderr = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep the standard error that is not captured, for the second limit."""
    capture = config.pluginmanager.getplugin("capturemanager")
    assert capture
    with capture.global_and_fixture_disabled():
        config.stash[_stderr] = os.dup(2)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Limit the time of a test with its fixtures."""
    seconds = SECONDS * (STRESS if item.get_closest_marker("stress") else 1)

    def interrupt(*_: object) -> None:
        faulthandler.dump_traceback(file=2)  # captured, so that it is in the report
        pytest.fail(f"took longer than {seconds:g} s (BERTPREP_TEST_SECONDS)")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, _REPEAT_SECONDS)
    faulthandler.dump_traceback_later(1.1 * seconds + 1, exit=True, file=item.config.stash[_stderr])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
