"""The wait of a process for the others of its run, in a thread: frameworks wait in code that reacts to no signal."""

from __future__ import annotations

from collections.abc import Callable
from concurrent import futures
from threading import Thread
from typing import TypeVar

from bertprep.errors import BertprepError
from bertprep.progress import print_message
from bertprep.terminal import INTERRUPTED
from trainer.engines import exit_without_waiting

JOIN_TIMEOUT = 300  # seconds for all processes to come
_T = TypeVar("_T")


def join(connect: Callable[[], _T], rank: int, hosts: tuple[str, ...]) -> _T:
    """Return what `connect` returns, which waits for the other processes; raises `BertprepError` where they do not come."""
    joined: futures.Future[_T] = futures.Future()

    def connect_and_keep() -> None:
        try:
            joined.set_result(connect())
        except Exception as error:
            joined.set_exception(error)

    try:
        print_message(f"process {rank} of {len(hosts)}: waiting for the others, up to {JOIN_TIMEOUT} s")
        Thread(target=connect_and_keep, daemon=True).start()
        for _ in range(JOIN_TIMEOUT):  # a wait is not ended by a signal that came just before it
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
        raise BertprepError(f"process {rank}: does not reach the others at {hosts[0]} ({why}); {advice}") from error
