"""`--engine ray` on a cluster of three nodes, each with processes of its own; nodes and the run itself are killed.

The head has no CPU, so that all work is on the two others, and the run is a process of its own that is no part of the cluster.
"""

import filecmp
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
CREATE = ("create", "--corpus", "own", "--seq", "64", "--pred", "10", "--dupe", "20", "--vocab-size", "300")
LOST_AFTER = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 2}
"""Ray's settings with which a node that does not answer is lost after 1 s instead of 15."""


class Run:
    """bertprep commands in a folder, with the cluster's address."""

    def __init__(self, folder: Path, cluster: Any = None) -> None:
        self.folder, self.cluster = folder, cluster

    def start(self, *arguments: str, pass_fds: tuple[int, ...] = (), **environment: str) -> subprocess.Popen[str]:
        there = {"RAY_ADDRESS": self.cluster.address} if self.cluster else {}
        return subprocess.Popen(
            [sys.executable, "-m", "bertprep", *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), **there, **environment},
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=pass_fds,
        )

    def __call__(self, *arguments: str, status: int = 0, pass_fds: tuple[int, ...] = (), **environment: str) -> str:
        """Its last line of standard error."""
        with self.start(*arguments, pass_fds=pass_fds, **environment) as process:
            _, errors = process.communicate()
        assert process.returncode == status, errors
        return errors.splitlines()[-1] if errors else ""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", str(ROOT))
        environment.setenv("RAY_USAGE_STATS_ENABLED", "0")
        head = {"num_cpus": 0, "include_dashboard": False, "_system_config": LOST_AFTER}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        yield cluster
        cluster.shutdown()


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    draw = random.Random(1)
    words = [f"{begin}{end}" for begin in ("riv", "moon", "hous", "stre") for end in ("er", "ing", "es", "ation", "ly")]
    documents = (
        [" ".join(draw.choices(words, k=draw.randint(5, 12))).capitalize() + "." for _ in range(draw.randint(3, 9))]
        for _ in range(1200)
    )
    path.write_text("\n\n".join("\n".join(sentences) for sentences in documents) + "\n")
    return path


@pytest.fixture(scope="module")
def laptop(text: Path) -> Path:
    """The workspace that one process makes."""
    run = Run(text.parent)
    run("shard", "--input", str(text), "--corpus", "own", "--shards", "27", "--workers", "1")
    run(*CREATE, "--workers", "1")
    return text.parent / "data"


def all_files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def stop_workers(node: Any) -> None:
    """Stop the worker processes of a node in the middle of what they do; its raylet still answers for them."""
    (raylet,) = node.all_processes["raylet"]
    tasks = Path(f"/proc/{raylet.process.pid}/task")
    stopped: list[str] = []
    while not stopped:  # they are being started
        time.sleep(0.05)
        for child in {child for task in tasks.iterdir() for child in (task / "children").read_text().split()}:
            title = Path(f"/proc/{child}/cmdline").read_bytes()
            if title.startswith((b"ray::IDLE", b"ray::attend")):
                os.kill(int(child), signal.SIGSTOP)
                stopped.append(child)


def finished_files(folder: Path) -> int:
    """How many the journals of unfinished runs name."""
    return sum(len(path.read_bytes().splitlines()) - 1 for path in folder.rglob("*.journal"))


def test_what_nodes_and_runs_that_were_killed_leave_is_what_one_process_makes(
    cluster: Any, text: Path, laptop: Path, tmp_path: Path
) -> None:
    run = Run(tmp_path, cluster)
    shard = ("shard", "--input", str(text), "--corpus", "own", "--shards", "27", "--engine", "ray")
    run(*shard, status=-signal.SIGKILL, BERTPREP_FAIL_AFTER="5 SIGKILL")
    run(*shard)
    with run.start(*CREATE, "--engine", "ray", BERTPREP_FAIL_AFTER="9 SIGSTOP") as process:
        os.waitpid(process.pid, os.WUNTRACED)  # the ninth file of the one format
        process.send_signal(signal.SIGCONT)
        os.waitpid(process.pid, os.WUNTRACED)  # and of the other
        node = next(iter(cluster.worker_nodes))
        stop_workers(node)
        process.send_signal(signal.SIGCONT)
        while process.poll() is None and finished_files(tmp_path) < 2 * 30 - 2:  # all but those of the task that node has
            time.sleep(0.05)
        assert process.poll() is None, process.communicate()
        cluster.remove_node(node, allow_graceful=False)
        cluster.add_node(num_cpus=1)
        results, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "tasks that are run again, of lost nodes or workers: 1\n" in errors
    assert results.startswith("format "), "Ray's own messages are among the results"
    assert "aylet" not in results + errors
    names = all_files(laptop)
    assert all_files(tmp_path / "data") == names
    assert filecmp.cmpfiles(laptop, tmp_path / "data", names, shallow=False) == (names, [], [])
    run("validate", "--engine", "ray", "--json", "cluster.json")
    run("validate", "--workers", "1", "--json", "one.json")
    assert (tmp_path / "cluster.json").read_bytes() == (tmp_path / "one.json").read_bytes()
    (records,) = (tmp_path / "data" / "tfrecord").iterdir()
    run("convert", str(records / "own"), "dealt", "--to", "arrow", "--shards", "5", "--engine", "ray")
    run("convert", str(records / "own"), "one", "--to", "arrow", "--shards", "5", "--workers", "1")
    names = all_files(tmp_path / "one")
    assert filecmp.cmpfiles(tmp_path / "dealt", tmp_path / "one", names, shallow=False) == (names, [], [])


def test_shards_by_hash_of_a_killed_run_are_those_of_one_process(cluster: Any, text: Path, tmp_path: Path) -> None:
    shard = ("shard", "--assign", "hash", "--input", str(text), "--corpus", "own", "--shards", "27")
    run = Run(tmp_path, cluster)
    run(*shard, "--engine", "ray", status=-signal.SIGKILL, BERTPREP_FAIL_AFTER="5 SIGKILL")
    run(*shard, "--engine", "ray")
    run(*shard, "--workdir", "one", "--workers", "1")
    names = all_files(tmp_path / "one")
    assert all_files(tmp_path / "data") == names
    assert filecmp.cmpfiles(tmp_path / "one", tmp_path / "data", names, shallow=False) == (names, [], [])


def test_a_shard_that_fails_ends_the_run_with_its_name(cluster: Any, laptop: Path, tmp_path: Path) -> None:
    shards = [tmp_path / f"{number}.txt" for number in range(3)]
    for path in shards:
        path.write_text("One sentence.\nAnother one.\n\nA third one.\n")
    shards[1].write_bytes(b"One sentence.\n\xff\n")
    (vocabulary,) = (laptop / "vocab").glob("own_300*.txt")
    create = ("create", "--input", *map(str, shards), "--output", "records", "--vocab", str(vocabulary))
    told = Run(tmp_path, cluster)(*create, "--engine", "ray", status=1)
    assert told.startswith(f"bertprep: error: {shards[1]}: byte 14 (0xff) is not UTF-8; ")
    assert told == Run(tmp_path)(*create, "--workers", "1", status=1)


def test_nodes_that_do_not_share_the_folder_are_refused(cluster: Any, text: Path, tmp_path: Path) -> None:
    opened = os.open(tmp_path, os.O_RDONLY)  # a path by way of it leads there in the run alone
    try:
        shard = ("shard", "--input", str(text), "--workdir", f"/proc/self/fd/{opened}", "--engine", "ray")
        told = Run(tmp_path, cluster)(*shard, status=1, pass_fds=(opened,))
    finally:
        os.close(opened)
    assert told.startswith(f"bertprep: error: /proc/self/fd/{opened}: is another folder on node ")
    assert told.endswith("; what is written must be on a file system that all nodes share")
    assert not any(tmp_path.glob(".*"))


def test_nodes_with_another_bertprep_are_refused(cluster: Any, text: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(ROOT / "bertprep", other / "bertprep", ignore=shutil.ignore_patterns("__pycache__"))
    with (other / "bertprep" / "protobuf.py").open("a") as file:
        file.write("# changed\n")
    told = Run(tmp_path, cluster)("shard", "--input", str(text), "--engine", "ray", status=1, PYTHONPATH=str(other))
    assert " has bertprep's source " in told
    assert told.endswith("; all nodes must have the environment of the one that runs the command")


def test_an_address_without_a_cluster_is_told_at_once(text: Path, tmp_path: Path) -> None:
    shard = ("shard", "--input", str(text), "--engine", "ray")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        told = Run(tmp_path)(*shard, status=1, RAY_ADDRESS=address)
    assert told.startswith(f"bertprep: error: RAY_ADDRESS {address}: no Ray head answers there (")
    assert Run(tmp_path)(*shard, status=2, RAY_ADDRESS="head").endswith("must be HOST:PORT of a Ray head, auto or local")
