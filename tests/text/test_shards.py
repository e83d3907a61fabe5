"""Text becomes shards: the bytes by definition, determined by text and settings alone; kills, corrupt runs, memory."""

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise, permutations
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bertprep
from bertprep.cli import main
from bertprep.commands.validate import validate
from bertprep.config import BY_RULES, ShardSettings
from bertprep.errors import BertprepError, UsageError
from bertprep.files import hashed
from bertprep.files.paths import checksum_of
from bertprep.sources import plain_text
from bertprep.text import cleaning, ranges, runs, shards
from bertprep.text.ranges import count_shards
from bertprep.work import resume
from bertprep.work.manifest import Manifest, read_manifest
from bertprep.work.run import FAIL_AFTER
from bertprep.work.text_identity import identify_text
from tests.corpora import deal
from tests.work.toy import tree

SMALL = {
    shards: {"PIECE_BYTES": 1500, "MAX_RUNS": 3, "MERGED_RUNS": 2, "_WRITE_BYTES": 100},
    runs: {"RUN_BYTES": 1000, "BATCH_BYTES": 100, "WINDOW_BYTES": 300},
    plain_text: {"BLOCK_BYTES": 100},
    cleaning: {"BATCH_CHARACTERS": 120},
    hashed: {"FLUSHED_BYTES": 300},
}


@contextmanager
def in_small_pieces(times: int = 1) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module, constants in SMALL.items():
            for name, value in constants.items():
                patch.setattr(module, name, value if "RUNS" in name else times * value)
        yield


def shard(root: Path, *inputs: Path, workers: int = 1, corpus: str = "c", **choices: Any) -> Manifest:
    choices.setdefault("splitter", "lines")
    choices.setdefault("one_document_per_block", True)
    return bertprep.shard(inputs, **choices, workdir=root, corpus=corpus, workers=workers).manifest


def write(path: Path, *texts: str) -> Path:
    path.write_text("\n\n".join(texts) + "\n", encoding="utf-8", newline="")
    return path


def numbered(*numbers: int) -> list[str]:
    """Return documents of one to three lines, now and then of forty."""
    return [
        "\n".join(f"Document {number}, line {line}." for line in range(number % 3 + 1 if number % 37 else 40))
        for number in numbers
    ]


def shards_in(root: Path) -> dict[str, str]:
    folder = root / "sharded" / "c"
    assert {path.name for path in folder.iterdir()} <= {"manifest.json", "test", "training"}
    return {path.name: path.read_text() for split in ("training", "test") for path in sorted((folder / split).glob("*"))}


def identities(folder: Path) -> dict[str, tuple[int, int]]:
    """Return what changes when a file is written again, even with the same bytes."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def by_definition(texts: list[str], training: int, test: int, fraction: float) -> dict[str, str]:
    """Return the shards of texts by their definition: by hash, each up to the end of the document nearest to its fraction."""
    documents = [text + "\n\n" for text in sorted(set(texts), key=lambda text: hashlib.sha256(text.encode()).digest())]
    ends = np.cumsum([len(document.encode()) for document in documents])
    names = [f"c_training_{n:05d}.txt" for n in range(training)] + [f"c_test_{n:05d}.txt" for n in range(test)]
    fractions = [(1 - fraction) / training] * training + [fraction / max(test, 1)] * test
    found, start = {}, 0
    for index, name in enumerate(names[:-1]):
        wanted = sum(fractions[: index + 1]) * ends[-1]
        most = len(documents) - (len(names) - index - 1)
        stop = next(n for n in range(start + 1, most + 1) if n == most or ends[n - 1] + ends[n] > 2 * wanted)
        found[name], start = "".join(documents[start:stop]), stop
    return {**found, names[-1]: "".join(documents[start:])}


def test_the_name_of_a_folder_need_not_be_utf8(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"\xff\xfe")
    folder.mkdir()
    texts = numbered(*range(40))
    shard(folder, write(folder / "text.txt", *texts), shards=3, test_fraction=0.1)
    assert shards_in(folder) == by_definition(texts, 3, 1, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_only_the_text_of_documents_decides_about_the_shards(seed: int, tmp_path: Path) -> None:
    """Neither the names, the number and the order of files nor the pieces that are sorted at once."""
    random = Random(seed)
    files, count, fraction = random.randint(1, 4), random.randint(20, 200), random.choice([0, 0.3])
    wanted, keep_duplicates = random.choice([None, 1, 2, 3, 15]), seed % 3 == 0
    texts = numbered(*random.choices(range(150), k=count))
    names = random.sample(range(100), files)
    cuts = [0, *sorted(random.sample(range(1, count), files - 1)), count]
    inputs = [write(tmp_path / f"{name}.txt", *texts[a:b]) for name, (a, b) in zip(names, pairwise(cuts), strict=True)]
    with in_small_pieces():
        manifest = shard(tmp_path, *inputs, shards=wanted, test_fraction=fraction, keep_duplicates=keep_duplicates)
    found = shards_in(tmp_path)
    documents = [document for text in found.values() for document in text.split("\n\n")[:-1]]
    assert sum(entry["documents"] for entry in manifest.files.values()) == len(documents)
    if keep_duplicates:
        assert Counter(documents) == Counter(texts)
    else:
        assert found == by_definition(texts, manifest.made_with["shards"], manifest.made_with["test_shards"], fraction)
    assert manifest.counts["dropped_duplicates"] == (0 if keep_duplicates else len(texts) - len(set(texts)))


def split_by_user(training: list[str], test: list[str]) -> dict[str, str]:
    """Return the shards of two texts by their definition: each text on its own, training without what the test text has."""
    held_out = by_definition(test, 1, 0, 0)
    found = by_definition([text for text in training if text not in test], 4, 0, 0)
    return {**found, "c_test_00000.txt": held_out["c_training_00000.txt"]}


@pytest.mark.parametrize("max_rows", [1 << 20, 1 << 12], ids=["by document", "by first bits"])
@pytest.mark.parametrize("part", ["0/1", "1/2"])
def test_a_test_text_of_the_user_is_the_test_split(
    max_rows: int, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "MAX_ROWS", max_rows)
    training, test = numbered(*range(200), 3, 3), numbered(*range(190, 230), 3)
    inputs = [write(tmp_path / "a.txt", *training[:120]), write(tmp_path / "b.txt", *training[120:])]
    test_inputs = [write(tmp_path / "t.txt", *test)]
    with in_small_pieces():
        for each in (part, "0/2", None):
            manifest = shard(tmp_path, *inputs, test_inputs=test_inputs, shards=4, part=each)
    found = shards_in(tmp_path)
    if max_rows > len(training):
        assert found == split_by_user(training, test)
    assert sorted("".join(found[f"c_training_0000{n}.txt"] for n in range(4)).split("\n\n")[:-1]) == sorted(
        set(training) - set(test)
    )
    assert found["c_test_00000.txt"].count("\n\n") == 41
    assert manifest.counts == {"dropped_empty": 0, "dropped_in_test": 13, "dropped_duplicates": 0}
    (outcome,) = validate([tmp_path / "sharded"], workers=1)
    assert [each for each in outcome.findings if each.level == "error"] == []


def test_duplicates_stay_in_a_split_and_never_cross_to_the_other(tmp_path: Path) -> None:
    inputs = write(tmp_path / "a.txt", *numbered(1, 1, 2, 2, 3, 4))
    manifest = shard(
        tmp_path, inputs, test_inputs=[write(tmp_path / "t.txt", *numbered(2, 5, 5))], shards=1, keep_duplicates=True
    )
    assert manifest.counts == {"dropped_empty": 0, "dropped_in_test": 2, "dropped_duplicates": 0}
    assert [entry["documents"] for entry in manifest.files.values()] == [4, 3]


def test_copies_that_look_alike_are_one_document_in_any_order(tmp_path: Path) -> None:
    """One is composed, one decomposed, and one has a zero-width space and a soft hyphen."""
    copies = ["Le café est crème.", "Le cafe\u0301 est cre\u0300me.", "Le ca\u200bfé est cr\u00adème."]
    made = set()
    for number, order in enumerate(permutations([*copies, "Un autre."])):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "a.txt").write_text("\n\n".join(order) + "\n", encoding="utf-8")
        shards = bertprep.shard([folder / "a.txt"], splitter="lines", shards=1, test_fraction=0, workdir=folder, workers=1)
        assert shards.manifest.counts["dropped_duplicates"] == 2
        made.add((shards.folder / "training" / "corpus_training_00000.txt").read_bytes())
    (text,) = made
    assert len(text.split(b"\n\n")) == 3  # two documents, and the end


def test_a_test_text_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    text, other = write(tmp_path / "a.txt", *numbered(1, 2)), write(tmp_path / "b.txt", *numbered(3))
    with pytest.raises(BertprepError, match="--test-input: contains all 2 documents of the training text, which leaves none"):
        shard(tmp_path, text, test_inputs=[text])
    with pytest.raises(UsageError, match=r"--test-input .*none\.txt: does not exist"):
        shard(tmp_path, text, test_inputs=[tmp_path / "none.txt"])
    with pytest.raises(UsageError, match=r"--test-fraction 0\.2: cannot be used with --test-input"):
        shard(tmp_path, text, test_inputs=[other], test_fraction=0.2)
    with pytest.raises(UsageError, match=r"--test-input .*: needs training text as well"):
        bertprep.shard(test_inputs=[other], workdir=tmp_path)
    with pytest.raises(BertprepError, match="--test-input: no document in 1 input"):
        shard(tmp_path, text, test_inputs=[write(tmp_path / "none.txt", "***")])
    shard(tmp_path, text, test_inputs=[other])
    with pytest.raises(BertprepError, match="was made with --test-input, but this run has none"):
        shard(tmp_path, text)
    with pytest.raises(BertprepError, match="was made with another --test-input"):
        shard(tmp_path, text, test_inputs=[write(tmp_path / "c.txt", *numbered(4))])


@pytest.mark.parametrize("workers", [1, 3])
def test_the_bytes_of_the_sample_are_pinned(tmp_path: Path, workers: int) -> None:
    manifest = bertprep.shard(workdir=tmp_path, corpus="sample", workers=workers).manifest
    # Another result on another version of Python is a fault. Other rules for sentences may change it: then every user's shards
    # change, which is a breaking change to be told, and `BY_RULES` gets another number.
    folder = tmp_path / "sharded" / "sample"
    found = {name: (entry["documents"], checksum_of(folder / name, "sha256")[:16]) for name, entry in manifest.files.items()}
    assert found == PINNED
    (outcome,) = validate([folder], workers=1)
    assert outcome.findings == []


PINNED = {
    "training/sample_training_00000.txt": (56, "d2d668169aed2a52"),
    "training/sample_training_00001.txt": (60, "cdbb4a228b18d773"),
    "training/sample_training_00002.txt": (58, "50357e309fcb9e20"),
    "training/sample_training_00003.txt": (54, "e4d82ffb4d19c893"),
    "test/sample_test_00000.txt": (21, "826dd8f933a8ccaa"),
}


def test_a_shard_holds_a_sentence_a_line_and_a_blank_line_after_each_document(tmp_path: Path) -> None:
    text = write(tmp_path / "tiny.txt", "I came. I saw.\nI conquered.", "Was it so?", "A third one!")
    manifest = shard(tmp_path, text, splitter=BY_RULES)
    assert shards_in(tmp_path) == {
        "c_training_00000.txt": "I came.\nI saw.\nI conquered.\n\n",
        "c_training_00001.txt": "A third one!\n\n",
        "c_test_00000.txt": "Was it so?\n\n",
    }
    assert manifest.made_with == {
        "inputs": [{"bytes": text.stat().st_size, "blake3": checksum_of(text)}],
        "splitter": BY_RULES, "language": "en", "keep_duplicates": False, "test_fraction": 0.1, "shards": 2,
        "test_shards": 1,
    }  # fmt: skip
    first = tmp_path / "sharded/c/training/c_training_00000.txt"
    assert manifest.files["training/c_training_00000.txt"] == {
        "documents": 1, "sentences": 3, "words": 6, "bytes": first.stat().st_size, "blake3": checksum_of(first),
        "crc32c": identify_text(first)[1],
    }  # fmt: skip
    assert manifest.counts == {"dropped_empty": 0, "dropped_duplicates": 0}


def test_what_is_changed_beside_white_space_is_counted_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = "a word and another; " * 30
    book = f"The govern-\nment of the coun-\ntry and\n12\n\x0cTHE BOOK OF DAYS\n\nthe government. {long}\n"
    for number in range(3):
        (tmp_path / "books").mkdir(exist_ok=True)
        (tmp_path / "books" / f"{number}.txt").write_text(f"Book {number}.\n\n{book}")
    asked = [
        "shard",
        "--input",
        str(tmp_path / "books"),
        "--one-document-per-file",
        "--workdir",
        str(tmp_path / "data"),
        "--corpus",
    ]
    assert main([*asked, "books", "--workers", "1"]) == 0
    manifest = read_manifest(tmp_path / "data/sharded/books")
    assert manifest is not None
    assert manifest.counts == {
        "dropped_empty": 0, "joined_words": 3, "kept_hyphens": 3, "page_numbers": 3, "running_heads": 3, "form_feeds": 3,
        "divided_sentences": 3, "dropped_duplicates": 0,
    }  # fmt: skip
    assert (
        "in the text: 3 words joined at line ends; 3 hyphens kept at line ends; 3 page numbers removed; 3 running heads "
        "removed; 3 form feeds removed; 3 sentences divided for length\n"
    ) in capsys.readouterr().out
    assert main([*asked, "lines", "--workers", "1", "--splitter", "lines"]) == 0
    assert "in the text: 3 lines longer than a sentence should be\n" in capsys.readouterr().out


def test_text_of_other_rules_for_sentences_is_read_but_not_mixed(tmp_path: Path) -> None:
    text = write(tmp_path / "some.txt", *numbered(*range(200)))
    shard(tmp_path, text, splitter=BY_RULES)
    path = tmp_path / "sharded/c/manifest.json"
    path.write_text(path.read_text().replace(BY_RULES, "sentencex"))
    assert main(["validate", str(path.parent), "--workers", "1"]) == 0
    with pytest.raises(BertprepError, match="was made with --splitter sentencex, but this run has --splitter bertprep-1"):
        shard(tmp_path, text, splitter=BY_RULES)


@pytest.mark.parametrize("name", ["book.txt", "book.txt.gz"])
def test_inputs_read_otherwise_are_refused_by_the_option(name: str, tmp_path: Path) -> None:
    text = "\n\n".join(numbered(*range(200))).encode()
    (book := tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    whole, untested = {"one_document_per_block": False, "one_document_per_file": True}, {"test_fraction": 0}
    shard(tmp_path, book, **whole, **untested)
    expected = "was made with --one-document-per-file, but this run has no --one-document-per-file; choose another --work"
    with pytest.raises(BertprepError, match=expected):
        shard(tmp_path, book, **untested)
    shard(tmp_path, book, **untested, corpus="blocks")
    with pytest.raises(
        BertprepError, match="was made without --one-document-per-file, but this run has --one-document-per-file; "
    ):
        shard(tmp_path, book, **whole, **untested, corpus="blocks")


def test_another_field_of_the_inputs_is_refused_by_its_option(tmp_path: Path) -> None:
    lines = [{"text": text, "body": text[::-1]} for text in numbered(*range(200))]
    (rows := tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)))
    shard(tmp_path, rows)
    with pytest.raises(BertprepError, match="was made with --field text, but this run has --field body; choose another --work"):
        shard(tmp_path, rows, field="body")


def test_finished_shards_are_kept_or_repaired_and_other_requests_refused(tmp_path: Path) -> None:
    text = write(tmp_path / "some.txt", *numbered(*range(200)))
    first = shard(tmp_path, text)
    made, expected = identities(tmp_path / "sharded"), shards_in(tmp_path)
    (moved := tmp_path / "of another name.txt").write_bytes(text.read_bytes())
    assert shard(tmp_path, moved) == first
    assert shard(tmp_path, moved, shards=4) == first  # the default's number
    for choices, message in (
        ({"shards": 2}, "was made with --shards 4, but this run has --shards 2"),
        (
            {"splitter": BY_RULES},
            "was made with --splitter lines, but this run has --splitter bertprep-1; choose another --work",
        ),
        ({"test_fraction": 0.2}, "was made with --test-fraction 0.1, but this run has --test-fraction 0.2"),
    ):
        with pytest.raises(BertprepError, match=message):
            shard(tmp_path, text, **choices)
    with pytest.raises(BertprepError, match=r"another --input: number of inputs 1, but this run has 2; "):
        shard(tmp_path, text, write(tmp_path / "more.txt", "More.\n"))
    text.write_text(text.read_text().replace("7", "8"))
    with pytest.raises(BertprepError, match=r"another --input: inputs\[0\]\.blake3 \w{64}, but this run has \w{64}; "):
        shard(tmp_path, text)
    assert identities(tmp_path / "sharded") == made

    folder = tmp_path / "sharded" / "c"
    (folder / "training" / "c_training_00000.txt").unlink()
    os.truncate(folder / "test" / "c_test_00000.txt", 3)
    assert shard(tmp_path, moved) == first
    assert shards_in(tmp_path) == expected


def test_two_files_of_one_text_are_both_read(tmp_path: Path) -> None:
    """What is sorted is named for its content: the pieces of such files have one content and two names."""
    texts = numbered(*range(100))
    copies = [write(tmp_path / f"{name}.txt", *texts) for name in "ab"]
    with in_small_pieces():
        once = shard(tmp_path / "once", *copies)
        twice = shard(tmp_path / "twice", *copies, keep_duplicates=True)
    assert sum(entry["documents"] for entry in once.files.values()) == once.counts["dropped_duplicates"] == 100
    assert sum(entry["documents"] for entry in twice.files.values()) == 200


def test_a_wrong_request_is_refused_before_a_shard_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = write(tmp_path / "some.txt", *numbered(*range(300)))
    with pytest.raises(UsageError, match="--shards 300: the text has 300 documents, one of them for testing; give at most 299"):
        shard(tmp_path, text, shards=300)
    with pytest.raises(UsageError, match=r"given twice"):
        shard(tmp_path, text, tmp_path / ".." / tmp_path.name / "some.txt")
    with pytest.raises(UsageError, match=r"--test-fraction 0\.1: the text is a single document"):
        shard(tmp_path / "one", write(tmp_path / "one.txt", "One."))
    with pytest.raises(BertprepError, match="c: no document in 1 input; expected text with a blank line between"):
        shard(tmp_path / "none", write(tmp_path / "none.txt", "***", "---"))
    assert not (tmp_path / "sharded").exists()
    monkeypatch.setattr(resume, "_LITTLE_BYTES", 0)  # as if the text were large
    with pytest.raises(UsageError, match="--shards 300"):
        shard(tmp_path, text, shards=300)
    assert [path.name for path in (tmp_path / "sharded" / "c").iterdir()] == [".map"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards._Sort, "make", None)  # what was sorted is used
        shard(tmp_path, text, shards=299)
    assert shards_in(tmp_path) == by_definition(numbered(*range(300)), 299, 1, 0.1)


def test_a_run_resumes_when_a_broken_input_is_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "PIECE_BYTES", 100)
    texts, made, make = numbered(*range(90)), [], shards._Sort.make
    monkeypatch.setattr(shards._Sort, "make", lambda *arguments: (made.append(1), make(*arguments))[1])
    inputs = [tmp_path / f"{n}.parquet" for n in range(3)]
    for n, path in enumerate(inputs):
        pq.write_table(pa.table({"text": texts[30 * n : 30 * n + 30]}), path)
    content = inputs[1].read_bytes()
    inputs[1].write_bytes(b"PAR1")
    with pytest.raises(BertprepError, match=r"1\.parquet: cannot be read as Parquet"):
        shard(tmp_path, *inputs)
    inputs[1].write_bytes(content)
    shard(tmp_path, *inputs)
    assert len(made) == 4  # the first, the broken one, and then two
    assert shards_in(tmp_path) == by_definition(texts, 4, 1, 0.1)


# A program of its own, so that it can be killed.
PROGRAM = """
import sys
import bertprep
from bertprep.text import runs, shards
shards.PIECE_BYTES, shards.MAX_RUNS, shards.MERGED_RUNS, runs.WINDOW_BYTES = 4000, 2, 2, 4000
root, test, *inputs = sys.argv[1:]
test_inputs = [test] if test else []
shards_of_text = 4 if test else 8
bertprep.shard(
    inputs, test_inputs=test_inputs, splitter="lines", shards=shards_of_text, workdir=root, corpus="c", workers=2
)
"""


@pytest.mark.slow
@pytest.mark.parametrize(  # after files of sorted runs, of merged ones, and shards
    ("after", "is_divided"), [(3, False), (9, True), (12, False), (14, True), (18, False)]
)
def test_a_killed_run_resumes_with_the_same_bytes(tmp_path: Path, after: int, is_divided: bool) -> None:
    """With a part of the text held out, or divided, with a test text of the user's."""
    texts, test_texts = numbered(*range(400)), numbered(*range(390, 430))
    test = write(tmp_path / "t.txt", *test_texts) if is_divided else ""
    inputs = [write(tmp_path / "1.txt", *texts[:300]), write(tmp_path / "2.txt", *texts[250:])]
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(test), *map(str, inputs)]
    killed = {**os.environ, FAIL_AFTER: f"{after} SIGKILL"}
    ended = subprocess.run(command, env=killed, check=False).returncode
    left = identities(tmp_path / "sharded" / "c" / "training")
    if ended:
        assert ended == -9
        subprocess.run(command, check=True)
    assert shards_in(tmp_path) == (split_by_user(texts, test_texts) if is_divided else by_definition(texts, 8, 1, 0.1))
    finished = {name: identity for name, identity in left.items() if not name.endswith(".tmp")}
    assert finished.items() <= identities(tmp_path / "sharded" / "c" / "training").items()


@pytest.mark.parametrize("where", ["text", "hash", "footer"])
def test_a_corrupt_run_is_an_error_never_a_wrong_shard(tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "_LITTLE_BYTES", 0)  # what was sorted stays after a refusal, as that of much text does
    texts = numbered(*range(300))
    text = write(tmp_path / "some.txt", *texts)
    with pytest.raises(UsageError):
        shard(tmp_path, text, shards=1000)
    (run,) = (tmp_path / "sharded" / "c" / ".map").glob("*/sorted/*.arrow")
    data = bytearray(run.read_bytes())
    hashed = hashlib.sha256(texts[5].encode()).digest()[:16]
    at = {"text": data.index(b"Document 5,"), "hash": data.index(hashed), "footer": len(data) - 12}[where]
    data[at] ^= 0x11
    run.write_bytes(data)
    with pytest.raises(
        BertprepError, match=r"\.arrow: is corrupt \(.*\); remove .*sorted, and the same command makes it again"
    ):
        shard(tmp_path, text, shards=2)
    shutil.rmtree(run.parent)
    shard(tmp_path, text, shards=2)
    assert shards_in(tmp_path) == by_definition(texts, 2, 1, 0.1)


def test_map_that_is_a_link_is_refused(tmp_path: Path) -> None:
    text = write(tmp_path / "some.txt", *numbered(*range(100)))
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (elsewhere / "precious").write_text("keep me")
    (tmp_path / "sharded" / "c").mkdir(parents=True)
    (tmp_path / "sharded" / "c" / ".map").symlink_to(elsewhere)
    with pytest.raises(BertprepError, match=r"\.map: is a link, expected a folder made by bertprep; remove the link"):
        shard(tmp_path, text, shards=2)
    assert [path.name for path in elsewhere.iterdir()] == ["precious"]


@pytest.mark.slow
def test_memory_is_a_small_part_of_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"Document {n}. " * 1000 for n in range(500)]
    text = write(tmp_path / "some.txt", *texts, *texts[:200])
    with in_small_pieces(200):
        shard(tmp_path / "first", write(tmp_path / "a few.txt", *texts[:5]))  # which loads modules and kernels
        peaks = []
        for step in (shards._Sort, shards._Merge, shards._Reduce):

            def measured(*arguments: Any, make: Any = step.make) -> Any:
                tracemalloc.reset_peak()
                entries = make(*arguments)
                peaks.append(tracemalloc.get_traced_memory()[1])
                return entries

            monkeypatch.setattr(step, "make", measured)
        usual = pa.default_memory_pool()
        pa.set_memory_pool(pool := pa.proxy_memory_pool(usual))
        tracemalloc.start()
        try:
            manifest = shard(tmp_path, text, shards=3)
        finally:
            tracemalloc.stop()
            pa.set_memory_pool(usual)
    assert manifest.counts["dropped_duplicates"] == 200
    assert len(peaks) > 30
    assert max(peaks) + pool.max_memory() < text.stat().st_size / 4, f"{max(peaks):,} {pool.max_memory():,}"


@pytest.mark.parametrize(
    ("documents", "megabytes", "choices", "found"),
    [
        (1_000, 200, {}, (50, 6)),  # 4 MB of text to a shard; 6 shards of 3.3 MB hold the 20 MB for testing
        (10_000, 200.1, {}, (51, 6)),
        (249, 12.2, {}, (4, 1)),  # at least 4
        (100_000, 20_000, {}, (1_024, 114)),  # at most 1,024
        (1 << 20, 200_000, {}, (3_125, 347)),  # unless they exceed 64 MB
        (100_000, 20_000, {"shards": 2_000}, (2_000, 222)),  # or as requested
        (2, 12, {}, (1, 1)),  # no more than documents
        (4, 12, {}, (3, 1)),
        (9, 120, {}, (8, 1)),
        (4, 12, {"test_fraction": 0}, (4, 0)),
        (4, 12, {"test_fraction": 0.5}, (2, 2)),
        (1, 1, {"test_fraction": 0}, (1, 0)),
        (1_000, 1, {"shards": 90}, (90, 10)),  # test shards as large as training shards
        (1_000, 1, {"shards": 256, "test_fraction": 0.001}, (256, 1)),
        (12, 1, {"shards": 10, "test_fraction": 0.5}, (10, 2)),  # as far as documents go
    ],
)
def test_the_numbers_of_shards(documents: int, megabytes: float, choices: dict[str, Any], found: tuple[int, int]) -> None:
    assert count_shards(documents, int(megabytes * 1_000_000), ShardSettings(**choices)) == found


def test_more_documents_than_rows_are_cut_by_their_first_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "MAX_ROWS", 64)
    texts = numbered(*range(3000))
    shard(tmp_path, write(tmp_path / "some.txt", *texts), shards=9)
    found = shards_in(tmp_path)
    assert sorted("".join(found.values()).split("\n\n")[:-1]) == sorted(texts)
    sizes = [len(text) for text in found.values()]
    assert max(sizes) < 1.5 * min(sizes)


def shard_part(part: str, capsys: pytest.CaptureFixture[str], *inputs: Path) -> tuple[int, str]:
    """Run a part of `bertprep shard` in the current folder, and return its status and what it prints on standard error."""
    command = ["shard", "--input", *map(str, inputs), "--corpus", "books", "--shards", "4", "--one-document-per-file"]
    status = main([*command, "--workers", "1", "--part", part])
    return status, capsys.readouterr().err


def test_a_part_names_the_parts_that_are_missing_and_later_steps_wait_for_them(
    tmp_path: Path, golden_corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    inputs = deal(golden_corpus, tmp_path / "texts", 20)
    status, printed = shard_part("1/3", capsys, *inputs)
    assert status == 0
    assert "data/sharded/books: part 1/3 is done; 3 of 5 files are still missing: run parts 0/3 and 2/3\n" in printed
    status, printed = shard_part("0/3", capsys, *inputs)  # whose text part 1/3 has sorted
    assert "sort books: the only run of part 0/3 exists already (made by another part, or by an earlier run)\n" in printed
    assert "data/sharded/books: part 0/3 is done; 1 of 5 files is still missing: run part 2/3\n" in printed
    before = tree(tmp_path / "data")
    for given, files in ((inputs[1:], "20 files"), ([golden_corpus, *inputs[1:]], "files with other content")):
        status, printed = shard_part("2/3", capsys, *given)
        assert status == 1
        advice = f"; the other parts read {files}; give this part the same files, and run it again\n"
        assert printed.splitlines(keepends=True)[-1].endswith(advice)
        assert tree(tmp_path / "data") == before  # also the text that the other parts have prepared
    for command in ("vocab", "create", "create --part 0/2", "create --dry-run", "tokenize", "shard"):
        assert main([*command.split(), "--corpus", "books"]) == 2
        assert capsys.readouterr().err.splitlines()[-1] == (
            "bertprep: error: data/sharded/books: is not finished, 1 of 5 files is missing; run the parts of bertprep shard "
            "that have not finished, or the command that began them, without --part"
        )
    status, printed = shard_part("2/3", capsys, *inputs)
    assert status == 0
    assert "missing" not in printed
