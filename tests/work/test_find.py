"""One finder: whichever tool wrote the files, validate, inspect, convert and the trainer see the same ones.

A layout is a list of names. Names with a part in capitals (NOTES.csv) hold no records; all others do, and are compressed where
their name ends in .gz.
"""

import gzip
import json
import os
import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

import bertprep
from bertprep.cli import main
from bertprep.errors import BertprepError, UsageError
from bertprep.files.paths import checksum_of
from bertprep.records import PretrainingExamples
from bertprep.records.records import Records
from bertprep.work.choose import find_records
from bertprep.work.data_set import own_split
from bertprep.work.find import find_data_sets, search
from bertprep.work.manifest import MDS, RECORDS, TOKEN_SHARDS
from bertprep.work.recognize import TOKEN_INDEX_MAGIC
from tests.records.columns import column_examples, write_any, write_parquet
from tests.records.handmade import Variant, file_of, random_record
from tests.trainer.test_data import opened

NVIDIA = "lower_case_1_seq_len_128_max_pred_20_masked_lm_prob_0.15_random_seed_12345_dupe_factor_5_shard_256_test_split_10"
CORPUS = f"tfrecord/{NVIDIA}/wikicorpus_en"
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "e"]


@dataclass(frozen=True)
class Layout:
    """Files in a folder; those that are read where `named` is given, for training and for testing; and what is said of it."""

    name: str
    files: str
    training: str
    test: str = ""
    named: str = "."
    note: str = ""


SECOND_TEST = ": left out, as test is the test split; name it to read it"
UNKNOWN = "neither TFRecord nor OFRecord, nor Arrow or Parquet with records; skipped"
LAYOUTS = (
    Layout("ours", "training/c_training_00000.tfrecord test/c_test_00000.tfrecord MANIFEST.json VOCAB.txt",
           "training/c_training_00000.tfrecord", "test/c_test_00000.tfrecord"),
    Layout("ours in a workspace", "tfrecord/S/c/training/c_training_00000.tfrecord tfrecord/S/c/test/c_test_00000.tfrecord",
           "tfrecord/S/c/training/c_training_00000.tfrecord", "tfrecord/S/c/test/c_test_00000.tfrecord",
           note="using the records in"),
    Layout("--output, a format", "tfrecord/c_training_00000.tfrecord ofrecord/part-0", "ofrecord/part-0", named="ofrecord"),
    Layout("--output, the only format", "ofrecord/part-0 ofrecord/part-1 ofrecord/part-10 ofrecord/part-2 MANIFEST.json",
           "ofrecord/part-0 ofrecord/part-1 ofrecord/part-2 ofrecord/part-10"),
    Layout("NVIDIA's", f"{CORPUS}/training/wiki_training_0.tfrecord {CORPUS}/test/wiki_test_0.tfrecord",
           f"{CORPUS}/training/wiki_training_0.tfrecord", f"{CORPUS}/test/wiki_test_0.tfrecord", named=CORPUS),
    Layout("the Model Garden's", "wiki.tfrecord-00000-of-00002 wiki.tfrecord-00001-of-00002",
           "wiki.tfrecord-00000-of-00002 wiki.tfrecord-00001-of-00002"),
    Layout("Google's", "tf_examples.tfrecord", "tf_examples.tfrecord"),
    Layout("train and eval", "train/a.tf_record eval/a.tf_record", "train/a.tf_record", "eval/a.tf_record"),
    Layout("train, dev and test", "train/part-0 dev/part-0 test/part-0", "train/part-0", "test/part-0",
           note=f"dev{SECOND_TEST}"),
    Layout("validation and eval", "train/part-0 validation/part-0 eval/part-0", "train/part-0", "eval/part-0",
           note="validation: left out, as eval is the test split; name it to read it"),
    Layout("the Hub's, with validation", "train-00000-of-00001.parquet test-00000-of-00001.parquet validation.parquet",
           "train-00000-of-00001.parquet", "test-00000-of-00001.parquet", note=f"validation.parquet{SECOND_TEST}"),
    Layout("train and validation", "train/a.tfrec validation/a.tfrec", "train/a.tfrec", "validation/a.tfrec"),
    Layout("names that tell nothing", "wiki_000 wiki_001", "wiki_000 wiki_001"),
    Layout("names that tell nothing, compressed", "wiki_000.gz", "wiki_000.gz"),
    Layout("a compressed file", "a.tfrecord.gz", "a.tfrecord.gz"),
    Layout("marks beside records", "a.tfrecord .a.tfrecord.CRC a.tfrecord.CRC _SUCCESS README LICENSE.TXT .HIDDEN "
           "a.tfrecord.IDX b.tfrecord.1a2b3c4d.TMP REPORT.html", "a.tfrecord"),
    Layout("unknown files beside records", "a.tfrecord NOTES.csv SCRIPT.sh", "a.tfrecord",
           note=f"NOTES.csv and 1 more: are {UNKNOWN}"),
    Layout("unknown files in a split", "train/part-0 train/NOTES.csv", "train/part-0", note=f"train/NOTES.csv: is {UNKNOWN}"),
    Layout("formats mixed in a folder", "a.tfrecord part-0", "a.tfrecord part-0"),
    Layout("ours in Arrow", "train/c_training_00000.arrow test/c_test_00000.arrow train/STATE.json DATASET_DICT.json",
           "train/c_training_00000.arrow", "test/c_test_00000.arrow"),
    Layout("what datasets saves", "data-00000-of-00002.arrow data-00001-of-00002.arrow STATE.json cache-0a1b2c3d4e5f6789.arrow",
           "data-00000-of-00002.arrow data-00001-of-00002.arrow"),
    Layout("the Hub's", "data/train-00000-of-00002.parquet data/train-00001-of-00002.parquet data/test-00000-of-00001.parquet "
           "README.md", "data/train-00000-of-00002.parquet data/train-00001-of-00002.parquet",
           "data/test-00000-of-00001.parquet", note="using the records in data"),
    Layout("other tables beside records", "a.parquet TEXT.parquet", "a.parquet", note=f"TEXT.parquet: is {UNKNOWN}"),
    Layout("a file of a split", "training/part-0 training/part-1 test/part-0", "training/part-1", named="training/part-1"),
    Layout("a file without a name", "a b NOTES.csv", "b", named="b"),
    Layout("a file that the manifest does not list", "part-0 part-1 MANIFEST.json part-2", "part-0 part-1",
           note="part-2: is in no manifest.json; skipped"),
    Layout("two test splits that a manifest lists", "train/part-0 test/part-0 dev/part-0 MANIFEST.json", "train/part-0",
           "dev/part-0 test/part-0"),
    Layout("a file beside splits", "train/part-0 eval/part-0 left.tfrecord", "train/part-0", "eval/part-0",
           note="left.tfrecord: is in no split; skipped"),
    Layout("a test split to train on", "training/part-0 test/part-0 test/part-1", "test/part-0 test/part-1", named="test"),
    Layout("records and data sets below", "part-0 old/part-0 old/more/part-0", "part-0",
           note="only this data set is used, not the others below"),
    Layout("folders that are not searched", "a/part-0 a/.git/part-0 vocab/part-0 models/b/part-0 a/part-1.1a2b3c4d.tmp/part-0",
           "a/part-0", note="using the records in a"),
    Layout("TensorBoard's event files", "a/part-0 a/events.out.tfevents.173000000.HOST run/events.out.tfevents.173000000.HOST",
           "a/part-0", note="using the records in a"),
)  # fmt: skip


@pytest.fixture
def lay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes the files of a layout in the working directory."""
    rng = random.Random(0)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")

    def make(names: str) -> None:
        for name in names.split():
            path = Path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix in (".arrow", ".parquet"):
                if path.stem.isupper() or path.name.startswith("cache-"):
                    write_parquet(pa.table({"text": ["One."]}), path)
                else:
                    write_any(column_examples(PretrainingExamples, 1, seq=8, pred=2, seed=rng.randrange(99)), path)
            elif path.name == "VOCAB.txt":
                path.with_name("vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
            elif any(part.isupper() for part in path.name.split(".")):
                path.write_text("nothing of note\n")
            elif path.name.startswith(("part", "wiki_0")) and path.suffix != ".gz":
                path.write_bytes(file_of(random_record(rng, 8, 2, most=9), variant=Variant("ofrecord")))
            else:
                content = file_of(random_record(rng, 8, 2, most=9))
                path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
        for manifest in Path().rglob("MANIFEST.json"):
            manifest.unlink()
            before = names.partition("MANIFEST.json")[0].split()  # it lists the files that are named before it
            files = sorted(path for path in manifest.parent.rglob("*") if str(path) in before)
            entries = {str(p.relative_to(manifest.parent)): entry_of(p) for p in files}
            content = {"format": 1, "kind": "masked-LM records", "made_with": {"seq": 8, "pred": 2, "dupe": 1}, "versions": {}}
            manifest.with_name("manifest.json").write_text(json.dumps({**content, "files": entries}))

    return make


def entry_of(path: Path) -> dict[str, object]:
    return {"bytes": path.stat().st_size, "blake3": checksum_of(path), "examples": 1}


def read_by_trainer(folders: Sequence[Path], split: str) -> list[str]:
    """The files from which the trainer reads the records of a split."""
    with Records(folders, split) as records:
        return [str(records.origin_of(number)[0]) for number in range(len(records))]


@pytest.mark.parametrize("layout", LAYOUTS, ids=[layout.name for layout in LAYOUTS])
def test_a_layout_is_found_and_read(layout: Layout, lay: Callable[[str], None]) -> None:
    lay(layout.files)
    training, test = layout.training.split(), layout.test.split()
    found = find_records(Path(layout.named))
    names = [str(found.folder / name) for name in found.files]
    assert names == training + test
    assert layout.note in "; ".join(found.notes)
    assert bool(found.notes) == bool(layout.note)
    assert read_by_trainer([Path(layout.named)], "training") == training
    if test:
        assert sorted(read_by_trainer([Path(layout.named)], "test")) == sorted(test)
    for name in training + test:
        (alone,) = find_data_sets([name])
        assert alone.vocabulary == found.vocabulary


ALL_READERS = [layout for layout in LAYOUTS if layout.name in (
    "ours", "ours in a workspace", "train, dev and test", "unknown files in a split", "a file of a split", "the Hub's",
)]  # fmt: skip


@pytest.mark.parametrize("layout", ALL_READERS, ids=[layout.name for layout in ALL_READERS])
def test_commands_and_the_trainer_see_the_same(
    layout: Layout, lay: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    lay(layout.files)
    training, test = layout.training.split(), layout.test.split()
    is_choice = layout.note.startswith("using")

    main(["validate", layout.named, "--json", "../found.json", "--html", "../page.html", "--workers", "1"])  # and finds faults
    checked = json.loads(Path("../found.json").read_text())["data_sets"][0]
    assert [str(Path(checked["folder"]) / file["name"]) for file in checked["files"]] == training + test
    assert all(Path(name).name in Path("../page.html").read_text() for name in training + test)
    assert layout.note in capsys.readouterr().err or is_choice  # it takes all

    data = opened(Path(layout.named))
    assert (len(data.records), data.test is not None) == (len(training), bool(test))
    assert layout.note in data.describe()

    with warnings.catch_warnings(record=True) as found:
        converted = bertprep.convert(layout.named, "../converted", to="tfrecord", workers=1).manifest
    assert len(converted.files) == len(training + test)
    splits = {"training", "test"} if test else {"" if Path(layout.named).is_file() else "training"}
    assert {name.rpartition("/")[0] for name in converted.files} == splits
    assert layout.note in "; ".join(str(each.message) for each in found)
    for name in training + test:
        assert (main(["inspect", name]) == 2) == (find_records(Path(layout.named)).vocabulary is None)


def test_a_split_that_is_named_by_itself_is_all_that_there_is_to_train_on(lay: Callable[[str], None]) -> None:
    lay("training/part-0 test/part-0")
    assert [str(path) for path in find_records(Path("test")).named("train")] == ["test/part-0"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ("a/part-0 b/part-0", "has 2 data sets; name one, such as a"),
        ("tfrecord/a.tfrecord ofrecord/part-0", "has several formats, tfrecord/ and ofrecord/; name one, such as tfrecord"),
        (
            "NOTES.csv",
            r"has no record files \(NOTES.csv is neither TFRecord nor OFRecord, nor Arrow or Parquet with records\); name a .*",
        ),
        ("a/README", "has no record files; name a record file, or a folder with record files or with training/ and test/"),
    ],
)
def test_folders_that_name_no_data_set_or_several(files: str, message: str, lay: Callable[[str], None]) -> None:
    lay(files)
    with pytest.raises(UsageError, match=rf"^\.: {message}$"):
        find_records(Path())


@pytest.mark.parametrize(
    ("files", "corrupt"),
    [
        ("part-0 part-1", "part-1"),
        ("a.tfrecord b.tfrecord", "b.tfrecord"),
        ("wiki_000 wiki_001", "wiki_001"),  # known by the numbers of wiki_000
        ("training/wiki_000 test/wiki_001", "test/wiki_001"),
        ("training/part-0 test/part-0", "test/part-0"),
    ],
)
@pytest.mark.parametrize("content", [b"", b"no records at all"])
def test_a_damaged_file_is_never_passed_over(
    files: str, corrupt: str, content: bytes, lay: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    lay(files)
    Path(corrupt).write_bytes(content)
    with pytest.raises(BertprepError, match=rf"^{corrupt}: is "):
        bertprep.convert(".", "../converted", workers=1)
    split = "test" if corrupt.startswith("test") else "training"
    with pytest.raises(BertprepError, match=rf"^{corrupt}: is "):
        read_by_trainer([Path()], split)
    assert main(["validate", ".", "--workers", "1"]) == 1
    assert f": {corrupt}: " in capsys.readouterr().out


def test_files_that_are_not_read_are_checked(lay: Callable[[str], None]) -> None:
    lay("train/part-0 eval/part-0 MANIFEST.json left.tfrecord")
    (data_set,) = find_data_sets(["."])
    assert data_set.files == {"left.tfrecord": "", "train/part-0": "training", "eval/part-0": "test"}
    assert "file-extra" in {finding.code for finding in bertprep.validate(["."], workers=1)[0].findings}


def test_a_folder_of_several_kinds_holds_a_data_set_of_each(lay: Callable[[str], None]) -> None:
    lay("training/part-0 training/x.bin test/shard.00000.mds")
    Path("training/x.idx").write_bytes(TOKEN_INDEX_MAGIC)
    files = {each.content: each.files for each in find_data_sets(["."])}
    assert files == {
        TOKEN_SHARDS: {"training/x.bin": "training"},
        MDS: {"test/shard.00000.mds": "test"},
        RECORDS: {"training/part-0": "training"},
    }
    parts = find_data_sets(["training", "test"])
    assert {each.content: each.files for each in parts} == files
    assert {(each.folder, each.is_whole) for each in parts} == {(Path(), False)}


def test_only_files_of_the_split_that_is_named_need_to_be_there(lay: Callable[[str], None]) -> None:
    lay("training/part-0 training/part-1 test/part-0 MANIFEST.json")
    Path("test/part-0").unlink()
    assert list(find_records(Path("training")).files) == ["training/part-0", "training/part-1"]
    with pytest.raises(BertprepError, match=r"^test/part-0: is missing, but manifest.json lists it"):
        find_records(Path())
    Path("training/part-1").unlink()
    with pytest.raises(BertprepError, match=r"^training/part-1: is missing, but manifest.json lists it"):
        find_records(Path("training"))


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("eval/part-0", "eval"),
        ("eval/train.arrow", "eval"),
        ("old/train.arrow", ""),
        ("train.arrow", "train"),
        ("test-00000-of-00002-0123abcd.parquet", "test"),
        ("train.parquet.old", ""),
        ("my_train.parquet", ""),
        ("train.tfrecord", ""),
    ],
)
def test_a_split_is_named_by_a_folder_or_by_the_whole_name_of_a_file(name: str, split: str) -> None:
    assert own_split(name) == split


def test_in_the_folder_of_a_split(lay: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    lay("training/part-0 test/part-0")
    monkeypatch.chdir("training")
    assert list(find_records(Path()).files) == ["training/part-0"]
    assert opened(Path()).test is not None


@pytest.mark.parametrize("name", ["/dev/null", "fifo"])
def test_what_is_neither_a_folder_nor_a_file_is_no_record_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    for command in (["validate", name], ["inspect", name], ["convert", name, "out", "--to", "parquet"]):
        assert main(command) == 2
        assert f"{name}: is neither a folder nor a file; name a file or folder of records" in capsys.readouterr().err


def test_links_that_lead_in_a_circle(lay: Callable[[str], None]) -> None:
    lay("a/part-0")
    Path("a/again").symlink_to(Path("a").absolute())
    Path("a/nowhere.tfrecord").symlink_to("gone")
    Path("a/nowhere.idx").symlink_to("gone")
    (data_set,) = search(Path())
    assert list(data_set.files) == ["nowhere.tfrecord", "part-0"]  # that one cannot be read is a finding
