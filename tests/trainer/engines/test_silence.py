"""What libraries say while they are loaded is held back, whoever writes it, and shown where loading fails.

Each test is a process of its own, with a standard error that nobody but the process has.
"""

import os
import subprocess
import sys

BEGINNING = """
import os, subprocess, sys
from trainer.engines import quiet

def say_in_all_ways():
    print("Python", file=sys.stderr)
    os.write(2, b"compiled code\\n")
    subprocess.run(["sh", "-c", "echo a child >&2"])
"""


def run(code: str) -> "subprocess.CompletedProcess[str]":
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
    return subprocess.run([sys.executable, "-c", BEGINNING + code], env=buffered, capture_output=True, text=True)


def test_nothing_is_said_in_the_block_and_all_outside_it() -> None:
    done = run("""
print("before", file=sys.stderr)
with quiet():
    say_in_all_ways()
print("after", file=sys.stderr)
os.write(2, b"compiled code after\\n")
""")
    assert (done.returncode, done.stderr) == (0, "before\nafter\ncompiled code after\n")


def test_what_was_held_is_shown_where_the_block_fails() -> None:
    done = run("""
try:
    with quiet():
        say_in_all_ways()
        sys.stderr.write("a line that is ")
        raise ImportError
except ImportError:
    print("ended later", file=sys.stderr)
""")
    assert done.stderr == "Python\ncompiled code\na child\na line that is ended later\n"


def test_standard_output_is_left_alone() -> None:
    done = run("""
with quiet():
    print("a result")
    say_in_all_ways()
""")
    assert (done.stdout, done.stderr) == ("a result\n", "")


def test_no_descriptor_is_left_open() -> None:
    done = run("""
before = os.listdir("/dev/fd")
with quiet():
    pass
assert os.listdir("/dev/fd") == before
""")
    assert done.returncode == 0, done.stderr
