"""Which part of a run a process is, as a user or the environment of a job says."""

import pytest

from bertprep.errors import UsageError
from bertprep.work.parts import FINISH, Part, read_part


def of_slurm(one: int, first: int, last: int, count: int) -> Part | None:
    ids = {"ID": one, "MIN": first, "MAX": last, "COUNT": count}
    return read_part("slurm", environment={f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in ids.items()})


@pytest.mark.parametrize("ids", [range(400), range(1, 5), range(3, 30, 9), range(7, 8), range(0, 100, 99)])
def test_an_array_of_any_first_id_and_step_is_dealt(ids: range) -> None:
    parts = [of_slurm(one, ids[0], ids[-1], len(ids)) for one in ids]
    assert parts == [Part(index, len(ids)) for index in range(len(ids))]


@pytest.mark.parametrize(("one", "ids"), [(0, [0, 1, 2, 4]), (4, [0, 1, 2, 4]), (3, [1, 3, 7]), (1, [0, 1, 5, 6, 7])])
def test_an_array_without_a_step_is_refused(one: int, ids: list[int]) -> None:
    with pytest.raises(UsageError, match=r"are not evenly spaced; submit one such as 0-399"):
        of_slurm(one, ids[0], ids[-1], len(ids))


@pytest.mark.parametrize("count", [1, 2, 5, 12, 40])
def test_every_item_is_assigned_to_one_part(count: int) -> None:
    items = list(range(12))
    assigned = [list(Part(index, count).assign(items)) for index in range(count)]
    assert sorted(item for part in assigned for item in part) == items
    assert max(map(len, assigned)) - min(map(len, assigned)) <= 1
    assert list(FINISH.assign(items)) == []


def test_kubernetes_tells_the_index() -> None:
    assert read_part("kubernetes/8", environment={"JOB_COMPLETION_INDEX": "5"}) == Part(5, 8)
    with pytest.raises(UsageError, match="there is no part 8 of 8; parts are numbered from 0, 0/8 to 7/8"):
        read_part("kubernetes/8", environment={"JOB_COMPLETION_INDEX": "8"})
    with pytest.raises(UsageError, match="is for an Indexed Job of Kubernetes, but JOB_COMPLETION_INDEX is not set"):
        read_part("kubernetes/8", environment={})


@pytest.mark.parametrize("text", ["0/0", "0/1000000000001"])
def test_a_number_of_parts_has_limits(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--part [\d/]+: has [\d,]+ parts, expected 1 to [\d,]+$"):
        read_part(text, environment={})


@pytest.mark.parametrize(
    "text", ["", "/", "1/", "/4", "-1/4", "1/-4", "1.0/4", "1/4/9", "a/b", "٣/٤", "1 /4", "kubernetes", "0/9" * 99]
)
def test_what_is_no_part_is_one_line(text: str) -> None:
    with pytest.raises(UsageError, match=r"\A--part [^\n]*: is not a part; expected I/N, such as 0/400 for the first [^\n]*\Z"):
        read_part(text, environment={})
    with pytest.raises(UsageError, match="SLURM_ARRAY_TASK_ID=x is not a number"):
        read_part("slurm", environment={"SLURM_ARRAY_TASK_ID": "x"})
