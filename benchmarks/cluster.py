"""What Ray and an object store add to `create`: to start, and for each task, compared with one machine and its disk.

Every shard is the same text of eight short documents, so that a task is next to no work; there are as many workers as CPUs. Ray
is started by the command and ends with it. The store is moto's S3 server on this machine, to which the records go. CPU seconds
are those of all processes that the command starts, Ray's own too; the server's are listed separately. Medians of the runs; a
task costs the difference between the most shards and the fewest.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import islice
from pathlib import Path

import bertprep
from benchmarks.harness import BERTPREP, describe_machine, remove
from bertprep.pool import default_workers
from bertprep.sources.sample import one_paragraph_a_line, read_speeches

# Becomes the parent of all processes that lose theirs, and looks at what they have used: Ray's daemons make the OS forget the
# times of workers that end, which are then those of the last look.
_REPORT = """
import ctypes, os, resource, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
used = {}
def look():
    found = {}
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
        except OSError:
            continue
        found[int(pid)] = int(fields[1]), (pid, fields[19]), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    inside = {os.getpid()}
    while more := {pid for pid, (parent, _, _) in found.items() if parent in inside} - inside:
        inside |= more
        used.update({found[pid][1]: found[pid][2] for pid in more})
started = time.monotonic()
run = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
while run.poll() is None:
    look()
    time.sleep(0.1)
wall = time.monotonic() - started
try:
    while True:
        os.wait()
except ChildProcessError:
    pass
reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
print(run.returncode, max(sum(used.values()), reaped.ru_utime + reaped.ru_stime), wall)
"""
EXECUTORS = {"local": "local", "ray": "ray", "store": "local"}
"""What is measured, and the executor that it takes."""


def measure(command: list[str], store: dict[str, str]) -> tuple[float, float]:
    """(CPU seconds, wall seconds) of a command and of all that it starts."""
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | store
    run = subprocess.run([sys.executable, "-c", _REPORT, *command], env=environment, capture_output=True, text=True, check=True)
    status, cpu, wall = map(float, run.stdout.split())
    if status:
        raise SystemExit(f"{run.stderr}{' '.join(command)}: exit status {status:.0f}")
    return cpu, wall


@contextmanager
def open_store(folder: Path) -> Iterator[tuple[dict[str, str], Callable[[], float]]]:
    """An S3 server with a bucket `made`: the environment in which it is found, and the CPU seconds that it has used."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        address = next(found[1] for line in server.stderr if (found := re.search(r"(127\.0\.0\.1:\d+)", line)))
        threading.Thread(target=server.stderr.read, daemon=True).start()
        connection = HTTPConnection(address)
        connection.request("PUT", "/made", headers={"Authorization": "AWS4-HMAC-SHA256 Credential=k/20260101/us-east-1/s3/x"})
        connection.getresponse().read()

        def used() -> float:
            fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        yield {
            "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true",
            "AWS_ENDPOINT_URL": f"http://{address}", "BERTPREP_OBJECT_CACHE": str(folder / "objects"),
        }, used  # fmt: skip
        server.kill()


def main() -> None:
    """Measure every number of shards, each the three ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="runs of each command (default: %(default)s)")
    parser.add_argument("--shards", type=int, nargs="+", default=[8, 200, 2000], help="numbers of shards (default: 8 200 2000)")
    parser.add_argument("--folder", type=Path, help="where files are written and removed (default: the system's)")
    options = parser.parse_args()
    print(describe_machine("ray"), f"{default_workers()} workers\n", sep="\n")
    print("| shards | executor | wall s | CPU s | the server's CPU s |\n|---|---|---|---|---|")
    costs: dict[tuple[str, int], tuple[float, float]] = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as name, open_store(Path(name)) as (store, used):
        folder = Path(name)
        documents = [one_paragraph_a_line(speech)[:400].rpartition(" ")[0] + "\n" for speech in islice(read_speeches(), 8)]
        texts = [folder / f"{index:05d}.txt" for index in range(max(options.shards))]
        for path in texts:
            path.write_text("\n".join(documents), encoding="utf-8")
        vocab = bertprep.train_vocabulary(texts[:1], output=folder / "vocab.txt", size=500)
        for shards in options.shards:
            for name, executor in EXECUTORS.items():
                of_runs, before = [], used()
                for run in range(options.runs):
                    output = str(folder / name) if name != "store" else f"s3://made/{shards}-{run}"
                    remove(folder / name)
                    command = [*BERTPREP, "create", "--input", *map(str, texts[:shards]), "--output", output]
                    of_runs.append(measure([*command, "--vocab", str(vocab), "--dupe", "1", "--executor", executor], store))
                cpu, wall = (statistics.median(seconds) for seconds in zip(*of_runs, strict=True))
                costs[name, shards] = cpu, wall
                server = f"{(used() - before) / options.runs:.1f}" if name == "store" else ""
                print(f"| {shards:,} | {name} | {wall:.1f} | {cpu:.1f} | {server} |", flush=True)
    fewest, most = min(options.shards), max(options.shards)
    for name in EXECUTORS:
        cpu, wall = (
            1000 * (last - first) / max(1, most - fewest)
            for first, last in zip(costs[name, fewest], costs[name, most], strict=True)
        )
        print(f"{name}: {wall:.1f} ms and {cpu:.1f} CPU ms a task")
