"""TensorFlow reads the events back; a resumed run makes TensorBoard discard later steps."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertprep.errors import BertprepError
from trainer.log_file import EventFile, append, frame


def read_events(path: Path) -> list[Any]:
    """The events of a file; TensorFlow verifies both checksums of each."""
    import tensorflow as tf

    return list(tf.compat.v1.train.summary_iterator(str(path)))


@pytest.mark.tensorflow
def test_scalars_are_read_by_tensorflow(tmp_path: Path) -> None:
    with EventFile(tmp_path, first_step=0) as file:
        file.write(100, {"training/loss": 7.25, "training/learning_rate": 1e-4})
        file.write(70_000, {"training/loss": 2.5})
    _, _, first, second = read_events(file.path)
    assert first.step == 100
    assert {value.tag: value.simple_value for value in first.summary.value} == {
        "training/loss": 7.25,
        "training/learning_rate": np.float32(1e-4),
    }
    assert (second.step, second.summary.value[0].simple_value) == (70_000, 2.5)
    assert second.wall_time >= first.wall_time > 1_700_000_000


@pytest.mark.tensorflow
def test_a_file_begins_with_its_version_and_the_step_from_which_earlier_files_are_forgotten(tmp_path: Path) -> None:
    from tensorflow.core.util.event_pb2 import SessionLog

    with EventFile(tmp_path, first_step=600) as file:
        version, start = read_events(file.path)
    assert version.file_version == "brain.Event:2"
    assert (start.session_log.status, start.step) == (SessionLog.START, 601)


def test_events_are_in_the_file_immediately(tmp_path: Path) -> None:
    with EventFile(tmp_path, first_step=0) as file:
        before = file.path.stat().st_size
        file.write(1, {"loss": 1.0})
        assert file.path.stat().st_size > before


def test_each_start_has_a_file_of_its_own_that_sorts_after_the_one_before(tmp_path: Path) -> None:
    paths = []
    for first_step in (0, 600, 1200):
        with EventFile(tmp_path, first_step=first_step) as file:
            paths.append(file.path)
    assert sorted(tmp_path.iterdir()) == paths


def test_a_frame_is_the_one_that_tensorflow_writes() -> None:
    of_tensorflow = "0900000000000000 37f97139 313233343536373839 e5b08ac7"  # length, checksum, data, checksum
    assert frame(b"123456789") == bytes.fromhex(of_tensorflow)


def test_a_full_disk_is_one_line() -> None:
    with (
        Path("/dev/full").open("wb", buffering=0) as file,
        pytest.raises(BertprepError, match=r"^/dev/full: cannot be written: "),
    ):
        append(file, b"data")
