"""Wait for the other processes of a run in a thread, since frameworks wait in code that ignores signals."""

from __future__ import annotations

from collections.abc import Callable
from concurrent import futures
from threading import Thread
from typing import TypeVar

from bertprep.errors import BertprepError
from bertprep.progress import print_message
from bertprep.terminal import INTERRUPTED
from trainer.engines import exit_without_waiting

JOIN_TIMEOUT = 300  # seconds to wait for all processes
_T = TypeVar("_T")


def join(connect: Callable[[], _T], rank: int, hosts: tuple[str, ...]) -> _T:
    """Return the result of `connect`, which waits for the other processes; raises `BertprepError` if that fails."""
    joined: futures.Future[_T] = futures.Future()

    def connect_and_keep() -> None:
        try:
            joined.set_result(connect())
        except Exception as error:
            joined.set_exception(error)

    try:
        print_message(f"process {rank} of {len(hosts)}: waiting for the others, up to {JOIN_TIMEOUT} s")
        Thread(target=connect_and_keep, daemon=True).start()
        for _ in range(JOIN_TIMEOUT):  # polled, since a signal that arrives just before a long wait does not end it
            if futures.wait([joined], timeout=1).done:
                break
        return joined.result(timeout=0)
    except KeyboardInterrupt:
        exit_without_waiting(INTERRUPTED)
        raise
    except (RuntimeError, futures.TimeoutError) as error:
        exit_without_waiting()
        why = (str(error) or f"after {JOIN_TIMEOUT} s").splitlines()[0]
        advice = "start all of them with the same --hosts"
        raise BertprepError(f"process {rank}: cannot reach the others at {hosts[0]} ({why}); {advice}") from error
