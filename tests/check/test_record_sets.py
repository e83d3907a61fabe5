"""What most files of a split have is said once, of the split; what few have, of each."""

import pytest

from bertprep.check.finding import Finding
from bertprep.check.outcome import CheckedFile
from bertprep.check.record_sets import _without_repeats


@pytest.mark.parametrize(
    ("files", "with_it", "is_said_of_each"), [(2, 1, True), (4, 2, True), (4, 3, False), (3, 2, False), (1, 1, False)]
)
def test_what_most_files_have_is_said_of_the_split(files: int, with_it: int, is_said_of_each: bool) -> None:
    checked = [CheckedFile(f"part-{number}", "training") for number in range(files)]
    of_all = [Finding("random-tokens", file.name, "uniform", "not so") for file in checked[:with_it]]
    other = Finding("position-shares", "part-0", "all positions", "the first half")
    of_record = Finding("random-tokens", "part-0", "a token", "none", 7)
    for file, finding in zip(checked, of_all, strict=False):
        file.findings.append(finding)
    checked[0].findings += [other, of_record]
    expected = [*(of_all if is_said_of_each else []), other, of_record]
    assert sorted(_without_repeats(checked, {"random-tokens"}), key=str) == sorted(expected, key=str)
    assert len(_without_repeats(checked, set())) == with_it + 2
