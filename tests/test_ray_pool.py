"""`--executor ray` on a cluster of two nodes with processes of their own; the one that is not the head, and runs, are killed.

Runs that are killed are processes of their own. The others are commands of one process for all tests, since a process that
joins a cluster, and the workers that Ray starts for it, take as much time as ten small runs. What a test has lost or broken of
the cluster is there again for the next one.
"""

import filecmp
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from bertprep import ray_pool
from bertprep.cli import main
from bertprep.errors import BertprepError
from tests.corpora import deal, sums
from tests.object_store import Fault, Store, serve

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
ON_RAY = ("--executor", "ray")
SETTINGS = ("--corpus", "own", "--seq", "64", "--pred", "10")
VOCABULARY = ("vocab", "--corpus", "own")
CREATE = ("create", *SETTINGS, "--dupe", "20")
LOST_AFTER = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 2}
"""Ray's settings with which a node that does not answer is lost after 1 s instead of 15."""
NO_PRESTART = {"enable_worker_prestart": False, "prestart_worker_first_driver": False}
"""And those with which workers start when they are needed: each takes a CPU second or two."""
ONLY_WHAT_IS_NEEDED = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
"""Of the head's processes: no dashboard, logs to drivers or autoscaler, which take 4 CPU s to start."""
_SESSION = """
import json, os, sys, ray
from bertprep.cli import main
ray.init(os.environ["RAY_ADDRESS"], log_to_driver=False, logging_level="ERROR")
for line in sys.stdin:
    folder, arguments = json.loads(line)
    os.chdir(folder)
    print(f"status {main(arguments)}", file=sys.stderr, flush=True)
    assert ray.is_initialized(), "a command has ended the connection of the program"
"""


@contextmanager
def start(folder: Path, *arguments: str, cluster: Any, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A bertprep command in a folder, on the cluster; where the test fails meanwhile, it is killed."""
    with subprocess.Popen(
        [sys.executable, "-m", "bertprep", *arguments, *ON_RAY],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RAY_ADDRESS": cluster.address, **environment},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


class Session:
    """A process that joins the cluster and runs one command after another; `unseen` is `folder` by a name that only it has."""

    def __init__(self, cluster: Any, folder: Path) -> None:
        self.folder, self._opened = folder, os.open(folder, os.O_RDONLY)
        self.unseen = Path(f"/proc/self/fd/{self._opened}")
        self._is_within_a_command = False
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SESSION], env={**os.environ, "PYTHONPATH": str(ROOT), "RAY_ADDRESS": cluster.address},
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, pass_fds=(self._opened,),
        )  # fmt: skip

    def __call__(self, folder: Path, *arguments: str, status: int = 0) -> str:
        """Run a command; returns the last line that it has printed."""
        assert self._process.stdin
        assert self._process.stderr
        self._is_within_a_command = True
        self._process.stdin.write(json.dumps([str(folder), [*arguments, *ON_RAY]]) + "\n")
        self._process.stdin.flush()
        printed: list[str] = []
        for line in self._process.stderr:
            if line.startswith("status "):
                self._is_within_a_command = False
                assert line == f"status {status}\n", "".join(printed)
                return printed[-1].rstrip("\n") if printed else ""
            printed.append(line)
        raise AssertionError("".join(printed))

    @property
    def takes_commands(self) -> bool:
        """Whether it runs, and no test has failed within a command."""
        return self._process.poll() is None and not self._is_within_a_command

    def close(self) -> None:
        with suppress(subprocess.TimeoutExpired):  # a test has failed within a command
            self._process.communicate(timeout=60)
        self._process.kill()
        os.close(self._opened)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A bucket whose address and credentials are in the environment of all nodes."""
    with pytest.MonkeyPatch.context() as environment, serve(tmp_path_factory.mktemp("store"), environment.setenv) as made:
        yield made


@pytest.fixture(scope="module")
def nodes(store: Store) -> Iterator[Any]:  # noqa: ARG001 - its address must be there before the nodes
    """The cluster as tests leave it, at first without a node."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", str(ROOT))
        environment.setenv("RAY_USAGE_STATS_ENABLED", "0")
        environment.setenv("RAY_raylet_start_wait_time_s", "90")
        environment.setenv("RAY_gcs_server_port_wait_time_s", "90")
        nodes = Cluster()
        yield nodes
        nodes.shutdown()


@pytest.fixture
def cluster(nodes: Any) -> Any:
    """A head and one more node, both in order."""
    if nodes.head_node and not nodes.head_node.remaining_processes_alive():
        nodes.shutdown()
    for node in [node for node in nodes.worker_nodes if not node.remaining_processes_alive()]:
        nodes.remove_node(node, allow_graceful=False)
    if not nodes.head_node:
        add_node(nodes, num_cpus=1, _system_config=LOST_AFTER | NO_PRESTART, **ONLY_WHAT_IS_NEEDED)
    if not nodes.worker_nodes:
        add_node(nodes, num_cpus=1)
    return nodes


def add_node(cluster: Any, tries: int = 6, **options: Any) -> None:
    """Add a node, the first is the head. A raylet gives its agent 30 s to start, which on a busy machine may be too few.

    No setting changes that: with another port the agent is waited for just as long.
    """
    try:
        cluster.add_node(**options)
    except Exception:
        if tries == 1:
            raise
        add_node(cluster, tries - 1, **options)


@pytest.fixture(scope="module")
def sessions(nodes: Any) -> Iterator[list[Session]]:  # noqa: ARG001 - they end before the cluster does
    """The processes that tests have started."""
    started: list[Session] = []
    yield started
    for each in started:
        each.close()


@pytest.fixture
def session(cluster: Any, sessions: list[Session], tmp_path_factory: pytest.TempPathFactory) -> Session:
    """The process of the test before; another one where that is lost."""
    if not sessions or not sessions[-1].takes_commands:
        sessions.append(Session(cluster, tmp_path_factory.mktemp("session")))
    return sessions[-1]


@pytest.fixture(scope="module")
def text(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of three files."""
    return deal(golden_corpus, tmp_path_factory.mktemp("text"), 3)[0].parent


@pytest.fixture(scope="module")
def laptop(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace that one process makes."""
    data = tmp_path_factory.mktemp("laptop") / "data"
    one = ("--workdir", str(data), "--workers", "1")
    assert main(["shard", "--input", str(text), "--corpus", "own", "--shards", "27", *one]) == 0
    assert main([*CREATE, *one]) == 0
    return data


def stop_workers(node: Any) -> list[int]:
    """Stop a node's worker processes that have a task; its raylet still answers for them, and the run waits for them."""
    (raylet,) = node.all_processes["raylet"]
    threads = Path(f"/proc/{raylet.process.pid}/task")
    stopped: list[int] = []
    while not stopped:  # those that wait for a task are idle, and may be another run's
        for children in threads.glob("*/children"):
            with suppress(FileNotFoundError, ProcessLookupError):  # threads and processes end meanwhile
                for child in children.read_text().split():
                    if Path(f"/proc/{child}/cmdline").read_bytes().startswith(b"ray::attend"):
                        os.kill(int(child), signal.SIGSTOP)
                        stopped.append(int(child))
        time.sleep(0.005)
    return stopped


def send(processes: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to those of these processes that are still there."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def finished_files(folder: Path) -> int:
    """How many have a completion marker."""
    return sum(path.name != "settings.json" for path in folder.rglob(".ledger/**/*.json"))


def test_what_nodes_and_runs_that_were_killed_leave_is_what_one_process_makes(
    cluster: Any, session: Session, text: Path, laptop: Path, tmp_path: Path
) -> None:
    shard = ("shard", "--input", str(text), "--corpus", "own", "--shards", "27")
    with start(tmp_path, *shard, cluster=cluster, BERTPREP_FAIL_AFTER="5 SIGKILL") as process:
        _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors
    session(tmp_path, *shard)
    session(tmp_path, *VOCABULARY)
    node = next(iter(cluster.worker_nodes))
    with start(tmp_path, *CREATE, cluster=cluster) as process:
        of_head = stop_workers(cluster.head_node)  # so that there is work for the other node, whenever it begins
        try:
            of_node = stop_workers(node)
        finally:
            send(of_head, signal.SIGCONT)
        while process.poll() is None and finished_files(tmp_path) < 2 * 30 - 2:  # all but those of the task that node has
            time.sleep(0.05)
        assert process.poll() is None, process.communicate()
        cluster.remove_node(node, allow_graceful=False)
        send(of_node, signal.SIGKILL)  # those that could not see that their raylet is no more
        add_node(cluster, num_cpus=1)
        results, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "tasks of lost nodes or workers that run again: " in errors
    assert results.startswith("format "), "Ray's own messages are among the results"
    assert "aylet" not in results + errors
    assert sums(tmp_path / "data") == sums(laptop)
    session(tmp_path, "validate", str(tmp_path / "data"), "--json", "cluster.json")
    assert main(["validate", str(tmp_path / "data"), "--workers", "1", "--json", str(tmp_path / "one.json")]) == 0
    assert filecmp.cmp(tmp_path / "cluster.json", tmp_path / "one.json", shallow=False)
    (records,) = (tmp_path / "data" / "tfrecord").iterdir()
    convert = ("convert", str(records / "own"), str(tmp_path / "one"), "--to", "arrow", "--shards", "5")
    assert main([*convert, "--workers", "1"]) == 0
    session(tmp_path, "convert", str(records / "own"), "dealt", "--to", "arrow", "--shards", "5")
    assert sums(tmp_path / "dealt") == sums(tmp_path / "one")


def test_a_store_and_parts(session: Session, store: Store, text: Path, tmp_path: Path) -> None:
    """Shards by hash, a vocabulary, records and their check, all on the cluster and in a store that fails at times."""
    shard = ("shard", "--input", str(text), "--corpus", "own", "--shards", "9")
    create = ("create", *SETTINGS, "--format", "tfrecord")
    for command in (shard, VOCABULARY, create):
        assert main([*command, "--workdir", str(tmp_path), "--workers", "1"]) == 0
    store.faults += [
        Fault("PUT", r".*\.arrow", lose=True),
        Fault("PUT", r".*\.tfrecord", times=3, status=503, code="SlowDown"),
        Fault("GET", r".*\.txt", cut_after=99),
    ]
    for command in (shard, VOCABULARY, (*create, "--part", "1/2"), (*create, "--part", "0/2")):
        session(tmp_path, *command, "--workdir", store.url)
    assert not any(fault.times for fault in store.faults), "a request was not made"
    assert sums(store.path()) == sums(tmp_path)


def test_a_shard_that_fails_ends_the_run_with_its_name(
    session: Session, laptop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shards = [tmp_path / f"{number}.txt" for number in range(3)]
    for path in shards:
        path.write_text("One sentence.\nAnother one.\n\nA third one.\n")
    shards[1].write_bytes(b"One sentence.\n\xff\n")
    (vocabulary,) = (laptop / "vocab").glob("own_*.txt")
    create = ("create", "--input", *map(str, shards), "--output", str(tmp_path / "records"), "--vocab", str(vocabulary))
    told = session(tmp_path, *create, status=1)
    assert told.startswith(f"bertprep: error: {shards[1]}: byte 14 (0xff) is not UTF-8; ")
    assert main([*create, "--workers", "1"]) == 1
    assert told == capsys.readouterr().err.splitlines()[-1]


def test_nodes_that_do_not_share_the_folder_are_refused(session: Session, text: Path, laptop: Path) -> None:
    shutil.copytree(laptop, session.folder / "data")
    for command in (("shard", "--input", str(text), "--workdir", str(session.unseen)), ("validate", str(session.unseen))):
        told = session(session.folder, *command, status=1)
        assert told.startswith(f"bertprep: error: {session.unseen}")
        assert ": is not the same folder on node " in told
        assert told.endswith("; inputs and outputs must be on a file system that all nodes share, or in an object store")
    assert not any(session.folder.glob(".*"))


def test_nodes_with_another_bertprep_are_refused(cluster: Any, text: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(ROOT / "bertprep", other / "bertprep", ignore=shutil.ignore_patterns("__pycache__"))
    with (other / "bertprep" / "config.py").open("a") as file:
        file.write("# changed\n")
    with start(tmp_path, "shard", "--input", str(text), cluster=cluster, PYTHONPATH=str(other)) as process:
        _, errors = process.communicate()
    assert process.returncode == 1
    assert " has bertprep's source " in errors.splitlines()[-1]
    assert errors.endswith("; all nodes need the same environment as the one that runs the command\n")


def test_a_task_that_is_lost_again_and_again_ends_the_run() -> None:
    import ray

    task, error = ray_pool._Task("shard 3", b""), ray.exceptions.NodeDiedError("gone")
    for _ in range(9):
        task = ray_pool._retry(ray, task, error)
    with pytest.raises(BertprepError, match=r"^shard 3: was lost 10 times with its worker or node"):
        ray_pool._retry(ray, task, error)


def test_what_cannot_be_joined_is_told_at_once(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(status: int) -> str:
        assert main(["shard", "--input", str(text), "--workdir", str(tmp_path), *ON_RAY]) == status
        return capsys.readouterr().err.splitlines()[-1]

    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        assert told(1).startswith(f"bertprep: error: RAY_ADDRESS {address}: no Ray head responds there (")
    monkeypatch.setenv("RAY_ADDRESS", "head")
    assert told(2).endswith("RAY_ADDRESS head: must be HOST:PORT of a Ray head, auto or local")
    monkeypatch.setitem(sys.modules, "ray", None)
    assert told(2) == "bertprep: error: --executor ray: Ray is not installed; pip install 'bertprep[ray]'"
