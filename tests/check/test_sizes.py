"""Files and splits of unlikely sizes, by numbers of records that a person can check."""

import pytest

from bertprep.check.outcome import CheckedFile
from bertprep.check.sizes import judge_file_sizes


def files(*records: int, split: str = "training") -> list[CheckedFile]:
    return [CheckedFile(f"{split}/{number}", split, records=count) for number, count in enumerate(records)]


@pytest.mark.parametrize(
    ("records", "file", "expected"),
    [
        ((10, 100, 100, 110), "training/0", "50 to 200 records"),
        ((100, 90, 210, 100, 95), "training/2", "50 to 200 records"),
        ((100, 140, 10, 120, 300, 110), "training/2", "58 to 230 records"),  # of an even number the mean of the middle two
    ],
)
def test_the_file_farthest_from_the_median_is_named(records: tuple[int, ...], file: str, expected: str) -> None:
    [finding] = judge_file_sizes(files(*records))
    assert (finding.code, finding.file, finding.level) == ("file-sizes", file, "warning")
    assert finding.expected.startswith(expected)


def test_few_files_and_other_splits_are_not_compared() -> None:
    assert judge_file_sizes(files(10, 100, 100)) == []
    assert judge_file_sizes([*files(100, 100, 100, 100), *files(10, 10, 10, 10, split="test")]) == []
