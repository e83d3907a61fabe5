"""A checkpoint is read as it was written, the same state is the same bytes, and every other file is refused in one line."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bertprep.errors import BertprepError
from bertprep.version import __version__
from bertprep.weights.safetensors import write_safetensors
from tests.trainer.small_data import set_format
from trainer.checkpoint import Evaluated, RunState, find_checkpoints, newest, read, save

State = dict[str, NDArray[np.float32]]
MADE_WITH: dict[str, Any] = {
    "model": {"hidden_size": 2}, "schedule": {"peak": 1e-4}, "examples": {"on_the_fly": False}, "seed": 1, "cased": None,
}  # fmt: skip
GOOD: dict[str, Any] = {"format": 1, "step": 1, "skipped": 0, "evaluated": 0, "sha256": "0" * 64, **MADE_WITH}
STATE: State = {
    "kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
    "kernel/adam_m": np.full((2, 3), 1e-38, np.float32),
    "loss_scale": np.array(2**15, np.float32),
    "updates": np.array(3, np.float32),
}


def save_steps(folder: Path, *steps: int, keep: int = 3) -> Path:
    return [save(folder, RunState(MADE_WITH, step), STATE, keep=keep) for step in steps][-1]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = RunState(MADE_WITH, 1000, 7, 900)
    path = save(tmp_path / "new" / "folder", written, STATE, keep=3)
    assert path == tmp_path / "new" / "folder" / "checkpoint-000001000.safetensors"
    run, state = read(path)
    assert run == written
    assert state.keys() == STATE.keys()
    for name, value in STATE.items():
        assert (state[name].shape, state[name].dtype) == (value.shape, np.float32)  # () is not (1,)
        assert state[name].tobytes() == value.tobytes()


def test_the_same_state_is_the_same_bytes_in_whatever_order(tmp_path: Path) -> None:
    one = save_steps(tmp_path / "one", 5)
    reordered: State = dict(reversed(STATE.items()))
    other = save(tmp_path / "another name", RunState(dict(reversed(MADE_WITH.items())), 5), reordered, keep=1)
    assert other.read_bytes() == one.read_bytes()


def test_the_newest_are_kept_and_other_files_left_alone(tmp_path: Path) -> None:
    assert newest(tmp_path / "nowhere") is None
    others = ["checkpoint-best.safetensors", "checkpoint-000000009.safetensors.tmp", "model.safetensors", "log.jsonl"]
    for name in others:
        (tmp_path / name).write_text("")
    assert (find_checkpoints(tmp_path), newest(tmp_path)) == ([], None)
    save_steps(tmp_path, 5, 900, 1000, 20_000, keep=2)
    assert names(tmp_path) == sorted([*others, "checkpoint-000001000.safetensors", "checkpoint-000020000.safetensors"])
    assert newest(tmp_path) == tmp_path / "checkpoint-000020000.safetensors"


def test_a_save_that_fails_removes_no_older_one(tmp_path: Path) -> None:
    save_steps(tmp_path, 1)
    (tmp_path / "checkpoint-000000002.safetensors").mkdir()  # in the way
    with pytest.raises(BertprepError, match=r"checkpoint-000000002\.safetensors: cannot be written"):
        save_steps(tmp_path, 2, keep=1)
    assert read(tmp_path / "checkpoint-000000001.safetensors").run.step == 1
    assert not list(tmp_path.glob("*.tmp"))


def test_weights_of_another_tool_are_not_a_checkpoint(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", STATE, {"format": "pt"})
    with pytest.raises(BertprepError, match=r"model\.safetensors: .* --init to start from its weights$"):
        read(tmp_path / "model.safetensors")


@pytest.mark.parametrize("size", [0, 7, 100, -1, None])
def test_a_file_that_is_cut_or_changed_is_named_with_the_one_before(size: int | None, tmp_path: Path) -> None:
    path = save_steps(tmp_path, 1, 2)
    content = path.read_bytes()
    path.write_bytes(content[:size] if size is not None else content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(BertprepError, match=r"000000002\.safetensors: .* checkpoint-000000001"):
        read(path)


@pytest.mark.parametrize("byte", [0, 1, 2, 3])
def test_a_flipped_bit_is_found_in_each_byte_of_a_number(byte: int, tmp_path: Path) -> None:
    path = save_steps(tmp_path, 1)
    content = bytearray(path.read_bytes())
    content[len(content) - 4 + byte] ^= 1  # of the last number
    path.write_bytes(content)
    with pytest.raises(BertprepError, match=r"its arrays do not have the sha256 of its header"):
        read(path)


@pytest.mark.parametrize(
    "header",
    [
        *("{", "[]", "5", "[" * 200_000),
        *(json.dumps({**GOOD, "step": "?"}).replace('"?"', step) for step in ("1e400", "NaN", "-1", "1.5", "true", '"one"')),
        *(json.dumps({**GOOD, name: []}) for name in ("model", "schedule", "examples", "sha256", "test")),
        *(json.dumps({name: value for name, value in GOOD.items() if name != missing}) for missing in ("step", "schedule")),
    ],
)
def test_a_header_that_is_not_as_expected_is_named(header: str, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint-000000001.safetensors"
    write_safetensors(path, STATE, {"bertprep": header})
    with pytest.raises(BertprepError, match=r"checkpoint-000000001\.safetensors: .*header"):
        read(path)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (None, "has no format number, so no released version of bertprep wrote it; name another file, or another --out"),
        (
            2,
            f"has format 2, but bertprep {__version__} reads format 1; use the version of bertprep that wrote it, or a later "
            "one",
        ),
        (True, "has format True, expected 1; .*"),
        ("\n" * 99, "has format '[n\\\\]*, expected 1; .*"),
    ],
)
def test_a_checkpoint_of_another_format_is_refused_before_the_rest_is_read(
    number: object, expected: str, tmp_path: Path
) -> None:
    path = save_steps(tmp_path, 1)
    set_format(path, number, step="not a number any more")
    with pytest.raises(BertprepError, match=rf"^{path}: {expected}$"):
        read(path)


def test_the_best_is_the_lowest_loss_or_the_highest_of_any_other_metric() -> None:
    for metric, better, worse in (("loss", 4.9, 5.1), ("f1", 5.1, 4.9)):
        best = Evaluated(sequences=100, metric=metric, value=5.0)
        assert best.is_better_than(None)
        assert replace(best, value=better).is_better_than(best)
        assert not replace(best, value=worse).is_better_than(best)
        assert not best.is_better_than(best)
        assert not replace(best, value=float("nan")).is_better_than(None)
        assert replace(best, sequences=10, value=worse).is_better_than(best)  # which cannot be compared
