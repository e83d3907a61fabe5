"""Text files become shards: the bytes, that only text and settings determine them, and what a kill leaves behind."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertprep.config import ShardSettings
from bertprep.errors import BertprepError, UsageError
from bertprep.progress import SILENT
from bertprep.records.make import identify_text
from bertprep.sources.sample import write_sample
from bertprep.text.documents import TextInput
from bertprep.text.shards import shard_corpus
from bertprep.workspace.layout import Workspace
from bertprep.workspace.manifest import Manifest, sha256_of

THREE_DOCUMENTS = """\
I came. I saw.
I conquered.

Was it so?

A third one!
"""


def shard(root: Path, *inputs: Path, workers: int = 1, corpus: str = "tiny", **choices: object) -> Manifest:
    chosen = ShardSettings(**choices)  # type: ignore[arg-type]
    texts = [TextInput(path) for path in inputs]
    return shard_corpus(Workspace(root), corpus, texts, chosen, workers=workers, reporter=SILENT)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="")
    return path


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def identities(folder: Path) -> dict[str, tuple[int, int]]:
    """What changes when a file is written again, be it with the same bytes."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def test_a_shard_holds_a_sentence_a_line_and_a_blank_line_after_each_document(tmp_path: Path) -> None:
    shard(tmp_path, write(tmp_path / "tiny.txt", THREE_DOCUMENTS), shards=1)

    folder = tmp_path / "sharded" / "tiny"
    assert (folder / "training" / "tiny_training_00000.txt").read_text() == (
        "I came.\nI saw.\nI conquered.\n\n"  # document 0
        "A third one!\n\n"  # document 2
    )
    assert (folder / "test" / "tiny_test_00000.txt").read_text() == "Was it so?\n\n"


def test_with_lines_each_line_becomes_a_sentence(tmp_path: Path) -> None:
    shard(tmp_path, write(tmp_path / "tiny.txt", THREE_DOCUMENTS), shards=1, test_fraction=0, splitter="lines")

    folder = tmp_path / "sharded" / "tiny"
    assert (folder / "training" / "tiny_training_00000.txt").read_text() == (
        "I came. I saw.\nI conquered.\n\nWas it so?\n\nA third one!\n\n"
    )
    assert not (folder / "test").exists()


def test_the_manifest_records_inputs_and_settings(tmp_path: Path) -> None:
    text = write(tmp_path / "tiny.txt", THREE_DOCUMENTS)
    manifest = shard(tmp_path, text)

    assert manifest.kind == "text shards"
    assert manifest.made_with == {
        "inputs": [{"bytes": 54, "sha256": sha256_of(text)}],
        "splitter": "sentencex",
        "language": "en",
        "keep_duplicates": False,
        "test_fraction": 0.1,
        "shards": 2,
        "test_shards": 1,
    }
    first = tmp_path / "sharded" / "tiny" / "training" / "tiny_training_00000.txt"
    assert list(manifest.files) == [
        "training/tiny_training_00000.txt",
        "training/tiny_training_00001.txt",
        "test/tiny_test_00000.txt",
    ]
    assert manifest.files["training/tiny_training_00000.txt"] == {
        "documents": 1,
        "sentences": 3,
        "words": 6,
        "bytes": first.stat().st_size,
        "sha256": sha256_of(first),
        "crc32c": identify_text(first)[1],
    }
    assert manifest.counts == {"dropped_empty": 0, "dropped_duplicates": 0}
    assert "sentencex" in manifest.versions


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_bytes_of_the_sample_shards_are_pinned(tmp_path: Path, workers: int) -> None:
    manifest = shard(tmp_path, write_sample(Workspace(tmp_path)), workers=workers, corpus="sample")
    # Another result on another version of Python is a fault. A version of sentencex with other rules may change it: then
    # every user's shards change, which is a breaking change to be told.
    assert {name: (facts["documents"], facts["sha256"][:16]) for name, facts in manifest.files.items()} == {
        "training/sample_training_00000.txt": (61, "9c751aacbed2c181"),
        "training/sample_training_00001.txt": (54, "71e1ba9dfbe51ba0"),
        "training/sample_training_00002.txt": (54, "bce3d689020ca3b1"),
        "training/sample_training_00003.txt": (57, "07a8d25b0d18c475"),
        "test/sample_test_00000.txt": (23, "24686d19bf4499b9"),
    }
    folder = tmp_path / "sharded" / "sample"
    assert all(sha256_of(folder / name) == facts["sha256"] for name, facts in manifest.files.items())


@settings(max_examples=30, deadline=None)
@given(
    texts=st.lists(st.lists(st.integers(1, 90), max_size=12), min_size=1, max_size=3),
    shards=st.integers(1, 4),
    test_fraction=st.sampled_from([0, 0.1, 0.5]),
)
def test_each_document_is_in_one_shard_once_and_whole(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[int]], shards: int, test_fraction: float
) -> None:
    root = tmp_path_factory.mktemp("run")
    lengths = [length for text in texts for length in text]
    if len(lengths) < shards + bool(test_fraction):
        return
    names = iter(range(len(lengths)))
    inputs, documents = [], []
    for number, text in enumerate(texts):
        of_file = ["".join(f"{name} {line}\n" for line in range(length)) for length, name in zip(text, names, strict=False)]
        inputs.append(write(root / f"{number}.txt", "\n".join(of_file)))
        documents += of_file
    if len({path.read_bytes() for path in inputs}) < len(inputs):
        return  # two empty files

    manifest = shard(root, *inputs, shards=shards, test_fraction=test_fraction, splitter="lines")
    found: list[str] = []
    for name, facts in manifest.files.items():
        in_shard = (root / "sharded" / "tiny" / name).read_text().split("\n\n")[:-1]
        assert len(in_shard) == facts["documents"] > 0
        assert sum(text.count("\n") + 1 for text in in_shard) == facts["sentences"]
        assert in_shard == sorted(in_shard, key=lambda text: int(text.split()[0]))  # as they stand in the text
        found += in_shard
    assert sorted(found) == sorted(text.rstrip("\n") for text in documents)


# Runs as a program of its own: writes half of the last shard, says so, and waits to be killed.
HANGS_IN_THE_LAST_SHARD = """
import signal, sys
from pathlib import Path
from bertprep.files.atomic import atomic_file
from bertprep.config import ShardSettings
from bertprep.progress import SILENT
from bertprep.workspace.layout import Workspace
from bertprep.text import shards
from bertprep.text.documents import TextInput

write_shard = shards.write_shard

def write_half(task):
    if "_test_" not in task.path.name:
        return write_shard(task)
    with atomic_file(task.path) as file:
        file.write(b"Half a senten")
        print("half", flush=True)
        signal.pause()

shards.write_shard = write_half
root, text = map(Path, sys.argv[1:])
shards.shard_corpus(Workspace(root), "sample", [TextInput(text)], ShardSettings(), workers=2, reporter=SILENT)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the program hands its workers a function by forking")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_run_resumes_with_the_same_command(tmp_path: Path, workers: int) -> None:
    text = write_sample(Workspace(tmp_path))
    command = [sys.executable, "-c", HANGS_IN_THE_LAST_SHARD, str(tmp_path / "killed"), str(text)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"half\n"
        os.killpg(run.pid, signal.SIGKILL)
        assert run.stdout.read() == b""  # until the last worker is gone too
    folder = tmp_path / "killed" / "sharded" / "sample"
    left = identities(folder)
    assert any(re.fullmatch(r"sample_test_00000\.txt\.[0-9a-f]{8}\.tmp", name) for name in left)
    assert "manifest.json" not in left
    assert "sample_training_00000.txt" in left

    shard(tmp_path / "killed", text, workers=workers, corpus="sample")
    shard(tmp_path / "whole", text, workers=workers, corpus="sample")
    assert files_in(folder) == files_in(tmp_path / "whole" / "sharded" / "sample")  # the manifest too; and nothing besides
    assert identities(folder)["sample_training_00000.txt"] == left["sample_training_00000.txt"]


def test_a_finished_run_does_nothing(tmp_path: Path) -> None:
    text = write(tmp_path / "tiny.txt", THREE_DOCUMENTS)
    first = shard(tmp_path, text)
    before = identities(tmp_path)
    assert shard(tmp_path, text) == first
    assert shard(tmp_path, text, shards=2) == first  # what the default came to
    assert identities(tmp_path) == before


def test_a_missing_or_truncated_shard_is_remade(tmp_path: Path) -> None:
    text = write(tmp_path / "tiny.txt", THREE_DOCUMENTS)
    shard(tmp_path, text)
    folder = tmp_path / "sharded" / "tiny"
    before = files_in(folder)
    (folder / "training" / "tiny_training_00000.txt").unlink()
    os.truncate(folder / "test" / "tiny_test_00000.txt", 3)

    shard(tmp_path, text)
    assert files_in(folder) == before


def test_the_path_of_the_text_does_not_matter(tmp_path: Path) -> None:
    shard(tmp_path, write(tmp_path / "tiny.txt", THREE_DOCUMENTS))
    before = identities(tmp_path / "sharded")
    shard(tmp_path, write(tmp_path / "moved.txt", THREE_DOCUMENTS))
    assert identities(tmp_path / "sharded") == before


def test_other_settings_do_not_mix_with_existing_shards(tmp_path: Path) -> None:
    text = write(tmp_path / "tiny.txt", THREE_DOCUMENTS)
    shard(tmp_path, text)
    before = identities(tmp_path / "sharded")
    with pytest.raises(BertprepError) as error:
        shard(tmp_path, text, splitter="lines")
    assert str(error.value) == (
        f"{tmp_path}/sharded/tiny: was made with --splitter sentencex, asked for is --splitter lines; "
        "choose another --workdir or --corpus, or remove this folder"
    )
    assert identities(tmp_path / "sharded") == before


def test_other_text_does_not_mix_with_existing_shards(tmp_path: Path) -> None:
    text = write(tmp_path / "tiny.txt", THREE_DOCUMENTS)
    shard(tmp_path, text)
    with pytest.raises(BertprepError, match=r"tiny: was made with another --input: inputs\[0\]\.bytes 54, asked for is 60; "):
        shard(tmp_path, write(text, THREE_DOCUMENTS + "\nNew.\n"))
    with pytest.raises(BertprepError, match=r'another --input: inputs\[0\]\.sha256 "\w{64}", asked for is "\w{64}"; '):
        shard(tmp_path, write(text, THREE_DOCUMENTS.replace("third", "fifth")))
    with pytest.raises(BertprepError, match=r"another --input: number of inputs 1, asked for is 2; "):
        shard(tmp_path, text, write(tmp_path / "more.txt", "More.\n"))


def test_a_refused_request_leaves_nothing_behind(tmp_path: Path) -> None:
    text = write(tmp_path / "tiny.txt", THREE_DOCUMENTS)
    with pytest.raises(UsageError, match="--shards 3: the text has 3 documents, one of them for testing; ask for at most 2"):
        shard(tmp_path, text, shards=3)
    with pytest.raises(UsageError, match="no such file"):
        shard(tmp_path, tmp_path / "missing.txt")
    with pytest.raises(BertprepError, match="no document found"):
        shard(tmp_path, write(text, "\n"))
    assert files_in(tmp_path) == {"tiny.txt": b"\n"}
