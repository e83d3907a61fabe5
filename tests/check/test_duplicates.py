"""Which repeated records are an error, which a warning, and which are legitimate; test_planted_faults.py has each kind."""

import numpy as np
from numpy.typing import NDArray

from bertprep.check.duplicates import find_duplicates, find_identical_files
from bertprep.check.outcome import CheckedFile

RNG = np.random.default_rng(1)


def hashes(count: int, *, choices: int = 63, certain: bool = True) -> NDArray[np.uint64]:
    """Of records of different texts, whose masks had that many bits of choice."""
    made = RNG.integers(0, 2**63, (count, 2)).astype(np.uint64) * np.uint64(2)
    made[:, 0] |= np.uint64(certain)
    made[:, 1] = made[:, 1] & ~np.uint64(63) | np.uint64(choices)
    return made


def masked_again(records: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The same texts under other masks."""
    return np.stack([records[:, 0], hashes(len(records))[:, 1]], axis=1)


def hashed(name: str, split: str, made: NDArray[np.uint64]) -> CheckedFile:
    return CheckedFile(name, split, hashes=made)


def test_one_certain_repeat_is_a_warning() -> None:
    made = hashes(20_000)
    made[12_345] = made[678]
    (finding,), counts = find_duplicates([hashed("a", "", made[:10_000]), hashed("b", "", made[10_000:])])
    assert counts == {"": 1}
    assert (finding.level, finding.code, finding.file, finding.record) == ("warning", "duplicate-records", "b", 2345)
    assert "a, record 678" in finding.found


def test_short_records_repeat_by_chance() -> None:
    """Of a text of two tokens, one of which is masked: a third of the draws are the same."""
    made = hashes(3000, choices=1, certain=False)
    made[1000:2000, 0] = made[:1000, 0]
    made[1000:1333] = made[:333]
    assert find_duplicates([hashed("a", "", made)]) == ([], {"": 333})
    made[1000:1900] = made[:900]
    assert [finding.level for finding in find_duplicates([hashed("a", "", made)])[0]] == ["error"]


def test_rounds_repeat_texts_under_other_masks() -> None:
    made = hashes(1000)
    of_one_run = RNG.permutation(np.concatenate([made, masked_again(made[:300])]))
    assert find_duplicates([hashed("a", "", of_one_run)]) == ([], {"": 0})
    dealt = [hashed(str(number), "", of_one_run[number::4]) for number in range(4)]
    assert find_duplicates(dealt) == ([], {"": 0})


def test_a_shard_under_other_masks_is_found() -> None:
    made = hashes(1000)
    files = [hashed("a", "", hashes(900)), hashed("b", "", made), hashed("c", "", masked_again(made[::-1]))]
    (finding,), counts = find_duplicates(files)
    assert (finding.level, finding.code, finding.file, finding.count) == ("error", "repeated-texts", "c", 1000)
    assert "a text of b" in finding.found
    assert counts == {"": 0}
    few = [hashed("b", "", made), hashed("c", "", np.concatenate([hashes(960), masked_again(made[:40])]))]
    assert [finding.level for finding in find_duplicates(few)[0]] == ["warning"]


def test_a_test_text_in_training_under_other_masks_is_found() -> None:
    training, test = hashes(5000), hashes(500)
    files = [hashed("training/a", "training", training), hashed("test/a", "test", test)]
    test[100:120] = masked_again(training[300:320])
    (finding,), _ = find_duplicates(files)
    assert (finding.level, finding.code, finding.record) == ("error", "test-text-in-training", 100)
    assert "training/a, record 300" in finding.found
    test[102:120] = hashes(18)
    assert [finding.level for finding in find_duplicates(files)[0]] == ["warning"]


def test_records_in_another_order_are_an_identical_file() -> None:
    made = hashes(100)
    assert find_identical_files([hashed("a", "", hashes(0)), hashed("b", "", hashes(0))]) == []
    (finding,) = find_identical_files([hashed("a", "", made), hashed("b", "", made[::-1])])
    assert (finding.level, finding.code, finding.file) == ("error", "identical-files", "b")
