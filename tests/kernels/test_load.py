"""Threads that are the first to need compiled code, all at once, as those that count the rows of a set."""

import subprocess
import sys

LOAD_AT_ONCE = """
import threading
import numpy as np
from bertprep import kernels

def pack_often():
    for _ in range(50):
        kernels.load().pack(np.full(9, 7, np.int32), np.arange(9), 9, 100, *made())

def made():
    return np.zeros(2, np.uint64), np.empty(101, np.int32), np.empty(9, np.int32), np.empty(9, np.int32)

threads = [threading.Thread(target=pack_often) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_code_that_a_thread_runs_stays_in_memory() -> None:
    subprocess.run([sys.executable, "-c", LOAD_AT_ONCE], check=True)
