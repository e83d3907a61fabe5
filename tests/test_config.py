"""Settings have the types they declare, whoever builds them."""

from typing import Any

import numpy as np
import pytest

from bertprep import InstanceSettings, ShardSettings, UsageError


@pytest.mark.parametrize(
    ("settings", "name", "value", "expected"),
    [
        *((InstanceSettings, "seq", value, "a whole number") for value in (128.5, 8.0, True, "128", None, [8], np.float32(8))),
        *((InstanceSettings, name, value, "a whole number") for name, value in (("seed", 1.5), ("pred", "9"), ("dupe", False))),
        *((InstanceSettings, "masked_lm_prob", value, "a number") for value in ("0.15", True, None, b"1", [], 10**400, 1j)),
        *((InstanceSettings, "cased", value, "True or False") for value in (1, 0, None, "yes")),
        *((ShardSettings, "shards", value, "a whole number") for value in (1.5, True, "4")),
        *((ShardSettings, name, value, "text") for name, value in (("splitter", None), ("splitter", 7), ("language", b"de"))),
        (ShardSettings, "test_fraction", "0.1", "a number"),
        (ShardSettings, "keep_duplicates", 1, "True or False"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_usage(settings: type, name: str, value: Any, expected: str) -> None:
    with pytest.raises(UsageError, match=f"^--{name.replace('_', '-')} .*: must be {expected}, found {type(value).__name__}$"):
        settings(**{name: value})


def test_numbers_of_numpy_are_numbers() -> None:
    made = InstanceSettings(seq=np.int64(64), pred=np.uint8(9), masked_lm_prob=np.float64(0.15), short_seq_prob=0, seed=2**70)
    assert made == InstanceSettings(seq=64, pred=9, short_seq_prob=0.0, seed=2**70)
    assert (type(made.seq), type(made.masked_lm_prob), type(made.short_seq_prob)) == (int, float, float)
    assert ShardSettings(shards=np.int32(4)).shards == 4
    assert ShardSettings(shards=None, language=None).shards is None
