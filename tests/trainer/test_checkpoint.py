"""A checkpoint is read as it was written, the same state is the same bytes, and what is none is said to be none."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bertprep.errors import BertprepError
from bertprep.weights.safetensors import write_safetensors
from trainer.checkpoint import RunState, find_checkpoints, newest, read, save

State = dict[str, NDArray[np.float32]]
MADE_WITH = {"model": {"hidden_size": 2}, "phases": [{"seq": 128, "schedule": {"peak": 1e-4}}], "seed": 1, "cased": None}


def a_state() -> State:
    return {
        "kernel": np.arange(6, dtype=np.float32).reshape(2, 3) / 7,
        "kernel/adam_m": np.full((2, 3), 1e-38, np.float32),
        "loss_scale": np.array(2**15, np.float32),
        "updates": np.array(3, np.float32),
    }


def save_steps(folder: Path, *steps: int, keep: int = 3) -> None:
    for step in steps:
        save(folder, RunState(MADE_WITH, step, 0), a_state(), keep=keep)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = save(tmp_path / "new" / "folder", RunState(MADE_WITH, 1000, 7), a_state(), keep=3)
    assert path == tmp_path / "new" / "folder" / "checkpoint-000001000.safetensors"
    run, state = read(path)
    assert run == RunState(MADE_WITH, 1000, 7)
    assert state.keys() == a_state().keys()
    for name, value in a_state().items():
        assert (state[name].shape, state[name].dtype) == (value.shape, np.float32)  # () is not (1,)
        assert state[name].tobytes() == value.tobytes()


def test_the_same_state_is_the_same_bytes_in_whatever_order(tmp_path: Path) -> None:
    one = save(tmp_path / "one", RunState(MADE_WITH, 5, 0), a_state(), keep=3)
    reordered: State = dict(reversed(a_state().items()))
    other = save(tmp_path / "another name", RunState(dict(reversed(MADE_WITH.items())), 5, 0), reordered, keep=1)
    assert other.read_bytes() == one.read_bytes()


@pytest.mark.parametrize("change", ["state", "step", "skipped", "settings"])
def test_whatever_differs_is_other_bytes(change: str, tmp_path: Path) -> None:
    before = save(tmp_path / "before", RunState(MADE_WITH, 5, 0), a_state(), keep=3)
    state = {**a_state(), "updates": np.array(4, np.float32)} if change == "state" else a_state()
    made_with: dict[str, Any] = {**MADE_WITH, "seed": 2} if change == "settings" else MADE_WITH
    step, skipped = 5 + (change == "step"), int(change == "skipped")
    assert save(tmp_path / "after", RunState(made_with, step, skipped), state, keep=3).read_bytes() != before.read_bytes()


def test_the_newest_are_kept(tmp_path: Path) -> None:
    save_steps(tmp_path, 5, 900, 1000, 20_000, keep=2)
    assert names(tmp_path) == ["checkpoint-000001000.safetensors", "checkpoint-000020000.safetensors"]
    assert newest(tmp_path) == tmp_path / "checkpoint-000020000.safetensors"
    save_steps(tmp_path, 20_001, keep=1)
    assert names(tmp_path) == ["checkpoint-000020001.safetensors"]


def test_other_files_are_no_checkpoints_and_are_left_alone(tmp_path: Path) -> None:
    others = ["checkpoint-best.safetensors", "checkpoint-000000009.safetensors.tmp", "model.safetensors", "log.jsonl"]
    for name in others:
        (tmp_path / name).write_text("")
    assert (find_checkpoints(tmp_path), newest(tmp_path)) == ([], None)
    save_steps(tmp_path, 1, 2, keep=1)
    assert names(tmp_path) == sorted([*others, "checkpoint-000000002.safetensors"])


def test_a_folder_that_is_not_there_has_none(tmp_path: Path) -> None:
    assert newest(tmp_path / "nowhere") is None


def test_a_save_that_fails_takes_no_older_one_away(tmp_path: Path) -> None:
    save_steps(tmp_path, 1)
    (tmp_path / "checkpoint-000000002.safetensors").mkdir()  # in the way
    with pytest.raises(BertprepError, match=r"checkpoint-000000002\.safetensors: cannot be written"):
        save_steps(tmp_path, 2, keep=1)
    assert read(tmp_path / "checkpoint-000000001.safetensors").run.step == 1
    assert not list(tmp_path.glob("*.tmp"))


def test_weights_of_another_tool_are_no_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_safetensors(path, a_state(), {"format": "pt"})
    with pytest.raises(BertprepError, match=r"model\.safetensors: is no checkpoint of this trainer; .* --init$"):
        read(path)


@pytest.mark.parametrize("size", [0, 7, 100, -1])
def test_a_file_that_is_cut_off_is_named(size: int, tmp_path: Path) -> None:
    path = save(tmp_path, RunState(MADE_WITH, 1, 0), a_state(), keep=3)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(BertprepError, match=r"checkpoint-000000001\.safetensors: .*(not a whole|cut off or damaged)"):
        read(path)


@pytest.mark.parametrize(
    "settings",
    [
        *("{", "[]", "5", '{"step": 1}', '{"step": "one", "skipped": 0}', "[" * 200_000),
        *(f'{{"step": {step}, "skipped": 0, "sha256": "{"0" * 64}"}}' for step in ("1e400", "NaN", "-1", "1.5", "true")),
        f'{{"step": 1, "skipped": 0, "sha256": "{"0" * 64}", "model": []}}',
    ],
)
def test_a_header_that_does_not_say_what_it_must_is_named(settings: str, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint-000000001.safetensors"
    write_safetensors(path, a_state(), {"bertprep": settings})
    with pytest.raises(BertprepError, match=r"checkpoint-000000001\.safetensors: is damaged \(its header does not say what"):
        read(path)


def test_a_header_that_is_nested_deeply_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint-000000001.safetensors"
    path.write_bytes(struct.pack("<Q", 200_000) + b"[" * 200_000)
    with pytest.raises(BertprepError, match=r"its header is not JSON \(it is nested too deeply\)"):
        read(path)


def test_a_byte_that_changed_is_noticed_and_the_one_before_named(tmp_path: Path) -> None:
    for step in (1, 2):
        save(tmp_path, RunState({}, step, 0), a_state(), keep=2)
    path = tmp_path / "checkpoint-000000002.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(BertprepError, match=r"000000002\.safetensors: is damaged .* to resume from checkpoint-000000001"):
        read(path)
    path.write_bytes(content[:100])
    with pytest.raises(BertprepError, match=r"is damaged .* to resume from checkpoint-000000001"):
        read(path)
