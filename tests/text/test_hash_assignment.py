"""Shards by the hash of documents: the bytes by definition, that only the text matters, kills, and what lies in .map."""

import bz2
import csv
import gzip
import hashlib
import json
import os
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bertprep
from bertprep.cli import main
from bertprep.commands.validate import validate
from bertprep.config import ShardSettings
from bertprep.errors import BertprepError, UsageError
from bertprep.sources.sample import write_sample
from bertprep.text import documents, hash_shards, sorted_runs
from bertprep.workspace.journal import FAIL_AFTER
from bertprep.workspace.layout import Workspace
from bertprep.workspace.manifest import Manifest
from tests.golden import GOLDEN

SMALL = {
    hash_shards: {"PIECE_BYTES": 1500, "MOST_RUNS": 3, "MERGED_RUNS": 2, "TASK_BYTES": 1500},
    sorted_runs: {"RUN_BYTES": 2500, "BATCH_BYTES": 300, "MOST_ROWS": 17},
    documents: {"BLOCK_BYTES": 100, "BATCH_BYTES": 120},
}


@contextmanager
def in_small_pieces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module, constants in SMALL.items():
            for name, value in constants.items():
                patch.setattr(module, name, value)
        yield


def shard(root: Path, *inputs: Path, workers: int = 1, **choices: Any) -> Manifest:
    chosen = ShardSettings(**{"assign": "hash", "splitter": "lines", **choices})
    return bertprep.shard(inputs, **vars(chosen), workdir=root, corpus="c", workers=workers)


def write(path: Path, *texts: str) -> Path:
    path.write_text("\n\n".join(texts) + "\n", encoding="utf-8", newline="")
    return path


def numbered(*numbers: int) -> list[str]:
    """Documents of one to three lines."""
    return ["\n".join(f"Document {number}, line {line}." for line in range(number % 3 + 1)) for number in numbers]


def shards_in(root: Path) -> dict[str, str]:
    folder = root / "sharded" / "c"
    assert {path.name for path in folder.iterdir()} <= {"manifest.json", "test", "training"}
    return {path.name: path.read_text() for split in ("training", "test") for path in sorted((folder / split).glob("*"))}


def split_documents(text: str) -> list[str]:
    return text.split("\n\n")[:-1]


def by_definition(texts: list[str], training: int, test: int, fraction: float) -> dict[str, str]:
    """What the shards of different texts are, in a few lines."""
    border = int((1 - fraction) * 2**64)
    shards = {f"c_training_{n:05d}.txt": "" for n in range(training)} | {f"c_test_{n:05d}.txt": "" for n in range(test)}
    for text in sorted(set(texts), key=lambda text: hashlib.sha256(text.encode()).digest()):
        number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        split, count, low, high = ("training", training, 0, border) if number < border else ("test", test, border, 2**64)
        bounds = [low + (high - low) * n // count for n in range(count + 1)]
        at = max(n for n in range(count) if bounds[n] <= number)
        shards[f"c_{split}_{at:05d}.txt"] += text + "\n\n"
    return shards


@settings(max_examples=12)
@given(
    seed=st.integers(0, 1 << 32),
    files=st.integers(1, 4),
    count=st.integers(60, 200),
    fraction=st.sampled_from([0, 0.3]),
    shards=st.sampled_from([None, 1, 2, 3]),
)
def test_only_the_text_of_documents_decides_about_the_shards(
    tmp_path_factory: pytest.TempPathFactory, seed: int, files: int, count: int, fraction: float, shards: int | None
) -> None:
    root = tmp_path_factory.mktemp("run")
    random = Random(seed)
    texts = numbered(*random.choices(range(150), k=count))
    names = random.sample(range(100), files)
    cuts = [0, *sorted(random.sample(range(1, count), files - 1)), count]
    inputs = [write(root / f"{name}.txt", *texts[a:b]) for name, (a, b) in zip(names, pairwise(cuts), strict=True)]
    with in_small_pieces():
        manifest = shard(root, *inputs, shards=shards, test_fraction=fraction)
    training, test = (manifest.made_with[name] for name in ("shards", "test_shards"))
    assert shards_in(root) == by_definition(texts, training, test, fraction)
    assert manifest.counts["dropped_duplicates"] == len(texts) - len(set(texts))
    assert sum(facts["documents"] for facts in manifest.files.values()) == len(set(texts))


@settings(max_examples=200)
@given(
    text=st.lists(
        st.sampled_from(
            ["\n", "\n\n", "\r\n", "\n \t\n", "\n\u2003\n", "\n\x1c\n", " ", "a", "B c", "é", "中", "***", "\u00a0"]
        )
    ).map("".join),
    block=st.integers(1, 20),
    piece=st.integers(1, 30),
    one_document=st.booleans(),
)
def test_documents_are_found_as_the_balanced_assignment_finds_them(
    tmp_path_factory: pytest.TempPathFactory, text: str, block: int, piece: int, one_document: bool
) -> None:
    path = write(tmp_path_factory.mktemp("run") / "some.txt", text, "one", "two")
    given = documents.TextInput(path, one_document=one_document)
    index = documents.index_documents([given], keep_duplicates=True)
    expected: list[str] = []
    for batch in documents.read_batches(dict(enumerate(index.files)), index.documents):
        expected += in_batch(batch.text, batch.ends)
    found, empty = [], 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "BLOCK_BYTES", block)
        patch.setattr(documents, "BATCH_BYTES", block)
        patch.setattr(hash_shards, "PIECE_BYTES", piece)
        pieces = list(hash_shards._cut(documents.hash_file(given)))
        for each in pieces:
            for of_batch, ends, dropped in documents.read_piece(each.file, each.start, each.end):
                found += in_batch(of_batch, ends)
                empty += dropped
    assert (found, empty) == (expected, index.empty)
    assert [each.start for each in pieces[1:]] == [each.end for each in pieces[:-1]]
    assert len(pieces) == 1 or not one_document


def in_batch(text: Any, ends: Any) -> list[str]:
    starts = [0, *ends.tolist()]
    return [bytes(text[start:end]).decode().strip() for start, end in zip(starts, ends.tolist(), strict=False)]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_bytes_of_the_sample_are_pinned(tmp_path: Path, workers: int) -> None:
    manifest = bertprep.shard(assign="hash", workdir=tmp_path, corpus="sample", workers=workers)
    assert {name: (facts["documents"], facts["sha256"][:16]) for name, facts in manifest.files.items()} == PINNED
    assert manifest.made_with["assign"] == "hash"
    text = write_sample(Workspace(tmp_path)).read_bytes()
    assert manifest.made_with["inputs"] == [{"bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}]
    assert manifest.counts == {"dropped_empty": 0, "dropped_duplicates": 0, "shards_by_size": 1}
    (outcome,) = validate([tmp_path / "sharded" / "sample"], workers=1)
    assert outcome.findings == []


PINNED = {
    "training/sample_training_00000.txt": (61, "b25f948c0bf2a7a5"),
    "training/sample_training_00001.txt": (52, "302646990f51b845"),
    "training/sample_training_00002.txt": (60, "444acea4ed79f8f4"),
    "training/sample_training_00003.txt": (47, "8cbe2a59344a9fc4"),
    "test/sample_test_00000.txt": (29, "1018fe523fa89931"),
}


def test_create_and_validate_take_such_shards(tmp_path: Path) -> None:
    shard(tmp_path, write(tmp_path / "some.txt", *numbered(*range(300))), shards=2)
    bertprep.create(vocab=GOLDEN / "vocab.txt", formats="tfrecord", workdir=tmp_path, corpus="c", workers=1)
    (records,) = (tmp_path / "tfrecord").glob("*/c")
    assert "shard_2_test" in records.parent.name
    outcomes = validate([tmp_path / "sharded" / "c", records], workers=1)
    assert [finding for outcome in outcomes for finding in outcome.findings if finding.level == "error"] == []


def test_one_more_file_only_inserts_documents(tmp_path: Path) -> None:
    first = write(tmp_path / "first.txt", *numbered(*range(2000)))
    more = write(tmp_path / "a file before it.txt", *numbered(5, 6, 9999))
    shard(tmp_path / "before", first, shards=8)
    shard(tmp_path / "after", more, first, shards=8)
    before, after = shards_in(tmp_path / "before"), shards_in(tmp_path / "after")
    (changed,) = [name for name in before if before[name] != after[name]]
    (new,) = numbered(9999)
    assert after[changed].replace(new + "\n\n", "") == before[changed]


def test_twice_the_text_cuts_each_shard_in_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_shards, "BYTES_PER_SHARD", 5_000)
    first = write(tmp_path / "1.txt", *numbered(*range(1000)))
    second = write(tmp_path / "2.txt", *numbered(*range(1000, 2000)))
    one = shard(tmp_path / "one", first)
    both = shard(tmp_path / "both", first, second)
    assert both.made_with["shards"] == 2 * one.made_with["shards"] == 16
    assert both.made_with["test_shards"] == 2 * one.made_with["test_shards"] == 2
    old, new = shards_in(tmp_path / "one"), shards_in(tmp_path / "both")
    for n in range(8):
        joined = new[f"c_training_{2 * n:05d}.txt"] + new[f"c_training_{2 * n + 1:05d}.txt"]
        kept = [text for text in split_documents(joined) if text in set(numbered(*range(1000)))]
        assert kept == split_documents(old[f"c_training_{n:05d}.txt"])


def test_the_kind_of_file_does_not_matter(tmp_path: Path) -> None:
    texts = numbered(*range(300))
    plain = write(tmp_path / "plain.txt", *texts)
    with (tmp_path / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["text"], *([text] for text in texts)])
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (tmp_path / "plain.txt.gz").write_bytes(gzip.compress(plain.read_bytes()))
    (tmp_path / "lines.jsonl.bz2").write_bytes(bz2.compress((tmp_path / "lines.jsonl").read_bytes()))
    pq.write_table(pa.table({"text": texts}), tmp_path / "table.parquet")
    expected = by_definition(texts, 4, 1, 0.1)
    for name in ("plain.txt", "table.csv", "lines.jsonl", "plain.txt.gz", "lines.jsonl.bz2", "table.parquet"):
        root = tmp_path / f"of {name}"
        shard(root, tmp_path / name)
        assert shards_in(root) == expected
        assert sorted(path.name for path in root.iterdir()) == ["sharded"]  # no cleaned text
    chosen = ShardSettings(assign="hash", splitter="lines")
    bertprep.shard(dataset=pa.table({"text": texts}), **vars(chosen), workdir=tmp_path / "memory", corpus="c", workers=1)
    assert shards_in(tmp_path / "memory") == expected
    all_of_them = shard(tmp_path / "all", *sorted(path for path in tmp_path.glob("*.*") if path.is_file()), shards=4)
    assert shards_in(tmp_path / "all") == expected
    assert all_of_them.counts["dropped_duplicates"] == 5 * 300


def test_the_same_file_twice_is_dropped_or_kept(tmp_path: Path) -> None:
    texts = numbered(*range(100))
    inputs = [write(tmp_path / name, *texts) for name in ("one.txt", "another.txt")]
    dropped = shard(tmp_path / "dropped", *inputs, shards=2)
    assert shards_in(tmp_path / "dropped") == by_definition(texts, 2, 1, 0.1)
    assert dropped.counts["dropped_duplicates"] == 100
    kept = shard(tmp_path / "kept", *inputs, shards=2, keep_duplicates=True)
    assert kept.counts["dropped_duplicates"] == 0
    for name, text in shards_in(tmp_path / "kept").items():
        once = split_documents(shards_in(tmp_path / "dropped")[name])
        assert split_documents(text) == [document for document in once for _ in range(2)]
    assert all(facts["documents"] == 2 * dropped.files[name]["documents"] for name, facts in kept.files.items())


def test_finished_shards_are_kept_and_other_requests_refused(tmp_path: Path) -> None:
    text = write(tmp_path / "some.txt", *numbered(*range(200)))
    first = shard(tmp_path, text)
    folder = tmp_path / "sharded" / "c"
    made = {path: path.stat().st_mtime_ns for path in folder.rglob("*.txt")}
    (moved := tmp_path / "of another name.txt").write_bytes(text.read_bytes())
    assert shard(tmp_path, moved) == first
    assert shard(tmp_path, moved, shards=first.made_with["shards"]) == first
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.txt")} == made
    for choices, message in (
        ({"shards": 2}, "was made with --shards 4, asked for is --shards 2"),
        ({"assign": "balanced"}, "was made with --assign hash, asked for is without it"),
        ({"test_fraction": 0.2}, "was made with --test-fraction 0.1, asked for is --test-fraction 0.2"),
    ):
        with pytest.raises(BertprepError, match=message):
            shard(tmp_path, text, **choices)
    (damaged := next(folder.rglob("*_00000.txt"))).write_bytes(b"x" * damaged.stat().st_size)
    chosen = ShardSettings(assign="hash", splitter="lines")
    assert bertprep.shard([text], **vars(chosen), workdir=tmp_path, corpus="c", verify=True) == first
    assert shards_in(tmp_path) == by_definition(numbered(*range(200)), 4, 1, 0.1)


def test_a_shard_without_a_document_is_refused_before_any_is_written(tmp_path: Path) -> None:
    text = write(tmp_path / "some.txt", *numbered(*range(300)))
    with pytest.raises(UsageError, match=r"--shards 1000: with --assign hash \d+ of them would have no document, .*as 9, or"):
        shard(tmp_path, text, shards=1000)
    folder = tmp_path / "sharded" / "c"
    assert [path.name for path in folder.iterdir()] == [".map"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hash_shards, "map_documents", None)  # what was sorted is used
        shard(tmp_path, text, shards=9)
    assert shards_in(tmp_path) == by_definition(numbered(*range(300)), 9, 1, 0.1)


def test_a_test_split_without_a_document_is_refused(tmp_path: Path) -> None:
    text = write(tmp_path / "some.txt", "One.", "Two.")
    with pytest.raises(UsageError, match=r"--test-fraction 0\.001: with --assign hash the test split would have none of 2"):
        shard(tmp_path, text, test_fraction=0.001)
    assert shard(tmp_path, text, test_fraction=0).made_with["shards"] == 1


def test_text_without_a_document_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BertprepError, match="c: no document found in 1 inputs; expected text, with a blank line after each"):
        shard(tmp_path, write(tmp_path / "some.txt", "***", "---"))


@pytest.mark.parametrize("keep_duplicates", [False, True])
def test_very_many_duplicates_take_no_shard_from_a_corpus(tmp_path: Path, keep_duplicates: bool) -> None:
    texts = numbered(*range(40), *[7] * 500)
    with in_small_pieces():
        manifest = shard(tmp_path, write(tmp_path / "some.txt", *texts), keep_duplicates=keep_duplicates, test_fraction=0)
    found = Counter(document for text in shards_in(tmp_path).values() for document in split_documents(text))
    assert found == (Counter(texts) if keep_duplicates else Counter(set(texts)))
    assert manifest.counts["dropped_duplicates"] == (0 if keep_duplicates else 500)


# A program of its own, so that it can be killed.
PROGRAM = """
import sys
from pathlib import Path
import bertprep
from bertprep.text import hash_shards
hash_shards.PIECE_BYTES, hash_shards.MOST_RUNS, hash_shards.MERGED_RUNS, hash_shards.TASK_BYTES = 8000, 2, 2, 4000
root, *inputs = sys.argv[1:]
bertprep.shard(inputs, assign="hash", splitter="lines", shards=8, workdir=root, corpus="c", workers=2)
"""


@pytest.mark.parametrize(
    ("after", "runs", "shards"),
    [(2, 2, 0), (4, 4, 0), (8, 4, 8)],  # after two of three runs; the one that merges two of them; eight of nine shards
)
def test_a_killed_run_resumes_with_the_same_bytes(tmp_path: Path, after: int, runs: int, shards: int) -> None:
    texts = numbered(*range(400))
    inputs = [write(tmp_path / "1.txt", *texts[:300]), write(tmp_path / "2.txt", *texts[250:])]
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), *map(str, inputs)]
    assert subprocess.run(command, env={**os.environ, FAIL_AFTER: f"{after} SIGKILL"}, check=False).returncode == -9
    folder = tmp_path / "sharded" / "c"
    assert len((folder / ".map" / "manifest.json.journal").read_text().splitlines()) == 1 + runs
    made = {path: path.stat().st_ino for path in folder.glob("training/*.txt")}
    assert bool(made) == bool(shards)
    if shards:
        assert len((folder / "manifest.json.journal").read_text().splitlines()) == 1 + shards
    subprocess.run(command, check=True)
    assert shards_in(tmp_path) == by_definition(texts, 8, 1, 0.1)
    assert all(path.stat().st_ino == number for path, number in made.items() if shards)


def interrupted(root: Path) -> tuple[list[str], Path, Path]:
    """Documents, their file, and the folder of what was sorted of them, by a run that was then refused."""
    texts = numbered(*range(300))
    text = write(root / "some.txt", *texts)
    with pytest.raises(UsageError):
        shard(root, text, shards=1000)
    return texts, text, root / "sharded" / "c" / ".map"


@pytest.mark.parametrize("where", ["text", "rows", "grid"])
def test_a_damaged_run_is_an_error_and_verify_makes_it_again(tmp_path: Path, where: str) -> None:
    texts, text, folder = interrupted(tmp_path)
    (run,) = folder.glob("*.run")
    data = bytearray(run.read_bytes())
    size = sum(len(each) + 2 for each in texts)
    at = {"text": 5, "rows": size + 32 * 7 + 17, "grid": len(data) - 12}[where]
    data[at] ^= 0x11
    run.write_bytes(data)
    with pytest.raises(BertprepError, match=r"\.run: is damaged \(.*\); remove .*\.map, and the same command makes it again"):
        shard(tmp_path, text, shards=2)
    chosen = ShardSettings(assign="hash", splitter="lines", shards=2)
    bertprep.shard([text], **vars(chosen), workdir=tmp_path, corpus="c", verify=True)
    assert shards_in(tmp_path) == by_definition(texts, 2, 1, 0.1)


def test_what_others_left_in_map_does_no_harm(tmp_path: Path) -> None:
    texts, text, folder = interrupted(tmp_path)
    (run,) = folder.glob("*.run")
    (folder / "stranger.run").write_bytes(b"x")
    (folder / f"{run.name}.1f2e3d4c.tmp").write_bytes(b"half a r")
    run.write_bytes(run.read_bytes()[:-1])  # another size than the journal says
    shard(tmp_path, text, shards=2)
    assert shards_in(tmp_path) == by_definition(texts, 2, 1, 0.1)


def test_what_another_version_has_sorted_is_sorted_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(hash_shards, "_made_by", lambda _: "bertprep 0.0.1")
        texts, text, folder = interrupted(tmp_path)
    (run,) = folder.glob("*.run")
    run.write_bytes(run.read_bytes().replace(b"Document", b"Monument"))  # as other rules make it
    command = [
        "shard",
        "--input",
        str(text),
        "--workdir",
        str(tmp_path),
        "--corpus",
        "c",
        "--splitter",
        "lines",
        "--shards",
        "2",
    ]
    assert main([*command, "--assign", "hash", "--workers", "1"]) == 0
    said = capsys.readouterr().err
    assert f"{folder}: has text sorted by bertprep 0.0.1; it is made anew by bertprep {bertprep.__version__}\n" in said
    assert shards_in(tmp_path) == by_definition(texts, 2, 1, 0.1)


def test_hostile_facts_in_the_journal_of_map_are_refused(tmp_path: Path) -> None:
    _, text, folder = interrupted(tmp_path)
    journal = folder / "manifest.json.journal"
    header, entry = journal.read_text().splitlines()
    for changes in ({"documents": 1 << 40}, {"bits": 40}, {"text_bytes": 5}, {"bits": 64}, {"copies": "1"}):
        content = json.loads(entry)
        content["facts"] |= changes
        journal.write_text(f"{header}\n{json.dumps(content)}\n")
        with pytest.raises(BertprepError, match=r"is not as its journal says|is damaged"):
            shard(tmp_path, text, shards=2)


def test_map_that_is_a_link_is_refused(tmp_path: Path) -> None:
    text = write(tmp_path / "some.txt", *numbered(*range(100)))
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (elsewhere / "precious").write_text("keep me")
    (tmp_path / "sharded" / "c").mkdir(parents=True)
    (tmp_path / "sharded" / "c" / ".map").symlink_to(elsewhere)
    with pytest.raises(BertprepError, match=r"\.map: is a link, expected a folder of bertprep's own; remove it"):
        shard(tmp_path, text, shards=2)
    assert [path.name for path in elsewhere.iterdir()] == ["precious"]


def test_memory_is_a_small_part_of_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, constants in SMALL.items():
        for name, value in constants.items():
            monkeypatch.setattr(module, name, 200 * value)
    texts = [f"Document {n}. " * 1000 for n in range(1_400)]
    text = write(tmp_path / "some.txt", *texts, *texts[:600])
    tracemalloc.start()
    manifest = shard(tmp_path, text, shards=3)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert manifest.counts["dropped_duplicates"] == 600
    assert peak < text.stat().st_size / 4, f"{peak:,}"
