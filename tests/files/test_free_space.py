"""The space that is needed is compared with what is free on each file system, of which folders may share one."""

import shutil
from pathlib import Path

import pytest

from bertprep.errors import BertprepError
from bertprep.files.free_space import check_free_space, free_space
from bertprep.files.paths import as_path


def test_folders_of_one_file_system_are_added_up(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    needed = {tmp_path / "a": 10, tmp_path / "not yet" / "b": 20, as_path("s3://bucket/c"): 1 << 60}
    [disk] = free_space(needed)
    assert (disk.folder, disk.needed_bytes, disk.enough) == (tmp_path / "a", 30, True)
    most = 2 * shutil.disk_usage(tmp_path).free // 3
    check_free_space({tmp_path / "a": most})
    with pytest.raises(BertprepError, match=r"MB are still to be written, but only .* MB are free; free some space"):
        check_free_space({tmp_path / "a": most, tmp_path / "b": most})
