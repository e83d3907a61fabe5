"""The processes of a run on several hosts, by --hosts or by the TF_CONFIG that TensorFlow reads; OneFlow has a launcher."""

from __future__ import annotations

import os

from bertprep.errors import UsageError
from bertprep.untrusted import parse_json
from trainer.settings import EngineSettings, check_hosts


def find_process(settings: EngineSettings) -> tuple[int, tuple[str, ...]]:
    """This process's rank, and HOST:PORT of all; none where it is the only one."""
    if settings.hosts:
        return settings.host_rank or 0, settings.hosts
    text = os.environ.get("TF_CONFIG", "")
    if not text:
        return 0, ()
    try:
        config = parse_json(text.encode())
        if set(config["cluster"]) != {"worker"} or config["task"]["type"] != "worker":
            raise UsageError("TF_CONFIG: expected a cluster of workers alone; the first of them does what a chief would")
        rank, hosts = int(config["task"]["index"]), tuple(str(host) for host in config["cluster"]["worker"])
        if not 0 <= rank < len(hosts):
            raise UsageError(f"TF_CONFIG: task index {rank}: there are {len(hosts)} workers, counted from 0")
        check_hosts("TF_CONFIG", hosts)
        return rank, hosts
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"TF_CONFIG: is not as TensorFlow describes it ({error!r}): {text}; or use --hosts instead") from error
