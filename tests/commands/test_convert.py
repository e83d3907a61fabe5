"""Data sets are converted and redistributed, with the bytes of `create`; wrong command lines are in tests/test_refusals.py."""

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
from bertprep.config import RECORD_FORMATS, ShardSettings, Variant
from bertprep.errors import BertprepError, UsageError
from bertprep.records.convert import RecordConverter, Span
from bertprep.records.examples import Examples, SquadEvalExamples, SquadExamples
from bertprep.records.write import write_examples
from bertprep.work.layout import by_number
from bertprep.work.manifest import read_manifest
from tests.golden import GOLDEN
from tests.records.handmade import FIRST, SECOND, SEQ, file_of, random_record
from tests.records.handmade import Variant as Form
from tests.records.task_records import task_examples


@pytest.fixture(scope="module")
def created(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The data sets that one `create` makes: a folder a format, three training files and one for testing."""
    workdir = tmp_path_factory.mktemp("created")
    settings = ShardSettings(shards=3, test_fraction=0.2, splitter="lines")
    bertprep.shard([golden_corpus], **vars(settings), workdir=workdir, corpus="gold", workers=1)
    return create(workdir, RECORD_FORMATS)


def create(workdir: Path, formats: tuple[str, ...], **more: str) -> dict[str, Path]:
    asked = {"vocab": GOLDEN / "vocab.txt", "workdir": workdir, "corpus": "gold", "workers": 1, **more}
    return bertprep.create(dupe=1, formats=formats, **asked).folders


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder but the manifest, by name."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def values(paths: list[Path]) -> list[np.ndarray]:
    """The seven features of all records of the files, one file after the other."""
    read = [records.open(path)[:] for path in paths]
    return [np.concatenate(arrays) for arrays in zip(*(examples.arrays for examples in read), strict=True)]


@pytest.mark.parametrize(
    ("source", "to", "asked"),
    [
        ("tfrecord", "ofrecord", None),
        ("ofrecord", "tfrecord", None),
        ("arrow", "tfrecord", None),
        ("ofrecord", "parquet", "parquet"),
        ("parquet", "arrow", "arrow"),
    ],
)
def test_a_converted_data_set_equals_that_of_create(
    created: dict[str, Path], tmp_path: Path, source: str, to: str, asked: str | None
) -> None:
    converted = bertprep.convert(created[source], tmp_path / "converted", to=asked, workers=1)
    assert list(converted.folders) == [to]
    assert contents(tmp_path / "converted") == contents(created[to])
    mine, theirs, origin = (read_manifest(path) for path in (tmp_path / "converted", created[to], created[source]))
    assert mine
    assert theirs
    assert origin
    assert mine.files == theirs.files == converted.manifest.files
    assert mine.versions == theirs.versions
    assert mine.made_with == {
        **theirs.made_with,
        "converted_to": {"format": to, "shards": None},
        "converted_from": {name: entry["blake3"] for name, entry in origin.files.items()},
    }


def test_arrow_without_splits_is_one_dataset(created: dict[str, Path], tmp_path: Path) -> None:
    bertprep.convert(created["tfrecord"] / "training", tmp_path / "target", to="arrow", workers=1)
    assert sorted(contents(tmp_path / "target")) == [
        "dataset_dict.json",
        *(f"train/{name}" for name in ("dataset_info.json", *(f"gold_training_0000{n}.arrow" for n in range(3)), "state.json")),
        "vocab.txt",
    ]
    assert json.loads((tmp_path / "target/train/state.json").read_bytes())["_split"] == "train"


def test_a_converted_file_equals_that_of_create(created: dict[str, Path], tmp_path: Path) -> None:
    tfrecord, ofrecord = created["tfrecord"] / "training/gold_training_00001.tfrecord", created["ofrecord"] / "training/part-1"
    for source, to, result in ((tfrecord, None, ofrecord), (ofrecord, None, tfrecord), (tfrecord, "tfrecord", tfrecord)):
        target = tmp_path / f"{source.name} to {to}"
        bertprep.convert(source, target, to=to)
        assert target.read_bytes() == result.read_bytes()


def test_the_name_of_a_file_tells_its_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "a.tfrecord", file_of(FIRST, SECOND))
    for name, expected in {"b.tfrecord": "tfrecord", "b.Arrow": "arrow", "b.parquet": "parquet", "part-7": "ofrecord"}.items():
        assert bertprep.convert(source, tmp_path / "named" / name).folders == {expected: tmp_path / "named" / name}
    assert main(["convert", str(source), str(tmp_path / "named" / "b.records")]) == 0
    assert (
        "wrote ofrecord by default, since the name b.records implies no format; choose another with --to"
        in capsys.readouterr().out
    )
    write(tmp_path / "folder" / "a", file_of(FIRST, SECOND))
    assert bertprep.convert(tmp_path / "folder", tmp_path / "b.arrow", workers=1).folders == {"arrow": tmp_path / "b.arrow"}


def test_a_variant_equals_that_of_create(created: dict[str, Path], tmp_path: Path) -> None:
    variant = vars(Variant(feature_names="tf2", compress="gzip"))
    made = create(created["tfrecord"].parents[2], ("tfrecord",), **variant)["tfrecord"]
    bertprep.convert(created["ofrecord"], tmp_path / "there", to="tfrecord", **variant, workers=2)
    bertprep.convert(tmp_path / "there", tmp_path / "back", to="tfrecord", workers=1)
    assert contents(tmp_path / "there") == contents(made)
    assert contents(tmp_path / "back") == contents(created["tfrecord"])


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
        assert one.read_bytes() == b"".join(path.read_bytes() for path in sorted((created["tfrecord"] / split).iterdir()))
    source = created["ofrecord"] / "training" / "part-0"
    bertprep.convert(source, tmp_path / "of a file", to="ofrecord", shards=3, workers=2)
    parts = [tmp_path / "of a file" / "training" / f"part-{number}" for number in range(3)]
    assert b"".join(part.read_bytes() for part in parts) == source.read_bytes()


@pytest.mark.parametrize(("to", "shards"), [("tfrecord", None), ("ofrecord", 3)])
def test_records_are_picked_evenly_from_each_split(
    created: dict[str, Path], tmp_path: Path, to: str, shards: int | None
) -> None:
    target = tmp_path / "target"
    converted = bertprep.convert(created["tfrecord"], target, to=to, pick=7, shards=shards, workers=1)
    for split in ("training", "test"):
        expected = values(sorted((created["tfrecord"] / split).iterdir()))
        numbers = [int(i * (len(expected[0]) / 7)) for i in range(7)]
        made = sorted((target / split).iterdir())
        assert [len(records.open(path)) for path in made] == ([3, 2, 2] if shards else [7])
        for mine, all_of_them in zip(values(made), expected, strict=True):
            np.testing.assert_array_equal(mine, all_of_them[numbers])
    manifest = read_manifest(target)
    assert manifest
    assert manifest.made_with["converted_to"] == {"format": to, "shards": shards, "pick": 7}
    assert manifest.files == converted.manifest.files


@pytest.mark.parametrize("kind", [SquadExamples, SquadEvalExamples])
def test_windows_of_squad_are_not_picked(kind: type[Examples], tmp_path: Path) -> None:
    """Neither of a file nor of a folder: they are scored together, by their consecutive numbers."""
    source = tmp_path / "source" / "a.tfrecord"
    source.parent.mkdir()
    write_examples([task_examples(kind, 4)], {"tfrecord": source})
    for of in (source, source.parent):
        with pytest.raises(UsageError, match=r"^--pick 2: .* has windows of SQuAD questions, which are numbered"):
            bertprep.convert(of, tmp_path / "picked", to="tfrecord", pick=2)
    assert not (tmp_path / "picked").exists()


def test_picked_numbers_are_rounded_as_mlperfs_are(tmp_path: Path) -> None:
    """25 * (116 / 100) is just below 29 in floating point, so that MLPerf's record 25 is that of number 28."""
    source = write(tmp_path / "source", file_of(*({**FIRST, "input_ids": [number] * SEQ} for number in range(116))))
    bertprep.convert(source, tmp_path / "picked", to="tfrecord", pick=100)
    numbers = records.open(tmp_path / "picked")[:].input_ids[:, 0].tolist()
    assert numbers == [int(i * (116 / 100)) for i in range(100)]
    assert numbers[25] == 28


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
    assert b"".join(path.read_bytes() for path in ours) == file_of(*expected, variant=Form("ofrecord"))


def flip_a_byte(folder: Path) -> None:
    """In the padding of a record, which no checksum of an OFRecord would show."""
    path = folder / "training" / "part-0"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (flip_a_byte, "part-0: has blake3 "),
        (lambda folder: (folder / "test" / "part-0").unlink(), "part-0: is missing, "),
        (
            lambda folder: [(folder / "manifest.json").unlink(), (folder / ".ledger").mkdir()],
            "is not finished; run the command that makes it again",
        ),
        (lambda folder: write(folder / "test" / "part-0", b""), "part-0: is empty; make it again"),
    ],
    ids=["corrupt", "missing", "unfinished", "empty"],
)
def test_a_source_that_differs_from_its_manifest(
    created: dict[str, Path], tmp_path: Path, change: Callable[[Path], object], message: str
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    shutil.copytree(created["ofrecord"], source)
    change(source)
    with pytest.raises(BertprepError, match=message):
        bertprep.convert(source, target, workers=1)
    assert not target.exists()


@pytest.mark.parametrize("is_file", [True, False])
def test_predictions_that_contradict_the_files_are_refused(is_file: bool, tmp_path: Path) -> None:
    source = write(tmp_path / "a" / "part-0", file_of(FIRST))
    target = tmp_path / "b.tfrecord" if is_file else tmp_path / "b"
    with pytest.raises(UsageError, match=r"^--pred 1: .* states that its records have up to 2 pred"):
        bertprep.convert(source if is_file else source.parent, target, to="tfrecord", pred=1, workers=1)
    assert not target.exists()


def test_a_source_that_has_another_shape_when_it_is_read_is_named(tmp_path: Path) -> None:
    """As when another run replaces it after the shapes of all were compared."""
    first = write(tmp_path / "a", file_of(FIRST))
    other = write(tmp_path / "b", file_of(random_record(random.Random(0), 16, 4)))
    with pytest.raises(BertprepError) as refused:
        RecordConverter(RECORD_FORMATS[0]).convert([Span(first), Span(other)], tmp_path / "c")
    assert str(refused.value) == (
        f"{other}: has records of 16 tokens and 4 predictions, expected 8 and 2 like {first}; "
        "give files that were made with the same settings"
    )
    assert not (tmp_path / "c").exists()


def test_a_target_made_from_another_source_or_otherwise_is_refused(created: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(BertprepError, match=": was not made by bertprep convert; choose another target folder, or remove"):
        bertprep.convert(created["tfrecord"], created["ofrecord"], workers=1)
    write(tmp_path / "source" / "part-0", file_of(FIRST))
    bertprep.convert(tmp_path / "source", tmp_path / "target")
    with pytest.raises(BertprepError, match="was made without --pick, but this run has --pick 1"):
        bertprep.convert(tmp_path / "source", tmp_path / "target", pick=1)
    write(tmp_path / "source" / "part-0", file_of(SECOND))
    with pytest.raises(BertprepError, match=r"was made with converted_from\.part-0 "):
        bertprep.convert(tmp_path / "source", tmp_path / "target")


def test_a_vocabulary_beside_a_split_is_copied(tmp_path: Path) -> None:
    write(tmp_path / "source" / "training" / "part-0", file_of(FIRST))
    write(tmp_path / "source" / "vocab.txt", b"[PAD]\n")
    bertprep.convert(tmp_path / "source" / "training", tmp_path / "target", to="tfrecord")
    assert sorted(contents(tmp_path / "target")) == ["training/corpus_training_00000.tfrecord", "vocab.txt"]
