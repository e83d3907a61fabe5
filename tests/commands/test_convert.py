"""Data sets are converted and redistributed, with the bytes of `create`, after any interruption, and never by mistake."""

import gzip
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import bertprep
from bertprep import records
from bertprep.cli import main
from bertprep.config import RECORD_FORMATS, RecordFormat, ShardSettings
from bertprep.config import Dialect as TFRecordDialect
from bertprep.records.convert import IdentifiedFile, Span, assign
from bertprep.records.data_sets import find_records
from bertprep.records.examples import PretrainingExamples, Shape
from bertprep.work.layout import by_number
from bertprep.work.manifest import read_manifest
from tests.golden import GOLDEN
from tests.records.handmade import FIRST, PRED, SECOND, SEQ, Dialect, file_of, random_record

OTHER = {"tfrecord": "ofrecord", "ofrecord": "tfrecord", "arrow": "tfrecord", "parquet": "tfrecord"}


@pytest.fixture(scope="module")
def created(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The data sets that one `create` makes: a folder a format, three training files and one for testing."""
    made = bertprep.create(
        dupe=1,
        formats=RECORD_FORMATS,
        vocab=GOLDEN / "vocab.txt",
        workdir=_sharded(golden_corpus, tmp_path_factory.mktemp("created")),
        corpus="gold",
        workers=1,
    )
    return made.folders


def _sharded(text: Path, workdir: Path) -> Path:
    settings = ShardSettings(shards=3, test_fraction=0.2, splitter="lines")
    bertprep.shard([text], **vars(settings), workdir=workdir, corpus="gold", workers=1)
    return workdir


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder but the manifest, by name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "manifest.json"
    }


def values(paths: list[Path]) -> list[np.ndarray]:
    """The seven features of all records of the files, one file after the other."""
    read = [records.open(path)[:] for path in paths]
    return [np.concatenate(arrays) for arrays in zip(*(examples.arrays for examples in read), strict=True)]


def assert_same_values(found: list[Path], expected: list[Path]) -> None:
    for mine, other in zip(values(found), values(expected), strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize(
    ("source", "asked"),
    [*((name, None) for name in OTHER), ("tfrecord", "arrow"), ("ofrecord", "parquet"), ("arrow", "parquet")],
)
def test_a_converted_data_set_equals_that_of_create(
    created: dict[str, Path], tmp_path: Path, source: str, asked: str | None
) -> None:
    to = asked or OTHER[source]
    converted = bertprep.convert(created[source], tmp_path / "converted", to=asked, workers=1)
    assert converted.format == to
    assert contents(tmp_path / "converted") == contents(created[to])
    mine, theirs = read_manifest(tmp_path / "converted"), read_manifest(created[to])
    assert mine
    assert theirs
    assert mine.files == theirs.files == converted.files
    assert mine.versions == theirs.versions
    origin = read_manifest(created[source])
    assert origin
    assert mine.made_with == {
        **theirs.made_with,
        "converted_to": {"format": to, "shards": None},
        "converted_from": {name: facts["sha256"] for name, facts in origin.files.items()},
    }


def test_arrow_without_splits_is_one_dataset(created: dict[str, Path], tmp_path: Path) -> None:
    source, command = created["tfrecord"] / "training", ["convert", "--to", "arrow", "--workers", "1"]
    assert main([*command, str(source), str(tmp_path / "target")]) == 0
    made = contents(tmp_path / "target")
    assert sorted(made) == [
        "dataset_dict.json",
        *(f"train/{name}" for name in ("dataset_info.json", *(f"gold_training_0000{n}.arrow" for n in range(3)), "state.json")),
        "vocab.txt",
    ]
    assert json.loads(made["train/state.json"])["_split"] == "train"
    (tmp_path / "target/train/state.json").unlink()
    assert main([*command, str(source), str(tmp_path / "target")]) == 0
    assert contents(tmp_path / "target") == made


def test_a_dataset_of_somebody_else_is_not_replaced(
    created: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = write(tmp_path / "target" / "dataset_dict.json", b"{}")
    assert main(["convert", str(created["tfrecord"]), str(tmp_path / "target"), "--to", "arrow"]) == 1
    assert complaint(capsys).startswith(f"{theirs}: exists and is in no manifest; choose another folder")
    assert list(contents(tmp_path / "target")) == ["dataset_dict.json"]


def test_a_converted_file_equals_that_of_create(created: dict[str, Path], tmp_path: Path) -> None:
    tfrecord, ofrecord = (
        created["tfrecord"] / "training/gold_training_00001.tfrecord",
        created["ofrecord"] / "training/part-1",
    )
    for source, result in ((tfrecord, ofrecord), (ofrecord, tfrecord)):
        bertprep.convert(source, tmp_path / "one")
        assert (tmp_path / "one").read_bytes() == result.read_bytes()
    bertprep.convert(tfrecord, tmp_path / "same", to="tfrecord")
    assert (tmp_path / "same").read_bytes() == tfrecord.read_bytes()


def test_the_name_of_a_file_tells_its_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "a.tfrecord", file_of(FIRST, SECOND))
    for name, expected in {"b.tfrecord": "tfrecord", "b.Arrow": "arrow", "b.parquet": "parquet", "part-7": "ofrecord"}.items():
        assert bertprep.convert(source, tmp_path / "named" / name).format == expected
        assert_same_values([tmp_path / "named" / name], [source])
    assert main(["convert", str(source), str(tmp_path / "named" / "b.records")]) == 0
    assert "ofrecord by default, as the name b.records says no format; --to names another" in capsys.readouterr().out
    assert main(["convert", str(source), str(tmp_path / "b.arrow"), "--to", "ofrecord"]) == 2
    said = f"--to ofrecord: {tmp_path / 'b.arrow'} is the name of arrow files; name one for ofrecord, or leave --to out"
    assert complaint(capsys) == said
    assert not (tmp_path / "b.arrow").exists()
    folder = tmp_path / "folder"
    write(folder / "a", file_of(FIRST, SECOND))
    assert main(["convert", str(folder), str(tmp_path / "b.arrow"), "--to", "ofrecord"]) == 2
    assert complaint(capsys) == said
    assert bertprep.convert(folder, tmp_path / "b.arrow", workers=1).format == "arrow"
    (made,) = [path for path in (tmp_path / "b.arrow" / "train").iterdir() if path.suffix == ".arrow"]
    assert_same_values([made], [source])


def test_the_folder_to_open_with_datasets_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("train", "flat"):
        write(tmp_path / "in" / name / "a.tfrecord", file_of(FIRST, SECOND))
    for source, target in {"in/flat": "out", "in": "whole"}.items():
        assert main(["convert", str(tmp_path / source), str(tmp_path / target), "--to", "arrow", "--workers", "1"]) == 0
        assert f'datasets.load_from_disk("{tmp_path / target}") opens them\n' in capsys.readouterr().out
        assert (tmp_path / target / "dataset_dict.json").is_file()


@pytest.mark.parametrize("source", ["tfrecord", "ofrecord"])
def test_a_dialect_equals_that_of_create_and_converts_back(created: dict[str, Path], tmp_path: Path, source: str) -> None:
    dialect = TFRecordDialect(feature_names="tf2", compress="gzip")
    made = bertprep.create(
        dupe=1, **vars(dialect), formats="tfrecord", vocab=GOLDEN / "vocab.txt",
        workdir=created["tfrecord"].parents[2], corpus="gold", workers=1,
    )  # fmt: skip
    bertprep.convert(created[source], tmp_path / "there", to="tfrecord", **vars(dialect), workers=2)
    assert contents(tmp_path / "there") == contents(made.folders["tfrecord"])
    bertprep.convert(tmp_path / "there", tmp_path / "back", to="tfrecord", workers=1)
    assert contents(tmp_path / "back") == contents(created["tfrecord"])
    there, back, origin = (read_manifest(folder) for folder in (tmp_path / "there", tmp_path / "back", created["tfrecord"]))
    assert there
    assert back
    assert origin
    assert (there.made_with["feature_names"], there.made_with["compress"]) == ("tf2", "gzip")
    assert back.files == origin.files
    assert back.made_with.keys() - origin.made_with.keys() == {"converted_to", "converted_from"}


def test_a_dialect_of_one_file_and_of_dealt_ones(created: dict[str, Path], tmp_path: Path) -> None:
    dialect = TFRecordDialect(compress="gzip")
    source = created["ofrecord"] / "training" / "part-0"
    plain = (created["tfrecord"] / "training/gold_training_00000.tfrecord").read_bytes()
    bertprep.convert(source, tmp_path / "any name", **vars(dialect))
    assert gzip.decompress((tmp_path / "any name").read_bytes()) == plain
    files = bertprep.convert(source, tmp_path / "dealt", to="tfrecord", **vars(dialect), shards=3, workers=2).files
    assert list(files) == [f"training/corpus_training_0000{number}.tfrecord.gz" for number in range(3)]
    assert b"".join(gzip.decompress((tmp_path / "dealt" / name).read_bytes()) for name in files) == plain


def test_dealing_over_more_files_and_back_over_one(created: dict[str, Path], tmp_path: Path) -> None:
    bertprep.convert(created["tfrecord"], tmp_path / "many", shards=7, workers=1)
    bertprep.convert(tmp_path / "many", tmp_path / "one", shards=1, workers=1)
    for split in ("training", "test"):
        many = sorted((tmp_path / "many" / split).iterdir())
        assert [path.name for path in many] == [f"part-{number}" for number in range(7)]
        sizes = [len(records.open(path)) for path in many]
        assert max(sizes) - min(sizes) <= 1
        assert sizes == sorted(sizes, reverse=True)
        (one,) = (tmp_path / "one" / split).iterdir()
        assert one.name == f"gold_{split}_00000.tfrecord"
        assert one.read_bytes() == b"".join(path.read_bytes() for path in sorted((created["tfrecord"] / split).iterdir()))
        assert_same_values(many, [one])
    assert contents(tmp_path / "many")["vocab.txt"] == (GOLDEN / "vocab.txt").read_bytes()


def test_a_single_file_is_dealt_into_a_folder(created: dict[str, Path], tmp_path: Path) -> None:
    source = created["ofrecord"] / "training" / "part-0"
    bertprep.convert(source, tmp_path / "dealt", to="ofrecord", shards=3, workers=2)
    parts = [tmp_path / "dealt" / "training" / f"part-{number}" for number in range(3)]
    assert b"".join(part.read_bytes() for part in parts) == source.read_bytes()


def identified(*sizes: int) -> list[IdentifiedFile]:
    named = zip("abcdefgh", sizes, strict=False)
    shape = Shape(PretrainingExamples, 8, 2)
    return [IdentifiedFile(Path(name), name, "", RecordFormat.TFRECORD, shape, size, 0, "") for name, size in named]


def test_runs_of_records_cross_the_ends_of_files() -> None:
    a, b = Path("a"), Path("b")
    assert assign(identified(4, 3), 3) == [
        (Span(a, range(3)),),
        (Span(a, range(3, 4)), Span(b, range(1))),
        (Span(b, range(1, 3)),),
    ]
    assert assign(identified(2), 2) == [(Span(a, range(1)),), (Span(a, range(1, 2)),)]
    assert assign(identified(1, 1, 1), 1) == [(Span(a, range(1)), Span(b, range(1)), Span(Path("c"), range(1)))]


@pytest.mark.parametrize("shards", [None, 3])
@pytest.mark.parametrize("to", ["tfrecord", "ofrecord"])
def test_records_are_picked_evenly_from_each_split(
    created: dict[str, Path], tmp_path: Path, to: str, shards: int | None
) -> None:
    source, target = created["tfrecord"], tmp_path / "target"
    converted = bertprep.convert(source, target, to=to, pick=7, shards=shards, workers=1)
    for split in ("training", "test"):
        expected = values(sorted((source / split).iterdir()))
        count = len(expected[0])
        assert count > 7
        numbers = [int(i * (count / 7)) for i in range(7)]
        made = sorted((target / split).iterdir())
        assert [len(records.open(path)) for path in made] == ([3, 2, 2] if shards else [7])
        for mine, all_of_them in zip(values(made), expected, strict=True):
            np.testing.assert_array_equal(mine, all_of_them[numbers])
    manifest = read_manifest(target)
    assert manifest
    assert manifest.made_with["converted_to"] == {"format": to, "shards": shards, "pick": 7}
    assert manifest.files == converted.files
    assert {facts["examples"] for facts in manifest.files.values()} == ({2, 3} if shards else {7})


def test_records_of_a_single_file_are_picked(created: dict[str, Path], tmp_path: Path) -> None:
    source = created["tfrecord"] / "training/gold_training_00000.tfrecord"
    with records.open(source) as file:
        count, offsets = len(file), file.offsets
    bertprep.convert(source, tmp_path / "picked", to="tfrecord", pick=5)
    content, numbers = source.read_bytes(), [int(i * (count / 5)) for i in range(5)]
    assert (tmp_path / "picked").read_bytes() == b"".join(content[offsets[i] : offsets[i + 1]] for i in numbers)
    bertprep.convert(source, tmp_path / "all", to="tfrecord", pick=count)
    assert (tmp_path / "all").read_bytes() == content


def picked(*sizes: int, pick: int, shards: int = 1) -> list[list[tuple[str, list[int]]]]:
    """(file, numbers in it) of each span of each file to be made."""
    return [[(span.path.name, span.records.tolist()) for span in spans] for spans in assign(identified(*sizes), shards, pick)]


def test_picked_records_come_from_all_files() -> None:
    assert picked(4, 1, 5, pick=5) == [[("a", [0, 2]), ("b", [0]), ("c", [1, 3])]]
    assert picked(4, 1, 5, pick=2) == [[("a", [0]), ("c", [0])]]
    assert picked(4, 1, 5, pick=5, shards=2) == [[("a", [0, 2]), ("b", [0])], [("c", [1, 3])]]
    assert picked(2, 0, 1, pick=3) == [[("a", [0, 1]), ("c", [0])]]


def test_picked_numbers_are_rounded_as_mlperfs_are() -> None:
    """25 * (116 / 100) is just below 29 in floating point, so that MLPerf's record 25 is that of number 28."""
    for count, pick in ((116, 100), (332_263, 10_000)):
        (((_, numbers),),) = picked(count, pick=pick)
        assert numbers == [int(i * (count / pick)) for i in range(pick)]
    assert picked(116, pick=100)[0][0][1][25] == 28


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_compressed_folder_without_a_manifest(tmp_path: Path) -> None:
    """As other tools leave it: numbers without zeros before them, and marks beside the records."""
    rng = random.Random(0)
    expected = [random_record(rng) for _ in range(11)]
    for number, record in enumerate(expected):
        write(tmp_path / "theirs" / f"part-{number}.tfrecord.gz", gzip.compress(file_of(record)))
    write(tmp_path / "theirs" / "_SUCCESS", b"")
    write(tmp_path / "theirs" / "README.md", b"# Records")
    bertprep.convert(tmp_path / "theirs", tmp_path / "ours", workers=1)
    ours = sorted((tmp_path / "ours" / "training").iterdir(), key=lambda path: by_number(path.name))
    assert len(ours) == 11
    assert b"".join(path.read_bytes() for path in ours) == file_of(*expected, dialect=Dialect("ofrecord"))


Change = Callable[[Path], object]


def flip_a_byte(folder: Path) -> None:
    """In the padding of a record, which no checksum of an OFRecord would show."""
    path = folder / "training" / "part-0"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (flip_a_byte, "part-0: has sha256 "),
        (lambda folder: (folder / "test" / "part-0").unlink(), "part-0: is missing, "),
        (lambda folder: (folder / "manifest.json.journal").touch(), "is not finished; run the command that makes it again"),
        (lambda folder: write(folder / "test" / "part-0", b""), "part-0: is empty, it holds no records"),
        (
            lambda folder: write(folder / "test" / "part-0", b"no records at all"),
            "is neither TFRecord, OFRecord, Arrow nor Parquet",
        ),
    ],
    ids=["damaged", "missing", "unfinished", "empty", "something else"],
)
def test_a_source_that_differs_from_its_manifest(
    created: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Change, message: str
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    shutil.copytree(created["ofrecord"], source)
    change(source)
    assert main(["convert", str(source), str(target)]) == 1
    assert message in complaint(capsys)
    assert not target.exists()


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """The error, which is one line and the last."""
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("bertprep: error: ")]
    return line.removeprefix("bertprep: error: ")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["missing", "out"], 2, "missing: does not exist; name a record file or a folder of them"),
        (["m*.x", "out"], 2, "m*.x: does not exist; name a record file or a folder of them, patterns are not expanded"),
        (["RECORDS", "RECORDS"], 2, "RECORDS: is the source itself"),
        (["FOLDER", "./FOLDER/"], 2, "FOLDER: is the source itself"),
        (["FOLDER", "FOLDER/below"], 2, "FOLDER/below: source and target must not contain each other (FOLDER)"),
        (["FOLDER", "."], 2, ".: source and target must not contain each other (FOLDER)"),
        (["RECORDS", "out", "--to", "csv"], 2, "--to csv: unknown; choose one of tfrecord, ofrecord, arrow, parquet"),
        (["RECORDS", "out", "--shards", "0"], 2, "--shards 0: must be at least 1"),
        (["RECORDS", "out", "--shards", "3"], 2, "--shards 3: the source has 2 records, so at most as many files"),
        (["RECORDS", "out", "--pick", "0"], 2, "--pick 0: must be at least 1"),
        (["RECORDS", "out", "--pick", "3"], 2, "--pick 3: the source has 2 records"),
        (["ABOVE/a", "out", "--pick", "3"], 2, "--pick 3: the training split has 2 records"),
        (["FOLDER", "out", "--pick", "1", "--shards", "2"], 2, "--shards 2: --pick 1 gives at most as many files"),
        (["RECORDS", "FOLDER"], 2, "FOLDER: is a folder; name the file to write, or give --shards"),
        (["FOLDER", "RECORDS"], 2, "RECORDS: is a file; name a folder for the records"),
        (["RECORDS", "NOTES"], 1, "NOTES: is neither TFRecord, OFRecord, Arrow nor Parquet"),
        (["NOTES", "out"], 1, "NOTES: is neither TFRecord, OFRecord, Arrow nor Parquet"),
        (["EMPTY", "out"], 2, "EMPTY: holds no record files; name a folder that has them"),
        (
            ["ABOVE", "out"],
            2,
            "ABOVE: holds 2 data sets; name one, such as ABOVE/a",
        ),
        (["BOTH", "out"], 2, "BOTH: holds files of several formats; choose one with --to"),
        (["MIXED", "out"], 1, "MIXED/b: has records of 16 tokens and 2 predictions, expected 8 and 2 as MIXED/a has"),
        (["FOLDER", "TAKEN"], 1, "TAKEN/training/part-0: exists and is in no manifest"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], status: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    content = file_of(FIRST, SECOND)
    folders = ("FOLDER/a", "ABOVE/a/training/part-0", "ABOVE/b/part-0", "TAKEN/training/part-0", "BOTH/a", "MIXED/a")
    for name in ("RECORDS", *folders):
        write(Path(name), content)
    write(Path("BOTH/b"), file_of(FIRST, dialect=Dialect("ofrecord")))
    write(Path("MIXED/b"), file_of(random_record(random.Random(0), 16, PRED)))
    Path("NOTES").write_text("These are notes, and no records at all.\n")
    Path("EMPTY").mkdir()
    before = contents(tmp_path)
    assert main(["convert", *arguments, "--workers", "1"]) == status
    assert complaint(capsys).startswith(message)
    assert contents(tmp_path) == before


def test_a_target_made_from_another_source(
    created: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(created["tfrecord"]), str(created["ofrecord"])]) == 1
    assert ": was not made by bertprep convert; choose another target folder, or remove this folder" in complaint(capsys)
    write(tmp_path / "source" / "part-0", file_of(FIRST))
    bertprep.convert(tmp_path / "source", tmp_path / "target")
    write(tmp_path / "source" / "part-0", file_of(SECOND))
    assert main(["convert", str(tmp_path / "source"), str(tmp_path / "target")]) == 1
    assert "was made with converted_from.part-0 " in complaint(capsys)
    assert main(["convert", str(tmp_path / "source"), str(tmp_path / "target"), "--shards", "1"]) == 1
    assert "was made without --shards, this run has --shards 1; choose another target folder" in complaint(capsys)
    assert main(["convert", str(tmp_path / "source"), str(tmp_path / "target"), "--to", "tfrecord"]) == 1
    assert "was made with --to ofrecord, this run has --to tfrecord" in complaint(capsys)
    assert main(["convert", str(tmp_path / "source"), str(tmp_path / "target"), "--pick", "1"]) == 1
    assert "was made without --pick, this run has --pick 1" in complaint(capsys)


def test_a_vocabulary_beside_a_split_is_copied(tmp_path: Path) -> None:
    write(tmp_path / "source" / "training" / "part-0", file_of(FIRST))
    write(tmp_path / "source" / "vocab.txt", b"[PAD]\n")
    assert find_records(tmp_path / "source").files == {"training/part-0": "training"}
    bertprep.convert(tmp_path / "source" / "training", tmp_path / "target", to="tfrecord")
    assert sorted(contents(tmp_path / "target")) == ["training/corpus_training_00000.tfrecord", "vocab.txt"]
    assert records.open(tmp_path / "target" / "training" / "corpus_training_00000.tfrecord").seq == SEQ
